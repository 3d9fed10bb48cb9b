-- From here on this session's commits are flushed, and so is every commit before them. Vacuum can't mark rows
-- all-visible whose insert, or one of its neighbours in the commit log, was committed with synchronous_commit off
-- and has not been flushed yet: right after loading that is every row.
set synchronous_commit = on;
-- A transaction that writes no WAL flushes none. Nobody reads the message.
select pg_logical_emit_message(true, 'bench', '');
