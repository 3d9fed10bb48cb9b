package gnomon_test

import (
	"context"
	"fmt"
	"testing"
)

// TestKilledServersBranches: the server is killed while sessions write on main and on branches, and starts again. Branches show all that was
// committed on them, over the bases that they had, and can be written as before.
func TestKilledServersBranches(t *testing.T) {
	t.Parallel()
	server, g, pool := serverOf(t, nil)
	r := checkerRandom(t)
	w := newCountedWorld(t, g, pool)
	for i := range 2 {
		w.work(t, pool, r, 2*workTime(), func() error { return server.Kill(context.WithoutCancel(t.Context())) })
		ok(t, server.Restart(t.Context()))
		pool.Reset()
		w.verify(t, pool)
		// A branch of one, made after the crash.
		run(t, pool, fmt.Sprintf("select gnomon.create_branch('again %d', 'branch:still')", i))
		if rows := shownOn(t, pool, fmt.Sprintf("again %d", i), branchRows); rows != w.rows {
			t.Errorf("a branch of a branch after a crash:\n%s\nwant\n%s", rows, w.rows)
		}
	}
	w.work(t, pool, r, 2*workTime(), nil)
	w.verify(t, pool)
}

// TestBranchesOutlastPromotion: a standby that is cut off and promoted has the branches as they were when it was: all that it had received, and nothing of
// what was committed later. They can be written and merged there.
func TestBranchesOutlastPromotion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, g, pool := serverOf(t, map[string]string{"hot_standby_feedback": "on"})
	r := checkerRandom(t)
	w := newCountedWorld(t, g, pool)
	standby, err := primary.Standby(ctx)
	ok(t, err)
	t.Cleanup(func() { _ = standby.Stop() })
	there := poolOn(t, standby)
	w.work(t, pool, r, 4*workTime(), nil)
	ok(t, standby.CatchUp(ctx))
	if rows := shownOn(t, there, w.still, branchRows); rows != w.rows {
		t.Errorf("on the standby a branch shows\n%s\nwant\n%s", rows, w.rows)
	}
	cutOff(t, pool)
	// What is lost.
	run(t, pool, "begin; select gnomon.use('net', true); update left_count set n = n + 1000; update \"Right\" set n = n + 1000; commit", "select gnomon.drop_branch('still')", "select gnomon.create_branch('late')", "update left_count set n = n + 1000")
	ok(t, standby.Promote(ctx))
	w.verify(t, there)
	if names := column[string](t, there, "select name from gnomon.branch where name in ('still', 'late')"); len(names) != 1 || names[0] != "still" {
		t.Errorf("branches are %v", names)
	}
	w.work(t, there, r, 4*workTime(), nil)
	w.verify(t, there)
}
