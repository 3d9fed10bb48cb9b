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
