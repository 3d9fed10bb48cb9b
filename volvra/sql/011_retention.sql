-- Retention: how long history is kept. What has expired is removed from the oldest end: whole segments, which costs nothing, and the
-- expired part of a segment when asked. Marks and other pins hold back what they need, and where seals are made, nothing goes unsealed.

create table volvra.retention (
  tracked int unique,
  keep interval,
  keep_entries bigint,
  at timestamptz not null default clock_timestamp(),
  login text not null default session_user
);
alter table volvra.retention replica identity full; -- else it could not be changed where a publication is for all tables
create unique index retention_default on volvra.retention ((true)) where tracked is null;
comment on table volvra.retention is 'Policies of retention.';
comment on column volvra.retention.tracked is 'The history; null for those without a policy of their own.';
comment on column volvra.retention.keep is 'How long entries are kept; null: for ever.';
comment on column volvra.retention.keep_entries is 'So many of the latest entries are kept, however old they are.';
comment on column volvra.retention.at is 'When the policy was set.';
comment on column volvra.retention.login is 'Who set it.';
comment on index volvra.retention_default is 'There is one policy for all others.';

create table volvra.purge (
  id bigint primary key generated always as identity,
  v bigint not null default nextval('annals.v'),
  xid xid8 not null default pg_current_xact_id(),
  at timestamptz not null default clock_timestamp(),
  attempt bigint not null,
  tracked int not null,
  table_name text not null,
  what text not null,
  segment int not null,
  through_v bigint not null,
  whole boolean not null,
  entries bigint not null,
  digest bytea
);
comment on table volvra.purge is 'Ledger of what retention removed.';
comment on column volvra.purge.id is 'Number of the row.';
comment on column volvra.purge.v is 'Its position among the entries of all histories.';
comment on column volvra.purge.xid is 'Transaction that removed it.';
comment on column volvra.purge.at is 'When.';
comment on column volvra.purge.attempt is 'The attempt, which tells who.';
comment on column volvra.purge.tracked is 'The history.';
comment on column volvra.purge.table_name is 'Its table, as it was named then.';
comment on column volvra.purge.what is 'entry, move or gap.';
comment on column volvra.purge.segment is 'The segment of entries, else 0.';
comment on column volvra.purge.through_v is 'Rows before this position were removed; of sealed ones, whole parts only.';
comment on column volvra.purge.whole is 'The segment was dropped.';
comment on column volvra.purge.entries is 'Number of rows.';
comment on column volvra.purge.digest is 'SHA-256 over the digests of the sealed parts that were removed; null when nothing was sealed.';
create trigger guard_record before update or delete or truncate on volvra.purge for each statement execute function volvra.guard_record();
comment on trigger guard_record on volvra.purge is 'Keeps the ledger from being changed; volvra.verify reports when it is off.';

