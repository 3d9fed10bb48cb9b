-- The change feed. A consumer has a name and a position: a snapshot all of whose changes it has had. What comes next is a window, the change
-- set up to a later snapshot, which is noted before anything of it is delivered; so how far a window was delivered is told by the place of its
-- last change and the transactions before, and whoever goes on after a crash finds the same window: of the same histories, whatever is tracked since.
--
-- Positions outlast crashes, of servers that commit asynchronously too, and promotions. What a snapshot saw was in the log before it, and so
-- before the commit of a position that names it: where the position survived, it did. Transactions that were lost had been running, so they
-- are in the snapshot's list or beyond its end. Ids below that end are not given out again, since the log of a transaction that had ended
-- was before the snapshot as well. Only a restore makes ids mean something else.

create table gnomon.consumer (
  name text primary key check (name <> '' and length(name) <= 200),
  tables regclass[],
  operations text[] check (operations <@ '{insert,update,delete,truncate}'),
  keys jsonb,
  images boolean not null,
  noop boolean not null,
  epoch int not null,
  from_snapshot pg_snapshot not null,
  from_bound bigint not null,
  from_v bigint not null,
  to_snapshot pg_snapshot,
  to_bound bigint,
  to_v bigint,
  done_top bigint not null default 0,
  done_place bigint not null default 0,
  done_xid xid8,
  histories int[],
  snapshot_tables regclass[] not null default '{}',
  snapshot_key text[],
  lease uuid,
  lease_until timestamptz,
  holder text,
  delivered bigint not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  moved_at timestamptz not null default clock_timestamp()
);
comment on table gnomon.consumer is 'Consumers of the change feed and how far they are.';
comment on column gnomon.consumer.name is 'The name.';
comment on column gnomon.consumer.tables is 'Tables whose changes it wants; null: those of all tracked tables.';
comment on column gnomon.consumer.operations is 'Operations that it wants; null: all.';
comment on column gnomon.consumer.keys is 'Keys that it wants, an array of arrays of texts; null: all.';
comment on column gnomon.consumer.images is 'Whether it wants what rows were and became.';
comment on column gnomon.consumer.noop is 'Whether it wants updates that changed nothing as well.';
comment on column gnomon.consumer.epoch is 'Epoch of the snapshots.';
comment on column gnomon.consumer.from_snapshot is 'It has had all that this snapshot sees.';
comment on column gnomon.consumer.from_bound is 'Entries that the snapshot does not see have higher positions.';
comment on column gnomon.consumer.from_v is 'About where among the entries the snapshot was taken.';
comment on column gnomon.consumer.to_snapshot is 'What is being delivered ends where this snapshot does; null: nothing is.';
comment on column gnomon.consumer.to_bound is 'Entries that it does not see have higher positions.';
comment on column gnomon.consumer.to_v is 'About where among the entries it was taken.';
comment on column gnomon.consumer.done_top is 'Last position of the last transaction of which something was delivered; 0: nothing was.';
comment on column gnomon.consumer.done_place is 'Place of the last change that was delivered.';
comment on column gnomon.consumer.done_xid is 'Transaction of that change, where more of it follows.';
comment on column gnomon.consumer.histories is 'Histories whose changes are being delivered.';
comment on column gnomon.consumer.snapshot_tables is 'Tables whose rows at the beginning are still to be delivered, the first one first.';
comment on column gnomon.consumer.snapshot_key is 'Key of the last row of the first of them that was delivered.';
comment on column gnomon.consumer.lease is 'Token of the process that works for the consumer.';
comment on column gnomon.consumer.lease_until is 'Until when it does unless it says more.';
comment on column gnomon.consumer.holder is 'What it calls itself.';
comment on column gnomon.consumer.delivered is 'How many changes and rows were delivered.';
comment on column gnomon.consumer.created_at is 'When the consumer was made.';
comment on column gnomon.consumer.moved_at is 'When its position moved last.';

