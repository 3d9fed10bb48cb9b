-- Attempts: who tried to change something through this package, and what came of it. An attempt and its outcome are two rows, each written
-- once: so both can be sealed, and an attempt whose transaction was rolled back still stands here when it was begun in a transaction
-- of its own. Neither holds a value of a user's row, since that may have to be erased: what was changed stands in history, under the
-- transaction of the outcome.

create table volvra.attempt (
  id bigint primary key generated always as identity,
  v bigint not null default nextval('annals.v'),
  xid xid8 not null default pg_current_xact_id(),
  began_at timestamptz not null default clock_timestamp(),
  action text not null,
  selection jsonb,
  policy text,
  token text,
  login text not null,
  role text not null,
  actor text not null,
  application text not null,
  client inet
);
create index attempt_began_at on volvra.attempt (began_at);
comment on table volvra.attempt is 'Attempts to undo, redo, erase, purge, cover and uncover. Written by volvra.begin_attempt, never changed.';
comment on column volvra.attempt.id is 'Number of the attempt.';
comment on column volvra.attempt.v is 'Its position among the entries of all histories.';
comment on column volvra.attempt.xid is 'Transaction that began it.';
comment on column volvra.attempt.began_at is 'When it was begun.';
comment on column volvra.attempt.action is 'What was attempted: undo, redo, undo_to, forget, purge, enable, disable and the like.';
comment on column volvra.attempt.selection is 'What it was to apply to, without values: of keys their number, of conditions column and operator.';
comment on column volvra.attempt.policy is 'What was to be done about conflicts, or the mode of an erasure.';
comment on column volvra.attempt.token is 'Digest of the plan whose token was presented.';
comment on column volvra.attempt.login is 'The session''s role (session_user).';
comment on column volvra.attempt.role is 'What SET ROLE chose, else ''none''.';
comment on column volvra.attempt.actor is 'Who the application said it was (setting annals.actor).';
comment on column volvra.attempt.application is 'The setting application_name.';
comment on column volvra.attempt.client is 'Address of the client; null for a local socket.';
comment on index volvra.attempt_began_at is 'Lists attempts, newest first.';

create table volvra.outcome (
  attempt bigint primary key references volvra.attempt,
  v bigint not null default nextval('annals.v'),
  epoch int not null,
  xid xid8 not null default pg_current_xact_id(),
  at timestamptz not null default clock_timestamp(),
  outcome text not null constraint outcome_known check (outcome in ('done', 'refused', 'failed')),
  rows bigint,
  skipped bigint,
  code text,
  reason text,
  counts jsonb
);
comment on table volvra.outcome is 'What came of attempts. Written by volvra.finish_attempt, never changed.';
comment on column volvra.outcome.attempt is 'The attempt.';
comment on column volvra.outcome.v is 'Its position among the entries of all histories.';
comment on column volvra.outcome.epoch is 'Epoch of the transaction.';
comment on column volvra.outcome.xid is 'Transaction that finished it: for what was done, the one that did it.';
comment on column volvra.outcome.at is 'When it was finished.';
comment on column volvra.outcome.outcome is 'done, refused (nothing was changed, for a reason that was foreseen) or failed.';
comment on column volvra.outcome.rows is 'Number of rows that were changed.';
comment on column volvra.outcome.skipped is 'Number of rows that were left as they are.';
comment on column volvra.outcome.code is 'SQLSTATE of the refusal or failure.';
comment on column volvra.outcome.reason is 'Why it was refused or failed, in words.';
comment on column volvra.outcome.counts is 'Other numbers that the attempt reported.';

create function volvra.guard_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform volvra.refuse('VO040', format('%s on volvra.%I is refused: what stands there is never changed', tg_op, tg_table_name), '', jsonb_build_object('table', tg_table_name));
  return null;
end $$;
comment on function volvra.guard_record is 'Refuses to change what was recorded.';
create trigger guard_record before update or delete or truncate on volvra.attempt for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.attempt is 'Keeps attempts from being changed or deleted; volvra.verify reports when it is off.';
create trigger guard_record before update or delete or truncate on volvra.outcome for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.outcome is 'Keeps outcomes from being changed or deleted; volvra.verify reports when it is off.';

create function volvra.without_values(p_selection jsonb) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select p_selection
    || case when jsonb_typeof(p_selection->'keys') = 'array' then jsonb_build_object('keys', jsonb_array_length(p_selection->'keys'))
            when p_selection ? 'keys' then '{"keys": null}' else '{}' end
    || case when jsonb_typeof(p_selection->'where') = 'array' then jsonb_build_object('where', (
              select coalesce(jsonb_agg(case jsonb_typeof(w) when 'object' then w - 'value' end order by i), '[]')
              from jsonb_array_elements(p_selection->'where') with ordinality u (w, i)))
            when p_selection ? 'where' then '{"where": null}' else '{}' end
