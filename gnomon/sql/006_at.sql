-- Reading the past by ordinary SQL: gnomon.at puts views before the tables in search_path and sets the place that they show.

create function gnomon.histories_at(p gnomon.place) returns table (tracked int, relation oid, source int, schema_name name, version bigint, shape int, present boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- Of each table the last history that had begun by then.
  return query
    select k.id, k.relation::oid, s.id, k.schema_name, k.version, x.number, x.present
    from (select distinct on (t.relation) t.* from annals.tracked t join gnomon.history g on g.tracked = t.id join pg_class c on c.oid = t.relation and (t.ended_v is null or c.relname = t.table_name)
            join pg_namespace n on n.oid = c.relnamespace and (t.ended_v is null or n.nspname = t.schema_name)
          where gnomon.began_before(t, p.epoch, p.snapshot) order by t.relation, t.id desc) k
    join gnomon.history h on h.tracked = k.id join gnomon.source s on s.schema_name = k.schema_name
    -- The last columns that it sees the table have.
    join lateral (select * from gnomon.shapes(k.id) z where z.since is null or pg_visible_in_snapshot(z.since, p.snapshot) order by z.number desc limit 1) x on true
    where not gnomon.ended_before(k, p.epoch, p.snapshot) and gnomon.unreachable(k, p) is null;
end $$;
comment on function gnomon.histories_at is 'The histories that tell their tables at a place, with their versions, and the shape that the tables had.';

create function gnomon.best_checkpoint(p_tracked int, p gnomon.place) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- The next one at or after the place, when it is nearer than today: positions stand for how much has changed.
  select k.id from gnomon.checkpoint k
  where k.tracked = p_tracked and k.epoch = p.epoch and annals.snapshot_covers(k.snapshot, p.snapshot)
    and k.top_v - p.bound < (select last_value from annals.v) - k.v
  order by k.top_v, k.id limit 1
$$;
comment on function gnomon.best_checkpoint is 'The checkpoint from which the state of a table at a place is told best; null when that is today''s.';

create function gnomon.routes_at(p gnomon.place, p_names text default 'present') returns table (tracked int, relation oid, source int, source_schema name, checked text, guarded boolean, schema_name name, view_name name, present boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select distinct on (h.tracked, r.guarded) h.tracked, h.relation, h.source, h.schema_name, format(' %s:%s ', r.id, h.version), r.guarded, r.schema_name, r.view_name, h.present
  from gnomon.histories_at(p) h
  join gnomon.route r on r.tracked = h.tracked and r.shape = h.shape
    and case r.kind when 'old' then false when 'recent' then p.bound >= r.after_v when 'checkpoint' then r.checkpoint = gnomon.best_checkpoint(h.tracked, p) when 'named' then p_names = 'former' and r.era = gnomon.era_at(h.tracked, p) else true end and (r.kind = 'branch') = (p_names = 'branch')
  order by h.tracked, r.guarded, r.kind = 'named' desc, r.kind = 'checkpoint' desc, r.kind = 'recent' desc, r.id
$$;
comment on function gnomon.routes_at is 'The views that show tables at a place, with what they compare to be sure of it: for readers whom row-level security restricts, and for others.';

create function gnomon.astray(p_schemas name[]) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- Where event triggers follow what becomes of names, there are none.
  if annals.follows_ddl() then
    return null;
  end if;
  return (select format('%I.%I', s.schema, u.name) from unnest(p_schemas) s (schema) cross join lateral gnomon.unguarded(gnomon.source_of(s.schema)) u (name) limit 1);
end $$;
comment on function gnomon.astray is 'A name in these schemas that does not mean in the past what it should; null when there is none.';

create type gnomon.opening as (place gnomon.place, checked text, path text, outside text, tables jsonb);
comment on type gnomon.opening is 'What is set to read the past.';
comment on column gnomon.opening.place is 'The place.';
comment on column gnomon.opening.checked is 'Routes that show their tables there, with the versions of histories for which that was found.';
comment on column gnomon.opening.path is 'The search_path.';
comment on column gnomon.opening.outside is 'The search_path to go back to.';
comment on column gnomon.opening.tables is 'Views by the OIDs of their tables.';

create function gnomon.open_at(p_ref text, p_schemas name[], p_outside text, p_untracked text, p_names text default 'present') returns gnomon.opening
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  o gnomon.opening;
begin
  if coalesce(p_untracked, '') not in ('refuse', 'present') then
    perform gnomon.refuse('GN006', format('untracked tables cannot be read as %L', p_untracked), 'Say refuse, or present to read their rows of today.');
  end if;
  if coalesce(p_names, '') not in ('present', 'former') then
    perform gnomon.refuse('GN006', format('columns cannot be read under %L names', p_names), 'Say present, or former for the names that they had then.');
  end if;
  -- Within the past, another place has views of its own.
  p_schemas := array(select s.schema from unnest(p_schemas) with ordinality s (schema, i) where gnomon.source_shown(s.schema) is null order by s.i);
  -- Else they would mean tables of today.
  perform gnomon.refuse('GN008', format('%s is new or has changed, and what it means in the past has not followed', x.name), 'Call gnomon.sync for a tracked table that changed, else gnomon.sync_guards().', jsonb_build_object('table', x.name))
    from (select gnomon.astray(p_schemas) as name) x where x.name is not null;
  o.place := gnomon.place_of(p_ref);
  o.outside := p_outside;
  with routes as materialized (select r.* from gnomon.routes_at(o.place, p_names) r where r.guarded = row_security_active(r.relation)),
  listed as (
    -- Before each schema the views of its tables, those that differ from today's first, and then what refuses to be read.
    select s.i, 1 as part, r.tracked::text as name, quote_ident(r.schema_name) as entry from unnest(p_schemas) with ordinality s (schema, i) join routes r on r.source_schema = s.schema and r.schema_name !~ '^gnomon_past_[0-9]+$'
    union all
    select s.i, 2, '', quote_ident(format('gnomon_past_%s', x.id)) from unnest(p_schemas) with ordinality s (schema, i) join lateral gnomon.source_of(s.schema) x (id) on x.id is not null
    union all
    select s.i, 3, '', quote_ident(format('gnomon_guard_%s', x.id)) from unnest(p_schemas) with ordinality s (schema, i) join lateral gnomon.source_of(s.schema) x (id) on x.id is not null where p_untracked = 'refuse'
    union all
    select s.i, 4, '', quote_ident(s.schema) from unnest(p_schemas) with ordinality s (schema, i))
  select (select coalesce(string_agg(l.entry, ', ' order by l.i, l.part, l.name), '""') from listed l),
         (select coalesce(string_agg(r.checked, ''), '') from routes r),
         (select coalesce(jsonb_object_agg(r.relation, format('%I.%I', r.schema_name, r.view_name)), '{}') from routes r)
    into o.path, o.checked, o.tables;
  -- A transaction that sees an earlier state of the database may know of views that are gone; without them names would mean other tables.
  perform gnomon.refuse('GN008', format('the view %s of the past has gone since this transaction began', v), 'Read in another transaction.')
    from jsonb_each_text(o.tables) x (relation, v) where to_regclass(v) is null;
  return o;
end $$;
comment on function gnomon.open_at is 'Finds what has to be set to read the past at a place.';

create function gnomon.source_of(p_schema name) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select s.id from gnomon.source s where s.schema_name = p_schema $$;
comment on function gnomon.source_of is 'Number of a schema that has tracked tables.';

-- Without a search_path of their own: they read and set the caller's.
create function gnomon.at(p_ref text, p_local boolean default false, p_untracked text default 'refuse', p_names text default 'present') returns text
language plpgsql volatile as $$
declare
  o gnomon.opening;
begin
  -- Within the past another place is opened from outside.
  if coalesce(pg_catalog.current_setting('gnomon.place', true), '') operator(pg_catalog.<>) '' then
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('gnomon.outside', true), p_local);
  end if;
  o := gnomon.open_at(p_ref, pg_catalog.current_schemas(false), pg_catalog.current_setting('search_path'), p_untracked, p_names);
  perform pg_catalog.set_config('gnomon.branch', '', p_local), pg_catalog.set_config('gnomon.place', (o.place).coordinate, p_local), pg_catalog.set_config('gnomon.snapshot', (o.place).snapshot::pg_catalog.text, p_local),
          pg_catalog.set_config('gnomon.bound', (o.place).bound::pg_catalog.text, p_local), pg_catalog.set_config('gnomon.checked', o.checked, p_local),
          pg_catalog.set_config('gnomon.outside', o.outside, p_local), pg_catalog.set_config('search_path', o.path, p_local);
  return (o.place).coordinate;
end $$;
comment on function gnomon.at is 'From now on in this session (or with p_local in this transaction) the names of tracked tables mean them as they were at a place: a coordinate, tag:name, a time, or now. Names with their schema mean the tables of today. Returns the coordinate. p_untracked: refuse, or present to let names of untracked tables mean their rows of today. p_names: present, or former to let columns that were renamed since have the names that they had then.';

create function gnomon.leave(p_local boolean default false) returns void
language plpgsql volatile as $$
begin
  if coalesce(pg_catalog.current_setting('gnomon.place', true), '') operator(pg_catalog.<>) '' then
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('gnomon.outside', true), p_local), pg_catalog.set_config('gnomon.place', '', p_local), pg_catalog.set_config('gnomon.branch', '', p_local), pg_catalog.set_config('gnomon.snapshot', '', p_local),
            pg_catalog.set_config('gnomon.bound', '', p_local), pg_catalog.set_config('gnomon.checked', '', p_local), pg_catalog.set_config('gnomon.outside', '', p_local);
  end if;
