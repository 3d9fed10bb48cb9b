-- One row as it was, found fast. Most reads are of a table that goes on being covered, at a coordinate or time which its history tells
-- without further ado. For these each history has a function of its own, volvra.h<id>_row, whose statements a session plans once. All else,
-- errors included, it leaves to volvra.row_by_query, which looks at everything anew.
--
-- What cannot change while a plan lives is found when the plan is made: such functions are said to be immutable. A plan ends with its
-- session, and earlier when one of the tables that its statement mentions is changed in any way.

create function volvra.cluster() returns text
language sql immutable security definer set search_path = pg_catalog, pg_temp as $$
  select format('%s/%s', s.system_identifier, d.oid) from pg_control_system() s, pg_database d where d.datname = current_database()
$$;
comment on function volvra.cluster is 'What identifies the database of a session.';

create function volvra.home() returns text
language sql immutable security definer set search_path = pg_catalog, pg_temp as $$
  select annals.home()
$$;
comment on function volvra.home is 'As annals.home, for statements that mention annals.epoch_marker.';

create function volvra.row_shape(p_relation oid) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select md5(concat(p_relation, c.relrowsecurity, (select string_agg(concat_ws(':', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated), ',' order by a.attnum)
                                                   from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)))
  from pg_class c where c.oid = p_relation
$$;
comment on function volvra.row_shape is 'Changes when a table is made anew, or its columns change; for statements that mention the table.';

create function volvra.stale() returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'not for this table as it is now';
end $$;
comment on function volvra.stale is 'Ends a statement that was written for another shape of a table.';

create function volvra.point_place(p_tracked int, p_relation oid, p_moment text, out epoch int, out snapshot pg_snapshot, out at timestamptz, out bound bigint) returns record
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  part text[];
begin
  if p_moment ~ '^[0-9a-f]{8}/[0-9]+:[0-9]+:[0-9,]*/[0-9A-F]+/[0-9A-F]+$' then
    part := string_to_array(p_moment, '/');
    snapshot := part[2]::pg_snapshot;
    if pg_snapshot_xmax(snapshot) > pg_snapshot_xmin(pg_current_snapshot()) and not annals.snapshot_covers(pg_current_snapshot(), snapshot) then
      return;
    end if;
    -- The last epoch is the one that has the marker. What is visible but of an earlier one is seen all the same.
    select e.number, coalesce((select k.v from annals.tick k where k.epoch = e.number and k.upper_xid <= pg_snapshot_xmin(snapshot) order by k.upper_xid desc limit 1), 0)
      into epoch, bound
      from annals.epoch e, annals.epoch_marker m, annals.tracked t, volvra.coverage c
      where m.only_row and e.marker = m.marker and left(e.marker::text, 8) = part[1] and e.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
        and concat(e.system_identifier, '/', e.database) = volvra.cluster() and e.home = volvra.home()
        and t.id = p_tracked and t.relation = p_relation and t.ended_v is null and not (t.behind or t.off) and t.key_lost_v is null
        and (t.pruned_v is null or pg_snapshot_xmin(snapshot) > t.pruned_xid)
        and c.tracked = p_tracked and (c.epoch < e.number or pg_visible_in_snapshot(c.xid, snapshot))
        and not exists (select from annals.gap g where g.tracked = p_tracked and not g.lossless and not pg_visible_in_snapshot(g.xid, snapshot));
  elsif p_moment !~ '^mark:|^[0-9a-f]{8}/' then
    at := p_moment::timestamptz;
    bound := coalesce((select k.v from annals.tick k where k.at <= point_place.at - interval '1 minute' order by k.at desc limit 1), 0);
    select 0 into epoch from annals.tracked t, volvra.coverage c
      where t.id = p_tracked and t.relation = p_relation and t.ended_v is null and not (t.behind or t.off) and t.key_lost_v is null
        and (t.pruned_v is null or bound >= t.pruned_v - 1) and c.tracked = p_tracked and c.since <= point_place.at
        and not exists (select from annals.gap g where g.tracked = p_tracked and not g.lossless);
  end if;
end $$;
comment on function volvra.point_place is 'What a moment sees, when the history of a table tells it without further ado; else its epoch is null.';

