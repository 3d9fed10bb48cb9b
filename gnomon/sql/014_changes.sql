-- The change set between two places: what transactions did that the later one sees and the earlier one does not. An entry holds what a row
-- was; what it became is what the next entry of its key holds, else today's row.
--
-- Transactions come whole, in the order of their last positions: whoever changes a row after another transaction takes his position
-- after all of that one's, so along each row it is the order of commits. Within a transaction it is the order of positions.
--
-- An update that moves a row to another key is three entries: the old row (u), that it left its key (m), that it arrived at another one (n).
-- It is shown as one update with both keys. Where a transaction both leaves a key and arrives at it, as a swap does, one update after
-- the other could not be carried out, so each is shown as a delete and an insert. Readers whom row-level security shows only one end see a
-- delete, or an insert.

create function gnomon.text_of(p_expression text, p_type oid) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- What the type's output function writes. A cast to text is as exact for most types of PostgreSQL's own, and cheaper. Texts are compared byte
  -- by byte, whatever the column's collation takes for equal.
  select '(' || case when p_type = 'boolean'::regtype then format('case %s when true then ''t'' when false then ''f'' end', p_expression)
              when y.typnamespace = 'pg_catalog'::regnamespace and p_type <> all ('{character,inet,cidr,xml,name,"char"}'::regtype[]) then p_expression || '::pg_catalog.text'
              else format('case when pg_catalog.num_nulls(%1$s) = 0 then pg_catalog.format(''%%s'', %1$s) end', p_expression) end || ') collate pg_catalog."C"'
  from pg_type y where y.oid = p_type
$$;
comment on function gnomon.text_of is 'SQL for a value as PostgreSQL writes it.';

