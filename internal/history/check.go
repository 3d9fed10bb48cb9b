package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Finding is something that keeps a history from being complete.
type Finding struct {
	History ID     // 0 where it is about the whole database
	Table   string // as SQL names it
	What    string // a word such as column, partition, trigger
	Detail  string // in words
	Hint    string // what to do
}

// Check returns what keeps histories from being complete: nothing when all is well.
func Check(ctx context.Context, db pgtx.DB) (findings []Finding, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		findings, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Finding])
		return err
	}, "select coalesce(tracked, 0), coalesce(relation::text, ''), what, detail, hint from annals.check_capture() order by 1, 3, 4")
	return findings, Refused(err)
}
