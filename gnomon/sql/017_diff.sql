-- What changed between two places. The state of a row at a place is the old image of its earliest entry that the place does not see, else today's
-- row. So the rows to look at are those with an entry that one place sees and the other does not; each is looked up by its key.

create function gnomon.diff_columns(p_tracked int, p_alias text) returns table (n int, name name, entry text, today text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A column that got another type is another one to history, with the same attribute number.
  select c.n, c.name, case when c.n = any (t.key) or not exists (select from annals.segment s where s.tracked = t.id and (c.n <> all (s.columns) or c.n = any (s.wide))) then gnomon.text_of(format('%s.c%s', p_alias, c.n), a.atttypid) else
    (select 'case ' || string_agg(format('when %s.v >= %s then %s', p_alias, o.added_v, gnomon.text_of(format('case when %1$s = any (%2$s.missing) then %3$s else %2$s.c%1$s end', o.n, p_alias,
         annals.kept_value(t.id, o.n, case when o.n = c.n and t.ended_v is null then t.relation end, p_alias)), y.atttypid)), ' ' order by o.added_v desc, o.n desc) || ' end'
     from annals.tracked_column o join pg_attribute y on y.attrelid = format('annals.h%s', t.id)::regclass and y.attname = format('c%s', o.n)
     where o.tracked = t.id and not o.excluded and (o.n = c.n or o.attnum = c.attnum and o.gone_v is not null)) end,
    gnomon.text_of(format('b.%I', c.name), a.atttypid)
  from annals.tracked t join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key))
  join pg_attribute a on a.attrelid = format('annals.h%s', t.id)::regclass and a.attname = format('c%s', c.n)
  where t.id = p_tracked
$$;
comment on function gnomon.diff_columns is 'Columns that a diff compares: those that the table has now and history stores, with SQL for the text of each in an entry under an alias, and in today''s row b.';

