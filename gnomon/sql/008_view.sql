-- What names mean in the past that are not those of tracked tables. A user's view over tracked tables is written again, so that it shows
-- them at the place that is set; every other table, and every view that cannot be shown so, has a guard before it: a view of its name and
-- columns that refuses to be read. A name with its schema always means the table of today.
--
-- Views of users, and guards that hold whatever is asked for untracked tables, are in gnomon_past_<source>; other guards are in gnomon_guard_<source>,
-- which is not in the search_path of those who read untracked tables as they are today. As ever, a temporary table comes before all of them.
--
-- On a branch such tables stand in gnomon_open_<source>: to be read as they are today, with the rights of the caller, and not to be written.
--
-- None of this depends on what users made: columns have types of PostgreSQL or of captured columns, and the text of a view is that of a
-- function, whose names PostgreSQL looks up when it plans. So no ALTER or DROP of a user's fails because of it.

create table gnomon.guard (
  id int primary key generated always as identity,
  source int not null references gnomon.source on delete cascade,
  name name not null,
  relation oid not null,
  schema_name name not null,
  reason text,
  signature text not null
);
create unique index guard_name on gnomon.guard (source, name);
create index guard_relation on gnomon.guard (relation);
comment on table gnomon.guard is 'Tables and views of sources that have no routes: what their names mean in the past.';
comment on column gnomon.guard.id is 'Number of the guard; the text of a view that can be read is that of the function gnomon.v<id>_rows.';
comment on column gnomon.guard.source is 'The schema.';
comment on column gnomon.guard.name is 'Name of the table or view.';
comment on column gnomon.guard.relation is 'Its OID.';
comment on column gnomon.guard.schema_name is 'Schema of the view of that name.';
comment on column gnomon.guard.reason is 'Why it is refused: untracked, or what stands against showing the view; null for a view that is shown.';
comment on column gnomon.guard.signature is 'Digest of all that the view was written from.';
comment on index gnomon.guard_name is 'Finds the guard of a name.';
comment on index gnomon.guard_relation is 'Finds the guard of a table.';

create function gnomon.refuse_name(p_relation oid, p_name text, p_reason text) returns setof record
language plpgsql stable parallel restricted rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  ref text := nullif(current_setting('gnomon.place', true), '');
begin
  if has_any_column_privilege(p_relation, 'select') is false then
    perform gnomon.refuse('42501', format('permission denied for the past of %s', p_name), 'It takes SELECT on it.', jsonb_build_object('table', p_name));
  end if;
  if p_reason <> 'untracked' then
    perform gnomon.refuse('GN010', format('%s cannot be read %s: %s', p_name, case when coalesce(current_setting('gnomon.branch', true), '') = '' then 'in the past' else 'on a branch' end, p_reason), 'Ask tracked tables for what it shows, or write its name with its schema to read it as it is today.', jsonb_build_object('table', p_name, 'reason', p_reason));
  end if;
  -- Its history may tell better.
  if ref is not null and gnomon.is_known(p_relation) then
    perform gnomon.history_at(p_relation::regclass, gnomon.place_of(ref));
  end if;
  perform gnomon.refuse('GN009', format('%s is not tracked, so its past is not known', p_name), 'Track it, write its name with its schema to read its rows of today, or open the past with p_untracked => ''present'' (UntrackedAsToday in Go).', jsonb_build_object('table', p_name));
end $$;
comment on function gnomon.refuse_name is 'Refuses to read a table or view in the past. Called by guards, in FROM: PostgreSQL neither calls it before the query runs nor reasons it away.';

create function gnomon.is_known(p_relation oid) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select exists (select from annals.tracked t join gnomon.history h on h.tracked = t.id where t.relation = p_relation) $$;
comment on function gnomon.is_known is 'Whether a table has a history, or had one.';

create function gnomon.shows_former(p_schema name) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select exists (select from gnomon.route r where r.schema_name = p_schema and r.kind = 'named') $$;
comment on function gnomon.shows_former is 'Whether a schema shows the past of a table under former names of columns.';

create function gnomon.source_shown(p_schema name) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(substring(p_schema from '^gnomon_(?:past|guard|branch|open|lent_[0-9]+)_([0-9]+)(?:_[0-9]+)?$')::int,
    (select s.id from gnomon.route r join annals.tracked t on t.id = r.tracked join gnomon.source s on s.schema_name = t.schema_name where r.schema_name = p_schema limit 1))
