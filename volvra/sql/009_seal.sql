-- Sealing: a chain of hashes over everything that was recorded. A seal covers what is committed when it is made and was not covered
-- before, whatever its position: a transaction that is open then is covered by a later seal. Rows are hashed one by one, and their hashes
-- in parts of up to 1024, so that verification can name a row and needs no second copy of it.

create table volvra.seal (
  number bigint primary key,
  at timestamptz not null,
  epoch int not null,
  snapshot pg_snapshot not null,
  lower_v bigint not null,
  upper_v bigint not null,
  coordinate text not null,
  login text not null,
  entries bigint not null,
  fingerprint bytea not null,
  content bytea not null,
  hash bytea not null
);
comment on table volvra.seal is 'Seals, each of which holds the hash of the one before.';
comment on column volvra.seal.number is 'Number of the seal, from 1, without gaps.';
comment on column volvra.seal.at is 'When it was made.';
comment on column volvra.seal.epoch is 'Epoch of its snapshot.';
comment on column volvra.seal.snapshot is 'Transactions that it sees are covered, by it or by an earlier one.';
comment on column volvra.seal.lower_v is 'Everything up to this position was finished.';
comment on column volvra.seal.upper_v is 'Nothing beyond this position is covered.';
comment on column volvra.seal.coordinate is 'The coordinate of the database then.';
comment on column volvra.seal.login is 'The session''s role.';
comment on column volvra.seal.entries is 'Number of rows that it covers.';
comment on column volvra.seal.fingerprint is 'Of the installed code, see volvra.fingerprint().';
comment on column volvra.seal.content is 'SHA-256 over the parts of the seal.';
comment on column volvra.seal.hash is 'SHA-256 over the previous seal''s hash and the other columns.';

create table volvra.sealed_part (
  seal bigint not null,
  what text not null,
  tracked int not null,
  segment int not null,
  number int not null,
  first_v bigint not null,
  last_v bigint not null,
  entries bigint not null,
  digest bytea not null,
  primary key (what, tracked, segment, seal, number)
);
comment on table volvra.sealed_part is 'What seals cover: runs of up to 1024 rows of one table.';
comment on column volvra.sealed_part.seal is 'The seal.';
comment on column volvra.sealed_part.what is 'What the rows are: entry, move, gap, context, attempt, outcome, erasure, purge.';
comment on column volvra.sealed_part.tracked is 'Their history, 0 for what belongs to none.';
comment on column volvra.sealed_part.segment is 'The segment that holds the entries, else 0.';
comment on column volvra.sealed_part.number is 'Number of the part within the seal and table.';
comment on column volvra.sealed_part.first_v is 'Lowest position of a row.';
comment on column volvra.sealed_part.last_v is 'Highest position of a row.';
comment on column volvra.sealed_part.entries is 'Number of rows.';
comment on column volvra.sealed_part.digest is 'SHA-256 over the names of the columns and the hashes of the rows, in order of position.';

create table volvra.sealed_position (
  seal bigint not null,
  what text not null,
  tracked int not null,
  segment int not null,
  number int not null,
  positions bigint[] not null,
  marks bytea not null,
  primary key (what, tracked, segment, seal, number)
);
comment on table volvra.sealed_position is 'Which rows a part covers; removed when the rows are purged.';
comment on column volvra.sealed_position.seal is 'The seal.';
comment on column volvra.sealed_position.what is 'As in volvra.sealed_part.';
comment on column volvra.sealed_position.tracked is 'As in volvra.sealed_part.';
comment on column volvra.sealed_position.segment is 'As in volvra.sealed_part.';
comment on column volvra.sealed_position.number is 'As in volvra.sealed_part.';
comment on column volvra.sealed_position.positions is 'Positions of the rows, rising.';
comment on column volvra.sealed_position.marks is 'The first four bytes of each row''s hash: they tell which row is not what it was.';

create trigger guard_record before update or delete or truncate on volvra.seal for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.seal is 'Keeps seals from being changed or deleted; volvra.verify reports when it is off.';
create trigger guard_record before update or delete or truncate on volvra.sealed_part for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.sealed_part is 'Keeps parts of seals from being changed or deleted; volvra.verify reports when it is off.';

