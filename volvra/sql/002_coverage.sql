-- Coverage: which tables have their history kept. Management runs with the rights of whoever installed volvra, who must own the tables
-- (or be a member of the roles that do): PostgreSQL lets nobody else put triggers on a table and take them away.

create table volvra.coverage (
  tracked int primary key references annals.tracked on delete cascade,
  epoch int not null,
  xid xid8 not null default pg_current_xact_id(),
  since timestamptz not null default clock_timestamp(),
  filenode oid,
  login text not null default session_user
);
comment on table volvra.coverage is 'Since when tables are covered: moments that don''t see this transaction lie before their history.';
comment on column volvra.coverage.tracked is 'The history, see annals.tracked.';
comment on column volvra.coverage.epoch is 'Epoch of the transaction that began the coverage.';
comment on column volvra.coverage.xid is 'That transaction.';
comment on column volvra.coverage.since is 'From then on nothing went by uncaptured.';
comment on column volvra.coverage.filenode is 'File of the table then: another one means that rows may have been rewritten.';
comment on column volvra.coverage.login is 'Who began it.';

create function volvra.covering(p_table regclass) returns int
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.id from annals.tracked t where t.relation = p_table and t.ended_v is null and 'volvra' = any (t.users)
$$;
comment on function volvra.covering is 'Number of the history that covers a table now; null when none does.';

create function volvra.owner_refusal(p_table regclass) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Called with the rights of the installing role.
  select format('%s belongs to %I, and %I, which installed volvra, is no member of that role', p_table, pg_get_userbyid(c.relowner), current_user)
  from pg_class c where c.oid = p_table and not pg_has_role(current_user, c.relowner, 'USAGE')
$$;
comment on function volvra.owner_refusal is 'Why the calling role may not put triggers on a table; null when it may.';

create function volvra.cover(p_table regclass, p_options jsonb, out outcome text, out code text, out reason text, out hint text) returns record
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' set client_min_messages = 'warning' as $$
declare
  covered boolean := exists (select from annals.tracked t where t.relation = p_table and t.ended_v is null and 'volvra' = any (t.users));
  id int;
begin
  reason := volvra.owner_refusal(p_table);
  if reason is not null then
    outcome := 'refused'; code := 'VO008'; hint := format('Grant that role to %I, or make it the table''s owner.', current_user);
    return;
  end if;
  reason := annals.refusal_to_track(p_table);
  if reason is not null then
    outcome := 'refused'; code := 'AN004'; reason := format('%s cannot be covered: %s', p_table, reason);
    return;
  end if;
  if jsonb_typeof(coalesce(p_options, '{}')) <> 'object' then
    outcome := 'refused'; code := 'AN003'; reason := 'options must be a JSON object';
    return;
  end if;
  -- Waiting for a lock makes others wait behind, so wait briefly and let them pass between.
  for attempt in 1..5 loop
    begin
      id := annals.track(p_table, 'volvra', coalesce(p_options, '{}'));
      insert into volvra.coverage (tracked, epoch, filenode) values (id, annals.present_epoch(), pg_relation_filenode(p_table)) on conflict (tracked) do nothing;
      outcome := case when not covered then 'enabled' when coalesce(p_options, '{}') = '{}' then 'unchanged' else 'changed' end;
      code := null; reason := null;
      hint := (select format('Tables that inherit from it have rows of their own and are not covered: %s.', string_agg(i.inhrelid::regclass::text, ', '))
               from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = p_table and not c.relispartition and volvra.covering(i.inhrelid::regclass) is null having count(*) > 0);
      return;
    exception
      when lock_not_available then
        outcome := 'refused'; code := '55P03'; reason := format('%s is in use: a transaction that wrote it has not ended', p_table); hint := 'Try again when it has.';
        perform pg_sleep(0.1 * attempt);
      when sqlstate 'AN003' or sqlstate 'AN004' or insufficient_privilege or object_in_use or feature_not_supported then
        get stacked diagnostics hint = pg_exception_hint;
        outcome := 'refused'; code := sqlstate; reason := sqlerrm;
        return;
    end;
  end loop;
