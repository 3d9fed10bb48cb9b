package pgserver_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

// TestCopiesAreEachTheirOwn: a database is filled once, and what one test does to its copy no other sees.
func TestCopiesAreEachTheirOwn(t *testing.T) {
	t.Parallel()
	fillings := 0
	fill := func(ctx context.Context, db *pgxpool.Pool) error {
		fillings++
		_, err := db.Exec(ctx, "create table filled (n int)")
		return err
	}
	first, second := pgserver.Copy(t, "filled", fill), pgserver.Copy(t, "filled", fill)
	if _, err := first.Exec(t.Context(), "insert into filled values (1)"); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := second.QueryRow(t.Context(), "select count(*) from filled").Scan(&rows); err != nil || rows != 0 || fillings != 1 {
		t.Errorf("the second copy has %d rows after %d fillings: %v", rows, fillings, err)
	}
}
