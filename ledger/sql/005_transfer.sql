-- The transfer. Its common path is two updates and one insert; everything that explains a refusal or finds an earlier
-- result stands apart, so that a transfer which goes through pays for none of it.
--
-- Invariants: accounts are locked in the order of their ids, whatever locks them; an entry's version is one more than the
-- one before it on its account; created_at is taken while both accounts are locked.

create type ledger.posted as (
  id uuid, replayed boolean, from_version bigint, to_version bigint, from_balance numeric, to_balance numeric, created_at timestamptz);
comment on type ledger.posted is 'What a transfer did: both running balances and versions; replayed when it had been booked before.';
comment on column ledger.posted.id is 'The transfer.';
comment on column ledger.posted.replayed is 'It had been booked before, and this is its first result.';
comment on column ledger.posted.from_version is 'Version of the payer''s entry.';
comment on column ledger.posted.to_version is 'Version of the receiver''s entry.';
comment on column ledger.posted.from_balance is 'Balance of the payer after it.';
comment on column ledger.posted.to_balance is 'Balance of the receiver after it.';
comment on column ledger.posted.created_at is 'When it was booked.';

create function ledger.period_open(p_event_at timestamptz) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  closed timestamptz;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    select closed_before into closed from ledger.period where only_row;
  else
    -- An old snapshot would not see a period that was closed since; the row lock turns that into a serialization failure.
    select closed_before into closed from ledger.period where only_row for share;
  end if;
  return isfinite(p_event_at) and p_event_at >= closed;
end $$;
comment on function ledger.period_open is 'May something be posted with this event time?';

