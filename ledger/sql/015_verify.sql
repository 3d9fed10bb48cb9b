-- Verification: everything that the books promise, checked from the books alone. Functions are STABLE, so that one call sees one
-- moment and no transfer that is under way makes a false alarm; they plan anew each time and read in sets.
--
-- Limits may be set tighter than what an account holds, so a balance beyond them is no problem; bounds that don't follow from
-- limits, holds and closing are.

create type ledger.problem as (kind text, account_id uuid, version bigint, source_id uuid, message text, expected text, found text);
comment on type ledger.problem is 'Something that is wrong with the books or their guards; columns that say nothing about it are null.';
comment on column ledger.problem.kind is 'What is wrong, in one word.';
comment on column ledger.problem.account_id is 'The account.';
comment on column ledger.problem.version is 'The entry of the account.';
comment on column ledger.problem.source_id is 'The transfer, journal entry or hold.';
comment on column ledger.problem.message is 'What is wrong, in words.';
comment on column ledger.problem.expected is 'What should be there.';
comment on column ledger.problem.found is 'What is there.';

create function ledger.account_name(p_no int) returns text
language sql stable set search_path = pg_catalog, pg_temp
return coalesce((select ledger.account_label(id) from ledger.account where no = p_no), format('number %s (unknown)', p_no));
comment on function ledger.account_name is 'How messages name an account of which they have only the number.';

