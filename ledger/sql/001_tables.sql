-- The books. A transfer is one row that holds both of its entries, a journal is one row with any number of postings; an
-- account's entries are a view over the two. What an account holds now stands in one narrow row of balance, the only row
-- that a transfer changes.

create table ledger.asset (
  no integer primary key generated always as identity,
  code text not null constraint asset_code_key unique constraint asset_code_check check (code ~ '^[^[:space:][:cntrl:]"]{1,64}$'),
  decimals smallint not null constraint asset_decimals_check check (decimals between 0 and 30),
  created_at timestamptz not null default now());
comment on table ledger.asset is 'What amounts are counted in: a currency or any other code, with a fixed number of decimals.';
comment on column ledger.asset.no is 'Number of the asset inside the books.';
comment on column ledger.asset.code is 'Code that people use, such as EUR.';
comment on column ledger.asset.decimals is 'Decimals that an amount of this asset may have; never changed.';
comment on column ledger.asset.created_at is 'When the asset was registered.';

create table ledger.account (
  no integer primary key generated always as identity,
  id uuid not null constraint account_id_key unique,
  name text not null constraint account_name_check check (name ~ '[^[:space:]]' and name !~ '[[:cntrl:]]'),
  code text constraint account_code_key unique
    constraint account_code_check check (code ~ '^[^:[:space:][:cntrl:]]([^:[:cntrl:]]*[^:[:space:][:cntrl:]])?(:[^:[:space:][:cntrl:]]([^:[:cntrl:]]*[^:[:space:][:cntrl:]])?)*$'),
  asset_no integer not null references ledger.asset,
  normal_side text not null constraint account_normal_side_check check (normal_side in ('debit', 'credit')),
  min_balance numeric, max_balance numeric,
  metadata jsonb,
  created_at timestamptz not null default now(),
  closed_at timestamptz,
  constraint account_limits_check check (min_balance <= max_balance));
-- Roll-ups read all accounts below a code.
create index account_code_prefix on ledger.account (code text_pattern_ops);
comment on index ledger.account_code_prefix is 'Finds all accounts below a code.';
comment on table ledger.account is 'Who holds and owes. Accounts are opened and closed, never deleted.';
comment on column ledger.account.no is 'Number of the account inside the books.';
comment on column ledger.account.id is 'Identity of the account; ledger.id_text shows it with its prefix.';
comment on column ledger.account.name is 'Name for people.';
comment on column ledger.account.code is 'Optional unique code; a colon separates the levels of its hierarchy, as in assets:cash:eur.';
comment on column ledger.account.asset_no is 'The asset that the account is kept in.';
comment on column ledger.account.normal_side is 'Side on which the account usually stands: debit (assets, expenses) or credit (liabilities, equity, income).';
comment on column ledger.account.min_balance is 'A debtor transfer may not bring posted minus held below this; null: no minimum.';
comment on column ledger.account.max_balance is 'An incoming transfer may not bring posted plus held above this; null: no maximum.';
comment on column ledger.account.metadata is 'Anything that the application wants to keep with the account.';
comment on column ledger.account.created_at is 'When the account was opened.';
comment on column ledger.account.closed_at is 'When the account was closed; null while it is open.';

-- No column that changes is indexed, so every change is a HOT update. Bounds that postings are checked against are kept
-- ready (limit, holds and closing in one number each), because that is all a transfer has to look at.
create table ledger.balance (
  id uuid primary key,
  no integer not null constraint balance_no_key unique,
  asset_no integer not null,
  decimals smallint not null,
  version bigint not null default 0,
  balance numeric not null default 0,
  lowest numeric not null,
  highest numeric not null,
  held_out numeric not null default 0,
  held_in numeric not null default 0) with (fillfactor = 40);
comment on table ledger.balance is 'What each account holds now. Written by the functions of this schema only.';
comment on column ledger.balance.id is 'Identity of the account.';
comment on column ledger.balance.no is 'Number of the account inside the books.';
comment on column ledger.balance.asset_no is 'The asset of the account.';
comment on column ledger.balance.decimals is 'The decimals of that asset.';
comment on column ledger.balance.version is 'How many entries the account has; the version of its last entry.';
comment on column ledger.balance.balance is 'The posted balance: debits (money in) minus credits (money out).';
comment on column ledger.balance.lowest is 'Least posted balance after a payment out: minimum plus what is held; Infinity when the account is closed.';
comment on column ledger.balance.highest is 'Most posted balance after a payment in: maximum minus what is expected; -Infinity when the account is closed.';
comment on column ledger.balance.held_out is 'Sum of the open holds that would take money out.';
comment on column ledger.balance.held_in is 'Sum of the open holds that would bring money in.';