end $$;
comment on function gnomon.leave is 'Back to the present: what gnomon.at set in the session is as before.';

create function gnomon.enter(p_place text, p_snapshot text, p_bound text, p_checked text, p_path text, p_outside text, p_role text, p_views text[] default null) returns boolean
language plpgsql volatile as $$
begin
  if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) p_outside or current_user operator(pg_catalog.<>) p_role or not gnomon.holds(p_place) or gnomon.astray(pg_catalog.current_schemas(false)) is not null then
    return false;
  end if;
  if p_views is not null then
    begin
      -- Where the name of a view that goes would mean today's table, none goes until the transaction ends.
      execute (select case when pg_catalog.count(*) operator(pg_catalog.=) 0 then 'select' else pg_catalog.format('lock table %s in access share mode', pg_catalog.string_agg(v, ', ')) end from pg_catalog.unnest(p_views) v where pg_catalog.has_table_privilege(v, 'select'));
    exception when undefined_table or invalid_schema_name then
      return false;
    end;
  end if;
  perform pg_catalog.set_config('gnomon.branch', '', true), pg_catalog.set_config('gnomon.place', p_place, true), pg_catalog.set_config('gnomon.snapshot', p_snapshot, true), pg_catalog.set_config('gnomon.bound', p_bound, true),
          pg_catalog.set_config('gnomon.checked', p_checked, true), pg_catalog.set_config('gnomon.outside', p_outside, true), pg_catalog.set_config('search_path', p_path, true);
  return true;
