-- Using a branch: gnomon.use puts the views of branches before the tables in search_path, and sets the branch that they show. What is not
-- tracked stands there to be read, but not to be written.

create function gnomon.open_branch(p_name text, p_schemas name[], p_outside text) returns gnomon.opening
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  o gnomon.opening;
  b gnomon.branch := gnomon.branch_named(p_name);
begin
  if gnomon.is_confined() then
    return gnomon.open_loans(p_name, p_schemas, p_outside);
  end if;
  p_schemas := array(select s.schema from unnest(p_schemas) with ordinality s (schema, i) where gnomon.source_shown(s.schema) is null order by s.i);
  perform gnomon.refuse('GN008', format('%s is new or has changed, and what it means on a branch has not followed', x.name), 'Call gnomon.sync for a tracked table that changed, else gnomon.sync_guards().', jsonb_build_object('table', x.name))
    from (select gnomon.astray(p_schemas) as name) x where x.name is not null;
  o.place := gnomon.branch_place(b);
  o.outside := p_outside;
  with routes as materialized (select r.* from gnomon.routes_at(o.place, 'branch') r where not r.guarded),
  listed as (
    -- A view that was being read when it was to be replaced has its successor in a schema of its own.
    select s.i, 0 as part, quote_ident(r.schema_name) as entry from unnest(p_schemas) with ordinality s (schema, i) join routes r on r.source_schema = s.schema and r.schema_name !~ '^gnomon_branch_[0-9]+$'
    union all
    select s.i, p.part, format('gnomon_%s_%s', p.name, x.id) as entry from unnest(p_schemas) with ordinality s (schema, i) join lateral gnomon.source_of(s.schema) x (id) on x.id is not null
      cross join (values (1, 'branch'), (2, 'past'), (3, 'open')) p (part, name)
    union all
    select s.i, 4, quote_ident(s.schema) from unnest(p_schemas) with ordinality s (schema, i))
  select (select coalesce(string_agg(l.entry, ', ' order by l.i, l.part), '""') from listed l),
         (select concat(format(' b%s.%s ', b.id, b.base), string_agg(r.checked, '')) from routes r),
         (select coalesce(jsonb_object_agg(r.relation, format('%I.%I', r.schema_name, r.view_name)), '{}') from routes r)
    into o.path, o.checked, o.tables;
  return o;
end $$;
comment on function gnomon.open_branch is 'Finds what has to be set to use a branch.';

-- Without a search_path of their own: they read and set the caller's.
create function gnomon.use(p_name text, p_local boolean default false) returns text
language plpgsql volatile as $$
declare
  o gnomon.opening;
begin
  if coalesce(pg_catalog.current_setting('gnomon.place', true), '') operator(pg_catalog.<>) '' then
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('gnomon.outside', true), p_local);
  end if;
  o := gnomon.open_branch(p_name, pg_catalog.current_schemas(false), pg_catalog.current_setting('search_path'));
  perform pg_catalog.set_config('gnomon.branch', (gnomon.branch_named(p_name)).id::pg_catalog.text, p_local),
          pg_catalog.set_config('gnomon.place', (o.place).coordinate, p_local), pg_catalog.set_config('gnomon.snapshot', (o.place).snapshot::pg_catalog.text, p_local),
          pg_catalog.set_config('gnomon.bound', (o.place).bound::pg_catalog.text, p_local), pg_catalog.set_config('gnomon.checked', o.checked, p_local),
          pg_catalog.set_config('gnomon.outside', o.outside, p_local), pg_catalog.set_config('search_path', o.path, p_local);
  return p_name;
end $$;
comment on function gnomon.use is 'From now on in this session (or with p_local in this transaction) the names of tables mean them as they are on a branch, to be read and written. Names with their schema mean the tables of main. gnomon.leave goes back.';

create function gnomon.enter_branch(p_branch int, p_name text, p_place text, p_versions text, p_checked text, p_path text, p_outside text, p_role text) returns text[]
language plpgsql volatile as $$
declare
  before text[];
begin
  if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) p_outside or current_user operator(pg_catalog.<>) p_role
     or not gnomon.branch_holds(p_branch, p_name, p_checked, p_versions) or not gnomon.holds(p_place) or gnomon.astray(pg_catalog.current_schemas(false)) is not null then
    return null;
  end if;
  before := array[p_outside, coalesce(pg_catalog.current_setting('gnomon.branch', true), ''), coalesce(pg_catalog.current_setting('gnomon.place', true), ''), coalesce(pg_catalog.current_setting('gnomon.snapshot', true), ''),
                  coalesce(pg_catalog.current_setting('gnomon.bound', true), ''), coalesce(pg_catalog.current_setting('gnomon.checked', true), ''), coalesce(pg_catalog.current_setting('gnomon.outside', true), '')];
  perform pg_catalog.set_config('gnomon.branch', p_branch::pg_catalog.text, true), pg_catalog.set_config('gnomon.snapshot', b.snapshot::pg_catalog.text, true), pg_catalog.set_config('gnomon.bound', b.bound::pg_catalog.text, true)
    from gnomon.branch_of(p_branch) b;
  perform pg_catalog.set_config('gnomon.place', p_place, true), pg_catalog.set_config('gnomon.checked', p_checked, true),
          pg_catalog.set_config('gnomon.outside', p_outside, true), pg_catalog.set_config('search_path', p_path, true);
  return before;
