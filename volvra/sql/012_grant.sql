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
    'entry_condition', 'final_value', 'fingerprint', 'first_query', 'first_unseen', 'foreign_queries', 'freeze', 'health', 'history',
    'invalid_selection', 'last_position', 'kept_from', 'key_text', 'listing_condition', 'literal_of',
    'mark_place', 'moment_of', 'no_history', 'once', 'one_block_each', 'operator_of', 'operator_text', 'past_columns',
    'past_query', 'place_of', 'plan_columns', 'plan_query', 'planned', 'plans', 'point_place', 'preflight', 'preview', 'preview_query', 'preview_rows',
    'preview_token', 'readable_histories', 'refuse', 'retention_of', 'row_by_query', 'row_condition', 'row_shape', 'same_row', 'sees', 'selected_entries', 'selected_histories',
    'selection_bound', 'shown_query', 'stale', 'status', 'storage', 'stored_column', 'table_of', 'token', 'transactions', 'uncovered',
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
  select 'annals', a.function, a.who from annals.access a;
comment on view volvra.access is 'Which functions volvra.grant_access lets whom execute.';
comment on column volvra.access.schema is 'Schema of the function: volvra or annals.';
comment on column volvra.access.function is 'Name of the function.';
comment on column volvra.access.who is 'viewer, operator (who may do all that a viewer may), admin (who may do all that an operator may), or owner (nobody else).';

create function volvra.grant_access(p_viewer text, p_operator text, p_admin text) returns void
language sql set search_path = pg_catalog, pg_temp
as $$ select annals.grant_access('volvra', p_viewer, p_operator, p_admin, array['volvra.access', 'volvra.coverage', 'volvra.marks', 'volvra.key_change', 'volvra.retention']::regclass[]) $$;
comment on function volvra.grant_access is 'Lets one role view histories, another one also undo, and a third also manage (null: none such), and nobody else unless granted otherwise. For the owner; to be called again after an upgrade, and as often as one likes.';

select volvra.grant_access(null, null, null);