end $$;
comment on function gnomon.enter is 'Sets for this transaction what gnomon.open_at found earlier, if it holds still.';

create function gnomon.holds(p_coordinate text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select left(e.marker::text, 8) = left(p_coordinate, 8) and annals.epoch_is_present() and annals.snapshot_covers(pg_current_snapshot(), split_part(p_coordinate, '/', 2)::pg_snapshot)
  from annals.epoch e order by e.number desc limit 1);
end $$;
comment on function gnomon.holds is 'Whether a coordinate is one of the present epoch, and reached.';

-- One row by its key needs no settings: a statement of its own carries the place in parameters, and checks that what it takes for granted holds.

create view gnomon.validity as select t.id, t.version from annals.tracked t;
comment on view gnomon.validity is 'What changes when a history does, or how it is read.';
comment on column gnomon.validity.id is 'The history.';
comment on column gnomon.validity.version is 'See annals.tracked.';

create view gnomon.marker as select left(m.marker::text, 8) as marker from annals.epoch_marker m;
comment on view gnomon.marker is 'What changes when coordinates cease to hold: the marker that they begin with. Empty after a crash and a promotion.';
comment on column gnomon.marker.marker is 'The marker.';
grant select on gnomon.validity, gnomon.marker to public;

create function gnomon.home() returns text
language sql immutable security definer set search_path = pg_catalog, pg_temp as $$
  -- The same as long as a plan lives: it is planned with the number.
  select concat('annals.epoch_marker'::regclass::oid, '/', pg_relation_filenode('annals.epoch_marker'::regclass))
