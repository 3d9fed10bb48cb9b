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

-- Foreign keys. A row that refers to none when it is written, and one that goes while others may refer to it, is noted in gnomon.pending, and judged when its
-- statement has ended, as PostgreSQL does, or when the transaction commits if the key is deferred. Between the two, gnomon.h<history>_act() does what follows for
-- the rows that refer to it.

create unlogged table gnomon.pending (
  tracked int not null,
  depth int not null,
  branch int not null,
  reference oid not null,
  deferred boolean not null,
  was text[],
  now text[]
);
comment on table gnomon.pending is 'What foreign keys have to say about rows that the running statement wrote on a branch. A crash may empty it: it holds nothing of transactions that ended.';
comment on column gnomon.pending.tracked is 'History of the table that was written.';
comment on column gnomon.pending.depth is 'Nesting of the statement within triggers.';
comment on column gnomon.pending.branch is 'The branch.';
comment on column gnomon.pending.reference is 'The foreign key.';
comment on column gnomon.pending.deferred is 'It is judged when the transaction commits.';
comment on column gnomon.pending.was is 'Of a row that others may refer to: what they refer to, as text. Null for a row that refers to one which is not there.';
comment on column gnomon.pending.now is 'What that became, null if it is gone; or what the row refers to.';

create function gnomon.branch_references(p_tracked int) returns table (reference oid, name name, child int, child_relation oid, parent int, parent_relation oid, child_names name[], child_numbers int[], child_types text[], parent_names name[], parent_numbers int[], parent_types text[],
  operators text[], child_operators text[], parent_operators text[], is_full boolean, on_delete "char", on_update "char", delete_names name[], deferred boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with histories as materialized (select k.id, k.relation from annals.tracked k join gnomon.history h on h.tracked = k.id where k.ended_v is null and to_regclass(format('gnomon.o%s', k.id)) is not null)
  select k.oid, k.conname, c.id, k.conrelid, p.id, k.confrelid, x.child_names, x.child_numbers, x.child_types, x.parent_names, x.parent_numbers, x.parent_types, x.operators, x.child_operators, x.parent_operators,
    k.confmatchtype = 'f', k.confdeltype, k.confupdtype, (select array_agg(a.attname order by u.i) from unnest(coalesce(nullif(k.confdelsetcols, '{}'), k.conkey)) with ordinality u (n, i) join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.n), k.condeferred
  from annals.tracked t join pg_constraint k on t.relation in (k.conrelid, k.confrelid) and k.contype = 'f' and k.conparentid = 0
  left join histories c on c.relation = k.conrelid left join histories p on p.relation = k.confrelid
  cross join lateral (
    select array_agg(ca.attname order by u.i) as child_names, array_agg(cb.n order by u.i) as child_numbers, array_agg(format_type(ca.atttypid, -1) order by u.i) as child_types,
      array_agg(pa.attname order by u.i) as parent_names, array_agg(pb.n order by u.i) as parent_numbers, array_agg(format_type(pa.atttypid, -1) order by u.i) as parent_types,
      array_agg(gnomon.plain_equality(k.conpfeqop[u.i]) order by u.i) as operators, array_agg(gnomon.plain_equality(k.conffeqop[u.i]) order by u.i) as child_operators, array_agg(gnomon.plain_equality(k.conppeqop[u.i]) order by u.i) as parent_operators,
      bool_and(c.id is null or cb.n is not null) and bool_and(p.id is null or pb.n is not null) as whole
    from unnest(k.conkey, k.confkey) with ordinality u (ck, pk, i) join pg_attribute ca on ca.attrelid = k.conrelid and ca.attnum = u.ck join pg_attribute pa on pa.attrelid = k.confrelid and pa.attnum = u.pk
    left join gnomon.branch_columns(c.id) cb on cb.attnum = u.ck left join gnomon.branch_columns(p.id) pb on pb.attnum = u.pk) x
  where t.id = p_tracked and x.whole and c.id is not null and (to_jsonb(k)->>'conenforced')::boolean is not false and (to_jsonb(k)->>'conperiod')::boolean is not true
    and array_position(x.operators || x.child_operators || x.parent_operators, null) is null
  order by k.conname, k.oid;
end $$;
comment on function gnomon.branch_references is 'Foreign keys of a table, and of tracked tables that refer to it, that hold on branches.';

create function gnomon.refuse_reference(p_reference oid, p_missing boolean, p_values text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  k record;
begin
  select x.conname, c.relname as child, n.nspname as schema, p.relname as parent,
      (select string_agg(a.attname, ', ' order by u.i) from unnest(x.conkey) with ordinality u (n, i) join pg_attribute a on a.attrelid = x.conrelid and a.attnum = u.n) as child_names,
      (select string_agg(a.attname, ', ' order by u.i) from unnest(x.confkey) with ordinality u (n, i) join pg_attribute a on a.attrelid = x.confrelid and a.attnum = u.n) as parent_names into k
    from pg_constraint x join pg_class c on c.oid = x.conrelid join pg_namespace n on n.oid = c.relnamespace join pg_class p on p.oid = x.confrelid where x.oid = p_reference;
  raise exception using errcode = '23503', constraint = k.conname, table = k.child, schema = k.schema,
    message = case when p_missing then format('insert or update on table "%s" violates foreign key constraint "%s"', k.child, k.conname) else format('update or delete on table "%s" violates foreign key constraint "%s" on table "%s"', k.parent, k.conname, k.child) end,
    detail = case when p_values is null then 'MATCH FULL does not allow mixing of null and nonnull key values.' when p_missing then format('Key (%s)=(%s) is not present in table "%s".', k.child_names, array_to_string(p_values, ', '), k.parent)
      else format('Key (%s)=(%s) is still referenced from table "%s".', k.parent_names, array_to_string(p_values, ', '), k.child) end;
end $$;
comment on function gnomon.refuse_reference is 'Refuses what a foreign key does not allow on the branch, in the words of PostgreSQL.';

create function gnomon.parent_rows(p_parent int, p_relation oid, p_names name[], p_numbers int[], p_arguments text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when p_parent is not null then format('gnomon.h%s_rows(%s)', p_parent, p_arguments)
    else (select format('(select %s from %I.%I z)', (select string_agg(format('z.%I as c%s', u.name, u.i), ', ' order by u.i) from unnest(p_names) with ordinality u (name, i)), n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_relation) end
$$;
comment on function gnomon.parent_rows is 'SQL for the rows that a foreign key refers to: those of the branch, or of an untracked table today, whose columns are numbered as the key lists them.';

create function gnomon.write_checks_of_references(p_tracked int) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  k record;
  children text := '';
  parents text := '';
  lock text := '    if pg_catalog.pg_advisory_xact_lock%s(pg_catalog.hashtextextended(''gnomon.reference'', here::pg_catalog.int8 operator(pg_catalog.*) 4294967296 operator(pg_catalog.+) %s)) is null then
      return null;
    end if;
';
begin
  for k in select * from gnomon.branch_references(p_tracked) x loop
    if k.child = p_tracked then
      if k.is_full and cardinality(k.child_names) > 1 then
        children := children || (select format(E'  if pg_catalog.num_nulls(%1$s) operator(pg_catalog.>) 0 and pg_catalog.num_nonnulls(%1$s) operator(pg_catalog.>) 0 then\n    perform gnomon.refuse_reference(%2$s::pg_catalog.oid, true, null);\n  end if;\n', string_agg(format('new.%I', u.n), ', '), k.reference) from unnest(k.child_names) u (n));
      end if;
      children := children || (select format(E'  if %s and (tg_op operator(pg_catalog.=) ''INSERT'' or pg_catalog.record_image_ne(row(%s), row(%s))) then\n%s    if not exists (select from %s x where %s) then\n      insert into gnomon.pending (tracked, depth, branch, reference, deferred, now) values (%s, pg_catalog.pg_trigger_depth(), put.here, %s, %L, array[%s]);\n      perform pg_catalog.set_config(''gnomon.pending'', ''yes'', true);\n    end if;\n  end if;\n',
        string_agg(format('new.%I is distinct from null', u.name), ' and '), string_agg(format('new.%I', u.name), ', ' order by u.i), string_agg(format('old.%I', u.name), ', ' order by u.i), case when k.parent is null then '' else format(lock, '_shared', k.parent) end,
        gnomon.parent_rows(k.parent, k.parent_relation, k.parent_names, k.parent_numbers, 'put.here, put.bound, put.snapshot'),
        string_agg(format('x.c%s%s %s new.%I', case when k.parent is null then u.i else k.parent_numbers[u.i] end, (select b."collate" from gnomon.branch_columns(k.parent) b where b.n = k.parent_numbers[u.i]), k.operators[u.i], u.name), ' and '),
        p_tracked, k.reference, k.deferred, string_agg(format('new.%I::pg_catalog.text', u.name), ', ' order by u.i)) from unnest(k.child_names) with ordinality u (name, i));
    end if;
    if k.parent = p_tracked then
      parents := parents || (select format(E'  if %s and (tg_op operator(pg_catalog.=) ''DELETE'' or pg_catalog.record_image_ne(row(%s), row(%s))) then\n%s    insert into gnomon.pending (tracked, depth, branch, reference, deferred, was, now) values (%s, pg_catalog.pg_trigger_depth(), put.here, %s, %L, array[%s], case when tg_op operator(pg_catalog.=) ''DELETE'' then null else array[%s] end);\n    perform pg_catalog.set_config(''gnomon.pending'', ''yes'', true);\n  end if;\n',
        string_agg(format('old.%I is distinct from null', u.name), ' and '), string_agg(format('new.%I', u.name), ', ' order by u.i), string_agg(format('old.%I', u.name), ', ' order by u.i), format(lock, '', p_tracked),
        p_tracked, k.reference, k.deferred, string_agg(format('old.%I::pg_catalog.text', u.name), ', ' order by u.i), string_agg(format('new.%I::pg_catalog.text', u.name), ', ' order by u.i)) from unnest(k.parent_names) with ordinality u (name, i));
    end if;
  end loop;
  return array[children, parents];
end $$;
comment on function gnomon.write_checks_of_references is 'PL/pgSQL that looks up what a written row refers to, and that notes what others may have referred to.';

create function gnomon.pending_of(p_tracked int, p_reference oid, p_depth int, p_deleted boolean, out was text[], out now text[]) returns setof record
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select p.was, p.now from gnomon.pending p where p.tracked = p_tracked and p.reference = p_reference and p.depth = p_depth and p.was is not null and (p.now is null) = p_deleted $$;
comment on function gnomon.pending_of is 'Keys that rows may have referred to before the running statement deleted or changed them.';

create function gnomon.branch_view(p_tracked int, p_route int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select format('%I.%I', r.schema_name, r.view_name) from gnomon.route r where r.tracked = p_tracked and r.kind = 'branch' order by r.guarded = (select x.guarded from gnomon.route x where x.id = p_route) desc, r.id desc limit 1 $$;
comment on function gnomon.branch_view is 'The view of another table for those who use this one.';

create function gnomon.write_act(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  t annals.tracked;
  k record;
  o record;
  body text := '';
  matches text;
  statement text;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  for k in select * from gnomon.branch_references(p_tracked) x where x.parent = p_tracked loop
    matches := (select string_agg(format('p.w%s::%s %s x.%I', u.i, k.parent_types[u.i], k.operators[u.i], u.name), ' and ' order by u.i) from unnest(k.child_names) with ordinality u (name, i));
    for o in select * from (values (true, k.on_delete), (false, k.on_update)) v (deleted, action) where v.action in ('c', 'n', 'd') loop
      statement := case when o.deleted and o.action = 'c' then format('delete from %%1$s x using %%2$s where %s', matches)
        else format('update %%1$s x set %s from %%2$s where %s', (select string_agg(case when o.action = 'n' then format('%I = null', u.name) when o.action = 'd' then format('%I = default', u.name) else format('%I = p.n%s::%s', u.name, u.i, k.parent_types[u.i]) end, ', ' order by u.i)
          from unnest(case when o.deleted then k.delete_names else k.child_names end) with ordinality u (name, i)), matches) end;
      body := body || format(E'  select %1$s into %2$s from gnomon.pending_of(%3$s, %4$s, pg_catalog.pg_trigger_depth(), %5$L) p;\n  if w1 is not null then\n    execute pg_catalog.format(%6$L, gnomon.branch_view(%7$s, tg_argv[0]::pg_catalog.int4), %8$L) using %2$s;\n  end if;\n',
        (select string_agg(format('pg_catalog.array_agg(p.was[%1$s])', i), ', ' order by i) || ', ' || string_agg(format('pg_catalog.array_agg(p.now[%1$s])', i), ', ' order by i) from generate_subscripts(k.child_names, 1) i),
        (select string_agg('w' || i, ', ' order by i) || ', ' || string_agg('n' || i, ', ' order by i) from generate_subscripts(k.child_names, 1) i), p_tracked, k.reference, o.deleted, statement, k.child,
        (select format('rows from (%s) p (%s)', string_agg(format('pg_catalog.unnest($%s::pg_catalog.text[])', i), ', ' order by i), string_agg(case when i <= cardinality(k.child_names) then 'w' || i else 'n' || i - cardinality(k.child_names) end, ', ' order by i)) from generate_series(1, 2 * cardinality(k.child_names)) i));
    end loop;
  end loop;
  -- Code of users that the other tables have runs as the caller, who then needs rights to them.
  execute format('create or replace function gnomon.h%s_act() returns trigger language plpgsql%s as %L', p_tracked, case when gnomon.reaches_code(p_tracked) then '' else ' security definer' end, format(E'\ndeclare\n%sbegin\n%s  return null;\nend ',
    (select coalesce(string_agg(format(E'  w%1$s pg_catalog.text[];\n  n%1$s pg_catalog.text[];\n', i), '' order by i), '') from generate_series(1, (select max(cardinality(x.child_names)) from gnomon.branch_references(p_tracked) x)) i), body));
  execute format('revoke all on function gnomon.h%s_act() from public', p_tracked);
  execute format('comment on function gnomon.h%s_act is %L', p_tracked, format('Does on a branch what follows from changes of %I.%I for rows that refer to it.', t.schema_name, t.table_name));
end $$;
comment on function gnomon.write_act is 'Writes the trigger function that does what foreign keys say follows from the deletion of a row, or from a change of what others refer to.';

create function gnomon.write_judge(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = off as $$
declare
  t annals.tracked;
  k record;
  o record;
  body text := '';
  here constant text := '$1, $2, $3';
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  for k in select * from gnomon.branch_references(p_tracked) x loop
    if k.child = p_tracked then
      body := body || (select format(E'  for vals in select p.now from gnomon.pending p where p.tracked = %s and p.reference = %s and p.branch = $1 and p.deferred = $5 and (p.depth = $4 or p.deferred) and p.was is null loop\n    if not exists (select from %s x where %s) and exists (select from gnomon.h%s_rows(%s) y where %s) then\n      perform gnomon.refuse_reference(%2$s, true, vals);\n    end if;\n  end loop;\n',
        p_tracked, k.reference, gnomon.parent_rows(k.parent, k.parent_relation, k.parent_names, k.parent_numbers, here),
        string_agg(format('x.c%s%s %s vals[%s]::%s', case when k.parent is null then u.i else k.parent_numbers[u.i] end, (select b."collate" from gnomon.branch_columns(k.parent) b where b.n = k.parent_numbers[u.i]), k.operators[u.i], u.i, k.child_types[u.i]), ' and '),
        p_tracked, here, string_agg(format('y.c%s%s %s vals[%s]::%s', k.child_numbers[u.i], (select b."collate" from gnomon.branch_columns(k.child) b where b.n = k.child_numbers[u.i]), k.child_operators[u.i], u.i, k.child_types[u.i]), ' and ')) from unnest(k.child_names) with ordinality u (name, i));
    end if;
    if k.parent = p_tracked then
      for o in select * from (values (true, k.on_delete), (false, k.on_update)) v (deleted, action) where v.action in ('a', 'r', 'd') loop -- a default may be what has just gone
        body := body || (select format(E'  for vals in select p.was from gnomon.pending p where p.tracked = %s and p.reference = %s and p.branch = $1 and p.deferred = $5 and (p.depth = $4 or p.deferred) and p.was is not null and (p.now is null) = %L loop\n    if %sexists (select from gnomon.h%s_rows(%s) y where %s) then\n      perform gnomon.refuse_reference(%2$s, false, vals);\n    end if;\n  end loop;\n',
          p_tracked, k.reference, o.deleted, case when o.action <> 'r' then format('not exists (select from gnomon.h%s_rows(%s) x where %s) and ', p_tracked, here, string_agg(format('x.c%s%s %s vals[%s]::%s', k.parent_numbers[u.i], (select b."collate" from gnomon.branch_columns(k.parent) b where b.n = k.parent_numbers[u.i]), k.parent_operators[u.i], u.i, k.parent_types[u.i]), ' and ')) else '' end,
          k.child, here, string_agg(format('vals[%s]::%s%s %s y.c%s', u.i, k.parent_types[u.i], (select b."collate" from gnomon.branch_columns(k.parent) b where b.n = k.parent_numbers[u.i]), k.operators[u.i], k.child_numbers[u.i]), ' and ')) from unnest(k.child_names) with ordinality u (name, i));
      end loop;
    end if;
  end loop;
  execute format('create or replace function gnomon.h%s_judge(p_branch int, p_bound bigint, p_snapshot pg_snapshot, p_depth int, p_deferred boolean) returns void language plpgsql set search_path = pg_catalog, pg_temp as %L', p_tracked, format(E'\ndeclare\n  vals text[];\nbegin\n%s  delete from gnomon.pending p where p.tracked = %s and p.branch = $1 and p.deferred = $5 and (p.depth = $4 or p.deferred);\nend ', body, p_tracked));
  execute format('revoke all on function gnomon.h%s_judge from public', p_tracked);
  execute format('comment on function gnomon.h%s_judge is %L', p_tracked, format('Judges by foreign keys what was written to %I.%I on a branch.', t.schema_name, t.table_name));
end $$;
comment on function gnomon.write_judge is 'Writes the function that refuses what foreign keys do not allow.';

create function gnomon.settle() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_of(current_setting('gnomon.branch', true)::int);
begin
  execute format('select gnomon.h%s_judge($1, $2, $3, $4, false)', tg_argv[0]) using b.id, b.bound, b.snapshot, pg_trigger_depth();
  return null;
end $$;
comment on function gnomon.settle is 'Judges what a statement wrote on a branch, when it has ended.';

create function gnomon.settle_deferred() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_of(new.branch);
begin
  execute format('select gnomon.h%s_judge($1, $2, $3, 0, true)', new.tracked) using b.id, b.bound, b.snapshot;
  return null;
end $$;
comment on function gnomon.settle_deferred is 'Judges what a transaction wrote on a branch by deferred foreign keys, when it commits.';

create constraint trigger pending_deferred after insert on gnomon.pending deferrable initially deferred for each row when (new.deferred) execute function gnomon.settle_deferred();
comment on trigger pending_deferred on gnomon.pending is 'Judges by deferred foreign keys when the transaction commits.';

-- Code of users.

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
  result := (select coalesce(string_agg(format('out g%s %s, ', i, c.type), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i));
  for k in select * from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i) loop
    body := body || format(E'  select (%s)::%s into g%s from (select %s) as %I;\n', k.expression, k.type, k.i, row_of, t.table_name);
  end loop;
  row_of := row_of || (select coalesce(string_agg(format(', g%s as %I', i, c.name), '' order by i), '') from gnomon.computed(p_tracked) with ordinality c (name, type, expression, i));
  for k in select * from gnomon.branch_checks(p_tracked) loop
    body := body || format(E'  if (select (%s) is false from (select %s) as %I) then\n    violated := %L;\n    return;\n  end if;\n', k.expression, row_of, t.table_name, k.name);
  end loop;
  execute format('create function gnomon.h%s_derive(%s, %sout violated name, out rest boolean) language plpgsql%s as %L', p_tracked, list, result, case when p_plain then ' set search_path = pg_catalog, pg_temp' else '' end,
    format(E'\n#variable_conflict use_column\nbegin\n%send ', body));
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
  -- Conditions on the key: of the overlay's row o and the branch's row x.
  key_is := array(select string_agg(format(p.form, k.c, annals.key_operator(p_tracked, k.i::int), k.name, k."collate"), ' and ' order by k.i)
    from (values (1, 'o.k%1$s %2$s old.%3$I'), (2, 'o.k%1$s %2$s new.%3$I'), (3, 'x.c%1$s%4$s %2$s old.%3$I'), (4, 'x.c%1$s%4$s %2$s new.%3$I'), (5, 'old.%3$I %2$s new.%3$I')) p (i, form)
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

  -- Unique keys other than the key.
  for uq in select * from gnomon.branch_uniques(p_tracked) where not is_key loop
    uniques := uniques || format(E'    if %sexists (select from %s x where %s and (tg_op operator(pg_catalog.=) ''INSERT'' or put.moved or not (%s))) then\n      perform gnomon.refuse_duplicate(%s::pg_catalog.oid, %L, %L, pg_catalog.concat_ws('', '', %s));\n    end if;\n',
      case when not uq.nulls_equal then (select string_agg(format('new.%I is distinct from null and ', n), '') from unnest(uq.columns) n) else '' end, rows,
      (select string_agg(case when uq.nulls_equal then format('(%s or x.c%s is not distinct from null and new.%I is not distinct from null)', e.equal, e.n, e.name) else e.equal end, ' and ' order by e.i)
       from (select k.i, k.n, k.name, gnomon.equals(format('x.c%s%s', k.n, b."collate"), uq.operators[k.i], format('new.%I', k.name)) as equal from unnest(uq.columns, uq.numbers) with ordinality k (name, n, i) join gnomon.branch_columns(p_tracked) b on b.n = k.n) e),
      key_is[3], t.relation::oid, uq.name, (select string_agg(quote_ident(n), ', ') from unnest(uq.columns) n), (select string_agg(format('coalesce(new.%I::pg_catalog.text, ''null'')', n), ', ') from unnest(uq.columns) n));
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
  select b.bound, b.snapshot, b.logged, b.protected, b.name, exists (select from gnomon.confinement) into put.bound, put.snapshot, put.logged, put.protected, put.branch_name, put.confined
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

create function gnomon.branch_rules(p_tracked int) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
  select array[
    md5(concat_ws('/', (select string_agg(c::text, ',' order by c.n) from gnomon.branch_columns(p_tracked) c), (select string_agg(c::text, ',' order by c.name) from gnomon.computed(p_tracked) c),
      (select string_agg(concat(d.adnum, pg_get_expr(d.adbin, d.adrelid)), ',' order by d.adnum) from annals.tracked t join pg_attrdef d on d.adrelid = t.relation where t.id = p_tracked),
      (select string_agg(c::text, ',' order by c.name) from gnomon.branch_checks(p_tracked) c), (select string_agg(b.statement, ',' order by b.statement) from gnomon.branch_before(p_tracked) b), (select string_agg(u::text, ',' order by u.index) from gnomon.branch_uniques(p_tracked) u))),
    md5(concat_ws('/', gnomon.reaches_code(p_tracked), (select string_agg(concat(r, r.parent_relation::regclass), ',' order by r.reference) from gnomon.branch_references(p_tracked) r)))]
$$;
comment on function gnomon.branch_rules is 'Digests of what the triggers for branches are made from: the rules of a table, and its foreign keys.';

create function gnomon.follow_writing(p_relations oid[] default null, p_only_keys boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  working text := coalesce(current_setting('annals.working', true), '');
  h record;
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
      digests := gnomon.branch_rules(h.tracked);
      if digests[1] <> h.rules[1] and not p_only_keys then
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
