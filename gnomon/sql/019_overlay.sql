-- Overlays: for each tracked table a table gnomon.o<history> with the rows that branches changed, as they are on the branch (c<n>), as they were at
-- its base (b<n>), and on its parent when it was made from another branch (f<n>; in the columns took, by their
-- numbers or 0 for whether the row is there, it differs from that only because a later base does, as long as it is as that base). k<n> are the columns of the key. Of logged branches, gnomon.l<history>
-- holds what each change replaced; of others, what those of merges did, and what these left (op m).
--
-- The rows of a branch are read through a view like those of the past, with the overlay as one more part of the union.

create view gnomon.here as
  select b.id, b.bound, b.snapshot from gnomon.branch b where b.id = nullif(current_setting('gnomon.branch', true), '')::int;
comment on view gnomon.here is 'The branch that is in use.';
comment on column gnomon.here.id is 'Its number.';
comment on column gnomon.here.bound is 'The bound of its base.';
comment on column gnomon.here.snapshot is 'The snapshot of its base.';

create view gnomon.usable as
  select b.id, b.bound, b.snapshot from gnomon.branch b
  where b.id = nullif(current_setting('gnomon.branch', true), '')::int
    and not exists (select from gnomon.confined c where b.name <> all (c.names) and not exists (select from unnest(c.prefixes) x (prefix) where starts_with(b.name, x.prefix)));
comment on view gnomon.usable is 'The branch that is in use, if the session may use it.';
comment on column gnomon.usable.id is 'Its number.';
comment on column gnomon.usable.bound is 'The bound of its base.';
comment on column gnomon.usable.snapshot is 'The snapshot of its base.';

create function gnomon.refuse_branch(p_tracked int) returns boolean
language plpgsql stable parallel restricted set search_path = pg_catalog, pg_temp as $$
declare
  t record := gnomon.tracked_row(p_tracked);
  name text := nullif(current_setting('gnomon.branch', true), '');
  b gnomon.branch;
begin
  if name is null then
    perform gnomon.refuse('GN019', format('%s is read as it is on a branch, but none is in use', t.relation), 'Choose one with gnomon.use.', jsonb_build_object('table', t.relation::text));
  end if;
  b := gnomon.branch_of(name::int);
  if b.id is null then
    perform gnomon.refuse('GN016', 'the branch in use is not there any more', 'gnomon.branches() lists those that there are.');
  end if;
  if not has_table_privilege(t.relation, 'select') then
    perform gnomon.refuse('42501', format('permission denied for %s on branch %L', t.relation, b.name), 'It takes SELECT on the table.', jsonb_build_object('table', t.relation::text));
  end if;
  if row_security_active(t.relation) then
    perform gnomon.refuse('GN020', format('row-level security of %s restricts the role, and branches show all rows', t.relation), 'Use a role that may read all of them.', jsonb_build_object('table', t.relation::text, 'reason', 'row-level security'));
  end if;
  if gnomon.history_at(t.relation, gnomon.branch_place(b)) <> p_tracked then
    perform gnomon.refuse('GN001', format('the history of %s that branch %L goes back to has ended, and another has begun', t.relation, b.name), 'What the branch changed of it is lost to it. Make another branch, or reset this one to a later place.', jsonb_build_object('table', t.relation::text, 'reason', 'tracked anew'));
  end if;
  if not exists (select from gnomon.histories_at(gnomon.branch_place(b)) h where h.tracked = p_tracked and h.present) then
    perform gnomon.refuse('GN020', format('columns of %s have changed since the base of branch %L', t.relation, b.name), 'gnomon.refresh_branch moves the base to the present; what the branch changed stays. It can also be merged.', jsonb_build_object('table', t.relation::text, 'reason', 'columns', 'branch', b.name));
  end if;
  if gnomon.is_behind(p_tracked) then
    perform gnomon.refuse('GN008', format('%s was changed, and its history has not followed', t.relation), format('Call gnomon.sync(%L).', t.relation), jsonb_build_object('table', t.relation::text));
  end if;
  perform gnomon.refuse('GN008', format('the history of %s has changed since branch %L was put to use', t.relation, b.name), 'Call gnomon.use again. In a REPEATABLE READ transaction that takes another transaction.', jsonb_build_object('table', t.relation::text));
  return false;
end $$;
comment on function gnomon.refuse_branch is 'Says why a table cannot be read on the branch in use.';