$$;
comment on function gnomon.home is 'Which database it is: a restored one has other objects.';

create function gnomon.refuse_stale(p_tracked int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN008', format('history %s has changed since the past was opened', p_tracked), 'Open it again.');
  return false;
end $$;
comment on function gnomon.refuse_stale is 'Ends a statement that takes for granted what does not hold any more.';

create type gnomon.point as (tracked int, version bigint, home text, query text, key_names name[]);
comment on type gnomon.point is 'How a single row is read as it was.';
comment on column gnomon.point.tracked is 'The history.';
comment on column gnomon.point.version is 'What has to hold, see gnomon.validity.';
comment on column gnomon.point.home is 'What has to hold: which database it is. A restored one has another marker table.';
comment on column gnomon.point.query is 'The statement: its parameters are the key, bound, snapshot, version, marker and home. Null where views have to be read.';
comment on column gnomon.point.key_names is 'Columns of the key.';

create function gnomon.point_at(p_table regclass, p_coordinate text, p_names text default 'present', p_branch int default null) returns gnomon.point
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  r gnomon.point := gnomon.point_of(p_table, p_coordinate, p_branch);
begin
  if row_security_active(p_table) or pg_is_in_recovery() then -- the marker cannot be read on a standby
    r.query := null;
  end if;
  if p_names = 'former' then
    r := gnomon.point_before(r, p_coordinate);
  end if;
  return r;
end $$;
comment on function gnomon.point_at is 'How the caller reads single rows of a table at a coordinate, or on a branch whose base that is.';

create function gnomon.point_before(p_point gnomon.point, p_coordinate text) returns gnomon.point
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  era bigint := gnomon.era_at(p_point.tracked, gnomon.place_of(p_coordinate));
begin
  if era is not null then
    p_point.query := null;
    p_point.key_names := (
      select array_agg(f.former order by u.i) from annals.tracked t cross join lateral unnest(t.key) with ordinality u (n, i)
      join lateral gnomon.former_columns(t.id, (select min(s.number) from annals.segment s where s.tracked = t.id and t.key <@ s.columns), era) f on f.n = u.n where t.id = p_point.tracked);
  end if;
  return p_point;
end $$;
comment on function gnomon.point_before is 'The same for who reads columns under the names that they had then.';

create function gnomon.point_of(p_table regclass, p_coordinate text, p_branch int default null) returns gnomon.point
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place := gnomon.place_of(p_coordinate);
  t annals.tracked;
  h record;
  r gnomon.point;
  numbers int[];
  size int;
begin
  select * into t from annals.tracked k where k.id = gnomon.history_at(p_table, p);
  r.tracked := t.id;
  r.version := t.version;
  r.key_names := (select array_agg(c.name order by u.i) from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = t.id and c.n = u.n);
  size := cardinality(t.key);
  select * into h from gnomon.histories_at(p) x where x.tracked = t.id;
  select array_agg(s.number) into numbers from annals.segment s where s.tracked = t.id and s.number >= h.shape and s.epoch = p.epoch and coalesce(s.last_v > p.bound, true);
  -- Rows with all their values in one entry, in the order of positions, with the columns of today.
  if not coalesce(h.present, false) or pg_is_in_recovery() or t.ended_v is not null or not annals.follows_ddl() or exists (select from gnomon.computed(t.id)) or exists (select from gnomon.lacking(t.id, numbers, h.shape))
     or exists (select from annals.segment s where s.tracked = t.id and s.number = any (numbers) and s.nests)
     or not exists (select from gnomon.route x where x.tracked = t.id and x.kind in ('present', 'recent') and not x.guarded and p.bound >= x.after_v and x.id = (select max(y.id) from gnomon.route y where y.tracked = t.id and y.kind in ('present', 'recent') and not y.guarded)) then
    return r;
  end if;
  r.home := gnomon.home();
  r.query := (
    select format('select %s from (select * from (%s(select %s, h.op from gnomon.h%s_%s_entries h where %s and h.v operator(pg_catalog.>) $%s and not pg_catalog.pg_visible_in_snapshot(h.xid, $%s::pg_catalog.pg_snapshot) order by h.v limit 1)'
      || ' union all (select %s, ''u'' from %s%s t where %s)) a limit 1) q where q.op operator(pg_catalog.<>) ''i'' and q.op operator(pg_catalog.<>) ''n'''
      || ' and (select case when exists (select from gnomon.validity y where y.id operator(pg_catalog.=) %s and y.version operator(pg_catalog.=) $%s)'
      || ' and exists (select from gnomon.marker m where m.marker operator(pg_catalog.=) $%s::pg_catalog.text) and gnomon.home() operator(pg_catalog.=) $%s::pg_catalog.text%s then true else gnomon.refuse_stale(%s) end)',
      string_agg(format('q.c%s as %I', c.n, c.name), ', ' order by c.position),
      -- What the branch changed comes first.
      case when p_branch is not null then format('(select %s, case when o.alive then ''u''::"char" else ''i''::"char" end as op from gnomon.h%s_%s_changed o where o.branch operator(pg_catalog.=) $%s and %s) union all ',
        string_agg(format('o.%s%s as c%2$s', case when c.is_key then 'k' else 'c' end, c.n), ', ' order by c.position), t.id, (select x.generation from gnomon.history x where x.tracked = t.id), size + 6,
        (select string_agg(format('o.k%s %s $%s', u.n, annals.key_operator(t.id, u.i::int), u.i), ' and ' order by u.i) from unnest(t.key) with ordinality u (n, i))) end,
      string_agg(format('h.c%s', c.n), ', ' order by c.position), t.id, (select x.generation from gnomon.history x where x.tracked = t.id),
      (select string_agg(format('h.c%s %s $%s', u.n, annals.key_operator(t.id, u.i::int), u.i), ' and ' order by u.i) from unnest(t.key) with ordinality u (n, i)), size + 1, size + 2,
      string_agg(c.source, ', ' order by c.position), case when t.partitioned then '' else 'only ' end, t.relation,
      (select string_agg(format('t.%I %s $%s', k.name, annals.key_operator(t.id, u.i::int), u.i), ' and ' order by u.i) from unnest(t.key) with ordinality u (n, i) join annals.tracked_column k on k.tracked = t.id and k.n = u.n),
      t.id, size + 3, size + 4, size + 5, case when p_branch is not null then format(' and exists (select from gnomon.standing b where b.id operator(pg_catalog.=) $%s and b.base operator(pg_catalog.=) $%s)', size + 6, size + 7) end, t.id)
    from gnomon.past_columns(t.id, h.shape) with ordinality c (n, name, type, "collate", source, is_key, position));
  return r;
end $$;
comment on function gnomon.point_of is 'How single rows of a table are read at a coordinate by who may read all of it; on a branch, its number and how often its base was moved are further parameters.';
