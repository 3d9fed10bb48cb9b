-- Writing on a branch. Triggers on the views of branches write the overlays (see gnomon.make_overlay) in place of the tables, by the rules of the
-- tables: what is not null, unique or references another row is so as seen from the branch.
--
-- gnomon.h<history>_put() does it, with the rights of the owner. It is written for each table and kept lean, so it has no search_path of its own:
-- whatever it names is qualified, and it calls no code of users. gnomon.h<history>_rows() are the rows of a branch for it, without checks.

create function gnomon.branch_columns(p_tracked int) returns table (n int, name name, type text, "collate" text, is_key boolean, attnum int2, typid oid, typmod int, not_null boolean, identity "char")
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- Types are those of the overlay: this is asked often.
  return query
    select c.n, a.attname, format_type(o.atttypid, o.atttypmod), case when o.attcollation <> y.typcollation then format(' collate %I.%I', n.nspname, l.collname) else '' end, c.n = any (t.key), a.attnum, a.atttypid, a.atttypmod, a.attnotnull, a.attidentity
    from annals.tracked t join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key))
    join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum and not a.attisdropped
    join pg_attribute o on o.attrelid = to_regclass(format('gnomon.o%s', t.id)) and o.attname = case when c.n = any (t.key) then 'k' else 'c' end || c.n and not o.attisdropped
    join pg_type y on y.oid = o.atttypid left join pg_collation l on l.oid = o.attcollation left join pg_namespace n on n.oid = l.collnamespace
    where t.id = p_tracked;
end $$;
comment on function gnomon.branch_columns is 'The columns of a table that branches have, with what the table says of them.';

