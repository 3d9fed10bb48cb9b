package gnomon_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// cutOff ends replication: without its slot a standby cannot connect again.
func cutOff(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 100 {
		run(t, pool, "select pg_terminate_backend(pid) from pg_stat_replication")
		if _, err := pool.Exec(t.Context(), "select pg_drop_replication_slot(slot_name) from pg_replication_slots"); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the standby is still connected")
}

// TestStandbyReadsThePast: on a standby the past is what was read on the primary. One that is cut off and promoted lacks the last
// commits: what was seen on the primary is refused there, or exact, and history goes on.
func TestStandbyReadsThePast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, g, pool := serverOf(t, map[string]string{"max_prepared_transactions": "20", "hot_standby_feedback": "on"})
	w := newCheckerWorld(t, g, pool, checkerRandom(t))
	run(t, pool, "select gnomon.heartbeat('0')")
	standby, err := primary.Standby(ctx)
	ok(t, err)
	t.Cleanup(func() { _ = standby.Stop() })
	there := poolOn(t, standby)
	past := gnomon.New(there)

	j := w.work(t, pool, workTime(), 25, beating(t), rotation(t))
	times := j.timesSeen(t, g)
	ok(t, standby.CatchUp(ctx))
	j.replayAll(t, past)

	// What is ahead of the standby is refused until it is there.
	cutOff(t, pool)
	ahead := w.work(t, pool, workTime(), 25, beating(t))
	late := 0
	for i := range ahead.seen {
		s := &ahead.seen[i]
		switch err := s.replay(ctx, past, s.at); {
		case errors.Is(err, gnomon.ErrNotYet):
			late++
		case err != nil:
			t.Errorf("ahead of the standby: %v", err)
		}
	}
	if late < len(ahead.seen)/2 {
		t.Errorf("the standby answers %d of %d coordinates that are ahead of it", len(ahead.seen)-late, len(ahead.seen))
	}

	ok(t, standby.Promote(ctx))
	for _, gid := range column[string](t, there, "select gid from pg_prepared_xacts") {
		run(t, there, "rollback prepared '"+gid+"'")
	}
	ahead.seen = append(j.seen, ahead.seen...)
	ahead.outlast(t, past, there, times, false)
	ahead.goesOn(t, past, there)
	ahead.outlast(t, past, there, times, false)

	// The old primary knows its own.
	ahead.replayAll(t, g)
}
