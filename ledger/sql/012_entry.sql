-- Reading the books entry by entry. Everything here runs as the caller. An entry is addressed by its account and version, which an
-- index finds; created_at rises with the version, so a moment is found by bisecting versions and needs no index of its own.
--
-- Functions that must not fall back to sequential scans or sorts, with plans made while the books were small, switch those off. Where the
-- planner has no other way it then takes a plan of an absurd cost, for which JIT would compile for longer than it runs: so that is off, too.

-- Each arm reads one table alone, journals through sub-selects in the select list: that is what lets the planner read the last entries
-- of an account as a merge of three index scans, whatever the size of the tables.
create view ledger.entry with (security_invoker = true) as
  select from_no as account_no, from_version as version, 'transfer'::text as kind, id as source_id, 1 as leg, to_no as counterparty_no,
         - amount as amount, from_balance + amount as previous, from_balance as balance,
         created_at, coalesce(event_at, created_at) as event_at, event_at as dated_at, metadata, null::text as description
    from ledger.transfer
  union all
  select to_no, to_version, 'transfer', id, 2, from_no, amount, to_balance - amount, to_balance,
         created_at, coalesce(event_at, created_at), event_at, metadata, null::text
    from ledger.transfer
  union all
  select p.account_no, p.version, 'journal', p.journal_id, p.leg, null::integer, p.amount, p.balance - p.amount, p.balance,
         p.created_at, coalesce(p.event_at, p.created_at), p.event_at,
         (select j.metadata from ledger.journal j where j.id = p.journal_id), (select j.description from ledger.journal j where j.id = p.journal_id)
    from ledger.posting p;
comment on view ledger.entry is 'All entries of all accounts, with the numbers used inside the books; ledger.entries has identities instead.';
comment on column ledger.entry.account_no is 'Number of the account.';
comment on column ledger.entry.version is 'Place among the account''s entries, from 1 without a gap.';
comment on column ledger.entry.kind is 'transfer or journal.';
comment on column ledger.entry.source_id is 'The transfer or journal entry that it belongs to.';
comment on column ledger.entry.leg is 'Place in that: in a transfer 1 pays and 2 receives.';
comment on column ledger.entry.counterparty_no is 'Number of the other account of a transfer; null in journal entries.';
comment on column ledger.entry.amount is 'Debit above zero (money in), credit below zero (money out).';
comment on column ledger.entry.previous is 'Balance of the account before it.';
comment on column ledger.entry.balance is 'Balance of the account after it.';
comment on column ledger.entry.created_at is 'When it was booked; rises with the version.';
comment on column ledger.entry.event_at is 'When it happened: the event time given, else when it was booked.';
comment on column ledger.entry.dated_at is 'The event time if one was given, else null; indexed for each account.';
comment on column ledger.entry.metadata is 'What the application keeps with the transfer or journal entry.';
comment on column ledger.entry.description is 'What a journal entry is for, in words.';

create function ledger.account_no(p_account uuid) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  found_no integer := (select no from ledger.account where id = p_account);
begin
  if found_no is null then
    perform ledger.refuse(ledger.unknown_account(p_account));
  end if;
  return found_no;
end $$;
comment on function ledger.account_no is 'Number of an account inside the books; refuses an unknown one.';

create function ledger.version_at(p_no integer, p_at timestamptz) returns bigint
language plpgsql stable strict set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  low bigint := 0;
  high bigint := (select version from ledger.balance where no = p_no);
  middle bigint;
begin
  -- Entries up to low were booked by then, those after high were not.
  while low < high loop
    middle := (low + high + 1) / 2;
    if (select created_at from ledger.entry where account_no = p_no and version = middle) <= p_at then
      low := middle;
    else
      high := middle - 1;
    end if;
  end loop;
  return low;
end $$;
comment on function ledger.version_at is 'Version of the account''s last entry booked at this time or before, 0 if there is none; takes log2(entries) index probes.';

