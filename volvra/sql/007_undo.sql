-- Undo: the plan, carried out. It is kept in temporary tables, one per table; the rows are locked in the order of their keys and looked at
-- again; then one statement writes all tables, so that PostgreSQL checks foreign keys when everything is in place, whatever their order and
-- cycles, and no constraint need be deferred. All as the caller, with his rights, and with his settings where his triggers run.

create function volvra.this_transaction() returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select annals.present_epoch() || ':' || pg_current_xact_id() $$;
comment on function volvra.this_transaction is 'The running transaction, as selections name it.';

create function volvra.make_plans(p_selection jsonb, p_range int8range, p_prefix text) returns int[]
language plpgsql volatile set jit = off set enable_nestloop = on set work_mem = '64MB' as $$
declare
  p record;
  histories int[] := '{}';
begin
  for p in select * from volvra.plans(p_selection, p_range) loop
    perform set_config('enable_nestloop', case when p.scan then 'off' else 'on' end, true);
    execute format('create temp table %I as %s', p_prefix || p.tracked, p.query);
    execute format('analyze pg_temp.%I', p_prefix || p.tracked);
    histories := histories || p.tracked;
  end loop;
  return histories;
end $$;
comment on function volvra.make_plans is 'Puts the plans of a selection into temporary tables; returns their histories.';

create function volvra.lock_query(p_tracked int, p_plan text, p_caller name) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- Whether any row is no longer as planned. Where the caller may only delete, rows can't be locked; the DELETE then looks itself.
  select format('select coalesce(bool_or(annals_moved), false) or count(*) <> (select count(*) from %1$s p where p.go and p.op in (''u'', ''d'')) from (select %2$s as annals_moved from %3$s x join %1$s p on %4$s where p.go and p.op in (''u'', ''d'') order by %5$s%6$s) y',
    p_plan, (select string_agg(format('(p.op = ''d'' or %s = any (p.write)) and %s', c.n, volvra.differs(format('x.%I::%s', c.name, c.type), 'p.f' || c.n, c.quick)), ' or ') from volvra.plan_columns(p_tracked) c),
    volvra.base_table(p_tracked), volvra.same_row(p_tracked, 'p', 'x'),
    (select string_agg('p.f' || u.n, ', ' order by u.i) from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked),
    case when has_any_column_privilege(p_caller, (select t.relation from annals.tracked t where t.id = p_tracked), 'update') then ' for update of x' else '' end)
$$;
comment on function volvra.lock_query is 'SQL: locks the rows that a plan changes, and tells whether they have changed meanwhile.';

