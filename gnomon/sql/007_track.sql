-- Tracking tables.

create function gnomon.track(p_table regclass, p_options jsonb default '{}') returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  id int := annals.track(p_table, 'gnomon', p_options);
begin
  if not exists (select from gnomon.history h where h.tracked = id) then
    perform pg_advisory_xact_lock_shared(1735289710, 0); -- see gnomon.begin_branching
    insert into gnomon.history (tracked, relation_oid) values (id, p_table);
    perform gnomon.on_view(id); -- and by that what foreign keys link with it
    perform gnomon.note_sources();
    perform gnomon.write_guards(s.id) from gnomon.source s order by s.id;
  end if;
  return id;
end $$;
comment on function gnomon.track is 'Begins to track a table, whose past can be read from now on; returns the number of its history. Nothing is copied. Waits a second at most for writers.';

create function gnomon.present_history(p_table regclass) returns int
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  id int := (select t.id from annals.tracked t join gnomon.history h on h.tracked = t.id where t.relation = p_table and t.ended_v is null and 'gnomon' = any (t.users));
begin
  if id is null then
    perform gnomon.refuse('GN007', format('table %s is not tracked', coalesce(p_table::text, 'null')), 'Track it with gnomon.track.', jsonb_build_object('table', p_table::text));
  end if;
  return id;
end $$;
comment on function gnomon.present_history is 'The history of a table that is tracked; an error when it is not.';

create function gnomon.awaited_by(p_tracked int) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  c record;
  s annals.segment;
  waits boolean;
begin
  for c in select x.* from gnomon.consumer x join annals.tracked t on t.id = p_tracked where x.tables is null or t.relation = any (x.tables) order by x.name loop
    for s in select * from annals.segment g where g.tracked = p_tracked and g.epoch = c.epoch and coalesce(g.last_v > c.from_bound, true) loop
      execute format('select exists (select from %s h where h.v > $1 and not pg_visible_in_snapshot(h.xid, $2))', s.relation) into waits using c.from_bound, c.from_snapshot;
      if waits then
        return c.name;
      end if;
    end loop;
  end loop;
  return null;
end $$;
comment on function gnomon.awaited_by is 'A consumer that has not had all changes of a history; null when there is none.';

create function gnomon.untrack(p_table regclass, p_history text default 'keep') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  history int := gnomon.present_history(p_table);
  shared boolean;
begin
  if coalesce(p_history, '') not in ('keep', 'drop') then
    perform gnomon.refuse('GN006', format('history cannot be %L', p_history), 'Say keep, or drop.');
  end if;
  perform gnomon.refuse('GN006', format('branch %L has changes of %s', x.name, p_table), 'Merge, reset or drop it first.', jsonb_build_object('table', p_table::text, 'branch', x.name))
    from (select gnomon.changed_by(history) as name) x where x.name is not null;
  select t.users <> array['gnomon'] into shared from annals.tracked t where t.id = history;
  if p_history = 'drop' and not shared then
    perform gnomon.refuse('GN006', format('consumer %L has not had all changes of %s', x.name, p_table), 'Run it or drop it first, or keep the history.', jsonb_build_object('table', p_table::text, 'consumer', x.name))
      from (select gnomon.awaited_by(history) as name) x where x.name is not null;
    perform gnomon.drop_checkpoint(k.id) from gnomon.checkpoint k where k.tracked = history;
  end if;
  -- Capture ends here, so what follows is not told by today's rows any more: they are saved.
  if p_history = 'keep' and not shared then
    perform annals.materialize(history);
  end if;
  perform annals.untrack(p_table, 'gnomon');
  perform gnomon.drop_routes(history);
  perform gnomon.drop_overlay(history);
  update gnomon.history h set rules = null where h.tracked = history;
  perform gnomon.follow_writing(array[p_table::oid], true);
  perform gnomon.write_guards(s.id) from annals.tracked t join gnomon.source s on s.schema_name = t.schema_name where t.id = history;
  if shared then
    return 'shared';
  end if;
  if p_history = 'keep' then
    perform gnomon.write_routes(history);
    return 'kept';
  end if;
  perform annals.drop_history(history);
  return 'dropped';
end $$;
comment on function gnomon.untrack is 'Ends tracking of a table. keep: all rows are saved, so that its past can be read on (takes READ COMMITTED, and as much room as the table); drop: its history is dropped. Returns kept, dropped, or shared: another package goes on with the history, and its past can be read again once the table is tracked again.';

create function gnomon.track_schema(p_schema name, p_options jsonb default '{}') returns table ("table" text, tracked int, refusal text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_column
declare
  c record;
begin
  if to_regnamespace(quote_ident(p_schema)) is null then
    perform gnomon.refuse('GN006', format('there is no schema %L', p_schema), 'Give its name as it is in the catalog, without quotes.');
  end if;
  for c in select x.oid::regclass as relation from pg_class x where x.relnamespace = to_regnamespace(quote_ident(p_schema)) and x.relkind in ('r', 'p') and not x.relispartition order by x.relname loop
    "table" := c.relation::text;
    refusal := annals.refusal_to_track(c.relation);
    tracked := case when refusal is null then gnomon.track(c.relation, p_options) end;
    return next;
  end loop;
end $$;
comment on function gnomon.track_schema is 'Tracks all tables of a schema that can be tracked, and tells why others cannot.';

create function gnomon.untrack_all() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  t annals.tracked;
  s name;
begin
  for t in select k.* from annals.tracked k join gnomon.history h on h.tracked = k.id order by k.id loop
    perform gnomon.drop_routes(t.id);
    if t.ended_v is null and exists (select from pg_class c where c.oid = t.relation) then
      perform annals.untrack(t.relation, 'gnomon');
    end if;
  end loop;
  delete from annals.pin p where p.owner like 'gnomon %';
  for s in select n.nspname from pg_namespace n where n.nspname ~ '^gnomon_(past|guard|branch|open)_[0-9]+$' and n.nspowner = (select c.nspowner from pg_namespace c where c.nspname = 'gnomon') loop
    execute format('drop schema %I cascade', s);
  end loop;
end $$;
comment on function gnomon.untrack_all is 'Ends all tracking and drops all views of the past, as the package is about to be dropped.';

create function gnomon.sync(p_table regclass) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  changed boolean := annals.sync(gnomon.present_history(p_table));
begin
  perform gnomon.sync_guards();
  perform gnomon.follow_rights();
  return changed;
end $$;
comment on function gnomon.sync is 'Makes capture, and what names mean in the past, follow what became of a table and its schema. False when the table had not changed. Waits a second at most for writers.';