create function gnomon.diff_image(p_tracked int, p_alias text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('case when %1$s.op in (''u'', ''d'', ''t'') then array[%2$s] when %1$s.op in (''U'', ''D'', ''T'') then ''{}''::text[] end', p_alias, string_agg(c.entry, ', ' order by c.n))
  from gnomon.diff_columns(p_tracked, p_alias) c
$$;
comment on function gnomon.diff_image is 'SQL for what the row was before an entry: texts in the order of gnomon.diff_columns; null when there was no row, {} when an erasure took it.';

create function gnomon.diff_query(p_tracked int, p_from gnomon.place, p_to gnomon.place, p_steps boolean, p_reverse boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  nests boolean := annals.nests(p_tracked);
  guarded boolean;
  upper bigint := annals.upper_bound(p_to.snapshot);
  keys text;      -- under the alias %1$s, as the following two
  place text;     -- order of the entries of a key
  unseen text;    -- by the snapshot %2$s, with the bound %3$s
  key_texts text; -- of o
  first text := '';
  names text;
  today text;
  entries text;
  later text := '';
  before text;
  after text;
  next_v text := 'o.next_v';
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  guarded := row_security_active(t.relation);
  select string_agg(format('%%1$s.c%s', n), ', ' order by i), string_agg(d.entry, ', ' order by i)
    into keys, key_texts from unnest(t.key) with ordinality u (n, i) join gnomon.diff_columns(p_tracked, 'o') d using (n);
  select array_agg(c.name order by c.n)::text, format('array[%s]', string_agg(c.today, ', ' order by c.n)) into names, today from gnomon.diff_columns(p_tracked, 'e') c;
  if nests then
    first := format(', min(e.v) over (partition by %s, e.xid) as first', format(keys, 'e'));
    place := '%1$s.first, %1$s.start, case %1$s.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, %1$s.v';
  else
    place := '%1$s.v';
  end if;
  unseen := format('%%1$s.epoch = %s and %%1$s.v > %%3$s and not pg_visible_in_snapshot(%%1$s.xid, %%2$L)', p_to.epoch);
  entries := format('select e.*%s from annals.h%s e where ', first, p_tracked) || format(unseen, 'e', p_from.snapshot, p_from.bound);
  -- What a row became by its last change in between: the image of its next entry, else today's row. The limits make PostgreSQL look rows up
  -- however many it expects.
  today := case when t.ended_v is null then format('(select %s from %s b where %s limit 1)', today, annals.source(t.relation), annals.key_join(p_tracked, 'b.%2$I', 'o.c%1$s')) else 'null::text[]' end;
  after := 'o.next_image';
  if (select last_value from annals.v) - upper > 5 * (upper - p_from.bound) then
    -- Much came later than the span: of that only what is next of its rows is read.
    entries := entries || format(' and e.v <= %s and pg_visible_in_snapshot(e.xid, %L)', upper, p_to.snapshot);
    later := format(' left join lateral (select x.v, %s as image from (select e.*%s from annals.h%s e where %s and %s) x order by %s limit 1) l on o.next_v is null',
      gnomon.diff_image(p_tracked, 'x'), first, p_tracked, annals.key_join(p_tracked, 'e.c%1$s', 'o.c%1$s'), format(unseen, 'e', p_to.snapshot, p_to.bound), format(place, 'x'));
    next_v := 'coalesce(o.next_v, l.v)';
    after := 'case when o.next_v is null then l.image else o.next_image end';
  end if;
  before := case when p_steps then 'o.image' else 'o.first_image' end;
  if guarded then
    -- Who may not read the entry that tells what a row was doesn't see the row then.
    if not p_steps then
      before := format('case when o.first_v = gnomon.first_unseen(%s, array[%s], %L, %s, %s) then o.first_image end', p_tracked, key_texts, p_from.snapshot, p_from.epoch, p_from.bound);
    end if;
    later := later || format(' cross join lateral (select p.list[array_position(p.list, o.v) + 1] as v from annals.positions_of(%s, array[%s]) p (list)) n', p_tracked, key_texts);
    after := format('case when n.v is null then %s when n.v = %s then %s end', today, next_v, after);
  else
    after := format('case when %s is null then %s else %s end', next_v, today, after);
  end if;
  return format($query$
with entries as materialized (select e.*, pg_visible_in_snapshot(e.xid, %1$L) as seen from (%2$s) e),
imaged as materialized (select e.*, %3$s as image from entries e),
found as (
  select e.*, first_value(e.v) over w as first_v, first_value(e.image) over w as first_image, lead(e.v) over w as next_v, lead(e.seen) over w as next_seen, lead(e.image) over w as next_image,
         max(e.v) over w as step, row_number() over w as place
  from imaged e window w as (partition by %4$s order by %5$s rows unbounded preceding)),
states as materialized (
  select %6$s, array[%7$s] as key, o.op, o.v, o.xid, o.at, o.ctx, o.login, o.step, o.place, %8$s as %9$s, %10$s as %11$s
  from found o%12$s where o.seen and %13$s)
select %14$L::text as "table", s.key, case when s.a is null then 'insert' when s.b is not null then 'update' when %15$s then 'truncate' else 'delete' end as operation,
  case when (s.a = '{}' or s.b = '{}') is not true then array(select n from unnest(%16$L::text[], s.a, s.b) u (n, a, b) where s.a is null or s.b is null or u.a is distinct from u.b) end as columns,
  s.a as old, s.b as new, s.v, '%17$s:' || s.xid as transaction, s.at, coalesce(w.login_name, r.rolname)::text as login, nullif(w.role_name, 'none') as role, nullif(w.actor, '') as actor, nullif(w.application, '') as application, w.client
from states s left join pg_roles r on r.oid = s.login left join lateral (select * from annals.context c where c.hash = s.ctx and c.login = s.login limit 1) w on true
where s.a is distinct from s.b or s.a = '{}'
order by %18$s$query$,
    p_to.snapshot, entries, gnomon.diff_image(p_tracked, 'e'), format(keys, 'e'), format(place, 'e'), format(keys, 'o'), key_texts,
    before, case when p_reverse then 'b' else 'a' end, after, case when p_reverse then 'a' else 'b' end, later,
    case when p_steps then 'true' else 'o.next_seen is not true' end, t.relation,
    case when p_steps then 's.op in (''t'', ''T'')' else 'false' end, names, p_to.epoch,
    case when not p_steps then format(keys, 's') when p_reverse then 's.step desc, s.place desc' else 's.step, s.place' end);
end $$;
comment on function gnomon.diff_query is 'SQL for what changed in a table from one place to a later one: the columns of gnomon.diff, with texts in the order of gnomon.diff_columns.';

create function gnomon.diff_queries(p_from text, p_to text, p_tables regclass[], p_steps boolean) returns table ("table" text, columns text[], query text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  a gnomon.place := gnomon.place_of(p_from);
  b gnomon.place := gnomon.place_of(p_to);
  earlier gnomon.place;
  later gnomon.place;
  reverse boolean := false;
  relation regclass;
  id int;
begin
  if annals.snapshot_covers(b.snapshot, a.snapshot) then
    earlier := a;
    later := b;
  elsif annals.snapshot_covers(a.snapshot, b.snapshot) then
    earlier := b;
    later := a;
    reverse := true;
  else
    perform gnomon.refuse('GN006', 'the places cannot be compared: each sees changes that the other does not see', 'Take coordinates, not times, or places further apart.');
  end if;
  for relation in
    select r from unnest(coalesce(nullif(p_tables, '{}'), array(select k.relation from annals.tracked k join gnomon.history h on h.tracked = k.id
      where k.ended_v is null and 'gnomon' = any (k.users) and exists (select from pg_class c where c.oid = k.relation) and has_table_privilege(k.relation, 'select')))) u (r) group by r order by r::text
  loop
    if not has_table_privilege(relation, 'select') then
      perform gnomon.refuse('42501', format('permission denied for the past of %s', relation), 'It takes SELECT on the table.', jsonb_build_object('table', relation::text));
    end if;
    id := gnomon.history_at(relation, earlier);
    if id <> gnomon.history_at(relation, later) then
      perform gnomon.refuse('GN001', format('the history of %s ended between the places, and began again', relation), 'Compare places before or after that.', jsonb_build_object('table', relation::text, 'reason', 'not tracked then'));
    end if;
    "table" := relation::text;
    columns := array(select c.name from gnomon.diff_columns(id, 'e') c order by c.n);
    query := gnomon.diff_query(id, earlier, later, p_steps, reverse);
    return next;
  end loop;
end $$;
comment on function gnomon.diff_queries is 'SQL for what changed from one place to another, for each table, and the columns whose texts it returns; see gnomon.diff.';

create function gnomon.diff(p_from text, p_to text default 'now', p_tables regclass[] default null, p_steps boolean default false)
returns table ("table" text, key text[], operation text, columns text[], old jsonb, new jsonb, v bigint, transaction text, at timestamptz, login text, role text, actor text, application text, client inet)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  q record;
begin
  for q in select * from gnomon.diff_queries(p_from, p_to, p_tables, p_steps) d loop
    return query execute format('select d."table", d.key, d.operation, d.columns, case when d.old = ''{}'' then ''{}'' else jsonb_object($1, d.old) end, case when d.new = ''{}'' then ''{}'' else jsonb_object($1, d.new) end,
      d.v, d.transaction, d.at, d.login, d.role, d.actor, d.application, d.client from (%s) d', q.query) using q.columns;
  end loop;
end $$;
comment on function gnomon.diff is 'Rows that differ between two places, with the texts of their values at both, and the last change in between; p_from may be the later place. A row that changed its key is deleted under the old one and inserted under the new one; a row that changed and changed back is not in it. With p_steps: every change in between, in an order in which they can be applied. Of the tables, or of all that are tracked and that the caller may read; each must reach both places. In the order of the tables'' names, then of the keys. Values are of the columns that the table has now, without generated ones: null before a column was there. Where an erasure took the values of a side, that is {}, and columns is null. Who is restricted by row-level security gets what he could read at the places, as far as he may read the changes.';

create function gnomon.diff_counts(p_from text, p_to text default 'now', p_tables regclass[] default null) returns table ("table" text, inserts bigint, updates bigint, deletes bigint)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  q record;
begin
  for q in select * from gnomon.diff_queries(p_from, p_to, p_tables, false) d loop
    return query execute format('select %L::text, count(*) filter (where d.operation = ''insert''), count(*) filter (where d.operation = ''update''), count(*) filter (where d.operation = ''delete'') from (%s) d', q."table", q.query);
  end loop;
end $$;
comment on function gnomon.diff_counts is 'How many rows were inserted, updated and deleted from one place to another, by table; see gnomon.diff.';
