-- Who may do what. Installing takes away what PostgreSQL gives to everybody, and grants nothing.
--
-- A viewer reads the past, the differences and the changes of the tables that he may read, and nothing else: rights to tables and their row-level
-- security hold for their past as well. An operator also sets tags and works for consumers of the change feed. An admin also decides what is
-- tracked, kept and pruned. Nobody is granted more than reading on a table of gnomon's; what its functions write they write with the rights of its owner.

-- Every function of the schema stands here once, those that belong to a single history or view (gnomon.h<id>_..., gnomon.v<id>_...) apart. A step that adds one
-- adds it here, too, and the last one calls gnomon.grant_access(null, null, null).
create view gnomon.access (schema, function, who) with (security_invoker = true) as
  select 'gnomon', unnest(array[
    'astray', 'at', 'began_before', 'best_checkpoint', 'blame', 'change_condition', 'change_histories', 'change_kept', 'change_tables', 'change_top', 'changes',
    'changes_query', 'check', 'check_key', 'check_keys', 'check_tables', 'column_gone', 'consumer_of', 'consumers', 'diff', 'diff_columns', 'diff_counts', 'diff_image', 'diff_queries', 'diff_query',
    'delivered_of', 'ended_before', 'enter', 'epoch', 'era_at', 'first_unseen', 'given_keys', 'histories_at', 'history', 'history_at', 'history_changes_query', 'holds', 'home', 'image_columns', 'is_behind', 'is_known', 'last_entry', 'last_history',
    'last_position', 'leave', 'life', 'names_hold', 'never_tracked', 'next_of', 'now', 'open_at', 'pins_of', 'place_at', 'place_of', 'plain_type', 'point_at', 'point_before', 'point_of', 'present_history', 'readable_since', 'refuse',
    'refuse_name', 'refuse_read', 'refuse_stale', 'routes_at', 'rows_query', 'shows_former', 'snapshot_at', 'snapshot_query', 'source_of', 'source_shown', 'status', 'stored_place', 'table_of', 'table_stamp', 'tags',
    'text_of', 'tracked_row', 'unreachable', 'window_query']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'check_tag', 'close_window', 'create_consumer', 'drop_consumer', 'drop_tag', 'heartbeat', 'lease_consumer', 'move_consumer', 'move_rows', 'move_tag', 'not_leased', 'open_window', 'release_consumer', 'rename_tag',
    'tag', 'unknown_tag']), 'operator'
  union all
  select 'gnomon', unnest(array[
    'drop_checkpoint', 'maintain', 'maintain_step', 'make_checkpoint', 'prune', 'set_policy', 'sync', 'sync_guards', 'track', 'track_schema', 'untrack']), 'admin'
  union all
  select 'gnomon', unnest(array[
    'awaited_by', 'bound_of_age', 'changes_since', 'computed', 'drop_guard', 'drop_route', 'drop_routes', 'drop_view', 'due_checkpoints', 'entry_arms', 'follow_names', 'follow_rights', 'former_columns', 'gone_value', 'grant_access', 'is_volvras', 'kept_value', 'key_equals', 'lacking', 'make_schema', 'mirror_rights', 'note_sources',
    'on_ddl_end', 'on_drop', 'on_erase', 'on_grant', 'on_view', 'past_columns', 'pin_place', 'prune_history', 'reads_tracked', 'shapes', 'thin_ticks', 'try_view', 'unguarded', 'unrouted', 'untrack_all', 'view_obstacle',
    'view_query', 'view_reads', 'view_text', 'write_entries', 'write_guard', 'write_guards', 'write_refusal', 'write_route', 'write_routes', 'write_shown', 'write_today']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'is_confined', 'lent_diff', 'open_loans', 'refuse_loan']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'check_may_manage']), 'operator'
  union all
  select 'gnomon', unnest(array[
    'confinements']), 'admin'
  union all
  select 'gnomon', unnest(array[
    'after_ddl', 'before_ddl', 'check_confinements', 'confine', 'confinement_gaps', 'drop_empty_loans', 'drop_loans', 'hidden_columns', 'open_triggers', 'release', 'roles_of', 'write_loans']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'branch_here', 'branch_holds', 'branch_view', 'pending_of', 'refuse_check', 'refuse_collision', 'refuse_duplicate', 'refuse_generated', 'refuse_lost', 'refuse_null', 'refuse_reference', 'branch_named', 'branch_of', 'branch_past', 'branch_place', 'branches', 'may_use', 'open_branch', 'enter_branch', 'refuse_branch', 'resume', 'use', 'versions', 'overlay_columns']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'check_branch_name', 'check_unprotected', 'create_branch', 'describe_branch', 'drop_branch', 'expire_branch', 'hold_branch', 'lock_branch', 'protect_branch', 'rename_branch', 'reset_branch']), 'operator'
  union all
  select 'gnomon', unnest(array[
    'begin_branching', 'branch_out', 'today_of', 'changed_by', 'clear_overlays', 'copy_overlays', 'drop_expired_branches', 'drop_merge_view', 'drop_overlay', 'make_overlay', 'unique_mark', 'spread', 'move_base', 'orphan_branches', 'overlay_counts', 'overlays', 'branch_before', 'branch_checks', 'branch_rules', 'follow_writing', 'branch_columns', 'branch_references', 'branch_uniques', 'coercing', 'deriving', 'equals', 'has_code', 'is_plain', 'needs_path', 'numbering', 'parent_rows', 'reaches_code', 'refusing_generated', 'settle', 'settle_deferred', 'write_act', 'write_checks_of_references', 'write_defaults', 'write_derive', 'write_judge', 'write_writing', 'plain_equality', 'write_branch_rows', 'write_branch_triggers', 'write_put']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'check_stale', 'marks_of', 'note_plan', 'note_read', 'noted_history', 'own_merges', 'range_columns', 'range_names', 'reads', 'stale_query', 'stale_reads']), 'viewer'
  union all
  select 'gnomon', unnest(array['forget_reads']), 'operator'
  union all
  select 'gnomon', unnest(array['copy_reads']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'approvals', 'change_requests', 'check_merge', 'merge_policies', 'policy_refusals', 'reviews', 'unmet_query', 'unknown_policy', 'written', 'written_keys']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'merge_request', 'note_request', 'open_request', 'request_of', 'request_to_change', 'review_request', 'withdraw_request']), 'operator'
  union all
  select 'gnomon', unnest(array[
    'check_policy_options', 'drop_merge_policy', 'set_merge_policy']), 'admin'
  union all
  select 'gnomon', unnest(array[
    'branch_counts', 'branch_state', 'branch_writers', 'close_request', 'request_standing', 'standing_reviews']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'branch_diff', 'branch_diff_counts', 'branch_diff_rows', 'branch_step_rows', 'branch_steps', 'diffed_overlays', 'diffed_tables', 'lock_rows', 'reads_all', 'refuse_write']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'branch_diff_query', 'check_reaches', 'overlay_image', 'write_changed', 'write_open']), 'owner'
  union all
  select 'gnomon', unnest(array[
    'changed_at', 'conflicts', 'merge_json', 'merge_of', 'merge_rows', 'merges', 'no_table', 'refuse_merge', 'table_named', 'strategies', 'suits', 'union_arrays', 'violations', 'wrote', 'wrote_on_branch']), 'viewer'
  union all
  select 'gnomon', unnest(array[
    'begin_merge', 'begin_undo', 'close_room', 'make_room', 'make_rooms', 'may_replace', 'named_options', 'order_queries', 'order_rows', 'order_updates', 'room_column', 'row_of_keys', 'carry_resolutions', 'check_refresh', 'end_merge', 'end_refresh', 'find_violations', 'finish_merge', 'merge', 'merge_statements', 'merge_tables', 'note_conflicts', 'note_left', 'note_violations', 'plan_tables', 'refresh_branch', 'refresh_tables', 'resolve', 'run_merge', 'settle_merge', 'settle_refresh', 'undo_merge', 'undo_tables', 'violation_queries']), 'operator'
  union all
  select 'gnomon', unnest(array['prune_reports', 'set_strategy']), 'admin'
  union all
  select 'gnomon', unnest(array[
    'check_decider', 'check_merge_options', 'decide_query', 'decide_value', 'fork_values', 'gone_columns', 'merge_columns', 'merge_filter', 'merge_source', 'merge_target', 'object_of', 'parents_first', 'planned_rows', 'same_image', 'stored_image', 'strategy_of', 'unique_keys', 'untouched', 'untouched_rows', 'written_rows', 'written_tables', 'write_merge_view']), 'owner'
  union all
  select 'annals', a.function, a.who from annals.access a;
comment on view gnomon.access is 'Which functions gnomon.grant_access lets whom execute.';
comment on column gnomon.access.schema is 'Schema of the function: gnomon or annals.';
comment on column gnomon.access.function is 'Name of the function.';
comment on column gnomon.access.who is 'viewer, operator (who may do all that a viewer may), admin (who may do all that an operator may), or owner (nobody else).';

create function gnomon.grant_access(p_viewer text, p_operator text, p_admin text) returns void
language sql set search_path = pg_catalog, pg_temp
as $$ select annals.grant_access('gnomon', p_viewer, p_operator, p_admin, array['gnomon.access', 'gnomon.history', 'gnomon.source', 'gnomon.route', 'gnomon.checkpoint', 'gnomon.tag', 'gnomon.policy', 'gnomon.validity', 'gnomon.marker', 'gnomon.resolution']::regclass[]) $$;
comment on function gnomon.grant_access is 'Lets one role read the past, another one also set tags and work for consumers, and a third also manage (null: none such), and nobody else unless granted otherwise. For the owner; to be called again after an upgrade, and as often as one likes.';

select annals.close_schema('gnomon');
select gnomon.grant_access(null, null, null);
