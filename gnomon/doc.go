// Package gnomon is version control for rows in PostgreSQL: tables as they were at any moment, what differs between two moments, and a
// feed of all changes without gaps.
//
// [Install] it once, track tables, and from then on their past can be read:
//
//	if err := gnomon.Install(ctx, pool); err != nil { ... }
//	g := gnomon.New(pool)
//	err := g.Track(ctx, "shop.orders", "shop.customer")
//
// Names of tables are written as in SQL, with their schema. Nothing is copied when tracking begins, and reads and plans of the tables stay what
// they were: each change leaves the row's old values in a history of its own. A Gnomon on a pool or a connection does each thing in a
// transaction of its own; one on a [pgx.Tx] does it in that transaction.
//
// # Places
//
// A [Coordinate] is an exact place in the history of the whole database: what some statement saw. [Gnomon.Now] takes one. A [Ref] names a
// place: a coordinate, a tag, a time, or [Present].
//
//	before, err := g.Now(ctx)                               // 5f0e1c7a/7041:7052:7044/0/3A51C8
//	_, err = g.Tag(ctx, "before the import", gnomon.Present) // keeps history from there on
//	err = g.RunHeartbeat(ctx, time.Second)                   // in any number of processes: ties places to time
//
// A time stands for the last tick at or before it, and [Gnomon.Resolve] tells which that is and how coarse; with the server's setting
// track_commit_timestamp on, and no synchronous standby, a time is exact. [Coordinate.Before] orders coordinates where they are ordered; [Gnomon.Wait] waits until a
// standby shows one. Coordinates hold until the server crashes or is promoted, tags and times until the database is restored elsewhere:
// after that they are refused with [ErrEpoch], never answered wrongly.
//
// # Reading the past
//
// [Gnomon.At] returns a [Past], on which ordinary SQL runs with the names of tables unchanged, all tables at one coordinate:
//
//	past, err := g.At(ctx, gnomon.AtTime(yesterday))
//	rows, err := past.Query(ctx, "select c.city, sum(o.total) from orders o join customer c on c.id = o.customer group by 1")
//	order, found, err := gnomon.Get[Order](ctx, past, "shop.orders", 5)
//	list, err := gnomon.List[Order](ctx, past, "shop.orders", "where customer = $1 order by id", 7)
//
// Conditions, joins and orders use the indexes of the tables. Where history does not tell a table the answer is [ErrNoHistory] or
// [ErrPruned], with when it begins, and never today's rows. Columns are those of then. Users' views over tracked tables are read in the past as
// well; a view that can't be is refused by name. [Gnomon.MakeCheckpoint] saves a table's state where much changes, for scans of the past near it.
//
// # What changed
//
// [Gnomon.History] tells the life of a row, with who changed which column when, through changes of its key; [Gnomon.Blame] the last
// change of each column. [Gnomon.Diff] compares two places, netted or step by step, and [Gnomon.DiffCounts] counts.
//
//	for d, err := range g.Diff(ctx, gnomon.AtTag("before the import"), gnomon.Present, gnomon.DiffOptions{}) { ... }
//
// # The change feed
//
// A consumer is a name with a position. [Feed.Run] hands it pages of changes, in an order that agrees with the order of commits along every
// row, and moves the position in the transaction in which the handler writes:
//
//	err := g.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "search", Tables: []string{"shop.orders"}, Snapshot: true})
//	err = g.Feed("search", gnomon.FeedOptions{}).Run(ctx, func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error { ... })
//
// So each change comes exactly once, whatever transactions overlap, processes die or servers crash. A consumer can begin with the rows that are there. Of two processes
// with one consumer, one works and the other takes over. [Feed.All] iterates, at least once. [Gnomon.Consumers] tells how far each is and
// how much history it keeps.
//
// # Upkeep
//
// [Gnomon.RunMaintenance] finishes parts of histories, makes checkpoints and prunes as policies say ([Gnomon.SetPolicy]); [Gnomon.Prune]
// prunes now. What tags, consumers, checkpoints with a name, and marks of volvra need stays, and the result names them. [Gnomon.Status] tells of
// each history, [Gnomon.Check] what keeps the past from being told.
//
// # Limits
//
//   - What can be tracked are tables and partitioned tables with a primary key, or a unique key of not-null columns, that is not INITIALLY
//     DEFERRED: no foreign, temporary or unlogged tables, and no single partition.
//   - In the past, a name with its schema means the table of today, and so do all names within functions that have a search_path of their own or a body in standard
//     SQL; those in other functions mean the past. System columns don't exist, and rows can't be locked. Of a table from which others inherit the past has only its own rows.
//   - What is made in the past, such as a view, has no lasting place. In psql, a cursor reads the place that is set when it fetches.
//   - Values of excluded columns are not stored, and those columns are not there in the past. Generated columns are computed again, by
//     today's expression, and not shown where other columns have changed since.
//   - A column that was dropped keeps its values in history only for rows that changed before: [ErrColumnGone] for others. annals.materialize in the
//     transaction that drops it saves all rows first. A column renamed since stands under its present name, unless [FormerNames] asks for that of the place. One that got a wider type has that.
//     Where its name was taken again, the column that went has its number behind its name, as in "total (3)".
//   - A column of the key, or one with long values that is stored only when it changes, can be dropped or get another type once annals.free_key was called for the
//     history. Types that a column of a tracked table has, or had, can't be dropped as long as history holds its values.
//   - A type that is not wider than the old one, such as integer after text, TRUNCATE where options allow it, disabled triggers and the
//     like interrupt a history: what was before is [ErrNoHistory].
//   - Without an event trigger, which takes a superuser or a service that allows it, call [Gnomon.Sync] after changing a tracked table, or making a table or view beside it. Until then reading
//     the past of that schema is [ErrStale].
//   - Coordinates are not taken on a standby. Reading the past there works.
//   - Values that volvra erased are null, and the checkpoints of that history are dropped with them.
//   - Changes in sessions with session_replication_role = replica are captured with the option Replica only.
//   - Reading by time is exact for a tick's snapshot. Times are those of the server's clock: where that is set back, they come twice, and the last tick counts. A time to come
//     is that of the last tick.
//
// # In SQL
//
// Every call is a function of the schema gnomon as well, and every refusal has an SQLSTATE of its own. In a session, gnomon.at says which place
// names mean from now on, and gnomon.leave goes back:
//
//	select gnomon.track('shop.orders');
//	select gnomon.at('2026-03-01 12:00Z');
//	select * from orders;
//	select gnomon.leave();
//	select * from gnomon.diff('tag:before the import');
//	select * from gnomon.changes('tag:before the import');
package gnomon
