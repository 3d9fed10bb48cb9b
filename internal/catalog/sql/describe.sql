-- Describes each of the tables and views $1 (OIDs) as one JSON document, whose
-- keys are the names of the Go fields in lower case. search_path is pinned.
-- Columns that not every version has are reached through to_jsonb.
with relation as not materialized (
    select c.oid, n.nspname, c.relname,
           case c.relkind when 'r' then 'ordinary table' when 'p' then 'partitioned table'
                when 'f' then 'foreign table' when 'v' then 'view' when 'm' then 'materialized view' end as kind,
           pg_get_expr(c.relpartbound, c.oid) as bound
      from pg_class as c
      join pg_namespace as n on n.oid = c.relnamespace
), unique_key as not materialized (
    select i.indrelid, i.indisprimary, x.relname, json_build_object(
               'name', coalesce(con.conname, x.relname),
               'constraint', con.oid is not null,
               'indexoid', i.indexrelid::bigint,
               'columns', (select json_agg(coalesce(a.attname, '') order by k.place)
                             from unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
                             left join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
                            where k.place <= i.indnkeyatts), -- INCLUDE columns come after those
               'definition', pg_get_indexdef(i.indexrelid),
               'expressions', i.indexprs is not null,
               'predicate', coalesce(pg_get_expr(i.indpred, i.indrelid), ''),
               'nullsnotdistinct', i.indnullsnotdistinct,
               'valid', i.indisvalid,
               'withoutoverlaps', i.indisexclusion,
               'deferrable', coalesce(con.condeferrable, false),
               'initiallydeferred', coalesce(con.condeferred, false)) as description
      from pg_index as i
      join pg_class as x on x.oid = i.indexrelid
      left join pg_constraint as con on con.conindid = i.indexrelid and con.contype in ('p', 'u')
     where i.indisunique
), foreign_key as not materialized (
    select con.conrelid, con.confrelid, con.conname, con.oid, json_build_object(
               'name', con.conname,
               'table', json_build_object('oid', f.oid::bigint, 'schema', f.nspname, 'name', f.relname, 'kind', f.kind),
               'columns', (select json_agg(a.attname order by k.place)
                             from unnest(con.conkey) with ordinality as k (attnum, place)
                             join pg_attribute as a on a.attrelid = con.conrelid and a.attnum = k.attnum),
               'references', json_build_object('oid', t.oid::bigint, 'schema', t.nspname, 'name', t.relname, 'kind', t.kind),
               'referencedcolumns', (select json_agg(a.attname order by k.place)
                                       from unnest(con.confkey) with ordinality as k (attnum, place)
                                       join pg_attribute as a on a.attrelid = con.confrelid and a.attnum = k.attnum),
               'ondelete', del.action,
               'ondeletecolumns', (select json_agg(a.attname order by k.place)
                                     from unnest(con.confdelsetcols) with ordinality as k (attnum, place)
                                     join pg_attribute as a on a.attrelid = con.conrelid and a.attnum = k.attnum),
               'onupdate', upd.action,
               'match', case con.confmatchtype when 's' then 'simple' when 'f' then 'full' end,
               'deferrable', con.condeferrable,
               'initiallydeferred', con.condeferred,
               'validated', con.convalidated,
               'enforced', coalesce((to_jsonb(con) ->> 'conenforced')::boolean, true),
               'period', coalesce((to_jsonb(con) ->> 'conperiod')::boolean, false),
               'derived', con.conparentid <> 0) as description
      from pg_constraint as con
      join relation as f on f.oid = con.conrelid
      join relation as t on t.oid = con.confrelid
      join (values ('a'::"char", 'no action'), ('r', 'restrict'), ('c', 'cascade'), ('n', 'set null'), ('d', 'set default'))
           as del (code, action) on del.code = con.confdeltype
      join (values ('a'::"char", 'no action'), ('r', 'restrict'), ('c', 'cascade'), ('n', 'set null'), ('d', 'set default'))
           as upd (code, action) on upd.code = con.confupdtype
     where con.contype = 'f'
)
select json_build_object(
    'oid', c.oid::bigint,
    'schema', r.nspname,
    'name', r.relname,
    'kind', r.kind,
    'persistence', case c.relpersistence when 'p' then 'permanent' when 'u' then 'unlogged' when 't' then 'temporary' end,
    'owner', pg_get_userbyid(c.relowner),

    'columns', (
        select json_agg(json_build_object(
                   'number', a.attnum,
                   'name', a.attname,
                   'type', format_type(a.atttypid, a.atttypmod),
                   'typeoid', a.atttypid::bigint,
                   'typemod', a.atttypmod,
                   'collation', coalesce((select quote_ident(n.nspname) || '.' || quote_ident(k.collname)
                                            from pg_collation as k
                                            join pg_namespace as n on n.oid = k.collnamespace
                                           where k.oid = a.attcollation and a.attcollation <> y.typcollation), ''),
                   'notnull', a.attnotnull and not exists (
                       select from pg_constraint as con -- PostgreSQL 18 has NOT NULL ... NOT VALID
                        where con.conrelid = a.attrelid and con.contype = 'n' and con.conkey[1] = a.attnum and not con.convalidated),
                   'default', case when a.attgenerated = '' then coalesce(pg_get_expr(d.adbin, d.adrelid), '') else '' end,
                   'generated', case a.attgenerated when 's' then 'stored' when 'v' then 'virtual' else '' end,
                   'formula', case when a.attgenerated <> '' then pg_get_expr(d.adbin, d.adrelid) else '' end,
                   'identity', case a.attidentity when 'a' then 'always' when 'd' then 'by default' else '' end,
                   'storage', case a.attstorage when 'p' then 'plain' when 'e' then 'external' when 'x' then 'extended' when 'm' then 'main' end,
                   'toastable', a.attstorage <> 'p',
                   'inherited', a.attinhcount > 0) order by a.attnum)
          from pg_attribute as a
          join pg_type as y on y.oid = a.atttypid
          left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),

    'primarykey', (select description from unique_key where indrelid = c.oid and indisprimary),
    'uniquekeys', (select json_agg(description order by relname) from unique_key where indrelid = c.oid and not indisprimary),
    'exclusions', (
        select json_agg(json_build_object(
                   'name', con.conname,
                   'columns', (select json_agg(coalesce(a.attname, '') order by k.place)
                                 from unnest(con.conkey) with ordinality as k (attnum, place)
                                 left join pg_attribute as a on a.attrelid = con.conrelid and a.attnum = k.attnum),
                   'definition', pg_get_constraintdef(con.oid),
                   'deferrable', con.condeferrable,
                   'initiallydeferred', con.condeferred) order by con.conname)
          from pg_constraint as con
         where con.conrelid = c.oid and con.contype = 'x'),
    'checks', (
        select json_agg(json_build_object(
                   'name', con.conname,
                   'columns', (select json_agg(a.attname order by a.attnum)
                                 from pg_attribute as a
                                where a.attrelid = con.conrelid and a.attnum = any (con.conkey)),
                   'expression', pg_get_expr(con.conbin, con.conrelid),
                   'validated', con.convalidated,
                   'enforced', coalesce((to_jsonb(con) ->> 'conenforced')::boolean, true),
                   'noinherit', con.connoinherit,
                   'inherited', con.coninhcount > 0) order by con.conname)
          from pg_constraint as con
         where con.conrelid = c.oid and con.contype = 'c'),
    'foreignkeys', (select json_agg(description order by conname, oid) from foreign_key where conrelid = c.oid),
    'referencedby', (select json_agg(description order by conname, oid) from foreign_key where confrelid = c.oid),

    'triggers', (
        select json_agg(json_build_object(
                   'name', t.tgname,
                   'timing', case when t.tgtype & 64 <> 0 then 'instead of' when t.tgtype & 2 <> 0 then 'before' else 'after' end,
                   'events', (select json_agg(e.name order by e.bit)
                                from (values (4, 'insert'), (8, 'delete'), (16, 'update'), (32, 'truncate')) as e (bit, name)
                               where t.tgtype & e.bit <> 0),
                   'columns', (select json_agg(a.attname order by k.place)
                                 from unnest(t.tgattr::int2[]) with ordinality as k (attnum, place)
                                 join pg_attribute as a on a.attrelid = t.tgrelid and a.attnum = k.attnum),
                   'foreachrow', t.tgtype & 1 <> 0,
                   'when', t.tgqual is not null,
                   'oldtable', coalesce(t.tgoldtable, ''),
                   'newtable', coalesce(t.tgnewtable, ''),
                   'enabled', case t.tgenabled when 'O' then 'origin' when 'R' then 'replica' when 'A' then 'always' when 'D' then 'disabled' end,
                   'function', quote_ident(n.nspname) || '.' || quote_ident(p.proname),
                   'functionoid', t.tgfoid::bigint,
                   'constraint', t.tgconstraint <> 0,
                   'deferrable', t.tgdeferrable,
                   'initiallydeferred', t.tginitdeferred,
                   'internal', t.tgisinternal,
                   'cloned', t.tgparentid <> 0,
                   'definition', pg_get_triggerdef(t.oid)) order by t.tgname)
          from pg_trigger as t
          join pg_proc as p on p.oid = t.tgfoid
          join pg_namespace as n on n.oid = p.pronamespace
         where t.tgrelid = c.oid),

    'rowsecurity', c.relrowsecurity,
    'forcedrowsecurity', c.relforcerowsecurity,
    'policies', (
        select json_agg(json_build_object(
                   'name', p.polname,
                   'command', case p.polcmd when '*' then 'all' when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete' end,
                   'permissive', p.polpermissive,
                   'roles', (select json_agg(case k.role when 0 then 'public' else pg_get_userbyid(k.role) end order by k.place)
                               from unnest(p.polroles) with ordinality as k (role, place)),
                   'using', coalesce(pg_get_expr(p.polqual, p.polrelid), ''),
                   'withcheck', coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')) order by p.polname)
          from pg_policy as p
         where p.polrelid = c.oid),

    'replicaidentity', case c.relreplident when 'd' then 'default' when 'n' then 'nothing' when 'f' then 'full' when 'i' then 'index' end,
    'replicaidentityindex', coalesce((select x.relname from pg_index as i join pg_class as x on x.oid = i.indexrelid
                                       where i.indrelid = c.oid and i.indisreplident), ''),

    'partitionstrategy', coalesce((select case p.partstrat when 'l' then 'list' when 'r' then 'range' when 'h' then 'hash' end
                                     from pg_partitioned_table as p where p.partrelid = c.oid), ''),
    'partitionkey', case c.relkind when 'p' then pg_get_partkeydef(c.oid) else '' end,
    'partitionbound', coalesce(r.bound, ''),
    'ancestors', (
        with recursive above (oid, level) as (
            select i.inhparent, 1 from pg_inherits as i where i.inhrelid = c.oid
            union
            select i.inhparent, a.level + 1 from above as a join pg_inherits as i on i.inhrelid = a.oid
        ), nearest as (
            select oid, min(level) as level from above group by oid
        )
        select json_agg(json_build_object(
                   'oid', a.oid::bigint, 'schema', a.nspname, 'name', a.relname, 'kind', a.kind,
                   'level', nearest.level, 'partitionbound', coalesce(a.bound, '')) order by nearest.level, a.nspname, a.relname)
          from nearest
          join relation as a on a.oid = nearest.oid),
    'descendants', (
        with recursive below (oid, parent, level, detaching) as (
            select i.inhrelid, i.inhparent, 1, i.inhdetachpending from pg_inherits as i where i.inhparent = c.oid
            union
            select i.inhrelid, i.inhparent, b.level + 1, i.inhdetachpending
              from below as b join pg_inherits as i on i.inhparent = b.oid
        ), nearest as (
            select distinct on (oid) * from below order by oid, level, parent
        )
        select json_agg(json_build_object(
                   'oid', d.oid::bigint, 'schema', d.nspname, 'name', d.relname, 'kind', d.kind,
                   'level', nearest.level, 'parent', nearest.parent::bigint, 'partitionbound', coalesce(d.bound, ''),
                   'detachpending', nearest.detaching) order by nearest.level, d.nspname, d.relname)
          from nearest
          join relation as d on d.oid = nearest.oid)
)::text
  from pg_class as c
  join relation as r on r.oid = c.oid
 where c.oid = any ($1::oid[]) and r.kind is not null
 order by r.nspname, r.relname
