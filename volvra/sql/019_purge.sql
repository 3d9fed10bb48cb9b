-- Purging.

create function volvra.purge_parts(p_what text, p_tracked int, p_segment int, p_through bigint) returns bytea
language sql set search_path = pg_catalog, pg_temp as $$
  with gone as (select p.seal, p.number, p.digest from volvra.sealed_part p
                where p.what = p_what and p.tracked = p_tracked and p.segment = p_segment and p.last_v < p_through and not volvra.is_purged(p)),
       d as (delete from volvra.sealed_position s using gone g where s.what = p_what and s.tracked = p_tracked and s.segment = p_segment and s.seal = g.seal and s.number = g.number)
  select sha256(string_agg(g.digest, ''::bytea order by g.seal, g.number)) from gone g
$$;
comment on function volvra.purge_parts is 'Removes the positions of the sealed parts before a position; returns the hash over their digests, null when there is none.';

create function volvra.purge_entries(s annals.segment, p_through bigint, out removed bigint, out top xid8)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Sealed entries go by whole parts, so that what is left of them can still be verified.
  execute format('with d as (delete from %s e where e.v < $1 and %s returning e.xid), o as (select d.xid from d order by d.xid desc limit 1) select (select count(*) from d), (select o.xid from o)', s.relation,
    case when exists (select from volvra.seal) then
      'e.v in (select unnest(q.positions) from volvra.sealed_position q join volvra.sealed_part p on p.what = q.what and p.tracked = q.tracked and p.segment = q.segment and p.seal = q.seal and p.number = q.number
               where p.what = ''entry'' and p.tracked = $2 and p.segment = $3 and p.last_v < $1)' else 'true' end)
    using p_through, s.tracked, s.number into removed, top;
  update annals.segment g set entries = g.entries - removed where g.tracked = s.tracked and g.number = s.number and g.sealed_at is not null;
end $$;
comment on function volvra.purge_entries is 'Deletes the entries of a segment before a position; tells how many, and the highest transaction among them.';

create function volvra.purge_others(p_attempt bigint, p_tracked int, p_table text, p_before bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  id bigint;
  removed bigint;
  what text;
begin
  foreach what in array array['move', 'gap'] loop
    id := nextval(pg_get_serial_sequence('volvra.purge', 'id'));
    removed := volvra.remove_rows(what, p_tracked, format(case what when 'move' then 'e.arrived_v < %s' else 'e.v < %s' end, p_before), null, id);
    if removed > 0 then
      insert into volvra.purge (id, attempt, tracked, table_name, what, segment, through_v, whole, entries) overriding system value
        values (id, p_attempt, p_tracked, p_table, what, 0, p_before, false, removed);
    end if;
  end loop;
end $$;
comment on function volvra.purge_others is 'Removes changes of keys and interruptions before a position.';

create function volvra.purge(p_partial boolean default false, p_table text default null, p_attempt bigint default null)
returns table (attempt bigint, tracked int, "table" text, segment int, action text, entries bigint, through_v bigint, held_by text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  x record;
  s annals.segment;
  d record;
  id bigint := p_attempt;
  before bigint;
  present int := annals.present_epoch();
  total bigint := 0;
begin
  perform volvra.read_committed('purging');
  if id is null then
    id := volvra.begin_attempt('purge', case when p_table is not null then jsonb_build_object('tables', jsonb_build_array(p_table)) end, case when p_partial then 'partial' else 'whole segments' end);
  else
    perform volvra.resume_attempt(id);
  end if;
  -- Neither a seal nor an erasure runs meanwhile, and nobody sets a pin.
  perform pg_advisory_xact_lock(hashtextextended('volvra.seal', 0));
  lock table annals.pin in share mode;
  for x in select p.tracked, p."table", p.segment, p.action, p.through_v, p.held_by, lead(p.action) over (partition by p.tracked order by p.segment) is distinct from 'drop' as last_drop
             from volvra.purgeable(p_partial, p_table) p order by p.tracked, p.segment loop
    select * into s from annals.segment g where g.tracked = x.tracked and g.number = x.segment;
    d := row(0::bigint, null::xid8);
    if x.action = 'drop' then
      insert into volvra.purge (attempt, tracked, table_name, what, segment, through_v, whole, entries, digest)
        values (id, x.tracked, x."table", 'entry', x.segment, s.last_v + 1, true, s.entries, volvra.purge_parts('entry', x.tracked, x.segment, s.last_v + 1));
      if x.last_drop then
        before := (select max(g.last_v) + 1 from annals.segment g where g.tracked = x.tracked and g.number <= x.segment);
        perform volvra.purge_others(id, x.tracked, x."table", before);
        perform annals.prune(x.tracked, before);
        if exists (select from annals.segment g where g.tracked = x.tracked and g.number <= x.segment) then
          perform volvra.refuse('VO046', format('segment %s of %s was not dropped', x.segment, x."table"), 'Purge again.');
        end if;
      end if;
      total := total + s.entries;
      return query select id, x.tracked, x."table", x.segment, x.action, s.entries, s.last_v + 1, x.held_by;
    elsif x.action = 'delete' then
      select * into d from volvra.purge_entries(s, x.through_v);
      if d.removed > 0 then
        insert into volvra.purge (attempt, tracked, table_name, what, segment, through_v, whole, entries, digest)
          values (id, x.tracked, x."table", 'entry', x.segment, x.through_v, false, d.removed, volvra.purge_parts('entry', x.tracked, x.segment, x.through_v));
        update annals.tracked k set pruned_v = greatest(k.pruned_v, x.through_v), pruned_xid = case when s.epoch = present then greatest(k.pruned_xid, d.top) else k.pruned_xid end where k.id = x.tracked;
        perform volvra.purge_others(id, x.tracked, x."table", x.through_v);
        total := total + d.removed;
        return query select id, x.tracked, x."table", x.segment, x.action, d.removed, x.through_v, x.held_by;
      elsif x.held_by <> '{}' then
        return query select id, x.tracked, x."table", x.segment, 'keep', 0::bigint, null::bigint, x.held_by;
      end if;
    else
      return query select id, x.tracked, x."table", x.segment, x.action, 0::bigint, x.through_v, x.held_by;
    end if;
  end loop;
  perform volvra.finish_attempt(id, 'done', jsonb_build_object('rows', total));
end $$;
comment on function volvra.purge is 'Removes what has expired, and says what holds back the rest: whole segments, and with partial also the expired part of others.';

revoke all on function volvra.purge, volvra.purge_entries, volvra.purge_others, volvra.purge_parts from public;
