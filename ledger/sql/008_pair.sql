-- A batch of two is common (a payment and its fee) and too small for the array machinery of a batch: one update an account,
-- in order, then one insert of two rows. The arithmetic is in the statements, because a PL/pgSQL expression costs ten times
-- what it costs inside one. Whatever is not plain sailing is undone and handed to transfers_at.

create function ledger.pair_at(
  p_accounts uuid[], p_from int[], p_to int[], p_amount numeric[], p_id uuid[],
  p_event_at timestamptz[], p_metadata jsonb[]) returns ledger.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  m int := cardinality(p_accounts); f1 int := p_from[1]; t1 int := p_to[1]; f2 int := p_from[2]; t2 int := p_to[2];
  a1 numeric := trim_scale(p_amount[1]); a2 numeric := trim_scale(p_amount[2]);
  first numeric[] := array[0, 0, 0, 0]; second numeric[] := first;   -- what each transfer changes on each account
  no1 int; asset1 int; places1 int; version1 bigint; balance1 numeric; fine1 boolean;
  no2 int; asset2 int; places2 int; version2 bigint; balance2 numeric; fine2 boolean;
  no3 int; asset3 int; places3 int; version3 bigint; balance3 numeric; fine3 boolean := true;
  no4 int; asset4 int; places4 int; version4 bigint; balance4 numeric; fine4 boolean := true;
  nos int[]; assets int[]; places int[]; versions bigint[]; balances numeric[]; booked timestamptz;
begin
  if m between 2 and 4 and a1 > 0 and a1 < 1e60 and f1 <> t1 and a2 > 0 and a2 < 1e60 and f2 <> t2 and p_id[1] <> p_id[2]
     and pg_advisory_xact_lock(uuid_hash_extended(least(p_id[1], p_id[2]), 7741))::text = ''
     and pg_advisory_xact_lock(uuid_hash_extended(greatest(p_id[1], p_id[2]), 7741))::text = '' then
    first[f1] := - a1; first[t1] := a1;
    second[f2] := - a2; second[t2] := a2;
    update ledger.balance b set balance = b.balance + first[1] + second[1], version = b.version + (first[1] <> 0)::int + (second[1] <> 0)::int
      where b.id = p_accounts[1] and not exists (select from ledger.transfer x where x.id in (p_id[1], p_id[2]))
      returning b.no, b.asset_no, b.decimals, b.version, b.balance,
                (first[1] >= 0 or b.balance - second[1] >= b.lowest) and (first[1] <= 0 or b.balance - second[1] <= b.highest)
                and (second[1] >= 0 or b.balance >= b.lowest) and (second[1] <= 0 or b.balance <= b.highest)
      into no1, asset1, places1, version1, balance1, fine1;
    if no1 is not null then
      update ledger.balance b set balance = b.balance + first[2] + second[2], version = b.version + (first[2] <> 0)::int + (second[2] <> 0)::int
        where b.id = p_accounts[2]
        returning b.no, b.asset_no, b.decimals, b.version, b.balance,
                  (first[2] >= 0 or b.balance - second[2] >= b.lowest) and (first[2] <= 0 or b.balance - second[2] <= b.highest)
                  and (second[2] >= 0 or b.balance >= b.lowest) and (second[2] <= 0 or b.balance <= b.highest)
        into no2, asset2, places2, version2, balance2, fine2;
      if m > 2 then
        update ledger.balance b set balance = b.balance + first[3] + second[3], version = b.version + (first[3] <> 0)::int + (second[3] <> 0)::int
          where b.id = p_accounts[3]
          returning b.no, b.asset_no, b.decimals, b.version, b.balance,
                    (first[3] >= 0 or b.balance - second[3] >= b.lowest) and (first[3] <= 0 or b.balance - second[3] <= b.highest)
                    and (second[3] >= 0 or b.balance >= b.lowest) and (second[3] <= 0 or b.balance <= b.highest)
          into no3, asset3, places3, version3, balance3, fine3;
      end if;
      if m > 3 then
        update ledger.balance b set balance = b.balance + first[4] + second[4], version = b.version + (first[4] <> 0)::int + (second[4] <> 0)::int
          where b.id = p_accounts[4]
          returning b.no, b.asset_no, b.decimals, b.version, b.balance,
                    (first[4] >= 0 or b.balance - second[4] >= b.lowest) and (first[4] <= 0 or b.balance - second[4] <= b.highest)
                    and (second[4] >= 0 or b.balance >= b.lowest) and (second[4] <= 0 or b.balance <= b.highest)
          into no4, asset4, places4, version4, balance4, fine4;
      end if;
      assets := array[asset1, asset2, asset3, asset4]; places := array[places1, places2, places3, places4];
      if fine1 and fine2 and fine3 and fine4 and assets[f1] = assets[t1] and assets[f2] = assets[t2] and scale(a1) <= places[f1] and scale(a2) <= places[f2]
         and (p_event_at[1] is null or ledger.period_open(p_event_at[1])) and (p_event_at[2] is null or ledger.period_open(p_event_at[2])) then
        nos := array[no1, no2, no3, no4]; versions := array[version1, version2, version3, version4]; balances := array[balance1, balance2, balance3, balance4];
        booked := clock_timestamp();
        insert into ledger.transfer (id, created_at, xid, event_at, from_version, to_version, from_no, to_no, amount, from_balance, to_balance, metadata) values
          (p_id[1], booked, txid_current(), p_event_at[1], versions[f1] - (second[f1] <> 0)::int, versions[t1] - (second[t1] <> 0)::int,
           nos[f1], nos[t1], round(a1, places[f1]), balances[f1] - second[f1], balances[t1] - second[t1], p_metadata[1]),
          (p_id[2], booked + interval '1 microsecond', txid_current(), p_event_at[2], versions[f2], versions[t2],
           nos[f2], nos[t2], round(a2, places[f2]), balances[f2], balances[t2], p_metadata[2]);
        return (array[false, false],
                array[versions[f1] - (second[f1] <> 0)::int, versions[f2]], array[versions[t1] - (second[t1] <> 0)::int, versions[t2]],
                array[balances[f1] - second[f1], balances[f2]], array[balances[t1] - second[t1], balances[t2]],
                array[booked, booked + interval '1 microsecond'], array[null, null]::jsonb[])::ledger.batch_result;
      end if;
      for j in 1..m loop
        update ledger.balance b set balance = b.balance - first[j] - second[j], version = b.version - (first[j] <> 0)::int - (second[j] <> 0)::int
          where b.id = p_accounts[j];
      end loop;
    end if;
  end if;
  return ledger.transfers_at(p_accounts, p_from, p_to, p_amount, p_id, p_event_at, p_metadata, false);
end $$;
comment on function ledger.pair_at is 'transfers_at for exactly two transfers.';
