-- Reports over whole accounts and whole books. Each is one statement, so all of it is of one moment.

-- A hold that has expired no longer counts, also while nobody has given it back.
create view ledger.accounts with (security_invoker = true) as
  select a.id, a.name, a.code, s.code as asset, s.decimals, a.normal_side, a.min_balance, a.max_balance, a.metadata, a.created_at, a.closed_at,
         b.version, b.balance as posted, h.held_out, h.held_in, b.balance + h.held_in - h.held_out as pending,
         case a.normal_side when 'debit' then b.balance - h.held_out else b.balance + h.held_in end as available
    from ledger.account a join ledger.asset s on s.no = a.asset_no join ledger.balance b on b.no = a.no
         cross join lateral (select
           round(case when b.held_out = 0 then 0 else b.held_out - coalesce((select sum(x.amount) from ledger.hold x
             where x.state = 'open' and x.from_no = b.no and x.expires_at <= statement_timestamp()), 0) end, s.decimals) as held_out,
           round(case when b.held_in = 0 then 0 else b.held_in - coalesce((select sum(x.amount) from ledger.hold x
             where x.state = 'open' and x.to_no = b.no and x.expires_at <= statement_timestamp()), 0) end, s.decimals) as held_in) h;
comment on view ledger.accounts is 'All accounts and what they hold now. Balances are debits minus credits; accounts with normal side credit usually stand below zero.';
comment on column ledger.accounts.id is 'Identity of the account; ledger.id_text shows it with its prefix.';
comment on column ledger.accounts.name is 'Name for people.';
comment on column ledger.accounts.code is 'Optional unique code; a colon separates its levels.';
comment on column ledger.accounts.asset is 'What the account is kept in.';
comment on column ledger.accounts.decimals is 'Decimals that amounts of the asset may have.';
comment on column ledger.accounts.normal_side is 'Side on which the account usually stands: debit or credit.';
comment on column ledger.accounts.min_balance is 'What is posted minus what is held out may not be brought below this; null: no minimum.';
comment on column ledger.accounts.max_balance is 'What is posted plus what is held in may not be brought above this; null: no maximum.';
comment on column ledger.accounts.metadata is 'What the application keeps with the account.';
comment on column ledger.accounts.created_at is 'When the account was opened.';
comment on column ledger.accounts.closed_at is 'When the account was closed; null while it is open.';
comment on column ledger.accounts.version is 'Version of the account''s last entry: how many it has.';
comment on column ledger.accounts.posted is 'Balance of what is booked.';
comment on column ledger.accounts.held_out is 'Sum of the holds that would take money out.';
comment on column ledger.accounts.held_in is 'Sum of the holds that would bring money in.';
comment on column ledger.accounts.pending is 'Where the account would stand if all holds were posted in full.';
comment on column ledger.accounts.available is 'What is posted without what open holds would take off its normal side: posted - held_out (debit) or posted + held_in (credit). Limits are not in it.';

create view ledger.transfers with (security_invoker = true) as
  select t.id, f.id as from_id, r.id as to_id, s.code as asset, t.amount, t.from_version, t.to_version, t.from_balance, t.to_balance,
         t.created_at, t.event_at, t.metadata,
         (select original_id from ledger.reversal x where x.kind = 'transfer' and x.reversal_id = t.id) as reverses_id,
         (select reversal_id from ledger.reversal x where x.kind = 'transfer' and x.original_id = t.id) as reversed_by_id,
         (select h.id from ledger.hold h where h.transfer_id = t.id) as hold_id
    from ledger.transfer t join ledger.account f on f.no = t.from_no join ledger.account r on r.no = t.to_no join ledger.asset s on s.no = f.asset_no;
comment on view ledger.transfers is 'All transfers, with the identities of their accounts and what they are linked to.';
comment on column ledger.transfers.id is 'Identity of the transfer.';
comment on column ledger.transfers.from_id is 'The account that paid.';
comment on column ledger.transfers.to_id is 'The account that received.';
comment on column ledger.transfers.asset is 'Asset of both.';
comment on column ledger.transfers.amount is 'Amount, above zero.';
comment on column ledger.transfers.from_version is 'Version of the paying account''s entry.';
comment on column ledger.transfers.to_version is 'Version of the receiving account''s entry.';
comment on column ledger.transfers.from_balance is 'Balance of the paying account after it.';
comment on column ledger.transfers.to_balance is 'Balance of the receiving account after it.';
comment on column ledger.transfers.created_at is 'When it was booked.';
comment on column ledger.transfers.event_at is 'When it happened, if an event time was given.';
comment on column ledger.transfers.metadata is 'What the application keeps with it.';
comment on column ledger.transfers.reverses_id is 'The transfer that it took back.';
comment on column ledger.transfers.reversed_by_id is 'The transfer that took it back.';
comment on column ledger.transfers.hold_id is 'The hold that it posted.';

