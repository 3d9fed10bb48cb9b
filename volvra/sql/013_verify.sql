-- Verification: is what was sealed still there, as it was? Whatever is not must have been erased or purged, by the ledgers of which exactly
-- the rows that they name. Findings tell counts; problems name rows, as far as the marks of volvra.sealed_position tell.

create type volvra.finding as (finding text, problem boolean, seal bigint, what text, tracked int, "table" text, segment int, v bigint, entries bigint, message text);
comment on type volvra.finding is 'What verification found about rows of one table: intact, erased, purged, unsealed; and problems: altered, missing, added, forged, rewritten, guard.';

comment on column volvra.finding.finding is 'Which of those.';
comment on column volvra.finding.problem is 'Something is wrong.';
comment on column volvra.finding.seal is 'The seal; null when none covers it.';
comment on column volvra.finding.what is 'What the rows are, as in volvra.sealed_part; seal for the chain itself.';
comment on column volvra.finding.tracked is 'Their history, 0 for what belongs to none.';
comment on column volvra.finding."table" is 'The table of the history.';
comment on column volvra.finding.segment is 'The segment that holds the entries.';
comment on column volvra.finding.v is 'Position of the row that is wrong; null when it is more than one.';
comment on column volvra.finding.entries is 'Number of rows.';
comment on column volvra.finding.message is 'In words.';

