-- A batch of two is common (a payment and its fee) and too small for the array machinery of a batch. Its four entries are booked
-- by four plain updates, in the order in which the caller says that their accounts sort; a wrong order books just as well, but
-- could deadlock. There are few expressions on purpose: PL/pgSQL prepares each of them anew in each transaction.
--
-- Whatever is not plain sailing (a refusal, a repetition, an expired hold in the way) is undone, and the result is null:
-- transfers_at then does it, and says why it can't.

create function ledger.pair(
  p_order int[],
  p_from_1 uuid, p_to_1 uuid, p_amount_1 numeric, p_id_1 uuid, p_event_at_1 timestamptz, p_metadata_1 jsonb,
  p_from_2 uuid, p_to_2 uuid, p_amount_2 numeric, p_id_2 uuid, p_event_at_2 timestamptz, p_metadata_2 jsonb) returns ledger.batch_result
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  a1 numeric := trim_scale(p_amount_1); f1_no int; f1_asset int; f1_balance numeric; f1_version bigint; f1_ok boolean; places_1 int;
                                        t1_no int; t1_asset int; t1_balance numeric; t1_version bigint; t1_ok boolean;
  a2 numeric := trim_scale(p_amount_2); f2_no int; f2_asset int; f2_balance numeric; f2_version bigint; f2_ok boolean; places_2 int;
                                        t2_no int; t2_asset int; t2_balance numeric; t2_version bigint; t2_ok boolean;
  entry int; booked timestamptz; got int;
begin
  if (a1 > 0 and a1 < 1e60 and p_from_1 <> p_to_1 and a2 > 0 and a2 < 1e60 and p_from_2 <> p_to_2 and p_id_1 <> p_id_2
          and p_order @> array[1, 2, 3, 4] and cardinality(p_order) = 4) is not true then
    return null;
  end if;
  foreach entry in array p_order loop
    if entry = 1 then
      update ledger.balance b set balance = b.balance - a1, version = b.version + 1 where b.id = p_from_1
        returning b.no, b.asset_no, b.decimals, b.balance, b.version, b.balance >= b.lowest into f1_no, f1_asset, places_1, f1_balance, f1_version, f1_ok;
    elsif entry = 2 then
      update ledger.balance b set balance = b.balance + a1, version = b.version + 1 where b.id = p_to_1
        returning b.no, b.asset_no, b.balance, b.version, b.balance <= b.highest into t1_no, t1_asset, t1_balance, t1_version, t1_ok;
    elsif entry = 3 then
      update ledger.balance b set balance = b.balance - a2, version = b.version + 1 where b.id = p_from_2
        returning b.no, b.asset_no, b.decimals, b.balance, b.version, b.balance >= b.lowest into f2_no, f2_asset, places_2, f2_balance, f2_version, f2_ok;
    else
      update ledger.balance b set balance = b.balance + a2, version = b.version + 1 where b.id = p_to_2
        returning b.no, b.asset_no, b.balance, b.version, b.balance <= b.highest into t2_no, t2_asset, t2_balance, t2_version, t2_ok;
    end if;
  end loop;
  if f1_ok and t1_ok and f2_ok and t2_ok and f1_asset = t1_asset and f2_asset = t2_asset
     and (f1_no <> f2_no or f1_version < f2_version) and (f1_no <> t2_no or f1_version < t2_version)
     and (t1_no <> f2_no or t1_version < f2_version) and (t1_no <> t2_no or t1_version < t2_version) and scale(a1) <= places_1 and scale(a2) <= places_2
     and (p_event_at_1 is null or ledger.period_open(p_event_at_1)) and (p_event_at_2 is null or ledger.period_open(p_event_at_2)) then
    booked := clock_timestamp();
    insert into ledger.transfer (id, created_at, xid, event_at, from_version, to_version, from_no, to_no, amount, from_balance, to_balance, metadata)
      select * from (values
          (p_id_1, booked, txid_current(), p_event_at_1, f1_version, t1_version, f1_no, t1_no, round(a1, places_1), f1_balance, t1_balance, p_metadata_1),
          (p_id_2, booked + interval '1 microsecond', txid_current(), p_event_at_2, f2_version, t2_version, f2_no, t2_no, round(a2, places_2), f2_balance, t2_balance, p_metadata_2)) v
        -- Read after the locks, so that a simultaneous call with the same transfers has either finished or waits for this one.
        where not exists (select from ledger.transfer x where x.id in (p_id_1, p_id_2));
    get diagnostics got = row_count;
    if got = 2 then
      return (array[false, false], array[f1_version, f2_version], array[t1_version, t2_version], array[f1_balance, f2_balance], array[t1_balance, t2_balance],
              array[booked, booked + interval '1 microsecond'], array[null, null]::jsonb[])::ledger.batch_result;
    end if;
  end if;
  -- Where an account is unknown the update above changed nothing, and so does this one. The scale of an amount with too many decimals
  -- goes as well, once all that brought it are undone.
  update ledger.balance b set balance = round(b.balance + a1, greatest(b.decimals, min_scale(b.balance + a1))), version = b.version - 1 where b.id = p_from_1;
  update ledger.balance b set balance = round(b.balance - a1, greatest(b.decimals, min_scale(b.balance - a1))), version = b.version - 1 where b.id = p_to_1;
  update ledger.balance b set balance = round(b.balance + a2, greatest(b.decimals, min_scale(b.balance + a2))), version = b.version - 1 where b.id = p_from_2;
  update ledger.balance b set balance = round(b.balance - a2, greatest(b.decimals, min_scale(b.balance - a2))), version = b.version - 1 where b.id = p_to_2;
  return null;
end $$;
comment on function ledger.pair is 'Books two transfers if nothing stands in the way; otherwise changes nothing and returns null, and transfers_at has to do it.';
