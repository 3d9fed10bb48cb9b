-- What tests of capture compare: copies of tables as sessions saw them, and the same states told from history.
create schema replay;

create table replay.moment (n int primary key generated always as identity, relation oid not null, what text not null, coordinate text not null, copy regclass not null);

-- Columns that the history of a table stores.
create function replay.columns(p_tracked int) returns table (n int, name name, place int) language sql stable as $$
  select c.n, c.name, array_position(t.key, c.n) from annals.tracked t join annals.tracked_column c on c.tracked = t.id
  where t.id = p_tracked and c.gone_v is null and not c.excluded and (not c.generated or c.n = any (t.key)) order by c.n
$$;

create function replay.tracked(p_relation regclass) returns int language sql stable as $$
  select id from annals.tracked where relation = p_relation and ended_v is null
$$;

-- The table itself, without tables that inherit from it, with its columns under their numbers, domains as what they are based on.
create function replay.today(p_relation regclass) returns text language sql stable as $$
  select format('select %s from %s %s', (select string_agg(format('%I::%s as c%s', c.name, annals.stored_type(a.atttypid, a.atttypmod), c.n), ', ' order by c.n)
                  from replay.columns(replay.tracked(p_relation)) c join pg_attribute a on a.attrelid = p_relation and a.attname = c.name),
                case k.relkind when 'p' then '' else 'only' end, p_relation)
  from pg_class k where k.oid = p_relation
$$;

-- To be called in a REPEATABLE READ transaction, so that coordinate and copy are of one snapshot.
create function replay.remember(p_relation regclass, p_what text) returns text language plpgsql as $$
declare
  coordinate text := annals.coordinate();
  number int := nextval(pg_get_serial_sequence('replay.moment', 'n'));
begin
  execute format('create table replay.copy%s as %s', number, replay.today(p_relation));
  insert into replay.moment (n, relation, what, coordinate, copy) overriding system value values (number, p_relation, p_what, coordinate, format('replay.copy%s', number)::regclass);
  return coordinate;
end $$;

-- A query for the rows of a table at a coordinate, told from its history and today's rows.
create function replay.at(p_relation regclass, p_coordinate text) returns text language plpgsql stable as $$
declare
  id int := replay.tracked(p_relation);
  keys text;
  same text;
  image text;
  later text;
begin
  select string_agg(format('c%s', c.n), ', ' order by c.place), string_agg(format('%%1$s.c%s %s %%2$s.c%s', c.n, annals.key_operator(id, c.place), c.n), ' and ' order by c.place)
    into keys, same from replay.columns(id) c where c.place is not null;
  -- A value that an entry lacks did not change: it is that of the next entry of the key that has it, else today's.
  select string_agg(format(case when c.place is not null then 'case when f.place is null then r.c%1$s else f.c%1$s end as c%1$s' else 'case when f.place is null or %1$s = any (f.missing) and x%1$s.found is null then r.c%1$s when %1$s = any (f.missing) then x%1$s.value else f.c%1$s end as c%1$s' end, c.n), ', ' order by c.n),
         string_agg(format('left join lateral (select true as found, x.c%1$s as value from ordered x where %2$s and x.place > f.place and x.op in (''u'', ''d'', ''t'')
           and not coalesce(%1$s = any (x.missing), false) order by x.place limit 1) x%1$s on %1$s = any (f.missing)', c.n, format(same, 'x', 'f')), E'\n  ') filter (where c.place is null)
    into image, later from replay.columns(id) c;
  return format($q$
    with ordered as materialized (
      select e.*, row_number() over (partition by %1$s order by turn, start, case op when 'm' then 1 when 'i' then 2 when 'n' then 2 else 0 end, v) as place
      from (select h.*, min(v) over (partition by %1$s, epoch, xid) as turn from annals.h%2$s h where not pg_visible_in_snapshot(xid, annals.coordinate_snapshot(%3$L))) e)
    select %4$s
    from (select * from ordered where place = 1) f full join (%5$s) r on %6$s
    %7$s
    where f.place is null or case f.op when 'i' then false when 'n' then false when 'm' then (f.v / (f.v - f.v)) = 0 else true end
  $q$, keys, id, p_coordinate, image, replay.today(p_relation), format(same, 'f', 'r'), later);
end $$;

-- How the states that history tells differ from the copies, exactly: equal is not enough.
create function replay.differences(p_relation regclass) returns table (what text, coordinate text, was text, told text) language plpgsql as $$
declare
  m replay.moment;
  same text;
begin
  select string_agg(format('a.c%s %s b.c%s', c.n, annals.key_operator(replay.tracked(p_relation), c.place), c.n), ' and ') into same
    from replay.columns(replay.tracked(p_relation)) c where c.place is not null;
  for m in select * from replay.moment x where x.relation = p_relation order by x.n loop
    execute format('create temporary table told on commit drop as %s', replay.at(p_relation, m.coordinate));
    return query execute format('select $1, $2, a::text, b::text from %s a full join told b on %s where a is null or b is null or not record_image_eq(row(a.*), row(b.*)) order by 3, 4 limit 5', m.copy, same) using m.what, m.coordinate;
    if (select count(*) from told) <> (select (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from %s', m.copy), false, false, '')))[1]::text::bigint) then
      return query select m.what, m.coordinate, 'another number of rows'::text, (select count(*)::text from told);
    end if;
    drop table told;
  end loop;
end $$;
