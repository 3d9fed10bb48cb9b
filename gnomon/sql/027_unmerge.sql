-- Undoing merges, and bringing a branch up to date. Both are merges: of the inverse of what was written, and of what main has changed since.

create function gnomon.stored_image(p_tracked int, p_alias text) returns table (n int, value text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  -- A value that did not change may not be stored.
  return query select c.n, case when c.key_position is null and exists (select from annals.segment s where s.tracked = p_tracked and c.n = any (s.wide))
      then format('case when %1$s = any (%2$s.missing) then %3$s else %2$s.c%1$s end', c.n, p_alias, annals.kept_value(p_tracked, c.n, (select t.relation from annals.tracked t where t.id = p_tracked), p_alias)) else format('%s.c%s', p_alias, c.n) end
    from gnomon.merge_columns(p_tracked) c;
end $$;
comment on function gnomon.stored_image is 'SQL for the values of columns in an entry.';

-- What a merge into a branch wrote is in the log of the branch: what was there before, and of a branch that is not logged otherwise also what was there after it.

create function gnomon.note_left(p_merge bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged := (select x from gnomon.merged x join gnomon.branch b on b.id = x.into_branch and not b.logged where x.id = p_merge and x.status = 'running' and x.xid = pg_current_xact_id());
  t record;
begin
  for t in select x.tracked from gnomon.overlays() x where m.id is not null loop
    execute (select format('insert into gnomon.l%1$s (branch, op, alive, own, %2$s) select $1, ''m'', o.alive, true, %3$s from gnomon.o%1$s o join (select distinct %4$s from gnomon.l%1$s l where l.branch = $1 and l.xid = $2 and l.v >= $3) l on %5$s where o.branch = $1', t.tracked,
        string_agg(case when c.key_position is null then 'c' else 'k' end || c.n, ', ' order by c.n), string_agg(case when c.key_position is null then 'o.c' else 'o.k' end || c.n, ', ' order by c.n),
        string_agg('l.k' || c.n, ', ' order by c.n) filter (where c.key_position is not null), annals.key_join(t.tracked, 'l.k%1$s', 'o.k%1$s'))
      from gnomon.merge_columns(t.tracked) c) using m.into_branch, m.xid, m.first_v;
  end loop;
end $$;
comment on function gnomon.note_left is 'Notes how rows are that a merge into a branch wrote, if the branch is not logged.';

create function gnomon.wrote_on_branch(p_merge bigint, p_row anyelement) returns setof anyelement
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged := gnomon.merge_of(p_merge);
  b gnomon.branch := gnomon.branch_of(m.into_branch);
  t annals.tracked := (select k from annals.tracked k join gnomon.history h on h.tracked = k.id join pg_class c on c.oid = to_regclass(format('gnomon.o%s', k.id)) where c.reltype = pg_typeof(p_row)::oid);
  columns text;
begin
  if t.id is null or b.id is null then
    return;
  end if;
  if not gnomon.reads_all(t.relation) then
    perform gnomon.refuse('42501', format('permission denied for %s', t.relation), 'It takes SELECT on the table, for all rows.', jsonb_build_object('table', t.relation::text));
  end if;
  -- In the place of the branch's row is what was before, and in that of its base what the merge left.
  select string_agg(case a.attname when 'branch' then 'e.branch' when 'alive' then 'e.alive' when 'was' then 'case when n.v is null then coalesce(o.alive, false) else n.alive end' when 'v' then 'e.v' when 'xid' then 'e.xid' when 'at' then 'e.at' when 'login' then 'e.login'
      else coalesce(case left(a.attname, 1) when 'k' then 'e.' || a.attname when 'c' then 'e.' || a.attname when 'b' then format('case when n.v is null then o.c%1$s else n.c%1$s end', c.n) end, 'null::' || format_type(a.atttypid, a.atttypmod)) end, ', ' order by a.attnum) into columns
    from pg_attribute a left join gnomon.merge_columns(t.id) c on a.attname in ('k' || c.n, 'c' || c.n, 'b' || c.n) where a.attrelid = format('gnomon.o%s', t.id)::regclass and a.attnum > 0 and not a.attisdropped;
  return query execute format('select %1$s from (select distinct on (%2$s) e.* from gnomon.l%3$s e where e.branch = $1 and e.xid = $2 and e.v between $3 and $4 and e.op <> ''m'' order by %2$s, e.v) e
      left join lateral (select n.* from gnomon.l%3$s n where n.branch = $1 and %4$s and (n.v > $4 or n.op = ''m'' and n.xid = $2 and n.v >= $3) order by n.v limit 1) n on true
      left join gnomon.o%3$s o on n.v is null and o.branch = $1 and %5$s', columns, (select string_agg('e.k' || n, ', ' order by i) from unnest(t.key) with ordinality u (n, i)), t.id, annals.key_join(t.id, 'n.k%1$s', 'e.k%1$s'), annals.key_join(t.id, 'o.k%1$s', 'e.k%1$s'))
    using b.id, m.xid, m.first_v, m.last_v;
end $$;
comment on function gnomon.wrote_on_branch is 'What a merge wrote on a branch, for those who may read all of the table: rows like those of its overlay (of which any is given, for its type), as they were before, and in the columns of the base as it left them.';

create function gnomon.written_rows(m gnomon.merged, p_tracked int, p_keys_only boolean default false) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  keys text;     -- of e
  place text;    -- order of the entries of a key in one transaction
  before text;
  after text;
  range text := format('e.epoch = %s and e.xid = %L::pg_catalog.xid8 and e.v between %s and %s', m.epoch, m.xid, m.first_v, m.last_v);
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  if m.into_branch is not null then
    return (select format('(select %s from gnomon.wrote_on_branch(%s, null::gnomon.o%s) o)', case when p_keys_only then '' else 'o.v, o.at, o.was, o.alive, ' end
        || string_agg(case when c.key_position is not null then 'o.k' || c.n else format('o.b%1$s, o.c%1$s', c.n) end, ', ' order by c.n), m.id, p_tracked) from gnomon.merge_columns(p_tracked) c where c.key_position is not null or not p_keys_only);
  end if;
  place := case when annals.nests(p_tracked) then '%1$s.start%2$s, case %1$s.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end%2$s, %1$s.v%2$s' else '%1$s.v%2$s' end;
  select string_agg('e.c' || n, ', ' order by i) into keys from unnest(t.key) with ordinality u (n, i);
  if p_keys_only then
    return format('(select %s from annals.h%s e where %s)', (select string_agg(format('e.c%s as k%1$s', n), ', ' order by i) from unnest(t.key) with ordinality u (n, i)), p_tracked, range);
  end if;
  select string_agg(format('%s as c%s', b.value, c.n), ', ' order by c.n), string_agg(format('case when n.v is null then %s else %s end as b%s', replace(c.source, 't.', 'y.'), a.value, c.n), ', ' order by c.n)
    into before, after from gnomon.merge_columns(p_tracked) c join gnomon.stored_image(p_tracked, 'e') b on b.n = c.n join gnomon.stored_image(p_tracked, 'n') a on a.n = c.n where c.key_position is null;
  -- What a row was is in its first entry of the merge; what it became is in the first one since, else in today's row.
  return format('(select e.v, e.at, case when n.v is null then y.tableoid is not null else n.op in (''u'', ''d'', ''t'', ''m'') end as was, e.op in (''u'', ''d'', ''t'', ''m'') as alive, %1$s%2$s
    from (select distinct on (%3$s) e.* from annals.h%4$s e where %5$s order by %3$s, %6$s) e
    left join lateral (select n.* from annals.h%4$s n where %7$s and n.v > %8$s order by n.v limit 1) n on true
    left join %9$s y on n.v is null and %10$s)',
    (select string_agg(format('e.c%s as k%1$s', u), ', ' order by i) from unnest(t.key) with ordinality x (u, i)), coalesce(', ' || before || ', ' || after, ''),
    keys, p_tracked, range, format(place, 'e', ''), annals.key_join(p_tracked, 'n.c%1$s', 'e.c%1$s'), m.last_v, annals.source(t.relation), annals.key_join(p_tracked, 'y.%2$I', 'e.c%1$s'));
end $$;
comment on function gnomon.written_rows is 'SQL: the inverse of what a merge wrote to a table, as gnomon.decide_query takes it.';

create function gnomon.written_tables(m gnomon.merged) returns setof annals.tracked
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  arms text;
  found boolean;
  erased boolean;
begin
  for t in select x.* from annals.tracked x join gnomon.history h on h.tracked = x.id where x.began_v < m.last_v and coalesce(x.ended_v > m.first_v, true) order by x.id loop
    if m.into_branch is null and coalesce(t.pruned_v > m.first_v, false) and m.report ? t.relation::text then
      perform gnomon.refuse('GN002', format('the history of %s, that tells what merge %s wrote, was pruned', t.relation, m.id), 'Tags and branches keep history.', jsonb_build_object('table', t.relation::text, 'merge', m.id));
    end if;
    select string_agg(format('select e.op from %s e where e.v between %s and %s and e.xid = %L', s.relation, m.first_v, m.last_v, m.xid), ' union all ') into arms
      from annals.segment s where s.tracked = t.id and s.epoch = m.epoch and s.first_v <= m.last_v and coalesce(s.last_v >= m.first_v, true);
    if m.into_branch is not null then
      continue when to_regclass(format('gnomon.l%s', t.id)) is null;
      arms := format('select e.op from gnomon.l%s e where e.branch = %s and e.v between %s and %s and e.xid = %L', t.id, m.into_branch, m.first_v, m.last_v, m.xid);
    end if;
    continue when arms is null;
    execute format('select count(*) > 0, coalesce(bool_or(e.op in (''U'', ''D'', ''T'')), false) from (%s) e', arms) into found, erased;
    continue when not found;
    if erased then
      perform gnomon.refuse('GN002', format('values that merge %s replaced in %s were erased', m.id, t.relation), 'What was erased cannot come back.', jsonb_build_object('table', t.relation::text, 'merge', m.id));
    end if;
    if t.ended_v is not null or not exists (select from pg_class c where c.oid = t.relation) then
      perform gnomon.refuse('GN007', format('%I.%I, which merge %s wrote, is not tracked any more', t.schema_name, t.table_name, m.id), 'Undo it for the other tables, naming them.', jsonb_build_object('table', format('%I.%I', t.schema_name, t.table_name), 'merge', m.id));
    end if;
    return next t;
  end loop;
end $$;
comment on function gnomon.written_tables is 'The tracked tables that a merge wrote, those included that triggers and foreign keys of main wrote.';

create function gnomon.wrote(p_merge bigint) returns table (tracked int, relation text, query text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  m gnomon.merged := gnomon.merge_of(p_merge);
  t annals.tracked;
begin
  for t in select * from gnomon.written_tables(m) loop
    tracked := t.id;
    relation := t.relation::text;
    query := format('select * from (select %L::text, array[%s] as key, case when e.alive and e.was then ''update'' when e.was then ''insert'' else ''delete'' end, array_remove(array[%s]::text[], null) as columns, case when e.alive then %s end as old, case when e.was then %s end from %s e where e.was or e.alive) r where r.columns <> ''{}'' order by r.key',
      relation, (select string_agg(format('e.k%s::text', u), ', ' order by i) from unnest(t.key) with ordinality x (u, i)),
      (select coalesce(string_agg(format('case when not e.was or not e.alive or not %s then %L end', gnomon.same_image('e.b' || c.n, 'e.c' || c.n, c.quick), c.name), ', ' order by c.n), '') from gnomon.merge_columns(t.id) c where c.key_position is null),
      gnomon.object_of(t.id, 'e', 'c'), gnomon.object_of(t.id, 'e', 'b'), gnomon.written_rows(m, t.id));
    return next;
  end loop;
end $$;
comment on function gnomon.wrote is 'The tables of main that a merge wrote, and for each a query for the rows as they were before and after it.';

create function gnomon.undo_tables(p_merge bigint, p_role name, p_views jsonb default null) returns table (tracked int, relation text, query text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  u gnomon.merged;
  m gnomon.merged;
  t annals.tracked;
begin
  select * into u from gnomon.merged x where x.id = p_merge;
  select * into m from gnomon.merged x where x.id = u.undoes;
  for t in select * from gnomon.written_tables(m) loop
    continue when u.options ? 'tables' and not exists (select from jsonb_array_elements_text(u.options->'tables') n where to_regclass(n) = t.relation);
    if gnomon.is_behind(t.id) then
      perform gnomon.refuse('GN008', format('%s was changed, and its history has not followed', t.relation), format('Call gnomon.sync(%L).', t.relation), jsonb_build_object('table', t.relation::text));
    end if;
    if not has_table_privilege(p_role, t.relation, 'select') or (select c.relrowsecurity from pg_class c where c.oid = t.relation) and not (select r.rolbypassrls or r.rolsuper or pg_has_role(p_role, c.relowner, 'usage') and not c.relforcerowsecurity from pg_roles r, pg_class c where r.rolname = p_role and c.oid = t.relation) then
      perform gnomon.refuse_merge(t.id);
    end if;
    if m.into_branch is not null and not p_views ? t.relation::oid::text then
      perform gnomon.refuse('GN020', format('branch %L cannot tell %s', m.into_name, t.relation), 'Refresh it first.', jsonb_build_object('table', t.relation::text, 'reason', 'base'));
    end if;
    tracked := t.id;
    relation := t.relation::text;
    -- Ours is what was before the merge: what changed since stays, unless asked otherwise.
    query := gnomon.decide_query(t.id, gnomon.written_rows(m, t.id), gnomon.merge_target(t.id, gnomon.written_rows(m, t.id, true), p_views->>t.relation::oid::text, m.into_branch is null and has_any_column_privilege(p_role, t.relation, 'update')),
      case when u.options->>'conflicts' = 'force' then '{"*": "ours"}'::jsonb else '{"*": "fail"}' end, coalesce(u.options->>'conflicts', 'keep') = 'keep');
    return next;
  end loop;
end $$;
comment on function gnomon.undo_tables is 'The tables that the undo of a merge is about, and for each the statement that decides its rows.';

create function gnomon.undo_merge(p_merge bigint, p_options jsonb default '{}') returns gnomon.merge_result
language plpgsql volatile as $$
begin
  return gnomon.run_merge(gnomon.begin_undo(p_merge, gnomon.named_options(p_options)));
end $$;
comment on function gnomon.undo_merge is 'Takes back what a merge wrote to main or to a branch, and what triggers and foreign keys wrote with it, column by column. What changed since stays as it is and is listed by gnomon.conflicts, unless the option conflicts says fail (then nothing is undone), or force (all is as before the merge). Other options: tables, dry_run. The undo is a merge with a number of its own, and can be undone. The branch that was merged is not changed by it.';

create function gnomon.begin_undo(p_merge bigint, p_options jsonb) returns gnomon.merged
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged;
  b gnomon.branch;
  name text;
begin
  perform gnomon.merge_of(p_merge);
  -- Of two that undo it, one comes too late.
  select * into m from gnomon.merged x where x.id = p_merge for update;
  select k into name from jsonb_object_keys(p_options) k where k not in ('conflicts', 'tables', 'dry_run') limit 1;
  if name is not null or coalesce(p_options->>'conflicts', 'keep') not in ('keep', 'fail', 'force') then
    perform gnomon.refuse('GN006', format('the undo of a merge has no option %s', coalesce(quote_literal(name), 'conflicts ' || quote_literal(p_options->>'conflicts'))), 'It has conflicts (keep, fail or force), tables and dry_run.');
  end if;
  if m.kind not in ('merge', 'undo') or m.status <> 'merged' then
    perform gnomon.refuse('GN006', format('merge %s wrote nothing that can be undone: %s', m.id, case when m.kind = 'refresh' then 'it brought a branch up to date' else m.status end), 'gnomon.merges() lists merges.', jsonb_build_object('merge', m.id));
  end if;
  if exists (select from gnomon.merged u where u.id = m.undone_by and u.undone_by is null) then
    perform gnomon.refuse('GN006', format('merge %s was undone, by %s', m.id, m.undone_by), format('gnomon.undo_merge(%s) takes that back.', m.undone_by), jsonb_build_object('merge', m.id, 'undone_by', m.undone_by));
  end if;
  if m.into_branch is not null then
    b := gnomon.branch_of(m.into_branch);
    if b.id is null then
      perform gnomon.refuse('GN016', format('branch %L, which merge %s went into, is no more', m.into_name, m.id), 'With it went what was merged.', jsonb_build_object('branch', m.into_name, 'merge', m.id));
    end if;
    if m.inserted + m.updated + m.deleted > 0 and not exists (select from gnomon.written_tables(m)) then
      perform gnomon.refuse('GN002', format('what merge %s wrote to branch %L is not kept any more', m.id, b.name), 'A reset takes it back, and upkeep forgets it after 30 days on a branch that is not logged.', jsonb_build_object('branch', b.name, 'merge', m.id));
    end if;
  end if;
  return gnomon.begin_merge('undo', null, b.name, jsonb_build_object('conflicts', 'keep') || p_options, m.id);
end $$;
comment on function gnomon.begin_undo is 'Notes that the undo of a merge begins; an error when there is nothing to be undone.';

-- Bringing a branch up to date: what both changed is decided as a merge decides it, and becomes the branch's own over the new base.

create function gnomon.refresh_tables(p_merge bigint, p_place gnomon.place, p_views jsonb) returns table (tracked int, relation text, query text, settle text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  t record;
  m gnomon.merged;
  source text;
  columns text;
  parent int;
begin
  select * into m from gnomon.merged x where x.id = p_merge;
  parent := (select b.parent from gnomon.branch b where b.id = m.branch);
  for t in select x.tracked, y.relation from gnomon.overlays() x join annals.tracked y on y.id = x.tracked loop
    execute format('select %L::text where exists (select from gnomon.o%s o where o.branch = $1 and (o.was or o.alive or o.forked is not null))', t.relation, t.tracked) into relation using m.branch;
    continue when relation is null;
    if p_views->>t.relation::oid::text is null then
      perform gnomon.history_at(t.relation, p_place);
      perform gnomon.refuse('GN020', format('%s cannot be told at the new base', t.relation), 'Call gnomon.sync for it.', jsonb_build_object('table', t.relation::text, 'reason', 'base'));
    end if;
    source := gnomon.merge_source(m, t.tracked);
    tracked := t.tracked;
    query := gnomon.decide_query(t.tracked, source, gnomon.merge_target(t.tracked, gnomon.merge_source(m, t.tracked, true), p_views->>t.relation::oid::text, false), m.options->'strategies', coalesce(m.options->>'conflicts' = 'keep', false), null, true, true);
    select string_agg(case a.attname when 'branch' then m.branch::text when 'alive' then 'case p.op when ''d'' then false when ''i'' then true when ''u'' then true else p.there end' when 'was' then 'p.there' when 'v' then 'p.v'
        else coalesce(case left(a.attname, 1) when 'k' then 'p.' || a.attname when 'c' then 'case when p.op in (''i'', ''u'') then p.d' || c.n || ' else p.m' || c.n || ' end' when 'b' then 'p.m' || c.n end, 'null') end, ', ' order by a.attnum) into columns
      from pg_attribute a left join gnomon.merge_columns(t.tracked) c on a.attname in ('k' || c.n, 'c' || c.n, 'b' || c.n) where a.attrelid = format('gnomon.o%s', t.tracked)::regclass and a.attnum > 0 and not a.attisdropped;
    -- Of a branch of a branch all rows are looked at: what is as in the new base may still be otherwise than the parent has it.
    settle := format('select gnomon.settle_refresh(%1$s, %2$s, (select coalesce(array_agg(row(%3$s)::gnomon.o%2$s), ''{}''::gnomon.o%2$s[]) from pg_temp.%%1$I p where %4$s), array(select p.v from pg_temp.%%1$I p where not %4$s))', m.id, t.tracked, columns,
      case when parent is not null then 'true' else 'p.op in (''i'', ''u'', ''d'')' end);
    return next;
  end loop;
end $$;
comment on function gnomon.refresh_tables is 'The tables that a branch has changed; for each the statement that decides its rows over a new base, and the one that puts them in place.';

create function gnomon.settle_refresh(p_merge bigint, p_tracked int, p_rows anyarray, p_gone bigint[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  m gnomon.merged;
  parent int;
  names text := '';
  vals text := '';
  taken text;
begin
  select * into m from gnomon.merged x where x.id = p_merge and x.kind = 'refresh' and x.status = 'running' and x.xid = pg_current_xact_id();
  parent := (select b.parent from gnomon.branch b where b.id = m.branch);
  if m.id is null or pg_typeof(p_rows)::oid <> (select c.reltype from pg_class c where c.oid = format('gnomon.o%s', p_tracked)::regclass) and pg_typeof(p_rows)::oid <> (select y.typarray from pg_type y join pg_class c on c.reltype = y.oid where c.oid = format('gnomon.o%s', p_tracked)::regclass) then
    return;
  end if;
  -- What is as in the new base is the branch's own no longer.
  execute format('delete from gnomon.o%s o where o.branch = $1 and o.v = any ($2)', p_tracked) using m.branch, p_gone;
  select string_agg(', ' || case left(a.attname, 1) when 'c' then format('(g.u).c%s', c.n) when 'b' then format('(g.u).b%s', c.n) when 'f' then case when parent is not null then format('case when (g.o).forked is null then (g.o).b%1$s else (g.o).f%1$s end', c.n) else 'null' end end, '' order by a.attnum),
         string_agg(', ' || a.attname, '' order by a.attnum) into vals, names
    from gnomon.merge_columns(p_tracked) c join pg_attribute a on a.attrelid = format('gnomon.o%s', p_tracked)::regclass and a.attname in ('c' || c.n, 'b' || c.n, 'f' || c.n) and not a.attisdropped where c.key_position is null;
  select coalesce(vals, '') || string_agg(format(', (g.o).k%s', c.n), '' order by c.n), coalesce(names, '') || string_agg(', k' || c.n, '' order by c.n) into vals, names from gnomon.merge_columns(p_tracked) c where c.key_position is not null;
  if parent is not null then
    -- What the branch has otherwise than its parent because main has it otherwise now: where it had not changed that itself, or has not got its way.
    taken := (select format('nullif(array_remove(array[case when u.alive <> coalesce(o.forked, o.was) and u.alive = u.was and (o.alive = coalesce(o.forked, o.was) or 0 = any (o.took) and %s) then 0 end%s], null), ''{}'')', gnomon.untouched(p_tracked),
      string_agg(format(', case when u.alive and coalesce(o.forked, o.was) and %1$s and not %2$s and (not o.alive or %3$s or %5$s = any (o.took) and %4$s or not %6$s) then %5$s end', gnomon.same_image('u.c' || c.n, 'u.b' || c.n, false),
        gnomon.same_image('u.c' || c.n, f.value, false), gnomon.same_image('o.c' || c.n, f.value, false), gnomon.same_image('o.c' || c.n, 'o.b' || c.n, false), c.n, gnomon.same_image('u.c' || c.n, 'o.c' || c.n, false)), '' order by c.n))
      from gnomon.merge_columns(p_tracked) c cross join lateral (select format('case when o.forked is null then o.b%1$s else o.f%1$s end', c.n) as value) f where c.key_position is null);
  end if;
  -- All go before any comes, so that unique values can change places.
  execute format('with gone as (delete from gnomon.o%1$s o using unnest($2) u where o.branch = $1 and o.v = u.v returning o, u, %2$s as took)
    insert into gnomon.o%1$s (branch, alive, was, forked, took, at, login%3$s) select $1, (g.u).alive, (g.u).was, %4$s, g.took, (g.o).at, (g.o).login%5$s from gone g order by (g.o).v', p_tracked,
    coalesce(taken, 'null::int[]'), names, case when parent is not null then 'coalesce((g.o).forked, (g.o).was)' else 'null::boolean' end, vals) using m.branch, p_rows;
end $$;
comment on function gnomon.settle_refresh is 'Puts rows of a branch in place over its new base.';

create function gnomon.end_refresh(p_merge bigint, p_coordinate text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  b int := (select m.branch from gnomon.merged m where m.id = p_merge and m.kind = 'refresh' and m.status = 'running' and m.xid = pg_current_xact_id());
  o record;
begin
  -- Of a row that came and went on the branch, or whose end was merged, nothing is left to be told over the new base; what the parent had of it may.
  for o in select x.* from gnomon.overlays() x, gnomon.branch y where y.id = b and y.parent is null loop
    execute format('delete from %s o where o.branch = $1 and not o.alive and not o.was', o.relation) using b;
  end loop;
  perform gnomon.move_base(b, gnomon.place_of(p_coordinate)) where b is not null;
end $$;
comment on function gnomon.end_refresh is 'Gives the branch that is being refreshed its new base.';

create function gnomon.refresh_branch(p_name text, p_to text default 'now', p_options jsonb default '{}') returns gnomon.merge_result
language plpgsql volatile set jit = off as $$
declare
  m gnomon.merged := gnomon.begin_merge('refresh', p_name, null, gnomon.named_options(p_options));
  place gnomon.place := gnomon.place_of(p_to);
  dry boolean := coalesce((p_options->>'dry_run')::boolean, false);
  result gnomon.merge_result;
  t record;
  settles text[] := '{}';
  tables int[] := '{}';
  views jsonb;
  violations jsonb := '[]';
  n bigint;
  s text;
  stats jsonb;
  names text[] := array['gnomon.branch', 'gnomon.place', 'gnomon.snapshot', 'gnomon.bound', 'gnomon.checked', 'gnomon.outside', 'gnomon.merging', 'search_path'];
  outer_settings text[] := array(select coalesce(current_setting(x, true), '') from unnest(names) with ordinality u (x, i) order by i);
begin
  perform gnomon.check_refresh(m.branch, place);
  perform gnomon.leave(true);
  perform set_config('gnomon.merging', m.branch::text, true);
  perform gnomon.at(place.coordinate, true);
  result.merge := m.id;
  result.inserted := 0; result.updated := 0; result.deleted := 0; result.already := 0; result.conflicts := 0; result.violations := 0; result.tables := '{}';
  views := (gnomon.open_at(place.coordinate, current_schemas(false), current_setting('search_path'), 'refuse')).tables;
  for t in select * from gnomon.refresh_tables(m.id, place, views) loop
    execute format('create temp table %I on commit drop as %s', format('gnomon_merge_%s_%s', m.id, t.tracked), t.query);
    tables := tables || t.tracked;
    settles := settles || format(t.settle, format('gnomon_merge_%s_%s', m.id, t.tracked));
    execute format('select jsonb_build_object(''insert'', count(*) filter (where p.op = ''i''), ''update'', count(*) filter (where p.op = ''u''), ''delete'', count(*) filter (where p.op = ''d''), ''already'', count(*) filter (where p.op = ''a'' and p.kind is null), ''conflict'', count(p.kind)) from pg_temp.%I p',
      format('gnomon_merge_%s_%s', m.id, t.tracked)) into stats;
    result.inserted := result.inserted + (stats->>'insert')::bigint;
    result.updated := result.updated + (stats->>'update')::bigint;
    result.deleted := result.deleted + (stats->>'delete')::bigint;
    result.already := result.already + (stats->>'already')::bigint;
    result.conflicts := result.conflicts + (stats->>'conflict')::bigint;
    result.tables := result.tables || jsonb_build_object(t.relation, stats);
  end loop;
  result.status := case when dry then 'dry run' when result.conflicts > 0 and coalesce(p_options->>'conflicts', 'fail') <> 'keep' then 'conflicts' else 'merged' end;
  if result.status <> 'conflicts' then
    -- Each side keeps the rules, but both together may not.
    violations := gnomon.find_violations((select coalesce(jsonb_agg(jsonb_build_object('tracked', x)), '[]') from unnest(tables) x), format('gnomon_merge_%s_', m.id), views, false);
    if violations <> '[]' then
      result.violations := gnomon.note_violations(m.id, violations);
      result.status := case when dry then 'dry run' else 'violations' end;
    end if;
  end if;
  for i in 1 .. cardinality(tables) loop
    if result.conflicts > 0 then
      execute format('select count(gnomon.note_conflicts(%s, %s, y.rows)) from (select jsonb_agg(jsonb_build_object(''v'', x.v, ''key'', x.key, ''kind'', x.kind, ''columns'', x.conflicts, ''base'', x.base, ''branch'', x.ours, ''main'', x.theirs, ''image'', x.image)) as rows
        from (select p.*, row_number() over () as i from pg_temp.%I p where p.kind is not null) x group by x.i / 5000) y', m.id, tables[i], format('gnomon_merge_%s_%s', m.id, tables[i])) into n;
    end if;
    if result.status = 'merged' then
      execute settles[i];
    end if;
    execute format('drop table pg_temp.%I', format('gnomon_merge_%s_%s', m.id, tables[i]));
  end loop;
  if result.status = 'merged' then
    perform gnomon.end_refresh(m.id, place.coordinate);
  end if;
  perform gnomon.end_merge(m.id, result.status, result);
  perform set_config(x.name, x.value, true) from unnest(names, outer_settings) x (name, value);
  return result;
end $$;
comment on function gnomon.refresh_branch is 'Gives a branch a later base (now, or another place), and decides column by column what becomes of rows that both the branch and main have changed: with the options of gnomon.merge (strategies, conflicts fail or keep, dry_run), where ours is the branch and theirs is main. Where there are conflicts, or constraints would be violated, nothing is changed, and gnomon.conflicts and gnomon.violations list them. What main then has itself is a change of the branch no longer. The counts say in how many rows the branch differs from its new base.';

create function gnomon.check_refresh(p_branch int, p_place gnomon.place) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_of(p_branch);
begin
  if b.epoch = p_place.epoch and not annals.snapshot_covers(p_place.snapshot, b.snapshot) then
    perform gnomon.refuse('GN006', format('the base of branch %L is later than the place', b.name), 'A branch is refreshed to a later one; gnomon.reset_branch takes any, and takes back what the branch changed.', jsonb_build_object('branch', b.name));
  end if;
end $$;
comment on function gnomon.check_refresh is 'Refuses a new base that is older than the present one.';
