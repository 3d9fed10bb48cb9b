package ledger

import (
	"context"
	"embed"

	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

var pkg = schema.Package{Name: "ledger", Schema: "ledger", Steps: files}

// DB is the database handle that a ledger works on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB = pgtx.DB

// Ledger books transfers and reads the books. It is safe for as many goroutines as its database handle is.
//
// Given a pgx.Tx, every call becomes part of that transaction. A call that fails is undone by a savepoint and leaves the
// transaction usable, unless its context ended, which closes the connection.
type Ledger struct {
	db DB
}

// New returns a ledger on db. It does nothing in the database: see [Install].
func New(db DB) *Ledger {
	return &Ledger{db: db}
}

// Install creates or upgrades the schema ledger in one transaction, as any role that may create a schema. Installing again is
// a no-op. It returns a *schema.NewerError when the database holds a newer version than this code knows.
func Install(ctx context.Context, db DB) error {
	return schema.Install(ctx, db, pkg)
}

// Uninstall drops the schema ledger with all books in it.
func Uninstall(ctx context.Context, db DB) error {
	return schema.Uninstall(ctx, db, pkg)
}

// SQL returns the script that Install runs, for those who apply migrations with another tool.
func SQL() (string, error) {
	return schema.SQL(pkg)
}

// call runs one statement, whose one row it scans into dest (nil: none is wanted), repeats it while the database asks for that (never inside the caller's
// transaction, where only the caller can), and turns the database's refusals into *Error.
func (l *Ledger) call(ctx context.Context, dest []any, sql string, args ...any) error {
	run := func() error { return pgtx.QueryRow(ctx, l.db, dest, sql, args...) }
	if dest == nil {
		run = func() error {
			_, err := pgtx.Exec(ctx, l.db, sql, args...)
			return err
		}
	}
	once := func() error { return retryTaken(run()) }
	if pgtx.InTx(l.db) {
		return refused(once())
	}
	return refused(pgtx.Retry(ctx, once))
}

// Retry calls fn until it succeeds, or fails for another reason than a serialization failure or a deadlock. It is for callers
// who run transactions of their own under REPEATABLE READ or SERIALIZABLE; fn must be the whole transaction.
func Retry(ctx context.Context, fn func() error) error {
	return pgtx.Retry(ctx, fn)
}
