package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	g, pool, _ := working(t, "b")
	ctx := t.Context()
	do := func(sql ...string) func(context.Context, *gnomon.Branch) error {
		return func(ctx context.Context, b *gnomon.Branch) error {
			for _, s := range sql {
				if _, err := b.Exec(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}
	}
	branches := func(want int) {
		t.Helper()
		if n := len(must[[]gnomon.BranchInfo](t)(g.Branches(ctx))) - 1; n != want {
			t.Errorf("%d branches of runs are left, not %d", n, want)
		}
	}

	// Left as a change request, unless it is to be merged.
	r := must[gnomon.RunResult](t)(gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Prices up", Actor: "agent 7"}, do("update orders set total = total + 1 where id < 4", "insert into orders values (11, 'x', 1, null)")))
	if r.Outcome != gnomon.RunRequested || r.Request == 0 || r.Refused != nil || !strings.HasPrefix(r.Branch, "run/Prices up/") {
		t.Errorf("got %+v", r)
	}
	q := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, r.Request))
	if q.State != gnomon.RequestOpen || q.Title != "Prices up" || q.Branch != r.Branch || q.Counts["shop.orders"] != (gnomon.Counts{Inserts: 1, Updates: 3}) {
		t.Errorf("got %+v", q)
	}
	b := must[*gnomon.Branch](t)(g.Branch(ctx, r.Branch))
	if info := must[gnomon.BranchInfo](t)(b.Info(ctx)); !info.ExpiresAt.IsZero() {
		t.Errorf("the branch of a request expires at %v", info.ExpiresAt)
	}
	branches(1)
	if got := text(t, pool, "select count(*), sum(total) from shop.orders"); got != "(10,55.00)" {
		t.Errorf("main has %s", got)
	}
	ok(t, b.Drop(ctx))

	// Merged, by whom it says.
	r = must[gnomon.RunResult](t)(gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Prices up", Actor: "agent 7", Prefix: "agents/", Merge: true}, do("update orders set total = total + 1 where id < 4")))
	if r.Outcome != gnomon.RunMerged || r.Merge.Updated != 3 || r.Merge.ID == 0 || !strings.HasPrefix(r.Branch, "agents/Prices up/") {
		t.Errorf("got %+v", r)
	}
	if got := text(t, pool, "select actor from gnomon.history('shop.orders', '{1}', null, null, 1)"); got != `("agent 7")` {
		t.Errorf("history says it was %s", got)
	}
	branches(0)

	// What changes nothing leaves nothing.
	r = must[gnomon.RunResult](t)(gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Look"}, do("select * from orders")))
	if r.Outcome != gnomon.RunUnchanged {
		t.Errorf("got %+v", r)
	}
	branches(0)

	// What fails leaves nothing, nor does what panics or is cancelled.
	_, err := gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Fail", Merge: true}, do("update orders set total = 0", "select 1 / 0"))
	wantState(t, err, "22012")
	branches(0)
	func() {
		defer func() {
			if p := recover(); p != "out of ideas" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: "Panic", Merge: true}, func(ctx context.Context, b *gnomon.Branch) error {
			if err := do("update orders set total = 0")(ctx, b); err != nil {
				return err
			}
			panic("out of ideas")
		})
	}()
	branches(0)
	cancelled, cancel := context.WithCancel(ctx)
	_, err = gnomon.Run(cancelled, pool, gnomon.RunOptions{Purpose: "Cancel", Merge: true}, func(ctx context.Context, b *gnomon.Branch) error {
		defer cancel()
		return do("update orders set total = 0")(ctx, b)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	branches(0)
	if got := text(t, pool, "select count(*), sum(total) from shop.orders"); got != "(10,58.00)" {
		t.Errorf("main has %s", got)
	}
	_, err = gnomon.Run(ctx, pool, gnomon.RunOptions{}, do())
	refuses(t, err, gnomon.ErrInvalid)
	if list := must[[]gnomon.ChangeRequest](t)(g.ChangeRequests(ctx, gnomon.RequestOpen)); len(list) != 0 {
		t.Errorf("requests are left: %v", list)
	}
}

// Where something stands in the way of a merge, the work is not lost.
func TestRunsThatCannotBeMerged(t *testing.T) {
	t.Parallel()
	g, pool, _ := working(t, "b")
	ctx := t.Context()
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "small", Named: true, MaxRows: 2}))
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "fresh", Prefix: "run/", NoStaleReads: true}))
	run(t, pool, "create unique index on shop.orders (note)")
	for _, c := range []struct {
		name     string
		o        gnomon.RunOptions
		sql      string // on the branch
		meantime string // on main
		kind     error
	}{
		{"policy", gnomon.RunOptions{Options: gnomon.MergeOptions{Policy: "small"}}, "update orders set total = 0 where id < 4", "", gnomon.ErrPolicy},
		{"conflict", gnomon.RunOptions{}, "update orders set total = 0 where id = 4", "update shop.orders set total = 1 where id = 4", gnomon.ErrConflict},
		{"violation", gnomon.RunOptions{}, "update orders set note = 'same' where id = 5", "update shop.orders set note = 'same' where id = 6", gnomon.ErrViolation},
		{"stale", gnomon.RunOptions{RecordReads: true}, "update orders set total = (select max(total) from orders) where id = 7", "update shop.orders set total = 999 where id = 8", gnomon.ErrStaleReads},
	} {
		c.o.Purpose, c.o.Merge = c.name, true
		before := text(t, pool, "select count(*), sum(total) from shop.orders")
		r, err := gnomon.Run(ctx, pool, c.o, func(ctx context.Context, b *gnomon.Branch) error {
			if _, err := b.Exec(ctx, c.sql); err != nil {
				return err
			}
			if c.meantime != "" {
				run(t, pool, c.meantime)
				before = text(t, pool, "select count(*), sum(total) from shop.orders")
			}
			return nil
		})
		if err != nil || r.Outcome != gnomon.RunRequested || r.Request == 0 {
			t.Errorf("%s: %+v, %v", c.name, r, err)
			continue
		}
		refuses(t, r.Refused, c.kind)
		if after := text(t, pool, "select count(*), sum(total) from shop.orders"); after != before {
			t.Errorf("%s: main had %s, and has %s", c.name, before, after)
		}
		q := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, r.Request))
		if q.Policy != c.o.Options.Policy || q.Branch != r.Branch {
			t.Errorf("%s: %+v", c.name, q)
		}
	}
}

