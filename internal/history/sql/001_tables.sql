-- Where history is kept. A tracked table has one history, in segments: plain tables of bounded size, each with the columns that the
-- tracked table had when the segment was begun. So neither growth nor a schema change ever touches a row that is already there.

-- Order of all entries: taken under the row's lock, so it follows the order of commits along each row.
create sequence annals.v cache 1;
comment on sequence annals.v is 'Positions of history entries. Along one row, a later change has a higher position.';

create table annals.epoch (
  number int primary key generated always as identity,
  system_identifier bigint not null,
  database oid not null,
  home text not null,
  timeline text not null,
  marker uuid not null,
  began_at timestamptz not null default clock_timestamp(),
  began_v bigint not null
);
comment on table annals.epoch is 'Spans in which transaction ids can be compared. Only a restore into another cluster or database begins another: what a crash or a promotion loses, it loses with its history.';
comment on column annals.epoch.number is 'Number of the epoch; the highest is the present one.';
comment on column annals.epoch.system_identifier is 'Of the cluster, see pg_control_system().';
comment on column annals.epoch.database is 'OID of the database.';
comment on column annals.epoch.home is 'Objects of the schema as they were created in the database: clusters made from one image share the other two.';
comment on column annals.epoch.timeline is 'Timeline of the write-ahead log, in hexadecimal, when it was last looked at.';
comment on column annals.epoch.marker is 'What annals.epoch_marker holds: another one after a crash or promotion, since coordinates taken before may know of transactions that were lost. Coordinates begin with it.';
comment on column annals.epoch.began_at is 'When the epoch was noticed.';
comment on column annals.epoch.began_v is 'Entries of earlier epochs have lower positions, and all coordinates of this epoch see them.';

create unlogged table annals.epoch_marker (only_row boolean primary key default true check (only_row), marker uuid not null);
comment on table annals.epoch_marker is 'One row, which a crash and a promotion remove: so they are noticed.';
comment on column annals.epoch_marker.only_row is 'True.';
comment on column annals.epoch_marker.marker is 'The marker of the present epoch.';

-- Not unique: two sessions that register one context at once must not wait for each other. Their rows are equal.
create table annals.context (
  hash bigint not null,
  login oid not null,
  login_name text not null,
  role_name text not null,
  actor text not null,
  application text not null,
  client inet,
  at timestamptz not null default now(),
  v bigint not null default nextval('annals.v'),
  xid xid8 not null default pg_current_xact_id()
);
create index context_hash on annals.context (hash);
comment on table annals.context is 'Who changed rows: what the contexts of history entries stand for. A context can stand here more than once.';
comment on column annals.context.hash is 'Hash of the columns that say who; entries carry it.';
comment on column annals.context.login is 'OID of the session''s role (session_user).';
comment on column annals.context.login_name is 'Its name at that time.';
comment on column annals.context.role_name is 'What SET ROLE chose, else ''none''.';
comment on column annals.context.actor is 'Who the application says it is (setting annals.actor).';
comment on column annals.context.application is 'The setting application_name.';
comment on column annals.context.client is 'Address of the client; null for a local socket.';
comment on column annals.context.at is 'When it was first seen.';
comment on column annals.context.v is 'Position of its registration among the entries.';
comment on column annals.context.xid is 'Transaction that registered it.';
comment on index annals.context_hash is 'Finds the context of an entry.';

