-- The life of a row, see annals.life, and which of its changes made each column what it is.

create function gnomon.check_key(p_tracked int, p_key text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  t annals.tracked;
  names text;
  k record;
begin
  select * into t from annals.tracked x where x.id = p_tracked;
  select string_agg(quote_ident(c.name), ', ' order by u.i) into names
    from unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.tracked = p_tracked and c.n = u.n;
  if p_key is null or array_ndims(p_key) is distinct from 1 or cardinality(p_key) <> cardinality(t.key) or array_position(p_key, null) is not null then
    perform gnomon.refuse('GN006', format('%s is no key of %s', coalesce(p_key::text, 'null'), t.relation), format('A key is an array with the values of %s, as texts.', names),
      jsonb_build_object('table', t.relation::text));
  end if;
  for k in select u.i, a.atttypid as type from unnest(t.key) with ordinality u (n, i)
             join pg_attribute a on a.attrelid = format('annals.h%s', p_tracked)::regclass and a.attname = format('c%s', u.n) loop
    begin
      execute 'select ' || annals.literal(p_key[k.i], k.type);
    exception when others then
      perform gnomon.refuse('GN006', format('key of %s: %s', t.relation, sqlerrm), format('It takes a value of type %s, as text.', format_type(k.type, -1)), jsonb_build_object('table', t.relation::text));
    end;
  end loop;
end $$;
comment on function gnomon.check_key is 'Refuses what is no whole key of a tracked table.';

create function gnomon.life(p_table regclass, p_key text[])
returns table (tracked int, life int, v bigint, transaction text, at timestamptz, operation text, key text[], columns jsonb, note text, login text, role text, actor text, application text, client inet)
language plpgsql stable set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  histories int[] := array(select k.id from annals.tracked k join gnomon.history h on h.tracked = k.id where k.relation = p_table order by k.id desc);
begin
  if not has_table_privilege(p_table, 'select') then
    perform gnomon.refuse('42501', format('permission denied for the history of %s', p_table), 'It takes SELECT on the table.', jsonb_build_object('table', p_table::text));
  elsif histories = '{}' then
    perform gnomon.refuse('GN007', format('table %s is not tracked, and never was', p_table), 'Track it with gnomon.track: its history begins then.', jsonb_build_object('table', p_table::text));
  end if;
  perform gnomon.check_key(histories[1], p_key);
  return query select * from annals.life(histories, p_key);
end $$;
comment on function gnomon.life is 'What annals.life tells of a tracked table, with texts that do not depend on settings.';

create function gnomon.history(p_table regclass, p_key text[], p_from timestamptz default null, p_to timestamptz default null, p_limit int default null)
returns table (v bigint, transaction text, at timestamptz, operation text, key text[], columns jsonb, note text, login text, role text, actor text, application text, client inet)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_limit < 0 then
    perform gnomon.refuse('GN006', format('a limit cannot be %s', p_limit), 'Leave it out for all.');
  end if;
  return query select l.v, l.transaction, l.at, l.operation, l.key, l.columns, l.note, l.login, l.role, l.actor, l.application, l.client from gnomon.life(p_table, p_key) l
    where (p_from is null or l.at >= p_from) and (p_to is null or l.at < p_to) order by l.v desc limit p_limit;
end $$;
comment on function gnomon.history is 'The life of the rows that ever had a key, newest change first: what was done, which columns changed from what to what (as text), when (the start of its transaction), and by whom; from p_from on and before p_to, the last p_limit. Rows are followed through changes of their key. Updates that changed nothing are left out. A note says where something is not known: erased, hidden from the caller, or not captured.';

create function gnomon.blame(p_table regclass, p_key text[])
returns table ("column" text, old text, new text, v bigint, transaction text, at timestamptz, operation text, note text, login text, role text, actor text, application text, client inet)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with versions as materialized (select * from gnomon.life(p_table, p_key)),
  last as (select l.* from versions l where (l.tracked, l.life) = (select x.tracked, x.life from versions x order by x.tracked desc, x.life desc limit 1))
  select c.name, b.columns->c.name->>'from', b.columns->c.name->>'to', b.v, b.transaction, b.at, b.operation, b.note, b.login, b.role, b.actor, b.application, b.client
  from (select distinct tracked from last) t join annals.tracked_column c on c.tracked = t.tracked and c.gone_v is null and not c.excluded and not c.generated
  -- What a change did that is not fully known may have been this column.
  join lateral (select l.* from last l where l.columns ? c.name or l.note is not null order by l.v desc limit 1) b on true
  order by c.n
$$;
comment on function gnomon.blame is 'The last change of each column of the row that has, or last had, a key; columns that have not changed since tracking began are left out. Where a note says that something about that change is not known, an earlier one may have been the column''s last.';
