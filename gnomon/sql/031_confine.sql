-- Roles confined to branches: they may use certain branches, and of the tables only what is lent to them there, with columns masked where that was said.
--
-- A confined role has no rights to tables, to their past, or to overlays: gnomon.confine refuses one that has, and gnomon.check() tells when that changed.
-- It reads a view of its own of each table, in a schema gnomon_lent_<confinement>_<source>: a security barrier over a view of kind branch that is guarded. That
-- one reads the table with the rights of gnomon's owner, and takes branch and base from gnomon.usable, which looks at who is logged in: settings
-- could be changed within a query. Masked columns are constants in the role's view, so nothing that it writes in a query ever sees their values, and they cannot be written.
--
-- Only these views depend on tables. What would fail because of that, ALTER TABLE and DROP TABLE, drops them first, where event triggers could be created;
-- elsewhere they are in the way of dropping a column or changing its type: drop them, and gnomon.sync writes them again.

create view gnomon.confined_access (function) with (security_invoker = true) as
  select unnest(array['astray', 'branch_here', 'branch_holds', 'branch_named', 'branch_of', 'branches', 'change_requests', 'create_branch', 'describe_branch', 'drop_branch', 'enter_branch', 'holds', 'is_confined', 'leave', 'lent_diff', 'named_options', 'note_plan', 'note_read', 'note_request', 'open_branch', 'open_loans', 'open_request', 'table_named',
    'refuse', 'refuse_check', 'refuse_generated', 'refuse_loan', 'rename_branch', 'reset_branch', 'resume', 'reviews', 'use', 'versions', 'withdraw_request']);
comment on view gnomon.confined_access is 'Which functions a role that is confined may execute, see gnomon.confine. Each of them holds it to its branches; what they call is not among them, unless they run as the caller.';
comment on column gnomon.confined_access.function is 'Name of the function.';

create function gnomon.refuse_loan(p_tracked int) returns boolean
language plpgsql stable parallel restricted security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked := gnomon.tracked_row(p_tracked);
begin
  if t.id is not null and gnomon.is_confined() and not exists (select from gnomon.lent l where l.tracked = p_tracked) then
    perform gnomon.refuse('42501', format('permission denied for %s on a branch', t.relation), 'It takes that the table is lent to the role, see gnomon.confine.', jsonb_build_object('table', t.relation::text));
  end if;
  if (select c.relrowsecurity from pg_class c where c.oid = t.relation) then
    perform gnomon.refuse('GN020', format('%s has row-level security, and is not shown to roles that are confined', t.relation), 'Branches show all rows: lend a table without it.', jsonb_build_object('table', t.relation::text, 'reason', 'row-level security'));
  end if;
  return gnomon.refuse_branch(p_tracked);
end $$;
comment on function gnomon.refuse_loan is 'Says why a table that is lent cannot be read on the branch in use.';

