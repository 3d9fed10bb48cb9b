package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/history"
)

// TestFollowingNeverFailsTheCommand: where capture cannot follow, the command succeeds, a warning says what to do, and Check reports it.
func TestFollowingNeverFailsTheCommand(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a text); insert into t values (1, 'x')")
	id := track(t, pool, "t", "")
	config := pool.Config().ConnConfig.Copy()
	var notices []*pgconn.Notice
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n) }
	conn, err := pgx.ConnectConfig(ctx, config)
	ok(t, err)
	defer conn.Close(ctx)

	exec(t, pool, "create table annals.h1_2 (in_the_way int)")
	exec(t, conn, "alter table t add b int")
	if len(notices) != 1 || !strings.Contains(notices[0].Hint, "annals.sync(1)") {
		t.Errorf("notices: %v", notices)
	}
	if got := strings.Join(findings(t, pool), "; "); !strings.Contains(got, "behind: ") || !strings.Contains(got, "column b is new") {
		t.Errorf("Check reports %s", got)
	}
	exec(t, pool, "update t set b = 1") // still captured, without b
	if from := one[int64](t, pool, "select annals.readable_from($1)", id); from != 1<<63-1 {
		t.Errorf("readable from %d meanwhile", from)
	}
	exec(t, pool, "drop table annals.h1_2")
	_, err = history.Sync(ctx, pool, history.ID(id))
	ok(t, err)
	assertWell(t, pool)
	exec(t, pool, "update t set b = 2")
	if got := lastImage(t, pool, id); got != `{"a": "x", "b": 1, "id": 1}` {
		t.Errorf("the old image is %s", got)
	}

	// Somebody reads the history: the view waits for him, the command does not, for long.
	reader, err := pool.Begin(ctx)
	ok(t, err)
	exec(t, reader, "select * from annals.h1")
	notices = nil
	began := time.Now()
	exec(t, conn, "alter table t add c int")
	if len(notices) != 1 || !strings.Contains(notices[0].Message, "somebody reads") || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), notices)
	}
	exec(t, conn, "update t set c = 1")
	if _, err := reader.Exec(ctx, "select count(*) from annals.h1"); err == nil {
		t.Error("a view that lacks a segment is read")
	}
	ok(t, reader.Rollback(ctx))
	if _, err := history.Sync(ctx, pool, history.ID(id)); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "select * from annals.h1")
	assertWell(t, pool)
	if got := gaps(t, pool, history.ID(id)); len(got) > 0 {
		t.Errorf("interruptions: %q", got)
	}
}

func TestUnrelatedDDLStaysCheap(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "do $$ begin for i in 1..40 loop execute format('create table t%s (id int primary key)', i); perform annals.track(format('t%s', i)::regclass, 'test'); end loop; end $$")
	exec(t, pool, "create table other (id int)")
	run := func() time.Duration {
		began := time.Now()
		exec(t, pool, "do $$ begin for i in 1..200 loop execute 'alter table other add x int'; execute 'alter table other drop x'; end loop; end $$")
		return time.Since(began)
	}
	best := func() time.Duration { return min(run(), run(), run()) }
	with := best()
	exec(t, pool, "alter event trigger annals_ddl_end disable; alter event trigger annals_drop disable")
	without := best()
	t.Logf("400 commands: %s, without event triggers %s", with, without)
	// Looking at each of the tracked tables would take far longer.
	if with > without+400*25*time.Millisecond {
		t.Errorf("a command on another table takes %s more", (with-without)/400)
	}
	if len(findings(t, pool)) != 2 {
		t.Errorf("disabled event triggers are not reported: %q", findings(t, pool))
	}
}
