-- A batch is one locking read, one loop over arrays, one update and one insert, however many transfers it has.
-- transfers_at takes sorted distinct accounts and positions in them, as a client with a sort at hand can send them;
-- transfers works them out. In a partial batch a refused transfer does not stop the others.
--
-- Rows are made by subscripting arrays inside generate_series: unnest of a dozen arrays costs more than the insert itself.

create type ledger.batch_result as (
  replayed boolean[], from_version bigint[], to_version bigint[], from_balance numeric[], to_balance numeric[], created_at timestamptz[], refused jsonb[]);
comment on type ledger.batch_result is 'What a batch did, in input order; refused is null, or has the reason where a transfer was not booked.';
comment on column ledger.batch_result.replayed is 'It had been booked before, and this is its first result.';
comment on column ledger.batch_result.from_version is 'Version of the payer''s entry.';
comment on column ledger.batch_result.to_version is 'Version of the receiver''s entry.';
comment on column ledger.batch_result.from_balance is 'Balance of the payer after it.';
comment on column ledger.batch_result.to_balance is 'Balance of the receiver after it.';
comment on column ledger.batch_result.created_at is 'When it was booked.';
comment on column ledger.batch_result.refused is 'Why it was not booked; null when it was.';

create function ledger.transfers_at(
  p_accounts uuid[], p_from int[], p_to int[], p_amount numeric[], p_id uuid[],
  p_event_at timestamptz[], p_metadata jsonb[], p_partial boolean) returns ledger.batch_result
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  n int := cardinality(p_id); m int := cardinality(p_accounts);
  known uuid[]; row_at tid[]; no int[]; asset int[]; places int[]; stands numeric[]; versions bigint[]; lowest numeric[]; highest numeric[];
  f int; t int; a numeric; f_after numeric; t_after numeric;
  f_balances numeric[] := p_amount; t_balances numeric[] := p_amount; f_versions bigint[]; t_versions bigint[];
  times timestamptz[]; replayed boolean[]; refused jsonb[]; skip boolean[];
  some_known boolean; bad jsonb; again ledger.posted; wanted int := n; got int;
begin
  if n is null or cardinality(p_from) is distinct from n or cardinality(p_to) is distinct from n or cardinality(p_amount) is distinct from n
     or cardinality(p_event_at) <> n or cardinality(p_metadata) <> n
     or 1 <> any (array[array_lower(p_accounts, 1), array_lower(p_from, 1), array_lower(p_to, 1), array_lower(p_amount, 1), array_lower(p_id, 1), array_lower(p_event_at, 1), array_lower(p_metadata, 1)]) then
    perform ledger.refuse(ledger.refusal('LG016', 'the arrays of a batch must be of one length and count from 1', '{}', 'Give each transfer an id, two accounts and an amount.'));
  elsif array_position(p_id, null) is not null then
    perform ledger.refuse(ledger.refusal('LG016', 'each transfer of a batch needs an id', '{}', 'Leave the ids out to get new ones.'));
  end if;
  select array_agg(q.id), array_agg(q.ctid), array_agg(q.no), array_agg(q.asset_no), array_agg(q.decimals), array_agg(q.balance), array_agg(q.version), array_agg(q.lowest), array_agg(q.highest)
    into known, row_at, no, asset, places, stands, versions, lowest, highest
    from (select b.id, b.ctid, b.no, b.asset_no, b.decimals, b.balance, b.version, b.lowest, b.highest
            from ledger.balance b where b.id = any (p_accounts) order by b.id for update) q;
  if known is distinct from p_accounts then   -- some are unknown: align what is there, leave the others null
    if m <> (select count(distinct i) from unnest(p_accounts) i) then
      perform ledger.refuse(ledger.refusal('LG016', 'accounts must be distinct', '{}', 'Use ledger.transfers, which sorts them.'));
    end if;
    select array_agg(b.ctid order by i.at), array_agg(b.no order by i.at), array_agg(b.asset_no order by i.at), array_agg(b.decimals order by i.at),
           array_agg(b.balance order by i.at), array_agg(b.version order by i.at), array_agg(b.lowest order by i.at), array_agg(b.highest order by i.at)
      into row_at, no, asset, places, stands, versions, lowest, highest
      from unnest(p_accounts) with ordinality i(id, at) left join ledger.balance b on b.id = i.id;
  end if;
  -- Read after the locks, so that a simultaneous call with the same transfers has either finished or waits for this one.
  some_known := exists (select from ledger.transfer x where x.id = any (p_id));
  f_versions := array_fill(0::bigint, array[n]);
  t_versions := f_versions;
  replayed := array_fill(false, array[n]);
  skip := replayed;
  refused := array_fill(null::jsonb, array[n]);
  times := array_fill(null::timestamptz, array[n]);

  for i in 1..n loop
    f := p_from[i]; t := p_to[i]; a := trim_scale(p_amount[i]);
    if some_known then
      again := ledger.transfer_again(p_id[i], p_accounts[f], p_accounts[t], a, p_event_at[i], p_metadata[i]);
      if again.replayed then
        replayed[i] := true; skip[i] := true; wanted := wanted - 1; times[i] := again.created_at;
        f_balances[i] := again.from_balance; t_balances[i] := again.to_balance;
        f_versions[i] := again.from_version; t_versions[i] := again.to_version;
        continue;
      end if;
    end if;
    for attempt in 1..2 loop
      f_after := stands[f] - a; t_after := stands[t] + a;
      if again.id is null and f_after >= lowest[f] and t_after <= highest[t] and asset[f] = asset[t] and f <> t and a > 0 and a < 1e60 and scale(a) <= places[f]
         and (p_event_at[i] is null or ledger.period_open(p_event_at[i])) then
        stands[f] := f_after; f_balances[i] := f_after; versions[f] := versions[f] + 1; f_versions[i] := versions[f];
        stands[t] := t_after; t_balances[i] := t_after; versions[t] := versions[t] + 1; t_versions[i] := versions[t];
        times[i] := clock_timestamp();   -- each its own, so that time orders the transfers of a batch, too
        exit;
      end if;
      bad := case when again.id is not null then ledger.id_reused('xfer', p_id[i])
                  else ledger.transfer_refusal(p_accounts[f], p_accounts[t], p_amount[i], p_event_at[i], stands[f], stands[t]) end;
      if attempt = 1 and bad->>'code' = 'LG003' and ledger.release_expired(no[f]) + ledger.release_expired(no[t]) > 0 then
        select array_agg(b.ctid order by i.at), array_agg(b.lowest order by i.at), array_agg(b.highest order by i.at) into row_at, lowest, highest
          from unnest(p_accounts) with ordinality i(id, at) left join ledger.balance b on b.id = i.id;
        continue;
      end if;
      bad := jsonb_set(bad, '{detail,position}', to_jsonb(i));
      if p_partial is not true then
        perform ledger.refuse(jsonb_set(bad, '{message}', to_jsonb(format('transfer %s of %s: %s', i, n, bad->>'message'))));
      end if;
      refused[i] := bad; skip[i] := true; wanted := wanted - 1;
      exit;
    end loop;
  end loop;

  update ledger.balance b set balance = stands[j], version = versions[j]
    from (select generate_series(1, m) as j) q where b.ctid = row_at[j] and b.version <> versions[j];
  insert into ledger.transfer (id, created_at, xid, event_at, from_version, to_version, from_no, to_no, amount, from_balance, to_balance, metadata)
    select p_id[i], times[i], txid_current(), p_event_at[i], f_versions[i], t_versions[i], no[p_from[i]], no[p_to[i]],
           round(p_amount[i], places[p_from[i]]), f_balances[i], t_balances[i], p_metadata[i]
      from (select generate_series(1, n) as i) q where not skip[i]
    on conflict do nothing;
  get diagnostics got = row_count;
  if got <> wanted then
    perform ledger.refuse(ledger.batch_refusal(p_id));
  end if;
  return (replayed, f_versions, t_versions, f_balances, t_balances, times, refused)::ledger.batch_result;
