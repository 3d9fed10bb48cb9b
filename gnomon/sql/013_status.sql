-- What is tracked, how much history there is and what keeps it, and whether all is well. Positions, sizes and times tell nothing of rows, so
-- these functions look with the rights of whoever installed gnomon.

create function gnomon.last_entry(p_tracked int) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  s record;
  last timestamptz;
begin
  for s in select g.relation from annals.segment g where g.tracked = p_tracked order by g.number desc loop
    -- Segments only grow, so the last entries stand in the last blocks.
    execute format('select max(e.at) from %s e where e.ctid >= %L::tid', s.relation, format('(%s,0)', greatest(pg_relation_size(s.relation) / current_setting('block_size')::int - 2, 0))) into last;
    exit when last is not null;
  end loop;
  return last;
end $$;
comment on function gnomon.last_entry is 'When the transaction began that wrote the last entry of a history; null when there is none.';

create function gnomon.status()
returns table ("table" text, tracked int, since timestamptz, ended timestamptz, form text, segments int, entries bigint, bytes bigint, readable_since timestamptz, last_entry timestamptz, pins jsonb, keep interval,
               checkpoint_changes bigint, drift text[])
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select gnomon.table_of(t.id), t.id, h.since, t.ended_at, case when t.form = t.update_form then t.form else format('%s, updates by %s', t.form, t.update_form) end, s.segments, s.entries, s.bytes,
         gnomon.readable_since(t.id), gnomon.last_entry(t.id),
         (select coalesce(jsonb_agg(to_jsonb(p) order by p.v, p.owner, p.name), '[]') from gnomon.pins_of(t.id) p), x.keep, x.checkpoint_changes,
         case when t.ended_v is null then array(select d.detail from annals.drift(t.id) d) else '{}' end
  from annals.tracked t join gnomon.history h on h.tracked = t.id left join gnomon.policy x on x.tracked = t.id
  cross join lateral (select count(*)::int as segments, coalesce(sum(coalesce(g.entries, greatest(pg_stat_get_live_tuples(g.relation), 0))), 0)::bigint as entries,
                             coalesce(sum(pg_total_relation_size(g.relation)), 0)::bigint as bytes from annals.segment g where g.tracked = t.id) s
  order by 1, 2
$$;
comment on function gnomon.status is 'Histories that gnomon reads: of which tables, since when, how much they take, from when on states can be told, what pins them and how much that keeps, their policies, and how tables differ from what capture was made for. Entries of segments that are not sealed are an estimate.';

create function gnomon.check() returns table ("table" text, tracked int, what text, detail text, hint text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  last annals.tick := (select k from annals.tick k order by k.at desc, k.v desc limit 1);
  position bigint := (select case when s.is_called then s.last_value else s.last_value - 1 end from annals.v s);
begin
  if annals.is_restored() then
    return query select null::text, null::int, 'restored', 'the database was restored, and its histories have not been adopted', 'Call annals.adopt().';
  end if;
  return query select gnomon.table_of(c.tracked), c.tracked, c.what, c.detail, c.hint
    from annals.check_capture() c where c.tracked is null or exists (select from gnomon.history h where h.tracked = c.tracked);
  if not exists (select from pg_event_trigger e where e.evtname like 'annals\_%' and annals.is_ours(e.evtfoid)) then
    return query select null::text, null::int, 'event trigger', 'there are no event triggers: capture does not follow changes of tables by itself', 'Call gnomon.sync() after each, or install as a role that may create event triggers.';
  end if;
  return query select format('%I.%I', s.schema_name, u.name), null::int, 'name', 'what it means in the past has not followed', 'Call gnomon.sync_guards().'
    from gnomon.source s cross join lateral gnomon.unguarded(s.id) u (name);
  -- Positions are given out when something is written.
  if position > coalesce(last.v, 0) and coalesce(last.at, '-infinity') < clock_timestamp() - interval '1 minute' and exists (select from annals.tracked t join gnomon.history h on h.tracked = t.id where t.ended_v is null)
     and (last.at is not null or (select min(h.since) from gnomon.history h) < clock_timestamp() - interval '1 minute') then
    return query select null::text, null::int, 'heartbeat', case when last.at is null then 'no time was ever noted, so nothing can be asked by time' else format('the last time was noted at %s, and changes came since', last.at) end,
      'Run the heartbeat: RunHeartbeat of the Go package, or gnomon.heartbeat() every second.';
  end if;
  return query select null::text, null::int, 'consumer', format('consumer %L has not moved on since %s: it keeps history from being pruned', p.name, p.at), 'Run it, or drop it.'
    from annals.pin p where p.owner = 'gnomon consumer' and p.at < clock_timestamp() - interval '10 minutes' and p.v < position
      and exists (select from annals.tick k where k.v > p.v and k.at < clock_timestamp() - interval '10 minutes');
  return query select null::text, null::int, 'confined role', c.detail, c.hint from gnomon.check_confinements() c;
end $$;
comment on function gnomon.check is 'What keeps the past from being told: tables that capture no longer fits, a heartbeat that does not run, consumers that do not come along. Nothing when all is well.';
