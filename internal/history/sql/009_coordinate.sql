-- Coordinates: exact positions in the history of the database. A coordinate is the marker of the epoch, the snapshot and the end of the log.

-- What every coordinate calls is PL/pgSQL, which keeps its plans: a function in SQL is planned anew for each call from another function.
-- Called by functions that have set search_path.
create function annals.home() returns text
language plpgsql stable as $$
begin
  return (select pg_catalog.concat_ws('/', 'annals'::pg_catalog.regnamespace::pg_catalog.oid, a.attrelid, a.xmin) from pg_catalog.pg_attribute a where a.attrelid = 'annals.epoch_marker'::pg_catalog.regclass and a.attname = 'marker');
end $$;
comment on function annals.home is 'Which objects the schema is made of, and which transaction made them: others after a restore.';

create function annals.here(out system_identifier bigint, out database oid, out timeline text, out marker uuid)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select s.system_identifier, d.oid, left(pg_walfile_name(pg_current_wal_lsn()), 8), (select m.marker from annals.epoch_marker m where m.only_row)
    into here.system_identifier, here.database, here.timeline, here.marker from pg_control_system() s, pg_database d where d.datname = current_database();
end $$;
comment on function annals.here is 'What identifies the present epoch. On a standby it cannot be told.';

create function annals.is_restored() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select (e.system_identifier, e.database, e.home) <> (s.system_identifier, d.oid, annals.home())
  from pg_control_system() s, pg_database d, (select * from annals.epoch order by number desc limit 1) e where d.datname = current_database()
$$;
comment on function annals.is_restored is 'Whether the database was restored here from elsewhere, and annals.adopt() was not called yet. Null when nothing was ever tracked.';

create function annals.epoch_is_present() returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  e annals.epoch;
begin
  if pg_is_in_recovery() then -- the primary's rows are here, and the unlogged marker cannot be read
    return not annals.is_restored();
  end if;
  select * into e from annals.epoch x order by x.number desc limit 1;
  return coalesce(e.marker = (select m.marker from annals.epoch_marker m where m.only_row) and e.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8) and e.home = annals.home()
                  and e.database = (select d.oid from pg_database d where d.datname = current_database()) and e.system_identifier = (pg_control_system()).system_identifier, false);
end $$;
comment on function annals.epoch_is_present is 'Whether coordinates that carry the last noted marker hold here.';

create function annals.note_epoch(p_restored boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  h record;
  e annals.epoch;
begin
  if current_setting('transaction_read_only')::boolean then
    perform annals.refuse('AN009', 'the server was restarted or restored since coordinates were last taken, and a read-only transaction cannot note that', 'Call annals.present_epoch() in another transaction.');
  end if;
  perform pg_advisory_xact_lock(hashtextextended('annals.epoch', 0));
  if not p_restored and annals.epoch_is_present() then
    return (select max(number) from annals.epoch);
  end if;
  -- Always another marker: a dump carries the old one along.
  insert into annals.epoch_marker (marker) values (gen_random_uuid()) on conflict (only_row) do update set marker = excluded.marker;
  select * into h from annals.here();
  if p_restored or not exists (select from annals.epoch) then
    insert into annals.epoch (system_identifier, database, home, timeline, marker, began_v) values (h.system_identifier, h.database, annals.home(), h.timeline, h.marker, nextval('annals.v')) returning * into e;
  else
    update annals.epoch x set timeline = h.timeline, marker = h.marker where x.number = (select max(number) from annals.epoch) returning * into e;
  end if;
  return e.number;
end $$;
comment on function annals.note_epoch is 'Begins the first epoch or, after a restore, another one; else gives the present one another marker when that is due.';

create function annals.present_epoch() returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if annals.epoch_is_present() then
    return (select max(number) from annals.epoch);
  end if;
  if annals.is_restored() then
    perform annals.refuse('AN011', 'the database was restored, and its histories have not been adopted', 'Call annals.adopt().');
  end if;
  return annals.note_epoch(false);
end $$;
comment on function annals.present_epoch is 'Number of the present epoch. Notes a crash or promotion.';

create function annals.is_named_so(t annals.tracked) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A table that had been dropped is a mere number in a dump, which may mean something else here.
  select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = t.relation and c.relkind in ('r', 'p') and (c.relname, n.nspname) = (t.table_name, t.schema_name))
