package gnomon_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/volvra"
)

// Transactions that run anywhere in the server keep what is pruned and pinned back, so these tests have servers of their own.

// segment changes all counters once, and finishes a segment of history 1 with that.
func segment(t testing.TB, g *gnomon.Gnomon, db gnomon.DB) {
	t.Helper()
	run(t, db, "update shop.counter set n = n + 1", "select annals.rotate(1, 1)", "select annals.seal_segments()")
	beat(t, g, 0)
	beat(t, g, 0)
}

func TestPruneDropsWholeSegments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	var places []gnomon.Coordinate
	var states []string
	for range 5 {
		places = append(places, must[gnomon.Coordinate](t)(g.Now(ctx)))
		states = append(states, countersAt(t, pool, gnomon.Present))
		segment(t, g, pool)
	}
	pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, places[3].Ref(), "shop.counter"))
	if len(pruned) != 1 || pruned[0].Table != "shop.counter" || pruned[0].Segments != 3 || pruned[0].Entries != 40 || len(pruned[0].HeldBy) != 0 {
		t.Errorf("pruned %+v", pruned)
	}
	for i, c := range places {
		want := ""
		if i < 3 {
			want = "GN002"
		}
		if got := reach(t, pool, "shop.counter", c.Ref()); got != want {
			t.Errorf("place %d: %s", i, got)
		}
		if want == "" && countersAt(t, pool, c.Ref()) != states[i] {
			t.Errorf("place %d shows %s, not %s", i, countersAt(t, pool, c.Ref()), states[i])
		}
	}
	if got := reach(t, pool, "shop.counter", gnomon.AtTime(pruned[0].Begins)); got != "" {
		t.Errorf("history begins at %s, and there it is refused with %s", pruned[0].Begins, got)
	}
	if got := reach(t, pool, "shop.counter", gnomon.AtTime(pruned[0].Begins.Add(-time.Microsecond))); got != "GN002" {
		t.Errorf("just before history begins: %q", got)
	}
	// Ticks that nothing needs go, and bounds of what is readable stay.
	bounds := text(t, pool, "select gnomon.place_of($1), gnomon.place_of($2)", places[3], places[4])
	removed := column[int64](t, pool, "select gnomon.thin_ticks()")[0]
	if after := text(t, pool, "select gnomon.place_of($1), gnomon.place_of($2)", places[3], places[4]); removed == 0 || after != bounds {
		t.Errorf("%d ticks went, and the places are %s, not %s", removed, after, bounds)
	}
	if got := reach(t, pool, "shop.counter", gnomon.AtTime(pruned[0].Begins.Add(-time.Microsecond))); got != "GN002" {
		t.Errorf("without the old ticks, just before history begins: %q", got)
	}
	if again := must[[]gnomon.Pruned](t)(g.Prune(ctx, places[3].Ref())); len(again) != 1 || again[0].Segments != 0 || again[0].Entries != 0 {
		t.Errorf("pruned again: %+v", again)
	}
	_, err := g.Prune(ctx, gnomon.AtTime(time.Now().Add(-time.Hour)))
	refuses(t, err, gnomon.ErrNoTick)
	run(t, pool, "create table shop.other (id int primary key)")
	_, err = g.Prune(ctx, gnomon.Present, "shop.counter", "shop.other")
	refuses(t, err, gnomon.ErrNotTracked)
}

func TestPinsHoldHistory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	segment(t, g, pool)
	must[gnomon.Coordinate](t)(g.Tag(ctx, `the "tag"`, gnomon.Present))
	state := countersAt(t, pool, gnomon.Present)
	segment(t, g, pool)
	segment(t, g, pool)
	pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present))
	if len(pruned) != 1 || pruned[0].Segments != 1 || len(pruned[0].HeldBy) != 1 || pruned[0].HeldBy[0].Owner != "gnomon tag" || pruned[0].HeldBy[0].Name != `the "tag"` || time.Since(pruned[0].HeldBy[0].At) > time.Minute {
		t.Errorf("pruned %+v", pruned)
	}
	if got := countersAt(t, pool, gnomon.AtTag(`the "tag"`)); got != state || reach(t, pool, "shop.counter", gnomon.AtTag(`the "tag"`)) != "" {
		t.Errorf("the tag shows %s, not %s", got, state)
	}
	status := must[[]gnomon.TableStatus](t)(g.Status(ctx))
	if len(status) != 1 || len(status[0].Pins) != 1 || status[0].Pins[0].Entries != 20 || status[0].Pins[0].Bytes == 0 || !status[0].ReadableSince.Equal(pruned[0].Begins) {
		t.Errorf("the status is %+v", status)
	}
	ok(t, g.DropTag(ctx, `the "tag"`))
	if pruned = must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present)); pruned[0].Segments != 2 {
		t.Errorf("without the tag, pruned %+v", pruned)
	}
}

