package volvra_test

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

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

func TestMain(m *testing.M) {
	// Each case of a property test is many statements. -rapid.checks asks for more of them.
	if err := flag.Set("rapid.checks", "60"); err != nil {
		panic(err)
	}
	pgserver.Main(m)
}

// installed returns a Volvra in a fresh database, and its pool.
func installed(t testing.TB) (*volvra.Volvra, *pgxpool.Pool) {
	t.Helper()
	pool := pgserver.Copy(t, "volvra", func(ctx context.Context, db *pgxpool.Pool) error { return volvra.Install(ctx, db) })
	return volvra.New(pool), pool
}

// covered is installed with the table shop.orders covered: id (the key), customer, total, note.
func covered(t testing.TB) (*volvra.Volvra, *pgxpool.Pool) {
	t.Helper()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, customer text not null, total numeric(10, 2), note text)")
	cover(t, v, "shop.orders")
	return v, pool
}

// cover covers tables.
func cover(t testing.TB, v *volvra.Volvra, tables ...string) {
	t.Helper()
	for _, table := range tables {
		_, err := v.Enable(t.Context(), table, volvra.Options{})
		ok(t, err)
	}
}

// run executes statements, each in a transaction of its own.
func run(t testing.TB, db volvra.DB, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// column returns what a query with one column returns.
func column[T any](t testing.TB, db volvra.DB, sql string, args ...any) []T {
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
func text(t testing.TB, db volvra.DB, sql string, args ...any) string {
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

// where is a condition.
func where(column string, op volvra.Op, value any) volvra.Condition {
	return volvra.Condition{Column: column, Op: op, Value: value}
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
