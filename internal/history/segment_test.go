package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
)

// counters make a table of rows that count upwards, so that history can be checked: the old values of row k are 0, 1, 2 up to today's.
const counters = "create table t (id int primary key, n int not null); insert into t select g, 0 from generate_series(1, 20) g"

// brokenCounters lists rows whose history is not complete.
const brokenCounters = `select format('row %s is at %s, its old values are %s', t.id, t.n, h.old) from t left join (select c1, array_agg(c2 order by v) as old from annals.h1 group by c1) h on h.c1 = t.id
	where coalesce(h.old, '{}') is distinct from array(select g from generate_series(0, t.n - 1) g)`

// count makes writers count rows until the context ends, and returns when they have stopped.
func count(ctx context.Context, pool *pgxpool.Pool, writers int) *sync.WaitGroup {
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error {
					for range 1 + rand.IntN(3) {
						if _, err := tx.Exec(context.WithoutCancel(ctx), "update t set n = n + 1 where id = $1", 1+rand.IntN(20)); err != nil {
							return err
						}
					}
					if rand.IntN(10) == 0 {
						return errors.New("roll back")
					}
					return nil
				})
			}
		})
	}
	return &all
}

func TestRotateWhileWritersRun(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, counters)
	id := history.ID(track(t, pool, "t", ""))
	// A statement that began before any rotation, and is still to write.
	slow := session(t, pool)
	exec(t, slow, "update t set n = n") // its plans and functions are known
	exec(t, pool, "truncate t; insert into t select g, 0 from generate_series(1, 20) g; select 1")
	exec(t, pool, "delete from annals.h1_1")
	ended := make(chan error)
	go func() {
		_, err := slow.Exec(ctx, "update t set n = n + 1 where id = 20 and pg_sleep(2) is not null")
		ended <- err
	}()
	time.Sleep(200 * time.Millisecond)

	running, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	writers := count(running, pool, 4)
	sealedEarly := 0
	for running.Err() == nil {
		_, err := history.Rotate(ctx, pool, id, 1)
		ok(t, err)
		n, err := history.SealSegments(ctx, pool)
		ok(t, err)
		select {
		case err := <-ended:
			ok(t, err)
		default:
			sealedEarly += n
		}
		time.Sleep(20 * time.Millisecond)
	}
	writers.Wait()
	for _, broken := range many[string](t, pool, brokenCounters) {
		t.Error(broken)
	}
	// Writers of other tests on the server are waited for as well.
	open := 0
	for patience := time.Now().Add(2 * time.Minute); open != 1 && time.Now().Before(patience); time.Sleep(50 * time.Millisecond) {
		if _, err := history.SealSegments(ctx, pool); err != nil {
			t.Fatal(err)
		}
		open = one[int](t, pool, "select count(*) from annals.segment where sealed_at is null")
	}
	if open != 1 {
		t.Errorf("%d segments are not sealed, want the last one", open)
	}
	for _, s := range many[string](t, pool, "select relation::text from annals.segment where sealed_at is not null") {
		if one[bool](t, pool, fmt.Sprintf("select (select count(*) from %[1]s) <> entries or exists (select from %[1]s where v not between first_v and last_v) from annals.segment where relation = '%[1]s'::regclass", s)) {
			t.Errorf("what is noted of %s is not so", s)
		}
	}
	assertWell(t, pool)
}

// TestSealWaitsForOpenTransactions: also for those that had no id when the segment was closed, and for prepared ones.
func TestSealWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, counters)
	track(t, pool, "t", "")
	seal := func(want int) {
		t.Helper()
		if n, err := history.SealSegments(ctx, pool); err != nil || n != want {
			t.Errorf("sealed %d, want %d: %v", n, want, err)
		}
	}
	rotate := func() {
		t.Helper()
		if !one[bool](t, pool, "select annals.rotate(1, 0)") { // however small
			t.Fatal("nothing was rotated")
		}
	}
	writer, err := session(t, pool).Begin(ctx)
	ok(t, err)
	exec(t, writer, "update t set n = 1 where false") // locks the table, has no id
	rotate()
	seal(0)
	exec(t, writer, "update t set n = n + 1 where id = 1")
	seal(0)
	ok(t, writer.Commit(ctx))
	seal(1)
	rotate()
	later, err := session(t, pool).Begin(ctx)
	ok(t, err)
	exec(t, later, "update t set n = n + 1 where id = 2")
	seal(0) // who knows when that began
	exec(t, later, "prepare transaction 'p'")
	seal(0)
	exec(t, pool, "update t set n = n + 1 where id = 3")
	exec(t, pool, "commit prepared 'p'")
	seal(1)
	for _, broken := range many[string](t, pool, brokenCounters) {
		t.Error(broken)
	}
	ok(t, pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := history.SealSegments(ctx, tx); !errors.Is(err, history.ErrIsolation) {
			t.Errorf("in REPEATABLE READ: %v", err)
		}
		return nil
	}))
}

