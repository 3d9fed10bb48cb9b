-- What a transfer can't do without: the same two updates and the same insert into tables with the same columns and indexes, and
-- no check, lock, retry or right at all.
create schema floor;
create table floor.balance (like ledger.balance including all) with (fillfactor = 40);
create table floor.transfer (like ledger.transfer including all);
insert into floor.balance select * from ledger.balance;

create function floor.transfer(p_from uuid, p_to uuid, p_amount numeric, p_id uuid, p_event_at timestamptz, p_metadata jsonb) returns ledger.posted
language plpgsql as $$
declare
  f_no int; f_balance numeric; f_version bigint; t_no int; t_balance numeric; t_version bigint;
begin
  update floor.balance b set balance = b.balance - p_amount, version = b.version + 1 where b.id = p_from
    returning b.no, b.balance, b.version into f_no, f_balance, f_version;
  update floor.balance b set balance = b.balance + p_amount, version = b.version + 1 where b.id = p_to
    returning b.no, b.balance, b.version into t_no, t_balance, t_version;
  insert into floor.transfer (id, created_at, xid, event_at, from_version, to_version, from_no, to_no, amount, from_balance, to_balance, metadata)
    values (p_id, now(), txid_current(), p_event_at, f_version, t_version, f_no, t_no, p_amount, f_balance, t_balance, p_metadata);
  return (p_id, false, f_version, t_version, f_balance, t_balance, now())::ledger.posted;
end $$;
