package gnomon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

// ownServer starts a server with settings, and returns it with a Gnomon in its database postgres.
func ownServer(t testing.TB, settings map[string]string) (*pgserver.Server, *gnomon.Gnomon, *pgxpool.Pool) {
	t.Helper()
	server := pgserver.New(t, pgserver.Options{Settings: settings, Own: true})
	pool := poolOf(t, server)
	ok(t, gnomon.Install(t.Context(), pool))
	return server, gnomon.New(pool), pool
}

// poolOf connects to the database postgres of a server.
func poolOf(t testing.TB, server *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), server.ConnString("postgres"))
	ok(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// counters tracks a table of ten rows, shop.counter, each of which counts how often it was changed.
func counters(t testing.TB, g *gnomon.Gnomon, pool *pgxpool.Pool) {
	t.Helper()
	run(t, pool, "create schema shop", "create table shop.counter (id int primary key, n int not null)")
	track(t, g, "shop.counter")
	run(t, pool, "insert into shop.counter select g, 0 from generate_series(1, 10) g")
}

// countersAt tells from the entries how the counters stood at a place.
func countersAt(t testing.TB, db gnomon.DB, ref gnomon.Ref) string {
	t.Helper()
	return column[string](t, db, `
		with p as materialized (select snapshot, bound from gnomon.place_of($1)),
		e as (select distinct on (h.c1) h.c1, h.c2, h.op from annals.h1 h, p where h.v > p.bound and not pg_visible_in_snapshot(h.xid, p.snapshot) order by h.c1, h.v)
		select string_agg(id || '=' || n, ' ' order by id) from (select id, n from shop.counter c where not exists (select from e where e.c1 = c.id) union all select c1, c2 from e where op <> 'i') s`, string(ref))[0]
}

// count changes counters at random, some transactions under savepoints, some rolled back, some for longer, until the context ends.
func count(ctx context.Context, conn *pgx.Conn) {
	for ctx.Err() == nil {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return
		}
		id := 0
		for range 1 + rand.IntN(3) {
			id += 1 + rand.IntN(4) // upwards, so that nobody waits in a circle
			if _, err := tx.Exec(ctx, "update shop.counter set n = n + 1 where id = $1", id); err != nil {
				break
			}
			if rand.IntN(3) == 0 {
				_, _ = tx.Exec(ctx, "savepoint s")
			}
			if rand.IntN(5) == 0 {
				_, _ = tx.Exec(ctx, "select pg_sleep(0.02)")
			}
		}
		if rand.IntN(5) == 0 {
			_ = tx.Rollback(ctx)
		} else {
			_ = tx.Commit(ctx)
		}
	}
}

// counting runs fn while sessions count.
func counting(t testing.TB, connString string, sessions int, fn func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range sessions {
		conn := connectAs(t, connString, "")
		all.Go(func() { count(ctx, conn) })
	}
	fn()
	stop()
	all.Wait()
}

func parsed(t testing.TB, text string) gnomon.Coordinate {
	t.Helper()
	return must[gnomon.Coordinate](t)(gnomon.ParseCoordinate(text))
}

