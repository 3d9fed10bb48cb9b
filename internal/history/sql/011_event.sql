-- Following DDL. Where the installing role may create event triggers, a change of a tracked table is followed in the same command, so
-- no write ever meets capture that does not fit, and nothing is lost. Where it may not, annals.check_capture says what to synchronise.

create function annals.follow(p_tracked int, p_relation oid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
begin
  perform pg_advisory_xact_lock(hashtextextended('annals.track', p_relation::bigint));
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found or annals.is_restored() then
    return;
  end if;
  -- What is disabled stays so: that is what its owner wants. Until it is enabled again, nothing can be told.
  if exists (select from annals.drift(p_tracked) d where d.what <> 'disabled') or annals.is_disabled(p_tracked) <> t.off then
    perform annals.refresh(p_tracked, true);
  end if;
exception when others then
  -- A user's command does not fail because of history.
  raise warning 'capture of % could not follow this command: %', t.relation, sqlerrm
    using hint = format('Call annals.sync(%s). Until then writes may fail, or go uncaptured.', p_tracked);
  update annals.tracked k set behind = true where k.id = p_tracked;
end $$;
comment on function annals.follow is 'Synchronises one history within the command that changed its table.';

create function annals.follow_all(p_relations oid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t record;
begin
  for t in
    with recursive touched (relid) as (
      select u.relid from unnest(p_relations) u (relid)
      union select a.relid from unnest(p_relations) u (relid), pg_partition_ancestors(u.relid) a
      union select p.relid from unnest(p_relations) u (relid), pg_partition_tree(u.relid) p
      union select i.inhparent from pg_inherits i where i.inhrelid = any (p_relations)),
    -- Tables whose foreign keys reach them, too: what their triggers do is done within statements on these.
    reaching (relid) as (
      select u.relid from touched u
      union select k.confrelid from reaching r join pg_constraint k on k.conrelid = r.relid and k.contype = 'f' and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))),
    known (id) as (
      select k.id from annals.tracked k join reaching u on k.relation_oid = u.relid where k.ended_v is null
      union select r.tracked from annals.tracked_relation r join reaching u on r.relation = u.relid)
    select k.id, k.relation::oid as relation from known n join annals.tracked k on k.id = n.id and k.ended_v is null and exists (select from pg_class c where c.oid = k.relation)
    order by k.id
  loop
    perform annals.follow(t.id, t.relation);
  end loop;
end $$;
comment on function annals.follow_all is 'Synchronises the histories that these tables, or tables above them, have.';

create function annals.on_ddl_end() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  relations oid[];
begin
  if current_setting('annals.working', true) = 'yes' then
    return;
  end if;
  select array_agg(distinct case c.classid
      when 'pg_class'::regclass then coalesce((select i.indrelid from pg_index i where i.indexrelid = c.objid), c.objid)
      when 'pg_trigger'::regclass then (select g.tgrelid from pg_trigger g where g.oid = c.objid)
      when 'pg_policy'::regclass then (select p.polrelid from pg_policy p where p.oid = c.objid)
      when 'pg_constraint'::regclass then (select k.conrelid from pg_constraint k where k.oid = c.objid) end)
    into relations from pg_event_trigger_ddl_commands() c;
  -- How a table is captured depends on what its triggers may do.
  relations := relations || array(select distinct g.tgrelid from pg_event_trigger_ddl_commands() c join pg_trigger g on g.tgfoid = c.objid where c.classid = 'pg_proc'::regclass);
  relations := relations || array(select t.relation::oid from pg_event_trigger_ddl_commands() c join pg_class r on r.relnamespace = c.objid join annals.tracked t on t.relation = r.oid and t.ended_v is null
                                  where c.classid = 'pg_namespace'::regclass);
  perform annals.follow_all(relations);
end $$;
comment on function annals.on_ddl_end is 'Synchronises capture with tables that a command changed.';

create function annals.on_rewrite() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  t int;
begin
  -- 4: a column's type, whose new values any expression may give. Other rewrites leave values as they are.
  if pg_event_trigger_table_rewrite_reason() & 4 = 0 then
    return;
  end if;
  for t in select r.tracked from annals.tracked_relation r where r.relation = pg_event_trigger_table_rewrite_oid() loop
    perform annals.interrupt(t, 'values were rewritten by ALTER TABLE');
  end loop;
end $$;
comment on function annals.on_rewrite is 'Notes that ALTER TABLE changes the values of a column.';

create function annals.on_drop() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t int;
begin
  if current_setting('annals.working', true) = 'yes' then
    return;
  end if;
  if not exists (select from pg_event_trigger_dropped_objects() o where o.object_type in ('table', 'table column', 'trigger', 'policy', 'index', 'table constraint')) then
    return;
  end if;
  for t in select k.id from annals.tracked k where k.ended_v is null and k.relation in (select o.objid from pg_event_trigger_dropped_objects() o where o.object_type = 'table') loop
    perform annals.end_tracking(t, 'dropped');
  end loop;
  perform annals.follow_all(array(
    select c.oid from pg_event_trigger_dropped_objects() o join pg_namespace n on n.nspname = o.address_names[1] join pg_class c on c.relnamespace = n.oid and c.relname = o.address_names[2]
      where o.object_type in ('trigger', 'policy', 'table constraint', 'table column')
    union select k.relation::oid from pg_event_trigger_dropped_objects() o join annals.tracked k on k.schema_name = o.address_names[1] and k.key_index = o.address_names[2] and k.ended_v is null
      where o.object_type = 'index'
    union select k.relation::oid from pg_event_trigger_dropped_objects() o join annals.tracked_relation r on r.relation = o.objid join annals.tracked k on k.id = r.tracked
      where o.object_type = 'table'));
end $$;
comment on function annals.on_drop is 'Ends the history of tables that are dropped, and puts back triggers of capture.';

do $$
begin
  create event trigger annals_ddl_end on ddl_command_end
    when tag in ('ALTER TABLE', 'CREATE TABLE', 'CREATE TRIGGER', 'ALTER TRIGGER', 'CREATE POLICY', 'ALTER POLICY', 'CREATE INDEX', 'ALTER INDEX',
                 'CREATE FUNCTION', 'ALTER FUNCTION', 'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE EXTENSION', 'ALTER EXTENSION')
    execute function annals.on_ddl_end();
  comment on event trigger annals_ddl_end is 'Keeps capture of history in step with changes of tracked tables.';
  create event trigger annals_rewrite on table_rewrite execute function annals.on_rewrite();
  comment on event trigger annals_rewrite is 'Notes where ALTER TABLE changes values of tracked tables.';
  create event trigger annals_drop on sql_drop execute function annals.on_drop();
  comment on event trigger annals_drop is 'Ends histories of tables that are dropped.';
exception when insufficient_privilege then
  null; -- annals.follows_ddl() tells
end $$;
