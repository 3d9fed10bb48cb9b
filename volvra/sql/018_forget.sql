-- Forgetting one subject. A row that changed its key is followed to the keys that it had before and after; at those, only the time that
-- it spent there is its own. What others have at the key that was asked for counts as its own: nobody can tell them apart.

create function volvra.key_condition(p_tracked int, p_segment annals.segment, p_key text[]) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  condition text;
begin
  -- In a segment of an older key, the columns of the present one may be any columns, or not there.
  select string_agg(format('e.c%s %s %L::%s', u.n, annals.key_operator(p_tracked, u.i::int), p_key[u.i::int], format_type(a.atttypid, a.atttypmod)), ' and ' order by u.i) into condition
    from annals.tracked t, unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = p_segment.relation and a.attname = 'c' || u.n
    where t.id = p_tracked having count(*) = (select cardinality(t.key) from annals.tracked t where t.id = p_tracked);
  return coalesce(condition, 'false');
end $$;
comment on function volvra.key_condition is 'SQL that tells whether a row e of a segment has a key.';

create function volvra.key_entries(p_tracked int, p_key text[], p_from bigint, p_to bigint) returns table (v bigint, op "char")
language plpgsql stable set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set timezone = 'UTC' as $$
declare
  s annals.segment;
begin
  for s in select * from annals.segment g where g.tracked = p_tracked and g.first_v <= p_to and coalesce(g.last_v, p_from) >= p_from order by g.number loop
    return query execute format('select e.v, e.op from %s e where %s and e.v between $1 and $2', s.relation, volvra.key_condition(p_tracked, s, p_key)) using p_from, p_to;
  end loop;
end $$;
comment on function volvra.key_entries is 'Entries of a key in a range of positions.';

create function volvra.key_at(p_tracked int, p_v bigint) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' as $$
declare
  s annals.segment;
  key text[];
  list text;
begin
  select string_agg(format('format(''%%s'', e.c%s)', u.n), ', ' order by u.i) into list from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked;
  for s in select * from annals.segment g where g.tracked = p_tracked and g.first_v <= p_v and coalesce(g.last_v, p_v) >= p_v
             and g.columns @> (select t.key from annals.tracked t where t.id = p_tracked) order by g.number loop
    execute format('select array[%s] from %s e where e.v = $1', list, s.relation) using p_v into key;
    exit when key is not null;
  end loop;
  return key;
end $$;
comment on function volvra.key_at is 'The key of the entry at a position.';

