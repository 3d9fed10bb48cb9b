-- What a branch changed: against its base, against main as it is now, against another branch, or, if it is logged, against what it was at a place.
-- The rows to look at are those of its overlay, and those that the other side changed since the base; each is looked up by its key on both sides.
--
-- The base of a row that the branch changed is what a merge compares with: after a merge that is what was merged.

create function gnomon.reads_all(p_table oid) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- Who could take another role has its rights.
  select exists (select from pg_roles r, pg_class c where c.oid = p_table and pg_has_role(session_user, r.oid, 'member') and has_table_privilege(r.oid, p_table, 'select')
    and (not c.relrowsecurity or r.rolsuper or r.rolbypassrls or pg_has_role(r.oid, c.relowner, 'usage') and not c.relforcerowsecurity))
$$;
comment on function gnomon.reads_all is 'Whether the session may read all rows of a table.';

create function gnomon.diffed_tables(p_tables regclass[]) returns int[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass;
begin
  if coalesce(p_tables, '{}') = '{}' then
    return array(select o.tracked from gnomon.diffed_overlays() o where has_table_privilege(o.relation, 'select') and not row_security_active(o.relation));
  end if;
  foreach relation in array p_tables loop
    if not has_table_privilege(relation, 'select') then
      perform gnomon.refuse('42501', format('permission denied for %s on branches', relation), 'It takes SELECT on the table.', jsonb_build_object('table', relation::text));
    end if;
    if row_security_active(relation) then
      perform gnomon.refuse('GN020', format('row-level security of %s restricts the role, and branches show all rows', relation), 'Use a role that may read all of them.', jsonb_build_object('table', relation::text, 'reason', 'row-level security'));
    end if;
  end loop;
  return array(select gnomon.present_history(r) from unnest(p_tables) r);
end $$;
comment on function gnomon.diffed_tables is 'The histories of tables that a diff of branches is asked of; of no tables: of all that the caller may read.';

create function gnomon.diffed_overlays() returns table (tracked int, relation oid)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select o.tracked, t.relation::oid from gnomon.overlays() o join annals.tracked t on t.id = o.tracked join pg_class c on c.oid = t.relation where t.ended_v is null $$;
comment on function gnomon.diffed_overlays is 'Tables that branches may have changed.';

create function gnomon.overlay_image(p_tracked int, p_alias text, p_prefix text, p_key text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('array[%s]', string_agg(coalesce(gnomon.text_of(format('%s.%s', p_alias, x.attname), a.atttypid), 'null'), ', ' order by d.n))
  from gnomon.diff_columns(p_tracked, 'e') d
  join annals.tracked t on t.id = p_tracked cross join lateral (select case when d.n = any (t.key) then p_key else p_prefix end || d.n as attname) x
  left join pg_attribute a on a.attrelid = to_regclass(format('gnomon.o%s', p_tracked)) and a.attname = case when d.n = any (t.key) then 'k' else 'c' end || d.n and not a.attisdropped
$$;
comment on function gnomon.overlay_image is 'SQL for a row: texts in the order of gnomon.diff_columns.';

create function gnomon.branch_diff_query(p_tracked int, p_branch gnomon.branch, p_against text, p_other gnomon.branch, p_past gnomon.place) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  keys text; -- of an overlay, under the alias %1$s
  changed text; -- keys of entries e
  sides text;
  same text; -- that what %1$s.%2$s<n> is is the key q
  base text;
  mine text;
  other text;
  key_texts text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select string_agg(format('%%1$s.k%s', u.n), ', ' order by u.i), string_agg(format('(e.c%s)::%s as k%1$s', u.n, format_type(a.atttypid, a.atttypmod)), ', ' order by u.i),
         string_agg(format('%%1$s.%%2$s%s %s q.k%1$s', u.n, annals.key_operator(t.id, u.i::int)), ' and ' order by u.i), string_agg(gnomon.text_of(format('q.k%s', u.n), a.atttypid), ', ' order by u.i)
    into keys, changed, same, key_texts
    from unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = format('gnomon.o%s', p_tracked)::regclass and a.attname = 'k' || u.n;
  base := format('case when o.branch is not null then case when o.was then %s end else %s end', gnomon.overlay_image(p_tracked, 'o', 'b', 'k'), case when p_against in ('main', 'branch') then format('case when s.c%s is not null then %s end', t.key[1], gnomon.overlay_image(p_tracked, 's', 'c', 'c')) else 'null' end);
  mine := format('case when o.branch is not null then case when o.alive then %s end else %s end', gnomon.overlay_image(p_tracked, 'o', 'c', 'k'), case when p_against in ('main', 'branch') then format('case when s.c%s is not null then %s end', t.key[1], gnomon.overlay_image(p_tracked, 's', 'c', 'c')) else 'null' end);
  changed := case p_against
    when 'main' then format(' union select %s from annals.h%s e where e.epoch = %s and e.v > %s and pg_visible_in_snapshot(e.xid, %L) is not true', changed, p_tracked, p_branch.epoch, p_branch.bound, p_branch.snapshot)
    when 'branch' then format(' union select %s from gnomon.o%s x where x.branch = %s', format(keys, 'x'), p_tracked, p_other.id)
      || case when p_branch.snapshot::text <> p_other.snapshot::text then format(' union select %s from annals.h%s e where e.epoch = %s and e.v > %s and pg_visible_in_snapshot(e.xid, %L) <> pg_visible_in_snapshot(e.xid, %L)', changed, p_tracked, p_branch.epoch, least(p_branch.bound, p_other.bound), p_branch.snapshot, p_other.snapshot) else '' end
    else '' end;
  if p_against in ('main', 'branch') then
    sides := format(' left join gnomon.h%s_rows(0, %s, %L) s on o.branch is null and %s', p_tracked, p_branch.bound, p_branch.snapshot, format(same, 's', 'c'))
      || format(' left join gnomon.h%s_rows(%s, %s, %L) x on %s', p_tracked, coalesce(p_other.id, 0), coalesce(p_other.bound, 9223372036854775806), coalesce(p_other.snapshot, p_branch.snapshot), format(same, 'x', 'c'));
    other := format('case when x.c%s is not null then %s end', t.key[1], gnomon.overlay_image(p_tracked, 'x', 'c', 'c'));
  elsif p_against = 'past' then
    sides := format(' join lateral (select * from gnomon.l%s l where l.branch = %s and %s and l.v > %s and pg_visible_in_snapshot(l.xid, %L) is not true order by l.v limit 1) l on true', p_tracked, p_branch.id, format(same, 'l', 'k'), p_past.bound, p_past.snapshot);
    other := format('case when l.alive then %s end', gnomon.overlay_image(p_tracked, 'l', 'c', 'k'));
  else
    sides := '';
    other := base;
  end if;
  return format($query$
select %L::text as "table", z.key, case when z.other is null then 'insert' when z.mine is null then 'delete' else 'update' end as operation,
  array(select u.n from unnest($1, z.other, z.mine) u (n, a, b) where z.other is null or z.mine is null or u.a is distinct from u.b) as columns, z.base, z.mine, z.other, z.v, z.xid, z.at, z.login
from (select array[%s] as key, %s as base, %s as mine, %s as other, o.v, o.xid, o.at, o.login::text as login, %s
      from (select %s from gnomon.o%s o where o.branch = %s%s) q left join gnomon.o%s o on o.branch = %s and %s%s) z
where z.mine is distinct from z.other
order by %s$query$, t.relation, key_texts, base, mine, other, (select string_agg(format('q.k%s', n), ', ') from unnest(t.key) n), format(keys, 'o'), p_tracked, p_branch.id, changed, p_tracked, p_branch.id, format(same, 'o', 'k'), sides, (select string_agg(format('z.k%s', u.n), ', ' order by u.i) from unnest(t.key) with ordinality u (n, i)));
end $$;
comment on function gnomon.branch_diff_query is 'SQL for what differs in a table between a branch and its base, main, another branch, or its own past. $1 are the columns.';

create function gnomon.branch_diff_rows(p_branch text, p_against text, p_tracked int[])
returns table ("table" text, key text[], operation text, columns text[], base jsonb, branch jsonb, other jsonb, v bigint, transaction text, at timestamptz, login text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
#variable_conflict use_column
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  side text := case when p_against in ('base', 'main') then p_against when p_against like 'branch:%' then 'branch' else 'past' end;
  other gnomon.branch;
  past gnomon.place;
  r record;
  names text[];
begin
  if side = 'branch' then
    other := gnomon.branch_named(substr(p_against, 8));
  elsif side = 'past' then
    past := gnomon.branch_past(b, p_against);
  end if;
  for r in select k.id, k.relation from unnest(p_tracked) u (id) join annals.tracked k on k.id = u.id where k.ended_v is null group by k.id order by k.relation::text loop
    if not gnomon.reads_all(r.relation) then
      perform gnomon.refuse('42501', format('permission denied for %s on branch %L', r.relation, b.name), 'It takes SELECT on the table, for all rows.', jsonb_build_object('table', r.relation::text));
    end if;
    if side in ('main', 'branch') then
      perform gnomon.check_reaches(r.id, r.relation, x) from unnest(array[b, other]) x where x.id is not null;
    end if;
    names := array(select c.name from gnomon.diff_columns(r.id, 'e') c order by c.n);
    return query execute format('select d."table", d.key, d.operation, d.columns, jsonb_object($1, d.base), jsonb_object($1, d.mine), %s, d.v, %L || d.xid, d.at, d.login from (%s) d', case side when 'base' then 'null::jsonb' else 'jsonb_object($1, d.other)' end, b.epoch || ':', gnomon.branch_diff_query(r.id, b, side, other, past)) using names;
  end loop;
end $$;
comment on function gnomon.branch_diff_rows is 'What gnomon.branch_diff returns, of histories.';

create function gnomon.check_reaches(p_tracked int, p_table regclass, p_branch gnomon.branch) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place := gnomon.branch_place(p_branch);
begin
  if gnomon.history_at(p_table, p) <> p_tracked then
    perform gnomon.refuse('GN001', format('the history of %s that branch %L goes back to has ended, and another has begun', p_table, p_branch.name), 'Name the other tables.', jsonb_build_object('table', p_table::text, 'reason', 'tracked anew'));
  end if;
  if not exists (select from gnomon.histories_at(p) h where h.tracked = p_tracked and h.present) then
    perform gnomon.refuse('GN020', format('columns of %s have changed since the base of branch %L', p_table, p_branch.name), 'gnomon.refresh_branch moves the base to the present. A diff against the base can be had without that.', jsonb_build_object('table', p_table::text, 'reason', 'columns', 'branch', p_branch.name));
  end if;
end $$;
comment on function gnomon.check_reaches is 'Refuses to compare a table with a branch whose base its history does not tell with the columns of today.';

create function gnomon.branch_diff(p_branch text, p_against text default 'base', p_tables regclass[] default null)
returns table ("table" text, key text[], operation text, columns text[], base jsonb, branch jsonb, other jsonb, v bigint, transaction text, at timestamptz, login text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select * from gnomon.branch_diff_rows(p_branch, p_against, gnomon.diffed_tables(p_tables))
$$;
comment on function gnomon.branch_diff is 'Rows in which a branch differs from its base, from main as it is now (main), from another branch (branch:name), or, if it is logged, from what it was at a place: with the texts of their values at the base, on the branch and on the other side, and the last change on the branch, where it made one. An operation is what makes a row of the other side one of the branch. Against main, a row that only main changed has the same values at the base and on the branch. Of the tables, or of all that the caller may read. In the order of the tables'' names, then of the keys.';

create function gnomon.branch_diff_counts(p_branch text, p_against text default 'base', p_tables regclass[] default null) returns table ("table" text, inserts bigint, updates bigint, deletes bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select d."table", count(*) filter (where d.operation = 'insert'), count(*) filter (where d.operation = 'update'), count(*) filter (where d.operation = 'delete') from gnomon.branch_diff(p_branch, p_against, p_tables) d group by d."table" order by d."table"
$$;
comment on function gnomon.branch_diff_counts is 'How many rows gnomon.branch_diff returns, by table and operation.';

create function gnomon.branch_step_rows(p_branch text, p_since text, p_tracked int[], p_key text[])
returns table ("table" text, key text[], operation text, columns text[], old jsonb, new jsonb, v bigint, transaction text, at timestamptz, login text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
#variable_conflict use_column
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  past gnomon.place := gnomon.branch_past(b, coalesce(p_since, (gnomon.branch_place(b)).coordinate));
  r record;
  keys text;
  key_texts text;
begin
  for r in select k.* from unnest(p_tracked) u (id) join annals.tracked k on k.id = u.id where k.ended_v is null order by k.relation::text loop
    if not gnomon.reads_all(r.relation) then
      perform gnomon.refuse('42501', format('permission denied for %s on branch %L', r.relation, b.name), 'It takes SELECT on the table, for all rows.', jsonb_build_object('table', r.relation::text));
    end if;
    if p_key is not null then
      perform gnomon.check_key(r.id, p_key);
    end if;
    select string_agg('k' || u.n, ', ' order by u.i), string_agg(gnomon.text_of(format('l.k%s', u.n), a.atttypid), ', ' order by u.i) into keys, key_texts
      from unnest(r.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = format('gnomon.o%s', r.id)::regclass and a.attname = 'k' || u.n;
    return query execute format($query$
select $1, z.key, case when z.old is null then 'insert' when z.new is null then 'delete' else 'update' end,
  array(select u.n from unnest($2, z.old, z.new) u (n, a, b) where z.old is null or z.new is null or u.a is distinct from u.b), jsonb_object($2, z.old), jsonb_object($2, z.new), z.v, $3 || z.xid, z.at, z.login
from (select array[%s] as key, l.v, l.xid, l.at, l.login::text as login, case when l.alive then %s end as old,
        case when l.last then case when o.alive then %s end else l.next end as new
      from (select l.*, lead(l.v) over w is null as last, lead(case when l.alive then %2$s end) over w as next from gnomon.l%4$s l where l.branch = $4%s window w as (partition by %s order by l.v)) l
      left join gnomon.o%4$s o on o.branch = $4 and %7$s) z
where z.old is distinct from z.new and z.v > $5 and pg_visible_in_snapshot(z.xid, $6) is not true
order by z.v$query$, key_texts, gnomon.overlay_image(r.id, 'l', 'c', 'k'), gnomon.overlay_image(r.id, 'o', 'c', 'k'), r.id, coalesce(' and ' || annals.key_is(r.id, p_key, 'l.k%1$s'), ''), keys, annals.key_join(r.id, 'o.k%1$s', 'l.k%1$s'))
      using r.relation::text, array(select c.name::text from gnomon.diff_columns(r.id, 'e') c order by c.n), b.epoch || ':', b.id, past.bound, past.snapshot;
  end loop;
end $$;
comment on function gnomon.branch_step_rows is 'What gnomon.branch_steps returns, of histories.';

create function gnomon.branch_steps(p_branch text, p_since text default null, p_tables regclass[] default null, p_key text[] default null)
returns table ("table" text, key text[], operation text, columns text[], old jsonb, new jsonb, v bigint, transaction text, at timestamptz, login text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select * from gnomon.branch_step_rows(p_branch, p_since, gnomon.diffed_tables(p_tables), p_key)
$$;
comment on function gnomon.branch_steps is 'Every change on a logged branch, or those since a place, with the values before and after; of all tables, of some, or of one row by its key. In the order of the tables'' names, then in that in which they happened.';
