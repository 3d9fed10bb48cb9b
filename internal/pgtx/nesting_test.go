package pgtx_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/internal/pgtx"
)

// TestNesting runs random nested operations, some of which fail, and compares
// what is in the table with a model that keeps the items of those which didn't.
func TestNesting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, database(t), pgx.QueryExecModeCacheStatement)
	rapid.Check(t, func(r *rapid.T) {
		tx, err := conn.Begin(ctx)
		must(t, err)
		defer tx.Rollback(ctx)
		var next int32
		var run func(db pgtx.DB, depth int) ([]int32, error)
		run = func(db pgtx.DB, depth int) (kept []int32, err error) {
			for range rapid.IntRange(0, 3).Draw(r, "steps") {
				what := rapid.SampledFrom([]string{"insert", "fail", "guard", "run", "nested tx"}).Draw(r, fmt.Sprint("step at depth ", depth))
				var inner []int32
				operation, nests := operations[map[string]string{"guard": "Guard", "run": "Run"}[what]]
				switch {
				case what == "insert":
					next++
					_, err := pgtx.Exec(ctx, db, insertItem, next)
					must(t, err)
					kept = append(kept, next)
				case what == "fail":
					_, err := pgtx.Exec(ctx, db, divideByZero, 0)
					if !hasCode(err, "22012") {
						r.Fatalf("division by zero: %v", err)
					}
				case depth == 3:
				case nests:
					fails := rapid.Bool().Draw(r, "fails")
					err := operation(ctx, db, func(db pgtx.DB) (err error) {
						if inner, err = run(db, depth+1); err == nil && fails {
							err = errGiveUp
						}
						return err
					})
					if fails != (err == errGiveUp) {
						r.Fatalf("%s: %v", what, err)
					}
					if err == nil {
						kept = append(kept, inner...)
					}
				default:
					nested, err := db.Begin(ctx)
					must(t, err)
					if inner, err = run(nested, depth+1); err != nil {
						return nil, err
					}
					must(t, nested.Commit(ctx))
					kept = append(kept, inner...)
				}
			}
			return kept, nil
		}
		kept, err := run(tx, 0)
		must(t, err)
		if got := items(t, tx); fmt.Sprint(got) != fmt.Sprint(kept) {
			r.Fatalf("items are %v, want %v", got, kept)
		}
		wantNoSavepoint(t, tx)
	})
}
