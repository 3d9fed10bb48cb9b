package pgserver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		helper()
	}
	Main(m)
}

// connect opens a connection that the test closes.
func connect(t *testing.T, connString string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), connString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// value returns the one value of a query.
func value[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// eventually waits for something that another process does in its own time.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !happened() {
		if pause(ctx) != nil {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func TestServerIsAsDocumented(t *testing.T) {
	s := New(t, Options{})
	conn := connect(t, s.ConnString("postgres"))
	for name, want := range map[string]string{
		"listen_addresses":          "",
		"fsync":                     "off",
		"full_page_writes":          "off",
		"jit":                       "off",
		"max_connections":           "200",
		"max_prepared_transactions": "10",
		"track_commit_timestamp":    "off",
		"temp_file_limit":           "2GB",
		"server_encoding":           "UTF8",
		"TimeZone":                  "UTC",
		"data_directory":            s.DataDir(),
	} {
		if got := value[string](t, conn, "SHOW "+name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if got := value[int](t, conn, "SELECT current_setting('server_version_num')::int / 10000"); got != s.Version() {
		t.Errorf("PostgreSQL %d calls itself %d", s.Version(), got)
	}
	if !s.Owned() || s.Pid() == 0 {
		t.Errorf("owned %t, pid %d", s.Owned(), s.Pid())
	}
	if value[string](t, conn, "SELECT current_user") != superuser {
		t.Error("not connected as the superuser")
	}
}

func TestSettingsOverride(t *testing.T) {
	s := New(t, Options{Settings: map[string]string{"fsync": "on", "work_mem": "5MB"}})
	conn := connect(t, s.ConnString("postgres"))
	if got := value[string](t, conn, "SHOW fsync") + value[string](t, conn, "SHOW work_mem"); got != "on5MB" {
		t.Errorf("got %q", got)
	}
	if strings.HasPrefix(s.DataDir(), memory) {
		t.Errorf("with fsync the data are in memory: %s", s.DataDir())
	}
}

func TestFailuresAreReportedAndLeaveNothing(t *testing.T) {
	// Nobody else's run folders are in a cache of one's own.
	own, err := os.MkdirTemp("", "own-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", own)
	s := New(t, Options{})
	only := func(after string) {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(own, "*", "run-*"))
		if err != nil || len(paths) != 1 || paths[0] != s.own.folder.path {
			t.Errorf("after %s these folders are there: %v %v", after, paths, err)
		}
	}
	only("start")

	_, err = Start(t.Context(), Options{Settings: map[string]string{"work_mem": "a lot"}})
	if err == nil || !strings.Contains(err.Error(), `"work_mem": "a lot"`) {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
	only("a wrong setting")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(cancelled, Options{Own: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a cancelled context: %v", err)
	}
	for _, delay := range []time.Duration{1, 2, 3, 4, 6, 8, 10, 15, 20, 25, 40} { // somewhere in the middle
		soon, cancel := context.WithTimeout(t.Context(), delay*time.Millisecond)
		started, err := Start(soon, Options{Own: true})
		cancel()
		if err == nil {
			err = started.Stop()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("cancelled after %d ms: %v", delay, err)
		}
	}
	if _, err := s.Standby(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("standby with a cancelled context: %v", err)
	}
	only("cancelled starts")

	conn := connect(t, s.ConnString("postgres"))
	if err := os.Symlink("/", filepath.Join(s.DataDir(), "odd")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Standby(t.Context()); err == nil || !strings.Contains(err.Error(), "odd") {
		t.Errorf("the error does not say what cannot be copied: %v", err)
	}
	only("a failed standby")
	if got := value[int](t, conn, "SELECT count(*) FROM pg_replication_slots"); got != 0 {
		t.Errorf("%d slots left by failed standbys", got)
	}
}

func TestStopRemovesEverything(t *testing.T) {
	s := New(t, Options{})
	conn := connect(t, s.ConnString("postgres"))
	folder, pid := s.own.folder.path, s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if exists(folder) {
		t.Errorf("%s is still there", folder)
	}
	if alive(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the server")
	}
	for name, err := range map[string]error{"Kill": s.Kill(t.Context()), "Restart": s.Restart(t.Context())} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s after Stop: %v", name, err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestCommittedDataSurviveKill(t *testing.T) {
	s := New(t, Options{})
	conn := connect(t, s.ConnString("postgres"))
	execute(t, conn, "CREATE TABLE kept (n int)")
	execute(t, conn, "INSERT INTO kept SELECT generate_series(1, 1000)")
	execute(t, conn, "BEGIN; INSERT INTO kept VALUES (-1)")
	for range 2 { // a server that has recovered once can do it again
		pid, connString := s.Pid(), s.ConnString("postgres")
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Pid() != 0 || alive(pid) {
			t.Errorf("after Kill, Pid is %d, and %d is alive: %t", s.Pid(), pid, alive(pid))
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Errorf("to kill a dead server: %v", err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.ConnString("postgres") != connString {
			t.Error("the restarted server has another connection string")
		}
		conn = connect(t, connString)
		if got := value[int](t, conn, "SELECT count(*) FROM kept"); got != 1000 {
			t.Errorf("%d rows after recovery", got)
		}
	}
	log, err := os.ReadFile(s.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "not properly shut down") {
		t.Errorf("no recovery took place: %s", log)
	}
}

// A backend that computes does not look whether its postmaster lives.
func TestKillEndsBusyBackends(t *testing.T) {
	s := New(t, Options{})
	watcher, worker := connect(t, s.ConnString("postgres")), connect(t, s.ConnString("postgres"))
	pid := int(worker.PgConn().PID())
	go worker.Exec(t.Context(), "DO 'BEGIN LOOP END LOOP; END'")
	eventually(t, "it computes", func() bool {
		return value[bool](t, watcher, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active')")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backend is gone", func() bool { return !alive(pid) })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKillLeavesNoSharedMemory(t *testing.T) {
	const list = "/proc/sysvipc/shm"
	if !exists(list) {
		t.Skip("only Linux lists shared memory there")
	}
	s := New(t, Options{})
	memory := strings.Fields(s.own.pidFileLine(sharedMemoryLine))
	listed := func() bool {
		content, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if fields := strings.Fields(line); fields[1] == memory[1] {
				return true
			}
		}
		return false
	}
	if len(memory) != 2 || !listed() {
		t.Fatalf("the running server has no shared memory %v", memory)
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if listed() {
		t.Errorf("shared memory %s is left", memory[1])
	}
}

func TestRestartOfARunningServerIsClean(t *testing.T) {
	s := New(t, Options{})
	execute(t, connect(t, s.ConnString("postgres")), "CREATE UNLOGGED TABLE u AS SELECT 1 AS n")
	pid := s.Pid()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Pid() == pid {
		t.Error("the same process still runs")
	}
	// Recovery after a crash would have emptied it.
	if got := value[int](t, connect(t, s.ConnString("postgres")), "SELECT count(*) FROM u"); got != 1 {
		t.Errorf("%d rows after a clean restart", got)
	}
}
