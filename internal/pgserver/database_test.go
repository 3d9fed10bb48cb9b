package pgserver

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestDatabasesAreEmptyAndApart(t *testing.T) {
	first, second := connect(t, Database(t)), connect(t, Database(t))
	for _, conn := range []*pgx.Conn{first, second} {
		got := value[int](t, conn, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
		if got != 0 {
			t.Errorf("%d objects in a new database", got)
		}
	}
	execute(t, first, "CREATE TABLE here (n int)")
	if value[bool](t, second, "SELECT to_regclass('here') IS NOT NULL") {
		t.Error("one database shows in the other")
	}
	if first.Config().Database == second.Config().Database {
		t.Error("twice the same name")
	}
}

func TestDatabaseAndPoolEndWithTheTest(t *testing.T) {
	s := Shared(t)
	var name string
	var open interface{ Close() }
	t.Run("a test", func(t *testing.T) {
		pool := Pool(t)
		name, open = pool.Config().ConnConfig.Database, pool
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	open.Close() // a pool that is closed already takes that well
	conn := connect(t, s.ConnString(s.adminDatabase()))
	if value[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')") {
		t.Errorf("database %s outlived its test", name)
	}
}

func TestDropDatabase(t *testing.T) {
	s := Shared(t)
	name, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := &Server{version: s.version, external: s.external, own: s.own, created: map[string]bool{}}
	for who, err := range map[string]error{
		"another user of the server": other.DropDatabase(t.Context(), name),
		"of PostgreSQL's own":        s.DropDatabase(t.Context(), "postgres"),
		"that does not exist":        s.DropDatabase(t.Context(), `no"where`),
	} {
		if !errors.Is(err, ErrNotCreated) {
			t.Errorf("%s: %v", who, err)
		}
	}
	conn := connect(t, s.ConnString(name))
	execute(t, conn, "BEGIN; CREATE TABLE t (n int)")
	if err := s.DropDatabase(t.Context(), name); err != nil {
		t.Fatalf("with a connection open: %v", err)
	}
	if _, err := pgx.Connect(t.Context(), s.ConnString(name)); err == nil {
		t.Error("connected to the dropped database")
	}
	if err := s.DropDatabase(t.Context(), name); !errors.Is(err, ErrNotCreated) {
		t.Errorf("dropped twice: %v", err)
	}
}
