package schema

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

//go:embed sql/uncommented.sql
var uncommentedSQL string

// Uncommented lists what has no comment in a schema, in the server's words such
// as "column id of table ledger.account": the schema itself, tables and their
// columns, views, sequences, functions, types, triggers, policies, operators, and
// indexes that don't stand behind a constraint. A package's test asserts that the
// list is empty.
func Uncommented(ctx context.Context, db pgtx.DB, schema string) (objects []string, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		objects, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, uncommentedSQL, schema)
	return objects, err
}
