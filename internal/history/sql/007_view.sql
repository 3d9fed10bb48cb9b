-- Reading history. Each history has a view annals.h<id> over its segments, with every column under its number (c<n>) in its present
-- type. The view shows an entry to those who may read the row: they need SELECT on the table, and where row-level security applies to
-- them, its policies are evaluated on the old row. Entries without an old row are judged by the row that came next, and
-- where a row left its key by the one that left.
--
-- The view must not depend on the table, or on what its policies mention: no ALTER or DROP of a user's may fail because of history. So
-- it holds names as text, and policies are evaluated by functions, which run with the caller's rights as policies do.

create function annals.policy_state(p_relation oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- Policies mean nothing while they are off, and most reads end here.
  if not (select c.relrowsecurity from pg_class c where c.oid = p_relation) then
    return 'no row-level security';
  end if;
  return (select md5(concat((select jsonb_agg(jsonb_build_array(p.polname, p.polcmd, p.polpermissive, p.polroles, pg_get_expr(p.polqual, p.polrelid)) order by p.polname)
                        from pg_policy p where p.polrelid = c.oid and p.polcmd in ('*', 'r'))))
          from pg_class c where c.oid = p_relation);
end $$;
comment on function annals.policy_state is 'Changes when who may read which rows of a table changes.';

create function annals.is_beyond(p_tracked int, p_segments int[]) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from annals.segment s where s.tracked = p_tracked and s.number <> all (p_segments));
end $$;
comment on function annals.is_beyond is 'Whether the calling transaction sees segments of a history other than these.';

