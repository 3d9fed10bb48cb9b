-- The plan of an undo: what a table would hold had the selected changes not happened. One query per table, over sets, from the view of
-- its history: so it reads as the caller, and a preview and an undo are the same query.
--
-- Each row that a selected change touched is followed through its entries, and through changes of its key. Along that chain each
-- column has a string with a letter per entry: S where a selected change changed it, U where another one did, a dot where none did.
-- What comes back is the value before the last run of S. A U after the last S is work that would be lost: a conflict, unless
-- today's value is what the S left, or what comes back. Existence is one
-- more such string. Values are compared as images, byte by byte, since equality of a type can hide a difference.
--
-- Functions here that run the query have no search_path of their own: policies of tables, which belong to users, run within it.

create function volvra.plan_columns(p_tracked int) returns table (n int, name name, type text, key_position int, generated boolean, quick boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select c.n, c.name, format_type(a.atttypid, a.atttypmod), array_position(t.key, c.n), c.generated,
         -- Of these types equal values have equal images, and comparing them is cheaper than comparing images.
         a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'bool'::regtype, 'uuid'::regtype, 'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'bytea'::regtype)
           or a.atttypid in ('text'::regtype, 'varchar'::regtype) and (select l.collisdeterministic from pg_collation l where l.oid = a.attcollation)
  from annals.tracked t join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key))
  join pg_attribute a on a.attrelid = format('annals.h%s', t.id)::regclass and a.attname = format('c%s', c.n)
  where t.id = p_tracked order by c.n;
end $$;
comment on function volvra.plan_columns is 'Columns of a covered table that an undo can put back, and those of its key.';

create function volvra.differs(p_a text, p_b text, p_quick boolean) returns text
language sql immutable
return case when p_quick then format('(%s is distinct from %s)', p_a, p_b) else format('pg_catalog.record_image_ne(row(%s), row(%s))', p_a, p_b) end;
comment on function volvra.differs is 'SQL: two values have different images.';

create function volvra.base_table(p_tracked int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- Children by inheritance have a history of their own.
  select case when t.partitioned then '' else 'only ' end || format('%I.%I', n.nspname, c.relname)
  from annals.tracked t join pg_class c on c.oid = t.relation join pg_namespace n on n.oid = c.relnamespace where t.id = p_tracked
$$;
comment on function volvra.base_table is 'SQL: the covered table, as what a FROM names.';

create function volvra.same_row(p_tracked int, p_plan text, p_base text) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select string_agg(format('%s.%I %s %s.f%s', p_base, c.name, annals.key_operator(t.id, u.i::int), p_plan, u.n), ' and ' order by u.i)
  from annals.tracked t, unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.n = u.n where t.id = p_tracked and c.tracked = p_tracked);
end $$;
comment on function volvra.same_row is 'SQL: a row of the base table is the one that a planned row is about.';

create view volvra.key_change as select m.tracked, m.left_v, m.arrived_v from annals.move m;
comment on view volvra.key_change is 'Which entries of histories belong together because a row changed its key. The keys themselves are in the histories.';
comment on column volvra.key_change.tracked is 'The history.';
comment on column volvra.key_change.left_v is 'Position of the entry that ends the old key.';
comment on column volvra.key_change.arrived_v is 'Position of the entry that begins the new key.';

create function volvra.blame(p_v bigint, p_xid xid8, p_epoch int, p_at timestamptz, p_ctx bigint, p_login oid) returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('transaction', p_epoch || ':' || p_xid, 'v', p_v, 'at', p_at, 'role', coalesce((select c.login_name from annals.context c where c.hash = p_ctx and c.login = p_login limit 1), p_login::text),
    'actor', (select nullif(c.actor, '') from annals.context c where c.hash = p_ctx and c.login = p_login limit 1),
    'application', (select nullif(c.application, '') from annals.context c where c.hash = p_ctx and c.login = p_login limit 1))
$$;
comment on function volvra.blame is 'Whose change an entry is.';

