package bench

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// turnLength is how long sides have their turn in tests: an operation or a few.
const turnLength = 2 * time.Millisecond

// times returns a loop condition that is true n times.
func times(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

// measure runs one iteration of r.
func measure(t *testing.T, r Run) *outcome {
	t.Helper()
	out, err := r.withDefaults().measure(t.Context(), times(1))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// query returns an Open whose operation runs one statement.
func query(sql string, args ...any) func(context.Context, *pgx.Conn, int) (Op, error) {
	return func(_ context.Context, conn *pgx.Conn, _ int) (Op, error) {
		return func(ctx context.Context) error {
			_, err := conn.Exec(ctx, sql, args...)
			return err
		}, nil
	}
}

// database returns a fresh database in which sql has been executed, and a connection to it.
func database(t *testing.T, sql string) (string, *pgx.Conn) {
	t.Helper()
	db := pgserver.Database(t)
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return db, conn
}