create function ledger.balance_of(p_no integer, p_version bigint) returns numeric
language plpgsql stable strict set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
  if p_version = 0 then
    return (select round(0, decimals) from ledger.balance where no = p_no);
  end if;
  return (select balance from ledger.entry where account_no = p_no and version = p_version);
end $$;
comment on function ledger.balance_of is 'Balance of an account after one of its versions; after version 0 it is zero.';

create function ledger.posted_at(p_no integer, p_at timestamptz, p_by_event boolean) returns numeric
language plpgsql stable strict set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  last_version bigint := ledger.version_at(p_no, p_at);
  stands numeric := ledger.balance_of(p_no, last_version);
begin
  if p_by_event then
    -- What was booked later but happened by then belongs to it; what was booked by then but happens later does not.
    stands := stands
      + coalesce((select sum(amount) from ledger.entry where account_no = p_no and dated_at <= p_at and version > last_version), 0)
      - coalesce((select sum(amount) from ledger.entry where account_no = p_no and dated_at > p_at and version <= last_version), 0);
  end if;
  return stands;
end $$;
comment on function ledger.posted_at is 'Balance at a time: of what was booked by then, or (p_by_event) of what happened by then as far as it is booked now.';

create function ledger.balance_at(p_account uuid, p_at timestamptz) returns numeric
language sql stable set search_path = pg_catalog, pg_temp
return ledger.posted_at(ledger.account_no(p_account), p_at, false);
comment on function ledger.balance_at is 'Posted balance of an account as it was booked at this time.';

create function ledger.balance_at_event(p_account uuid, p_at timestamptz) returns numeric
language sql stable set search_path = pg_catalog, pg_temp
return ledger.posted_at(ledger.account_no(p_account), p_at, true);
comment on function ledger.balance_at_event is 'Balance of an account from what had happened by this time, going by event times: entries booked late count from when they happened.';

create function ledger.balance_after(p_account uuid, p_version bigint) returns numeric
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  stands numeric := ledger.balance_of(ledger.account_no(p_account), p_version);
begin
  if stands is null then
    perform ledger.refuse(ledger.refusal('LG019', format('account %s has no version %s', ledger.account_label(p_account), coalesce(p_version::text, 'null')),
      jsonb_build_object('account', p_account, 'version', p_version),
      format('Its last version is %s.', (select version from ledger.balance where id = p_account))));
  end if;
  return stands;
end $$;
comment on function ledger.balance_after is 'Balance of an account after its entry of this version; version 0 is before the first.';

create function ledger.balance_after_source(p_account uuid, p_kind text, p_id uuid) returns numeric
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  account integer := ledger.account_no(p_account);
  stands numeric := (select balance from ledger.entry where kind = p_kind and source_id = p_id and account_no = account order by version desc limit 1);
begin
  if stands is null then
    perform ledger.refuse(ledger.refusal('LG019', format('account %s has no entry of %s', ledger.account_label(p_account),
        coalesce(ledger.id_text(case p_kind when 'transfer' then 'xfer' else 'jrnl' end, p_id), 'null')),
      jsonb_build_object('account', p_account, 'id', p_id), 'It was not booked, or on other accounts.'));
  end if;
  return stands;
end $$;
comment on function ledger.balance_after_source is 'Balance of an account after its (last) entry of a transfer or journal entry.';

create function ledger.balance_after_transfer(p_account uuid, p_transfer uuid) returns numeric
language sql stable set search_path = pg_catalog, pg_temp
return ledger.balance_after_source(p_account, 'transfer', p_transfer);
comment on function ledger.balance_after_transfer is 'Balance of an account after a transfer that it took part in.';

create function ledger.balance_after_journal(p_account uuid, p_journal uuid) returns numeric
language sql stable set search_path = pg_catalog, pg_temp
return ledger.balance_after_source(p_account, 'journal', p_journal);
comment on function ledger.balance_after_journal is 'Balance of an account after a journal entry that it took part in.';

