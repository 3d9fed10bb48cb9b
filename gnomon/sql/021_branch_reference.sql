-- Foreign keys on branches. A row that refers to none when it is written, and one that goes while others may refer to it, is noted in gnomon.pending, and judged when its
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
