-- Read sets: what was read on a branch that asks for it (gnomon.branch.reads), so that before a merge one can tell which of it main has changed
-- since. A row is noted by its key, also when it was not there; a range by what its columns lie between; else the whole table. Who reads by
-- ordinary SQL notes it with gnomon.note_read; the calls of the Go package do that by themselves.

create table gnomon.read_mark (
  id bigint primary key generated always as identity,
  branch int not null references gnomon.branch on delete cascade,
  tracked int not null references gnomon.history on delete cascade,
  kind text not null check (kind in ('row', 'range', 'table')),
  key text[],
  ranges jsonb,
  hash text not null,
  snapshot pg_snapshot not null,
  bound bigint not null,
  epoch int not null,
  at timestamptz not null default clock_timestamp(),
  login name not null default session_user,
  check ((kind = 'row') = (key is not null) and (kind = 'range') = (ranges is not null))
);
create index read_mark_branch on gnomon.read_mark (branch, tracked, hash);
create index read_mark_tracked on gnomon.read_mark (tracked);
comment on table gnomon.read_mark is 'What was read on branches.';
comment on column gnomon.read_mark.id is 'Number of the mark.';
comment on column gnomon.read_mark.branch is 'The branch on which it was read.';
comment on column gnomon.read_mark.tracked is 'The history of the table.';
comment on column gnomon.read_mark.kind is 'row: of one key; range: rows between bounds; table: any rows.';
comment on column gnomon.read_mark.key is 'The key of the row, as texts.';
comment on column gnomon.read_mark.ranges is 'The bounds: numbers of columns, each with the lowest and highest value as texts; null is no bound.';
comment on column gnomon.read_mark.hash is 'Finds marks that say the same.';
comment on column gnomon.read_mark.snapshot is 'The base of the branch when it was read.';
comment on column gnomon.read_mark.bound is 'The bound of that base.';
comment on column gnomon.read_mark.epoch is 'The epoch of that base.';
comment on column gnomon.read_mark.at is 'When it was noted first.';
comment on column gnomon.read_mark.login is 'The role that read (session_user).';
comment on index gnomon.read_mark_branch is 'Finds what was read on a branch.';
comment on index gnomon.read_mark_tracked is 'Finds what was read of a table.';

create function gnomon.noted_history(p_relation regclass) returns int
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  id int;
begin
  -- On a branch the name of a table means its view.
  select t.id into id from annals.tracked t join gnomon.history h on h.tracked = t.id and t.ended_v is null where t.relation = p_relation;
  if not found then
    select r.tracked into id from pg_class c join pg_namespace n on n.oid = c.relnamespace join gnomon.route r on r.schema_name = n.nspname and r.view_name = c.relname and r.kind = 'branch' where c.oid = p_relation
      union all select l.tracked from pg_class c join pg_namespace n on n.oid = c.relnamespace join gnomon.lent l on l.schema_name = n.nspname join annals.tracked t on t.id = l.tracked and t.table_name = c.relname where c.oid = p_relation;
  end if;
  if id is null then
    select h.tracked into id from pg_class c join gnomon.history h on c.relname = format('o%s', h.tracked) where c.oid = p_relation and c.relnamespace = 'gnomon'::regnamespace;
  end if;
  if id is null then
    perform gnomon.refuse('GN007', format('table %s is not tracked', p_relation), 'What changes in it later cannot be told. Track it with gnomon.track.', jsonb_build_object('table', p_relation::text));
  end if;
  return id;
end $$;
comment on function gnomon.noted_history is 'The history of a table, given by itself, by its view on branches, or by its overlay.';

