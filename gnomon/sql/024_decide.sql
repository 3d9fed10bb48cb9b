-- How a three-way merge decides: what a row becomes of which there are a base, ours (the side that is merged) and theirs (the side that it is
-- merged into). Column by column: what one side left alone is what the other has, and what both made the same is that. Where both changed
-- a column a strategy decides; without one it is a conflict. Values are compared as images, byte by byte, since equality of a type
-- can hide a difference.
--
-- All rows of a table are decided by one statement, which is written here.

create table gnomon.strategy (
  tracked int not null references gnomon.history on delete cascade,
  n int,
  strategy text not null check (strategy in ('fail', 'ours', 'theirs', 'newest', 'min', 'max', 'sum', 'union', 'json', 'function')),
  function regprocedure,
  check ((strategy = 'function') = (function is not null))
);
create unique index strategy_column on gnomon.strategy (tracked, coalesce(n, 0));
comment on table gnomon.strategy is 'How merges decide where both sides changed a column.';
comment on column gnomon.strategy.tracked is 'The history.';
comment on column gnomon.strategy.n is 'Number of the column; null: all that have none of their own, and rows that one side changed and the other deleted.';
comment on column gnomon.strategy.strategy is 'fail, ours, theirs, newest, min, max, sum, union, json or function.';
comment on column gnomon.strategy.function is 'The function: it is given base, ours and theirs.';
comment on index gnomon.strategy_column is 'A column has one strategy.';

create function gnomon.merge_columns(p_tracked int) returns table (n int, name name, type text, type_oid oid, quick boolean, key_position int, generated boolean, late_v bigint, source text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select c.n, c.name, format_type(o.atttypid, o.atttypmod), o.atttypid,
           -- Of these types equal values have equal images, and comparing them is cheaper than comparing images.
           o.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'bool'::regtype, 'uuid'::regtype, 'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'bytea'::regtype)
             or o.atttypid in ('text'::regtype, 'varchar'::regtype) and (select l.collisdeterministic from pg_collation l where l.oid = o.attcollation),
           array_position(t.key, c.n), c.generated,
           case when not exists (select from annals.segment g where g.tracked = t.id and c.n = any (g.columns) and g.number = (select min(x.number) from annals.segment x where x.tracked = t.id)) then c.added_v end,
           format('t.%I%s', a.attname, case when a.atttypid <> o.atttypid then '::' || format_type(o.atttypid, o.atttypmod) else '' end)
    from annals.tracked t join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key))
    join pg_attribute o on o.attrelid = to_regclass('gnomon.o' || t.id) and o.attname = case when c.n = any (t.key) then 'k' else 'c' end || c.n and not o.attisdropped
    join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum and not a.attisdropped
    where t.id = p_tracked order by c.n;
end $$;
comment on function gnomon.merge_columns is 'Columns that a merge decides, and those of the key. late_v: rows that a branch changed at an earlier position know nothing of the column.';

create function gnomon.gone_columns(p_tracked int) returns table (n int, name name)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select c.n, c.name from annals.tracked_column c join pg_attribute a on a.attrelid = to_regclass(format('gnomon.o%s', p_tracked)) and a.attname = format('c%s', c.n) and not a.attisdropped
  where c.tracked = p_tracked and c.n not in (select m.n from gnomon.merge_columns(p_tracked) m) and not c.generated order by c.n
$$;
comment on function gnomon.gone_columns is 'Columns that branches have values of and that the table has no longer.';

create function gnomon.same_image(p_a text, p_b text, p_quick boolean) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case when p_quick then format('(%s is not distinct from %s)', p_a, p_b) else format('pg_catalog.record_image_eq(row(%s), row(%s))', p_a, p_b) end;
comment on function gnomon.same_image is 'SQL: two values have the same image.';

create function gnomon.union_arrays(p_base anyarray, p_ours anyarray, p_theirs anyarray) returns anyarray
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  result alias for $0;
begin
  -- What is theirs, less what we took out, and then what we put in.
  select array_agg(x.e order by x.side, x.i) into result from (
    select 1 as side, u.i, u.e from unnest(p_theirs) with ordinality u (e, i) where not coalesce(array_position(p_base, u.e) is not null and array_position(p_ours, u.e) is null, false)
    union all
    select 2, min(u.i), u.e from unnest(p_ours) with ordinality u (e, i) where array_position(p_base, u.e) is null and array_position(p_theirs, u.e) is null group by u.e) x;
  return coalesce(result, p_theirs[1:0], p_ours[1:0]);
