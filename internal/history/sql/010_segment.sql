-- Rotation: history is kept in segments of bounded size, so that old parts can be indexed for reading, sealed, and dropped at once.

create function annals.rotate(p_tracked int, p_bytes bigint default null) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
  s annals.segment;
begin
  perform annals.present_epoch();
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found then
    return false;
  end if;
  -- Writers go on. Those that are in a statement still write to the old segment.
  perform pg_advisory_xact_lock(hashtextextended('annals.track', t.relation::oid::bigint));
  select * into s from annals.segment g where g.tracked = p_tracked order by g.number desc limit 1;
  -- Segments grow with the history, so that they stay few: planning a read takes time for each of them.
  if p_bytes is null then
    p_bytes := greatest(16777216, (select sum(pg_table_size(g.relation)) / 16 from annals.segment g where g.tracked = p_tracked));
  end if;
  if s.number is null or pg_table_size(s.relation) < p_bytes or not exists (select from annals.tracked k where k.id = p_tracked and k.ended_v is null) then
    return false;
  end if;
  -- A segment has the columns that its table has now: where those differ from what capture was made for, annals.sync comes first.
  if exists (select from annals.drift(p_tracked) d where d.what in ('dropped', 'restored', 'column', 'key')) then
    return false;
  end if;
  perform set_config('annals.working', 'yes', true);
  perform annals.begin_segment(p_tracked);
  perform annals.write_functions(p_tracked);
  perform annals.write_view(p_tracked);
  perform set_config('annals.working', '', true);
  return true;
end $$;
comment on function annals.rotate is 'Begins a new segment when the present one has grown to so many bytes; by default to 16 MB and a sixteenth of the history. False when it has not, and when annals.sync has to come first.';

create function annals.open_writers(p_tracked int, p_among text[]) returns text[]
language sql volatile set search_path = pg_catalog, pg_temp as $$
  -- A transaction that writes the table holds a lock on it from before it looks capture up until its end, prepared or not. In its first
  -- statement it need not have an id yet, so ids cannot tell.
  select array(
    select distinct l.virtualtransaction from pg_locks l
    where case when p_among is null
            then l.locktype = 'relation' and l.database = (select d.oid from pg_database d where d.datname = current_database()) and l.granted
                 and l.mode not in ('AccessShareLock', 'RowShareLock', 'ShareUpdateExclusiveLock') -- readers, VACUUM and ANALYZE
                 and (l.relation in (select r.relation from annals.tracked_relation r where r.tracked = p_tracked)
                      or l.relation in (select s.relation from annals.segment s where s.tracked = p_tracked and s.sealed_at is null)
                      or l.relation = (select t.relation_oid from annals.tracked t where t.id = p_tracked))
            else l.virtualtransaction = any (p_among) end
      and l.pid is distinct from pg_backend_pid()
    order by 1)
$$;
comment on function annals.open_writers is 'Transactions that may have written a tracked table and are open; or which of those given are.';

create function annals.seal_segments() returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  s annals.segment;
  open text[];
  bounds record;
  sealed int := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform annals.refuse('AN002', format('segments cannot be sealed in a %s transaction: it does not see the last entries', upper(current_setting('transaction_isolation'))), 'Use READ COMMITTED.');
  end if;
  for s in select * from annals.segment g where g.closed_by is not null and g.sealed_at is null and g.closed_by is distinct from pg_current_xact_id_if_assigned()
             order by g.tracked, g.number for update skip locked loop
    -- Whoever wrote the table when the next segment was there already; later statements use that one.
    open := annals.open_writers(s.tracked, s.writers);
    if open <> '{}' then
      update annals.segment g set writers = open where g.tracked = s.tracked and g.number = s.number and g.writers is distinct from open;
      continue;
    end if;
    begin
      execute format('select coalesce(min(v), $1) as first, coalesce(max(v), $1) as last, min(at) as first_at, max(at) as last_at, count(*) as n from %s', s.relation) into bounds using s.first_v;
      execute format('create index %I on %s using brin (v) with (pages_per_range = 16)', format('h%s_%s_v', s.tracked, s.number), s.relation);
      execute format('create index %I on %s (xid)', format('h%s_%s_xid', s.tracked, s.number), s.relation);
      execute format('comment on index annals.%I is ''Finds entries by position''', format('h%s_%s_v', s.tracked, s.number));
      execute format('comment on index annals.%I is ''Finds the entries of a transaction''', format('h%s_%s_xid', s.tracked, s.number));
      -- So that the planner leaves it out where other positions are asked for.
      execute format('alter table %s add constraint sealed check (v between %s and %s)', s.relation, bounds.first, bounds.last);
      update annals.segment g set sealed_at = clock_timestamp(), writers = null, last_v = bounds.last, first_at = bounds.first_at, last_at = bounds.last_at, entries = bounds.n
        where g.tracked = s.tracked and g.number = s.number;
      sealed := sealed + 1;
    exception when lock_not_available then
      null; -- somebody reads it in a long transaction: next time
    end;
  end loop;
  return sealed;
