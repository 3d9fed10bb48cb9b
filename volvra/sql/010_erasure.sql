-- Erasure: one subject's images are taken out of all histories of a table, and the ledger says so. For rows that were sealed the ledger
-- keeps the hash of what is gone, so that verification can still tell that nothing else was touched.

create table volvra.erasure (
  id bigint primary key generated always as identity,
  v bigint not null default nextval('annals.v'),
  xid xid8 not null default pg_current_xact_id(),
  at timestamptz not null default clock_timestamp(),
  tracked int not null,
  table_name text not null,
  mode text not null constraint erasure_mode check (mode in ('redact', 'delete')),
  entries bigint not null,
  moves bigint not null,
  keys int not null,
  reason text not null,
  attempt bigint not null,
  login text not null,
  role text not null,
  actor text not null,
  application text not null,
  client inet
);
comment on table volvra.erasure is 'Ledger of erasures. It does not say whose rows were erased.';
comment on column volvra.erasure.id is 'Number of the erasure.';
comment on column volvra.erasure.v is 'Its position among the entries of all histories.';
comment on column volvra.erasure.xid is 'Transaction that erased.';
comment on column volvra.erasure.at is 'When.';
comment on column volvra.erasure.tracked is 'History from which was erased.';
comment on column volvra.erasure.table_name is 'Its table, as it was named then.';
comment on column volvra.erasure.mode is 'redact: images were removed and keys kept. delete: entries were removed.';
comment on column volvra.erasure.entries is 'Number of entries that were redacted or deleted.';
comment on column volvra.erasure.moves is 'Number of records of changed keys that were deleted.';
comment on column volvra.erasure.keys is 'Number of keys that the subject had.';
comment on column volvra.erasure.reason is 'Why.';
comment on column volvra.erasure.attempt is 'The attempt, see volvra.attempts().';
comment on column volvra.erasure.login is 'The session''s role.';
comment on column volvra.erasure.role is 'What SET ROLE chose, else ''none''.';
comment on column volvra.erasure.actor is 'Who the application said it was.';
comment on column volvra.erasure.application is 'The setting application_name.';
comment on column volvra.erasure.client is 'Address of the client; null for a local socket.';

create table volvra.redacted (
  tracked int not null,
  segment int not null,
  v bigint not null,
  erasure bigint not null,
  body bytea not null,
  primary key (tracked, segment, v)
);
comment on table volvra.redacted is 'Sealed entries whose image was erased.';
comment on column volvra.redacted.tracked is 'The history.';
comment on column volvra.redacted.segment is 'The segment.';
comment on column volvra.redacted.v is 'Position of the entry.';
comment on column volvra.redacted.erasure is 'The erasure.';
comment on column volvra.redacted.body is 'SHA-256 of the columns that are gone.';

create table volvra.removed (
  what text not null,
  tracked int not null,
  segment int not null,
  v bigint not null,
  erasure bigint,
  purge bigint,
  digest bytea not null,
  primary key (what, tracked, segment, v),
  constraint removed_by_one check (num_nonnulls(erasure, purge) = 1)
);
comment on table volvra.removed is 'Sealed rows that were removed one by one.';
comment on column volvra.removed.what is 'entry, move or gap.';
comment on column volvra.removed.tracked is 'The history.';
comment on column volvra.removed.segment is 'The segment of an entry, else 0.';
comment on column volvra.removed.v is 'Position of the row.';
comment on column volvra.removed.erasure is 'The erasure that removed it.';
comment on column volvra.removed.purge is 'The purge that removed it.';
comment on column volvra.removed.digest is 'The row''s hash.';

create trigger guard_record before update or delete or truncate on volvra.erasure for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.erasure is 'Keeps the ledger from being changed; volvra.verify reports when it is off.';
create trigger guard_record before update or delete or truncate on volvra.redacted for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.redacted is 'Keeps the ledger from being changed; volvra.verify reports when it is off.';
create trigger guard_record before update or delete or truncate on volvra.removed for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.removed is 'Keeps the ledger from being changed; volvra.verify reports when it is off.';

create function volvra.histories_of(p_table text) returns setof annals.tracked
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  known oid;
  parts text[];
begin
  begin
    known := to_regclass(p_table);
    parts := parse_ident(p_table);
  exception when others then -- a malformed name
    known := null;
  end;
  if known is not null then
    select array[n.nspname, c.relname] into parts from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = known;
  end if;
  -- Also those of tables of that name which were dropped: their subjects are erased as well.
  return query select t.* from annals.tracked t
    where t.relation = known or cardinality(parts) = 2 and (t.schema_name, t.table_name) = (parts[1], parts[2]) and not exists (select from pg_class c where c.oid = t.relation)
    order by t.id;
  if not found then
    perform volvra.refuse('VO003', format('%s has no history', coalesce(p_table, 'null')), 'Name the table as in SQL, with its schema.', jsonb_build_object('table', p_table));
  end if;
end $$;
comment on function volvra.histories_of is 'Histories of a table, those included that have ended; an error when it has none.';

create function volvra.subject_key(p_tracked int, p_key jsonb) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' as $$
declare
  t annals.tracked;
  names text[];
  unknown text;
  values jsonb := p_key;
  k text[];
  value text;
begin
  -- An array in the order of the key, or an object by column name: with every column of the key, and no other.
  select * into t from annals.tracked x where x.id = p_tracked;
  names := array(select c.name::text from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = t.id and c.n = u.n order by u.i);
  if jsonb_typeof(p_key) = 'object' then
    select string_agg(quote_ident(o), ', ') into unknown from jsonb_object_keys(p_key) o where o <> all (names);
    if unknown is not null then
      perform volvra.refuse('VO004', format('the key of %I.%I has no column %s', t.schema_name, t.table_name, unknown), format('Its columns are %s.', array_to_string(names, ', ')),
        jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name), 'column', unknown));
    end if;
    select jsonb_agg(p_key->n order by i) into values from unnest(names) with ordinality u (n, i);
  end if;
  if jsonb_typeof(values) is distinct from 'array' or jsonb_array_length(values) <> cardinality(names)
     or exists (select from jsonb_array_elements(values) e where jsonb_typeof(e) not in ('string', 'number', 'boolean')) then
    perform volvra.refuse('VO044', format('that is not a whole key of %I.%I', t.schema_name, t.table_name), format('Give a value for each of %s: none stands for any.', array_to_string(names, ', ')),
      jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name)));
  end if;
  for i in 1 .. cardinality(names) loop
    begin
      execute format('select format(''%%s'', %L::%s)', values->>(i - 1), (select format_type(a.atttypid, a.atttypmod) from annals.segment s join pg_attribute a on a.attrelid = s.relation and a.attname = 'c' || t.key[i]
                                                                 where s.tracked = t.id order by s.number desc limit 1)) into value;
    exception when others then
      perform volvra.refuse('VO005', format('the value of %I is none for the key of %I.%I: %s', names[i], t.schema_name, t.table_name, sqlerrm), 'Write it as PostgreSQL reads it.',
        jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name), 'column', names[i]));
    end;
    k := k || value;
  end loop;
  return k;
end $$;
comment on function volvra.subject_key is 'A key as texts in its order; an error unless it is whole and fits the table.';