$$;
comment on function volvra.without_values is 'A selection without the values of rows that it holds: of keys their number is left, of conditions column and operator.';

create function volvra.begin_attempt(p_action text, p_selection jsonb default null, p_policy text default null, p_token text default null) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
  -- A token carries its selection, so only the digest of the plan, its last part, is kept.
  insert into volvra.attempt (action, selection, policy, token, login, role, actor, application, client)
    values (p_action, case jsonb_typeof(p_selection) when 'object' then volvra.without_values(p_selection) end, p_policy, substring(p_token, '[0-9a-f]*$'),
            session_user, current_setting('role'), coalesce(current_setting('annals.actor', true), ''), current_setting('application_name'), inet_client_addr())
    returning id
$$;
comment on function volvra.begin_attempt is 'Records that something is attempted, by whom; returns the number of the attempt.';

create function volvra.attempt_key(p_id bigint) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp
return hashtextextended('volvra.attempt', p_id);
comment on function volvra.attempt_key is 'Key of the advisory lock that the transaction which works on an attempt holds.';

create function volvra.own_attempt(p_id bigint) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  a volvra.attempt;
begin
  select * into a from volvra.attempt t where t.id = p_id;
  if not found or a.login <> session_user then
    perform volvra.refuse('VO041', format('there is no attempt %s of %s', p_id, session_user), 'volvra.attempts() lists attempts.', jsonb_build_object('attempt', p_id));
  end if;
  if exists (select from volvra.outcome o where o.attempt = p_id) then
    perform volvra.refuse('VO042', format('attempt %s is finished', p_id), 'Begin another one.', jsonb_build_object('attempt', p_id));
  end if;
end $$;
comment on function volvra.own_attempt is 'Refuses an attempt that the caller did not begin, or that is finished.';

create function volvra.resume_attempt(p_id bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform volvra.own_attempt(p_id);
  perform pg_advisory_xact_lock_shared(volvra.attempt_key(p_id));
end $$;
comment on function volvra.resume_attempt is 'Says that this transaction works on an attempt which another one began: the attempt is running until this transaction ends.';

create function volvra.finish_attempt(p_id bigint, p_outcome text, p_detail jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform volvra.own_attempt(p_id);
  insert into volvra.outcome (attempt, epoch, outcome, rows, skipped, code, reason, counts)
    values (p_id, annals.present_epoch(), p_outcome, (p_detail->>'rows')::bigint, (p_detail->>'skipped')::bigint, left(p_detail->>'code', 5), left(p_detail->>'reason', 2000),
            (select jsonb_object_agg(key, value) from jsonb_each(coalesce(p_detail, '{}')) where jsonb_typeof(value) = 'number' and key not in ('rows', 'skipped')));
end $$;
comment on function volvra.finish_attempt is 'Records what came of an attempt: done, refused or failed. Of the detail rows, skipped, code, reason (which must quote no row) and other numbers are kept.';

create function volvra.attempts(p_from timestamptz default null, p_to timestamptz default null, p_action text default null, p_login text default null, p_outcome text default null, p_limit int default 100)
returns table (id bigint, action text, selection jsonb, policy text, token text, login text, role text, actor text, application text, client inet, began_at timestamptz,
               ended_at timestamptz, outcome text, rows bigint, skipped bigint, code text, reason text, counts jsonb, transaction text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with running as materialized (
    select (l.classid::bigint << 32) | l.objid::bigint as key from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database()))
  select * from (
    select a.id, a.action, a.selection, a.policy, a.token, a.login, a.role, a.actor, a.application, a.client, a.began_at, o.at,
           coalesce(o.outcome, case when r.running then 'running' else 'failed' end) as outcome,
           o.rows, o.skipped, o.code, case when o.attempt is null and not r.running then 'no outcome' else o.reason end, o.counts,
           case when o.outcome = 'done' then o.epoch || ':' || o.xid end
    from volvra.attempt a left join volvra.outcome o on o.attempt = a.id,
    -- Between its beginning and its work nothing is locked, for a moment.
    lateral (select o.attempt is null and (a.began_at > clock_timestamp() - interval '10 seconds' or volvra.attempt_key(a.id) in (select k.key from running k)) as running) r
    where a.began_at >= coalesce(p_from, '-infinity') and a.began_at < coalesce(p_to, 'infinity')
      and (p_action is null or a.action = p_action) and (p_login is null or a.login = p_login)) x
  where p_outcome is null or x.outcome = p_outcome
  order by x.id desc limit p_limit
$$;
comment on function volvra.attempts is 'Attempts, newest first. One that was begun, and whose transaction is gone without an outcome, has failed.';

revoke all on function volvra.begin_attempt, volvra.finish_attempt, volvra.resume_attempt, volvra.own_attempt, volvra.attempts from public;