create function volvra.read_committed(p_what text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform volvra.refuse('VO043', format('%s in a %s transaction is refused: it must see what others committed since the transaction began', p_what, current_setting('transaction_isolation')),
      'Use READ COMMITTED.');
  end if;
end $$;
comment on function volvra.read_committed is 'Refuses transactions that do not see the latest seals.';

-- What is sealed.

create function volvra.sealed_sources() returns table (what text, relation oid, tracked int, segment int, of text, v name, last_v bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select 'entry', s.relation::oid, s.tracked, s.number, s.tracked::text, 'v'::name, s.last_v from annals.segment s
  union all select 'move', 'annals.move'::regclass, null, 0, 'e.tracked', 'left_v', null
  union all select 'gap', 'annals.gap'::regclass, null, 0, 'e.tracked', 'v', null
  union all select x, ('volvra.' || x)::regclass, 0, 0, '0', 'v', null from unnest(array['attempt', 'outcome', 'erasure', 'purge']) x
  union all select 'context', 'annals.context'::regclass, 0, 0, '0', 'v', null
$$;
comment on function volvra.sealed_sources is 'The tables whose rows are sealed; tracked is null where it is a column.';

create function volvra.value_fields(p_alias text, a pg_attribute) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Large values count by their digest, so that the text of a row stays below 1 GB. A text counts by itself or by its digest, in two fields.
  select case
    when a.atttypid = 'bytea'::regtype then format('sha256(%s)', x)
    when a.atttypid in ('json'::regtype, 'jsonb'::regtype, 'xml'::regtype) then format('sha256(convert_to(%s::text, getdatabaseencoding()))', x)
    when a.atttypid in ('text'::regtype, 'varchar'::regtype) and a.atttypmod not between 0 and 100000
      then format('case when octet_length(%s) <= 1000000 then %s end, case when octet_length(%s) > 1000000 then sha256(convert_to(%s::text, getdatabaseencoding())) end', x, x, x, x)
    else x end
  from (select format('%s.%I', p_alias, a.attname)) f (x)
$$;
comment on function volvra.value_fields is 'A column as it enters the hash of a row.';

create function volvra.row_text(p_fields text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  -- A row has at most 1664 fields.
  select coalesce(string_agg(format('row(%s)::text', fields), ' || ' order by g), '''''')
  from (select (i - 1) / 500 as g, string_agg(f, ', ' order by i) as fields from unnest(p_fields) with ordinality u (f, i) group by 1) x
$$;
comment on function volvra.row_text is 'An expression for the text of several fields.';

create function volvra.hashing(p_relation oid, p_redacted text default 'false', out head text, out body text, out blank text, out names bytea)
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Erasure takes away the columns c<n> that may be null: the body. The head stays, so the hash of a row is made from the head and the
  -- hash of the body.
  select format('convert_to(%s, getdatabaseencoding())', volvra.row_text(array_agg(case when a.attname = 'op' and a.atttypid = '"char"'::regtype then
             case p_redacted when 'false' then 'e.op::text' else format('case when %s then lower(e.op::text) else e.op::text end', p_redacted) end
             else volvra.value_fields('e', a) end order by a.attnum) filter (where not b.body))),
         format('sha256(convert_to(%s, getdatabaseencoding()))', volvra.row_text(array_agg(volvra.value_fields('e', a) order by a.attnum) filter (where b.body))),
         format('(%s)', coalesce(string_agg(format('e.%I is not distinct from null', a.attname), ' and ' order by a.attnum) filter (where b.body), 'true')),
         sha256(convert_to(string_agg(quote_ident(a.attname), ',' order by a.attnum), 'UTF8'))
  from pg_attribute a, lateral (select a.attname ~ '^c[0-9]+$' and not a.attnotnull and p_relation in (select s.relation from annals.segment s) as body) b
  where a.attrelid = p_relation and a.attnum > 0 and not a.attisdropped
$$;
comment on function volvra.hashing is 'SQL that hashes rows e of a table: text of the head, hash of the body, whether the body is gone; and the hash of the columns'' names.';

create function volvra.sealed_by(p_seal volvra.seal, p_v text, p_xid text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  -- Up to lower_v everything was finished, so the transaction id, which may be of another epoch, does not matter.
  select case when p_seal.number is null then 'false'
    else format('(%s <= %s and (%s <= %s or pg_visible_in_snapshot(%s, %L::pg_snapshot)))', p_v, p_seal.upper_v, p_v, p_seal.lower_v, p_xid, p_seal.snapshot) end
$$;
comment on function volvra.sealed_by is 'SQL that tells whether a row is covered by a seal or an earlier one.';

create function volvra.last_seal() returns volvra.seal
language sql stable set search_path = pg_catalog, pg_temp
return (select s from volvra.seal s order by s.number desc limit 1);
comment on function volvra.last_seal is 'The last seal; null when there is none.';

create function volvra.seal_content(p_seal bigint) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
  select sha256(coalesce(string_agg(convert_to(row(p.what, p.tracked, p.segment, p.number, p.first_v, p.last_v, p.entries, p.digest)::text, 'UTF8'), ''::bytea
           order by p.what collate "C", p.tracked, p.segment, p.number), ''))
  from volvra.sealed_part p where p.seal = p_seal
$$;
comment on function volvra.seal_content is 'SHA-256 over the parts of a seal.';
alter function volvra.seal_content set bytea_output = 'hex';

create function volvra.seal_hash(s volvra.seal, p_previous bytea) returns bytea
language sql stable set search_path = pg_catalog, pg_temp set bytea_output = 'hex' set datestyle = 'ISO, YMD' set timezone = 'UTC'
return sha256(coalesce(p_previous, '') || convert_to(row(s.number, s.at, s.epoch, s.snapshot, s.lower_v, s.upper_v, s.coordinate, s.login, s.entries, s.fingerprint, s.content)::text, 'UTF8'));
comment on function volvra.seal_hash is 'Hash of a seal that follows the one with the given hash.';

create function volvra.seal_source(p_seal bigint, p_what text, p_relation oid, p_segment int, p_of text, p_column text, p_previous volvra.seal, p_now volvra.seal) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' set lc_monetary = 'C'
  set xmlbinary = 'base64' set quote_all_identifiers = off set jit = off as $$
declare
  hashing record := volvra.hashing(p_relation);
  v text := format('e.%I', p_column);
  total bigint;
begin
  execute format($run$
    with r as (select %s as tracked, %s as v, sha256(%s || %s) as h from %s e where %s > $1 and %s and not %s),
         n as (select r.*, ((row_number() over (partition by r.tracked order by r.v) - 1) / 1024)::int as part from r),
         c as (select n.tracked, n.part, min(n.v) as first_v, max(n.v) as last_v, count(*) as entries, sha256($2 || string_agg(n.h, ''::bytea order by n.v)) as digest,
                      array_agg(n.v order by n.v) as positions, string_agg(substring(n.h for 4), ''::bytea order by n.v) as marks
               from n group by n.tracked, n.part),
         p as (insert into volvra.sealed_position (seal, what, tracked, segment, number, positions, marks) select $3, $4, c.tracked, $5, c.part, c.positions, c.marks from c),
         s as (insert into volvra.sealed_part (seal, what, tracked, segment, number, first_v, last_v, entries, digest)
                 select $3, $4, c.tracked, $5, c.part, c.first_v, c.last_v, c.entries, c.digest from c)
    select coalesce(sum(c.entries), 0) from c $run$,
    p_of, v, hashing.head, hashing.body, p_relation::regclass, v, volvra.sealed_by(p_now, v, 'e.xid'), volvra.sealed_by(p_previous, v, 'e.xid'))
    using coalesce(p_previous.lower_v, 0), hashing.names, p_seal, p_what, p_segment into total;
  return total;
end $$;
comment on function volvra.seal_source is 'Seals what is new in one table; returns the number of rows.';

create function volvra.seal(out number bigint, out hash text, out at timestamptz, out entries bigint, out reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  previous volvra.seal;
  s volvra.seal;
  source record;
begin
  perform volvra.read_committed('sealing');
  perform pg_advisory_xact_lock(hashtextextended('volvra.seal', 0));
  perform annals.tick();
  previous := volvra.last_seal();
  s.number := coalesce(previous.number, 0) + 1;
  s.epoch := annals.present_epoch();
  s.coordinate := annals.coordinate();
  s.snapshot := split_part(s.coordinate, '/', 2)::pg_snapshot;
  -- Read after the snapshot: so what that sees has no higher position.
  select q.last_value into s.upper_v from annals.v q;
  s.lower_v := annals.lower_bound(s.snapshot);
  if previous.epoch <> s.epoch and s.lower_v = 0 then
    reason := 'a new epoch has begun: seal again when the transactions that are open now have ended';
    return;
  end if;
  s.lower_v := case when previous.number is null then s.lower_v else greatest(s.lower_v, previous.lower_v) end;
  s.entries := 0;
  for source in select x.* from volvra.sealed_sources() x where x.last_v is null or previous.number is null or x.last_v > previous.lower_v loop
    s.entries := s.entries + volvra.seal_source(s.number, source.what, source.relation, source.segment, source.of, source.v, previous, s);
  end loop;
  s.fingerprint := decode(volvra.fingerprint(), 'hex');
  -- A seal of nothing says that what was open when the last one was made has ended, so that retention may go on.
  if s.entries = 0 and s.fingerprint = previous.fingerprint and (previous.lower_v >= previous.upper_v or s.lower_v <= previous.lower_v) then
    number := previous.number;
    hash := encode(previous.hash, 'hex');
    at := previous.at;
    entries := 0;
    reason := 'nothing is new';
    return;
  end if;
  s.at := clock_timestamp();
  s.login := session_user;
  s.content := volvra.seal_content(s.number);
  s.hash := volvra.seal_hash(s, previous.hash);
  insert into volvra.seal select s.*;
  perform volvra.note_code(s.fingerprint);
  number := s.number;
  hash := encode(s.hash, 'hex');
  at := s.at;
  entries := s.entries;
end $$;
comment on function volvra.seal is 'Seals what was committed since the last seal, and returns the seal. The reason says why there is no new one.';

create function volvra.chain_head(out number bigint, out hash text, out at timestamptz, out coordinate text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.number, encode(s.hash, 'hex'), s.at, s.coordinate from volvra.seal s order by s.number desc limit 1
$$;
comment on function volvra.chain_head is 'The last seal. Kept elsewhere, it proves to volvra.verify that the chain was not rewritten.';

revoke all on function volvra.seal, volvra.chain_head, volvra.seal_source from public;
