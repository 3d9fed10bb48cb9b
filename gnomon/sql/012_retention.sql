-- Retention: history that has become old goes by whole segments, the oldest first. What tags, consumers and others have pinned stays.

create function gnomon.table_of(p_tracked int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select format('%I.%I', coalesce(n.nspname, t.schema_name), coalesce(c.relname, t.table_name))
  from annals.tracked t left join pg_class c on c.oid = t.relation left join pg_namespace n on n.oid = c.relnamespace where t.id = p_tracked
$$;
comment on function gnomon.table_of is 'Name of the table of a history; its last one when it is gone.';

create function gnomon.last_history(p_table regclass) returns int
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  id int := (select max(h.tracked) from gnomon.history h join annals.tracked t on t.id = h.tracked where t.relation = p_table);
begin
  if id is null then
    perform gnomon.refuse('GN007', format('table %s is not tracked, and never was', coalesce(p_table::text, 'null')), 'Track it with gnomon.track: its history begins then.', jsonb_build_object('table', p_table::text));
  end if;
  return id;
end $$;
comment on function gnomon.last_history is 'The last history of a table; an error when it has none.';

create function gnomon.pins_of(p_tracked int) returns table (owner text, name text, v bigint, at timestamptz, entries bigint, bytes bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select p.owner, p.name, p.v, p.at, coalesce(sum(coalesce(s.entries, greatest(pg_stat_get_live_tuples(s.relation), 0))), 0)::bigint, coalesce(sum(pg_total_relation_size(s.relation)), 0)::bigint
  from annals.pin p left join annals.segment s on s.tracked = p_tracked and (s.last_v is null or s.last_v >= p.v)
  where p.tracked is null or p.tracked = p_tracked group by p.owner, p.name, p.v, p.at order by p.v, p.owner, p.name
$$;
comment on function gnomon.pins_of is 'What pins a history, from which position on and since when, and how much stands in the segments that it keeps. Entries of segments that are not sealed are an estimate.';

create function gnomon.is_volvras(p_tracked int) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  covered boolean := false;
begin
  if to_regclass('volvra.coverage') is not null then
    execute 'select exists (select from volvra.coverage c where c.tracked = $1)' into covered using p_tracked;
  end if;
  return covered;
end $$;
comment on function gnomon.is_volvras is 'Whether volvra keeps the history, too: its ledger would miss what somebody else prunes.';

create function gnomon.prune_history(p_tracked int, p_bound bigint, out segments int, out entries bigint, out begins_v bigint, out held_by jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  pruned record;
  k gnomon.checkpoint;
begin
  segments := 0;
  entries := 0;
  if gnomon.is_volvras(p_tracked) then
    begins_v := (select greatest(t.began_v, t.pruned_v) from annals.tracked t where t.id = p_tracked);
    if exists (select from annals.segment s where s.tracked = p_tracked and s.last_v <= p_bound) then
      held_by := jsonb_build_array(jsonb_build_object('owner', 'volvra', 'name', 'volvra.purge prunes it', 'v', begins_v));
    end if;
  else
    select * into pruned from annals.prune(p_tracked, p_bound + 1);
    segments := pruned.segments;
    entries := pruned.entries;
    begins_v := pruned.begins_v;
    held_by := (select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('owner', p.owner, 'name', p.name, 'v', p.v, 'at', p.at)) order by p.v, p.owner, p.name)
                from annals.pin p join jsonb_to_recordset(pruned.pinned_by) x (owner text, name text) on x.owner = p.owner and x.name = p.name);
    -- A checkpoint of which history tells nothing earlier any more.
    for k in select * from gnomon.checkpoint c where c.tracked = p_tracked and c.name is null and c.top_v < begins_v loop
      perform gnomon.drop_checkpoint(k.id);
    end loop;
  end if;
  held_by := coalesce(held_by, '[]');
end $$;
comment on function gnomon.prune_history is 'Drops the oldest segments of a history whose entries a place with this bound sees, and checkpoints that only they needed.';

create function gnomon.prune(p_before text, p_table regclass default null)
returns table ("table" text, tracked int, segments int, entries bigint, begins_v bigint, begins timestamptz, held_by jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  p gnomon.place := gnomon.place_of(p_before);
  id int;
  r record;
begin
  if p_table is not null then
    perform gnomon.last_history(p_table);
  end if;
  for id in select t.id from annals.tracked t join gnomon.history h on h.tracked = t.id where p_table is null or t.relation = p_table order by t.id loop
    select * into r from gnomon.prune_history(id, p.bound);
    return query select gnomon.table_of(id), id, r.segments, r.entries, r.begins_v, gnomon.readable_since(id), r.held_by;
  end loop;
end $$;
comment on function gnomon.prune is 'Drops history that lies before a place, which stays readable, of one table or of all: whole segments that are sealed, as far as nothing pins them. Tells how much, from when on states can be told, and what holds back more. Waits a second at most for readers.';

create function gnomon.readable_since(p_tracked int) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  since timestamptz;
  known timestamptz;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  if t.ended_v is null and (t.behind or t.off or t.key_lost_v is not null) then
    return null;
  end if;
  since := greatest(t.began_at, (select max(g.at) from annals.gap g where g.tracked = p_tracked and not g.lossless));
  if t.pruned_v > 0 then
    -- Of the first tick that sees all that was pruned.
    select k.at into known from annals.tick k
      where k.v >= t.pruned_v - 1 and k.epoch = (select max(e.number) from annals.epoch e)
        and (t.pruned_xid is null or pg_snapshot_xmin(k.snapshot) > t.pruned_xid or annals.lower_bound(k.snapshot) >= t.pruned_v - 1) order by k.at limit 1;
    since := greatest(since, coalesce(known, clock_timestamp()));
  end if;
  return since;
end $$;
comment on function gnomon.readable_since is 'The earliest time of which the state of a table can be told; null while none can.';

create function gnomon.set_policy(p_table regclass, p_keep interval default null, p_checkpoint_changes bigint default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  id int := gnomon.last_history(p_table);
begin
  if p_keep < interval '0' or p_checkpoint_changes < 1 then
    perform gnomon.refuse('GN006', format('the policy of %s is %s', p_table, concat_ws(', ', 'keep ' || p_keep, 'checkpoint_changes ' || p_checkpoint_changes)), 'Time to keep is not negative, and changes are at least one.');
  end if;
  insert into gnomon.policy as x (tracked, keep, checkpoint_changes) values (id, p_keep, p_checkpoint_changes)
    on conflict (tracked) do update set keep = excluded.keep, checkpoint_changes = excluded.checkpoint_changes;
  delete from gnomon.policy x where x.tracked = id and x.keep is null and x.checkpoint_changes is null;
end $$;
comment on function gnomon.set_policy is 'How long the history of a table is kept, and after how many changes a checkpoint is made (null: always, never). gnomon.maintain acts on it.';

create function gnomon.bound_of_age(p_keep interval) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select greatest(annals.lower_bound(k.snapshot), e.began_v) from annals.tick k join annals.epoch e on e.number = k.epoch
  where k.at <= clock_timestamp() - p_keep and e.number = (select max(x.number) from annals.epoch x) order by k.at desc, k.v desc limit 1
$$;
comment on function gnomon.bound_of_age is 'Entries that are no older have higher positions; null when no tick is as old.';

create function gnomon.maintain_step(p_step text, p_options jsonb default '{}') returns table (step text, "table" text, detail jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  t record;
  s annals.segment;
  n bigint;
  segment_bytes bigint := (p_options->>'segment_bytes')::bigint;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('gnomon.maintain', 0)) then
    return query select 'skipped', null::text, jsonb_build_object('step', p_step, 'why', 'another process is at it');
    return;
  end if;
  case p_step
    when 'tick' then
      return query select 'tick', null::text, jsonb_build_object('v', v) from gnomon.heartbeat() v where v is not null;
    when 'rotate' then
      for t in select k.id, x.keep, (select g.began_at from annals.segment g where g.tracked = k.id order by g.number desc limit 1) as began
                 from annals.tracked k join gnomon.history h on h.tracked = k.id left join gnomon.policy x on x.tracked = k.id where k.ended_v is null order by k.id loop
        begin
          -- What expires by age must not wait for a segment to fill.
          if annals.rotate(t.id, case when t.began < clock_timestamp() - t.keep / 4 then 1 else segment_bytes end) then
            return query select 'rotate', gnomon.table_of(t.id), jsonb_build_object('segment', (select max(g.number) from annals.segment g where g.tracked = t.id));
          end if;
        exception when lock_not_available then
          return query select 'busy', gnomon.table_of(t.id), jsonb_build_object('step', p_step);
        end;
      end loop;
    when 'seal' then
      if not annals.follows_ddl() then
        perform gnomon.follow_rights();
      end if;
      -- Those that are about to be finished get statistics, too: nothing is written there any more.
      for s in select * from annals.segment g where g.closed_by is not null and g.sealed_at is null and g.closed_by < pg_snapshot_xmin(pg_current_snapshot()) loop
        execute format('analyze %s', s.relation);
      end loop;
      return query select 'seal', null::text, jsonb_build_object('segments', x) from annals.seal_segments() x where x > 0;
    when 'checkpoint' then
      for t in select d."table", d.changes from gnomon.due_checkpoints() d loop
        begin
          return query select 'checkpoint', t."table", jsonb_build_object('checkpoint', gnomon.make_checkpoint(t."table"::regclass), 'changes', t.changes);
        exception
          when lock_not_available then
            return query select 'busy', t."table", jsonb_build_object('step', p_step);
          -- One table whose past cannot be told does not keep the others waiting.
          when sqlstate 'GN001' or sqlstate 'GN008' then
            return query select 'failed', t."table", jsonb_build_object('step', p_step, 'why', sqlerrm);
        end;
      end loop;
    when 'prune' then
      for t in select x.tracked, gnomon.bound_of_age(x.keep) as bound from gnomon.policy x where x.keep is not null order by x.tracked loop
        begin
          return query select 'prune', gnomon.table_of(t.tracked), jsonb_build_object('segments', r.segments, 'entries', r.entries, 'held_by', r.held_by)
            from gnomon.prune_history(t.tracked, t.bound) r where t.bound is not null and (r.segments > 0 or r.held_by <> '[]');
        exception when lock_not_available then
          return query select 'busy', gnomon.table_of(t.tracked), jsonb_build_object('step', p_step);
        end;
      end loop;
    when 'branches' then
      n := gnomon.drop_expired_branches();
      if n > 0 then
        return query select 'branches', null::text, jsonb_build_object('dropped', n);
      end if;
    when 'reports' then
      n := gnomon.prune_reports();
      if n > 0 then
        return query select 'reports', null::text, jsonb_build_object('removed', n);
      end if;
    when 'ticks' then
      n := gnomon.thin_ticks();
      if n > 0 then
        return query select 'ticks', null::text, jsonb_build_object('removed', n);
      end if;
    else
      perform gnomon.refuse('GN006', format('maintenance has no step %s', coalesce(quote_literal(p_step), 'null')), 'Steps are tick, rotate, seal, branches, reports, checkpoint, prune and ticks.');
  end case;
end $$;
comment on function gnomon.maintain_step is 'One step of gnomon.maintain. Each is best a transaction of its own.';

create function gnomon.maintain(p_options jsonb default '{}') returns table (step text, "table" text, detail jsonb)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  unknown text;
  s text;
begin
  select string_agg(o, ', ') into unknown from jsonb_object_keys(p_options) o where o <> 'segment_bytes';
  if unknown is not null then
    perform gnomon.refuse('GN006', format('unknown option: %s', unknown), 'The option is segment_bytes.');
  end if;
  foreach s in array array['tick', 'rotate', 'seal', 'branches', 'reports', 'checkpoint', 'prune', 'ticks'] loop
    return query select * from gnomon.maintain_step(s, p_options);
  end loop;
end $$;
comment on function gnomon.maintain is 'Does what has to be done regularly, and says what it did: notes the time, begins new segments, finishes old ones, drops branches whose time has come, forgets reports of dry runs and refused merges that are 30 days old, makes checkpoints, and prunes as policies say. Where another process is at it, it skips.';
