-- Policies say what a merge into main has to keep to, and change requests hold a branch until others have looked at it.
--
-- A policy holds for the branches whose names begin as it says, and for merges that name it. It is judged when the merge has written main, in
-- the same transaction, by what history took down: so rows that cascades and triggers of main wrote count as well. What a policy keeps from
-- happening are mistakes: whoever may write the tables of main can do so without a merge.

create table gnomon.merge_policy (
  name text primary key check (name <> '' and length(name) <= 200),
  prefix text default '',
  roles name[],
  any_table boolean not null default true,
  max_rows bigint check (max_rows >= 0),
  no_stale_reads boolean not null default false,
  reviews int not null default 0 check (reviews >= 0),
  self_review boolean not null default false,
  note text not null default '',
  at timestamptz not null default clock_timestamp(),
  login name not null default session_user
);
comment on table gnomon.merge_policy is 'What merges into main have to keep to.';
comment on column gnomon.merge_policy.name is 'The name.';
comment on column gnomon.merge_policy.prefix is 'It holds for branches whose names begin so; null: only for merges that name it.';
comment on column gnomon.merge_policy.roles is 'Roles whose members may merge; null: any that may write the tables.';
comment on column gnomon.merge_policy.any_table is 'Tables without a rule may be changed, too.';
comment on column gnomon.merge_policy.max_rows is 'How many rows a merge may change at most, of all tables together; null: any number.';
comment on column gnomon.merge_policy.no_stale_reads is 'What was read on the branch must not have changed on main.';
comment on column gnomon.merge_policy.reviews is 'How many approvals a merge takes.';
comment on column gnomon.merge_policy.self_review is 'Who opened the request, or wrote on the branch, may be among those who approve.';
comment on column gnomon.merge_policy.note is 'What somebody wrote about it.';
comment on column gnomon.merge_policy.at is 'When it was set last.';
comment on column gnomon.merge_policy.login is 'The role that did that (session_user).';

create table gnomon.merge_rule (
  policy text not null references gnomon.merge_policy on delete cascade,
  relation regclass not null,
  operations text[] not null default '{insert,update,delete}' check (operations <@ '{insert,update,delete}'),
  max_rows bigint check (max_rows >= 0),
  conditions jsonb not null default '[]',
  primary key (policy, relation)
);
comment on table gnomon.merge_rule is 'What policies say of single tables.';
comment on column gnomon.merge_rule.policy is 'The policy.';
comment on column gnomon.merge_rule.relation is 'The table.';
comment on column gnomon.merge_rule.operations is 'What may be done to its rows: insert, update, delete.';
comment on column gnomon.merge_rule.max_rows is 'How many of its rows a merge may change at most; null: any number.';
comment on column gnomon.merge_rule.conditions is 'What must be true of each row that was inserted or updated, as it is then: column, operator and value.';

create table gnomon.change_request (
  id int primary key generated always as identity,
  branch int references gnomon.branch on delete set null,
  branch_name text not null,
  target text,
  title text not null,
  purpose text not null,
  policy text,
  options jsonb not null,
  login name not null default session_user,
  at timestamptz not null default clock_timestamp(),
  closed text check (closed in ('merged', 'withdrawn')),
  closed_at timestamptz,
  closed_by name,
  merge bigint,
  counts jsonb
);
create index change_request_branch on gnomon.change_request (branch);
comment on table gnomon.change_request is 'Requests to merge a branch.';
comment on column gnomon.change_request.id is 'Number of the request.';
comment on column gnomon.change_request.branch is 'The branch; null when it was dropped.';
comment on column gnomon.change_request.branch_name is 'The name that it had when the request was opened.';
comment on column gnomon.change_request.target is 'The branch into which it is to be merged; null: main.';
comment on column gnomon.change_request.title is 'What it is, in a line.';
comment on column gnomon.change_request.purpose is 'What it is for.';
comment on column gnomon.change_request.policy is 'A policy that holds for it beside those that cover the branch.';
comment on column gnomon.change_request.options is 'Options of the merge.';
comment on column gnomon.change_request.login is 'The role that opened it (session_user).';
comment on column gnomon.change_request.at is 'When it was opened.';
comment on column gnomon.change_request.closed is 'How it ended; null: it has not.';
comment on column gnomon.change_request.closed_at is 'When it ended.';
comment on column gnomon.change_request.closed_by is 'The role that ended it.';
comment on column gnomon.change_request.merge is 'The merge.';
comment on column gnomon.change_request.counts is 'What was changed on the branch when it ended: inserts, updates and deletes by table.';
comment on index gnomon.change_request_branch is 'Finds the requests of a branch.';