create function gnomon.range_columns(p_tracked int) returns table (n int, name name, place int, type text, "collate" text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Bounds are compared with operators of PostgreSQL's own only.
  select c.n, c.name, c.place::int, format_type(v.type, -1), v."collate"
  from (select d.n, d.name, row_number() over (order by d.n) as place from gnomon.diff_columns(p_tracked, 'e') d) c
  join annals.view_columns(p_tracked) v on v.n = c.n join pg_type y on y.oid = v.type and y.typnamespace = 'pg_catalog'::regnamespace
  where exists (select from pg_opclass o join pg_am m on m.oid = o.opcmethod and m.amname = 'btree' where o.opcintype = v.type and o.opcdefault and o.opcnamespace = 'pg_catalog'::regnamespace) or v.type = 'varchar'::regtype
$$;
comment on function gnomon.range_columns is 'Columns of which ranges can be noted, with their places in what a diff returns.';

create function gnomon.note_read(p_table regclass, p_key text[] default null, p_ranges jsonb default null) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  b gnomon.branch;
  history int;
  k record;
  c record;
  bounds jsonb;
  given text[];
  what text := case when p_key is not null then 'row' when p_ranges is not null then 'range' else 'table' end;
  digest text;
begin
  select x.* into b from gnomon.branch x where x.id = (select u.id from gnomon.usable u);
  if not found then
    perform gnomon.refuse('GN019', 'what is read is noted for a branch, but none is in use', 'Choose one with gnomon.use.');
  elsif not b.reads then
    return false;
  end if;
  if p_key is not null and p_ranges is not null then
    perform gnomon.refuse('GN006', 'a key and ranges are given', 'Give one of them; none for the whole table.');
  end if;
  history := gnomon.noted_history(p_table);
  -- What was noted in the same words needs no look at what they mean.
  digest := md5(concat_ws('/', what, p_key::text));
  if p_ranges is null and exists (select from gnomon.read_mark m where m.branch = b.id and m.tracked = history and m.hash in (digest, md5('table')) and m.snapshot::text = b.snapshot::text) then
    return false;
  end if;
  if p_key is not null then
    given := (select array(select jsonb_array_elements_text(g)) from gnomon.given_keys(history, jsonb_build_array(to_jsonb(p_key))) g);
    if given is null then
      perform gnomon.check_key(history, p_key);
    end if;
    -- As it is written everywhere else; what no row can have is kept as it was given.
    p_key := coalesce(given, p_key);
  elsif p_ranges is not null then
    if jsonb_typeof(p_ranges) <> 'object' or p_ranges = '{}' or jsonb_path_exists(p_ranges, 'strict $.* ? (@.type() != "array" || @.size() != 2 || exists (@[*] ? (@.type() != "string" && @.type() != "null")))') then
      perform gnomon.refuse('GN006', 'ranges are an object of columns, each with two texts: the lowest value and the highest', 'Null is no bound: {"price": ["10", null]}.');
    end if;
    bounds := '{}';
    for k in select e.key as name, e.value->>0 as low, e.value->>1 as high from jsonb_each(p_ranges) e loop
      select r.* into c from gnomon.range_columns(history) r where r.name = k.name;
      if not found then
        perform gnomon.refuse('GN006', format('no range of column %I of %s can be noted', k.name, p_table), 'It takes a column of a type that PostgreSQL orders. Note the whole table instead.', jsonb_build_object('table', p_table::text, 'column', k.name));
      end if;
      begin
        execute format('select %L::%s, %L::%2$s', k.low, c.type, k.high);
      exception when others then
        perform gnomon.refuse('GN006', format('range of column %I of %s: %s', k.name, p_table, sqlerrm), format('It takes values of type %s, as texts.', c.type), jsonb_build_object('table', p_table::text, 'column', k.name));
      end;
      bounds := bounds || jsonb_build_object(c.n::text, jsonb_build_array(k.low, k.high));
    end loop;
  end if;
  digest := md5(concat_ws('/', what, p_key::text, bounds::text));
  -- Nothing here waits for others that read the same: so a mark may stand twice. The mark of a table says all that others could.
  insert into gnomon.read_mark (branch, tracked, kind, key, ranges, hash, snapshot, bound, epoch)
  select b.id, history, what, p_key, bounds, digest, b.snapshot, b.bound, b.epoch
  where not exists (select from gnomon.read_mark m where m.branch = b.id and m.tracked = history and m.hash in (digest, md5('table')) and m.snapshot::text = b.snapshot::text);
  return found;
end $$;
comment on function gnomon.note_read is 'Notes, for the branch in use, what is being read of a table: a row by its key (as texts), rows between bounds ({"column": ["low", "high"]}, null for no bound, all of them at once), or anything. Returns whether that was news; a branch that does not record reads ignores it.';

create function gnomon.note_plan(p_plan jsonb) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  -- Whatever reads a table of a branch looks at its overlay.
  select count(*) filter (where gnomon.note_read(format('gnomon.%I', r.name)::regclass))
  from (select distinct x#>>'{}' as name from jsonb_path_query(p_plan, 'strict $.** ? (@."Schema" == "gnomon" && @."Relation Name" like_regex "^o[0-9]+$")."Relation Name"', '{}', true) x) r
$$;
comment on function gnomon.note_plan is 'Notes, for the branch in use, the tables that a statement reads, by what EXPLAIN (VERBOSE, FORMAT JSON) says of it; returns of how many that was news. What functions read within is not in a plan.';

create function gnomon.marks_of(p_branch int) returns setof gnomon.read_mark
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- What was read again on a newer base is not held against the older one.
  select distinct on (m.tracked, m.hash) m.* from gnomon.read_mark m join gnomon.branch b on b.id = m.branch and gnomon.may_use(b.id, b.name)
  where m.branch = p_branch order by m.tracked, m.hash, m.bound desc, m.id desc
$$;
comment on function gnomon.marks_of is 'What was read on a branch, each once.';

create function gnomon.range_names(p_tracked int, p_ranges jsonb) returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select jsonb_object_agg(coalesce(c.name, e.key), e.value) from jsonb_each(p_ranges) e left join annals.tracked_column c on c.tracked = p_tracked and c.n = e.key::int $$;
comment on function gnomon.range_names is 'Ranges with the names of their columns.';

create function gnomon.reads(p_branch text) returns table ("table" text, kind text, key text[], ranges jsonb, at timestamptz, login name)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(t.relation::text, format('%I.%I', t.schema_name, t.table_name)), m.kind, m.key, gnomon.range_names(m.tracked, m.ranges), m.at, m.login
  from gnomon.marks_of((gnomon.branch_named(p_branch)).id) m join annals.tracked t on t.id = m.tracked order by m.at, m.id
$$;
comment on function gnomon.reads is 'What was read on a branch, the oldest first.';

create function gnomon.copy_reads(p_from int, p_to int) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into gnomon.read_mark (branch, tracked, kind, key, ranges, hash, snapshot, bound, epoch, at, login)
  select p_to, m.tracked, m.kind, m.key, m.ranges, m.hash, m.snapshot, m.bound, m.epoch, m.at, m.login from gnomon.marks_of(p_from) m
$$;
comment on function gnomon.copy_reads is 'Gives a new branch what was read on its parent: the changes that it has from there were made after reading it.';

create function gnomon.forget_reads(p_branch text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  n bigint;
begin
  delete from gnomon.read_mark m where m.branch = b.id;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function gnomon.forget_reads is 'Forgets what was read on a branch, as when all is to be decided anew after it was refreshed; returns how many marks that were.';

create function gnomon.own_merges(p_branch int) returns table (transaction text, first_v bigint, last_v bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with recursive own as (
    select m.* from gnomon.merged m where m.branch = p_branch and m.into_branch is null and m.kind = 'merge' and m.status = 'merged'
    union all select u.* from own o join gnomon.merged u on u.undoes = o.id and u.status = 'merged')
  select o.epoch || ':' || o.xid, o.first_v, o.last_v from own o
$$;
comment on function gnomon.own_merges is 'What merges of a branch, and their undoing, wrote to main: it does not make stale what was read on the branch.';

create function gnomon.stale_query(p_tracked int, p_mark gnomon.read_mark, p_to gnomon.place, p_merged boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  base gnomon.place;
  same text;
  others text;
  numbers int[]; -- of the columns that ranges bound
  sorted text;
  ranges text := '';
  found text;
begin
  base.snapshot := p_mark.snapshot;
  base.bound := p_mark.bound;
  base.epoch := p_mark.epoch;
  select string_agg(format('(m.key[%1$s])::%2$s %3$s (d.key[%1$s])::%2$s', u.i, format_type(a.atttypid, -1), annals.key_operator(p_tracked, u.i::int)), ' and ' order by u.i), string_agg(format('e.c%s %s (d.key[%s])::%s', u.n, annals.key_operator(p_tracked, u.i::int), u.i, format_type(a.atttypid, -1)), ' and ' order by u.i) into same, others
    from annals.tracked t, unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', u.n) where t.id = p_tracked;
  found := format('select m.id, d.i from m join d on %s where m.kind = ''row'' union all select m.id, d.i from m cross join d where m.kind = ''table''', same);
  if exists (select from gnomon.marks_of(p_mark.branch) k where k.tracked = p_tracked and k.kind = 'range') then
    -- A row is in a range when it was, or has come to be, between the bounds of all columns; of a column that is gone it may be. So that no range is compared with
    -- every row, the bounds of a column are sorted among its values: a range then is a span of places, and its rows are those that have these places.
    select array_agg(c.n order by c.n), string_agg(format('
  select %1$s as n, s.kind, s.ref, s.side, count(*) filter (where s.kind = 1) over (order by s.x, s.kind rows unbounded preceding) as place from (
    select 0 as kind, b.id as ref, 0 as side, b.low::%2$s%3$s as x from bound b where b.n = %1$s and b.low is not null
    union all select 2, b.id, 0, b.high::%2$s%3$s from bound b where b.n = %1$s and b.high is not null
    union all select 1, i.i, i.side, (i.image[%4$s])::%2$s%3$s from image i where i.image[%4$s] is not null) s', c.n, c.type, c."collate", c.place), ' union all')
      into numbers, sorted from gnomon.range_columns(p_tracked) c
      where exists (select from gnomon.marks_of(p_mark.branch) k where k.tracked = p_tracked and k.kind = 'range' and k.ranges ? c.n::text);
    ranges := format(',
image as materialized (select d.i, s.side, s.image from d cross join lateral (values (1, d.old), (2, d.new)) s (side, image) where s.image is not null),
bound as materialized (select m.id, e.key::int as n, e.value->>0 as low, e.value->>1 as high from m cross join lateral jsonb_each(m.ranges) e
  where m.kind = ''range'' and e.key::int = any (%L::int[]) and (e.value->>0 is not null or e.value->>1 is not null)),
sorted as materialized (%s),
value as materialized (select s.* from sorted s where s.kind = 1),
span as materialized (select e.ref as id, e.n, coalesce(max(e.place) filter (where e.kind = 0) + 1, 1) as low, coalesce(max(e.place) filter (where e.kind = 2), max(z.places)) as high
  from sorted e left join (select v.n, count(*) as places from value v group by v.n) z on z.n = e.n where e.kind <> 1 group by e.ref, e.n),
narrow as materialized (select distinct on (s.id) s.* from span s order by s.id, s.high - s.low, s.n),
spot as materialized (select w.id, w.n, g.place from narrow w cross join lateral generate_series(w.low, w.high) g (place)),
met as materialized (select s.id, v.ref as i, v.side from spot s join value v on v.n = s.n and v.place = s.place),
gone as materialized (select x.i from image x where x.image = ''{}'')',
      coalesce(numbers, '{}'), coalesce(sorted, 'select null::int as n, null::int as kind, null::bigint as ref, null::int as side, null::bigint as place'));
    found := found || '
  union all (
    select t.id, t.i from met t left join (select s.* from span s join narrow w on w.id = s.id and w.n <> s.n) o on o.id = t.id left join value q on q.n = o.n and q.ref = t.i and q.side = t.side
      group by t.id, t.i, t.side having bool_and(o.id is null or coalesce(q.place between o.low and o.high, false))
    union select m.id, i.i from m cross join image i where m.kind = ''range'' and m.id not in (select b.id from bound b)
    union select m.id, i.i from m cross join gone i where m.kind = ''range'')';
  end if;
  return format('with m as materialized (select * from gnomon.marks_of(%1$s) x where x.tracked = %2$s and x.snapshot::text = %3$L),
d as materialized (select row_number() over (order by d.v) as i, d.* from (%4$s) d%5$s)%6$s,
found as (%7$s)
select f.id, f.changes, jsonb_build_object(''key'', d.key, ''operation'', d.operation, ''v'', d.v, ''transaction'', d.transaction, ''at'', d.at, ''login'', d.login, ''actor'', d.actor)
from (select x.id, count(*) as changes, max(x.i) as i from found x group by x.id) f join d on d.i = f.i order by f.id',
    p_mark.branch, p_tracked, p_mark.snapshot, gnomon.diff_query(p_tracked, base, p_to, false, false),
    case when p_merged then format(' where exists (select from annals.h%s e where %s and e.epoch = %s and e.v > %s and not pg_visible_in_snapshot(e.xid, %L) and not exists (select from gnomon.own_merges(%s) g where g.transaction = e.epoch || '':'' || e.xid and e.v between g.first_v and g.last_v))',
      p_tracked, others, base.epoch, base.bound, base.snapshot, p_mark.branch) else '' end, ranges, found);
end $$;
comment on function gnomon.stale_query is 'SQL for those marks of a table on one base that main has changed since. Of a branch that was merged before, rows that only its merges changed are left out.';

create function gnomon.stale_reads(p_branch text) returns table ("table" text, kind text, key text[], ranges jsonb, read_at timestamptz, reader name, changes bigint, changed_key text[], operation text, v bigint, transaction text, at timestamptz, login text, actor text, why text)
language plpgsql volatile set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
#variable_conflict use_column
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  present gnomon.place;
  merged boolean;
  g record;
  base gnomon.place;
  reason jsonb;
  t annals.tracked;
  relation text;
begin
  if not exists (select from gnomon.marks_of(b.id)) then
    return;
  end if;
  present := gnomon.place_of('now');
  merged := exists (select from gnomon.own_merges(b.id));
  for g in select x.tracked, (array_agg(x order by x.id))[1] as mark from gnomon.marks_of(b.id) x group by x.tracked, x.snapshot::text order by x.tracked, min(x.id) loop
    t := gnomon.tracked_row(g.tracked);
    relation := coalesce((select c.oid::regclass::text from pg_class c where c.oid = t.relation), format('%I.%I', t.schema_name, t.table_name));
    base.snapshot := (g.mark).snapshot;
    base.bound := (g.mark).bound;
    base.epoch := (g.mark).epoch;
    reason := case when t.ended_v is not null then jsonb_build_object('message', format('%s is not tracked any more', relation)) when base.epoch <> present.epoch then jsonb_build_object('message', 'the database was restored since') else gnomon.unreachable(t, base) end;
    if reason is not null then
      -- What cannot be told is not taken for unchanged.
      return query select relation, m.kind, m.key, gnomon.range_names(m.tracked, m.ranges), m.at, m.login, null::bigint, null::text[], null::text, null::bigint, null::text, null::timestamptz, null::text, null::text, reason->>'message'
        from gnomon.marks_of(b.id) m where m.tracked = g.tracked and m.snapshot::text = (g.mark).snapshot::text order by m.id;
    elsif not has_table_privilege(t.relation, 'select') then
      perform gnomon.refuse('42501', format('permission denied for %s, which was read on branch %L', relation, b.name), 'It takes SELECT on the table to tell what changed.', jsonb_build_object('table', relation));
    elsif row_security_active(t.relation) then
      perform gnomon.refuse('GN020', format('row-level security of %s restricts the role, so it cannot tell what changed of what was read on branch %L', relation, b.name), 'Use a role that may read all rows.', jsonb_build_object('table', relation, 'reason', 'row-level security'));
    else
      return query execute format('select %L::text, m.kind, m.key, gnomon.range_names(m.tracked, m.ranges), m.at, m.login, s.changes, array(select jsonb_array_elements_text(s.last->''key'')), s.last->>''operation'', (s.last->>''v'')::bigint, s.last->>''transaction'', (s.last->>''at'')::timestamptz, s.last->>''login'', s.last->>''actor'', null::text from (%s) s (id, changes, last) join gnomon.marks_of(%s) m on m.id = s.id order by m.id',
        relation, gnomon.stale_query(g.tracked, g.mark, present, merged), b.id);
    end if;
  end loop;
end $$;
comment on function gnomon.stale_reads is 'What was read on a branch and is different on main by now: rows that changed, appeared or went; ranges and tables in which any did, with how many, and the last of these changes. A row that changed and changed back is not, and neither is what merges of the branch wrote. Where that cannot be told, why is not null. Main is what is committed now, without the changes of the calling transaction.';

create function gnomon.check_stale(p_branch int) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_of(p_branch);
  list jsonb;
  n bigint;
begin
  -- Of two merges that demand this, the second one sees what the first one wrote.
  perform pg_advisory_xact_lock(1735289709, -1);
  select count(*), jsonb_agg(to_jsonb(s)) filter (where s.i <= 100) into n, list from (select x.*, row_number() over () as i from gnomon.stale_reads(b.name) x) s;
  if n > 0 then
    perform gnomon.refuse('GN023', format('%s read%s on branch %L %s stale: main has changed %s since%s', n, case when n > 1 then 's' else '' end, b.name, case when n > 1 then 'are' else 'is' end, list->0->>'table', case when n > 1 then ', among others' else '' end),
      'gnomon.stale_reads lists them. Refresh the branch, and read them again before deciding anew; or gnomon.forget_reads.', jsonb_build_object('branch', b.name, 'table', list->0->>'table', 'count', n, 'reads', list));
  end if;
end $$;
comment on function gnomon.check_stale is 'Refuses to go on when main has changed what was read on a branch. Holds a lock until the transaction ends, so that merges which demand this come one after another.';