create table gnomon.delivered (
  consumer text not null references gnomon.consumer on delete cascade,
  xids xid8[] not null
);
create index delivered_consumer on gnomon.delivered (consumer);
comment on table gnomon.delivered is 'Transactions of what is being delivered to consumers that they have had whole, page by page. Erasures may move the last positions of others to before theirs.';
comment on column gnomon.delivered.consumer is 'The consumer.';
comment on column gnomon.delivered.xids is 'Ids of the transactions.';
comment on index gnomon.delivered_consumer is 'Finds those of a consumer.';

create function gnomon.delivered_of(p_name text) returns setof xid8
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select unnest(d.xids) from gnomon.delivered d where d.consumer = p_name $$;
comment on function gnomon.delivered_of is 'Transactions of what is being delivered to a consumer that it has had whole.';

create function gnomon.create_consumer(p_name text, p_options jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  given regclass[] := (select array_agg(case when x ~ '^[0-9]+$' then x::oid::regclass else x::regclass end) from jsonb_array_elements_text(nullif(p_options->'tables', 'null')) x);
  wanted text[] := (select array_agg(x) from jsonb_array_elements_text(nullif(p_options->'operations', 'null')) x);
  given_keys jsonb := nullif(nullif(p_options->'keys', 'null'), '[]');
  histories int[];
  rows_of regclass[] := '{}';
  unknown text := (select k from jsonb_object_keys(p_options) k where k <> all ('{tables,operations,keys,images,noop,from,snapshot}') limit 1);
begin
  if unknown is not null then
    perform gnomon.refuse('GN006', format('%L is no option of a consumer', unknown), 'Options are tables, operations, keys, images, noop, from and snapshot.');
  elsif p_name is null or p_name = '' or length(p_name) > 200 then
    perform gnomon.refuse('GN006', 'a consumer has a name of at most 200 characters', 'Give another one.');
  elsif wanted <@ '{insert,update,delete,truncate}' is false then
    perform gnomon.refuse('GN006', 'operations are insert, update, delete and truncate', 'Name those that are wanted.');
  elsif exists (select from gnomon.consumer c where c.name = p_name) then
    perform gnomon.refuse('GN013', format('there is a consumer %L already', p_name), 'gnomon.drop_consumer drops it.', jsonb_build_object('consumer', p_name));
  end if;
  -- Pinned first, by which pruning waits or has ended; then it is looked whether all is there.
  p := gnomon.place_of(coalesce(p_options->>'from', 'now'));
  insert into annals.pin (owner, name, v) values ('gnomon consumer', p_name, p.bound);
  perform gnomon.check_tables(given);
  histories := gnomon.change_histories(p, p, given);
  if given_keys is not null then
    perform gnomon.check_keys(histories, given_keys);
  end if;
  if coalesce((p_options->>'snapshot')::boolean, false) then
    rows_of := array(select k.relation from annals.tracked k join gnomon.history h on h.tracked = k.id join pg_class c on c.oid = k.relation
      where ('gnomon' = any (k.users) or k.ended_v is not null)
        and case when given is not null then k.relation = any (given) else gnomon.began_before(k, p.epoch, p.snapshot) and not gnomon.ended_before(k, p.epoch, p.snapshot) end
      group by k.relation order by min(k.id));
    perform gnomon.history_at(r, p) from unnest(rows_of) r;
  end if;
  insert into gnomon.consumer (name, tables, operations, keys, images, noop, epoch, from_snapshot, from_bound, from_v, snapshot_tables)
    select p_name, given, wanted, given_keys, coalesce((p_options->>'images')::boolean, true), coalesce((p_options->>'noop')::boolean, false), p.epoch, p.snapshot, p.bound,
      case when coalesce(p_options->>'from', 'now') = 'now' then gnomon.last_position() else p.bound end, rows_of;
exception when unique_violation then
  perform gnomon.refuse('GN013', format('there is a consumer %L already', p_name), 'gnomon.drop_consumer drops it.', jsonb_build_object('consumer', p_name));
end $$;
comment on function gnomon.create_consumer is 'Makes a consumer of the change feed. Options: tables, operations, keys (arrays of texts), images (default true), noop (also updates that changed nothing), from (a coordinate, tag:name, time, or now), snapshot (the rows of the tables as they were there come first).';

create function gnomon.consumer_of(p_name text) returns gnomon.consumer
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  c gnomon.consumer;
begin
  select * into c from gnomon.consumer x where x.name = p_name;
  if not found then
    perform gnomon.refuse('GN012', format('there is no consumer %L', p_name), 'gnomon.create_consumer makes it.', jsonb_build_object('consumer', p_name));
  end if;
  return c;
end $$;
comment on function gnomon.consumer_of is 'A consumer; an error when there is none of that name.';

create function gnomon.drop_consumer(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.consumer_of(p_name);
  delete from gnomon.consumer c where c.name = p_name;
  delete from annals.pin p where p.owner = 'gnomon consumer' and p.name = p_name;
end $$;
comment on function gnomon.drop_consumer is 'Drops a consumer, and lets go of the history that it kept.';

create function gnomon.lease_consumer(p_name text, p_lease uuid, p_holder text, p_seconds float8) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  c gnomon.consumer := gnomon.consumer_of(p_name);
begin
  if c.epoch <> annals.present_epoch() then
    perform gnomon.refuse('AN009', format('consumer %L was made in another epoch: since then the database was restored', p_name), 'Drop it and make it anew, with a snapshot where it has to know all rows.', jsonb_build_object('consumer', p_name));
  end if;
  update gnomon.consumer x set lease = p_lease, holder = p_holder, lease_until = clock_timestamp() + make_interval(secs => p_seconds)
    where x.name = p_name and (x.lease is null or x.lease = p_lease or x.lease_until < clock_timestamp());
  return found;
end $$;
comment on function gnomon.lease_consumer is 'Begins to work for a consumer, or goes on to; false while another process does.';

create function gnomon.release_consumer(p_name text, p_lease uuid) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update gnomon.consumer c set lease = null, lease_until = null, holder = null where c.name = p_name and c.lease = p_lease
$$;
comment on function gnomon.release_consumer is 'Ends working for a consumer.';

create function gnomon.not_leased(p_name text) returns void
language sql set search_path = pg_catalog, pg_temp
as $$ select gnomon.refuse('GN014', format('consumer %L is held by another process', p_name), 'Wait: another process goes on when its lease has ended.', jsonb_build_object('consumer', p_name)) $$;
comment on function gnomon.not_leased is 'Refuses what only the process that works for a consumer may do.';

create function gnomon.open_window(p_name text, p_lease uuid, p_span bigint, out rows_of regclass, out open boolean, out latest boolean) returns record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  c gnomon.consumer := gnomon.consumer_of(p_name);
  taken pg_snapshot := annals.taken_snapshot();
  chosen int[];
  k annals.tick;
begin
  if c.lease is distinct from p_lease then
    perform gnomon.not_leased(p_name);
  end if;
  -- The rows of a table that was dropped are not known any more.
  if not exists (select from pg_class y where y.oid = c.snapshot_tables[1]) and c.snapshot_tables <> '{}' then
    update gnomon.consumer x set snapshot_tables = array(select u.r from unnest(c.snapshot_tables) with ordinality u (r, i) join pg_class y on y.oid = u.r order by u.i), snapshot_key = null
      where x.name = p_name and x.lease = p_lease returning * into c;
    if not found then
      perform gnomon.not_leased(p_name);
    end if;
  end if;
  rows_of := c.snapshot_tables[1];
  open := c.to_snapshot is not null;
  latest := false;
  -- What is in process already comes first; and nothing was written since where all positions are below what the snapshot does not see.
  if open or rows_of is not null or annals.lower_bound(c.from_snapshot) >= gnomon.last_position() then
    return;
  end if;
  -- Not much more than p_span positions, as far as ticks tell.
  select * into k from annals.tick t where t.epoch = c.epoch and t.upper_xid >= pg_snapshot_xmin(c.from_snapshot) and t.v >= c.from_v + p_span
    and annals.snapshot_covers(t.snapshot, c.from_snapshot) and annals.snapshot_covers(taken, t.snapshot) order by t.upper_xid limit 1;
  latest := not found;
  if latest then
    k.v := gnomon.last_position();
  else
    taken := k.snapshot;
  end if;
  chosen := gnomon.change_histories(gnomon.stored_place(c.from_snapshot, c.epoch, c.from_bound), gnomon.stored_place(taken, c.epoch, annals.lower_bound(taken)), c.tables);
  update gnomon.consumer x set to_snapshot = taken, to_bound = annals.lower_bound(taken), to_v = k.v, histories = chosen
    where x.name = p_name and x.lease = p_lease and x.to_snapshot is null;
  if not found then
    perform gnomon.not_leased(p_name);
  end if;
  open := true;
end $$;
comment on function gnomon.open_window is 'Notes what is delivered next to a consumer, unless something is being delivered: about so many positions, or up to now, which latest tells. Or the table whose rows come first.';

create function gnomon.window_query(c gnomon.consumer) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select gnomon.changes_query(gnomon.stored_place(c.from_snapshot, c.epoch, c.from_bound), gnomon.stored_place(c.to_snapshot, c.epoch, c.to_bound),
    jsonb_strip_nulls(jsonb_build_object('histories', c.histories, 'operations', c.operations, 'keys', c.keys, 'images', c.images, 'noop', c.noop,
      'delivered', case when c.done_top > 0 then c.name end, 'within', case when c.done_xid is not null then jsonb_build_array(c.done_xid::text, c.done_place) end)))
$$;
comment on function gnomon.window_query is 'SQL for what is left of the window that is being delivered to a consumer, see gnomon.changes_query.';

create function gnomon.first_unseen(p_tracked int, p_key text[], p_snapshot pg_snapshot, p_epoch int, p_bound bigint) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  first bigint;
begin
  -- Of all entries, so it reads the segments. It tells that and when a row changed, never what or how.
  execute (select format('select e.v from (select e.*, min(e.v) over (partition by e.xid) as first from (%s) e where e.v > %s and not pg_visible_in_snapshot(e.xid, %L)) e order by e.first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v limit 1',
      string_agg(format('select s.v, s.xid, s.op, %s as start from %s s where %s', case when s.nests then 'coalesce(s.start, s.v)' else 's.v' end, s.relation,
        (select string_agg(format('s.c%s %s ($1)[%s]::%s', u.n, annals.key_operator(t.id, u.i::int), u.i, format_type(a.atttypid, a.atttypmod)), ' and ' order by u.i)
         from unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = s.relation and a.attname = 'c' || u.n)), ' union all '), p_bound, p_snapshot)
    from annals.segment s join annals.tracked t on t.id = s.tracked where t.id = p_tracked and s.epoch = p_epoch and t.key <@ s.columns) into first using p_key;
  return first;
end $$;
comment on function gnomon.first_unseen is 'Position of the earliest entry of a key that a snapshot does not see, whoever may read it. For callers whom row-level security lets see only some entries.';

create function gnomon.rows_query(p_table regclass, p gnomon.place, p_keys jsonb, p_after text[], p_limit int) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  h int := gnomon.history_at(p_table, p);
  t annals.tracked := (select k from annals.tracked k where k.id = h);
  nests boolean := exists (select from annals.segment s where s.tracked = h and s.nests and (s.last_v is null or s.last_v > p.bound));
  order_of text := case when nests then 'x.first, x.start, case x.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, x.v' else 'x.v' end;
  keys text;
  key text;
  b_keys text;
  b_key text;
  after text;
  image text;
  today text;
  hidden text := '';
  b_hidden text := '';
begin
  select string_agg('x.c' || u.n, ', ' order by u.i), string_agg(gnomon.text_of('x.c' || u.n, a.atttypid), ', ' order by u.i), string_agg(format('b.%I', c.name), ', ' order by u.i),
         string_agg(gnomon.text_of(format('b.%I', c.name), a.atttypid), ', ' order by u.i), string_agg(format('%L::%s', p_after[u.i], format_type(a.atttypid, a.atttypmod)), ', ' order by u.i)
    into keys, key, b_keys, b_key, after
    from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = h and c.n = u.n join pg_attribute a on a.attrelid = format('annals.h%s', h)::regclass and a.attname = 'c' || u.n;
  select string_agg(case when not c.is_key and g.lacking then format('case when %s = any (x.missing) then %s else %s end', c.n, gnomon.change_kept(h, c.n, c.type, nests), gnomon.text_of('x.c' || c.n, c.type))
                         else gnomon.text_of('x.c' || c.n, c.type) end, ', ' order by c.n),
         string_agg(case when c.here then gnomon.text_of(format('b.%I', c.name), c.type) else 'null' end, ', ' order by c.n)
    into image, today from gnomon.image_columns(h) c,
      lateral (select bool_or(c.n <> all (s.columns) or c.n = any (s.wide)) as lacking from annals.segment s where s.tracked = h and (s.last_v is null or s.last_v > p.bound)) g;
  if row_security_active(p_table) then
    hidden := format(' and x.v = gnomon.first_unseen(%s, array[%s], %L, %s, %s)', h, key, p.snapshot, p.epoch, p.bound);
    b_hidden := format(' and gnomon.first_unseen(%s, array[%s], %L, %s, %s) is null', h, b_key, p.snapshot, p.epoch, p.bound);
  end if;
  if p_keys is not null then
    p_keys := (select coalesce(jsonb_agg(k), '[]') from gnomon.given_keys(h, p_keys) k);
    hidden := hidden || format(' and to_jsonb(array[%s]) in (select jsonb_array_elements(%L))', key, p_keys);
    b_hidden := b_hidden || format(' and to_jsonb(array[%s]) in (select jsonb_array_elements(%L))', b_key, p_keys);
  end if;
  return format($query$with unseen as materialized (
    select distinct on (%1$s) x.* from (select x.*%2$s from annals.h%3$s x where %4$s%5$s) x order by %1$s, %6$s)
  select q.key, q.image from (
    (select %1$s, array[%7$s] as key, case when x.op in ('u', 'd', 't') then array[%8$s] end as image from unseen x where x.op in ('u', 'd', 't', 'U', 'D', 'T')%9$s order by %1$s limit %10$s)
    union all
    (select %11$s, array[%12$s], array[%13$s] from %14$s where true%15$s and not exists (select from unseen x where %16$s)%17$s order by %11$s limit %10$s)) q (%18$s, key, image)
  order by %18$s limit %10$s$query$,
    keys, case when nests then format(', min(x.v) over (partition by %s, x.xid) as first', keys) else '' end, h, gnomon.change_condition(h, p, null),
    case when p_after is not null then format(' and (%s) > (%s)', keys, after) else '' end, order_of, key, image, hidden, p_limit,
    b_keys, b_key, today, -- All rows were saved when tracking ended.
    case when t.ended_v is null then annals.source(p_table) || ' b' else format('(select %s where false) b', (select string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), c.name), ', ') from annals.tracked_column c join pg_attribute a on a.attrelid = format('annals.h%s', h)::regclass and a.attname = 'c' || c.n where c.tracked = h and c.gone_v is null)) end,
    case when p_after is not null then format(' and (%s) > (%s)', b_keys, after) else '' end, annals.key_join(h, 'x.c%1$s', 'b.%2$I'), b_hidden,
    (select string_agg('k' || u.i, ', ' order by u.i) from unnest(t.key) with ordinality u (n, i)));