create function gnomon.branch_place(p_branch gnomon.branch) returns gnomon.place
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  e record := gnomon.epoch();
begin
  if p_branch.epoch <> e.number then
    perform gnomon.refuse('AN009', format('the base of branch %L belongs to another epoch: since then the database was restored', p_branch.name), 'What it changed can be merged; gnomon.refresh_branch gives it another base.', jsonb_build_object('branch', p_branch.name));
  end if;
  -- It outlasts a crash and a promotion, as a tag does.
  p.snapshot := p_branch.snapshot;
  p.coordinate := format('%s/%s/%s', e.marker, p_branch.snapshot, split_part(p_branch.coordinate, '/', 3) || '/' || split_part(p_branch.coordinate, '/', 4));
  p.bound := p_branch.bound;
  p.epoch := p_branch.epoch;
  return p;
end $$;
comment on function gnomon.branch_place is 'The base of a branch.';

create function gnomon.overlay_columns(p_tracked int) returns setof gnomon.past_column
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select c.* from gnomon.shapes(p_tracked) s cross join lateral gnomon.past_columns(p_tracked, s.number) c where s.present;
end $$;
comment on function gnomon.overlay_columns is 'The columns of a table that branches have: those that history stores of it now.';

create function gnomon.spread(p_table text, p_columns text, p_values text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('alter table %s set (fillfactor = 10, vacuum_truncate = false)', p_table);
  execute format('insert into %s (%s) select %s from generate_series(1, 100)', p_table, p_columns, p_values);
  execute format('delete from %s', p_table);
  execute format('alter table %s reset (fillfactor)', p_table);
end $$;
comment on function gnomon.spread is 'Gives a new table some empty pages. Of a table with none, ANALYZE says that it is empty, and plans made then read all of it for each row, also when it has become large.';

create function gnomon.unique_mark(p_branch text, p_index oid) returns text
language sql immutable set search_path = pg_catalog, pg_temp
as $$ select format('(%s operator(pg_catalog.+) %s::pg_catalog.int8) is not null', p_branch, p_index) $$;
comment on function gnomon.unique_mark is 'A condition that always holds, and that the index for one unique key has: who asks with it is answered by that index and no other. All of them begin with the branch, and while it has few rows PostgreSQL holds one for as good as another, and keeps the plan.';

create function gnomon.make_overlay(p_tracked int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  change record;
  x record;
  keys text[];
  list text;
  overlay text := format('gnomon.o%s', p_tracked);
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  keys := array(select format('k%s', n) from unnest(t.key) with ordinality u (n, i) order by u.i);
  if to_regclass(overlay) is null then
    select string_agg(format('add %s %s%s', case when k.is_key then 'k' || k.n else p.prefix || k.n end, k.type, k."collate") || case when k.is_key then ' not null' else '' end, ', ' order by p.i, k.n) into list
      from gnomon.overlay_columns(p_tracked) k cross join (values (1, 'c'), (2, 'b'), (3, 'f')) p (i, prefix) where not k.is_key or p.i = 1;
    execute format('create table %s (branch int not null, alive boolean not null, was boolean not null, forked boolean, took int[], v bigint not null default nextval(''annals.v''), xid xid8 not null default pg_current_xact_id(), at timestamptz not null default clock_timestamp(), login name not null default session_user)', overlay);
    perform gnomon.spread(overlay, 'branch, alive, was', '0, false, false');
    execute format('alter table %s %s, add primary key (branch, %s)', overlay, list, array_to_string(keys, ', '));
    execute format('comment on table %s is %L', overlay, format('Rows of %I.%I that branches changed.', t.schema_name, t.table_name));
    select string_agg(format('add %s %s%s', case when k.is_key then 'k' || k.n else 'c' || k.n end, k.type, k."collate") || case when k.is_key then ' not null' else '' end, ', ' order by k.n) into list from gnomon.overlay_columns(p_tracked) k;
    execute format('create table gnomon.l%s (branch int not null, v bigint not null default nextval(''annals.v''), xid xid8 not null default pg_current_xact_id(), at timestamptz not null default clock_timestamp(), login name not null default session_user, op "char" not null, alive boolean not null, own boolean not null)', p_tracked);
    perform gnomon.spread(format('gnomon.l%s', p_tracked), 'branch, op, alive, own', '0, ''u'', false, false');
    execute format('alter table gnomon.l%s %s, add primary key (branch, %s, v)', p_tracked, list, array_to_string(keys, ', '));
    execute format('comment on table gnomon.l%s is %L', p_tracked, format('What changes of %I.%I on logged branches replaced.', t.schema_name, t.table_name));
  else
    -- Another key: what branches changed has no place in rows that it tells apart.
    if keys <> array(select a.attname::text from pg_index i cross join unnest(i.indkey::int2[]) with ordinality u (attnum, i) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = u.attnum where i.indrelid = overlay::regclass and i.indisprimary and u.i > 1 order by u.i) then
      perform gnomon.drop_merge_view(p_tracked);
      return false;
    end if;
    for change in
      select format('alter table %s add %s%s %s%s', r.relation, p.prefix, k.n, k.type, k."collate") as statement, format('alter table %s alter %s%s type %s%s', r.relation, p.prefix, k.n, k.type, k."collate") as change, a.attnum is null as missing
      from gnomon.overlay_columns(p_tracked) k cross join (values ('c'), ('b'), ('f'), ('k')) p (prefix) cross join (values (overlay), (format('gnomon.l%s', p_tracked))) r (relation)
      left join pg_attribute a on a.attrelid = r.relation::regclass and a.attname = p.prefix || k.n and not a.attisdropped
      where k.is_key = (p.prefix = 'k') and (r.relation = overlay or p.prefix in ('c', 'k')) and (a.attnum is null or format_type(a.atttypid, a.atttypmod) <> k.type)
    loop
      perform gnomon.drop_merge_view(p_tracked);
      execute case when change.missing then change.statement else change.change end;
    end loop;
  end if;
  -- What is unique on main is unique among the rows that a branch changed.
  for x in
    select coalesce(w.name, h.relname) as name, w.definition, h.oid from (
      select format('o%s_u%s', p_tracked, i.indexrelid) as name,
        format('create unique index o%s_u%s on %s (branch, %s)%s where alive and %s', p_tracked, i.indexrelid, overlay, string_agg(case when c.is_key then 'k' else 'c' end || c.n, ', ' order by u.position), case when (to_jsonb(i)->>'indnullsnotdistinct')::boolean then ' nulls not distinct' else '' end, gnomon.unique_mark('branch', i.indexrelid)) as definition
      from pg_index i cross join unnest(i.indkey::int2[]) with ordinality u (attnum, position) left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = u.attnum left join gnomon.overlay_columns(p_tracked) c on c.name = a.attname
      where i.indrelid = t.relation and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null and i.indexrelid <> annals.key_index(t.relation) and u.position <= i.indnkeyatts
      group by i.indexrelid, to_jsonb(i)->>'indnullsnotdistinct' having bool_and(c.n is not null)) w
    full join (select k.oid, k.relname from pg_index i join pg_class k on k.oid = i.indexrelid where i.indrelid = overlay::regclass and k.relname like format('o%s\_u%%', p_tracked)) h on h.relname = w.name
    where w.name is null or h.relname is null
  loop
    if x.definition is null then
      execute format('drop index gnomon.%I', x.name);
    else
      begin
        execute x.definition;
      exception when unique_violation then
        raise warning 'rows that a branch has of % are not unique as %', t.relation, x.name using hint = 'Merging finds them.';
      end;
    end if;
  end loop;
  return true;
end $$;
comment on function gnomon.make_overlay is 'Makes the overlay of a table, or brings it up to date; false when the table has another key now than the rows in it.';

-- Most databases confine nobody, which is quickly told.
create view gnomon.standing as select b.id, b.base from gnomon.branch b where case when exists (select from gnomon.confinement) then not gnomon.is_confined() else true end;
comment on view gnomon.standing is 'What changes when the base of a branch is moved, see gnomon.point_of.';
comment on column gnomon.standing.id is 'The branch.';
comment on column gnomon.standing.base is 'How often its base was moved.';
grant select on gnomon.standing to public;

create function gnomon.write_changed(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  name text := format('gnomon.h%s_%s_changed', p_tracked, (select x.generation from gnomon.history x where x.tracked = p_tracked));
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  execute format('create view %s%s as select * from gnomon.o%s o where case when has_table_privilege(%s::oid, ''select'') and not row_security_active(%4$s::oid) then true else gnomon.refuse_branch(%3$s) end',
    name, case when (select c.relrowsecurity from pg_class c where c.oid = t.relation) then ' with (security_barrier = true)' else '' end, p_tracked, t.relation::oid);
  execute format('comment on view %s is %L', name, format('What branches changed of %s, for those who may read all of the table.', t.relation));
  perform gnomon.mirror_rights(t.relation, name);
end $$;
comment on function gnomon.write_changed is 'Writes the view of changed rows that reads of single rows use.';

create function gnomon.drop_overlay(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.drop_merge_view(p_tracked);
  execute format('drop table if exists gnomon.o%s', p_tracked);
  execute format('drop table if exists gnomon.l%s', p_tracked);
end $$;
comment on function gnomon.drop_overlay is 'Drops what branches changed of a table.';

create function gnomon.overlays() returns table (tracked int, relation text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, format('gnomon.o%s', t.id) from annals.tracked t join gnomon.history h on h.tracked = t.id join pg_class c on c.relnamespace = 'gnomon'::regnamespace and c.relname = format('o%s', t.id) order by t.id
$$;
comment on function gnomon.overlays is 'The overlays that there are.';

create function gnomon.changed_by(p_tracked int) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  if to_regclass(format('gnomon.o%s', p_tracked)) is not null then
    execute format('select b.name from gnomon.branch b where exists (select from gnomon.o%s o where o.branch = b.id and (o.was or o.alive or o.forked)) order by b.id limit 1', p_tracked) into name;
  end if;
  return name;
end $$;
comment on function gnomon.changed_by is 'A branch that has changes of a table; null when none has.';

create function gnomon.overlay_counts(p_branch int default null) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  counts jsonb;
begin
  execute 'select coalesce(jsonb_object_agg(branch, n), ''{}'') from (select branch, sum(n) as n from (' ||
    coalesce((select string_agg(format('select branch, count(*) as n from %s where (was or alive or forked)%s group by branch', o.relation, ' and branch = ' || p_branch), ' union all ') from gnomon.overlays() o), 'select 0 as branch, 0 as n where false') || ') x group by branch) y' into counts;
  return counts;
end $$;
comment on function gnomon.overlay_counts is 'How many rows each branch has changed, by its number.';

create function gnomon.clear_overlays(p_branch int) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  n bigint;
  total bigint := 0;
begin
  for o in select * from gnomon.overlays() loop
    execute format('delete from %s where branch = $1', o.relation) using p_branch;
    get diagnostics n = row_count;
    total := total + n;
    execute format('delete from gnomon.l%s where branch = $1', o.tracked) using p_branch;
  end loop;
  delete from gnomon.read_mark m where m.branch = p_branch;
  return total;
end $$;
comment on function gnomon.clear_overlays is 'Takes back all changes on a branch; returns how many rows they were.';

create function gnomon.copy_overlays(p_from int, p_to int, p_at gnomon.place default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  parts text[] := '{}';
begin
  -- In one statement: all tables as they are at one moment.
  for o in
    select x.relation, x.tracked, string_agg(case when c.is_key then 'k' || c.n else format('c%s, b%1$s, f%1$s', c.n) end, ', ' order by c.n) as target,
      string_agg(case when c.is_key then 'o.k' || c.n else format('o.c%s, o.b%1$s, o.c%1$s', c.n) end, ', ' order by c.n) as list,
      string_agg(case when c.is_key then 'o.k' || c.n else format('case when l.v is null then o.c%1$s else l.c%1$s end, o.b%1$s, case when l.v is null then o.c%1$s else l.c%1$s end', c.n) end, ', ' order by c.n) as past,
      (select string_agg(format('l.k%1$s %2$s o.k%1$s', u.n, annals.key_operator(t.id, u.i::int)), ' and ') from annals.tracked t cross join unnest(t.key) with ordinality u (n, i) where t.id = x.tracked) as same
    from gnomon.overlays() x cross join lateral gnomon.overlay_columns(x.tracked) c group by x.relation, x.tracked
  loop
    if p_at is null then
      parts := parts || format('x%s as (insert into %s (branch, alive, was, forked, %s) select $2, o.alive, o.was, o.alive, %s from %2$s o where o.branch = $1)', o.tracked, o.relation, o.target, o.list);
    else
      -- What its first change since then replaced, if that was the branch's own.
      parts := parts || format('x%1$s as (insert into %2$s (branch, alive, was, forked, %3$s) select $2, coalesce(l.alive, o.alive), o.was, coalesce(l.alive, o.alive), %4$s from %2$s o left join lateral (select * from gnomon.l%1$s l where l.branch = $1 and %5$s and l.v > $3 and pg_visible_in_snapshot(l.xid, $4) is not true order by l.v limit 1) l on true where o.branch = $1 and l.own is not false)',
        o.tracked, o.relation, o.target, o.past, o.same);
    end if;
  end loop;
  if parts <> '{}' then
    execute 'with ' || array_to_string(parts, ', ') || ' select' using p_from, p_to, p_at.bound, p_at.snapshot;
  end if;
end $$;
comment on function gnomon.copy_overlays is 'Gives a new branch the changes of its parent, as they are or as they were at a place.';
