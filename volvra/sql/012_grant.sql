-- Who may do what. Installing takes away what PostgreSQL gives to everybody, and grants nothing.
--
-- A viewer reads histories of the tables that he may read, and nothing else: rights to tables and their row-level security hold for their
-- history as well. An operator also undoes, with his own rights to the tables. An admin also decides what is covered, sealed, erased and
-- kept. Nobody is granted more than reading on a table of volvra's; what its functions write they write with the rights of its owner.

-- Every function of the schemas stands here once, those that belong to a single history (annals.h<id>_...) apart. A step that adds one adds
-- it here, too, and the last one calls volvra.grant_access(null, null, null).
create view volvra.access (schema, function, who) with (security_invoker = true) as
  select 'volvra', unnest(array[
    'activity', 'as_of', 'as_of_row', 'attempts', 'base_table', 'blame', 'block_query', 'chain_head', 'change_condition', 'changed_code', 'check_key',
    'check_reach', 'check_selection', 'check_value', 'check_where', 'column_number', 'covered_table', 'covering', 'differs', 'digest', 'digest_of',
    'entries_of', 'entry_condition', 'final_value', 'fingerprint', 'first_query', 'first_unseen', 'foreign_queries', 'freeze', 'health', 'history',
    'invalid_selection', 'last_position', 'kept_from', 'kept_value', 'key_is', 'key_join', 'key_text', 'listing_condition', 'literal', 'literal_of', 'lives',
    'mark_place', 'moment_of', 'moved', 'nests', 'no_history', 'once', 'one_block_each', 'operation', 'operator_of', 'operator_text', 'past_columns',
    'past_query', 'place_of', 'plan_columns', 'plan_query', 'planned', 'plans', 'point_place', 'positions_of', 'preflight', 'preview', 'preview_query', 'preview_rows',
    'preview_token', 'readable_histories', 'refuse', 'retention_of', 'row_by_query', 'row_condition', 'row_shape', 'same_row', 'sees', 'selected_entries', 'selected_histories',
    'selection_bound', 'shown_query', 'source', 'stale', 'status', 'storage', 'stored_column', 'table_of', 'today', 'token', 'transactions', 'uncovered',
    'unique_queries', 'unseen', 'unseen_condition', 'verify', 'verify_chain', 'verify_ledgers', 'verify_part', 'verify_parts']), 'viewer'
  union all
  select 'volvra', unnest(array[
    'begin_attempt', 'block_plans', 'carry_out', 'changes_of', 'count_plans', 'drop_mark', 'finish_attempt', 'lock_query', 'make_plans', 'mark',
    'plans_digest', 'read_token', 'redo', 'refused_rows', 'resume_attempt', 'this_transaction', 'undo', 'undo_attempt', 'undo_to', 'write_parts',
    'write_plans']), 'operator'
  union all
  select 'volvra', unnest(array[
    'disable', 'enable', 'enable_schema', 'forget', 'maintain', 'maintain_step', 'purge', 'purgeable', 'reset_retention', 'seal', 'set_retention']), 'admin'
  union all
  select 'volvra', unnest(array[
    'attempt_key', 'broken_rows', 'cluster', 'code', 'cover', 'expired', 'forget_entries', 'forget_in', 'full_xid', 'grant_access', 'guard_record', 'hashing', 'home',
    'histories_of', 'is_purged', 'key_at', 'key_condition', 'key_entries', 'last_entry', 'last_seal', 'listed_rows', 'note_code', 'on_view', 'own_attempt',
    'owner_refusal', 'plain_function', 'plain_view', 'purge_entries', 'purge_others', 'purge_parts', 'read_committed', 'remove_rows', 'row_text', 'seal_content',
    'seal_hash', 'seal_source', 'sealed_by', 'sealed_sources', 'subject_key', 'subject_spans', 'uncaptured', 'value_fields', 'verify_broken',
    'verify_rows', 'without_values']), 'owner'
  union all
  select 'annals', unnest(array[
    'capture_name', 'captured', 'cascades', 'check_capture', 'coordinate', 'coordinate_at', 'coordinate_snapshot', 'drift', 'epoch_is_present',
    'free_key', 'harmless', 'inherits', 'is_beyond', 'is_disabled', 'is_ours', 'is_restored', 'is_view_current', 'key_index', 'key_operator', 'leaves',
    'lower_bound', 'may_change_key', 'may_nest', 'names_wide', 'new_alias', 'old_alias', 'owner', 'policy_state', 'position_at', 'readable_from', 'reads_all',
    'refers_to_itself', 'refusal_to_track', 'refuse', 'runs_code', 'snapshot_covers', 'stored', 'taken_snapshot', 'trigger_statements', 'unreadable']), 'viewer'
  union all
  select 'annals', unnest(array[
    'adopt', 'rotate', 'seal_segments', 'sync', 'tick']), 'admin'
  union all
  select 'annals', unnest(array[
    'begin_segment', 'capture_rows', 'capture_truncate', 'check_options', 'choose', 'context_text', 'drop_triggers', 'end_tracking', 'entry_head',
    'entry_insert', 'fits_segment', 'flush_moves', 'follow', 'follow_all', 'follow_partitions', 'follows_ddl', 'grant_view', 'here', 'home',
    'insertions_since', 'interrupt', 'is_named_so', 'is_own', 'key_list', 'key_texts', 'lacks_trigger', 'lock_history', 'made_here', 'materialize', 'move_insert', 'same_value',
    'note_epoch', 'on_ddl_end', 'on_drop', 'on_rewrite', 'open_writers', 'partitioned_moves', 'pinned', 'policy_columns', 'present_epoch', 'prune',
    'put_triggers', 'read_columns', 'refresh', 'register_context', 'segment_name', 'shape', 'stored_type', 'tell_users', 'track', 'trigger_hash', 'untrack',
    'view_branch', 'view_columns', 'view_condition', 'who_context', 'who_hash', 'who_login', 'who_registered', 'wide_columns', 'widens', 'write_function', 'write_functions',
    'write_policy', 'write_row_function', 'write_view']), 'owner';
