-- Reading history: SQL that others build on, and the life of a row: each change with what the row was before and became by it, through changes
-- of its key in both directions. An entry holds only what a row was; what it became is what the next entry of its life holds, else today's row.
-- Where something went by between the two that the caller cannot see, or that nobody captured, it is not known.

create function annals.literal(p_value text, p_type oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Without a length: one would cut the value, and select more.
  select format('%L::%s', p_value, format_type(p_type, -1))
$$;
comment on function annals.literal is 'A value as SQL of a type.';

create function annals.operation(p_op "char") returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case lower(p_op::text) when 'i' then 'insert' when 'u' then 'update' when 'd' then 'delete' when 't' then 'truncate' end;
comment on function annals.operation is 'What an entry stands for; null for the moves of a row to another key, which are updates.';

create function annals.key_join(p_tracked int, p_left text, p_right text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select string_agg(format('%s %s %s', format(p_left, u.n, c.name), annals.key_operator(t.id, u.i::int), format(p_right, u.n, c.name)), ' and ' order by u.i)
  from annals.tracked t, unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.n = u.n where t.id = p_tracked and c.tracked = t.id);
end $$;
comment on function annals.key_join is 'SQL that compares two keys; each side is a format of the number (%1$s) and name (%2$I) of a key column.';

create function annals.key_is(p_tracked int, p_key text[], p_side text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select string_agg(format('%s %s %s', format(p_side, u.n, c.name), annals.key_operator(t.id, u.i::int), annals.literal(p_key[u.i], a.atttypid)), ' and ' order by u.i)
  from annals.tracked t, unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.n = u.n
  join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', u.n)
  where t.id = p_tracked and c.tracked = t.id and p_key is not null);
end $$;
comment on function annals.key_is is 'SQL that compares a key with given values; null without any.';

create function annals.source(p_table regclass) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- Tables that inherit have histories of their own.
  return (
  select case when c.relkind = 'p' then '' else 'only ' end || p_table from pg_class c where c.oid = p_table);
end $$;
comment on function annals.source is 'A table as it stands in FROM, without the rows of tables that inherit from it.';

create function annals.nests(p_tracked int) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from annals.segment s where s.tracked = p_tracked and s.nests);
end $$;
comment on function annals.nests is 'Whether positions alone don''t order the entries of one transaction.';

create function annals.kept_value(p_tracked int, p_n int, p_table regclass, p_alias text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- A value that an update left as it was is not stored: it is that of the next entry which holds it, else today's. So it is for any
  -- entry what the column became by it. Its own aliases are long, so that they don't hide the caller's.
  return (
  select format('(select kept_value.c from (select kept_entry.c, kept_entry.later, kept_entry.first, kept_entry.start, kept_entry.v from (select kept_row.c%1$s as c, kept_row.missing, kept_row.start, kept_row.v, kept_row.op, (kept_row.epoch, kept_row.xid) <> (%2$I.epoch, %2$I.xid) as later, min(kept_row.v) over (partition by kept_row.epoch, kept_row.xid) as first
      from annals.h%3$s kept_row where %4$s and (kept_row.v > %2$I.v%6$s)) kept_entry
      where kept_entry.op in (''u'', ''d'', ''t'', ''U'', ''D'', ''T'') and (kept_entry.later or (kept_entry.start, kept_entry.v) > (%2$I.start, %2$I.v)) and not coalesce(%1$s = any (kept_entry.missing), false)
    %5$s) kept_value order by kept_value.later, kept_value.first, kept_value.start, kept_value.v limit 1)',
    p_n, p_alias, p_tracked, annals.key_join(p_tracked, 'kept_row.c%1$s', p_alias || '.c%1$s'),
    'union all select ' || format('kept_today.%I, true, 9223372036854775807, 0, 0 from ', c.name) || annals.source(p_table) || ' kept_today where ' || annals.key_join(p_tracked, 'kept_today.%2$I', p_alias || '.c%1$s'),
    case when annals.nests(p_tracked) then format(' or (kept_row.epoch, kept_row.xid) = (%1$I.epoch, %1$I.xid)', p_alias) else '' end)
  from annals.tracked_column c where c.tracked = p_tracked and c.n = p_n);
