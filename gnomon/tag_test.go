package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestTagsNamePlaces(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	const odd = `v1.0 "final" 'x'; ` + "\n/ü"
	first := must[gnomon.Coordinate](t)(g.Tag(ctx, odd, gnomon.Present, "before", "the change"))
	state := countersAt(t, pool, first.Ref())
	run(t, pool, "update shop.counter set n = 1")
	if got := countersAt(t, pool, gnomon.AtTag(odd)); got != state {
		t.Errorf("the tag shows %s, not %s", got, state)
	}
	p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTag(odd)))
	if !p.Coordinate.Equal(first) || !p.Exact {
		t.Errorf("the tag is %+v, not %s", p, first)
	}
	must[gnomon.Coordinate](t)(g.Tag(ctx, "other", first.Ref()))
	_, err := g.Tag(ctx, odd, gnomon.Present)
	refuses(t, err, gnomon.ErrTagExists)
	for _, name := range []string{"", strings.Repeat("x", 201)} {
		_, err := g.Tag(ctx, name, gnomon.Present)
		refuses(t, err, gnomon.ErrInvalid)
		refuses(t, g.RenameTag(ctx, odd, name), gnomon.ErrInvalid)
	}
	_, err = g.Tag(ctx, "new", gnomon.AtTag("nobody's"))
	refuses(t, err, gnomon.ErrUnknownTag)

	// A tag of a place that history does not reach is allowed, and one set before a table was tracked reads the others.
	run(t, pool, "create table shop.late (id int primary key)")
	track(t, g, "shop.late")
	must[gnomon.Coordinate](t)(g.Tag(ctx, "late", gnomon.Present))
	for _, c := range []struct{ table, tag, want string }{{"shop.late", odd, "GN001"}, {"shop.counter", odd, ""}, {"shop.late", "late", ""}} {
		if got := reach(t, pool, c.table, gnomon.AtTag(c.tag)); got != c.want {
			t.Errorf("%s at tag %s: %s", c.table, c.tag, got)
		}
	}

	refuses(t, g.RenameTag(ctx, "other", odd), gnomon.ErrTagExists)
	ok(t, g.RenameTag(ctx, "other", "another"))
	refuses(t, g.RenameTag(ctx, "other", "x"), gnomon.ErrUnknownTag)
	moved := must[gnomon.Coordinate](t)(g.MoveTag(ctx, odd, gnomon.Present))
	if !earlier(first, moved) || strings.Contains(countersAt(t, pool, gnomon.AtTag(odd)), "=0") {
		t.Errorf("moved from %s to %s", first, moved)
	}
	_, err = g.MoveTag(ctx, "other", gnomon.Present)
	refuses(t, err, gnomon.ErrUnknownTag)
	tags := map[string]gnomon.Tag{}
	for _, tag := range must[[]gnomon.Tag](t)(g.Tags(ctx)) {
		tags[tag.Name] = tag
	}
	if names := slices.Sorted(maps.Keys(tags)); !slices.Equal(names, []string{"another", "late", odd}) {
		t.Errorf("there are the tags %q", names)
	}
	if tag := tags[odd]; tag.Note != "before the change" || tag.Login != "postgres" || time.Since(tag.At) > time.Minute || tag.Coordinate != moved {
		t.Errorf("the tag is listed as %+v", tag)
	}
	if pins := column[string](t, pool, "select name from annals.pin p join gnomon.tag t using (name) where p.owner = 'gnomon tag' and p.v = t.v + 1 order by name"); len(pins) != 3 {
		t.Errorf("pinned are %q", pins)
	}
	for name := range tags {
		ok(t, g.DropTag(ctx, name))
	}
	refuses(t, g.DropTag(ctx, odd), gnomon.ErrUnknownTag)
	if left := column[int64](t, pool, "select (select count(*) from annals.pin) + (select count(*) from gnomon.tag)")[0]; left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// reach returns the SQLSTATE with which a table's history is refused at a place; empty: it reaches back to it.
func reach(t testing.TB, db gnomon.DB, table string, ref gnomon.Ref) string {
	t.Helper()
	if _, err := db.Exec(t.Context(), "select gnomon.history_at($1::text::regclass, gnomon.place_of($2))", table, string(ref)); err != nil {
		return sqlState(err)
	}
	return ""
}

func TestTaggingNowLeavesOutOwnChanges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	before := countersAt(t, pool, gnomon.Present)
	ok(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		run(t, tx, "update shop.counter set n = 5")
		_, err := gnomon.New(tx).Tag(ctx, "mine", gnomon.Present)
		return err
	}))
	if got := countersAt(t, pool, gnomon.AtTag("mine")); got != before {
		t.Errorf("the tag shows %s, not %s", got, before)
	}
	// What is rolled back was never tagged.
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	must[gnomon.Coordinate](t)(gnomon.New(tx).Tag(ctx, "not", gnomon.Present))
	ok(t, tx.Rollback(ctx))
	_, err := g.Resolve(ctx, gnomon.AtTag("not"))
	refuses(t, err, gnomon.ErrUnknownTag)
	// Of those who set one tag at once, one does.
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() { _, errs[i] = g.Tag(ctx, "race", gnomon.Present) })
	}
	all.Wait()
	lost := 0
	for _, err := range errs {
		if errors.Is(err, gnomon.ErrTagExists) {
			lost++
		} else {
			ok(t, err)
		}
	}
	if lost != len(errs)-1 {
		t.Errorf("%d of %d were refused", lost, len(errs))
	}
}

