package pgserver

import (
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestPoolerPoolsTransactions(t *testing.T) {
	connString := Pooler(t, Database(t))
	conn := connect(t, connString)
	var sessions []int
	for range 4 {
		pid := value[int](t, conn, "SELECT pg_backend_pid()")
		if !slices.Contains(sessions, pid) {
			sessions = append(sessions, pid)
		}
	}
	if len(sessions) < 2 {
		t.Error("every transaction got the same session: nothing that one leaves behind would show")
	}
	// Within a transaction the session stays.
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		var first, second int
		if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&first); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&second); err != nil {
			return err
		}
		if first != second {
			t.Errorf("a transaction ran on two sessions, %d and %d", first, second)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Parameters work without prepared statements.
	var sum int
	if err := conn.QueryRow(t.Context(), "SELECT $1::int + $2::int", 1, 2).Scan(&sum); err != nil || sum != 3 {
		t.Errorf("1 + 2 is %d: %v", sum, err)
	}
}

func TestPoolerLetsRolesIn(t *testing.T) {
	s := Shared(t)
	connString := Pooler(t, Database(t))
	role := Role(t, s, "app") // later than the pooler
	conn := connect(t, connString+" user="+role)
	if got := value[string](t, conn, "SELECT session_user::text"); got != role {
		t.Errorf("%s is connected as %s", role, got)
	}
}

func TestPoolerEndsWithTheTest(t *testing.T) {
	var socket string
	t.Run("a test", func(t *testing.T) {
		config, err := pgx.ParseConfig(Pooler(t, Database(t)))
		if err != nil {
			t.Fatal(err)
		}
		socket = config.Host
	})
	if socket == "" {
		t.Skip("without pgbouncer there is nothing to see")
	}
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s is still there", socket)
	}
}
