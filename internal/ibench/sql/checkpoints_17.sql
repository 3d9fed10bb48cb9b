-- How many checkpoints there were, since version 17.
select num_timed + num_requested from pg_catalog.pg_stat_checkpointer
