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
  select format('(select array[%s] as "gnomon key", p.absent as "gnomon absent", %s from %s p where p.op in (''i'', ''u''))', string_agg(format('p.k%s::pg_catalog.text', c.n), ', ' order by c.key_position) filter (where c.key_position is not null), string_agg(format('p.%s%s as %I', case when c.key_position is null then 'd' else 'k' end, c.n, c.name), ', ' order by c.n), p_plan)
  from gnomon.merge_columns(p_tracked) c
$$;
comment on function gnomon.planned_rows is 'SQL: the rows that a plan inserts or updates, as they will be.';

create function gnomon.untouched_rows(p_relation oid, p_base text, p_plans jsonb) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('(select t.* from %s t%s)', p_base, (select format(' where not exists (select from %s p where p.op in (''d'', ''u'') and %s)', p_plans->>t.id::text, annals.key_join(t.id, 't.%2$I', 'p.k%1$s'))
    from annals.tracked t where t.relation = p_relation and t.ended_v is null and p_plans ? t.id::text))
$$;
comment on function gnomon.untouched_rows is 'SQL: the rows of a table that plans leave as they are.';

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
    for k in
      select h.relname, i.indexrelid, coalesce(to_jsonb(i)->>'indnullsnotdistinct' = 'true', false) as nulls, pg_get_expr(i.indpred, i.indrelid) as predicate, o.contype = 'x' as excludes,
             (select string_agg(format('(%s) as "gnomon %s"', pg_get_indexdef(i.indexrelid, u.i::int, false), u.i), ', ' order by u.i) from unnest(i.indkey::int2[]) with ordinality u (n, i) where u.i <= i.indnkeyatts) as expressions,
             (select array_agg(operators.name order by u.i) from unnest(i.indclass::oid[]) with ordinality u (class, i) cross join lateral (select format('operator(%I.%s)', n.nspname, p.oprname) from pg_operator p join pg_namespace n on n.oid = p.oprnamespace
                where p.oid = coalesce(o.conexclop[u.i], (select m.amopopr from pg_opclass c join pg_amop m on m.amopfamily = c.opcfamily and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype and m.amopstrategy = 3 where c.oid = u.class))) operators (name)) as operators,
             array(select a.attname::text from pg_attribute a where a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[]) and a.attnum > 0 order by a.attnum) as names
      from pg_index i join pg_class h on h.oid = i.indexrelid left join pg_constraint o on o.conindid = i.indexrelid and o.conrelid = i.indrelid and o.contype in ('p', 'u', 'x')
      where i.indrelid = t.relation and (i.indisunique or o.contype = 'x') and (not p_deferred or coalesce(o.condeferred, false))
    loop
      -- Expressions and predicates may look at other columns, too: where one is not in the plan nothing is told.
      continue when exists (select from pg_depend d join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid where d.classid = 'pg_class'::regclass and d.objid = k.indexrelid and d.refobjid = t.relation and d.refobjsubid > 0
                              and a.attname not in (select c.name from gnomon.merge_columns(t.id) c))
        or not k.names <@ array(select c.name::text from gnomon.merge_columns(t.id) c) or k.operators is null;
      select string_agg(format(case when k.nulls then '(p."gnomon %1$s" %2$s o."gnomon %1$s" or pg_catalog.num_nonnulls(p."gnomon %1$s", o."gnomon %1$s") = 0)' else 'p."gnomon %1$s" %2$s o."gnomon %1$s"' end, i, k.operators[i]), ' and ' order by i) into same from generate_series(1, cardinality(k.operators)) i;
      select format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, p.%I', n, n), ', ')) into list from unnest(k.names) n;
      select format('array[%s]', string_agg(format('x.%I::text', c.name), ', ' order by c.key_position)) into other from gnomon.merge_columns(t.id) c where c.key_position is not null;
      return next format('select %1$L, %2$L::text, %3$L::text, p."gnomon key", %4$L::text[], %5$s, pg_catalog.to_jsonb(o."gnomon key") from (select x.*, %6$s from %7$s x%8$s) p join (select %9$s as "gnomon key", %6$s from %10$s x%8$s) o on %11$s
        union all select %1$L, %2$L::text, %3$L::text, p."gnomon key", %4$L::text[], %5$s, pg_catalog.to_jsonb(o."gnomon key") from (select x.*, %6$s from %7$s x%8$s) p join (select x."gnomon key", %6$s from %7$s x%8$s) o on %11$s and p."gnomon key" <> o."gnomon key"',
        case when k.excludes then 'exclusion' else 'unique' end, k.relname, t.relation, k.names, coalesce(list, '''{}''::jsonb'), k.expressions, planned, ' where ' || k.predicate, other, gnomon.untouched_rows(t.relation, base, plans), same);
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
comment on function gnomon.violations is 'Constraints that stood in the way of a merge, with the rows: unique, foreign key, check, exclusion or not null. other is the key of the other row, where it takes two, or what refers to a row that would go.';
