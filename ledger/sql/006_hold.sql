-- Two-phase transfers. A hold keeps its amount out of what both accounts may still use by moving their bounds; posting moves
-- the bounds back and books an ordinary transfer. Lock order: the hold, then its accounts by id.

create type ledger.held as (id uuid, replayed boolean, state text, amount numeric, created_at timestamptz, expires_at timestamptz);
comment on type ledger.held is 'A hold after a call: replayed when the call changed nothing.';
comment on column ledger.held.id is 'The hold.';
comment on column ledger.held.replayed is 'The call found it so and changed nothing.';
comment on column ledger.held.state is 'open, posted, voided or expired.';
comment on column ledger.held.amount is 'Amount set aside.';
comment on column ledger.held.created_at is 'When it was set aside.';
comment on column ledger.held.expires_at is 'From then on it can no longer be posted; null: never.';

-- Negative amounts give back.
create function ledger.reserve(p_from uuid, p_to uuid, p_amount numeric) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  f_ok boolean; t_ok boolean;
begin
  if p_from > p_to then
    update ledger.balance b set held_in = b.held_in + p_amount, highest = b.highest - p_amount where b.id = p_to returning b.balance <= b.highest into t_ok;
  end if;
  update ledger.balance b set held_out = b.held_out + p_amount, lowest = b.lowest + p_amount where b.id = p_from returning b.balance >= b.lowest into f_ok;
  if p_from < p_to then
    update ledger.balance b set held_in = b.held_in + p_amount, highest = b.highest - p_amount where b.id = p_to returning b.balance <= b.highest into t_ok;
  end if;
  return f_ok and t_ok;
end $$;
comment on function ledger.reserve is 'Sets an amount aside on both accounts, or gives it back; says whether both limits still hold.';

-- Called by whoever already holds the lock of one account, so it waits for no other lock: what is busy stays for next time.
create function ledger.release_expired(p_no int) returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  h ledger.hold; n int := 0; f uuid; t uuid;
begin
  for h in
    select * from ledger.hold where state = 'open' and from_no = p_no and expires_at <= clock_timestamp()
    union all
    select * from ledger.hold where state = 'open' and to_no = p_no and expires_at <= clock_timestamp()
  loop
    perform from ledger.hold where id = h.id and state = 'open' for update skip locked;
    continue when not found;
    f := (select b.id from ledger.balance b where b.no = h.from_no for update skip locked);
    continue when f is null;
    t := (select b.id from ledger.balance b where b.no = h.to_no for update skip locked);
    continue when t is null;
    perform ledger.reserve(f, t, - h.amount);
    update ledger.hold set state = 'expired', settled_at = clock_timestamp() where id = h.id;
    n := n + 1;
  end loop;
  return n;
end $$;
comment on function ledger.release_expired is 'Gives back the expired holds of one account; returns how many.';

create function ledger.expire_holds(p_limit int default 1000) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  account int; n int := 0;
begin
  for account in select from_no from ledger.hold where state = 'open' and expires_at <= clock_timestamp() order by expires_at limit p_limit loop
    -- The account's own lock, too, is not waited for: this runs beside transfers and must never stand in their way.
    perform from ledger.balance where no = account for update skip locked;
    if found then
      n := n + ledger.release_expired(account);
    end if;
  end loop;
  return n;
end $$;
comment on function ledger.expire_holds is 'Gives back expired holds; returns how many. Transfers that need the money do this themselves.';

create function ledger.hold_again(
  p_id uuid, p_from uuid, p_to uuid, p_amount numeric, p_expires_at timestamptz, p_event_at timestamptz, p_metadata jsonb) returns ledger.held
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  h ledger.hold; same boolean;
begin
  select * into h from ledger.hold where id = p_id;
  if not found then
    return null;
  end if;
  same := (select id from ledger.balance where no = h.from_no) = p_from and (select id from ledger.balance where no = h.to_no) = p_to
          and h.amount = p_amount and h.expires_at is not distinct from p_expires_at
          and h.event_at is not distinct from p_event_at and h.metadata is not distinct from p_metadata;
  if same is not true then
    perform ledger.refuse(ledger.id_reused('hold', p_id));
  end if;
  if h.state = 'open' and h.expires_at <= clock_timestamp() then
    h.state := 'expired';
  end if;
  return (h.id, true, h.state, h.amount, h.created_at, h.expires_at)::ledger.held;
end $$;
comment on function ledger.hold_again is 'The hold that a repeated request made; null when there is none.';

