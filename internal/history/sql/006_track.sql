-- Tracking a table, and following what becomes of it.

create function annals.shape(p_tracked int, out list int[], out wide int[], out columns text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Types as history stores them, and the collations of the table. In an order that wastes nothing on alignment, since such a row is stored
  -- for each change: eight bytes wide, four, two, one, and then what varies.
  with held (n, definition, place) as (
    select c.n, format('c%s %s%s%s', c.n, annals.stored_type(a.atttypid, a.atttypmod),
                       case when a.attcollation <> y.typcollation then format(' collate %I.%I', nc.nspname, co.collname) end, case when c.n = any (t.key) then ' not null' end),
           case when a.attlen < 0 then 5 when a.attalign = 'd' then 1 when a.attalign = 'i' then 2 when a.attalign = 's' then 3 else 4 end
    from annals.tracked t
    join annals.tracked_column c on c.tracked = t.id
    join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum join pg_type y on y.oid = a.atttypid
    left join pg_collation co on co.oid = a.attcollation left join pg_namespace nc on nc.oid = co.collnamespace
    where t.id = p_tracked and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key)))
  select array_agg(n order by n) filter (where n > 0),
         coalesce(array_agg(n order by n) filter (where n = any ((select t.wide from annals.tracked t where t.id = p_tracked)::int[])), '{}'),
         string_agg(definition, ', ' order by place, n)
  from (select * from held union all values (0, 'login oid not null', 2), (-1, 'op "char" not null', 4)) all_columns (n, definition, place)
$$;
comment on function annals.shape is 'Columns that a segment begun now would have.';

