-- Closing a period waits for every transaction that is booking, and those that come later find it closed: what a transfer reads
-- of it, it reads while it has locks on balance that the EXCLUSIVE lock here waits for.

create function ledger.close_period(p_before timestamptz) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  closed timestamptz;
begin
  lock table ledger.balance in exclusive mode;
  select closed_before into closed from ledger.period for update;
  if p_before is null or p_before < closed then
    perform ledger.refuse(ledger.refusal('LG016', format('the books are closed before %s already, which is later than %s', closed, coalesce(p_before::text, 'null')),
      jsonb_build_object('closed_before', nullif(closed, '-infinity')), 'To reopen a period use ledger.reopen_period.'));
  elsif p_before > clock_timestamp() then
    perform ledger.refuse(ledger.refusal('LG016', format('%s has not come yet', p_before), '{}', 'Close a period when it is over.'));
  end if;
  update ledger.period set closed_before = p_before, changed_at = clock_timestamp(), changed_by = session_user;
end $$;
comment on function ledger.close_period is 'From now on nothing is booked with a time before p_before. Waits for transactions that are booking.';

create function ledger.reopen_period(p_before timestamptz default '-infinity') returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update ledger.period set closed_before = p_before, changed_at = clock_timestamp(), changed_by = session_user where p_before <= closed_before;
  if not found then
    perform ledger.refuse(ledger.refusal('LG016', format('the books are not closed before %s', coalesce(p_before::text, 'null')), '{}', 'To close a period use ledger.close_period.'));
  end if;
end $$;
comment on function ledger.reopen_period is 'Takes the end of the closed period back to p_before; -infinity opens the books entirely.';
