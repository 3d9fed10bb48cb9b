-- The server's counters at one moment. WAL is in bytes since its beginning; what isn't there in this version or on this server is null.
select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::float8,
       (select wal_fpi from pg_catalog.pg_stat_wal)::float8,
       coalesce(sum(n_dead_tup), 0)::bigint,
       coalesce(sum(n_tup_upd), 0)::bigint,
       coalesce(sum(n_tup_hot_upd), 0)::bigint,
       coalesce(sum(vacuum_count + autovacuum_count), 0)::bigint,
       coalesce(sum(autovacuum_count + autoanalyze_count), 0)::bigint,
       coalesce(sum((pg_catalog.to_jsonb(s) ->> 'total_autovacuum_time')::float8), 0)::float8,
       (select max(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), replay_lsn))::float8 from pg_catalog.pg_stat_replication),
       (select extract(epoch from max(replay_lag))::float8 from pg_catalog.pg_stat_replication)
from pg_catalog.pg_stat_user_tables s
