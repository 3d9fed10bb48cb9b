-- Journal entries of any number of legs. They are rarer than transfers and may touch many accounts, so they go the plain way:
-- lock all accounts in order, post leg by leg, then look whether the whole is allowed.

create type ledger.journal_posted as (id uuid, replayed boolean, versions bigint[], balances numeric[], created_at timestamptz);
comment on type ledger.journal_posted is 'What a journal entry did: version and running balance of each leg, in input order.';
comment on column ledger.journal_posted.id is 'The journal entry.';
comment on column ledger.journal_posted.replayed is 'It had been booked before, and this is its first result.';
comment on column ledger.journal_posted.versions is 'Versions of the legs, in input order.';
comment on column ledger.journal_posted.balances is 'Balances after the legs, in input order.';
comment on column ledger.journal_posted.created_at is 'When it was booked.';

create function ledger.journal_again(
  p_id uuid, p_accounts uuid[], p_amounts numeric[], p_description text, p_event_at timestamptz, p_metadata jsonb) returns ledger.journal_posted
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  j ledger.journal; accounts uuid[]; amounts numeric[]; r ledger.journal_posted;
begin
  select * into j from ledger.journal where id = p_id;
  if not found then
    return null;
  end if;
  select array_agg(b.id order by p.leg), array_agg(p.amount order by p.leg), array_agg(p.version order by p.leg), array_agg(p.balance order by p.leg)
    into accounts, amounts, r.versions, r.balances
    from ledger.posting p join ledger.balance b on b.no = p.account_no where p.journal_id = p_id;
  if (accounts, amounts, j.description, j.event_at, j.metadata) is distinct from (p_accounts, p_amounts, p_description, p_event_at, p_metadata) then
    perform ledger.refuse(ledger.id_reused('jrnl', p_id));
  end if;
  r.id := p_id; r.replayed := true; r.created_at := j.created_at;
  return r;
end $$;
comment on function ledger.journal_again is 'The first result of a journal entry that comes again; null when it did not come before.';

