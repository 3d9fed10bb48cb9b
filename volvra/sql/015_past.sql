-- Tables as they were. A row's state at a moment is the old image of its earliest entry that the moment does not see, else today's row;
-- rows that did not exist then are left out, rows deleted since come back. Everything is read as the caller.

create type volvra.moment as (at timestamptz, epoch int, snapshot pg_snapshot, xid xid8, v bigint, bound bigint);
comment on type volvra.moment is 'A moment to read at: a time, or a place in the history of the database.';
comment on column volvra.moment.at is 'The time: transactions are seen that began at or before it. Null for a place.';
comment on column volvra.moment.epoch is 'Epoch of the place.';
comment on column volvra.moment.snapshot is 'What it sees of its epoch.';
comment on column volvra.moment.xid is 'Of this transaction it sees entries up to v.';
comment on column volvra.moment.v is 'See xid.';
comment on column volvra.moment.bound is 'Entries that it does not see have higher positions.';

create function volvra.moment_of(p_moment text) returns volvra.moment
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  m volvra.moment;
begin
  if p_moment like 'mark:%' or p_moment ~ '^[0-9a-f]{8}/' then
    select p.epoch, p.snapshot, p.xid, p.v into m.epoch, m.snapshot, m.xid, m.v from volvra.place_of(p_moment) p;
    m.bound := (select coalesce(max(k.v), 0) from annals.tick k where k.epoch = m.epoch and k.upper_xid <= pg_snapshot_xmin(m.snapshot));
    return m;
  end if;
  begin
    m.at := p_moment::timestamptz;
  exception when others then
    m.at := null;
  end;
  if m.at is null then
    perform volvra.refuse('VO007', format('%L is no moment', left(p_moment, 100)), 'A moment is a time, a coordinate that annals.coordinate() returned, or mark:name.');
  end if;
  m.bound := (select coalesce(max(k.v), 0) from annals.tick k where k.at <= m.at - interval '1 minute'); -- for clocks that are set back a little
  return m;
end $$;
comment on function volvra.moment_of is 'The moment that a text names: a time, a coordinate, or mark:name.';

create function volvra.unseen(p_moment volvra.moment, p_alias text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select case when p_moment.at is not null then format('%I.at > %L::timestamptz', p_alias, p_moment.at)
    else format('(%1$I.epoch > %2$s or %1$I.epoch = %2$s and not pg_visible_in_snapshot(%1$I.xid, %3$L)%4$s)', p_alias, p_moment.epoch, p_moment.snapshot,
           case when p_moment.xid is not null then format(' and not (%1$I.xid = %2$L and %1$I.v <= %3$s)', p_alias, p_moment.xid, p_moment.v) else '' end) end
    || case when p_moment.bound > 0 then format(' and %I.v > %s', p_alias, p_moment.bound) else '' end);
end $$;
comment on function volvra.unseen is 'SQL, on a row of a history''s view: a moment does not see it.';

create function volvra.sees(p_moment volvra.moment, p_epoch int, p_xid xid8, p_v bigint, p_at timestamptz) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select case when p_moment.at is not null then p_at <= p_moment.at
              else p_epoch < p_moment.epoch or p_epoch = p_moment.epoch and (pg_visible_in_snapshot(p_xid, p_moment.snapshot) or coalesce(p_xid = p_moment.xid and p_v <= p_moment.v, false)) end);
end $$;
comment on function volvra.sees is 'Whether a moment sees what a transaction did at a position and time.';

create function volvra.no_history(p_table regclass, p_reason text, p_message text, p_hint text) returns void
language sql set search_path = pg_catalog, pg_temp
as $$ select volvra.refuse('VO006', format('the history of %s does not reach back to that moment: %s', p_table, p_message), p_hint, jsonb_build_object('table', p_table::text, 'reason', p_reason)) $$;
comment on function volvra.no_history is 'Refuses a moment that a history does not reach.';

