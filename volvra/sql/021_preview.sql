-- Showing a plan, and the token that ties an undo to what was shown. A preview writes nothing: its token carries the selection, frozen at
-- a position, and a digest of the plan.

create function volvra.plans(p_selection jsonb, p_range int8range default '(,)', out tracked int, out query text, out changes bigint, out scan boolean) returns setof record
language plpgsql stable as $$
declare
  first bigint;
  moved boolean;
  bytes bigint;
begin
  -- The histories that selected changes are in, each with its plan; and whether reading it from end to end beats an index.
  for tracked in select * from volvra.selected_histories(p_selection) loop
    execute volvra.first_query(tracked, p_selection, p_range) into changes, first, moved, bytes;
    continue when changes = 0;
    query := volvra.plan_query(tracked, p_selection, p_range, first, moved);
    scan := changes > bytes / 2000;
    return next;
  end loop;
end $$;
comment on function volvra.plans is 'Plan queries for a checked selection.';

create function volvra.literal_of(p_value text, p_type text) returns text
language sql immutable
return format('quote_nullable(%s::text) || %L', p_value, '::' || p_type);
comment on function volvra.literal_of is 'SQL: a value as SQL of its type.';

create function volvra.digest_of(p_tracked int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- Only what an undo would do, and what it relies on: changes of other columns don't matter.
  select format('sha256(convert_to(row(%s, p.op, coalesce(b.status, p.status), p.write, p.conflict, p.absent, %s)::text, ''UTF8''))', p_tracked,
    string_agg(format('case when p.op <> ''u'' or %1$s = any (p.write) or %1$s = any (p.conflict) or %2$L then p.f%1$s end, case when p.op = ''i'' or %1$s = any (p.write) or %1$s = any (p.conflict) then p.t%1$s end', c.n, c.key_position is not null), ', ' order by c.n))
  from volvra.plan_columns(p_tracked) c
$$;
comment on function volvra.digest_of is 'SQL: the digest of a planned row p, blocked by b.';

create function volvra.shown_query(p_tracked int, p_plan text, p_blocks text) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  c record;
  base text := volvra.base_table(p_tracked);
begin
  select string_agg(format('case when p.op <> ''u'' or %1$s = any (p.write) or %1$s = any (p.conflict) then jsonb_build_object(%2$L, jsonb_build_object(''from'', p.f%1$s::text, ''to'', case when p.op <> ''d'' then p.t%1$s::text end)) else ''{}''::jsonb end', n, name), ' || ' order by n) as columns,
         string_agg(format('case when %s = any (p.write) then %L || %s end', n, quote_ident(name) || ' = ', volvra.literal_of('p.t' || n, type)), ', ' order by n) filter (where not generated) as assigned,
         string_agg(format('case when not coalesce(%s = any (p.absent), false) then %L end', n, quote_ident(name)), ', ' order by n) filter (where not generated) as named,
         string_agg(format('case when not coalesce(%s = any (p.absent), false) then %s end', n, volvra.literal_of('p.t' || n, type)), ', ' order by n) filter (where not generated) as given,
         string_agg(format('%L || %s', quote_ident(name) || ' = ', volvra.literal_of('p.k' || n, type)), ' || '' and '' || ' order by key_position) filter (where key_position is not null) as key,
         string_agg(format('case when p.op = ''d'' or %s = any (p.write) then %s end', n, case when volvra.operator_of(type::regtype, 3) is null then format('%L || quote_nullable(p.f%s::text)', quote_ident(name) || '::text is not distinct from ', n)
           else format('%L || %s', quote_ident(name) || ' is not distinct from ', volvra.literal_of('p.f' || n, type)) end), ', ' order by n) filter (where not generated) as guards,
         format('to_jsonb(array[%s])', string_agg(format('p.k%s::text', n), ', ' order by key_position) filter (where key_position is not null)) as key_list
    into c from volvra.plan_columns(p_tracked);
  return format($q$
select %1$s as tracked, %2$L as "table", %3$s as key, case p.op when 'u' then 'update' when 'i' then 'insert' when 'd' then 'delete' else 'none' end as operation,
       case when p.op = 'n' then '{}' else %4$s end as columns,
       case when p.op = 'u' and p.write <> '{}' then concat(%5$L, array_to_string(array[%6$s], ', '), ' where ', array_to_string(array[%9$s, %10$s], ' and '))
            when p.op = 'i' then concat(%7$L, array_to_string(array[%11$s], ', '), ') overriding system value values (', array_to_string(array[%12$s], ', '), ')')
            when p.op = 'd' then concat(%8$L, array_to_string(array[%9$s, %10$s], ' and ')) end as sql,
       coalesce(b.status, p.status) as status, coalesce(b.detail, p.blame, '{}') as detail, %13$s as digest
from %14$s p left join %15$s b on b.tracked = %1$s and b.no = p.no$q$,
    p_tracked, (select t.relation::text from annals.tracked t where t.id = p_tracked), c.key_list, c.columns, format('update %s set ', base), c.assigned, format('insert into %s (', substring(base, '(?:only )?(.*)')), format('delete from %s where ', base),
    c.key, c.guards, c.named, c.given, volvra.digest_of(p_tracked), p_plan, p_blocks);
end $$;
comment on function volvra.shown_query is 'SQL: planned rows as volvra.preview shows them.';

create function volvra.one_block_each(p_query text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return format('select distinct on (tracked, no) tracked, no, status, detail from (%s) x order by tracked, no, status desc, detail', p_query);
comment on function volvra.one_block_each is 'SQL: of what blocks planned rows, one reason for each; unique keys first.';

create function volvra.once() returns setof int
language sql stable rows 1000 set search_path = pg_catalog, pg_temp as $$ select 1 $$;
comment on function volvra.once is 'One row, of which the planner expects a thousand. It cannot tell the size of a plan, and would take a large one for a small one.';

create function volvra.preview_query(p_plans jsonb, p_caller name) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  histories int[];
  names text[];
  ctes text;
begin
  select array_agg(tracked order by tracked), array_agg('plan' || tracked order by tracked), string_agg(format(case when changes > 1000 then 'plan%s as materialized (select q.* from (%s) q, volvra.once() annals_once)' else 'plan%s as materialized (%s)' end, tracked, query), E',\n' order by tracked)
    into histories, names, ctes from jsonb_to_recordset(p_plans) x (tracked int, query text, changes bigint);
  return format(E'with %s,\nblocks as materialized (%s)\n%s', ctes, volvra.one_block_each(volvra.block_query(histories, names, p_caller)),
    (select string_agg(volvra.shown_query(h, n, 'blocks'), E'\nunion all\n' order by h) from unnest(histories, names) u (h, n)));
end $$;
comment on function volvra.preview_query is 'SQL: all plans of a selection, with what blocks them.';

-- Texts must not depend on the session, or a token would.
create function volvra.preview_rows(p_selection jsonb, out tracked int, out "table" text, out key jsonb, out operation text, out columns jsonb, out sql text, out status text, out detail jsonb, out digest bytea) returns setof record
language plpgsql stable set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set timezone = 'UTC' set bytea_output = 'hex' set extra_float_digits = 1 set jit = off set enable_nestloop = on set work_mem = '64MB' as $$
declare
  found_plans jsonb;
begin
  select jsonb_agg(jsonb_build_object('tracked', p.tracked, 'query', p.query, 'changes', p.changes)), 
         set_config('enable_nestloop', case when bool_or(p.scan) then 'off' else 'on' end, true) is null
    into found_plans from volvra.plans(p_selection) p;
  if found_plans is not null then
    return query execute volvra.preview_query(found_plans, current_user);
  end if;
end $$;
comment on function volvra.preview_rows is 'The plan of a checked selection, as volvra.preview shows it, with a digest of each row.';

create function volvra.preview(p_selection jsonb, out tracked int, out "table" text, out key jsonb, out operation text, out columns jsonb, out sql text, out status text, out detail jsonb) returns setof record
language sql stable as $$
  select p.tracked, p."table", p.key, p.operation, p.columns, p.sql, p.status, p.detail from volvra.preview_rows(volvra.check_selection(p_selection)) p
$$;
comment on function volvra.preview is 'What an undo of the selected changes would do, row by row: the operation, the columns with from and to, the statement that does it, and the status clean, undone, conflict, unique, foreign key, erased or interrupted, with details. Writes nothing.';

create function volvra.last_position() returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$ select last_value from annals.v $$;
comment on function volvra.last_position is 'The highest position that was given.';

-- As the caller: reading a value of a type can run code of its owner's.
create function volvra.freeze(p_selection jsonb) returns jsonb
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select s || jsonb_build_object('until_v', least((s->>'until_v')::bigint, volvra.last_position())) from volvra.check_selection(p_selection) s
$$;
comment on function volvra.freeze is 'A checked selection without the changes that come after now.';

create function volvra.digest(p_digests bytea[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select encode(sha256(coalesce(string_agg(d, ''::bytea order by d), ''::bytea)), 'hex') from unnest(p_digests) d
$$;
comment on function volvra.digest is 'The digest of a plan, from those of its rows.';

create function volvra.token(p_selection jsonb, p_digest text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return format('vp1.%s.%s', translate(encode(convert_to(p_selection::text, 'UTF8'), 'base64'), E'+/=\n', '-_'), p_digest);
comment on function volvra.token is 'The token of a plan: its frozen selection and digest.';

create function volvra.read_token(p_token text, out selection jsonb, out digest text) returns record
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  part text[] := regexp_match(p_token, '^vp1\.([A-Za-z0-9_-]+)\.([0-9a-f]{64})$');
begin
  selection := convert_from(decode(rpad(translate(part[1], '-_', '+/'), (length(part[1]) + 3) / 4 * 4, '='), 'base64'), 'UTF8')::jsonb;
  digest := part[2];
  if part is null or selection->'until_v' is null then
    perform volvra.refuse('VO023', 'that is no token of a preview', 'Pass the whole text that volvra.preview_token returned, or a selection.');
  end if;
exception when data_exception or syntax_error_or_access_rule_violation then
  perform volvra.refuse('VO023', 'that is no token of a preview', 'Pass the whole text that volvra.preview_token returned, or a selection.');
end $$;
comment on function volvra.read_token is 'What a token holds.';

create function volvra.preview_token(p_selection jsonb) returns text
language plpgsql volatile as $$
declare
  frozen jsonb := volvra.freeze(p_selection);
begin
  return volvra.token(frozen, volvra.digest(array(select p.digest from volvra.preview_rows(frozen) p)));
end $$;
comment on function volvra.preview_token is 'A token for what volvra.preview shows now. An undo with it is refused when it would do anything else.';
