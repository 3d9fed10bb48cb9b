-- Constraints that a merge would violate. What is decided is written first, and looked into only when that fails; all violations are listed then, not
-- just the first.

create table gnomon.violation (
  merge bigint not null references gnomon.merged on delete cascade,
  kind text not null,
  "constraint" name not null,
  relation text not null,
  key text[],
  columns text[] not null,
  "values" jsonb,
  other jsonb
);
create index violation_merge on gnomon.violation (merge);
comment on table gnomon.violation is 'Constraints that stood in the way of merges.';
comment on column gnomon.violation.merge is 'The merge.';
comment on column gnomon.violation.kind is 'unique, foreign key, check, exclusion, or not null.';
comment on column gnomon.violation.constraint is 'Name of the constraint, or of the unique index.';
comment on column gnomon.violation.relation is 'The table.';
comment on column gnomon.violation.key is 'Key of the row that violates it.';
comment on column gnomon.violation.columns is 'The columns.';
comment on column gnomon.violation.values is 'Their values.';
comment on column gnomon.violation.other is 'Key of the other row, where it takes two.';
comment on index gnomon.violation_merge is 'Finds the violations of a merge.';

create function gnomon.planned_rows(p_tracked int, p_plan text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('(select array[%s] as "gnomon key", p.v as "gnomon v", p.op as "gnomon op", p.absent as "gnomon absent", %s from %s p where p.op in (''i'', ''u''))', string_agg(format('p.k%s::pg_catalog.text', c.n), ', ' order by c.key_position) filter (where c.key_position is not null), string_agg(format('p.%s%s as %I', case when c.key_position is null then 'd' else 'k' end, c.n, c.name), ', ' order by c.n), p_plan)
  from gnomon.merge_columns(p_tracked) c
$$;
comment on function gnomon.planned_rows is 'SQL: the rows that a plan inserts or updates, as they will be.';

create function gnomon.untouched_rows(p_relation oid, p_base text, p_plans jsonb) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('(select t.* from %s t%s)', p_base, (select format(' where not exists (select from %s p where p.op in (''d'', ''u'') and %s)', p_plans->>t.id::text, annals.key_join(t.id, 't.%2$I', 'p.k%1$s'))
    from annals.tracked t where t.relation = p_relation and t.ended_v is null and p_plans ? t.id::text))
$$;
comment on function gnomon.untouched_rows is 'SQL: the rows of a table that plans leave as they are.';

create function gnomon.unique_keys(p_tracked int) returns table (name name, excludes boolean, expressions text, predicate text, operators text[], nulls boolean, names text[], columns int[], immediate boolean, deferred boolean, simple boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with known as materialized (select m.n, m.name, a.attnum from gnomon.merge_columns(p_tracked) m join annals.tracked t on t.id = p_tracked join pg_attribute a on a.attrelid = t.relation and a.attname = m.name),
  keys as materialized (
    select i.*, to_jsonb(i)->>'indnullsnotdistinct' as nulls, h.relname, o.contype, o.conexclop, o.condeferred,
      -- Expressions and predicates may look at other columns, too.
      array(select n from unnest(i.indkey::int2[]) n where n <> 0 union select d.refobjsubid::int2 from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = i.indexrelid and d.refclassid = 'pg_class'::regclass and d.refobjid = i.indrelid and d.refobjsubid > 0) as looks
    from annals.tracked t join pg_index i on i.indrelid = t.relation join pg_class h on h.oid = i.indexrelid left join pg_constraint o on o.conindid = i.indexrelid and o.conrelid = i.indrelid and o.contype in ('p', 'u', 'x')
    where t.id = p_tracked and (i.indisunique or o.contype = 'x'))
  select k.relname, coalesce(k.contype = 'x', false), (select string_agg(format('(%s) as "gnomon %s"', pg_get_indexdef(k.indexrelid, u.i::int, false), u.i), ', ' order by u.i) from unnest(k.indkey::int2[]) with ordinality u (n, i) where u.i <= k.indnkeyatts),
    pg_get_expr(k.indpred, k.indrelid), x.operators, coalesce(k.nulls = 'true', false), array(select w.name::text from known w where w.attnum = any (k.indkey::int2[]) order by w.attnum),
    array(select w.n from known w where w.attnum = any (k.looks)), k.indimmediate, coalesce(k.condeferred, false), k.indpred is null and k.indexprs is null and k.contype is distinct from 'x'
  from keys k cross join lateral (
    select array_agg((select format('operator(%I.%s)', n.nspname, p.oprname) from pg_operator p join pg_namespace n on n.oid = p.oprnamespace
      where p.oid = coalesce(k.conexclop[u.i], (select m.amopopr from pg_opclass c join pg_amop m on m.amopfamily = c.opcfamily and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype and m.amopstrategy = 3 where c.oid = u.class))) order by u.i) as operators
    from unnest(k.indclass::oid[]) with ordinality u (class, i)) x
  -- Where a column is not in a plan nothing is told.
  where k.looks <@ array(select w.attnum from known w) and array_position(x.operators, null) is null;
end $$;
comment on function gnomon.unique_keys is 'What no two rows of a table may have together: unique indexes and exclusion constraints, with the operators by which they compare.';

create function gnomon.violation_queries(p_tables jsonb, p_prefix text, p_views jsonb, p_deferred boolean) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  plans jsonb := (select jsonb_object_agg(x.value->>'tracked', format('pg_temp.%I', p_prefix || (x.value->>'tracked'))) from jsonb_array_elements(p_tables) x);
  t annals.tracked;
  k record;
  plan text;
  planned text;
  base text;
  list text;
  same text;
  found text;
  other text;
begin
  for t in select y.* from jsonb_array_elements(p_tables) x join annals.tracked y on y.id = (x.value->>'tracked')::int order by y.id loop
    plan := plans->>t.id::text;
    planned := gnomon.planned_rows(t.id, plan);
    base := coalesce(p_views->>t.relation::oid::text, annals.source(t.relation));
    if not p_deferred then
      return query select format('select ''not null'', %1$L::text, %2$L::text, p."gnomon key", array[%1$L], pg_catalog.jsonb_build_object(%1$L, null), null::jsonb from %3$s p where p.%1$I is null and coalesce(%4$s <> all (p."gnomon absent"), true)', a.attname, t.relation, planned, c.n)
        from gnomon.merge_columns(t.id) c join pg_attribute a on a.attrelid = t.relation and a.attname = c.name and a.attnotnull;
      return query select format('select ''check'', %L::text, %L::text, p."gnomon key", %L::text[], %s, null::jsonb from %s p where (%s) is false', x.conname, t.relation, x.names,
          (select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, p.%I', n, n), ', ')) from unnest(x.names) n), planned, pg_get_expr(x.conbin, x.conrelid))
        from (select o.*, array(select a.attname::text from pg_attribute a where a.attrelid = o.conrelid and a.attnum = any (o.conkey) order by a.attnum) as names from pg_constraint o where o.conrelid = t.relation and o.contype = 'c') x
        where x.names <> '{}' and x.names <@ array(select c.name::text from gnomon.merge_columns(t.id) c) and cardinality(x.names) <= 50;
    end if;

    -- What two rows may not have together: unique indexes and exclusion constraints, by their own operators.
    for k in select * from gnomon.unique_keys(t.id) u where not p_deferred or u.deferred loop
      select string_agg(format(case when k.nulls then '(p."gnomon %1$s" %2$s o."gnomon %1$s" or pg_catalog.num_nonnulls(p."gnomon %1$s", o."gnomon %1$s") = 0)' else 'p."gnomon %1$s" %2$s o."gnomon %1$s"' end, i, k.operators[i]), ' and ' order by i) into same from generate_series(1, cardinality(k.operators)) i;
      select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, p.%I', n, n), ', ')) into list from unnest(k.names) n;
      select format('array[%s]', string_agg(format('x.%I::text', c.name), ', ' order by c.key_position)) into other from gnomon.merge_columns(t.id) c where c.key_position is not null;
      return next format('select %1$L, %2$L::text, %3$L::text, p."gnomon key", %4$L::text[], %5$s, pg_catalog.to_jsonb(o."gnomon key") from (select x.*, %6$s from %7$s x%8$s) p join (select %9$s as "gnomon key", %6$s from %10$s x%8$s) o on %11$s
        union all select %1$L, %2$L::text, %3$L::text, p."gnomon key", %4$L::text[], %5$s, pg_catalog.to_jsonb(o."gnomon key") from (select x.*, %6$s from %7$s x%8$s) p join (select x."gnomon key", %6$s from %7$s x%8$s) o on %11$s and p."gnomon key" <> o."gnomon key"',
        case when k.excludes then 'exclusion' else 'unique' end, k.name, t.relation, k.names, coalesce(list, '''{}''::jsonb'), k.expressions, planned, ' where ' || k.predicate, other, gnomon.untouched_rows(t.relation, base, plans), same);
    end loop;

    -- Rows that refer to others which are not there.
    for k in
      select o.*, r.id as parent, array(select a.attname::text from unnest(o.conkey) with ordinality u (n, i) join pg_attribute a on a.attrelid = o.conrelid and a.attnum = u.n order by u.i) as names
      from pg_constraint o left join annals.tracked r on r.relation = o.confrelid and r.ended_v is null and plans ? r.id::text
      where o.conrelid = t.relation and o.contype = 'f' and (not p_deferred or o.condeferred) and o.conparentid = 0
    loop
      continue when not k.names <@ array(select c.name::text from gnomon.merge_columns(t.id) c);
      select string_agg(format('x.%I %s p.%I', f.attname, (select format('operator(%I.%s)', n.nspname, q.oprname) from pg_operator q join pg_namespace n on n.oid = q.oprnamespace where q.oid = k.conpfeqop[u.i]), k.names[u.i]), ' and ' order by u.i) into same
        from unnest(k.confkey) with ordinality u (n, i) join pg_attribute f on f.attrelid = k.confrelid and f.attnum = u.n;
      select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, p.%I', n, n), ', ')), format('pg_catalog.num_nulls(%s)', string_agg(format('p.%I', n), ', ')) into list, found from unnest(k.names) n;
      return next format('select ''foreign key'', %L::text, %L::text, p."gnomon key", %L::text[], %s, null::jsonb from %s p where %s and not exists (select from %s x where %s)%s', k.conname, t.relation, k.names, list, planned,
        case when k.confmatchtype = 'f' then format('%s < %s', found, cardinality(k.names)) else found || ' = 0' end,
        gnomon.untouched_rows(k.confrelid, coalesce(p_views->>k.confrelid::text, annals.source(k.confrelid)), plans), same, case when k.parent is not null then format(' and not exists (select from %s x where %s)', gnomon.planned_rows(k.parent, plans->>k.parent::text), same) else '' end);
    end loop;

    -- Rows that go, or change what others refer to.
    for k in select o.*, array(select a.attname::text from unnest(o.confkey) with ordinality u (n, i) join pg_attribute a on a.attrelid = o.confrelid and a.attnum = u.n order by u.i) as names
             from pg_constraint o where o.confrelid = t.relation and o.contype = 'f' and (not p_deferred or o.condeferred) and o.conparentid = 0 and (o.confdeltype in ('a', 'r') or o.confupdtype in ('a', 'r')) loop
      continue when not k.names <@ array(select c.name::text from gnomon.merge_columns(t.id) c);
      select string_agg(format('b.%I %s x.%I', k.names[u.i], y.operator, a.attname), ' and ' order by u.i), string_agg(format('y.%1$I = b.%1$I', k.names[u.i]), ' and ' order by u.i), format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, x.%I', a.attname, a.attname), ', '))
        into same, found, other from unnest(k.conkey) with ordinality u (n, i) join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.n
        cross join lateral (select format('operator(%I.%s)', n.nspname, q.oprname) as operator from pg_operator q join pg_namespace n on n.oid = q.oprnamespace where q.oid = k.conpfeqop[u.i]) y;
      select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, b.%I', n, n), ', ')) into list from unnest(k.names) n;
      return next format('select ''foreign key'', %L::text, %L::text, array[%s], %L::text[], %s, %s from %s p join %s b on %s join %s x on %s where %s and not exists (select from %s y where %s)', k.conname, t.relation, (select string_agg(format('p.k%s::pg_catalog.text', c.n), ', ' order by c.key_position) from gnomon.merge_columns(t.id) c where c.key_position is not null), k.names, list, other, plan, base, annals.key_join(t.id, 'b.%2$I', 'p.k%1$s'),
        gnomon.untouched_rows(k.conrelid, coalesce(p_views->>k.conrelid::text, annals.source(k.conrelid)), plans), same,
        case when k.confdeltype in ('a', 'r') and k.confupdtype in ('a', 'r') then 'p.op in (''d'', ''u'')' when k.confdeltype in ('a', 'r') then 'p.op = ''d''' else 'p.op = ''u''' end,
        format('(select %2$s from %1$s y union all select %2$s from %3$s y)', planned, (select string_agg(format('y.%I', n), ', ') from unnest(k.names) n), gnomon.untouched_rows(t.relation, base, plans)), found);
    end loop;
  end loop;
end $$;
comment on function gnomon.violation_queries is 'SQL that lists what plans violate, a query for each constraint; with p_deferred of those only that PostgreSQL would look at when the transaction ends.';

-- PostgreSQL looks at each row as it is written, so a row cannot take a value that another one still has. A merge writes rows in turns, those first that others wait for. Rows that
-- wait for each other, because they exchange values, are written in two steps where that shows to nobody.

create function gnomon.order_queries(p_tables jsonb, p_prefix text, p_views jsonb) returns table (tracked int, "constraint" name, query text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  x jsonb;
  t annals.tracked;
  k record;
  plan text;
  same text;
  ahead text := case when p_views is null then 'p.op = ''u''' else 'p.op in (''u'', ''d'')' end; -- on a branch rows come before others go
begin
  for x in select y.value from jsonb_array_elements(p_tables) y loop
    select * into t from annals.tracked y where y.id = (x->>'tracked')::int;
    plan := format('pg_temp.%I', p_prefix || t.id);
    for k in select * from gnomon.unique_keys(t.id) u where case when p_views is null then u.immediate and u.columns && array(select jsonb_array_elements_text(x->'columns')::int)
        else u.simple and ((x->>'delete')::bigint > 0 or u.columns && array(select jsonb_array_elements_text(x->'columns')::int)) end loop
      select string_agg(format(case when k.nulls then '(p."gnomon %1$s" %2$s o."gnomon %1$s" or pg_catalog.num_nonnulls(p."gnomon %1$s", o."gnomon %1$s") = 0)' else 'p."gnomon %1$s" %2$s o."gnomon %1$s"' end, i, k.operators[i]), ' and ' order by i) into same from generate_series(1, cardinality(k.operators)) i;
      tracked := t.id;
      "constraint" := k.name;
      query := format('select distinct p."gnomon v", o."gnomon v", pg_catalog.jsonb_build_array(%1$L, %2$L, %3$L, p."gnomon key", %4$L::text[], %5$s, o."gnomon key") from (select x.*, %6$s from %7$s x where x."gnomon op" in (%12$s)%8$s) p
          join (select x."gnomon v", x."gnomon key", %6$s from (select t.*, p.v as "gnomon v", array[%9$s] as "gnomon key" from %10$s t join %11$s p on %13$s and %14$s) x where true%8$s) o on %15$s and p."gnomon v" <> o."gnomon v"',
        case when k.excludes then 'exclusion' else 'unique' end, k.name, t.relation, k.names, coalesce((select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, p.%I', n, n), ', ')) from unnest(k.names) n), '''{}''::jsonb'), k.expressions, gnomon.planned_rows(t.id, plan), ' and (' || k.predicate || ')',
        (select string_agg(format('p.k%s::pg_catalog.text', c.n), ', ' order by c.key_position) from gnomon.merge_columns(t.id) c where c.key_position is not null), coalesce(p_views->>t.relation::oid::text, annals.source(t.relation)), plan,
        case when p_views is null then '''u''' else '''i'', ''u''' end, ahead, annals.key_join(t.id, 't.%2$I', 'p.k%1$s'), same);
      return next;
    end loop;
  end loop;
end $$;
comment on function gnomon.order_queries is 'SQL that lists which planned rows take what another one still has, each with both numbers and as a violation.';

create function gnomon.may_replace(p_tracked int, p_role name, p_columns int[]) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- What happens to a row shows to triggers and rules, and to rows that refer to it and follow.
  select has_table_privilege(p_role, t.relation, 'insert') and has_table_privilege(p_role, t.relation, 'delete')
    and not exists (select from pg_trigger g where (g.tgrelid = t.relation or g.tgrelid in (select y.relid from pg_partition_tree(t.relation) y)) and not g.tgisinternal and g.tgenabled <> 'D' and not annals.is_ours(g.tgfoid))
    and not exists (select from pg_rewrite r where r.ev_class = t.relation)
    and not exists (select from pg_constraint k where k.confrelid = t.relation and k.contype = 'f' and (k.confdeltype <> 'a' or k.confupdtype <> 'a' and exists (
      select from pg_attribute a join gnomon.merge_columns(p_tracked) c on c.name = a.attname where a.attrelid = t.relation and a.attnum = any (k.confkey) and c.n = any (p_columns))))
    and not exists (select from pg_attribute a where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and a.attname not in (select c.name from gnomon.merge_columns(p_tracked) c))
  from annals.tracked t where t.id = p_tracked
$$;
comment on function gnomon.may_replace is 'Whether nobody would notice that a row of a table is deleted and inserted again with other values, instead of updated.';

create function gnomon.room_column(p_tracked int, p_constraint name, p_columns int[]) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select c.n from gnomon.unique_keys(p_tracked) u join annals.tracked t on t.id = p_tracked join gnomon.merge_columns(p_tracked) c on c.n = any (u.columns) and c.key_position is null
    join pg_attribute a on a.attrelid = t.relation and a.attname = c.name
  where u.name = p_constraint and u.simple and not u.nulls and not exists (select from gnomon.branch_before(p_tracked)) and not exists (select from pg_constraint k where k.confrelid = t.relation and k.contype = 'f' and a.attnum = any (k.confkey))
  order by (c.n = any (p_columns)) desc, c.n limit 1
$$;
comment on function gnomon.room_column is 'A column that can be null for a while on a branch, so that a row does not have its unique value any longer; null when there is none.';

create function gnomon.make_room(p_merge bigint, p_tracked int, p_column int, p_rows anyarray) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := (select x from gnomon.branch x join gnomon.merged m on m.into_branch = x.id where m.id = p_merge and m.status = 'running' and m.xid = pg_current_xact_id());
  keys text := (select string_agg('k' || c.n, ', ' order by c.n) from gnomon.merge_columns(p_tracked) c where c.key_position is not null);
  own text := annals.key_join(p_tracked, 'o.k%1$s', 'u.k%1$s');
begin
  -- Who could take another role has its rights. Without any, what comes after this is refused.
  if b.id is null or not exists (select from pg_type y join pg_class c on c.reltype = y.oid where y.typarray = pg_typeof(p_rows) and c.oid = format('gnomon.o%s', p_tracked)::regclass)
     or not exists (select from pg_roles r, annals.tracked t where t.id = p_tracked and pg_has_role(session_user, r.oid, 'member') and (has_any_column_privilege(r.oid, t.relation, 'update') or has_table_privilege(r.oid, t.relation, 'delete'))) then
    return;
  end if;
  execute (select format('insert into gnomon.l%1$s (branch, op, alive, own, %2$s) select $1, ''r'', o.alive, true, %3$s from gnomon.o%1$s o join unnest($2) u on %4$s where o.branch = $1 and o.alive and not exists (select from gnomon.l%1$s l where l.branch = $1 and l.xid = pg_current_xact_id() and l.op = ''r'' and %5$s)', p_tracked, string_agg(case when c.key_position is null then 'c' else 'k' end || c.n, ', ' order by c.n), string_agg(case when c.key_position is null then 'o.c' else 'o.k' end || c.n, ', ' order by c.n), own, annals.key_join(p_tracked, 'l.k%1$s', 'o.k%1$s'))
    from gnomon.merge_columns(p_tracked) c) using b.id, p_rows;
  -- A row that the branch has not changed gets one that is as at its base.
  execute (select format('with made as (insert into gnomon.o%1$s (branch, alive, was, %2$s) select $1, true, true, %3$s from unnest($2) u join gnomon.h%1$s_rows($1, $3, $4) x on %4$s where not exists (select from gnomon.o%1$s o where o.branch = $1 and %5$s) returning *)
      insert into gnomon.l%1$s (branch, op, alive, own, %6$s) select $1, ''r'', true, false, %7$s from made o', p_tracked,
      string_agg(case when c.key_position is null then format('c%s, b%1$s', c.n) else 'k' || c.n end, ', ' order by c.n), string_agg(case when c.key_position is null then format('x.c%s, x.c%1$s', c.n) else 'x.c' || c.n end, ', ' order by c.n), annals.key_join(p_tracked, 'x.c%1$s', 'u.k%1$s'), own,
      string_agg(case when c.key_position is null then 'c' else 'k' end || c.n, ', ' order by c.n), string_agg(case when c.key_position is null then 'o.c' else 'o.k' end || c.n, ', ' order by c.n))
    from gnomon.merge_columns(p_tracked) c) using b.id, p_rows, b.bound, b.snapshot;
  execute format('update gnomon.o%s o set c%s = null from unnest($2) u where o.branch = $1 and %s', p_tracked, p_column, own) using b.id, p_rows;
end $$;
comment on function gnomon.make_room is 'Takes a unique value from rows of the branch that is merged into, which will be given another one or go, so that others can have it.';

create function gnomon.close_room(p_merge bigint, p_tracked int) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged := (select x from gnomon.merged x where x.id = p_merge and x.status = 'running' and x.xid = pg_current_xact_id());
begin
  -- In the log both steps are one, which replaced what was there before.
  execute format('with later as (delete from gnomon.l%1$s l using gnomon.l%1$s r where l.branch = $1 and l.xid = $2 and r.branch = $1 and r.xid = $2 and r.op = ''r'' and %2$s and l.op <> ''r'' and l.v = (select min(x.v) from gnomon.l%1$s x where x.branch = $1 and %3$s and x.v > r.v and x.op <> ''r'') returning r.v, l.op)
    update gnomon.l%1$s r set op = y.op from later y where r.branch = $1 and r.v = y.v', p_tracked, annals.key_join(p_tracked, 'l.k%1$s', 'r.k%1$s'), annals.key_join(p_tracked, 'x.k%1$s', 'r.k%1$s')) using m.into_branch, m.xid;
  execute format('delete from gnomon.l%s r where r.branch = $1 and r.xid = $2 and r.op = ''r''', p_tracked) using m.into_branch, m.xid;
end $$;
comment on function gnomon.close_room is 'Notes as one step what gnomon.make_room made two.';

create function gnomon.order_updates(p_plan text, p_order text, p_tracked int, p_free boolean) returns int
language plpgsql volatile as $$
declare
  turn int := 0;
  n bigint;
begin
  loop
    execute format('update %s p set turn = %s where p.v in (select e.ahead from %s e where e.tracked = %s)', p_plan, turn + 1, p_order, p_tracked);
    get diagnostics n = row_count;
    exit when n = 0;
    turn := turn + 1;
    n := 0;
    if turn < (case when p_free then 50 else 500 end) then
      execute format('delete from %1$s e where e.tracked = %2$s and not exists (select from %1$s x where x.tracked = %2$s and x.ahead = e.behind)', p_order, p_tracked);
      get diagnostics n = row_count;
    end if;
    if n = 0 then
      exit when not p_free;
      -- They wait for each other, or for too many. Of those that wait each other, the later ones step aside.
      execute format('update %1$s p set replaced = true where p.v in (select e.behind from %2$s e where e.tracked = %3$s and (e.ahead < e.behind or %4$s >= 50))', p_plan, p_order, p_tracked, turn);
      execute format('delete from %2$s e using %1$s p where e.tracked = %3$s and p.replaced and p.v in (e.ahead, e.behind)', p_plan, p_order, p_tracked);
    end if;
  end loop;
  return turn;
end $$;
comment on function gnomon.order_updates is 'Gives planned updates their turns, after those that have what they take. Where rows may be replaced, some that others wait for are; else those stay in the list that wait for each other.';

create function gnomon.order_rows(p_merge gnomon.merged, p_tables jsonb, p_prefix text, p_views jsonb, out tables jsonb, out waiting jsonb)
language plpgsql volatile as $$
declare
  name text := format('pg_temp.%I', p_prefix || 'order');
  made boolean := false;
  t record;
  k record;
  n bigint;
begin
  tables := '[]';
  waiting := '[]';
  for t in select x.value as stats, (x.value->>'tracked')::int as tracked, array(select jsonb_array_elements_text(x.value->'columns')::int) as columns, format('pg_temp.%I', p_prefix || (x.value->>'tracked')) as plan from jsonb_array_elements(p_tables) x loop
    for k in select * from gnomon.order_queries(jsonb_build_array(t.stats), p_prefix, p_views) loop
      if not made then
        execute format('create temp table %s (tracked int, name text, ahead bigint, behind bigint, violation jsonb) on commit drop', name);
        made := true;
      end if;
      execute format('insert into %s select %s, %L, q.* from (%s) q', name, k.tracked, k."constraint", k.query);
      get diagnostics n = row_count;
      continue when n = 0 or p_views is null;
      -- On a branch a value is put out of the way, where that does no harm.
      n := gnomon.room_column(t.tracked, k."constraint", t.columns);
      if n is not null then
        execute format('update %s p set rooms = array_append(p.rooms, %s) where p.v in (select e.behind from %s e where e.tracked = %s and e.name = %L)', t.plan, n, name, t.tracked, k."constraint");
        execute format('delete from %s e where e.tracked = %s and e.name = %L', name, t.tracked, k."constraint");
        t.stats := jsonb_set(t.stats, '{room}', coalesce(t.stats->'room', '[]') || to_jsonb(n));
      else
        -- What comes before others go is written the other way round, if that fails.
        execute format('delete from %1$s e using %2$s p, %2$s q where e.tracked = %3$s and p.v = e.ahead and q.v = e.behind and (p.op <> ''u'' or q.op <> ''u'')', name, t.plan, t.tracked);
      end if;
    end loop;
    if made then
      n := gnomon.order_updates(t.plan, name, t.tracked, p_views is null and gnomon.may_replace(t.tracked, current_user, t.columns));
      t.stats := t.stats || jsonb_build_object('turns', n);
      execute format('select count(*) from %s p where p.replaced', t.plan) into n;
      t.stats := t.stats || jsonb_build_object('replace', n);
    end if;
    tables := tables || t.stats;
  end loop;
  if made then
    execute format('select coalesce(jsonb_agg(e.violation order by e.ahead, e.behind), ''[]'') from %s e', name) into waiting;
    execute format('drop table %s', name);
  end if;
end $$;
comment on function gnomon.order_rows is 'Finds the order in which planned rows can be written, and those that wait for each other.';

create function gnomon.make_rooms(p_merge gnomon.merged, p_tables jsonb, p_prefix text) returns void
language plpgsql volatile as $$
declare
  t record;
begin
  for t in select distinct (x.value->>'tracked')::int as tracked, r::int as n, format('pg_temp.%I', p_prefix || (x.value->>'tracked')) as plan from jsonb_array_elements(p_tables) x, jsonb_array_elements_text(x.value->'room') r loop
    execute format('select gnomon.make_room(%1$s, %2$s, %3$s, array_agg(row(%4$s)::gnomon.o%2$s)) from %5$s p where %3$s = any (p.rooms)', p_merge.id, t.tracked, t.n,
      gnomon.row_of_keys(t.tracked), t.plan);
  end loop;
end $$;
comment on function gnomon.make_rooms is 'Has gnomon.make_room called for what was planned.';

create function gnomon.row_of_keys(p_tracked int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select string_agg(case when a.attname ~ '^k[0-9]+$' then 'p.' || a.attname else 'null' end, ', ' order by a.attnum) from pg_attribute a where a.attrelid = to_regclass(format('gnomon.o%s', p_tracked)) and a.attnum > 0 and not a.attisdropped
$$;
comment on function gnomon.row_of_keys is 'SQL: a row of the overlay of a table, of which only the key is given.';

create function gnomon.note_violations(p_merge bigint, p_rows jsonb) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with noted as (
    insert into gnomon.violation (merge, kind, "constraint", relation, key, columns, "values", other)
    select m.id, x.value->>0, x.value->>1, x.value->>2, array(select jsonb_array_elements_text(x.value->3)), array(select jsonb_array_elements_text(x.value->4)), nullif(x.value->5, 'null'), nullif(x.value->6, 'null')
    from gnomon.merged m, jsonb_array_elements(p_rows) x where m.id = p_merge and m.status = 'running' and m.xid = pg_current_xact_id() returning 1)
  select count(*) from noted
$$;
comment on function gnomon.note_violations is 'Notes violations of the merge that is running.';

create function gnomon.find_violations(p_tables jsonb, p_prefix text, p_views jsonb, p_deferred boolean) returns jsonb
language plpgsql volatile as $$
declare
  query text;
  rows jsonb;
  list jsonb := '[]';
begin
  for query in select * from gnomon.violation_queries(p_tables, p_prefix, p_views, p_deferred) loop
    begin
      execute format('select jsonb_agg(jsonb_build_array(q.a, q.b, q.c, q.d, q.e, q.f, q.g)) from (%s) q (a, b, c, d, e, f, g)', query) into rows;
      list := list || coalesce(rows, '[]');
    exception when insufficient_privilege then
      null; -- of a table that the caller may not read nothing is told
    end;
  end loop;
  return list;
end $$;
comment on function gnomon.find_violations is 'Lists what plans violate.';

create function gnomon.violations(p_merge bigint) returns table (kind text, "constraint" name, "table" text, key text[], columns text[], "values" jsonb, other jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select v.kind, v."constraint", v.relation, v.key, v.columns, v."values", v.other from gnomon.violation v where v.merge = (gnomon.merge_of(p_merge)).id and has_table_privilege(session_user, to_regclass(v.relation), 'select') order by v.relation, v."constraint", v.key
$$;
comment on function gnomon.violations is 'Constraints that stood in the way of a merge, with the rows: unique, foreign key, check, exclusion or not null. other is the key of the other row, where it takes two, or what refers to a row that would go. Rows that exchange unique values are listed where PostgreSQL has no order in which to write them. What a trigger wrote has no key, and PostgreSQL''s message for its values.';
