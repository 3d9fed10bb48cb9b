-- What a session is like, as names and values. A setting that is '' counts as
-- one that was never set, so neither is listed. Those of an extension appear
-- when its library is loaded, which is no change.
select 'setting ' || name, setting
  from pg_catalog.pg_settings
 where setting <> ''
   and not (name like '%.%' and setting is not distinct from boot_val)
union
-- Custom settings are in no view: ask for those that $1 names and for those
-- that functions in this database use.
select 'setting ' || name, pg_catalog.current_setting(name, true)
  from (select pg_catalog.unnest($1::text[])
        union
        select found[1]
          from pg_catalog.pg_proc,
               pg_catalog.regexp_matches(prosrc, $$(?:current_setting|set_config)\s*\(\s*'(\w+\.[\w.]+)'$$, 'gi') as found
         where pronamespace <> 'pg_catalog'::pg_catalog.regnamespace) as custom (name)
 where pg_catalog.current_setting(name, true) <> ''
union all
select 'current_user', current_user::text
union all
select 'session_user', session_user::text
union all
select 'role', pg_catalog.current_setting('role')
union all
-- Locks of the session and of the transaction look alike here.
select pg_catalog.format('advisory lock %s %s %s %s', mode, classid, objid, objsubid), 'held'
  from pg_catalog.pg_locks
 where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid() and granted
union all
select 'listening to ' || channel, 'yes'
  from pg_catalog.pg_listening_channels() as channel
union all
select 'temporary relation ' || relname, relkind::text
  from pg_catalog.pg_class
 where relnamespace = pg_catalog.pg_my_temp_schema()
union all
-- The portal of this very query has no name.
select 'cursor ' || name, statement
  from pg_catalog.pg_cursors
 where name <> ''
