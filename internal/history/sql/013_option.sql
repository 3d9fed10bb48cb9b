-- Which tables can be tracked, and with which options.

create function annals.owner() returns oid
language sql stable set search_path = pg_catalog, pg_temp
return (select n.nspowner from pg_namespace n where n.nspname = 'annals');
comment on function annals.owner is 'The role that installed the history engine: its functions act as this role.';

create function annals.refusal_to_track(p_relation oid) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select k.relkind, k.relpersistence, k.relispartition, k.relowner, n.nspname into c from pg_class k join pg_namespace n on n.oid = k.relnamespace where k.oid = p_relation;
  return case
    when not found then 'it does not exist'
    when c.relkind not in ('r', 'p') then 'it is no table'
    when c.relispartition then 'it is a partition: track the partitioned table'
    when c.relpersistence = 't' then 'it is a temporary table'
    when c.relpersistence = 'u' then 'it is unlogged: a crash empties it, which nothing captures'
    when c.nspname in ('pg_catalog', 'information_schema', 'annals', 'volvra', 'gnomon') or c.nspname like 'pg\_toast%' then 'it belongs to the system'
    when exists (select from pg_partition_tree(p_relation) p join pg_class k on k.oid = p.relid where k.relkind = 'f') then 'one of its partitions is a foreign table'
    when not pg_has_role(annals.owner(), c.relowner, 'USAGE') then format('it belongs to %I, and %I, which installed annals, is not a member of that role', c.relowner::regrole, annals.owner()::regrole)
    when annals.key_index(p_relation) is null then
      case when exists (select from pg_index i join pg_constraint k on k.conindid = i.indexrelid where i.indrelid = p_relation and i.indisunique and k.condeferred)
           then 'its key is INITIALLY DEFERRED: rows cannot be told apart until the transaction ends'
           when exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[]) where i.indrelid = p_relation and i.indisprimary and annals.runs_code(a.atttypid))
           then 'a column of its key holds domains within a type, whose constraints would be checked with the rights of who installed annals' else 'it has no primary key and no unique key of not-null columns' end
  end;
end $$;
comment on function annals.refusal_to_track is 'Why a table cannot be tracked; null when it can.';

create function annals.check_options(p_relation oid, p_options jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  bad text;
begin
  if coalesce(jsonb_typeof(p_options), '') <> 'object' then
    perform annals.refuse('AN003', 'the options are no JSON object', 'Options are exclude, truncate, skip_noop, full, wide, warn_rows, replica and form.');
  end if;
  select string_agg(k, ', ' order by k) into bad from jsonb_object_keys(p_options) k where k not in ('exclude', 'truncate', 'skip_noop', 'full', 'wide', 'warn_rows', 'replica', 'form');
  if bad is not null then
    perform annals.refuse('AN003', format('unknown option: %s', bad), 'Options are exclude, truncate, skip_noop, full, wide, warn_rows, replica and form.');
  end if;
  if coalesce(p_options->>'truncate', 'capture') not in ('capture', 'refuse', 'allow') then
    perform annals.refuse('AN003', format('option truncate is %L', p_options->>'truncate'), 'It is capture, refuse or allow.');
  end if;
  if coalesce(p_options->>'form', 'auto') not in ('auto', 'row') then
    perform annals.refuse('AN003', format('option form is %L', p_options->>'form'), 'It is auto or row.');
  end if;
  select string_agg(o.key, ', ' order by o.key) into bad from jsonb_each(p_options) o where o.key in ('skip_noop', 'full', 'replica') and jsonb_typeof(o.value) not in ('boolean', 'null');
  if bad is not null then
    perform annals.refuse('AN003', format('option %s is neither true nor false', bad), 'It is true or false.');
  end if;
  if coalesce(jsonb_typeof(p_options->'warn_rows'), 'null') <> 'null' then
    if jsonb_typeof(p_options->'warn_rows') <> 'number' or (p_options->>'warn_rows')::numeric not between 1 and 9e15 or (p_options->>'warn_rows')::numeric <> trunc((p_options->>'warn_rows')::numeric) then
      perform annals.refuse('AN003', format('option warn_rows is %s', p_options->'warn_rows'), 'It is a number of rows, 1 or more.');
    end if;
  end if;
  select string_agg(o.key, ', ' order by o.key) into bad from jsonb_each(p_options) o
    where o.key in ('exclude', 'wide') and (jsonb_typeof(o.value) <> 'array' or jsonb_path_exists(o.value, 'strict $[*] ? (@.type() != "string")'));
  if bad is not null then
    perform annals.refuse('AN003', format('option %s is no list of names', bad), 'It is an array of column names.');
  end if;
  select string_agg(quote_ident(name), ', ' order by name) into bad
    from (select jsonb_array_elements_text(coalesce(p_options->'exclude', '[]')) union select jsonb_array_elements_text(coalesce(p_options->'wide', '[]'))) o (name)
    where not exists (select from pg_attribute a where a.attrelid = p_relation and a.attname = o.name and a.attnum > 0 and not a.attisdropped);
  if bad is not null then
    perform annals.refuse('AN003', format('%s has no column %s', p_relation::regclass, bad), 'Name columns as they are in the catalog, without quotes.');
  end if;
  select string_agg(quote_ident(a.attname), ', ') into bad
    from pg_index i join pg_attribute a on a.attrelid = p_relation and a.attnum = any (i.indkey::int2[]) and p_options->'exclude' ? a.attname::text
    where i.indexrelid = annals.key_index(p_relation);
  if bad is not null then
    perform annals.refuse('AN003', format('column %s is part of the key of %s and cannot be excluded', bad, p_relation::regclass), 'The key tells whose history an entry is.');
  end if;
end $$;
comment on function annals.check_options is 'Refuses options that make no sense for a table.';

-- What is compared with what the catalog says, and what reads the words of functions, must not depend on settings of the session.
do $$
declare
  f regprocedure;
begin
  foreach f in array array['annals.track', 'annals.untrack', 'annals.sync', 'annals.adopt', 'annals.rotate', 'annals.materialize', 'annals.free_key', 'annals.drift', 'annals.check_capture',
                           'annals.on_ddl_end', 'annals.on_rewrite', 'annals.on_drop']::regproc[]::regprocedure[] loop
    execute format('alter function %s set quote_all_identifiers = off', f);
    execute format('alter function %s set standard_conforming_strings = on', f);
  end loop;
end $$;
