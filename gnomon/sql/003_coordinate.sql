-- Places in the history of the database, and the references that name them: a coordinate, tag:name, a time, or now.

create function gnomon.epoch(out number int, out marker text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not annals.epoch_is_present() then
    perform annals.present_epoch();
  end if;
  select e.number, left(e.marker::text, 8) into epoch.number, epoch.marker from annals.epoch e order by e.number desc limit 1;
end $$;
comment on function gnomon.epoch is 'The present epoch and the marker with which its coordinates begin. Notes a crash or promotion.';

create function gnomon.now() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  marker text;
begin
  if pg_is_in_recovery() then
    perform gnomon.refuse('AN007', 'a coordinate cannot be taken on a standby: transactions that run look finished there', 'Take it on the primary.');
  end if;
  -- Stable, so that the snapshot is that of the calling statement; which does not see the marker that it just notes.
  if annals.epoch_is_present() then
    select left(e.marker::text, 8) into marker from annals.epoch e order by e.number desc limit 1;
  else
    marker := (gnomon.epoch()).marker;
  end if;
  -- The end of the log is read after the snapshot: what that sees lies before it.
  return format('%s/%s/%s', marker, annals.taken_snapshot(), pg_current_wal_insert_lsn());
end $$;
comment on function gnomon.now is 'The coordinate of what the calling statement reads; the caller''s own changes are not in it.';

create type gnomon.place as (coordinate text, snapshot pg_snapshot, epoch int, bound bigint, asked timestamptz, at timestamptz, next_at timestamptz, exact boolean);
comment on type gnomon.place is 'An exact place in the history of the database.';
comment on column gnomon.place.coordinate is 'Its coordinate.';
comment on column gnomon.place.snapshot is 'What it sees.';
comment on column gnomon.place.epoch is 'Epoch of the snapshot: the present one.';
comment on column gnomon.place.bound is 'Entries that it does not see have higher positions.';
comment on column gnomon.place.asked is 'The time that was asked for, if it was.';
comment on column gnomon.place.at is 'The time of the last tick at or before it.';
comment on column gnomon.place.next_at is 'The time of the next tick; null when there is none yet.';
comment on column gnomon.place.exact is 'It is just what was asked for, not a tick before.';

create function gnomon.place_of(p_ref text) returns gnomon.place
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  t gnomon.tag;
  e record;
  part text[];
begin
  p.exact := true;
  if p_ref is null then
    perform gnomon.refuse('GN006', 'no place in the past is given', 'Give a coordinate, tag:name, a time, or now.');
  elsif p_ref = 'now' then
    p.coordinate := gnomon.now();
    p.snapshot := split_part(p.coordinate, '/', 2)::pg_snapshot;
  elsif p_ref ~ '^[0-9a-f]{8}/' then
    p.coordinate := p_ref;
    p.snapshot := annals.coordinate_snapshot(p_ref);
    part := string_to_array(p_ref, '/');
    -- On a standby transactions that run look finished, so there the log tells. A transaction that began before may still see less.
    if pg_is_in_recovery() and pg_last_wal_replay_lsn() < format('%s/%s', part[3], part[4])::pg_lsn then
      perform gnomon.refuse('AN010', format('coordinate %s is later than what this standby shows', p_ref), 'Wait for it, then begin a new transaction.');
    end if;
  elsif p_ref like 'tag:%' then
    select * into t from gnomon.tag g where g.name = substr(p_ref, 5);
    if not found then
      perform gnomon.refuse('GN004', format('there is no tag %L', substr(p_ref, 5)), 'gnomon.tags() lists them.', jsonb_build_object('tag', substr(p_ref, 5)));
    end if;
    e := gnomon.epoch();
    if t.epoch <> e.number then
      perform gnomon.refuse('AN009', format('tag %L belongs to another epoch: since then the database was restored', t.name), 'States before the restore cannot be told by it.', jsonb_build_object('tag', t.name));
    end if;
    -- It outlasts a crash and a promotion, as a tick does: all that its snapshot sees was in the log before the tag was.
    p.snapshot := t.snapshot;
    p.coordinate := format('%s/%s/%s', e.marker, t.snapshot, split_part(t.coordinate, '/', 3) || '/' || split_part(t.coordinate, '/', 4));
    p.bound := t.v;
  else
    p := gnomon.place_at(p_ref);
  end if;
  e := coalesce(e, gnomon.epoch());
  p.epoch := e.number;
  -- Entries of earlier epochs are seen by all.
  p.bound := greatest(p.bound, annals.lower_bound(p.snapshot), (select x.began_v from annals.epoch x where x.number = e.number));
  return p;
end $$;
comment on function gnomon.place_of is 'The place that a reference names: a coordinate, tag:name, a time, or now.';

create function gnomon.place_at(p_time text) returns gnomon.place
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  k annals.tick;
  following annals.tick;
  e record;
begin
  begin
    p.asked := p_time::timestamptz;
  exception when others then
    p.asked := null;
  end;
  if p.asked is null then
    perform gnomon.refuse('GN006', format('%L names no place in the past', left(p_time, 100)), 'Give a coordinate, tag:name, a time, or now.');
  end if;
  select * into k from annals.tick t where t.at <= p.asked order by t.at desc, t.v desc limit 1;
  if not found then
    perform gnomon.refuse('AN012', format('no tick is as old as %s', p.asked), 'The heartbeat notes times from when it runs on.');
  end if;
  e := gnomon.epoch();
  if k.epoch <> e.number then
    perform gnomon.refuse('AN009', format('the tick of %s belongs to another epoch: since then the database was restored', k.at), 'States before the restore cannot be told by time.');
  end if;
  select * into following from annals.tick t where t.at > p.asked order by t.at, t.v limit 1;
  p.at := k.at;
  p.next_at := following.at;
  -- A commit that waits for a synchronous standby has its time before it is seen; and where the clock was set back, times tell no order.
  if current_setting('synchronous_standby_names') = '' and coalesce(following.v >= k.v, true) then
    p.snapshot := gnomon.snapshot_at(p.asked, k.snapshot, following.upper_xid);
  end if;
  p.exact := p.snapshot is not null;
  p.snapshot := coalesce(p.snapshot, k.snapshot);
  p.coordinate := format('%s/%s/%s', e.marker, p.snapshot, case when p.exact then coalesce(following.lsn, pg_current_wal_insert_lsn()) else k.lsn end);
  return p;
end $$;
comment on function gnomon.place_at is 'The place of a time: exact where commits carry their times (track_commit_timestamp), else that of the last tick at or before it. Without its epoch and bound, see gnomon.place_of.';

create function gnomon.snapshot_at(p_at timestamptz, p_before pg_snapshot, p_upper xid8) returns pg_snapshot
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  present pg_snapshot := annals.taken_snapshot();
  first bigint := pg_snapshot_xmax(p_before)::text::bigint;
  -- Whoever committed before the next tick had an id before it, and a lower one than that.
  beyond bigint := least(p_upper, pg_snapshot_xmax(present))::text::bigint;
  r record;
begin
  if pg_is_in_recovery() or current_setting('track_commit_timestamp') <> 'on' or p_at > clock_timestamp() or beyond - first > 10000 then
    return null;
  end if;
  with candidate as (
    select x from pg_snapshot_xip(p_before) x union all select g::text::xid8 from generate_series(first, beyond - 1) g
  ), fate as (
    select c.x, case when pg_visible_in_snapshot(c.x, present) then coalesce(pg_xact_status(c.x), 'unknown') else 'running' end as status from candidate c
  ), timed as (
    select f.x, f.status, case when f.status = 'committed' then pg_xact_commit_timestamp(f.x::xid) end as at from fate f
  ), seen as (
    -- What was rolled back left no entry, so it need not be listed.
    select t.x, t.status, t.status = 'aborted' or t.status = 'committed' and t.at <= p_at as seen, t.status = 'unknown' or t.status = 'committed' and t.at is null as lost from timed t
  ), upper as (
    select greatest(first, max(s.x::text::bigint + 1) filter (where s.seen and s.status = 'committed')) as xmax from seen s
  )
  select coalesce(bool_or(s.lost), false) as lost, min(u.xmax) as xmax, min(s.x) filter (where not s.seen and s.x::text::bigint < u.xmax) as xmin,
         string_agg(s.x::text, ',' order by s.x) filter (where not s.seen and s.x::text::bigint < u.xmax) as xips
    into r from upper u left join seen s on true;
  if r.lost then
    return null;
  end if;
  return format('%s:%s:%s', coalesce(r.xmin::text, r.xmax::text), r.xmax, r.xips)::pg_snapshot;
end $$;
comment on function gnomon.snapshot_at is 'What had committed at a time: what a snapshot before it saw, and whose commits carry times up to it. Null where that cannot be told.';