create table annals.tracked (
  id int primary key generated always as identity,
  relation regclass,
  relation_oid oid not null,
  schema_name name not null,
  table_name name not null,
  key int[] not null,
  key_index name not null,
  form text not null check (form in ('statement', 'row')),
  update_form text not null check (update_form in ('statement', 'row')),
  partitioned boolean not null,
  nests boolean not null,
  options jsonb not null,
  users text[] not null,
  wide int[] not null default '{}',
  began_v bigint not null,
  began_at timestamptz not null default clock_timestamp(),
  began_xid xid8 not null default pg_current_xact_id(),
  epoch int not null references annals.epoch,
  behind boolean not null default false,
  off boolean not null default false,
  key_lost_v bigint,
  key_free boolean not null default false,
  saved_xid xid8,
  pruned_v bigint,
  pruned_xid xid8,
  pruned_columns int[],
  ended_v bigint,
  ended_at timestamptz,
  ended_why text,
  version bigint not null default nextval('annals.v')
);
create unique index tracked_once on annals.tracked (relation_oid, epoch) where ended_v is null;
comment on table annals.tracked is 'Tables whose changes are or were captured. A table that is tracked again gets another row.';
comment on column annals.tracked.id is 'Number of the history; its objects are named h<id>.';
comment on column annals.tracked.relation is 'The table, for partitions the topmost. Follows a dump and restore; null once it is dropped.';
comment on column annals.tracked.relation_oid is 'OID that the table had when it was last looked at.';
comment on column annals.tracked.schema_name is 'Schema of the table when it was last looked at.';
comment on column annals.tracked.table_name is 'Name of the table when it was last looked at.';
comment on column annals.tracked.key is 'Columns of the key that identifies rows, as numbers of annals.tracked_column, in the order of its index.';
comment on column annals.tracked.key_index is 'Name of the unique index that the key is.';
comment on column annals.tracked.form is 'Whether inserts are captured by statement or by row.';
comment on column annals.tracked.update_form is 'Whether updates and deletes are captured by statement or by row.';
comment on column annals.tracked.partitioned is 'The table is partitioned, and its history holds the rows of all partitions.';
comment on column annals.tracked.nests is 'Triggers or constraints may change rows of the table again within one statement, so entries carry the start of theirs.';
comment on column annals.tracked.options is 'Options in force: exclude, truncate, skip_noop, full, wide, warn_rows, replica, form.';
comment on column annals.tracked.users is 'Which packages want this history.';
comment on column annals.tracked.wide is 'Columns that are stored only when they change.';
comment on column annals.tracked.began_v is 'Position at which capture began.';
comment on column annals.tracked.began_at is 'When capture began.';
comment on column annals.tracked.began_xid is 'Transaction that began capture.';
comment on column annals.tracked.epoch is 'Epoch in which the table was last looked at.';
comment on column annals.tracked.behind is 'A change of the table was met that capture could not follow: what is found next may be older.';
comment on column annals.tracked.off is 'A trigger of capture was found disabled, and changes go by uncaptured.';
comment on column annals.tracked.key_lost_v is 'Position from which the table has no key any more; null while it has one.';
comment on column annals.tracked.key_free is 'Its triggers do not name the key columns at the moment, see annals.free_key.';
comment on column annals.tracked.saved_xid is 'Last transaction that saved an image of every row, see annals.materialize.';
comment on column annals.tracked.pruned_v is 'History begins here: entries below were pruned.';
comment on column annals.tracked.pruned_xid is 'Highest transaction of a pruned entry, in the present epoch.';
comment on column annals.tracked.pruned_columns is 'Columns of the last segment that was pruned.';
comment on column annals.tracked.ended_v is 'Position at which capture ended; null while it goes on.';
comment on column annals.tracked.ended_at is 'When capture ended.';
comment on column annals.tracked.ended_why is 'Why capture ended.';
comment on column annals.tracked.version is 'Another one whenever the row changes or the history is interrupted: who remembers it need not look at all that says how far back the history tells.';
comment on index annals.tracked_once is 'A table has at most one history that goes on.';

create function annals.count_version() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.version := nextval('annals.v');
  return new;
end $$;
comment on function annals.count_version is 'Gives a changed row another version.';
create trigger count_version before update on annals.tracked for each row execute function annals.count_version();
comment on trigger count_version on annals.tracked is 'Keeps the version.';

create table annals.tracked_column (
  tracked int not null references annals.tracked on delete cascade,
  n int not null,
  name name not null,
  attnum smallint not null,
  type text not null,
  excluded boolean not null default false,
  generated boolean not null default false,
  added_v bigint not null,
  gone_v bigint,
  primary key (tracked, n)
);
comment on table annals.tracked_column is 'Columns of tracked tables. In segments, column c<n> holds the values of column n.';
comment on column annals.tracked_column.tracked is 'The history.';
comment on column annals.tracked_column.n is 'Number of the column: given once, kept through renames, not used again.';
comment on column annals.tracked_column.name is 'Its present name; its last name once it is gone.';
comment on column annals.tracked_column.attnum is 'Its attribute number.';
comment on column annals.tracked_column.type is 'Its present type; its last type once it is gone.';
comment on column annals.tracked_column.excluded is 'Never stored.';
comment on column annals.tracked_column.generated is 'Computed by PostgreSQL, so not stored, except as part of the key.';
comment on column annals.tracked_column.added_v is 'Entries before this position don''t hold it.';
comment on column annals.tracked_column.gone_v is 'Position at which it was found dropped; null while it is there.';