$$;
comment on function gnomon.source_shown is 'The source whose past the views of a schema show; null for other schemas.';

-- Without a search_path of its own: it looks at the caller's.
create function gnomon.names_hold(p_source int, p_view oid, p_name text, p_relations name[], p_others jsonb) returns boolean
language plpgsql stable parallel restricted as $$
declare
  astray text;
begin
  if pg_catalog.has_any_column_privilege(p_view, 'select') is false then
    perform gnomon.refuse('42501', pg_catalog.format('permission denied for the past of %s', p_name), 'It takes SELECT on the view, and on what it reads.', pg_catalog.jsonb_build_object('table', p_name));
  end if;
  select pg_catalog.min(r.name::pg_catalog.text) into astray from pg_catalog.unnest(p_relations) r (name) join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) pg_catalog.to_regclass(pg_catalog.quote_ident(r.name))
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace where gnomon.shows_former(n.nspname);
  if astray is not null then
    perform gnomon.refuse('GN010', pg_catalog.format('%s cannot be read in the past under former names: columns of %s had other names then', p_name, astray), 'Read it under the present names, or ask the tables for what it shows.',
      pg_catalog.jsonb_build_object('table', p_name, 'reason', 'names', 'name', astray));
  end if;
  select pg_catalog.min(x.name) into astray from (
    select r.name::pg_catalog.text from pg_catalog.unnest(p_relations) r (name) left join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) pg_catalog.to_regclass(pg_catalog.quote_ident(r.name))
      left join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace where gnomon.source_shown(n.nspname) is distinct from p_source
    union all
    select o.value operator(pg_catalog.->>) 'name' from pg_catalog.jsonb_array_elements(p_others) o
      where case o.value operator(pg_catalog.->>) 'class' when 'pg_type' then pg_catalog.pg_type_is_visible((o.value operator(pg_catalog.->>) 'oid')::pg_catalog.oid)
        when 'pg_proc' then pg_catalog.pg_function_is_visible((o.value operator(pg_catalog.->>) 'oid')::pg_catalog.oid) when 'pg_operator' then pg_catalog.pg_operator_is_visible((o.value operator(pg_catalog.->>) 'oid')::pg_catalog.oid)
        else pg_catalog.pg_collation_is_visible((o.value operator(pg_catalog.->>) 'oid')::pg_catalog.oid) end is not true
    union all
    select 'pg_catalog' where (pg_catalog.array_remove(pg_catalog.current_schemas(true), (select n.nspname from pg_catalog.pg_namespace n where n.oid operator(pg_catalog.=) pg_catalog.pg_my_temp_schema())))[1] operator(pg_catalog.<>) 'pg_catalog') x;
  if astray is not null then
    perform gnomon.refuse('GN010', pg_catalog.format('%s cannot be read in the past: with this search_path the name %s means something else than in the view', p_name, astray), 'Put the schema of the view first in search_path, or drop the temporary table of that name.',
      pg_catalog.jsonb_build_object('table', p_name, 'reason', 'search_path', 'name', astray));
  end if;
  return true;
end $$;
comment on function gnomon.names_hold is 'True if the names in the text of a view mean with the caller''s search_path what they mean in the view; an error if not, or if the caller may not read the view.';

