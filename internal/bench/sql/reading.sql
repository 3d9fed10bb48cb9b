-- WAL position in bytes (none on a standby) and the backends of application $1. Backends that are just starting
-- have no application_name yet; nobody connects while this is read.
select case when not pg_is_in_recovery()
            then (pg_current_wal_insert_lsn() - pg_lsn '0/0')::bigint end,
       array(select pid from pg_stat_activity where application_name = $1)
