-- The relation of OID $1.
select c.oid, c.relkind::pg_catalog.text
  from pg_catalog.pg_class as c
 where c.oid operator(pg_catalog.=) $1::pg_catalog.oid