create function volvra.change_condition(p_tracked int, p_selection jsonb, p_range int8range, p_alias text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select '(' || volvra.entry_condition(p_tracked, p_selection, p_alias)
    || case when lower(p_range) is not null then format(' and %I.v >= %s', p_alias, lower(p_range)) else '' end
    || case when upper(p_range) is not null then format(' and %I.v < %s', p_alias, upper(p_range)) else '' end || ')'
$$;
comment on function volvra.change_condition is 'SQL: an entry is selected, and within a range of positions.';

create function volvra.first_query(p_tracked int, p_selection jsonb, p_range int8range) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('select count(*), min(e.v), exists (select from volvra.key_change m where m.tracked = %1$s and m.arrived_v >= min(e.v)), %4$s from annals.h%1$s e where e.v >= %2$s and %3$s',
    p_tracked, volvra.selection_bound(p_tracked, p_selection), volvra.change_condition(p_tracked, p_selection, p_range, 'e'),
    (select coalesce(sum(pg_relation_size(s.relation)), 0) from annals.segment s where s.tracked = p_tracked))
$$;
comment on function volvra.first_query is 'SQL: how many changes a selection selects in a history, the first position, whether rows changed their key since, and the bytes of the history.';

create function volvra.plan_query(p_tracked int, p_selection jsonb, p_range int8range, p_first bigint, p_moved boolean) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  nests boolean;
  gap bigint;
  head text := 'k.v, k.xid, k.epoch, k.at, k.ctx, k.login, k.op, k.start, k.missing, k.blank';
  plainly text := '';
  condition text := volvra.change_condition(p_tracked, p_selection, p_range, 'e');
  row_before text := volvra.row_condition(p_tracked, p_selection, 'bf');
  row_after text := volvra.row_condition(p_tracked, p_selection, 'af');
  c record;         -- lists of columns, each as SQL
  keys text;
  same text;        -- e is of the key of k
  base_same text;
  identity text;    -- what tells rows apart, within seq
  ord text[];       -- the order of one row's entries
  image text;
  fills text := '';
  gaps int[];       -- columns that entries may lack
  source text := 'seq';
  hidden text := 'false';
  body text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  nests := exists (select from annals.segment s where s.tracked = p_tracked and s.nests);
  -- A column that got another type is another column to history: what the selected changes did to it can't be told in the new type.
  gap := greatest((select max(g.v) from annals.gap g where g.tracked = p_tracked and not g.lossless),
    (select max(o.gone_v) from annals.tracked_column o where o.tracked = p_tracked and not o.excluded and not o.generated
       and exists (select from annals.tracked_column n where n.tracked = p_tracked and n.gone_v is null and n.attnum = o.attnum)), 0);
  select string_agg('c' || k, ', ' order by i), string_agg(format('e.c%s %s k.c%s', k, annals.key_operator(p_tracked, i::int), k), ' and ' order by i),
         string_agg(format('x.%I %s k.c%s', l.name, annals.key_operator(p_tracked, i::int), k), ' and ' order by i)
    into keys, same, base_same from unnest(t.key) with ordinality u (k, i) join annals.tracked_column l on l.tracked = p_tracked and l.n = k;

  select string_agg(format('e.c%s', n), ', ' order by n) as entry,
         string_agg(format('x.%I::%s', name, type), ', ' order by n) as today,
         string_agg(format('c%s', n), ', ' order by n) as plain, string_agg(format('k.c%s', n), ', ' order by n) || ', k.sel' as kept,
         -- Of a row that was changed once.
         string_agg(format('x.%I::%s as x%s', name, type, n), ', ' order by n) as now, string_agg(format('y.x%1$s as c%1$s', n), ', ' order by n) as once_after, string_agg(format('y.b%1$s as c%1$s', n), ', ' order by n) as once_before,
         string_agg(format('case when %s then %s end', volvra.differs('b' || n, 'x' || n, quick), n), ', ' order by n) filter (where not generated) as once_written, string_agg(format('b%1$s as t%1$s, x%1$s as f%1$s', n), ', ' order by n) as once_final,
         string_agg(format('coalesce(x%1$s, b%1$s) as k%1$s', n), ', ' order by n) filter (where key_position is not null) as once_key,
         string_agg(format('s.c%s as c%s', n, n), ', ' order by n) as was, string_agg(format('s.a%s as c%s', n, n), ', ' order by n) as became,
         string_agg(format('lag(c%1$s) over w as p%1$s, lead(c%1$s) over w as a%1$s', n), ', ' order by n) as beside,
         -- A row that comes back under its key changed those columns that differ from when it went.
         string_agg(format('string_agg(case when not case op when ''u'' then %s when ''i'' then coalesce(pop in (''d'', ''t''), false) and %s else false end then ''.'' when chosen then ''S'' else ''U'' end, '''') as s%s',
           volvra.differs('c' || n, 'a' || n, quick), volvra.differs('p' || n, 'a' || n, quick), n), ', ' order by n) as letters,
         -- Of each column where the last run of S begins (0: there is none), the last U and the last S. In arrays, since a query has at most
         -- 1664 columns at a time.
         format('array[%s] as f, array[%s] as u, array[%s] as l',
           string_agg(format('case when strpos(s%1$s, ''S'') > 0 then length(rtrim(rtrim(s%1$s, ''U.''), ''S.'')) + strpos(substr(rtrim(s%1$s, ''U.''), length(rtrim(rtrim(s%1$s, ''U.''), ''S.'')) + 1), ''S'') else 0 end', n), ', ' order by n),
           string_agg(format('length(rtrim(s%s, ''S.''))', n), ', ' order by n), string_agg(format('length(rtrim(s%s, ''U.''))', n), ', ' order by n)) as places,
         string_agg(format('case when f[%2$s] > 0 then (img[f[%2$s]]).c%1$s when fe is not null and (not live or ue > le) then (img[fe]).c%1$s when live then (img[m]).c%1$s end as t%1$s', n, i), ', ' order by n) as valued,
         -- Whether what comes back differs from today's value, and today's from what the last S left.
         format('array[%s] as d, array[%s] as e', string_agg(format('live and %s', volvra.differs('t' || n, '(img[m]).c' || n, quick)), ', ' order by n),
           string_agg(format('live and u[%1$s] > greatest(l[%1$s], le) and %2$s', i, volvra.differs(format('(img[greatest(l[%s], le) + 1]).c%s', i, n), '(img[m]).c' || n, quick)), ', ' order by n)) as compared,
         string_agg(format('f[%1$s] > 0 and u[%1$s] > l[%1$s]', i), ' or ' order by n) as any_undone,
         string_agg(format('case when f[%2$s] > 0 and d[%2$s] and not e[%2$s] then %1$s end', n, i), ', ' order by n) filter (where not generated) as written,
         string_agg(format('case when wants and live then f[%1$s] > 0 and d[%1$s] and e[%1$s] when wants then fe is not null and f[%1$s] > 0 and u[%1$s] > l[%1$s] and %2$s else e[%1$s] end', i,
           volvra.differs('t' || n, format('(img[fe]).c%s', n), quick)), E'\x1f' order by n) as conflicting,
         string_agg(format('case when not live and %1$s = any (conflict) then (img[fe]).c%1$s else t%1$s end as t%1$s, case when live then (img[m]).c%1$s end as f%1$s', n), ', ' order by n) as final,
         string_agg(format('jsonb_build_object(%1$L, case when %2$s = any (conflict) then volvra.blame((img[u[%3$s]]).v, (img[u[%3$s]]).xid, (img[u[%3$s]]).epoch, (img[u[%3$s]]).at, (img[u[%3$s]]).ctx, (img[u[%3$s]]).login) end)', name, n, i), ' || ' order by n) as blamed,
         string_agg(format('case when not live and wants then t%1$s else (img[m]).c%1$s end as k%1$s', n), ', ' order by n) filter (where key_position is not null) as key_shown,
         array_agg(n order by n) as numbers
    into c from (select p.*, row_number() over (order by p.n) as i from volvra.plan_columns(p_tracked) p) x;
  if cardinality(c.numbers) > 500 then
    perform volvra.refuse('VO007', format('%s has %s columns, too many for an undo', volvra.base_table(p_tracked), cardinality(c.numbers)), 'A plan holds at most 500 columns of a table. Excluded and generated ones don''t count.',
      jsonb_build_object('table', t.relation::text));
  end if;

  -- A whole image, as the view's row type; a row that came to be has the image from before it went, if it was there before.
  select string_agg(case when p.n is null then format('null::%s', format_type(a.atttypid, a.atttypmod)) else format('case when op = ''i'' and pop in (''d'', ''t'') then p%1$s else c%1$s end', p.n) end, ', ' order by a.attnum)
    into image from pg_attribute a left join volvra.plan_columns(p_tracked) p on a.attname = format('c%s', p.n)
    where a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attnum > 9 and not a.attisdropped;

  body := format($q$cand as materialized (
  select %2$s, min(e.v) as v0 from annals.h%1$s e where e.v >= %3$s and %4$s group by %2$s),
$q$, p_tracked, keys, p_first, condition);
  if p_moved then
    body := format($q$mv as materialized (
  select y.left_v, y.arrived_v, %5$s, %6$s from volvra.key_change y
  join annals.h%1$s a on a.v = y.left_v and a.v >= %3$s and a.op = 'm' join annals.h%1$s b on b.v = y.arrived_v and b.v >= %3$s and b.op = 'n'
  where y.tracked = %1$s and y.arrived_v >= %3$s),
cand0 as (select distinct %2$s from annals.h%1$s e where e.v >= %3$s and %4$s),
walk_keys (%2$s) as (select %2$s from cand0 union select %7$s from walk_keys k join mv on %8$s),
cand as materialized (select %2$s, %3$s::bigint as v0 from walk_keys),
$q$, p_tracked, keys, p_first, condition,
      (select string_agg(format('a.c%1$s as m%1$s', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)), (select string_agg(format('b.c%1$s as n%1$s', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)),
      (select string_agg(format('mv.n%s', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)), (select string_agg(format('mv.m%s %s k.c%s', k, annals.key_operator(p_tracked, i::int), k), ' and ' order by i) from unnest(t.key) with ordinality u (k, i)));
  end if;
  body := body || format($q$entries as %10$s (
  select e.v, e.xid, e.epoch, e.at, e.ctx, e.login, %8$s as op, e.start, e.missing, e.op in (%9$s) as blank, %2$s, %4$s as sel%11$s
  from cand k join annals.h%1$s e on %5$s and e.v >= k.v0),
hist as (
  select %12$s from entries k%13$s
  union all
  select 9000000000000000000 + row_number() over (), null, null, null, null, null, 'z', null, null, false, %3$s, false
  from (select distinct %14$s from entries k%13$s) k join %7$s x on %6$s offset 0),
$q$, p_tracked, c.entry, c.today, condition, same, base_same, volvra.base_table(p_tracked),
    -- An arrival from nowhere is an insert; a departure to nowhere, a row whose end is not known.
    case when p_moved then 'lower(e.op::text)::"char"' else 'case e.op when ''n'' then ''i''::"char" when ''m'' then ''d'' else lower(e.op::text)::"char" end' end,
    case when p_moved then $l$'U', 'D', 'T'$l$ else $l$'U', 'D', 'T', 'm'$l$ end,
    'materialized', case when p_moved then '' else format(', count(*) over (partition by %s) as beside', (select string_agg('e.c' || u, ', ') from unnest(t.key) u)) end,
    head || ', ' || c.kept, case when p_moved then '' else ' where not (beside = 1 and op = ''u'')' end, keys);

  if (select r.relrowsecurity from pg_class r where r.oid = t.relation) then
    -- What lies between entries that the caller sees is not theirs.
    hidden := format('row_security_active(%1$s::oid) and exists (select from (select distinct %2$s from %%1$s) k, unnest(annals.positions_of(%3$s, array[%4$s])) place where place > %%2$s and not exists (select from annals.h%3$s e where %5$s and e.v = place))',
      t.relation::oid, (select string_agg(format('i.c%s', k), ', ') from unnest(t.key) k), p_tracked, (select string_agg(format('k.c%s::text', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)), same);
  end if;

  identity := keys;
  ord := array['v'];
  if nests then
    body := body || format(E'seq0 as (select *, min(v) over (partition by %s, epoch, xid) as tv from hist),\n', keys);
    ord := array['tv', 'coalesce(start, v)', 'case op when ''m'' then 1 when ''i'' then 2 when ''n'' then 2 else 0 end', 'v'];
    source := 'seq0';
  else
    source := 'hist';
  end if;
  if p_moved then
    -- A stay of a row under a key begins with its arrival and ends with its departure. Stays that a change of the key joins are one row.
    body := body || format($q$placed as (
  select *, count(*) filter (where op = 'n') over (partition by %1$s order by %2$s rows unbounded preceding)
          + count(*) filter (where op = 'm') over (partition by %1$s order by %2$s rows between unbounded preceding and 1 preceding) as stay from %3$s),
stays as materialized (select *, min(v) over (partition by %1$s, stay) as sid from placed),
edges as materialized (select a.sid as f, b.sid as t from mv join stays a on a.v = mv.left_v join stays b on b.v = mv.arrived_v),
trail (sid, rid, hop) as (
  select sid, sid, 0 from (select distinct sid from stays) y where not exists (select from edges g where g.t = y.sid)
  union all select g.t, r.rid, r.hop + 1 from trail r join edges g on g.f = r.sid),
seq as (
  select v, xid, epoch, at, ctx, login, case op when 'n' then 'i'::"char" when 'm' then 'd' else op end as op, start, missing, blank or op = 'm' as blank, %4$s, sel, r.rid, r.hop%5$s
  from stays y join trail r using (sid)
  where not (op = 'm' and v in (select left_v from mv)) and not (op = 'n' and v in (select arrived_v from mv))),
$q$, keys, array_to_string(ord, ', '), source, c.plain, case when nests then ', tv' else '' end);
    identity := 'rid';
    ord := array['hop'] || ord;
    source := 'seq';
  end if;

  select array_agg(n) into gaps from unnest(c.numbers) n
    where exists (select from annals.segment s where s.tracked = p_tracked and (s.last_v is null or s.last_v >= p_first) and (n <> all (s.columns) or n = any (s.wide)));
  if gaps is not null then
    -- What an entry lacks did not change then: it has the value of the next entry that holds it.
    body := body || format(E'held as (select *, %s from %s),\nfilled as (select v, xid, epoch, at, ctx, login, op, start, array_remove(array[%s], null) as missing, blank, %s, sel%s from held),\n',
      (select string_agg(format('count(*) filter (where op in (''u'', ''d'', ''t'', ''z'') and coalesce(%1$s <> all (missing), true)) over (partition by %2$s order by %3$s rows unbounded preceding) as h%1$s', n, identity, (select string_agg(o || ' desc', ', ' order by i) from unnest(ord) with ordinality u (o, i))), ', ') from unnest(gaps) n),
      source, (select string_agg(format('case when h%s = 0 then %s end', n, n), ', ') from unnest(gaps) n),
      (select string_agg(case when n = any (gaps) then format('first_value(c%1$s) over (partition by %2$s, h%1$s order by %3$s rows unbounded preceding) as c%1$s', n, identity, (select string_agg(o || ' desc', ', ' order by i) from unnest(ord) with ordinality u (o, i))) else 'c' || n end, ', ' order by n) from unnest(c.numbers) n),
      case when p_moved then ', rid, hop' else '' end || case when nests then ', tv' else '' end);
    source := 'filled';
  end if;

  body := body || format($q$step as (
  select *, lag(op) over w as pop, lead(op) over w as nop, %1$s from %2$s window w as (partition by %3$s order by %4$s)),
flag as (
  select s.*, %5$s as chosen, op in ('u', 'i') and coalesce(nop not in ('u', 'd', 't', 'z'), true) or op in ('d', 't') and coalesce(nop not in ('i'), false) as broken from step s%6$s),
$q$, c.beside, source, identity, array_to_string(ord, ', '),
    case when row_before is null then 's.sel' else format('s.sel and (s.op in (''u'', ''d'', ''t'') and coalesce(%s, false) or s.op in (''u'', ''i'') and coalesce(%s, false))', row_before, row_after) end,
    case when row_before is null then '' else format(', lateral (select %s) bf, lateral (select %s) af offset 0', c.was, c.became) end);
  body := body || format($q$chain as (
  select array_agg(row(v, xid, epoch, at, ctx, login, op, start, missing, %2$s)::annals.h%3$s) as img, count(*)::int as m, bool_or(blank) as blank, bool_or(broken) as broken, min(v) filter (where chosen) as first,
         string_agg(case when op not in ('i', 'd', 't') then '.' when chosen then 'S' else 'U' end, '') as se, %4$s
  from flag group by %1$s having bool_or(chosen) offset 0),
place as (
  select img, m, blank, broken, first, (img[m]).op = 'z' as live, length(rtrim(se, 'U.')) as le, length(rtrim(se, 'S.')) as ue,
         case when strpos(se, 'S') > 0 then length(rtrim(rtrim(se, 'U.'), 'S.')) + strpos(substr(rtrim(se, 'U.'), length(rtrim(rtrim(se, 'U.'), 'S.')) + 1), 'S') end as fe, %5$s from chain offset 0),
value as (select *, case when fe is null then live else (img[fe]).op <> 'i' end as wants, %6$s from place offset 0),
diff as (select *, %7$s from value offset 0),
$q$, identity, image, p_tracked, c.letters, c.places, c.valued, c.compared);
  body := body || format($q$clash as (
  select *, array_remove(array[%1$s]::int[], null) as conflict, case when wants and live then array_remove(array[%2$s]::int[], null) else '{}' end as write,
         coalesce(fe is not null and ue > le and not (wants = live and (not wants or not (true = any (d)))) and not (live = ((img[le]).op = 'i') and not (true = any (e))), false) or fe is null and not live and 0 < any (f) as gone
  from diff offset 0),
judged as (
  select *, case when blank then 'erased' when broken or first < %3$s or %8$s then 'interrupted' when gone then 'conflict'
                 when wants and live then case when conflict <> '{}' then 'conflict' when write <> '{}' then 'clean' when ue > coalesce(le, 0) and fe is not null or %4$s then 'undone' end
                 when wants <> live then case when conflict <> '{}' then 'conflict' else 'clean' end
                 when fe is not null and ue > le then 'undone' end as status
  from clash offset 0)
select first as no, case when wants and live then 'u' when wants then 'i' when live then 'd' else 'n' end::"char" as op, status, status = 'clean' as go,
       status = 'conflict' and not gone and wants and (not live or write <> '{}') as partial, write, conflict,
       case when wants and not live and fe is not null then (img[fe]).missing end as absent,
       case when status = 'conflict' then jsonb_strip_nulls(jsonb_build_object('columns', nullif(jsonb_strip_nulls(%5$s), '{}'),
         'existence', case when gone then volvra.blame((img[ue]).v, (img[ue]).xid, (img[ue]).epoch, (img[ue]).at, (img[ue]).ctx, (img[ue]).login) end)) end as blame, %6$s, %7$s
from judged where status is not null$q$,
    (select string_agg(format('case when %s then %s end', x, c.numbers[i]), ', ' order by i) from unnest(string_to_array(c.conflicting, E'\x1f')) with ordinality u (x, i)),
    coalesce(c.written, 'null'), gap, c.any_undone, c.blamed, c.key_shown, c.final, format(hidden, 'unnest(img) i', 'first'));
  if not p_moved then
    -- Most rows were changed once, by an update, and by nobody since. That is what the above says of such a row, with less work.
    body := body || format($q$
union all
select v as no, case when live then 'u' else 'n' end::"char", status, status = 'clean', false, write, '{}', null, null, %1$s, %2$s
from (select y.*, case when blank then 'erased' when not live or v < %3$s or %10$s then 'interrupted' when write <> '{}' then 'clean' end as status
      from (select y.*, case when live then array_remove(array[%4$s]::int[], null) else '{}' end as write
            from (select k.v, k.blank, k.sel, x.tableoid is not null as live, %5$s, %6$s from entries k left join %7$s x on %8$s where k.beside = 1 and k.op = 'u' offset 0) y%9$s offset 0) y offset 0) y
where status is not null$q$, c.once_key, c.once_final, gap, coalesce(c.once_written, 'null'),
      (select string_agg(format(case when p.n = any (gaps) then 'case when coalesce(%1$s = any (k.missing), false) then x.%2$I::%3$s else k.c%1$s end as b%1$s' else 'k.c%1$s as b%1$s' end, p.n, p.name, p.type), ', ' order by p.n) from volvra.plan_columns(p_tracked) p),
      c.now, volvra.base_table(p_tracked), base_same,
      case when row_before is null then '' else format(', lateral (select %s) bf, lateral (select %s) af where sel and (coalesce(%s, false) or live and coalesce(%s, false))', c.once_before, c.once_after, row_before, row_after) end,
      format(hidden, format('(select %s) i', (select string_agg(format('y.b%1$s as c%1$s', k), ', ') from unnest(t.key) k)), 'y.v'));
  end if;
  return 'with recursive ' || body;
end $$;
comment on function volvra.plan_query is 'SQL: the plan for one table. A row per row of the table that selected changes touched, unless they came to nothing: what an undo does (op u, i, d, or n for nothing), status, the columns to write, those in conflict, today''s values f<n> and those to come t<n>, its key k<n>.';
