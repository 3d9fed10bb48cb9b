package gnomon

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

var pkg = schema.Package{Name: "gnomon", Schema: "gnomon", Steps: files}

// DB is the database handle that everything works on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB = pgtx.DB

// Gnomon tracks tables and reads their past. It is safe for as many goroutines as its database handle is. Make one with [New]. Names of
// tables are written as in SQL and with their schema: shop.orders, "Shop"."Order".
//
// Given a pgx.Tx, every call becomes part of that transaction. A call that fails is undone by a savepoint and leaves the
// transaction usable, unless its context ended, which closes the connection.
type Gnomon struct {
	db DB
}

// New returns a Gnomon on db. It does nothing in the database: without [Install], which has to come first, calls fail as PostgreSQL says
// that the schema gnomon does not exist.
func New(db DB) *Gnomon { return &Gnomon{db: db} }

// Install creates or upgrades the schemas annals, which holds histories, and gnomon, in one transaction, as any role that may create
// schemas. Installing again is a no-op. It returns a *schema.NewerError when the database holds a newer version than this code knows.
//
// The role that installs is the one with whose rights tables are tracked. It must own them or be a member of the roles that do. Where it
// may create event triggers, tracking follows changes of tables by itself.
func Install(ctx context.Context, db DB) error {
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := schema.Install(ctx, tx, history.Objects); err != nil {
			return err
		}
		return schema.Install(ctx, tx, pkg)
	})
}

// SQL returns the script that Install runs, for those who apply migrations with another tool: two statements.
func SQL() (string, error) {
	engine, err := schema.SQL(history.Objects)
	if err != nil {
		return "", err
	}
	own, err := schema.SQL(pkg)
	return engine + "\n" + own, err
}

// rowsOf returns the rows of a statement.
func rowsOf[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scan)
		return err
	}, sql, args...)
	return list, refused(err)
}
