-- What no longer fits: the table was changed, and no event trigger followed.

create function annals.stored(p_relation oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select concat(c.relfilenode, '/', (select md5(string_agg(concat(a.attnum, ':', a.xmin), ',' order by a.attnum)) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0))
  from pg_class c where c.oid = p_relation
$$;
comment on function annals.stored is 'File that holds the rows of a table, and the versions of the catalog rows for its columns.';

create function annals.drift(p_tracked int) returns table (what text, detail text, interrupts boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  key_now int[];
begin
  select * into t from annals.tracked k where k.id = p_tracked and k.ended_v is null;
  if not found then
    return;
  end if;
  if not exists (select from pg_class c where c.oid = t.relation) then
    return query select 'dropped', format('table %I.%I does not exist any more', t.schema_name, t.table_name), true;
    return;
  end if;
  if annals.is_restored() or t.epoch <> (select max(e.number) from annals.epoch e) then
    return query select 'restored', 'the database was restored: call annals.adopt()', false;
    return;
  end if;
  return query select 'name', format('it was named %I.%I', t.schema_name, t.table_name), false
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = t.relation and (c.relname, n.nspname) <> (t.table_name, t.schema_name);
  return query select 'unlogged', 'it is unlogged now: a crash empties it, which nothing captures', true from pg_class c where c.oid = t.relation and c.relpersistence = 'u';
  return query
    select 'column', case when a.attnum is null then format('column %I was dropped', c.name)
                          when c.n is null then format('column %I is new and not captured', a.attname)
                          when a.attname <> c.name then format('column %I is now named %I', c.name, a.attname)
                          when c.type <> format_type(a.atttypid, a.atttypmod) then format('column %I was %s and is %s', c.name, c.type, format_type(a.atttypid, a.atttypmod))
                          else format('whether column %I is generated has changed', c.name) end,
           -- Capture finds columns by name: it may have taken another one for this.
           coalesce(c.type <> format_type(a.atttypid, a.atttypmod), false) or exists (select from pg_attribute y where y.attrelid = t.relation and y.attname = c.name and y.attnum <> c.attnum)
    from (select * from annals.tracked_column x where x.tracked = p_tracked and x.gone_v is null) c
    full join (select * from pg_attribute y where y.attrelid = t.relation and y.attnum > 0 and not y.attisdropped) a on a.attnum = c.attnum
    where a.attnum is null or c.n is null or a.attname <> c.name or c.type <> format_type(a.atttypid, a.atttypmod) or c.generated <> (a.attgenerated <> '');
  select array_agg(c.n order by u.position) into key_now from pg_index i, unnest(i.indkey::int2[]) with ordinality u (attnum, position), annals.tracked_column c
    where i.indexrelid = annals.key_index(t.relation) and u.position <= i.indnkeyatts and c.tracked = p_tracked and c.gone_v is null and c.attnum = u.attnum;
  return query select 'key', format('it has no key any more: the index %I is gone', t.key_index), false where annals.key_index(t.relation) is null;
  return query select 'key', format('the key was the index %I', t.key_index), true where annals.key_index(t.relation) is not null and (t.key is distinct from key_now or t.key_lost_v is not null);
  return query select 'key', 'annals.free_key was called for it', false where t.key_free;
  return query select 'partition', format('%s is not covered', l.relid::regclass), true from annals.leaves(t.relation) l
    where l.kind <> 'f' and not exists (select from annals.tracked_relation r where r.tracked = p_tracked and r.relation = l.relid);
  return query select 'partition', format('%s is a foreign table: what is written there is not captured', l.relid::regclass), true from annals.leaves(t.relation) l where l.kind = 'f';
  return query select 'partition', format('%s is not a part of it any more', r.name), true from annals.tracked_relation r
    where r.tracked = p_tracked and not exists (select from annals.leaves(t.relation) l where l.relid = r.relation);
  return query select 'rewritten', format('ALTER TABLE rewrote values of %s', r.name), true
    from annals.tracked_relation r cross join lateral annals.stored(r.relation) now
    where r.tracked = p_tracked and r.leaf and split_part(r.stored, '/', 1) <> split_part(now, '/', 1) and split_part(r.stored, '/', 2) <> split_part(now, '/', 2);
  return query select 'trigger', format('trigger %I on %s is missing', w.name, l.relid::regclass), true
    from annals.leaves(t.relation) l join annals.tracked_relation r on r.tracked = p_tracked and r.relation = l.relid cross join annals.trigger_statements(t.id, l.relid) w
    where not exists (select from pg_trigger g where g.tgrelid = l.relid and g.tgname = w.name and annals.is_ours(g.tgfoid));
  return query select 'trigger', format('trigger %I on %s does not fit any more: other triggers may change what an update does not name', g.tgname, g.tgrelid::regclass), true
    from annals.leaves(t.relation) l join annals.tracked_relation r on r.tracked = p_tracked and r.relation = l.relid join pg_trigger g on g.tgrelid = l.relid
    where not g.tgisinternal and annals.is_ours(g.tgfoid) and not exists (select from annals.trigger_statements(t.id, l.relid) w where w.name = g.tgname);
  return query select 'disabled', format('trigger %I on %s is disabled', g.tgname, g.tgrelid::regclass), true
    from annals.leaves(t.relation) l join pg_trigger g on g.tgrelid = l.relid
    where annals.is_ours(g.tgfoid) and g.tgenabled not in ('O', 'A');
  return query select 'disabled', 'its triggers were disabled', true where t.off and not annals.is_disabled(p_tracked);
  return query select 'nesting', 'its triggers may write it again within a statement, which capture does not expect', true
    where annals.may_nest(t.relation) and not t.nests;
  return query select 'nesting', 'it is a partition, inherits, is inherited from, or refers to itself, which capture by statement cannot follow', true
    where (annals.inherits(t.relation) or annals.refers_to_itself(t.relation) or (select c.relispartition from pg_class c where c.oid = t.relation)) and t.form = 'statement';
  return query select 'key', 'its BEFORE triggers may change the key, which capture does not expect', true
    where annals.may_change_key(t.relation, (select array_agg(c.name) from annals.tracked_column c where c.tracked = p_tracked and c.n = any (t.key)))
      and exists (select from pg_trigger g where g.tgrelid = t.relation and annals.is_ours(g.tgfoid) and g.tgattr <> '');
  return query select 'segment', format('column c%s of %s is gone', n, s.relation), false
    from annals.segment s cross join unnest(s.columns) n
    where s.tracked = p_tracked and not exists (select from pg_attribute a where a.attrelid = s.relation and a.attname = 'c' || n and not a.attisdropped)
      and s.number = (select max(x.number) from annals.segment x where x.tracked = p_tracked);
  return query select 'row security', 'its policies have changed, or its view was not brought up to date', false
    where not annals.is_view_current(p_tracked);
end $$;
comment on function annals.drift is 'How a tracked table differs from what its capture was made for; nothing when it does not. Some differences interrupt the history when they are found later.';

create function annals.is_disabled(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from annals.tracked t, annals.leaves(t.relation) l join pg_trigger g on g.tgrelid = l.relid
                 where t.id = p_tracked and annals.is_ours(g.tgfoid) and g.tgenabled not in ('O', 'A'))
$$;
comment on function annals.is_disabled is 'Whether a trigger of capture is disabled.';

create function annals.is_view_current(p_tracked int) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- The view names what it was made for, see annals.reads_all.
  select to_regclass(format('annals.h%s', t.id)) is not null
     and position(annals.policy_state(t.relation) in pg_get_viewdef(to_regclass(format('annals.h%s', t.id)))) > 0
     and position(quote_literal((select array_agg(s.number order by s.number) from annals.segment s where s.tracked = t.id)::text) in pg_get_viewdef(to_regclass(format('annals.h%s', t.id)))) > 0
  from annals.tracked t where t.id = p_tracked
$$;
comment on function annals.is_view_current is 'Whether the view of a history was made for the present segments and policies.';

create function annals.check_capture() returns table (tracked int, relation regclass, what text, detail text, hint text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.id, t.relation, d.what, d.detail, case d.what when 'restored' then 'Call annals.adopt().' else format('Call annals.sync(%s).', t.id) || case when d.interrupts then ' The history is interrupted there.' else '' end end
  from annals.tracked t, annals.drift(t.id) d where t.ended_v is null
  union all
  select t.id, t.relation, 'behind', 'a change of it could not be followed', format('Call annals.sync(%s).', t.id) from annals.tracked t where t.ended_v is null and t.behind
  union all
  select t.id, t.relation, 'child', format('%s inherits from it and is not tracked', i.inhrelid::regclass), 'Track it: rows written there have no history.'
  from annals.tracked t join pg_inherits i on i.inhparent = t.relation join pg_class c on c.oid = i.inhrelid
  where t.ended_v is null and not c.relispartition and not exists (select from annals.tracked k where k.relation = i.inhrelid and k.ended_v is null)
  union all
  select t.id, t.relation, 'replica', format('a subscription writes %s, which fires no trigger of capture', s.srrelid::regclass), 'Track it with the option replica.'
  from annals.tracked t, annals.leaves(t.relation) l join pg_subscription_rel s on s.srrelid = l.relid
  where t.ended_v is null and not coalesce((t.options->>'replica')::boolean, false)
  union all
  select null, null, 'event trigger', format('event trigger %I is disabled', e.evtname), 'Enable it, then synchronise the tables that changed meanwhile.'
  from pg_event_trigger e where e.evtname like 'annals\_%' and annals.is_ours(e.evtfoid) and e.evtenabled = 'D'
$$;
comment on function annals.check_capture is 'What keeps histories from being complete; nothing when all is well.';