end $$;
comment on function annals.seal_segments is 'Finishes closed segments in which nobody can write any more: indexes them by position and transaction, and notes what they span. Returns how many. To be called now and then.';

create function annals.pinned(p_tracked int) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  select min(p.v) from annals.pin p where p.tracked is null or p.tracked = p_tracked
$$;
comment on function annals.pinned is 'Entries of a history from this position on are pinned; null when none is.';

create function annals.prune(p_tracked int, p_before bigint, out segments int, out entries bigint, out begins_v bigint, out pinned_by jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
  s annals.segment;
  pinned bigint;
  top xid8;
  gone regclass;
  dropped regclass[] := '{}';
begin
  segments := 0;
  entries := 0;
  if p_before is null then
    perform annals.refuse('AN012', 'no position is given up to which history is to be pruned', 'annals.position_at gives that of a time; it is null when no tick is as old.');
  end if;
  select * into t from annals.tracked k where k.id = p_tracked for update;
  if not found then
    perform annals.refuse('AN005', format('there is no history %s', coalesce(p_tracked::text, 'null')), 'annals.tracked lists them.');
  end if;
  begins_v := coalesce(t.pruned_v, t.began_v);
  -- Nobody sets a pin while it is decided what none holds.
  lock table annals.pin in share mode;
  pinned := annals.pinned(p_tracked);
  -- Whole segments from the oldest on, as far as all their entries lie before.
  for s in select * from annals.segment g where g.tracked = p_tracked order by g.number for update loop
    exit when s.sealed_at is null or s.last_v >= p_before;
    if s.last_v >= pinned then
      pinned_by := (select jsonb_agg(jsonb_build_object('owner', p.owner, 'name', p.name, 'v', p.v) order by p.v, p.owner, p.name) from annals.pin p
                    where (p.tracked is null or p.tracked = p_tracked) and p.v <= s.last_v);
      exit;
    end if;
    if s.epoch = (select max(e.number) from annals.epoch e) then
      execute format('select x.xid from %s x order by x.xid desc limit 1', s.relation) into top;
      t.pruned_xid := case when top > t.pruned_xid or t.pruned_xid is null then coalesce(top, t.pruned_xid) else t.pruned_xid end;
    end if;
    segments := segments + 1;
    entries := entries + s.entries;
    begins_v := greatest(begins_v, s.last_v + 1);
    dropped := dropped || s.relation;
    t.pruned_columns := s.columns;
    delete from annals.segment g where g.tracked = p_tracked and g.number = s.number;
  end loop;
  if segments = 0 then
    return;
  end if;
  update annals.tracked k set pruned_v = begins_v, pruned_xid = t.pruned_xid, pruned_columns = t.pruned_columns where k.id = p_tracked;
  perform set_config('annals.working', 'yes', true);
  -- The view lets go of the tables first.
  perform annals.write_view(p_tracked);
  begin
    foreach gone in array dropped loop
      execute format('drop table %s', gone);
    end loop;
  exception when dependent_objects_still_exist then -- a package's view that was being read when it was to go
    raise lock_not_available using message = format('%s is being read', gone);
  end;
  perform set_config('annals.working', '', true);
  delete from annals.gap g where g.tracked = p_tracked and g.v < begins_v;
  delete from annals.move m where m.tracked = p_tracked and m.arrived_v < begins_v;
end $$;
comment on function annals.prune is 'Drops the oldest segments of a history whose entries all lie before a position and are not pinned. Tells how many, where history begins now, and the pins that kept more from being dropped.';