$$;
comment on function annals.is_named_so is 'Whether what is noted as the table of a history has its name.';

create function annals.adopt() returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  t annals.tracked;
  adopted int := 0;
  present int;
begin
  if annals.is_restored() is not true then
    return 0;
  end if;
  -- All writers end first: so whatever stands in the segments that were restored is seen by every coordinate of the new epoch.
  for t in select k.* from annals.tracked k where k.ended_v is null and annals.is_named_so(k) order by k.id loop
    perform annals.lock_history(t.relation);
  end loop;
  present := annals.note_epoch(true);
  for t in select * from annals.tracked k where k.ended_v is null order by k.id loop
    if annals.is_named_so(t) then
      perform annals.refresh(t.id);
    else
      update annals.tracked k set relation = null where k.id = t.id;
      perform annals.end_tracking(t.id, 'not found after a restore');
    end if;
    adopted := adopted + 1;
  end loop;
  for t in select * from annals.tracked k where k.ended_v is not null loop
    update annals.tracked k set relation = null where k.id = t.id and not annals.is_named_so(t);
    update annals.tracked k set relation_oid = k.relation where k.id = t.id and k.relation is not null;
    update annals.tracked k set epoch = present where k.id = t.id;
    perform annals.write_view(t.id);
  end loop;
  update annals.tracked k set pruned_xid = null;
  return adopted;
end $$;
comment on function annals.adopt is 'To be called after a restore: transaction ids mean something else now, so all histories begin new segments. Returns how many. Waits a second at most for writers of each table.';

create function annals.taken_snapshot() returns pg_snapshot
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
  xips text;
begin
  -- The taker's own transaction is not in its snapshot, and would look committed once a later one is.
  if own is not null and own < pg_snapshot_xmax(s) and pg_visible_in_snapshot(own, s) then
    select string_agg(x::text, ',' order by x) into xips from (select pg_snapshot_xip(s) union select own) u (x);
    s := format('%s:%s:%s', least(pg_snapshot_xmin(s), own), pg_snapshot_xmax(s), xips)::pg_snapshot;
  end if;
  return s;
end $$;
comment on function annals.taken_snapshot is 'The snapshot of the calling statement, without the calling transaction.';

create function annals.coordinate() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  marker uuid;
  s pg_snapshot;
begin
  if pg_is_in_recovery() then
    perform annals.refuse('AN007', 'a coordinate cannot be taken on a standby: transactions that run look finished there', 'Take it on the primary.');
  end if;
  if not annals.epoch_is_present() then
    perform annals.present_epoch();
  end if;
  select x.marker into marker from annals.epoch x order by x.number desc limit 1;
  s := annals.taken_snapshot();
  -- The end of the log is read after the snapshot: what that sees lies before it.
  return format('%s/%s/%s', left(marker::text, 8), s, pg_current_wal_insert_lsn());
end $$;
comment on function annals.coordinate is 'The coordinate of what is committed now, or of what a REPEATABLE READ transaction sees, without the changes of the calling transaction.';

create function annals.coordinate_snapshot(p_coordinate text) returns pg_snapshot
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  part text[] := string_to_array(p_coordinate, '/');
  s pg_snapshot;
begin
  begin
    if p_coordinate ~ '^[0-9a-f]{8}/[0-9]+:[0-9]+:[0-9,]*/[0-9A-F]+/[0-9A-F]+$' then
      s := part[2]::pg_snapshot;
    end if;
  exception when invalid_text_representation or numeric_value_out_of_range then
    null;
  end;
  if s is null then
    perform annals.refuse('AN008', format('%L is no coordinate', left(p_coordinate, 100)), 'A coordinate is the text that annals.coordinate() returned.');
  end if;
  if not exists (select from annals.epoch e where left(e.marker::text, 8) = part[1] and e.number = (select max(number) from annals.epoch)) or not annals.epoch_is_present() then
    perform annals.refuse('AN009', format('coordinate %s belongs to another epoch: since then the database was restored, crashed or was promoted', p_coordinate), 'Use a time, a tag or a position instead.');
  end if;
  if not annals.snapshot_covers(pg_current_snapshot(), s) then
    perform annals.refuse('AN010', format('coordinate %s is later than what this transaction sees', p_coordinate), 'Begin a new transaction.');
  end if;
  return s;