create function volvra.write_parts(p_tracked int, p_plan text, p_deletes boolean, p_columns int[], p_alike boolean, p_absent text[]) returns table (name text, body text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  base text := volvra.base_table(p_tracked);
  same text := volvra.same_row(p_tracked, 'p', 'x');
  after text := ''; -- a condition that makes a part wait for the one before it
  s text;
  i int := 0;
begin
  -- Rows go before others change, and those before others come, so that a unique key finds its place free. There is one UPDATE of a
  -- table, of the columns that the plan changes somewhere: of several in one statement, PostgreSQL fires the statement triggers of the last.
  -- What is not done takes no privilege.
  if p_deletes then
    name := format('d%s', p_tracked);
    body := format('delete from %s x using %s p where p.go and p.op = ''d'' and %s and not (%s) returning 1', base, p_plan, same,
    (select string_agg(volvra.differs(format('x.%I::%s', c.name, c.type), 'p.f' || c.n, c.quick), ' or ') from volvra.plan_columns(p_tracked) c));
    return next;
    after := format(' and (select count(*) from %s) >= 0', name);
  end if;
  if p_columns <> '{}' then
    name := format('u%s', p_tracked);
    body := format('update %s x set %s from %s p where p.go and p.op = ''u'' and %s%s returning 1', base,
      (select string_agg(case when p_alike then format('%I = p.t%s', c.name, c.n) else format('%1$I = case when %2$s = any (p.write) then p.t%2$s else x.%1$I end', c.name, c.n) end, ', ' order by c.n)
       from volvra.plan_columns(p_tracked) c where c.n = any (p_columns)), p_plan, same, after);
    return next;
    after := format(' and (select count(*) from %s) >= 0', name);
  end if;
  foreach s in array coalesce(p_absent, '{}') loop
    i := i + 1;
    name := format('i%s_%s', p_tracked, i);
    body := format('insert into %s (%s) overriding system value select %s from %s p where p.go and p.op = ''i'' and coalesce(p.absent, ''{}'') = %L::int[]%s returning 1', substring(base, '^(?:only )?(.*)$'),
      (select string_agg(quote_ident(c.name), ', ' order by c.n) from volvra.plan_columns(p_tracked) c where not c.generated and c.n <> all (s::int[])),
      (select string_agg('p.t' || c.n, ', ' order by c.n) from volvra.plan_columns(p_tracked) c where not c.generated and c.n <> all (s::int[])), p_plan, s, after);
    return next;
  end loop;
end $$;
comment on function volvra.write_parts is 'SQL: the parts of the statement that carries out a plan for one table. Each returns a row per row it wrote.';

create function volvra.count_plans(p_histories int[], p_prefix text) returns table (tracked int, status text, operation text, go boolean, rows bigint)
language plpgsql volatile as $$
begin
  if p_histories <> '{}' then
    return query execute (select string_agg(format('select %s, p.status, p.op::text, p.go, count(*) from pg_temp.%I p group by p.status, p.op, p.go', h, p_prefix || h), ' union all ') from unnest(p_histories) h);
  end if;
end $$;
comment on function volvra.count_plans is 'Counts planned rows by what becomes of them.';

create function volvra.block_plans(p_histories int[], p_prefix text) returns bigint
language plpgsql volatile set jit = off set work_mem = '64MB' as $$
declare
  h int;
  changed bigint;
  total bigint := 0;
begin
  execute format('create temp table %I as %s', p_prefix || 'blocks', volvra.one_block_each(volvra.block_query(p_histories, array(select format('pg_temp.%I', p_prefix || x) from unnest(p_histories) with ordinality u (x, i) order by i), current_user)));
  foreach h in array p_histories loop
    execute format('update pg_temp.%I p set go = false, partial = false, status = b.status, blame = b.detail from pg_temp.%I b where b.tracked = %s and b.no = p.no', p_prefix || h, p_prefix || 'blocks', h);
    get diagnostics changed = row_count;
    total := total + changed;
  end loop;
  execute format('drop table pg_temp.%I', p_prefix || 'blocks');
  return total;
end $$;
comment on function volvra.block_plans is 'Marks planned rows that something stands in the way of; returns how many.';

create function volvra.plans_digest(p_histories int[], p_prefix text) returns text
language plpgsql volatile set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set timezone = 'UTC' set bytea_output = 'hex' set extra_float_digits = 1 set jit = off as $$
declare
  result text;
begin
  execute format('select volvra.digest(array(%s))', coalesce((select string_agg(format('select %s from pg_temp.%I p, (select null::text as status) b', volvra.digest_of(h), p_prefix || h), ' union all ') from unnest(p_histories) h), 'select null::bytea where false')) into result;
  return result;
end $$;
comment on function volvra.plans_digest is 'The digest of plans, as a token holds it.';

create function volvra.refused_rows(p_histories int[], p_prefix text) returns jsonb
language plpgsql volatile set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set timezone = 'UTC' set bytea_output = 'hex' set extra_float_digits = 1 set jit = off as $$
declare
  result jsonb;
begin
  execute format('select jsonb_agg(to_jsonb(r) - ''digest'') from (select * from (%s) s limit 100) r',
    (select string_agg(format('(%s limit 100)', volvra.shown_query(h, format('(select * from pg_temp.%I y where y.status not in (''clean'', ''undone''))', p_prefix || h), '(select 0 as tracked, 0::bigint as no, null::text as status, null::jsonb as detail)')), ' union all ') from unnest(p_histories) h)) into result;
  return coalesce(result, '[]');
end $$;
comment on function volvra.refused_rows is 'The first hundred planned rows that cannot be undone, as volvra.preview shows them.';

create function volvra.write_plans(p_histories int[], p_prefix text) returns jsonb
language plpgsql volatile set jit = off set work_mem = '64MB' as $$
declare
  h int;
  deletes boolean;
  written int[];
  alike boolean;
  absent text[];
  w record;
  parts text[] := '{}';
  names text[];
  counts text[] := '{}';
  result jsonb;
begin
  foreach h in array p_histories loop
    execute format('select exists (select from pg_temp.%1$I p where p.go and p.op = ''d''), array(select distinct n from (select distinct p.write from pg_temp.%1$I p where p.go and p.op = ''u'') s, unnest(s.write) n), (select count(distinct p.write) from pg_temp.%1$I p where p.go and p.op = ''u'') < 2, array(select distinct coalesce(p.absent, ''{}'')::text from pg_temp.%1$I p where p.go and p.op = ''i'')', p_prefix || h)
      into deletes, written, alike, absent;
    names := '{}';
    for w in select * from volvra.write_parts(h, format('pg_temp.%I', p_prefix || h), deletes, written, alike, absent) loop
      parts := parts || format('%s as (%s)', w.name, w.body);
      names := names || format('(select count(*) from %s)', w.name);
    end loop;
    -- Of a table whose rows are all left out nothing is written.
    continue when names = '{}';
    counts := counts || format('jsonb_build_object(%L, %s)', h, array_to_string(names, ' + '));
  end loop;
  execute format('with %s select %s', array_to_string(parts, E',\n'), array_to_string(counts, ' || ')) into result;
  return result;
end $$;
comment on function volvra.write_plans is 'Writes what plans say, in one statement; returns the number of rows written by history.';

create function volvra.carry_out(p_selection jsonb, p_range int8range, p_digest text, p_policy text, p_max_rows bigint, out outcome text, out rows bigint, out skipped bigint, out code text, out reason text, out detail jsonb) returns record
language plpgsql volatile set jit = off as $$
declare
  prefix text := format('volvra_plan_%s_', replace(gen_random_uuid()::text, '-', ''));
  histories int[];
  h int;
  moved boolean;
  counts jsonb;
  written jsonb;
  message text;
begin
  rows := 0;
  skipped := 0;
  detail := '{}';
  begin
    for i in 1 .. 11 loop
      histories := volvra.make_plans(p_selection, p_range, prefix);
      moved := false;
      foreach h in array histories loop
        execute volvra.lock_query(h, format('pg_temp.%I', prefix || h), current_user) into moved;
        exit when moved;
      end loop;
      exit when not moved;
      -- Others changed planned rows before they were locked: plan again. What was locked stays so.
      if i > 10 then
        raise exception using errcode = '40001', message = 'rows of the plan changed again and again while they were being locked';
      end if;
      foreach h in array histories loop
        execute format('drop table pg_temp.%I', prefix || h);
      end loop;
    end loop;

    if histories <> '{}' then
      perform volvra.block_plans(histories, prefix);
    end if;
    if p_digest is not null and p_digest <> volvra.plans_digest(histories, prefix) then
      raise exception using errcode = 'VO026', message = 'the plan is no longer what the preview showed';
    end if;
    if p_policy = 'refuse' then
      select jsonb_object_agg(s.status, s.n) into counts from (select c.status, sum(c.rows) as n from volvra.count_plans(histories, prefix) c where c.status not in ('clean', 'undone') group by c.status) s;
      if counts is not null then
        raise exception using errcode = case when counts ? 'conflict' then 'VO024' when counts ? 'unique' then 'VO028' when counts ? 'foreign key' then 'VO029' when counts ? 'erased' then 'VO030' else 'VO031' end,
          message = format('%s of the rows cannot be undone: %s', (select sum(value::bigint) from jsonb_each_text(counts)), (select string_agg(value || ' ' || key, ', ' order by key) from jsonb_each_text(counts))),
          detail = jsonb_build_object('statuses', counts, 'rows', volvra.refused_rows(histories, prefix))::text;
      end if;
    else
      if p_policy = 'non-conflicting columns' then
        foreach h in array histories loop
          execute format('update pg_temp.%I p set go = true where p.partial', prefix || h);
        end loop;
      end if;
      -- A row that is left out can stand in the way of others.
      while histories <> '{}' loop
        exit when volvra.block_plans(histories, prefix) = 0;
      end loop;
    end if;

    select coalesce(sum(c.rows) filter (where c.go), 0), coalesce(sum(c.rows) filter (where not c.go and c.status <> 'undone'), 0),
           jsonb_build_object('undone', coalesce(sum(c.rows) filter (where c.status = 'undone'), 0), 'inserted', coalesce(sum(c.rows) filter (where c.go and c.operation = 'i'), 0),
             'updated', coalesce(sum(c.rows) filter (where c.go and c.operation = 'u'), 0), 'deleted', coalesce(sum(c.rows) filter (where c.go and c.operation = 'd'), 0))
      into rows, skipped, detail from volvra.count_plans(histories, prefix) c;
    if rows > p_max_rows then
      raise exception using errcode = 'VO025', message = format('it would write %s rows, more than the %s that are allowed', rows, p_max_rows), detail = jsonb_build_object('rows', rows, 'max_rows', p_max_rows)::text;
    end if;
    if p_policy <> 'refuse' and skipped > 0 then
      detail := detail || jsonb_build_object('skipped', volvra.refused_rows(histories, prefix));
    end if;
    if rows > 0 then
      written := volvra.write_plans(histories, prefix);
      if (select sum(value::bigint) from jsonb_each_text(written)) <> rows then
        raise exception using errcode = 'VO027', message = format('%s of %s rows were not written: a trigger or row-level security kept them from it', rows - (select sum(value::bigint) from jsonb_each_text(written)), rows);
      end if;
      detail := detail || jsonb_build_object('tables', (select jsonb_object_agg(regexp_replace(volvra.base_table(key::int), '^only ', ''), value) from jsonb_each(written)));
    end if;
    foreach h in array histories loop
      execute format('drop table pg_temp.%I', prefix || h);
    end loop;
    outcome := 'done';
    return;
  exception when others then
    -- To be tried again, cancelled, or out of resources: not an answer.
    if sqlstate ~ '^(40|53|57|58|XX)' then
      raise;
    end if;
    get stacked diagnostics message = pg_exception_detail;
    outcome := case when sqlstate like 'VO%' or sqlstate in ('23503', '23505') then 'refused' else 'failed' end;
    code := case sqlstate when '23505' then 'VO028' when '23503' then 'VO029' else sqlstate end;
    reason := sqlerrm;
    rows := 0;
    skipped := 0;
    detail := case when sqlstate like 'VO%' and message like '{%' then message::jsonb else '{}' end;
  end;
end $$;
comment on function volvra.carry_out is 'Undoes the changes of a checked selection, or nothing.';

create function volvra.undo_attempt(p_action text, p_selection jsonb, p_range int8range, p_token text, p_policy text, p_max_rows bigint, p_attempt bigint,
  out attempt bigint, out outcome text, out rows bigint, out skipped bigint, out transaction text, out code text, out reason text, out detail jsonb) returns record
language plpgsql volatile as $$
declare
  selection jsonb := p_selection;
  digest text;
begin
  if coalesce(p_policy, '') not in ('refuse', 'skip conflicts', 'non-conflicting columns') then
    perform volvra.refuse('VO033', format('unknown policy %L', p_policy), 'It is refuse, skip conflicts or non-conflicting columns.');
  end if;
  if p_token is not null then
    select t.selection, t.digest into selection, digest from volvra.read_token(p_token) t;
  end if;
  if p_attempt is null then
    attempt := volvra.begin_attempt(p_action, selection, p_policy, p_token);
  else
    attempt := p_attempt;
    perform volvra.resume_attempt(attempt);
  end if;
  select c.outcome, c.rows, c.skipped, c.code, c.reason, c.detail into outcome, rows, skipped, code, reason, detail
    from volvra.carry_out(volvra.check_selection(selection), p_range, digest, p_policy, p_max_rows) c;
  if outcome = 'done' then
    transaction := volvra.this_transaction();
  end if;
  -- Messages of PostgreSQL and of triggers can quote rows, so the record has only their code.
  perform volvra.finish_attempt(attempt, outcome, jsonb_build_object('rows', rows, 'skipped', skipped, 'code', code, 'reason', case when code like 'VO%' and outcome = 'refused' and code not in ('VO028', 'VO029') then reason when code is not null then 'error ' || code end) || (detail - array['rows', 'skipped']));
end $$;
comment on function volvra.undo_attempt is 'Undoes, and records it.';

create function volvra.undo(p_selection jsonb, p_policy text default 'refuse', p_max_rows bigint default 100000, p_attempt bigint default null,
  out attempt bigint, out outcome text, out rows bigint, out skipped bigint, out transaction text, out code text, out reason text, out detail jsonb) returns record
language sql volatile as $$ select * from volvra.undo_attempt('undo', p_selection, '(,)', null, p_policy, p_max_rows, p_attempt) $$;
comment on function volvra.undo(jsonb, text, bigint, bigint) is 'Undoes the selected changes, in this transaction: as if they had not happened. Policies: refuse (nothing is done when anything is in the way), skip conflicts (rows), non-conflicting columns. max_rows null: no limit. A refusal is a result, with outcome, code, reason and the rows in the way as detail.';

create function volvra.undo(p_token text, p_policy text default 'refuse', p_max_rows bigint default 100000, p_attempt bigint default null,
  out attempt bigint, out outcome text, out rows bigint, out skipped bigint, out transaction text, out code text, out reason text, out detail jsonb) returns record
language plpgsql volatile as $$
begin
  -- A selection that is written as a plain literal arrives here, too.
  select u.attempt, u.outcome, u.rows, u.skipped, u.transaction, u.code, u.reason, u.detail into attempt, outcome, rows, skipped, transaction, code, reason, detail
    from volvra.undo_attempt('undo', case when p_token like '{%' then p_token::jsonb end, '(,)', case when p_token like '{%' then null else p_token end, p_policy, p_max_rows, p_attempt) u;
end $$;
comment on function volvra.undo(text, text, bigint, bigint) is 'Undoes what a preview showed, given its token; refused when it would do anything else by now.';

create function volvra.changes_of(p_attempt bigint, out selection jsonb, out range int8range) returns record
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
begin
  select a.v as begun, x.v as ended, x.epoch, x.xid, x.outcome, a.action into o from volvra.attempt a left join volvra.outcome x on x.attempt = a.id where a.id = p_attempt;
  if not found or o.action not in ('undo', 'redo', 'undo_to') or o.outcome is distinct from 'done' then
    perform volvra.refuse('VO032', format('attempt %s is no undo that was done', p_attempt), 'volvra.attempts() lists attempts and their outcomes.', jsonb_build_object('attempt', p_attempt));
  end if;
  selection := jsonb_build_object('transactions', jsonb_build_array(o.epoch || ':' || o.xid));
  range := int8range(o.begun, o.ended);
end $$;
comment on function volvra.changes_of is 'The changes that an undo made, and nothing else that its transaction did.';

create function volvra.redo(p_attempt bigint, p_policy text default 'refuse', p_max_rows bigint default 100000, p_as_attempt bigint default null,
  out attempt bigint, out outcome text, out rows bigint, out skipped bigint, out transaction text, out code text, out reason text, out detail jsonb) returns record
language sql volatile as $$ select u.* from volvra.changes_of(p_attempt) c, volvra.undo_attempt('redo', c.selection, c.range, null, p_policy, p_max_rows, p_as_attempt) u $$;
comment on function volvra.redo is 'Undoes an undo, given its attempt: what it undid stands again.';

create function volvra.undo_to(p_mark text, p_policy text default 'refuse', p_max_rows bigint default 100000, p_attempt bigint default null,
  out attempt bigint, out outcome text, out rows bigint, out skipped bigint, out transaction text, out code text, out reason text, out detail jsonb) returns record
language sql volatile as $$ select u.* from volvra.undo_attempt('undo_to', jsonb_build_object('since', 'mark:' || p_mark), '(,)', null, p_policy, p_max_rows, p_attempt) u $$;
comment on function volvra.undo_to is 'Undoes all changes since a mark was set, those of this transaction included.';
