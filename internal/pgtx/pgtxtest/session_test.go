package pgtxtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// recorder is a testing.TB that notes failures and does not fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgserver.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestAssertSessionUnchanged(t *testing.T) {
	const inTx, outside = true, false
	for _, c := range []struct {
		name   string
		inTx   bool
		script string
		want   string // part of the one failure; "" when the session counts as unchanged
	}{
		{"nothing", outside, "select 1", ""},
		{"setting", outside, "set work_mem = '77MB'", "setting work_mem"},
		{"setting to its value", outside, "set search_path = \"$user\", public", ""},
		{"search path", outside, "set search_path = pg_catalog", "setting search_path"},
		{"local setting that ended", outside, "begin; set local work_mem = '77MB'; commit", ""},
		{"local setting that goes on", inTx, "set local work_mem = '77MB'", "setting work_mem"},
		{"setting undone by a savepoint", inTx, "savepoint s; set work_mem = '77MB'; rollback to s; release s", ""},
		{"custom setting", outside, "set annals.branch = 'x'", "setting annals.branch"},
		{"custom setting emptied", outside, "set annals.branch = 'x'; set annals.branch = ''", ""},
		{"custom setting of a function", outside, "set annals.secret = 'x'", "setting annals.secret"},
		{"custom local setting that ended", outside, "begin; set local annals.branch = 'x'; commit", ""},
		{"role", outside, "set role pg_monitor", "current_user"},
		{"role of the transaction", inTx, "set local role pg_monitor", "current_user"},
		{"read only", inTx, "set transaction read only", "setting transaction_read_only"},
		{"session lock", outside, "select pg_advisory_lock(-42)", "advisory lock"},
		{"session lock given back", outside, "select pg_advisory_lock(42), pg_advisory_unlock(42)", ""},
		{"session lock in a transaction", inTx, "select pg_advisory_lock(42)", "advisory lock"},
		{"shared session lock in a transaction", inTx, "select pg_advisory_lock_shared(-1, 2)", "advisory lock"},
		{"transaction lock", inTx, "select pg_advisory_xact_lock(42), pg_advisory_xact_lock_shared(1, -2)", ""},
		{"listen", outside, "listen news", "listening to news"},
		{"temporary table", outside, "create temporary table scratch ()", "temporary relation scratch"},
		{"cursor", inTx, "declare c cursor for select 1", "cursor c"},
		{"constraints deferred", inTx, "set constraints all deferred", "initially immediate ones are deferred"},
		{"constraints immediate", inTx, "set constraints all immediate", "initially deferred ones are immediate"},
		{"transaction left open", outside, "begin", "transaction status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t)
			exec(t, conn, `create function secret() returns text language sql as $$ select Current_Setting ( 'annals.secret', true ) $$`)
			if c.inTx {
				exec(t, conn, "begin")
			}
			r := &recorder{TB: t}
			pgtxtest.AssertSessionUnchanged(r, conn, func() { exec(t, conn, c.script) }, "annals.branch")
			got := strings.Join(r.failures, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s: reported %q, want %q", c.script, got, c.want)
			}
		})
	}
}