create function volvra.set_retention(p_table text, p_keep interval, p_keep_entries bigint default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_keep < interval '0' or p_keep_entries < 0 then
    perform volvra.refuse('VO007', 'retention cannot be negative', 'To keep everything, set it to null.');
  end if;
  if p_table is null then
    delete from volvra.retention r where r.tracked is null;
    insert into volvra.retention (keep, keep_entries) values (p_keep, p_keep_entries);
  else
    insert into volvra.retention (tracked, keep, keep_entries) select t.id, p_keep, p_keep_entries from volvra.histories_of(p_table) t
      on conflict (tracked) do update set keep = excluded.keep, keep_entries = excluded.keep_entries, at = excluded.at, login = excluded.login;
  end if;
end $$;
comment on function volvra.set_retention is 'Sets how long the history of a table is kept, or with null that of all tables without a policy of their own. Keep null: for ever.';

create function volvra.reset_retention(p_table text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_table is null then
    delete from volvra.retention r where r.tracked is null;
  else
    delete from volvra.retention r where r.tracked in (select t.id from volvra.histories_of(p_table) t);
  end if;
  return found;
end $$;
comment on function volvra.reset_retention is 'Removes the policy of a table, for which the one for all then holds; with null, that one. False when there was none.';

create function volvra.retention_of(p_tracked int) returns volvra.retention
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- A table that is covered again inherits the policy that it had.
  select r from volvra.retention r left join annals.tracked o on o.id = r.tracked, annals.tracked t
  where t.id = p_tracked and (r.tracked is null or o.id = t.id or o.relation = t.relation)
  order by o.id = t.id desc nulls last, o.id desc nulls last limit 1
$$;
comment on function volvra.retention_of is 'The policy that holds for a history.';

create function volvra.kept_from(p_tracked int, p_entries bigint) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  s annals.segment;
  left_over bigint := p_entries;
  n bigint;
  v bigint;
begin
  for s in select * from annals.segment g where g.tracked = p_tracked order by g.number desc loop
    execute format('select count(*) from %s', s.relation) into n;
    if n >= left_over and left_over > 0 then
      execute format('select e.v from %s e order by e.v desc offset %s limit 1', s.relation, left_over - 1) into v;
      return v;
    end if;
    left_over := left_over - n;
  end loop;
  return 0;
end $$;
comment on function volvra.kept_from is 'Position of the first of so many latest entries.';

create function volvra.expired(p_tracked int, out expired_v bigint, out through_v bigint, out held_by text[])
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  policy volvra.retention := volvra.retention_of(p_tracked);
  last volvra.seal := volvra.last_seal();
begin
  expired_v := 0;
  -- A tick's position was reached before its time: what stands up to there is older.
  if policy.keep is not null then
    expired_v := coalesce(annals.position_at(clock_timestamp() - policy.keep) + 1, 0);
    if policy.keep_entries > 0 then
      expired_v := least(expired_v, volvra.kept_from(p_tracked, policy.keep_entries));
    end if;
  end if;
  through_v := expired_v;
  held_by := array(select format('%s %s', p.owner, p.name) from annals.pin p where (p.tracked is null or p.tracked = p_tracked) and p.v < expired_v order by p.v, 1);
  through_v := least(through_v, annals.pinned(p_tracked));
  if last.number is not null and last.lower_v + 1 < expired_v then
    through_v := least(through_v, last.lower_v + 1);
    held_by := held_by || 'not sealed'::text;
  end if;
end $$;
comment on function volvra.expired is 'Before which position entries have expired, before which they may be removed, and what holds back those between.';

create function volvra.purgeable(p_partial boolean default false, p_table text default null) returns table (tracked int, "table" text, segment int, action text, through_v bigint, held_by text[])
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with s as (
    select t.id, format('%I.%I', t.schema_name, t.table_name) as name, g.number, g.first_v, g.last_v, x.expired_v, x.through_v, x.held_by, t.pruned_v,
           -- From the oldest on; the last one stays, for the view.
           bool_and(coalesce(g.sealed_at is not null and g.last_v < x.through_v, false)) over (partition by t.id order by g.number)
             and g.number < max(g.number) over (partition by t.id) as whole
    from annals.tracked t, volvra.expired(t.id) x, annals.segment g
    where x.expired_v > 0 and g.tracked = t.id and (p_table is null or t.id in (select h.id from volvra.histories_of(p_table) h)))
  select s.id, s.name, s.number, a.action, case when a.action <> 'keep' then s.through_v end, case when a.action <> 'drop' then s.held_by end
  from s, lateral (select case
    when s.whole then 'drop'
    when p_partial and greatest(s.pruned_v, s.first_v) < s.through_v then 'delete'
    when s.held_by <> '{}' and s.first_v < s.expired_v then 'keep' end as action) a
  where a.action is not null order by s.id, s.number
$$;
comment on function volvra.purgeable is 'What volvra.purge would do: segments to drop, segments to delete from when asked for partial, and what has expired but is held back, with what holds it.';
revoke all on function volvra.set_retention, volvra.reset_retention, volvra.purgeable from public;