create function ledger.journal_refusal(p_accounts uuid[], p_amounts numeric[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  bad jsonb; n int := cardinality(p_accounts);
begin
  if n is null or n < 2 or cardinality(p_amounts) is distinct from n then
    return ledger.refusal('LG016', format('a journal entry needs two legs or more, and an amount for each: %s accounts, %s amounts', coalesce(n, 0), coalesce(cardinality(p_amounts), 0)),
      '{}', 'Give each leg an account and an amount.');
  end if;
  select coalesce(
      case when q.amount is null or not (abs(q.amount) > 0 and abs(q.amount) < 1e60)
        then ledger.refusal('LG006', format('amount %s of leg %s is not a finite number below 10^60, or is zero', coalesce(q.amount::text, 'null'), q.at), jsonb_build_object('account', q.id), 'Debits are positive, credits negative.') end,
      case when s.no is null then ledger.unknown_account(q.id) end,
      case when min_scale(q.amount) > s.decimals
        then ledger.refusal('LG006', format('amount %s of leg %s has more than the %s decimals of %s', q.amount, q.at, s.decimals, s.code), jsonb_build_object('account', q.id, 'amount', q.amount::text), 'Round it first.') end,
      ledger.closed_refusal(q.id)) into bad
    from rows from (unnest(p_accounts), unnest(p_amounts)) with ordinality q(id, amount, at)
         left join ledger.account a on a.id = q.id left join ledger.asset s on s.no = a.asset_no
    where q.amount is null or not (abs(q.amount) > 0 and abs(q.amount) < 1e60) or s.no is null or min_scale(q.amount) > s.decimals or a.closed_at is not null
    order by q.at limit 1;
  if bad is null then
    select ledger.refusal('LG014', format('the postings in %s sum to %s, not to zero', s.code, sum(q.amount)), jsonb_build_object('amount', sum(q.amount)::text),
        'Debits and credits of each asset must be equal.') into bad
      from rows from (unnest(p_accounts), unnest(p_amounts)) q(id, amount) join ledger.account a on a.id = q.id join ledger.asset s on s.no = a.asset_no
      group by s.code having sum(q.amount) <> 0 order by s.code limit 1;
  end if;
  return bad;
end $$;
comment on function ledger.journal_refusal is 'Why a journal entry cannot be booked whatever its accounts hold; null when it can.';

create function ledger.post_journal(
  p_accounts uuid[], p_amounts numeric[], p_id uuid default ledger.new_id(), p_description text default null,
  p_event_at timestamptz default null, p_metadata jsonb default null, p_expected numeric[] default null) returns ledger.journal_posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  r ledger.journal_posted; nos int[]; places int[]; bad jsonb; net record; booked timestamptz;
  leg_no int; leg_places int; leg_version bigint; leg_balance numeric;
begin
  if p_id is null then
    perform ledger.refuse(ledger.refusal('LG016', 'a journal entry needs an id', '{}', 'Leave the argument out to get a new one.'));
  end if;
  p_accounts := array(select unnest(p_accounts)); p_amounts := array(select unnest(p_amounts));   -- count from 1
  p_expected := nullif(array(select unnest(p_expected)), '{}');
  if cardinality(p_expected) <> cardinality(p_accounts) then
    perform ledger.refuse(ledger.refusal('LG016', format('%s balances are expected of %s legs', cardinality(p_expected), cardinality(p_accounts)), '{}',
      'Give each leg one, or null where any will do.'));
  end if;
  perform pg_advisory_xact_lock(uuid_hash_extended(p_id, 7743));
  r := ledger.journal_again(p_id, p_accounts, p_amounts, p_description, p_event_at, p_metadata);
  if r.id is not null then
    return r;
  end if;
  perform ledger.lock_accounts(p_accounts);
  bad := coalesce(ledger.journal_refusal(p_accounts, p_amounts), ledger.period_refusal(p_event_at));
  if bad is not null then
    perform ledger.refuse(bad);
  end if;

  for i in 1..cardinality(p_accounts) loop
    update ledger.balance b set balance = b.balance + trim_scale(p_amounts[i]), version = b.version + 1 where b.id = p_accounts[i]
      returning b.no, b.decimals, b.version, b.balance into leg_no, leg_places, leg_version, leg_balance;
    nos[i] := leg_no; places[i] := leg_places; r.versions[i] := leg_version; r.balances[i] := leg_balance;
    if leg_balance <> p_expected[i] then
      perform ledger.refuse(ledger.refusal('LG018', format('leg %s leaves account %s at %s, not at %s', i, ledger.account_label(p_accounts[i]), leg_balance, p_expected[i]),
        jsonb_build_object('account', p_accounts[i], 'balance', leg_balance::text), 'The books and the other record differ: compare the account''s entries.'));
    end if;
  end loop;

  -- Legs of one account may pass a limit on the way; what counts is where the entry leaves it.
  for net in
    select b.id, b.no, sum(q.amount) as change, min(b.balance) as balance
      from rows from (unnest(p_accounts), unnest(p_amounts)) q(id, amount) join ledger.balance b on b.id = q.id
      group by b.id, b.no
      having sum(q.amount) < 0 and min(b.balance) < min(b.lowest) or sum(q.amount) > 0 and min(b.balance) > min(b.highest)
      order by b.id
  loop
    perform ledger.release_expired(net.no);
    bad := ledger.bound_refusal(net.id, net.change, net.balance - net.change);
    if bad is not null then
      perform ledger.refuse(bad);
    end if;
  end loop;

  booked := clock_timestamp();
  insert into ledger.journal (id, created_at, xid, event_at, description, metadata)
    values (p_id, booked, txid_current(), p_event_at, p_description, p_metadata);
  insert into ledger.posting (journal_id, leg, account_no, version, amount, balance, created_at, event_at)
    select p_id, i, nos[i], r.versions[i], round(p_amounts[i], places[i]), r.balances[i], booked, p_event_at from generate_series(1, cardinality(p_accounts)) i;
  r.id := p_id; r.replayed := false; r.created_at := booked;
  return r;
end $$;
comment on function ledger.post_journal is 'Books a journal entry: debits positive, credits negative, zero in sum per asset. p_expected asserts balances after legs.';

create function ledger.exchange(
  p_from uuid, p_to uuid, p_from_amount numeric, p_to_amount numeric, p_from_liquidity uuid, p_to_liquidity uuid,
  p_id uuid default ledger.new_id(), p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.journal_posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_from_amount > 0 and p_to_amount > 0 then
    return ledger.post_journal(array[p_from, p_from_liquidity, p_to_liquidity, p_to], array[- p_from_amount, p_from_amount, - p_to_amount, p_to_amount],
                               p_id, 'exchange', p_event_at, p_metadata);
  end if;
  perform ledger.refuse(ledger.refusal('LG006', format('amounts %s and %s of an exchange are not both positive', coalesce(p_from_amount::text, 'null'), coalesce(p_to_amount::text, 'null')), '{}',
    'To exchange the other way, swap the accounts.'));
  return null;
end $$;
comment on function ledger.exchange is 'Exchanges one asset for another through two liquidity accounts, as one journal entry.';