create function gnomon.image_columns(p_tracked int) returns table (n int, name name, type oid, is_key boolean, here boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.n, c.name, coalesce(p.atttypid, a.atttypid), c.n = any (t.key), c.gone_v is null
  from annals.tracked t join annals.tracked_column c on c.tracked = t.id
  join pg_attribute a on a.attrelid = to_regclass('annals.h' || t.id) and a.attname = 'c' || c.n
  left join pg_attribute p on c.gone_v is null and p.attrelid = t.relation and p.attnum = c.attnum and not p.attisdropped
  where t.id = p_tracked and not c.excluded and (not c.generated or c.n = any (t.key))
    -- A column that is gone is shown unless another one has its name now.
    and (c.gone_v is null or not exists (select from annals.tracked_column o where o.tracked = c.tracked and o.name = c.name and (o.gone_v is null or o.gone_v > c.gone_v)))
  order by c.n
$$;
comment on function gnomon.image_columns is 'Columns of the images of a history, in their order: those of the table, without excluded and computed ones, and those that are gone.';

create function gnomon.stored_place(p_snapshot pg_snapshot, p_epoch int, p_bound bigint) returns gnomon.place
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Ticks may have been dropped since, or taken.
  select (null, p_snapshot, p_epoch, greatest(p_bound, annals.lower_bound(p_snapshot)), null, null, null, true)::gnomon.place
$$;
comment on function gnomon.stored_place is 'The place of a snapshot of the present epoch that was kept with its bound.';

create function gnomon.change_histories(p_from gnomon.place, p_to gnomon.place, p_tables regclass[], p_histories int[] default null) returns int[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  g annals.gap;
  name text;
  list int[] := '{}';
  missing regclass := (select x from unnest(p_tables) x where not exists (select from annals.tracked k join gnomon.history h on h.tracked = k.id where x in (k.relation, h.relation_oid)) limit 1);
  dropped int := (select x from unnest(p_histories) x where not exists (select from gnomon.history h where h.tracked = x) limit 1);
begin
  if missing is not null then
    perform gnomon.refuse('GN007', format('table %s is not tracked, and never was', missing), 'Track it with gnomon.track: its history begins then.', jsonb_build_object('table', missing::text));
  elsif dropped is not null then
    perform gnomon.refuse('GN001', format('history %s was dropped, of which changes were being delivered', dropped), 'Drop the consumer and make it anew.', jsonb_build_object('history', dropped, 'reason', 'dropped'));
  end if;
  for t in select k.* from annals.tracked k join gnomon.history h on h.tracked = k.id
             where case when p_histories is not null then k.id = any (p_histories)
                        -- What goes on for another package alone is none of ours.
                        else ('gnomon' = any (k.users) or k.ended_v is not null) and (p_tables is null or k.relation = any (p_tables) or k.relation is null and h.relation_oid = any (p_tables)) end
               and exists (select from annals.segment s where s.tracked = k.id) and not gnomon.ended_before(k, p_from.epoch, p_from.snapshot) order by k.id loop
    name := coalesce((select c.oid::regclass::text from pg_class c where c.oid = t.relation), format('%I.%I', t.schema_name, t.table_name));
    if t.pruned_v > 0 and p_from.bound < t.pruned_v - 1 and not coalesce(pg_snapshot_xmin(p_from.snapshot) > t.pruned_xid, false) then
      perform gnomon.refuse('GN002', format('the history of %s was pruned: it does not reach back to that place any more', name), 'Begin at a later place. Consumers and tags keep history from being pruned.',
        jsonb_build_object('table', name, 'reason', 'pruned', 'begins', (select max(k.at) from annals.tick k where k.v < t.pruned_v)));
    end if;
    if t.ended_v is null and (t.behind or t.off or t.key_lost_v is not null) then
      perform gnomon.refuse('GN001', format('changes of %s go by uncaptured', name), format('gnomon.check() says why; then call gnomon.sync(%L).', name), jsonb_build_object('table', name, 'reason', 'not captured'));
    end if;
    if t.relation is not null and not gnomon.began_before(t, p_from.epoch, p_from.snapshot) and gnomon.began_before(t, p_to.epoch, p_to.snapshot)
       and exists (select from annals.tracked o join gnomon.history h on h.tracked = o.id where o.relation = t.relation and o.id < t.id and not gnomon.ended_before(o, p_from.epoch, p_from.snapshot)) then
      perform gnomon.refuse('GN001', format('the history of %s ended and began again at %s, so its changes in between are not known', name, t.began_at), 'Begin at a later place; a consumer, with a snapshot.', jsonb_build_object('table', name, 'reason', 'not tracked then', 'begins', t.began_at));
    end if;
    select * into g from annals.gap x where x.tracked = t.id and not x.lossless and (t.ended_v is null or x.v < t.ended_v and x.why <> t.ended_why)
      and (select max(e.number) from annals.epoch e where e.began_v <= x.v) = p_from.epoch and not pg_visible_in_snapshot(x.xid, p_from.snapshot) and pg_visible_in_snapshot(x.xid, p_to.snapshot) order by x.v desc limit 1;
    if found then
      perform gnomon.refuse('GN001', format('the history of %s was interrupted at %s (%s), so its changes then are not known', name, g.at, g.why), 'Begin at a later place; a consumer, with a snapshot.',
        jsonb_build_object('table', name, 'reason', 'interrupted', 'begins', g.at));
    end if;
    list := list || t.id;
  end loop;
  return list;
end $$;
comment on function gnomon.change_histories is 'Histories of a change set: of the tables given or, when null, of all, or those that were chosen before; an error when one does not tell all changes.';

create function gnomon.check_tables(p_tables regclass[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  astray regclass := (select x from unnest(p_tables) x where exists (select from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = x)
    and not exists (select from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = x and ('gnomon' = any (k.users) or k.ended_v is not null)) limit 1);
begin
  if astray is not null then
    perform gnomon.refuse('GN007', format('table %s is not tracked any more', astray), 'Track it with gnomon.track.', jsonb_build_object('table', astray::text));
  end if;
end $$;
comment on function gnomon.check_tables is 'Refuses tables whose history goes on for another package alone.';

create function gnomon.given_keys(p_tracked int, p_keys jsonb) returns setof jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  width int;
  fits text;
  texts text;
  query text;
  wide jsonb;
  k jsonb;
  one jsonb[];
  list jsonb[];
begin
  -- A length would cut a value, and select more: what it changes is no value of the column.
  select count(*), string_agg(format('(k.key->>%1$s)::%2$s %3$s (k.key->>%1$s)::%4$s', u.i - 1, format_type(a.atttypid, a.atttypmod), annals.key_operator(t.id, u.i::int), format_type(a.atttypid, -1)), ' and ' order by u.i),
         string_agg(gnomon.text_of(format('(k.key->>%s)::%s', u.i - 1, format_type(a.atttypid, a.atttypmod)), a.atttypid), ', ' order by u.i)
    into width, fits, texts
    from annals.tracked t, unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = 'c' || u.n where t.id = p_tracked;
  query := format('select array_agg(to_jsonb(array[%s])) from jsonb_array_elements($1) k (key) where %s', texts, fits);
  wide := coalesce((select jsonb_agg(x) from jsonb_array_elements(p_keys) x where jsonb_array_length(x) = width), '[]');
  begin
    execute query into list using wide;
  exception when others then
    -- One of them is a key of another table.
    for k in select x from jsonb_array_elements(wide) x loop
      begin
        execute query into one using jsonb_build_array(k);
        list := list || one;
      exception when others then
        null;
      end;
    end loop;
  end;
  return query select unnest(list);
end $$;
comment on function gnomon.given_keys is 'Of keys that somebody gave (an array of arrays of texts), those that a history can have, as they are written there.';

create function gnomon.check_keys(p_histories int[], p_keys jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  k jsonb;
begin
  if jsonb_typeof(p_keys) <> 'array' or jsonb_path_exists(p_keys, 'strict $[*] ? (@.type() != "array" || @.size() == 0 || @[*].type() != "string")') then
    perform gnomon.refuse('GN006', 'keys are an array of arrays of texts', 'Give the values of the key columns, in the order of the key.');
  end if;
  if p_histories = '{}' or exists (select from unnest(p_histories) h where (select count(*) from gnomon.given_keys(h, p_keys)) = jsonb_array_length(p_keys)) then
    return;
  end if;
  for k in select x from jsonb_array_elements(p_keys) x where not exists (select from unnest(p_histories) h cross join gnomon.given_keys(h, jsonb_build_array(x))) loop
    perform gnomon.check_key(p_histories[1], array(select jsonb_array_elements_text(k)));
    perform gnomon.refuse('GN006', format('%s is no key of %s: a value is too long, or too precise, for its column', k, t.relation), 'Give the values of the key columns, in the order of the key.', jsonb_build_object('table', t.relation::text))
      from annals.tracked t where t.id = p_histories[1];
  end loop;
end $$;
comment on function gnomon.check_keys is 'Refuses keys that none of some histories can have.';

create function gnomon.change_kept(p_tracked int, p_n int, p_type oid, p_nests boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- A value that an entry lacks did not change: it is that of the next entry which holds it, else today's.
  return (
  select format('(select y.c from (select z.c, z.later, z.first, z.start, z.v from (select %1$s as c, z.missing, z.start, z.v, z.op, z.xid <> x.xid as later, min(z.v) over (partition by z.xid) as first
      from annals.h%2$s z where %3$s and (z.v > x.v%4$s)) z
      where z.op in (''u'', ''d'', ''t'', ''U'', ''D'', ''T'') and (z.later or (z.start, z.v) > (x.start, x.v)) and not coalesce(%5$s = any (z.missing), false)
    %6$s) y%7$s order by y.later, y.first, y.start, y.v limit 1)',
    gnomon.text_of('z.c' || p_n, p_type), p_tracked, annals.key_join(p_tracked, 'z.c%1$s', 'x.c%1$s'), case when p_nests then ' or z.xid = x.xid' else '' end, p_n,
    'union all select ' || gnomon.text_of('b.' || quote_ident(c.name), p_type) || ', true, 9223372036854775807, 0, 0 from ' || annals.source(t.relation) || ' b where ' || annals.key_join(p_tracked, 'b.%2$I', 'x.c%1$s'),
    -- What stands beyond an interruption may be of another row.
    (select format(' where not exists (select from unnest(%L::pg_catalog.int8[]) g (v) where g.v > x.v and g.v < greatest(y.first, y.v))', array_agg(g.v order by g.v)) from annals.gap g where g.tracked = t.id and not g.lossless and (t.ended_v is null or g.v < t.ended_v and g.why <> t.ended_why) having count(*) > 0))
  from annals.tracked t left join annals.tracked_column c on c.tracked = t.id and c.n = p_n and c.gone_v is null and t.ended_v is null where t.id = p_tracked);
end $$;
comment on function gnomon.change_kept is 'SQL for a value that an entry x of a history lacks.';

create function gnomon.next_of(p_tracked int, p_v bigint, p_key text[]) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  following bigint;
begin
  -- Of all entries, so it reads the segments. It tells that a row changed, never what or how.
  execute (select format('select q.next from (select e.v, lead(e.v) over (order by e.first, e.start, case e.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, e.v) as next from (select e.*, min(e.v) over (partition by e.epoch, e.xid) as first from (%s) e) e) q where q.v = $2',
      string_agg(format('select s.v, s.xid, %s as epoch, s.op, %s as start from %s s where %s', s.epoch, case when s.nests then 'coalesce(s.start, s.v)' else 's.v' end, s.relation,
        (select string_agg(format('s.c%s %s ($1)[%s]::%s', u.n, annals.key_operator(t.id, u.i::int), u.i, format_type(a.atttypid, a.atttypmod)), ' and ' order by u.i)
         from unnest(t.key) with ordinality u (n, i) join pg_attribute a on a.attrelid = s.relation and a.attname = 'c' || u.n)), ' union all '))
    from annals.segment s join annals.tracked t on t.id = s.tracked where t.id = p_tracked and t.key <@ s.columns) into following using p_key, p_v;
  return following;
end $$;
comment on function gnomon.next_of is 'Position of the entry that follows one of a key, whoever may read it; null when none does. For callers whom row-level security lets see only some entries.';

create function gnomon.last_position() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
return (select case when s.is_called then s.last_value else s.last_value - 1 end from annals.v s);
comment on function gnomon.last_position is 'The last position that was given out.';

create function gnomon.change_top(p_tracked int, p_from gnomon.place, p_to gnomon.place) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Nobody writes a segment before the transaction that began it has committed: so what is visible lies in earlier ones. Where those are
  -- sealed, the planner leaves later ones out.
  select case when bool_and(q.last_v is not null) then max(q.last_v) end from (
    select s.last_v, lag(s.closed_by) over (order by s.number) as begun_by, lag(s.epoch) over (order by s.number) as begun_in from annals.segment s where s.tracked = p_tracked) q
  where q.begun_by is null or q.begun_in < p_from.epoch or pg_visible_in_snapshot(q.begun_by, p_to.snapshot)
$$;
comment on function gnomon.change_top is 'No entry of a history that the later of two places sees has a higher position; null when that is not known.';

create function gnomon.change_condition(p_tracked int, p_from gnomon.place, p_to gnomon.place) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('x.epoch = %s and x.v > %s and not pg_catalog.pg_visible_in_snapshot(x.xid, %L::pg_catalog.pg_snapshot)', p_from.epoch, p_from.bound, p_from.snapshot)
    || case when p_to is null then ''
            else format(' and pg_catalog.pg_visible_in_snapshot(x.xid, %L::pg_catalog.pg_snapshot)', p_to.snapshot) || coalesce(' and x.v <= ' || gnomon.change_top(p_tracked, p_from, p_to), '') end
$$;
comment on function gnomon.change_condition is 'SQL, on an entry x: the earlier place does not see it, and the later one, if given, does.';

create function gnomon.history_changes_query(p_tracked int, p_from gnomon.place, p_to gnomon.place, p_images boolean, p_noop boolean, out ctes text, out entries text, out changes text) returns record
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  t annals.tracked;
  keys text;
  key text;
  image text;
  today text;
  b_key text;
  nests boolean;
  moves boolean;
  guarded boolean;
  last bigint := gnomon.last_position();
  ahead boolean;
  seen text;
  source text;
  place text := 'x.v';
  w text;
  after text;
  lookup text := '';
  present text := '';
  saves boolean := false;
  saved text := '';
  hidden boolean := exists (select from annals.tracked_column c where c.tracked = p_tracked and c.gone_v > p_from.bound and not c.excluded and not c.generated
    and not exists (select from gnomon.image_columns(p_tracked) i where i.n = c.n));
  gap_v bigint;
  operation text := $case$case x.op when 'i' then 'insert' when 'n' then 'insert' when 'u' then 'update' when 'U' then 'update' when 't' then 'truncate' when 'T' then 'truncate' else 'delete' end$case$;
begin
  select * into t from annals.tracked k where k.id = p_tracked;
  guarded := t.relation is not null and coalesce(row_security_active(t.relation), false);
  gap_v := (select min(x.v) from annals.gap x where x.tracked = t.id and not x.lossless and (t.ended_v is null or x.v < t.ended_v and x.why <> t.ended_why) and x.v > p_from.bound and not pg_visible_in_snapshot(x.xid, p_to.snapshot));
  nests := exists (select from annals.segment s where s.tracked = t.id and s.nests and (s.last_v is null or s.last_v > p_from.bound));
  moves := exists (select from annals.move m where m.tracked = t.id and m.arrived_v > p_from.bound);
  select string_agg('x.c' || u.n, ', ' order by u.i), string_agg(gnomon.text_of('x.c' || u.n, a.atttypid), ', ' order by u.i), string_agg(format('b.%I', c.name), ', ' order by u.i)
    into keys, key, b_key from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = t.id and c.n = u.n
    join pg_attribute a on a.attrelid = format('annals.h%s', t.id)::regclass and a.attname = 'c' || u.n;
  key := 'array[' || key || ']';
  seen := format('pg_catalog.pg_visible_in_snapshot(x.xid, %L::pg_catalog.pg_snapshot)', p_to.snapshot);
  saves := t.ended_v is not null and t.saved_xid is not null and not pg_visible_in_snapshot(t.saved_xid, p_from.snapshot) and pg_visible_in_snapshot(t.saved_xid, p_to.snapshot);
  if not p_images and not moves and not nests and not saves then
    entries := format('annals.h%s x where %s', t.id, gnomon.change_condition(t.id, p_from, p_to));
    changes := format('select %1$s as history, ' || operation || $query$ as operation,
  %2$s as key, null::text[] as new_key, null::text[] as old, null::text[] as new, x.v, x.v as place, x.xid, x.at, x.ctx, x.login
  from annals.h%1$s x where %3$s and x.op <> 'm'$query$, t.id, key, gnomon.change_condition(t.id, p_from, p_to));
    return;
  end if;

  -- What follows the last entries of the set is found by looking each up, or by reading on to the present where that is not much more.
  ahead := annals.snapshot_covers(p_to.snapshot, pg_current_snapshot()) or last - p_to.bound <= p_to.bound - p_from.bound;
  select string_agg(case when not c.is_key and g.lacking then format('case when %s = any (x.missing) then %s else %s end', c.n, gnomon.change_kept(t.id, c.n, c.type, nests), gnomon.text_of('x.c' || c.n, c.type))
                         else gnomon.text_of('x.c' || c.n, c.type) end, ', ' order by c.n),
         string_agg(case when c.here then gnomon.text_of(format('b.%I', c.name), c.type) else 'null' end, ', ' order by c.n)
    into image, today from gnomon.image_columns(t.id) c,
      lateral (select bool_or(c.n <> all (s.columns) or c.n = any (s.wide)) as lacking from annals.segment s where s.tracked = t.id and (s.last_v is null or s.last_v > p_from.bound)) g;
  image := case when p_images then format('case when x.op in (''u'', ''d'', ''t'') then array[%s] end', image) else 'null::pg_catalog.text[]' end;
  w := case when nests then format('partition by %s order by x.first, x.start, case x.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, x.v', keys) else format('partition by %s order by x.v', keys) end;
  -- Where nesting makes the order of a key differ from that of positions, its entries take each other's places.
  source := format($query$(select x.v, x.xid, x.at, x.ctx, x.login, x.op, x.start, %1$s, %2$s as key, %3$s as img, %4$s as ours%5$s from annals.h%6$s x where %7$s offset 0) x$query$,
    keys, key, image, seen, case when nests then format(', min(x.v) over (partition by %s, x.xid) as first', keys) else '' end, t.id, gnomon.change_condition(t.id, p_from, case when not ahead then p_to end));
  if nests then
    source := format($query$(select x.*, (array_agg(x.v) over (partition by %1$s, x.xid order by x.v rows between unbounded preceding and unbounded following))[row_number() over (partition by %1$s, x.xid order by x.start, case x.op when 'm' then 1 when 'n' then 2 when 'i' then 2 else 0 end, x.v)] as place from %2$s) x$query$, keys, source);
    place := 'x.place';
  end if;
  if saves then
    -- All rows were saved when tracking ended, by entries that are the last of their rows.
    saved := format(' and not (x.op = ''u'' and x.next_v is null and x.xid = %L)', t.saved_xid);
  end if;
  if p_images then
    after := 'case when e.op not in (''u'', ''U'', ''i'', ''n'') then null when e.next_v is not null then e.next_img';
    if not ahead then
      lookup := format($query$ left join lateral (select x.v, x.op, %1$s as img from (select x.*%2$s from annals.h%3$s x where %4$s and x.epoch = %5$s and x.v > %6$s and not %7$s) x order by %8$s limit 1) n on e.next_v is null and e.op in ('u', 'U', 'i', 'n')$query$,
        image, case when nests then ', min(x.v) over (partition by x.xid) as first' else '' end, t.id, annals.key_join(t.id, 'x.c%1$s', 'e.c%1$s'), p_to.epoch, p_to.bound, seen,
        case when nests then 'x.first, x.start, case x.op when ''m'' then 1 when ''n'' then 2 when ''i'' then 2 else 0 end, x.v' else 'x.v' end);
      after := after || ' when n.v is not null then n.img';
    end if;
    if t.ended_v is null and t.relation is not null and gap_v is null then
      present := format(' left join %s on %s and e.op in (''u'', ''U'', ''i'', ''n'') and e.next_v is null%s',
        case when (last - p_from.bound) * 20 < (select greatest(c.reltuples, 0) from pg_class c where c.oid = t.relation)
               -- Few of a large table: by the index on the key.
               then format('lateral (select * from %s b where %s offset 0) b', annals.source(t.relation), annals.key_join(t.id, 'b.%2$I', 'e.c%1$s'))
             else annals.source(t.relation) || ' b' end, annals.key_join(t.id, 'b.%2$I', 'e.c%1$s'), case when ahead then '' else ' and n.v is null' end);
      after := after || format(' when pg_catalog.num_nulls(%s) = 0 then array[%s]', b_key, today);
    end if;
    after := after || ' end';
    if gap_v is not null then
      -- Beyond an interruption entries tell no more what this one made of the row.
      after := format('case when coalesce(e.next_v%s) < %s then %s end', case when ahead then '' else ', n.v' end, gap_v, after);
    end if;
    if guarded then
      after := format('case when gnomon.next_of(%s, e.v, e.key) is not distinct from coalesce(e.next_v%s) then %s end', t.id, case when ahead then '' else ', n.v' end, after);
    end if;
  else
    after := 'null::pg_catalog.text[]';
  end if;
  entries := format('e%s x where x.ours', t.id);
  ctes := format($query$e%1$s as materialized (
    select x.v, x.xid, x.at, x.ctx, x.login, x.op, x.key, x.img, x.ours, %2$s as place, %3$s, lead(x.v) over w as next_v%4$s%5$s from %6$s window w as (%7$s)),
  a%1$s as %8$s (select e.v, e.xid, e.at, e.ctx, e.login, e.op, e.key, e.img, e.place%9$s, %10$s as after from e%1$s e%11$s%12$s where e.ours offset 0)%13$s$query$,
    t.id, place, keys, case when p_images then ', lead(x.img) over w as next_img' else '' end,
    case when moves then format(', lead(x.op) over w as next_op, lead(%2$s) over w as next_place, bool_or(x.op = ''m'') over (partition by %1$s, x.xid) and bool_or(x.op = ''n'') over (partition by %1$s, x.xid) as busy', keys, place) else '' end,
    source, w, case when moves then 'materialized' else 'not materialized' end, case when moves then ', e.next_v, e.next_op, e.next_place, e.busy' when saves then ', e.next_v' else '' end, after, lookup, present,
    case when moves then format(', paired%1$s as (select mv.left_v, mv.arrived_v, n.key, n.after, n.busy from annals.move mv join a%1$s n on n.v = mv.arrived_v and n.op = ''n'' where mv.tracked = %1$s)', t.id) else '' end);
  changes := case when not moves then format('select %1$s as history, ' || operation || $plain$ as operation,
    x.key, null::text[] as new_key, x.img as old, x.after as new, x.v, x.place, x.xid, x.at, x.ctx, x.login
    from a%1$s x where x.op <> 'm'%2$s$plain$, t.id, case when p_images and not p_noop and not hidden then ' and (x.op <> ''u'' or x.img is distinct from x.after or x.after is null)' else '' end || saved)
    else format($moved$select %1$s as history, case when x.op in ('u', 'U') and x.next_op = 'm' and (p.left_v is null or x.busy or p.busy) then 'delete'
      when x.op in ('i', 'n') then 'insert' when x.op in ('u', 'U') then 'update' when x.op in ('t', 'T') then 'truncate' else 'delete' end as operation,
    x.key, case when not (x.busy or p.busy) then p.key end as new_key, x.img as old, case when x.op not in ('u', 'U') or x.next_op is distinct from 'm' then x.after when not (x.busy or p.busy) then p.after end as new,
    x.v, case when x.op in ('u', 'U') and x.next_op = 'm' and (p.left_v is null or x.busy or p.busy) then x.next_place else x.place end as place, x.xid, x.at, x.ctx, x.login
    from a%1$s x left join paired%1$s p on x.op in ('u', 'U') and x.next_op = 'm' and p.left_v = x.next_v
    where x.op <> 'm' and not (x.op = 'n' and not x.busy and exists (select from a%1$s m join annals.move mv on mv.tracked = %1$s and mv.left_v = m.v where m.op = 'm' and not m.busy and mv.arrived_v = x.v))%2$s$moved$,
      t.id, case when p_images and not p_noop and not hidden then ' and (x.op <> ''u'' or p.left_v is not null or x.next_op is not distinct from ''m'' or x.img is distinct from x.after or x.after is null)' else '' end || saved) end;
end $$;
comment on function gnomon.history_changes_query is 'SQL for the changes of one history between two places (history, operation, key, new_key, old, new, v, place, xid, at, ctx, login, in no order), for all entries that they come from, and what both refer to.';

create function gnomon.changes_query(p_from gnomon.place, p_to gnomon.place, p_options jsonb default '{}') returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  tables regclass[] := (select array_agg(case when x ~ '^[0-9]+$' then x::oid::regclass else x::regclass end) from jsonb_array_elements_text(nullif(p_options->'tables', 'null')) x);
  histories int[];
  ctes text;
  entries text;
  condition text := '';
  query text;
begin
  if not annals.snapshot_covers(p_to.snapshot, p_from.snapshot) then
    perform gnomon.refuse('GN006', 'the place where the changes begin is not earlier than the one where they end', 'Give the earlier one first.');
  end if;
  if p_options ? 'histories' then
    histories := gnomon.change_histories(p_from, p_to, null, array(select jsonb_array_elements_text(p_options->'histories')::int));
  else
    perform gnomon.check_tables(tables);
    histories := gnomon.change_histories(p_from, p_to, tables);
  end if;
  select string_agg(c.ctes || E',\n', '' order by h), string_agg('select x.xid, x.v from ' || c.entries, ' union all ' order by h), string_agg(c.changes, E'\nunion all\n' order by h) into ctes, entries, query
    from unnest(histories) h, gnomon.history_changes_query(h, p_from, p_to, coalesce((p_options->>'images')::boolean, true), coalesce((p_options->>'noop')::boolean, false)) c;
  query := coalesce(query, 'select 0 as history, '''' as operation, null::text[] as key, null::text[] as new_key, null::text[] as old, null::text[] as new, 0::bigint as v, 0::bigint as place, null::xid8 as xid, null::timestamptz as at, 0::bigint as ctx, 0::oid as login where false');
  if jsonb_array_length(nullif(p_options->'operations', 'null')) > 0 then
    condition := format(' and q.operation = any (%L::text[])', array(select jsonb_array_elements_text(p_options->'operations')));
  end if;
  if coalesce(nullif(p_options->'keys', 'null'), '[]') <> '[]' then
    -- Tables may have been chosen before a key was that fits one of them.
    if not p_options ? 'histories' then
      perform gnomon.check_keys(histories, p_options->'keys');
    end if;
    condition := condition || format(' and ((q.history, to_jsonb(q.key)) in (select (k->>0)::int, k->1 from jsonb_array_elements(%1$L) k) or (q.history, to_jsonb(q.new_key)) in (select (k->>0)::int, k->1 from jsonb_array_elements(%1$L) k))',
      (select coalesce(jsonb_agg(jsonb_build_array(h, k)), '[]') from unnest(histories) h cross join gnomon.given_keys(h, p_options->'keys') k));
  end if;
  if jsonb_typeof(p_options->'delivered') = 'string' then
    -- An erasure may have moved the last position of a transaction to before that of one that was delivered. So what is left is told by transactions.
    condition := condition || format(' and q.xid not in (select x from gnomon.delivered_of(%L) x)', p_options->>'delivered');
    if p_options ? 'within' then
      condition := condition || format(' and (q.xid <> %L or q.place > %s)', (p_options->'within'->>0)::xid8, (p_options->'within'->>1)::bigint);
    end if;
  end if;
  -- Where transactions lie does not depend on which of their changes are wanted.
  return format(E'with %stops as materialized (select x.xid, max(x.v) as top from (%s) x group by x.xid)\n'
    'select q.history, q.operation, q.key, q.new_key, q.old, q.new, q.v, q.place, o.top, ''%s:'' || q.xid::pg_catalog.text as transaction, q.at, q.ctx, q.login from (\n%s) q join tops o on o.xid = q.xid where true%s\norder by o.top, q.place',
    coalesce(ctes, ''), coalesce(entries, 'select null::xid8 as xid, 0::bigint as v where false'), (select max(e.number) from annals.epoch e),
    query, condition);
end $$;
comment on function gnomon.changes_query is 'SQL for the change set between two places. Options: tables, operations, keys (arrays of texts), images, noop (also updates that changed nothing); of a consumer also histories (those chosen for its window), delivered (its name, to leave out transactions that it has had) and within (one that it has had a part of, and the place of the last change of that).';

create function gnomon.change_tables() returns table (history int, relation text, columns text[], types oid[])
language sql stable set search_path = pg_catalog, pg_temp as $$
  select t.id, coalesce((select format('%I.%I', n.nspname, k.relname) from pg_class k join pg_namespace n on n.oid = k.relnamespace where k.oid = t.relation), format('%I.%I', t.schema_name, t.table_name)), i.names, i.types
  from annals.tracked t join gnomon.history h on h.tracked = t.id, lateral (select coalesce(array_agg(c.name::text order by c.n), '{}') as names, coalesce(array_agg(c.type order by c.n), '{}') as types from gnomon.image_columns(t.id) c) i
$$;
comment on function gnomon.change_tables is 'The table of each history, and the columns of its images.';

create function gnomon.changes(p_from text, p_to text default 'now', p_tables regclass[] default null, p_images boolean default true)
returns table (v bigint, transaction text, last boolean, at timestamptz, relation text, operation text, key text[], new_key text[], old jsonb, new jsonb, columns text[], login text)
language plpgsql stable set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
begin
  return query execute format($query$
    with c as materialized (select x.history, x.relation, x.columns as names from gnomon.change_tables() x)
    select q.v, q.transaction, lead(q.top) over (order by q.top, q.place) is distinct from q.top, q.at, c.relation, q.operation, q.key, q.new_key, case when q.old is not null then jsonb_object(c.names, q.old) end, case when q.new is not null then jsonb_object(c.names, q.new) end,
      case when q.operation = 'update' and q.old is not null and q.new is not null then array(select c.names[i] from generate_subscripts(c.names, 1) i where q.old[i] is distinct from q.new[i]) end,
      coalesce(r.rolname::text, q.login::text)
    from (%s) q join c on c.history = q.history left join pg_roles r on r.oid = q.login order by q.top, q.place$query$,
    gnomon.changes_query(gnomon.place_of(p_from), gnomon.place_of(p_to), jsonb_build_object('tables', (select jsonb_agg(format('%I.%I', n.nspname, k.relname)) from unnest(p_tables) x join pg_class k on k.oid = x join pg_namespace n on n.oid = k.relnamespace), 'images', p_images)));
end $$;
comment on function gnomon.changes is 'The changes between two places (coordinates, tag:name, times, now), of the tables given or all: operation (insert, update, delete, truncate), key, new_key where an update changed it, what the row was and became (columns and texts), which columns changed, and who logged in. Transactions come whole; last is true for the last change of each.';
