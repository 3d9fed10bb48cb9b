-- Merging a branch into main, or into another branch: three-way, column by column, in one transaction. Its rows in main are locked, the whole is
-- decided by one statement for each table, and what was decided is written by one statement for all, so that PostgreSQL checks foreign keys
-- when everything is in place, whatever their order and cycles. All that is done to main is done as the caller, with his rights, and his
-- settings where his triggers run: so functions that do it have no search_path of their own.

create table gnomon.merged (
  id bigint primary key generated always as identity,
  kind text not null,
  branch int,
  branch_name text,
  into_branch int,
  into_name text,
  options jsonb not null,
  status text not null default 'running',
  epoch int not null,
  xid xid8 not null default pg_current_xact_id(),
  first_v bigint not null,
  last_v bigint,
  at timestamptz not null default clock_timestamp(),
  login name not null default session_user,
  inserted bigint not null default 0,
  updated bigint not null default 0,
  deleted bigint not null default 0,
  already bigint not null default 0,
  conflicts bigint not null default 0,
  violations bigint not null default 0,
  report jsonb not null default '{}',
  undoes bigint references gnomon.merged on delete set null,
  undone_by bigint references gnomon.merged on delete set null
);
create index merged_branch on gnomon.merged (branch);
create index merged_undoes on gnomon.merged (undoes) where undoes is not null;
create index merged_undone on gnomon.merged (undone_by) where undone_by is not null;
create index merged_refused on gnomon.merged (at) where status <> 'merged';
comment on table gnomon.merged is 'Merges, and their undoing.';
comment on column gnomon.merged.id is 'Number of the merge.';
comment on column gnomon.merged.kind is 'merge, undo or refresh.';
comment on column gnomon.merged.branch is 'The branch that was merged; of a refresh the one that was brought up to date.';
comment on column gnomon.merged.branch_name is 'Its name then.';
comment on column gnomon.merged.into_branch is 'The branch that it was merged into; null: main.';
comment on column gnomon.merged.into_name is 'Its name then.';
comment on column gnomon.merged.options is 'What was asked for.';
comment on column gnomon.merged.status is 'merged; refused because of conflicts or violations (nothing was written then); or dry run.';
comment on column gnomon.merged.epoch is 'Epoch of the transaction.';
comment on column gnomon.merged.xid is 'The transaction.';
comment on column gnomon.merged.first_v is 'What it wrote has positions from this one on.';
comment on column gnomon.merged.last_v is 'And up to this one.';
comment on column gnomon.merged.at is 'When it began.';
comment on column gnomon.merged.login is 'The role that logged in to do it.';
comment on column gnomon.merged.inserted is 'Rows that it inserted.';
comment on column gnomon.merged.updated is 'Rows that it updated.';
comment on column gnomon.merged.deleted is 'Rows that it deleted.';
comment on column gnomon.merged.already is 'Rows that were already as they were to be.';
comment on column gnomon.merged.conflicts is 'Rows in conflict.';
comment on column gnomon.merged.violations is 'Violations of constraints.';
comment on column gnomon.merged.report is 'The counts by table.';
comment on column gnomon.merged.undoes is 'The merge that it undoes.';
comment on column gnomon.merged.undone_by is 'What undid it.';
comment on index gnomon.merged_branch is 'Finds the merges of a branch.';
comment on index gnomon.merged_undoes is 'Finds what undoes a merge.';
comment on index gnomon.merged_undone is 'Finds what a merge has undone.';
comment on index gnomon.merged_refused is 'Finds merges that wrote nothing, by their age.';

create table gnomon.conflict (
  merge bigint not null references gnomon.merged on delete cascade,
  tracked int not null,
  relation text not null,
  key text[] not null,
  v bigint not null,
  kind text not null,
  columns text[] not null,
  base jsonb,
  branch jsonb,
  main jsonb,
  image text not null,
  choice text,
  "values" jsonb,
  resolved_at timestamptz,
  resolved_by name,
  primary key (merge, tracked, v)
);
comment on table gnomon.conflict is 'Rows that merges could not decide.';
comment on column gnomon.conflict.merge is 'The merge.';
comment on column gnomon.conflict.tracked is 'The history of the table.';
comment on column gnomon.conflict.relation is 'The table.';
comment on column gnomon.conflict.key is 'Key of the row.';
comment on column gnomon.conflict.v is 'Number of the change on the branch, or, of an undo, of what is undone.';
comment on column gnomon.conflict.kind is 'edit/edit, edit/delete, delete/edit, add/add (of the branch first), or column gone.';
comment on column gnomon.conflict.columns is 'Columns that both sides changed.';
comment on column gnomon.conflict.base is 'The row in the base; null: it was not there.';
comment on column gnomon.conflict.branch is 'The row on the branch; null: it is not there.';
comment on column gnomon.conflict.main is 'The row where it was to be merged; null: it is not there.';
comment on column gnomon.conflict.image is 'The same as long as that row is the same.';
comment on column gnomon.conflict.choice is 'How it was resolved: ours (the branch), theirs, or value; null: it was not.';
comment on column gnomon.conflict.values is 'Values to take; null: the row goes.';
comment on column gnomon.conflict.resolved_at is 'When it was resolved.';
comment on column gnomon.conflict.resolved_by is 'The role that logged in to do it.';

create type gnomon.merge_result as (merge bigint, status text, inserted bigint, updated bigint, deleted bigint, already bigint, conflicts bigint, violations bigint, tables jsonb);
comment on type gnomon.merge_result is 'What came of a merge.';
comment on column gnomon.merge_result.merge is 'Its number.';
comment on column gnomon.merge_result.status is 'merged, conflicts or violations (nothing was written), or dry run.';
comment on column gnomon.merge_result.inserted is 'Rows that were inserted, or would be.';
comment on column gnomon.merge_result.updated is 'Rows that were updated.';
comment on column gnomon.merge_result.deleted is 'Rows that were deleted.';
comment on column gnomon.merge_result.already is 'Rows that were already as they were to be.';
comment on column gnomon.merge_result.conflicts is 'Rows in conflict, see gnomon.conflicts.';
comment on column gnomon.merge_result.violations is 'Violations of constraints, see gnomon.violations.';
comment on column gnomon.merge_result.tables is 'The counts by table.';

