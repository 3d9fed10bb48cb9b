package automerge

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

var pkg = schema.Package{Name: "automerge", Schema: "automerge", Steps: files}

// DB is the database handle that everything works on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB = pgtx.DB

// Install creates or upgrades the schema automerge in one transaction, as any role that may create a schema. Installing again is a no-op. It
// returns a *schema.NewerError when the database holds a newer version than this code knows.
func Install(ctx context.Context, db DB) error {
	return schema.Install(ctx, db, pkg)
}

// Uninstall drops the schema automerge with all documents in it.
func Uninstall(ctx context.Context, db DB) error {
	return schema.Uninstall(ctx, db, pkg)
}

// SQL returns the script that Install runs, for those who apply migrations with another tool.
func SQL() (string, error) {
	return schema.SQL(pkg)
}

// rowsOf returns the rows of a statement.
func rowsOf[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scan)
		return err
	}, sql, args...)
	return list, refused(err)
}