create function volvra.subject_spans(p_tracked int, p_key text[]) returns table (key text[], from_v bigint, to_v bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  endless constant bigint := 9223372036854775807;
  keys text[] := array[p_key::text];
  froms bigint[] := array[0];
  tos bigint[] := array[endless];
  done int := 0;
  seen bigint[] := '{}';
  m record;
begin
  while done < cardinality(keys) loop
    done := done + 1;
    key := keys[done]::text[];
    from_v := froms[done];
    to_v := tos[done];
    return next;
    for m in select k.left_v, k.arrived_v, e.op from volvra.key_entries(p_tracked, key, from_v, to_v) e
               join annals.move k on k.tracked = p_tracked and case e.op when 'm' then k.left_v = e.v when 'n' then k.arrived_v = e.v end
               where k.left_v <> all (seen) loop
      seen := seen || m.left_v;
      if m.op = 'm' then
        key := volvra.key_at(p_tracked, m.arrived_v);
        froms := froms || m.arrived_v;
        tos := tos || coalesce((select min(e.v) from volvra.key_entries(p_tracked, key, m.arrived_v + 1, endless) e where e.op in ('d', 't', 'm', 'D', 'T')), endless);
      else
        key := volvra.key_at(p_tracked, m.left_v);
        tos := tos || m.left_v;
        froms := froms || coalesce((select max(case when e.op in ('i', 'n') then e.v else e.v + 1 end) from volvra.key_entries(p_tracked, key, 0, m.left_v - 1) e
                                      where e.op in ('i', 'n', 'd', 't', 'm', 'D', 'T')), 0);
      end if;
      if key is null then -- the other end was purged
        froms := froms[:cardinality(keys)];
        tos := tos[:cardinality(keys)];
      else
        keys := keys || key::text;
      end if;
    end loop;
  end loop;
end $$;
comment on function volvra.subject_spans is 'Where the images of a subject are: its key, the keys that it had before or after, and between which positions.';

create function volvra.forget_entries(p_erasure bigint, s annals.segment, p_condition text, p_mode text, p_last volvra.seal) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' set lc_monetary = 'C'
  set xmlbinary = 'base64' set quote_all_identifiers = off set jit = off as $$
declare
  h record := volvra.hashing(s.relation, case p_mode when 'delete' then 'b.v is not null' else 'false' end);
  erased bigint;
begin
  if p_mode = 'redact' then
    execute format($run$
      with e0 as materialized (select e.ctid as place, e.v, %s as sealed, %s as body from %s e where %s and e.op in ('u', 'd', 't')),
           k as (insert into volvra.redacted (tracked, segment, v, erasure, body) select $1, $2, e0.v, $3, e0.body from e0 where e0.sealed)
      update %s e set %s from e0 where e.ctid = e0.place $run$,
      volvra.sealed_by(p_last, 'e.v', 'e.xid'), h.body, s.relation, p_condition, s.relation,
      (select string_agg(x, ', ') from (select 'op = upper(e.op::text)::"char"' as x union all
         select format('%I = null', a.attname) from pg_attribute a where a.attrelid = s.relation and a.attname ~ '^c[0-9]+$' and not a.attnotnull and not a.attisdropped) y))
      using s.tracked, s.number, p_erasure;
    get diagnostics erased = row_count;
  else
    execute format($run$
      with e0 as materialized (select e.ctid as place, e.v, %s as sealed, sha256(%s || coalesce(b.body, %s)) as digest
                               from %s e left join volvra.redacted b on b.tracked = $1 and b.segment = $2 and b.v = e.v where %s),
           k as (insert into volvra.removed (what, tracked, segment, v, erasure, digest) select 'entry', $1, $2, e0.v, $3, e0.digest from e0 where e0.sealed)
      delete from %s e using e0 where e.ctid = e0.place $run$,
      volvra.sealed_by(p_last, 'e.v', 'e.xid'), h.head, h.body, s.relation, p_condition, s.relation)
      using s.tracked, s.number, p_erasure;
    get diagnostics erased = row_count;
    update annals.segment g set entries = g.entries - erased where g.tracked = s.tracked and g.number = s.number and g.sealed_at is not null;
  end if;
  return erased;
end $$;
comment on function volvra.forget_entries is 'Erases entries of one segment.';

create function volvra.remove_rows(p_what text, p_tracked int, p_condition text, p_erasure bigint, p_purge bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set bytea_output = 'hex' set timezone = 'UTC' set quote_all_identifiers = off as $$
declare
  relation regclass := ('annals.' || p_what)::regclass;
  h record := volvra.hashing(relation);
  v text := case p_what when 'move' then 'e.left_v' else 'e.v' end;
  removed bigint;
begin
  execute format($run$
    with e0 as materialized (select e.ctid as place, %s as v, %s as sealed, sha256(%s || %s) as digest from %s e where e.tracked = $1 and (%s)),
         k as (insert into volvra.removed (what, tracked, segment, v, erasure, purge, digest) select $2, $1, 0, e0.v, $3, $4, e0.digest from e0 where e0.sealed)
    delete from %s e using e0 where e.ctid = e0.place $run$, v, volvra.sealed_by(volvra.last_seal(), v, 'e.xid'), h.head, h.body, relation, p_condition, relation)
    using p_tracked, p_what, p_erasure, p_purge;
  get diagnostics removed = row_count;
  return removed;
end $$;
comment on function volvra.remove_rows is 'Deletes moves or gaps of a history, and keeps the hashes of those that were sealed.';

create function volvra.forget_in(t annals.tracked, p_key text[], p_mode text, p_reason text, p_attempt bigint, out entries bigint, out moves bigint, out keys int)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' as $$
declare
  erasure bigint := nextval(pg_get_serial_sequence('volvra.erasure', 'id'));
  last volvra.seal := volvra.last_seal();
  spans jsonb;
  positions bigint[];
  span record;
  s annals.segment;
begin
  entries := 0;
  moves := 0;
  -- In the order in which others lock them who finish segments.
  perform from annals.segment g where g.tracked = t.id order by g.number for update;
  for s in select * from annals.segment g where g.tracked = t.id order by g.number loop
    execute format('lock table %s in row exclusive mode', s.relation);
  end loop;
  select jsonb_agg(jsonb_build_object('key', x.key, 'from_v', x.from_v, 'to_v', x.to_v)), count(distinct x.key) into spans, keys from volvra.subject_spans(t.id, p_key) x;
  if p_mode = 'delete' then
    positions := array(select e.v from jsonb_to_recordset(spans) x (key text[], from_v bigint, to_v bigint), volvra.key_entries(t.id, x.key, x.from_v, x.to_v) e where e.op in ('m', 'n'));
    for span in select x.* from jsonb_to_recordset(spans) x (key text[], from_v bigint, to_v bigint) where x.to_v = 9223372036854775807 and t.ended_v is null loop
      if (select e.op from volvra.key_entries(t.id, span.key, span.from_v, span.to_v) e order by e.v desc limit 1) in ('i', 'n', 'u', 'U') then
        perform volvra.refuse('VO045', format('the row is still in %I.%I, and without its entries it would seem always to have been as it is now', t.schema_name, t.table_name),
          'Delete the row first, or redact its history.', jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name)));
      end if;
    end loop;
  end if;
  for span in select x.* from jsonb_to_recordset(spans) x (key text[], from_v bigint, to_v bigint) loop
    for s in select * from annals.segment g where g.tracked = t.id order by g.number loop
      entries := entries + volvra.forget_entries(erasure, s, format('%s and e.v between %s and %s', volvra.key_condition(t.id, s, span.key), span.from_v, span.to_v), p_mode, last);
    end loop;
  end loop;
  if p_mode = 'delete' then
    moves := volvra.remove_rows('move', t.id, format('e.left_v = any (%L) or e.arrived_v = any (%L)', positions, positions), erasure, null);
  end if;
  insert into volvra.erasure (id, tracked, table_name, mode, entries, moves, keys, reason, attempt, login, role, actor, application, client) overriding system value
    select erasure, t.id, format('%I.%I', t.schema_name, t.table_name), p_mode, forget_in.entries, forget_in.moves, forget_in.keys, p_reason, p_attempt, a.login, a.role, a.actor, a.application, a.client
    from volvra.attempt a where a.id = p_attempt;
  -- Others may hold copies.
  perform annals.tell_all(t.id, 'on_erase');
