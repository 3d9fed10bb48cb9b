-- Documents. A document is the set of its changes, and what is merged into it is added to the set: nothing is loaded for that, and nothing is
-- rewritten. Recent changes are rows; older ones are folded into a snapshot, a save as Automerge writes it. Merging is the same in any order.

-- Identities are UUIDs: clients make them before the first write, and those of Automerge's repositories are UUIDs, too, written in another way.
create table automerge.document (
  id uuid primary key default gen_random_uuid(),
  owner text not null default current_user,
  tenant text,
  created_at timestamptz not null default now(),
  changed_at timestamptz not null default now(),
  heads bytea[] not null default '{}',
  changes bigint not null default 0,
  ops bigint not null default 0,
  bytes bigint not null default 0,
  folded bigint not null default 0,
  parked bigint not null default 0,
  whole boolean not null default false,
  paths text[] not null default '{}') with (fillfactor = 70);
comment on table automerge.document is 'A row per document. Row-level security that you enable here holds for all that belongs to a document: who sees the row reads it, who may update the row writes it, who may delete the row deletes it.';
comment on column automerge.document.id is 'Identity; other tables may refer to it.';
comment on column automerge.document.owner is 'Whose it is: for your policies, nothing here looks at it. The role that made it unless said otherwise.';
comment on column automerge.document.tenant is 'What it belongs to: for your policies, nothing here looks at it.';
comment on column automerge.document.created_at is 'When it was made here.';
comment on column automerge.document.changed_at is 'When changes were last added.';
comment on column automerge.document.heads is 'Hashes of the changes that no other one depends on, in order: they name this state of the document.';
comment on column automerge.document.changes is 'How many changes it has, folded ones included. Rises with every one that is added.';
comment on column automerge.document.ops is 'How many operations its changes have.';
comment on column automerge.document.bytes is 'Size of its snapshot and of the changes after that.';
comment on column automerge.document.folded is 'How many of its changes the snapshot holds.';
comment on column automerge.document.parked is 'How many changes wait for others that they depend on.';
comment on column automerge.document.whole is 'Whether automerge.projection holds all of its JSON.';
comment on column automerge.document.paths is 'Paths that automerge.projection holds where it does not hold all.';

-- What is stored is compressed where that pays: to try it again is in vain.
create table automerge.snapshot (
  doc uuid primary key references automerge.document on delete cascade,
  heads bytea[] not null,
  changes bigint not null,
  ops bigint not null,
  hashes bytea not null,
  authors bytea not null,
  actors bytea[] not null,
  seqs bigint[] not null,
  max_ops bigint[] not null,
  made_at timestamptz not null default now(),
  data bytea not null);
alter table automerge.snapshot alter column data set storage external, alter column hashes set storage external;
comment on table automerge.snapshot is 'The changes of a document that were folded together: a save as Automerge writes and loads it.';
comment on column automerge.snapshot.doc is 'The document.';
comment on column automerge.snapshot.heads is 'Heads of what it holds.';
comment on column automerge.snapshot.changes is 'How many changes it holds.';
comment on column automerge.snapshot.ops is 'How many operations they have.';
comment on column automerge.snapshot.hashes is 'Their hashes, 32 bytes each, in causal order.';
comment on column automerge.snapshot.authors is 'Who made which: runs in the order of the hashes, each the place of an actor among the actors, from 0, and how many changes, as LEB128.';
comment on column automerge.snapshot.actors is 'Who made them.';
comment on column automerge.snapshot.seqs is 'How many changes each actor made.';
comment on column automerge.snapshot.max_ops is 'The last operation of each actor.';
comment on column automerge.snapshot.made_at is 'When it was made.';
comment on column automerge.snapshot.data is 'The save.';

create table automerge.change (
  doc uuid not null references automerge.document on delete cascade,
  hash bytea not null constraint change_hash_check check (length(hash) = 32),
  place bigint not null,
  actor bytea not null,
  seq bigint not null,
  start_op bigint not null,
  ops bigint not null,
  time bigint not null,
  added_at timestamptz not null default now(),
  message text,
  deps bytea[] not null,
  chunk bytea not null,
  constraint change_pkey primary key (doc, hash),
  constraint change_actor_seq unique (doc, actor, seq));
