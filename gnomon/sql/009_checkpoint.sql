-- Checkpoints: the rows of a table at a place, saved whole. Where much has changed since, reading the past near it takes the entries up to
-- the checkpoint and the rows that it holds, in place of all entries up to today and today's rows.

create function gnomon.make_checkpoint(p_table regclass, p_ref text default 'now', p_name text default null) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' set row_security = off as $$
declare
  p gnomon.place := gnomon.place_of(p_ref);
  t annals.tracked;
  r record;
  id int := nextval(pg_get_serial_sequence('gnomon.checkpoint', 'id'));
  target text;
  rows bigint;
  top bigint;
  settings name[] := array['gnomon.place', 'gnomon.snapshot', 'gnomon.bound', 'gnomon.checked'];
  before text[] := array(select coalesce(current_setting(x.name, true), '') from unnest(settings) with ordinality x (name, i) order by x.i);
begin
  if p_name = '' or length(p_name) > 200 then
    perform gnomon.refuse('GN006', format('%L is no name for a checkpoint', left(p_name, 100)), 'It has 1 to 200 characters.');
  end if;
  if exists (select from gnomon.checkpoint k join annals.tracked x on x.id = k.tracked where x.relation = p_table and k.name = p_name) then
    perform gnomon.refuse('GN006', format('%s has a checkpoint %L already', p_table, p_name), 'Drop it with gnomon.drop_checkpoint, or choose another name.', jsonb_build_object('table', p_table::text));
  end if;
  select * into t from annals.tracked x where x.id = gnomon.history_at(p_table, p);
  select h.shape, v.checked, v.schema_name, v.view_name into r from gnomon.histories_at(p) h join gnomon.routes_at(p) v on v.tracked = h.tracked and not v.guarded where h.tracked = t.id;
  perform set_config('gnomon.place', p.coordinate, true), set_config('gnomon.snapshot', p.snapshot::text, true), set_config('gnomon.bound', p.bound::text, true), set_config('gnomon.checked', r.checked, true);
  target := format('gnomon.k%s', id);
  execute (select format('create table %s as select %s from %I.%I', target, string_agg(format('%I as c%s', c.name, c.n), ', ' order by c.n), r.schema_name, r.view_name) from gnomon.past_columns(t.id, r.shape) c);
  get diagnostics rows = row_count;
  perform set_config(x.name, x.value, true) from unnest(settings, before) x (name, value); -- as the caller had them
  execute (select format('create unique index on %s (%s)', target, string_agg(format('c%s', u.n), ', ' order by u.i)) from unnest(t.key) with ordinality u (n, i));
  execute format('analyze %s', target);
  perform annals.own_only(target);
  execute format('comment on table %s is %L', target, format('Rows of %s at a checkpoint, see gnomon.checkpoint.', p_table));
  execute (select format('select max(h.v) from (%s) h where pg_visible_in_snapshot(h.xid, $1)', string_agg(format('select s.v, s.xid from %s s', s.relation), ' union all '))
           from annals.segment s where s.tracked = t.id and s.number >= r.shape and s.epoch = p.epoch) into top using p.snapshot;
  insert into gnomon.checkpoint (id, tracked, coordinate, snapshot, epoch, v, top_v, shape, relation, rows, name) overriding system value
    values (id, t.id, p.coordinate, p.snapshot, p.epoch, p.bound, coalesce(top, p.bound), r.shape, target::regclass, rows, p_name);
  if p_name is not null then
    insert into annals.pin (tracked, owner, name, v) values (t.id, 'gnomon checkpoint', format('%s: %s', id, p_name), p.bound);
  end if;
  perform gnomon.write_routes(t.id);
  return id;
end $$;
comment on function gnomon.make_checkpoint is 'Saves the rows of a table at a place; returns the number of the checkpoint. One with a name keeps history from there on, until it is dropped; others go when history before them is pruned.';

create function gnomon.drop_checkpoint(p_id int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  k gnomon.checkpoint;
begin
  select * into k from gnomon.checkpoint x where x.id = p_id for update;
  if not found then
    perform gnomon.refuse('GN015', format('there is no checkpoint %s', coalesce(p_id::text, 'null')), 'gnomon.checkpoint lists them.');
  end if;
  perform gnomon.drop_routes(k.tracked);
  if exists (select from gnomon.route r where r.tracked = k.tracked) then
    raise lock_not_available using message = format('checkpoint %s is being read', p_id);
  end if;
  execute format('drop table %s', k.relation);
  delete from gnomon.checkpoint x where x.id = p_id;
  delete from annals.pin x where x.owner = 'gnomon checkpoint' and x.name = format('%s: %s', k.id, k.name);
  perform gnomon.write_routes(k.tracked);
end $$;
comment on function gnomon.drop_checkpoint is 'Drops a checkpoint.';

create function gnomon.on_erase(p_tracked int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.drop_checkpoint(k.id) from gnomon.checkpoint k where k.tracked = p_tracked;
end $$;
comment on function gnomon.on_erase is 'Is called when something of a history is erased: its checkpoints may hold it, and are dropped.';

create function gnomon.changes_since(p_tracked int, p_v bigint) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s annals.segment;
  n bigint;
  total bigint := 0;
begin
  for s in select * from annals.segment g where g.tracked = p_tracked and coalesce(g.last_v > p_v, true) loop
    if s.sealed_at is not null and s.first_v > p_v then
      n := s.entries;
    else
      execute format('select count(*) from %s h where h.v > $1', s.relation) into n using p_v;
    end if;
    total := total + n;
  end loop;
  return total;
end $$;
comment on function gnomon.changes_since is 'Number of entries of a history after a position.';

create function gnomon.due_checkpoints() returns table ("table" text, changes bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.relation::text, c.n
  from gnomon.policy p join annals.tracked t on t.id = p.tracked and t.ended_v is null
  cross join lateral gnomon.changes_since(t.id, coalesce((select max(k.top_v) from gnomon.checkpoint k where k.tracked = t.id and k.epoch = (select max(e.number) from annals.epoch e)), t.began_v)) c (n)
  where c.n >= p.checkpoint_changes and exists (select from pg_class r where r.oid = t.relation)
$$;
comment on function gnomon.due_checkpoints is 'Tables that their policy gives a checkpoint now, and how much changed since the last one.';