end $$;
comment on function volvra.forget_in is 'Erases a subject from one history.';

create function volvra.forget(p_table text, p_key jsonb, p_mode text default 'redact', p_reason text default '', p_attempt bigint default null,
  out attempt bigint, out outcome text, out entries bigint, out moves bigint, out keys int, out code text, out reason text, out hint text, out detail jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  x record;
begin
  if p_attempt is null then
    attempt := volvra.begin_attempt('forget', jsonb_build_object('tables', jsonb_build_array(p_table)), p_mode);
  else
    attempt := p_attempt;
    perform volvra.resume_attempt(attempt);
  end if;
  entries := 0;
  moves := 0;
  keys := 0;
  begin
    perform volvra.read_committed('erasing');
    if p_mode is null or p_mode not in ('redact', 'delete') then
      perform volvra.refuse('VO007', format('%s is no mode of erasing', coalesce(quote_literal(p_mode), 'null')), 'It is redact or delete.');
    end if;
    if coalesce(btrim(p_reason), '') = '' then
      perform volvra.refuse('VO007', 'an erasure needs a reason', 'The ledger keeps it: name no subject in it.');
    end if;
    -- Whole histories only: what a seal that runs now reads is not changed meanwhile.
    perform pg_advisory_xact_lock(hashtextextended('volvra.seal', 0));
    for t in select * from volvra.histories_of(p_table) loop
      x := volvra.forget_in(t, volvra.subject_key(t.id, p_key), p_mode, p_reason, attempt);
      entries := entries + x.entries;
      moves := moves + x.moves;
      keys := greatest(keys, x.keys);
    end loop;
    outcome := 'done';
  exception when others then
    if sqlstate not like 'VO%' then
      raise;
    end if;
    get stacked diagnostics code = returned_sqlstate, reason = message_text, hint = pg_exception_hint, detail = pg_exception_detail;
    outcome := 'refused';
    entries := 0;
    moves := 0;
    keys := 0;
  end;
  -- What was refused may name values, so the attempt keeps no more than the kind of refusal.
  perform volvra.finish_attempt(attempt, outcome, jsonb_build_object('rows', entries, 'moves', moves, 'code', code));
end $$;
comment on function volvra.forget is 'Erases a subject from all histories of a table: redact removes images, delete removes entries. The key is an array in the order of the key or an object by column, and must be whole. A refusal is a result, so that its attempt is recorded.';

revoke all on function volvra.forget, volvra.forget_in, volvra.forget_entries, volvra.remove_rows, volvra.key_entries, volvra.key_at, volvra.subject_spans from public;
