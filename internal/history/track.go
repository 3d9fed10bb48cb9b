package history

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// ID is the number of a history. Its view is annals.h<ID>, its segments are annals.h<ID>_<number>.
type ID int

// Truncate says what becomes of a TRUNCATE of a tracked table.
type Truncate string

// Ways to treat TRUNCATE.
const (
	TruncateCapture Truncate = "capture" // save the rows; the default
	TruncateRefuse  Truncate = "refuse"  // fail
	TruncateAllow   Truncate = "allow"   // let it pass and note that the history is interrupted
)

// Options say how a table is captured. The zero value of each leaves what is in force, at first the default.
type Options struct {
	Exclude  []string `json:"exclude,omitempty"`   // columns that are never stored; not of the key
	Wide     []string `json:"wide,omitempty"`      // columns that are stored only when they change; by default those that hold long values
	Truncate Truncate `json:"truncate,omitempty"`  // what TRUNCATE does
	SkipNoop *bool    `json:"skip_noop,omitempty"` // no entries for updates that change nothing; makes others dearer
	Full     *bool    `json:"full,omitempty"`      // store all columns always
	WarnRows int64    `json:"warn_rows,omitempty"` // raise a warning when one statement changes more rows of the table
	Replica  *bool    `json:"replica,omitempty"`   // capture what replication writes, too
	Form     string   `json:"form,omitempty"`      // "row" captures row by row where statements would do; "auto" by statement where that can be
}

// Track begins to keep the history of a table, given as SQL would name it, for a package; or adds to its options. In a transaction of its own it
// makes way after a second for those who queue behind its lock, and comes again until ctx ends, as do the other functions that lock users' tables. It
// matches [ErrUntrackable], with Error.Reason, or [ErrOption].
func Track(ctx context.Context, db pgtx.DB, table, user string, options Options) (id ID, err error) {
	text, err := json.Marshal(options)
	if err != nil {
		return 0, err
	}
	err = locking(ctx, db, []any{&id}, "select annals.track($1::text::regclass, $2, $3::text::jsonb)", table, user, string(text))
	return id, err
}

// Untrack ends the history of a table for a package. When no other package wants it, all that was put on the table goes; the history stays.
// It returns false when the package did not track the table.
func Untrack(ctx context.Context, db pgtx.DB, table, user string) (ended bool, err error) {
	err = locking(ctx, db, []any{&ended}, "select annals.untrack($1::text::regclass, $2)", table, user)
	return ended, err
}

// Sync makes capture follow what became of the table. It returns false when nothing had changed; [ErrNotTracked]: there is no such history
// that goes on.
func Sync(ctx context.Context, db pgtx.DB, id ID) (changed bool, err error) {
	err = locking(ctx, db, []any{&changed}, "select annals.sync($1)", int(id))
	return changed, err
}

// Materialize saves an image of every row of the table. It goes into the transaction that then interrupts the history; see the package documentation.
// [ErrIsolation]: it takes READ COMMITTED.
func Materialize(ctx context.Context, tx pgx.Tx, id ID) error {
	return locking(ctx, tx, nil, "select annals.materialize($1)", int(id))
}

// Adopt is to be called after a restore, and returns how many histories it adopted. It does nothing where nothing was restored.
func Adopt(ctx context.Context, db pgtx.DB) (adopted int, err error) {
	err = locking(ctx, db, []any{&adopted}, "select annals.adopt()")
	return adopted, err
}

// readCommitted holds whatever the default of the database is.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

const lockNotAvailable = "55P03"

// locking executes a function that waits a second at most for users' tables: again and again where the transaction is its own.
func locking(ctx context.Context, db pgtx.DB, dest []any, sql string, args ...any) error {
	once := func() error {
		return pgtx.Run(ctx, db, readCommitted, func(tx pgx.Tx) error {
			if dest == nil {
				_, err := tx.Exec(ctx, sql, args...)
				return err
			}
			return tx.QueryRow(ctx, sql, args...).Scan(dest...)
		})
	}
	if pgtx.InTx(db) {
		return Refused(once())
	}
	return Refused(pgtx.Retry(ctx, once, lockNotAvailable))
}