end $$;
comment on function gnomon.union_arrays is 'Merges arrays as sets: elements that either side took out are not there, and those that either side put in are.';

create function gnomon.merge_json(p_base jsonb, p_ours jsonb, p_theirs jsonb, out value jsonb, out conflict boolean)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  k text;
  r record;
begin
  -- What is absent is null here, and a JSON null is not. Texts of jsonb differ where the values do, in the scale of numbers as well.
  conflict := false;
  if p_ours::text is not distinct from p_base::text then
    value := p_theirs;
  elsif p_theirs::text is not distinct from p_base::text or p_ours::text is not distinct from p_theirs::text then
    value := p_ours;
  elsif jsonb_typeof(p_ours) = 'object' and jsonb_typeof(p_theirs) = 'object' and coalesce(jsonb_typeof(p_base), 'object') = 'object' then
    value := '{}';
    for k in select jsonb_object_keys(p_ours) union select jsonb_object_keys(p_theirs) loop
      r := gnomon.merge_json(p_base->k, p_ours->k, p_theirs->k);
      conflict := conflict or r.conflict;
      if r.value is not null then
        value := value || jsonb_build_object(k, r.value);
      end if;
    end loop;
  else
    value := p_theirs;
    conflict := true;
  end if;
end $$;
comment on function gnomon.merge_json is 'Merges JSON objects, key by key and objects within them likewise; in conflict where both changed a value that is no object.';

create function gnomon.changed_at(p_tracked int, p_key text[]) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  last timestamptz;
begin
  execute format('select e.at from annals.h%s e where %s order by e.v desc limit 1', p_tracked, annals.key_is(p_tracked, p_key, 'e.c%1$s')) into last;
  return last;
end $$;
comment on function gnomon.changed_at is 'When a row was last changed; null when that is longer ago than history tells.';