create view ledger.journals with (security_invoker = true) as
  select j.id, j.description, j.created_at, j.event_at, j.metadata,
         (select original_id from ledger.reversal x where x.kind = 'journal' and x.reversal_id = j.id) as reverses_id,
         (select reversal_id from ledger.reversal x where x.kind = 'journal' and x.original_id = j.id) as reversed_by_id
    from ledger.journal j;
comment on view ledger.journals is 'All journal entries and what they are linked to; their legs are in ledger.entries.';
comment on column ledger.journals.id is 'Identity of the journal entry.';
comment on column ledger.journals.description is 'What it is for, in words.';
comment on column ledger.journals.created_at is 'When it was booked.';
comment on column ledger.journals.event_at is 'When it happened, if an event time was given.';
comment on column ledger.journals.metadata is 'What the application keeps with it.';
comment on column ledger.journals.reverses_id is 'The journal entry that it took back.';
comment on column ledger.journals.reversed_by_id is 'The journal entry that took it back.';

create view ledger.holds with (security_invoker = true) as
  select h.id, f.id as from_id, r.id as to_id, s.code as asset, h.amount,
         case when h.state = 'open' and h.expires_at <= statement_timestamp() then 'expired' else h.state end as state,
         h.posted_amount, h.transfer_id, h.created_at, h.expires_at, h.settled_at, h.event_at, h.metadata
    from ledger.hold h join ledger.account f on f.no = h.from_no join ledger.account r on r.no = h.to_no join ledger.asset s on s.no = f.asset_no;
comment on view ledger.holds is 'All holds, with the identities of their accounts.';
comment on column ledger.holds.id is 'Identity of the hold.';
comment on column ledger.holds.from_id is 'The account that would pay.';
comment on column ledger.holds.to_id is 'The account that would receive.';
comment on column ledger.holds.asset is 'Asset of both.';
comment on column ledger.holds.amount is 'Amount set aside.';
comment on column ledger.holds.state is 'open, posted, voided or expired; expired also when nobody has given it back yet.';
comment on column ledger.holds.posted_amount is 'How much of it was posted.';
comment on column ledger.holds.transfer_id is 'The transfer that posted it.';
comment on column ledger.holds.created_at is 'When it was set aside.';
comment on column ledger.holds.expires_at is 'From then on it cannot be posted; null: never.';
comment on column ledger.holds.settled_at is 'When it was posted, voided or given back after its expiry.';
comment on column ledger.holds.event_at is 'Event time of the transfer to come, if one was given.';
comment on column ledger.holds.metadata is 'What the application keeps with it.';

create function ledger.statement(
  p_account uuid, p_from timestamptz default '-infinity', p_to timestamptz default 'infinity', p_by_event boolean default false)
returns table (line text, version bigint, kind text, source_id uuid, leg integer, counterparty_id uuid, amount numeric, previous numeric, balance numeric,
               created_at timestamptz, event_at timestamptz, metadata jsonb, description text)
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  account integer := ledger.account_no(p_account);
  before_from timestamptz := p_from - interval '1 microsecond';
  before_to timestamptz := p_to - interval '1 microsecond';
  low bigint := ledger.version_at(account, before_from);
  high bigint := ledger.version_at(account, before_to);
  opening numeric := ledger.posted_at(account, before_from, p_by_event);
begin
  if p_from is null or p_to is null or p_from > p_to then
    perform ledger.refuse(ledger.refusal('LG016', format('a statement cannot run from %s to %s', coalesce(p_from::text, 'null'), coalesce(p_to::text, 'null')), '{}',
      'It begins before it ends; use -infinity and infinity for all of it.'));
  end if;
  line := 'opening';
  balance := opening;
  return next;
  return query
    with happened as (
      select e.* from ledger.entry e where e.account_no = account and e.version > low and e.version <= high and (e.dated_at is null or not p_by_event)
      union all
      select e.* from ledger.entry e where e.account_no = account and e.dated_at > before_from and e.dated_at <= before_to and p_by_event),
    running as (
      select e.*, opening + sum(e.amount) over (order by case when p_by_event then e.event_at end, e.version) as stands from happened e)
    select 'entry', e.version, e.kind, e.source_id, e.leg, (select c.id from ledger.account c where c.no = e.counterparty_no),
           e.amount, e.stands - e.amount, e.stands, e.created_at, e.event_at, e.metadata, e.description
      from running e order by case when p_by_event then e.event_at end, e.version;
  line := 'closing';
  balance := ledger.posted_at(account, before_to, p_by_event);
  return next;
