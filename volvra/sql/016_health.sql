-- Is everything captured that should be? What status, health and preflight say is about tables, positions and numbers, never about rows,
-- so they look with the rights of whoever installed volvra.

create function volvra.last_entry(p_tracked int) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  s record;
  last timestamptz;
  blocks bigint;
begin
  for s in select g.relation from annals.segment g where g.tracked = p_tracked order by g.number desc loop
    -- Segments only grow, so the last entries stand in the last blocks.
    blocks := pg_relation_size(s.relation) / current_setting('block_size')::int;
    execute format('select max(e.at) from %s e where e.ctid >= %L::tid', s.relation, format('(%s,0)', greatest(blocks - 2, 0))) into last;
    exit when last is not null;
  end loop;
  return last;
end $$;
comment on function volvra.last_entry is 'When the transaction began that wrote the last entry of a history; null when there is none.';

create function volvra.status()
returns table ("table" text, tracked int, since timestamptz, key text[], options jsonb, form text, segments int, entries bigint, bytes bigint, last_entry timestamptz, drift text[])
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s."table", t.id, c.since, array(select k.name::text from unnest(t.key) with ordinality u (n, i) join annals.tracked_column k on k.tracked = t.id and k.n = u.n order by i), t.options,
         case when t.form = t.update_form then t.form else format('%s, updates by %s', t.form, t.update_form) end, s.segments, s.entries, s.bytes, volvra.last_entry(t.id), array(select d.detail from annals.drift(t.id) d)
  from annals.tracked t join volvra.coverage c on c.tracked = t.id join volvra.storage() s on s.tracked = t.id
  where t.ended_v is null and 'volvra' = any (t.users) order by 1
$$;
comment on function volvra.status is 'Covered tables: since when, by which key, with which options, whether they are captured by statement or by row, the size of their histories, and how they differ from what their capture was made for.';

create function volvra.full_xid(p_xid xid) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when h < x.n then null else h - ((h - x.n) & 4294967295) end from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint) y (h), (select p_xid::text::bigint) x (n)
$$;
comment on function volvra.full_xid is 'The transaction id that the system column xmin stands for, as far as one can tell.';