create function volvra.on_view(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  shape text;
  keys record;
  columns record;
  changed record;
  query text;
  old text;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  -- Those of earlier histories of the table serve no more.
  for old in select p.oid::regprocedure from annals.tracked x join pg_proc p on p.pronamespace = 'volvra'::regnamespace and p.proname = format('h%s_row', x.id) where x.relation = t.relation and x.ended_v is not null loop
    execute format('drop function %s', old);
  end loop;
  select count(*) as n, string_agg(format('  k%s %s;', u.i, format_type(v.type, -1)), E'\n' order by u.i) as variables, string_agg(format('k%1$s := p_key[%1$s];', u.i), ' ' order by u.i) as given,
         string_agg(format('k%s is not null', u.i), ' and ' order by u.i) as whole,
         string_agg(format('e.c%s %s point.k%s', u.n, annals.key_operator(p_tracked, u.i::int), u.i), ' and ' order by u.i) as old,
         string_agg(format('b.%I %s point.k%s', c.name, annals.key_operator(p_tracked, u.i::int), u.i), ' and ' order by u.i) as today
    into keys from unnest(t.key) with ordinality u (n, i) join annals.view_columns(p_tracked) v on v.n = u.n join annals.tracked_column c on c.tracked = p_tracked and c.n = u.n;
  -- At moments that see all columns come.
  select string_agg(coalesce(c.computed, quote_ident(c.name)), ', ') as shown, string_agg(format('%s as %I', c.old, c.name), ', ') as old, string_agg(c.today, ', ') as today
    into columns from volvra.past_columns(p_tracked, t.relation, row('infinity', null, null, null, null, 0)::volvra.moment, true) c;
  select coalesce(string_agg(format(' and pg_visible_in_snapshot(%L, p.snapshot)', before.closed_by), ''), '') as seen, case when count(*) > 0 then format(' and %L <= p.at', max(s.began_at)) else '' end as seen_at into changed
    from annals.segment s, lateral (select * from annals.segment g where g.tracked = p_tracked and g.number < s.number order by g.number desc limit 1) before
    where s.tracked = p_tracked and before.closed_by is not null and not s.columns <@ before.columns;
  shape := format('case when volvra.row_shape(%L::regclass) = %L then true else volvra.stale() end', t.relation, volvra.row_shape(t.relation));
  -- %1$s stands for what the moment does not see. The first part mentions the table so that the plan is dropped when the table changes.
  query := format($query$return query with mentioned as (select from %1$s),
        unseen as materialized (select e.*%2$s from annals.h%3$s e where %4$s and e.v > p.bound and %%1$s and %5$s%6$s limit 1)
        select %7$s from (select %8$s from unseen u where u.op in ('u', 'd', 't', 'U', 'D', 'T')) as %9$I
        union all select %10$s from %11$s b where %12$s and %5$s and not exists (select from unseen)$query$,
    t.relation,
    case when annals.nests(p_tracked) then ', min(e.v) over (partition by e.epoch, e.xid) as first' else '' end, p_tracked, keys.old, shape,
    case when annals.nests(p_tracked) then ' order by first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v' else ' order by e.v' end,
    columns.shown, columns.old, t.table_name, columns.today, annals.source(t.relation), keys.today);
  execute format($function$create or replace function volvra.h%1$s_row(p_row anyelement, p_key text[], p_moment text) returns setof anyelement
language plpgsql stable rows 1 set search_path = pg_catalog, pg_temp as %2$L$function$, p_tracked, format($body$
#variable_conflict use_column
<<point>>
declare
%1$s
  p record;
begin
  if pg_typeof(p_row)::oid = %2$s::oid and array_ndims(p_key) = 1 and cardinality(p_key) = %3$s then
    begin
      %4$s
      p := volvra.point_place(%5$s, %6$s::oid, p_moment);
      if p.epoch is not null and %7$s and not row_security_active(%6$s::oid) then
        if p.at is not null%8$s then
          %9$s;
          return;
        elsif p.at is null%10$s then
          %11$s;
          return;
        end if;
      end if;
    exception when others then
      null; -- what follows says it
    end;
  end if;
  return query select * from volvra.row_by_query(p_row, p_key, p_moment);
end $body$, keys.variables, (select r.reltype from pg_class r where r.oid = t.relation), keys.n, keys.given, p_tracked, t.relation::oid, keys.whole,
    changed.seen_at, replace(query, '%1$s', 'e.at > p.at'),
    changed.seen, replace(query, '%1$s', '(e.epoch > p.epoch or e.epoch = p.epoch and not pg_visible_in_snapshot(e.xid, p.snapshot))')));
  execute format('comment on function volvra.h%s_row is %L', p_tracked, format('Reads a row of %s as it was, see volvra.as_of_row.', t.relation));
  -- It does nothing that its callers could not.
  execute format('grant execute on function volvra.h%s_row to public', p_tracked);
end $$;
comment on function volvra.on_view is 'Writes the function that reads single rows as they were. It is called whenever the view of a history was written anew.';

select annals.close_schema('volvra');
select volvra.grant_access(null, null, null);
