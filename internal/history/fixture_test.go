package history_test

import (
	"context"
	_ "embed"
	"flag"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

func TestMain(m *testing.M) {
	// Each case of a property test is many statements. -rapid.checks asks for more of them.
	if err := flag.Set("rapid.checks", "4"); err != nil {
		panic(err)
	}
	pgserver.Main(m)
}

//go:embed testdata/replay.sql
var replaySQL string

// installed returns a pool on a fresh database with the schema annals, and beside it the schema replay, which compares.
func installed(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pgserver.Copy(t, "history", func(ctx context.Context, db *pgxpool.Pool) error {
		if err := history.Install(ctx, db); err != nil {
			return err
		}
		_, err := db.Exec(ctx, replaySQL)
		return err
	})
}

func install(t testing.TB, db pgtx.DB) {
	t.Helper()
	ok(t, history.Install(t.Context(), db))
	exec(t, db, replaySQL)
}

// session opens a connection to the pool's database. Settings such as "user=somebody" change what it is.
func session(t testing.TB, pool *pgxpool.Pool, settings ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.Join(append([]string{pool.Config().ConnString()}, settings...), " "))
	ok(t, err)
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// track begins the history of a table, with options as JSON or "", and returns its number.
func track(t testing.TB, db pgtx.DB, table, options string) int {
	t.Helper()
	if options == "" {
		options = "{}"
	}
	return one[int](t, db, "select annals.track($1::text::regclass, 'test', $2::text::jsonb)", table, options)
}

// remember copies a tracked table as a new transaction sees it, and returns the coordinate of what it saw. [compare] looks at all
// copies of a table.
func remember(t testing.TB, pool *pgxpool.Pool, table, what string) (coordinate string) {
	t.Helper()
	ok(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "select replay.remember($1::text::regclass, $2)", table, what).Scan(&coordinate)
	}))
	return coordinate
}

// compare fails the test unless history tells every remembered state of the table exactly.
func compare(t testing.TB, db pgtx.DB, table string) {
	t.Helper()
	for _, d := range differences(t, db, table) {
		t.Error(d)
	}
}

func differences(t testing.TB, db pgtx.DB, table string) []string {
	t.Helper()
	return many[string](t, db, `select format('%s: before %s (at %s) it was %s, history tells %s', $1::text, what, coordinate, coalesce(was, 'no row'), coalesce(told, 'no row'))
		from replay.differences($1::text::regclass)`, table)
}

func exec(t testing.TB, db pgtx.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
}

// one returns the value that a query finds.
func one[T any](t testing.TB, db pgtx.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return v
}

// many returns the values of one column.
func many[T any](t testing.TB, db pgtx.DB, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	ok(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return values
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