create function volvra.uncaptured(p_tracked int) returns table (what text, detail text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
  t annals.tracked;
  c volvra.coverage;
  leaf record;
  known text;
  found boolean;
  keys text;
  gap_v bigint;
  blocks bigint;
  s annals.segment;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select * into c from volvra.coverage v where v.tracked = p_tracked;
  select coalesce(max(g.v), 0) into gap_v from annals.gap g where g.tracked = p_tracked;
  -- Entries of the present key, wherever they stand.
  select string_agg(format('select e.v, e.xid, e.op, %s as start, %s from %s e', case when g.nests then 'coalesce(e.start, e.v)' else 'e.v' end,
      (select string_agg(format('e.c%s', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)), g.relation), ' union all ') into known
    from annals.segment g where g.tracked = p_tracked and t.key <@ g.columns;
  select string_agg(format('e.c%s', k), ', ' order by i) into keys from unnest(t.key) with ordinality u (k, i);
  -- A row that is newer than the coverage has an entry, of its own transaction or, under a savepoint, of an earlier number. Rewriting
  -- a table makes all rows new; where no event trigger follows that, only tables are judged that were not rewritten. And after four
  -- thousand million transactions xmin no longer tells.
  if c.epoch = (select max(number) from annals.epoch) and pg_snapshot_xmax(pg_current_snapshot())::text::bigint < 4294967296
     and (annals.follows_ddl() or c.filenode is not distinct from pg_relation_filenode(t.relation)) and t.pruned_v is null then
    for leaf in select l.relid::regclass as name, greatest(pg_relation_size(l.relid) / current_setting('block_size')::int, 1) as blocks from annals.leaves(t.relation) l where l.leaf loop
      -- A sample of a thousand blocks, and the newest ones.
      execute format($query$
        select exists (
          select from (select b.*, volvra.full_xid(b.xmin) as made from only %1$s b tablesample system (%2$s)
                       union all select b.*, volvra.full_xid(b.xmin) from only %1$s b where b.ctid >= %3$L::tid) b
          left join lateral (select e.xid from (%4$s) e where %5$s order by e.v desc limit 1) e on true
          where b.made > %6$s and not exists (select from annals.segment g where g.tracked = %7$s and g.closed_by = b.made::text::xid8)
            and (e.xid is null
              -- or its last entry is of a transaction that had ended before its own began
              or e.xid::text::bigint < b.made and (%9$s exists (select from annals.tick k where k.epoch = %8$s and k.upper_xid::text::bigint <= b.made and e.xid < k.upper_xid and pg_visible_in_snapshot(e.xid, k.snapshot)))))$query$,
        leaf.name, least(100, 100000.0 / leaf.blocks), format('(%s,0)', greatest(leaf.blocks - 100, 0)), known, annals.key_join(p_tracked, 'e.c%1$s', 'b.%2$I'), c.xid, p_tracked, c.epoch,
        case when current_setting('track_commit_timestamp') = 'on' then 'pg_xact_commit_timestamp(b.made::text::xid) <> pg_xact_commit_timestamp(e.xid::text::xid) or' else '' end) into found;
      if found then
        return query select 'uncaptured write', format('rows of %s are newer than their history: something wrote them past capture', leaf.name);
        exit;
      end if;
    end loop;
  end if;
  -- A key whose last entry says that its row is there, has a row. Looked at for the newest entries.
  select * into s from annals.segment g where g.tracked = p_tracked order by g.number desc limit 1;
  blocks := pg_relation_size(s.relation) / current_setting('block_size')::int;
  execute format($query$
    select exists (
      select from (select distinct on (%1$s) e.* from (
          select e.*, min(e.v) over (partition by %1$s, e.xid) as first from (%2$s) e
          where e.v > %3$s and exists (select from %4$s n where n.ctid >= %5$L::tid and %6$s)) e
        order by %1$s, e.first desc, e.start desc, case e.op when 'm' then 1 when 'n' then 2 when 'i' then 2 else 0 end desc, e.v desc) e
      where e.op in ('i', 'n', 'u', 'U') and not exists (select from %7$s b where %8$s))$query$,
    keys, known, gap_v, s.relation, format('(%s,0)', greatest(blocks - 100, 0)), annals.key_join(p_tracked, 'n.c%1$s', 'e.c%1$s'), annals.source(t.relation), annals.key_join(p_tracked, 'b.%2$I', 'e.c%1$s')) into found;
  if found then
    return query select 'uncaptured write', format('rows of %s are gone without history: something deleted them past capture', t.relation);
  end if;
exception
  when insufficient_privilege then
    return query select 'not judged', format('row-level security or missing rights keep %I from looking at %s', current_user, t.relation);
end $$;
comment on function volvra.uncaptured is 'Looks for writes that went by uncaptured, such as those under session_replication_role = replica, in the newest rows and entries and in a sample. Not finding any proves nothing.';

create function volvra.health() returns table ("table" text, finding text, detail text, hint text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  s annals.segment;
  missing boolean;
begin
  if not annals.follows_ddl() then
    return query select null::text, 'no event trigger', 'no event trigger follows changes of tables and new partitions',
      'Install as a role that may create event triggers, or call annals.sync for tables after changing them.';
  end if;
  return query select k.relation::text, c.what, c.detail, c.hint from annals.check_capture() c join annals.tracked k on k.id = c.tracked where 'volvra' = any (k.users);
  return query select x.srrelid::regclass::text, 'subscription', format('subscription %I writes it, and what replication writes is not captured', u.subname), 'Enable the option replica.'
    from pg_subscription_rel x join pg_subscription u on u.oid = x.srsubid join annals.tracked_relation r on r.relation = x.srrelid join annals.tracked k on k.id = r.tracked
    where 'volvra' = any (k.users) and not coalesce((k.options->>'replica')::boolean, false);
  for t in select * from annals.tracked k where k.ended_v is null and 'volvra' = any (k.users) and exists (select from pg_class c where c.oid = k.relation) order by k.id loop
    if not exists (select from annals.drift(t.id)) then
      return query select t.relation::text, u.what, u.detail,
          case u.what when 'not judged' then format('Give %I BYPASSRLS, or do not force row-level security on the owner.', current_user)
          else 'Find out what writes under session_replication_role = replica, or with triggers disabled, and enable the option replica. Earlier states of those rows cannot be told.' end
        from volvra.uncaptured(t.id) u;
    end if;
    select * into s from annals.segment g where g.tracked = t.id order by g.number desc limit 1;
    execute format('select exists (select from %s e where e.ctid >= %L::tid and not exists (select from annals.context c where c.hash = e.ctx))', s.relation,
      format('(%s,0)', greatest(pg_relation_size(s.relation) / current_setting('block_size')::int - 100, 0))) into missing;
    if missing then
      return query select t.relation::text, 'unknown context', 'some entries don''t tell their application, actor and address', 'A session pretended that its context was registered (setting annals.known). Its role is known all the same.';
    end if;
    if pg_table_size(s.relation) > 4 * 67108864 then
      return query select t.relation::text, 'large segment', format('the segment that is written has grown to %s', pg_size_pretty(pg_table_size(s.relation))), 'Call volvra.maintain() regularly.';
    end if;
  end loop;
  return query select k.relation::text, 'unsealed segment', format('segment %s was closed at %s and is not sealed', g.number, n.began_at), 'Call volvra.maintain() regularly, and look for transactions that don''t end.'
    from annals.segment g join annals.segment n on n.tracked = g.tracked and n.number = g.number + 1 join annals.tracked k on k.id = g.tracked
    where g.sealed_at is null and 'volvra' = any (k.users) and n.began_at < clock_timestamp() - interval '1 day';
end $$;
comment on function volvra.health is 'What is wrong with coverage; nothing when all is well.';

create function volvra.preflight(p_table regclass default null) returns table ("table" text, severity text, finding text, hint text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select null::text, 'warning', format('no event trigger follows changes of tables: %I could not create one', current_user),
    'Without, new partitions are captured by row triggers, and annals.sync must be called after changing a table.'
  where not annals.follows_ddl()
  union all
  select format('%I.%I', n.nspname, c.relname), f.*
  from pg_class c join pg_namespace n on n.oid = c.relnamespace,
  lateral (
    select 'error', annals.refusal_to_track(c.oid), 'Give it a primary key, or leave it uncovered.' where annals.refusal_to_track(c.oid) is not null and volvra.owner_refusal(c.oid) is null
    union all
    select 'error', volvra.owner_refusal(c.oid), format('Grant that role to %I.', current_user) where volvra.owner_refusal(c.oid) is not null
    union all
    select 'warning', format('row-level security is forced on its owner too, so that TRUNCATE cannot be captured by %I and fails', current_user), 'Enable with the option truncate as refuse or allow, or install as a role with BYPASSRLS.'
      where c.relrowsecurity and c.relforcerowsecurity and not (select r.rolsuper or r.rolbypassrls from pg_roles r where r.rolname = current_user)
    union all
    select 'warning', format('%s inherits from it and has rows of its own', i.inhrelid::regclass), 'Cover it as well.' from pg_inherits i join pg_class k on k.oid = i.inhrelid where i.inhparent = c.oid and not k.relispartition
    union all
    select 'note', 'its triggers may write it again within a statement, so entries carry the order of statements', '' where annals.may_nest(c.oid)
    union all
    select 'note', 'it inherits or refers to itself, so it is captured by row', '' where annals.inherits(c.oid) or annals.refers_to_itself(c.oid)) f (severity, finding, hint)
  where c.relkind in ('r', 'p', 'f') and not c.relispartition and c.relpersistence <> 't' and n.nspname not in ('pg_catalog', 'information_schema', 'annals', 'volvra', 'gnomon') and n.nspname not like 'pg\_%'
    and (p_table is null or c.oid = p_table) and (p_table is not null or volvra.covering(c.oid) is null)
  order by 1 nulls first, 2
$$;
comment on function volvra.preflight is 'What enabling would meet, for one table or all that are not covered: errors keep a table from being covered, warnings are worth knowing before, notes say how it would be captured.';