func TestCoordinatesAreTexts(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	c := must[gnomon.Coordinate](t)(g.Now(t.Context()))
	for _, text := range []string{c.String(), "0123abcd/10:10:/0/0", "0123abcd/3:9:3,5,5,8/FFFFFFFF/1A"} {
		if got := parsed(t, text).String(); got != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
	for _, bad := range []string{"", "x", "now", "0123abcd/10:10:/0/", "0123ABCD/10:10:/0/0", "0123abcd/10:9:/0/0", "0123abcd/0:9:/0/0", "0123abcd/3:9:2/0/0", "0123abcd/3:9:9/0/0", "0123abcd/3:9:5,4/0/0",
		"0123abcd/3:9:5,/0/0", "0123abcd/3:99999999999999999999:/0/0", "0123abcd/3:9:/0/123456789", "0123abcd/3:9:/0/0 ", "0123abcd/3:9:/0/0\n"} {
		_, err := gnomon.ParseCoordinate(bad)
		refuses(t, err, gnomon.ErrInvalid)
	}
	type document struct{ At, None gnomon.Coordinate }
	coded := must[[]byte](t)(json.Marshal(document{At: c}))
	var back document
	ok(t, json.Unmarshal(coded, &back))
	if back.At != c || !back.None.IsZero() {
		t.Errorf("%s comes back as %v", coded, back)
	}
	if err := json.Unmarshal([]byte(`{"At": "x"}`), &back); !errors.Is(err, gnomon.ErrInvalid) {
		t.Errorf("a bad coordinate in JSON: %v", err)
	}
	var zero gnomon.Coordinate
	ok(t, pool.QueryRow(t.Context(), "select $1::text, $2::text", c, gnomon.Coordinate{}).Scan(&back.At, &zero))
	if back.At != c || !zero.IsZero() {
		t.Errorf("the database returns %v and %v", back.At, zero)
	}
	if !column[bool](t, pool, "select $1::text is null", gnomon.Coordinate{})[0] {
		t.Error("the zero value is not NULL")
	}
}

func TestCoordinatesCompareAsSnapshotsDo(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	rows := column[[]string](t, pool, `
		with s as materialized (
			select format('%s:%s:%s', lo, hi, array_to_string(x, ','))::pg_snapshot as s
			from generate_series(3, 5) lo, generate_series(lo, 7) hi, lateral (select array(select g from generate_series(lo, hi - 1) g where mask & (1 << (g - lo)) <> 0) as x, mask from generate_series(0, (1 << (hi - lo)) - 1) mask) m
			where hi = lo or mask & 1 = 1)
		select array[a.s::text, b.s::text, annals.snapshot_covers(a.s, b.s)::text, annals.snapshot_covers(b.s, a.s)::text] from s a, s b`)
	for _, r := range rows {
		c, d := parsed(t, "0123abcd/"+r[0]+"/0/0"), parsed(t, "0123abcd/"+r[1]+"/0/1")
		covers, covered := r[2] == "true", r[3] == "true"
		before, comparable := c.Before(d)
		if before != (covered && !covers) || comparable != (covers || covered) || c.Equal(d) != (covers && covered) {
			t.Fatalf("%s and %s: before %t, comparable %t, equal %t", r[0], r[1], before, comparable, c.Equal(d))
		}
	}
	if len(rows) < 500 {
		t.Errorf("only %d pairs", len(rows))
	}
	c := parsed(t, "0123abcd/3:9:3,5/0/0")
	for name, d := range map[string]gnomon.Coordinate{"another epoch": parsed(t, "0123abce/10:10:/0/0"), "none": {}, "far": parsed(t, "0123abcd/18000000000000000000:18000000000000000000:/0/0")} {
		if before, comparable := c.Before(d); before != (name == "far") || comparable != (name == "far") || c.Equal(d) {
			t.Errorf("%s: before %t, comparable %t", name, before, comparable)
		}
	}
}

func TestNowIsWhatTheStatementReads(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	counters(t, g, pool)
	writer := connectAs(t, pool.Config().ConnString(), "")
	started := make(chan struct{})
	go func() {
		<-started
		time.Sleep(100 * time.Millisecond)
		_, _ = writer.Exec(context.WithoutCancel(t.Context()), "update shop.counter set n = n + 1")
	}()
	close(started)
	// Written while the statement runs, before it asks.
	rows := column[string](t, pool, "with slept as materialized (select pg_sleep(0.3)) select gnomon.now() || '#' || (select sum(n) from shop.counter) from slept")
	at, sum, _ := strings.Cut(rows[0], "#")
	for column[int64](t, pool, "select sum(n) from shop.counter")[0] == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if sum != "0" || strings.Contains(countersAt(t, pool, gnomon.Ref(at)), "=1") {
		t.Errorf("the statement read the sum %s, and its coordinate sees %s", sum, countersAt(t, pool, gnomon.Ref(at)))
	}
	// And a reference to now is just that, whoever writes meanwhile.
	counting(t, pool.Config().ConnString(), 3, func() {
		for range 200 {
			ok(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				p, err := gnomon.New(tx).Resolve(t.Context(), gnomon.Present)
				if err == nil {
					_, err = gnomon.New(tx).Resolve(t.Context(), p.Coordinate.Ref())
				}
				return err
			}))
		}
	})
	// A snapshot of its own: what the writers had sent last may still be committed.
	tx := must[pgx.Tx](t)(pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
	before := countersAt(t, tx, gnomon.Present)
	run(t, tx, "insert into shop.counter (id, n) values (1000, 1)")
	c := must[gnomon.Coordinate](t)(gnomon.New(tx).Now(t.Context()))
	ok(t, tx.Commit(t.Context()))
	if got := countersAt(t, pool, c.Ref()); got != before {
		t.Errorf("the caller's own changes are in its coordinate: %s, not %s", got, before)
	}
	if after := must[gnomon.Coordinate](t)(g.Now(t.Context())); !earlier(c, after) || earlier(after, c) {
		t.Errorf("%s is not before %s", c, after)
	}
}

func earlier(c, d gnomon.Coordinate) bool {
	before, comparable := c.Before(d)
	return before && comparable
}