func TestRunsInATransaction(t *testing.T) {
	t.Parallel()
	_, pool, _ := working(t, "b")
	ctx := t.Context()
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "set local annals.actor = 'outer'")
	settings := "select name || '=' || setting from pg_settings where name in ('search_path', 'annals.actor') or name like 'gnomon.%' and setting <> '' order by 1"
	before := fmt.Sprint(column[string](t, tx, settings))
	r := must[gnomon.RunResult](t)(gnomon.Run(ctx, tx, gnomon.RunOptions{Purpose: "Part", Actor: "inner", Merge: true}, func(ctx context.Context, b *gnomon.Branch) error {
		_, err := b.Exec(ctx, "update orders set note = current_setting('annals.actor') where id = 1")
		return err
	}))
	if r.Outcome != gnomon.RunMerged {
		t.Errorf("got %+v", r)
	}
	_, err := gnomon.Run(ctx, tx, gnomon.RunOptions{Purpose: "Part", Actor: "inner", Merge: true}, func(ctx context.Context, b *gnomon.Branch) error {
		_, err := b.Exec(ctx, "select 1 / 0")
		return err
	})
	wantState(t, err, "22012")
	if after := fmt.Sprint(column[string](t, tx, settings)); after != before {
		t.Errorf("settings were %s, and are %s", before, after)
	}
	if got := column[string](t, tx, "select note from shop.orders where id = 1")[0]; got != "inner" {
		t.Errorf("on the branch the actor was %s", got)
	}
	ok(t, tx.Rollback(ctx))
	if n := column[int](t, pool, "select count(*) from gnomon.branch")[0]; n != 1 {
		t.Errorf("%d branches", n)
	}
}

// Many at once: each is merged whole or left whole.
func TestRunsSideBySide(t *testing.T) {
	t.Parallel()
	_, pool, _ := working(t, "b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[gnomon.RunOutcome]int{}
	for worker := range 6 {
		group.Go(func() {
			for i := range 3 {
				r, err := gnomon.Run(ctx, pool, gnomon.RunOptions{Purpose: fmt.Sprint("worker ", worker), Merge: true}, func(ctx context.Context, b *gnomon.Branch) error {
					_, err := b.Exec(ctx, "update orders set total = total + 1, note = $1 where id in ($2, 10)", fmt.Sprint(worker, i), worker+1)
					return err
				})
				if err != nil || r.Outcome == gnomon.RunRequested && !errors.Is(r.Refused, gnomon.ErrConflict) {
					t.Errorf("%+v, %v", r, err)
				}
				mu.Lock()
				outcomes[r.Outcome]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	merged := outcomes[gnomon.RunMerged]
	if merged == 0 || merged+outcomes[gnomon.RunRequested] != 18 {
		t.Errorf("outcomes are %v", outcomes)
	}
	if got := text(t, pool, "select sum(total) - 55, (select total - 10 from shop.orders where id = 10) from shop.orders"); got != fmt.Sprintf("(%d.00,%d.00)", 2*merged, merged) {
		t.Errorf("%d were merged, and main has %s more", merged, got)
	}
	if n := column[int](t, pool, "select count(*) from gnomon.branch where name like 'run/%'")[0]; n != 18-merged {
		t.Errorf("%d branches are left of %d that were not merged", n, 18-merged)
	}
}
