-- The relation that name $1 means to the caller.
select c.oid, c.relkind::pg_catalog.text
  from pg_catalog.pg_class as c
 where c.oid operator(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)
