-- Following the books without a gap. A position is a snapshot: what it sees has been read, what it does not see is new,
-- whenever it commits. Between two snapshots entries come in the order in which they were booked (created_at rises along
-- each account), and a position inside such a window names its last entry as well.
--
-- Text of a position: system identifier '.' database '/' snapshot already read [ '/' snapshot being read '/' microseconds '/' source id '/' leg ].

-- Transaction ids mean something in the cluster that issued them only. Books that come out of a dump or through pg_upgrade carry
-- those of another one, so following them is refused until ledger.adopt_books has made all that is there "long ago".
create table ledger.home (
  only_row boolean primary key default true constraint home_only_row_check check (only_row),
  system_identifier bigint not null);
insert into ledger.home (system_identifier) select system_identifier from pg_control_system();
comment on table ledger.home is 'One row: the database cluster whose transaction ids the books carry.';
comment on column ledger.home.only_row is 'Keeps it one row.';
comment on column ledger.home.system_identifier is 'System identifier of that cluster.';
create trigger guard_books before delete or truncate on ledger.home for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.home is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_update before update on ledger.home for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.home is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';

create function ledger.adopt_books() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  here bigint := (select system_identifier from pg_control_system());
begin
  if (select system_identifier from ledger.home) = here then
    return;
  end if;
  alter table ledger.transfer disable trigger guard_books;
  alter table ledger.journal disable trigger guard_books;
  update ledger.transfer set xid = 3 where xid <> 3;   -- the first ordinary transaction id: every snapshot sees it
  update ledger.journal set xid = 3 where xid <> 3;
  alter table ledger.transfer enable trigger guard_books;
  alter table ledger.journal enable trigger guard_books;
  update ledger.home set system_identifier = here;
end $$;
comment on function ledger.adopt_books is 'Makes books that came from another cluster (restored, or upgraded by pg_upgrade) fit to be followed here. For the owner; rewrites every transfer once.';

create function ledger.here() returns text
language sql stable set search_path = pg_catalog, pg_temp
return (select format('%s.%s', system_identifier, (select oid from pg_database where datname = current_database())) from pg_control_system());
comment on function ledger.here is 'Names this database in reading positions.';

create function ledger.snapshot_now() returns txid_snapshot
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s txid_snapshot := txid_current_snapshot(); own bigint := txid_current_if_assigned();
begin
  if pg_is_in_recovery() then
    perform ledger.refuse(ledger.refusal('LG022', 'positions cannot be taken on a standby', '{}', 'Transactions that run on the primary look finished here: read the changes there.'));
  end if;
  if (select system_identifier from ledger.home) <> (select system_identifier from pg_control_system()) then
    perform ledger.refuse(ledger.refusal('LG022', 'these books come from another database cluster, whose transaction ids they carry', '{}', 'Call ledger.adopt_books as their owner, then begin at the beginning.'));
  end if;
  -- The transaction's own id is not in its snapshot and would count as finished once a later one is.
  if own is null or own >= txid_snapshot_xmax(s) then
    return s;
  end if;
  return (select format('%s:%s:%s', least(own, txid_snapshot_xmin(s)), txid_snapshot_xmax(s), string_agg(x::text, ',' order by x))
            from (select txid_snapshot_xip(s) x union select own) q)::txid_snapshot;
end $$;
comment on function ledger.snapshot_now is 'The snapshot of this statement, without the transaction that asks.';

create function ledger.position_now() returns text
language sql stable set search_path = pg_catalog, pg_temp
return format('%s/%s', ledger.here(), ledger.snapshot_now());
comment on function ledger.position_now is 'A reading position after everything that is committed now.';

create function ledger.parse_position(p_position text, out already txid_snapshot, out reading txid_snapshot, out after_time timestamptz, out after_id uuid, out after_leg int)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  part text[] := string_to_array(p_position, '/'); here text := ledger.here();
begin
  if p_position is null or p_position = '' then
    return;
  elsif p_position !~ '^\d{1,20}\.\d{1,10}/\d{1,19}:\d{1,19}:[\d,]*(/\d{1,19}:\d{1,19}:[\d,]*/\d{1,18}/[0-9a-f-]{36}/\d{1,9})?$' then
    perform ledger.refuse(ledger.refusal('LG022', format('%L is not a reading position', left(p_position, 200)), '{}', 'Use one that ledger.changes or ledger.position_now returned, or null to begin at the beginning.'));
  elsif part[1] <> here then
    perform ledger.refuse(ledger.refusal('LG022', format('the reading position %L was taken in another database', left(p_position, 200)), '{}', 'Transaction ids mean nothing there: begin again with null.'));
  end if;
  begin
    already := part[2]; reading := part[3];
    after_time := timestamptz 'epoch' + part[4]::bigint * interval '1 microsecond'; after_id := part[5]; after_leg := part[6];
  exception when data_exception then
    perform ledger.refuse(ledger.refusal('LG022', format('%L is not a reading position', left(p_position, 200)), '{}', 'Use one that ledger.changes or ledger.position_now returned, or null to begin at the beginning.'));
  end;
end $$;
comment on function ledger.parse_position is 'The parts of a reading position; nulls before the first entry. Refuses one of another cluster.';

create function ledger.snapshot_covers(p_now txid_snapshot, p_then txid_snapshot) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return p_then is null
  or not exists (select from txid_snapshot_xip(p_now) x where txid_visible_in_snapshot(x, p_then))
     and not exists (select from generate_series(txid_snapshot_xmax(p_now), txid_snapshot_xmax(p_then) - 1) x where txid_visible_in_snapshot(x, p_then));