comment on view volvra.access is 'Which functions volvra.grant_access lets whom execute.';
comment on column volvra.access.schema is 'Schema of the function: volvra or annals.';
comment on column volvra.access.function is 'Name of the function.';
comment on column volvra.access.who is 'viewer, operator (who may do all that a viewer may), admin (who may do all that an operator may), or owner (nobody else).';

create function volvra.grant_access(p_viewer text, p_operator text, p_admin text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  grantee text;
  object text;
begin
  -- Everybody may execute a new function, and so it is after restoring a dump without privileges. Policies of tables that run within the
  -- views of histories, annals.h<id>_..., are left alone: they do nothing that their callers could not.
  revoke all on schema volvra, annals from public;
  revoke all on all tables in schema volvra, annals from public;
  revoke all on all sequences in schema volvra, annals from public;
  for object in select p.oid::regprocedure from pg_proc p where p.pronamespace in ('volvra'::regnamespace, 'annals'::regnamespace) and p.proname !~ '^h[0-9]+_'
                  and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0) loop
    execute format('revoke all on routine %s from public', object);
  end loop;
  foreach grantee in array array_remove(array[p_viewer, p_operator, p_admin], null) loop
    if not exists (select from pg_roles where rolname = grantee) then
      perform volvra.refuse('VO007', format('role %L does not exist', grantee), 'Create it first: the function CreateRoles of the Go package does, or CREATE ROLE.');
    end if;
    execute format('grant usage on schema volvra, annals to %I', grantee);
    execute format('grant select on annals.tracked, annals.tracked_column, annals.tracked_relation, annals.segment, annals.gap, annals.epoch, annals.context, annals.tick, annals.pin to %I', grantee);
    -- Where rows moved, without their keys.
    execute format('grant select (tracked, xid, left_v, arrived_v) on annals.move to %I', grantee);
    execute format('grant select on volvra.access, volvra.coverage, volvra.marks, volvra.key_change, volvra.retention to %I', grantee);
    insert into annals.reader (role) values (grantee) on conflict do nothing;
  end loop;
  for object in select c.oid::regclass from pg_class c where c.relnamespace = 'annals'::regnamespace and c.relkind = 'v' and c.relname ~ '^h[0-9]+$' loop
    perform annals.grant_view(object);
  end loop;
  for object, grantee in
    select p.oid::regprocedure, g.role from pg_proc p join pg_namespace n on n.oid = p.pronamespace join volvra.access a on a.schema = n.nspname and a.function = p.proname
      join (values ('viewer', p_viewer), ('viewer', p_operator), ('viewer', p_admin), ('operator', p_operator), ('operator', p_admin), ('admin', p_admin)) g (who, role) on g.who = a.who
      where g.role is not null
  loop
    execute format('grant execute on routine %s to %I', object, grantee);
  end loop;
end $$;
comment on function volvra.grant_access is 'Lets one role view histories, another one also undo, and a third also manage (null: none such), and nobody else unless granted otherwise. For the owner; to be called again after an upgrade, and as often as one likes.';

select volvra.grant_access(null, null, null);
