package gnomon

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// Side is what a branch is compared with.
type Side string

const (
	// TheBase is what the branch was made from, as a merge compares with it: of a row that was merged, what was merged.
	TheBase Side = "base"
	// Main is main as it is now.
	Main Side = "main"
)

// OtherBranch is another branch.
func OtherBranch(name string) Side { return Side("branch:" + name) }

// OwnPast is what the branch was at a place, which takes a logged one.
func OwnPast(ref Ref) Side { return Side(ref) }

// BranchRowDiff is a row in which a branch differs from something else.
type BranchRowDiff struct {
	Table     string // as in SQL, with its schema
	Key       Key
	Operation Operation          // what makes a row of the other side one of the branch: insert, update or delete
	Columns   []string           // that differ, of an inserted or deleted row all
	Base      map[string]*string // texts of all columns, nil is null; nil when there is no such row
	Branch    map[string]*string
	Other     map[string]*string // as Base where the branch is compared with that
	// The last change of the row on the branch; zero when it made none.
	V           int64
	Transaction string // "1:7001"
	At          time.Time
	Login       string
}

// Diff returns the rows in which the branch differs from its base, from main, from another branch or from its own past, with their values at
// the base, on the branch and on the other side. Tables come in the order of their names, of all that the caller may read where none is
// named, and rows in the order of their keys. A row that changed its key is deleted under the old one and inserted under the new one. Against [Main], a
// row that only main has changed has the same values at the base and on the branch.
//
// [ErrUnknownBranch]; [ErrNotOnBranch]: its own past was asked of a branch that is not logged, the columns of a table have changed since its base, or row-level
// security restricts the role; [ErrNotTracked]; and the errors of places. Values are as those of [Gnomon.Diff], and rows are read while the loop goes on, as there.
func (b *Branch) Diff(ctx context.Context, against Side, tables ...string) iter.Seq2[BranchRowDiff, error] {
	return func(yield func(BranchRowDiff, error) bool) {
		err := pgtx.Query(ctx, b.db, func(rows pgx.Rows) error {
			for rows.Next() {
				var d BranchRowDiff
				err := rows.Scan(&d.Table, (*[]string)(&d.Key), &d.Operation, &d.Columns, &d.Base, &d.Branch, &d.Other, (*zeronull.Int8)(&d.V), (*zeronull.Text)(&d.Transaction), (*zeronull.Timestamptz)(&d.At), (*zeronull.Text)(&d.Login))
				if err != nil {
					return err
				}
				if against == TheBase {
					d.Other = d.Base
				}
				if !yield(d, nil) {
					return errStopped
				}
			}
			return rows.Err()
		}, "select * from gnomon.branch_diff($1, $2, $3::text[]::regclass[])", b.Name(), string(against), tables)
		if err != nil && !errors.Is(err, errStopped) {
			yield(BranchRowDiff{}, refused(err))
		}
	}
}

// DiffCounts counts what [Branch.Diff] returns, for each table in which something differs.
func (b *Branch) DiffCounts(ctx context.Context, against Side, tables ...string) ([]DiffCount, error) {
	return rowsOf(ctx, b.db, pgx.RowToStructByPos[DiffCount], "select * from gnomon.branch_diff_counts($1, $2, $3::text[]::regclass[])", b.Name(), string(against), tables)
}

// StepsOptions say which changes [Branch.Steps] returns. The zero value means all.
type StepsOptions struct {
	Table string // of one table
	Key   Key    // of one row of it
	Since Ref    // those after a place
}

// Steps returns every change on a logged branch, with the values before and after it. Tables come in the order of their names, and the
// changes of a table in that in which they happened. [ErrNotOnBranch]: the branch is not logged; other errors are those of [Branch.Diff].
func (b *Branch) Steps(ctx context.Context, o StepsOptions) iter.Seq2[RowDiff, error] {
	return func(yield func(RowDiff, error) bool) {
		var tables []string
		if o.Table != "" {
			tables = []string{o.Table}
		}
		err := pgtx.Query(ctx, b.db, func(rows pgx.Rows) error {
			for rows.Next() {
				var d RowDiff
				if err := rows.Scan(&d.Table, (*[]string)(&d.Key), &d.Operation, &d.Columns, &d.Old, &d.New, &d.V, &d.Transaction, &d.At, &d.Who.Login); err != nil {
					return err
				}
				if !yield(d, nil) {
					return errStopped
				}
			}
			return rows.Err()
		}, "select * from gnomon.branch_steps($1, $2, $3::text[]::regclass[], $4)", b.Name(), zeronull.Text(o.Since), tables, []string(o.Key))
		if err != nil && !errors.Is(err, errStopped) {
			yield(RowDiff{}, refused(err))
		}
	}
}
