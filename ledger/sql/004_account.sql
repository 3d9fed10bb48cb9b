-- Assets and accounts: registered, opened, limited, closed, never deleted. Whatever changes an account locks its balance row
-- first, as transfers do, so that no transfer sees half a change.

create function ledger.create_asset(p_code text, p_decimals int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  known int;
begin
  if p_code is null or p_code !~ '^[^[:space:][:cntrl:]"]{1,64}$' then
    perform ledger.refuse(ledger.refusal('LG016', format('%L is not an asset code', p_code), jsonb_build_object('asset', p_code),
      'A code has 1 to 64 characters and no spaces or double quotes.'));
  elsif p_decimals is null or p_decimals not between 0 and 30 then
    perform ledger.refuse(ledger.refusal('LG016', format('asset %s cannot have %s decimals', p_code, p_decimals), jsonb_build_object('asset', p_code),
      'An asset has 0 to 30 decimals.'));
  end if;
  insert into ledger.asset (code, decimals) values (p_code, p_decimals) on conflict (code) do nothing;
  select decimals into known from ledger.asset where code = p_code;
  if known <> p_decimals then
    perform ledger.refuse(ledger.refusal('LG021', format('asset %s is already registered with %s decimals, not %s', p_code, known, p_decimals),
      jsonb_build_object('asset', p_code, 'decimals', known), 'The decimals of an asset never change: register another code.'));
  end if;
end $$;
comment on function ledger.create_asset is 'Registers an asset with its fixed number of decimals; again with the same decimals is a no-op.';

create function ledger.account_label(p_id uuid) returns text
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return coalesce((select format('%s (%s)', coalesce(code, name), ledger.id_text('acct', id)) from ledger.account where id = p_id),
                ledger.id_text('acct', p_id));
comment on function ledger.account_label is 'How messages name an account.';

create function ledger.unknown_account(p_id uuid) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return ledger.refusal('LG001', format('account %s does not exist', coalesce(ledger.id_text('acct', p_id), 'null')),
  jsonb_build_object('account', p_id), 'Open it with ledger.open_account first.');
comment on function ledger.unknown_account is 'The refusal for an account that nobody opened.';

-- Bounds that a posting is checked against, from what they follow from.
create function ledger.lowest(p_min numeric, p_held_out numeric, p_closed_at timestamptz) returns numeric
language sql immutable set search_path = pg_catalog, pg_temp
return case when p_closed_at is not null then 'Infinity' else coalesce(p_min, '-Infinity') + p_held_out end;
comment on function ledger.lowest is 'Least posted balance that a payment out may leave.';
create function ledger.highest(p_max numeric, p_held_in numeric, p_closed_at timestamptz) returns numeric
language sql immutable set search_path = pg_catalog, pg_temp
return case when p_closed_at is not null then '-Infinity' else coalesce(p_max, 'Infinity') - p_held_in end;
comment on function ledger.highest is 'Most posted balance that a payment in may leave.';

create function ledger.limit_refusal(p_asset text, p_decimals int, p_min numeric, p_max numeric) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
return case
  when p_min in ('NaN', 'Infinity', '-Infinity') or p_max in ('NaN', 'Infinity', '-Infinity') or abs(p_min) >= 1e60 or abs(p_max) >= 1e60
    then ledger.refusal('LG016', format('limits %s and %s are not finite numbers below 10^60', coalesce(p_min::text, 'none'), coalesce(p_max::text, 'none')), '{}', 'Leave a limit null to have none.')
  when min_scale(p_min) > p_decimals or min_scale(p_max) > p_decimals
    then ledger.refusal('LG016', format('limits %s and %s have more than the %s decimals of %s', coalesce(p_min::text, 'none'), coalesce(p_max::text, 'none'), p_decimals, p_asset), '{}', 'Round them first.')
  when p_min > p_max
    then ledger.refusal('LG016', format('minimum balance %s is above maximum balance %s', p_min, p_max), '{}', 'Swap them.')
end;
comment on function ledger.limit_refusal is 'Why two limits cannot be set; null when they can.';

create function ledger.account_refusal(p_id uuid, p_name text, p_code text, p_normal_side text, p_metadata jsonb) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
return case
  when p_name is null or p_name !~ '[^[:space:]]' or p_name ~ '[[:cntrl:]]'
    then ledger.refusal('LG016', format('account name %L is blank or has control characters', p_name), jsonb_build_object('account', p_id), 'Give the account a name that people can read.')
  when p_code !~ '^[^:[:space:][:cntrl:]]([^:[:cntrl:]]*[^:[:space:][:cntrl:]])?(:[^:[:space:][:cntrl:]]([^:[:cntrl:]]*[^:[:space:][:cntrl:]])?)*$'
    then ledger.refusal('LG016', format('account code %L is not a hierarchy of names', p_code), jsonb_build_object('account', p_id, 'code', p_code), 'Separate the levels by single colons, as in assets:cash:eur.')
  when octet_length(p_code) > 1000
    then ledger.refusal('LG016', format('account code %L… has more than 1000 bytes', left(p_code, 40)), jsonb_build_object('account', p_id), 'Keep long texts in the name or the metadata.')
  when p_normal_side is null or p_normal_side not in ('debit', 'credit')
    then ledger.refusal('LG016', format('normal side %L is neither debit nor credit', p_normal_side), jsonb_build_object('account', p_id), 'Assets and expenses are debit; liabilities, equity and income are credit.')
end;
comment on function ledger.account_refusal is 'Why an account cannot be described so; null when it can.';

create function ledger.code_taken(p_id uuid, p_code text) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
return ledger.refusal('LG021', format('account code %L belongs to another account', p_code), jsonb_build_object('account', p_id, 'code', p_code),
  'Codes are unique: choose another, or change the other account''s first.');
comment on function ledger.code_taken is 'The refusal for a code in use.';

create function ledger.open_account(
  p_name text, p_asset text, p_code text default null, p_normal_side text default 'debit',
  p_min_balance numeric default null, p_max_balance numeric default null,
  p_metadata jsonb default null, p_id uuid default ledger.new_id()) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  a ledger.asset;
  same boolean;
  new_no int;
  bad jsonb;
begin
  if p_id is null then
    perform ledger.refuse(ledger.refusal('LG016', 'an account needs an id', '{}', 'Leave the argument out to get a new one.'));
  end if;
  select * into a from ledger.asset where code = p_asset;
  if not found then
    perform ledger.refuse(ledger.refusal('LG017', format('asset %L is not registered', p_asset), jsonb_build_object('asset', p_asset),
      'Register it with ledger.create_asset first.'));
  end if;
  bad := coalesce(ledger.account_refusal(p_id, p_name, p_code, p_normal_side, p_metadata),
                  ledger.limit_refusal(a.code, a.decimals, p_min_balance, p_max_balance));
  if bad is not null then
    perform ledger.refuse(bad);
  end if;
  insert into ledger.account (id, name, code, asset_no, normal_side, min_balance, max_balance, metadata)
    values (p_id, p_name, p_code, a.no, p_normal_side, p_min_balance, p_max_balance, p_metadata)
    on conflict do nothing returning no into new_no;
  if new_no is null then
    select (name, code, asset_no, normal_side, min_balance, max_balance, metadata)
             is not distinct from (p_name, p_code, a.no, p_normal_side, p_min_balance, p_max_balance, p_metadata)
      into same from ledger.account where id = p_id;
    if same then
      return p_id;
    elsif same is null then
      perform ledger.refuse(ledger.code_taken(p_id, p_code));
    end if;
    perform ledger.refuse(ledger.refusal('LG005', format('account %s already exists and is another one', ledger.account_label(p_id)),
      jsonb_build_object('account', p_id), 'An id is used once; leave it out to get a new one.'));
  end if;
  insert into ledger.balance (id, no, asset_no, decimals, balance, lowest, highest)
    values (p_id, new_no, a.no, a.decimals, round(0, a.decimals), ledger.lowest(p_min_balance, 0, null), ledger.highest(p_max_balance, 0, null));
  return p_id;
end $$;
comment on function ledger.open_account is 'Opens an account and returns its id; again with the same id and content is a no-op.';

create function ledger.lock_account(p_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  perform 1 from ledger.balance where id = p_id for update;
  if not found then
    perform ledger.refuse(ledger.unknown_account(p_id));
  end if;
end $$;
comment on function ledger.lock_account is 'Locks one account until the end of the transaction.';

create function ledger.update_account(p_id uuid, p_name text, p_code text, p_metadata jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  bad jsonb := ledger.account_refusal(p_id, p_name, p_code, 'debit', p_metadata);
begin
  perform ledger.lock_account(p_id);
  if bad is not null then
    perform ledger.refuse(bad);
  elsif exists (select from ledger.account where code = p_code and id <> p_id) then
    perform ledger.refuse(ledger.code_taken(p_id, p_code));
  end if;
  update ledger.account set name = p_name, code = p_code, metadata = p_metadata where id = p_id;
end $$;
comment on function ledger.update_account is 'Sets name, code and metadata of an account; what it holds is untouched.';

create function ledger.set_limits(p_id uuid, p_min_balance numeric, p_max_balance numeric) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  bad jsonb;
begin
  perform ledger.lock_account(p_id);
  select ledger.limit_refusal(s.code, s.decimals, p_min_balance, p_max_balance) into bad
    from ledger.account a join ledger.asset s on s.no = a.asset_no where a.id = p_id;
  if bad is not null then
    perform ledger.refuse(bad);
  end if;
  update ledger.account set min_balance = p_min_balance, max_balance = p_max_balance where id = p_id;
  update ledger.balance b set lowest = ledger.lowest(a.min_balance, b.held_out, a.closed_at), highest = ledger.highest(a.max_balance, b.held_in, a.closed_at)
    from ledger.account a where a.id = p_id and b.id = p_id;
end $$;
comment on function ledger.set_limits is 'Sets the minimum and maximum balance. An account beyond a new limit stays there and may only move back.';

create function ledger.close_account(p_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  b ledger.balance;
begin
  perform ledger.lock_account(p_id);
  select * into b from ledger.balance where id = p_id;
  if b.held_out <> 0 or b.held_in <> 0 then
    perform ledger.release_expired(b.no);
    select * into b from ledger.balance where id = p_id;
  end if;
  if b.held_out <> 0 or b.held_in <> 0 then
    perform ledger.refuse(ledger.refusal('LG020', format('account %s has open holds: %s out, %s in', ledger.account_label(p_id), b.held_out, b.held_in),
      jsonb_build_object('account', p_id), 'Post or void them first.'));
  end if;
  update ledger.account set closed_at = clock_timestamp() where id = p_id and closed_at is null;
  update ledger.balance set lowest = 'Infinity', highest = '-Infinity' where id = p_id;
end $$;
comment on function ledger.close_account is 'Closes an account: it keeps its entries and refuses new ones. Closing it again is a no-op.';

create function ledger.reopen_account(p_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  perform ledger.lock_account(p_id);
  update ledger.account set closed_at = null where id = p_id;
  update ledger.balance b set lowest = ledger.lowest(a.min_balance, b.held_out, null), highest = ledger.highest(a.max_balance, b.held_in, null)
    from ledger.account a where a.id = p_id and b.id = p_id;
end $$;
comment on function ledger.reopen_account is 'Reopens a closed account with the limits it had.';