create function volvra.check_reach(p_table regclass, p_moment volvra.moment, out tracked int, out today boolean) returns record
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  t annals.tracked;
  since timestamptz;
  g record;
begin
  select min(c.since) into since from annals.tracked k join volvra.coverage c on c.tracked = k.id where k.relation = p_table;
  if since is null then
    perform volvra.refuse('VO003', format('table %s is not covered, and never was', p_table), 'Cover it with volvra.enable: its history begins then.', jsonb_build_object('table', p_table::text));
  end if;
  -- The last coverage that had begun by then.
  select k.* into t from annals.tracked k join volvra.coverage c on c.tracked = k.id
    where k.relation = p_table and volvra.sees(p_moment, c.epoch, c.xid, k.began_v, c.since) order by k.id desc limit 1;
  if not found then
    perform volvra.no_history(p_table, 'not covered then', format('its coverage began at %s', since), 'Ask for a later moment.');
  end if;
  if t.ended_v is null and (t.behind or t.off or t.key_lost_v is not null) then
    perform volvra.no_history(p_table, 'not captured', 'changes go by uncaptured', 'volvra.health() says why.');
  end if;
  for g in select x.*, (select max(e.number) from annals.epoch e where e.began_v <= x.v) as epoch from annals.gap x where x.tracked = t.id order by x.v desc loop
    if volvra.sees(p_moment, g.epoch, g.xid, g.v, g.at) then
      if t.ended_v is not null and g.why = t.ended_why then
        perform volvra.no_history(p_table, 'ended', format('its coverage had ended at %s', t.ended_at), 'What was changed before is still told by volvra.history and volvra.transactions.');
      end if;
      continue when p_moment.at is null or g.lossless;
      -- Seen by the start of its transaction, but others may have written in between.
      execute format('select true from annals.h%s e where e.v < %s and %s limit 1', t.id, g.v, volvra.unseen(p_moment, 'e')) into today;
      continue when today is null;
    end if;
    if not g.lossless then
      perform volvra.no_history(p_table, case when t.ended_v is not null and g.why = t.ended_why then 'ended' else 'interrupted' end, format('it was interrupted at %s (%s)', g.at, g.why),
        'Ask for a later moment. What was changed before is still told by volvra.history and volvra.transactions.');
    end if;
  end loop;
  -- Entries below a position are gone: did the moment see all of them?
  if t.pruned_v > 0 and p_moment.bound < t.pruned_v - 1 and not coalesce(p_moment.epoch = (select max(e.number) from annals.epoch e) and pg_snapshot_xmin(p_moment.snapshot) > t.pruned_xid, false) then
    perform volvra.no_history(p_table, 'pruned', 'entries that it takes were pruned', 'Ask for a later moment.');
  end if;
  tracked := t.id;
  -- Of coverage that ended every row was saved, and what is there today came later.
  today := t.ended_v is null;
end $$;
comment on function volvra.check_reach is 'The history that tells how a table was at a moment, and whether today''s rows tell it too; an error when none does.';