create function ledger.closed_refusal(p_account uuid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return (select ledger.refusal('LG004', format('account %s is closed', ledger.account_label(p_account)), jsonb_build_object('account', p_account),
    'Reopen it with ledger.reopen_account.')
  from ledger.account where id = p_account and closed_at is not null);
comment on function ledger.closed_refusal is 'The refusal for a closed account; null when it is open.';

create function ledger.bound_refusal(p_account uuid, p_change numeric, p_before numeric) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  a ledger.account; b ledger.balance; before numeric;
begin
  select * into a from ledger.account where id = p_account;
  select * into b from ledger.balance where id = p_account;
  before := coalesce(p_before, b.balance);
  if p_change < 0 and before + p_change < b.lowest then
    return ledger.refusal('LG003', format('account %s holds %s and may pay %s: %s is too much', ledger.account_label(p_account), before, greatest(before - b.lowest, 0), - p_change),
      jsonb_build_object('account', p_account, 'balance', before::text, 'limit', a.min_balance::text, 'held', b.held_out::text, 'amount', (- p_change)::text),
      format('Its minimum balance is %s and %s is held.', a.min_balance, b.held_out));
  elsif p_change > 0 and before + p_change > b.highest then
    return ledger.refusal('LG003', format('account %s holds %s and may receive %s: %s is too much', ledger.account_label(p_account), before, greatest(b.highest - before, 0), p_change),
      jsonb_build_object('account', p_account, 'balance', before::text, 'limit', a.max_balance::text, 'held', b.held_in::text, 'amount', p_change::text),
      format('Its maximum balance is %s and %s is expected.', a.max_balance, b.held_in));
  end if;
  return null;
end $$;
comment on function ledger.bound_refusal is 'The refusal for a change that would pass a limit, given the balance before it (null: that of now); null when it would not.';

create function ledger.period_refusal(p_event_at timestamptz) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  closed timestamptz;
begin
  if p_event_at is null or ledger.period_open(p_event_at) then
    return null;
  end if;
  if not isfinite(p_event_at) then
    return ledger.refusal('LG016', format('nothing happens at %s', p_event_at), '{}', 'Give the event a time, or none.');
  end if;
  select closed_before into closed from ledger.period where only_row;
  return ledger.refusal('LG008', format('the books are closed before %s: nothing can be posted at %s', closed, p_event_at),
    jsonb_build_object('closed_before', closed, 'event_at', p_event_at), 'Post it with a later event time, or reopen the period with ledger.reopen_period.');
end $$;
comment on function ledger.period_refusal is 'The refusal for an event time in a closed period; null when there is none.';

create function ledger.transfer_refusal(
  p_from uuid, p_to uuid, p_amount numeric, p_event_at timestamptz, p_from_balance numeric, p_to_balance numeric) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  f_asset ledger.asset; t_asset ledger.asset; bad jsonb;
begin
  select s.* into f_asset from ledger.account a join ledger.asset s on s.no = a.asset_no where a.id = p_from;
  select s.* into t_asset from ledger.account a join ledger.asset s on s.no = a.asset_no where a.id = p_to;
  bad := case
    when p_amount is null or not (p_amount > 0 and p_amount < 1e60)
      then ledger.refusal('LG006', format('amount %s is not a positive finite number below 10^60', coalesce(p_amount::text, 'null')), '{}', 'To move money the other way, swap the accounts.')
    when f_asset.no is null then ledger.unknown_account(p_from)
    when t_asset.no is null then ledger.unknown_account(p_to)
    when p_from = p_to
      then ledger.refusal('LG007', format('account %s cannot pay itself', ledger.account_label(p_from)), jsonb_build_object('account', p_from), 'Name two accounts.')
    when f_asset.no <> t_asset.no
      then ledger.refusal('LG002', format('account %s is kept in %s, account %s in %s', ledger.account_label(p_from), f_asset.code, ledger.account_label(p_to), t_asset.code),
        '{}', 'Exchange through liquidity accounts: ledger.exchange.')
    when min_scale(p_amount) > f_asset.decimals
      then ledger.refusal('LG006', format('amount %s has more than the %s decimals of %s', p_amount, f_asset.decimals, f_asset.code), '{}', 'Round it first.')
    else coalesce(ledger.closed_refusal(p_from), ledger.closed_refusal(p_to), ledger.period_refusal(p_event_at),
                  ledger.bound_refusal(p_from, - p_amount, p_from_balance), ledger.bound_refusal(p_to, p_amount, p_to_balance))
  end;
  return jsonb_set(bad, '{detail}', jsonb_strip_nulls(jsonb_build_object('from', p_from, 'to', p_to, 'amount', p_amount::text)) || (bad->'detail'));
end $$;
comment on function ledger.transfer_refusal is 'Why a transfer is not possible, given the balances before it (null: those of now); null when it is possible.';

create function ledger.id_reused(p_kind text, p_id uuid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return ledger.refusal('LG005', format('id %s was already used for something else', ledger.id_text(p_kind, p_id)), jsonb_build_object('id', p_id),
  'An id belongs to one request: use a new one.');
comment on function ledger.id_reused is 'The refusal for an id that came before with other content.';

create function ledger.transfer_again(
  p_id uuid, p_from uuid, p_to uuid, p_amount numeric, p_event_at timestamptz, p_metadata jsonb) returns ledger.posted
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  t ledger.transfer; same boolean;
begin
  select * into t from ledger.transfer where id = p_id;
  if not found then
    return null;
  end if;
  same := (select id from ledger.balance where no = t.from_no) = p_from and (select id from ledger.balance where no = t.to_no) = p_to
          and t.amount = p_amount and t.event_at is not distinct from p_event_at and t.metadata is not distinct from p_metadata;
  return (p_id, same is true, t.from_version, t.to_version, t.from_balance, t.to_balance, t.created_at)::ledger.posted;
end $$;
comment on function ledger.transfer_again is 'The first result of a transfer that comes again: replayed if its content is the same. Null when the id did not come before.';

create function ledger.transfer(
  p_from uuid, p_to uuid, p_amount numeric, p_id uuid default ledger.new_id(),
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  amount numeric := trim_scale(p_amount);
  f_no int; f_asset int; f_balance numeric; f_version bigint; f_ok boolean; places int;
  t_no int; t_asset int; t_balance numeric; t_version bigint; t_ok boolean;
  booked timestamptz;
  again ledger.posted;
begin
  -- The advisory lock lets two simultaneous calls with one id run one after the other, so that the second finds the first.
  if amount > 0 and amount < 1e60 and p_from <> p_to and pg_advisory_xact_lock(uuid_hash_extended(p_id, 7741))::text = '' then
    if p_from < p_to then
      update ledger.balance b set balance = b.balance - amount, version = b.version + 1
        where b.id = p_from and not exists (select from ledger.transfer x where x.id = p_id)
        returning b.no, b.asset_no, b.decimals, b.balance, b.version, b.balance >= b.lowest
        into f_no, f_asset, places, f_balance, f_version, f_ok;
      if f_no is not null then
        update ledger.balance b set balance = b.balance + amount, version = b.version + 1 where b.id = p_to
          returning b.no, b.asset_no, b.balance, b.version, b.balance <= b.highest
          into t_no, t_asset, t_balance, t_version, t_ok;
      end if;
    else
      update ledger.balance b set balance = b.balance + amount, version = b.version + 1
        where b.id = p_to and not exists (select from ledger.transfer x where x.id = p_id)
        returning b.no, b.asset_no, b.balance, b.version, b.balance <= b.highest
        into t_no, t_asset, t_balance, t_version, t_ok;
      if t_no is not null then
        update ledger.balance b set balance = b.balance - amount, version = b.version + 1 where b.id = p_from
          returning b.no, b.asset_no, b.decimals, b.balance, b.version, b.balance >= b.lowest
          into f_no, f_asset, places, f_balance, f_version, f_ok;
      end if;
    end if;
    if f_asset = t_asset and scale(amount) <= places and (p_event_at is null or ledger.period_open(p_event_at)) then
      if not (f_ok and t_ok) and ledger.release_expired(f_no) + ledger.release_expired(t_no) > 0 then
        select b.balance >= b.lowest into f_ok from ledger.balance b where b.no = f_no;
        select b.balance <= b.highest into t_ok from ledger.balance b where b.no = t_no;
      end if;
      if f_ok and t_ok then
        booked := clock_timestamp();
        insert into ledger.transfer (id, created_at, xid, event_at, from_version, to_version, from_no, to_no, amount, from_balance, to_balance, metadata)
          values (p_id, booked, txid_current(), p_event_at, f_version, t_version, f_no, t_no, round(amount, places), f_balance, t_balance, p_metadata)
          on conflict (id) do nothing;
        if found then
          return (p_id, false, f_version, t_version, f_balance, t_balance, booked)::ledger.posted;
        end if;
      end if;
    end if;
    again := ledger.transfer_again(p_id, p_from, p_to, amount, p_event_at, p_metadata);
    if again.replayed then
      if f_no is not null and t_no is not null then
        -- A batch, which takes no advisory lock, booked it while this call waited for the accounts: take the two updates back.
        update ledger.balance b set balance = b.balance + amount, version = b.version - 1 where b.id = p_from;
        update ledger.balance b set balance = b.balance - amount, version = b.version - 1 where b.id = p_to;
      end if;
      return again;
    elsif again.id is not null then
      perform ledger.refuse(ledger.id_reused('xfer', p_id));
    end if;
  end if;
  if p_id is null then
    perform ledger.refuse(ledger.refusal('LG016', 'a transfer needs an id', '{}', 'Leave the argument out to get a new one.'));
  end if;
  perform ledger.refuse(ledger.transfer_refusal(p_from, p_to, p_amount, p_event_at, f_balance + amount, t_balance - amount));
  return null;
end $$;
comment on function ledger.transfer is 'Moves an amount from one account to another. The same id again returns the first result.';

create function ledger.lock_accounts(p_ids uuid[]) returns table (id uuid, version bigint, balance numeric)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  missing uuid;
begin
  return query select b.id, b.version, b.balance from ledger.balance b where b.id = any (p_ids) order by b.id for update;
  select i into missing from unnest(p_ids) i where not exists (select from ledger.balance b where b.id = i) limit 1;
  if found then
    perform ledger.refuse(ledger.unknown_account(missing));
  end if;
end $$;
comment on function ledger.lock_accounts is 'Locks accounts in the order that all functions here use, until the end of the transaction, and returns what they hold.';

create function ledger.version_refusal(p_account uuid, p_expected bigint) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return (select ledger.refusal('LG009', format('account %s is at version %s, not %s', ledger.account_label(p_account), version, p_expected),
    jsonb_build_object('account', p_account, 'version', version, 'expected', p_expected),
    'Somebody booked on it meanwhile: read it again and decide again.')
  from ledger.balance where id = p_account and version <> p_expected);
comment on function ledger.version_refusal is 'The refusal when an account moved on; null when it did not, or nothing is expected.';

create function ledger.transfer_if(
  p_from uuid, p_to uuid, p_amount numeric, p_from_version bigint, p_to_version bigint, p_id uuid default ledger.new_id(),
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  moved jsonb;
begin
  perform pg_advisory_xact_lock(uuid_hash_extended(p_id, 7741));
  perform ledger.lock_accounts(array[p_from, p_to]);
  if not exists (select from ledger.transfer where id = p_id) then
    moved := coalesce(ledger.version_refusal(p_from, p_from_version), ledger.version_refusal(p_to, p_to_version));
    if moved is not null then
      perform ledger.refuse(moved);
    end if;
  end if;
  return ledger.transfer(p_from, p_to, p_amount, p_id, p_event_at, p_metadata);
end $$;
comment on function ledger.transfer_if is 'A transfer that is refused when an account is no longer at the version given (null: any).';

create function ledger.transfer_available(
  p_from uuid, p_to uuid, p_up_to numeric, p_id uuid default ledger.new_id(),
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  t ledger.transfer; f ledger.balance; r ledger.balance; asked numeric; possible numeric; done ledger.posted;
begin
  perform pg_advisory_xact_lock(uuid_hash_extended(p_id, 7741));
  perform ledger.lock_accounts(array[p_from, p_to]);
  select * into t from ledger.transfer where id = p_id;
  if found then
    select up_to into asked from ledger.balancing where transfer_id = p_id;
    done := ledger.transfer_again(p_id, p_from, p_to, t.amount, p_event_at, p_metadata);
    if asked is distinct from p_up_to or not done.replayed then
      perform ledger.refuse(ledger.id_reused('xfer', p_id));
    end if;
    return done;
  end if;
  perform ledger.release_expired(no) from ledger.balance where id in (p_from, p_to);
  select * into f from ledger.balance where id = p_from;
  select * into r from ledger.balance where id = p_to;
  possible := least(p_up_to, f.balance - f.lowest, r.highest - r.balance);
  if (possible > 0 and p_up_to < 1e60 and min_scale(p_up_to) <= f.decimals) is not true then
    possible := p_up_to;   -- nothing is available, or this is no amount: the refusal says why
  end if;
  done := ledger.transfer(p_from, p_to, possible, p_id, p_event_at, p_metadata);
  insert into ledger.balancing (transfer_id, up_to) values (p_id, p_up_to);
  return done;
end $$;
comment on function ledger.transfer_available is 'A balancing transfer: moves as much as both limits allow, at most p_up_to; refused when that is nothing.';

create function ledger.assert_balance(p_account uuid, p_expected numeric) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  stands numeric;
begin
  perform ledger.lock_account(p_account);
  select balance into stands from ledger.balance where id = p_account;
  if stands is distinct from p_expected then
    perform ledger.refuse(ledger.refusal('LG018', format('account %s stands at %s, not at %s', ledger.account_label(p_account), stands, coalesce(p_expected::text, 'null')),
      jsonb_build_object('account', p_account, 'balance', stands::text, 'expected', p_expected::text),
      'The books and the other record differ: compare the account''s entries.'));
  end if;
end $$;
comment on function ledger.assert_balance is 'Refuses unless the account stands at exactly this balance; holds until the end of the transaction.';