end $$;
comment on function gnomon.enter_branch is 'Sets for this transaction what gnomon.open_branch found earlier, and returns what was set before; null if it does not hold any more.';

create function gnomon.resume(p_before text[]) returns void
language plpgsql volatile as $$
begin
  perform pg_catalog.set_config('search_path', p_before[1], true), pg_catalog.set_config('gnomon.branch', p_before[2], true), pg_catalog.set_config('gnomon.place', p_before[3], true), pg_catalog.set_config('gnomon.snapshot', p_before[4], true),
          pg_catalog.set_config('gnomon.bound', p_before[5], true), pg_catalog.set_config('gnomon.checked', p_before[6], true), pg_catalog.set_config('gnomon.outside', p_before[7], true);
end $$;
comment on function gnomon.resume is 'Sets for this transaction what was set before gnomon.enter_branch.';

create function gnomon.versions() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$ begin return (select concat(count(*), '/', sum(t.version)) from annals.tracked t); end $$;
comment on function gnomon.versions is 'What changes whenever a history does, or how it is read.';

create function gnomon.branch_holds(p_branch int, p_name text, p_checked text, p_versions text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return gnomon.versions() = p_versions and exists (select from gnomon.branch b where b.id = p_branch and b.name = p_name and strpos(p_checked, concat(' b', b.id, '.', b.base, ' ')) > 0 and gnomon.may_use(b.id, b.name));
end $$;
comment on function gnomon.branch_holds is 'Whether a branch has the name and the base that it had, and all histories are what they were.';

create function gnomon.lock_rows(p_table regclass, p_keys jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  b record;
  history int := gnomon.present_history(p_table);
  k jsonb;
  locked text;
  made text;
  here bigint;
begin
  -- As for SELECT FOR UPDATE. Who could take another role has its rights.
  if not has_table_privilege(session_user, p_table, 'update') and not exists (select from pg_roles r where pg_has_role(session_user, r.oid, 'member') and has_table_privilege(r.oid, p_table, 'update'))
     and not exists (select from gnomon.lent l join annals.tracked t on t.id = l.tracked where l.tracked = history and has_table_privilege(l.role, format('%I.%I', l.schema_name, t.table_name), 'update')) then
    perform gnomon.refuse('42501', format('permission denied to lock rows of %s', p_table), 'It takes UPDATE on the table.', jsonb_build_object('table', p_table::text));
  end if;
  here := nullif(current_setting('gnomon.branch', true), '')::int;
  if here is not null then
    perform gnomon.lock_branch(here::int, true);
  end if;
  select u.id, u.bound, u.snapshot, x.name into b from gnomon.usable u join gnomon.branch x on x.id = u.id;
  if not found then
    perform gnomon.refuse('GN019', 'rows are locked on a branch, but none is in use', 'Choose one with gnomon.use.', jsonb_build_object('table', p_table::text));
  end if;
  perform gnomon.check_unprotected(gnomon.branch_of(b.id));
  perform gnomon.check_keys(array[history], p_keys);
  for k in select distinct x from jsonb_array_elements(p_keys) x order by x loop
    locked := format('select from gnomon.o%s o where o.branch = $1 and %s for update', history, annals.key_is(history, array(select jsonb_array_elements_text(k)), 'o.k%1$s'));
    execute locked using b.id;
    get diagnostics here = row_count;
    if here = 0 then
      -- A row that the branch has not changed gets one that is as at its base, which means nothing.
      select format('insert into gnomon.o%s (branch, alive, was, %s) select $1, true, true, %s from gnomon.h%1$s_rows($1, $2, $3) x where %4$s on conflict do nothing', history,
          string_agg(case when c.is_key then 'k' || c.n else format('c%s, b%1$s', c.n) end, ', ' order by c.n), string_agg(case when c.is_key then 'x.c' || c.n else format('x.c%s, x.c%1$s', c.n) end, ', ' order by c.n),
          annals.key_is(history, array(select jsonb_array_elements_text(k)), 'x.c%1$s'))
        into made from gnomon.overlay_columns(history) c;
      execute made using b.id, b.bound, b.snapshot;
      get diagnostics here = row_count;
      if here = 0 then
        execute locked using b.id;
      end if;
    end if;
  end loop;
end $$;
comment on function gnomon.lock_rows is 'Locks rows of a table, by their keys (an array of arrays of texts), on the branch in use, until the transaction ends: nobody else changes them there before. Rows that are not there are not locked.';

create function gnomon.branch_here() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select b.name from gnomon.here h join gnomon.branch b on b.id = h.id where gnomon.may_use(b.id, b.name) $$;
comment on function gnomon.branch_here is 'The branch that is in use; null when none is.';
