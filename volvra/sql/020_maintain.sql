-- What has to be done regularly.

create function volvra.maintain_step(p_step text, p_options jsonb default '{}') returns table (step text, "table" text, detail jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  t record;
  s annals.segment;
  x record;
  last volvra.seal;
  every interval := (p_options->>'seal_every')::interval;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('volvra.maintain', 0)) then
    return query select 'skipped', null::text, jsonb_build_object('step', p_step, 'why', 'another process is at it');
    return;
  end if;
  case p_step
    when 'tick' then
      return query select 'tick', null::text, jsonb_build_object('v', annals.tick());
    when 'seal' then
      last := volvra.last_seal();
      -- Nobody is made to seal: the first seal is asked for.
      if last.number is null and every is not null or last.at <= clock_timestamp() - coalesce(every, interval '1 hour') then
        return query select 'seal', null::text, jsonb_strip_nulls(to_jsonb(r) - 'hash') from volvra.seal() r;
      end if;
    when 'sync' then
      for t in select k.id, k.schema_name, k.table_name from annals.tracked k where k.ended_v is null and exists (select from annals.drift(k.id)) order by k.id loop
        begin
          if coalesce((p_options->>'sync')::boolean, false) then
            return query select 'sync', format('%I.%I', t.schema_name, t.table_name), jsonb_build_object('synchronised', annals.sync(t.id));
          else
            return query select 'drift', format('%I.%I', t.schema_name, t.table_name), jsonb_build_object('what', (select jsonb_agg(d.detail) from annals.drift(t.id) d));
          end if;
        exception when lock_not_available then
          return query select 'busy', format('%I.%I', t.schema_name, t.table_name), jsonb_build_object('step', p_step);
        end;
      end loop;
    when 'rotate' then
      for t in select k.id, k.schema_name, k.table_name from annals.tracked k where k.ended_v is null order by k.id loop
        begin
          if annals.rotate(t.id, coalesce((p_options->>'segment_bytes')::bigint, 67108864)) then
            return query select 'rotate', format('%I.%I', t.schema_name, t.table_name), jsonb_build_object('segment', (select max(g.number) from annals.segment g where g.tracked = t.id));
          end if;
        exception when lock_not_available then
          return query select 'busy', format('%I.%I', t.schema_name, t.table_name), jsonb_build_object('step', p_step);
        end;
      end loop;
    when 'index' then
      -- Those that are about to be finished get statistics, too: nothing is written there any more.
      for s in select * from annals.segment g where g.closed_by is not null and g.sealed_at is null and g.closed_by < pg_snapshot_xmin(pg_current_snapshot()) loop
        execute format('analyze %s', s.relation);
      end loop;
      return query select 'index', null::text, jsonb_build_object('segments', n) from annals.seal_segments() n where n > 0;
    when 'purge' then
      if exists (select from volvra.purgeable(coalesce((p_options->>'partial')::boolean, false)) p where p.action <> 'keep') then
        begin
          return query select 'purge', p."table", jsonb_strip_nulls(to_jsonb(p) - 'table') from volvra.purge(coalesce((p_options->>'partial')::boolean, false)) p;
        exception when lock_not_available then
          return query select 'busy', null::text, jsonb_build_object('step', p_step);
        end;
      end if;
    else
      perform volvra.refuse('VO007', format('maintenance has no step %s', coalesce(quote_literal(p_step), 'null')), 'Steps are tick, seal, sync, rotate, index and purge.');
  end case;
end $$;
comment on function volvra.maintain_step is 'One step of volvra.maintain: tick, seal, sync, rotate, index or purge. Each is best a transaction of its own.';

create function volvra.maintain(p_options jsonb default '{}') returns table (step text, "table" text, detail jsonb)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  unknown text;
  s text;
begin
  select string_agg(o, ', ') into unknown from jsonb_object_keys(p_options) o where o not in ('seal_every', 'segment_bytes', 'sync', 'partial');
  if unknown is not null then
    perform volvra.refuse('VO007', format('unknown option: %s', unknown), 'Options are seal_every, segment_bytes, sync and partial.');
  end if;
  -- Steps that lock views come last.
  foreach s in array array['tick', 'seal', 'sync', 'rotate', 'index', 'purge'] loop
    return query select * from volvra.maintain_step(s, p_options);
  end loop;
end $$;
comment on function volvra.maintain is 'Does what has to be done regularly, and says what it did: notes the time, seals when that is due, reports or synchronises drift, begins new segments, finishes old ones, purges. Where another process is at it, it skips.';

revoke all on function volvra.maintain, volvra.maintain_step from public;