// The history that a branch reads its base from stays until the branch goes, or is moved on.
func TestBranchesHoldHistory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	segment(t, g, pool)
	run(t, pool, "do 'begin execute format(''alter database %I set search_path = shop'', current_database()); end'")
	pool.Reset() // sessions begin with that search_path
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, `the "branch"`, gnomon.BranchOptions{}))
	run(t, b, "update counter set n = -1 where id = 1")
	of := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "of it", gnomon.BranchOptions{Of: `the "branch"`}))
	const rows = "select * from counter order by id"
	state := text(t, b, rows)
	segment(t, g, pool)
	segment(t, g, pool)
	pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present))
	if len(pruned) != 1 || pruned[0].Segments != 1 || len(pruned[0].HeldBy) == 0 || pruned[0].HeldBy[0].Owner != "gnomon branch" {
		t.Errorf("pruned %+v", pruned)
	}
	for _, x := range []*gnomon.Branch{b, of} {
		if got := text(t, x, rows); got != state {
			t.Errorf("the branch shows %s, not %s", got, state)
		}
	}
	ok(t, b.Drop(ctx))
	if pruned = must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present)); pruned[0].Segments != 0 || len(pruned[0].HeldBy) == 0 || text(t, of, rows) != state {
		t.Errorf("while the branch of it is there, pruned %+v", pruned)
	}
	ok(t, of.Reset(ctx, gnomon.Present))
	if pruned = must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present)); pruned[0].Segments != 2 {
		t.Errorf("without a branch that needs it, pruned %+v", pruned)
	}
	if got := text(t, of, rows); got != text(t, pool, "select * from shop.counter order by id") {
		t.Errorf("a branch that was moved on shows %s", got)
	}
}

func TestVolvrasHistoryIsNotPruned(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	ok(t, volvra.Install(ctx, pool))
	counters(t, g, pool)
	v := volvra.New(pool)
	must[volvra.Covering](t)(v.Enable(ctx, "shop.counter", volvra.Options{}))
	must[volvra.Seal](t)(v.Seal(ctx))
	segment(t, g, pool)
	segment(t, g, pool)
	pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present, "shop.counter"))
	if len(pruned) != 1 || pruned[0].Segments != 0 || len(pruned[0].HeldBy) != 1 || pruned[0].HeldBy[0].Owner != "volvra" || !strings.Contains(pruned[0].HeldBy[0].Name, "volvra.purge") {
		t.Errorf("pruned %+v", pruned)
	}
}

func TestMaintainFollowsPolicies(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	run(t, pool, "create table shop.kept (id int primary key, n int)")
	track(t, g, "shop.kept")
	ok(t, g.SetPolicy(ctx, "shop.counter", gnomon.Policy{Keep: time.Hour}))
	segment(t, g, pool)
	maintain := func() (did []string) {
		t.Helper()
		ok(t, g.Maintain(ctx, func(s gnomon.MaintainStep) { did = append(did, strings.TrimSpace(s.Step+" "+s.Table)) }))
		return did
	}
	if did := maintain(); slices.ContainsFunc(did, func(s string) bool { return strings.HasPrefix(s, "prune") || strings.HasPrefix(s, "rotate") }) {
		t.Errorf("while history is young, did %q", did)
	}
	// Two hours later.
	run(t, pool, "update shop.counter set n = n + 1")
	run(t, pool, "update annals.tick set at = at - interval '2 hours'", "update annals.segment set began_at = began_at - interval '2 hours'")
	if did := maintain(); !slices.Equal(did, []string{"tick", "rotate shop.counter", "seal", "prune shop.counter"}) {
		t.Errorf("with old history, did %q", did)
	}
	if left := column[int64](t, pool, "select count(*) from annals.segment where tracked = 1")[0]; left != 2 {
		t.Errorf("%d segments are left", left)
	}
	ok(t, g.SetPolicy(ctx, "shop.kept", gnomon.Policy{CheckpointChanges: 5}))
	run(t, pool, "insert into shop.kept select g, g from generate_series(1, 5) g")
	if did := maintain(); !slices.Contains(did, "checkpoint shop.kept") || slices.Contains(maintain(), "checkpoint shop.kept") {
		t.Errorf("after five changes, did %q", did)
	}
	ok(t, g.SetPolicy(ctx, "shop.kept", gnomon.Policy{}))
	if status := must[[]gnomon.TableStatus](t)(g.Status(ctx)); status[0].Policy != (gnomon.Policy{Keep: time.Hour}) || status[1].Policy != (gnomon.Policy{}) {
		t.Errorf("the policies are %+v and %+v", status[0].Policy, status[1].Policy)
	}
	ok(t, g.SetPolicy(ctx, "shop.counter", gnomon.Policy{}))
	if n := column[int64](t, pool, "select count(*) from gnomon.policy")[0]; n != 0 {
		t.Error("a policy of nothing is kept")
	}
	for _, bad := range []gnomon.Policy{{Keep: -time.Hour}, {CheckpointChanges: -1}} {
		refuses(t, g.SetPolicy(ctx, "shop.counter", bad), gnomon.ErrInvalid)
	}
	run(t, pool, "create table shop.untracked (id int primary key)")
	refuses(t, g.SetPolicy(ctx, "shop.untracked", gnomon.Policy{Keep: time.Hour}), gnomon.ErrNotTracked)
	_, err := pool.Exec(ctx, "select gnomon.maintain('{\"nonsense\": 1}')")
	if sqlState(err) != "GN006" {
		t.Errorf("an unknown option: %v", err)
	}
	run(t, pool, "select gnomon.maintain()")
	// While another process is at it, nothing is done.
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "select pg_advisory_xact_lock(hashtextextended('gnomon.maintain', 0))")
	if did := maintain(); !slices.Equal(did, []string{"skipped"}) {
		t.Errorf("beside another process, did %q", did)
	}
	ok(t, tx.Rollback(ctx))
	// It runs on until it is told to stop.
	running, stop := context.WithCancel(ctx)
	seen := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- g.RunMaintenance(running, 10*time.Millisecond, func(gnomon.MaintainStep) { seen <- struct{}{} }, func(err error) { t.Error(err) })
	}()
	run(t, pool, "update annals.tick set at = at - interval '2 hours'")
	<-seen
	stop()
	ok(t, <-done)
}

