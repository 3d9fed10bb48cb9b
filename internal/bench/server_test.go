package bench

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestServerHasItsSettings(t *testing.T) {
	for d, onOff := range map[Durability]string{Volatile: "off", Durable: "on"} {
		server := Server(t, d)
		conn, err := pgx.Connect(t.Context(), Database(t, server))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		check := func(name, want string) {
			var got string
			if err := conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		for name, want := range settings {
			check(name, want)
		}
		for _, name := range durability {
			check(name, onOff)
		}
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	server := Server(t, Volatile)
	var db string
	t.Run("benchmark", func(t *testing.T) {
		db = Database(t, server)
		conn, err := pgx.Connect(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close(t.Context())
	})
	if conn, err := pgx.Connect(t.Context(), db); err == nil {
		conn.Close(t.Context())
		t.Error("the database is still there")
	}
}