func TestPrune(t *testing.T) {
	t.Parallel()
	// A server of its own: a snapshot lists what runs in any database, and what was pruned must certainly be older.
	ctx, server := t.Context(), pgserver.New(t, pgserver.Options{})
	pool, err := pgxpool.New(ctx, server.ConnString("postgres"))
	ok(t, err)
	t.Cleanup(pool.Close)
	ok(t, history.Install(ctx, pool))
	exec(t, pool, counters)
	id := history.ID(track(t, pool, "t", ""))
	_, err = history.PositionAt(ctx, pool, time.Now())
	if !errors.Is(err, history.ErrNoTick) {
		t.Errorf("without a tick: %v", err)
	}
	var ticks []history.Position
	var seen []history.Coordinate
	for range 4 {
		c, err := history.Now(ctx, pool)
		ok(t, err)
		seen = append(seen, c)
		exec(t, pool, "update t set n = n + 1")
		v, err := history.Tick(ctx, pool)
		ok(t, err)
		ticks = append(ticks, v)
		_, err = history.Rotate(ctx, pool, id, 1)
		ok(t, err)
	}
	prune := func(before history.Position, segments int) history.Pruned {
		t.Helper()
		p, err := history.Prune(ctx, pool, id, before)
		ok(t, err)
		if p.Segments != segments || p.Entries != int64(20*segments) {
			t.Errorf("pruned %+v, want %d segments", p, segments)
		}
		return p
	}
	prune(ticks[3]+1, 0) // nothing is sealed
	_, err = history.SealSegments(ctx, pool)
	ok(t, err)
	prune(ticks[0]-1, 0)
	exec(t, pool, "insert into annals.pin (tracked, owner, name, v) values (null, 'test', 'second', $1), (1, 'test', 'third', $2), (1, 'test', 'beyond', 9999999)", int64(ticks[1]), int64(ticks[2]))
	p := prune(ticks[3]+1, 1)
	if len(p.PinnedBy) != 1 || p.PinnedBy[0].Name != "second" || p.PinnedBy[0].V != ticks[1] || p.Begins != ticks[0]+1 {
		t.Errorf("pruned %+v", p)
	}
	if pins, err := history.Pins(ctx, pool); err != nil || len(pins) != 3 || pins[0].Name != "second" {
		t.Errorf("pins %v, %v", pins, err)
	}
	if from := one[int64](t, pool, "select annals.readable_from(1)"); from != int64(ticks[0]+1) {
		t.Errorf("readable from %d, pruned up to %d", from, ticks[0])
	}
	for k, c := range seen {
		why := one[*string](t, pool, "select annals.unreadable(1, annals.coordinate_snapshot($1))", string(c))
		if (why != nil) != (k == 0) {
			t.Errorf("state %d: %v", k, why)
		}
	}
	exec(t, pool, "delete from annals.pin")
	at, err := history.PositionAt(ctx, pool, time.Now().Add(time.Hour))
	ok(t, err)
	prune(at, 2) // the last entry of the fourth is at that very position
	prune(at+1, 1)
	exec(t, pool, "update t set n = n + 1")
	if n := one[int](t, pool, "select count(*) from annals.h1"); n != 20 {
		t.Errorf("%d entries are left, want 20", n)
	}
	if n := one[int](t, pool, `select count(*) from pg_class where relnamespace = 'annals'::regnamespace and relkind = 'r' and relname ~ '^h1_\d+$'`); n != 1 {
		t.Errorf("%d segments are left", n)
	}
	assertWell(t, pool)

	// A transaction that began before does not see less than all: it is refused.
	exec(t, pool, "update t set n = n + 1")
	_, err = history.Rotate(ctx, pool, id, 1)
	ok(t, err)
	_, err = history.SealSegments(ctx, pool)
	ok(t, err)
	old, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	ok(t, err)
	exec(t, old, "select 1")
	if p, err := history.Prune(ctx, pool, id, at+1000); err != nil || p.Segments != 1 {
		t.Errorf("pruned %+v, %v", p, err)
	}
	if _, err := old.Exec(ctx, "select * from annals.h1"); !errors.Is(history.Refused(err), history.ErrStale) {
		t.Errorf("an older transaction: %v", err)
	}
	ok(t, old.Rollback(ctx))
	if _, err := history.Untrack(ctx, pool, "t", "test"); err != nil {
		t.Fatal(err)
	}
	_, err = history.SealSegments(ctx, pool)
	ok(t, err)
	_, err = history.Prune(ctx, pool, id, at+100000)
	ok(t, err)
}

