-- Undoing merges, and bringing a branch up to date. Both are merges: of the inverse of what was written, and of what main has changed since.

create function gnomon.wrote(p_merge bigint) returns table (tracked int, relation text, query text)
language sql stable set search_path = pg_catalog, pg_temp as $$ select null::int, null::text, null::text where false $$;
comment on function gnomon.wrote is 'The tables of main that a merge wrote, and for each a query for the rows as they were before and after it.';
