-- Errors, and the guard that keeps the books from being changed. Each kind of refusal has a SQLSTATE of its own; DETAIL is
-- JSON with the identities and amounts that a program needs.

create function ledger.refusal(p_code text, p_message text, p_detail jsonb default '{}', p_hint text default null) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
return jsonb_build_object('code', p_code, 'message', p_message, 'detail', jsonb_strip_nulls(p_detail), 'hint', p_hint);
comment on function ledger.refusal is 'A reason why something cannot be booked, as data: SQLSTATE, message, details, way out.';

create function ledger.refuse(p_refusal jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if p_refusal is null then
    raise exception 'something was refused without a reason' using errcode = 'XX000';
  end if;
  raise exception using
    errcode = p_refusal->>'code', message = p_refusal->>'message', detail = (p_refusal->'detail')::text,
    hint = coalesce(p_refusal->>'hint', '');
end $$;
comment on function ledger.refuse is 'Raises the error that a refusal describes.';

create function ledger.guard_books() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform ledger.refuse(ledger.refusal('LG015',
    format('the books are append-only: %s on %I.%I is refused', tg_op, tg_table_schema, tg_table_name),
    jsonb_build_object('table', tg_table_name, 'operation', tg_op),
    format('Book a reversal instead. The owner of the table would have to disable the trigger %I first, and ledger.verify reports that.', tg_name)));
  return null;
end $$;
comment on function ledger.guard_books is 'Refuses UPDATE, DELETE and TRUNCATE on the books.';

create trigger guard_books before update or delete or truncate on ledger.transfer for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.transfer is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before update or delete or truncate on ledger.journal for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.journal is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before update or delete or truncate on ledger.posting for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.posting is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before update or delete or truncate on ledger.reversal for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.reversal is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before update or delete or truncate on ledger.balancing for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.balancing is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before delete or truncate on ledger.account for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.account is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before delete or truncate on ledger.balance for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.balance is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before delete or truncate on ledger.hold for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.hold is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before delete or truncate on ledger.asset for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.asset is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';
create trigger guard_books before delete or truncate on ledger.period for each statement execute function ledger.guard_books();
comment on trigger guard_books on ledger.period is 'Keeps rows from being changed or deleted; ledger.verify reports when it is off.';

-- These rows do change, but only through the functions of this schema. Those run with a pinned search_path, which a statement typed by
-- hand does not: that is what tells the two apart. This runs twice in each transfer, so it is no more than that one comparison (as a
-- WHEN condition, which PostgreSQL parses again for each statement, it would cost three times as much), and has no settings of its own.
create function ledger.guard_update() returns trigger
language plpgsql as $$
begin
  if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
    perform ledger.refuse(ledger.refusal('LG015', pg_catalog.format('the books are append-only: UPDATE on %I.%I is refused', tg_table_schema, tg_table_name),
      pg_catalog.jsonb_build_object('table', tg_table_name, 'operation', 'UPDATE'),
      'Use the functions of the schema ledger. The trigger guard_update keeps other changes out, and ledger.verify reports when it is off.'));
  end if;
  return null;
end $$;
comment on function ledger.guard_update is 'Refuses an UPDATE that does not come from a function of this schema.';
create trigger guard_update before update on ledger.account for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.account is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';
create trigger guard_update before update on ledger.balance for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.balance is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';
create trigger guard_update before update on ledger.hold for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.hold is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';
create trigger guard_update before update on ledger.asset for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.asset is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';
create trigger guard_update before update on ledger.period for each statement execute function ledger.guard_update();
comment on trigger guard_update on ledger.period is 'Lets only the functions of this schema change rows; ledger.verify reports when it is off.';

-- What never changes is refused to everybody. No statement of a function names these columns, so it costs them nothing.
create trigger guard_fixed before update of no, code, decimals, created_at on ledger.asset for each statement execute function ledger.guard_books();
comment on trigger guard_fixed on ledger.asset is 'Keeps what is fixed when an asset is registered; ledger.verify reports when it is off.';
create trigger guard_fixed before update of no, id, asset_no, normal_side, created_at on ledger.account for each statement execute function ledger.guard_books();
comment on trigger guard_fixed on ledger.account is 'Keeps what is fixed when an account is opened; ledger.verify reports when it is off.';
create trigger guard_fixed before update of id, no, asset_no, decimals on ledger.balance for each statement execute function ledger.guard_books();
comment on trigger guard_fixed on ledger.balance is 'Keeps what is fixed when an account is opened; ledger.verify reports when it is off.';
create trigger guard_fixed before update of id, from_no, to_no, amount, created_at, expires_at, event_at, metadata on ledger.hold for each statement execute function ledger.guard_books();
comment on trigger guard_fixed on ledger.hold is 'Keeps what is fixed when a hold is made; ledger.verify reports when it is off.';
