package pgserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestStandbyFollowsAndIsPromoted(t *testing.T) {
	primary := New(t, Options{})
	conn := connect(t, primary.ConnString("postgres"))
	execute(t, conn, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)")

	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	reader := connect(t, standby.ConnString("postgres"))
	if got := value[int](t, reader, "SELECT count(*) FROM t"); got != 1 {
		t.Errorf("the standby has %d rows when it is returned", got)
	}
	var refused *pgconn.PgError
	if _, err := reader.Exec(t.Context(), "INSERT INTO t VALUES (0)"); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("a standby took a write: %v", err)
	}
	execute(t, conn, "INSERT INTO t VALUES (2)")
	if err := standby.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, reader, "SELECT count(*) FROM t"); got != 2 {
		t.Errorf("the standby has %d rows after CatchUp", got)
	}

	// A standby that crashes goes on where it was, even if the primary would not need its WAL any more.
	if err := standby.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "INSERT INTO t VALUES (3)")
	for range 3 {
		execute(t, conn, "SELECT pg_switch_wal()")
		execute(t, conn, "CHECKPOINT")
	}
	if err := standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader = connect(t, standby.ConnString("postgres"))
	if got := value[int](t, reader, "SELECT count(*) FROM t"); got != 3 {
		t.Errorf("the restarted standby has %d rows", got)
	}
	if got := value[int](t, conn, "SELECT count(*) FROM pg_replication_slots WHERE active"); got != 1 {
		t.Errorf("%d slots are in use", got)
	}

	if err := primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, reader, "INSERT INTO t VALUES (4)")
	if err := standby.Promote(t.Context()); err == nil {
		t.Error("promoted twice")
	}
	// What was promoted can have a standby of its own.
	next, err := standby.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, connect(t, next.ConnString("postgres")), "SELECT count(*) FROM t"); got != 4 {
		t.Errorf("the next standby has %d rows", got)
	}
	execute(t, reader, "INSERT INTO t VALUES (5)")
	if err := next.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, connect(t, next.ConnString("postgres")), "SELECT count(*) FROM t"); got != 5 {
		t.Errorf("the next standby has %d rows after CatchUp", got)
	}
	if err := next.Stop(); err != nil {
		t.Error(err)
	}
}

// Whoever writes all the time must not keep a standby from being made, nor lose a row in it.
func TestStandbyOfABusyServer(t *testing.T) {
	primary := New(t, Options{})
	conn := connect(t, primary.ConnString("postgres"))
	execute(t, conn, "CREATE TABLE t (n int PRIMARY KEY)")
	writer := connect(t, primary.ConnString("postgres"))
	written, stop, stopped := 0, make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			_, err := writer.Exec(t.Context(), "INSERT INTO t SELECT count(*) FROM t")
			if err != nil {
				stopped <- err
				return
			}
			written++
		}
	}()
	standby, err := primary.Standby(t.Context())
	close(stop)
	if err := errors.Join(err, <-stopped); err != nil {
		t.Fatal(err)
	}
	reader := connect(t, standby.ConnString("postgres"))
	if err := standby.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, reader, "SELECT count(*) FROM t"); got != written {
		t.Errorf("%d rows were written, the standby has %d", written, got)
	}
	if got := value[int](t, conn, "SELECT count(*) FROM pg_replication_slots"); got != 1 {
		t.Errorf("%d slots with one standby", got)
	}
	if err := standby.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, conn, "SELECT count(*) FROM pg_replication_slots"); got != 0 {
		t.Errorf("%d slots without standbys", got)
	}
}

func TestCatchUpWaits(t *testing.T) {
	primary := New(t, Options{})
	conn := connect(t, primary.ConnString("postgres"))
	execute(t, conn, "CREATE TABLE t (n int)")
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	reader := connect(t, standby.ConnString("postgres"))
	execute(t, reader, "SELECT pg_wal_replay_pause()")
	eventually(t, "replay pauses", func() bool {
		return value[string](t, reader, "SELECT pg_get_wal_replay_pause_state()") == "paused"
	})
	execute(t, conn, "INSERT INTO t VALUES (1)")
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := standby.CatchUp(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("caught up without replaying: %v", err)
	}
	execute(t, reader, "SELECT pg_wal_replay_resume()")
	if err := standby.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int](t, reader, "SELECT count(*) FROM t"); got != 1 {
		t.Errorf("%d rows after CatchUp", got)
	}
	if err := primary.CatchUp(t.Context()); err == nil {
		t.Error("a primary caught up with nothing")
	}
}