create function volvra.listed_rows(p_relation oid, p_what text, p_column text, p_last volvra.seal, p_only_listed boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Parameters: what, history, segment. The body of a redacted row is gone; its hash is in the ledger. OFFSET 0 makes hashes before rows
  -- are joined and sorted, which are narrow then.
  select format($run$
    r as (select %1$s as v, sha256(%2$s || coalesce(b.body, %3$s)) as h, b.v is not null as redacted,
                 b.v is not null and not (%4$s and %5$s) as bad, %6$s as covered
          from %7$s e left join volvra.redacted b on b.tracked = $2 and b.segment = $3 and b.v = %1$s and $1 = 'entry'
          where %8$s offset 0),
    g as (select m.v, m.digest from volvra.removed m where m.what = $1 and m.tracked = $2 and m.segment = $3)$run$,
    c.v, h.head, h.body, h.blank, case p_what when 'entry' then 'e.op in (''U'', ''D'', ''T'')' else 'true' end,
    volvra.sealed_by(p_last, c.v, 'e.xid'), p_relation::regclass, case when p_what in ('move', 'gap') then 'e.tracked = $2' else 'true' end || case when p_only_listed then format(' and %s in (select l.v from listed l)', c.v) else '' end)
  from volvra.hashing(p_relation, 'b.v is not null') h, (select format('e.%I', p_column)) c (v)
$$;
comment on function volvra.listed_rows is 'SQL of the rows that are there, r, with their hashes, and of those that the ledgers say were removed, g.';

create function volvra.verify_rows(p_what text, p_relation oid, p_tracked int, p_segment int, p_column text, p_last volvra.seal) returns table (seal bigint, part int, broken boolean, intact bigint, erased bigint, unsealed bigint, added bigint[])
language plpgsql stable set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' set lc_monetary = 'C'
  set xmlbinary = 'base64' set quote_all_identifiers = off set jit = off set work_mem = '64MB' as $$
begin
  -- One pass: rows that no seal lists come out as the part null.
  return query execute format($run$
    with listed as (select s.seal, s.number as part, u as v from volvra.sealed_position s, unnest(s.positions) u where s.what = $1 and s.tracked = $2 and s.segment = $3),
    %s,
    parts as (select l.seal, l.part, sha256($4 || string_agg(coalesce(r.h, g.digest), ''::bytea order by l.v) filter (where l.v is not null)) as digest,
                     bool_or(coalesce(r.bad, false) or r.v is not null and g.v is not null) as bad,
                     count(*) filter (where not r.redacted) as intact, count(*) filter (where r.redacted or r.v is null and g.v is not null) as erased,
                     count(*) filter (where not r.covered) as unsealed, (array_agg(r.v order by r.v) filter (where l.v is null and r.covered))[:1000] as added
              from listed l full join r on r.v = l.v left join g on g.v = coalesce(l.v, r.v) group by l.seal, l.part)
    select p.seal, p.number, q.digest is distinct from p.digest or q.bad, coalesce(q.intact, 0), coalesce(q.erased, 0), 0::bigint, null::bigint[]
      from volvra.sealed_part p left join parts q on q.seal = p.seal and q.part = p.number
      where p.what = $1 and p.tracked = $2 and p.segment = $3 and not volvra.is_purged(p)
    union all
    select null, null, null, 0, 0, q.unsealed, q.added from parts q where q.seal is null
    $run$, volvra.listed_rows(p_relation, p_what, p_column, p_last, false))
    using p_what, p_tracked, p_segment, (volvra.hashing(p_relation)).names;
end $$;
comment on function volvra.verify_rows is 'Compares the rows of one table with the parts that cover them.';

create function volvra.is_purged(p volvra.sealed_part) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return p.what = 'entry' and exists (select from volvra.purge u where u.what = 'entry' and u.tracked = p.tracked and u.segment = p.segment and u.through_v > p.last_v);
comment on function volvra.is_purged is 'Whether the ledger of purges says that the entries of a part were removed.';

create function volvra.broken_rows(p_what text, p_relation oid, p_tracked int, p_segment int, p_column text, p_last volvra.seal, p_seals bigint[], p_parts int[])
returns table (seal bigint, part int, v bigint, finding text, message text)
language plpgsql stable set search_path = pg_catalog, pg_temp
  set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex' set timezone = 'UTC' set lc_monetary = 'C'
  set xmlbinary = 'base64' set quote_all_identifiers = off set jit = off set work_mem = '64MB' as $$
begin
  return query execute format($run$
    with listed as materialized (select s.seal, s.number as part, u.v, substring(s.marks from (u.i * 4 - 3)::int for 4) as mark
                    from unnest($4, $5) b (seal, part) join volvra.sealed_position s on s.seal = b.seal and s.number = b.part, unnest(s.positions) with ordinality u (v, i)
                    where s.what = $1 and s.tracked = $2 and s.segment = $3),
    %s
    select l.seal, l.part, l.v, case when r.v is not null and g.v is not null then 'added' when r.v is null and g.v is null then 'missing' else 'altered' end,
           case when r.v is not null and g.v is not null then 'a removed row is there again'
                when r.v is null and g.v is null then 'the row is missing'
                when g.v is not null then 'the row was altered before it was removed'
                when r.bad then 'an erased row holds values'
                when r.redacted then 'the row was altered, before or after it was erased'
                else 'the row was altered' end
    from listed l left join r on r.v = l.v left join g on g.v = l.v
    where r.v is null and g.v is null or r.v is not null and g.v is not null or r.bad or substring(coalesce(r.h, g.digest) for 4) <> l.mark
    order by l.v $run$, volvra.listed_rows(p_relation, p_what, p_column, p_last, true))
    using p_what, p_tracked, p_segment, p_seals, p_parts;
end $$;
comment on function volvra.broken_rows is 'Which rows of parts are not what they were.';

create function volvra.verify_parts() returns table (what text, tracked int, segment int, "table" text, entries bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- What is there and what was sealed: each of the two can lack what the other one has.
  select coalesce(s.what, p.what), coalesce(s.tracked, p.tracked), coalesce(s.segment, p.segment),
         (select coalesce((select c.oid::regclass::text from pg_class c where c.oid = t.relation), format('%I.%I', t.schema_name, t.table_name)) from annals.tracked t where t.id = coalesce(s.tracked, p.tracked)),
         coalesce(p.entries, 0)
  from (select x.what, coalesce(x.tracked, t.id) as tracked, x.segment from volvra.sealed_sources() x left join annals.tracked t on x.tracked is null where x.tracked is not null or t.id is not null) s
  full join (select q.what, q.tracked, q.segment, sum(q.entries)::bigint as entries from volvra.sealed_part q group by 1, 2, 3) p
    on p.what = s.what and p.tracked = s.tracked and p.segment = s.segment
  order by 1, 2, 3
$$;
comment on function volvra.verify_parts is 'What volvra.verify_part can be called for, with how many rows were sealed.';

create function volvra.verify_part(p_what text, p_tracked int, p_segment int) returns setof volvra.finding
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  f volvra.finding;
  source record;
  last volvra.seal;
  x record;
  seals bigint[];
  parts int[];
begin
  -- A purge must not drop the segment from here on. If it just did, its ledger is read below, by later statements.
  begin
    execute (select format('lock table %s in access share mode', annals.segment_name(s.tracked, s.number)) from annals.segment s where p_what = 'entry' and s.tracked = p_tracked and s.number = p_segment);
  exception when undefined_table or null_value_not_allowed then
    null;
  end;
  last := volvra.last_seal();
  if last.number is null then
    return;
  end if;
  f.what := p_what;
  f.tracked := p_tracked;
  f.segment := p_segment;
  select p."table" into f."table" from volvra.verify_parts() p where p.what = p_what and p.tracked = p_tracked and p.segment = p_segment;
  return query select 'purged', false, p.seal, f.what, f.tracked, f."table", f.segment, null::bigint, sum(p.entries)::bigint, 'removed by retention, as the ledger of purges says'
    from volvra.sealed_part p where p.what = p_what and p.tracked = p_tracked and p.segment = p_segment and volvra.is_purged(p) group by p.seal order by p.seal;
  select s.* into source from volvra.sealed_sources() s where s.what = p_what and coalesce(s.tracked, p_tracked) = p_tracked and s.segment = p_segment;
  if not found then
    return query select 'missing', true, p.seal, f.what, f.tracked, f."table", f.segment, null::bigint, sum(p.entries)::bigint, 'the table that held the rows is gone'
      from volvra.sealed_part p where p.what = p_what and p.tracked = p_tracked and p.segment = p_segment and not volvra.is_purged(p) group by p.seal order by p.seal;
    return;
  end if;
  for x in select r.seal, sum(r.intact) filter (where not r.broken)::bigint as intact, sum(r.erased) filter (where not r.broken)::bigint as erased, sum(r.unsealed)::bigint as unsealed,
                  min(r.added) as added, array_agg(r.part) filter (where r.broken) as broken
             from volvra.verify_rows(p_what, source.relation, p_tracked, p_segment, source.v, last) r group by r.seal order by r.seal loop
    f.seal := x.seal;
    f.v := null;
    f.problem := false;
    if x.intact > 0 then
      f.finding := 'intact'; f.entries := x.intact; f.message := 'as sealed';
      return next f;
    end if;
    if x.erased > 0 then
      f.finding := 'erased'; f.entries := x.erased; f.message := 'erased or purged one by one, as the ledgers say';
      return next f;
    end if;
    if x.unsealed > 0 then
      f.finding := 'unsealed'; f.entries := x.unsealed; f.message := 'not sealed yet';
      return next f;
    end if;
    f.problem := true;
    f.finding := 'added'; f.entries := 1; f.message := 'the row was added later: no seal covers it, though its transaction had ended when one was made';
    foreach f.v in array coalesce(x.added, '{}') loop
      return next f;
    end loop;
    seals := seals || array(select x.seal from unnest(x.broken));
    parts := parts || x.broken;
  end loop;
  if parts <> '{}' then
    return query select * from volvra.verify_broken(f, source.relation, source.v, last, seals, parts);
  end if;
end $$;
comment on function volvra.verify_part is 'Verifies one table: counts of what is intact, erased, purged and not sealed yet, in parts without problems, and problems.';

create function volvra.verify_broken(f volvra.finding, p_relation oid, p_column text, p_last volvra.seal, p_seals bigint[], p_parts int[]) returns setof volvra.finding
language sql stable set search_path = pg_catalog, pg_temp as $$
  with b as materialized (select * from volvra.broken_rows(f.what, p_relation, f.tracked, f.segment, p_column, p_last, p_seals, p_parts))
  select b.finding, true, b.seal, f.what, f.tracked, f."table", f.segment, b.v, 1::bigint, b.message from b
  union all
  select 'altered', true, p.seal, f.what, f.tracked, f."table", f.segment, null, p.entries,
         format('rows between positions %s and %s are not what was sealed: columns were renamed, or the list of their positions was changed', p.first_v, p.last_v)
  from unnest(p_seals, p_parts) u (seal, part) join volvra.sealed_part p on p.what = f.what and p.tracked = f.tracked and p.segment = f.segment and p.seal = u.seal and p.number = u.part
  where not exists (select from b where b.seal = u.seal and b.part = u.part)
  order by 3, 8
$$;
comment on function volvra.verify_broken is 'The problems of parts that are not what was sealed, row by row where their marks tell.';

create function volvra.verify_chain(p_number bigint default null, p_hash text default null) returns setof volvra.finding
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  s volvra.seal;
  previous volvra.seal;
  f volvra.finding;
begin
  f.problem := true;
  f.what := 'seal';
  f.finding := 'forged';
  for s in select * from volvra.seal x order by x.number loop
    f.seal := s.number;
    f.message := case
      when s.number <> coalesce(previous.number, 0) + 1 then format('seal %s follows seal %s: what was between them is gone', s.number, coalesce(previous.number, 0))
      when s.hash <> volvra.seal_hash(s, previous.hash) then 'the seal does not have the hash that it must have'
      when s.content <> volvra.seal_content(s.number) then 'the parts of the seal are not those that it was made over'
      when s.entries <> (select coalesce(sum(p.entries), 0) from volvra.sealed_part p where p.seal = s.number) then 'the seal counts other rows than its parts do' end;
    if f.message is not null then
      return next f;
    end if;
    previous := s;
  end loop;
  f.seal := null;
  for f.seal in select distinct p.seal from volvra.sealed_part p where not exists (select from volvra.seal x where x.number = p.seal) loop
    f.message := 'there are parts of a seal that does not exist';
    return next f;
  end loop;
  if p_number is not null and not exists (select from volvra.seal x where x.number = p_number and encode(x.hash, 'hex') = p_hash) then
    f.finding := 'rewritten';
    f.seal := p_number;
    f.message := 'the chain does not contain the head that was kept: seals were removed, or it was rewritten';
    return next f;
  end if;
end $$;
comment on function volvra.verify_chain is 'Problems of the chain of seals itself; with the number and hash of a head that was kept elsewhere, also whether it still contains that.';

create function volvra.verify_ledgers() returns setof volvra.finding
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- The rows that are excused are counted in the ledgers, which are sealed.
  select 'forged', true, null::bigint, n.what, null::int, null::text, null::int, null::bigint, n.entries, format('%s %s is said to have removed %s rows, and excuses %s', n.what, n.id, coalesce(n.ledger, 0), n.entries)
  from (select 'erasure' as what, x.erasure as id, count(*) as entries, (select e.entries + e.moves from volvra.erasure e where e.id = x.erasure) as ledger
          from (select r.erasure from volvra.redacted r union all select m.erasure from volvra.removed m where m.erasure is not null) x group by x.erasure
        union all
        select 'purge', m.purge, count(*), (select u.entries from volvra.purge u where u.id = m.purge) from volvra.removed m where m.purge is not null group by m.purge) n
  where n.ledger is null or n.entries > n.ledger
  union all
  select 'guard', true, null, t.name, null, null, null, null, null, format('trigger guard_record on volvra.%s is missing or disabled', t.name)
  from unnest(array['attempt', 'outcome', 'seal', 'sealed_part', 'erasure', 'redacted', 'removed', 'purge']) t (name)
  where not exists (select from pg_trigger g where g.tgrelid = ('volvra.' || t.name)::regclass and g.tgname = 'guard_record' and g.tgenabled in ('O', 'A') and g.tgfoid = 'volvra.guard_record()'::regprocedure)
$$;
comment on function volvra.verify_ledgers is 'Problems of the ledgers of erasures and purges, and of the triggers that guard what was recorded.';

create function volvra.verify(p_number bigint default null, p_hash text default null) returns setof volvra.finding
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  p record;
begin
  return query select * from volvra.verify_chain(p_number, p_hash);
  return query select * from volvra.verify_ledgers();
  for p in select * from volvra.verify_parts() loop
    return query select * from volvra.verify_part(p.what, p.tracked, p.segment);
  end loop;
end $$;
comment on function volvra.verify is 'Verifies everything that was sealed: counts by seal and table, and problems, with their rows. Give it the number and hash of a head that was kept elsewhere.';

revoke all on function volvra.verify_rows, volvra.broken_rows, volvra.verify_broken, volvra.verify_part, volvra.verify_parts, volvra.verify_chain, volvra.verify_ledgers, volvra.verify from public;