create function gnomon.plain_equality(p_operator oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- Only what is not written in SQL or a language of procedures: it may be called with the rights of the owner.
  return (select format('operator(%I.%s)', n.nspname, o.oprname) from pg_operator o join pg_namespace n on n.oid = o.oprnamespace join pg_proc p on p.oid = o.oprcode join pg_language l on l.oid = p.prolang
    where o.oid = p_operator and l.lanname in ('internal', 'c'));
end $$;
comment on function gnomon.plain_equality is 'An operator, qualified; null when it would run code of users.';

create function gnomon.equals(p_left text, p_operator text, p_right text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
as $$ select case when p_operator is null then format('pg_catalog.record_image_eq(row(%s), row(%s))', p_left, p_right) else format('%s %s %s', p_left, p_operator, p_right) end $$;
comment on function gnomon.equals is 'SQL that compares two values: with an operator, or if that is null by what is stored.';

create function gnomon.branch_uniques(p_tracked int) returns table (index oid, name name, is_key boolean, columns name[], numbers int[], operators text[], nulls_equal boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  -- Those whose columns branches have. Partial indexes and ones of expressions are left to merging.
  select i.indexrelid, x.relname, i.indexrelid = annals.key_index(t.relation), array_agg(c.name order by u.position), array_agg(c.n order by u.position),
    array_agg((select gnomon.plain_equality(m.amopopr) from pg_opclass k join pg_amop m on m.amopfamily = k.opcfamily and m.amoplefttype = k.opcintype and m.amoprighttype = k.opcintype and m.amopstrategy = 3 where k.oid = i.indclass[u.position - 1] and k.opcmethod = (select oid from pg_am where amname = 'btree')) order by u.position),
    coalesce((to_jsonb(i)->>'indnullsnotdistinct')::boolean, false)
  from annals.tracked t join pg_index i on i.indrelid = t.relation join pg_class x on x.oid = i.indexrelid cross join unnest(i.indkey::int2[]) with ordinality u (attnum, position)
  left join gnomon.branch_columns(p_tracked) c on c.attnum = u.attnum
  where t.id = p_tracked and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null and u.position <= i.indnkeyatts
    and not exists (select from pg_constraint k where k.conindid = i.indexrelid and (k.contype = 'x' or (to_jsonb(k)->>'conperiod')::boolean))
  group by t.relation, i.indexrelid, x.relname, to_jsonb(i) having bool_and(c.n is not null)
  order by 3 desc, 1;
end $$;
comment on function gnomon.branch_uniques is 'The unique keys of a table that hold on branches.';

create function gnomon.refuse_duplicate(p_relation oid, p_name name, p_columns text, p_values text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = '23505', message = format('duplicate key value violates unique constraint "%s"', p_name), detail = format('Key (%s)=(%s) already exists.', p_columns, p_values),
    constraint = p_name, table = (select c.relname from pg_class c where c.oid = p_relation), schema = (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_relation);
end $$;
comment on function gnomon.refuse_duplicate is 'Refuses a row whose unique key another one has on the branch, in the words of PostgreSQL.';

create function gnomon.refuse_collision(p_relation oid, p_index text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  name name := coalesce((select c.relname from pg_class c where c.oid = (regexp_match(p_index, '_u([0-9]+)$'))[1]::oid), p_index);
begin
  raise exception using errcode = '23505', message = format('duplicate key value violates unique constraint "%s"', name), detail = 'Another transaction on the branch took it.',
    constraint = name, table = (select c.relname from pg_class c where c.oid = p_relation), schema = (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_relation);
end $$;
comment on function gnomon.refuse_collision is 'Refuses a row whose unique key a concurrent transaction took on the branch.';

create function gnomon.refuse_null(p_relation oid, p_column name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select x.relname, n.nspname as schema into c from pg_class x join pg_namespace n on n.oid = x.relnamespace where x.oid = p_relation;
  raise exception using errcode = '23502', message = format('null value in column "%s" of relation "%s" violates not-null constraint', p_column, c.relname), column = p_column, table = c.relname, schema = c.schema;
end $$;
comment on function gnomon.refuse_null is 'Refuses a null, in the words of PostgreSQL.';

create function gnomon.refuse_generated(p_relation oid, p_column name, p_insert boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select x.relname, n.nspname as schema into c from pg_class x join pg_namespace n on n.oid = x.relnamespace where x.oid = p_relation;
  raise exception using errcode = '428C9', message = format(case when p_insert then 'cannot insert a non-DEFAULT value into column "%s"' else 'column "%s" can only be updated to DEFAULT' end, p_column),
    detail = format('Column "%s" is a generated column.', p_column), column = p_column, table = c.relname, schema = c.schema;
end $$;
comment on function gnomon.refuse_generated is 'Refuses a value for a generated column, in the words of PostgreSQL.';

create function gnomon.refuse_lost(p_relation oid, p_branch text, p_key text, p_own boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if p_own then
    perform gnomon.refuse('21000', format('a row of %s is changed by one statement more than once on branch %L: %s', p_relation::regclass, p_branch, p_key), 'Let no more than one row of a join meet it.',
      jsonb_build_object('table', p_relation::regclass::text, 'branch', p_branch, 'key', p_key));
  end if;
  perform gnomon.refuse('40001', format('a row of %s was changed on branch %L by a concurrent transaction: %s', p_relation::regclass, p_branch, p_key), 'Try the transaction again.',
    jsonb_build_object('table', p_relation::regclass::text, 'branch', p_branch, 'key', p_key));
end $$;
comment on function gnomon.refuse_lost is 'Refuses to write over a change that was not seen.';

create function gnomon.write_branch_rows(p_tracked int, p_shape int, p_numbers int[], p_base text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  name text := format('gnomon.h%s_rows', p_tracked);
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  if to_regprocedure(name || '(int, bigint, pg_snapshot)') is not null then
    execute format('drop function %s(int, bigint, pg_snapshot)', name);
  end if;
  execute format('create function %s(p_branch int, p_bound bigint, p_snapshot pg_snapshot) returns table (%s) language sql stable rows %s as %L', name,
    (select string_agg(format('c%s %s', c.n, c.type), ', ' order by c.n) from gnomon.past_columns(p_tracked, p_shape) c), greatest((select c.reltuples from pg_class c where c.oid = t.relation), 1)::bigint,
    (select format('select %s from (%s) u', string_agg(format('u.c%s', c.n), ', ' order by c.n), gnomon.view_query(0, p_tracked, p_shape, p_numbers, p_base, null, true, true, true)) from gnomon.past_columns(p_tracked, p_shape) c));
  execute format('revoke all on function %s from public', name);
  execute format('comment on function %s is %L', name, format('The rows of %I.%I on a branch.', t.schema_name, t.table_name));
end $$;
comment on function gnomon.write_branch_rows is 'Writes the function that gives those who write on a branch its rows.';

create function gnomon.numbering(p_tracked int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format(E'  if tg_op operator(pg_catalog.=) ''INSERT'' and new.%1$I is not distinct from null then\n    new.%1$I := pg_catalog.nextval(%2$s::pg_catalog.oid::pg_catalog.regclass);\n  end if;\n', b.name, s.oid), '' order by b.n), '')
  from annals.tracked t join gnomon.branch_columns(p_tracked) b on b.identity <> '' join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = t.relation and d.refobjsubid = b.attnum and d.classid = 'pg_class'::regclass and d.deptype = 'i'
  join pg_class s on s.oid = d.objid and s.relkind = 'S' where t.id = p_tracked
$$;
comment on function gnomon.numbering is 'PL/pgSQL that gives identity columns their next numbers, of which main takes none.';

create function gnomon.write_put(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  t annals.tracked;
  col record;
  uq record;
  overlay text := format('gnomon.o%s', p_tracked);
  rows text := format('gnomon.h%s_rows(put.here, put.bound, put.snapshot)', p_tracked);
  stamp text := 'v = pg_catalog.nextval(''annals.v''), xid = pg_catalog.pg_current_xact_id(), at = pg_catalog.clock_timestamp(), login = session_user';
  declared text;
  before text;
  reference_checks text[];
  key_is text[];
  own text;
  logs text;
  same_key text;
  uniques text := '';
  unique_columns text;
  deleting text;
  inserting text;
  updating text;
  sets text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  -- Conditions on the key: of the overlay's row o and the branch's (or its base's) row x.
  key_is := array(select string_agg(format(p.form, k.c, annals.key_operator(p_tracked, k.i::int), k.name, k."collate"), ' and ' order by k.i)
    from (values (1, 'o.k%1$s %2$s old.%3$I'), (2, 'o.k%1$s %2$s new.%3$I'), (3, 'x.c%1$s%4$s %2$s old.%3$I'), (4, 'x.c%1$s%4$s %2$s new.%3$I'), (5, 'old.%3$I %2$s new.%3$I'), (6, 'o.k%1$s %2$s x.c%1$s%4$s')) p (i, form)
    cross join (select u.n as c, u.i, b.name, b."collate" from unnest(t.key) with ordinality u (n, i) join gnomon.branch_columns(p_tracked) b on b.n = u.n) k group by p.i order by p.i);
  same_key := key_is[5];
  own := format('o.branch operator(pg_catalog.=) put.here and %s', '%s');
  sets := (select string_agg(format(', %s%s = new.%I', case when b.is_key then 'k' else 'c' end, b.n, b.name), '' order by b.n) from gnomon.branch_columns(p_tracked) b);

  select x.declared, x.body into declared, before from gnomon.coercing(p_tracked, false) x;
  before := gnomon.numbering(p_tracked) || before;
  for col in select * from gnomon.branch_columns(p_tracked) b where b.not_null order by b.attnum loop
    before := before || format(E'  if new.%I is not distinct from null then\n    perform gnomon.refuse_null(%s::pg_catalog.oid, %L);\n  end if;\n', col.name, t.relation::oid, col.name);
  end loop;
  if not gnomon.has_code(p_tracked) then
    before := gnomon.refusing_generated(p_tracked) || before;
    if gnomon.write_derive(p_tracked, true) then
      before := before || gnomon.deriving(p_tracked);
    end if;
  end if;
  reference_checks := gnomon.write_checks_of_references(p_tracked);

  -- Unique keys other than the key. The rows of the branch's own and those of its base are looked up apart, each by an index on the values: asked of all
  -- rows of the branch at once, PostgreSQL would go through all of its own for each row that is written.
  for uq in select * from gnomon.branch_uniques(p_tracked) where not is_key loop
    uniques := uniques || (select format(E'    if %1$s(exists (select from gnomon.o%2$s o where o.branch operator(pg_catalog.=) put.here and o.alive and %12$s and %3$s and (tg_op operator(pg_catalog.=) ''INSERT'' or put.moved or not (%4$s)))\n'
      || E'        or exists (select from gnomon.h%2$s_rows(-1, put.bound, put.snapshot) x where %5$s and (tg_op operator(pg_catalog.=) ''INSERT'' or put.moved or not (%6$s)) and not exists (select from gnomon.o%2$s o where o.branch operator(pg_catalog.=) put.here and %7$s))) then\n'
      || E'      perform gnomon.refuse_duplicate(%8$s::pg_catalog.oid, %9$L, %10$L, pg_catalog.concat_ws('', '', %11$s));\n    end if;\n',
      case when not uq.nulls_equal then (select string_agg(format('new.%I is distinct from null and ', n), '') from unnest(uq.columns) n) else '' end, p_tracked, e.own, key_is[1], e.base, key_is[3], key_is[6],
      t.relation::oid, uq.name, (select string_agg(quote_ident(n), ', ') from unnest(uq.columns) n), (select string_agg(format('coalesce(new.%I::pg_catalog.text, ''null'')', n), ', ') from unnest(uq.columns) n), gnomon.unique_mark('o.branch', uq.index))
      from (select string_agg(case when uq.nulls_equal then format('(%s or %s is not distinct from null and new.%I is not distinct from null)', v.own, v.own_column, v.name) else v.own end, ' and ' order by v.i) as own,
          string_agg(case when uq.nulls_equal then format('(%s or x.c%s is not distinct from null and new.%I is not distinct from null)', v.base, v.n, v.name) else v.base end, ' and ' order by v.i) as base
        from (select k.i, k.n, k.name, o.own_column, gnomon.equals(o.own_column, uq.operators[k.i], format('new.%I', k.name)) as own, gnomon.equals(format('x.c%s%s', k.n, b."collate"), uq.operators[k.i], format('new.%I', k.name)) as base
          from unnest(uq.columns, uq.numbers) with ordinality k (name, n, i) join gnomon.branch_columns(p_tracked) b on b.n = k.n cross join lateral (select format('o.%s%s', case when b.is_key then 'k' else 'c' end, b.n) as own_column) o) v) e);
  end loop;
  select string_agg(distinct format('%s', n), ',') into unique_columns from gnomon.branch_uniques(p_tracked) x, unnest(x.numbers) n where not x.is_key;

  logs := (select format(E'    if put.logged then\n      insert into gnomon.l%s (branch, op, alive, own, %s) values (put.here, %%L, %%s, put.own, %%s);\n    end if;\n', p_tracked, string_agg(case when b.is_key then 'k' else 'c' end || b.n, ', ' order by b.is_key desc, b.n)) from gnomon.branch_columns(p_tracked) b);

  -- alive is compared with the rest: as a condition of its own it would let an index of a unique key serve, which finds all rows of a branch.
  deleting := format(E'    update %1$s o set alive = false, %2$s%3$s where %4$s and pg_catalog.record_image_eq(row(o.alive, %5$s), row(true, %6$s));\n    put.own := found;\n'
    || E'    if not found then\n      insert into %1$s as o (branch, alive, was, %7$s) values (put.here, false, true, %8$s) on conflict (branch, %9$s) do nothing;\n      if not found then\n'
    || E'        select o.xid operator(pg_catalog.=) pg_catalog.pg_current_xact_id(), o.alive into put.mine, put.alive from %1$s o where %4$s;\n        if put.mine and not put.alive then\n          return null;\n        end if;\n'
    || E'        perform gnomon.refuse_lost(%10$s::pg_catalog.oid, put.branch_name, pg_catalog.concat_ws('', '', %11$s), coalesce(put.mine, false));\n      end if;\n    end if;\n',
    overlay, stamp, (select coalesce(string_agg(format(', c%s = null', b.n), '' order by b.n), '') from gnomon.branch_columns(p_tracked) b where not b.is_key), format(own, key_is[1]),
    (select string_agg(format('o.%s%s', case when b.is_key then 'k' else 'c' end, b.n), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg(case when b.is_key then 'k' else 'b' end || b.n, ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg('k' || n, ', ') from unnest(t.key) n), t.relation::oid, (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b where b.is_key));
  deleting := deleting || (select format(logs, 'd', 'true', string_agg(format('old.%I', b.name), ', ' order by b.is_key desc, b.n)) from gnomon.branch_columns(p_tracked) b);

  inserting := (select format(E'    if exists (select from %1$s x where %2$s) then\n      perform gnomon.refuse_duplicate(%3$s::pg_catalog.oid, %4$L, %5$L, pg_catalog.concat_ws('', '', %6$s));\n    end if;\n', rows, key_is[4], t.relation::oid, x.name,
      (select string_agg(quote_ident(n), ', ') from unnest(x.columns) n), (select string_agg(format('new.%I', n), ', ') from unnest(x.columns) n)) from gnomon.branch_uniques(p_tracked) x where x.is_key)
    || uniques
    || (select format(E'    insert into %1$s as o (branch, alive, was, %2$s) values (put.here, true, false, %3$s) on conflict do nothing;\n    put.own := false;\n    if not found then\n      begin\n'
    || E'        update %1$s o set alive = true, %4$s%5$s where %6$s and not o.alive;\n        put.own := found;\n      exception when unique_violation then\n        get stacked diagnostics put.collides = constraint_name;\n        perform gnomon.refuse_collision(%7$s::pg_catalog.oid, put.collides);\n      end;\n'
    || E'      if not put.own then\n        if exists (select from %1$s o where %6$s) then\n          perform gnomon.refuse_duplicate(%7$s::pg_catalog.oid, %8$L, %9$L, pg_catalog.concat_ws('', '', %10$s));\n        end if;\n%11$s        perform gnomon.refuse_lost(%7$s::pg_catalog.oid, put.branch_name, pg_catalog.concat_ws('', '', %10$s), false);\n      end if;\n    end if;\n',
      overlay, (select string_agg(case when b.is_key then 'k' else 'c' end || b.n, ', ' order by b.n) from gnomon.branch_columns(p_tracked) b), (select string_agg(format('new.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
      stamp, sets, format(own, key_is[2]), t.relation::oid, x.name, (select string_agg(quote_ident(n), ', ') from unnest(x.columns) n), (select string_agg(format('new.%I', n), ', ') from unnest(x.columns) n), uniques) from gnomon.branch_uniques(p_tracked) x where x.is_key)
    || (select format(logs, 'i', 'false', string_agg(case when b.is_key then format('new.%I', b.name) else 'null' end, ', ' order by b.is_key desc, b.n)) from gnomon.branch_columns(p_tracked) b);

  updating := format('update %s o set alive = true, %s%s where %s and pg_catalog.record_image_eq(row(o.alive, %s), row(true, %s));',
    overlay, stamp, sets, format(own, key_is[1]), (select string_agg(format('o.%s%s', case when b.is_key then 'k' else 'c' end, b.n), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b));
  if uniques <> '' then
    updating := format(E'    if pg_catalog.record_image_ne(row(%1$s), row(%2$s)) then\n%3$s      begin\n        %4$s\n        put.own := found;\n      exception when unique_violation then\n        get stacked diagnostics put.collides = constraint_name;\n        perform gnomon.refuse_collision(%5$s::pg_catalog.oid, put.collides);\n      end;\n    else\n      %4$s\n      put.own := found;\n    end if;\n',
      (select string_agg(format('new.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b where b.n = any (string_to_array(unique_columns, ',')::int[])),
      (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b where b.n = any (string_to_array(unique_columns, ',')::int[])), uniques, updating, t.relation::oid);
  else
    updating := format(E'    %s\n    put.own := found;\n', updating);
  end if;
  updating := updating || format(E'    if not put.own then\n      insert into %1$s as o (branch, alive, was, %2$s) values (put.here, true, true, %3$s) on conflict do nothing;\n      if not found then\n        put.mine := null;\n        select o.xid operator(pg_catalog.=) pg_catalog.pg_current_xact_id(), o.alive into put.mine, put.alive from %1$s o where %4$s;\n'
    || E'        if put.mine and not put.alive then\n          return null;\n        end if;\n        if put.mine is null then\n          null;\n%5$s        end if;\n        perform gnomon.refuse_lost(%6$s::pg_catalog.oid, put.branch_name, pg_catalog.concat_ws('', '', %7$s), coalesce(put.mine, false));\n      end if;\n    end if;\n',
    overlay, (select string_agg(case when b.is_key then 'k' || b.n else format('c%s, b%1$s', b.n) end, ', ' order by b.n) from gnomon.branch_columns(p_tracked) b),
    (select string_agg(case when b.is_key then format('new.%I', b.name) else format('new.%I, old.%1$I', b.name) end, ', ' order by b.n) from gnomon.branch_columns(p_tracked) b), format(own, key_is[1]), uniques, t.relation::oid,
    (select string_agg(format('old.%I', b.name), ', ' order by b.n) from gnomon.branch_columns(p_tracked) b where b.is_key));
  updating := updating || (select format(logs, 'u', 'true', string_agg(format('old.%I', b.name), ', ' order by b.is_key desc, b.n)) from gnomon.branch_columns(p_tracked) b);

  execute format($put$create or replace function gnomon.h%s_put() returns trigger language plpgsql security definer as %L$put$, p_tracked, format($body$
#variable_conflict use_column
<<put>>
declare
  setting pg_catalog.text := pg_catalog.current_setting('gnomon.branch', true);
  checked pg_catalog.text := pg_catalog.current_setting('gnomon.checked', true);
  here pg_catalog.int4;
  bound pg_catalog.int8;
  snapshot pg_catalog.pg_snapshot;
  logged pg_catalog.bool;
  protected pg_catalog.bool;
  confined pg_catalog.bool;
  branch_name pg_catalog.text;
  own pg_catalog.bool;
  mine pg_catalog.bool;
  alive pg_catalog.bool;
  moved pg_catalog.bool := false;
  collides pg_catalog.text;
  derived record;
%1$sbegin
  if setting is null or setting operator(pg_catalog.=) '' then
    perform gnomon.refuse_branch(%2$s);
  end if;
  here := setting::pg_catalog.int4;
  -- Who merges, resets or drops the branch waits until this ends, or ended before.
  if pg_catalog.pg_advisory_xact_lock_shared(1735289709, here) is null then
    return null;
  end if;
  if pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed' then
    -- 40001 if it was moved, or dropped, since.
    perform from gnomon.branch b where b.id operator(pg_catalog.=) put.here for share;
  end if;
  -- What merges write is logged on any branch, so that it can be undone.
  select b.bound, b.snapshot, b.logged or pg_catalog.current_setting('gnomon.merging', true) operator(pg_catalog.<>) '', b.protected, b.name, exists (select from gnomon.confinement) into put.bound, put.snapshot, put.logged, put.protected, put.branch_name, put.confined
    from gnomon.branch b
    where b.id operator(pg_catalog.=) put.here and pg_catalog.strpos(put.checked, pg_catalog.concat(' b', b.id, '.', b.base, ' ')) operator(pg_catalog.>) 0
      and pg_catalog.strpos(put.checked, pg_catalog.concat(' ', tg_argv[0], ':', (select x.version from annals.tracked x where x.id operator(pg_catalog.=) %2$s), ' ')) operator(pg_catalog.>) 0;
  if not found then
    perform gnomon.refuse_branch(%2$s);
  end if;
  -- The view takes long enough to be asked only where somebody is confined at all.
  if put.confined then
    if not exists (select from gnomon.usable u where u.id operator(pg_catalog.=) put.here) then
      perform gnomon.refuse_branch(%2$s);
    end if;
  end if;
  if put.protected then
    perform gnomon.check_unprotected(gnomon.branch_of(here));
  end if;
  if tg_op operator(pg_catalog.=) 'DELETE' then
%3$s%9$s    return old;
  end if;
%4$s  if tg_op operator(pg_catalog.=) 'INSERT' then
%5$s  elsif %6$s then
%7$s%9$s  else
    moved := true;
%3$s%5$s%9$s  end if;
%8$s  return new;
end $body$, declared, p_tracked, deleting, before, inserting, same_key, updating, reference_checks[1], reference_checks[2]));
  execute format('comment on function gnomon.h%s_put is %L', p_tracked, format('Writes changes of %I.%I on a branch.', t.schema_name, t.table_name));
  -- As a trigger of a table of his own somebody could give it rows that he made up.
  execute format('revoke all on function gnomon.h%s_put() from public', p_tracked);
end $$;
comment on function gnomon.write_put is 'Writes the trigger function that writes a table''s rows on branches.';
