-- Who may do what with histories. Packages grant it with their own functions. Installing takes away what PostgreSQL gives to everybody, and
-- grants nothing.

-- Every function of the schema stands here once, those that belong to a single history (annals.h<id>_...) apart. A step that adds one adds it here, too.
create view annals.access (function, who) with (security_invoker = true) as
  select unnest(array[
    'capture_name', 'captured', 'cascades', 'check_capture', 'coordinate', 'coordinate_at', 'coordinate_snapshot', 'drift', 'entries_of', 'epoch_is_present',
    'follows_ddl', 'free_key', 'harmless', 'inherits', 'is_beyond', 'is_disabled', 'is_ours', 'is_restored', 'is_view_current', 'kept_value', 'key_index', 'key_is', 'key_join',
    'key_operator', 'leaves', 'life', 'literal', 'lives', 'lower_bound', 'may_change_key', 'may_nest', 'moved', 'names_wide', 'nests', 'new_alias', 'old_alias', 'operation', 'owner',
    'policy_state', 'position_at', 'positions_of', 'readable_from', 'reads_all',
    'refers_to_itself', 'refusal_to_track', 'refuse', 'runs_code', 'snapshot_covers', 'source', 'stored', 'taken_snapshot', 'today', 'trigger_statements', 'unreadable', 'upper_bound']), 'viewer'
  union all
  select unnest(array[
    'adopt', 'rotate', 'seal_segments', 'sync', 'tick']), 'admin'
  union all
  select unnest(array[
    'begin_segment', 'capture_rows', 'capture_truncate', 'check_options', 'choose', 'close_schema', 'context_text', 'count_gap', 'count_version', 'drop_history', 'drop_triggers', 'end_tracking', 'entry_head',
    'entry_insert', 'fits_segment', 'flush_moves', 'follow', 'follow_all', 'follow_partitions', 'grant_access', 'grant_view', 'here', 'home',
    'insertions_since', 'interrupt', 'is_named_so', 'is_own', 'key_list', 'key_texts', 'lacks_trigger', 'lock_history', 'made_here', 'materialize', 'move_insert', 'same_value',
    'note_epoch', 'on_ddl_end', 'on_drop', 'on_rewrite', 'open_writers', 'own_only', 'partitioned_moves', 'pinned', 'policy_columns', 'present_epoch', 'prune',
    'put_triggers', 'read_columns', 'refresh', 'register_context', 'segment_name', 'shape', 'stored_type', 'tell_all', 'tell_users', 'track', 'trigger_hash', 'untrack',
    'view_branch', 'view_columns', 'view_condition', 'who_context', 'who_hash', 'who_login', 'who_registered', 'wide_columns', 'widens', 'write_function', 'write_functions',
    'write_policy', 'write_row_function', 'write_view']), 'owner';
comment on view annals.access is 'Which functions annals.grant_access lets whom execute.';
comment on column annals.access.function is 'Name of the function.';
comment on column annals.access.who is 'viewer, admin (who may do all that a viewer may), or owner (nobody else).';

create function annals.close_schema(p_schema name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r record;
begin
  -- Default privileges of who installs would let others do as he may.
  for r in
    select distinct x.what, x.object, a.grantee::regrole::text as grantee
    from (select case c.relkind when 'S' then 'sequence' else 'table' end as what, c.oid::regclass::text as object, c.relacl as acl, c.relowner as owner from pg_class c where c.relnamespace = quote_ident(p_schema)::regnamespace and c.relkind in ('r', 'v', 'S')
          union all select 'routine', p.oid::regprocedure::text, p.proacl, p.proowner from pg_proc p where p.pronamespace = quote_ident(p_schema)::regnamespace
          union all select 'schema', quote_ident(n.nspname), n.nspacl, n.nspowner from pg_namespace n where n.nspname = p_schema) x
    cross join aclexplode(x.acl) a where a.grantee not in (0, x.owner)
  loop
    execute format('revoke all on %s %s from %s', r.what, r.object, r.grantee);
  end loop;
end $$;
comment on function annals.close_schema is 'Takes away what roles other than their owner may do with the objects of a schema that was just installed. What everybody may do annals.grant_access takes away.';

create function annals.grant_access(p_package name, p_viewer text, p_operator text, p_admin text, p_relations regclass[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  roles text[] := array_remove(array[p_viewer, p_operator, p_admin], null);
  grantee text;
  object text;
begin
  foreach grantee in array roles loop
    if not exists (select from pg_roles where rolname = grantee) then
      perform annals.refuse('AN003', format('role %L does not exist', grantee), 'Create it first: the function CreateRoles of the Go package does, or CREATE ROLE.');
    end if;
  end loop;
  -- Everybody may execute a new function, and so it is after restoring a dump without privileges. What reads a single history or
  -- view (h<id>_..., v<id>_...) is left alone: it does nothing that its callers could not; and functions of capture are nobody's.
  execute format('revoke all on schema %I, annals from public', p_package);
  for object in select c.oid::regclass from pg_class c where c.relnamespace in (to_regnamespace(quote_ident(p_package)), 'annals'::regnamespace) and c.relkind in ('r', 'v', 'S') and c.relname !~ '^h[0-9]+_[0-9]+_entries$'
                  and exists (select from aclexplode(c.relacl) a where a.grantee = 0) loop
    execute format('revoke all on %s from public', object);
  end loop;
  for object in select p.oid::regprocedure from pg_proc p where p.pronamespace in (to_regnamespace(quote_ident(p_package)), 'annals'::regnamespace) and p.proname !~ '^[hv][0-9]+_'
                  and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0) loop
    execute format('revoke all on routine %s from public', object);
  end loop;
  foreach grantee in array roles loop
    execute format('grant usage on schema %I, annals to %I', p_package, grantee);
    execute format('grant select on annals.access, annals.tracked, annals.tracked_column, annals.tracked_relation, annals.segment, annals.gap, annals.epoch, annals.context, annals.tick, annals.pin, %s to %I', array_to_string(p_relations, ', '), grantee);
    -- Where rows moved, without their keys.
    execute format('grant select (tracked, xid, left_v, arrived_v) on annals.move to %I', grantee);
    insert into annals.reader (role) values (grantee) on conflict do nothing;
  end loop;
  for object in select c.oid::regclass from pg_class c where c.relnamespace = 'annals'::regnamespace and c.relkind = 'v' and c.relname ~ '^h[0-9]+$' loop
    perform annals.grant_view(object);
  end loop;
  for object, grantee in execute format($query$
    select p.oid::regprocedure, g.role
    from %I.access a
    join pg_proc p on p.pronamespace = a.schema::regnamespace and p.proname = a.function
    join (values ('viewer', $1), ('viewer', $2), ('viewer', $3), ('operator', $2), ('operator', $3), ('admin', $3)) g (who, role) on g.who = a.who
    where g.role is not null$query$, p_package) using p_viewer, p_operator, p_admin
  loop
    execute format('grant execute on routine %s to %I', object, grantee);
  end loop;
end $$;
comment on function annals.grant_access is 'As the view access of a package says, lets roles read histories, work with them, and keep them up, for a package, and takes away what everybody could do with its schema.';

select annals.close_schema('annals');