create function ledger.entries_of(
  p_account uuid, p_after_version bigint default null, p_limit bigint default null, p_newest_first boolean default false,
  p_from timestamptz default null, p_to timestamptz default null, p_counterparty uuid default null, p_metadata jsonb default null)
returns table (version bigint, kind text, source_id uuid, leg integer, counterparty_id uuid, amount numeric, previous numeric, balance numeric,
               created_at timestamptz, event_at timestamptz, metadata jsonb, description text)
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_sort = off set jit = off as $$
declare
  account integer := ledger.account_no(p_account);
  counterparty integer := case when p_counterparty is not null then ledger.account_no(p_counterparty) end;
  low bigint := coalesce(ledger.version_at(account, p_from - interval '1 microsecond'), 0) + 1;
  high bigint := coalesce(ledger.version_at(account, p_to - interval '1 microsecond'), 9223372036854775807);
begin
  if p_newest_first then
    high := least(high, p_after_version - 1);
  else
    low := greatest(low, p_after_version + 1);
  end if;
  -- Planned anew for each page: filters that are null vanish, the bounds are known, and no plan from when the books were small is kept.
  -- Without sorts the indexes give the order, and reading ends with the page, also for an account that grew since statistics were taken.
  return query execute format(
    'select e.version, e.kind, e.source_id, e.leg, (select c.id from ledger.account c where c.no = e.counterparty_no), e.amount, e.previous, e.balance,
            e.created_at, e.event_at, e.metadata, e.description
       from ledger.entry e
       where e.account_no = $1 and e.version >= $2 and e.version <= $3
         and ($4 is null or e.counterparty_no = $4
              or e.kind = ''journal'' and exists (select from ledger.posting p where p.journal_id = e.source_id and p.account_no = $4 and p.leg <> e.leg))
         and ($5 is null or e.metadata @> $5)
       order by e.version %s limit $6', case when p_newest_first then 'desc' else 'asc' end)
    using account, low, high, counterparty, p_metadata, p_limit;
end $$;
comment on function ledger.entries_of is 'A page of an account''s entries, oldest or newest first, booked at p_from or later and before p_to, with a counterparty, with metadata that contains p_metadata. p_after_version is the last version of the page before.';

create view ledger.entries with (security_invoker = true) as
  select a.id as account_id, a.code, s.code as asset, e.version, e.kind, e.source_id, e.leg, c.id as counterparty_id,
         e.amount, e.previous, e.balance, e.created_at, e.event_at, e.metadata, e.description
    from ledger.entry e join ledger.account a on a.no = e.account_no join ledger.asset s on s.no = a.asset_no
         left join ledger.account c on c.no = e.counterparty_no;
comment on view ledger.entries is 'All entries of all accounts. For some of an account with many, ledger.entries_of is faster.';
comment on column ledger.entries.account_id is 'The account.';
comment on column ledger.entries.code is 'Code of the account.';
comment on column ledger.entries.asset is 'Asset of the account.';
comment on column ledger.entries.version is 'Place among the account''s entries, from 1 without a gap.';
comment on column ledger.entries.kind is 'transfer or journal.';
comment on column ledger.entries.source_id is 'The transfer or journal entry that it belongs to.';
comment on column ledger.entries.leg is 'Place in that: in a transfer 1 pays and 2 receives.';
comment on column ledger.entries.counterparty_id is 'The other account of a transfer; null in journal entries.';
comment on column ledger.entries.amount is 'Debit above zero (money in), credit below zero (money out).';
comment on column ledger.entries.previous is 'Balance of the account before it.';
comment on column ledger.entries.balance is 'Balance of the account after it.';
comment on column ledger.entries.created_at is 'When it was booked; rises with the version.';
comment on column ledger.entries.event_at is 'When it happened: the event time given, else when it was booked.';
comment on column ledger.entries.metadata is 'What the application keeps with the transfer or journal entry.';
comment on column ledger.entries.description is 'What a journal entry is for, in words.';