-- Ids of version 7 arrive nearly in order: the pages of their index are left full.
create table ledger.transfer (
  id uuid constraint transfer_pkey primary key with (fillfactor = 100),
  created_at timestamptz not null,
  xid bigint not null,
  event_at timestamptz,
  from_version bigint not null,
  to_version bigint not null,
  from_no integer not null,
  to_no integer not null,
  amount numeric not null,
  from_balance numeric not null,
  to_balance numeric not null,
  metadata jsonb);
create index transfer_from on ledger.transfer (from_no, from_version);
comment on index ledger.transfer_from is 'Entries of the paying account, in order.';
create index transfer_to on ledger.transfer (to_no, to_version);
comment on index ledger.transfer_to is 'Entries of the receiving account, in order.';
-- Only transfers that carry an event time pay for finding them by it.
create index transfer_from_event on ledger.transfer (from_no, event_at, from_version) where event_at is not null;
comment on index ledger.transfer_from_event is 'Entries of the paying account that carry an event time.';
create index transfer_to_event on ledger.transfer (to_no, event_at, to_version) where event_at is not null;
comment on index ledger.transfer_to_event is 'Entries of the receiving account that carry an event time.';
-- Rows lie on disk nearly in the order of their transactions: a few bytes for thousands of rows find the new ones.
create index transfer_xid on ledger.transfer using brin (xid) with (pages_per_range = 16, autosummarize = on);
comment on index ledger.transfer_xid is 'Finds what later transactions booked.';
comment on table ledger.transfer is 'Transfers between two accounts, each with both of its entries. Rows are never changed.';
comment on column ledger.transfer.id is 'Identity of the transfer, chosen by the caller so that a retry is safe.';
comment on column ledger.transfer.created_at is 'When it was booked; taken while both accounts were locked, so it rises with the version.';
comment on column ledger.transfer.xid is 'The transaction that booked it; ledger.changes reads in these terms.';
comment on column ledger.transfer.event_at is 'When it happened outside the books, if that differs from when it was booked.';
comment on column ledger.transfer.from_version is 'Version of the paying account''s entry.';
comment on column ledger.transfer.to_version is 'Version of the receiving account''s entry.';
comment on column ledger.transfer.from_no is 'Number of the paying account (its credit).';
comment on column ledger.transfer.to_no is 'Number of the receiving account (its debit).';
comment on column ledger.transfer.amount is 'Amount, above zero, in the asset of both accounts.';
comment on column ledger.transfer.from_balance is 'Balance of the paying account after it.';
comment on column ledger.transfer.to_balance is 'Balance of the receiving account after it.';
comment on column ledger.transfer.metadata is 'Anything that the application wants to keep with the transfer.';

create table ledger.journal (
  id uuid primary key,
  created_at timestamptz not null,
  xid bigint not null,
  event_at timestamptz,
  description text,
  metadata jsonb);
create index journal_xid on ledger.journal using brin (xid) with (pages_per_range = 16, autosummarize = on);
comment on index ledger.journal_xid is 'Finds what later transactions booked.';
comment on table ledger.journal is 'Journal entries of two or more postings that sum to zero in each asset. Rows are never changed.';
comment on column ledger.journal.id is 'Identity of the journal entry, chosen by the caller so that a retry is safe.';
comment on column ledger.journal.created_at is 'When it was booked.';
comment on column ledger.journal.xid is 'The transaction that booked it.';
comment on column ledger.journal.event_at is 'When it happened outside the books, if that differs from when it was booked.';
comment on column ledger.journal.description is 'What it is for, in words.';
comment on column ledger.journal.metadata is 'Anything that the application wants to keep with it.';

create table ledger.posting (
  journal_id uuid not null,
  leg integer not null,
  account_no integer not null,
  version bigint not null,
  amount numeric not null,
  balance numeric not null,
  created_at timestamptz not null,
  event_at timestamptz,
  constraint posting_pkey primary key (journal_id, leg));
