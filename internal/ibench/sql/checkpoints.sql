-- How many checkpoints there were: since version 17 they are counted elsewhere.
select checkpoints_timed + checkpoints_req from pg_catalog.pg_stat_bgwriter