create table annals.former_name (
  tracked int not null references annals.tracked on delete cascade,
  n int not null,
  name name not null,
  v bigint not null default nextval('annals.v'),
  xid xid8 not null default pg_current_xact_id(),
  epoch int not null references annals.epoch,
  primary key (tracked, n, v)
);
comment on table annals.former_name is 'Names that columns had before they were renamed.';
comment on column annals.former_name.tracked is 'The history.';
comment on column annals.former_name.n is 'The column.';
comment on column annals.former_name.name is 'The name that it had until then.';
comment on column annals.former_name.v is 'Position at which the new name was found.';
comment on column annals.former_name.xid is 'Transaction that found it: with event triggers the one that renamed the column.';
comment on column annals.former_name.epoch is 'Epoch of that transaction.';

create table annals.tracked_relation (
  tracked int not null references annals.tracked on delete cascade,
  relation oid not null,
  name text not null,
  leaf boolean not null,
  triggers text not null default '',
  stored text not null default '',
  primary key (tracked, relation)
);
comment on table annals.tracked_relation is 'Which tables carry the triggers of a history: the table, and its partitions.';
comment on column annals.tracked_relation.tracked is 'The history.';
comment on column annals.tracked_relation.relation is 'OID of the table or partition.';
comment on column annals.tracked_relation.name is 'Its name when it got its triggers.';
comment on column annals.tracked_relation.leaf is 'Holds rows itself.';
comment on column annals.tracked_relation.triggers is 'Hash of the triggers that it got.';
comment on column annals.tracked_relation.stored is 'Which file holds its rows and which catalog rows describe its columns: both change when ALTER TABLE rewrites values.';

create table annals.segment (
  tracked int not null references annals.tracked on delete cascade,
  number int not null,
  relation regclass not null,
  columns int[] not null,
  wide int[] not null,
  nests boolean not null,
  shape text not null,
  epoch int not null references annals.epoch,
  first_v bigint not null,
  began_at timestamptz not null default clock_timestamp(),
  opened_by xid8 not null default pg_current_xact_id(),
  closed_by xid8,
  writers text[],
  sealed_at timestamptz,
  last_v bigint,
  first_at timestamptz,
  last_at timestamptz,
  entries bigint,
  primary key (tracked, number)
);
comment on table annals.segment is 'The tables that hold history entries.';
comment on column annals.segment.tracked is 'The history.';
comment on column annals.segment.number is 'Number of the segment; the highest is the one that is written.';
comment on column annals.segment.relation is 'The table, named annals.h<tracked>_<number>.';
comment on column annals.segment.columns is 'Columns that it holds, as numbers of annals.tracked_column.';
comment on column annals.segment.wide is 'Those of them that an entry may lack because they did not change: bit i of missing stands for element i + 1.';
comment on column annals.segment.nests is 'Its entries may carry a start: of their statement, or 0 when the old row was there before their transaction.';
comment on column annals.segment.shape is 'Its columns of values, as they were declared.';
comment on column annals.segment.epoch is 'Epoch of its transaction ids.';
comment on column annals.segment.first_v is 'No entry has a lower position.';
comment on column annals.segment.began_at is 'When it was begun.';
comment on column annals.segment.opened_by is 'Transaction that began it.';
comment on column annals.segment.closed_by is 'Transaction that began the next segment or ended the history; others that were open then may still write here.';
comment on column annals.segment.writers is 'Transactions, as pg_locks names them, that were open after it was closed and have not been seen to end.';
comment on column annals.segment.sealed_at is 'When it was found that nothing can be written any more; the following columns are set then.';
comment on column annals.segment.last_v is 'No entry has a higher position.';
comment on column annals.segment.first_at is 'Earliest time of an entry.';
comment on column annals.segment.last_at is 'Latest time of an entry.';
comment on column annals.segment.entries is 'Number of entries.';