create function annals.reads_all(p_tracked int, p_table text, p_relation oid, p_policies text, p_segments int[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if annals.is_beyond(p_tracked, p_segments) then
    perform annals.refuse('AN006', format('the segments of history %s have changed: this transaction needs others than its view has', p_tracked),
      format('Begin a new transaction. If that does not help, call annals.sync(%s).', p_tracked), jsonb_build_object('history', p_tracked));
  end if;
  if p_relation is distinct from to_regclass(p_table)::oid then
    -- Who owns histories may read one whose table is gone.
    if pg_has_role(annals.owner(), 'USAGE') then
      return true;
    end if;
    perform annals.refuse('AN006', format('%s is not the table any more whose history %s is: that was dropped, renamed or restored', p_table, p_tracked),
      format('Call annals.sync(%s), or annals.adopt() after a restore. The history of a dropped table can be read by the owner of schema annals.', p_tracked), jsonb_build_object('history', p_tracked));
  end if;
  if not has_table_privilege(p_relation, 'select') then
    perform annals.refuse('42501', format('permission denied for the history of %s', p_table), 'It takes SELECT on the table.', jsonb_build_object('history', p_tracked));
  end if;
  -- Without row-level security, then and now, that is all.
  if p_policies = 'no row-level security' and not (select c.relrowsecurity from pg_class c where c.oid = p_relation) then
    return true;
  end if;
  if annals.policy_state(p_relation) <> p_policies then
    perform annals.refuse('AN006', format('the row-level security of %s has changed since its history was last synchronised', p_table),
      format('Call annals.sync(%s).', p_tracked), jsonb_build_object('history', p_tracked));
  end if;
  return not row_security_active(p_relation);
end $$;
comment on function annals.reads_all is 'Whether the caller may read a history regardless of row-level security; an error when he may not read it at all, or when its view is out of date.';

create function annals.widens(p_from oid, p_to oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Only casts that neither fail nor depend on settings.
  select p_from = p_to
      or exists (select from pg_cast k where k.castsource = p_from and k.casttarget = p_to and k.castmethod = 'b' and k.castcontext = 'i')
      or (p_from::regtype::text, p_to::regtype::text) in (('smallint', 'integer'), ('smallint', 'bigint'), ('integer', 'bigint'), ('smallint', 'numeric'), ('integer', 'numeric'), ('bigint', 'numeric'),
           ('smallint', 'double precision'), ('integer', 'double precision'), ('real', 'double precision'), ('character', 'text'), ('character', 'character varying'))
$$;
comment on function annals.widens is 'Whether every value of one type is a value of another one. Else a column that changes its type becomes another column for history.';

create function annals.policy_columns(p_tracked int) returns int[]
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(array_agg(distinct c.n), '{}')
  from annals.tracked t join pg_class r on r.oid = t.relation and r.relrowsecurity
  join pg_policy p on p.polrelid = t.relation and p.polcmd in ('*', 'r')
  join annals.tracked_column c on c.tracked = t.id and c.gone_v is null
  where t.id = p_tracked
    and (p.polqual::text ~ ':varattno 0 ' -- the row as a whole
         or exists (select from pg_depend d where d.classid = 'pg_policy'::regclass and d.objid = p.oid and d.refclassid = 'pg_class'::regclass and d.refobjid = t.relation and d.refobjsubid = c.attnum))
$$;
comment on function annals.policy_columns is 'Columns of a table, by number, that its policies for reading look at.';

create function annals.write_policy(p_tracked int, p_types jsonb) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  permissive text;
  restrictive text;
  columns int[] := annals.policy_columns(p_tracked);
  types text;
  image text;
  body text;
  name text := format('annals.h%s_visible', p_tracked);
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select string_agg(q, ' or ') filter (where polpermissive), string_agg(format('(not %s or %s)', r, qual), ' and ') filter (where not polpermissive)
    into permissive, restrictive
    from (select p.polpermissive, r, qual, format('(%s and %s)', r, qual) as q
          from pg_policy p,
               lateral (select case when 0 = any (p.polroles) then 'true' else (select '(' || string_agg(format('pg_has_role(%s::oid, ''USAGE'')', o), ' or ') || ')' from unnest(p.polroles) o) end as r,
                               coalesce('coalesce((' || pg_get_expr(p.polqual, p.polrelid) || '), false)', 'true') as qual) x
          where p.polrelid = t.relation and p.polcmd in ('*', 'r')) s;
  select string_agg(p_types->>c.n::text, ', ' order by c.n), string_agg(format('$%s as %I', array_position(columns, c.n), c.name), ', ' order by c.n)
    into types, image
    from annals.tracked_column c where c.tracked = p_tracked and c.n = any (columns);
  body := format('select (%s)%s from (select %s) as %I', coalesce(permissive, 'false'), coalesce(' and ' || restrictive, ''), coalesce(image, ''), t.table_name);
  -- The search path is pinned, or else callers could give operators in policies another meaning.
  begin
    if exists (select from unnest(columns) n where not p_types ? n::text) then
      raise exception 'they look at columns that history does not hold';
    end if;
    execute format('create or replace function %s(%s) returns boolean language sql stable set search_path = pg_catalog, pg_temp as %L', name, types, body);
  exception when others then
    raise warning 'policies of % cannot be evaluated on old rows: %', t.relation, sqlerrm using hint = 'Those whom row-level security restricts see no entries of its history.';
    types := '';
    columns := '{}';
    execute format('create or replace function %s() returns boolean language sql stable set search_path = pg_catalog, pg_temp as ''select false''', name);
  end;
  execute format('comment on function %s(%s) is %L', name, types, format('Whether the policies of %I.%I show a row to the caller.', t.schema_name, t.table_name));
  execute format('grant execute on function %s(%s) to public', name, types);

  select string_agg(p_types->>u.n::text, ', ' order by u.i), string_agg(format('t.%I %s $%s', c.name, annals.key_operator(p_tracked, u.i::int), u.i), ' and ' order by u.i)
    into types, image
    from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = p_tracked and c.n = u.n;
  execute format('create or replace function %s_now(%s) returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp as %L', name, types,
    format('begin return exists (select from %s t where %s); end', t.relation, image));
  execute format('comment on function %s_now(%s) is %L', name, types, format('Whether %I.%I has a row now that the caller sees.', t.schema_name, t.table_name));
  execute format('grant execute on function %s_now(%s) to public', name, types);
  return format('%s(%s)', name, (select string_agg(format('%%1$s.c%s', u.n), ', ' order by u.i) from unnest(columns) with ordinality u (n, i)));
end $$;
comment on function annals.write_policy is 'Writes the functions that evaluate the policies of a table on old rows; returns how the view calls them.';

create function annals.view_condition(p_tracked int, p_types jsonb) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  numbers int[];
  lookup text;
  keys text;
  call text;
  judged text;
  condition text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select array_agg(s.number order by s.number) into numbers from annals.segment s where s.tracked = p_tracked;
  condition := format('(select annals.reads_all(%s, %L, %s::oid, %L, %L::int[]))', p_tracked,
    coalesce((select t.relation::text from pg_class c where c.oid = t.relation), format('%I.%I', t.schema_name, t.table_name)), t.relation_oid, coalesce(annals.policy_state(t.relation), ''), numbers);
  if not coalesce((select c.relrowsecurity from pg_class c where c.oid = t.relation), false) then
    return condition;
  end if;
  call := annals.write_policy(p_tracked, p_types);
  select string_agg(format('n.c%s %s e.c%s', k, annals.key_operator(p_tracked, i::int), k), ' and ' order by i), string_agg(format('e.c%s', k), ', ' order by i)
    into keys, lookup from unnest(t.key) with ordinality u (k, i);
  judged := format('%%1$s.op in (''u'', ''d'', ''t'') and (%%1$s.missing && %L::int[]) is not true', annals.policy_columns(p_tracked));
  return format(E'%1$s\n  or case when %2$s then %3$s\n          when e.op = ''m'' then coalesce((select %4$s from all_entries n where %5$s and n.v < e.v and %6$s order by n.v desc limit 1), false)\n'
    || '          else coalesce((select %4$s from all_entries n where %5$s and n.v > e.v and %6$s order by n.v limit 1), annals.h%7$s_visible_now(%8$s)) end',
    condition, format(judged, 'e'), format(call, 'e'), format(call, 'n'), keys, format(judged, 'n'), p_tracked, lookup);
end $$;
comment on function annals.view_condition is 'The condition under which the view of a history shows an entry.';

create function annals.view_columns(p_tracked int) returns table (n int, type oid, name text, "collate" text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- A column's type is the one of the last segment that has it; without its length or precision where others had another one.
  return query select c.n, l.atttypid, format_type(l.atttypid, case when l.lowest = l.highest then l.atttypmod else -1 end),
         case when l.attcollation <> y.typcollation then format(' collate %I.%I', nc.nspname, co.collname) else '' end
  from annals.tracked_column c
  join lateral (select x.*, min(x.atttypmod) over () as lowest, max(x.atttypmod) over () as highest
                from annals.segment g join pg_attribute x on x.attrelid = g.relation and x.attname = 'c' || c.n and not x.attisdropped
                where g.tracked = p_tracked and c.n = any (g.columns) order by g.number desc limit 1) l on true
  join pg_type y on y.oid = l.atttypid
  left join pg_collation co on co.oid = l.attcollation left join pg_namespace nc on nc.oid = co.collnamespace
  where c.tracked = p_tracked;
end $$;
comment on function annals.view_columns is 'Columns of the table that the view of a history has, with their types.';

create function annals.view_branch(p_tracked int, s annals.segment) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  image text;
  lacks int[];
  mask text;
begin
  select string_agg(case when a.attnum is not null then 'c' || c.n || case when format_type(a.atttypid, a.atttypmod) <> c.name then '::' || c.name else '' end else 'null::' || c.name end || c."collate" || format(' as c%s', c.n), ', ' order by c.n),
         array_agg(c.n order by c.n) filter (where a.attnum is null)
    into image, lacks
    from annals.view_columns(p_tracked) c
    left join pg_attribute a on a.attrelid = s.relation and a.attname = 'c' || c.n and c.n = any (s.columns) and not a.attisdropped;
  mask := format('%L::int[]', lacks);
  if s.wide <> '{}' then
    mask := format('case when missing is null then %s else array_cat(%s, array_remove(array[%s], null)) end', mask, mask,
      (select string_agg(format('case when missing & %s <> 0 then %s end', 1::bigint << (i - 1)::int, w), ', ' order by i) from unnest(s.wide) with ordinality u (w, i)));
  end if;
  return format('  select v, xid, %s as epoch, at, ctx, login, op, %s as start, %s as missing, %s from %s', s.epoch, case when s.nests then 'coalesce(start, v)' else 'v' end, mask, image, s.relation);
end $$;
comment on function annals.view_branch is 'What the view of a history takes from one segment.';

create function annals.write_view(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  t annals.tracked;
  name text := 'annals.h' || p_tracked;
  types jsonb := (select jsonb_object_agg(c.n, c.name) from annals.view_columns(p_tracked) c);
  statement text;
  used oid[];
  old regprocedure;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  if not exists (select from annals.segment s where s.tracked = p_tracked) then
    execute format('drop view if exists %s', name);
    return;
  end if;
  statement := format(E'view %s%s as\nwith all_entries as not materialized (\n%s)\nselect e.* from all_entries e\nwhere %s', name,
    case when exists (select from pg_class c where c.oid = t.relation and c.relrowsecurity) then ' with (security_barrier = true)' else '' end,
    (select string_agg(annals.view_branch(p_tracked, s), E'\n  union all\n' order by s.number) from annals.segment s where s.tracked = p_tracked),
    annals.view_condition(p_tracked, types));
  -- Replaced in place it keeps its grants, and what depends on it. Where a column got another type or left the last segment that had it, that is impossible.
  begin
    execute 'create or replace ' || statement;
  exception when invalid_table_definition or feature_not_supported then
    execute 'drop view ' || name;
    execute 'create ' || statement;
  end;
  execute format('comment on view %s is %L', name, format('History of %I.%I, as far as the caller may read the rows.', t.schema_name, t.table_name));
  execute format('revoke all on %s from public', name);
  perform annals.grant_view(name);
  perform annals.tell_users(p_tracked);
  -- Functions of earlier policies, which nobody uses any more.
  select array_agg(d.refobjid) into used from pg_depend d join pg_rewrite r on r.oid = d.objid
    where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_proc'::regclass and r.ev_class = to_regclass(name);
  for old in select p.oid from pg_proc p where p.pronamespace = 'annals'::regnamespace and p.proname in (format('h%s_visible', p_tracked), format('h%s_visible_now', p_tracked)) and (p.oid = any (used)) is not true loop
    execute format('drop function %s', old);
  end loop;
end $$;
comment on function annals.write_view is 'Writes the view of a history anew. Waits half a second at most for those who read it.';

create function annals.tell_users(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  f regproc;
begin
  -- Only to functions of who owns the histories: anybody may create a schema of that name while its package is not installed.
  for f in select p.oid from annals.tracked t cross join unnest(t.users) u join pg_namespace n on n.nspname = u join pg_proc p on p.pronamespace = n.oid
             where t.id = p_tracked and p.proname = 'on_view' and p.proargtypes = '23'::oidvector and p.proowner = annals.owner() order by 1 loop
    execute format('select %s(%s)', f, p_tracked);
  end loop;
end $$;
comment on function annals.tell_users is 'Calls the functions on_view(int) of packages that keep a history, in their schemas, after its view was written anew.';

create function annals.tell_all(p_tracked int, p_event name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  f regproc;
begin
  for f in select p.oid from pg_proc p where p.proname = p_event and p.proargtypes = '23'::oidvector and p.proowner = annals.owner() order by 1 loop
    execute format('select %s(%s)', f, p_tracked);
  end loop;
end $$;
comment on function annals.tell_all is 'Calls the functions of this name, with one int for an argument, of all packages that belong to who owns the histories, whether they keep this history or only kept it.';

create function annals.key_operator(p_tracked int, p_position int) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- Equality as the unique index means it; of the type's default class where the index is gone.
  return (select format('operator(%I.%s)', n.nspname, o.oprname)
  from annals.tracked t
  join lateral (select s.relation from annals.segment s where s.tracked = t.id order by s.number desc limit 1) g on true
  join lateral (select x.* from pg_index x where x.indrelid = g.relation and x.indnatts > 1 limit 1) i on true -- the one on the key and v
  join pg_opclass c on c.oid = i.indclass[p_position - 1]
  join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = c.opcintype and a.amoprighttype = c.opcintype and a.amopstrategy = 3
  join pg_operator o on o.oid = a.amopopr join pg_namespace n on n.oid = o.oprnamespace
  where t.id = p_tracked);
end $$;
comment on function annals.key_operator is 'The equality operator of a key column, qualified.';

create table annals.reader (role name primary key);
comment on table annals.reader is 'Roles that may use the views of histories; what they see there depends on their rights to the tables.';
comment on column annals.reader.role is 'Name of the role.';

create function annals.grant_view(p_view text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r name;
begin
  for r in select x.role from annals.reader x join pg_roles p on p.rolname = x.role loop
    execute format('grant select on %s to %I', p_view, r);
  end loop;
end $$;
comment on function annals.grant_view is 'Grants a view to the readers of histories.';