end $$;
comment on function volvra.cover is 'Covers one table, or says why not.';

create function volvra.enable(p_table regclass, p_options jsonb default '{}', p_attempt bigint default null)
returns table (attempt bigint, "table" text, outcome text, code text, reason text, hint text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  "table" := p_table::text;
  if p_attempt is null then
    attempt := volvra.begin_attempt('enable', jsonb_build_object('tables', jsonb_build_array("table")));
  else
    attempt := p_attempt;
    perform volvra.resume_attempt(attempt);
  end if;
  select c.outcome, c.code, c.reason, c.hint into outcome, code, reason, hint from volvra.cover(p_table, p_options) c;
  perform volvra.finish_attempt(attempt, case outcome when 'refused' then 'refused' else 'done' end, jsonb_build_object('code', code, 'reason', reason));
  return next;
end $$;
comment on function volvra.enable is 'Covers a table, or changes the options that are given: exclude (columns never stored), truncate (capture, refuse or allow), skip_noop, full, wide, warn_rows, replica, form. Outcome: enabled, changed, unchanged or refused, with the reason.';

create function volvra.enable_schema(p_schema name, p_options jsonb default '{}')
returns table (attempt bigint, "table" text, outcome text, code text, reason text, hint text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass;
begin
  if to_regnamespace(quote_ident(p_schema)) is null then
    perform volvra.refuse('VO007', format('there is no schema %I', p_schema), 'Name it as it is in the catalog, without quotes.');
  end if;
  -- Parents first, in the order in which they were made.
  for relation in select c.oid from pg_class c where c.relnamespace = to_regnamespace(quote_ident(p_schema)) and c.relkind in ('r', 'p', 'f') and not c.relispartition order by c.oid loop
    return query select * from volvra.enable(relation, p_options);
  end loop;
end $$;
comment on function volvra.enable_schema is 'Covers all tables of a schema, as volvra.enable does, and says for each what came of it. All of them are locked against writing until the transaction ends.';

create function volvra.disable(p_table regclass, p_save_rows boolean default false, p_attempt bigint default null)
returns table (attempt bigint, "table" text, outcome text, code text, reason text, hint text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
begin
  "table" := p_table::text;
  if p_attempt is null then
    attempt := volvra.begin_attempt('disable', jsonb_build_object('tables', jsonb_build_array("table")));
  else
    attempt := p_attempt;
    perform volvra.resume_attempt(attempt);
  end if;
  for try in 1..5 loop
    begin
      if p_save_rows then
        perform annals.materialize(volvra.covering(p_table)) where volvra.covering(p_table) is not null;
      end if;
      if annals.untrack(p_table, 'volvra') then
        outcome := 'disabled'; code := null; reason := null; hint := null;
      else
        outcome := 'refused'; code := 'VO003'; reason := format('%s is not covered', p_table); hint := 'volvra.status() lists covered tables.';
      end if;
      exit;
    exception
      when lock_not_available then
        outcome := 'refused'; code := '55P03'; reason := format('%s is in use: a transaction that wrote it has not ended', p_table); hint := 'Try again when it has.';
        perform pg_sleep(0.1 * try);
      when sqlstate 'AN002' or insufficient_privilege or object_in_use then
        outcome := 'refused'; code := sqlstate; reason := sqlerrm; hint := '';
        exit;
    end;
  end loop;
  perform volvra.finish_attempt(attempt, case outcome when 'refused' then 'refused' else 'done' end, jsonb_build_object('code', code, 'reason', reason));
  return next;
end $$;
comment on function volvra.disable is 'Ends the coverage of a table: nothing is left on it. Its history stays and can be read by whom it could; earlier states of the table cannot be told from it any more, unless all rows are saved first (p_save_rows). Outcome: disabled or refused.';

create function volvra.uncovered() returns table ("table" text, reason text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('%I.%I', n.nspname, c.relname), coalesce(annals.refusal_to_track(c.oid), case when d.objid is not null then 'not enabled: it belongs to an extension' else 'not enabled' end)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
  where c.relkind in ('r', 'p', 'f') and not c.relispartition and c.relpersistence <> 't'
    and n.nspname not in ('pg_catalog', 'information_schema', 'annals', 'volvra', 'gnomon') and n.nspname not like 'pg\_%'
    and volvra.covering(c.oid) is null
  order by 1
$$;
comment on function volvra.uncovered is 'Tables that are not covered, and why: not enabled, or what keeps them from being covered.';

create function volvra.covered_table(p_name text, p_ended boolean default false) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  named regclass;
  id int;
begin
  begin
    named := to_regclass(p_name);
  exception when others then -- a malformed name
    named := null;
  end;
  if named is null then
    perform volvra.refuse('VO003', format('there is no table %s', p_name), 'Name the table as in SQL, with its schema.', jsonb_build_object('table', p_name));
  end if;
  id := volvra.covering(named);
  if id is null and p_ended then
    select max(t.id) into id from annals.tracked t join volvra.coverage c on c.tracked = t.id where t.relation = named;
  end if;
  if id is null then
    perform volvra.refuse('VO003', format('table %s is not covered', named), 'Cover it with volvra.enable. volvra.uncovered() lists tables that are not covered.',
      jsonb_build_object('table', named::text));
  end if;
  return id;
end $$;
comment on function volvra.covered_table is 'The history that covers a table, given by its name with schema, or when asked for the last one that did; an error when none does.';

create function volvra.stored_column(p_tracked int, p_name text, out n int, out type oid) returns record
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  c annals.tracked_column;
  relation text;
begin
  select t.relation::text into relation from annals.tracked t where t.id = p_tracked;
  select * into c from annals.tracked_column x where x.tracked = p_tracked and x.gone_v is null and x.name = p_name;
  if not found then
    perform volvra.refuse('VO004', format('%s has no column %s', relation, quote_ident(p_name)), 'Name columns as they are in the catalog, without quotes.',
      jsonb_build_object('table', relation, 'column', p_name));
  end if;
  n := c.n;
  select a.atttypid into type from pg_attribute a where a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', c.n);
  if c.excluded or type is null then
    perform volvra.refuse('VO004', format('column %s of %s is not in its history', quote_ident(p_name), relation),
      case when c.excluded then 'It is excluded from coverage.' else 'PostgreSQL generates it: ask for the columns that it is computed from.' end,
      jsonb_build_object('table', relation, 'column', p_name));
  end if;
end $$;
comment on function volvra.stored_column is 'Number and type of a column whose values are in a history; an error when they are not.';

create function volvra.check_key(p_tracked int, p_key jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  names text;
  k record;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  select string_agg(quote_ident(c.name), ', ' order by u.i) into names
    from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = p_tracked and c.n = u.n;
  if jsonb_typeof(p_key) is distinct from 'array' or jsonb_array_length(p_key) <> cardinality(t.key) or jsonb_path_exists(p_key, '$[*] ? (@.type() != "string")') then
    perform volvra.refuse('VO005', format('%s is no key of %s', coalesce(p_key, 'null'), t.relation), format('A key is an array with the values of %s, as texts.', names),
      jsonb_build_object('table', t.relation::text, 'key', p_key));
  end if;
  for k in select u.i, a.atttypid as type from unnest(t.key) with ordinality u (n, i)
             join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', u.n) loop
    perform volvra.check_value(p_key->>(k.i - 1)::int, k.type, format('key of %s', t.relation));
  end loop;
end $$;
comment on function volvra.check_key is 'Refuses what is no whole key of a covered table: an array of texts in the order of the key.';
