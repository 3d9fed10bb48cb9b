package volvra

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Mark is a named moment to which one can undo. It sees what was committed when it was set and, of its own transaction, what was done
// before it.
type Mark struct {
	Name       string
	Coordinate string // what was committed then; as a [Moment] it is exact, but unlike the mark does not see the transaction that set it
	Position   int64  // of its own transaction it sees what is not above
	At         time.Time
	Role       string // that set it
}

// Mark sets a mark and returns its coordinate. Purging keeps history from there on until the mark is dropped. A name has 1 to 200
// characters; [ErrMark]: it is none, or taken.
func (v *Volvra) Mark(ctx context.Context, name string) (coordinate string, err error) {
	err = pgtx.QueryRow(ctx, v.db, []any{&coordinate}, "select volvra.mark($1)", name)
	return coordinate, refused(err)
}

// Marks returns the marks that are set, oldest first.
func (v *Volvra) Marks(ctx context.Context) (marks []Mark, err error) {
	err = pgtx.Query(ctx, v.db, func(rows pgx.Rows) error {
		marks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Mark])
		return err
	}, "select name, coordinate, v, at, login from volvra.marks order by v")
	return marks, refused(err)
}

// DropMark removes a mark. [ErrMark]: there is none of that name.
func (v *Volvra) DropMark(ctx context.Context, name string) error {
	_, err := pgtx.Exec(ctx, v.db, "select volvra.drop_mark($1)", name)
	return refused(err)
}
