-- All tables that volvra covers, or that anybody tracks when histories go as well.
select annals.untrack(t.relation, u)
from annals.tracked t cross join unnest(t.users) u
where t.ended_v is null and exists (select from pg_catalog.pg_class c where c.oid = t.relation) and (u = 'volvra' or $1::boolean)
