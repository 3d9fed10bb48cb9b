-- Reading history: transactions, the life of a row, who was active, and what it takes in storage. All of it is read through the views of
-- histories, as the caller: who may not read a row does not see its history either. Ended histories are read as well.

create function volvra.readable_histories(p_selection jsonb) returns table (tracked int, "table" text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Of dropped tables only the owner of the histories is left to read them.
  select t.id, format('%I.%I', coalesce(n.nspname, t.schema_name), coalesce(c.relname, t.table_name))
  from volvra.selected_histories(p_selection, true) h join annals.tracked t on t.id = h
  left join pg_class c on c.oid = t.relation left join pg_namespace n on n.oid = c.relnamespace
  where case when c.oid is null then pg_has_role((select relowner from pg_class where oid = 'annals.tracked'::regclass), 'USAGE') else has_table_privilege(c.oid, 'select') end
$$;
comment on function volvra.readable_histories is 'Histories of a checked selection whose tables the caller may read, ended ones included, with the names of the tables.';

create function volvra.listing_condition(p_tracked int, p_selection jsonb, p_alias text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass;
  condition text := volvra.row_condition(p_tracked, p_selection, 'image');
  before text;
  after text;
begin
  if condition is null then
    return volvra.entry_condition(p_tracked, p_selection, p_alias);
  end if;
  -- What the row was, and what it became: both only of the columns that where names.
  select t.relation into relation from annals.tracked t where t.id = p_tracked and t.ended_v is null;
  select string_agg(format('case when %s = any (%I.missing) then %s else %I.c%s end as c%s', n, p_alias, x.kept, p_alias, n, n), ', '), string_agg(format('%s as c%s', x.kept, n), ', ') into before, after
    from (select s.n, annals.kept_value(p_tracked, s.n, relation, p_alias) as kept
          from (select distinct volvra.stored_column(p_tracked, c->>'column') as s from jsonb_array_elements(p_selection->'where') c) d, lateral (select (d.s).n) s) x;
  return format('%s and (%I.op in (''u'', ''d'', ''t'') and (select %s from (select %s) image) or %I.op in (''u'', ''i'', ''n'') and (select %s from (select %s) image))',
    volvra.entry_condition(p_tracked, p_selection, p_alias), p_alias, condition, before, p_alias, condition, after);
end $$;
comment on function volvra.listing_condition is 'SQL, on a row of a history''s view under an alias: a checked selection selects it.';

create function volvra.selected_entries(p_selection jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format('select %L as "table", e.v, e.epoch, e.xid, e.at, e.ctx, e.login, e.op from annals.h%s e where e.v > %s and %s',
    h."table", h.tracked, volvra.selection_bound(h.tracked, p_selection), volvra.listing_condition(h.tracked, p_selection, 'e')), ' union all '),
    'select ''''::text as "table", 0::bigint as v, 0 as epoch, ''0''::xid8 as xid, now() as at, 0::bigint as ctx, 0::oid as login, ''u''::"char" as op where false')
  from volvra.readable_histories(p_selection) h
  -- An ended history may be without a column that the table has now.
  where not exists (select from jsonb_array_elements(p_selection->'where') w, annals.tracked t
    where t.id = h.tracked and t.ended_v is not null and w->>'column' not in (select c.name from annals.tracked_column c where c.tracked = t.id and c.gone_v is null))
$$;
comment on function volvra.selected_entries is 'SQL for the entries that a checked selection selects and the caller may read.';

create function volvra.transactions(p_selection jsonb default '{"everything": true}', p_limit int default 100, p_before bigint default null)
returns table (transaction text, at timestamptz, login text, role text, actor text, application text, client inet, rows bigint, tables jsonb, first_v bigint, last_v bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s jsonb := volvra.check_selection(p_selection, true);
begin
  return query execute format($query$
    with counted as (
      select e."table", e.epoch, e.xid, e.at, min(e.login) as login, max(e.ctx) as ctx, min(e.v) as first_v, max(e.v) as last_v, annals.operation(e.op) as operation, count(*) as n
      from (%s) e group by 1, 2, 3, 4, annals.operation(e.op)),
    per_table as (
      select c.epoch, c.xid, c.at, min(c.login) as login, max(c.ctx) as ctx, min(c.first_v) as first_v, max(c.last_v) as last_v, sum(c.n) filter (where c.operation is not null) as n,
             c."table", jsonb_object_agg(c.operation, c.n) filter (where c.operation is not null) as counts
      from counted c group by c.epoch, c.xid, c.at, c."table"),
    per_transaction as (
      select p.epoch, p.xid, p.at, min(p.login) as login, max(p.ctx) as ctx, min(p.first_v) as first_v, max(p.last_v) as last_v, coalesce(sum(p.n), 0)::bigint as n, jsonb_object_agg(p."table", coalesce(p.counts, '{}')) as tables
      from per_table p group by p.epoch, p.xid, p.at
      having $1 is null or max(p.last_v) < $1
      order by max(p.last_v) desc limit $2)
    select p.epoch || ':' || p.xid, p.at, coalesce(w.login_name, r.rolname), nullif(w.role_name, 'none'), nullif(w.actor, ''), nullif(w.application, ''), w.client, p.n, p.tables, p.first_v, p.last_v
    from per_transaction p left join pg_roles r on r.oid = p.login
    left join lateral (select * from annals.context c where c.hash = p.ctx and c.login = p.login limit 1) w on true
    order by p.last_v desc$query$, volvra.selected_entries(s)) using p_before, p_limit;
end $$;
comment on function volvra.transactions is 'Transactions that changed what a selection says, newest first, with the changes they made by table and operation. For the next page, p_before is last_v of the last one.';

create function volvra.activity(p_from timestamptz default null, p_to timestamptz default null, p_by text default 'table', p_selection jsonb default '{"everything": true}')
returns table (what text, inserts bigint, updates bigint, deletes bigint, truncates bigint, transactions bigint, first_at timestamptz, last_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s jsonb := volvra.check_selection(p_selection || jsonb_strip_nulls(jsonb_build_object('from', p_from, 'to', p_to)), true);
  key text := case p_by when 'table' then 'e."table"' when 'hour' then 'to_char(date_trunc(''hour'', e.at at time zone ''UTC''), ''YYYY-MM-DD"T"HH24:00"Z"'')'
    when 'role' then 'coalesce(w.login_name, (select r.rolname from pg_roles r where r.oid = e.login)::text)' when 'actor' then 'coalesce(w.actor, '''')' when 'application' then 'coalesce(w.application, '''')' end;
begin
  if key is null then
    perform volvra.refuse('VO007', format('activity cannot be counted by %L', p_by), 'It is counted by table, hour, role, actor or application.');
  end if;
  return query execute format($query$
    select %s, count(*) filter (where o = 'insert'), count(*) filter (where o = 'update'), count(*) filter (where o = 'delete'), count(*) filter (where o = 'truncate'),
           count(distinct (e.epoch, e.xid)), min(e.at), max(e.at)
    from (select x.*, annals.operation(x.op) as o from (%s) x) e
    left join (select distinct on (c.hash, c.login) * from annals.context c) w on w.hash = e.ctx and w.login = e.login
    where o is not null group by 1 order by 1$query$, key, volvra.selected_entries(s));
end $$;
comment on function volvra.activity is 'How many changes were made, by table, hour (in UTC), role, actor or application, in a span of time.';

create function volvra.storage() returns table (tracked int, "table" text, ended_at timestamptz, segments int, entries bigint, bytes bigint, table_bytes bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.id, format('%I.%I', coalesce(n.nspname, t.schema_name), coalesce(c.relname, t.table_name)), t.ended_at, count(s.number)::int,
         sum(coalesce(s.entries, greatest(pg_stat_get_live_tuples(s.relation), 0)))::bigint, sum(pg_total_relation_size(s.relation))::bigint,
         (select sum(pg_total_relation_size(l.relid)) from annals.leaves(c.oid) l where l.leaf)::bigint
  from annals.tracked t left join pg_class c on c.oid = t.relation left join pg_namespace n on n.oid = c.relnamespace
  left join annals.segment s on s.tracked = t.id
  where exists (select from volvra.coverage v where v.tracked = t.id)
  group by t.id, n.nspname, c.relname, c.oid order by 6 desc nulls last
$$;
comment on function volvra.storage is 'What histories take, with their indexes, beside what their tables take. Entries of segments that are not sealed are an estimate.';
