-- Code of users on branches: CHECK expressions, generated columns, domains, defaults and BEFORE triggers, which must not run with the rights of the owner. Where
-- a table has any, triggers as the caller evaluate it around the one that writes. Here the triggers are put together: write_branch_triggers.

create function gnomon.is_plain(p_expression pg_node_tree) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- It calls nothing but functions of PostgreSQL's own kind, which do no more than compute.
  select p_expression::text !~ '(COERCETODOMAIN|SUBLINK)' and not exists (
    select from regexp_matches(p_expression::text, ':(?:op)?funcid (\d+)', 'g') m left join pg_proc p on p.oid = m[1]::oid left join pg_language l on l.oid = p.prolang
    where l.lanname is null or l.lanname not in ('internal', 'c') or p.provolatile = 'v')
$$;
comment on function gnomon.is_plain is 'Whether an expression can be evaluated with the rights of the owner.';

create function gnomon.branch_checks(p_tracked int) returns table (name name, expression text, plain boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select k.conname, pg_get_expr(k.conbin, k.conrelid), gnomon.is_plain(k.conbin) from annals.tracked t join pg_constraint k on k.conrelid = t.relation and k.contype = 'c'
  where t.id = p_tracked and (to_jsonb(k)->>'conenforced')::boolean is not false
    -- One about a column that branches do not have is left to merging.
    and not exists (select from unnest(k.conkey) u (attnum) join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.attnum where a.attgenerated = '' and not exists (select from gnomon.branch_columns(p_tracked) c where c.attnum = u.attnum))
  order by k.conname
$$;
comment on function gnomon.branch_checks is 'The CHECK constraints of a table that hold on branches.';

create function gnomon.branch_before(p_tracked int) returns table (statement text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('instead of %s on %%s for each row execute function %I.%I(%s)',
      concat_ws(' or ', case when g.tgtype & 4 <> 0 then 'insert' end, case when g.tgtype & 8 <> 0 then 'delete' end, case when g.tgtype & 16 <> 0 then 'update' end), n.nspname, p.proname,
      (select coalesce(string_agg(quote_literal(x), ', ' order by i), '') from unnest(string_to_array(encode(g.tgargs, 'escape'), '\000')) with ordinality u (x, i) where i <= g.tgnargs))
  from annals.tracked t join pg_trigger g on g.tgrelid = t.relation join pg_proc p on p.oid = g.tgfoid join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
  -- Where nothing follows that a trigger goes, its function could not be dropped because of this one.
  where t.id = p_tracked and annals.follows_ddl() and not g.tgisinternal and g.tgtype & 3 = 3 and g.tgenabled in ('O', 'A') and g.tgqual is null and g.tgattr = '' and l.lanname = 'plpgsql' and not annals.is_ours(g.tgfoid)
  order by g.tgname
$$;
comment on function gnomon.branch_before is 'The BEFORE triggers of a table that run on branches, as statements to create the like of them.';

create function gnomon.has_code(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from gnomon.branch_before(p_tracked)) or exists (select from gnomon.branch_checks(p_tracked) k where not k.plain)
    or exists (select from gnomon.branch_columns(p_tracked) c join pg_type y on y.oid = c.typid where y.typtype = 'd' or c.typmod <> -1 and y.typnamespace <> 'pg_catalog'::regnamespace)
    or exists (select from annals.tracked t join pg_attribute a on a.attrelid = t.relation and a.attgenerated <> '' join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where t.id = p_tracked and not gnomon.is_plain(d.adbin))
$$;
comment on function gnomon.has_code is 'Whether writing a row of a table runs code of users, which has to be as the caller.';

create function gnomon.reaches_code(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive reached (tracked) as (
    select r.child from gnomon.branch_references(p_tracked) r where r.parent = p_tracked and (r.on_delete in ('c', 'n', 'd') or r.on_update in ('c', 'n', 'd'))
    union select r.child from reached x, gnomon.branch_references(x.tracked) r where r.parent = x.tracked and (r.on_delete in ('c', 'n', 'd') or r.on_update in ('c', 'n', 'd')))
  select exists (select from reached x where gnomon.has_code(x.tracked))
    -- Defaults are code, too.
    or exists (select from (select p_tracked union select tracked from reached) x (tracked), gnomon.branch_references(x.tracked) r where r.parent = x.tracked and 'd' in (r.on_delete, r.on_update))
$$;
comment on function gnomon.reaches_code is 'Whether what foreign keys do after a change of a table runs code of users.';

create function gnomon.refuse_check(p_relation oid, p_name name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select x.relname, n.nspname as schema into c from pg_class x join pg_namespace n on n.oid = x.relnamespace where x.oid = p_relation;
  raise exception using errcode = '23514', message = format('new row for relation "%s" violates check constraint "%s"', c.relname, p_name), constraint = p_name, table = c.relname, schema = c.schema;
end $$;
comment on function gnomon.refuse_check is 'Refuses a row that a CHECK constraint does not allow, in the words of PostgreSQL.';

create function gnomon.needs_path(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- What domains check is not told.
  select exists (select from (
      select k.conbin::text as expression from annals.tracked t join pg_constraint k on k.conrelid = t.relation and k.contype = 'c' where t.id = p_tracked
      union all select d.adbin::text from annals.tracked t join pg_attribute a on a.attrelid = t.relation and a.attgenerated <> '' join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where t.id = p_tracked) x
    where x.expression ~ 'COERCETODOMAIN' or exists (
      select from regexp_matches(x.expression, ':(?:op)?funcid (\d+)', 'g') m left join pg_proc p on p.oid = m[1]::oid left join pg_language l on l.oid = p.prolang
      where l.lanname is null or l.lanname not in ('internal', 'c') and p.prosqlbody is null and not exists (select from unnest(p.proconfig) c where starts_with(c, 'search_path='))))
$$;
comment on function gnomon.needs_path is 'Whether CHECK constraints or generated columns of a table call functions that go by the search_path of the caller.';

create function gnomon.write_derive(p_tracked int, p_plain boolean) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  t annals.tracked;
  k record;
  f record;
  list text;
  row_of text;
  result text;
  body text := '';
  standard text;
  written boolean := false;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  for f in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'gnomon'::regnamespace and p.proname = format('h%s_derive', p_tracked) loop
    execute format('drop function %s', f.name);
  end loop;
  if not exists (select from gnomon.computed(p_tracked)) and not exists (select from gnomon.branch_checks(p_tracked)) then
    return false;
  end if;
  list := (select string_agg(format('p%s %s', c.n, c.type), ', ' order by c.n) from gnomon.branch_columns(p_tracked) c);
  row_of := (select string_agg(format('p%s%s as %I', c.n, c."collate", c.name), ', ' order by c.n) from gnomon.branch_columns(p_tracked) c);
  result := (select coalesce(string_agg(format('out g%s %s, ', i, c.type), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i)) || 'out violated name, out rest boolean';
  -- Names in these expressions were resolved when they were created, and so they are here: under our search_path. But functions that they call may go by that of the caller, as
  -- they do on main. A body in standard SQL does both. It depends on what it calls, so there has to be something that follows when a constraint goes.
  if not p_plain and annals.follows_ddl() and gnomon.needs_path(p_tracked) then
    standard := format('begin atomic select %1$s%2$s, null::boolean from (select %3$I.*%4$s from (select %5$s) as %3$I) as %3$I; end',
      (select coalesce(string_agg(format('%I.%I, ', t.table_name, c.name), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i)),
      (select coalesce('case ' || string_agg(format('when (%s) is false then %L::name', c.expression, c.name), ' ' order by c.name) || ' end', 'null::name') from gnomon.branch_checks(p_tracked) c), t.table_name,
      (select coalesce(string_agg(format(', (%s)::%s as %I', c.expression, c.type, c.name), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i)), row_of);
    begin
      execute format('create function gnomon.h%s_derive(%s, %s) language sql %s', p_tracked, list, result, standard);
      written := true;
    exception when syntax_error_or_access_rule_violation then
      null; -- such as of the row as a whole
    end;
  end if;
  if not written then
    for k in select * from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i) loop
      body := body || format(E'  select (%s)::%s into g%s from (select %s) as %I;\n', k.expression, k.type, k.i, row_of, t.table_name);
    end loop;
    row_of := row_of || (select coalesce(string_agg(format(', g%s as %I', i, c.name), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i));
    for k in select * from gnomon.branch_checks(p_tracked) loop
      body := body || format(E'  if (select (%s) is false from (select %s) as %I) then\n    violated := %L;\n    return;\n  end if;\n', k.expression, row_of, t.table_name, k.name);
    end loop;
    execute format('create function gnomon.h%s_derive(%s, %s) language plpgsql%s as %L', p_tracked, list, result, case when p_plain or not gnomon.needs_path(p_tracked) then ' set search_path = pg_catalog, pg_temp' else '' end,
      format(E'\n#variable_conflict use_column\nbegin\n%send ', body));
  end if;
  execute format('comment on function gnomon.h%s_derive is %L', p_tracked, format('Generated columns of a row of %I.%I, and the CHECK constraint that does not allow it.', t.schema_name, t.table_name));
  if not p_plain then
    execute format('grant execute on function gnomon.h%s_derive to public', p_tracked);
  end if;
  return true;
end $$;
comment on function gnomon.write_derive is 'Writes the function that computes generated columns and evaluates CHECK constraints; false when there are none.';

create function gnomon.deriving(p_tracked int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format(E'  derived := gnomon.h%s_derive(%s);\n  if derived.violated is distinct from null then\n    perform gnomon.refuse_check(%s::pg_catalog.oid, derived.violated);\n  end if;\n%s', p_tracked,
    (select string_agg(format('new.%I', c.name), ', ' order by c.n) from gnomon.branch_columns(p_tracked) c), t.relation::oid,
    (select coalesce(string_agg(format(E'  new.%I := derived.g%s;\n', c.name, i), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i)))
  from annals.tracked t where t.id = p_tracked
$$;
comment on function gnomon.deriving is 'PL/pgSQL that has a written row checked, and computes its generated columns.';

create function gnomon.refusing_generated(p_tracked int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format(E'  if new.%1$I is distinct from null and (tg_op operator(pg_catalog.=) ''INSERT'' or pg_catalog.record_image_ne(row(new.%1$I), row(old.%1$I))) then\n    perform gnomon.refuse_generated(%2$s::pg_catalog.oid, %1$L, tg_op operator(pg_catalog.=) ''INSERT'');\n  end if;\n', c.name, t.relation::oid), ''), '')
  from annals.tracked t, gnomon.computed(p_tracked) c where t.id = p_tracked
$$;
comment on function gnomon.refusing_generated is 'PL/pgSQL that refuses values for generated columns.';

create function gnomon.coercing(p_tracked int, p_code boolean, out declared text, out body text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format(E'  t%s %s;\n', c.n, format_type(c.typid, c.typmod)), '' order by c.n), ''), coalesce(string_agg(format(E'  t%1$s := new.%2$I;\n  new.%2$I := t%1$s;\n', c.n, c.name), '' order by c.n), '')
  from gnomon.branch_columns(p_tracked) c join pg_type y on y.oid = c.typid where c.typmod <> -1 and y.typnamespace = 'pg_catalog'::regnamespace or p_code and (c.typmod <> -1 or y.typtype = 'd')
$$;
comment on function gnomon.coercing is 'PL/pgSQL by which values become what columns hold: with their length and precision, and the constraints of domains.';

create function gnomon.branch_rules(p_tracked int, p_only_keys boolean default false) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
  select array[
    case when not p_only_keys then md5(concat_ws('/', (select string_agg(c::text, ',' order by c.n) from gnomon.branch_columns(p_tracked) c), (select string_agg(c::text, ',' order by c.name) from gnomon.computed(p_tracked) c),
      (select string_agg(concat(d.adnum, pg_get_expr(d.adbin, d.adrelid)), ',' order by d.adnum) from annals.tracked t join pg_attrdef d on d.adrelid = t.relation where t.id = p_tracked),
      gnomon.needs_path(p_tracked), (select string_agg(c::text, ',' order by c.name) from gnomon.branch_checks(p_tracked) c), (select string_agg(b.statement, ',' order by b.statement) from gnomon.branch_before(p_tracked) b), (select string_agg(u::text, ',' order by u.index) from gnomon.branch_uniques(p_tracked) u))) end,
    md5(concat_ws('/', gnomon.reaches_code(p_tracked), (select string_agg(concat(r, r.parent_relation::regclass), ',' order by r.reference) from gnomon.branch_references(p_tracked) r)))]
$$;
comment on function gnomon.branch_rules is 'Digests of what the triggers for branches are made from: the rules of a table, and its foreign keys. The first is null where only keys are asked for.';

create function gnomon.follow_writing(p_relations oid[] default null, p_only_keys boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  working text := coalesce(current_setting('annals.working', true), '');
  h record;
  only_keys boolean;
  digests text[];
begin
  perform set_config('annals.working', 'yes', true);
  for h in
    with recursive linked (relation) as (
      select r.relation from unnest(p_relations) r (relation)
      union select case k.conrelid when l.relation then k.confrelid else k.conrelid end from linked l join pg_constraint k on k.contype = 'f' and l.relation in (k.conrelid, k.confrelid))
    select x.tracked, t.relation, x.rules from gnomon.history x join annals.tracked t on t.id = x.tracked join pg_class c on c.oid = t.relation
    where t.ended_v is null and x.rules is not null and (p_relations is null or t.relation in (select l.relation from linked l)) order by x.tracked
  loop
    begin
      -- What is linked with a table that changed can notice that by the keys only.
      only_keys := p_only_keys or h.relation <> all (p_relations);
      digests := gnomon.branch_rules(h.tracked, coalesce(only_keys, false));
      if digests[1] <> h.rules[1] then
        perform gnomon.write_routes(h.tracked);
      elsif digests[2] <> h.rules[2] then
        perform gnomon.write_writing(h.tracked);
        update gnomon.history x set rules[2] = digests[2] where x.tracked = h.tracked;
      end if;
    exception when others then
      -- Neither a user's command nor capture fails because of it.
      raise warning 'how % is written on branches could not be brought up to date: %', h.relation, sqlerrm using hint = 'Call gnomon.sync_guards().';
    end;
  end loop;
  perform set_config('annals.working', working, true);
end $$;
comment on function gnomon.follow_writing is 'Lets those who write tables on branches go by their present rules: some tables and what foreign keys link with them, or all. Event triggers call it, where they could be created, else gnomon.sync_guards().';

create function gnomon.write_writing(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.write_put(p_tracked);
  perform gnomon.write_act(p_tracked);
  perform gnomon.write_judge(p_tracked);
end $$;
comment on function gnomon.write_writing is 'Writes the functions that write a table''s rows on branches.';

create function gnomon.write_defaults(p_tracked int, p_view text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
  name text;
  numbers boolean;
begin
  -- As text: it depends on no function or sequence of the user's.
  for c in
    select b.n, b.name, format_type(b.typid, b.typmod) as type, coalesce((select format('pg_catalog.nextval(%s::pg_catalog.oid::pg_catalog.regclass)', s.oid) from pg_depend d join pg_class s on s.oid = d.refobjid and s.relkind = 'S'
      where d.classid = 'pg_attrdef'::regclass and d.objid = f.oid and d.refclassid = 'pg_class'::regclass and pg_get_expr(f.adbin, f.adrelid) ~ '^nextval\(''[^'']*''::regclass\)$'), pg_get_expr(f.adbin, f.adrelid)) as expression
    from annals.tracked t join pg_attrdef f on f.adrelid = t.relation join gnomon.branch_columns(p_tracked) b on b.attnum = f.adnum where t.id = p_tracked order by b.n
  loop
    name := format('gnomon.h%s_%s_default_%s', p_tracked, (select h.generation from gnomon.history h where h.tracked = p_tracked), c.n);
    -- Who is confined has no rights to the sequence of a column, and needs none.
    numbers := c.expression like 'pg_catalog.nextval(%' and exists (select from gnomon.route x where format('%I.%I', x.schema_name, x.view_name) = p_view and x.guarded);
    if numbers then
      name := name || '_lent';
    end if;
    execute format('create or replace function %s() returns %s language sql volatile%s as %L', name, c.type, case when numbers then ' security definer set search_path = pg_catalog, pg_temp' else '' end, format('select (%s)::%s', c.expression, c.type));
    execute format('comment on function %s is %L', name, format('Default of column %I.', c.name));
    execute format('grant execute on function %s to public', name);
    if numbers then
      execute format('revoke all on function %s from public', name);
    end if;
    execute format('alter view %s alter column %I set default %s()', p_view, c.name, name);
  end loop;
end $$;
comment on function gnomon.write_defaults is 'Gives the columns of a view of a branch the defaults of the table.';

create function gnomon.write_branch_triggers(p_tracked int, p_view text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  t annals.tracked;
  route int := (select x.id from gnomon.route x where format('%I.%I', x.schema_name, x.view_name) = p_view);
  guarded boolean := (select x.guarded from gnomon.route x where x.id = route);
  name text;
  before record;
  coerce record;
  derives boolean;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  perform gnomon.write_writing(p_tracked);
  if gnomon.has_code(p_tracked) then
    select * into coerce from gnomon.coercing(p_tracked, true);
    -- Who may write needs no rights to the sequences of identity columns.
    if gnomon.numbering(p_tracked) <> '' then
      execute format('create or replace function gnomon.h%s_number() returns trigger language plpgsql security definer as %L', p_tracked, format(E'\nbegin\n%s  return new;\nend ', gnomon.numbering(p_tracked)));
      execute format('revoke all on function gnomon.h%s_number() from public', p_tracked);
      execute format('comment on function gnomon.h%s_number is %L', p_tracked, format('Numbers rows of %I.%I that are written on a branch.', t.schema_name, t.table_name));
      execute format('create trigger gnomon_0_number instead of insert on %s for each row execute function gnomon.h%s_number()', p_view, p_tracked);
    end if;
    -- As the caller: what comes before BEFORE triggers, these, and what comes after them.
    for before in select row_number() over () as i, b.statement from gnomon.branch_before(p_tracked) b loop
      execute format('create trigger gnomon_2_%s ', to_char(before.i, 'FM000')) || format(before.statement, p_view);
    end loop;
    derives := gnomon.write_derive(p_tracked, false);
    -- Who is confined must not see masked columns by operators of his own, which his search_path puts before those of expressions.
    for name in select format('gnomon.h%s_%s%s', p_tracked, case when guarded then 'lent_' else '' end, x) from unnest(array['coerce', 'check']) x loop
      execute format('create or replace function %s() returns trigger language plpgsql%s as %L', name, case when guarded then ' set search_path = pg_catalog, pg_temp' else '' end, format(E'\n#variable_conflict use_column\ndeclare\n  derived record;\n%sbegin\n%s%s%s  return new;\nend ',
        coerce.declared, case when name like '%coerce' then gnomon.refusing_generated(p_tracked) else '' end, coerce.body, case when derives and name like '%check' then gnomon.deriving(p_tracked) else '' end));
      execute format('comment on function %s is %L', name, format('Checks rows of %I.%I that are written on a branch, as the caller.', t.schema_name, t.table_name));
      execute format('create trigger gnomon_%s instead of insert or update on %s for each row execute function %s()', case when name like '%coerce' then '1_coerce' else '3_check' end, p_view, name);
    end loop;
  end if;
  execute format('create trigger gnomon_4_put instead of insert or update or delete on %s for each row execute function gnomon.h%s_put(%L)', p_view, p_tracked, route);
  -- The rows tell by a setting that there is something to do, so most statements end at once. Who changes it by hand deceives nobody but himself: merging finds what is wrong.
  execute format('create trigger gnomon_5_act after update or delete on %s for each statement when (current_setting(''gnomon.pending'', true) = ''yes'') execute function gnomon.h%s_act(%L)', p_view, p_tracked, route);
  execute format('create trigger gnomon_6_settle after insert or update or delete on %s for each statement when (current_setting(''gnomon.pending'', true) = ''yes'') execute function gnomon.settle(%L)', p_view, p_tracked);
  perform gnomon.write_defaults(p_tracked, p_view);
  update gnomon.history h set rules = gnomon.branch_rules(p_tracked) where h.tracked = p_tracked;
  -- Those that it refers to, or that refer to it, may have to know.
  perform gnomon.follow_writing(array[t.relation::oid], true);
end $$;
comment on function gnomon.write_branch_triggers is 'Writes the triggers by which a view of a branch is written.';