create function volvra.past_columns(p_tracked int, p_table regclass, p_moment volvra.moment, p_today boolean)
returns table (name name, old text, today text, computed text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query with known as (
    select a.attname, a.attnum, format_type(a.atttypid, a.atttypmod) as type, c.n, c.added_v, c.excluded, c.n = any (t.key) as is_key,
           case when a.attgenerated <> '' and c.n <> all (t.key) then pg_get_expr(d.adbin, d.adrelid) end as expression, s.first, s.lacking
    from annals.tracked t
    join pg_attribute a on a.attrelid = p_table and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    left join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and c.attnum = a.attnum
    left join lateral (select min(g.number) filter (where c.n = any (g.columns)) as first, bool_or(c.n <> all (g.columns) or c.n = any (g.wide)) as lacking
                       from annals.segment g where g.tracked = t.id) s on true
    where t.id = p_tracked),
  judged as (
    -- A column was there at the moment when it is as old as the history, or when the transaction that brought it is seen.
    select k.*, k.n is null or k.excluded or k.first is null and k.expression is null
        or coalesce(before.closed_by is not null and not volvra.sees(p_moment, here.epoch, before.closed_by, k.added_v, here.began_at), false) as absent
    from known k
    left join annals.segment here on here.tracked = p_tracked and here.number = k.first
    left join lateral (select g.closed_by from annals.segment g where g.tracked = p_tracked and g.number < k.first order by g.number desc limit 1) before on true)
  select attname,
    case when absent or expression is not null then format('null::%s', type)
         when lacking and not is_key then format('case when %s = any (u.missing) then %s else u.c%s end::%s', n, case when first is null then 'null' else annals.kept_value(p_tracked, n, case when p_today then p_table end, 'u') end, n, type)
         else format('u.c%s::%s', n, type) end,
    case when absent then format('null::%s', type) else format('b.%I', attname) end,
    case when expression is not null and not absent then format('(%s)::%s', expression, type) end
  from judged order by attnum;
end $$;
comment on function volvra.past_columns is 'SQL for the columns of a table at a moment: from an old image u, from today''s row b, and what generated columns are computed by from an old image.';

create function volvra.first_unseen(p_tracked int, p_key text[], p_moment text) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  m volvra.moment := volvra.moment_of(p_moment);
  first bigint;
begin
  -- Of all entries, so it reads the segments. It tells that and when a row changed, never what or how.
  execute (select format('select e.v from (select e.*, min(e.v) over (partition by e.epoch, e.xid) as first from (%s) e where %s) e order by e.first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v limit 1',
      string_agg(format('select s.v, s.xid, %s as epoch, s.at, s.op, %s as start from %s s where %s', s.epoch, case when s.nests then 'coalesce(s.start, s.v)' else 's.v' end, s.relation, annals.key_is(p_tracked, p_key, 's.c%1$s')), ' union all '),
      volvra.unseen(m, 'e'))
    from annals.segment s join annals.tracked t on t.id = s.tracked where t.id = p_tracked and t.key <@ s.columns) into first;
  return first;
end $$;
comment on function volvra.first_unseen is 'Position of the earliest entry of a key that a moment does not see, whoever may read it. For callers whom row-level security lets see only some entries: what they don''t see must not look like today''s row.';

create function volvra.past_query(p_tracked int, p_today boolean, p_table regclass, p_moment volvra.moment, p_text text, p_key text[]) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  mixed boolean := annals.nests(p_tracked);
  keys text;
  shown text;
  old text;
  today text;
  hidden text := '';
  hidden_today text := '';
begin
  select string_agg(format('e.c%s', u.n), ', ' order by u.i) into keys from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked;
  select string_agg(coalesce(c.computed, quote_ident(c.name)), ', '), string_agg(format('%s as %I', c.old, c.name), ', '), string_agg(c.today, ', ')
    into shown, old, today from volvra.past_columns(p_tracked, p_table, p_moment, p_today) c;
  if row_security_active(p_table) then
    select format(' and u.v = volvra.first_unseen(%s, array[%s], %L)', p_tracked, string_agg(format('u.c%s::text', u.n), ', ' order by u.i), p_text),
           format(' and volvra.first_unseen(%s, array[%s], %L) is null', p_tracked, string_agg(format('b.%I::text', c.name), ', ' order by u.i), p_text)
      into hidden, hidden_today from annals.tracked t, unnest(t.key) with ordinality u (n, i), annals.tracked_column c where t.id = p_tracked and c.tracked = t.id and c.n = u.n;
  end if;
  return format($query$
with unseen as materialized (
  select distinct on (%1$s) * from (select e.*, %2$s as first from annals.h%3$s e where %4$s%5$s) e
  order by %1$s, %6$s)
select %7$s from (select %8$s from unseen u where u.op in ('u', 'd', 't', 'U', 'D', 'T')%9$s) as %10$I
union all
select %11$s from %12$s b where %13$s and not exists (select from unseen u where %14$s)%15$s%16$s$query$,
    keys, case when mixed then format('min(e.v) over (partition by %s, e.epoch, e.xid)', keys) else '0' end, p_tracked, volvra.unseen(p_moment, 'e'), ' and ' || annals.key_is(p_tracked, p_key, 'e.c%1$s'),
    case when mixed then 'e.first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v' else 'e.v' end,
    shown, old, hidden, (select c.relname from pg_class c where c.oid = p_table), today, annals.source(p_table), p_today::text, annals.key_join(p_tracked, 'u.c%1$s', 'b.%2$I'),
    ' and ' || annals.key_is(p_tracked, p_key, 'b.%2$I'), hidden_today);
end $$;
comment on function volvra.past_query is 'SQL for the rows of a table at a moment, which is given also as its text: all, or the one with a key.';

create function volvra.table_of(p_type regtype) returns regclass
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass := (select c.oid from pg_type y join pg_class c on c.oid = y.typrelid where y.oid = p_type and c.relkind in ('r', 'p'));
begin
  if relation is null then
    perform volvra.refuse('VO007', format('%s is no row of a table', p_type), 'Say which table is meant by a null of its row type, such as null::shop.orders.');
  end if;
  return relation;
end $$;
comment on function volvra.table_of is 'The table whose row type a type is; an error when there is none.';

create function volvra.as_of(p_row anyelement, p_moment text) returns setof anyelement
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass := volvra.table_of(pg_typeof(p_row));
  m volvra.moment := volvra.moment_of(p_moment);
  reach record := volvra.check_reach(relation, m);
begin
  return query execute volvra.past_query(reach.tracked, reach.today, relation, m, p_moment, null);
end $$;
comment on function volvra.as_of(anyelement, text) is 'The rows of a table at a moment (a time, a coordinate or mark:name). The table is given by a null of its row type: select * from volvra.as_of(null::shop.orders, ''2024-05-01 12:00Z''). Columns that did not exist then and excluded ones are null, renamed ones stand under their present names, and so do types.';

create function volvra.as_of(p_row anyelement, p_moment timestamptz) returns setof anyelement
language sql stable set search_path = pg_catalog, pg_temp as $$
  select * from volvra.as_of(p_row, to_char(p_moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;
comment on function volvra.as_of(anyelement, timestamptz) is 'The rows of a table at a time: those that the transactions made which had begun by then.';

create function volvra.row_by_query(p_row anyelement, p_key text[], p_moment text) returns setof anyelement
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass := volvra.table_of(pg_typeof(p_row));
  m volvra.moment := volvra.moment_of(p_moment);
  reach record := volvra.check_reach(relation, m);
begin
  perform volvra.check_key(reach.tracked, to_jsonb(p_key));
  return query execute volvra.past_query(reach.tracked, reach.today, relation, m, p_moment, p_key);
end $$;
comment on function volvra.row_by_query is 'As volvra.as_of_row, for all tables and moments: by SQL that is written for the occasion.';

create function volvra.as_of_row(p_row anyelement, p_key text[], p_moment text) returns setof anyelement
language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp as $$
declare
  reader regproc := (select to_regproc(format('volvra.h%s_row', t.id)) from pg_type y join annals.tracked t on t.relation = y.typrelid where y.oid = pg_typeof(p_row) and t.ended_v is null);
begin
  if reader is null then
    return query select * from volvra.row_by_query(p_row, p_key, p_moment);
  else
    return query execute format('select * from %s($1, $2, $3)', reader) using p_row, p_key, p_moment;
  end if;
end $$;
comment on function volvra.as_of_row is 'The row that had a key at a moment, or none: as volvra.as_of, found by the index on the key.';
