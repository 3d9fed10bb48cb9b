package ledger

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Pages start small, for those who look at the first few, and grow for those who read on.
const (
	firstPage   = 64
	largestPage = 1024
)

// paged yields rows page by page. fetch returns at most limit rows after last, which is nil for the first page; fewer are the end.
// Between pages nothing is open in the database, so the body of the loop may use the same transaction.
func paged[T any](fetch func(last *T, limit int) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *T
		for limit := firstPage; ; limit = min(2*limit, largestPage) {
			page, err := fetch(last, limit)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < limit {
				return
			}
			last = &page[len(page)-1]
		}
	}
}

// list runs one statement and collects its rows. Failures are handled as in [Ledger.call].
func list[T any](ctx context.Context, l *Ledger, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	run := func() error {
		return pgtx.Query(ctx, l.db, func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scan)
			return err
		}, sql, args...)
	}
	if pgtx.InTx(l.db) {
		err = run()
	} else {
		err = pgtx.Retry(ctx, run)
	}
	return found, refused(err)
}
