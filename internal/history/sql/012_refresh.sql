-- What becomes of a history when its table changes: whatever would make it tell past states wrongly interrupts it.

create function annals.interrupt(p_tracked int, p_why text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into annals.gap (tracked, v, xid, at, login, why, lossless)
    select t.id, nextval('annals.v'), pg_current_xact_id(), now(), to_regrole(quote_ident(session_user)), left(p_why, 1000), coalesce(t.saved_xid = pg_current_xact_id(), false)
    from annals.tracked t where t.id = p_tracked
$$;
comment on function annals.interrupt is 'Notes that a history is interrupted here.';

create function annals.capture_rows(p_tracked int, p_relation oid, p_operation "char") returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
  known text := coalesce(current_setting('annals.known', true), '');
begin
  perform pg_current_xact_id();
  perform annals.register_context();
  execute annals.entry_insert(p_tracked, p_operation, 'x', 'null::bigint') || format(' from only %s x', p_relation::regclass);
  perform set_config('annals.known', known, false); -- a call leaves the session as it was; only writes of its own teach it
end $$;
comment on function annals.capture_rows is 'Writes an entry for each row of a table.';

create function annals.materialize(p_tracked int) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
  member oid;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform annals.refuse('AN002', format('the rows of history %s cannot be saved in a %s transaction: it does not see the last of them', p_tracked, upper(current_setting('transaction_isolation'))), 'Use READ COMMITTED.');
  end if;
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found then
    perform annals.refuse('AN005', format('there is no history %s that goes on', coalesce(p_tracked::text, 'null')), 'annals.tracked lists them.');
  end if;
  perform annals.lock_history(t.relation);
  for member in select l.relid from annals.leaves(t.relation) l where l.leaf loop
    perform annals.capture_rows(p_tracked, member, 'u');
  end loop;
  update annals.tracked k set saved_xid = pg_current_xact_id() where k.id = p_tracked;
end $$;
comment on function annals.materialize is 'Saves an image of every row, as entries like those of updates that change nothing. What interrupts the history later in the same transaction then loses no earlier state: a new type with USING, untracking, dropping the table. Waits a second at most for writers.';

create function annals.read_columns(p_tracked int, p_restored boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  -- A restore numbers columns anew, so then names tell which is which.
  if p_restored then
    update annals.tracked_column c set attnum = coalesce((select a.attnum from pg_attribute a where a.attrelid = t.relation and a.attname = c.name and a.attnum > 0 and not a.attisdropped), -c.n)
      where c.tracked = p_tracked and c.gone_v is null;
  end if;
  -- A column whose values history did not hold, or holds as something that the new type does not cover, becomes another column.
  update annals.tracked_column c set gone_v = nextval('annals.v')
    where c.tracked = p_tracked and c.gone_v is null
      and not exists (select from pg_attribute a where a.attrelid = t.relation and a.attnum = c.attnum and not a.attisdropped
                        and c.generated = (a.attgenerated <> '') and c.excluded = coalesce(t.options->'exclude' ? a.attname::text, false)
                        and (c.type = format_type(a.atttypid, a.atttypmod)
                             or coalesce(annals.widens((select x.atttypid from annals.segment s join pg_attribute x on x.attrelid = s.relation and x.attname = 'c' || c.n and not x.attisdropped
                                                        where s.tracked = p_tracked order by s.number desc limit 1), annals.stored_type(a.atttypid, a.atttypmod)::regtype), c.excluded or c.generated)));
  insert into annals.former_name (tracked, n, name, epoch)
    select p_tracked, c.n, c.name, (select max(e.number) from annals.epoch e)
    from annals.tracked_column c join pg_attribute a on a.attrelid = t.relation and a.attnum = c.attnum where c.tracked = p_tracked and c.gone_v is null and c.name <> a.attname;
  update annals.tracked_column c set name = a.attname, type = format_type(a.atttypid, a.atttypmod)
    from pg_attribute a where c.tracked = p_tracked and c.gone_v is null and a.attrelid = t.relation and a.attnum = c.attnum
      and (c.name, c.type) is distinct from (a.attname, format_type(a.atttypid, a.atttypmod));
  insert into annals.tracked_column (tracked, n, name, attnum, type, excluded, generated, added_v)
    select p_tracked, (select coalesce(max(n), 0) from annals.tracked_column where tracked = p_tracked) + row_number() over (order by a.attnum),
           a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), coalesce(t.options->'exclude' ? a.attname::text, false), a.attgenerated <> '', nextval('annals.v')
    from pg_attribute a where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped
      and not exists (select from annals.tracked_column c where c.tracked = p_tracked and c.gone_v is null and c.attnum = a.attnum);
  update annals.tracked k set relation_oid = k.relation, schema_name = n.nspname, table_name = c.relname, partitioned = c.relkind = 'p', epoch = (select max(e.number) from annals.epoch e)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where k.id = p_tracked and c.oid = k.relation;
  update annals.tracked k set key_index = x.relname, key = y.key
    from pg_class x, lateral (select array_agg(tc.n order by u.position) as key from pg_index i, unnest(i.indkey::int2[]) with ordinality u (attnum, position), annals.tracked_column tc
                              where i.indexrelid = x.oid and u.position <= i.indnkeyatts and tc.tracked = p_tracked and tc.gone_v is null and tc.attnum = u.attnum) y
    where k.id = p_tracked and x.oid = annals.key_index(k.relation);
end $$;
comment on function annals.read_columns is 'Brings the noted columns, key and names of a tracked table up to date.';

create function annals.is_own(p_xid xid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Visible and not committed. The full id is the one below the next id whose lower half this is.
  select pg_xact_status(((n & ~4294967295) + x - case when x > n & 4294967295 then 4294967296 else 0 end)::text::xid8) = 'in progress'
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000 as n, p_xid::text::bigint as x) i where p_xid::text::bigint > 2
$$;
comment on function annals.is_own is 'Whether a row version that is seen, of this xmin, was written by the calling transaction.';

create function annals.insertions_since(p_tracked int, p_v bigint) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s annals.segment;
  found_one boolean;
begin
  for s in select * from annals.segment g where g.tracked = p_tracked and coalesce(g.last_v, p_v) >= p_v loop
    execute format('select exists (select from %s where v >= $1 and op in (''i'', ''n''))', s.relation) into found_one using p_v;
    if found_one then
      return true;
    end if;
  end loop;
  return false;
end $$;
comment on function annals.insertions_since is 'Whether rows or keys appeared in a history from a position on.';

create function annals.follow_partitions(p_tracked int, p_followed boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  member record;
  filled boolean;
  -- Rows can be saved if the partition came or went in this transaction, and all of them are seen.
  savable boolean := p_followed and current_setting('transaction_isolation') = 'read committed';
  other int;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  for member in select l.relid, l.leaf, exists (select from pg_inherits i where i.inhrelid = l.relid and annals.is_own(i.xmin)) as own from annals.leaves(t.relation) l
                  where l.kind <> 'f' and not exists (select from annals.tracked_relation r where r.tracked = p_tracked and r.relation = l.relid) loop
    for other in select k.id from annals.tracked k where k.relation = member.relid and k.ended_v is null loop
      perform annals.end_tracking(other, format('became a partition of %s', t.relation));
      perform set_config('annals.working', 'yes', true);
    end loop;
    continue when not member.leaf;
    execute format('select exists (select from only %s)', member.relid::regclass) into filled;
    if savable and (member.own or not filled) then
      perform annals.capture_rows(p_tracked, member.relid, 'i');
    elsif filled or not member.own then
      perform annals.interrupt(p_tracked, format('partition %s came', member.relid::regclass));
    end if;
  end loop;
  for member in select r.relation, r.name, r.leaf, c.oid is not null as there, annals.is_own(c.xmin) as own from annals.tracked_relation r left join pg_class c on c.oid = r.relation
                  where r.tracked = p_tracked and not exists (select from annals.leaves(t.relation) l where l.relid = r.relation) loop
    if member.there then
      perform annals.drop_triggers(member.relation);
    end if;
    if member.leaf and member.there and savable and member.own then
      perform annals.capture_rows(p_tracked, member.relation, 'd');
    elsif member.leaf then
      perform annals.interrupt(p_tracked, format('partition %s went', member.name));
    end if;
    delete from annals.tracked_relation r where r.tracked = p_tracked and r.relation = member.relation;
  end loop;
end $$;
comment on function annals.follow_partitions is 'Follows partitions that came or went: with entries for their rows, or else by an interruption.';

create function annals.refresh(p_tracked int, p_followed boolean default false, p_look boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  old annals.tracked;
  t annals.tracked;
  why text;
  first boolean := not exists (select from annals.tracked_relation r where r.tracked = p_tracked);
  restored boolean;
  followed boolean;
begin
  perform set_config('annals.working', 'yes', true);
  select * into old from annals.tracked k where k.id = p_tracked;
  restored := old.epoch <> (select max(e.number) from annals.epoch e);
  followed := p_followed and not old.behind;
  if not first and not restored then
    -- Found later: it is not known what went by since. Within the command, rewriting and disabling are met below and by annals.on_rewrite.
    select string_agg(d.detail, '; ') into why from annals.drift(p_tracked) d where d.interrupts and not followed and d.what <> 'partition';
    if why is not null then
      perform annals.interrupt(p_tracked, why);
    end if;
  end if;
  if restored then
    update annals.tracked k set relation_oid = k.relation, epoch = (select max(e.number) from annals.epoch e) where k.id = p_tracked;
    delete from annals.tracked_relation r where r.tracked = p_tracked;
    insert into annals.tracked_relation (tracked, relation, name, leaf) select p_tracked, l.relid, l.relid::regclass::text, l.leaf from annals.leaves(old.relation) l where l.kind <> 'f';
  end if;
  perform annals.read_columns(p_tracked, restored);
  select * into t from annals.tracked k where k.id = p_tracked;

  if annals.key_index(t.relation) is null then
    if exists (select from annals.tracked_column c where c.tracked = p_tracked and c.n = any (t.key) and c.gone_v is not null) then
      perform annals.end_tracking(p_tracked, 'its key was dropped');
      perform annals.write_view(p_tracked);
      return;
    end if;
    -- Its columns are there still: a key may come back on them.
    update annals.tracked k set key_lost_v = coalesce(k.key_lost_v, nextval('annals.v')) where k.id = p_tracked;
  elsif t.key_lost_v is not null then
    if annals.insertions_since(p_tracked, t.key_lost_v) then
      perform annals.interrupt(p_tracked, 'it had no key for a while');
    end if;
    update annals.tracked k set key_lost_v = null where k.id = p_tracked;
  end if;
  if not first and followed and t.key <> old.key then
    perform annals.interrupt(p_tracked, 'the key changed');
  end if;
  if followed and annals.is_disabled(p_tracked) then
    if not old.off then
      perform annals.interrupt(p_tracked, 'a trigger was disabled');
      update annals.tracked k set off = true where k.id = p_tracked;
    end if;
  elsif old.off then
    perform annals.interrupt(p_tracked, 'triggers had been disabled');
    update annals.tracked k set off = false where k.id = p_tracked;
  end if;

  perform annals.choose(p_tracked, p_look);
  if not annals.fits_segment(p_tracked) then
    perform annals.begin_segment(p_tracked);
  end if;
  perform annals.write_functions(p_tracked);
  if not first then
    perform annals.follow_partitions(p_tracked, followed);
  end if;
  update annals.tracked k set key_free = false where k.id = p_tracked;
  perform annals.put_triggers(p_tracked, not p_followed and annals.is_disabled(p_tracked));
  update annals.tracked k set behind = false where k.id = p_tracked;
  begin
    perform annals.write_view(p_tracked);
  exception when lock_not_available then
    if not p_followed then
      raise;
    end if;
    raise warning 'somebody reads the history of %, so its view was not replaced', t.relation using hint = format('Call annals.sync(%s). Until then reading it is refused.', p_tracked);
  end;
  perform set_config('annals.working', '', true);
end $$;
comment on function annals.refresh is 'Makes capture fit the table as it is now. p_followed: what is met was done by the command that runs. p_look: choose wide columns by their values.';

create function annals.readable_from(p_tracked int) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select case when t.behind or t.off or t.key_lost_v is not null then 9223372036854775807
              else greatest(t.began_v, t.pruned_v, (select max(g.v) from annals.gap g where g.tracked = t.id and not g.lossless)) end
  from annals.tracked t where t.id = p_tracked
$$;
comment on function annals.readable_from is 'Position from which states can be told exactly: after the beginning, what was pruned and the last interruption. The highest bigint while none can.';

create function annals.unreadable(p_tracked int, p_snapshot pg_snapshot) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  e annals.epoch;
  g annals.gap;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  if not found then
    return 'there is no such history';
  end if;
  select * into e from annals.epoch x order by x.number desc limit 1;
  if t.behind or t.off then
    return 'changes go by uncaptured';
  elsif t.key_lost_v is not null then
    return 'the table has no key';
  elsif t.began_v >= e.began_v and not pg_visible_in_snapshot(t.began_xid, p_snapshot) then
    return 'it began later';
  end if;
  -- All that was pruned must be seen.
  if t.pruned_xid >= pg_snapshot_xmin(p_snapshot) then
    return 'it was pruned';
  end if;
  select * into g from annals.gap x where x.tracked = p_tracked and not x.lossless and x.v >= e.began_v and not pg_visible_in_snapshot(x.xid, p_snapshot) order by x.v limit 1;
  if found then
    return format('it was interrupted at %s: %s', g.at, g.why);
  end if;
  if t.ended_v is not null and (t.ended_v < e.began_v or exists (
       select from annals.gap x where x.tracked = p_tracked and x.v < t.ended_v and x.why = t.ended_why and pg_visible_in_snapshot(x.xid, p_snapshot))) then
    return format('it ended at %s: %s', t.ended_at, t.ended_why);
  end if;
  return null;
end $$;
comment on function annals.unreadable is 'Why the state at a snapshot cannot be told from a history; null when it can.';

-- Whoever may use the schema reads; only its owner, and functions of packages that act as the owner, change what is captured.
revoke execute on function annals.track, annals.untrack, annals.sync, annals.adopt, annals.rotate, annals.seal_segments, annals.prune, annals.materialize, annals.free_key, annals.tick,
  annals.register_context, annals.flush_moves, annals.capture_truncate from public;
