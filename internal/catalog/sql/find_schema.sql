-- The tables of schema $1; one row without a table when there is none.
select coalesce(c.oid, 0), coalesce(c.relkind::pg_catalog.text, '')
  from pg_catalog.pg_namespace as n
  left join pg_catalog.pg_class as c
         on c.relnamespace operator(pg_catalog.=) n.oid
        and c.relkind operator(pg_catalog.=) any (array['r', 'p', 'f']::pg_catalog."char"[])
 where n.nspname operator(pg_catalog.=) $1::pg_catalog.text
