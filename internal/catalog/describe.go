package catalog

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

var (
	//go:embed sql/find_name.sql
	findNameSQL string
	//go:embed sql/find_oid.sql
	findOIDSQL string
	//go:embed sql/find_schema.sql
	findSchemaSQL string
	//go:embed sql/pin.sql
	pinSQL string
	//go:embed sql/describe.sql
	describeSQL string
)

// Describe describes the table of that name, which is written as in SQL: folded
// to lower case unless quoted, and looked up in search_path unless qualified. A
// pgx.Identifier gives it with Sanitize.
//
// It returns a *NotTableError, which matches [ErrNoTable] when nothing has that
// name.
func Describe(ctx context.Context, db pgtx.DB, name string) (*Table, error) {
	return describeOne(ctx, db, name, findNameSQL, name)
}

// DescribeOID describes the table of that OID, under which it remains the same
// table when it is renamed or moved to another schema. Errors are those of
// [Describe].
func DescribeOID(ctx context.Context, db pgtx.DB, oid uint32) (*Table, error) {
	return describeOne(ctx, db, fmt.Sprintf("with OID %d", oid), findOIDSQL, oid)
}

// DescribeSchema describes all tables of a schema by name: ordinary,
// partitioned with their partitions, and foreign ones, but no views. The schema's
// name is plain, not quoted. It returns an error that matches [ErrNoSchema] when
// there is no such schema.
func DescribeSchema(ctx context.Context, db pgtx.DB, schema string) ([]*Table, error) {
	relations, tables, err := describe(ctx, db, findSchemaSQL, schema)
	if err == nil && len(relations) == 0 {
		err = fmt.Errorf("%w: %s", ErrNoSchema, pgx.Identifier{schema}.Sanitize())
	}
	return tables, err
}

func describeOne(ctx context.Context, db pgtx.DB, name, findSQL string, arg any) (*Table, error) {
	relations, tables, err := describe(ctx, db, findSQL, arg)
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && (pgErr.Code == codeInvalidName || pgErr.Code == codeSyntaxError || pgErr.Code == codeOtherDatabase):
		return nil, &NotTableError{Name: name, Err: err}
	case err != nil:
		return nil, err
	case len(relations) == 0:
		return nil, &NotTableError{Name: name}
	case len(tables) == 0: // or it has been dropped since it was found
		return nil, &NotTableError{Name: name, Kind: notTables[relations[0].kind]}
	}
	return tables[0], nil
}

// notTables are the codes of relations that can't be described.
var notTables = map[string]string{
	"i": "index", "I": "index", "S": "sequence", "c": "composite type", "t": "TOAST table",
}

// found is a relation that was looked up, OID 0 for a schema without tables.
type found struct {
	oid  uint32
	kind string // pg_class.relkind
}

// errTakeBack ends a look at the catalogs that has nothing to keep.
var errTakeBack = errors.New("take back")

// describe finds relations as the caller names them and describes those that are
// tables, with settings of its own, which are taken back with the transaction or
// the savepoint.
func describe(ctx context.Context, db pgtx.DB, findSQL string, arg any) (relations []found, tables []*Table, err error) {
	err = pgtx.Run(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, findSQL, arg)
		relations, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r found, err error) {
			return r, row.Scan(&r.oid, &r.kind)
		})
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, pinSQL); err != nil {
			return err
		}
		oids := make([]uint32, 0, len(relations))
		for _, r := range relations {
			oids = append(oids, r.oid)
		}
		rows, _ = tx.Query(ctx, describeSQL, oids)
		tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Table, error) {
			var text string
			if err := row.Scan(&text); err != nil {
				return nil, err
			}
			return parse(text)
		})
		if err != nil {
			return err
		}
		return errTakeBack
	})
	if errors.Is(err, errTakeBack) {
		return relations, tables, nil
	}
	return nil, nil, err
}

// parse reads one row of describe.sql, whose keys are the names of fields.
func parse(text string) (*Table, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	table := new(Table)
	if err := decoder.Decode(table); err != nil {
		return nil, fmt.Errorf("reading a table's description: %w", err)
	}
	return table, nil
}
