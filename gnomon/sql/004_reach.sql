-- Which history tells how a table was at a place, and why none does.

create function gnomon.began_before(t annals.tracked, p_epoch int, p_snapshot pg_snapshot) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- What began in an earlier epoch is seen by all coordinates of the present one.
  select (select max(e.number) from annals.epoch e where e.began_v <= t.began_v) < p_epoch or pg_visible_in_snapshot(t.began_xid, p_snapshot)
$$;
comment on function gnomon.began_before is 'Whether a snapshot sees that tracking began.';

create function gnomon.ended_before(t annals.tracked, p_epoch int, p_snapshot pg_snapshot) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.ended_v is not null and ((select max(e.number) from annals.epoch e where e.began_v <= t.ended_v) < p_epoch
    or coalesce((select pg_visible_in_snapshot(g.xid, p_snapshot) from annals.gap g where g.tracked = t.id and g.v < t.ended_v order by g.v desc limit 1), true))
$$;
comment on function gnomon.ended_before is 'Whether a snapshot sees that tracking ended.';

create function gnomon.unreachable(t annals.tracked, p gnomon.place) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  name text := coalesce((select c.oid::regclass::text from pg_class c where c.oid = t.relation), format('%I.%I', t.schema_name, t.table_name));
  g annals.gap;
begin
  if not gnomon.began_before(t, p.epoch, p.snapshot) then
    return jsonb_build_object('code', 'GN001', 'reason', 'not tracked then', 'table', name, 'begins', t.began_at,
      'message', format('the history of %s does not reach back to that place: it begins at %s', name, t.began_at), 'hint', 'Read a later place.');
  end if;
  if t.pruned_v > 0 and p.bound < t.pruned_v - 1 and not coalesce(pg_snapshot_xmin(p.snapshot) > t.pruned_xid, false) then
    return jsonb_build_object('code', 'GN002', 'reason', 'pruned', 'table', name, 'begins', (select max(k.at) from annals.tick k where k.v < t.pruned_v),
      'message', format('the history of %s was pruned: it does not reach back to that place any more', name), 'hint', 'Read a later place. Tags keep history from being pruned.');
  end if;
  -- The segment before the first that is left had other columns, perhaps, and is gone.
  if t.pruned_v > 0 and not exists (select from gnomon.shapes(t.id) z where z.since is null or pg_visible_in_snapshot(z.since, p.snapshot)) then
    return jsonb_build_object('code', 'GN002', 'reason', 'pruned', 'table', name, 'message', format('the history of %s was pruned: which columns it had at that place is not known any more', name), 'hint', 'Read a later place. Tags keep history from being pruned.');
  end if;
  if t.ended_v is null and (t.behind or t.off or t.key_lost_v is not null) then
    return jsonb_build_object('code', 'GN001', 'reason', 'not captured', 'table', name,
      'message', format('changes of %s go by uncaptured, so its past cannot be told', name), 'hint', format('gnomon.check() says why; then call gnomon.sync(%L).', name));
  end if;
  -- A command that changed the table does not wait for those who read its past.
  if exists (select from gnomon.history h join annals.segment s on s.tracked = h.tracked and s.number > h.segment where h.tracked = t.id and t.ended_v is null) then
    return jsonb_build_object('code', 'GN008', 'reason', 'views', 'table', name,
      'message', format('somebody read the past of %s while the table was changed, so the views that show it were not written anew', name), 'hint', format('Call gnomon.sync(%L).', name));
  end if;
  select * into g from annals.gap x where x.tracked = t.id and not x.lossless
    and (select max(e.number) from annals.epoch e where e.began_v <= x.v) = p.epoch and not pg_visible_in_snapshot(x.xid, p.snapshot) order by x.v desc limit 1;
  if found then
    return jsonb_build_object('code', 'GN001', 'reason', case when t.ended_v is not null and g.why = t.ended_why then 'ended' else 'interrupted' end, 'table', name, 'begins', g.at,
      'message', format('the history of %s was interrupted at %s (%s), so what was there before cannot be told', name, g.at, g.why), 'hint', 'Read a later place.');
  end if;
  return null;
end $$;
comment on function gnomon.unreachable is 'Why a history does not tell how its table was at a place: code, reason, message, hint, table and when it begins; null when it does.';

create function gnomon.history_at(p_table regclass, p gnomon.place) returns int
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  earliest annals.tracked;
  why jsonb;
begin
  select k.* into earliest from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = p_table order by k.id limit 1;
  if not found then
    perform gnomon.refuse('GN007', format('table %s is not tracked, and never was', p_table), 'Track it with gnomon.track: its history begins then.', jsonb_build_object('table', p_table::text));
  end if;
  -- The last one that had begun by then.
  select k.* into t from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = p_table and gnomon.began_before(k, p.epoch, p.snapshot) order by k.id desc limit 1;
  if not found then
    t := earliest;
  elsif gnomon.ended_before(t, p.epoch, p.snapshot) then
    perform gnomon.refuse('GN001', format('the history of %s had ended at %s', p_table, t.ended_at), 'Read an earlier place, or one after it was tracked again.', jsonb_build_object('table', p_table::text, 'reason', 'not tracked then'));
  end if;
  why := gnomon.unreachable(t, p);
  if why is not null then
    perform gnomon.refuse(why->>'code', why->>'message', why->>'hint', why - 'code' - 'message' - 'hint');
  end if;
  return t.id;
end $$;
comment on function gnomon.history_at is 'The history that tells how a table was at a place; an error when none does.';
