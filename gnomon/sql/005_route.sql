-- The views through which the past of tables is read. They have the names and columns of the tables, and settings say which place they show
-- (see gnomon.at): so any SQL runs on the past with its names unchanged.
--
-- A row's state is the old image of its earliest entry that the place does not see, else today's row. So a view is the union of today's
-- rows and all entries, less what the place sees, less what an earlier entry stands before. Written like that, with every condition
-- above the union, PostgreSQL pushes conditions, joins and orders down to the indexes of the table and of its history.
--
-- The views must not depend on the tables: no ALTER or DROP of a user's may fail because of history. So today's rows come from functions
-- whose text PostgreSQL puts in their place when it plans, and which read as the caller: rights to the table and its row-level security
-- hold. Entries are read with the rights of the views' owner, after a check that the caller may read the table.

create function gnomon.column_gone(p_table text, p_column text, p_row text) returns text
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN003', format('the values of column %I of %s were lost when it was dropped, except of rows that changed before that', p_column, p_table),
    'Read the other columns. What is to be dropped can be saved: annals.materialize() in the same transaction saves every row.', jsonb_build_object('table', p_table, 'column', p_column));
  return null;
end $$;
comment on function gnomon.column_gone is 'Refuses to make up the value of a dropped column.';

create function gnomon.is_behind(p_tracked int) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select not annals.follows_ddl() and exists (select from annals.drift(p_tracked)) $$;
comment on function gnomon.is_behind is 'Whether a table was changed and nothing has followed.';

create function gnomon.refuse_read(p_tracked int, p_guarded boolean) returns boolean
language plpgsql stable parallel restricted set search_path = pg_catalog, pg_temp as $$
declare
  t record; -- readers need no rights to schema annals
  ref text := nullif(current_setting('gnomon.place', true), '');
begin
  if gnomon.tracked_row(p_tracked) is null then
    perform gnomon.refuse('GN008', format('history %s began later than what this transaction sees', p_tracked), 'Read in another transaction.');
  end if;
  t := gnomon.tracked_row(p_tracked);
  if not has_table_privilege(t.relation, 'select') then
    perform gnomon.refuse('42501', format('permission denied for the past of %s', t.relation), 'It takes SELECT on the table.', jsonb_build_object('table', t.relation::text));
  end if;
  -- On a branch the view for branches comes first, where there is one.
  if coalesce(current_setting('gnomon.branch', true), '') <> '' then
    perform gnomon.refuse('GN020', format('%s is not there on a branch: it is no longer tracked, or has another key than what branches changed of it', t.relation), 'Track it and make another branch, or write its name with its schema to read it on main.', jsonb_build_object('table', t.relation::text, 'reason', 'untracked'));
  end if;
  if row_security_active(t.relation) <> p_guarded then
    perform gnomon.refuse('GN008', format('row-level security of %s holds for another role than the one for which the past was opened, or has changed', t.relation), 'Call gnomon.at again.', jsonb_build_object('table', t.relation::text));
  end if;
  if ref is null then
    perform gnomon.refuse('GN011', format('%s is read as it was, but no place in the past is set', t.relation), 'Set one with gnomon.at.', jsonb_build_object('table', t.relation::text));
  end if;
  perform gnomon.history_at(t.relation, gnomon.place_of(ref));
  if gnomon.is_behind(p_tracked) then
    perform gnomon.refuse('GN008', format('%s was changed, and its history has not followed', t.relation), format('Call gnomon.sync(%L).', t.relation), jsonb_build_object('table', t.relation::text));
  end if;
  perform gnomon.refuse('GN008', format('the history of %s has changed since the past was opened', t.relation), 'Call gnomon.at again. In a REPEATABLE READ transaction that takes another transaction.', jsonb_build_object('table', t.relation::text));
  return false;
end $$;
comment on function gnomon.refuse_read is 'Says why the past of a table is not readable here.';

create function gnomon.table_stamp(p_tracked int) returns text
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  c record;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select k.oid, k.relname, n.nspname into c from pg_class k join pg_namespace n on n.oid = k.relnamespace where k.oid = t.relation;
  -- What annals.drift looks at, as far as it makes a difference here. Two stamps of a table that capture does not fit are never the same.
  if c.oid is null or c.relname <> t.table_name or c.nspname <> t.schema_name
     or exists (select from annals.leaves(c.oid) l where l.kind <> 'f' and not exists (select from annals.tracked_relation r where r.tracked = p_tracked and r.relation = l.relid))
     or exists (select from annals.leaves(c.oid) l join pg_trigger g on g.tgrelid = l.relid where g.tgname like 'annals\_%' and g.tgenabled not in ('O', 'A'))
     or exists (select from annals.tracked_relation r cross join lateral annals.stored(r.relation) now (now)
                where r.tracked = p_tracked and r.leaf and split_part(r.stored, '/', 1) <> split_part(now.now, '/', 1) and split_part(r.stored, '/', 2) <> split_part(now.now, '/', 2)) then
    return clock_timestamp();
  end if;
  return md5(concat_ws('/', annals.key_index(c.oid),
    (select string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated), ',' order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
    (select string_agg(concat_ws(' ', l.relid, g.tgname), ',' order by l.relid, g.tgname) from annals.leaves(c.oid) l left join pg_trigger g on g.tgrelid = l.relid and g.tgname like 'annals\_%')));
