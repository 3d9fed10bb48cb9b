// Package gnomon is version control for rows in PostgreSQL: tables as they were at any moment, what differs between two moments, a
// feed of all changes without gaps, and branches that are worked on, merged, and taken back.
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
// # Branches
//
// A [Branch] is the database with changes of its own over a base, which is a place of main. Making one is a few rows, however large the tables
// are; the first of a database also makes the views and overlays that branches take. Ordinary SQL runs on it, with the names of tables unchanged; it reads the rows of the base with those of the branch over them, and what it writes is
// seen there only:
//
//	b, err := g.CreateBranch(ctx, "summer", gnomon.BranchOptions{})        // of what is committed now; From names another place, Of another branch
//	_, err = b.Exec(ctx, "update article set price = price * 0.8")        // and Query, QueryRow, Begin, SendBatch as pgx has them
//	article, found, err := gnomon.Get[Article](ctx, b, "shop.article", 5) // and List
//
// Keys, foreign keys with their actions, defaults, generated columns, CHECK and NOT NULL hold there as they do on main. Who writes a row that another one has changed since it
// was read gets 40001, so no update is lost. [OnBranch] puts a transaction on a branch, [Branch.Pool] everything that a pool does. [Branch.Upsert], [Branch.CopyFrom] and [Branch.Lock]
// stand for what SQL can't do on a view.
//
// [Gnomon.Merge] brings what the branch changed into main, or into another branch. It decides by column: what one side alone changed since the base is taken, and where both did,
// it is a conflict, unless a [Strategy] decides. Conflicts and violated constraints are listed before anything is written:
//
//	report, err := b.Merge(ctx, gnomon.MergeOptions{})
//	if errors.Is(err, gnomon.ErrConflict) {
//		list, err := g.Conflicts(ctx, report.ID)                                            // by row and column: base, branch, main
//		err = g.ResolveConflict(ctx, report.ID, list[0].Table, list[0].Key, gnomon.TakeOurs, nil)
//		report, err = g.FinishMerge(ctx, report.ID)
//	}
//	_, err = g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{})                         // and what others did since stays
//
// A merge is one transaction that locks rows and no table, and main's triggers fire. What was merged is not merged again; the branch goes on. [Branch.Refresh] moves it to a later base
// by the same rules, and [Branch.Reset] starts it anew. What a branch of a branch got with a later base is not its own, and a merge into its parent leaves it aside.
//
// Reports of dry runs and of merges that were refused are kept for 30 days, see [Gnomon.PruneReports].
//
// With [BranchOptions.RecordReads] what is read on a branch is noted: rows that [Get] reads, and of other statements the tables, unless [Branch.Reading] says more.
// [Branch.StaleReads] lists what of it main has changed since, and a merge can demand that there is nothing.
//
// For work that others look at there are policies ([Gnomon.SetMergePolicy]), which say what merges may change and who may merge, change requests ([Gnomon.OpenRequest],
// [Gnomon.Review], [Gnomon.MergeRequest]), and runs: [Run] does something on a branch of its own, and merges it, leaves it as a change request, or, where it fails, leaves nothing:
//
//	result, err := gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Order what is sold out", Actor: "agent 7", Merge: true},
//		func(ctx context.Context, b *gnomon.Branch) error { ... })
//
// [Gnomon.Confine] lets a role use branches of certain names, and there certain tables and columns, and nothing else by any path.
//
// What a branch can't do, or does in another way; the last column is the test that shows it:
//
//	INSERT ON CONFLICT                             ErrNotOnBranch: Branch.Upsert                             TestBranchLimits
//	MERGE before PostgreSQL 17                     ErrNotOnBranch: Branch.Upsert, or UPDATE and INSERT       TestBranchLimits
//	TRUNCATE                                       ErrNotOnBranch: DELETE                                    TestBranchLimits
//	ctid, xmin and the like; TABLESAMPLE           ErrNotOnBranch: the key; a condition with random()        TestBranchLimits
//	unique values that rows exchange in one        23505: two statements                                     TestBranchLimits
//	  statement
//	unique values that rows exchange, merged into  ErrViolation where triggers, rules or foreign keys with  TestUniqueValuesChangePlaces
//	  main                                           actions would notice: a DEFERRABLE constraint
//	unique indexes of expressions or of some       merging finds what violates them                          TestMergingFindsWhatBranchesDoNot
//	  rows, exclusion constraints
//	SELECT FOR UPDATE                              locks nothing: Branch.Lock                                TestLock
//	a table with its schema before its name        is that of main                                           TestQualifiedNamesMeanMain
//	names in functions with a search_path of       mean main                                                 TestQualifiedNamesMeanMain
//	  their own or a body in standard SQL
//	tables that are not tracked                    are as they are on main; writing them is ErrNotOnBranch   TestUntrackedTablesOnABranch
//	triggers                                       those BEFORE a row run, if in PL/pgSQL and without        TestTriggersOnBranches
//	                                                 WHEN and columns; all run when it is merged
//	roles that row-level security restricts        ErrNotOnBranch: a role that reads all rows                TestRowSecurityOnBranches
//	roles that are confined                        42501 for Get, List, Diff and Refresh, which read main:   TestConfinedRoleWorks
//	                                                 SQL, and gnomon.lent_diff; others refresh for them
//	a table whose columns changed since the base   ErrNotOnBranch: Branch.Refresh; it can be merged as well  TestColumnsThatChangeUnderABranch
//	the past of a branch                           is there if it is Logged, else ErrNotOnBranch             TestPastOfBranches
//	undo of merges into a branch                   until it is reset, and for 30 days if it is not Logged:   TestUndoOfMergesIntoBranches
//	                                                 then ErrPruned
//	reads within functions, and by COPY            are not noted: Branch.Note                                TestReadsThatAreNotSeen
//	stale reads, policies                          are of main, not of a branch that is merged into          TestPoliciesAreForMain
//	writes to main by others while a merge         are seen if both are SERIALIZABLE, or themselves          TestMergesThatCrossDoNotSkew
//	  that demands no stale reads commits            merges that demand it
//
// Where rows of main exchange unique values, a merge writes some of them as a delete and an insert, and so history has them (who inserts a row that refers to such a one at that moment may get
// 23503, and succeeds again afterwards); where only one takes what another gives up, it updates them in that
// order, up to 500 in a row. Without an event trigger, CHECK constraints that call functions which have no search_path of their own are evaluated on a branch wholly by the search_path of the caller.
//
// Deferrable unique keys are checked row by row there, columns that are GENERATED ALWAYS AS IDENTITY take values that are given, and rows of tables that are not tracked but refer to tracked ones are
// looked at by merging only. Of rows and what they refer to, written by several sessions of one branch at once in REPEATABLE READ, merging finds what does not fit.
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
