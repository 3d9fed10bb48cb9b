package gnomon

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

// DiffOptions say what a diff is of. The zero value means all tables that are tracked and that the caller may read, netted.
type DiffOptions struct {
	Tables []string // none: all that the caller may read
	Steps  bool     // every change in between
}

// RowDiff is a row that differs between two places, or with [DiffOptions.Steps] one change.
type RowDiff struct {
	Table     string // as in SQL, with its schema
	Key       Key
	Operation Operation          // insert, update or delete; a step may be a truncate
	Columns   []string           // that differ, of an inserted or deleted row all; nil: not known, since one side was erased
	Old       map[string]*string // texts of all columns, nil is null; nil when there was no row, empty when it was erased
	New       map[string]*string
	// The last change in between: its position, transaction ("1:7001"), when that began, and who made it.
	V           int64
	Transaction string
	At          time.Time
	Who         Who
}

// Diff returns the rows that differ between two places, with their values at both and the last change in between. The second place may
// be the earlier one: then it is what would have to be done to go back. A row that changed and changed back is not in it. A row that changed its
// key is deleted under the old one and inserted under the new one. Tables come in the order of their names, and the rows of a table in
// the order of their keys.
//
// With [DiffOptions.Steps] every change in between is returned, in an order, table by table, in which they can be applied to the rows of
// the first place to get those of the second one.
//
// Values are of the columns that the tables have now, without generated and excluded ones, as texts that don't depend on settings. A
// column is null where it did not exist yet. Row-level security holds: who is restricted by it gets what he could read at the places, as far as
// he may read the changes that tell it.
//
// Each table must reach both places: [ErrNoHistory] and [ErrPruned] name the one that doesn't, and the way out is to name the others.
// [ErrInvalid]: the places can't be compared, since each sees changes that the other one doesn't. Other errors are those of places and
// [ErrNotTracked]. The time that it takes grows with what has changed, not with the tables.
//
// Rows are read while the loop goes on, in a transaction, or under a savepoint of the caller's, whose connection can't be used for something else
// within the loop. A loop that ends early reads the rest and throws it away; end ctx to avoid that.
func (g *Gnomon) Diff(ctx context.Context, from, to Ref, o DiffOptions) iter.Seq2[RowDiff, error] {
	return func(yield func(RowDiff, error) bool) {
		err := inSettings(ctx, g.db, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select columns, query from gnomon.diff_queries($1, $2, $3::text[]::regclass[], $4)", string(from), string(to), o.Tables, o.Steps)
			if err != nil {
				return err
			}
			queries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[diffQuery])
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "set local search_path = pg_catalog, pg_temp"); err != nil {
				return err
			}
			for _, q := range queries {
				if err := q.read(ctx, tx, yield); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(RowDiff{}, refused(err))
		}
	}
}

// diffQuery returns what changed in one table.
type diffQuery struct {
	Columns []string
	SQL     string
}

// read reads the rows. It returns errStopped when the loop has ended.
func (q diffQuery) read(ctx context.Context, tx pgx.Tx, yield func(RowDiff, error) bool) error {
	// Each such statement is another one, so there is no use in preparing it. All but the address comes in binary.
	formats := pgx.QueryResultFormats{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}
	rows, err := tx.Query(ctx, q.SQL, pgx.QueryExecModeExec, formats)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d RowDiff
		var old, new []*string
		err := rows.Scan(&d.Table, (*[]string)(&d.Key), &d.Operation, &d.Columns, &old, &new, &d.V, &d.Transaction, &d.At,
			&d.Who.Login, (*zeronull.Text)(&d.Who.Role), (*zeronull.Text)(&d.Who.Actor), (*zeronull.Text)(&d.Who.Application), (*zeronull.Text)(&d.Who.Client))
		if err != nil {
			return err
		}
		d.Old, d.New = q.image(old), q.image(new)
		if !yield(d, nil) {
			return errStopped
		}
	}
	return rows.Err()
}

// image returns the texts of a row by their columns.
func (q diffQuery) image(texts []*string) map[string]*string {
	if texts == nil {
		return nil
	}
	image := make(map[string]*string, len(texts))
	for i, text := range texts {
		image[q.Columns[i]] = text
	}
	return image
}

// DiffCount says how many rows of a table differ between two places.
type DiffCount struct {
	Table                     string
	Inserts, Updates, Deletes int64
}

// DiffCounts counts what [Gnomon.Diff] returns, for each table.
func (g *Gnomon) DiffCounts(ctx context.Context, from, to Ref, tables ...string) ([]DiffCount, error) {
	return rowsOf(ctx, g.db, pgx.RowToStructByPos[DiffCount], "select * from gnomon.diff_counts($1, $2, $3::text[]::regclass[])", string(from), string(to), tables)
}
