package gnomon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// TableStatus tells of a history: there is one for each table that is tracked, and for each that was.
type TableStatus struct {
	Table         string    // as in SQL; the last name of one that is gone
	History       int       // number of the history
	Since         time.Time // when gnomon began to track the table
	Ended         time.Time // when capture ended; zero: it goes on
	Form          string    // how the table is captured: "statement" or "row"
	Segments      int       // tables that the history stands in
	Entries       int64     // that they hold, an estimate
	Bytes         int64     // that they take with indexes
	ReadableSince time.Time // states can be told from then on; zero: none at present
	LastEntry     time.Time // when the transaction of the last entry began; zero: there is none
	Pins          []Pin     // what keeps the history from being pruned, and how much that is
	Policy        Policy
	Drift         []string // how the table differs from what capture was made for; empty when it doesn't
}

// Status tells of all histories.
func (g *Gnomon) Status(ctx context.Context) ([]TableStatus, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (s TableStatus, err error) {
		var ended, readable, last *time.Time
		var seconds *float64
		var changes pgtype.Int8
		err = row.Scan(&s.Table, &s.History, &s.Since, &ended, &s.Form, &s.Segments, &s.Entries, &s.Bytes, &readable, &last, &s.Pins, &seconds, &changes, &s.Drift)
		s.Ended, s.ReadableSince, s.LastEntry, s.Policy.CheckpointChanges = timeOf(ended), timeOf(readable), timeOf(last), changes.Int64
		if seconds != nil {
			s.Policy.Keep = time.Duration(*seconds * float64(time.Second)).Round(time.Microsecond)
		}
		return s, err
	}, `select "table", tracked, since, ended, form, segments, entries, bytes, readable_since, last_entry, pins, extract(epoch from keep)::float8, checkpoint_changes, drift from gnomon.status()`)
}

// Finding is something that keeps the past from being told.
type Finding struct {
	Table  string // as in SQL; empty: not about one table
	What   string // a word or two, such as "column", "disabled", "restored", "event trigger", "heartbeat", "consumer"
	Detail string // in words
	Hint   string // the way out; in SQL, where it names a function
}

// Check returns what keeps the past from being told, nothing when all is well: tables that changed and that capture does not follow, disabled
// triggers, a heartbeat that does not run, consumers that do not come along.
func (g *Gnomon) Check(ctx context.Context) ([]Finding, error) {
	return rowsOf(ctx, g.db, pgx.RowToStructByPos[Finding], `select coalesce("table", ''), what, detail, hint from gnomon.check() order by 1, 2, 3`)
}

// Sync brings capture up to date with a table that has changed, and what names of its schema mean in the past, where no event trigger does. It returns false when
// the table itself had not changed. [ErrNotTracked]. It waits a second at most for writers.
func (g *Gnomon) Sync(ctx context.Context, table string) (changed bool, err error) {
	err = locking(ctx, g.db, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select gnomon.sync($1::text::regclass)", table).Scan(&changed)
	})
	return changed, err
}
