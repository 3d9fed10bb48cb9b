package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// shared is this test process's one server.
var shared struct {
	sync.Mutex
	started bool
	server  *Server
	err     error
}

// Main is what a package's TestMain calls: it runs the tests, stops the server of [Shared] and exits.
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Shared returns the one server of this test process, which the first call starts. Without a PostgreSQL the test is
// skipped, or fails if ANNALS_REQUIRE_PG=1.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.started {
		// Not the test's context: the server outlives the test.
		shared.server, shared.err = Start(context.Background(), Options{})
		shared.started = true
	}
	need(t, shared.err)
	return shared.server
}

// New starts a server of the test's own, never somebody else's, and stops it when the test ends.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	o.Own = true
	s, err := Start(t.Context(), o)
	need(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// need ends the test for want of a PostgreSQL or because of another error.
func need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrUnavailable) {
		missing(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// missing skips the test, or fails it where everything must be there.
func missing(t testing.TB, sentence string) {
	t.Helper()
	if os.Getenv("ANNALS_REQUIRE_PG") == "1" {
		t.Fatal(sentence)
	}
	t.Skip(sentence)
}

// Database makes an empty database on the shared server for the test and returns its connection string, in
// keyword/value form. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	s := Shared(t)
	name, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return s.ConnString(name)
}

// Pool returns a pool on a fresh [Database]. It is closed when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestData returns the path of name in the folder ANNALS_TESTDATA, which holds what is too big or not ours to keep
// in the repository. The test is skipped if that is unset, and fails if name is missing in it.
func TestData(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("ANNALS_TESTDATA")
	if folder == "" {
		t.Skipf("set ANNALS_TESTDATA to the folder that holds %s", name)
	}
	path := filepath.Join(folder, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("ANNALS_TESTDATA: %v", err)
	}
	return path
}