end $$;
comment on function gnomon.rows_query is 'SQL for rows of a table at a place in the order of their keys: key and image, so many after a key; of all, or of those with some keys.';

create function gnomon.snapshot_query(c gnomon.consumer, p_limit int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select gnomon.rows_query(c.snapshot_tables[1], gnomon.stored_place(c.from_snapshot, c.epoch, c.from_bound), c.keys, c.snapshot_key, p_limit)
$$;
comment on function gnomon.snapshot_query is 'SQL for the next rows that a consumer gets before any changes.';

create function gnomon.move_consumer(p_name text, p_lease uuid, p_top bigint, p_place bigint, p_within xid8, p_whole xid8[], p_changes bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update gnomon.consumer c set done_top = greatest(c.done_top, p_top), done_place = p_place, done_xid = p_within, delivered = c.delivered + p_changes, moved_at = clock_timestamp()
    where c.name = p_name and c.lease = p_lease and c.to_snapshot is not null;
  if not found then
    perform gnomon.not_leased(p_name);
  end if;
  insert into gnomon.delivered (consumer, xids) select p_name, p_whole where p_whole <> '{}';
end $$;
comment on function gnomon.move_consumer is 'Notes that a consumer has had changes up to one of the window, by which it has had some transactions whole, and perhaps a part of one.';

create function gnomon.move_rows(p_name text, p_lease uuid, p_table regclass, p_key text[], p_rows bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- Without a key the table is done.
  update gnomon.consumer c set snapshot_key = p_key, snapshot_tables = case when p_key is null then c.snapshot_tables[2:] else c.snapshot_tables end, delivered = c.delivered + p_rows, moved_at = clock_timestamp()
    where c.name = p_name and c.lease = p_lease and c.snapshot_tables[1] = p_table;
  if not found then
    perform gnomon.not_leased(p_name);
  end if;
end $$;
comment on function gnomon.move_rows is 'Notes that a consumer has had the rows of a table up to a key, or all.';

create function gnomon.close_window(p_name text, p_lease uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  bound bigint;
begin
  update gnomon.consumer c set from_snapshot = c.to_snapshot, from_bound = greatest(c.to_bound, annals.lower_bound(c.to_snapshot)), from_v = c.to_v, to_snapshot = null, to_bound = null, to_v = null, done_top = 0, done_place = 0, done_xid = null, histories = null
    where c.name = p_name and c.lease = p_lease and c.to_snapshot is not null returning c.from_bound into bound;
  if not found then
    perform gnomon.not_leased(p_name);
  end if;
  delete from gnomon.delivered d where d.consumer = p_name;
  update annals.pin p set v = bound, at = clock_timestamp() where p.owner = 'gnomon consumer' and p.name = p_name and p.v <> bound;
end $$;
comment on function gnomon.close_window is 'Notes that a consumer has had all of its window, and lets go of the history before.';

create function gnomon.consumers()
returns table (name text, tables text[], delivering boolean, waiting_rows_of text[], entries_behind bigint, behind_since timestamptz, pinned_v bigint, pinned_bytes bigint, holder text, lease_until timestamptz, delivered bigint, created_at timestamptz, moved_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- How far behind is told by positions, of which some are taken for other things than entries, and by ticks.
  select c.name, (select array_agg(x::text) from unnest(c.tables) x), c.to_snapshot is not null, array(select x::text from unnest(c.snapshot_tables) x), greatest(gnomon.last_position() - greatest(c.from_v, c.done_top), 0),
    case when gnomon.last_position() > greatest(c.from_v, c.done_top) then (select max(t.at) from annals.tick t where t.v <= greatest(c.from_v, c.done_top)) end,
    p.v, (select coalesce(sum(pg_total_relation_size(g.relation)), 0) from annals.segment g where g.last_v is null or g.last_v >= p.v)::bigint,
    case when c.lease_until > clock_timestamp() then c.holder end, case when c.lease_until > clock_timestamp() then c.lease_until end, c.delivered, c.created_at, c.moved_at
  from gnomon.consumer c left join annals.pin p on p.owner = 'gnomon consumer' and p.name = c.name
  order by c.name
$$;
comment on function gnomon.consumers is 'Consumers of the change feed: how many entries each is behind and since when, which history it keeps from being pruned, with about how many bytes of segments, and who works for it.';