end $$;
comment on function ledger.transfers_at is 'A batch of transfers; p_from and p_to are positions, from 1, in the sorted distinct p_accounts.';

create function ledger.batch_refusal(p_id uuid[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  twice uuid := (select i from unnest(p_id) i group by i having count(*) > 1 limit 1);
begin
  if twice is not null then
    return ledger.refusal('LG016', format('id %s stands twice in one batch', ledger.id_text('xfer', twice)), jsonb_build_object('id', twice),
      'Send each transfer of a batch once.');
  end if;
  return ledger.refusal('40001', 'an id of the batch was used by another session at the same moment', '{}', 'Retry: the batch then finds it.');
end $$;
comment on function ledger.batch_refusal is 'Why not all rows of a batch could be inserted.';

create function ledger.transfers(
  p_from uuid[], p_to uuid[], p_amount numeric[], p_id uuid[] default null,
  p_event_at timestamptz[] default null, p_metadata jsonb[] default null, p_partial boolean default false)
returns table (id uuid, replayed boolean, from_version bigint, to_version bigint, from_balance numeric, to_balance numeric, created_at timestamptz, refused jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  accounts uuid[]; f int[]; t int[]; r ledger.batch_result;
begin
  -- Arrays may begin at other subscripts than 1, which the functions below count from.
  p_amount := array(select unnest(p_amount)); p_from := array(select unnest(p_from)); p_to := array(select unnest(p_to));
  p_event_at := nullif(array(select unnest(p_event_at)), '{}'); p_metadata := nullif(array(select unnest(p_metadata)), '{}');
  if cardinality(p_amount) = 0 and cardinality(p_from) = 0 and cardinality(p_to) = 0 then
    return;
  end if;
  p_id := case when p_id is null then array(select ledger.new_id() from unnest(p_amount)) else array(select unnest(p_id)) end;
  accounts := array(select distinct i from unnest(p_from || p_to) i where i is not null order by i);
  select array_agg(s.at order by q.at) into f from unnest(p_from) with ordinality q(id, at) left join unnest(accounts) with ordinality s(id, at) on s.id = q.id;
  select array_agg(s.at order by q.at) into t from unnest(p_to) with ordinality q(id, at) left join unnest(accounts) with ordinality s(id, at) on s.id = q.id;
  r := ledger.transfers_at(accounts, f, t, p_amount, p_id, p_event_at, p_metadata, p_partial);
  return query
    select p_id[i], r.replayed[i], case when r.refused[i] is null then r.from_version[i] end, case when r.refused[i] is null then r.to_version[i] end,
           case when r.refused[i] is null then r.from_balance[i] end, case when r.refused[i] is null then r.to_balance[i] end,
           case when r.refused[i] is null then r.created_at[i] end, r.refused[i]
      from generate_series(1, cardinality(p_id)) i order by i;
end $$;
comment on function ledger.transfers is 'A batch of transfers, booked in input order, all or (p_partial) those that can be; results in input order.';