create unique index posting_account on ledger.posting (account_no, version);
comment on index ledger.posting_account is 'Legs on an account, in order.';
create index posting_event on ledger.posting (account_no, event_at, version) where event_at is not null;
comment on index ledger.posting_event is 'Legs on an account that carry an event time.';
comment on table ledger.posting is 'The legs of journal entries. Rows are never changed.';
comment on column ledger.posting.journal_id is 'The journal entry it belongs to.';
comment on column ledger.posting.leg is 'Place in the journal entry, from 1, as the caller gave them.';
comment on column ledger.posting.account_no is 'Number of the account.';
comment on column ledger.posting.version is 'Version of the account''s entry.';
comment on column ledger.posting.amount is 'Debit above zero (money in), credit below zero (money out).';
comment on column ledger.posting.balance is 'Balance of the account after it.';
comment on column ledger.posting.created_at is 'When it was booked, as in its journal entry.';
comment on column ledger.posting.event_at is 'When it happened, as in its journal entry.';

create table ledger.hold (
  id uuid primary key,
  from_no integer not null,
  to_no integer not null,
  amount numeric not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  event_at timestamptz,
  metadata jsonb,
  state text not null default 'open' constraint hold_state_check check (state in ('open', 'posted', 'voided', 'expired')),
  posted_amount numeric,
  transfer_id uuid constraint hold_transfer_key unique,
  settled_at timestamptz);
create index hold_open_from on ledger.hold (from_no) where state = 'open';
comment on index ledger.hold_open_from is 'Open holds that would take money out of an account.';
create index hold_open_to on ledger.hold (to_no) where state = 'open';
comment on index ledger.hold_open_to is 'Open holds that would bring money into an account.';
create index hold_open_expiry on ledger.hold (expires_at) where state = 'open' and expires_at is not null;
comment on index ledger.hold_open_expiry is 'Open holds that expire, the next first.';
comment on table ledger.hold is 'Two-phase transfers: money set aside, later posted in full or in part, voided, or expired.';
comment on column ledger.hold.id is 'Identity of the hold, chosen by the caller so that a retry is safe.';
comment on column ledger.hold.from_no is 'Number of the account that would pay.';
comment on column ledger.hold.to_no is 'Number of the account that would receive.';
comment on column ledger.hold.amount is 'Amount set aside.';
comment on column ledger.hold.created_at is 'When it was set aside.';
comment on column ledger.hold.expires_at is 'From then on it can no longer be posted; null: never.';
comment on column ledger.hold.event_at is 'When it happened outside the books.';
comment on column ledger.hold.metadata is 'Anything that the application wants to keep with it; the transfer inherits it.';
comment on column ledger.hold.state is 'open, posted, voided or expired.';
comment on column ledger.hold.posted_amount is 'How much of it was posted.';
comment on column ledger.hold.transfer_id is 'The transfer that posted it.';
comment on column ledger.hold.settled_at is 'When it was posted, voided or expired.';

create table ledger.reversal (
  kind text not null constraint reversal_kind_check check (kind in ('transfer', 'journal')),
  original_id uuid not null,
  reversal_id uuid not null,
  constraint reversal_pkey primary key (kind, original_id),
  constraint reversal_once unique (kind, reversal_id));
comment on table ledger.reversal is 'Which transfer or journal entry took back which: a link that is read both ways, at most once each.';
comment on column ledger.reversal.kind is 'transfer or journal.';
comment on column ledger.reversal.original_id is 'What was taken back.';
comment on column ledger.reversal.reversal_id is 'What took it back.';

create table ledger.balancing (
  transfer_id uuid primary key,
  up_to numeric not null);
comment on table ledger.balancing is 'What a transfer of "as much as is available" was asked for, so that its retry can be told from another request.';
comment on column ledger.balancing.transfer_id is 'The transfer.';
comment on column ledger.balancing.up_to is 'The most that it was to move.';

create table ledger.period (
  only_row boolean primary key default true constraint period_only_row_check check (only_row),
  closed_before timestamptz not null default '-infinity',
  changed_at timestamptz not null default now(),
  changed_by text not null default session_user);
insert into ledger.period default values;
comment on table ledger.period is 'One row: nothing may be posted with a time before closed_before.';
comment on column ledger.period.only_row is 'Keeps it one row.';
comment on column ledger.period.closed_before is 'Entries from before this moment are final.';
comment on column ledger.period.changed_at is 'When that was last changed.';
comment on column ledger.period.changed_by is 'Who changed it.';
