-- Whether schema $1 exists and has a table of installed steps. Needs no rights,
-- and nothing of the caller's search_path.
select n.oid is not null, c.oid is not null
  from (values ($1::pg_catalog.text)) as wanted (name)
  left join pg_catalog.pg_namespace as n on n.nspname operator(pg_catalog.=) wanted.name
  left join pg_catalog.pg_class as c
         on c.relnamespace operator(pg_catalog.=) n.oid and c.relname operator(pg_catalog.=) 'annals_step'