create function annals.own_only(p_table text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  grantee text;
begin
  -- Default privileges may have granted it to others.
  for grantee in select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end from pg_class c cross join aclexplode(c.relacl) a where c.oid = p_table::regclass and a.grantee <> c.relowner loop
    execute format('revoke all on %s from %s', p_table, grantee);
  end loop;
end $$;
comment on function annals.own_only is 'Takes away what others than the owner may do with a new table.';

create function annals.begin_segment(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  shape record;
  number int;
  name text;
  extra text := '';
  v bigint := nextval('annals.v');
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  select coalesce(max(s.number), 0) + 1 into number from annals.segment s where s.tracked = p_tracked;
  select * into shape from annals.shape(p_tracked);
  name := annals.segment_name(t.id, number);
  if t.nests or t.update_form = 'row' then extra := extra || ', start bigint'; end if;
  if shape.wide <> '{}' then extra := extra || ', missing bigint'; end if;
  execute format('create table %s (v bigint not null default nextval(''annals.v''), xid xid8 not null, at timestamptz not null, ctx bigint not null%s, %s)', name, extra, shape.columns);
  -- What the table does not compress, history does not try to.
  execute (select coalesce(string_agg(format('alter table %s alter column %I set storage %s;', h.attrelid::regclass, h.attname, case a.attstorage when 'e' then 'external' when 'm' then 'main' when 'x' then 'extended' else 'plain' end), ''), 'select')
           from annals.tracked_column c join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum join pg_attribute h on h.attrelid = annals.segment_name(t.id, number)::regclass and h.attname = 'c' || c.n
           where c.tracked = p_tracked and c.gone_v is null and a.attstorage <> h.attstorage and h.attlen = -1);
  -- So that it can be redacted where a publication is for all tables. Inserts don't mind.
  execute format('alter table %s replica identity full', name);
  execute format('create index on %s (%s, v)', name, (select string_agg('c' || k, ', ' order by i) from unnest(t.key) with ordinality u (k, i)));
  execute format('comment on table %s is %L', name, format('A segment of the history of %I.%I.', t.schema_name, t.table_name));
  execute (select format('comment on index %s is ''Finds the entries of a row.''', i.indexrelid::regclass) from pg_index i where i.indrelid = name::regclass);
  execute (select string_agg(format('comment on column %s.%I is %L;', name, a.attname, case a.attname
      when 'v' then 'Position.' when 'xid' then 'Transaction.' when 'at' then 'Start of the transaction.' when 'ctx' then 'Hash of the context, see annals.context.' when 'login' then 'OID of the session''s role.'
      when 'op' then 'u updated, d deleted, t truncated: with the old row. i inserted, n arrived at this key, m left it: with the key only.'
      when 'start' then 'Position at which the statement began.' when 'missing' then 'Bits of wide columns that did not change, see annals.segment.'
      else format('Old value of column %s, see annals.tracked_column.', substr(a.attname, 2)) end), '' order by a.attnum)
    from pg_attribute a where a.attrelid = name::regclass and a.attnum > 0);
  perform annals.own_only(name);
  update annals.segment s set closed_by = pg_current_xact_id() where s.tracked = p_tracked and s.closed_by is null;
  insert into annals.segment (tracked, number, relation, columns, wide, nests, shape, epoch, first_v)
    values (p_tracked, number, name::regclass, shape.list, shape.wide, t.nests or t.update_form = 'row', shape.columns, annals.present_epoch(), v);
end $$;
comment on function annals.begin_segment is 'Begins a segment with the present columns of a tracked table; what the capture functions write when they are written anew goes there.';

create function annals.fits_segment(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((select s.columns = h.list and s.wide = h.wide and s.shape = h.columns and s.nests = (t.nests or t.update_form = 'row') and s.epoch = t.epoch
                          and not exists (select from unnest(s.columns) u (n) where not exists (select from pg_attribute a where a.attrelid = s.relation and a.attname = 'c' || u.n and not a.attisdropped))
                   from annals.segment s where s.tracked = p_tracked order by s.number desc limit 1), false)
  from annals.tracked t, annals.shape(p_tracked) h where t.id = p_tracked
$$;
comment on function annals.fits_segment is 'Whether the segment that is written now has the columns that the table asks for.';

create function annals.is_ours(p_function oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from pg_proc p where p.oid = p_function and p.pronamespace = 'annals'::regnamespace)
$$;
comment on function annals.is_ours is 'Whether a function belongs to the history engine, and so its triggers.';

create function annals.drop_triggers(p_relation oid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  name name;
begin
  for name in select g.tgname from pg_trigger g where g.tgrelid = p_relation and g.tgparentid = 0 and not g.tgisinternal and annals.is_ours(g.tgfoid) loop
    execute format('drop trigger %I on %s', name, p_relation::regclass);
  end loop;
end $$;
comment on function annals.drop_triggers is 'Removes what capture put on a table.';

create function annals.trigger_statements(p_tracked int, p_relation oid) returns table (name name, statement text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  root boolean;
  alias text;
  key_columns text := '';
  x text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  root := p_relation = t.relation;
  alias := quote_ident(annals.old_alias(t.id));
  if not t.key_free and not annals.may_change_key(t.relation, (select array_agg(c.name) from annals.captured(t.id) c where c.is_key)) then
    select ' of ' || string_agg(quote_ident(c.name), ', ' order by c.n) into key_columns from annals.captured(t.id) c where c.is_key;
  end if;

  -- A statement of null stands for a trigger that PostgreSQL itself copies from the partitioned table.
  foreach x in array array['insert', 'update', 'delete'] loop
    if t.nests then
      return query select format('annals_capture_%s_start', x)::name, format('before %s on %%s for each statement execute function %s()', x, annals.capture_name(t.id, 'start'));
    end if;
    if (case x when 'insert' then t.form else t.update_form end) = 'statement' then
      return query select format('annals_capture_%s', x)::name, format('after %s on %%s referencing %s for each statement execute function %s()', x,
        replace(case when x = 'insert' then 'new table as ' || alias
             when x = 'update' and t.partitioned then format('old table as %s new table as %I', alias, annals.new_alias(t.id))
             else 'old table as ' || alias end, '%', '%%'), annals.capture_name(t.id, x));
    else
      return query select format('annals_capture_%s', x)::name, case when root then format('after %s on %%s for each row execute function %s()', x, annals.capture_name(t.id, x)) end;
      if t.nests then
        return query select format('annals_capture_%s_end', x)::name, format('after %s on %%s for each statement execute function %s()', x, annals.capture_name(t.id, 'end'));
      end if;
      if t.options ? 'warn_rows' then
        return query select format('annals_warn_%s', x)::name, format('after %s on %%s referencing %s table as %s for each statement execute function %s()', x,
          case x when 'insert' then 'new' else 'old' end, replace(alias, '%', '%%'), annals.capture_name(t.id, 'warn'));
      end if;
    end if;
  end loop;
  if t.partitioned and t.update_form = 'statement' then -- by its name, it fires just before the capture of the update
    return query select 'annals_capture_keyed'::name, format('after update%s on %%s for each statement execute function %s()', replace(key_columns, '%', '%%'), annals.capture_name(t.id, 'keyed'));
    -- Of several UPDATEs within one statement PostgreSQL fires only the last one's AFTER trigger, and the first one's BEFORE trigger.
    return query select 'annals_capture_keyed_first'::name, format('before update%s on %%s for each statement execute function %s()', replace(key_columns, '%', '%%'), annals.capture_name(t.id, 'keyed'));
  elsif t.update_form = 'statement' then
    return query select 'annals_move'::name, case when root then format('after update%s on %%s for each row execute function %s()', replace(key_columns, '%', '%%'), annals.capture_name(t.id, 'move')) end;
  end if;
  if annals.names_wide(t.id) then -- by its name, it fires just before the capture of the row
    return query select 'annals_capture_named_wide'::name, case when root then format('after update of %s on %%s for each row execute function %s()',
      replace((select string_agg(quote_ident(c.name), ', ' order by c.n) from annals.captured(t.id) c where c.wide_bit is not null), '%', '%%'), annals.capture_name(t.id, 'named_wide')) end;
  end if;
  if (select c.relkind = 'r' from pg_class c where c.oid = p_relation) then
    return query select 'annals_truncate'::name, format('before truncate on %%s for each statement execute function %s()', annals.capture_name(t.id, 'truncate'));
  end if;
end $$;
comment on function annals.trigger_statements is 'Triggers that capture needs on a table or partition, with the rest of CREATE TRIGGER after the name; null where PostgreSQL copies it from the parent.';

create function annals.trigger_hash(p_tracked int, p_relation oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- The numbers of the key columns: PostgreSQL follows a new name by itself.
  select md5(concat(string_agg(concat(w.name, regexp_replace(w.statement, '^(\w+ \w+) of .* on %s', '\1 of key on %s')), ';' order by w.name),
                    (select array(select c.attnum from annals.tracked_column c where c.tracked = p_tracked and c.n = any (t.key) order by c.n)::text || coalesce(t.options->>'replica', '') || t.key_free from annals.tracked t where t.id = p_tracked)))
  from annals.trigger_statements(p_tracked, p_relation) w
$$;
comment on function annals.trigger_hash is 'Changes when a table needs other triggers.';

create function annals.lacks_trigger(p_tracked int, p_relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from annals.trigger_statements(p_tracked, p_relation) w
                 where not exists (select from pg_trigger g where g.tgrelid = p_relation and g.tgname = w.name and annals.is_ours(g.tgfoid)))
$$;
comment on function annals.lacks_trigger is 'Whether a trigger of capture is missing on a table.';

create function annals.put_triggers(p_tracked int, p_force boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  r record;
  w record;
  stale oid[];
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  -- Those that stay as they are stay untouched: replacing triggers needs a table that nothing in the session uses.
  select array_agg(l.relid) into stale from annals.leaves(t.relation) l left join annals.tracked_relation k on k.tracked = p_tracked and k.relation = l.relid
    where l.kind <> 'f' and (p_force or k.triggers is distinct from annals.trigger_hash(p_tracked, l.relid) or annals.lacks_trigger(p_tracked, l.relid));
  -- All go before any comes, since a partition gets copies of what its parent gets.
  for r in select u.relid from unnest(stale) u (relid) loop
    perform annals.drop_triggers(r.relid);
  end loop;
  for r in select u.relid, u.relid::regclass::text as name from unnest(stale) u (relid) order by u.relid <> t.relation, u.relid loop
    for w in select * from annals.trigger_statements(p_tracked, r.relid) x where x.statement is not null loop
      execute format('create trigger %I ', w.name) || format(w.statement, r.name);
      execute format('comment on trigger %I on %s is %L', w.name, r.name, case when w.statement ~ '^\w+ \w+ of ' then format('Part of the capture of history; annals.untrack removes it. Before a key column is dropped or gets another type, call annals.free_key(%s).', p_tracked)
        else 'Part of the capture of history; annals.untrack removes it.' end);
      if coalesce((t.options->>'replica')::boolean, false) then
        execute format('alter table %s enable always trigger %I', r.name, w.name);
      end if;
    end loop;
  end loop;
  insert into annals.tracked_relation (tracked, relation, name, leaf, triggers, stored)
    select p_tracked, l.relid, l.relid::regclass::text, l.leaf, annals.trigger_hash(p_tracked, l.relid), annals.stored(l.relid) from annals.leaves(t.relation) l where l.kind <> 'f'
    on conflict (tracked, relation) do update set name = excluded.name, leaf = excluded.leaf, triggers = excluded.triggers, stored = excluded.stored;
end $$;
comment on function annals.put_triggers is 'Puts the triggers of a history on its table and partitions, in place of those that do not fit.';

create function annals.choose(p_tracked int, p_look boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  list int[];
  chosen text;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  -- Once chosen, columns stay wide, whatever values come: each change of mind begins a segment.
  if p_look then
    select array_agg(c.n) into list from annals.tracked_column c
      where c.tracked = p_tracked and c.gone_v is null and not coalesce((t.options->>'full')::boolean, false)
        and case when t.options ? 'wide' then t.options->'wide' ? c.name::text else c.name = any (annals.wide_columns(t.relation)) end;
  else
    list := t.wide;
  end if;
  -- What policies look at is in every entry: else they could not be evaluated.
  list := array(select c.n from annals.tracked_column c where c.tracked = p_tracked and c.gone_v is null and not c.excluded and not c.generated
                  and c.n = any (list) and c.n <> all (t.key) and c.n <> all (annals.policy_columns(p_tracked)) order by c.n limit 60);
  chosen := case when t.options->>'form' = 'row' or coalesce((t.options->>'replica')::boolean, false) or annals.inherits(t.relation) or annals.may_nest(t.relation) or annals.refers_to_itself(t.relation)
                 -- Writes through a parent fire only its statement triggers.
                 or (select c.relispartition from pg_class c where c.oid = t.relation)
                 -- Only an event trigger can give statement triggers to partitions made later, and only row triggers see a row's old and new values side by side.
                 or t.partitioned and (not annals.follows_ddl() or coalesce((t.options->>'skip_noop')::boolean, false) or list <> '{}')
               then 'row' else 'statement' end;
  update annals.tracked k set
    nests = annals.may_nest(t.relation), form = chosen, wide = list,
    update_form = case when chosen = 'row' or coalesce((t.options->>'skip_noop')::boolean, false) or list <> '{}' then 'row' else 'statement' end
    where k.id = p_tracked;
end $$;
comment on function annals.choose is 'Chooses how a table is captured, from what it is and from its options; the values in it are looked at where asked.';

create function annals.follows_ddl() returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return exists (select from pg_event_trigger where evtname = 'annals_ddl_end' and evtenabled <> 'D');
comment on function annals.follows_ddl is 'Whether an event trigger follows changes of tracked tables.';

-- The table's lock comes first and then the advisory one, as when an event trigger follows a command that holds the table.
create function annals.lock_history(p_relation oid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Transactions that wrote the table end first, so none is captured in part. Readers go on.
  execute format('lock table %s in share row exclusive mode', p_relation::regclass);
  perform pg_advisory_xact_lock(hashtextextended('annals.track', p_relation::bigint));
end $$;
comment on function annals.lock_history is 'Waits for the writers of a table and keeps others out, and whoever else changes its capture.';

create function annals.track(p_relation regclass, p_user text, p_options jsonb default '{}') returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
  why text := annals.refusal_to_track(p_relation);
  present int := annals.present_epoch();
begin
  if why is not null then
    perform annals.refuse('AN004', format('%s cannot be tracked: %s', coalesce(p_relation::text, 'null'), why), '', jsonb_build_object('table', p_relation, 'reason', why));
  end if;
  perform annals.check_options(p_relation, p_options);
  perform annals.lock_history(p_relation);
  select * into t from annals.tracked k where k.relation = p_relation and k.ended_v is null;
  if not found then
    insert into annals.tracked (relation, relation_oid, schema_name, table_name, key, key_index, form, update_form, partitioned, nests, options, users, began_v, epoch)
      select p_relation, p_relation, n.nspname, c.relname, '{}', '', 'statement', 'statement', c.relkind = 'p', false, p_options, array[p_user], nextval('annals.v'), present
      from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_relation
      returning * into t;
  else
    -- An option of null is taken back.
    update annals.tracked k set users = array(select distinct u from unnest(k.users || p_user) u order by u), options = jsonb_strip_nulls(k.options || p_options) where k.id = t.id;
  end if;
  perform annals.refresh(t.id, p_look => true);
  return t.id;
end $$;
comment on function annals.track is 'Begins to keep the history of a table for a package, or changes its options; returns the number of the history. Waits a second at most for writers.';

create function annals.untrack(p_relation regclass, p_user text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
begin
  select * into t from annals.tracked k where k.relation = p_relation and k.ended_v is null;
  if not found or p_user <> all (t.users) then
    return false;
  end if;
  perform annals.lock_history(p_relation);
  select * into t from annals.tracked k where k.relation = p_relation and k.ended_v is null;
  if not found or p_user <> all (t.users) then
    return false;
  end if;
  if t.users <> array[p_user] then
    update annals.tracked k set users = array_remove(k.users, p_user) where k.id = t.id;
  else
    perform annals.end_tracking(t.id, 'untracked');
  end if;
  return true;
end $$;
comment on function annals.untrack is 'Ends capture of a table for a package; its history stays. False when it did not track it. Waits a second at most for writers.';

create function annals.end_tracking(p_tracked int, p_why text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  f regprocedure;
  member oid;
  there boolean;
begin
  perform set_config('annals.working', 'yes', true);
  select exists (select from pg_class c where c.oid = t.relation) into there from annals.tracked t where t.id = p_tracked;
  for member in select c.oid from annals.tracked_relation r join pg_class c on c.oid = r.relation where r.tracked = p_tracked
                union select l.relid from annals.tracked t, annals.leaves(t.relation) l where t.id = p_tracked and there loop
    perform annals.drop_triggers(member);
  end loop;
  for f in select oid from pg_proc where pronamespace = 'annals'::regnamespace and proname ~ format('^h%s_[a-z_]+$', p_tracked) and prorettype = 'trigger'::regtype loop
    execute format('drop function %s', f);
  end loop;
  perform annals.interrupt(p_tracked, p_why);
  update annals.tracked k set ended_v = nextval('annals.v'), ended_at = clock_timestamp(), ended_why = p_why, users = '{}', relation = case when there then k.relation end where k.id = p_tracked;
  update annals.segment s set closed_by = pg_current_xact_id() where s.tracked = p_tracked and s.closed_by is null;
  delete from annals.tracked_relation r where r.tracked = p_tracked;
  perform set_config('annals.working', '', true);
end $$;
comment on function annals.end_tracking is 'Notes that a history has ended, and drops its triggers and capture functions.';

create function annals.drop_history(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  s regclass;
begin
  if not exists (select from annals.tracked t where t.id = p_tracked and t.ended_v is not null) then
    perform annals.refuse('AN005', format('history %s goes on, or there is none', p_tracked), 'End it with annals.untrack first.');
  end if;
  perform set_config('annals.working', 'yes', true);
  execute format('drop view if exists annals.h%s', p_tracked);
  begin
    for s in select g.relation from annals.segment g where g.tracked = p_tracked loop
      execute format('drop table %s', s);
    end loop;
  exception when dependent_objects_still_exist then -- a package's view that was being read when it was to go
    raise lock_not_available using message = format('%s is being read', s);
  end;
  execute (select coalesce(string_agg(format('drop function %s;', p.oid::regprocedure), ''), 'select') from pg_proc p where p.pronamespace = 'annals'::regnamespace and p.proname ~ format('^h%s_[a-z_]+$', p_tracked));
  delete from annals.tracked t where t.id = p_tracked;
  perform set_config('annals.working', '', true);
end $$;
comment on function annals.drop_history is 'Drops a history that has ended, with all entries.';

create function annals.free_key(p_tracked int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
begin
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found then
    perform annals.refuse('AN005', format('there is no history %s that goes on', coalesce(p_tracked::text, 'null')), 'annals.tracked lists them.');
  end if;
  perform annals.lock_history(t.relation);
  perform set_config('annals.working', 'yes', true);
  update annals.tracked k set key_free = true where k.id = p_tracked;
  perform annals.write_functions(p_tracked); -- which ask triggers on named columns no more
  perform annals.put_triggers(p_tracked);
  perform set_config('annals.working', '', true);
end $$;
comment on function annals.free_key is 'Lets columns of the key, and wide ones, be dropped or get another type: PostgreSQL refuses that for columns which a trigger names, and for the sake of speed those of capture do. Until the next change of the table, or annals.sync, updates are dearer.';

create function annals.sync(p_tracked int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
begin
  perform annals.present_epoch();
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found then
    perform annals.refuse('AN005', format('there is no history %s that goes on', coalesce(p_tracked::text, 'null')), 'annals.tracked lists them.');
  end if;
  if not exists (select from pg_class where oid = t.relation) then
    perform annals.end_tracking(p_tracked, 'dropped');
    return true;
  end if;
  if not t.behind and not exists (select from annals.drift(p_tracked)) then
    return false;
  end if;
  perform annals.lock_history(t.relation);
  if exists (select from annals.tracked k where k.id = p_tracked and k.ended_v is null) then
    perform annals.refresh(p_tracked);
  end if;
  return true;
end $$;
comment on function annals.sync is 'Makes capture follow what became of the table: columns, key, partitions, triggers. False when nothing had changed. Waits a second at most for writers.';