end $$;
comment on function annals.coordinate_snapshot is 'The snapshot of a coordinate; an error when it does not hold here.';

create function annals.snapshot_covers(p_later pg_snapshot, p_earlier pg_snapshot) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
  -- All that the earlier one sees, the later one sees: what the later one does not see lies in its list, or beyond its end, where the
  -- earlier one must then list it. The caller's own transaction is in no list.
  select not exists (select from pg_snapshot_xip(p_later) x where pg_visible_in_snapshot(x, p_earlier))
     and (pg_snapshot_xmax(p_earlier) <= pg_snapshot_xmax(p_later)
          or pg_snapshot_xmax(p_earlier)::text::numeric - pg_snapshot_xmax(p_later)::text::numeric
             = (select count(*) from pg_snapshot_xip(p_earlier) x where x >= pg_snapshot_xmax(p_later)))
$$;
comment on function annals.snapshot_covers is 'Whether one snapshot sees all that another one sees.';

create function annals.tick() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  position bigint;
  present int := annals.present_epoch();
  own bigint;
  low bigint;
  place tid;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform annals.refuse('AN002', format('a tick cannot be taken in a %s transaction: its snapshot is older than the position', upper(current_setting('transaction_isolation'))), 'Use READ COMMITTED.');
  end if;
  own := pg_current_xact_id()::text::bigint;
  -- In this order. First the position. Who took it, or a lower one, had an id before: so it is lower than an id that is given out now,
  -- to a subtransaction. The upper end of a snapshot is none: transactions that run may have higher ids.
  select case when is_called then last_value else last_value - 1 end into position from annals.v;
  begin
    insert into annals.tick (v, at, snapshot, upper_xid, lsn, epoch)
      select position, clock_timestamp(), s, '0', pg_current_wal_insert_lsn(), present from annals.taken_snapshot() s returning xmin::text::bigint, ctid into low, place;
  exception when unique_violation then
    raise; -- there is none: the block is for the subtransaction
  end;
  update annals.tick k set upper_xid = ((own & ~4294967295) + low + case when low < own & 4294967295 then 4294967296 else 0 end)::text::xid8 where k.ctid = place;
  return position;
end $$;
comment on function annals.tick is 'Notes the present position in time.';

create function annals.lower_bound(p_snapshot pg_snapshot) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((select t.v from annals.tick t where t.epoch = (select max(number) from annals.epoch) and t.upper_xid <= pg_snapshot_xmin(p_snapshot) order by t.upper_xid desc limit 1), 0)
$$;
comment on function annals.lower_bound is 'Entries that the snapshot does not see have higher positions.';

create function annals.position_at(p_at timestamptz) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.v from annals.tick t where t.at <= p_at order by t.at desc, t.v desc limit 1
$$;
comment on function annals.position_at is 'Position of the last tick at or before a time; null when there is none.';

create function annals.coordinate_at(p_at timestamptz) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  k annals.tick;
  e annals.epoch;
begin
  select * into k from annals.tick t where t.at <= p_at order by t.at desc, t.v desc limit 1;
  if not found then
    perform annals.refuse('AN012', format('no tick is as old as %s', p_at), 'Positions in time are noted by annals.tick() from when histories are kept.');
  end if;
  select * into e from annals.epoch x order by x.number desc limit 1;
  if k.epoch <> e.number then
    perform annals.refuse('AN009', format('the tick of %s belongs to another epoch: since then the database was restored', k.at), 'States before the restore can be told by position only.');
  end if;
  -- A tick that survived a crash or promotion holds after it: all that its snapshot sees was in the log before it.
  return format('%s/%s/%s', left(e.marker::text, 8), k.snapshot, k.lsn);
end $$;
comment on function annals.coordinate_at is 'The coordinate of the last tick at or before a time.';