end $$;
comment on function gnomon.table_stamp is 'Changes when a table is changed in a way that capture has to follow.';

create function gnomon.tracked_row(p_tracked int) returns annals.tracked
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select t from annals.tracked t where t.id = p_tracked $$;
comment on function gnomon.tracked_row is 'What is known of a history, for those who may not read the table of histories.';

create type gnomon.past_column as (n int, name name, type text, "collate" text, source text, is_key boolean);
comment on type gnomon.past_column is 'A column of a view of the past.';
comment on column gnomon.past_column.n is 'Number of the column.';
comment on column gnomon.past_column.name is 'Its present or last name.';
comment on column gnomon.past_column.type is 'Its type in the view.';
comment on column gnomon.past_column.collate is 'COLLATE clause, where it takes one.';
comment on column gnomon.past_column.source is 'SQL for its value in today''s row, under the alias t; null when that does not hold it.';
comment on column gnomon.past_column.is_key is 'Part of the key.';

create function gnomon.shapes(p_tracked int) returns table (number int, since xid8, present boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- Each change of the columns begins a segment; what is of an earlier epoch is seen by all.
  return query select s.number, case when before.epoch = s.epoch then before.closed_by when before.number is null and s.number > 1 and (select t.pruned_columns <> s.columns from annals.tracked t where t.id = p_tracked) then s.opened_by end, lead(s.number) over (order by s.number) is null
  from annals.segment s
  left join lateral (select g.* from annals.segment g where g.tracked = s.tracked and g.number < s.number order by g.number desc limit 1) before on true
  where s.tracked = p_tracked and s.epoch = (select max(e.number) from annals.epoch e) and (before.number is null or before.epoch <> s.epoch or before.columns <> s.columns)
    -- What lacks columns of the key is of before the history was interrupted.
    and (select t.key <@ s.columns from annals.tracked t where t.id = p_tracked);
end $$;
comment on function gnomon.shapes is 'The sets of columns that a table had: the first segment of each, and the transaction that began it (null: seen by all).';

create function gnomon.past_columns(p_tracked int, p_shape int) returns setof gnomon.past_column
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- In the order of the table; those that are gone come last.
  -- A name may have been taken again: it is that of the column that is there, else of the one that went last.
  return query select c.n, case when row_number() over (partition by c.name order by c.gone_v desc nulls first, c.n desc) = 1 then c.name else format('%s (%s)', left(c.name, 40), c.n)::name end,
         v.name, v."collate", case when a.attnum is not null then format('t.%I%s', a.attname, case when a.atttypid <> v.type then '::' || v.name else '' end) end, c.n = any (t.key)
  from annals.tracked t join annals.segment s on s.tracked = t.id and s.number = p_shape
  join annals.tracked_column c on c.tracked = t.id and c.n = any (s.columns) join annals.view_columns(t.id) v on v.n = c.n
  left join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum and not a.attisdropped and c.gone_v is null and t.ended_v is null
  where t.id = p_tracked
  order by a.attnum nulls last, c.n;
end $$;
comment on function gnomon.past_columns is 'Columns that are stored of a table with a shape.';

create function gnomon.computed(p_tracked int) returns table (name name, type text, expression text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)
  from annals.tracked t join pg_attribute a on a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped and a.attgenerated <> '' join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and c.attnum = a.attnum
  where t.id = p_tracked and c.n <> all (t.key) and not c.excluded order by a.attnum;
end $$;
comment on function gnomon.computed is 'Generated columns of a table: history does not hold them, they are computed again.';

create function gnomon.former_columns(p_tracked int, p_shape int, p_era bigint) returns table (n int, name name, former name)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.n, c.name, case when row_number() over (partition by c.former order by c.n) = 1 then c.former else format('%s (%s)', left(c.former, 40), c.n)::name end
  from (
    select x.n, x.name, coalesce((select f.name from annals.former_name f where f.tracked = p_tracked and f.n = x.n and f.v >= p_era order by f.v limit 1), k.name) as former
    from (select c.n, c.name from gnomon.past_columns(p_tracked, p_shape) c
          union select k.n, k.name from gnomon.computed(p_tracked) g join annals.tracked_column k on k.tracked = p_tracked and k.name = g.name and k.gone_v is null) x
    join annals.tracked_column k on k.tracked = p_tracked and k.n = x.n) c
$$;
comment on function gnomon.former_columns is 'Columns of a shape, generated ones too, with the names that they had before a position.';

create function gnomon.era_at(p_tracked int, p gnomon.place) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select min(f.v) from annals.former_name f where f.tracked = p_tracked and f.epoch = p.epoch and not pg_visible_in_snapshot(f.xid, p.snapshot) $$;
comment on function gnomon.era_at is 'Position before which columns had the names that they have at a place; null when those are their present ones.';

create function gnomon.lacking(p_tracked int, p_numbers int[], p_shape int) returns setof int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select distinct c.n from gnomon.past_columns(p_tracked, p_shape) c join annals.segment s on s.tracked = p_tracked and s.number = any (p_numbers)
    where not c.is_key and (c.n = any (s.wide) or c.n <> all (s.columns)) order by 1;
end $$;
comment on function gnomon.lacking is 'Columns of a shape that entries of segments may lack.';

create function gnomon.entry_arms(p_tracked int, p_numbers int[], p_shape int, p_nests boolean, p_more text default '') returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Every segment as it is, without a condition: only so PostgreSQL takes the parts of a union for tables.
  select string_agg(format('select %s, h.v, h.xid, h.op%s%s%s from %s h',
      (select string_agg(case when c.n <> all (s.columns) then format('null::%s%s as c%s', c.type, c."collate", c.n)
                              when format_type(a.atttypid, a.atttypmod) <> c.type and format_type(a.atttypid, -1) <> c.type then format('h.c%s::%s%s as c%1$s', c.n, c.type, c."collate")
                              else format('h.c%s', c.n) end, ', ' order by c.n)
       from gnomon.past_columns(p_tracked, p_shape) c left join pg_attribute a on a.attrelid = s.relation and a.attname = format('c%s', c.n) and not a.attisdropped),
      case when p_nests then case when s.nests then ', coalesce(h.start, h.v) as start' else ', h.v as start' end else '' end,
      -- What an entry lacks: it did not change, or its column was gone already.
      (select coalesce(string_agg(case when u.n <> all (s.columns) then format(', true as lacks%s', u.n) when u.n = any (s.wide) then format(', (h.missing & %s) <> 0 as lacks%s', 1::bigint << (array_position(s.wide, u.n) - 1), u.n) else format(', false as lacks%s', u.n) end, '' order by u.n), '')
       from gnomon.lacking(p_tracked, p_numbers, p_shape) u (n)),
      p_more, s.relation), E'\n    union all ' order by s.number)
  from annals.segment s where s.tracked = p_tracked and s.number = any (p_numbers)
$$;
comment on function gnomon.entry_arms is 'SQL for the entries of segments, with the columns of a shape.';

create function gnomon.key_equals(p_tracked int, p_left text, p_right text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select string_agg(format('%s.c%s %s %s.c%2$s', p_left, u.n, annals.key_operator(t.id, u.i::int), p_right), ' and ' order by u.i) from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked
$$;
comment on function gnomon.key_equals is 'SQL that compares the keys of two rows with columns c<n>.';

create function gnomon.today_of(p_tracked int, p_shape int) returns text
language sql stable set search_path = pg_catalog, pg_temp
as $$ select format('gnomon.h%s_%s_%s_today()', p_tracked, p_shape, h.generation) from gnomon.history h where h.tracked = p_tracked $$;
comment on function gnomon.today_of is 'SQL for today''s rows with the columns of a shape, see gnomon.write_today.';

create function gnomon.write_today(p_tracked int, p_shape int) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  name text := format('gnomon.h%s_%s_%s_today', p_tracked, p_shape, (select h.generation from gnomon.history h where h.tracked = p_tracked));
  columns record;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select string_agg(format('c%s %s', c.n, c.type), ', ' order by c.n) as list,
         string_agg(coalesce(c.source, 'null::' || c.type), ', ' order by c.n) as values
    into columns from gnomon.past_columns(p_tracked, p_shape) c;
  execute format('create function %s() returns table (%s) language sql stable parallel safe rows %s as %L', name, columns.list,
    greatest((select c.reltuples from pg_class c where c.oid = t.relation), 1)::bigint,
    format('select %s from %s%s t', columns.values, case when t.partitioned then '' else 'only ' end, t.relation));
  execute format('comment on function %s is %L', name, format('Today''s rows of %s, read as the caller.', t.relation));
  execute format('grant execute on function %s to public', name);
  return name;
end $$;
comment on function gnomon.write_today is 'Writes the function that reads today''s rows with the columns of a shape; returns its name.';

create function gnomon.gone_value(p_tracked int, c gnomon.past_column) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('gnomon.column_gone(%L, %L, u.c%s::text)::%s%s', t.relation, c.name, t.key[1], c.type, c."collate") from annals.tracked t where t.id = p_tracked
$$;
comment on function gnomon.gone_value is 'SQL that refuses to give a value which was lost with its column. It stands above all joins, so that it is reached for rows only whose value is asked for.';

create function gnomon.kept_value(p_tracked int, p_shape int, c gnomon.past_column, p_arms text, p_base text, p_seen text, p_nests boolean, p_lacks int[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- It is that of the next entry which holds it, else that of the base.
  select format('(select %7$s from (select x.*, min(x.v) over (partition by x.xid) as first from (select h.*, h.xid <> u.xid as later from (%2$s) h where %3$s and (h.v > u.v or h.xid = u.xid)%4$s) x) y where y.op in (''u'', ''d'', ''t'', ''U'', ''D'', ''T'') and (y.later is not false or %5$s) and y.lacks%1$s is not true order by y.later, y.first, %6$sy.v limit 1)',
    c.n, concat_ws(E'\n    union all ', p_arms, format('select %s, 9223372036854775807::bigint, null::xid8, ''u''::"char"%s%s%s',
        (select string_agg(case when b.is_key then format('%s.c%s%s', case when p_base is null then 'u' else 't' end, b.n, b."collate") when b.n <> c.n or p_base is null then format('null::%s%s', b.type, b."collate") else format('t.c%s%s', b.n, b."collate") end, ', ' order by b.n)
         from gnomon.past_columns(p_tracked, p_shape) b),
        case when p_nests then ', 9223372036854775807::bigint' else '' end, (select coalesce(string_agg(', false', ''), '') from unnest(p_lacks)), ' from ' || p_base || ' t')),
    gnomon.key_equals(p_tracked, 'h', 'u'), p_seen, case when p_nests then '(y.start, y.v) > (u.start, u.v)' else 'y.v > u.v' end, case when p_nests then 'y.start, ' else '' end,
    case when c.source is null or p_base is null then format('case when y.v = 9223372036854775807 then %s else y.c%s end', gnomon.gone_value(p_tracked, c), c.n) else format('y.c%s', c.n) end)
$$;
comment on function gnomon.kept_value is 'SQL for the value of a column that an entry u lacks: because it did not change, or because the column was gone.';

create function gnomon.view_query(p_route int, p_tracked int, p_shape int, p_numbers int[], p_base text, p_checkpoint int, p_guarded boolean, p_branch boolean default false, p_inner boolean default false) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  k gnomon.checkpoint;
  lacks int[] := array(select l from gnomon.lacking(p_tracked, p_numbers, p_shape) l);
  -- Positions alone order the entries of one transaction, unless triggers nest.
  nests boolean := (select bool_or(s.nests) from annals.segment s where s.tracked = p_tracked and s.number = any (p_numbers));
  arms text := gnomon.entry_arms(p_tracked, p_numbers, p_shape, nests);
  base text;
  unseen text := '%1$s.v > (select current_setting(''gnomon.bound'', true)::bigint) and pg_visible_in_snapshot(%1$s.xid, (select current_setting(''gnomon.snapshot'', true)::pg_snapshot)) is not true';
  -- What is of a branch: its rows stand beside those of its base, and before them.
  here text := 'nullif(current_setting(''gnomon.branch'', true), '''')::int';
  own text := '';
  earlier text := 'h.v < u.v';
  seen text := '';
  entries text := arms;
  more text := '';
  gate text;
  col gnomon.past_column;
  whens text;
  columns text;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  if p_checkpoint is not null then
    select * into k from gnomon.checkpoint x where x.id = p_checkpoint;
    -- Of entries only those that the checkpoint may see. Its rows stand after all of them, as today's do.
    entries := gnomon.entry_arms(p_tracked, p_numbers, p_shape, nests, ', h.v as w');
    more := format(', %s::bigint as w', k.top_v);
    seen := format('%%1$s.%%2$s <= %s and pg_visible_in_snapshot(%%1$s.xid, %L) is not false and ', k.top_v, k.snapshot);
  end if;
  if nests then
    earlier := 'case when h.xid = u.xid then (h.start, case h.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, h.v) < (u.start, case u.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, u.v) else h.v < u.v end';
  end if;
  if p_branch then
    if p_inner then
      here := '$1';
      unseen := '%1$s.v > $2 and pg_visible_in_snapshot(%1$s.xid, $3) is not true';
    elsif p_guarded then
      -- For those who may read nothing but branches: a setting could be changed within the query, so it is looked at once.
      here := '(select x.id from usable x)';
      unseen := '%1$s.v > (select x.bound from usable x) and pg_visible_in_snapshot(%1$s.xid, (select x.snapshot from usable x)) is not true';
    end if;
    earlier := replace(earlier, 'h.v < u.v', 'h.v < u.w');
    entries := gnomon.entry_arms(p_tracked, p_numbers, p_shape, nests, ', h.v as w, ' || here || ' as br');
    more := format(', 9223372036854775807::bigint as w, %s as br', here);
    own := (select format(E' and u.br = %1$s and not exists (select from gnomon.o%2$s o where o.branch = %1$s and %3$s and u.w > 0)', here, p_tracked,
      string_agg(format('o.k%s %s u.c%s', x.n, annals.key_operator(p_tracked, x.i::int), x.n), ' and ' order by x.i)) from unnest(t.key) with ordinality x (n, i));
    entries := concat_ws(E'\n    union all ', entries, (select format('select %s, 9223372036854775807::bigint as v, null::xid8 as xid, case when o.alive then ''u''::"char" else ''i''::"char" end as op%s%s, 0::bigint as w, o.branch as br from gnomon.o%s o',
      string_agg(format('o.%s%s%s', case when c.is_key then 'k' else 'c' end, c.n, c."collate") || ' as c' || c.n, ', ' order by c.n),
      case when nests then ', null::bigint as start' else '' end, (select coalesce(string_agg(format(', false as lacks%s', l), '' order by l), '') from unnest(lacks) l), p_tracked) from gnomon.past_columns(p_tracked, p_shape) c));
  end if;
  base := (select format('select %s, 9223372036854775807::bigint as v, null::xid8 as xid, ''u''::"char" as op%s%s%s from %s t', string_agg(format('t.c%s%s', c.n, c."collate") || case when c."collate" <> '' then ' as c' || c.n else '' end, ', ' order by c.n),
      case when nests then ', null::bigint as start' else '' end, (select coalesce(string_agg(format(', false as lacks%s', l), '' order by l), '') from unnest(lacks) l), more, p_base) from gnomon.past_columns(p_tracked, p_shape) c);
  -- The one check: the place is one that this history tells by this view, and the caller may read the table.
  -- A transaction that sees an earlier state of the database may not see that there is such a history.
  gate := format('(select case when strpos(coalesce(current_setting(''gnomon.checked'', true), ''''), concat('' %2$s:'', (select x.version from annals.tracked x where x.id = %1$s), '' '')) > 0 and has_table_privilege(%3$s::oid, ''select'') and row_security_active(%3$s::oid) = %4$s%5$s then true else gnomon.refuse_read(%1$s, %4$s) end)',
    p_tracked, p_route, t.relation::oid, p_guarded::text,
    -- Where nothing follows changes of the table by itself, they are noticed here.
    case when not annals.follows_ddl() and t.ended_v is null then format(' and gnomon.table_stamp(%s) = %L', p_tracked, gnomon.table_stamp(p_tracked)) else '' end);
  if p_branch then
    gate := format('(select case when %5$s and strpos(coalesce(current_setting(''gnomon.checked'', true), ''''), concat('' %2$s:'', (select x.version from annals.tracked x where x.id = %1$s), '' '')) > 0 and (has_table_privilege(%3$s::oid, ''select'')%4$s) and not row_security_active(%3$s::oid) then true else gnomon.%6$s(%1$s) end)',
      p_tracked, p_route, t.relation::oid, case when p_guarded then format(' or exists (select from gnomon.lent x where x.tracked = %s)', p_tracked) else '' end,
      case when p_guarded then 'exists (select from usable)' else format('exists (select from gnomon.branch b where b.id = %s and strpos(coalesce(current_setting(''gnomon.checked'', true), ''''), concat('' b'', b.id, ''.'', b.base, '' '')) > 0)', here) end,
      case when p_guarded then 'refuse_loan' else 'refuse_branch' end);
  end if;
  if p_inner then
    gate := 'true';
  end if;
  for col in select x.* from gnomon.past_columns(p_tracked, p_shape) x loop
    -- A checkpoint holds what its table had.
    col.source := case when p_checkpoint is not null then format('t.c%s', col.n) else col.source end;
    whens := concat(case when col.source is null and p_base is not null then ' when u.v = 9223372036854775807 then ' || gnomon.gone_value(p_tracked, col) end,
      case when col.n = any (lacks) then format(' when u.lacks%s then %s', col.n, gnomon.kept_value(p_tracked, p_shape, col, arms, case when col.source is not null then p_base end, case when k.id is not null then format(' and pg_visible_in_snapshot(h.xid, %L) is not false', k.snapshot) else '' end, nests, lacks)) end);
    columns := concat_ws(', ', columns, format('%s as %I', case when whens = '' then format('u.c%s', col.n) else format('case%s else u.c%s end', whens, col.n) end, case when p_inner then format('c%s', col.n) else col.name end));
  end loop;
  return case when p_branch and p_guarded and not p_inner then E'with usable as materialized (select * from gnomon.usable)\n  ' else '' end || format(E'select %s from (\n    %s) u\n  where %s\n    and u.op not in (''i'', ''n'', ''m'') and %s\n    and not exists (select from (\n    %s) h where %s and %s and %s)%s%s',
    columns, concat_ws(E'\n    union all ', case when p_base is not null then base end, entries), gate, format(seen || unseen, 'u', 'w'), arms, gnomon.key_equals(p_tracked, 'h', 'u'), earlier, format(seen || unseen, 'h', 'v'), own,
    case when p_guarded and not p_branch then (select format(E'\n    and case when u.v = 9223372036854775807 then true else annals.h%s_visible(%s) end', p_tracked, string_agg(format('u.c%s', n), ', ' order by i)) from unnest(annals.policy_columns(p_tracked)) with ordinality x (n, i)) else '' end);
end $$;
comment on function gnomon.view_query is 'SQL for the rows of a table at the place that is set: from today''s rows or those of a checkpoint (p_base), and the entries of segments. With p_inner it checks nothing, has columns c<n>, and takes number, bound and snapshot of a branch as $1, $2 and $3.';

create function gnomon.drop_view(p_schema name, p_name name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = p_schema and c.relname = p_name and c.relkind = 'v') then
    -- With what somebody made of it while he read the past: capture must be able to follow changes of the table.
    execute format('drop view %I.%I cascade', p_schema, p_name);
  end if;
end $$;
comment on function gnomon.drop_view is 'Drops a view, if there is one.';

create function gnomon.drop_route(p_schema name, p_view name) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  before text := current_setting('lock_timeout');
begin
  -- Who reads the view may be waiting for the table that a command holds which waits here. So it is not waited for: nobody else finds the
  -- view any more, and it goes the next time.
  perform set_config('lock_timeout', '20ms', true);
  perform gnomon.drop_view(p_schema, p_view);
  if p_schema <> 'gnomon' and p_schema !~ '^gnomon_(past|branch)_[0-9]+$' then
    execute format('drop schema %I', p_schema);
  end if;
  perform set_config('lock_timeout', before, true);
  return true;
exception when lock_not_available then
  return false;
end $$;
comment on function gnomon.drop_route is 'Drops a view of the past, with a schema of its own; false when somebody is reading it.';

create function gnomon.drop_routes(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r gnomon.route;
  c record;
  f regprocedure;
begin
  for r in select * from gnomon.route x where x.tracked = p_tracked order by x.id loop
    if gnomon.drop_route(r.schema_name, r.view_name) then
      delete from gnomon.route x where x.id = r.id;
    else
      update gnomon.route x set kind = 'old', checkpoint = null where x.id = r.id;
    end if;
  end loop;
  for c in select x.relname from pg_class x where x.relnamespace = 'gnomon'::regnamespace and x.relname ~ format('^h%s_[0-9]+_(entries|changed)$', p_tracked) loop
    perform gnomon.drop_route('gnomon', c.relname);
  end loop;
  for f in select p.oid from pg_proc p where p.pronamespace = 'gnomon'::regnamespace and p.proname ~ format('^h%s_([0-9]+_[0-9]+_today|rows|put|act|judge|derive|(lent_)?(coerce|check)|number|[0-9]+_default_[0-9]+(_lent)?)$', p_tracked)
             and not exists (select from pg_depend d where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid and d.deptype = 'n') loop
    execute format('drop function %s', f);
  end loop;
end $$;
comment on function gnomon.drop_routes is 'Drops the views through which the past of a table is read, but for those that are being read.';

create function gnomon.mirror_rights(p_table oid, p_view text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r record;
begin
  -- The check within the view is made when a query runs. Before that, while it is planned, operators of a user's own are called with values out of
  -- statistics: so who may not read the table may not even name the view. And where row-level security may restrict somebody, it is a
  -- security barrier, over which statistics are not looked at.
  for r in
    select coalesce(w.role, h.role) as role, coalesce(w.privilege, h.privilege) as privilege, w.role is not null as wanted
    from (select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end as role, a.privilege_type as privilege
          from pg_class c cross join aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
          -- Only branches are written.
          where c.oid = p_table and (a.privilege_type = 'SELECT' or a.privilege_type in ('INSERT', 'UPDATE', 'DELETE') and exists (select from gnomon.route x where x.kind = 'branch' and format('%I.%I', x.schema_name, x.view_name) = p_view))
            and a.grantee <> (select v.relowner from pg_class v where v.oid = p_view::regclass)) w
    full join (select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end as role, a.privilege_type as privilege from pg_class c cross join aclexplode(c.relacl) a
               where c.oid = p_view::regclass and a.grantee <> c.relowner) h on h.role = w.role and h.privilege = w.privilege
    where w.role is null or h.role is null
  loop
    execute format(case when r.wanted then 'grant %s on %s to %s' else 'revoke %s on %s from %s' end, r.privilege, p_view, r.role);
  end loop;
end $$;
comment on function gnomon.mirror_rights is 'Lets those read a view of the past who may read the table, and nobody else.';

create function gnomon.follow_rights(p_tracked int default null) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select gnomon.mirror_rights(t.relation, v.view)
  from annals.tracked t
  cross join lateral (select format('%I.%I', r.schema_name, r.view_name) as view from gnomon.route r where r.tracked = t.id and (r.kind <> 'branch' or not r.guarded)
                      union all select x.oid::regclass::text from gnomon.history h join pg_class x on x.relnamespace = 'gnomon'::regnamespace and x.relname in (format('h%s_%s_entries', t.id, h.generation), format('h%s_overlay', t.id), format('h%s_%s_changed', t.id, h.generation)) where h.tracked = t.id) v
  where (p_tracked is null or t.id = p_tracked) and exists (select from pg_class c where c.oid = t.relation) and to_regclass(v.view) is not null
$$;
comment on function gnomon.follow_rights is 'Lets those read the past of tables, or of one, who may read the tables now. An event trigger does that, where it could be created.';

create function gnomon.make_schema(p_name name, p_comment text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if to_regnamespace(quote_ident(p_name)) is null then
    execute format('create schema %I', p_name);
    perform annals.close_schema(p_name);
    execute format('grant usage on schema %I to public', p_name);
    execute format('comment on schema %I is %L', p_name, p_comment);
  end if;
end $$;
comment on function gnomon.make_schema is 'Makes a schema for views of the past, unless there is one.';

create function gnomon.write_route(p_tracked int, p_kind text, p_shape int, p_numbers int[], p_base text, p_checkpoint int, p_guarded boolean, p_era bigint default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  r gnomon.route;
  query text;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  insert into gnomon.route (tracked, kind, guarded, shape, checkpoint, era, after_v, schema_name, view_name)
    values (p_tracked, case when p_era is null then p_kind else 'named' end, p_guarded, p_shape, p_checkpoint, p_era,
            coalesce((select max(s.last_v) from annals.segment s where s.tracked = p_tracked and s.number <> all (p_numbers) and s.number >= p_shape and s.epoch = (select max(e.number) from annals.epoch e)), 0),
            '', t.table_name) returning * into r;
  if p_kind = 'present' and not p_guarded and p_era is null then
    r.schema_name := format('gnomon_past_%s', (select s.id from gnomon.source s where s.schema_name = t.schema_name));
    perform gnomon.make_schema(r.schema_name, format('The past of schema %I, at the place that gnomon.at set.', t.schema_name));
    -- One of that name may be left: of a table that is gone, or since it is being read.
    if gnomon.drop_route(r.schema_name, r.view_name) then
      delete from gnomon.route x where x.schema_name = r.schema_name and x.view_name = r.view_name;
    else
      r.schema_name := '';
    end if;
  end if;
  if p_kind = 'branch' and not p_guarded then
    r.schema_name := format('gnomon_branch_%s', (select s.id from gnomon.source s where s.schema_name = t.schema_name));
    perform gnomon.make_schema(r.schema_name, format('Schema %I on the branch that gnomon.use chose.', t.schema_name));
    if gnomon.drop_route(r.schema_name, r.view_name) then
      delete from gnomon.route x where x.schema_name = r.schema_name and x.view_name = r.view_name;
    else
      r.schema_name := '';
    end if;
  end if;
  if r.schema_name = '' then
    r.schema_name := format('gnomon_%s_%s', p_tracked, r.id);
    perform gnomon.make_schema(r.schema_name, format('The past of %I.%I, %s.', t.schema_name, t.table_name, case r.kind when 'branch' then 'on a branch' when 'named' then 'under former names' when 'present' then 'for readers whom row-level security restricts' when 'recent' then 'not long ago' when 'shape' then 'with columns as they were' else 'from a checkpoint' end));
  end if;
  update gnomon.route x set schema_name = r.schema_name where x.id = r.id;
  query := gnomon.view_query(r.id, p_tracked, p_shape, p_numbers, p_base, p_checkpoint, p_guarded, p_kind = 'branch');
  if p_kind <> 'shape' and exists (select from gnomon.computed(p_tracked)) then
    query := format('select %s from (%s) as %I', (
      select string_agg(case when x.name is not null then format('(%s)::%s as %I', x.expression, x.type, x.name) else format('%I.%I', t.table_name, c.name) end, ', ' order by a.attnum)
      from pg_attribute a left join gnomon.computed(p_tracked) x on x.name = a.attname left join gnomon.past_columns(p_tracked, p_shape) c on c.name = a.attname
      where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped and (x.name is not null or c.name is not null)), query, t.table_name);
  end if;
  if p_era is not null then
    query := format('select %s from (%s) as %I', (select string_agg(format('%I.%I as %I', t.table_name, a.attname, coalesce(f.former, a.attname)), ', ' order by a.attnum)
      from pg_attribute a left join gnomon.former_columns(p_tracked, p_shape, p_era) f on f.name = a.attname
      where a.attrelid = (select format('%I.%I', x.schema_name, x.view_name)::regclass from gnomon.route x where x.tracked = p_tracked and x.kind = p_kind and x.shape = p_shape and x.guarded = p_guarded and x.era is null order by x.id limit 1) and a.attnum > 0), query, t.table_name);
  end if;
  execute format('create view %I.%I%s as %s', r.schema_name, r.view_name, case when p_kind = 'branch' and p_guarded or (select c.relrowsecurity from pg_class c where c.oid = t.relation) then ' with (security_barrier = true)' else '' end, query);
  execute format('comment on view %I.%I is %L', r.schema_name, r.view_name, format('%I.%I at the place that gnomon.at set.', t.schema_name, t.table_name));
  if p_kind <> 'branch' or not p_guarded then
    perform gnomon.mirror_rights(t.relation, format('%I.%I', r.schema_name, r.view_name));
  end if;
  if p_kind = 'branch' then
    perform gnomon.write_branch_triggers(p_tracked, format('%I.%I', r.schema_name, r.view_name));
  end if;
end $$;
comment on function gnomon.write_route is 'Writes a view of the past of a table.';

create function gnomon.write_routes(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  s record;
  k gnomon.checkpoint;
  former bigint;
  numbers int[];
  recent int[];
  base text;
  guarded boolean;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  perform gnomon.drop_routes(p_tracked);
  -- Whoever has planned with the views of before, and not begun to read yet, then sees another version.
  update annals.tracked x set version = default where x.id = p_tracked;
  if not exists (select from pg_class c where c.oid = t.relation) then
    return;
  end if;
  guarded := (select c.relrowsecurity from pg_class c where c.oid = t.relation);
  update gnomon.history h set generation = default, segment = coalesce((select max(g.number) from annals.segment g where g.tracked = p_tracked), 0) where h.tracked = p_tracked;
  insert into gnomon.source (schema_name) values (t.schema_name) on conflict (schema_name) do nothing;
  for s in select * from gnomon.shapes(p_tracked) loop
    select array_agg(g.number order by g.number) into numbers from annals.segment g where g.tracked = p_tracked and g.number >= s.number and g.epoch = (select max(e.number) from annals.epoch e);
    -- What ended saved all rows at last; today's came later.
    base := case when t.ended_v is null then gnomon.write_today(p_tracked, s.number) || '()' end;
    perform gnomon.write_route(p_tracked, case when s.present and t.ended_v is null then 'present' else 'shape' end, s.number, numbers, base, null, false);
    if guarded then
      begin
        perform gnomon.write_route(p_tracked, case when s.present and t.ended_v is null then 'present' else 'shape' end, s.number, numbers, base, null, true);
      exception when undefined_column or undefined_function then
        raise warning 'the past of % cannot be shown to those whom row-level security restricts, as it was before its columns changed: policies look at columns that it did not have', t.relation;
      end;
    end if;
    for former in select distinct f.v from annals.former_name f join annals.segment g on g.tracked = p_tracked and g.number = s.number
               where f.tracked = p_tracked and f.epoch = (select max(e.number) from annals.epoch e) and f.v > g.first_v and coalesce(f.v > t.pruned_v, true) order by f.v loop
      perform gnomon.write_route(p_tracked, x.kind, s.number, numbers, base, null, x.guarded, former)
        from gnomon.route x where x.tracked = p_tracked and x.kind in ('present', 'shape') and x.shape = s.number and x.era is null;
    end loop;
    if s.present and t.ended_v is null then
      -- Each segment takes time to plan and to begin with: most reads need the last ones only.
      select array_agg(g.number order by g.number) into recent from annals.segment g
        where g.tracked = p_tracked and g.number = any (numbers) and (g.sealed_at is null or g.number = (select max(x.number) from annals.segment x where x.tracked = p_tracked and x.sealed_at is not null));
      if cardinality(recent) < cardinality(numbers) then
        perform gnomon.write_route(p_tracked, 'recent', s.number, recent, base, null, false);
      end if;
      perform gnomon.write_entries(p_tracked, s.number, coalesce(recent, numbers));
      -- Who has no branches does not wait for what they take.
      if exists (select from gnomon.branch) or exists (select from gnomon.loan l where l.tracked = p_tracked) then
        perform gnomon.branch_out(p_tracked);
      end if;
    end if;
    for k in select * from gnomon.checkpoint x where x.tracked = p_tracked and x.shape = s.number and x.epoch = (select max(e.number) from annals.epoch e) loop
      perform gnomon.write_route(p_tracked, 'checkpoint', s.number, (select array_agg(g.number order by g.number) from annals.segment g where g.tracked = p_tracked and g.number = any (numbers) and (g.first_v <= k.top_v or g.number = s.number)), k.relation::text, k.id, false);
    end loop;
  end loop;
end $$;
comment on function gnomon.write_routes is 'Writes the views through which the past of a table is read anew.';

create function gnomon.write_entries(p_tracked int, p_shape int, p_numbers int[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  -- Who reads them checks that the history is as it was when this was written.
  execute format('create view gnomon.h%1$s_%4$s_entries%5$s as select * from (%2$s) h where case when has_table_privilege(%3$s::oid, ''select'') and not row_security_active(%3$s::oid) then true else gnomon.refuse_read(%1$s, false) end',
    p_tracked, gnomon.entry_arms(p_tracked, p_numbers, p_shape, false), t.relation::oid, (select x.generation from gnomon.history x where x.tracked = p_tracked),
    case when (select c.relrowsecurity from pg_class c where c.oid = t.relation) then ' with (security_barrier = true)' else '' end);
  execute format('comment on view gnomon.h%s_%s_entries is %L', p_tracked, (select x.generation from gnomon.history x where x.tracked = p_tracked), format('The last entries of %s, for those who may read all of the table.', t.relation));
  perform gnomon.mirror_rights(t.relation, format('gnomon.h%s_%s_entries', p_tracked, (select x.generation from gnomon.history x where x.tracked = p_tracked)));
end $$;
comment on function gnomon.write_entries is 'Writes the view of entries that reads of single rows use.';

create function gnomon.on_view(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from gnomon.history h where h.tracked = p_tracked) then
    perform gnomon.write_routes(p_tracked);
    -- Earlier histories of the table follow its name.
    perform gnomon.write_routes(h.tracked) from gnomon.history h join annals.tracked t on t.id = h.tracked join annals.tracked me on me.id = p_tracked
      where t.relation = me.relation and t.ended_v is not null;
    perform gnomon.write_guards(s.id) from annals.tracked t join gnomon.source s on s.schema_name = t.schema_name where t.id = p_tracked;
  end if;
end $$;
comment on function gnomon.on_view is 'Is called whenever the view of a history was written anew.';
