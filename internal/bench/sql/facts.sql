-- One line of the settings that decide what the figures mean.
select string_agg(name || '=' || current_setting(name), ' ' order by position)
from unnest(array['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level',
                  'shared_buffers', 'autovacuum', 'jit']) with ordinality as setting(name, position)
