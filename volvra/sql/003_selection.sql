-- Selection: which changes a call is about. A selection is a jsonb object whose members only narrow; it is checked once and then turned
-- into SQL over the views of histories, in which values are literals of their column's type. Nothing of it is ever spliced as code.

create function volvra.invalid_selection(p_message text, p_hint text default '', p_detail jsonb default '{}') returns void
language sql set search_path = pg_catalog, pg_temp
as $$ select volvra.refuse('VO001', 'selection: ' || p_message, p_hint, p_detail) $$;
comment on function volvra.invalid_selection is 'Refuses a selection.';

create function volvra.operator_of(p_type oid, p_strategy int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- As an ORDER BY on the type means it: 1 <, 2 <=, 3 =, 4 >=, 5 >.
  select format('operator(%I.%s)', n.nspname, o.oprname)
  from pg_type y
  join pg_opclass c on c.opcdefault and c.opcmethod = (select oid from pg_am where amname = 'btree')
    and (c.opcintype = y.oid
         or c.opcintype = case when y.typcategory = 'A' then 'anyarray'::regtype when y.typtype = 'e' then 'anyenum' when y.typtype = 'r' then 'anyrange'
                               when y.typtype = 'm' then 'anymultirange' when y.typtype = 'c' then 'record' end
         or exists (select from pg_cast k where k.castsource = y.oid and k.casttarget = c.opcintype and k.castmethod = 'b' and k.castcontext = 'i'))
  join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = c.opcintype and a.amoprighttype = c.opcintype and a.amopstrategy = p_strategy
  join pg_operator o on o.oid = a.amopopr join pg_namespace n on n.oid = o.oprnamespace
  where y.oid = p_type
  order by c.opcintype = y.oid desc, c.opcintype limit 1
$$;
comment on function volvra.operator_of is 'The comparison operator of a type, qualified; null when the type has no order.';

create function volvra.check_value(p_value text, p_type oid, p_what text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  execute 'select ' || annals.literal(p_value, p_type);
exception when others then
  perform volvra.refuse('VO005', format('%s: %s', p_what, sqlerrm), format('It takes a value of type %s, as text.', format_type(p_type, -1)));
end $$;
comment on function volvra.check_value is 'Refuses a text that is no value of a type.';

create function volvra.check_where(p_tracked int, p_condition jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  op text := lower(p_condition->>'op');
  value jsonb := p_condition->'value';
  c record;
  strategy int := case lower(p_condition->>'op') when '<' then 1 when '<=' then 2 when '=' then 3 when '<>' then 3 when 'in' then 3 when '>=' then 4 when '>' then 5 end;
  what text;
  bad text;
begin
  if jsonb_typeof(p_condition) <> 'object' or jsonb_typeof(p_condition->'column') is distinct from 'string' or jsonb_typeof(p_condition->'op') is distinct from 'string' then
    perform volvra.invalid_selection(format('where holds %s', p_condition), 'A condition is {"column": ..., "op": ..., "value": ...}.');
  end if;
  select string_agg(k, ', ') into bad from jsonb_object_keys(p_condition) k where k not in ('column', 'op', 'value');
  if bad is not null then
    perform volvra.invalid_selection(format('unknown member of a condition: %s', bad), 'A condition has column, op and value.');
  end if;
  if strategy is null and op not in ('is null', 'is not null', 'like') then
    perform volvra.invalid_selection(format('unknown operator %L', op), 'Operators are =, <>, <, <=, >, >=, is null, is not null, in and like.');
  end if;
  select * into c from volvra.stored_column(p_tracked, p_condition->>'column');
  what := format('value for column %I', p_condition->>'column');
  if op like 'is %' then
    if value is not null then
      perform volvra.invalid_selection(format('%s takes no value', op));
    end if;
    return jsonb_build_object('column', p_condition->'column', 'op', op);
  end if;
  if strategy is not null and volvra.operator_of(c.type, strategy) is null then
    perform volvra.invalid_selection(format('column %I cannot be compared: type %s has no order', p_condition->>'column', format_type(c.type, -1)), 'is null, is not null and like do.');
  end if;
  if op = 'in' then
    if coalesce(jsonb_typeof(value), '') <> 'array' or jsonb_array_length(value) = 0 or jsonb_path_exists(value, 'strict $[*] ? (@.type() != "string" && @.type() != "number" && @.type() != "boolean")') then
      perform volvra.invalid_selection('in takes a list of one value or more', 'Null is asked for with is null.');
    end if;
    value := (select jsonb_agg(x order by i) from jsonb_array_elements_text(value) with ordinality u (x, i));
    for bad in select jsonb_array_elements_text(value) loop
      perform volvra.check_value(bad, c.type, what);
    end loop;
  else
    if coalesce(jsonb_typeof(value), 'null') not in ('string', 'number', 'boolean') then
      perform volvra.invalid_selection(format('%s takes one value', op), 'Values are texts, as in SQL literals; null is asked for with is null.');
    end if;
    value := to_jsonb(value #>> '{}');
    if op <> 'like' then
      perform volvra.check_value(value #>> '{}', c.type, what);
    end if;
  end if;
  return jsonb_build_object('column', p_condition->'column', 'op', op, 'value', value);
end $$;
comment on function volvra.check_where is 'Checks a condition of a selection against one table and returns it in its normal form.';

create function volvra.check_selection(p_selection jsonb, p_ended boolean default false) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s jsonb := p_selection;
  member text;
  kind text;
  x jsonb;
  tracked int[];
  id int;
begin
  if coalesce(jsonb_typeof(s), 'null') <> 'object' then
    perform volvra.invalid_selection('it is no JSON object', 'See volvra.check_selection.');
  end if;
  for member, x in select * from jsonb_each(s) loop
    kind := case when member in ('tables', 'keys', 'transactions', 'where') then 'array' when member in ('from', 'to', 'since', 'actor', 'role', 'application') then 'string'
                 when member = 'until_v' then 'number' when member = 'everything' then 'boolean' end;
    if kind is null then
      perform volvra.invalid_selection(format('unknown member %s', to_jsonb(member)),
        'Members are tables, keys, from, to, since, until_v, transactions, actor, role, application, where and everything.');
    elsif jsonb_typeof(x) <> kind then
      perform volvra.invalid_selection(format('%s must be of JSON type %s', member, kind), 'Leave out what does not matter.');
    elsif kind = 'array' and jsonb_array_length(x) = 0 then
      perform volvra.invalid_selection(format('%s is an empty list', member), 'Leave out what does not matter.');
    elsif member in ('tables', 'transactions') and jsonb_path_exists(x, 'strict $[*] ? (@.type() != "string")') then
      perform volvra.invalid_selection(format('%s must be a list of texts', member));
    end if;
  end loop;
  if s - array['until_v', 'everything'] = '{}' and coalesce(s->>'everything', 'false') <> 'true' then
    perform volvra.refuse('VO002', 'the selection is empty', 'Say which changes are meant, or "everything": true.');
  end if;

  if s ? 'tables' then
    select array_agg(distinct volvra.covered_table(name, p_ended) order by volvra.covered_table(name, p_ended)) into tracked from jsonb_array_elements_text(s->'tables') name;
    s := s || jsonb_build_object('tables', (select jsonb_agg(format('%I.%I', n.nspname, c.relname) order by t.id) from annals.tracked t
      join pg_class c on c.oid = t.relation join pg_namespace n on n.oid = c.relnamespace where t.id = any (tracked)));
  else
    select array_agg(t.id) into tracked from annals.tracked t where t.ended_v is null and 'volvra' = any (t.users) and exists (select from pg_class c where c.oid = t.relation);
  end if;
  if s ? 'keys' then
    if not s ? 'tables' or cardinality(tracked) <> 1 then
      perform volvra.invalid_selection('keys need exactly one table', 'Name the table whose keys they are.');
    end if;
    for x in select jsonb_array_elements(s->'keys') loop
      perform volvra.check_key(tracked[1], x);
    end loop;
  end if;

  begin
    -- In UTC, so that it means the same to every session.
    for member in select m from unnest(array['from', 'to']) m where s ? m loop
      s := jsonb_set(s, array[member], to_jsonb(case when isfinite((s->>member)::timestamptz) then to_char((s->>member)::timestamptz at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') else s->>member end));
    end loop;
  exception when others then
    perform volvra.invalid_selection(format('%s: %s', member, sqlerrm), 'It takes a time, such as 2024-05-01T12:00:00Z.');
  end;
  if (s->>'from')::timestamptz >= (s->>'to')::timestamptz then
    perform volvra.invalid_selection('from is not before to', 'Changes are selected when from <= the start of their transaction < to.');
  end if;
  if s ? 'since' then
    perform volvra.place_of(s->>'since');
  end if;
  if s ? 'until_v' and (s->>'until_v' !~ '^[0-9]{1,18}$') then
    perform volvra.invalid_selection('until_v is no position', 'It is a whole number that a preview returned.');
  end if;
  for member in select jsonb_array_elements_text(s->'transactions') loop
    if member !~ '^[0-9]{1,9}:[0-9]{1,18}$' then
      perform volvra.invalid_selection(format('%L is no transaction', member), 'Transactions are written <epoch>:<xid>, as volvra.transactions shows them.');
    end if;
  end loop;
  if s ? 'role' and not exists (select from pg_roles r where r.rolname = s->>'role') and not exists (select from annals.context c where c.login_name = s->>'role') then
    perform volvra.invalid_selection(format('there is and was no role %I', s->>'role'), 'Name the role that logged in, without quotes.');
  end if;
  if s ? 'where' then
    if tracked is null then
      perform volvra.invalid_selection('where names columns, but no table is covered', 'Cover tables with volvra.enable.');
    end if;
    foreach id in array tracked loop
      s := s || jsonb_build_object('where', (select jsonb_agg(volvra.check_where(id, c) order by i) from jsonb_array_elements(s->'where') with ordinality w (c, i)));
    end loop;
  end if;
  return s;
end $$;
comment on function volvra.check_selection is 'Checks a selection and returns it in its normal form. Members: tables (as in SQL, with schema), keys (of the one table: arrays of texts in the order of its key), from and to (start of the transaction), since (coordinate or mark:name), until_v, transactions (epoch:xid), actor, role (that logged in), application, where (column, op, value), everything (true, when nothing else narrows). All that are given must hold. Tables must be covered, or have been so when ended coverage is asked for as well.';

create function volvra.selected_histories(p_selection jsonb, p_ended boolean default false) returns setof int
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.id from annals.tracked t
  where case when p_ended then exists (select from volvra.coverage c where c.tracked = t.id)
             else t.ended_v is null and 'volvra' = any (t.users) and exists (select from pg_class c where c.oid = t.relation) end
    and (not p_selection ? 'tables' or t.relation in (select to_regclass(name) from jsonb_array_elements_text(p_selection->'tables') name))
  order by t.id
$$;
comment on function volvra.selected_histories is 'Histories of the tables that a checked selection is about: those that go on or, when asked for, ended ones as well.';

create function volvra.place_of(p_since text, out epoch int, out snapshot pg_snapshot, out xid xid8, out v bigint) returns record
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_since like 'mark:%' then
    select m.epoch, m.snapshot, m.xid, m.v into epoch, snapshot, xid, v from volvra.mark_place(substr(p_since, 6)) m;
  else
    snapshot := annals.coordinate_snapshot(p_since);
    select max(e.number) into epoch from annals.epoch e;
  end if;
end $$;
comment on function volvra.place_of is 'What a coordinate or mark:name sees: a snapshot of an epoch and, for a mark, of its own transaction the entries up to a position.';

create function volvra.unseen_condition(p_since text, p_alias text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('(%1$I.epoch > %2$s or %1$I.epoch = %2$s and not pg_catalog.pg_visible_in_snapshot(%1$I.xid, %3$L)%4$s)', p_alias, p.epoch, p.snapshot,
    case when p.xid is not null then format(' and not (%1$I.xid = %2$L and %1$I.v <= %3$s)', p_alias, p.xid, p.v) else '' end)
  from volvra.place_of(p_since) p
$$;
comment on function volvra.unseen_condition is 'SQL, on a row of a history''s view: it is not seen at a coordinate or mark.';

create function volvra.entry_condition(p_tracked int, p_selection jsonb, p_alias text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s jsonb := p_selection;
  a text := quote_ident(p_alias);
  parts text[] := '{}';
  part text;
begin
  if s ? 'keys' then
    -- One array for keys of one column, so that the index on the key finds them; otherwise alternatives.
    select case when cardinality(t.key) = 1 and y.typarray <> 0 and y.typcategory <> 'A' then format('%s.c%s %s any (%L::%s[])', a, t.key[1], annals.key_operator(t.id, 1),
                       (select array_agg(k->>0) from jsonb_array_elements(s->'keys') k), format_type(x.atttypid, -1))
                else '(' || (select string_agg((select string_agg(format('%s.c%s %s %s', a, u.n, annals.key_operator(t.id, u.i::int), annals.literal(k->>(u.i - 1)::int, y.atttypid)), ' and ' order by u.i)
                                                from unnest(t.key) with ordinality u (n, i)
                                                join pg_attribute y on y.attrelid = format('annals.h%s', t.id)::regclass and y.attname = format('c%s', u.n)), ' or ')
                             from jsonb_array_elements(s->'keys') k) || ')' end
      into part from annals.tracked t join pg_attribute x on x.attrelid = format('annals.h%s', t.id)::regclass and x.attname = format('c%s', t.key[1])
      join pg_type y on y.oid = x.atttypid where t.id = p_tracked;
    -- A change of key is a change of the row that had the old key. Its arrival at the new one says no more, and is none without that.
    parts := parts || format('%s and (%s.op <> ''n'' or not exists (select from volvra.key_change annals_move where annals_move.tracked = %s and annals_move.arrived_v = %s.v))', part, a, p_tracked, a);
  end if;
  if s ? 'from' then
    parts := parts || format('%s.at >= %L::timestamptz', a, s->>'from');
  end if;
  if s ? 'to' then
    parts := parts || format('%s.at < %L::timestamptz', a, s->>'to');
  end if;
  if s ? 'since' then
    parts := parts || volvra.unseen_condition(s->>'since', p_alias);
  end if;
  if s ? 'until_v' then
    parts := parts || format('%s.v <= %s::bigint', a, (s->>'until_v')::bigint);
  end if;
  if s ? 'transactions' then
    select '(' || string_agg(format('%s.epoch = %s and %s.xid = any (%L::xid8[])', a, epoch, a, xids), ' or ') || ')' into part
      from (select split_part(x, ':', 1)::int as epoch, array_agg(split_part(x, ':', 2)::xid8) as xids from jsonb_array_elements_text(s->'transactions') x group by 1) g;
    parts := parts || part;
  end if;
  if s ? 'role' then
    -- The role's OID, which nobody can forge; its name of that time where the role is gone.
    parts := parts || format('%s.login = any (%L::oid[])', a,
      (select coalesce(array_agg(o), '{}') from (select r.oid from pg_roles r where r.rolname = s->>'role'
        union select c.login from annals.context c where c.login_name = s->>'role' and not exists (select from pg_roles r where r.oid = c.login)) x (o)));
  end if;
  if s ? 'actor' or s ? 'application' then
    parts := parts || format('exists (select from annals.context annals_who where annals_who.hash = %1$s.ctx and annals_who.login = %1$s.login%2$s%3$s)', a,
      case when s ? 'actor' then format(' and annals_who.actor = %L', s->>'actor') end, case when s ? 'application' then format(' and annals_who.application = %L', s->>'application') end);
  end if;
  return coalesce('(' || nullif(array_to_string(parts, ' and '), '') || ')', 'true');
end $$;
comment on function volvra.entry_condition is 'SQL, on a row of a history''s view under an alias: what a checked selection says of changes, where apart.';

create function volvra.row_condition(p_tracked int, p_selection jsonb, p_alias text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  parts text[] := '{}';
  c jsonb;
  x record;
  col text;
begin
  for c in select jsonb_array_elements(p_selection->'where') loop
    select * into x from volvra.stored_column(p_tracked, c->>'column');
    col := format('%I.c%s', p_alias, x.n);
    parts := parts || case c->>'op'
      when 'is null' then format('%s is null', col)
      when 'is not null' then format('%s is not null', col)
      when 'like' then format('%s::text operator(pg_catalog.~~) %L::text', col, c->>'value')
      when 'in' then format('%s %s any (array[%s])', col, volvra.operator_of(x.type, 3), (select string_agg(annals.literal(v, x.type), ', ') from jsonb_array_elements_text(c->'value') v))
      when '<>' then format('not (%s %s %s)', col, volvra.operator_of(x.type, 3), annals.literal(c->>'value', x.type))
      else format('%s %s %s', col, volvra.operator_of(x.type, case c->>'op' when '<' then 1 when '<=' then 2 when '=' then 3 when '>=' then 4 when '>' then 5 end), annals.literal(c->>'value', x.type)) end;
  end loop;
  return '(' || nullif(array_to_string(parts, ' and '), '') || ')';
end $$;
comment on function volvra.row_condition is 'SQL, on columns c<n> under an alias: the where of a checked selection; null when it has none. A change is selected when that holds for its row before or after it.';

create function volvra.selection_bound(p_tracked int, p_selection jsonb) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Every entry that the selection selects has a higher position. Ticks tell: what began, or got its transaction id, after a tick was
  -- taken has a higher position than the tick. The minute is for clocks that are set back a little.
  select greatest(0,
    (select max(k.v) from annals.tick k where k.at <= (p_selection->>'from')::timestamptz - interval '1 minute'),
    (select max(k.v) from annals.tick k, volvra.place_of(p_selection->>'since') p where p_selection ? 'since' and k.epoch = p.epoch and k.upper_xid <= pg_snapshot_xmin(p.snapshot)),
    (select min((select coalesce(max(k.v), 0) from annals.tick k where k.epoch = split_part(x, ':', 1)::int and k.upper_xid <= split_part(x, ':', 2)::xid8))
     from jsonb_array_elements_text(p_selection->'transactions') x))
$$;
comment on function volvra.selection_bound is 'A position below all changes that a checked selection can select; 0 when none is known.';