create function gnomon.plain_type(p_type oid, p_modifier int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive base (oid, modifier) as (
    select p_type, p_modifier
    union all select t.typbasetype, t.typtypmod from base b join pg_type t on t.oid = b.oid and t.typtype = 'd')
  select format_type(b.oid, b.modifier) from base b join pg_type t on t.oid = b.oid
  where t.typtype <> 'd' and t.typtype <> 'p' and (t.typnamespace = 'pg_catalog'::regnamespace
    or exists (select from annals.segment s join pg_attribute a on a.attrelid = s.relation and a.atttypid = t.oid))
$$;
comment on function gnomon.plain_type is 'A type, or the one under a domain, if columns of ours may have it: one of PostgreSQL''s own, or of a captured column. Null for others.';

create function gnomon.unrouted(p_source int) returns table (relation oid, name name, kind "char", depth int, signature text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive source as (select s.id, format('gnomon_past_%s', s.id) as past, to_regnamespace(quote_ident(s.schema_name)) as namespace from gnomon.source s where s.id = p_source),
  relation as materialized (
    select c.oid, c.relname, c.relkind from source s join pg_class c on c.relnamespace = s.namespace
    where c.relkind in ('r', 'p', 'f', 'm', 'v') and not exists (select from gnomon.route r where r.schema_name = s.past and r.view_name = c.relname)),
  -- What views read, directly and through other views.
  rule as materialized (select r.ev_class as oid, r.oid as rule, md5(r.ev_action::text) as digest from relation v join pg_rewrite r on r.ev_class = v.oid and r.ev_type = '1' where v.relkind in ('v', 'm')),
  reads as materialized (
    select distinct r.oid, d.refobjid as read from rule r join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.rule and d.refclassid = 'pg_class'::regclass and d.refobjid <> r.oid),
  closure (oid, read, depth) as (
    select r.oid, r.read, 1 from reads r
    union select c.oid, r.read, c.depth + 1 from closure c join reads r on r.oid = c.read where c.depth < 50),
  columns as materialized (
    select c.oid, md5(string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod), ',' order by a.attnum)) as digest
    from (select r.oid from relation r union select r.read from reads r
          union select p.oid from source s join pg_namespace n on n.nspname = s.past join pg_class p on p.relnamespace = n.oid join gnomon.route g on g.schema_name = s.past and g.view_name = p.relname) c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped group by c.oid),
  read as materialized (
    select c.oid, md5(concat_ws(' ', c.relnamespace, c.relname, c.relkind, k.digest, r.digest, (select p.digest from columns p where p.oid = shown.oid))) as digest
    from (select distinct d.read from reads d) d join pg_class c on c.oid = d.read cross join source s left join columns k on k.oid = c.oid left join rule r on r.oid = c.oid
    left join pg_class shown on c.relnamespace = s.namespace and c.relkind <> 'v' and shown.relname = c.relname and shown.relnamespace = to_regnamespace(s.past)),
  deep as (select c.oid, max(c.depth) as depth, string_agg(distinct r.digest, ',') as digest from closure c join read r on r.oid = c.read group by c.oid)
  select r.oid, r.relname, r.relkind, case when r.relkind = 'v' then coalesce(d.depth, 0) + 1 else 0 end, md5(concat_ws(' ', r.oid, r.relkind, k.digest, u.digest, d.digest))
  from relation r left join columns k on k.oid = r.oid left join rule u on u.oid = r.oid left join deep d on d.oid = r.oid
$$;
comment on function gnomon.unrouted is 'Tables and views of a source that have no routes, with how many views lie under a view and a digest of all from which their guards are written.';

create function gnomon.view_reads(p_view oid) returns setof oid
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- As its rule has it: dependencies do not list what belongs to PostgreSQL.
  select distinct m.found[1]::oid from pg_rewrite r, regexp_matches(r.ev_action::text, ' :relid ([0-9]+)', 'g') m (found) where r.ev_class = p_view and r.ev_type = '1' and m.found[1] <> '0' and m.found[1]::oid <> p_view
$$;
comment on function gnomon.view_reads is 'Tables and views that a view reads.';

