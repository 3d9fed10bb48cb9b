package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

// sees tells whether a coordinate sees the last entry of history 1.
func sees(t testing.TB, db pgtx.DB, c history.Coordinate) bool {
	t.Helper()
	return one[bool](t, db, "select pg_visible_in_snapshot((select xid from annals.h1 order by v desc limit 1), annals.coordinate_snapshot($1))", string(c))
}

func resolve(db pgtx.DB, c history.Coordinate) error {
	_, err := db.Exec(context.Background(), "select annals.coordinate_snapshot($1)", string(c))
	return history.Refused(err)
}

func TestCoordinateIsWhatTheStatementSees(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a int)")
	track(t, pool, "t", "")
	now := func(db pgtx.DB) history.Coordinate {
		t.Helper()
		c, err := history.Now(ctx, db)
		ok(t, err)
		return c
	}
	before := now(pool)
	writer, err := pool.Begin(ctx)
	ok(t, err)
	during := now(pool)
	exec(t, writer, "insert into t values (1, 1)")
	own := now(writer)
	exec(t, writer, "savepoint s; update t set a = 2")
	nested := now(writer)
	concurrent := now(pool)
	exec(t, pool, "insert into t values (2, 1)") // moves the upper end past the writer
	later := now(writer)
	ok(t, writer.Commit(ctx))
	after := now(pool)
	if one[int](t, pool, "select count(distinct xid) from annals.h1") != 2 {
		t.Fatal("the transactions are not two")
	}
	writerXID := one[string](t, pool, "select xid::text from annals.h1 where c1 = 1 limit 1")
	for name, c := range map[string]history.Coordinate{"before": before, "during": during, "its own": own, "its own, in a savepoint": nested, "concurrent": concurrent, "its own, later": later, "after": after} {
		if got := one[bool](t, pool, "select pg_visible_in_snapshot($1::text::xid8, annals.coordinate_snapshot($2))", writerXID, string(c)); got != (name == "after") {
			t.Errorf("%s: the writer is seen: %t", name, got)
		}
	}
	if !one[bool](t, pool, "select pg_visible_in_snapshot((select xid from annals.h1 where c1 = 2), annals.coordinate_snapshot($1))", string(later)) {
		t.Error("what was committed before is not seen")
	}

	// The reader is older than the coordinate: it would be shown less.
	reader, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	ok(t, err)
	if kept := now(reader); !sees(t, reader, kept) {
		t.Error("a reader does not see what is there")
	}
	exec(t, pool, "update t set a = 3")
	if again := now(reader); !sees(t, reader, again) {
		t.Error("a reader's coordinate is not what it sees")
	}
	tooNew := now(pool)
	if err := resolve(reader, tooNew); !errors.Is(err, history.ErrNotYet) {
		t.Errorf("a coordinate later than the reader: %v", err)
	}
	ok(t, reader.Rollback(ctx))
	ok(t, resolve(pool, tooNew))
	for _, bad := range []history.Coordinate{"", "x", "12345678/1:1:/0/", "12345678/9:1:/0/0", before + " ", "12345678/1:1:'/0/0"} {
		if err := resolve(pool, bad); !errors.Is(err, history.ErrCoordinate) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := resolve(pool, "00000000"+before[8:]); !errors.Is(err, history.ErrEpoch) {
		t.Errorf("another marker: %v", err)
	}
}

func TestSnapshotCovers(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	// Against the definition, on small snapshots.
	if bad := many[string](t, pool, `
		with s as materialized (
			select format('%s:%s:%s', lo, hi, array_to_string(x, ','))::pg_snapshot as s
			from generate_series(3, 6) lo, generate_series(lo, 7) hi, lateral (select array(select g from generate_series(lo, hi - 1) g where mask & (1 << (g - lo)) <> 0) as x, mask from generate_series(0, (1 << (hi - lo)) - 1) mask) m
			where hi = lo or mask & 1 = 1)
		select format('%s covers %s', a.s, b.s) from s a, s b
		where annals.snapshot_covers(a.s, b.s) <> not exists (select from generate_series(3, 8) x where pg_visible_in_snapshot(x::text::xid8, b.s) and not pg_visible_in_snapshot(x::text::xid8, a.s)) limit 5`); len(bad) > 0 {
		t.Error(bad)
	}
	if !one[bool](t, pool, "select not annals.snapshot_covers('10:10:', '10:9000000000000000000:')") {
		t.Error("a far coordinate is covered")
	}
}

