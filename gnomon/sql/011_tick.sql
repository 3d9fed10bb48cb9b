-- The heartbeat: ticks at regular intervals, which say at what times the database was in which state.

create function gnomon.heartbeat(p_every interval default '1 second') returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  last annals.tick;
  position bigint;
  idle boolean;
begin
  if p_every is null or p_every < interval '0' then
    perform gnomon.refuse('GN006', format('the interval of the heartbeat is %s', coalesce(p_every::text, 'null')), 'Give one that is not negative.');
  end if;
  if pg_is_in_recovery() or not pg_try_advisory_xact_lock(hashtextextended('gnomon.heartbeat', 0)) then
    return null;
  end if;
  select * into last from annals.tick t order by t.at desc, t.v desc limit 1;
  if last.at > clock_timestamp() - p_every and last.at <= clock_timestamp() then
    return null;
  end if;
  -- Nothing was written since: no position was given out, and the tick saw all of them. Then one in a minute does.
  select case when s.is_called then s.last_value else s.last_value - 1 end into position from annals.v s;
  idle := last.epoch = (gnomon.epoch()).number and last.v = position and annals.lower_bound(last.snapshot) = position;
  if idle and last.at > clock_timestamp() - interval '1 minute' and last.at <= clock_timestamp() then
    return null;
  end if;
  position := annals.tick();
  -- Whoever follows the changes looks when this commits.
  if idle is not true then
    perform pg_notify('gnomon_feed', '');
  end if;
  return position;
end $$;
comment on function gnomon.heartbeat is 'Notes the present position in time, unless somebody did within the interval or nothing was written since; wakes the consumers of changes. Returns the position, null when it noted none. To be called by any number of processes.';

create function gnomon.thin_ticks() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  needed bigint;
  removed bigint;
begin
  -- No history reaches back before its first segment, and no pin before its position.
  needed := least((select min(s.first_v) from annals.segment s), (select min(p.v) from annals.pin p), (select min(t.began_v) from annals.tracked t where not exists (select from annals.segment s where s.tracked = t.id)));
  -- The last one before is a lower bound of what comes next, and the beginning for who asks by time.
  delete from annals.tick t where t.v < (select max(k.v) from annals.tick k where k.v < needed);
  get diagnostics removed = row_count;
  return removed;
end $$;
comment on function gnomon.thin_ticks is 'Deletes the ticks of times that no history reaches any more, except the last one; returns how many.';