create function gnomon.refuse_merge(p_tracked int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t record := gnomon.tracked_row(p_tracked);
begin
  if not has_table_privilege(t.relation, 'select') then
    perform gnomon.refuse('42501', format('permission denied for %s', t.relation), 'It takes SELECT on the table.', jsonb_build_object('table', t.relation::text));
  end if;
  perform gnomon.refuse('GN020', format('row-level security of %s restricts the role, and merges see all rows', t.relation), 'Use a role that may read all of them.', jsonb_build_object('table', t.relation::text, 'reason', 'row-level security'));
  return false;
end $$;
comment on function gnomon.refuse_merge is 'Says why the caller may not merge changes of a table.';

create function gnomon.drop_merge_view(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if to_regclass(format('gnomon.h%s_overlay', p_tracked)) is not null then
    execute format('drop view gnomon.h%s_overlay', p_tracked);
  end if;
end $$;
comment on function gnomon.drop_merge_view is 'Drops the view through which merges read what a branch changed.';

create function gnomon.write_merge_view(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  view text := format('gnomon.h%s_overlay', p_tracked);
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  -- It stays as long as it can, since merges look for it while histories are written anew. A restored database has other numbers of tables.
  if to_regclass(view) is not null and strpos(pg_get_viewdef(to_regclass(view)), format('(%s)::oid', t.relation::oid)) = 0 then
    perform gnomon.drop_merge_view(p_tracked);
  end if;
  if to_regclass(view) is null then
    execute format('create view %s with (security_barrier = true) as select o.* from gnomon.o%s o where o.branch = (select b.id from gnomon.branch b where b.id = nullif(current_setting(''gnomon.merging'', true), '''')::int and gnomon.may_use(b.id, b.name)) and (select case when has_table_privilege(%s::oid, ''select'') and not row_security_active(%3$s::oid) then true else gnomon.refuse_merge(%2$s) end)',
    view, p_tracked, t.relation::oid);
    execute format('comment on view %s is %L', view, format('What the branch that is merged changed of %s, for those who may read the table.', t.relation));
  end if;
  perform gnomon.mirror_rights(t.relation, view);
end $$;
comment on function gnomon.write_merge_view is 'Writes the view through which merges read what a branch changed.';

create function gnomon.merge_filter(p_tracked int, p_options jsonb, p_alias text) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  relation regclass := (select t.relation from annals.tracked t where t.id = p_tracked);
  given jsonb;
  condition text;
begin
  select x.value into given from jsonb_each(p_options->'keys') x where to_regclass(x.key) = relation;
  if given is null then
    -- With keys of other tables only, and no tables, this one is not meant.
    return case when p_options ? 'keys' and not p_options ? 'tables' then 'false' end;
  end if;
  select string_agg('(' || annals.key_is(p_tracked, k.key, p_alias || '.k%1$s') || ')', ' or ') into condition
    from jsonb_array_elements(given) e cross join lateral (select case when jsonb_typeof(e.value) = 'array' then array(select jsonb_array_elements_text(e.value)) else array[e.value #>> '{}'] end as key) k
    where cardinality(k.key) = (select cardinality(t.key) from annals.tracked t where t.id = p_tracked) or gnomon.refuse('GN006', format('%s is no key of %s', e.value, relation), 'Give a value for each column of the key.', jsonb_build_object('table', relation::text)) is null;
  return '(' || coalesce(condition, 'false') || ')';
end $$;
comment on function gnomon.merge_filter is 'SQL: a changed row is one that is to be merged. Null: all are.';

create function gnomon.parents_first(p_tracked int[]) returns int[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  sorted int[] := '{}';
  rest int[] := array(select x from unnest(p_tracked) x order by x);
  ready int[];
begin
  while rest <> '{}' loop
    ready := array(select r from unnest(rest) r join annals.tracked t on t.id = r where not exists (
      select from pg_constraint k join annals.tracked p on p.relation = k.confrelid where k.conrelid = t.relation and k.contype = 'f' and p.id = any (rest) and p.id <> r) order by r);
    if ready = '{}' then
      ready := rest[1:1]; -- a cycle
    end if;
    sorted := sorted || ready;
    rest := array(select r from unnest(rest) r where r <> all (ready) order by r);
  end loop;
  return sorted;
end $$;
comment on function gnomon.parents_first is 'Tables in the order in which foreign keys let rows be inserted.';

create function gnomon.check_merge_options(p_kind text, p_options jsonb) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  if jsonb_typeof(p_options) <> 'object' then
    perform gnomon.refuse('GN006', 'options of a merge are an object', 'Such as {"conflicts": "fail"}.');
  end if;
  select k into name from jsonb_object_keys(p_options) k where k not in ('conflicts', 'strategies', 'tables', 'keys', 'dry_run', 'no_stale_reads', 'policy', 'request') limit 1;
  if name is not null then
    perform gnomon.refuse('GN006', format('a merge has no option %L', name), 'It has conflicts (fail, partial, keep), strategies, tables, keys, dry_run and no_stale_reads.');
  end if;
  if coalesce(p_options->>'conflicts', 'fail') not in ('fail', 'partial', 'keep') and p_kind <> 'undo' then
    perform gnomon.refuse('GN006', format('conflicts cannot be dealt with by %L', p_options->>'conflicts'), 'Say fail (nothing is merged), partial (the other rows are), or keep (all but the columns in conflict is).');
  end if;
  for name in select jsonb_array_elements_text(p_options->'tables') union all select jsonb_object_keys(p_options->'keys') union all select k from jsonb_object_keys(p_options->'strategies') k where k <> '*' loop
    perform gnomon.present_history(coalesce(to_regclass(name), gnomon.no_table(name)));
  end loop;
end $$;
comment on function gnomon.check_merge_options is 'Refuses options that a merge does not have.';

-- As the caller, with his search_path.
create function gnomon.named_options(p_options jsonb) returns jsonb
language plpgsql volatile as $$
declare
  path text := current_setting('search_path');
  part text;
  result jsonb := p_options;
begin
  if coalesce(current_setting('gnomon.place', true), '') <> '' then
    -- On a branch, or in the past, names lead to views: the tables are where they lead otherwise.
    perform set_config('search_path', current_setting('gnomon.outside', true), true);
  end if;
  if jsonb_typeof(p_options->'tables') = 'array' then
    result := jsonb_set(result, '{tables}', (select coalesce(jsonb_agg(gnomon.table_named(n) order by i), '[]') from jsonb_array_elements_text(p_options->'tables') with ordinality u (n, i)));
  end if;
  foreach part in array array['keys', 'strategies'] loop
    if jsonb_typeof(p_options->part) = 'object' then
      result := jsonb_set(result, array[part], (select coalesce(jsonb_object_agg(case e.key when '*' then '*' else gnomon.table_named(e.key) end, e.value), '{}') from jsonb_each(p_options->part) e));
    end if;
  end loop;
  perform set_config('search_path', path, true);
  return result;
end $$;
comment on function gnomon.named_options is 'Options of a merge, with the names of tables as search_path finds them written with their schemas.';

create function gnomon.table_named(p_name text) returns text
language plpgsql stable as $$
begin
  return coalesce((select pg_catalog.format('%I.%I', n.nspname, c.relname) from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace where c.oid operator(pg_catalog.=) pg_catalog.to_regclass(p_name)), p_name);
exception when insufficient_privilege then
  return p_name; -- who is confined may not look into the schema
end $$;
comment on function gnomon.table_named is 'Name of a table with its schema, as search_path finds it; what it does not find as it is.';

create function gnomon.no_table(p_name text) returns regclass
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN007', format('there is no table %s', p_name), 'Give its name with its schema.', jsonb_build_object('table', p_name));
  return null;
end $$;
comment on function gnomon.no_table is 'Refuses the name of a table that is not there.';

create function gnomon.begin_merge(p_kind text, p_branch text, p_into text, p_options jsonb, p_undoes bigint default null) returns gnomon.merged
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged;
  b gnomon.branch;
  target gnomon.branch;
  id int;
begin
  perform gnomon.check_merge_options(p_kind, p_options);
  if p_branch is not null then
    b := gnomon.branch_named(p_branch);
  end if;
  if p_into is not null then
    target := gnomon.branch_named(p_into);
    if target.id = b.id then
      perform gnomon.refuse('GN006', format('branch %L cannot be merged into itself', b.name), 'Name another branch, or main by naming none.');
    end if;
  end if;
  -- Who is writing on them ends first. In the order of their numbers, so that two merges that cross don't wait for each other.
  for id in select x from unnest(array[b.id, target.id]) x where x is not null order by x loop
    perform gnomon.lock_branch(id, false);
  end loop;
  -- Meanwhile they may have been protected, renamed, dropped or moved.
  if b.id is not null then
    b := gnomon.branch_of(b.id);
    if b.id is null then
      b := gnomon.branch_named(p_branch);
    end if;
  end if;
  if target.id is not null then
    target := gnomon.branch_of(target.id);
    if target.id is null then
      target := gnomon.branch_named(p_into);
    end if;
    perform gnomon.check_unprotected(target);
  end if;
  if p_kind = 'refresh' then
    perform gnomon.check_unprotected(b);
  end if;
  if b.parent is not null and b.forked_bound is not null then
    perform gnomon.fork_values(b);
  end if;
  insert into gnomon.merged (kind, branch, branch_name, into_branch, into_name, options, epoch, first_v, undoes)
    values (p_kind, b.id, b.name, target.id, target.name, p_options, (gnomon.epoch()).number, (select last_value + 1 from annals.v), p_undoes) returning * into m;
  return m;
end $$;
comment on function gnomon.begin_merge is 'Notes that a merge begins, and waits for who is writing on its branches.';

-- What came with a later base is not the branch's own, and does not go to its parent, which has a base of its own.

create function gnomon.untouched(p_tracked int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('(o.alive = o.was and (not o.alive or pg_catalog.record_image_eq(row(o.branch%s), row(o.branch%s))))', string_agg(', o.c' || c.n, '' order by c.n), string_agg(', o.b' || c.n, '' order by c.n))
  from gnomon.merge_columns(p_tracked) c where c.key_position is null
$$;
comment on function gnomon.untouched is 'SQL: the row o of an overlay is as at the base of its branch.';

create function gnomon.fork_values(p_branch gnomon.branch) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  t annals.tracked;
begin
  -- After a restore nothing tells that place: then the present base stands for it.
  if p_branch.forked_epoch = (gnomon.epoch()).number then
    p.snapshot := p_branch.forked_snapshot;
    p.epoch := p_branch.forked_epoch;
    p.bound := p_branch.forked_bound;
    for t in select k.* from gnomon.overlays() o join annals.tracked k on k.id = o.tracked join gnomon.histories_at(p) h on h.tracked = k.id and h.present where k.ended_v is null loop
      continue when to_regprocedure(format('gnomon.h%s_rows(int, bigint, pg_snapshot)', t.id)) is null or gnomon.is_behind(t.id);
      execute (select format('update gnomon.o%1$s o set forked = x.there%2$s, took = nullif(array_remove(array[case when o.alive = o.was and o.alive <> x.there then 0 end%3$s], null), ''{}'')
          from (select s.*, p.c%4$s is not null as there%5$s from (select %6$s from gnomon.o%1$s s where s.branch = $1 and s.forked is null) s left join gnomon.h%1$s_rows(0, $2, $3) p on %7$s) x where o.branch = $1 and o.forked is null and %8$s',
          t.id, string_agg(format(', f%1$s = x.p%1$s', c.n), '' order by c.n) filter (where c.key_position is null),
          string_agg(format(', case when o.alive and o.was and x.there and %s and not %s then %s end', gnomon.same_image('o.c' || c.n, 'o.b' || c.n, c.quick), gnomon.same_image('o.c' || c.n, 'x.p' || c.n, c.quick), c.n), '' order by c.n) filter (where c.key_position is null),
          t.key[1], string_agg(format(', p.c%1$s as p%1$s', c.n), '' order by c.n) filter (where c.key_position is null), string_agg('s.k' || c.n, ', ' order by c.key_position) filter (where c.key_position is not null),
          annals.key_join(t.id, 'p.c%1$s', 's.k%1$s'), annals.key_join(t.id, 'x.k%1$s', 'o.k%1$s'))
        from gnomon.merge_columns(t.id) c) using p_branch.id, p.bound, p.snapshot;
    end loop;
  end if;
end $$;
comment on function gnomon.fork_values is 'Looks up, for rows that a branch changed after it got a later base, what they were where it was made from its parent.';

create function gnomon.merge_source(p_merge gnomon.merged, p_tracked int, p_keys_only boolean default false) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  -- What the parent had when the branch was made is what a merge into it compares with.
  b gnomon.branch := (select x from gnomon.branch x where x.id = p_merge.branch);
  forked boolean := p_merge.into_branch is not null and b.parent = p_merge.into_branch;
  was text := case when forked then 'coalesce(o.forked, o.was)' else 'o.was' end;
  same text;
  columns text;
  rows text;
begin
  if forked and b.forked_bound is not null then
    same := format('(0 = any (o.took) and %s)', gnomon.untouched(p_tracked));
    was := format('case when %s then o.alive else %s end', same, was);
  end if;
  -- Of a branch of a branch a refresh also looks at rows that it has otherwise than its parent only.
  rows := format('gnomon.h%s_overlay o where (%s or o.alive)%s', p_tracked, case when forked then 'coalesce(o.forked, o.was)' when p_merge.kind = 'refresh' and b.parent is not null then 'true' else 'o.was' end, ' and ' || gnomon.merge_filter(p_tracked, p_merge.options, 'o'));
  if p_keys_only then
    -- By itself, so that rows which are locked don't carry the whole of it along.
    return format('(select %s from %s offset 0)', (select string_agg('o.k' || c.n, ', ' order by c.key_position) from gnomon.merge_columns(p_tracked) c where c.key_position is not null), rows);
  end if;
  select string_agg(case when c.is_key then 'o.k' || c.n
      when same is not null then format('case when o.forked is null then o.b%1$s when %2$s or %1$s = any (o.took) and %3$s then o.c%1$s else o.f%1$s end as b%1$s, o.c%1$s', c.n, same, gnomon.same_image('o.c' || c.n, 'o.b' || c.n, false))
      when forked then format('case when o.forked is null then o.b%1$s else o.f%1$s end as b%1$s, o.c%1$s', c.n) else format('o.b%1$s, o.c%1$s', c.n) end, ', ' order by c.n) into columns
    from (select m.n, m.key_position is not null as is_key from gnomon.merge_columns(p_tracked) m union all select g.n, false from gnomon.gone_columns(p_tracked) g) c;
  return format('(select o.v, o.at, %s as was, o.alive, %s from %s)', was, columns, rows);
end $$;
comment on function gnomon.merge_source is 'SQL: the rows that a branch changed, as gnomon.decide_query takes them.';

create function gnomon.merge_target(p_tracked int, p_source text, p_view text, p_lock boolean) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('(select true as there, %s from %s t where exists (select from %s s where %s)%s)', string_agg(format('%s as %s%s', c.source, case when c.key_position is null then 'm' else 'k' end, c.n), ', ' order by c.n),
    coalesce(p_view, (select annals.source(t.relation) from annals.tracked t where t.id = p_tracked)), p_source, annals.key_join(p_tracked, 't.%2$I', 's.k%1$s'),
    -- All who lock rows in the order of their keys don't wait for each other. What comes back is the last committed version of each.
    case when p_lock then format(' order by %s for no key update of t', (select string_agg(format('t.%I', k.name), ', ' order by k.key_position) from gnomon.merge_columns(p_tracked) k where k.key_position is not null)) else '' end)
  from gnomon.merge_columns(p_tracked) c
$$;
comment on function gnomon.merge_target is 'SQL: the rows that a source is merged into, as gnomon.decide_query takes them.';

create view gnomon.resolution as select c.v, c.tracked, c.choice, c."values", c.image from gnomon.conflict c where c.merge = nullif(current_setting('gnomon.resolving', true), '')::bigint and c.choice is not null
  and exists (select from annals.tracked t where t.id = c.tracked and has_table_privilege(t.relation, 'select'));
comment on view gnomon.resolution is 'Resolved conflicts of the merge that is being finished.';
comment on column gnomon.resolution.v is 'Number of the change.';
comment on column gnomon.resolution.tracked is 'The history.';
comment on column gnomon.resolution.choice is 'How it was resolved.';
comment on column gnomon.resolution.values is 'Values to take.';
comment on column gnomon.resolution.image is 'It holds as long as the row is this.';

create function gnomon.merge_tables(p_merge bigint, p_role name, p_views jsonb default null, p_resolves boolean default false) returns table (tracked int, relation text, query text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  m gnomon.merged;
  t annals.tracked;
  o record;
  found boolean;
  source text;
begin
  select * into m from gnomon.merged x where x.id = p_merge;
  for o in select * from gnomon.overlays() loop
    select * into t from annals.tracked x where x.id = o.tracked;
    execute format('select exists (select from %s o where o.branch = $1 and (o.was or o.alive or o.forked))', o.relation) into found using m.branch;
    continue when not found or m.options ? 'tables' and t.relation is not null and not exists (select from jsonb_array_elements_text(m.options->'tables') n where to_regclass(n) = t.relation) and gnomon.merge_filter(t.id, m.options, 'o') is null;
    continue when gnomon.merge_filter(t.id, m.options, 'o') = 'false';
    if t.ended_v is not null or not exists (select from pg_class c where c.oid = t.relation) then
      perform gnomon.refuse('GN020', format('branch %L changed %I.%I, which is not tracked any more', m.branch_name, t.schema_name, t.table_name), 'Merge the other tables, naming them.', jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name), 'reason', 'not tracked'));
    end if;
    if to_regclass(format('gnomon.h%s_overlay', t.id)) is null then
      perform gnomon.refuse('GN020', format('%s has another key than when branch %L changed it', t.relation, m.branch_name), 'Merge the other tables, naming them.', jsonb_build_object('table', t.relation::text, 'reason', 'key'));
    end if;
    if gnomon.is_behind(t.id) then
      perform gnomon.refuse('GN008', format('%s was changed, and its history has not followed', t.relation), format('Call gnomon.sync(%L).', t.relation), jsonb_build_object('table', t.relation::text));
    end if;
    if m.into_branch is not null and not p_views ? t.relation::oid::text then
      perform gnomon.refuse('GN020', format('branch %L cannot tell %s', m.into_name, t.relation), 'Refresh it first.', jsonb_build_object('table', t.relation::text, 'reason', 'base'));
    end if;
    source := gnomon.merge_source(m, t.id);
    tracked := t.id;
    relation := t.relation::text;
    query := gnomon.decide_query(t.id, source, gnomon.merge_target(t.id, gnomon.merge_source(m, t.id, true), p_views->>t.relation::oid::text, m.into_branch is null and has_any_column_privilege(p_role, t.relation, 'update')),
      m.options->'strategies', coalesce(m.options->>'conflicts' = 'keep', false), case when p_resolves then format('(select * from gnomon.resolution r where r.tracked = %s)', t.id) end, false, true,
      m.into_branch is not null and (select b.parent from gnomon.branch b where b.id = m.branch) is distinct from m.into_branch);
    return next;
  end loop;
end $$;
comment on function gnomon.merge_tables is 'The tables that a merge is about, and for each the statement that decides its rows.';

create function gnomon.merge_statements(p_tables jsonb, p_prefix text, p_views jsonb, p_deletes_first boolean default false) returns setof text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  tables int[] := gnomon.parents_first(array(select (x.value->>'tracked')::int from jsonb_array_elements(p_tables) x));
  parts text[] := '{}';
  r record;
  w record;
  body text;
  s text;
  after text := '';
begin
  for r in
    select p.part, i.n, x.value as stats, i.i, turn from unnest(tables) with ordinality i (n, i) join jsonb_array_elements(p_tables) x on (x.value->>'tracked')::int = i.n
      cross join (values ('delete'), ('update'), ('insert')) p (part) cross join generate_series(0, case when p.part = 'update' then coalesce((x.value->>'turns')::int, 0) else 0 end) turn
    where (x.value->>p.part)::bigint + case when p.part <> 'update' then coalesce((x.value->>'replace')::bigint, 0) else 0 end > 0
    -- In main rows go before others change, and those before others come, so that a unique key finds its place free: foreign keys are looked at in
    -- the end. On a branch they are looked at at once: parents come first, or if unique keys don't let them, rows go first there as well.
    order by case when p_views is null or p_deletes_first then case p.part when 'delete' then 1 when 'update' then 2 else 3 end else case p.part when 'insert' then 1 when 'update' then 2 else 3 end end,
      case when p.part = 'delete' then -i.i else i.i end, turn
  loop
    select coalesce(p_views->>t.relation::oid::text, annals.source(t.relation)) as base, format('pg_temp.%I', p_prefix || r.n) as plan, annals.key_join(t.id, 't.%2$I', 'p.k%1$s') as same into w from annals.tracked t where t.id = r.n;
    for s in select distinct x from jsonb_array_elements_text(case when r.part <> 'insert' then '["{}"]' when (r.stats->>'replace')::bigint > 0 then r.stats->'absent' || '["{}"]' else r.stats->'absent' end) x order by x loop
      body := case r.part
        when 'delete' then format('delete from %s t using %s p where (p.op = ''d'' or p.replaced) and %s', w.base, w.plan, w.same)
        when 'update' then format('update %s t set %s from %s p where p.op = ''u'' and p.turn = %s and not p.replaced and %s', w.base, (select string_agg(format('%I = p.d%s', c.name, c.n), ', ' order by c.n) from gnomon.merge_columns(r.n) c
          where c.n in (select x::int from jsonb_array_elements_text(r.stats->'columns') x)), w.plan, r.turn, w.same)
        else (select format('insert into %s (%s)%s select %s from %s p where (p.op = ''i'' or p.replaced) and coalesce(p.absent, ''{}'') = %L::int[]', regexp_replace(w.base, '^only ', ''), string_agg(quote_ident(c.name), ', ' order by c.n),
            case when p_views is null then ' overriding system value' else '' end, string_agg(format('p.%s%s', case when c.key_position is null then 'd' else 'k' end, c.n), ', ' order by c.n), w.plan, s)
          from gnomon.merge_columns(r.n) c where not c.generated and c.n <> all (s::int[])) end;
      if p_views is null then
        parts := parts || format('w%s as (%s%s returning 1)', cardinality(parts), body, after);
        after := format(' and (select pg_catalog.count(*) from w%s) >= 0', cardinality(parts) - 1);
      else
        return next format('with w as (%s returning 1) select pg_catalog.count(*) from w', body);
      end if;
    end loop;
  end loop;
  if parts <> '{}' then
    return next format('with %s select %s', array_to_string(parts, E',\n'), (select string_agg(format('(select pg_catalog.count(*) from w%s)', i), ' + ') from generate_series(0, cardinality(parts) - 1) i));
  end if;
end $$;
comment on function gnomon.merge_statements is 'SQL that writes what was decided: one statement for main, several for a branch. Each returns how many rows it wrote.';

create function gnomon.note_conflicts(p_merge bigint, p_tracked int, p_rows jsonb) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with noted as (
    insert into gnomon.conflict (merge, tracked, relation, key, v, kind, columns, base, branch, main, image)
    select m.id, p_tracked, t.relation::text, array(select jsonb_array_elements_text(x.value->'key')), (x.value->>'v')::bigint, x.value->>'kind',
           array(select c.name::text from jsonb_array_elements_text(case jsonb_typeof(x.value->'columns') when 'array' then x.value->'columns' else '[]' end) y join annals.tracked_column c on c.tracked = p_tracked and c.n = y::int order by c.n),
           nullif(x.value->'base', 'null'), nullif(x.value->'branch', 'null'), nullif(x.value->'main', 'null'), x.value->>'image'
    from gnomon.merged m, annals.tracked t, jsonb_array_elements(p_rows) x where m.id = p_merge and m.status = 'running' and m.xid = pg_current_xact_id() and t.id = p_tracked returning 1)
  select count(*) from noted
$$;
comment on function gnomon.note_conflicts is 'Notes conflicts of the merge that is running.';

create function gnomon.settle_merge(p_merge bigint, p_tracked int, p_except bigint[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged;
  b gnomon.branch;
  forked boolean;
  prefix text;
  assigned text;
  differs text;
  taken text;
begin
  select * into m from gnomon.merged x where x.id = p_merge and x.kind = 'merge' and x.status = 'running' and x.xid = pg_current_xact_id();
  b := gnomon.branch_of(m.branch);
  forked := m.into_branch is not null;
  if m.id is null or forked and b.parent is distinct from m.into_branch then
    return; -- what was merged into another branch is found to be there already the next time
  end if;
  prefix := case when forked then 'f' else 'b' end;
  -- A merge into main leaves what a merge into the parent compares with. What came with a later base is not merged into the parent.
  select string_agg(format(case when not forked and b.parent is not null then ', f%2$s = case when o.forked is null then o.b%2$s else o.f%2$s end' else '' end
        || case when forked and b.forked_bound is not null then ', f%2$s = case when %2$s = any (o.took) and %3$s then o.f%2$s else o.c%2$s end' else ', %1$s%2$s = o.c%2$s' end, prefix, c.n, gnomon.same_image('o.c' || c.n, 'o.b' || c.n, false)), ''),
      string_agg(format('pg_catalog.record_image_ne(row(o.c%s), row(o.%s%1$s))', c.n, prefix), ' or '),
      string_agg(format(', case when %s = any (o.took) and %s then %1$s end', c.n, gnomon.same_image('o.c' || c.n, 'o.b' || c.n, false)), '') into assigned, differs, taken
    from (select x.n from gnomon.merge_columns(p_tracked) x where x.key_position is null union all select g.n from gnomon.gone_columns(p_tracked) g) c;
  taken := case when b.parent is not null and b.forked_bound is not null then format(', took = nullif(array_remove(array[case when 0 = any (o.took) and %s then 0 end%s], null), ''{}'')', gnomon.untouched(p_tracked), taken) else '' end;
  execute format('update gnomon.o%1$s o set %7$s%2$s = o.alive%3$s%8$s where o.branch = $1 and (o.%2$s is distinct from o.alive%4$s)%5$s%6$s%9$s', p_tracked, case when forked then 'forked' else 'was' end, coalesce(assigned, ''), coalesce(' or ' || differs, ''),
    coalesce(' and ' || gnomon.merge_filter(p_tracked, m.options, 'o'), ''), case when p_except <> '{}' then ' and o.v not in (select unnest($2))' else '' end,
    case when not forked and b.parent is not null then 'forked = coalesce(o.forked, o.was), ' else '' end, taken,
    case when forked and b.forked_bound is not null then format(' and (0 = any (o.took) and %s) is not true', gnomon.untouched(p_tracked)) else '' end) using m.branch, p_except;
end $$;
comment on function gnomon.settle_merge is 'Notes on the branch what was merged, so that it is not merged again and later changes are told apart from it.';

create function gnomon.end_merge(p_merge bigint, p_status text, p_result gnomon.merge_result) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update gnomon.merged m set status = p_status, inserted = p_result.inserted, updated = p_result.updated, deleted = p_result.deleted, already = p_result.already, conflicts = p_result.conflicts,
    violations = p_result.violations, report = coalesce(p_result.tables, '{}'), last_v = (select last_value from annals.v)
    where m.id = p_merge and m.status = 'running' and m.xid = pg_current_xact_id();
  update gnomon.merged m set undone_by = p_merge from gnomon.merged u where u.id = p_merge and m.id = u.undoes and p_status = 'merged';
$$;
comment on function gnomon.end_merge is 'Notes what came of a merge.';

create function gnomon.run_merge(p_merge gnomon.merged, p_resolves bigint default null) returns gnomon.merge_result
language plpgsql volatile set jit = off set work_mem = '64MB' as $$
declare
  prefix text := format('gnomon_merge_%s_', p_merge.id);
  policy text := coalesce(p_merge.options->>'conflicts', 'fail');
  dry boolean := coalesce((p_merge.options->>'dry_run')::boolean, false);
  result gnomon.merge_result;
  tables jsonb;
  views jsonb;
  t record;
  stats jsonb;
  statement text;
  except_v bigint[];
  n bigint;
  written bigint;
  outer_settings text[];
  names text[] := array['gnomon.branch', 'gnomon.place', 'gnomon.snapshot', 'gnomon.bound', 'gnomon.checked', 'gnomon.outside', 'gnomon.merging', 'gnomon.resolving', 'search_path'];
  violations jsonb := '[]';
  waiting jsonb;
  loops text := current_setting('enable_nestloop');
  failed boolean;
  failure text;
  code text;
  constraint_of text;
  table_of text;
  schema_of text;
  column_of text;
begin
  outer_settings := array(select coalesce(current_setting(x, true), '') from unnest(names) with ordinality u (x, i) order by i);
  -- Triggers of main run in the present, also when the session is elsewhere.
  perform gnomon.leave(true);
  perform set_config('gnomon.merging', coalesce(p_merge.branch, p_merge.into_branch, 0)::text, true), set_config('gnomon.resolving', coalesce(p_resolves::text, ''), true);
  if p_merge.into_branch is not null then
    views := (gnomon.open_branch(p_merge.into_name, current_schemas(false), current_setting('search_path'))).tables;
    perform gnomon.use(p_merge.into_name, true);
  end if;
  result.merge := p_merge.id;
  for attempt in 1 .. 10 loop
    tables := '[]';
    result.inserted := 0; result.updated := 0; result.deleted := 0; result.already := 0; result.conflicts := 0; result.violations := 0; result.tables := '{}';
    for t in select * from gnomon.plan_tables(p_merge, views, p_resolves is not null) loop
      -- How many entries a merge wrote PostgreSQL cannot tell, and takes them for one.
      perform set_config('enable_nestloop', 'off', true) where p_merge.kind = 'undo';
      execute format('create temp table %I on commit drop as select q.*, 0 as turn, false as replaced, null::int[] as rooms from (%s) q', prefix || t.tracked, t.query);
      get diagnostics n = row_count;
      perform set_config('enable_nestloop', loops, true) where p_merge.kind = 'undo';
      if n > 200 then
        execute format('analyze pg_temp.%I', prefix || t.tracked);
      end if;
      execute format('select jsonb_build_object(''tracked'', %s, ''relation'', %L::text, ''insert'', count(*) filter (where p.op = ''i''), ''update'', count(*) filter (where p.op = ''u''), ''delete'', count(*) filter (where p.op = ''d''),
          ''already'', count(*) filter (where p.op = ''a'' and p.kind is null), ''conflict'', count(p.kind), ''columns'', (select coalesce(jsonb_agg(distinct n), ''[]'') from (select distinct q.written from pg_temp.%I q where q.op = ''u'') q cross join unnest(q.written) n),
          ''absent'', (select coalesce(jsonb_agg(distinct coalesce(q.absent, ''{}'')::text), ''[]'') from pg_temp.%3$I q where q.op = ''i'')) from pg_temp.%3$I p', t.tracked, t.relation, prefix || t.tracked) into stats;
      tables := tables || stats;
      result.inserted := result.inserted + (stats->>'insert')::bigint;
      result.updated := result.updated + (stats->>'update')::bigint;
      result.deleted := result.deleted + (stats->>'delete')::bigint;
      result.already := result.already + (stats->>'already')::bigint;
      result.conflicts := result.conflicts + (stats->>'conflict')::bigint;
      result.tables := result.tables || jsonb_build_object(t.relation, stats - '{tracked,relation,columns,absent}'::text[]);
    end loop;
    result.status := case when dry then 'dry run' when result.conflicts > 0 and policy = 'fail' then 'conflicts' else 'merged' end;
    failed := false;
    exit when result.status = 'conflicts' or result.inserted + result.updated + result.deleted = 0;
    -- What PostgreSQL would find only when the transaction ends.
    violations := gnomon.find_violations(tables, prefix, views, true);
    if violations <> '[]' then
      violations := gnomon.find_violations(tables, prefix, views, false);
      exit;
    end if;
    -- What takes a unique value that another row still has.
    select x.tables, x.waiting into tables, waiting from gnomon.order_rows(p_merge, tables, prefix, views) x;
    if waiting <> '[]' then
      violations := gnomon.find_violations(tables, prefix, views, false);
      violations := case when violations = '[]' then waiting else violations end;
      exit;
    end if;
    begin
      written := 0;
      perform gnomon.make_rooms(p_merge, tables, prefix) where views is not null;
      for statement in select * from gnomon.merge_statements(tables, prefix, views, attempt % 2 = 0) loop
        execute statement into n;
        written := written + n;
      end loop;
      perform gnomon.close_room(p_merge.id, (x->>'tracked')::int) from jsonb_array_elements(tables) x where x ? 'room';
      -- Those that step aside are written twice.
      written := written - (select coalesce(sum((x->>'replace')::bigint), 0) from jsonb_array_elements(tables) x);
      if written <> result.inserted + result.updated + result.deleted then
        raise exception using errcode = 'GN022', message = format('%s of %s rows were not written: a trigger or row-level security kept them from it', result.inserted + result.updated + result.deleted - written, result.inserted + result.updated + result.deleted),
          hint = 'Nothing was merged.', detail = '{"reason": "not written"}';
      end if;
      if p_merge.kind = 'merge' and p_merge.into_branch is null then
        perform gnomon.check_merge(p_merge.branch, p_merge.options, p_merge.first_v - 1);
      end if;
      if dry then
        -- A code that ends in 000 would stand for all of its class.
        raise exception using errcode = 'GN099';
      end if;
    exception
      when sqlstate 'GN099' then
        null;
      when integrity_constraint_violation then
        failed := true;
        code := sqlstate;
        get stacked diagnostics failure = message_text, constraint_of = constraint_name, table_of = table_name, schema_of = schema_name, column_of = column_name;
    end;
    exit when not failed;
    -- What stands in the way may have come since rows were locked: then it is decided anew, with it.
    if code is not null and attempt = 1 then
      code := null;
    else
      violations := gnomon.find_violations(tables, prefix, views, false);
      exit when violations <> '[]';
      if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = '40001', message = 'could not serialize access due to concurrent changes of rows that are merged';
      end if;
      if attempt > 3 and table_of <> '' and coalesce(nullif(constraint_of, ''), column_of) <> '' then
        -- Such as by what a trigger wrote, or by rows of a table that is not merged.
        violations := jsonb_build_array(jsonb_build_array(case code when '23502' then 'not null' when '23503' then 'foreign key' when '23505' then 'unique' when '23514' then 'check' when '23P01' then 'exclusion' else code end,
          coalesce(nullif(constraint_of, ''), column_of), format('%I.%I', schema_of, table_of), '[]'::jsonb, '[]'::jsonb, jsonb_build_object('message', failure), null));
        exit;
      end if;
      if attempt > 3 then
        raise exception using errcode = coalesce(code, 'GN022'), message = coalesce(failure, 'constraints are violated'), hint = 'What was merged itself violates nothing: it may be a trigger.';
      end if;
    end if;
    for t in select (x.value->>'tracked')::int as tracked from jsonb_array_elements(tables) x loop
      execute format('drop table pg_temp.%I', prefix || t.tracked);
    end loop;
  end loop;
  if violations <> '[]' then
    result.violations := gnomon.note_violations(p_merge.id, violations);
    result.status := case when dry then 'dry run' else 'violations' end;
  end if;
  for t in select (x.value->>'tracked')::int as tracked, (x.value->>'conflict')::bigint as conflicts from jsonb_array_elements(tables) x loop
    if t.conflicts > 0 then
      execute format('select count(gnomon.note_conflicts(%s, %s, y.rows)) from (select jsonb_agg(jsonb_build_object(''v'', x.v, ''key'', x.key, ''kind'', x.kind, ''columns'', x.conflicts, ''base'', x.base, ''branch'', x.ours, ''main'', x.theirs, ''image'', x.image)) as rows
        from (select p.*, row_number() over () as i from pg_temp.%I p where p.kind is not null) x group by x.i / 5000) y', p_merge.id, t.tracked, prefix || t.tracked) into n;
    end if;
    if result.status = 'merged' and p_merge.kind = 'merge' then
      except_v := '{}';
      if t.conflicts > 0 then
        execute format('select array_agg(p.v) from pg_temp.%I p where p.kind is not null', prefix || t.tracked) into except_v;
      end if;
      perform gnomon.settle_merge(p_merge.id, t.tracked, except_v);
    end if;
    execute format('drop table pg_temp.%I', prefix || t.tracked);
  end loop;
  perform gnomon.note_left(p_merge.id) where result.status = 'merged' and p_merge.into_branch is not null;
  perform gnomon.end_merge(p_merge.id, result.status, result);
  perform set_config(x.name, x.value, true) from unnest(names, outer_settings) x (name, value);
  return result;
end $$;
comment on function gnomon.run_merge is 'Decides the rows of a merge, and writes them.';

create function gnomon.plan_tables(p_merge gnomon.merged, p_views jsonb, p_resolves boolean) returns table (tracked int, relation text, query text)
language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_merge.kind = 'undo' then
    return query select * from gnomon.undo_tables(p_merge.id, current_user, p_views);
  else
    return query select * from gnomon.merge_tables(p_merge.id, current_user, p_views, p_resolves);
  end if;
end $$;
comment on function gnomon.plan_tables is 'The tables that a merge or its undoing is about, and the statements that decide their rows.';

create function gnomon.merge(p_branch text, p_into text default null, p_options jsonb default '{}') returns gnomon.merge_result
language plpgsql volatile as $$
declare
  m gnomon.merged := gnomon.begin_merge('merge', p_branch, p_into, gnomon.named_options(p_options));
begin
  if p_into is not null and coalesce((p_options->>'no_stale_reads')::boolean, false) then
    perform gnomon.check_stale(m.branch);
  end if;
  return gnomon.run_merge(m);
end $$;
comment on function gnomon.merge is 'Merges a branch into main, or into another branch (p_into), by what each side changed since their base, column by column. Options: conflicts (fail: nothing is written when there are any; partial: rows in conflict stay on the branch, and the others are merged; keep: all is merged but the columns in conflict, which stay as they are), strategies ({table: {column: strategy, "*": strategy}, "*": strategy}, see gnomon.set_strategy), tables, keys ({table: [key, ...]}), dry_run and no_stale_reads. Where conflicts or violated constraints stand in the way nothing is written, and the result says so: gnomon.conflicts and gnomon.violations list them. What is merged already is not merged again. Into a branch other than the one that it was made from, the strategy sum does not decide: nothing would tell what was added already.';

create function gnomon.merge_of(p_merge bigint) returns gnomon.merged
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged;
begin
  select * into m from gnomon.merged x where x.id = p_merge;
  if not found or m.branch_name is not null and not gnomon.may_use(m.branch, m.branch_name) or m.into_name is not null and not gnomon.may_use(m.into_branch, m.into_name) then
    perform gnomon.refuse('GN024', format('there is no merge %s', coalesce(p_merge::text, 'null')), 'gnomon.merges() lists them.', jsonb_build_object('merge', p_merge));
  end if;
  return m;
end $$;
comment on function gnomon.merge_of is 'The merge of a number; an error when there is none, or none that the session may see.';

create function gnomon.merges(p_branch text default null) returns table (merge bigint, kind text, branch text, "into" text, status text, at timestamptz, login name, transaction text, inserted bigint, updated bigint, deleted bigint, already bigint, conflicts bigint, violations bigint, tables jsonb, undoes bigint, undone_by bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select m.id, m.kind, m.branch_name, m.into_name, m.status, m.at, m.login, m.epoch || ':' || m.xid, m.inserted, m.updated, m.deleted, m.already, m.conflicts, m.violations, m.report, m.undoes, m.undone_by
  from gnomon.merged m where (p_branch is null or m.branch_name = p_branch) and (m.branch_name is null or gnomon.may_use(m.branch, m.branch_name)) and (m.into_name is null or gnomon.may_use(m.into_branch, m.into_name)) order by m.id
$$;
comment on function gnomon.merges is 'Merges, their undoing and refreshes, of a branch or all, the oldest first: also those that were refused, and dry runs.';

create function gnomon.conflicts(p_merge bigint) returns table ("table" text, key text[], kind text, "column" text, base jsonb, branch jsonb, main jsonb, choice text, in_base boolean, on_branch boolean, on_main boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select c.relation, c.key, c.kind, x.name, c.base->x.name, c.branch->x.name, c.main->x.name, c.choice, c.base is not null, c.branch is not null, c.main is not null
  from gnomon.conflict c left join lateral unnest(c.columns) with ordinality x (name, i) on true
  where c.merge = (gnomon.merge_of(p_merge)).id and has_table_privilege(session_user, to_regclass(c.relation), 'select') order by c.relation, c.key, c.v, x.i
$$;
comment on function gnomon.conflicts is 'What a merge could not decide: for each column in conflict its values in the base, on the branch and where it was to be merged, as JSON (null where there is no row), and how it was resolved.';

create function gnomon.merge_rows(p_merge bigint) returns table ("table" text, key text[], operation text, columns text[], old jsonb, new jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  m gnomon.merged := gnomon.merge_of(p_merge);
  t record;
begin
  if m.status <> 'merged' then
    return;
  end if;
  for t in select * from gnomon.wrote(m.id) loop
    return query execute t.query;
  end loop;
end $$;
comment on function gnomon.merge_rows is 'The rows of main, or of a branch, that a merge wrote, as they were before and after it, from history, or from the log of the branch.';

create function gnomon.resolve(p_merge bigint, p_table regclass, p_key text[], p_choice text, p_values jsonb default null) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged := gnomon.merge_of(p_merge);
  n bigint;
begin
  if coalesce(p_choice, '') not in ('ours', 'theirs', 'value') or p_choice <> 'value' and p_values is not null then
    perform gnomon.refuse('GN006', format('a conflict is not resolved by %L', coalesce(p_choice, '')), 'Say ours (the branch), theirs (where it is merged into), or value with the values of columns (null: the row goes).');
  end if;
  perform gnomon.refuse('GN006', format('%s has no column %I that merges decide', p_table, k), 'Key columns and generated ones are not decided.', jsonb_build_object('table', p_table::text, 'column', k))
    from jsonb_object_keys(p_values) k where not exists (select from gnomon.merge_columns(gnomon.present_history(p_table)) c where c.name = k and c.key_position is null);
  if not has_table_privilege(session_user, p_table, 'select') then
    perform gnomon.refuse('42501', format('permission denied for %s', p_table), 'It takes SELECT on the table.', jsonb_build_object('table', p_table::text));
  end if;
  update gnomon.conflict c set choice = p_choice, "values" = p_values, resolved_at = clock_timestamp(), resolved_by = session_user where c.merge = p_merge and c.tracked = gnomon.present_history(p_table) and c.key = p_key;
  get diagnostics n = row_count;
  if n = 0 then
    perform gnomon.refuse('GN006', format('merge %s has no conflict of %s in %s', p_merge, p_key, p_table), 'gnomon.conflicts lists them.', jsonb_build_object('table', p_table::text, 'merge', p_merge));
  end if;
end $$;
comment on function gnomon.resolve is 'Says how a conflict of a refused merge is to be decided: ours, theirs, or value, with values of columns (without any the row goes). That is for the columns in conflict: what one side alone changed is merged beside it. gnomon.finish_merge then merges.';

create function gnomon.carry_resolutions(p_from bigint, p_to bigint) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into gnomon.conflict (merge, tracked, relation, key, v, kind, columns, base, branch, main, image, choice, "values", resolved_at, resolved_by)
  select x.id, c.tracked, c.relation, c.key, c.v, c.kind, c.columns, c.base, c.branch, c.main, c.image, c.choice, c."values", c.resolved_at, c.resolved_by
  from gnomon.conflict c, gnomon.merged x, gnomon.merged y where c.merge = p_from and c.choice is not null and x.id = p_to and x.xid = pg_current_xact_id() and y.id = p_from and y.branch = x.branch on conflict do nothing
$$;
comment on function gnomon.carry_resolutions is 'Gives a merge that was refused again the resolutions that hold.';

create function gnomon.finish_merge(p_merge bigint) returns gnomon.merge_result
language plpgsql volatile as $$
declare
  r gnomon.merge_result;
  m gnomon.merged := gnomon.merge_of(p_merge);
begin
  if m.kind <> 'merge' or m.status <> 'conflicts' and not (m.status = 'merged' and m.conflicts > 0) then
    perform gnomon.refuse('GN006', format('merge %s waits for nothing: %s', m.id, m.status), 'Merge the branch again.', jsonb_build_object('merge', m.id));
  end if;
  r := gnomon.run_merge(gnomon.begin_merge('merge', m.branch_name, m.into_name, m.options), m.id);
  perform gnomon.carry_resolutions(m.id, r.merge) where r.status = 'conflicts';
  return r;
end $$;
comment on function gnomon.finish_merge is 'Merges anew what a merge was about, with its conflicts as they were resolved. A resolution holds as long as the row that it is merged into is what it was; what has become a conflict since is one. Where any is left the result says so, and they are listed under its number.';

create function gnomon.prune_reports(p_keep interval default '30 days') returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  n bigint;
  o record;
begin
  if p_keep is null or p_keep < interval '0' then
    perform gnomon.refuse('GN006', format('reports cannot be kept for %s', coalesce(p_keep::text, 'null')), 'Time to keep is not negative.');
  end if;
  delete from gnomon.merged m where m.status <> 'merged' and m.at < clock_timestamp() - p_keep;
  get diagnostics n = row_count;
  for o in select x.tracked from gnomon.overlays() x loop
    execute format('delete from gnomon.l%s l using gnomon.branch b where b.id = l.branch and not b.logged and l.at < clock_timestamp() - $1', o.tracked) using p_keep;
  end loop;
  -- Of a merge into main what it wrote is told on, by history, and its counts are.
  delete from gnomon.conflict c using gnomon.merged m where m.id = c.merge and m.at < clock_timestamp() - p_keep;
  return n;
end $$;
comment on function gnomon.prune_reports is 'Forgets dry runs and refused merges that are older than this, with their conflicts and violations, which conflicts older merges left, and what merges into branches wrote that are not logged; returns how many merges it forgot. Upkeep does it after 30 days.';
