// Package history keeps the history of tables: the capture engine under volvra, made for several packages to share. Its
// objects are in the schema annals.
//
// [Track] puts triggers on a table. From then on every change of a row leaves an entry with the row's old columns, typed, in a
// table of the history, a segment. The state of a row at a past moment is the old image of the earliest entry that the moment does not
// see, or today's row when there is none: so nothing is copied when tracking begins, and the new image of a change is the next entry's
// old one. What reads history reads the view annals.h<id>, which shows an entry to those who may read the row.
//
//	err := history.Install(ctx, pool)
//	id, err := history.Track(ctx, pool, "shop.orders", "volvra", history.Options{})
//	before, err := history.Now(ctx, pool) // what has changed since: entries of annals.h<id> whose transaction it does not see
//	findings, err := history.Check(ctx, pool)
//
// An entry has the position v, the transaction (epoch and xid) and when it began (at), the operation op, the context of who made it (ctx, see
// annals.context) with the role that logged in (login), and the old values in columns c<n>, numbered as annals.tracked_column tells. Operations are
// i, u, d and t, of a TRUNCATE; m and n, a row that leaves its key and arrives at another one. The comments on the objects of
// the schema say the rest.
//
// Tables and partitioned tables that have a key can be tracked: a primary key, or a unique key of not-null columns, that is not INITIALLY
// DEFERRED. Foreign, temporary and unlogged tables can't, nor can a single partition, nor a table whose owner's rights the role that
// installed does not have.
//
// # Changes of the table
//
// Where the role that installs may create event triggers, every change of a tracked table is followed in the command that makes it:
// columns that are added, dropped, renamed or get another type, new names, keys, partitions, policies, triggers. A type that is not wider
// than the old one, such as integer after text, makes the column another one for history, which has its own number. Should following
// fail, the command does not: it ends with a warning, and [Check] reports what is to be done.
//
// Elsewhere [Check] reports what no longer fits, and [Sync] brings capture up to date. Until then a new column is not captured, and a
// write to a table whose captured column was renamed or dropped fails with a message that names annals.sync. Partitioned tables are
// captured by row triggers there, which PostgreSQL gives to new partitions; create a partition and call Sync in one transaction.
//
// # Interruptions
//
// A change that fires no capture makes today's rows useless for telling earlier states: TRUNCATE where the option truncate allows it, a
// disabled trigger, new values by ALTER TABLE ... TYPE, a dropped partition, tracking that ends. Each is noted in annals.gap, and states
// before it can no longer be told: annals.readable_from gives the position from which they can, annals.unreadable tells for a snapshot
// why they cannot. The entries themselves stay true. [Materialize] in the same transaction, before the change, saves an image of every
// row, and then nothing is lost. What cannot be noticed: triggers disabled and enabled again between two calls of Sync where no event
// trigger is installed, and sessions with session_replication_role = replica.
//
// # Positions
//
// Entries have positions (v). A coordinate, see [Now], is an exact moment: the snapshot of the statement that takes it. A tick, see
// [Tick], ties positions to time. Coordinates hold until the server crashes, is promoted or restored; ticks outlast crashes and promotions.
//
// # Upkeep
//
// [Rotate] begins another segment when one is big enough, [SealSegments] finishes those in which nobody writes any more, [Prune] drops
// the oldest. After a restore of a dump, [Adopt] begins another epoch, since transaction ids mean something else then.
package history
