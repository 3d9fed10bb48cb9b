-- What is installed, as text that stays the same when it is generated anew, dumped and restored, or rotated: a fingerprint of it tells
-- whether somebody changed the code that records.

create function volvra.plain_view(p_view text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  -- A history's view has a branch for each segment: the fingerprint is about how they read, not how many there are. OIDs and numbers of
  -- epochs differ by database.
  select regexp_replace(regexp_replace(v, branch, '#', 'g'), '#(\s*UNION ALL\s*#)*', (select coalesce(string_agg(distinct m[1], ' '), '') from regexp_matches(v, '(' || branch || ')', 'g') m))
  from (select regexp_replace(regexp_replace(regexp_replace(regexp_replace(p_view, '\(?\d+\)?::oid', '?', 'g'), '\mh(\d+)_\d+\M', 'h\1_n', 'g'), '\d+ AS epoch', '? AS epoch', 'g'),
                                '''\{[\d,]*\}''::integer\[\]\) AS reads_all', '?) AS reads_all'),
               'SELECT h\d+?_n\.v,.*?FROM annals\.h\d+?_n') x (v, branch)
$$;
comment on function volvra.plain_view is 'Definition of a view without what segments, epochs and OIDs make of it.';

create function volvra.plain_function(p_definition text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  -- Functions that read single rows hold OIDs, too, and since when columns are there.
  select regexp_replace(regexp_replace(regexp_replace(regexp_replace(p_definition, '\mannals\.h(\d+)_\d+\M', 'annals.h\1_n', 'g'), '\m\d+::oid', '?', 'g'),
    '(volvra\.row_shape\(''[^'']*''::regclass\) = )''[0-9a-f]{32}''', '\1?', 'g'), ' and (pg_visible_in_snapshot\(''\d+'', p\.snapshot\)|''[^'']*'' <= p\.at)', '', 'g')
$$;
comment on function volvra.plain_function is 'Definition of a function without what segments, ages of columns and OIDs make of it.';

create function volvra.code() returns table (object text, digest bytea)
language sql stable security definer set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
  with ours as (select n.oid, n.nspname from pg_namespace n where n.nspname in ('annals', 'volvra'))
  select o, sha256(convert_to(d, 'UTF8')) from (
    select format('function %I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
           concat_ws(' ', volvra.plain_function(pg_get_functiondef(p.oid)), pg_get_userbyid(p.proowner) = pg_get_userbyid(s.nspowner))
      from ours n join pg_proc p on p.pronamespace = n.oid join pg_namespace s on s.oid = n.oid where p.prokind in ('f', 'p')
    union all
    select format('view %I.%I', n.nspname, c.relname), concat_ws(' ', volvra.plain_view(pg_get_viewdef(c.oid)), c.reloptions)
      from ours n join pg_class c on c.relnamespace = n.oid where c.relkind = 'v'
    union all
    select format('trigger %I on %s', g.tgname, g.tgrelid::regclass), concat_ws(' ', pg_get_triggerdef(g.oid), g.tgenabled)
      from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_proc p on p.oid = g.tgfoid
      where not g.tgisinternal and g.tgparentid = 0 and (p.pronamespace in (select n.oid from ours n) or c.relnamespace in (select n.oid from ours n))
    union all
    select format('rule %I on %s', r.rulename, r.ev_class::regclass), concat_ws(' ', pg_get_ruledef(r.oid), r.ev_enabled)
      from pg_rewrite r join pg_class c on c.oid = r.ev_class where c.relnamespace in (select n.oid from ours n) and c.relkind <> 'v'
    union all
    select format('event trigger %I', e.evtname), concat_ws(' ', e.evtevent, e.evttags, e.evtfoid::regprocedure, e.evtenabled)
      from pg_event_trigger e join pg_proc p on p.oid = e.evtfoid where p.pronamespace in (select n.oid from ours n)) x (o, d)
$$;
comment on function volvra.code is 'Digests of all functions, views, triggers and rules of annals and volvra, and of the capture triggers on covered tables.';

create function volvra.fingerprint() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp set bytea_output = 'hex' as $$
  select encode(sha256(convert_to(string_agg(c.object || ' ' || c.digest::text, E'\n' order by c.object collate "C"), 'UTF8')), 'hex') from volvra.code() c
$$;
comment on function volvra.fingerprint is 'SHA-256 over volvra.code().';

create table volvra.sealed_code (fingerprint bytea not null, object text not null, digest bytea not null, primary key (fingerprint, object));
comment on table volvra.sealed_code is 'What was installed when seals were made.';
comment on column volvra.sealed_code.fingerprint is 'Fingerprint of all of it.';
comment on column volvra.sealed_code.object is 'A function, view, trigger or rule.';
comment on column volvra.sealed_code.digest is 'SHA-256 of its definition.';

create function volvra.note_code(p_fingerprint bytea) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into volvra.sealed_code (fingerprint, object, digest)
    select p_fingerprint, c.object, c.digest from volvra.code() c where not exists (select from volvra.sealed_code s where s.fingerprint = p_fingerprint)
$$;
comment on function volvra.note_code is 'Keeps what is installed, so that a change of it can be named.';

create function volvra.changed_code(p_seal bigint default null) returns table (object text, change text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- The list is believed only as far as it fits the fingerprint, which the chain holds.
  with s as (select x.fingerprint from volvra.seal x where p_seal is null or x.number = p_seal order by x.number desc limit 1),
       k as (select c.object, c.digest from volvra.sealed_code c join s on s.fingerprint = c.fingerprint)
  select coalesce(k.object, c.object), case when c.object is null then 'removed' when k.object is null then 'added' else 'changed' end
  from k full join volvra.code() c on c.object = k.object
  where c.digest is distinct from k.digest and exists (select from s)
  union all
  select 'volvra.sealed_code', 'changed' from s
    where (select encode(sha256(convert_to(string_agg(k.object || ' ' || k.digest::text, E'\n' order by k.object collate "C"), 'UTF8')), 'hex') from k) is distinct from encode(s.fingerprint, 'hex')
  order by 1
$$;
comment on function volvra.changed_code is 'How what is installed differs from what was when a seal was made, by default the last one. Covering a table adds objects, uncovering removes some.';
alter function volvra.changed_code set bytea_output = 'hex';

revoke all on function volvra.code, volvra.fingerprint, volvra.note_code, volvra.changed_code from public;