func TestPruningKeepsReadersAndSessions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, g, pool := ownServer(t, nil)
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" ("t" int primary key, "select" text)`)
	track(t, g, `"Sch ema"."ta""ble"`)
	run(t, pool, `insert into "Sch ema"."ta""ble" select g, 'x' from generate_series(1, 10) g`, "select annals.rotate(1, 1)", "select annals.seal_segments()")
	beat(t, g, 0)
	beat(t, g, 0)
	// Somebody reads what is to go.
	reader := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, reader, "select * from annals.h1")
	_, err := g.Prune(ctx, gnomon.Present)
	if sqlState(err) != "55P03" {
		t.Errorf("while it is read: %v", err)
	}
	ok(t, g.SetPolicy(ctx, `"Sch ema"."ta""ble"`, gnomon.Policy{Keep: time.Microsecond}))
	var busy []string
	ok(t, g.Maintain(ctx, func(s gnomon.MaintainStep) {
		if s.Step == "busy" {
			busy = append(busy, s.Table)
		}
	}))
	if !slices.Contains(busy, `"Sch ema"."ta""ble"`) {
		t.Errorf("busy are %q", busy)
	}
	ok(t, reader.Rollback(ctx))
	conn := connectAs(t, pool.Config().ConnString(), "")
	pgtxtest.AssertSessionUnchanged(t, conn, func() {
		s := gnomon.New(conn)
		must[[]gnomon.Pruned](t)(s.Prune(ctx, gnomon.Present, `"Sch ema"."ta""ble"`))
		ok(t, s.Maintain(ctx, nil))
		must[[]gnomon.TableStatus](t)(s.Status(ctx))
		must[[]gnomon.Finding](t)(s.Check(ctx))
		must[gnomon.Coordinate](t)(s.Tag(ctx, "x", gnomon.Present))
		must[bool](t)(s.Heartbeat(ctx, 0))
	}, "annals.working", "annals.known")
	// Of a table that is gone, too.
	run(t, pool, `drop table "Sch ema"."ta""ble"`, "select annals.seal_segments()")
	ok(t, g.DropTag(ctx, "x"))
	beat(t, g, 0)
	beat(t, g, 0)
	if pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present)); len(pruned) != 1 || pruned[0].Table != `"Sch ema"."ta""ble"` {
		t.Errorf("pruned %+v", pruned)
	}
	stranger := connectAs(t, pool.Config().ConnString(), pgserver.Role(t, server, "stranger"))
	for _, call := range []string{"gnomon.prune('now')", "gnomon.maintain()", "gnomon.set_policy('pg_class')", "gnomon.drop_tag('x')"} {
		if _, err := stranger.Exec(ctx, "select "+call); sqlState(err) != "42501" {
			t.Errorf("%s by a stranger: %v", call, err)
		}
	}
}
