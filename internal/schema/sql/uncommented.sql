-- What has no comment in schema $1. Left out is what would say the same again:
-- partitions, indexes behind constraints, sequences behind columns, row types,
-- arrays, inherited columns, and columns of views, whose query tells.
with home as (
    select oid from pg_catalog.pg_namespace where nspname = $1
), relation as (
    select c.oid, c.relkind
      from pg_catalog.pg_class as c
     where c.relnamespace = (select oid from home)
       and not c.relispartition
), object (classid, objid, objsubid) as (
    select 'pg_catalog.pg_namespace'::pg_catalog.regclass, oid, 0 from home
    union all
    select 'pg_catalog.pg_class'::pg_catalog.regclass, r.oid, 0
      from relation as r
     where r.relkind in ('r', 'p', 'v', 'm', 'f')
        or r.relkind in ('i', 'I') and not exists (select from pg_catalog.pg_constraint where conindid = r.oid)
        or r.relkind = 'S' and not exists (
               select from pg_catalog.pg_depend
                where classid = 'pg_catalog.pg_class'::pg_catalog.regclass and objid = r.oid and deptype in ('a', 'i'))
    union all
    select 'pg_catalog.pg_class'::pg_catalog.regclass, r.oid, a.attnum
      from relation as r
      join pg_catalog.pg_attribute as a on a.attrelid = r.oid
     where r.relkind in ('r', 'p', 'f', 'c') and a.attnum > 0 and not a.attisdropped and a.attinhcount = 0
    union all
    select 'pg_catalog.pg_trigger'::pg_catalog.regclass, t.oid, 0
      from relation as r
      join pg_catalog.pg_trigger as t on t.tgrelid = r.oid
     where not t.tgisinternal
    union all
    select 'pg_catalog.pg_policy'::pg_catalog.regclass, p.oid, 0
      from relation as r
      join pg_catalog.pg_policy as p on p.polrelid = r.oid
    union all
    select 'pg_catalog.pg_proc'::pg_catalog.regclass, p.oid, 0
      from pg_catalog.pg_proc as p
     where p.pronamespace = (select oid from home)
       -- The constructors of a range type belong to it.
       and not exists (select from pg_catalog.pg_depend
                        where classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and objid = p.oid and deptype = 'i')
    union all
    select 'pg_catalog.pg_type'::pg_catalog.regclass, t.oid, 0
      from pg_catalog.pg_type as t
     where t.typnamespace = (select oid from home)
       and (t.typtype in ('d', 'e', 'r', 'b') and t.typelem = 0
            or t.typtype = 'c' and exists (select from relation as r where r.oid = t.typrelid and r.relkind = 'c'))
    union all
    select 'pg_catalog.pg_operator'::pg_catalog.regclass, o.oid, 0
      from pg_catalog.pg_operator as o
     where o.oprnamespace = (select oid from home)
)
select pg_catalog.pg_describe_object(o.classid, o.objid, o.objsubid)
  from object as o
 where not exists (
           select from pg_catalog.pg_description as d
            where d.classoid = o.classid and d.objoid = o.objid and d.objsubid = o.objsubid)
 order by 1