-- Where history cannot be read across: changes went by uncaptured.
create table annals.gap (
  tracked int not null references annals.tracked on delete cascade,
  v bigint not null,
  xid xid8 not null,
  at timestamptz not null,
  login oid not null,
  why text not null,
  lossless boolean not null default false
);
create index gap_tracked on annals.gap (tracked, v);
comment on table annals.gap is 'Points at which a history was interrupted: earlier states cannot be told from it.';
comment on column annals.gap.tracked is 'The history.';
comment on column annals.gap.v is 'Position of the interruption.';
comment on column annals.gap.xid is 'Transaction that interrupted it.';
comment on column annals.gap.at is 'Start of that transaction.';
comment on column annals.gap.login is 'OID of the session''s role.';
comment on column annals.gap.why is 'What happened.';
comment on column annals.gap.lossless is 'An image of every row had been saved just before, so earlier states can be told all the same.';
comment on index annals.gap_tracked is 'Finds the interruptions of a history.';

create function annals.count_gap() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update annals.tracked t set version = default where t.id = new.tracked;
  return null;
end $$;
comment on function annals.count_gap is 'Gives a history that is interrupted another version.';
create trigger count_gap after insert on annals.gap for each row execute function annals.count_gap();
comment on trigger count_gap on annals.gap is 'Keeps the version of the history.';

create table annals.move (
  tracked int not null references annals.tracked on delete cascade,
  xid xid8 not null,
  left_v bigint not null,
  arrived_v bigint not null,
  from_key text[] not null,
  to_key text[] not null
);
create index move_tracked on annals.move (tracked, arrived_v);
comment on table annals.move is 'Rows that changed their key.';
comment on column annals.move.tracked is 'The history.';
comment on column annals.move.xid is 'Transaction that changed it.';
comment on column annals.move.left_v is 'Position of the entry that ends the old key.';
comment on column annals.move.arrived_v is 'Position of the entry that begins the new key.';
comment on column annals.move.from_key is 'The old key, as text, in the order of annals.tracked.key.';
comment on column annals.move.to_key is 'The new key.';
comment on index annals.move_tracked is 'Finds the moves of a history by position.';

-- Empty between statements, so a crash may empty it as well.
create unlogged table annals.moving (
  tracked int not null,
  depth int not null,
  seq bigint generated always as identity,
  from_key text[],
  to_key text[] not null
);
comment on table annals.moving is 'Rows whose key the running statement changes, until it ends.';
comment on column annals.moving.tracked is 'The history.';
comment on column annals.moving.depth is 'Nesting of the statement within triggers.';
comment on column annals.moving.seq is 'Order of the rows.';
comment on column annals.moving.from_key is 'The old key; null when it is not known.';
comment on column annals.moving.to_key is 'The new key.';

create table annals.tick (
  v bigint not null,
  at timestamptz not null,
  snapshot pg_snapshot not null,
  upper_xid xid8 not null,
  lsn pg_lsn not null,
  epoch int not null references annals.epoch
);
create index tick_at on annals.tick (at);
comment on table annals.tick is 'Positions in time: coordinates taken now and then.';
comment on column annals.tick.v is 'Lower bound: what a snapshot whose xmin is at least upper_xid does not see has a higher position.';
comment on column annals.tick.at is 'When it was taken.';
comment on column annals.tick.snapshot is 'What was committed then.';
comment on column annals.tick.upper_xid is 'Transactions that had taken the position or lower ones have lower ids.';
comment on column annals.tick.lsn is 'End of the write-ahead log then.';
comment on column annals.tick.epoch is 'Epoch of the snapshot.';
comment on index annals.tick_at is 'Finds the tick at or before a time.';
create index tick_xid on annals.tick (epoch, upper_xid);
comment on index annals.tick_xid is 'Finds the last tick before a snapshot.';

create table annals.pin (
  tracked int references annals.tracked on delete cascade,
  owner text not null,
  name text not null,
  v bigint not null,
  at timestamptz not null default clock_timestamp(),
  primary key (owner, name)
);
comment on table annals.pin is 'What must not be pruned: entries from a position on.';
comment on column annals.pin.tracked is 'The history; null means all.';
comment on column annals.pin.owner is 'Package and kind, such as ''volvra mark''.';
comment on column annals.pin.name is 'What it is for.';
comment on column annals.pin.v is 'Entries from this position on are kept.';
comment on column annals.pin.at is 'When it was set.';

-- Rows of tables without a primary key could not be changed where a publication is for all tables.
alter table annals.context replica identity full;
alter table annals.gap replica identity full;
alter table annals.move replica identity full;
alter table annals.tick replica identity full;