end $$;
comment on function ledger.statement is 'Opening balance, entries and closing balance of an account from p_from (included) to p_to (not included), by booking time, or (p_by_event) by event time with balances that run in that order.';

create function ledger.balances_at(p_at timestamptz, p_by_event boolean) returns table (account_no integer, balance numeric)
language sql stable
begin atomic
  select b.no, case when p_at is null then b.balance else ledger.posted_at(b.no, p_at, p_by_event) end from ledger.balance b where b.version > 0;
end;
comment on function ledger.balances_at is 'Balances of all accounts that have entries, now (p_at null) or at a time.';

create function ledger.trial_balance(p_at timestamptz default null, p_by_event boolean default false)
returns table (line text, account_id uuid, code text, name text, asset text, debit numeric, credit numeric)
language sql stable
begin atomic
  select case when a.id is null then 'total' else 'account' end, a.id, a.code, a.name, s.code, sum(greatest(b.balance, 0 * b.balance)), sum(greatest(- b.balance, 0 * b.balance))
    from ledger.balances_at(p_at, p_by_event) b join ledger.account a on a.no = b.account_no join ledger.asset s on s.no = a.asset_no
    group by grouping sets ((s.code, a.id, a.code, a.name), (s.code))
    order by s.code collate "C", a.id is null, a.code collate "C", a.id;
end;
comment on function ledger.trial_balance is 'Each account''s balance in the column of its sign, and a total line for each asset, whose two columns are equal. Now (p_at null), or at a time by booking or (p_by_event) event time. Accounts without entries are left out.';

create function ledger.rollup(p_prefix text default null, p_depth integer default null, p_at timestamptz default null, p_by_event boolean default false)
returns table (code text, level integer, asset text, accounts bigint, balance numeric)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  base integer := coalesce(cardinality(string_to_array(p_prefix, ':')), 0);
begin
  if p_prefix = '' or p_prefix like ':%' or p_prefix like '%:' then
    perform ledger.refuse(ledger.refusal('LG016', format('%L is not the beginning of an account code', p_prefix), jsonb_build_object('code', p_prefix),
      'Name whole levels, as in assets:cash; null is all of them.'));
  elsif p_depth < 0 then
    perform ledger.refuse(ledger.refusal('LG016', format('a depth of %s levels below %s', p_depth, coalesce(p_prefix, 'the top')), '{}',
      'Depth 0 is one line; null is all levels.'));
  end if;
  return query
    select array_to_string(q.path, ':'), cardinality(q.path), s.code, count(*), sum(b.balance)
      from ledger.account a join ledger.asset s on s.no = a.asset_no join ledger.balances_at(p_at, p_by_event) b on b.account_no = a.no
           cross join lateral (select string_to_array(a.code, ':') as levels) l
           cross join lateral (select l.levels[1:depth] as path from generate_series(greatest(base, 1), least(cardinality(l.levels), base + p_depth)) depth) q
      where a.code is not null and (p_prefix is null or a.code = p_prefix or starts_with(a.code, p_prefix || ':'))
      group by q.path, s.code
      order by q.path collate "C", s.code collate "C";
end $$;
comment on function ledger.rollup is 'Sums by the levels of account codes and by asset: a line for p_prefix and for each code down to p_depth levels below it (null: all), each over all accounts at and below it.';

create function ledger.general_journal(p_from timestamptz default '-infinity', p_to timestamptz default 'infinity')
returns table (created_at timestamptz, event_at timestamptz, kind text, source_id uuid, leg integer, account_id uuid, code text, asset text,
               version bigint, amount numeric, balance numeric, description text, metadata jsonb)
language sql stable
begin atomic
  select e.created_at, e.dated_at, e.kind, e.source_id, e.leg, a.id, a.code, s.code, e.version, e.amount, e.balance, e.description, e.metadata
    from ledger.entry e join ledger.account a on a.no = e.account_no join ledger.asset s on s.no = a.asset_no
    where e.created_at >= p_from and e.created_at < p_to
    order by e.created_at, e.kind, e.source_id, e.leg;
end;
comment on function ledger.general_journal is 'Everything booked at p_from or later and before p_to, by booking time, the legs of each transfer and journal entry together. event_at is null where none was given. Reads the books from end to end.';