create function ledger.version_before(p_no int, p_version bigint, p_since timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  back bigint := 0;
begin
  -- 1, 2, 4, 8, … back from the last entry: the cost depends on how much is new, not on how old the books are.
  while back < p_version loop
    if exists (select from ledger.entry where account_no = p_no and version = p_version - back and created_at < p_since) then
      return p_version - back;
    end if;
    back := greatest(1, 2 * back);
  end loop;
  return 0;
end $$;
comment on function ledger.version_before is 'A version of an account from before a time, not much older than the first one since then; 0 if there is none.';

-- An account and a version are one number here, since sorting by one number takes half as long. The highest version stands for the end of
-- an account: its amount is the version in ledger.balance and its balance the one there. The entry to start from (p_since) is taken as it
-- is and has no amount.
create function ledger.verify_chain(p_first int, p_last int, p_since timestamptz default null) returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set jit = off set work_mem = '64MB' as $$
declare
  the_end constant bigint := 4294967295;
begin
  return query
    with start as materialized (
      select b.no, case when exists (select from ledger.entry e where e.account_no = b.no and e.version = b.version and e.created_at < p_since) then b.version
                        else ledger.version_before(b.no, b.version, p_since) end as version
        from ledger.balance b where b.no between p_first and p_last and p_since is not null),
    entry (place, amount, balance, created_at) as (
      select (e.account_no::bigint << 32) + least(greatest(e.version, 0), the_end - 1), e.amount, e.balance, e.created_at
        from ledger.entry e where e.account_no between p_first and p_last and p_since is null
      union all
      select (s.no::bigint << 32) + least(greatest(e.version, 0), the_end - 1), case when e.version > s.version then e.amount end, e.balance, e.created_at
        from start s cross join lateral (
          select x.version, x.amount, x.balance, x.created_at from ledger.entry x where x.account_no = s.no and x.version >= s.version offset 0) e
        where p_since is not null
      union all
      select (b.no::bigint << 32) + the_end, b.version, b.balance, null from ledger.balance b where b.no between p_first and p_last),
    chain as (
      select c.*, lag(c.place) over w as before_place, lag(c.balance) over w as before_balance, lag(c.created_at) over w as before_created_at
        from entry c window w as (order by c.place, c.created_at)),
    suspect as materialized (
      select (c.place >> 32)::int as no, c.place & the_end as version, c.amount, c.balance, c.created_at, q.inside,
             case when q.inside then c.before_place & the_end else 0 end as before_version,
             case when q.inside then c.before_balance else 0 end as before_balance, c.before_created_at
        from chain c cross join lateral (select coalesce(c.before_place >> 32 = c.place >> 32, false) as inside) q
        where c.amount is not null
          and (c.place = c.before_place + 1 and c.balance = c.before_balance + c.amount and c.created_at >= c.before_created_at) is not true
          -- Few come here: the first of each account, and its end.
          and not case when c.place & the_end < the_end then not q.inside and c.place & the_end = 1 and c.balance = c.amount
                       when q.inside then c.amount = c.before_place & the_end and c.balance = c.before_balance
                       else c.amount = 0 and c.balance = 0 end)
    select p.kind, a.id, p.version, (select e.source_id from ledger.entry e where e.account_no = s.no and e.version = p.version order by e.created_at desc limit 1),
           format('account %s: ', ledger.account_name(s.no)) || p.message, p.expected, p.found
      from suspect s left join ledger.account a on a.no = s.no cross join lateral (
        select 'gap', s.version, format('version %s follows version %s', s.version, s.before_version), (s.before_version + 1)::text, s.version::text
          where s.version < the_end and s.version > s.before_version + 1
        union all
        select 'duplicate', s.version, format('version %s stands twice', s.version), (s.before_version + 1)::text, s.version::text
          where s.version < the_end and s.version <= s.before_version
        union all
        select 'running_balance', s.version, format('the balance after version %s is %s, but %s before it and its amount %s make %s', s.version, s.balance,
                 s.before_balance, s.amount, s.before_balance + s.amount), (s.before_balance + s.amount)::text, s.balance::text
          where s.version < the_end and s.version > s.before_version and s.balance <> s.before_balance + s.amount
        union all
        select 'time_order', s.version, format('version %s was booked at %s, before the one that precedes it (%s)', s.version, s.created_at, s.before_created_at),
               s.before_created_at::text, s.created_at::text
          where s.version < the_end and s.inside and s.created_at < s.before_created_at
        union all
        select 'stored_version', s.before_version, format('it stands at version %s, but its last entry is version %s', s.amount, s.before_version),
               s.before_version::text, s.amount::text
          where s.version = the_end and s.amount <> s.before_version
        union all
        select 'stored_balance', s.before_version, format('it stands at %s, but its last entry leaves it at %s', s.balance, s.before_balance),
               s.before_balance::text, s.balance::text
          where s.version = the_end and s.balance <> s.before_balance) p (kind, version, message, expected, found);
end $$;
comment on function ledger.verify_chain is 'Entries and running balances of the accounts from number p_first to p_last, all or those booked since a time.';

create function ledger.verify_accounts(p_first int, p_last int) returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
begin
  return query
    with sent as (select from_no as no, sum(amount) as amount from ledger.hold where state = 'open' and from_no between p_first and p_last group by from_no),
    received as (select to_no as no, sum(amount) as amount from ledger.hold where state = 'open' and to_no between p_first and p_last group by to_no),
    standing as (
      select coalesce(a.no, b.no) as no, a as account, b as stored, s as asset, coalesce(sent.amount, 0) as held_out, coalesce(received.amount, 0) as held_in,
             -- ledger.lowest and ledger.highest say the same, too slowly for a million accounts
             case when a.closed_at is not null then 'Infinity' else coalesce(a.min_balance, '-Infinity') + coalesce(sent.amount, 0) end as lowest,
             case when a.closed_at is not null then '-Infinity' else coalesce(a.max_balance, 'Infinity') - coalesce(received.amount, 0) end as highest
        from (select * from ledger.account where no between p_first and p_last) a
             full join (select * from ledger.balance where no between p_first and p_last) b on b.no = a.no
             left join ledger.asset s on s.no = a.asset_no left join sent on sent.no = coalesce(a.no, b.no)
             left join received on received.no = coalesce(a.no, b.no))
    select p.kind, (s.account).id, p.version, null::uuid, format('account %s: ', ledger.account_name(s.no)) || p.message, p.expected, p.found
      from standing s cross join lateral (
        select 'missing_balance', null::bigint, 'it has no row in ledger.balance', null, null where (s.stored).no is null
        union all
        select 'unknown_account', null, 'it has a row in ledger.balance and none in ledger.account', null, null where (s.account).no is null
        union all
        select 'account_copy', null, 'identity, asset or decimals in ledger.balance are not those of the account',
               format('%s %s %s', (s.account).id, (s.account).asset_no, (s.asset).decimals), format('%s %s %s', (s.stored).id, (s.stored).asset_no, (s.stored).decimals)
          where ((s.account).id, (s.account).asset_no, (s.asset).decimals) <> ((s.stored).id, (s.stored).asset_no, (s.stored).decimals) or (s.asset).no is null and (s.account).no is not null
        union all
        select 'held', null, format('%s is held out of it, but its open holds sum to %s', (s.stored).held_out, s.held_out), s.held_out::text, (s.stored).held_out::text
          where (s.stored).held_out <> s.held_out
        union all
        select 'held', null, format('%s is held for it, but its open holds sum to %s', (s.stored).held_in, s.held_in), s.held_in::text, (s.stored).held_in::text
          where (s.stored).held_in <> s.held_in
        union all
        select 'bounds', null, format('the least that it may stand at is kept as %s and is %s', (s.stored).lowest, s.lowest), s.lowest::text, (s.stored).lowest::text
          where (s.stored).lowest <> s.lowest and (s.account).no is not null
        union all
        select 'bounds', null, format('the most that it may stand at is kept as %s and is %s', (s.stored).highest, s.highest), s.highest::text, (s.stored).highest::text
          where (s.stored).highest <> s.highest and (s.account).no is not null
        union all
        select 'after_closing', e.version, format('version %s was booked at %s, after the account was closed', e.version, e.created_at), (s.account).closed_at::text, e.created_at::text
          from (select x.version, x.created_at from ledger.entry x where x.account_no = s.no and (s.account).closed_at is not null order by x.version desc limit 1) e
          where e.created_at > (s.account).closed_at) p (kind, version, message, expected, found);
end $$;
comment on function ledger.verify_accounts is 'What is kept about the accounts from number p_first to p_last: identity, holds, bounds, closing.';

create function ledger.verify_transfers(p_first int, p_last int, p_since timestamptz default null) returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
declare
  closed ledger.period := (select p from ledger.period p);
begin
  return query
    select p.kind, case when p.kind <> 'unknown_account' then f.id end, case when p.kind <> 'unknown_account' then t.from_version end, t.id, format('transfer %s: ', ledger.id_text('xfer', t.id)) || p.message, p.expected, p.found
      from ledger.transfer t left join ledger.balance f on f.no = t.from_no left join ledger.balance r on r.no = t.to_no
           cross join lateral (
             select 'unknown_account', format('account %s does not exist', ledger.account_name(n.account_no)), null, null
               from unnest(array[t.from_no, t.to_no]) n (account_no)
               where not exists (select from ledger.account a where a.no = n.account_no) and not exists (select from ledger.balance b where b.no = n.account_no)
             union all
             select 'amount', format('its amount %s is not a positive number with at most %s decimals', t.amount, f.decimals), null, t.amount::text
               where not (t.amount > 0 and t.amount < 1e60 and scale(t.amount) <= f.decimals)
             union all
             select 'same_account', format('account %s pays itself', ledger.account_name(t.from_no)), null, null where t.from_no = t.to_no
             union all
             select 'asset', format('accounts %s and %s are kept in different assets', ledger.account_name(t.from_no), ledger.account_name(t.to_no)), f.asset_no::text, r.asset_no::text
               where f.asset_no <> r.asset_no
             union all
             select 'period', format('it was booked at %s with the event time %s, when the books were closed before %s', t.created_at, t.event_at, closed.closed_before),
                    closed.closed_before::text, t.event_at::text
               where t.event_at < closed.closed_before and t.created_at > closed.changed_at) p (kind, message, expected, found)
      where t.from_no between p_first and p_last and (p_since is null or t.created_at >= p_since)
        and (t.amount > 0 and t.amount < 1e60 and scale(t.amount) <= f.decimals and t.from_no <> t.to_no and f.asset_no = r.asset_no
             and (t.event_at >= closed.closed_before or t.created_at <= closed.changed_at or t.event_at is null)) is not true;
end $$;
comment on function ledger.verify_transfers is 'Transfers paid by the accounts from number p_first to p_last, each by itself, all or those booked since a time.';

create function ledger.verify_journals(p_since timestamptz default null) returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
declare
  closed ledger.period := (select p from ledger.period p);
begin
  return query
    with sums as (
      select p.journal_id, b.asset_no, count(*) as legs, sum(p.amount) as amount
        from ledger.posting p left join ledger.balance b on b.no = p.account_no
        where p_since is null or p.created_at >= p_since
        group by p.journal_id, b.asset_no),
    entries as (select s.journal_id, sum(s.legs) as legs from sums s group by s.journal_id),
    bad as (
      select 'journal_sum' as kind, s.journal_id, null::int as account_no, null::bigint as version, format('its postings in %s sum to %s, not to zero', coalesce(a.code, 'an unknown asset'), s.amount) as message, '0' as expected, s.amount::text as found
        from sums s left join ledger.asset a on a.no = s.asset_no where s.amount <> 0
      union all
      select 'journal_legs', j.id, null, null, format('it has %s postings, and needs two', coalesce(e.legs, 0)), null, coalesce(e.legs, 0)::text
        from ledger.journal j left join entries e on e.journal_id = j.id where (p_since is null or j.created_at >= p_since) and coalesce(e.legs, 0) < 2
      union all
      select 'period', j.id, null, null, format('it was booked at %s with the event time %s, when the books were closed before %s', j.created_at, j.event_at, closed.closed_before),
             closed.closed_before::text, j.event_at::text
        from ledger.journal j where j.event_at < closed.closed_before and j.created_at > closed.changed_at and (p_since is null or j.created_at >= p_since)
      union all
      select q.kind, p.journal_id, p.account_no, p.version, format('leg %s ', p.leg) || q.message, null, null
        from ledger.posting p left join ledger.journal j on j.id = p.journal_id left join ledger.balance b on b.no = p.account_no cross join lateral (
          select 'journal_missing', 'belongs to no journal entry' where j.id is null
          union all
          select 'unknown_account', format('is on account %s', ledger.account_name(p.account_no)) where b.no is null and not exists (select from ledger.account a where a.no = p.account_no)
          union all
          select 'journal_copy', 'has other times than its journal entry' where j.created_at <> p.created_at or j.event_at is distinct from p.event_at and j.id is not null
          union all
          select 'amount', format('has the amount %s, which is not a finite number other than zero with at most %s decimals', p.amount, b.decimals)
            where not (p.amount <> 0 and abs(p.amount) < 1e60 and scale(p.amount) <= b.decimals)) q (kind, message)
        where p_since is null or p.created_at >= p_since)
    select bad.kind, a.id, bad.version, bad.journal_id, format('journal entry %s: ', ledger.id_text('jrnl', bad.journal_id)) || bad.message, bad.expected, bad.found
      from bad left join ledger.account a on a.no = bad.account_no;
end $$;
comment on function ledger.verify_journals is 'Journal entries, each by itself, all or those booked since a time.';

create function ledger.verify_links() returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
begin
  return query
    select 'hold', f.id, null::bigint, h.id, format('hold %s: %s', ledger.id_text('hold', h.id), q.message), null, null
      from ledger.hold h left join ledger.balance f on f.no = h.from_no left join ledger.balance r on r.no = h.to_no left join ledger.transfer t on t.id = h.transfer_id
           cross join lateral (select case
             when f.no is null or r.no is null then 'one of its accounts is unknown'
             when h.from_no = h.to_no or f.asset_no <> r.asset_no then 'its accounts are the same, or kept in different assets'
             when not (h.amount > 0 and h.amount < 1e60 and scale(h.amount) <= f.decimals) then format('its amount %s is not a positive number with at most %s decimals', h.amount, f.decimals)
             when (h.state = 'open') <> (h.settled_at is null) then format('it is %s, and was settled at %s', h.state, coalesce(h.settled_at::text, 'no time'))
             when h.state <> 'posted' and (h.transfer_id is not null or h.posted_amount is not null) then format('it is %s and has a transfer', h.state)
             when h.state <> 'posted' then null
             when t.id is null then 'the transfer that posted it is missing'
             when (t.from_no, t.to_no) <> (h.from_no, h.to_no) then 'the transfer that posted it is between other accounts'
             when t.amount is distinct from h.posted_amount or t.amount > h.amount then format('%s of %s was posted, by a transfer of %s', coalesce(h.posted_amount::text, 'nothing'), h.amount, t.amount)
           end as message) q
      where q.message is not null;
  return query
    select 'reversal', null::uuid, null::bigint, v.reversal_id, format('the reversal of %s %s by %s: %s', v.kind, v.original_id, v.reversal_id, q.message), null, null
      from ledger.reversal v left join ledger.transfer o on v.kind = 'transfer' and o.id = v.original_id left join ledger.transfer r on v.kind = 'transfer' and r.id = v.reversal_id
           cross join lateral (select case
             when v.kind = 'transfer' and (o.id is null or r.id is null) then 'one of the two is missing'
             when v.kind = 'transfer' and (o.from_no, o.to_no, o.amount) <> (r.to_no, r.from_no, r.amount) then 'they are not the opposite of each other'
             when v.kind = 'journal' and not (exists (select from ledger.journal j where j.id = v.original_id) and exists (select from ledger.journal j where j.id = v.reversal_id)) then 'one of the two is missing'
             when v.kind = 'journal' and exists (
                 select from (select * from ledger.posting p where p.journal_id = v.original_id) a full join (select * from ledger.posting p where p.journal_id = v.reversal_id) b on a.leg = b.leg
                   where (a.account_no, a.amount) is distinct from (b.account_no, - b.amount)) then 'they are not the opposite of each other'
           end as message) q
      where q.message is not null;
  return query
    select 'balancing', f.id, t.from_version, g.transfer_id, format('transfer %s was to move at most %s: ', ledger.id_text('xfer', g.transfer_id), g.up_to)
             || coalesce('it moved ' || t.amount, 'it is missing'), g.up_to::text, t.amount::text
      from ledger.balancing g left join ledger.transfer t on t.id = g.transfer_id left join ledger.account f on f.no = t.from_no
      where t.id is null or t.amount > g.up_to;
end $$;
comment on function ledger.verify_links is 'Holds and what posted them, reversals and what they took back, balancing transfers and what they were asked for.';

create function ledger.verify_sums() returns setof ledger.problem
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select 'asset_sum', null::uuid, null::bigint, null::uuid, format('the balances in %s sum to %s, not to zero', s.code, sum(b.balance)), '0', sum(b.balance)::text
    from ledger.balance b join ledger.account a on a.no = b.no join ledger.asset s on s.no = a.asset_no group by s.code having sum(b.balance) <> 0;
end;
comment on function ledger.verify_sums is 'Whether the balances of each asset sum to zero.';

-- Who owns the tables can write them whatever is granted, and so can superusers: neither is a problem. Everybody else is.
create function ledger.verify_access() returns setof ledger.problem
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  books constant oid := 'ledger'::regnamespace;
  owner constant oid := (select relowner from pg_class where oid = 'ledger.transfer'::regclass);
begin
  return query
    with guard (relname, tgname, tgtype) as (   -- 2: before, 8: delete, 16: update, 32: truncate
      select t, 'guard_books', 2 + 8 + 16 + 32 from unnest(array['transfer', 'journal', 'posting', 'reversal', 'balancing']) t
      union all
      select t, g, case g when 'guard_books' then 2 + 8 + 32 else 2 + 16 end
        from unnest(array['account', 'balance', 'hold', 'asset', 'period', 'home']) t, unnest(array['guard_books', 'guard_update']) g
      union all
      select t, 'guard_fixed', 2 + 16 from unnest(array['account', 'balance', 'hold', 'asset']) t),
    guarded as (
      select g.*, t.oid, t.tgenabled, t.tgtype = g.tgtype and t.tgqual is null and (t.tgattr = '') = (g.tgname <> 'guard_fixed') and t.tgnargs = 0
               and t.tgfoid = ('ledger.' || case g.tgname when 'guard_fixed' then 'guard_books' else g.tgname end)::regproc as as_made
        from guard g left join pg_trigger t on t.tgrelid = ('ledger.' || g.relname)::regclass and t.tgname = g.tgname)
    select 'guard', null::uuid, null::bigint, null::uuid, format('trigger %s on ledger.%I %s', tgname, relname,
             case when oid is null then 'is missing' when tgenabled not in ('O', 'A') then 'is disabled' else 'is not as it was installed' end)
             || ': rows could be changed while nothing refuses it', null, null
      from guarded where (tgenabled in ('O', 'A') and as_made) is not true;
  -- What else could change rows on their way in, or keep rows out of sight of the guards.
  return query
    with relation as (select c.oid, c.relname, c.relpersistence from pg_class c where c.relnamespace = books and c.relkind in ('r', 'p'))
    select 'guard', null::uuid, null::bigint, null::uuid, format('ledger.%I %s', r.relname, q.message), null, null
      from relation r cross join lateral (
        select format('has a trigger %I that the books don''t come with', t.tgname) from pg_trigger t
          where t.tgrelid = r.oid and not t.tgisinternal and t.tgname not in ('guard_books', 'guard_update', 'guard_fixed', 'notify_booked')
        union all
        select format('has a rule %I', w.rulename) from pg_rewrite w where w.ev_class = r.oid
        union all
        select format('has rows of %s among its own, which are not guarded', i.inhrelid::regclass) from pg_inherits i where i.inhparent = r.oid
        union all
        select 'is not logged: a crash empties it' where r.relpersistence <> 'p'
        union all
        select 'has no primary key, which keeps ids from being used twice' where not exists (
          select from pg_index i where i.indrelid = r.oid and i.indisprimary and i.indisvalid)) q (message)
      where r.relname <> 'annals_step';
  return query
    select 'function', null::uuid, null::bigint, null::uuid, format('function %s %s', p.oid::regprocedure, q.message), null, null
      from pg_proc p cross join lateral (
        select format('belongs to %s, not to the owner of the books', p.proowner::regrole) where p.proowner <> owner
        union all
        select 'runs with the rights of its owner and without a pinned search_path'
          where p.prosecdef and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)) q (message)
      where p.pronamespace = books;
  return query
    with relation as (select c.oid, c.relname, c.relowner from pg_class c where c.relnamespace = books and c.relkind in ('r', 'p')),
    -- By their oids, because a role may be dropped meanwhile. Everybody is 0.
    role (oid, name) as (
      select 0::oid, null
      union all
      -- pg_write_all_data may write every table there is; whoever has been made a member of it is listed.
      select r.oid, quote_ident(r.rolname) from pg_roles r where not r.rolsuper and not pg_has_role(r.oid, owner, 'member') and r.rolname <> 'pg_write_all_data'),
    granted as (
      select r.name, t.relname, string_agg(p, ', ') as privileges
        from role r, relation t, unnest(array['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
        where has_table_privilege(r.oid, t.oid, p) or p in ('INSERT', 'UPDATE', 'REFERENCES') and has_any_column_privilege(r.oid, t.oid, p)
        group by r.name, t.relname)
    select 'privilege', null::uuid, null::bigint, null::uuid, format('%s may %s on ledger.%I, and only functions of this schema should', coalesce('role ' || g.name, 'everybody'), g.privileges, g.relname),
           null, g.privileges
      from granted g where g.name is null or not exists (select from granted e where e.name is null and e.relname = g.relname and e.privileges = g.privileges)
    union all
    select 'privilege', null, null, null, format('table ledger.%I belongs to %s, and ledger.transfer to %s', t.relname, t.relowner::regrole, owner::regrole), owner::regrole::text, t.relowner::regrole::text
      from relation t where t.relowner <> owner
    union all
    -- As after restoring a dump without privileges.
    select 'privilege', null, null, null, format('everybody may execute functions that book with the rights of the owner: %s; ledger.grant_access takes that away', string_agg(p.proname, ', ' order by p.proname)), null, null
      from pg_proc p where p.pronamespace = books and p.prosecdef and has_function_privilege('public', p.oid, 'execute') having count(*) > 0;
  return query
    select 'row_security', null::uuid, null::bigint, null::uuid, format('row-level security is on for ledger.%I: who reads it may not see all of it, and what is said here may be wrong', c.relname), null, null
      from pg_class c where c.relnamespace = books and c.relrowsecurity;
  return query
    select 'replica_role', null::uuid, null::bigint, null::uuid, format('session_replication_role is %s%s%s: triggers that guard the books don''t fire', s.value,
             coalesce(' for role ' || s.role, ''), coalesce(' in database ' || s.database, '')), 'origin', s.value
      from (select nullif(d.setrole, 0)::regrole::text as role, (select quote_ident(datname) from pg_database where oid = d.setdatabase) as database, split_part(c, '=', 2) as value
              from pg_db_role_setting d cross join unnest(d.setconfig) c
              where c like 'session_replication_role=%' and d.setdatabase in (0, (select oid from pg_database where datname = current_database()))
            union all
            select null, null, current_setting('session_replication_role')) s
      where s.value = 'replica';
end $$;
comment on function ledger.verify_access is 'Whether the books are guarded: triggers, privileges, functions that run with their owner''s rights, settings.';

create function ledger.verify_books(p_since timestamptz default null) returns setof ledger.problem
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select * from ledger.verify_sums()
  union all
  select * from ledger.verify_journals(p_since)
  union all
  select * from ledger.verify_links();
end;
comment on function ledger.verify_books is 'What concerns more than one account: sums, journal entries (all or those since a time), holds, reversals.';

create function ledger.verify_range(p_first int, p_last int, p_since timestamptz default null) returns setof ledger.problem
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select * from ledger.verify_accounts(p_first, p_last)
  union all
  select * from ledger.verify_chain(p_first, p_last, p_since)
  union all
  select * from ledger.verify_transfers(p_first, p_last, p_since);
end;
comment on function ledger.verify_range is 'What concerns the accounts from number p_first to p_last, each by itself, with all entries or those booked since a time.';

-- Each part is whole accounts; numbers that no account has are in some part as well. As the entries of an account lie all over the disk,
-- a part may read all of it: so there are few, unless somebody asks for more.
create function ledger.verify_parts(p_entries bigint default null) returns table (first_no int, last_no int, entries bigint)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  with wanted as (select coalesce(p_entries, greatest(sum(b.version)::bigint / 8, 4000000)) as entries from ledger.balance b),
  counted as (
    select b.no, b.version, div(sum(b.version) over (order by b.no) - b.version, w.entries) as part from ledger.balance b cross join wanted w),
  parts as (select min(c.no) as first_no, sum(c.version)::bigint as entries from counted c group by c.part)
  select case when lag(p.first_no) over w is null then -2147483648 else p.first_no end, coalesce(lead(p.first_no) over w - 1, 2147483647), p.entries
    from parts p window w as (order by p.first_no)
  union all
  select -2147483648, 2147483647, 0 where not exists (select from ledger.balance);
end;
comment on function ledger.verify_parts is 'The ranges of account numbers in which big books are verified, with how many entries they have: p_entries or somewhat more each; null: an eighth of the books, at least four million.';

create function ledger.verify(p_since timestamptz default null) returns setof ledger.problem
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select * from ledger.verify_access()
  union all
  select * from ledger.verify_books(p_since)
  union all
  select * from ledger.verify_range(-2147483648, 2147483647, p_since);
end;
comment on function ledger.verify is 'Verifies the books and their guards; no rows: nothing is wrong. p_since leaves out entries that were booked before.';