create function gnomon.view_obstacle(p_source int, p_view oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select x.reason from (
    select 1 as i, c.relname::text as name, case
        when n.nspname <> s.schema_name then format('it reads %I.%I, which is in another schema', n.nspname, c.relname)
        when c.relkind = 'v' and g.reason is not null then format('it reads %I, which cannot be read there', c.relname)
        when c.relkind = 'v' and g.id is not null then null
        when not exists (select from gnomon.route r where r.schema_name = format('gnomon_past_%s', s.id) and r.view_name = c.relname) then format('it reads %I, which is not tracked', c.relname) end as reason
      from gnomon.source s, gnomon.view_reads(p_view) v (oid) join pg_class c on c.oid = v.oid join pg_namespace n on n.oid = c.relnamespace left join gnomon.guard g on g.source = p_source and g.relation = c.oid
      where s.id = p_source
    union all
    select 2, p.proname, format('it calls %s, which may read tables of today', p.oid::regprocedure)
      from pg_rewrite r, regexp_matches(r.ev_action::text, ' :(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g') m (found), pg_proc p
      where r.ev_class = p_view and r.ev_type = '1' and p.oid = m.found[1]::oid and p.pronamespace <> 'pg_catalog'::regnamespace and p.provolatile <> 'i'
    union all
    select 3, a.attname, format('its column %I has a type of which none of the captured columns is', a.attname)
      from pg_attribute a where a.attrelid = p_view and a.attnum > 0 and gnomon.plain_type(a.atttypid, a.atttypmod) is null) x
  where x.reason is not null order by x.i, x.name limit 1
$$;
comment on function gnomon.view_obstacle is 'Why a view of a user cannot be written again for the past; null when that may be tried.';

create function gnomon.view_text(p_view oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  schema_name name := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_view);
  hidden regclass;
  definition text;
begin
  -- PostgreSQL leaves out the schema of what is found without it. Meanwhile names are qualified here: those of the schema are for anybody to make.
  perform pg_catalog.set_config('search_path', format('%I, pg_temp', schema_name), true);
  select v.oid into hidden from gnomon.view_reads(p_view) v (oid) where pg_catalog.pg_table_is_visible(v.oid) is not true limit 1;
  definition := pg_catalog.pg_get_viewdef(p_view);
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  if hidden is not null then
    raise exception 'it reads %, whose name is one of PostgreSQL''s', hidden;
  end if;
  return rtrim(definition, ';');
end $$;
comment on function gnomon.view_text is 'The query of a view, with names of its schema as they are looked up by search_path.';

create function gnomon.try_view(p_source int, p_text text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  trial text := format('gnomon.trial_%s', pg_backend_pid());
  attempt text := format('create view %s as %s', trial, p_text);
  removal text := format('drop view %s', trial);
  path text := format('gnomon_past_%s, gnomon_guard_%1$s, %I, pg_temp', p_source, (select s.schema_name from gnomon.source s where s.id = p_source));
begin
  -- Only understood, never run or planned: functions of users must not run with the rights of this one.
  perform set_config('search_path', path, true);
  execute attempt;
  execute removal;
end $$;
comment on function gnomon.try_view is 'Fails if the text of a view does not fit the past of its schema: if it needs a primary key, or columns that are not kept.';

create function gnomon.write_shown(p_guard gnomon.guard) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  s gnomon.source;
  columns text;
  relations text;
  others jsonb;
  query text := gnomon.view_text(p_guard.relation);
begin
  select * into s from gnomon.source x where x.id = p_guard.source;
  perform gnomon.try_view(s.id, query);
  select string_agg(format('%I %s', a.attname, gnomon.plain_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum) into columns from pg_attribute a where a.attrelid = p_guard.relation and a.attnum > 0;
  if columns is null then
    raise exception 'it has no columns';
  end if;
  select array_agg(c.relname order by c.relname)::text into relations from gnomon.view_reads(p_guard.relation) v (oid) join pg_class c on c.oid = v.oid;
  select jsonb_agg(jsonb_build_object('class', o.class, 'oid', o.oid, 'name', o.name) order by o.class, o.oid) into others from (
    select distinct d.refclassid::regclass::text as class, d.refobjid as oid, coalesce(t.typname, p.proname, q.oprname, l.collname) as name
    from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
    left join pg_type t on d.refclassid = 'pg_type'::regclass and t.oid = d.refobjid left join pg_proc p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid
    left join pg_operator q on d.refclassid = 'pg_operator'::regclass and q.oid = d.refobjid left join pg_collation l on d.refclassid = 'pg_collation'::regclass and l.oid = d.refobjid
    where r.ev_class = p_guard.relation and r.ev_type = '1' and to_regnamespace(quote_ident(s.schema_name)) in (t.typnamespace, p.pronamespace, q.oprnamespace, l.collnamespace)) o;
  execute format('create function gnomon.v%s_rows() returns table (%s) language sql stable parallel safe as %L', p_guard.id, columns, query);
  execute format('comment on function gnomon.v%s_rows is %L', p_guard.id, format('The query of %I.%I. Its names are looked up by search_path: in the past they mean the tables of then.', s.schema_name, p_guard.name));
  execute format('grant execute on function gnomon.v%s_rows to public', p_guard.id);
  execute format('create view %I.%I as select * from gnomon.v%s_rows() where gnomon.names_hold(%s, %s, %L, %L, %L)', p_guard.schema_name, p_guard.name, p_guard.id, s.id, p_guard.relation,
    format('%I.%I', s.schema_name, p_guard.name), coalesce(relations, '{}'), coalesce(others, '[]'));
  execute format('comment on view %I.%I is %L', p_guard.schema_name, p_guard.name, format('%I.%I at the place that gnomon.at set. What it reads is read with the rights of the caller, whose row-level security holds.', s.schema_name, p_guard.name));
end $$;
comment on function gnomon.write_shown is 'Writes a view of a user again, for the past. The caller''s own rights to the tables hold inside, not those of the owner of the view.';

create function gnomon.write_refusal(p_guard gnomon.guard) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  name text := (select format('%I.%I', s.schema_name, p_guard.name) from gnomon.source s where s.id = p_guard.source);
  columns record;
begin
  -- Types are PostgreSQL's own, so that what users write about the columns is understood and nothing depends on their types.
  select string_agg(format('%I', a.attname), ', ' order by a.attnum) as names, coalesce(string_agg(format('%I %s', a.attname, coalesce(gnomon.plain_type(a.atttypid, a.atttypmod), 'text')), ', ' order by a.attnum), 'nothing text') as list
    into columns from pg_attribute a where a.attrelid = p_guard.relation and a.attnum > 0 and not a.attisdropped;
  execute format('create view %I.%I as select %s from gnomon.refuse_name(%s, %L, %L) as t (%s)', p_guard.schema_name, p_guard.name, columns.names, p_guard.relation, name, p_guard.reason, columns.list);
  execute format('comment on view %I.%I is %L', p_guard.schema_name, p_guard.name, format('Refuses to be read: %s in the past.', name));
end $$;
comment on function gnomon.write_refusal is 'Writes a guard.';

create function gnomon.refuse_write() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN020', format('%s is not tracked, so it cannot be written on a branch', tg_argv[0]), 'Track it, or write its name with its schema to change it on main.', jsonb_build_object('table', tg_argv[0], 'reason', 'untracked'));
  return null;
end $$;
comment on function gnomon.refuse_write is 'Refuses to write on a branch what is not tracked.';

create function gnomon.never_tracked(p_relation oid, p_name text) returns boolean
language plpgsql stable parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
declare
  b record := gnomon.branch_of(nullif(current_setting('gnomon.branch', true), '')::int);
begin
  if exists (select from annals.tracked t join gnomon.history h on h.tracked = t.id where t.relation = p_relation and gnomon.began_before(t, b.epoch, b.snapshot) and not gnomon.ended_before(t, b.epoch, b.snapshot)) then
    perform gnomon.refuse('GN020', format('%s was tracked when branch %L was made, and no longer is', p_name, b.name), 'Write its name with its schema to read it on main. To change it on a branch, track it and make another one.', jsonb_build_object('table', p_name, 'reason', 'untracked'));
  end if;
  return true;
end $$;
comment on function gnomon.never_tracked is 'True if the branch in use does not know of a history of a table; an error if it does: rows of today would stand in for its own.';

create function gnomon.write_open(p_guard gnomon.guard, p_reads boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  name text := (select format('%I.%I', s.schema_name, p_guard.name) from gnomon.source s where s.id = p_guard.source);
  shown text := format('gnomon_open_%s.%I', p_guard.source, p_guard.name);
  columns record;
begin
  perform gnomon.drop_view(format('gnomon_open_%s', p_guard.source), p_guard.name);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum) as names, coalesce(string_agg(format('%I %s', a.attname, y.type), ', ' order by a.attnum), 'nothing text') as list,
         coalesce(string_agg(format('t.%I%s', a.attname, case when y.type <> format_type(a.atttypid, a.atttypmod) then '::' || y.type else '' end), ', ' order by a.attnum), 'null::text') as values
    into columns from pg_attribute a cross join lateral (select coalesce(gnomon.plain_type(a.atttypid, a.atttypmod), 'text') as type) y where a.attrelid = p_guard.relation and a.attnum > 0 and not a.attisdropped;
  if p_reads then
    execute format('create function gnomon.v%s_rows() returns table (%s) language sql stable parallel safe rows %s as %L', p_guard.id, columns.list, greatest((select c.reltuples from pg_class c where c.oid = p_guard.relation), 1)::bigint, format('select %s from %s t', columns.values, name));
    execute format('comment on function gnomon.v%s_rows is %L', p_guard.id, format('The rows of %s, read as the caller.', name));
    execute format('grant execute on function gnomon.v%s_rows to public', p_guard.id);
    execute format('create view %s as select * from gnomon.v%s_rows()%s', shown, p_guard.id, case when gnomon.is_known(p_guard.relation) then format(' where (select gnomon.never_tracked(%s, %L))', p_guard.relation, name) else '' end);
  else
    execute format('create view %s as select %s from gnomon.refuse_name(%s, %L, %L) as t (%s)', shown, columns.names, p_guard.relation, name, p_guard.reason, columns.list);
  end if;
  execute format('comment on view %s is %L', shown, format('%s on a branch: %s.', name, case when p_reads then 'as it is on main, not to be written' else 'it refuses to be read' end));
  -- Also where no row is written.
  execute format('create trigger refuse before insert or update or delete on %s for each statement execute function gnomon.refuse_write(%L)', shown, name);
  execute format('create trigger refuse_row instead of insert or update or delete on %s for each row execute function gnomon.refuse_write(%L)', shown, name);
  execute format('grant select, insert, update, delete on %s to public', shown);
end $$;
comment on function gnomon.write_open is 'Writes what a table without routes is on a branch: its rows of today, or what refuses to be read.';

create function gnomon.drop_guard(p_guard gnomon.guard) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- The name may have become that of a route.
  if not exists (select from gnomon.route r where r.schema_name = p_guard.schema_name and r.view_name = p_guard.name) then
    perform gnomon.drop_view(p_guard.schema_name, p_guard.name);
  end if;
  perform gnomon.drop_view(format('gnomon_open_%s', p_guard.source), p_guard.name);
  if to_regprocedure(format('gnomon.v%s_rows()', p_guard.id)) is not null then
    execute format('drop function gnomon.v%s_rows()', p_guard.id);
  end if;
  delete from gnomon.guard g where g.id = p_guard.id;
end $$;
comment on function gnomon.drop_guard is 'Drops what a name means in the past.';

create function gnomon.write_guard(p_source int, p_relation oid, p_name name, p_kind "char", p_signature text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  g gnomon.guard;
begin
  perform gnomon.drop_guard(x) from gnomon.guard x where x.source = p_source and x.name = p_name;
  insert into gnomon.guard (source, name, relation, schema_name, reason, signature)
    values (p_source, p_name, p_relation, format('gnomon_guard_%s', p_source), case p_kind when 'm' then 'it is a materialized view' when 'v' then gnomon.view_obstacle(p_source, p_relation) else 'untracked' end, p_signature)
    returning * into g;
  if p_kind = 'v' and (g.reason is null or gnomon.reads_tracked(p_source, p_relation)) then
    -- In the past even for those who read untracked tables as they are today.
    g.schema_name := format('gnomon_past_%s', p_source);
  end if;
  perform gnomon.drop_view(g.schema_name, g.name);
  if g.reason is null then
    begin
      perform gnomon.write_shown(g);
    exception
      when lock_not_available or query_canceled or deadlock_detected then
        raise;
      when others then
        g.reason := sqlerrm;
    end;
  end if;
  if g.reason is not null then
    perform gnomon.write_refusal(g);
  end if;
  execute format('grant select on %I.%I to public', g.schema_name, g.name);
  if g.schema_name = format('gnomon_guard_%s', p_source) then
    -- What a materialized view shows of tracked tables is main's.
    perform gnomon.write_open(g, p_kind <> 'm' or not gnomon.reads_tracked(p_source, p_relation));
  end if;
  update gnomon.guard x set schema_name = g.schema_name, reason = g.reason where x.id = g.id;
end $$;
comment on function gnomon.write_guard is 'Writes anew what the name of a table or view without routes means in the past.';

create function gnomon.reads_tracked(p_source int, p_view oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive reads (oid) as (
    select p_view
    union select v.oid from reads r, gnomon.view_reads(r.oid) v (oid))
  select exists (select from reads r join annals.tracked t on t.relation = r.oid join gnomon.history h on h.tracked = t.id)
$$;
comment on function gnomon.reads_tracked is 'Whether a view reads a tracked table, if only through other views.';

create function gnomon.write_guards(p_source int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  working text := coalesce(current_setting('annals.working', true), '');
  s gnomon.source;
  r record;
  failed int;
begin
  select * into s from gnomon.source x where x.id = p_source;
  if not found then
    return;
  end if;
  perform set_config('annals.working', 'yes', true);
  perform gnomon.make_schema(format('gnomon_past_%s', s.id), format('The past of schema %I, at the place that gnomon.at set.', s.schema_name));
  perform gnomon.make_schema(format('gnomon_guard_%s', s.id), format('What refuses to be read in the past of schema %I.', s.schema_name));
  perform gnomon.make_schema(format('gnomon_open_%s', s.id), format('What is not tracked of schema %I, for those who are on a branch.', s.schema_name));
  -- Tables that are gone have no past to read, and their names may be taken again.
  for r in select distinct x.tracked, t.table_name from gnomon.route x join annals.tracked t on t.id = x.tracked where t.schema_name = s.schema_name and not exists (select from pg_class c where c.oid = t.relation) loop
    begin
      perform gnomon.drop_routes(r.tracked);
    exception when others then
      raise warning 'the views of the past of %.% could not be dropped: %', quote_ident(s.schema_name), quote_ident(r.table_name), sqlerrm using hint = 'Call gnomon.sync_guards().';
    end;
  end loop;
  -- Names that are gone come first, and views after those that they read.
  for r in
    select coalesce(u.name, g.name) as name, u.relation, u.kind, coalesce(u.depth, 0) as depth, u.signature, g.id as guard
    from gnomon.unrouted(s.id) u full join (select * from gnomon.guard x where x.source = s.id) g on g.name = u.name
    where g.signature is distinct from u.signature order by u.relation is not null, depth, name
  loop
    exit when r.depth > failed;
    begin
      if r.relation is null then
        perform gnomon.drop_guard(g) from gnomon.guard g where g.id = r.guard;
      else
        perform gnomon.write_guard(s.id, r.relation, r.name, r.kind, r.signature);
      end if;
    exception when others then
      -- Neither a user's command nor capture fails because of it.
      raise warning 'what the name %.% means in the past could not be brought up to date: %', quote_ident(s.schema_name), quote_ident(r.name), sqlerrm using hint = 'Call gnomon.sync_guards().';
      failed := nullif(r.depth, 0);
    end;
  end loop;
  perform set_config('annals.working', working, true);
end $$;
comment on function gnomon.write_guards is 'Brings up to date what names of a source mean in the past that are not those of tracked tables. Waits half a second at most for those who read; then it warns.';

create function gnomon.unguarded(p_source int) returns setof name
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(u.name, g.name) from gnomon.unrouted(p_source) u full join (select * from gnomon.guard x where x.source = p_source) g on g.name = u.name where g.signature is distinct from u.signature
$$;
comment on function gnomon.unguarded is 'Names of a source that do not mean in the past what they should: gnomon.sync_guards() mends that.';

create function gnomon.note_sources() returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  -- A schema without tracked tables may come in a search_path as well.
  insert into gnomon.source (schema_name)
    select n.nspname from pg_namespace n
    where n.nspname !~ '^(pg_|gnomon_(past|guard|branch|open)_[0-9]+$|gnomon_[0-9]+_[0-9]+$|gnomon_lent_)' and n.nspname not in ('information_schema', 'annals', 'gnomon', 'volvra')
      and exists (select from pg_class c where c.relnamespace = n.oid and c.relkind in ('r', 'p', 'f', 'm', 'v'))
    on conflict (schema_name) do nothing;
$$;
comment on function gnomon.note_sources is 'Lets names of all schemas be looked at in the past.';

create function gnomon.sync_guards() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform gnomon.note_sources();
  perform gnomon.write_guards(s.id) from gnomon.source s order by s.id;
  perform gnomon.follow_writing();
end $$;
comment on function gnomon.sync_guards is 'Brings up to date what names mean in the past, in all schemas that have tracked tables. Event triggers do that, where they could be created.';

create function gnomon.follow_names() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  r record;
begin
  for r in select t.id, n.nspname, c.relname from annals.tracked t join gnomon.history h on h.tracked = t.id join pg_class c on c.oid = t.relation join pg_namespace n on n.oid = c.relnamespace
           where t.ended_v is not null and (t.schema_name <> n.nspname or t.table_name <> c.relname) order by t.id loop
    update annals.tracked t set schema_name = r.nspname, table_name = r.relname where t.id = r.id;
    perform gnomon.write_routes(r.id);
  end loop;
end $$;
comment on function gnomon.follow_names is 'Lets histories that ended follow the names of their tables.';

create function gnomon.on_ddl_end() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('annals.working', true) = 'yes' then
    return;
  end if;
  perform gnomon.note_sources();
  perform gnomon.follow_names();
  if exists (select from gnomon.history h where h.rules is not null) then
    perform gnomon.follow_writing(r.relations) from (
      select array_agg(distinct case d.classid when 'pg_class'::regclass then coalesce((select i.indrelid from pg_index i where i.indexrelid = d.objid), d.objid) when 'pg_trigger'::regclass then (select g.tgrelid from pg_trigger g where g.oid = d.objid)
        when 'pg_constraint'::regclass then (select k.conrelid from pg_constraint k where k.oid = d.objid) end) as relations from pg_event_trigger_ddl_commands() d) r where r.relations is not null;
  end if;
  perform gnomon.follow_rights(t.id) from pg_event_trigger_ddl_commands() d join annals.tracked t on t.relation_oid = d.objid and d.classid = 'pg_class'::regclass join gnomon.history h on h.tracked = t.id; -- another owner
  perform gnomon.write_guards(s.id) from (
    select s.id from pg_event_trigger_ddl_commands() d join pg_class c on d.classid = 'pg_class'::regclass and c.oid = d.objid join pg_namespace n on n.oid = c.relnamespace join gnomon.source s on s.schema_name = n.nspname
    -- It may have come from there.
    union select g.source from pg_event_trigger_ddl_commands() d join gnomon.guard g on d.classid = 'pg_class'::regclass and g.relation = d.objid
    union select s.id from pg_event_trigger_ddl_commands() d cross join gnomon.source s where d.classid = 'pg_namespace'::regclass) s;
exception when others then
  raise warning 'what names mean in the past could not be brought up to date: %', sqlerrm using hint = 'Call gnomon.sync_guards().';
end $$;
comment on function gnomon.on_ddl_end is 'Brings up to date what names mean in the past, in the command that changes them.';

create function gnomon.on_drop() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('annals.working', true) = 'yes' then
    return;
  end if;
  perform gnomon.write_guards(s.id) from gnomon.source s
    where s.schema_name in (select o.schema_name from pg_event_trigger_dropped_objects() o where o.object_type in ('table', 'view', 'materialized view', 'foreign table') and not o.is_temporary);
  if exists (select from gnomon.history h where h.rules is not null) and exists (select from pg_event_trigger_dropped_objects() o where o.object_type in ('table', 'trigger', 'table constraint', 'index', 'default value') and not o.is_temporary) then
    perform gnomon.follow_writing();
  end if;
exception when others then
  raise warning 'what names mean in the past could not be brought up to date: %', sqlerrm using hint = 'Call gnomon.sync_guards().';
end $$;
comment on function gnomon.on_drop is 'Drops what names meant in the past of tables and views that are dropped.';

create function gnomon.on_grant() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
begin
  -- What follows grants as well.
  if current_setting('annals.working', true) = 'yes' or not exists (select from pg_event_trigger_ddl_commands() d where lower(d.object_type) = 'table') then
    return;
  end if;
  perform set_config('annals.working', 'yes', true);
  perform gnomon.follow_rights();
  perform set_config('annals.working', '', true);
exception when others then
  raise warning 'who may read the past could not be brought up to date: %', sqlerrm using hint = 'Call gnomon.follow_rights().';
end $$;
comment on function gnomon.on_grant is 'Lets those read the past of tables who may read them.';

do $$
begin
  -- After those of annals, by name: they follow the change of a tracked table first.
  create event trigger gnomon_ddl_end on ddl_command_end
    when tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE', 'CREATE VIEW', 'ALTER VIEW', 'CREATE MATERIALIZED VIEW', 'ALTER MATERIALIZED VIEW',
                 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'IMPORT FOREIGN SCHEMA', 'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE EXTENSION', 'ALTER EXTENSION', 'CREATE TRIGGER', 'ALTER TRIGGER', 'CREATE INDEX')
    execute function gnomon.on_ddl_end();
  comment on event trigger gnomon_ddl_end is 'Keeps what names mean in the past in step with tables and views.';
  create event trigger gnomon_drop on sql_drop execute function gnomon.on_drop();
  comment on event trigger gnomon_drop is 'Drops what names meant in the past of tables and views that are dropped.';
  create event trigger gnomon_grant on ddl_command_end when tag in ('GRANT', 'REVOKE') execute function gnomon.on_grant();
  comment on event trigger gnomon_grant is 'Keeps who may read the past in step with who may read the tables.';
exception when insufficient_privilege then
  null; -- gnomon.sync_guards() has to be called
end $$;
