// Package volvra keeps the history of tables in PostgreSQL, shows it, and undoes changes selectively.
//
// [Install] it once, cover tables, and from then on each change of a row is kept with what the row was, who changed it and when:
//
//	if err := volvra.Install(ctx, pool); err != nil { ... }
//	v := volvra.New(pool)
//	_, err := v.Enable(ctx, "shop.orders", volvra.Options{})
//
// Names of tables are written as in SQL, with their schema. The application goes on as it was; what it may add is for whom it acts, in each
// transaction:
//
//	err := volvra.SetActor(ctx, tx, "tom")
//
// A Volvra on a pool or a connection does each thing in a transaction of its own. One on a [pgx.Tx] does it in that transaction:
// New(tx).Undo stands or falls with it, and is done in the name of the actor who was set there.
//
// Nothing is copied when coverage begins, and what a row became is not stored twice: it is what the next entry of its history, or
// today's row, tells. [Volvra.Health] says whether all is captured that should be, [Volvra.Uncovered] what is not covered.
//
// # Reading
//
// [Volvra.Transactions] lists what happened, newest first, [Volvra.History] tells the life of a row, through changes of its key, and [AsOf]
// returns a table as it was at a [Moment]: a coordinate (exact, see [Volvra.Coordinate]), a mark, or a time.
//
//	latest, err := v.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{})
//	changes, err := v.History(ctx, "shop.orders", volvra.KeyOf(5), 0)
//	orders, err := volvra.AsOf[Order](ctx, v, "shop.orders", volvra.AtTime(yesterday))
//
// Where history does not reach back, the answer is [ErrNoHistory] and never today's rows. Who may not read a table, or by its row-level
// security not a row, sees nothing of its history either.
//
// # Selecting
//
// A [Selection] says which changes are meant: by table, key, time, transaction, who made them, and by conditions on the rows. Whatever is
// given narrows it, values are never executed, and the zero Selection is refused.
//
// # Undoing
//
// [Volvra.Preview] shows what an undo of a selection would do, row by row and column by column, and writes nothing. Its token lets
// [Volvra.Undo] do exactly that, or refuse when the plan would be another one by then; Undo takes a Selection as well.
//
//	plan, err := v.Preview(ctx, volvra.Selection{Actor: "tom", From: anHourAgo})
//	result, err := v.Undo(ctx, plan.Token, volvra.UndoOptions{})
//
// Rows become what they would be had the selected changes not happened: what others did to other rows and to other columns stays. Where
// somebody has since changed the same column, where a unique key is taken or a row would refer to nothing, the row is not clean, and by
// default nothing is undone: [ErrConflict] and its relatives name the rows. [SkipConflicts] leaves them out,
// [NonConflictingColumns] undoes what nobody else touched. Rows that a cascade deleted come back with what they belonged to.
//
// An undo runs with the caller's privileges, fires the table's triggers, and is a transaction like any other: it stands in
// history and can be undone ([Volvra.Redo]). [Volvra.Mark] names a moment, [Volvra.UndoTo] goes back to it. Every attempt is on record, the
// refused ones included: [Volvra.Attempts].
//
// # Evidence
//
// [Volvra.Seal] chains hashes over what was recorded since the last seal, and [Volvra.Verify] tells what is intact, lawfully erased or
// purged, altered, missing, added or forged. Keep [Volvra.ChainHead] somewhere else: who owns the database could make all seals anew.
// [Volvra.Forget] erases a subject's images for a reason, which is recorded; [Volvra.SetRetention] says how long history is kept.
// [Volvra.Run] does in the background what has to be done regularly; without it, call [Volvra.Maintain] from a job,
// every minute or so.
//
// # Limits
//
//   - What can be covered are tables and partitioned tables: no foreign, temporary or unlogged ones, no single partition, no views, and
//     nothing of the system. Large objects, sequences and definitions have no history: an undo brings back rows, not tables or columns.
//   - A table needs a primary key, or a unique key of not-null columns, that is not INITIALLY DEFERRED. Don't defer a key's check with
//     SET CONSTRAINTS either.
//   - Changes in sessions with session_replication_role = replica (logical replication, some loaders) are captured with the option Replica only.
//   - DROP or a change of type of a key column, or of one with long values: call annals.free_key for the history first. A change of type that rewrites the table
//     interrupts its history, as does dropping a partition: detach it first.
//   - Without an event trigger, which takes a superuser or a service that allows it, call annals.sync after changing a covered table;
//     [Volvra.Health] says where. A write that meets a dropped or renamed column fails until then, and says so.
//   - History begins when coverage does. TRUNCATE saves the rows, so it costs what a DELETE of them does, and above READ COMMITTED it is
//     refused: [TruncatePolicy] has the choices. Values of excluded and generated columns are not stored.
//   - Coordinates are good until the database crashes, is restored or is promoted, and are not taken on a standby. Marks and times stay good.
//   - An undo writes [DefaultMaxRows] rows at most unless told otherwise, and is one transaction; a [Plan] stands in memory.
//   - The actor and the application are what the session says. The role that logged in is what PostgreSQL knows.
//   - Swapping keys of rows can be undone only where the key is deferrable.
//   - An undo takes at most 500 columns of a table; capture takes as many as fit beside its own eight.
//   - To whom row-level security hides some changes of a row, the changes before those are interrupted: they can't be undone by him.
//   - A query that calls a volatile function that writes the table which the query itself writes is captured in an order of its own.
//   - Whoever owns the tables can take the triggers off. Health and Verify tell.
//
// # Roles
//
// [CreateRoles] and [Grant] let a viewer read, an operator also undo, and an admin also decide what is covered, sealed, erased and kept.
// All of that adds to what they may do with the tables themselves, and replaces none of it.
//
// # In SQL
//
// Every call is a function of the schema volvra as well (\df volvra.* with comments), every refusal has an SQLSTATE of its own,
// and histories are views: annals.h1 is that of the first table that was tracked. The tables of the schema annals are owned by the role
// that installed, and nobody is granted the right to write them.
package volvra
