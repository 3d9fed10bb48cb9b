package pgserver

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// withoutEnvironment lets the test alone decide which server the environment names.
func withoutEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"DATABASE_URL", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGSERVICE", "ANNALS_PG"} {
		t.Setenv(name, "")
	}
}

// A server that somebody else started is reached by URL, by keywords and by PG* variables.
func TestServerOfTheEnvironment(t *testing.T) {
	theirs := New(t, Options{})
	conn := connect(t, theirs.ConnString("postgres"))
	execute(t, conn, "CREATE DATABASE precious")
	socket := theirs.own.folder.path
	databaseURL := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/precious",
		RawQuery: url.Values{"host": {socket}, "application_name": {"it's"}}.Encode(),
	}
	for name, environment := range map[string]map[string]string{
		"URL":      {"DATABASE_URL": databaseURL.String()},
		"keywords": {"DATABASE_URL": theirs.ConnString("precious") + " application_name='it\\'s'"},
		"PGHOST":   {"PGHOST": socket, "PGUSER": superuser, "PGDATABASE": "precious", "PGAPPNAME": "it's"},
	} {
		t.Run(name, func(t *testing.T) {
			withoutEnvironment(t)
			for key, value := range environment {
				t.Setenv(key, value)
			}
			s, err := Start(t.Context(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Owned() || s.Version() != theirs.Version() || s.Pid() != 0 || s.DataDir() != "" || s.LogFile() != "" {
				t.Errorf("owned %t, version %d, pid %d, data %q, log %q",
					s.Owned(), s.Version(), s.Pid(), s.DataDir(), s.LogFile())
			}
			made, err := s.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conn := connect(t, s.ConnString(made))
			if got := value[string](t, conn, "SELECT current_database() || current_setting('application_name')"); got != made+"it's" {
				t.Errorf("connected as %q, not to %q", got, made)
			}
			if err := s.DropDatabase(t.Context(), "precious"); !errors.Is(err, ErrNotCreated) {
				t.Errorf("dropping the user's database: %v", err)
			}
			_, standby := s.Standby(t.Context())
			for name, err := range map[string]error{
				"Kill": s.Kill(t.Context()), "Restart": s.Restart(t.Context()), "Standby": standby, "Promote": s.Promote(t.Context()),
				"CatchUp": s.CatchUp(t.Context()),
			} {
				if !errors.Is(err, ErrNotOwned) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if _, err := pgx.Connect(t.Context(), s.ConnString(made)); err == nil {
				t.Error("Stop left a database behind")
			}
			connect(t, s.ConnString("precious"))
		})
	}
}

func TestServerOfTheEnvironmentMustFit(t *testing.T) {
	theirs := New(t, Options{})
	withoutEnvironment(t)
	t.Setenv("DATABASE_URL", theirs.ConnString("postgres"))

	t.Setenv("ANNALS_PG", strconv.Itoa(theirs.Version()+1))
	_, err := Start(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), "ANNALS_PG="+strconv.Itoa(theirs.Version()+1)) {
		t.Errorf("with another ANNALS_PG: %v", err)
	}

	t.Setenv("ANNALS_PG", strconv.Itoa(theirs.Version()))
	for name, o := range map[string]Options{
		"Own": {Own: true}, "Settings": {Settings: map[string]string{"work_mem": "5MB"}}, "Version": {Version: theirs.Version()},
	} {
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Owned() {
			t.Errorf("with %s the user's server was taken", name)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// A user who may create databases and roles and nothing else, with a password.
func TestServerOfTheEnvironmentWithoutSuperuser(t *testing.T) {
	theirs := New(t, Options{})
	execute(t, connect(t, theirs.ConnString("postgres")),
		`CREATE ROLE "d'ev" LOGIN CREATEDB CREATEROLE PASSWORD 'a b\c''d'`)
	withoutEnvironment(t)
	t.Setenv("DATABASE_URL", theirs.ConnString("postgres")+` user='d\'ev' password='a b\\c\'d'`)
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	name, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := connect(t, s.ConnString(name))
	role := Role(t, s, "reader")
	execute(t, owner, "CREATE TABLE t (n int); GRANT SELECT ON t TO "+role+"; GRANT CREATE ON SCHEMA public TO "+role)
	conn := connect(t, s.ConnString(name)+" user="+role)
	execute(t, conn, "CREATE TABLE own AS SELECT * FROM t")
	var secret *string
	err = connect(t, theirs.ConnString("postgres")).QueryRow(t.Context(),
		"SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&secret)
	if err != nil || secret == nil {
		t.Errorf("the role got no password: %v", err)
	}
}

func TestKeywordsMeanWhatTheURLMeans(t *testing.T) {
	withoutEnvironment(t)
	for _, text := range []string{
		"postgres://localhost",
		"postgresql://u@localhost:6000/db",
		"postgres://u:p%27%5C%20@[::1]:6000/d%20b?sslmode=disable&application_name=a%20b",
		"postgres://u@host:1/db?sslmode=disable&target_session_attrs=read-write",
		"postgres:///db?host=/run/sock%20et&user=me&sslmode=disable",
	} {
		converted, err := keywords(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want, err := pgx.ParseConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.ParseConfig(converted + " dbname='other db'")
		if err != nil {
			t.Errorf("%s became %s: %v", text, converted, err)
			continue
		}
		if got.Host != want.Host || got.Port != want.Port || got.User != want.User || got.Password != want.Password ||
			got.Database != "other db" || !maps.Equal(got.RuntimeParams, want.RuntimeParams) ||
			len(got.Fallbacks) != len(want.Fallbacks) {
			t.Errorf("%s became %s", text, converted)
		}
	}
	if _, err := keywords("postgres://u:secret@h:x/"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestUnreachableServerOfTheEnvironment(t *testing.T) {
	withoutEnvironment(t)
	t.Setenv("PGHOST", t.TempDir())
	_, err := Start(context.Background(), Options{})
	if err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "PGHOST") {
		t.Errorf("whoever names a server wants that one: %v", err)
	}
}