create function ledger.hold(
  p_from uuid, p_to uuid, p_amount numeric, p_id uuid default ledger.new_id(), p_expires_at timestamptz default null,
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.held
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  again ledger.held; f ledger.balance; t ledger.balance; booked timestamptz; bad jsonb;
begin
  if p_id is null then
    perform ledger.refuse(ledger.refusal('LG016', 'a hold needs an id', '{}', 'Leave the argument out to get a new one.'));
  end if;
  perform pg_advisory_xact_lock(uuid_hash_extended(p_id, 7742));
  again := ledger.hold_again(p_id, p_from, p_to, p_amount, p_expires_at, p_event_at, p_metadata);
  if again.id is not null then
    return again;
  end if;
  perform ledger.lock_accounts(array[p_from, p_to]);
  select * into f from ledger.balance where id = p_from;
  select * into t from ledger.balance where id = p_to;
  bad := ledger.transfer_refusal(p_from, p_to, p_amount, p_event_at, null, null);
  if bad->>'code' = 'LG003' and ledger.release_expired(f.no) + ledger.release_expired(t.no) > 0 then
    bad := ledger.transfer_refusal(p_from, p_to, p_amount, p_event_at, null, null);
  end if;
  if bad is null and p_expires_at <= clock_timestamp() then
    bad := ledger.refusal('LG012', format('hold %s would expire at %s, which is past', ledger.id_text('hold', p_id), p_expires_at),
      jsonb_build_object('id', p_id), 'Give it a later expiry.');
  end if;
  if bad is not null then
    perform ledger.refuse(bad);
  end if;
  perform ledger.reserve(p_from, p_to, round(p_amount, f.decimals));
  booked := clock_timestamp();
  insert into ledger.hold (id, from_no, to_no, amount, created_at, expires_at, event_at, metadata)
    values (p_id, f.no, t.no, round(p_amount, f.decimals), booked, p_expires_at, p_event_at, p_metadata);
  return (p_id, false, 'open', round(p_amount, f.decimals), booked, p_expires_at)::ledger.held;
end $$;
comment on function ledger.hold is 'Sets an amount aside for a later transfer, checked against the same limits. The same id again returns the hold as it is.';

create function ledger.lock_hold(p_id uuid) returns ledger.hold
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  h ledger.hold;
begin
  select * into h from ledger.hold where id = p_id for update;
  if not found then
    perform ledger.refuse(ledger.refusal('LG010', format('hold %s does not exist', coalesce(ledger.id_text('hold', p_id), 'null')), jsonb_build_object('id', p_id),
      'Make it with ledger.hold first.'));
  end if;
  return h;
end $$;
comment on function ledger.lock_hold is 'Locks a hold and returns it.';

create function ledger.hold_settled(p_id uuid, p_state text, p_amount numeric) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp
return case when p_state = 'expired'
  then ledger.refusal('LG012', format('hold %s has expired', ledger.id_text('hold', p_id)), jsonb_build_object('id', p_id, 'state', p_state), 'Make a new hold, or transfer directly.')
  else ledger.refusal('LG011', format('hold %s is already %s%s', ledger.id_text('hold', p_id), p_state, coalesce(' with ' || p_amount, '')),
    jsonb_build_object('id', p_id, 'state', p_state, 'amount', p_amount::text), 'A hold is settled once: make a new one.') end;
comment on function ledger.hold_settled is 'The refusal for a hold that is no longer open.';

create function ledger.post_hold(
  p_id uuid, p_amount numeric default null, p_transfer_id uuid default null,
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  h ledger.hold; t ledger.transfer; f_id uuid; t_id uuid; new_id uuid := coalesce(p_transfer_id, ledger.new_id()); done ledger.posted;
begin
  perform pg_advisory_xact_lock(uuid_hash_extended(new_id, 7741));   -- before the accounts, as in ledger.transfer
  h := ledger.lock_hold(p_id);
  select * into t from ledger.transfer where id = h.transfer_id;
  if h.state = 'posted' and h.posted_amount = coalesce(p_amount, h.amount) and t.id = coalesce(p_transfer_id, t.id)
     and t.event_at is not distinct from coalesce(p_event_at, h.event_at) and t.metadata is not distinct from coalesce(p_metadata, h.metadata) then
    return (t.id, true, t.from_version, t.to_version, t.from_balance, t.to_balance, t.created_at)::ledger.posted;
  elsif h.state <> 'open' then
    perform ledger.refuse(ledger.hold_settled(p_id, h.state, h.posted_amount));
  elsif h.expires_at <= clock_timestamp() then
    perform ledger.refuse(ledger.hold_settled(p_id, 'expired', null));
  elsif p_amount > h.amount then
    perform ledger.refuse(ledger.refusal('LG006', format('hold %s is over %s: %s is more', ledger.id_text('hold', p_id), h.amount, p_amount),
      jsonb_build_object('id', p_id, 'amount', p_amount::text), 'Post at most what is held, and transfer the rest.'));
  end if;
  select id into f_id from ledger.balance where no = h.from_no;
  select id into t_id from ledger.balance where no = h.to_no;
  perform ledger.reserve(f_id, t_id, - h.amount);
  done := ledger.transfer(f_id, t_id, coalesce(p_amount, h.amount), new_id, coalesce(p_event_at, h.event_at), coalesce(p_metadata, h.metadata));
  if done.replayed then
    perform ledger.refuse(ledger.id_reused('xfer', new_id));
  end if;
  update ledger.hold set state = 'posted', posted_amount = round(coalesce(p_amount, h.amount), scale(h.amount)), transfer_id = new_id, settled_at = done.created_at
    where id = p_id;
  return done;
end $$;
comment on function ledger.post_hold is 'Books a hold, in full or in part (the rest is given back). Again with the same content returns the first result.';

create function ledger.void_hold(p_id uuid) returns ledger.held
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  h ledger.hold := ledger.lock_hold(p_id);
begin
  if h.state = 'posted' then
    perform ledger.refuse(ledger.hold_settled(p_id, h.state, h.posted_amount));
  elsif h.state <> 'open' then
    return (h.id, true, h.state, h.amount, h.created_at, h.expires_at)::ledger.held;
  end if;
  perform ledger.reserve((select id from ledger.balance where no = h.from_no), (select id from ledger.balance where no = h.to_no), - h.amount);
  update ledger.hold set settled_at = clock_timestamp(), state = case when expires_at <= clock_timestamp() then 'expired' else 'voided' end
    where id = p_id returning state into h.state;
  return (h.id, h.state = 'expired', h.state, h.amount, h.created_at, h.expires_at)::ledger.held;
end $$;
comment on function ledger.void_hold is 'Gives a hold back unposted. Voiding one that is voided or expired is a no-op.';