create function gnomon.drop_loans(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r gnomon.route;
begin
  for r in select * from gnomon.route x where x.tracked = p_tracked and x.kind = 'branch' and x.guarded loop
    -- The views of roles go with it.
    if gnomon.drop_route(r.schema_name, r.view_name) then
      delete from gnomon.route x where x.id = r.id;
    else
      update gnomon.route x set kind = 'old' where x.id = r.id;
    end if;
  end loop;
  update gnomon.loan l set schema_name = null where l.tracked = p_tracked and l.schema_name is not null;
end $$;
comment on function gnomon.drop_loans is 'Drops the views through which roles that are confined read a table, but for those that are being read.';

create function gnomon.hidden_columns(p_tracked int, p_masks jsonb) returns setof name
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.name from annals.tracked_column c where c.tracked = p_tracked and c.gone_v is null and p_masks ? c.n::text
  union
  -- What is computed from a masked column would tell it.
  select a.attname from annals.tracked t join pg_attribute a on a.attrelid = t.relation and a.attnum > 0 and a.attgenerated <> '' join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    join pg_depend p on p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refclassid = 'pg_class'::regclass and p.refobjid = a.attrelid
    join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and c.attnum = p.refobjsubid and p_masks ? c.n::text
  where t.id = p_tracked
$$;
comment on function gnomon.hidden_columns is 'Columns whose values a role does not see: those that are masked, and those that are computed from them.';

create function gnomon.open_triggers(p_tracked int) returns table (name name)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select g.tgname from annals.tracked t join pg_trigger g on g.tgrelid = t.relation join pg_proc p on p.oid = g.tgfoid
  where t.id = p_tracked and not g.tgisinternal and g.tgtype & 3 = 3 and g.tgenabled <> 'D' and not annals.is_ours(g.tgfoid) and not exists (select from unnest(p.proconfig) c where starts_with(c, 'search_path='))
$$;
comment on function gnomon.open_triggers is 'The BEFORE triggers of a table whose functions look names up by the search_path of whoever writes.';

create function gnomon.write_loans(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  l record;
  r gnomon.route;
  form int := (select s.number from gnomon.shapes(p_tracked) s where s.present);
  place name;
  list text;
  f regprocedure;
begin
  if not exists (select from gnomon.loan x where x.tracked = p_tracked) then
    return;
  end if;
  if to_regclass(format('gnomon.o%s', p_tracked)) is null then
    perform gnomon.branch_out(p_tracked);
    return;
  end if;
  select * into t from annals.tracked x where x.id = p_tracked;
  perform gnomon.drop_loans(p_tracked);
  if t.ended_v is not null or form is null then
    return;
  end if;
  perform gnomon.write_route(p_tracked, 'branch', form,
    (select array_agg(g.number order by g.number) from annals.segment g where g.tracked = p_tracked and g.number >= form and g.epoch = (select max(e.number) from annals.epoch e)),
    -- Not a function that reads as the caller, who may not.
    (select format('(select %s from %s%s t)', string_agg(format('%s as c%s', coalesce(c.source, 'null::' || c.type), c.n), ', ' order by c.n), case when t.partitioned then '' else 'only ' end, t.relation) from gnomon.past_columns(p_tracked, form) c),
    null, true);
  select * into r from gnomon.route x where x.tracked = p_tracked and x.kind = 'branch' and x.guarded order by x.id desc limit 1;
  for l in select o.role, o.rights, o.masks, c.id, s.id as source from gnomon.loan o join gnomon.confinement c on c.role = o.role join gnomon.source s on s.schema_name = t.schema_name
           where o.tracked = p_tracked and exists (select from pg_roles x where x.oid = o.role) order by c.id loop
    place := format('gnomon_lent_%s_%s', l.id, l.source);
    if to_regclass(format('%I.%I', place, t.table_name)) is not null then
      -- The one before is being read, and stays until nobody does.
      place := format('%s_%s', place, r.id);
    end if;
    if to_regnamespace(place) is null then
      execute format('create schema %I', place);
      perform annals.close_schema(place);
      execute format('comment on schema %I is %L', place, format('Tables of schema %I that are lent to %s, on the branch that gnomon.use chose.', t.schema_name, l.role));
    end if;
    select string_agg(case when c.name is null then quote_ident(a.attname)
        else format('%s::%s as %I', quote_nullable((select l.masks->>k.n::text from annals.tracked_column k where k.tracked = p_tracked and k.gone_v is null and k.name = a.attname)), format_type(a.atttypid, a.atttypmod), a.attname) end, ', ' order by a.attnum)
      into list from pg_attribute a left join gnomon.hidden_columns(p_tracked, l.masks) c (name) on c.name = a.attname
      where a.attrelid = format('%I.%I', r.schema_name, r.view_name)::regclass and a.attnum > 0 and not a.attisdropped;
    execute format('create view %I.%I with (security_barrier = true) as select %s from %I.%I', place, t.table_name, list, r.schema_name, r.view_name);
    execute format('comment on view %I.%I is %L', place, t.table_name, format('%I.%I as it is lent to %s. gnomon.sync writes it again when it was dropped.', t.schema_name, t.table_name, l.role));
    execute format('grant usage on schema %I to %s', place, l.role);
    -- A trigger of a user's sees all columns, and what it calls is found by the search_path of the role.
    if l.masks <> '{}' and exists (select from gnomon.open_triggers(p_tracked)) then
      l.rights := array(select r from unnest(l.rights) r where r = 'select');
    end if;
    if l.rights <> '{}' then
      execute format('grant %s on %I.%I to %s', array_to_string(l.rights, ', '), place, t.table_name, l.role);
    end if;
    for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'gnomon'::regnamespace and p.proname ~ format('^h%s_[0-9]+_default_[0-9]+_lent$', p_tracked) and 'insert' = any (l.rights) loop
      execute format('grant execute on function %s to %s', f, l.role);
    end loop;
    update gnomon.loan o set schema_name = place where o.role = l.role and o.tracked = p_tracked;
  end loop;
  perform gnomon.drop_empty_loans();
end $$;
comment on function gnomon.write_loans is 'Writes anew the views through which roles that are confined read a table.';

create function gnomon.drop_empty_loans() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  s name;
begin
  for s in select n.nspname from pg_namespace n where n.nspname ~ '^gnomon_lent_[0-9]+_[0-9]+(_[0-9]+)?$' and not exists (select from pg_class c where c.relnamespace = n.oid) loop
    execute format('drop schema %I', s);
  end loop;
end $$;
comment on function gnomon.drop_empty_loans is 'Drops schemas for views of roles that are confined when there are none in them.';

create function gnomon.open_loans(p_name text, p_schemas name[], p_outside text) returns gnomon.opening
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  o gnomon.opening;
  b gnomon.branch := gnomon.branch_named(p_name);
begin
  o.place := gnomon.branch_place(b);
  o.outside := p_outside;
  with loans as materialized (select l.tracked, l.schema_name, t.table_name, s.id as source from gnomon.lent l join annals.tracked t on t.id = l.tracked join gnomon.source s on s.schema_name = t.schema_name where l.schema_name is not null),
  -- What follows from foreign keys may happen to tables that are not lent.
  found as materialized (select r.tracked, r.relation, r.checked, r.guarded from gnomon.routes_at(o.place, 'branch') r),
  routes as (select r.relation, l.schema_name, l.table_name from found r join loans l on l.tracked = r.tracked where r.guarded),
  listed as (
    select 1 as part, min(l.source) as i, quote_ident(l.schema_name) as entry, l.schema_name ~ '^gnomon_lent_[0-9]+_[0-9]+$' as main from loans l group by l.schema_name
    union all
    -- What is lent stands for the schemas that it is from.
    select 2, s.i::int, quote_ident(s.schema), true from unnest(p_schemas) with ordinality s (schema, i)
      where gnomon.source_shown(s.schema) is null and not exists (select from annals.tracked t join gnomon.history h on h.tracked = t.id where t.schema_name = s.schema))
  select (select coalesce(string_agg(l.entry, ', ' order by l.part, l.main, l.i), '""') from listed l),
         (select concat(format(' b%s.%s ', b.id, b.base), string_agg(r.checked, '')) from found r),
         (select coalesce(jsonb_object_agg(r.relation, format('%I.%I', r.schema_name, r.table_name)), '{}') from routes r)
    into o.path, o.checked, o.tables;
  return o;
end $$;
comment on function gnomon.open_loans is 'Finds what has to be set for a confined role to use a branch.';

create function gnomon.lent_diff(p_branch text) returns table ("table" text, key text[], operation text, columns text[], base jsonb, branch jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
#variable_conflict use_column
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  l record;
begin
  for l in select x.tracked, array(select distinct h::text from gnomon.lent y join gnomon.loan o on o.role = y.role and o.tracked = y.tracked cross join lateral gnomon.hidden_columns(o.tracked, o.masks) h where y.tracked = x.tracked) as hidden
           from gnomon.lent x join gnomon.loan k on k.role = x.role and k.tracked = x.tracked and 'select' = any (k.rights) join annals.tracked t on t.id = x.tracked and t.ended_v is null where x.schema_name is not null group by x.tracked, t.relation order by t.relation::text loop
    return query execute format('select d."table", d.key, d.operation, array(select c from unnest(d.columns) c where c <> all ($2)), jsonb_object($1, d.base) - $2, jsonb_object($1, d.mine) - $2 from (%s) d', gnomon.branch_diff_query(l.tracked, b, 'base', null, null))
      using array(select c.name::text from gnomon.diff_columns(l.tracked, 'e') c order by c.n), l.hidden;
  end loop;
end $$;
comment on function gnomon.lent_diff is 'For roles that are confined: rows in which a branch differs from its base, of the tables that are lent to the session, without masked columns. As gnomon.branch_diff.';

create function gnomon.roles_of(p_role oid) returns setof oid
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Also through memberships that inherit nothing: it may become them, or let itself.
  with recursive r (oid) as (select p_role union select m.roleid from r join pg_auth_members m on m.member = r.oid)
  select r.oid from r
$$;
comment on function gnomon.roles_of is 'A role and those that it is a member of, directly and through others.';

create function gnomon.confinement_gaps(p_role oid) returns table (what text, object text, detail text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive mine (oid) as (select r from gnomon.roles_of(p_role) r),
  who (oid, name) as (select m.oid, m.oid::regrole::text from mine m union all select 0::oid, 'everybody'),
  tracked (oid, schema) as (
    select r.relation::oid, c.relnamespace from annals.tracked_relation r join gnomon.history h on h.tracked = r.tracked join pg_class c on c.oid = r.relation
    union select c.oid, c.relnamespace from annals.tracked t join gnomon.history h on h.tracked = t.id join pg_class c on c.oid = t.relation),
  -- Views of users show it with the rights of their owners.
  shown (oid) as (
    select t.oid from tracked t
    union select r.ev_class from shown s join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = s.oid and d.classid = 'pg_rewrite'::regclass join pg_rewrite r on r.oid = d.objid and r.ev_class <> s.oid),
  relation as (
    select c.oid, c.relacl, c.relowner, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'v', 'p', 'm', 'f', 'S')
      and (c.oid in (select s.oid from shown s) or c.relnamespace in (select t.schema from tracked t) or n.nspname in ('annals', 'gnomon') or n.nspname ~ '^gnomon_(past|branch|[0-9]+)_[0-9]+$' or n.nspname ~ '^gnomon_lent_')
      -- Guards refuse everybody, and views of users that stand among them read as the caller.
      and not exists (select from gnomon.guard g where g.schema_name = n.nspname and g.name = c.relname)
      -- What is lent to it.
      and not exists (select from gnomon.confinement f join mine m on m.oid = f.role where n.nspname ~ format('^gnomon_lent_%s_', f.id))),
  held (object, name, privilege) as (
    select r.oid, w.name, lower(a.privilege_type) from relation r cross join lateral aclexplode(coalesce(r.relacl, acldefault(case r.relkind when 'S' then 's' else 'r' end::"char", r.relowner))) a join who w on w.oid = a.grantee
    union select r.oid, w.name, 'own' from relation r join who w on w.oid = r.relowner
    union select r.oid, w.name, format('%s (%s)', lower(x.privilege_type), a.attname) from relation r join pg_attribute a on a.attrelid = r.oid and a.attacl is not null cross join lateral aclexplode(a.attacl) x join who w on w.oid = x.grantee)
  select 'attribute', r.rolname::text, format('%I %s', r.rolname, concat_ws(', ', case when r.rolsuper then 'is a superuser' end, case when r.rolcreaterole then 'may create roles' end, case when r.rolbypassrls then 'bypasses row-level security' end, case when r.rolreplication then 'may replicate' end))
    from pg_roles r join mine m on m.oid = r.oid where r.rolsuper or r.rolcreaterole or r.rolbypassrls or r.rolreplication
  union all
  select 'member', r.rolname::text, format('it is a member of %I', r.rolname) from pg_roles r join mine m on m.oid = r.oid
    where r.oid <> p_role and (r.rolname ~ '^pg_' or exists (select from pg_namespace n where n.nspname in ('annals', 'gnomon') and n.nspowner = r.oid))
  union all
  select 'owner', d.datname::text, format('database %I belongs to %s', d.datname, w.name) from pg_database d join who w on w.oid = d.datdba where d.datname = current_database()
  union all
  select 'owner', n.nspname::text, format('schema %I belongs to %s', n.nspname, w.name) from pg_namespace n join who w on w.oid = n.nspowner
    where n.oid in (select t.schema from tracked t) or n.nspname in ('annals', 'gnomon') or n.nspname ~ '^gnomon_'
  union all
  select 'schema', n.nspname::text, format('%s may create objects in schema %I', w.name, n.nspname) from pg_namespace n cross join lateral aclexplode(n.nspacl) a join who w on w.oid = a.grantee
    where a.privilege_type = 'CREATE' and (n.oid in (select t.schema from tracked t) or n.nspname in ('annals', 'gnomon') or n.nspname ~ '^gnomon_') and n.nspowner <> a.grantee
  union all
  select 'relation', h.object::regclass::text, format('%s may %s %s', h.name, string_agg(h.privilege, ', ' order by h.privilege), h.object::regclass) from held h group by h.object, h.name
  union all
  select 'function', p.oid::regprocedure::text, format('%s may execute %s', w.name, p.oid::regprocedure) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a join who w on w.oid = a.grantee
    where n.nspname in ('annals', 'gnomon') and not (n.nspname = 'gnomon' and p.proname in (select c.function from gnomon.confined_access c)) and p.proname !~ '^[hv][0-9]+_'
  union all
  select 'server', s.srvname::text, format('%s may use the foreign server %I', w.name, s.srvname) from pg_foreign_server s cross join lateral aclexplode(coalesce(s.srvacl, acldefault('S', s.srvowner))) a join who w on w.oid = a.grantee
$$;
comment on function gnomon.confinement_gaps is 'What lets a role reach more than branches: rights to tables, to views over them, to their past and to functions; attributes; memberships.';

create function gnomon.confine(p_role name, p_names text[] default '{}', p_prefixes text[] default '{}', p_tables jsonb default '{}', p_masks jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  grantee oid := (select r.oid from pg_roles r where r.rolname = p_role);
  working text := coalesce(current_setting('annals.working', true), '');
  gap record;
  l record;
  c record;
  masks jsonb;
begin
  if grantee is null then
    perform gnomon.refuse('GN006', format('there is no role %L', p_role), 'Create it first.');
  end if;
  if exists (select from unnest(p_names || p_prefixes) x (name) where coalesce(name, '') = '') then
    perform gnomon.refuse('GN006', 'neither the name of a branch nor how one begins can be empty', 'An empty prefix would let the role use all branches.');
  end if;
  if jsonb_typeof(coalesce(p_tables, 'null')) <> 'object' or jsonb_typeof(coalesce(p_masks, 'null')) <> 'object' then
    perform gnomon.refuse('GN006', 'tables and masks are JSON objects', 'Such as {"shop.orders": ["select", "update"]} and {"shop.orders": {"note": null}}.');
  end if;
  perform pg_advisory_xact_lock(hashtextextended('gnomon.confine', 0));
  insert into gnomon.confinement as f (role, names, prefixes) values (grantee, coalesce(p_names, '{}'), coalesce(p_prefixes, '{}'))
    on conflict on constraint confinement_pkey do update set names = excluded.names, prefixes = excluded.prefixes;
  perform set_config('annals.working', 'yes', true);
  for l in select x.tracked from gnomon.loan x where x.role = grantee loop
    delete from gnomon.loan x where x.role = grantee and x.tracked = l.tracked;
    -- Of others it is written anew; theirs are lent as before.
    perform gnomon.drop_loans(l.tracked), gnomon.write_loans(l.tracked);
  end loop;
  perform gnomon.refuse('GN006', format('masks are given for %s, which is not lent', m), 'List it among the tables, too.', jsonb_build_object('table', m)) from jsonb_object_keys(p_masks) m where not p_tables ? m;
  for l in select x.key as name, to_regclass(x.key)::oid as relation, x.value as rights, (select h.tracked from gnomon.history h join annals.tracked t on t.id = h.tracked where t.relation = to_regclass(x.key) and t.ended_v is null) as tracked from jsonb_each(p_tables) x order by 2 loop
    if l.tracked is null then
      perform gnomon.refuse('GN007', format('%s is not tracked', l.name), 'Only tracked tables are lent, by their names with schema: gnomon.track begins to track one.', jsonb_build_object('table', l.name));
    end if;
    if jsonb_typeof(l.rights) <> 'array' or l.rights = '[]' or exists (select from jsonb_array_elements(l.rights) e where e not in ('"select"', '"insert"', '"update"', '"delete"')) then
      perform gnomon.refuse('GN006', format('%s are no rights to %s', l.rights, l.name), 'Give an array of select, insert, update and delete.', jsonb_build_object('table', l.name));
    end if;
    if (select k.relrowsecurity from pg_class k where k.oid = l.relation) then
      perform gnomon.refuse('GN027', format('%s has row-level security, and branches show all rows', l.name), 'Lend tables without it.', jsonb_build_object('table', l.name, 'reason', 'row-level security'));
    end if;
    masks := '{}';
    for c in select m.key as name, m.value, k.n, k.n = any (t.key) as is_key from jsonb_each(coalesce(p_masks->l.name, '{}')) m join annals.tracked t on t.id = l.tracked
             left join annals.tracked_column k on k.tracked = t.id and k.name = m.key and k.gone_v is null and not k.excluded loop
      if c.n is null or c.is_key or jsonb_typeof(c.value) in ('object', 'array') then
        perform gnomon.refuse('GN006', format('column %I of %s cannot be masked: %s', c.name, l.name, case when c.n is null then 'there is none such' when c.is_key then 'it tells rows apart' else 'its mask is no constant' end),
          'Masks are null, or a constant that the type of the column takes.', jsonb_build_object('table', l.name, 'column', c.name));
      end if;
      masks := masks || jsonb_build_object(c.n::text, c.value#>>'{}');
    end loop;
    if masks <> '{}' and l.rights <> '["select"]' then
      perform gnomon.refuse('GN027', format('trigger %I of %s would show masked columns: its function looks names up by the search_path of whoever writes', x.name, l.name), 'Give the function one of its own: alter function ... set search_path = ...; or lend the table to be read only.', jsonb_build_object('table', l.name, 'reason', 'trigger', 'trigger', x.name))
        from gnomon.open_triggers(l.tracked) x;
    end if;
    insert into gnomon.loan (role, tracked, rights, masks) values (grantee, l.tracked, array(select distinct e from jsonb_array_elements_text(l.rights) e order by e), masks);
  end loop;
  for gap in select string_agg(g.detail, '; ' order by g.what, g.object) as list, jsonb_agg(g.detail order by g.what, g.object) as details, count(*) as n from (select * from gnomon.confinement_gaps(grantee) limit 100) g having count(*) > 0 loop
    perform gnomon.refuse('GN027', format('%I can reach more than branches: %s', p_role, left(gap.list, 2000)), 'Take that away first, or use a role that was made for it.', jsonb_build_object('role', p_role, 'reason', 'rights', 'gaps', gap.details));
  end loop;
  perform gnomon.write_loans(x.tracked) from gnomon.loan x where x.role = grantee;
  execute format('grant usage on schema gnomon to %I', p_role);
  for l in select p.oid::regprocedure as function from pg_proc p join gnomon.confined_access a on a.function = p.proname where p.pronamespace = 'gnomon'::regnamespace loop
    execute format('grant execute on function %s to %I', l.function, p_role);
  end loop;
  perform set_config('annals.working', working, true);
end $$;
comment on function gnomon.confine is 'Confines a role, and who is a member of it: it may use branches with these names, use, make and drop those whose names begin so, and there do with tables what p_tables says ({"shop.orders": ["select", "update"]}); columns in p_masks ({"shop.orders": {"note": null}}) show a constant and cannot be written. What was said before of the role is forgotten. Refused when the role has rights beyond that. For the owner.';

create function gnomon.release(p_role name) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  grantee oid := (select r.oid from pg_roles r where r.rolname = p_role);
  working text := coalesce(current_setting('annals.working', true), '');
  l record;
begin
  if grantee is null or not exists (select from gnomon.confinement c where c.role = grantee) then
    return false;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('gnomon.confine', 0));
  perform set_config('annals.working', 'yes', true);
  -- First what it was given, so that at no time it has that and is not confined.
  for l in select p.oid::regprocedure as function from pg_proc p where p.pronamespace = 'gnomon'::regnamespace and exists (select from aclexplode(p.proacl) a where a.grantee = (select r.oid from pg_roles r where r.rolname = p_role)) loop
    execute format('revoke all on function %s from %I', l.function, p_role);
  end loop;
  execute format('revoke all on schema gnomon from %I', p_role);
  for l in select n.nspname from pg_namespace n where n.nspname ~ (select format('^gnomon_lent_%s_', c.id) from gnomon.confinement c where c.role = grantee) loop
    execute format('revoke all on schema %I from %I', l.nspname, p_role);
    execute format('revoke all on all tables in schema %I from %I', l.nspname, p_role);
  end loop;
  for l in delete from gnomon.loan x where x.role = grantee returning x.tracked loop
    perform gnomon.drop_loans(l.tracked), gnomon.write_loans(l.tracked);
  end loop;
  delete from gnomon.confinement c where c.role = grantee;
  perform gnomon.drop_empty_loans();
  perform set_config('annals.working', working, true);
  return true;
end $$;
comment on function gnomon.release is 'Ends the confinement of a role, and takes away what it was lent; false when it was not confined. For the owner.';

create function gnomon.confinements() returns table (role name, names text[], prefixes text[], tables jsonb, masks jsonb, members name[], gaps text[])
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select r.rolname, c.names, c.prefixes,
         (select coalesce(jsonb_object_agg(format('%I.%I', t.schema_name, t.table_name), l.rights), '{}') from gnomon.loan l join annals.tracked t on t.id = l.tracked where l.role = c.role),
         (select coalesce(jsonb_object_agg(x.name, x.masks), '{}') from (
            select format('%I.%I', t.schema_name, t.table_name) as name, jsonb_object_agg(k.name, m.value) as masks from gnomon.loan l join annals.tracked t on t.id = l.tracked cross join lateral jsonb_each(l.masks) m
              join annals.tracked_column k on k.tracked = t.id and k.n = m.key::int where l.role = c.role and k.gone_v is null group by t.id) x),
         array(select m.rolname from pg_roles m where m.oid <> c.role and not m.rolsuper and c.role in (select gnomon.roles_of(m.oid)) order by m.rolname),
         array(select g.detail from gnomon.confinement_gaps(c.role) g order by g.what, g.object)
  from gnomon.confinement c join pg_roles r on r.oid = c.role order by r.rolname
$$;
comment on function gnomon.confinements is 'Roles that are confined: which branches they may use, what they are lent, the roles that are members of them, and what lets them reach more.';

create function gnomon.check_confinements() returns table (detail text, hint text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('%I, which is confined, can reach more than branches: %s', r.rolname, g.detail), 'Take that away, or call gnomon.release.'
    from gnomon.confinement c join pg_roles r on r.oid = c.role cross join lateral gnomon.confinement_gaps(c.role) g
  union all
  -- Who is a member is confined as well. Those who have the rights of gnomon's owner are not.
  select format('%I, a member of %I, which is confined, can reach more than branches: %s', m.rolname, c.role::regrole::text, g.detail), 'Take that away, or the membership.'
    from gnomon.confinement c cross join pg_roles m cross join lateral gnomon.confinement_gaps(m.oid) g
    where m.oid <> c.role and pg_has_role(m.oid, c.role::oid, case when current_setting('server_version_num')::int >= 160000 then 'USAGE, SET' else 'MEMBER' end)
      and not pg_has_role(m.oid, (select n.nspowner from pg_namespace n where n.nspname = 'gnomon'), case when current_setting('server_version_num')::int >= 160000 then 'USAGE, SET' else 'MEMBER' end)
      and not exists (select from gnomon.confinement x where x.role = m.oid)
  union all
  select format('%s, which is lent to %I, is not shown to it', gnomon.table_of(l.tracked), l.role::regrole::text), case when t.ended_v is null then 'Call gnomon.sync for the table.' else 'It is not tracked any more: call gnomon.confine again.' end
    from gnomon.loan l join annals.tracked t on t.id = l.tracked join pg_roles r on r.oid = l.role
    where exists (select from pg_class x where x.oid = t.relation) and (t.ended_v is not null or l.schema_name is null or to_regclass(format('%I.%I', l.schema_name, t.table_name)) is null)
  union all
  select format('%s cannot be written by %I: trigger %I would show masked columns', gnomon.table_of(l.tracked), l.role::regrole::text, x.name), 'Give its function a search_path of its own: alter function ... set search_path = ...; then call gnomon.confine again.'
    from gnomon.loan l cross join lateral gnomon.open_triggers(l.tracked) x where l.masks <> '{}' and l.rights <> array['select']
  union all
  select format('a role with the number %s was confined and is not there any more', c.role::oid), 'Delete it from gnomon.confinement.' from gnomon.confinement c where not exists (select from pg_roles r where r.oid = c.role)
$$;
comment on function gnomon.check_confinements is 'What lets roles that are confined reach more than branches, or less than they were lent.';

-- Views of roles depend on tables. So a command that changes a table finds none: they are dropped before, and written again after it.

create function gnomon.before_ddl() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  command text;
begin
  if current_setting('annals.working', true) = 'yes' or not exists (select from gnomon.loan) then
    return;
  end if;
  -- Which table it is, PostgreSQL does not say yet: the text of the command names it, unless it stands in a function.
  command := lower(replace(current_query(), '""', '"'));
  perform set_config('annals.working', 'yes', true);
  perform gnomon.drop_loans(t.id) from annals.tracked t
    where exists (select from gnomon.loan l where l.tracked = t.id and l.schema_name is not null) and (position(lower(t.table_name) in command) > 0 or command !~ '^\s*(alter|drop)\s');
  perform set_config('annals.working', '', true);
exception when others then
  perform set_config('annals.working', '', true);
  raise warning 'views of what is lent may be in the way of this command: %', sqlerrm using hint = 'Call gnomon.release.';
end $$;
comment on function gnomon.before_ddl is 'Drops the views of tables that are lent before a command changes the tables.';

create function gnomon.after_ddl() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('annals.working', true) = 'yes' or not exists (select from gnomon.loan) then
    return;
  end if;
  perform set_config('annals.working', 'yes', true);
  perform gnomon.write_loans(t.id) from annals.tracked t where t.ended_v is null and exists (select from pg_class c where c.oid = t.relation) and exists (select from gnomon.loan l where l.tracked = t.id and l.schema_name is null);
  perform set_config('annals.working', '', true);
exception when others then
  perform set_config('annals.working', '', true);
  raise warning 'views of what is lent could not be written again: %', sqlerrm using hint = 'Call gnomon.sync for the table.';
end $$;
comment on function gnomon.after_ddl is 'Writes again the views of tables that are lent after a command changed the tables.';

do $$
begin
  create event trigger gnomon_before_ddl on ddl_command_start when tag in ('ALTER TABLE', 'DROP TABLE') execute function gnomon.before_ddl();
  comment on event trigger gnomon_before_ddl is 'Views of what is lent to roles are not in the way of changes of the tables.';
  -- After those that follow the change, by name.
  create event trigger gnomon_lend on ddl_command_end when tag in ('ALTER TABLE', 'DROP TABLE') execute function gnomon.after_ddl();
  comment on event trigger gnomon_lend is 'Writes again the views of what is lent to roles.';
exception when insufficient_privilege then
  null;
end $$;
