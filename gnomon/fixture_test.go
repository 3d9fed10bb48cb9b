package gnomon_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) {
	// Each case of a property test is many statements. -rapid.checks asks for more of them.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	pgserver.Main(m)
}

// installed returns a Gnomon in a fresh database, and its pool.
func installed(t testing.TB) (*gnomon.Gnomon, *pgxpool.Pool) {
	t.Helper()
	pool := pgserver.Copy(t, "gnomon", func(ctx context.Context, db *pgxpool.Pool) error { return gnomon.Install(ctx, db) })
	return gnomon.New(pool), pool
}

// tracked is installed with the table shop.orders tracked: id (the key), customer, total, note.
func tracked(t testing.TB) (*gnomon.Gnomon, *pgxpool.Pool) {
	t.Helper()
	g, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, customer text not null, total numeric(10, 2), note text)")
	track(t, g, "shop.orders")
	return g, pool
}

// track tracks tables.
func track(t testing.TB, g *gnomon.Gnomon, tables ...string) {
	t.Helper()
	ok(t, g.Track(t.Context(), tables...))
}

// run executes statements, each in a transaction of its own.
func run(t testing.TB, db gnomon.DB, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// column returns what a query with one column returns.
func column[T any](t testing.TB, db gnomon.DB, sql string, args ...any) []T {
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
func text(t testing.TB, db gnomon.DB, sql string, args ...any) string {
	t.Helper()
	return strings.Join(column[string](t, db, "select q::text from ("+sql+") q", args...), "\n")
}

// connectAs connects as a role; the empty name is whom the connection string names.
func connectAs(t testing.TB, connString, role string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(connString)
	ok(t, err)
	if role != "" {
		config.User = role
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// letRead grants a role what readers of the past take; rights to the tables are another matter.
func letRead(t testing.TB, db gnomon.DB, role string) {
	t.Helper()
	ok(t, gnomon.Grant(t.Context(), db, role, "", ""))
}

// refuses fails the test unless err is of a kind.
func refuses(t testing.TB, err error, kind error) *gnomon.Error {
	t.Helper()
	var e *gnomon.Error
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	errors.As(err, &e)
	return e
}

// sqlState returns the SQLSTATE of a database error, or the text of another one.
func sqlState(err error) string {
	if refusal, isPg := errors.AsType[*pgconn.PgError](err); isPg {
		return refusal.Code
	}
	return fmt.Sprint(err)
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