create function gnomon.suits(p_strategy text, p_type oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case p_strategy
    when 'sum' then p_type = any ('{int2,int4,int8,numeric,float4,float8,money,interval}'::regtype[])
    when 'json' then p_type = 'jsonb'::regtype
    when 'union' then exists (select from pg_type t join pg_type e on e.oid = t.typelem join pg_opclass o on o.opcmethod = (select a.oid from pg_am a where a.amname = 'btree') and o.opcdefault
                              where t.oid = p_type and t.typcategory = 'A' and (o.opcintype = e.oid or e.typtype = 'e' and o.opcintype = 'anyenum'::regtype or e.typtype = 'b' and o.opcintype = 'text'::regtype and e.oid = 'varchar'::regtype))
    when 'min' then exists (select from pg_type t join pg_opclass o on o.opcmethod = (select a.oid from pg_am a where a.amname = 'btree') and o.opcdefault
                            where t.oid = p_type and (o.opcintype = t.oid or t.typtype = 'e' and o.opcintype = 'anyenum'::regtype or t.typcategory = 'A' and o.opcintype = 'anyarray'::regtype or t.typtype = 'r' and o.opcintype = 'anyrange'::regtype or t.oid = 'varchar'::regtype and o.opcintype = 'text'::regtype))
    when 'max' then gnomon.suits('min', p_type)
    else true end
$$;
comment on function gnomon.suits is 'Whether a strategy decides values of a type.';

create function gnomon.set_strategy(p_table regclass, p_column name, p_strategy text, p_function regprocedure default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  id int := gnomon.present_history(p_table);
  c record;
  column_n int;
begin
  if coalesce(p_strategy, '') not in ('fail', 'ours', 'theirs', 'newest', 'min', 'max', 'sum', 'union', 'json', 'function') then
    perform gnomon.refuse('GN006', format('there is no strategy %L', coalesce(p_strategy, '')), 'It is fail, ours, theirs, newest, min, max, sum, union, json or function.');
  end if;
  if (p_strategy = 'function') <> (p_function is not null) or p_function is not null and p_column is null then
    perform gnomon.refuse('GN006', 'the strategy function takes a function and a column, and others take no function', 'Give it as f(type, type, type).');
  end if;
  if p_column is not null then
    select * into c from gnomon.merge_columns(id) m where m.name = p_column;
    if not found or c.key_position is not null then
      perform gnomon.refuse('GN006', format('%s has no column %I that merges decide', p_table, p_column), 'Key columns and generated ones are not decided.', jsonb_build_object('table', p_table::text, 'column', p_column));
    end if;
    if not gnomon.suits(p_strategy, c.type_oid) then
      perform gnomon.refuse('GN006', format('%s does not decide values of type %s', p_strategy, c.type), 'Choose another strategy.', jsonb_build_object('table', p_table::text, 'column', p_column));
    end if;
    perform gnomon.check_decider(p_function, c.type_oid, c.type);
    column_n := c.n;
  elsif p_strategy = 'function' then
    perform gnomon.refuse('GN006', 'a function decides values of one column', 'Name the column.');
  end if;
  delete from gnomon.strategy s where s.tracked = id and s.n is not distinct from column_n;
  if p_strategy <> 'fail' or p_column is not null then
    insert into gnomon.strategy (tracked, n, strategy, function) values (id, column_n, p_strategy, p_function);
  end if;
end $$;
comment on function gnomon.set_strategy is 'Says how merges decide where both sides changed a column of a table (null: any column that has no strategy of its own; ours and theirs then decide as well about rows that one side changed and the other deleted): fail (a conflict), ours (the branch), theirs (what it is merged into), newest, min, max, sum (of what both added), union (of arrays), json (objects key by key), or a function of base, ours and theirs.';

create function gnomon.check_decider(p_function regprocedure, p_type oid, p_name text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN006', format('%s does not decide values of type %s', p_function, p_name), format('It takes base, ours and theirs, and returns one of them or another value: f(%1$s, %1$s, %1$s) returns %1$s.', p_name))
    where p_function is not null and not exists (select from pg_proc p where p.oid = p_function and p.prokind = 'f' and not p.proretset and array(select u.type from unnest(p.proargtypes::oid[]) with ordinality u (type, i) order by u.i) = array[p_type, p_type, p_type] and p.prorettype = p_type);
end $$;
comment on function gnomon.check_decider is 'Refuses a function that cannot decide values of a type.';

create function gnomon.strategies() returns table ("table" text, "column" name, strategy text, function text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.relation::text, c.name, s.strategy, s.function::text
  from gnomon.strategy s join annals.tracked t on t.id = s.tracked left join annals.tracked_column c on c.tracked = s.tracked and c.n = s.n where t.ended_v is null order by 1, c.n nulls first
$$;
comment on function gnomon.strategies is 'How merges decide, where that has been said.';

create function gnomon.strategy_of(p_tracked int, p_strategies jsonb) returns table (n int, strategy text, function regprocedure)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  relation text := (select t.relation::text from annals.tracked t where t.id = p_tracked);
  given jsonb;
  c record;
  said text;
  own boolean;
  bad text;
begin
  if p_strategies is not null and jsonb_typeof(p_strategies) <> 'object' then
    perform gnomon.refuse('GN006', 'strategies are an object', 'Such as {"*": "ours", "shop.orders": {"*": "theirs", "total": "sum"}}.');
  end if;
  select x.value into given from jsonb_each(p_strategies) x where x.key <> '*' and to_regclass(x.key) = relation::regclass;
  if jsonb_typeof(given) = 'string' then
    given := jsonb_build_object('*', given);
  end if;
  if jsonb_typeof(given) = 'object' then
    select k into bad from jsonb_object_keys(given) k where k <> '*' and not exists (select from gnomon.merge_columns(p_tracked) m where m.name = k and m.key_position is null) limit 1;
    if bad is not null then
      perform gnomon.refuse('GN006', format('%s has no column %I that merges decide', relation, bad), 'Key columns and generated ones are not decided.', jsonb_build_object('table', relation, 'column', bad));
    end if;
  end if;
  for c in select m.n, m.name, m.type, m.type_oid from gnomon.merge_columns(p_tracked) m where m.key_position is null union all select null, null, null, null loop
    n := c.n;
    function := null;
    own := true;
    said := coalesce(case when jsonb_typeof(given->c.name::text) = 'object' then 'function' else given->>c.name::text end);
    if said is null then
      own := false;
      said := coalesce(given->>'*', p_strategies->>'*');
    end if;
    if own and said = 'function' then
      function := to_regprocedure(given->c.name::text->>'function');
      if function is null then
        perform gnomon.refuse('GN006', format('there is no function %s', coalesce(given->c.name::text->>'function', '')), 'Give it as schema.f(type, type, type).');
      end if;
    end if;
    if said is null then
      select s.strategy, s.function, s.n is not null into said, function, own from gnomon.strategy s where s.tracked = p_tracked and (s.n = c.n or s.n is null) order by s.n nulls last limit 1;
    end if;
    said := coalesce(said, 'fail');
    if said not in ('fail', 'ours', 'theirs', 'newest', 'min', 'max', 'sum', 'union', 'json') and not (said = 'function' and function is not null) then
      perform gnomon.refuse('GN006', format('there is no strategy %L', said), 'It is fail, ours, theirs, newest, min, max, sum, union, json or {"function": "f(type, type, type)"}.');
    end if;
    if c.n is null then
      -- Of a row there is only the whole.
      said := case when said in ('ours', 'theirs') then said else 'fail' end;
    elsif not gnomon.suits(said, c.type_oid) then
      if own then
        perform gnomon.refuse('GN006', format('%s does not decide values of type %s', said, c.type), 'Choose another strategy.', jsonb_build_object('table', relation, 'column', c.name));
      end if;
      said := 'fail';
    elsif function is not null then
      perform gnomon.check_decider(function, c.type_oid, c.type);
    end if;
    strategy := said;
    return next;
  end loop;
end $$;
comment on function gnomon.strategy_of is 'The strategies of a merge for the columns of a table, and for its rows (n null): those that the merge was given, else those that gnomon.set_strategy set.';

create function gnomon.decide_value(p_strategy text, p_function regprocedure, p_type text, p_base text, p_ours text, p_theirs text, p_newer text, out value text, out conflict text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case p_strategy
      when 'ours' then p_ours
      when 'newest' then format('case when %s then %s else %s end', p_newer, p_ours, p_theirs)
      when 'min' then format('least(%s, %s)', p_ours, p_theirs)
      when 'max' then format('greatest(%s, %s)', p_ours, p_theirs)
      when 'sum' then case p_type when 'interval' then format('%s + %s - coalesce(%s, interval ''0'')', p_theirs, p_ours, p_base)
                                  when 'money' then format('%s + %s - coalesce(%s, 0::money)', p_theirs, p_ours, p_base)
                                  when 'real' then format('(%s + %s - coalesce(%s, 0))::real', p_theirs, p_ours, p_base)
                                  when 'double precision' then format('%s + %s - coalesce(%s, 0)', p_theirs, p_ours, p_base)
                                  -- Only the result has to fit.
                                  else format('(%s::numeric + %s::numeric - coalesce(%s::numeric, 0))::%s', p_theirs, p_ours, p_base, p_type) end
      when 'union' then format('gnomon.union_arrays(%s, %s, %s)', p_base, p_ours, p_theirs)
      when 'json' then format('(gnomon.merge_json(%s, %s, %s)).value', p_base, p_ours, p_theirs)
      when 'function' then (select format('%I.%I(%s, %s, %s)', n.nspname, p.proname, p_base, p_ours, p_theirs) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where p.oid = p_function)
      else p_theirs end,
    case p_strategy
      when 'fail' then 'true'
      when 'sum' then format('pg_catalog.num_nulls(%s, %s) > 0', p_ours, p_theirs)
      when 'union' then format('coalesce(pg_catalog.array_ndims(%s), 1) > 1 or coalesce(pg_catalog.array_ndims(%s), 1) > 1 or coalesce(pg_catalog.array_ndims(%s), 1) > 1', p_base, p_ours, p_theirs)
      when 'json' then format('(gnomon.merge_json(%s, %s, %s)).conflict', p_base, p_ours, p_theirs)
      else 'false' end
$$;
comment on function gnomon.decide_value is 'SQL for what a column becomes that both sides changed, and for whether that is a conflict.';

create function gnomon.object_of(p_tracked int, p_alias text, p_prefix text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A function takes 100 arguments.
  select coalesce(string_agg(x.part, ' || ' order by x.chunk), '''{}''::jsonb')
  from (select (c.i - 1) / 40 as chunk, format('pg_catalog.jsonb_build_object(%s)', string_agg(format('%L, %s.%s%s', c.name, p_alias, case when c.key_position is null then p_prefix else 'k' end, c.n), ', ' order by c.i)) as part
        from (select m.*, row_number() over (order by m.n) as i from gnomon.merge_columns(p_tracked) m) c group by 1) x
$$;
comment on function gnomon.object_of is 'SQL for a row, of which columns are named by a prefix and their number, as JSON.';

create function gnomon.decide_query(p_tracked int, p_source text, p_target text, p_strategies jsonb default null, p_keep boolean default false, p_resolutions text default null, p_theirs boolean default false, p_gone boolean default false, p_unsettled boolean default false) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  relation text := (select t.relation::text from annals.tracked t where t.id = p_tracked);
  resolves boolean := p_resolutions is not null;
  row_strategy text;
  gone text;
  c record; -- lists of columns, each as SQL
  k record;
begin
  select string_agg('s.k' || m.n, ', ' order by m.key_position) as source, string_agg('f.k' || m.n, ', ' order by m.key_position) as final, string_agg(format('f.k%s::pg_catalog.text', m.n), ', ' order by m.key_position) as texts, string_agg(format('e.k%s::pg_catalog.text', m.n), ', ' order by m.key_position) as named,
         string_agg(format('t.k%s %s s.k%1$s', m.n, annals.key_operator(p_tracked, m.key_position)), ' and ' order by m.key_position) as joined
    into k from gnomon.merge_columns(p_tracked) m where m.key_position is not null;
  -- States of a column: m where ours left it alone, c where theirs did, a where both made it the same, x where both changed it.
  select coalesce(string_agg(format(', s.b%1$s, s.c%1$s, t.m%1$s', x.n), '' order by x.n), '') as triples,
         coalesce(string_agg(format(', case %1$s when not j.alive then case when j.was and j.there and not %2$s then ''x'' else ''m'' end when j.was and %3$s then ''m'' when not j.there then ''c'' when j.was and %2$s then ''c'' when %4$s then ''a'' else ''x'' end as s%5$s',
           case when x.late_v is not null then format('when j.v < %s then case when j.was or j.there then ''m'' else ''c'' end', x.late_v) else '' end, x.theirs_same, x.ours_same, x.agree, x.n), '' order by x.n), '') as states,
         coalesce(string_agg(format(', case %1$s when e.s%2$s in (''m'', ''a'') and e.there then e.m%2$s when e.s%2$s = ''x'' then %3$s else e.c%2$s end as d%2$s',
           -- A choice is for what is in conflict. What one side alone changed, or a strategy decides, is merged beside it.
           case when resolves then format('when e.choice = ''value'' and e."values" ? %2$L then (pg_catalog.jsonb_populate_record(null::%3$s, e."values")).%2$I::%4$s when e.choice is not null and (not e.alive or e.s%1$s = ''x'' and (%5$s)) then case when e.choice = ''ours'' then e.c%1$s else e.m%1$s end', x.n, x.name, relation, x.type, x.conflict) else '' end,
           x.n, x.value), '' order by x.n), '') as decided,
         coalesce(string_agg(format('case when e.s%s = ''x'' and (%s) then %1$s end', x.n, x.conflict), ', ' order by x.n), '') as conflicts,
         coalesce(string_agg(format('case when not %s then %s end', x.result_same, x.n), ', ' order by x.n), '') as written,
         coalesce(string_agg(format('e.s%s = ''x''', x.n), ' or ' order by x.n), 'false') as any_x,
         coalesce(string_agg(format('e.s%s <> ''m''', x.n), ' or ' order by x.n), 'false') as any_changed,
         coalesce(string_agg(format(', f.d%s', x.n) || case when p_theirs then format(', f.m%s', x.n) else '' end, '' order by x.n), '') as final,
         coalesce(string_agg(format('case when d.v < %s then %s end', x.late_v, x.n), ', ' order by x.n) filter (where x.late_v is not null), '') as absent,
         coalesce(string_agg(', %1$s.m' || x.n, '' order by x.n), '') as image
    into c from (select m.*, v.value, v.conflict, gnomon.same_image('j.m' || m.n, 'j.b' || m.n, m.quick) as theirs_same, gnomon.same_image('j.c' || m.n, 'j.b' || m.n, m.quick) as ours_same,
                        -- Two who add the same to a number have not agreed on it.
                        case s.strategy when 'sum' then 'j.was is not true and ' else '' end || gnomon.same_image('j.c' || m.n, 'j.m' || m.n, m.quick) as agree, gnomon.same_image('d.d' || m.n, 'd.m' || m.n, m.quick) as result_same
                 from gnomon.merge_columns(p_tracked) m join (select y.n, y.function, case when y.strategy = 'sum' and p_unsettled then 'fail' else y.strategy end as strategy from gnomon.strategy_of(p_tracked, p_strategies) y) s on s.n = m.n
                 cross join lateral gnomon.decide_value(s.strategy, s.function, m.type, 'e.b' || m.n, 'e.c' || m.n, 'e.m' || m.n, format('coalesce(e.at > gnomon.changed_at(%s, array[%s]), true)', p_tracked, k.named)) v
                 where m.key_position is null) x;
  row_strategy := (select s.strategy from gnomon.strategy_of(p_tracked, p_strategies) s where s.n is null);
  if p_gone then
    select string_agg(format('case when not pg_catalog.record_image_eq(row(s.c%1$s), row(s.b%1$s)) then %1$s end', g.n), ', ' order by g.n) into gone from gnomon.gone_columns(p_tracked) g;
  end if;
  return concat('select f.v, case when f.kind is not null then array[', k.texts, '] end as key, ', k.final, c.final, ', f.there, f.was, f.alive, f.kind, case f.kind when ''column gone'' then f.gone else f.conflicts end as conflicts, f.written, f.absent, ',
    'case when f.kind is not null and not ', p_keep::text, ' then ''x'' when f.op = ''u'' and f.written = ''{}'' then ''a'' else f.op end::"char" as op, ',
    format('case when f.kind is not null and f.was then %s end as base, case when f.kind is not null and f.alive then %s end as ours, case when f.kind is not null and f.there then %s end as theirs, ',
      gnomon.object_of(p_tracked, 'f', 'b'), gnomon.object_of(p_tracked, 'f', 'c'), gnomon.object_of(p_tracked, 'f', 'm')),
    'case when f.kind is not null then pg_catalog.md5(row(f.there', format(c.image, 'f'), ')::pg_catalog.text) end as image',
    E'\nfrom (select d.*, case d.op when ''u'' then array_remove(array[', c.written, ']::int[], null) end as written, case d.op when ''i'' then nullif(array_remove(array[', c.absent, E']::int[], null), ''{}'') end as absent\n',
    ' from (select e.*, case when e.choice is not null then null',
    case when row_strategy = 'theirs' then '' else ' when e.gone <> ''{}'' then ''column gone''' end,
    ' when e.alive and e.there and e.conflicts <> ''{}'' then case when e.was then ''edit/edit'' else ''add/add'' end',
    case when row_strategy <> 'fail' then '' else ' when e.alive and e.was and not e.there and e.changed then ''edit/delete'' when not e.alive and e.was and e.there and e.edited then ''delete/edit''' end,
    ' end as kind, case when e.choice = ''theirs'' then case when e.alive and e.there then ''u'' else ''a'' end',
    ' when e.choice = ''value'' then case when e."values" is null then case when e.there then ''d'' else ''a'' end when e.there then ''u'' else ''i'' end',
    ' when e.choice = ''ours'' then case when e.alive then case when e.there then ''u'' else ''i'' end when e.there then ''d'' else ''a'' end',
    ' when not e.alive then case when not e.was then ''n'' when not e.there then ''a'' when not e.edited then ''d'' else ', case row_strategy when 'ours' then '''d''' else '''a''' end, ' end',
    ' when not e.changed then ''n'' when e.there then ''u'' when not e.was then ''i'' else ', case row_strategy when 'ours' then '''i''' else '''a''' end, E' end as op\n',
    '  from (select e.*, case when e.alive and e.there then array_remove(array[', c.conflicts, ']::int[], null) else ''{}'' end as conflicts, ', c.any_x, ' as edited, e.was <> e.alive or e.gone <> ''{}'' or ', c.any_changed, ' as changed', c.decided, E'\n',
    '   from (select j.*, ', case when resolves then 'r.choice, r."values"' else 'null::text as choice, null::jsonb as "values"' end, c.states, E'\n',
    '    from (select s.v, s.at, s.was, s.alive, coalesce(t.there, false) as there, array_remove(array[', gone, ']::int[], null) as gone, ', k.source, c.triples,
    ' from ', p_source, ' s left join ', p_target, ' t on ', k.joined, ' offset 0) j',
    case when resolves then ' left join ' || p_resolutions || ' r on r.v = j.v and r.image = pg_catalog.md5(row(j.there' || format(c.image, 'j') || ')::pg_catalog.text)' else '' end, ' offset 0) e offset 0) e offset 0) d offset 0) f');
end $$;
comment on function gnomon.decide_query is 'SQL that decides all rows of a table. The source has a row per row that ours may have changed: v (its number), at, was (there in the base), alive (there in ours), k<n> its key, b<n> and c<n> its columns in the base and in ours; the target (there, k<n>, m<n>) has theirs. Comes out what is to become of theirs: op i, u (to d<n>), d, a (it is so already), n (ours changed nothing) or x (a conflict); kind and conflicts say of what. With p_keep conflicts leave theirs as it is, and the rest of the row is merged. p_unsettled: nothing notes what was merged, so what merging again would add again is a conflict.';