alter table automerge.change alter column chunk set storage external;
comment on table automerge.change is 'Changes of documents that are not in a snapshot, each valid, with all that it depends on there. Rows are never changed.';
comment on column automerge.change.doc is 'The document.';
comment on column automerge.change.hash is 'SHA-256 of the change: what Automerge calls its hash.';
comment on column automerge.change.place is 'Its place in the document, from 1: after all that it depends on.';
comment on column automerge.change.actor is 'Who made it.';
comment on column automerge.change.seq is 'Number of the change among the actor''s, from 1.';
comment on column automerge.change.start_op is 'Number of its first operation.';
comment on column automerge.change.ops is 'How many operations it has.';
comment on column automerge.change.time is 'When its maker says that it was made: seconds since 1970, 0 where it is not said.';
comment on column automerge.change.added_at is 'When it was added here.';
comment on column automerge.change.message is 'What its maker said about it.';
comment on column automerge.change.deps is 'Hashes of the changes that it follows.';
comment on column automerge.change.chunk is 'The change as its maker wrote it, compressed or not.';

create table automerge.parked (
  doc uuid not null references automerge.document on delete cascade,
  hash bytea not null,
  deps bytea[] not null,
  parked_at timestamptz not null default now(),
  chunk bytea not null,
  constraint parked_pkey primary key (doc, hash));
comment on table automerge.parked is 'Valid changes that wait for others that they depend on. They are not part of the document yet.';
comment on column automerge.parked.doc is 'The document.';
comment on column automerge.parked.hash is 'Hash of the change.';
comment on column automerge.parked.deps is 'Hashes of the changes that it follows.';
comment on column automerge.parked.parked_at is 'When it came.';
comment on column automerge.parked.chunk is 'The change as its maker wrote it.';

create table automerge.projection (
  doc uuid primary key references automerge.document on delete cascade,
  data jsonb not null,
  state bytea) with (fillfactor = 70);
comment on table automerge.projection is 'Documents as JSON: all of it or chosen paths, written in the transaction that changes the document. Join it, index it, add generated columns to it.';
comment on column automerge.projection.doc is 'The document.';
comment on column automerge.projection.data is 'The document''s values: of the chosen paths only, where paths were chosen.';
comment on column automerge.projection.state is 'What is kept beside the values so that a change needs nothing else: the operations that made them.';

create table automerge.queue (
  id bigint primary key generated always as identity,
  doc uuid not null references automerge.document on delete cascade,
  hash bytea,
  chunk bytea not null,
  appended_at timestamptz not null default now(),
  appended_by text not null default session_user,
  tried_at timestamptz,
  code text,
  reason text);
create index queue_doc on automerge.queue (doc, id);
comment on index automerge.queue_doc is 'What was appended to a document.';
create index queue_waiting on automerge.queue (id) where tried_at is null;
comment on index automerge.queue_waiting is 'What no worker has looked at yet.';
comment on table automerge.queue is 'Chunks that SQL clients appended. They are no part of a document until a worker has validated them; what it refused stays here with the reason.';
comment on column automerge.queue.id is 'Order in which they came.';
comment on column automerge.queue.doc is 'The document.';
comment on column automerge.queue.hash is 'Hash of the change; null where only a worker can tell, because the chunk is compressed or a save.';
comment on column automerge.queue.chunk is 'What was appended: one chunk.';
comment on column automerge.queue.appended_at is 'When it was appended.';
comment on column automerge.queue.appended_by is 'Who appended it.';
comment on column automerge.queue.tried_at is 'When a worker refused it; null while it waits.';
comment on column automerge.queue.code is 'SQLSTATE of the refusal.';
comment on column automerge.queue.reason is 'Why a worker refused it.';

create table automerge.peer (
  doc uuid not null references automerge.document on delete cascade,
  peer text not null,
  state bytea not null,
  changed_at timestamptz not null default now(),
  constraint peer_pkey primary key (doc, peer));
comment on table automerge.peer is 'What peers of Automerge''s sync protocol are known to have.';
comment on column automerge.peer.doc is 'The document.';
comment on column automerge.peer.peer is 'Name of the peer, as the application calls it.';
comment on column automerge.peer.state is 'State of the protocol between two messages.';
comment on column automerge.peer.changed_at is 'When that was last changed.';

-- Whoever sees a document sees what belongs to it, and nobody else does. Policies that decide who sees a document are yours.
alter table automerge.snapshot enable row level security;
create policy seen on automerge.snapshot using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.snapshot is 'Who sees the document.';
alter table automerge.change enable row level security;
create policy seen on automerge.change using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.change is 'Who sees the document.';
alter table automerge.parked enable row level security;
create policy seen on automerge.parked using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.parked is 'Who sees the document.';
alter table automerge.projection enable row level security;
create policy seen on automerge.projection using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.projection is 'Who sees the document.';
alter table automerge.queue enable row level security;
create policy seen on automerge.queue using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.queue is 'Who sees the document.';
alter table automerge.peer enable row level security;
create policy seen on automerge.peer using (exists (select from automerge.document d where d.id = doc));
comment on policy seen on automerge.peer is 'Who sees the document.';
