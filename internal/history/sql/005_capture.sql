-- The code of capture. Each tracked table has trigger functions of its own, which name its columns and the segment that is written now.
-- They run on every write, so they hold nothing that is not needed: everything is qualified, operators too, instead of a pinned
-- search_path, there is one statement, and no EXCEPTION block.

create function annals.segment_name(tracked int, number int) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return format('annals.h%s_%s', tracked, number);
comment on function annals.segment_name is 'Name of the table that is a segment.';

create function annals.capture_name(tracked int, what text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return format('annals.h%s_%s', tracked, what);
comment on function annals.capture_name is 'Name of a trigger function of a history: insert, update, delete, truncate, start, end, keyed, move, named_wide, warn.';

create function annals.old_alias(tracked int) returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- The transition table's name is what PostgreSQL says when a column is missing: so it says what to do.
  select left(format('capture is stale, call annals.sync(%s): column', t.id), 63)::name from annals.tracked t where t.id = tracked
$$;
comment on function annals.old_alias is 'Name of the transition tables of capture triggers.';

create function annals.new_alias(tracked int) returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
  select left('new: ' || annals.old_alias(tracked), 63)::name
$$;
comment on function annals.new_alias is 'Name of the transition table of new rows, where a trigger has both.';

-- The columns that the segment written now holds, with their present names.
create function annals.captured(tracked int) returns table (n int, name name, is_key boolean, wide_bit int)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.n, c.name, c.n = any (t.key), array_position(s.wide, c.n) - 1
  from annals.tracked t
  join lateral (select * from annals.segment s where s.tracked = t.id order by number desc limit 1) s on true
  join annals.tracked_column c on c.tracked = t.id and c.n = any (s.columns)
  where t.id = captured.tracked order by c.n
$$;
comment on function annals.captured is 'Columns that are captured now.';

create function annals.key_list(tracked int, pattern text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select string_agg(format(pattern, c.name), ', ' order by array_position(t.key, c.n)) from annals.tracked t, annals.captured(t.id) c where t.id = key_list.tracked and c.is_key
$$;
comment on function annals.key_list is 'The columns of the key, in its order, each as a pattern says.';

-- Who writes. These expressions stand in place in the capture functions: each variable there would cost as much as a column of the entry.
create function annals.who_context() returns text
language sql immutable set search_path = pg_catalog, pg_temp
return $$pg_catalog.concat(session_user, E'\n', pg_catalog.current_setting('role'), E'\n', pg_catalog.inet_client_addr(), E'\n', pg_catalog.current_setting('application_name'), E'\n', pg_catalog.current_setting('annals.actor', true))$$;
comment on function annals.who_context is 'The expression that annals.context_text computes.';

create function annals.who_hash() returns text
language sql immutable set search_path = pg_catalog, pg_temp
return $$pg_catalog.hashtextextended(pg_catalog.current_setting('annals.known'), 0)$$;
comment on function annals.who_hash is 'The expression for the hash of the context, once it is registered.';

create function annals.who_login() returns text
language sql immutable set search_path = pg_catalog, pg_temp
return $$pg_catalog.to_regrole(pg_catalog.quote_ident(session_user))::pg_catalog.oid$$;
comment on function annals.who_login is 'The expression for the session''s role.';

create function annals.who_registered() returns text
language sql immutable set search_path = pg_catalog, pg_temp
return format(E'\n  if (pg_catalog.current_setting(''annals.known'', true) operator(pg_catalog.=) %s) is not true then\n    perform annals.register_context();\n  end if;\n', annals.who_context());
comment on function annals.who_registered is 'First statement of capture functions: the context is registered unless it is.';

create function annals.key_texts(tracked int, qualifier text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A cast of a type of a user's would run his code with the rights of the owner of capture.
  select string_agg(format(case when s.builtin then '%s%I::pg_catalog.text' else 'pg_catalog.format(''%%s'', %s%I)' end, qualifier, c.name), ', ' order by array_position(t.key, c.n))
  from annals.tracked t, annals.captured(t.id) c,
       lateral (select y.typnamespace = 'pg_catalog'::regnamespace as builtin from pg_attribute a join pg_type y on y.oid = a.atttypid
                where a.attrelid = annals.segment_name(t.id, (select max(g.number) from annals.segment g where g.tracked = t.id))::regclass and a.attname = 'c' || c.n) s
  where t.id = key_texts.tracked and c.is_key
$$;
comment on function annals.key_texts is 'The columns of the key, in its order, as texts.';

create function annals.entry_head(tracked int, start text, place text, operation "char", masked boolean default false) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Columns that all entries have, and their values. Without a start it is left null: then the position stands for it. Without a place
  -- the position is the column's default: in a list of values, nextval would be computed in a step of its own, which costs a tenth of the entry.
  select array[case when place is null then '' else 'v, ' end || 'xid, at, ctx, login, op' || case when s.nests and start is not null then ', start' else '' end || case when masked then ', missing' else '' end,
               format('%spg_catalog.pg_current_xact_id(), pg_catalog.now(), %s, %s, %L::pg_catalog."char"', place || ', ', annals.who_hash(), annals.who_login(), operation)
                 || case when s.nests and start is not null then ', ' || start else '' end
                 || case when masked then ', case when annals_capture.m operator(pg_catalog.<>) 0 then annals_capture.m end' else '' end]
  from annals.segment s where s.tracked = entry_head.tracked order by s.number desc limit 1
$$;
comment on function annals.entry_head is 'Names and values of the columns that say who made an entry, when, and in which order.';

create function annals.entry_insert(tracked int, operation "char", source text, start text, masked boolean default false) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  head text[] := annals.entry_head(tracked, start, null, operation, masked);
  target text;
  list text;
begin
  -- operation i needs only the key. source is what qualifies columns: a transition table, old or new.
  select string_agg(format('c%s', c.n), ', ' order by c.n),
         string_agg(case when masked and c.wide_bit is not null
                           then format('case when annals_capture.m operator(pg_catalog.&) %s::pg_catalog.int8 operator(pg_catalog.=) 0 then %s.%I end', 1::bigint << c.wide_bit, source, c.name)
                         else format('%s.%I', source, c.name) end, ', ' order by c.n)
    into target, list from annals.captured(tracked) c where operation <> 'i' or c.is_key;
  return format('insert into %s (%s, %s) select %s, %s',
    (select s.relation from annals.segment s where s.tracked = entry_insert.tracked order by s.number desc limit 1), head[1], target, head[2], list);
end $$;
comment on function annals.entry_insert is 'The statement, up to its FROM, that writes entries.';

create function annals.move_insert(tracked int, left_start text, arrived_start text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  left_head text[] := annals.entry_head(tracked, left_start, 'annals_capture.y', 'm');
  arrived_head text[] := annals.entry_head(tracked, arrived_start, 'annals_capture.z', 'n');
  target text;
begin
  select string_agg('c' || c.n, ', ' order by array_position(t.key, c.n)) into target from annals.tracked t, annals.captured(t.id) c where t.id = move_insert.tracked and c.is_key;
  return format(E'annals_capture.y := pg_catalog.nextval(''annals.v''::pg_catalog.regclass);\n  annals_capture.z := pg_catalog.nextval(''annals.v''::pg_catalog.regclass);\n  '
      'insert into %s (%s, %s) select %s, %s union all select %s, %s;\n  '
      'insert into annals.move (tracked, xid, left_v, arrived_v, from_key, to_key) values (%s, pg_catalog.pg_current_xact_id(), annals_capture.y, annals_capture.z, array[%s], array[%s]);',
    (select s.relation from annals.segment s where s.tracked = move_insert.tracked order by s.number desc limit 1),
    left_head[1], target, left_head[2], annals.key_list(tracked, 'old.%I'), arrived_head[2], annals.key_list(tracked, 'new.%I'),
    tracked, annals.key_texts(tracked, 'old.'), annals.key_texts(tracked, 'new.'));
end $$;
comment on function annals.move_insert is 'The statements of a row trigger that write a change of key.';

create function annals.made_here(made_by xid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  top bigint := pg_current_xact_id()::text::bigint;
  distance bigint := ((made_by::text::bigint - (top & 4294967295) + 2147483648) & 4294967295) - 2147483648;
  full_id xid8;
begin
  if distance <= 0 then
    return distance = 0;
  end if;
  -- Begun after this transaction: a savepoint of its own, or another transaction, which has ended then since its row can be seen.
  full_id := (top + distance)::text::xid8;
  return full_id >= pg_snapshot_xmax(pg_current_snapshot()) or pg_xact_status(full_id) = 'in progress';
end $$;
comment on function annals.made_here is 'Whether the row version that a visible xmin stands for was made by this transaction.';
revoke all on function annals.made_here from public;

create function annals.same_value(relation oid, column_name name) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Comparing text and bytea themselves is cheaper, and as exact where no collation has a say.
  select format(case when a.atttypid in ('text'::regtype, 'varchar'::regtype) then '(old.%1$I collate pg_catalog."C" operator(pg_catalog.=) new.%1$I collate pg_catalog."C" or old.%1$I is null and new.%1$I is null) is true'
                     when a.atttypid = 'bytea'::regtype then '(old.%1$I operator(pg_catalog.=) new.%1$I or old.%1$I is null and new.%1$I is null) is true'
                     else 'pg_catalog.record_image_eq(row(old.%1$I), row(new.%1$I))' end, column_name)
  from pg_attribute a where a.attrelid = relation and a.attname = column_name
$$;
comment on function annals.same_value is 'The condition that an update left a column as it was.';

create function annals.names_wide(tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- BEFORE triggers may change columns that the update does not name.
  select t.update_form = 'row' and t.wide <> '{}' and not t.key_free and not annals.may_change_key(t.relation, array(select c.name from annals.captured(t.id) c where c.wide_bit is not null))
  from annals.tracked t where t.id = names_wide.tracked
$$;
comment on function annals.names_wide is 'Whether an update that changes a wide column must name it.';

create function annals.write_function(tracked int, what text, declared text, body text, guard text default '') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('create or replace function %s() returns trigger language plpgsql security definer as %L', annals.capture_name(tracked, what),
    case when guard <> '' then 'begin' || guard || E'\n' else '' end
    || case when declared = '' then '' else E'<<annals_capture>>\ndeclare' || declared end || 'begin' || body || E'\n  return null;\nend'
    || case when guard <> '' then E';\nend' else '' end);
  -- With the owner's rights they write whatever a table's rows are said to be. Default privileges may have granted them to others.
  execute (select format('revoke all on function %s() from public', annals.capture_name(tracked, what)) || coalesce(string_agg(', ' || a.grantee::regrole, ''), '')
           from pg_proc p left join aclexplode(p.proacl) a on a.grantee not in (0, p.proowner) where p.oid = (annals.capture_name(tracked, what) || '()')::regprocedure);
  execute format('comment on function %s() is %L', annals.capture_name(tracked, what),
    (select format('Capture of %I.%I: %s.', t.schema_name, t.table_name, what) from annals.tracked t where t.id = tracked));
end $$;
comment on function annals.write_function is 'Writes one capture function.';

create function annals.write_functions(tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  alias text;
  warn text := '';
  changed text := '';
  known text := annals.who_registered();
  op record;
begin
  select * into t from annals.tracked k where k.id = write_functions.tracked;
  alias := quote_ident(annals.old_alias(t.id));
  if (t.options->>'warn_rows')::bigint is not null then
    changed := E'  changed pg_catalog.int8;\n';
    warn := format(E'\n  if annals_capture.changed operator(pg_catalog.>) %s then raise warning using message = pg_catalog.format(%L, annals_capture.changed, tg_table_schema, tg_table_name, tg_op), errcode = ''01000''; end if;',
      (t.options->>'warn_rows')::bigint, '%s rows of %I.%I changed by one %s');
    perform annals.write_function(t.id, 'warn', E'\n' || changed, format(E'\n  select pg_catalog.count(*) into annals_capture.changed from %s;', alias) || warn);
    warn := E'\n  get diagnostics changed = row_count;' || warn;
  end if;

  for op in select * from (values ('insert', 'i'::"char", t.form), ('update', 'u', t.update_form), ('delete', 'd', t.update_form)) v (what, code, form)
  loop
    if op.form = 'row' then
      perform annals.write_row_function(t, op.what, op.code);
    elsif op.what = 'update' and not t.partitioned then
      -- The row trigger that notes a changed key sets a setting of this history's own: what other tables capture meanwhile, by cascades or in
      -- the same statement, must not make it forgotten. A statement trigger for it would not do: of several UPDATEs within one statement
      -- PostgreSQL fires only the last one's.
      perform annals.write_function(t.id, op.what, changed, format(E'\n  if (pg_catalog.current_setting(''annals.known'', true) operator(pg_catalog.=) %4$s and pg_catalog.current_setting(''annals.moved%3$s'', true) operator(pg_catalog.=) ''yes'' is not true) is true then\n  %1$s%2$s\n  return null;\n  end if;\n  perform annals.register_context();\n  %1$s%2$s\n  perform pg_catalog.set_config(''annals.moved%3$s'', '''', true);\n  perform annals.flush_moves(%3$s);',
        annals.entry_insert(t.id, op.code, alias, null) || ' from ' || alias || ';', warn, t.id, annals.who_context()));
    else
      perform annals.write_function(t.id, op.what, changed, known || '  ' || annals.entry_insert(t.id, op.code, alias, null) || ' from ' || alias || ';' || warn
        || case when op.what = 'update' then annals.partitioned_moves(t.id) else '' end);
    end if;
  end loop;

  if t.nests then
    -- Starts of the statements that run now, innermost last; the number before each is free. One list for all operations, since an UPDATE
    -- that moves a row to another partition fires row triggers for INSERT and DELETE. Whoever forges the setting confuses the order within
    -- his own transaction.
    perform annals.write_function(t.id, 'start', '', format(E'\n  perform pg_catalog.set_config(%1$L, pg_catalog.concat(pg_catalog.current_setting(%1$L, true), '','', greatest(pg_catalog.nextval(''annals.v''::pg_catalog.regclass), pg_catalog.nextval(''annals.v''::pg_catalog.regclass))), true);',
      'annals.start' || t.id));
    perform annals.write_function(t.id, 'end', '', format(E'\n  perform pg_catalog.set_config(%1$L, pg_catalog.regexp_replace(pg_catalog.current_setting(%1$L, true), '',[0-9]*$'', ''''), true);', 'annals.start' || t.id));
  end if;
  if t.update_form = 'statement' and t.partitioned then
    -- Fires just before the capture of the update, when the update names the key: the user's own code cannot come between.
    perform annals.write_function(t.id, 'keyed', '', format(E'\n  perform pg_catalog.set_config(''annals.keyed%s'', ''yes'', true);', t.id));
  elsif t.update_form = 'statement' then
    -- A changed key: the row's move is noted, and written when the statement's old images are, since keys can be swapped within one.
    perform annals.write_function(t.id, 'move', '', format(E'\n  if pg_catalog.record_image_ne(row(%s), row(%s)) then\n  insert into annals.moving (tracked, depth, from_key, to_key) values (%s, pg_catalog.pg_trigger_depth(), array[%s], array[%s]);\n  perform pg_catalog.set_config(''annals.moved%s'', ''yes'', true);\n  end if;',
      annals.key_list(t.id, 'old.%I'), annals.key_list(t.id, 'new.%I'), t.id, annals.key_texts(t.id, 'old.'), annals.key_texts(t.id, 'new.'), t.id));
  end if;
  perform annals.write_function(t.id, 'truncate', '', known || format(E'  perform annals.capture_truncate(%s, tg_relid);', t.id));
end $$;
comment on function annals.write_functions is 'Writes the capture functions of a history anew.';

create function annals.write_row_function(t annals.tracked, what text, code "char") returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  declared text := '';
  body text := annals.who_registered() || '  ';
  guard text := '';
  -- In a statement, rows come before they go again, as a cascade to the same table makes them do.
  start text := case when t.nests then 'annals_capture.b operator(pg_catalog.-) 1' end;
  image_start text;
  skips boolean := coalesce((t.options->>'skip_noop')::boolean, false);
  arrival text := '';
  wide text;
begin
  if t.nests then
    declared := declared || format(E'  b pg_catalog.int8 := pg_catalog.substring(pg_catalog.current_setting(''annals.start%s'', true), ''[0-9]{1,18}$'');\n', t.id);
  end if;
  if what = 'insert' then
    perform annals.write_function(t.id, what, declared, body || annals.entry_insert(t.id, code, 'new', start) || ';');
    return;
  end if;
  -- A row that was there before this transaction is what its key had first, in whatever order triggers, cascades, and statements within
  -- statements are captured. Start 0 says so. Mostly it is older than the transaction, and that is quickly seen.
  image_start := format('case when pg_catalog.age(old.xmin) operator(pg_catalog.>) 0 then 0::pg_catalog.int8 when annals.made_here(old.xmin) then %s else 0::pg_catalog.int8 end',
    case when t.nests then 'annals_capture.b'
         -- Where updates that change nothing leave no entry, the row may be older all the same. Then no row arrives at its key before it leaves,
         -- but in this very statement: its image stands before those that do.
         when skips and what = 'update' then format('case when pg_catalog.split_part(pg_catalog.current_setting(%1$L, true), '':'', 1) operator(pg_catalog.=) new.cmin::pg_catalog.text then pg_catalog.split_part(pg_catalog.current_setting(%1$L, true), '':'', 2)::pg_catalog.int8 end', 'annals.arrival' || t.id)
         else 'null::pg_catalog.int8' end);
  if what = 'delete' then
    perform annals.write_function(t.id, what, declared, body || annals.entry_insert(t.id, code, 'old', image_start) || ';');
    return;
  end if;
  if skips then
    -- Where statements nest, nothing would tell that the row is older than the transaction.
    guard := format(E'\n  if pg_catalog.record_image_eq(old, new)%s then return null; end if;', case when t.nests then ' and pg_catalog.age(old.xmin) operator(pg_catalog.<=) 0 and annals.made_here(old.xmin)' else '' end);
    if not t.nests then
      arrival := format(E'if (pg_catalog.split_part(pg_catalog.current_setting(%1$L, true), '':'', 1) operator(pg_catalog.=) new.cmin::pg_catalog.text) is not true then\n  perform pg_catalog.set_config(%1$L, pg_catalog.concat(new.cmin, '':'', pg_catalog.nextval(''annals.v''::pg_catalog.regclass)), true);\n  end if;\n  ', 'annals.arrival' || t.id);
    end if;
  end if;
  select string_agg(format('case when %s then %s::pg_catalog.int8 else 0 end', annals.same_value(t.relation, c.name), 1::bigint << c.wide_bit), ' operator(pg_catalog.|) ')
    into wide from annals.captured(t.id) c where c.wide_bit is not null;
  declared := declared || E'  y pg_catalog.int8;\n  z pg_catalog.int8;\n';
  -- The history of the old key ends here, so nothing later tells what the entry would lack.
  body := body || format(E'if pg_catalog.record_image_ne(row(%s), row(%s)) then\n  %s%s;\n  %s\n  else\n  ', annals.key_list(t.id, 'old.%I'), annals.key_list(t.id, 'new.%I'),
    arrival, annals.entry_insert(t.id, code, 'old', image_start), annals.move_insert(t.id, image_start, coalesce(start, 'null')));
  if wide is not null then
    declared := declared || E'  m pg_catalog.int8;\n';
    if annals.names_wide(t.id) then
      -- To compare wide values is dear: they are fetched for it. Where the update does not name them, they are what they were. The setting
      -- was made for this row by the trigger that fired just before.
      body := body || format(E'if (pg_catalog.current_setting(%1$L, true) operator(pg_catalog.=) ''yes'') is true then\n  perform pg_catalog.set_config(%1$L, '''', true);\n  annals_capture.m := %2$s;\n  else\n  annals_capture.m := %3$s;\n  end if;\n  ', 'annals.wide' || t.id, wide,
        (select sum(1::bigint << c.wide_bit) from annals.captured(t.id) c where c.wide_bit is not null));
      perform annals.write_function(t.id, 'named_wide', '', format(E'\n  perform pg_catalog.set_config(%L, ''yes'', true);', 'annals.wide' || t.id));
    else
      body := body || 'annals_capture.m := ' || wide || E';\n  ';
    end if;
  end if;
  perform annals.write_function(t.id, what, declared, body || annals.entry_insert(t.id, code, 'old', image_start, wide is not null) || E';\n  end if;', guard);
end $$;
comment on function annals.write_row_function is 'Writes a capture function that is called for each row.';

create function annals.partitioned_moves(tracked int) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A row that moves to another partition fires no row trigger for UPDATE. Its old and new row stand at the same place of the two
  -- transition tables, unless a trigger of the other partition made it vanish.
  select format($moves$
  if pg_catalog.current_setting('annals.keyed%1$s', true) operator(pg_catalog.=) 'yes' then
    perform pg_catalog.set_config('annals.keyed%1$s', '', true);
    if (select pg_catalog.count(*) from %2$s) operator(pg_catalog.=) (select pg_catalog.count(*) from %3$s) then
      insert into annals.moving (tracked, depth, from_key, to_key)
        select %1$s, pg_catalog.pg_trigger_depth(), a.k, b.k
        from (select pg_catalog.row_number() over () as r, array[%4$s] as k from %2$s) a join (select pg_catalog.row_number() over () as r, array[%4$s] as k from %3$s) b
          on a.r operator(pg_catalog.=) b.r where a.k operator(pg_catalog.<>) b.k;
    else
      insert into annals.moving (tracked, depth, to_key)
        select %1$s, pg_catalog.pg_trigger_depth(), b.k from (select array[%4$s] as k from %3$s) b where not exists (select from %2$s where array[%4$s] operator(pg_catalog.=) b.k);
    end if;
    perform annals.flush_moves(%1$s);
  end if;$moves$, tracked, quote_ident(annals.old_alias(tracked)), quote_ident(annals.new_alias(tracked)), annals.key_texts(tracked, ''))
$$;
comment on function annals.partitioned_moves is 'The statements that find changed keys in the transition tables of a partitioned table.';

create function annals.flush_moves(p_tracked int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  s annals.segment;
  keys text;
  typed text;
begin
  perform from annals.moving m where m.tracked = p_tracked and m.depth = pg_trigger_depth() limit 1;
  if not found then
    return;
  end if;
  select * into t from annals.tracked k where k.id = p_tracked;
  select * into s from annals.segment g where g.tracked = p_tracked order by g.number desc limit 1;
  select string_agg(format('c%s', k.n), ', ' order by k.i),
         string_agg(case when y.typnamespace = 'pg_catalog'::regnamespace then format('(%%1$s)[%s]::%s', k.i, format_type(a.atttypid, a.atttypmod))
                         -- By the type's input function: a cast could be a user's code.
                         else format('(jsonb_populate_record(null::%s, jsonb_build_object(''c%s'', (%%1$s)[%s]))).c%s', s.relation, k.n, k.i, k.n) end, ', ' order by k.i)
    into keys, typed from unnest(t.key) with ordinality k (n, i) join pg_attribute a on a.attrelid = s.relation and a.attname = 'c' || k.n join pg_type y on y.oid = a.atttypid;
  execute format($run$
    with gone as (delete from annals.moving m where m.tracked = $1 and m.depth = pg_catalog.pg_trigger_depth() returning m.seq, m.from_key, m.to_key),
         numbered as materialized (select seq, from_key, to_key, nextval('annals.v') as left_v from (select * from gone order by seq) o),
         ends as materialized (select *, nextval('annals.v') as arrived_v from (select * from numbered order by seq) o),
         noted as (insert into annals.move (tracked, xid, left_v, arrived_v, from_key, to_key) select $1, pg_current_xact_id(), left_v, arrived_v, from_key, to_key from ends where from_key is not null)
    insert into %s (v, xid, at, ctx, login, op, %s)
      select left_v, pg_current_xact_id(), now(), %s, %s, 'm', %s from ends where from_key is not null
      union all
      select arrived_v, pg_current_xact_id(), now(), %s, %s, 'n', %s from ends $run$,
    s.relation, keys, annals.who_hash(), annals.who_login(), format(typed, 'from_key'), annals.who_hash(), annals.who_login(), format(typed, 'to_key'))
    using p_tracked;
end $$;
comment on function annals.flush_moves is 'Writes the moves that the statement which ends made.';
revoke all on function annals.flush_moves from public;

create function annals.capture_truncate(p_tracked int, p_relation oid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
  t annals.tracked;
begin
  -- Before any position is taken: annals.tick relies on that order.
  perform pg_current_xact_id();
  select * into t from annals.tracked k where k.id = p_tracked;
  case coalesce(t.options->>'truncate', 'capture')
    when 'refuse' then
      perform annals.refuse('AN001', format('TRUNCATE on %s is refused: its history is kept, and its options refuse it', p_relation::regclass),
        'Delete the rows, or change the option truncate.', jsonb_build_object('table', p_relation::regclass));
    when 'allow' then
      insert into annals.gap (tracked, v, xid, at, login, why) values (p_tracked, nextval('annals.v'), pg_current_xact_id(), now(), to_regrole(quote_ident(session_user)), 'TRUNCATE');
    else
      if current_setting('transaction_isolation') <> 'read committed' then
        perform annals.refuse('AN002', format('TRUNCATE on %s is refused in a %s transaction: rows newer than its snapshot would vanish without history', p_relation::regclass, upper(current_setting('transaction_isolation'))),
          'Use READ COMMITTED, or delete the rows.', jsonb_build_object('table', p_relation::regclass));
      end if;
      execute annals.entry_insert(p_tracked, 't', 'x', null) || format(' from only %s x', p_relation::regclass);
  end case;
end $$;
comment on function annals.capture_truncate is 'Saves the rows of a table that is about to be truncated.';
revoke all on function annals.capture_truncate from public;
