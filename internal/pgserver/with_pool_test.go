package pgserver

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestWithPoolLeavesNothing(t *testing.T) {
	Shared(t) // skips where there is no PostgreSQL
	failure := errors.New("failure")
	var connString string
	err := WithPool(t.Context(), func(pool *pgxpool.Pool) error {
		connString = pool.Config().ConnString()
		var one int
		return errors.Join(pool.QueryRow(t.Context(), "SELECT 1").Scan(&one), failure)
	})
	if err == nil || err.Error() != failure.Error() {
		t.Fatalf("got %v", err)
	}
	pool, err := pgxpool.New(t.Context(), connString)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("its database is still there")
	}
}
