-- What stands in the way of a plan, found before anything is written: unique keys, and foreign keys. It is judged by what the tables will
-- hold when the planned rows have been written. Each query returns the number of a planned row and what blocks it.

create function volvra.planned(p_histories int[], p_relation oid) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id from annals.tracked t where t.id = any (p_histories) and t.relation = p_relation
$$;
comment on function volvra.planned is 'The history whose plan changes a table; null when none of them does.';

create function volvra.column_number(p_tracked int, p_attnum smallint) returns int
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select c.n from annals.tracked_column c where c.tracked = p_tracked and c.attnum = p_attnum and c.gone_v is null and not c.excluded and not c.generated
$$;
comment on function volvra.column_number is 'Number of a column, unless an undo leaves it alone.';

create function volvra.final_value(p_alias text, p_n int) returns text
language sql immutable
return format('case when %1$s.op = ''i'' or %2$s = any (%1$s.write) then %1$s.t%2$s else %1$s.f%2$s end', p_alias, p_n);
comment on function volvra.final_value is 'SQL: the value that a column of a planned row will have.';

create function volvra.key_text(p_tracked int, p_base text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('array[%s]', string_agg(format('%s.%I::text', p_base, c.name), ', ' order by u.i))
  from annals.tracked t, unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.n = u.n where t.id = p_tracked and c.tracked = p_tracked
$$;
comment on function volvra.key_text is 'SQL: the key of a row of the base table, as texts.';

create function volvra.operator_text(p_operator oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('operator(%I.%s)', n.nspname, o.oprname) from pg_operator o join pg_namespace n on n.oid = o.oprnamespace where o.oid = p_operator
$$;
comment on function volvra.operator_text is 'An operator, qualified.';

-- Indexes over expressions or parts of a table are left to PostgreSQL: the undo then finds out when it writes.
create function volvra.unique_queries(p_tracked int, p_plan text) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  x record;
  c record;
begin
  for x in select i.*, r.relname from annals.tracked t join pg_index i on i.indrelid = t.relation join pg_class r on r.oid = i.indexrelid
             where t.id = p_tracked and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null loop
    select count(*) filter (where n is null) as unknown, array_agg(n) as numbers,
           string_agg(format('x.%I %s w.w%s', name, operator, n), ' and ') as meets, string_agg(format('a.w%1$s %2$s b.w%1$s', n, operator), ' and ') as twins,
           string_agg(format('x.f%s %s w.w%s', n, operator, n), ' and ') as leaves,
           string_agg(format('%s as w%s', volvra.final_value('p', n), n), ', ') as finals, string_agg(format('w%s is not null', n), ' and ') as known
      into c
      from (select volvra.column_number(p_tracked, u.attnum) as n, a.attname as name, volvra.operator_text(m.amopopr) as operator
            from unnest(x.indkey::int2[], x.indclass::oid[]) u (attnum, opclass) join pg_attribute a on a.attrelid = x.indrelid and a.attnum = u.attnum
            join pg_opclass o on o.oid = u.opclass join pg_amop m on m.amopfamily = o.opcfamily and m.amoplefttype = o.opcintype and m.amoprighttype = o.opcintype and m.amopstrategy = 3) k;
    continue when c.unknown > 0;
    return next format($q$
select w.no, 'unique' as status, jsonb_build_object('constraint', %1$L, 'table', %2$L, 'rows', jsonb_agg(%3$s)) as detail
from (select p.no, p.op, %4$s from %5$s p where p.go and (p.op = 'i' or p.op = 'u' and p.write && %6$L::int[])) w
join %7$s x on %8$s
where not exists (select from %5$s q where q.go and %9$s and (q.op = 'd' or q.op = 'u' and q.write && %6$L::int[])) group by w.no$q$,
      x.relname, volvra.base_table(p_tracked), volvra.key_text(p_tracked, 'x'), c.finals, p_plan, c.numbers, volvra.base_table(p_tracked), c.meets, volvra.same_row(p_tracked, 'q', 'x'));
    return next format($q$
select a.no, 'unique' as status, jsonb_build_object('constraint', %1$L, 'table', %2$L, 'rows', jsonb_agg(b.k)) as detail
from (select p.no, %3$s from %4$s p where p.go and (p.op = 'i' or p.op = 'u' and p.write && %5$L::int[])) a
join (select p.no, %7$s as k, %3$s from %4$s p where p.go and (p.op = 'i' or p.op = 'u' and p.write && %5$L::int[])) b on %6$s and a.no <> b.no group by a.no$q$,
      x.relname, volvra.base_table(p_tracked), c.finals, p_plan, c.numbers, c.twins,
      (select format('array[%s]', string_agg(format('p.k%s::text', u.n), ', ' order by u.i)) from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked));
    if x.indimmediate then
      -- PostgreSQL checks such a key row by row, so rows cannot take over each other's values within one statement.
      return next format($q$
select w.no, 'unique' as status, jsonb_build_object('constraint', %1$L, 'table', %2$L, 'reason', 'rows exchange values of a key that is not deferrable', 'rows', jsonb_agg(x.k)) as detail
from (select p.no, %3$s from %4$s p where p.go and p.op = 'u' and p.write && %5$L::int[]) w
join (select p.*, %7$s as k from %4$s p where p.go and p.op = 'u' and p.write && %5$L::int[]) x on %6$s and x.no <> w.no group by w.no$q$,
        x.relname, volvra.base_table(p_tracked), c.finals, p_plan, c.numbers, c.leaves,
        (select format('array[%s]', string_agg(format('p.k%s::text', u.n), ', ' order by u.i)) from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked));
    end if;
  end loop;
end $$;
comment on function volvra.unique_queries is 'SQL: planned rows that would collide with rows that stay as they are, or with each other.';

create function volvra.foreign_queries(p_tracked int, p_histories int[], p_plans text[], p_caller name) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  k record;
  c record;
  own text := p_plans[array_position(p_histories, p_tracked)];
  other int;
  other_plan text;
begin
  for k in select f.*, format('%I.%I', np.nspname, pc.relname) as parent, format('%I.%I', nc.nspname, cc.relname) as child, f.conrelid = t.relation as is_child, f.confrelid = t.relation as is_parent
             from annals.tracked t join pg_constraint f on f.contype = 'f' and f.conparentid = 0 and t.relation in (f.conrelid, f.confrelid)
             join pg_class pc on pc.oid = f.confrelid join pg_namespace np on np.oid = pc.relnamespace join pg_class cc on cc.oid = f.conrelid join pg_namespace nc on nc.oid = cc.relnamespace
             -- What the caller cannot read is left to PostgreSQL, too.
             where t.id = p_tracked and has_table_privilege(p_caller, f.conrelid, 'select') and has_table_privilege(p_caller, f.confrelid, 'select') loop
    if k.is_child then
      other := volvra.planned(p_histories, k.confrelid);
      other_plan := p_plans[array_position(p_histories, other)];
      select count(*) filter (where n is null) as unknown, array_agg(n) as numbers, array_agg(pn) as parent_numbers, string_agg(format('x.%I %s w.w%s', parent_name, operator, n), ' and ') as meets,
             string_agg(format('%s as w%s', volvra.final_value('p', n), n), ', ') as finals, string_agg(format('w.w%s is not null', n), ' and ') as known,
             case when count(pn) = count(*) then string_agg(format('(%s) %s w.w%s', volvra.final_value('q', pn), operator, n), ' and ') end as given,
             format('array[%s]', string_agg(format('w.w%s::text', n), ', ')) as wanted
        into c
        from (select volvra.column_number(p_tracked, u.fk) as n, volvra.column_number(other, u.pk) as pn, pa.attname as parent_name, volvra.operator_text(u.op) as operator
              from unnest(k.conkey, k.confkey, k.conpfeqop) u (fk, pk, op) join pg_attribute pa on pa.attrelid = k.confrelid and pa.attnum = u.pk) m;
      if c.unknown = 0 then
        return next format($q$
select w.no, 'foreign key' as status, jsonb_build_object('constraint', %1$L, 'table', %2$L, 'missing', %3$s) as detail
from (select p.no, %4$s from %5$s p where p.go and (p.op = 'i' or p.op = 'u' and p.write && %6$L::int[])) w
where %7$s and not exists (select from %2$s x where %8$s%9$s)%10$s$q$,
          k.conname, k.parent, c.wanted, c.finals, own, c.numbers, c.known, c.meets,
          case when other is not null then format(' and not exists (select from %s q where q.go and %s and (q.op = ''d'' or q.op = ''u'' and q.write && %L::int[]))', other_plan, volvra.same_row(other, 'q', 'x'), c.parent_numbers) else '' end,
          case when other is not null and c.given is not null then format(' and not exists (select from %s q where q.go and q.op in (''i'', ''u'') and %s)', other_plan, c.given) else '' end);
      end if;
    end if;
    if k.is_parent then
      other := volvra.planned(p_histories, k.conrelid);
      other_plan := p_plans[array_position(p_histories, other)];
      select count(*) filter (where n is null) as unknown, array_agg(n) as numbers, array_agg(cn) as child_numbers, string_agg(format('p.f%s %s x.%I', n, operator, child_name), ' and ') as meets,
             string_agg(format('(%s) %s p.f%s', volvra.final_value('q', n), operator, n), ' and ') as given
        into c
        from (select volvra.column_number(p_tracked, u.pk) as n, volvra.column_number(other, u.fk) as cn, ca.attname as child_name, volvra.operator_text(u.op) as operator
              from unnest(k.conkey, k.confkey, k.conpfeqop) u (fk, pk, op) join pg_attribute ca on ca.attrelid = k.conrelid and ca.attnum = u.fk) m;
      if c.unknown = 0 then
        -- A row that refers to one that goes stays only if the same values come back, and no action of the key would reach it meanwhile.
        return next format($q$
select p.no, 'foreign key' as status, jsonb_build_object('constraint', %1$L, 'table', %2$L, 'rows', (jsonb_agg(%3$s))) as detail
from %4$s p join %2$s x on %5$s
where p.go and (p.op = 'd' or p.op = 'u' and p.write && %6$L::int[])%7$s
  and not (case p.op when 'd' then %8$L else %9$L end = 'a' and exists (select from %4$s q where q.go and q.op in ('i', 'u') and q.no <> p.no and %10$s)) group by p.no$q$,
          k.conname, k.child, case when other is not null then volvra.key_text(other, 'x') else coalesce((select format('array[%s]', string_agg(format('x.%I::text', a.attname), ', ')) from pg_attribute a join pg_index i on i.indrelid = k.conrelid and i.indexrelid = annals.key_index(k.conrelid)
             where a.attrelid = k.conrelid and a.attnum = any (i.indkey::int2[])), 'null::text[]') end, own, c.meets, c.numbers,
          case when other is not null then format(' and not exists (select from %s r where r.go and %s and (r.op = ''d'' or r.op = ''u'' and r.write && %L::int[]))', other_plan, volvra.same_row(other, 'r', 'x'), c.child_numbers) else '' end,
          k.confdeltype, k.confupdtype, c.given);
      end if;
    end if;
  end loop;
end $$;
comment on function volvra.foreign_queries is 'SQL: planned rows whose foreign keys would refer to nothing, and planned rows to which rows that stay would still refer.';

create function volvra.block_query(p_histories int[], p_plans text[], p_caller name) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format('select %s as tracked, b.no, b.status, b.detail from (%s) b', h, q), E'\nunion all\n'), 'select null::int as tracked, null::bigint as no, null::text as status, null::jsonb as detail where false')
  from unnest(p_histories, p_plans) u (h, p), lateral (select volvra.unique_queries(h, p) union all select volvra.foreign_queries(h, p_histories, p_plans, p_caller)) x (q)
$$;
comment on function volvra.block_query is 'SQL: what stands in the way of plans, which are given by the names of their relations.';
