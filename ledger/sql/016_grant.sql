-- Who may do what. Installing takes away what PostgreSQL gives to everybody, and grants nothing.
--
-- Nobody is granted more than reading on a table. What the functions of a writer do beyond that, they do with the rights of the books'
-- owner (SECURITY DEFINER). Functions of a reader run with the rights of whoever calls them.

-- Every function of the schema stands here once. A step that adds one adds it here, too, and then calls ledger.grant_access(null, null).
create view ledger.access (function, who) with (security_invoker = true) as
  select unnest(array[
    'account_label', 'account_name', 'account_no', 'balance_after', 'balance_after_journal', 'balance_after_source', 'balance_after_transfer',
    'balance_at', 'balance_at_event', 'balance_of', 'balances_at', 'changes', 'entries_between', 'entries_of', 'general_journal', 'here', 'id',
    'id_text', 'parse_position', 'position_now', 'posted_at', 'refusal', 'refuse', 'rollup', 'snapshot_covers', 'snapshot_now', 'statement', 'trial_balance',
    'unknown_account', 'verify', 'verify_access', 'verify_accounts', 'verify_books', 'verify_chain', 'verify_journals', 'verify_links',
    'verify_parts', 'verify_range', 'verify_sums', 'verify_transfers', 'version_at', 'version_before']), 'reader'
  union all
  select unnest(array[
    'assert_balance', 'close_account', 'create_asset', 'exchange', 'expire_holds', 'hold', 'lock_accounts', 'new_id', 'open_account', 'pair',
    'post_hold', 'post_journal', 'reopen_account', 'reverse_journal', 'reverse_transfer', 'set_limits', 'transfer', 'transfer_available',
    'transfer_if', 'transfers', 'transfers_at', 'update_account', 'void_hold']), 'writer'
  union all
  -- Closing a period makes books final, NOTIFY slows everybody down: decisions of the owner. The others are parts of the functions above.
  select unnest(array[
    'adopt_books', 'close_period', 'grant_access', 'reopen_period', 'set_notify',
    'account_refusal', 'batch_refusal', 'bound_refusal', 'closed_refusal', 'code_taken', 'guard_books', 'guard_update', 'highest', 'hold_again',
    'hold_settled', 'id_reused', 'journal_again', 'journal_refusal', 'limit_refusal', 'lock_account', 'lock_hold', 'lowest', 'notify_booked',
    'period_open', 'period_refusal', 'release_expired', 'reserve', 'reversed_before', 'transfer_again', 'transfer_refusal', 'version_refusal']), 'owner';
comment on view ledger.access is 'Which functions ledger.grant_access lets whom execute.';
comment on column ledger.access.function is 'Name of a function of the schema ledger.';
comment on column ledger.access.who is 'reader, writer (who may do all that a reader may) or owner (nobody else).';

create function ledger.grant_access(p_reader text, p_writer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  grantee text;
  f regprocedure;
begin
  -- Everybody may execute a new function, and so it is after restoring a dump without privileges.
  revoke all on schema ledger from public;
  revoke all on all tables in schema ledger from public;
  revoke all on all sequences in schema ledger from public;
  revoke all on all routines in schema ledger from public;
  foreach grantee in array array_remove(array[p_reader, p_writer], null) loop
    if not exists (select from pg_roles where rolname = grantee) then
      perform ledger.refuse(ledger.refusal('LG016', format('role %L does not exist', grantee), '{}', 'Create it first: the function CreateRoles of the Go package does, or CREATE ROLE.'));
    end if;
    execute format('grant usage on schema ledger to %I', grantee);
    execute format('grant select on all tables in schema ledger to %I', grantee);
  end loop;
  for f, grantee in
    select p.oid, g.role from pg_proc p join ledger.access a on a.function = p.proname
                              join (values ('reader', p_reader), ('reader', p_writer), ('writer', p_writer)) g (who, role) on g.who = a.who
      where p.pronamespace = 'ledger'::regnamespace and g.role is not null
  loop
    execute format('grant execute on function %s to %I', f, grantee);
  end loop;
end $$;
comment on function ledger.grant_access is 'Lets one role read the books and another one also book (null: none such), and nobody else unless granted otherwise. For the owner; to be called again after an upgrade, and as often as one likes.';

select ledger.grant_access(null, null);
