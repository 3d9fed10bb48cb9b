package volvra

import (
	"context"
	"embed"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

var pkg = schema.Package{Name: "volvra", Schema: "volvra", Steps: files}

// DB is the database handle that everything works on: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB = pgtx.DB

// Volvra covers tables, shows their history, and undoes changes. It is safe for as many goroutines as its database handle is.
// Make one with [New]. Names of tables are written as in SQL and with their schema: shop.orders, "Shop"."Order".
//
// Given a pgx.Tx, every call becomes part of that transaction. A call that fails is undone by a savepoint and leaves the
// transaction usable, unless its context ended, which closes the connection.
type Volvra struct {
	db         DB
	rowReaders sync.Map // by table, see rowReader
}

// New returns a Volvra on db. It does nothing in the database: without [Install], which has to come first, calls fail as PostgreSQL says
// that the schema volvra does not exist.
func New(db DB) *Volvra { return &Volvra{db: db} }

// Install creates or upgrades the schemas annals, which holds histories, and volvra, in one transaction, as any role that may create a
// schema. Installing again is a no-op. It returns a *schema.NewerError when the database holds a newer version than this code knows.
//
// The role that installs is the one with whose rights tables are covered. It must own them or be a member of the roles that do, since
// PostgreSQL lets nobody else put triggers on a table and take them away: see [Volvra.Preflight]. Where it may create event triggers,
// coverage follows changes of tables by itself.
func Install(ctx context.Context, db DB) error {
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := schema.Install(ctx, tx, history.Objects); err != nil {
			return err
		}
		return schema.Install(ctx, tx, pkg)
	})
}

// Histories says what [Uninstall] does with histories.
type Histories bool

// What becomes of histories.
const (
	KeepHistory Histories = false // the schema annals stays, with all histories
	DropHistory Histories = true  // they are dropped, those of other packages included
)

// Uninstall ends all coverage, so that nothing is left on the users' tables, and drops the schema volvra, in one transaction.
// With KeepHistory the schema annals stays with the histories in it, for its owner to read, and for other packages to go on with. With
// DropHistory it goes as well, with the histories that other packages keep. It waits for those who write covered tables.
func Uninstall(ctx context.Context, db DB, histories Histories) error {
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "select pg_catalog.to_regclass('annals.tracked') is not null").Scan(&there); err != nil {
			return err
		}
		if there {
			if _, err := tx.Exec(ctx, uncoverAllSQL, bool(histories)); err != nil {
				return refused(err)
			}
		}
		if err := schema.Uninstall(ctx, tx, pkg); err != nil || histories == KeepHistory {
			return err
		}
		return schema.Uninstall(ctx, tx, history.Objects)
	})
}

//go:embed uncover_all.sql
var uncoverAllSQL string

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
