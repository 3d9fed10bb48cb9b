package schema_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// library is a package with three steps, of which version n has the first n.
func library(version int) schema.Package {
	return withSteps(map[string]string{
		"001_books": `
			create table book (id int primary key, title text not null);
			create function titles() returns bigint language plpgsql as $$ begin return (select count(*) from library.book); end $$;`,
		"002_readers": `alter table book add reader text; create index on book (reader);`,
		"003_no_titles": `
			do $step$ begin update book set title = upper(title); end $step$;
			drop function titles();`,
	}, version)
}

func withSteps(steps map[string]string, version int) schema.Package {
	files := fstest.MapFS{"sql/query.sql": {Data: []byte("not a step")}}
	for name, text := range steps {
		if name[:3] <= []string{"000", "001", "002", "003"}[version] {
			files["sql/"+name+".sql"] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return schema.Package{Name: "library", Schema: "library", Steps: files}
}

func connect(t *testing.T, connString string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), connString)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, db pgtx.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, db pgtx.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func wantVersion(t *testing.T, db pgtx.DB, p schema.Package, want int) {
	t.Helper()
	got, err := schema.Installed(t.Context(), db, p)
	if err != nil || got != want {
		t.Errorf("installed is version %d, %v, want %d", got, err, want)
	}
}

func hasCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
