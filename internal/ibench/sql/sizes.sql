-- What the tables, each of their indexes, and histories take.
select 'table', sum(pg_catalog.pg_table_size(c.oid))::bigint, 1
from pg_catalog.pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
union all
select 'index ' || pg_catalog.regexp_replace(c.relname, '^purchases[0-9]+_', ''), sum(pg_catalog.pg_relation_size(c.oid))::bigint, 2
from pg_catalog.pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'i' group by 1
union all
select 'history', sum(pg_catalog.pg_total_relation_size(c.oid))::bigint, 3
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = 'annals' and c.relkind = 'r' having count(*) > 0
order by 3, 1
