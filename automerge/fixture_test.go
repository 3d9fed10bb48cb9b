package automerge_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// installed returns a store in a fresh database, and its pool.
func installed(t testing.TB) (*automerge.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgserver.Copy(t, "automerge", func(ctx context.Context, db *pgxpool.Pool) error { return automerge.Install(ctx, db) })
	return automerge.New(pool), pool
}

// fixture reads a file of the test data.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return must[[]byte](t)(os.ReadFile(pgserver.TestData(t, "automerge/"+name)))
}

// expected is what Automerge says about a save.
type expected struct {
	Heads   []automerge.Hash
	Changes int
	JSON    json.RawMessage
}

func expectedOf(t testing.TB, name string) (e expected) {
	t.Helper()
	ok(t, json.Unmarshal(fixture(t, name+".am.expected.json"), &e))
	return e
}

// run executes statements, each in a transaction of its own.
func run(t testing.TB, db automerge.DB, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// column returns what a query with one column returns.
func column[T any](t testing.TB, db automerge.DB, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	ok(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// text returns what a query returns, a line for each row, as PostgreSQL writes rows.
func text(t testing.TB, db automerge.DB, sql string, args ...any) string {
	t.Helper()
	return strings.Join(column[string](t, db, "select q::text from ("+sql+") q", args...), "\n")
}

// connectAs connects as a role; the empty name is whom the connection string names.
func connectAs(t testing.TB, connString, role string) *pgx.Conn {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig(connString))
	if role != "" {
		config.User = role
	}
	c := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// refuses fails the test unless err is of a kind.
func refuses(t testing.TB, err error, kind error) *automerge.Error {
	t.Helper()
	var e *automerge.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	return e
}

// sqlState returns the SQLSTATE of a database error, or nothing.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func asError(err error, e **automerge.Error) bool { return errors.As(err, e) }