end $$;
comment on function annals.kept_value is 'SQL for the value of a column that an entry lacks because it did not change. Without a table, today''s row is not asked.';

create function annals.positions_of(p_tracked int, p_key text[]) returns bigint[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  positions bigint[];
begin
  execute (select format('select array_agg(e.v order by e.first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v) from (select e.*, min(e.v) over (partition by e.epoch, e.xid) as first from (%s) e) e',
      string_agg(format('select s.v, s.xid, %s as epoch, s.op, %s as start from %s s where %s', s.epoch, case when s.nests then 'coalesce(s.start, s.v)' else 's.v' end, s.relation, annals.key_is(p_tracked, p_key, 's.c%1$s')), ' union all '))
    from annals.segment s join annals.tracked t on t.id = s.tracked where t.id = p_tracked and t.key <@ s.columns) into positions;
  return positions;
end $$;
comment on function annals.positions_of is 'Positions of all entries of a key in their order, whoever may read them: it tells that a row changed, never what or how. So that changes hidden by row-level security are not ascribed to others.';

create function annals.entries_of(p_tracked int, p_key text[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  entries jsonb;
  names text;
  images text;
  all_positions text := 'null::bigint[]';
begin
  select array_agg(c.n::text order by c.n)::text, string_agg(format('e.c%s::text', c.n), ', ' order by c.n) into names, images
    from annals.tracked_column c join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', c.n) where c.tracked = p_tracked;
  if exists (select from annals.tracked t join pg_class c on c.oid = t.relation where t.id = p_tracked and row_security_active(c.oid)) then
    all_positions := format('annals.positions_of(%s, %L::text[])', p_tracked, p_key);
  end if;
  execute format($query$
    with found as (select e.*, min(e.v) over (partition by e.epoch, e.xid) as first from annals.h%1$s e where %2$s),
    numbered as (select e.*, row_number() over w as place, lead(e.v) over w as next from found e
      window w as (order by e.first, e.start, case e.op when 'm' then 1 when 'n' then 2 when 'i' then 2 else 0 end, e.v)),
    everybody (list) as (select %5$s)
    select jsonb_agg(jsonb_build_object('v', e.v, 'epoch', e.epoch, 'xid', e.xid::text, 'at', e.at, 'ctx', e.ctx, 'login', e.login::bigint, 'op', e.op, 'key', %6$L::text[], 'tracked', %1$s,
        'image', case when e.op in ('u', 'd', 't') then jsonb_object(%3$L::text[], array[%4$s]) - coalesce(e.missing::text[], '{}') else '{}' end, 'missing', coalesce(to_jsonb(e.missing), '[]'),
        'hidden', y.list is not null and array_position(y.list, e.next) is distinct from array_position(y.list, e.v) + 1 and (e.next is not null or e.v <> y.list[cardinality(y.list)])) order by e.place)
    from numbered e, everybody y$query$, p_tracked, annals.key_is(p_tracked, p_key, 'e.c%1$s'), names, images, all_positions, p_key) into entries;
  return coalesce(entries, '[]');
end $$;
comment on function annals.entries_of is 'The entries of a key that the caller may read, in their order; hidden says that others lie between one and the next.';

create function annals.moved(p_tracked int, p_v bigint) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  partner bigint := (select case when m.left_v = p_v then m.arrived_v else m.left_v end from annals.move m where m.tracked = p_tracked and (m.left_v = p_v or m.arrived_v = p_v) limit 1);
  key text[];
begin
  -- The key of the other end comes from its entry, if the caller may read that.
  execute (select format('select array[%s] from annals.h%s e where e.v = $1', string_agg(format('e.c%s::text', n), ', ' order by i), p_tracked)
    from annals.tracked t, unnest(t.key) with ordinality u (n, i) where t.id = p_tracked) into key using partner;
  return key;
end $$;
comment on function annals.moved is 'Where a row went to, or came from, whose key changed at a position.';

create function annals.lives(p_tracked int, p_key text[]) returns setof jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  entries jsonb := annals.entries_of(p_tracked, p_key);
  life jsonb := '[]';
  e jsonb;
  other jsonb;
  part jsonb;
  key text[];
  partner bigint;
  n int := jsonb_array_length(entries);
begin
  for i in 0 .. n - 1 loop
    e := entries->i;
    life := life || e;
    continue when i < n - 1 and e->>'op' not in ('d', 't', 'D', 'T', 'm') and entries->(i + 1)->>'op' not in ('i', 'n');
    -- Back to where the row came from, and on to where it went.
    while life->0->>'op' = 'n' loop
      key := annals.moved(p_tracked, (life->0->>'v')::bigint);
      exit when key is null;
      partner := (select m.left_v from annals.move m where m.tracked = p_tracked and m.arrived_v = (life->0->>'v')::bigint);
      part := '[]';
      for other in select x from jsonb_array_elements(annals.entries_of(p_tracked, key)) x loop
        part := case when other->>'op' in ('i', 'n') then '[]' else part end || other;
        exit when (other->>'v')::bigint = partner;
      end loop;
      exit when part = '[]';
      life := part || life;
    end loop;
    while life->-1->>'op' = 'm' loop
      key := annals.moved(p_tracked, (life->-1->>'v')::bigint);
      exit when key is null;
      partner := (select m.arrived_v from annals.move m where m.tracked = p_tracked and m.left_v = (life->-1->>'v')::bigint);
      part := null;
      for other in select x from jsonb_array_elements(annals.entries_of(p_tracked, key)) x loop
        if part is null then
          continue when (other->>'v')::bigint <> partner;
          part := '[]';
        end if;
        part := part || other;
        exit when other->>'op' in ('d', 't', 'D', 'T', 'm');
      end loop;
      exit when part is null;
      life := life || part;
    end loop;
    return next life;
    life := '[]';
  end loop;
end $$;
comment on function annals.lives is 'The lives of the rows that ever had a key: for each its entries, those at other keys included, oldest first.';

create function annals.today(p_tracked int, p_key text[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  image jsonb;
begin
  execute (select format('select jsonb_object(%L::text[], array[%s]) from %s b where %s', array_agg(c.n::text order by c.n), string_agg(format('b.%I::text', c.name), ', ' order by c.n), annals.source(t.relation), annals.key_is(p_tracked, p_key, 'b.%2$I'))
    from annals.tracked t join annals.tracked_column c on c.tracked = t.id and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key)) where t.id = p_tracked group by t.relation) into image;
  return image;
end $$;
comment on function annals.today is 'The row that has a key today, its values by the numbers of their columns; null when the caller sees none.';

create function annals.life(p_histories int[], p_key text[])
returns table (tracked int, life int, v bigint, transaction text, at timestamptz, operation text, key text[], columns jsonb, note text, login text, role text, actor text, application text, client inet)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  t annals.tracked;
  number int;
  life jsonb;
  e jsonb;
  after jsonb; -- null: not known; '{}': the row was not there
  before jsonb;
  why text;
  next_v bigint;
  rows jsonb := '[]';
begin
  for t in select k.* from annals.tracked k where k.id = any (p_histories) and cardinality(k.key) = cardinality(p_key) order by k.id loop
    for life, number in select l, i from annals.lives(t.id, p_key) with ordinality u (l, i) loop
      after := null;
      why := null;
      next_v := null;
      if life->-1->>'op' = 'm' then
        why := 'it left for a key that is not shown';
      elsif life->-1->>'op' not in ('d', 't', 'D', 'T') then
        if t.ended_v is not null then
          why := 'history ended after it';
        else
          after := annals.today(t.id, array(select jsonb_array_elements_text(life->-1->'key')));
          why := case when after is null then 'today''s row is not shown' end;
        end if;
      end if;
      for e in select x from jsonb_array_elements(life) with ordinality u (x, i) order by i desc loop
        continue when e->>'op' in ('m', 'n');
        if e->>'op' = 'u' and exists (select from annals.gap g where g.tracked = t.id and g.lossless and g.xid = (e->>'xid')::xid8 and g.v > (e->>'v')::bigint and (next_v is null or g.v < next_v)) then
          after := e->'image'; -- saved before an interruption, not changed
          next_v := (e->>'v')::bigint;
          why := null;
          continue;
        end if;
        if lower(e->>'op') in ('d', 't') then
          after := '{}';
          why := null;
        elsif (e->>'hidden')::boolean then
          after := null;
          why := 'a change after it is not shown';
        elsif exists (select from annals.gap g where g.tracked = t.id and g.v > (e->>'v')::bigint and (g.v < next_v or next_v is null and (t.ended_v is null or g.why <> t.ended_why))) then
          after := null;
          why := 'history was interrupted after it';
        end if;
        before := case when e->>'op' in ('U', 'D', 'T') then null else e->'image' end;
        if before is not null and after is not null and e->>'op' = 'u' then
          -- What the entry lacks did not change.
          before := before || (select coalesce(jsonb_object_agg(lacks, after->lacks), '{}') from jsonb_array_elements_text(e->'missing') lacks join annals.tracked_column c on c.tracked = t.id and c.n = lacks::int
                               where c.added_v <= (e->>'v')::bigint and after ? lacks);
        end if;
        if e->>'op' <> 'u' or before is null or after is null or before <> after then
          rows := rows || jsonb_build_array(e - 'image' - 'missing' || jsonb_build_object('operation', annals.operation((e->>'op')::"char"), 'life', number,
          'note', case when before is null then 'erased' when e->>'op' not in ('d', 't') and after is null then 'what it became is unknown: ' || why end,
          'columns', (select coalesce(jsonb_object_agg(c.name, d.change), '{}') from annals.tracked_column c, lateral (
              select case when e->>'op' = 'i' then jsonb_build_object('to', after->c.n::text)
                          when e->>'op' in ('d', 't') or after is null then jsonb_build_object('from', before->c.n::text)
                          else jsonb_build_object('from', before->c.n::text, 'to', after->c.n::text) end as change) d
            where c.tracked = t.id and case when e->>'op' = 'i' then after ? c.n::text when e->>'op' in ('d', 't') or after is null then before ? c.n::text
                                            else before ? c.n::text and after ? c.n::text and before->c.n::text <> after->c.n::text end)));
        end if;
        after := case when e->>'op' = 'i' then '{}' else before end;
        why := case when before is null then 'the change after it was erased' end;
        next_v := (e->>'v')::bigint;
      end loop;
    end loop;
  end loop;
  return query
    select (x->>'tracked')::int, (x->>'life')::int, (x->>'v')::bigint, (x->>'epoch') || ':' || (x->>'xid'), (x->>'at')::timestamptz, x->>'operation', array(select jsonb_array_elements_text(x->'key')), x->'columns', x->>'note',
           coalesce(w.login_name, r.rolname)::text, nullif(w.role_name, 'none')::text, nullif(w.actor, ''), nullif(w.application, ''), w.client
    -- A row that came back to the key is found from both of its stays there.
    from (select distinct on (y->>'tracked', y->>'v') y from jsonb_array_elements(rows) y order by y->>'tracked', y->>'v', (y->>'life')::int desc) u (x) left join pg_roles r on r.oid = (x->>'login')::bigint::oid
    left join lateral (select * from annals.context c where c.hash = (x->>'ctx')::bigint and c.login = (x->>'login')::bigint::oid limit 1) w on true;
end $$;
comment on function annals.life is 'The life of the rows that ever had a key, by the histories of a table: what was done, which columns changed from what to what (as text), when, and by whom. Rows are followed through changes of their key. Updates that changed nothing are left out. A note says where something is not known: erased, hidden from the caller, or not captured. Life numbers the rows within a history in the order in which they had the key, the last one highest.';

create function annals.upper_bound(p_snapshot pg_snapshot) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- When the first tick was taken that sees all that the snapshot sees, all that it sees was written. Its upper_xid was given out after that. A
  -- later one whose oldest transaction has a higher id began after that, and then it took its position.
  select later.v from (select t.upper_xid from annals.tick t where t.epoch = (select max(number) from annals.epoch) and t.upper_xid >= pg_snapshot_xmax(p_snapshot) and annals.snapshot_covers(t.snapshot, p_snapshot)
                       order by t.upper_xid limit 1) covering,
    lateral (select t.v from annals.tick t where t.epoch = (select max(number) from annals.epoch) and t.upper_xid > covering.upper_xid and pg_snapshot_xmin(t.snapshot) > covering.upper_xid order by t.upper_xid limit 1) later
$$;
comment on function annals.upper_bound is 'Entries that the snapshot sees have positions up to this one, if they are of its epoch; null when no tick is that late.';
