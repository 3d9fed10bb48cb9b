-- What the figures depend on.
select pg_catalog.version(), pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('data_checksums') = 'on',
       coalesce((select pg_catalog.array_agg(name || ' = ' || pg_catalog.current_setting(name) order by name) from pg_catalog.pg_settings
         where source not in ('default', 'client', 'session', 'override') and setting is distinct from boot_val
         and name !~ '^(lc_|log_|default_text|unix_socket|listen|port|primary_)'), '{}')
