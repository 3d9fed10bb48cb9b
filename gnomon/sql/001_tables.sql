-- What gnomon knows beside the histories in schema annals: which of them are its own, the views through which the past is read, tags,
-- checkpoints, consumers of the change feed, and policies.

create table gnomon.history (
  tracked int primary key references annals.tracked on delete cascade,
  relation_oid oid not null,
  generation bigint not null default nextval('annals.v'),
  segment int not null default 0,
  rules text[],
  since timestamptz not null default now()
);
create index history_relation on gnomon.history (relation_oid);
comment on table gnomon.history is 'Histories that gnomon reads. A table that is tracked again gets another one.';
comment on column gnomon.history.tracked is 'The history, see annals.tracked.';
comment on column gnomon.history.relation_oid is 'OID of the table, kept when the table is gone.';
comment on column gnomon.history.generation is 'Changes whenever the views of the history are written anew; they carry it.';
comment on column gnomon.history.segment is 'The last segment that its views read. Where a newer one is there, the views could not be written anew.';
comment on column gnomon.history.rules is 'What those who write it on branches go by: digests of the rules of the table, and of its foreign keys. Null when it is not written there.';
comment on column gnomon.history.since is 'When gnomon began to track the table.';
comment on index gnomon.history_relation is 'Finds the histories of a table.';

create table gnomon.source (
  id int primary key generated always as identity,
  schema_name name not null unique
);
comment on table gnomon.source is 'Schemas with tracked tables. For each there is a schema gnomon_past_<id> with views that have the names of its tables.';
comment on column gnomon.source.id is 'Number of the source.';
comment on column gnomon.source.schema_name is 'Name of the schema.';

create table gnomon.checkpoint (
  id int primary key generated always as identity,
  tracked int not null references annals.tracked on delete cascade,
  coordinate text not null,
  snapshot pg_snapshot not null,
  epoch int not null,
  v bigint not null,
  top_v bigint not null,
  shape int not null,
  relation regclass not null,
  rows bigint not null,
  name text,
  at timestamptz not null default clock_timestamp()
);
create unique index checkpoint_name on gnomon.checkpoint (tracked, name);
comment on table gnomon.checkpoint is 'States of tables that were saved whole, so that scans of the past near them need not look at what changed later.';
comment on column gnomon.checkpoint.id is 'Number of the checkpoint; its rows are in gnomon.k<id>.';
comment on column gnomon.checkpoint.tracked is 'The history.';
comment on column gnomon.checkpoint.coordinate is 'The state that it holds.';
comment on column gnomon.checkpoint.snapshot is 'The snapshot of the coordinate.';
comment on column gnomon.checkpoint.epoch is 'Its epoch.';
comment on column gnomon.checkpoint.v is 'Entries that it does not see have higher positions.';
comment on column gnomon.checkpoint.top_v is 'Entries that it sees have no higher positions.';
comment on column gnomon.checkpoint.shape is 'Segment from which on the table had the columns of the checkpoint.';
comment on column gnomon.checkpoint.relation is 'The table that holds the rows, with columns c<n>.';
comment on column gnomon.checkpoint.rows is 'How many there are.';
comment on column gnomon.checkpoint.name is 'Name, of one that is kept until it is dropped by name; null for those that a policy made.';
comment on column gnomon.checkpoint.at is 'When it was made.';
comment on index gnomon.checkpoint_name is 'Names are unique for a table.';

create table gnomon.route (
  id int primary key generated always as identity,
  tracked int not null references gnomon.history on delete cascade,
  kind text not null check (kind in ('present', 'recent', 'shape', 'checkpoint', 'named', 'branch', 'old')),
  guarded boolean not null,
  shape int not null,
  checkpoint int references gnomon.checkpoint on delete cascade,
  after_v bigint not null,
  era bigint,
  schema_name name not null,
  view_name name not null
);
create index route_tracked on gnomon.route (tracked);
comment on table gnomon.route is 'Views through which the past of a table is read: which one serves depends on the coordinate and on who reads.';
comment on column gnomon.route.id is 'Number of the route.';
comment on column gnomon.route.tracked is 'The history.';
comment on column gnomon.route.kind is 'present: with the columns of today, over all segments that had them; recent: over the last of those; shape: with columns as they were; checkpoint: from a checkpoint; named: under former names of columns; branch: on a branch; old: in nobody''s way any more, but somebody was reading it when it was to be dropped.';
comment on column gnomon.route.guarded is 'For readers whom row-level security restricts.';
comment on column gnomon.route.shape is 'Number of the first segment that has the columns of the view.';
comment on column gnomon.route.checkpoint is 'The checkpoint.';
comment on column gnomon.route.after_v is 'It serves places that see all entries up to here.';
comment on column gnomon.route.era is 'Columns have the names that they had before this position; null: their present or last ones.';
comment on column gnomon.route.schema_name is 'Schema of the view.';
comment on column gnomon.route.view_name is 'Its name, the one that the table had when it was written.';
comment on index gnomon.route_tracked is 'Finds the views of a history.';

create table gnomon.tag (
  name text primary key check (name <> '' and length(name) <= 200),
  coordinate text not null,
  snapshot pg_snapshot not null,
  epoch int not null,
  v bigint not null,
  at timestamptz not null default clock_timestamp(),
  login text not null default session_user,
  note text not null default ''
);
comment on table gnomon.tag is 'Names of coordinates. History is kept from each of them on.';
comment on column gnomon.tag.name is 'The name.';
comment on column gnomon.tag.coordinate is 'The coordinate.';
comment on column gnomon.tag.snapshot is 'Its snapshot.';
comment on column gnomon.tag.epoch is 'Epoch of the snapshot.';
comment on column gnomon.tag.v is 'Entries that it does not see have higher positions.';
comment on column gnomon.tag.at is 'When it was set or moved last.';
comment on column gnomon.tag.login is 'The role that did that (session_user).';
comment on column gnomon.tag.note is 'What somebody wrote about it.';

create table gnomon.policy (
  tracked int primary key references gnomon.history on delete cascade,
  keep interval check (keep >= interval '0'),
  checkpoint_changes bigint check (checkpoint_changes > 0)
);
comment on table gnomon.policy is 'What upkeep does for a table, see gnomon.maintain.';
comment on column gnomon.policy.tracked is 'The history.';
comment on column gnomon.policy.keep is 'History older than this is pruned; null: none is.';
comment on column gnomon.policy.checkpoint_changes is 'A checkpoint is made after so many changes; null: none is.';
