package catalog_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/catalog"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

var (
	//go:embed testdata/city.sql
	citySQL string
	//go:embed testdata/city18.sql
	city18SQL string
)

// city connects to a fresh database with the tables of testdata, and a
// search_path that has none of them.
func city(t *testing.T) *pgx.Conn {
	t.Helper()
	conn := connect(t)
	exec(t, conn, citySQL)
	if pgserver.Shared(t).Version() >= 18 {
		exec(t, conn, city18SQL)
	}
	exec(t, conn, "reset search_path")
	return conn
}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgserver.Database(t))
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func describe(t *testing.T, db pgtx.DB, name string) *catalog.Table {
	t.Helper()
	table, err := catalog.Describe(t.Context(), db, name)
	must(t, err)
	return table
}

var oid = regexp.MustCompile(`"(\w*OID|Parent)": \d+`)

// want compares parts of a description, but for OIDs, which are different each
// time.
func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	g, w := oid.ReplaceAllString(text(t, got), `"$1": 0`), text(t, want)
	if g != w {
		t.Errorf("%s is\n%s\nwant\n%s", what, g, w)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	must(t, err)
	return string(b)
}

func exec(t *testing.T, db pgtx.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
