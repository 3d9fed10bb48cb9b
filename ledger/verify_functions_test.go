package ledger

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
)

// No function whose text the database keeps escapes the comparison.
func TestFunctionBodiesAreKnown(t *testing.T) {
	t.Parallel()
	pool := pgserver.Pool(t)
	if err := Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	_, bodies, err := functionBodies()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), "select proname::text, prosrc from pg_proc where pronamespace = 'ledger'::regnamespace and prosrc <> ''")
	if err != nil {
		t.Fatal(err)
	}
	var name, body string
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &body}, func() error {
		if n++; bodies[name] != body {
			t.Errorf("ledger.%s is read from the steps as %q", name, bodies[name])
		}
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%d functions, %v", n, err)
	}
}