func TestTimesResolveToTicks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	_, err := g.Resolve(ctx, gnomon.AtTime(time.Now()))
	refuses(t, err, gnomon.ErrNoTick)
	must[bool](t)(g.Heartbeat(ctx, 0))
	tick := column[time.Time](t, pool, "select max(at) from annals.tick")[0]
	first := countersAt(t, pool, gnomon.Present)
	run(t, pool, "update shop.counter set n = 1")
	between := column[time.Time](t, pool, "select clock_timestamp()")[0]
	p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(between)))
	if !p.At.Equal(tick) || !p.Next.IsZero() || p.Exact || p.Coarse != between.Sub(tick) || !p.Asked.Equal(between) {
		t.Errorf("resolved to %+v, asked %s, the tick was at %s", p, between, tick)
	}
	if got := countersAt(t, pool, p.Coordinate.Ref()); got != first {
		t.Errorf("the tick shows %s, not %s", got, first)
	}
	must[bool](t)(g.Heartbeat(ctx, 0))
	if p = must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(between))); !p.At.Equal(tick) || !p.Next.After(between) {
		t.Errorf("with a tick after it, resolved to %+v", p)
	}
	if p = must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(time.Now().Add(time.Hour)))); p.Exact || p.Coarse < time.Hour || !strings.Contains(countersAt(t, pool, p.Coordinate.Ref()), "=1") {
		t.Errorf("the future is %+v", p)
	}
	for _, ref := range []gnomon.Ref{gnomon.Present, p.Coordinate.Ref()} {
		if p := must[gnomon.Place](t)(g.Resolve(ctx, ref)); !p.Exact || p.Coarse != 0 || !p.Asked.IsZero() || !p.At.IsZero() {
			t.Errorf("%s is %+v", ref, p)
		}
	}
	for _, bad := range []gnomon.Ref{"", "yesterday evening", "'; select 1", "0123abcd/x"} {
		_, err := g.Resolve(ctx, bad)
		refuses(t, err, gnomon.ErrInvalid)
	}
	_, err = g.Resolve(ctx, gnomon.AtTag("nobody's"))
	refuses(t, err, gnomon.ErrUnknownTag)
	_, err = g.Resolve(ctx, gnomon.Ref("00000000"+p.Coordinate.String()[8:]))
	refuses(t, err, gnomon.ErrEpoch)
}

// TestTimesAreExactWhereCommitsCarryThem: a place sees just what had committed at its time, and never an entry at or below its bound that it does not.
func TestTimesAreExactWhereCommitsCarryThem(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, g, pool := ownServer(t, map[string]string{"track_commit_timestamp": "on"})
	counters(t, g, pool)
	must[bool](t)(g.Heartbeat(ctx, 0))
	long := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, long, "insert into shop.counter values (100, 0)")
	counting(t, server.ConnString("postgres"), 6, func() {
		for i := range 8 {
			time.Sleep(100 * time.Millisecond)
			if i == 5 {
				ok(t, long.Commit(ctx))
			}
			must[bool](t)(g.Heartbeat(ctx, 0))
		}
		time.Sleep(50 * time.Millisecond) // and some after the last tick
	})
	first := column[time.Time](t, pool, "select min(at) from annals.tick")[0]
	commits := column[time.Time](t, pool, "select distinct pg_xact_commit_timestamp(xid::xid) as at from annals.h1 where pg_xact_commit_timestamp(xid::xid) > $1 order by at", first)
	if len(commits) < 50 {
		t.Fatalf("only %d commits", len(commits))
	}
	for i := range 60 {
		at := commits[rand.IntN(len(commits))]
		if i%2 == 1 {
			at = at.Add(-time.Microsecond)
		}
		p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(at)))
		if !p.Exact || p.Coarse != 0 || p.At.After(at) {
			t.Fatalf("%s: %+v", at, p)
		}
		if wrong := text(t, pool, "select xid, v, pg_xact_commit_timestamp(xid::xid) as at from annals.h1 where (pg_xact_commit_timestamp(xid::xid) <= $1) <> pg_visible_in_snapshot(xid, annals.coordinate_snapshot($2)) limit 3", at, p.Coordinate); wrong != "" {
			t.Fatalf("at %s, %s is wrong about %s", at, p.Coordinate, wrong)
		}
		if wrong := text(t, pool, "select h.xid, h.v, p.bound from annals.h1 h, gnomon.place_of($1) p where h.v <= p.bound and not pg_visible_in_snapshot(h.xid, p.snapshot) limit 3", string(gnomon.AtTime(at))); wrong != "" {
			t.Fatalf("at %s, the bound is too high: %s", at, wrong)
		}
	}
	if p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(time.Now().Add(time.Hour)))); p.Exact {
		t.Error("the future is exact")
	}
	// So many transactions that a coordinate would grow too long: coarse, but right.
	run(t, pool, "do $$ begin for i in 1..10500 loop begin insert into shop.counter values (1000 + i, 0); exception when division_by_zero then null; end; end loop; end $$")
	if p := must[gnomon.Place](t)(g.Resolve(ctx, gnomon.AtTime(time.Now()))); p.Exact || p.Coarse <= 0 {
		t.Errorf("after many transactions: %+v", p)
	}
}

func TestWaitForAStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	ok(t, g.Wait(ctx, must[gnomon.Coordinate](t)(g.Now(ctx))))
	standby := must[*pgserver.Server](t)(primary.Standby(ctx))
	t.Cleanup(func() { _ = standby.Stop() })
	there := poolOf(t, standby)
	onStandby := gnomon.New(there)
	// One transaction runs and a later one has ended: then it looks finished on the standby.
	running := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, running, "update shop.counter set n = 1")
	run(t, pool, "create table shop.other ()")
	ok(t, standby.CatchUp(ctx))
	run(t, there, "select pg_wal_replay_pause()")
	for column[string](t, there, "select pg_get_wal_replay_pause_state()")[0] != "paused" {
		time.Sleep(10 * time.Millisecond)
	}
	ok(t, running.Commit(ctx))
	c := must[gnomon.Coordinate](t)(g.Now(ctx))
	_, err := onStandby.Resolve(ctx, c.Ref())
	refuses(t, err, gnomon.ErrNotYet)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := onStandby.Wait(short, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for what does not come: %v", err)
	}
	ok(t, pgx.BeginTxFunc(ctx, there, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		refuses(t, gnomon.New(tx).Wait(ctx, c), gnomon.ErrNotYet)
		return nil
	}))
	done := make(chan error, 1)
	go func() { done <- onStandby.Wait(ctx, c) }()
	run(t, there, "select pg_wal_replay_resume()")
	ok(t, <-done)
	if got := countersAt(t, there, c.Ref()); strings.Count(got, "=1") < 10 {
		t.Errorf("after the wait, the standby shows %s", got)
	}
	_, err = onStandby.Now(ctx)
	refuses(t, err, gnomon.ErrStandby)
	refuses(t, onStandby.Wait(ctx, parsed(t, "00000000"+c.String()[8:])), gnomon.ErrEpoch)
	refuses(t, onStandby.Wait(ctx, gnomon.Coordinate{}), gnomon.ErrInvalid)
	if noted, err := onStandby.Heartbeat(ctx, 0); err != nil || noted {
		t.Errorf("a heartbeat on a standby: %t, %v", noted, err)
	}
	// A primary that is gone never covers it.
	ok(t, standby.Promote(ctx))
	refuses(t, onStandby.Wait(ctx, c), gnomon.ErrEpoch)
}

func TestReadingPlacesLeavesTheSession(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	must[bool](t)(g.Heartbeat(ctx, 0))
	reader := pgserver.Role(t, pgserver.Shared(t), "reader")
	run(t, pool, fmt.Sprintf("grant usage on schema gnomon, annals to %s", reader), fmt.Sprintf("grant execute on all functions in schema gnomon, annals to %s", reader))
	conn := connectAs(t, pool.Config().ConnString(), reader)
	pgtxtest.AssertSessionUnchanged(t, conn, func() {
		r := gnomon.New(conn)
		c := must[gnomon.Coordinate](t)(r.Now(ctx))
		must[gnomon.Place](t)(r.Resolve(ctx, c.Ref()))
		must[gnomon.Place](t)(r.Resolve(ctx, gnomon.AtTime(time.Now())))
		ok(t, r.Wait(ctx, c))
		_, err := r.Resolve(ctx, "nonsense")
		refuses(t, err, gnomon.ErrInvalid)
		must[[]gnomon.Tag](t)(r.Tags(ctx))
	})
}

// FuzzParseCoordinate: a text is a coordinate that is written the same again, or is refused.
func FuzzParseCoordinate(f *testing.F) {
	for _, seed := range []string{"5f0e1c7a/7041:7052:7044,7046/0/3A51C8", "00000000/1:1:/0/0", "5f0e1c7a/7:5:/0/1", "5f0e1c7a/5:9:8,7/0/1", "x", "5f0e1c7a/18446744073709551615:18446744073709551615:/FFFFFFFF/FFFFFFFF"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		first, err := gnomon.ParseCoordinate(a)
		if err != nil {
			refuses(t, err, gnomon.ErrInvalid)
			return
		}
		if first.String() != a {
			t.Errorf("%q is written %q", a, first)
		}
		second, err := gnomon.ParseCoordinate(b)
		if err != nil {
			return
		}
		before, ordered := first.Before(second)
		after, orderedToo := second.Before(first)
		if before && after || ordered != orderedToo || first.Equal(second) && (before || !ordered) {
			t.Errorf("%q and %q: %v %v, %v %v", a, b, before, ordered, after, orderedToo)
		}
	})
}