create table gnomon.review (
  id bigint primary key generated always as identity,
  request int not null references gnomon.change_request on delete cascade,
  login name not null default session_user,
  verdict text not null check (verdict in ('approve', 'reject', 'comment')),
  comment text not null,
  state text not null,
  at timestamptz not null default clock_timestamp()
);
create index review_request on gnomon.review (request);
comment on table gnomon.review is 'What reviewers said to requests.';
comment on column gnomon.review.id is 'Number of the review.';
comment on column gnomon.review.request is 'The request.';
comment on column gnomon.review.login is 'The role that reviewed (session_user).';
comment on column gnomon.review.verdict is 'approve, reject or comment.';
comment on column gnomon.review.comment is 'What it said.';
comment on column gnomon.review.state is 'The state of the branch that it is about: when that has changed, the verdict counts no more.';
comment on column gnomon.review.at is 'When.';
comment on index gnomon.review_request is 'Finds the reviews of a request.';

create function gnomon.set_merge_policy(p_name text, p_options jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  o jsonb := coalesce(p_options, '{}');
  t record;
  c record;
  named regclass;
  type text;
begin
  if p_name is null or p_name = '' or length(p_name) > 200 then
    perform gnomon.refuse('GN006', format('%s is no name for a policy', coalesce(quote_literal(left(p_name, 20)), 'null')), 'It has 1 to 200 characters.');
  end if;
  perform gnomon.check_policy_options(o, '{prefix,roles,tables,max_rows,no_stale_reads,reviews,self_review,note}');
  perform gnomon.refuse('GN006', format('role %L does not exist', r), 'Create it first.') from jsonb_array_elements_text(nullif(o->'roles', 'null')) r where not exists (select from pg_roles where rolname = r);
  begin
    insert into gnomon.merge_policy as p (name, prefix, roles, any_table, max_rows, no_stale_reads, reviews, self_review, note)
      values (p_name, case when o ? 'prefix' then o->>'prefix' else '' end, case when jsonb_typeof(o->'roles') = 'array' then array(select jsonb_array_elements_text(o->'roles')::name) end, coalesce(jsonb_typeof(o->'tables') = 'null', true),
              (o->>'max_rows')::bigint, coalesce((o->>'no_stale_reads')::boolean, false), coalesce((o->>'reviews')::int, 0), coalesce((o->>'self_review')::boolean, false), coalesce(o->>'note', ''))
      on conflict (name) do update set prefix = excluded.prefix, roles = excluded.roles, any_table = excluded.any_table, max_rows = excluded.max_rows, no_stale_reads = excluded.no_stale_reads,
        reviews = excluded.reviews, self_review = excluded.self_review, note = excluded.note, at = clock_timestamp(), login = session_user;
    delete from gnomon.merge_rule r where r.policy = p_name;
  exception when data_exception or check_violation then
    perform gnomon.refuse('GN006', format('policy %L: %s', p_name, sqlerrm), 'max_rows and reviews are numbers from 0 on; no_stale_reads and self_review are true or false.');
  end;
  for t in select e.key as name, e.value as rule from jsonb_each(case when jsonb_typeof(o->'tables') = 'object' then o->'tables' else '{}' end) e loop
    named := to_regclass(t.name);
    if named is null then
      perform gnomon.refuse('GN006', format('there is no table %s', t.name), 'Give its name as in SQL, with its schema.', jsonb_build_object('table', t.name));
    elsif not exists (select from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = named) then
      perform gnomon.refuse('GN007', format('table %s is not tracked', named), 'Track it with gnomon.track.', jsonb_build_object('table', named::text));
    end if;
    t.rule := coalesce(nullif(t.rule, 'null'), '{}');
    perform gnomon.check_policy_options(t.rule, '{operations,max_rows,conditions}');
    for c in select x->>'column' as name, x->>'operator' as operator, x->>'value' as value, x from jsonb_array_elements(nullif(t.rule->'conditions', 'null')) x loop
      perform gnomon.check_policy_options(c.x, '{column,operator,value}');
      type := null;
      select annals.stored_type(a.atttypid, -1) into type from pg_attribute a where a.attrelid = named and a.attname = c.name and a.attnum > 0 and not a.attisdropped;
      if type is null then
        perform gnomon.refuse('GN006', format('table %s has no column %s', named, coalesce(quote_ident(c.name), 'null')), 'A condition has a column, an operator and a value.', jsonb_build_object('table', named::text, 'column', c.name));
      elsif c.operator is null or c.operator not in ('=', '<>', '<', '<=', '>', '>=', 'is null', 'is not null') then
        perform gnomon.refuse('GN006', format('a condition cannot have the operator %s', coalesce(quote_literal(left(c.operator, 20)), 'null')), 'It can have =, <>, <, <=, >, >=, is null, is not null.', jsonb_build_object('table', named::text, 'column', c.name));
      elsif (c.operator like 'is %') <> (c.value is null) then
        perform gnomon.refuse('GN006', format('a condition with %s %s a value', c.operator, case when c.value is null then 'takes' else 'takes no' end), 'A condition has a column, an operator and a value.', jsonb_build_object('table', named::text, 'column', c.name));
      elsif c.value is not null then
        -- Domains are not asked: their constraints are code of others. No value of a type that contains one is read here.
        if exists (select from pg_attribute a where a.attrelid = named and a.attname = c.name and a.atttypid >= 16384 and annals.runs_code(a.atttypid)) then
          perform gnomon.refuse('GN006', format('a condition cannot compare column %I of %s', c.name, named), 'Its type contains a domain.', jsonb_build_object('table', named::text, 'column', c.name));
        end if;
        begin
          execute format('select %L::%s operator(pg_catalog.%s) %1$L::%2$s', c.value, type, c.operator);
        exception when others then
          perform gnomon.refuse('GN006', format('condition on column %I of %s: %s', c.name, named, sqlerrm), format('Give a value of type %s.', type), jsonb_build_object('table', named::text, 'column', c.name));
        end;
      end if;
    end loop;
    begin
      insert into gnomon.merge_rule (policy, relation, operations, max_rows, conditions)
        values (p_name, named, case when jsonb_typeof(t.rule->'operations') = 'array' then array(select jsonb_array_elements_text(t.rule->'operations')) else '{insert,update,delete}' end, (t.rule->>'max_rows')::bigint, coalesce(nullif(t.rule->'conditions', 'null'), '[]'));
    exception when data_exception or check_violation then
      perform gnomon.refuse('GN006', format('policy %L, table %s: %s', p_name, named, sqlerrm), 'Operations are insert, update and delete; max_rows is a number from 0 on.', jsonb_build_object('table', named::text));
    end;
  end loop;
end $$;
comment on function gnomon.set_merge_policy is 'Makes a policy or sets it anew. Options: prefix of the branches that it covers (all, unless given; null: only merges that name it), roles that may merge, max_rows, no_stale_reads, reviews (how many approvals), self_review, note, and tables: an object of tables, each with operations, max_rows and conditions ([{"column", "operator", "value"}], true of every row as merged); no others may be changed then.';

create function gnomon.check_policy_options(p_options jsonb, p_known text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  bad text;
begin
  if jsonb_typeof(p_options) <> 'object' then
    perform gnomon.refuse('GN006', 'what a policy says is an object', format('It can have %s.', array_to_string(p_known, ', ')));
  end if;
  select k into bad from jsonb_object_keys(p_options) k where k <> all (p_known) limit 1;
  if found then
    perform gnomon.refuse('GN006', format('a policy knows nothing of %L here', bad), format('It can have %s.', array_to_string(p_known, ', ')));
  end if;
  select e.key into bad from jsonb_each(p_options) e where e.key in ('roles', 'operations', 'conditions') and jsonb_typeof(e.value) not in ('array', 'null') or e.key = 'tables' and jsonb_typeof(e.value) not in ('object', 'null') limit 1;
  if found then
    perform gnomon.refuse('GN006', format('%L of a policy is %s', bad, case bad when 'tables' then 'an object' else 'an array' end), '');
  end if;
end $$;
comment on function gnomon.check_policy_options is 'Refuses what policies do not know.';

create function gnomon.drop_merge_policy(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from gnomon.merge_policy p where p.name = p_name;
  if not found then
    perform gnomon.unknown_policy(p_name);
  end if;
end $$;
comment on function gnomon.drop_merge_policy is 'Drops a policy.';

create function gnomon.unknown_policy(p_name text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN006', format('there is no policy %L', coalesce(p_name, '')), 'gnomon.merge_policies() lists them.', jsonb_build_object('policy', p_name));
end $$;
comment on function gnomon.unknown_policy is 'Says that there is no such policy.';

create function gnomon.merge_policies(p_branch text default null, p_policy text default null) returns table (name text, options jsonb, at timestamptz, login name)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select p.name, jsonb_build_object('prefix', p.prefix, 'roles', to_jsonb(p.roles), 'max_rows', p.max_rows, 'no_stale_reads', p.no_stale_reads, 'reviews', p.reviews, 'self_review', p.self_review, 'note', p.note,
      'tables', case when not p.any_table then (select coalesce(jsonb_object_agg(r.relation::text, jsonb_build_object('operations', r.operations, 'max_rows', r.max_rows, 'conditions', r.conditions)), '{}') from gnomon.merge_rule r where r.policy = p.name) end), p.at, p.login
  from gnomon.merge_policy p where p_branch is null and p_policy is null or starts_with(p_branch, p.prefix) or p.name = p_policy order by p.name
$$;
comment on function gnomon.merge_policies is 'The policies as they were set; those that hold for a branch of this name and for merges that name a policy, if these are given.';

create function gnomon.written(p_after_v bigint) returns table (tracked int, relation regclass, inserts bigint, updates bigint, deletes bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s record;
  n record;
begin
  -- Segments that nothing was written to in this transaction need not be looked at.
  for s in select g.tracked, t.relation, t.key, string_agg(format('select %s, h.v, h.op%s from %s h where h.v > %s and h.xid = %L', (select string_agg(format('h.c%s', k), ', ' order by i) from unnest(t.key) with ordinality u (k, i)), case when g.nests then ', coalesce(h.start, h.v) as start' else ', h.v as start' end, g.relation, p_after_v, pg_current_xact_id()), ' union all ') as entries
    from annals.segment g join annals.tracked t on t.id = g.tracked where g.sealed_at is null and (current_setting('track_counts') <> 'on' or pg_stat_get_xact_tuples_inserted(g.relation) > 0) group by g.tracked, t.relation, t.key
  loop
    -- Per key what its first entry found and its last one left.
    execute format('select count(*) filter (where not x.was and x.here) as inserts, count(*) filter (where x.was and x.here) as updates, count(*) filter (where x.was and not x.here) as deletes from (
        select (array_agg(e.op order by e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v))[1] not in (''i'', ''n'', ''m'') as was, (array_agg(e.op order by e.start desc, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end desc, e.v desc))[1] in (''i'', ''n'', ''u'', ''U'') as here
        from (%s) e group by %s) x', s.entries, (select string_agg(format('e.c%s', k), ', ' order by i) from unnest(s.key) with ordinality u (k, i))) into n;
    if n.inserts + n.updates + n.deletes > 0 then
      tracked := s.tracked;
      relation := s.relation;
      inserts := n.inserts;
      updates := n.updates;
      deletes := n.deletes;
      return next;
    end if;
  end loop;
end $$;
comment on function gnomon.written is 'How many rows of tracked tables the running transaction has inserted, updated and deleted since a position.';

create function gnomon.written_keys(p_tracked int, p_after_v bigint) returns table (key text[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
begin
  return query execute (select string_agg(format('select array[%s] from %s h where h.v > %s and h.xid = %L', (select string_agg(gnomon.text_of(format('h.c%s', u.k), a.atttypid), ', ' order by u.i) from unnest(t.key) with ordinality u (k, i) join pg_attribute a on a.attrelid = g.relation and a.attname = format('c%s', u.k)), g.relation, p_after_v, pg_current_xact_id()), ' union ')
    from annals.segment g join annals.tracked t on t.id = g.tracked where g.tracked = p_tracked and g.sealed_at is null);
end $$;
comment on function gnomon.written_keys is 'Keys of a table that the running transaction has written since a position.';

create function gnomon.unmet_query(p_tracked int, p_condition jsonb, p_after_v bigint) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('select count(*) from %s b where exists (select from gnomon.written_keys(%s, %s) w where %s) and (b.%I %s) is not true', annals.source(t.relation), p_tracked, p_after_v,
    (select string_agg(format('b.%I %s (w.key[%s])::%s', c.name, annals.key_operator(t.id, u.i::int), u.i, format_type(a.atttypid, -1)), ' and ' order by u.i)
     from unnest(t.key) with ordinality u (k, i) join annals.tracked_column c on c.tracked = t.id and c.n = u.k join pg_attribute a on a.attrelid = format('annals.h%s', t.id)::regclass and a.attname = format('c%s', u.k)),
    p_condition->>'column', case when p_condition->>'operator' like 'is %' then p_condition->>'operator' else
      (select format('operator(pg_catalog.%s) %L::%s', p_condition->>'operator', p_condition->>'value', annals.stored_type(x.atttypid, -1)) from pg_attribute x where x.attrelid = t.relation and x.attname = p_condition->>'column' and not x.attisdropped) end)
  from annals.tracked t where t.id = p_tracked
$$;
comment on function gnomon.unmet_query is 'SQL that counts the rows which the running transaction has written since a position and which do not meet a condition.';

-- As the caller: main's rows are read with his rights.
create function gnomon.policy_refusals(p_branch int, p_options jsonb, p_after_v bigint) returns table (policy text, rule text, "table" text, count bigint, message text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  b gnomon.branch := gnomon.branch_of(p_branch);
  p record;
  w record;
  r record;
  rule_of jsonb;
  c jsonb;
  n bigint;
begin
  if p_options->>'policy' is not null and not exists (select from gnomon.merge_policies(null, p_options->>'policy')) then
    perform gnomon.unknown_policy(p_options->>'policy');
  end if;
  for p in select x.name, x.options from gnomon.merge_policies(b.name, p_options->>'policy') x loop
    policy := p.name;
    if jsonb_typeof(p.options->'roles') = 'array' and not exists (select from jsonb_array_elements_text(p.options->'roles') a join pg_roles g on g.rolname = a where pg_has_role(current_user, g.oid, 'usage')) then
      rule := 'roles';
      message := format('role %s may not merge branch %L', current_user, b.name);
      return next;
    end if;
    if (p.options->>'reviews')::int > 0 then
      n := gnomon.approvals((p_options->>'request')::int, b.id, not (p.options->>'self_review')::boolean);
      if n < (p.options->>'reviews')::int then
        rule := 'reviews';
        count := n;
        message := format('a merge of branch %L takes %s approval%s of its present state, and has %s', b.name, p.options->>'reviews', case when (p.options->>'reviews')::int > 1 then 's' else '' end, n);
        return next;
      end if;
    end if;
    select coalesce(sum(x.inserts + x.updates + x.deletes), 0) into n from gnomon.written(p_after_v) x;
    if n > (p.options->>'max_rows')::bigint then
      rule := 'max_rows';
      count := n;
      message := format('the merge changes %s rows, and may change %s', n, p.options->>'max_rows');
      return next;
    end if;
    if jsonb_typeof(p.options->'tables') = 'object' then
      for w in select * from gnomon.written(p_after_v) x loop
        "table" := w.relation::text;
        count := w.inserts + w.updates + w.deletes;
        rule_of := p.options->'tables'->w.relation::text;
        if rule_of is null then
          rule := 'tables';
          message := format('the merge changes %s row%s of %s, which it may not change', count, case when count > 1 then 's' else '' end, w.relation);
          return next;
          continue;
        end if;
        if count > (rule_of->>'max_rows')::bigint then
          rule := 'max_rows';
          message := format('the merge changes %s rows of %s, and may change %s', count, w.relation, rule_of->>'max_rows');
          return next;
        end if;
        for r in select o.* from (values ('insert', w.inserts), ('update', w.updates), ('delete', w.deletes)) o (name, n) where o.n > 0 and not rule_of->'operations' ? o.name loop
          rule := 'operations';
          count := r.n;
          message := format('the merge %ss %s row%s of %s, which it may not', r.name, r.n, case when r.n > 1 then 's' else '' end, w.relation);
          return next;
        end loop;
        for c in select x from jsonb_array_elements(rule_of->'conditions') x loop
          rule := 'conditions';
          begin
            execute gnomon.unmet_query(w.tracked, c, p_after_v) into n;
          exception when undefined_column or undefined_function or null_value_not_allowed then
            n := null;
          end;
          if n is null then
            count := null;
            message := format('the condition on column %I of %s cannot be judged any more: the table was changed', c->>'column', w.relation);
            return next;
          elsif n > 0 then
            count := n;
            message := format('%s row%s of %s %s not meet the condition %s', n, case when n > 1 then 's' else '' end, w.relation, case when n > 1 then 'do' else 'does' end, concat_ws(' ', quote_ident(c->>'column'), c->>'operator', quote_literal(c->>'value')));
            return next;
          end if;
        end loop;
      end loop;
      "table" := null;
    end if;
    count := null;
  end loop;
end $$;
comment on function gnomon.policy_refusals is 'What policies have against a merge of a branch into main that the running transaction has written since a position: the rule (roles, reviews, max_rows, tables, operations, conditions), the table, and how many rows or approvals.';

create function gnomon.check_merge(p_branch int, p_options jsonb, p_after_v bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_of(p_branch);
  list jsonb;
begin
  if coalesce((p_options->>'no_stale_reads')::boolean, false) or exists (select from gnomon.merge_policies(b.name, p_options->>'policy') p where (p.options->>'no_stale_reads')::boolean) then
    perform gnomon.check_stale(p_branch);
  end if;
  -- Of a merge that waited for its conflicts to be resolved, the request may have come to another end in between.
  perform gnomon.refuse('GN025', format('change request %s was %s', q.id, q.state), 'gnomon.reviews tells why.', jsonb_build_object('branch', b.name, 'request', q.id, 'rule', 'reviews'))
    from gnomon.change_requests(null, (p_options->>'request')::int) q where p_options->>'request' is not null and q.state in ('rejected', 'withdrawn');
  select jsonb_agg(to_jsonb(r)) into list from gnomon.policy_refusals(p_branch, p_options, p_after_v) r;
  if list is not null then
    perform gnomon.refuse('GN025', format('policy %L: %s', list->0->>'policy', list->0->>'message'),
      case list->0->>'rule' when 'reviews' then 'Open a change request for it, have that approved, and merge that.' when 'roles' then 'One who may can merge it.' else 'Change less, or divide it among several branches; gnomon.merge_policies() tells what the policy says.' end,
      jsonb_build_object('branch', b.name, 'policy', list->0->>'policy', 'rule', list->0->>'rule', 'table', list->0->>'table', 'count', list->0->'count', 'refusals', list));
  end if;
end $$;
comment on function gnomon.check_merge is 'Refuses to go on with a merge into main, which the running transaction has written since a position, when what was read on the branch is stale and must not be (option no_stale_reads, or a policy), or when a policy is against it.';

create function gnomon.branch_state(p_branch int) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  state text;
begin
  -- Each write gives its row a higher position, so the sum grows with every one of them, whatever order they are committed in.
  execute 'select string_agg(concat_ws('' '', x.tracked, x.n, x.v), '','' order by x.tracked) from (' || coalesce((select string_agg(format('select %s as tracked, count(*) as n, sum(v) as v from %s where branch = $1', o.tracked, o.relation), ' union all ') from gnomon.overlays() o), 'select 0 as tracked, 0 as n, 0 as v') || ') x where x.n > 0' into state using p_branch;
  return (select md5(concat_ws('/', b.id, b.coordinate, state)) from gnomon.branch b where b.id = p_branch);
end $$;
comment on function gnomon.branch_state is 'What changes with every change of a branch.';

create function gnomon.branch_counts(p_branch int) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  counts jsonb;
begin
  execute 'select coalesce(jsonb_object_agg(x.name, jsonb_build_object(''inserts'', x.i, ''updates'', x.u, ''deletes'', x.d)), ''{}'') from (' || coalesce((
    select string_agg(format('select %L as name, count(*) filter (where alive and not was) as i, count(*) filter (where alive and was and %s) as u, count(*) filter (where was and not alive) as d from %s where branch = $1',
      t.relation, coalesce((select format('row(%s)::record operator(pg_catalog.*<>) row(%s)::record', string_agg('c' || c.n, ', ' order by c.n), string_agg('b' || c.n, ', ' order by c.n)) from gnomon.overlay_columns(o.tracked) c where not c.is_key), 'false'), o.relation), ' union all ')
    from gnomon.overlays() o join annals.tracked t on t.id = o.tracked join pg_class k on k.oid = t.relation), 'select ''''::text as name, 0 as i, 0 as u, 0 as d') || ') x where x.i + x.u + x.d > 0' into counts using p_branch;
  return counts;
end $$;
comment on function gnomon.branch_counts is 'How many rows a branch inserts, updates and deletes over its base, by table.';

create function gnomon.branch_writers(p_branch int) returns name[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  names name[];
begin
  execute 'select coalesce(array_agg(distinct x.login), ''{}'') from (' || coalesce((select string_agg(format('select login from %s where branch = $1 and (alive or was)', o.relation), ' union all ') from gnomon.overlays() o), 'select ''''::name as login where false') || ') x' into names using p_branch;
  return names;
end $$;
comment on function gnomon.branch_writers is 'The roles that wrote what a branch has changed.';

create function gnomon.standing_reviews(p_request int) returns table (login name, verdict text, own boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- The last verdict of each reviewer, if it is about the branch as it is.
  select x.login, x.verdict, x.login = q.login or x.login = any (gnomon.branch_writers(q.branch))
  from gnomon.change_request q join (select distinct on (r.login) r.* from gnomon.review r where r.request = p_request and r.verdict <> 'comment' order by r.login, r.id desc) x on true
  where q.id = p_request and x.state = gnomon.branch_state(q.branch)
$$;
comment on function gnomon.standing_reviews is 'The verdicts on a request that count: the last one of each reviewer that is about the present state of the branch, and whether it is the author''s own.';

create function gnomon.approvals(p_request int, p_branch int, p_others boolean) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select count(*) from gnomon.change_request q cross join lateral gnomon.standing_reviews(q.id) s where q.id = p_request and q.branch = p_branch and q.target is null and s.verdict = 'approve' and not (p_others and s.own)
$$;
comment on function gnomon.approvals is 'How many approve of merging a branch, as a request asks for; p_others: without its authors.';

create function gnomon.request_standing(q gnomon.change_request) returns table (state text, approvals bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select case when q.closed is not null then q.closed when q.branch is null then 'withdrawn' when s.rejected then 'rejected' when s.n >= greatest(p.needed, 1) then 'approved' else 'open' end, s.n
  from (select coalesce(max((x.options->>'reviews')::int), 0) as needed, coalesce(bool_or((x.options->>'reviews')::int > 0 and not (x.options->>'self_review')::boolean), false) as others
        from gnomon.branch b cross join lateral gnomon.merge_policies(b.name, q.policy) x where b.id = q.branch and q.target is null) p
  cross join lateral (select coalesce(bool_or(x.verdict = 'reject'), false) as rejected, count(*) filter (where x.verdict = 'approve' and not (p.others and x.own)) as n from gnomon.standing_reviews(q.id) x) s
$$;
comment on function gnomon.request_standing is 'The state of a request (open, approved, rejected, merged or withdrawn), and how many approvals count.';

create function gnomon.request_of(p_request int) returns gnomon.change_request
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  q gnomon.change_request;
begin
  select * into q from gnomon.change_request x where x.id = p_request and gnomon.may_use(x.branch, x.branch_name);
  if not found then
    perform gnomon.refuse('GN026', format('there is no change request %s', coalesce(p_request::text, 'null')), 'gnomon.change_requests() lists them.', jsonb_build_object('request', p_request));
  end if;
  return q;
end $$;
comment on function gnomon.request_of is 'The request of a number; an error when there is none, or none that the session may see.';

create function gnomon.request_to_change(p_request int) returns gnomon.change_request
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  q gnomon.change_request := gnomon.request_of(p_request);
begin
  select * into q from gnomon.change_request x where x.id = q.id for no key update;
  if q.closed is not null or q.branch is null then
    perform gnomon.refuse('GN026', format('change request %s is closed: it was %s', q.id, coalesce(q.closed, 'withdrawn when its branch was dropped')), 'Open another one.', jsonb_build_object('request', q.id, 'state', coalesce(q.closed, 'withdrawn')));
  end if;
  return q;
end $$;
comment on function gnomon.request_to_change is 'Locks a request that is not closed; an error when it is.';

create function gnomon.note_request(p_branch text, p_title text, p_purpose text, p_into text, p_policy text, p_options jsonb) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_named(p_branch);
  id int;
begin
  if coalesce(p_title, '') = '' then
    perform gnomon.refuse('GN006', 'a change request takes a title', 'Say in a line what it is.');
  end if;
  if p_into is not null then
    perform gnomon.branch_named(p_into);
  end if;
  if p_policy is not null and not exists (select from gnomon.merge_policy p where p.name = p_policy) then
    perform gnomon.unknown_policy(p_policy);
  end if;
  insert into gnomon.change_request as q (branch, branch_name, target, title, purpose, policy, options) values (b.id, b.name, p_into, p_title, coalesce(p_purpose, ''), p_policy, coalesce(p_options, '{}') - 'request') returning q.id into id;
  return id;
end $$;
comment on function gnomon.note_request is 'Notes a change request, whose options name tables with their schemas.';

-- The names of tables are those that who opens the request means.
create function gnomon.open_request(p_branch text, p_title text, p_purpose text default '', p_into text default null, p_policy text default null, p_options jsonb default '{}') returns int
language plpgsql volatile as $$ begin return gnomon.note_request(p_branch, p_title, p_purpose, p_into, p_policy, gnomon.named_options(coalesce(p_options, '{}'))); end $$;
comment on function gnomon.open_request is 'Asks for a branch to be merged, into main or another branch, under a policy beside those that cover it, with options of the merge; returns the number of the request.';

create function gnomon.review_request(p_request int, p_verdict text, p_comment text default '', p_state text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  q gnomon.change_request := gnomon.request_to_change(p_request);
  state text := gnomon.branch_state(q.branch);
begin
  if coalesce(p_verdict, '') not in ('approve', 'reject', 'comment') then
    perform gnomon.refuse('GN006', format('%s is no verdict', coalesce(quote_literal(left(p_verdict, 20)), 'null')), 'Say approve, reject or comment.');
  elsif p_state <> state then
    perform gnomon.refuse('GN008', format('branch %L has changed since it was looked at', q.branch_name), 'Look at it again.', jsonb_build_object('request', q.id, 'branch', q.branch_name));
  end if;
  insert into gnomon.review (request, verdict, comment, state) values (q.id, p_verdict, coalesce(p_comment, ''), coalesce(p_state, state));
end $$;
comment on function gnomon.review_request is 'Says approve, reject or comment to a change request. p_state is the state of the branch that was looked at, as gnomon.change_requests told it: when that is another one by now, the review is refused. A later change of the branch voids it.';

create function gnomon.withdraw_request(p_request int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  q gnomon.change_request := gnomon.request_to_change(p_request);
begin
  if not (session_user = q.login or coalesce(pg_has_role(session_user, (select r.oid from pg_roles r where r.rolname = q.login), 'usage'), false) or pg_has_role(session_user, annals.owner(), 'usage')) then
    perform gnomon.refuse('42501', format('change request %s was opened by %s', q.id, q.login), 'That role, or the owner of the schema, can withdraw it; reviewers can reject it.', jsonb_build_object('request', q.id));
  end if;
  update gnomon.change_request x set closed = 'withdrawn', closed_at = clock_timestamp(), closed_by = session_user, counts = gnomon.branch_counts(q.branch) where x.id = q.id;
end $$;
comment on function gnomon.withdraw_request is 'Withdraws a change request; the branch stays. For who opened it.';

create function gnomon.change_requests(p_state text default null, p_request int default null)
returns table (id int, branch text, target text, title text, purpose text, policy text, options jsonb, login name, at timestamptz, state text, approvals bigint, counts jsonb, branch_state text, closed_at timestamptz, closed_by name, merge bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select q.id, coalesce(b.name, q.branch_name), case when gnomon.may_use(null, q.target) then q.target end, q.title, q.purpose, q.policy, q.options, q.login, q.at, s.state, s.approvals, coalesce(q.counts, gnomon.branch_counts(q.branch)), gnomon.branch_state(q.branch), q.closed_at, q.closed_by, q.merge
  from gnomon.change_request q left join gnomon.branch b on b.id = q.branch cross join lateral gnomon.request_standing(q) s
  where (p_request is null or q.id = p_request) and (p_state is null or s.state = p_state) and gnomon.may_use(q.branch, coalesce(b.name, q.branch_name)) order by q.id
$$;
comment on function gnomon.change_requests is 'Change requests for the branches that the session may use, of a state (open, approved, rejected, merged, withdrawn) or all: with how many approvals of the branch as it is count, and how many rows it inserts, updates and deletes by table.';

create function gnomon.reviews(p_request int) returns table (login name, verdict text, comment text, state text, at timestamptz, stands boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select r.login, r.verdict, r.comment, r.state, r.at, r.verdict <> 'comment' and r.state = gnomon.branch_state(q.branch) and r.id = (select max(l.id) from gnomon.review l where l.request = r.request and l.login = r.login and l.verdict <> 'comment')
  from gnomon.request_of(p_request) q join gnomon.review r on r.request = q.id order by r.id
$$;
comment on function gnomon.reviews is 'What reviewers said to a change request, the oldest first, and whether it stands: it is their last word, and about the branch as it is.';

create function gnomon.merge_request(p_request int, p_options jsonb default '{}') returns gnomon.merge_result
language plpgsql volatile as $$
declare
  q gnomon.change_request := gnomon.request_to_change(p_request);
begin
  perform gnomon.refuse('GN025', pg_catalog.format('change request %s was rejected', p_request), 'What gnomon.reviews tells is to be seen to first: with a change of the branch the rejection is void.', pg_catalog.jsonb_build_object('request', p_request, 'rule', 'reviews'))
    from gnomon.change_requests(null, p_request) x where x.state operator(pg_catalog.=) 'rejected';
  return gnomon.merge((gnomon.branch_of(q.branch)).name, q.target, q.options operator(pg_catalog.||) coalesce(p_options, '{}') operator(pg_catalog.||) pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('request', q.id, 'policy', q.policy)));
end $$;
comment on function gnomon.merge_request is 'Merges what a change request asks for, with its options and others, as the caller; closes the request when all of it was merged. Conflicts and violations are as in gnomon.merge, and leave it open: gnomon.finish_merge closes it then.';

create function gnomon.close_request() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update gnomon.change_request q set closed = 'merged', closed_at = clock_timestamp(), closed_by = session_user, merge = new.id, counts = (
      select coalesce(jsonb_object_agg(t.key, jsonb_build_object('inserts', t.value->'insert', 'updates', t.value->'update', 'deletes', t.value->'delete')), '{}') from jsonb_each(new.report) t)
    where q.id = (new.options->>'request')::int and q.closed is null and q.branch = new.branch and q.target is not distinct from new.into_name;
  return null;
end $$;
comment on function gnomon.close_request is 'Closes the request of a merge.';
create trigger close_request after update on gnomon.merged for each row
  when (new.status = 'merged' and old.status <> 'merged' and new.conflicts = 0 and new.options ? 'request' and not new.options ?| array['tables', 'keys']) execute function gnomon.close_request();
comment on trigger close_request on gnomon.merged is 'Closes the request of a merge.';