// TestTicksBoundPositions: an entry that a snapshot does not see has a higher position than the lower bound of the snapshot.
func TestTicksBoundPositions(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a int); create table u (id int primary key)")
	track(t, pool, "t", "")
	track(t, pool, "u", "")
	exec(t, pool, "insert into t select g, 0 from generate_series(1, 50) g; create table taken (s pg_snapshot, bound bigint)")
	running, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	var all sync.WaitGroup
	for range 4 {
		conn := session(t, pool)
		all.Go(func() {
			for running.Err() == nil {
				tx, err := conn.Begin(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				for range rand.IntN(3) {
					if _, err := tx.Exec(ctx, "update t set a = a + 1 where id = $1", 1+rand.IntN(50)); err != nil {
						break
					}
				}
				if rand.IntN(3) == 0 {
					_, _ = tx.Exec(ctx, "truncate u")
					_, _ = tx.Exec(ctx, "insert into u select generate_series(1, 3)")
				}
				_ = tx.Commit(ctx)
			}
		})
	}
	all.Go(func() {
		for running.Err() == nil {
			if _, err := history.Tick(ctx, pool); err != nil {
				t.Error(err)
			}
		}
	})
	for running.Err() == nil {
		exec(t, pool, "insert into taken select s, annals.lower_bound(s) from pg_current_snapshot() s")
	}
	all.Wait()
	if n := one[int](t, pool, "select count(*) from taken where bound > 100"); n == 0 {
		t.Error("there are no bounds")
	}
	for _, h := range []string{"annals.h1", "annals.h2"} {
		if bad := many[string](t, pool, "select format('%s does not see %s at %s', k.s, h.xid, h.v) from "+h+" h join taken k on h.v <= k.bound and not pg_visible_in_snapshot(h.xid, k.s) limit 5"); len(bad) > 0 {
			t.Error(bad)
		}
	}
	ok(t, pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := history.Tick(ctx, tx); !errors.Is(err, history.ErrIsolation) {
			t.Errorf("a tick in REPEATABLE READ: %v", err)
		}
		return nil
	}))
	exec(t, pool, "alter database "+pool.Config().ConnConfig.Database+" set default_transaction_isolation = serializable")
	fresh, err := pgxpool.New(ctx, pool.Config().ConnString())
	ok(t, err)
	defer fresh.Close()
	_, err = history.Tick(ctx, fresh)
	ok(t, err)
}

func TestCoordinatesOnStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := pgserver.New(t, pgserver.Options{})
	connect := func(s *pgserver.Server) *pgxpool.Pool {
		pool, err := pgxpool.New(ctx, s.ConnString("postgres"))
		ok(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	pool := connect(primary)
	ok(t, history.Install(ctx, pool))
	exec(t, pool, "create table t (id int primary key, a int)")
	track(t, pool, "t", "")
	exec(t, pool, "insert into t values (1, 1)")
	_, err := history.Tick(ctx, pool)
	ok(t, err)
	tick := time.Now()
	c, err := history.Now(ctx, pool)
	ok(t, err)
	standby, err := primary.Standby(ctx)
	ok(t, err)
	t.Cleanup(func() { _ = standby.Stop() })
	exec(t, pool, "update t set a = 2")
	ok(t, standby.CatchUp(ctx))
	there := connect(standby)
	if _, err := history.Now(ctx, there); !errors.Is(err, history.ErrStandby) {
		t.Errorf("a coordinate on a standby: %v", err)
	}
	ok(t, resolve(there, c))
	if sees(t, there, c) {
		t.Error("the past is not read on a standby")
	}
	exec(t, there, "select * from annals.check_capture()")
	ok(t, standby.Promote(ctx))
	if err := resolve(there, c); !errors.Is(err, history.ErrEpoch) {
		t.Errorf("a coordinate of before the promotion: %v", err)
	}
	ok(t, pgx.BeginTxFunc(ctx, there, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := history.Now(ctx, tx); !errors.Is(err, history.ErrEpoch) {
			t.Errorf("a read-only transaction notes the promotion: %v", err)
		}
		return nil
	}))
	exec(t, there, "update t set a = 3")
	fresh, err := history.Now(ctx, there)
	ok(t, err)
	if !sees(t, there, fresh) {
		t.Error("the new coordinate does not see what is there")
	}
	if err := resolve(there, c); !errors.Is(err, history.ErrEpoch) {
		t.Errorf("a coordinate of before the promotion, later: %v", err)
	}
	old, err := history.At(ctx, there, tick)
	ok(t, err)
	if sees(t, there, old) {
		t.Error("the tick sees what came later")
	}
	if err := resolve(pool, fresh); !errors.Is(err, history.ErrEpoch) {
		t.Errorf("a coordinate of the new primary on the old one: %v", err)
	}
	assertWell(t, there)
}