func TestManySegmentsPlanInTime(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, counters)
	track(t, pool, "t", "")
	conn := session(t, pool)
	for range 30 {
		exec(t, conn, "update t set n = n + 1 where id = 1")
		exec(t, conn, "select annals.rotate(1, 0)")
	}
	exec(t, conn, "select annals.seal_segments()")
	for _, sql := range []string{"select * from annals.h1 where c1 = 1", fmt.Sprintf("select * from annals.h1 where c1 = 1 and v > %d", one[int64](t, pool, "select last_value - 10 from annals.v"))} {
		var best float64 = 1e9
		for range 5 {
			var plans []struct {
				Time float64 `json:"Planning Time"`
			}
			ok(t, json.Unmarshal([]byte(one[string](t, conn, "explain (analyze, format json) "+sql)), &plans))
			best = min(best, plans[0].Time)
		}
		t.Logf("%s: planned in %.1f ms", sql, best)
		if best > 60 {
			t.Errorf("%s takes %.0f ms to plan", sql, best)
		}
	}
}

// TestCrash: SIGKILL while writers and rotation run. What was committed has its history, and what was not has none.
func TestCrash(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{})
	name, err := server.CreateDatabase(ctx)
	ok(t, err)
	connect := func() *pgxpool.Pool {
		pool, err := pgxpool.New(ctx, server.ConnString(name))
		ok(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	pool := connect()
	ok(t, history.Install(ctx, pool))
	exec(t, pool, counters)
	id := history.ID(track(t, pool, "t", ""))
	for round := range 3 {
		_, err := history.Tick(ctx, pool)
		ok(t, err)
		tick := time.Now()
		before, err := history.Now(ctx, pool)
		ok(t, err)
		running, stop := context.WithCancel(ctx)
		writers := count(running, pool, 4)
		var rotation sync.WaitGroup
		rotation.Go(func() {
			for running.Err() == nil {
				_, _ = history.Rotate(ctx, pool, id, 1)
				_, _ = history.SealSegments(ctx, pool)
			}
		})
		time.Sleep(700 * time.Millisecond)
		ok(t, server.Kill(ctx))
		stop()
		writers.Wait()
		rotation.Wait()
		pool.Close()
		ok(t, server.Restart(ctx))
		pool = connect()
		for _, broken := range many[string](t, pool, brokenCounters) {
			t.Errorf("round %d: %s", round, broken)
		}
		if _, err := pool.Exec(ctx, "select annals.coordinate_snapshot($1)", string(before)); !errors.Is(history.Refused(err), history.ErrEpoch) {
			t.Errorf("a coordinate from before the crash: %v", err)
		}
		_, err = history.Now(ctx, pool)
		ok(t, err)
		if _, err := pool.Exec(ctx, "select annals.coordinate_snapshot($1)", string(before)); !errors.Is(history.Refused(err), history.ErrEpoch) {
			t.Errorf("a coordinate from before the crash, with a new epoch noted: %v", err)
		}
		// The tick survived, so all that it saw did.
		c, err := history.At(ctx, pool, tick)
		ok(t, err)
		exec(t, pool, "select annals.coordinate_snapshot($1)", string(c))
		_, err = history.SealSegments(ctx, pool)
		ok(t, err)
		assertWell(t, pool)
	}
	if epochs := many[int](t, pool, "select distinct epoch from annals.segment"); !slices.Equal(epochs, []int{1}) {
		t.Errorf("segments are of epochs %v", epochs)
	}
}

// Who only vacuums or analyzes a table fires no capture, so nothing waits for him.
func TestSealingWaitsForNoVacuum(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key)")
	track(t, pool, "t", "")
	exec(t, pool, "insert into t values (1)")
	for mode, want := range map[string]int{"share update exclusive": 1, "row exclusive": 0} {
		tx, err := pool.Begin(t.Context())
		ok(t, err)
		exec(t, tx, "lock table t in "+mode+" mode")
		exec(t, pool, "select annals.rotate(1, 0)")
		if got := one[int](t, pool, "select annals.seal_segments()"); got != want {
			t.Errorf("%d segments are sealed while somebody holds the lock %s, want %d", got, mode, want)
		}
		ok(t, tx.Rollback(t.Context()))
		exec(t, pool, "select annals.seal_segments()")
	}
}
