-- A reversal is an ordinary transfer or journal entry the other way, and a link. Each is taken back at most once.

create function ledger.reversed_before(p_kind text, p_prefix text, p_original uuid, p_reversal uuid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp
return ledger.refusal('LG013', format('%s was already reversed by %s', ledger.id_text(p_prefix, p_original), ledger.id_text(p_prefix, p_reversal)),
  jsonb_build_object('id', p_original), 'Reverse that one to bring it back.');
comment on function ledger.reversed_before is 'The refusal for something that was taken back before.';

create function ledger.reverse_transfer(
  p_transfer uuid, p_id uuid default ledger.new_id(), p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  t ledger.transfer; by_id uuid; f_id uuid; t_id uuid; done ledger.posted;
begin
  perform pg_advisory_xact_lock(uuid_hash_extended(p_transfer, 7744));
  select * into t from ledger.transfer where id = p_transfer;
  if not found then
    perform ledger.refuse(ledger.refusal('LG019', format('transfer %s does not exist', coalesce(ledger.id_text('xfer', p_transfer), 'null')), jsonb_build_object('id', p_transfer),
      'Only what was booked can be reversed.'));
  end if;
  select reversal_id into by_id from ledger.reversal where kind = 'transfer' and original_id = p_transfer;
  if by_id <> p_id then
    perform ledger.refuse(ledger.reversed_before('transfer', 'xfer', p_transfer, by_id));
  end if;
  select id into f_id from ledger.balance where no = t.from_no;
  select id into t_id from ledger.balance where no = t.to_no;
  done := ledger.transfer(t_id, f_id, t.amount, p_id, p_event_at, p_metadata);
  if by_id is null then
    if done.replayed then
      perform ledger.refuse(ledger.id_reused('xfer', p_id));
    end if;
    insert into ledger.reversal (kind, original_id, reversal_id) values ('transfer', p_transfer, p_id);
  end if;
  return done;
end $$;
comment on function ledger.reverse_transfer is 'Takes a transfer back by one the other way, once. The same p_id again returns the first result.';

create function ledger.reverse_journal(
  p_journal uuid, p_id uuid default ledger.new_id(), p_description text default null,
  p_event_at timestamptz default null, p_metadata jsonb default null) returns ledger.journal_posted
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  by_id uuid; accounts uuid[]; amounts numeric[]; done ledger.journal_posted;
begin
  perform pg_advisory_xact_lock(uuid_hash_extended(p_journal, 7744));
  select array_agg(b.id order by p.leg), array_agg(- p.amount order by p.leg) into accounts, amounts
    from ledger.posting p join ledger.balance b on b.no = p.account_no where p.journal_id = p_journal;
  if accounts is null then
    perform ledger.refuse(ledger.refusal('LG019', format('journal entry %s does not exist', coalesce(ledger.id_text('jrnl', p_journal), 'null')), jsonb_build_object('id', p_journal),
      'Only what was booked can be reversed.'));
  end if;
  select reversal_id into by_id from ledger.reversal where kind = 'journal' and original_id = p_journal;
  if by_id <> p_id then
    perform ledger.refuse(ledger.reversed_before('journal', 'jrnl', p_journal, by_id));
  end if;
  done := ledger.post_journal(accounts, amounts, p_id, p_description, p_event_at, p_metadata);
  if by_id is null then
    if done.replayed then
      perform ledger.refuse(ledger.id_reused('jrnl', p_id));
    end if;
    insert into ledger.reversal (kind, original_id, reversal_id) values ('journal', p_journal, p_id);
  end if;
  return done;
end $$;
comment on function ledger.reverse_journal is 'Takes a journal entry back by one with all signs turned, once. The same p_id again returns the first result.';