comment on function ledger.snapshot_covers is 'Does one snapshot see all that another one sees?';

-- What one snapshot sees and the other does not, without order: the planner finds the few new rows by their transactions.
create function ledger.entries_between(p_already txid_snapshot, p_reading txid_snapshot)
returns table (kind text, source_id uuid, leg int, created_at timestamptz, event_at timestamptz, account_no int, version bigint,
               amount numeric, balance numeric, counterparty_no int, description text, metadata jsonb)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  with fresh as materialized (
    select t.* from ledger.transfer t
      where t.xid >= coalesce(txid_snapshot_xmin(p_already), 0) and t.xid < txid_snapshot_xmax(p_reading)
        and txid_visible_in_snapshot(t.xid, p_reading) and (p_already is null or not txid_visible_in_snapshot(t.xid, p_already)))
  select 'transfer', f.id, 1, f.created_at, coalesce(f.event_at, f.created_at), f.from_no, f.from_version, - f.amount, f.from_balance, f.to_no, null, f.metadata from fresh f
  union all
  select 'transfer', f.id, 2, f.created_at, coalesce(f.event_at, f.created_at), f.to_no, f.to_version, f.amount, f.to_balance, f.from_no, null, f.metadata from fresh f
  union all
  select 'journal', j.id, p.leg, j.created_at, coalesce(j.event_at, j.created_at), p.account_no, p.version, p.amount, p.balance, null, j.description, j.metadata
    from ledger.journal j join ledger.posting p on p.journal_id = j.id
    where j.xid >= coalesce(txid_snapshot_xmin(p_already), 0) and j.xid < txid_snapshot_xmax(p_reading)
      and txid_visible_in_snapshot(j.xid, p_reading) and (p_already is null or not txid_visible_in_snapshot(j.xid, p_already));
end;
comment on function ledger.entries_between is 'The entries that one snapshot sees and an earlier one (null: nothing) does not.';

create function ledger.changes(p_position text default null, p_limit int default 1000)
returns table ("position" text, kind text, source_id uuid, leg int, created_at timestamptz, event_at timestamptz, account_id uuid, version bigint,
               amount numeric, balance numeric, counterparty_id uuid, description text, metadata jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  at record; here text := ledger.here();
begin
  select * into at from ledger.parse_position(p_position);
  if not (ledger.snapshot_covers(ledger.snapshot_now(), at.already) and ledger.snapshot_covers(ledger.snapshot_now(), at.reading)) then
    perform ledger.refuse(ledger.refusal('LG022', format('the reading position %L is later than what this transaction sees', left(p_position, 200)), '{}',
      'Read in a transaction that began after the position was taken, on the server that it was taken on.'));
  end if;
  for round in 1..2 loop
    if round = 2 or at.reading is null then   -- the window is read to its end: open the next one
      at.already := coalesce(at.reading, at.already);
      at.reading := ledger.snapshot_now();
      at.after_time := null;
    end if;
    return query
      with page as (
        select e.*, row_number() over w as nth, lead(e.leg) over w is null as last
          from ledger.entries_between(at.already, at.reading) e
          where at.after_time is null or (e.created_at, e.source_id, e.leg) > (at.after_time, at.after_id, at.after_leg)
          window w as (order by e.created_at, e.source_id, e.leg)
          order by nth limit p_limit)
      select case when e.last then format('%s/%s', here, at.reading)
                  else format('%s/%s/%s/%s/%s/%s', here, coalesce(at.already, '1:1:'), at.reading, (extract(epoch from e.created_at) * 1000000)::bigint, e.source_id, e.leg) end,
             e.kind, e.source_id, e.leg, e.created_at, e.event_at, a.id, e.version, e.amount, e.balance, c.id, e.description, e.metadata
        from page e join ledger.account a on a.no = e.account_no left join ledger.account c on c.no = e.counterparty_no
        order by e.nth;
    exit when found or at.after_time is null;
  end loop;
end $$;
comment on function ledger.changes is 'The entries after a position (null: from the beginning), each with the position that resumes after it. None is skipped or repeated.';

-- Waking up: off by default, because NOTIFY makes commits queue up behind one lock.
create function ledger.notify_booked() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_notify('ledger', '');
  return null;
end $$;
comment on function ledger.notify_booked is 'Tells listeners of the channel ledger, once per commit, that something was booked.';
create trigger notify_booked after insert on ledger.transfer for each statement execute function ledger.notify_booked();
create trigger notify_booked after insert on ledger.journal for each statement execute function ledger.notify_booked();
alter table ledger.transfer disable trigger notify_booked;
alter table ledger.journal disable trigger notify_booked;
comment on trigger notify_booked on ledger.transfer is 'Wakes those who follow the books; switched by ledger.set_notify.';
comment on trigger notify_booked on ledger.journal is 'Wakes those who follow the books; switched by ledger.set_notify.';

create function ledger.set_notify(p_on boolean) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if p_on then
    alter table ledger.transfer enable trigger notify_booked;
    alter table ledger.journal enable trigger notify_booked;
  else
    alter table ledger.transfer disable trigger notify_booked;
    alter table ledger.journal disable trigger notify_booked;
  end if;
end $$;
comment on function ledger.set_notify is 'Switches NOTIFY on the channel ledger on or off; for the owner of the books.';