// TestTagsOutlastCrashes: whatever a crash loses where commits don't wait for the disk, a tag that is left shows what it showed, also when
// ids of lost transactions are given out again.
func TestTagsOutlastCrashes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, g, pool := ownServer(t, map[string]string{"synchronous_commit": "off", "wal_writer_delay": "200ms", "track_commit_timestamp": "on"})
	counters(t, g, pool)
	// A crash may lose every tick but this one, and without any there is no time to read at.
	must[bool](t)(g.Heartbeat(ctx, 0))
	run(t, pool, "checkpoint")
	shown := map[string]string{}
	for round := range 3 {
		crash, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		for range 3 {
			conn := connectAs(t, server.ConnString("postgres"), "")
			all.Go(func() { count(crash, conn) })
		}
		until := time.Now().Add(200 * time.Millisecond)
		for i := 0; i < 3 || time.Now().Before(until); i++ {
			name := fmt.Sprintf("%d.%d", round, i)
			ok(t, pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
				if _, err := gnomon.New(tx).Tag(ctx, name, gnomon.Present); err != nil {
					return err
				}
				shown[name] = column[string](t, tx, "select string_agg(id || '=' || n, ' ' order by id) from shop.counter")[0]
				return nil
			}))
			if i%3 == 0 {
				must[bool](t)(g.Heartbeat(ctx, 0))
			}
		}
		ok(t, server.Kill(ctx))
		stop()
		all.Wait()
		pool.Reset()
		ok(t, server.Restart(ctx))
		if round == 1 {
			run(t, pool, "update shop.counter set n = n + 1") // before anybody notices the crash
		}
		// So do times.
		if p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(time.Now()))); !p.Exact || countersAt(t, pool, p.Coordinate.Ref()) != countersAt(t, pool, gnomon.Present) {
			t.Fatalf("after crash %d, the present time is %+v", round, p)
		}
		lost := len(shown)
		for _, tag := range must[[]gnomon.Tag](t)(g.Tags(ctx)) {
			lost--
			if got := countersAt(t, pool, gnomon.AtTag(tag.Name)); got != shown[tag.Name] {
				t.Fatalf("after crash %d, tag %s shows %s, not %s", round, tag.Name, got, shown[tag.Name])
			}
			if got := countersAt(t, pool, tag.Coordinate.Ref()); got != shown[tag.Name] {
				t.Fatalf("after crash %d, the coordinate of tag %s shows %s, not %s", round, tag.Name, got, shown[tag.Name])
			}
		}
		t.Logf("crash %d lost %d tags of %d", round, lost, len(shown))
		// Ids of what was lost are used again.
		for range 50 {
			run(t, pool, "update shop.counter set n = n + 1 where id = 1")
		}
		for name, state := range shown {
			if _, err := g.Resolve(ctx, gnomon.AtTag(name)); errors.Is(err, gnomon.ErrUnknownTag) {
				delete(shown, name)
			} else if got := countersAt(t, pool, gnomon.AtTag(name)); got != state {
				t.Fatalf("after crash %d and other transactions, tag %s shows %s, not %s", round, name, got, state)
			}
		}
		if len(shown) == 0 {
			t.Fatal("no tag is left")
		}
	}
}

// TestTagsOutlastPromotion: the standby lacks the last commits.
func TestTagsOutlastPromotion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	run(t, pool, "update shop.counter set n = 1")
	running := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, running, "update shop.counter set n = 2 where id = 1")
	c := must[gnomon.Coordinate](t)(g.Tag(ctx, "kept", gnomon.Present))
	state := countersAt(t, pool, gnomon.AtTag("kept"))
	standby := must[*pgserver.Server](t)(primary.Standby(ctx))
	t.Cleanup(func() { _ = standby.Stop() })
	there := poolOf(t, standby)
	onStandby := gnomon.New(there)
	if got := countersAt(t, there, gnomon.AtTag("kept")); got != state {
		t.Errorf("on the standby the tag shows %s, not %s", got, state)
	}
	// From here on nothing is sent.
	ok(t, syscall.Kill(column[int](t, pool, "select pid from pg_stat_replication")[0], syscall.SIGSTOP))
	run(t, pool, "update shop.counter set n = 3 where id > 1")
	ok(t, running.Commit(ctx))
	must[gnomon.Coordinate](t)(g.Tag(ctx, "lost", gnomon.Present))
	ok(t, primary.Kill(ctx))
	ok(t, standby.Promote(ctx))
	for range 20 {
		run(t, there, "update shop.counter set n = n + 10")
	}
	if got := countersAt(t, there, gnomon.AtTag("kept")); got != state {
		t.Errorf("after the promotion the tag shows %s, not %s", got, state)
	}
	_, err := onStandby.Resolve(ctx, gnomon.AtTag("lost"))
	refuses(t, err, gnomon.ErrUnknownTag)
	_, err = onStandby.Resolve(ctx, c.Ref())
	refuses(t, err, gnomon.ErrEpoch)
	// A restore is another epoch.
	run(t, there, "update annals.epoch set home = 'elsewhere'", "select annals.adopt()")
	_, err = onStandby.Resolve(ctx, gnomon.AtTag("kept"))
	refuses(t, err, gnomon.ErrEpoch)
	if tags := must[[]gnomon.Tag](t)(onStandby.Tags(ctx)); len(tags) != 1 || !tags[0].Coordinate.Equal(c) {
		t.Errorf("the tags are %+v", tags)
	}
}
