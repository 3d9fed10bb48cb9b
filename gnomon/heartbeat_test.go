package gnomon_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// ticks counts the ticks.
func ticks(t testing.TB, db gnomon.DB) int64 {
	t.Helper()
	return column[int64](t, db, "select count(*) from annals.tick")[0]
}

// beat makes a heartbeat, and returns whether it noted the time.
func beat(t testing.TB, g *gnomon.Gnomon, every time.Duration) bool {
	t.Helper()
	return must[bool](t)(g.Heartbeat(t.Context(), every))
}

func TestOneHeartbeatInAnInterval(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	if !beat(t, g, time.Hour) || beat(t, g, time.Hour) {
		t.Error("the first notes the time, and the second does not")
	}
	run(t, pool, "update shop.counter set n = 1")
	var all sync.WaitGroup
	var noted atomic.Int64
	run(t, pool, "update annals.tick set at = at - interval '2 hours'")
	for range 4 {
		all.Go(func() {
			if is, err := g.Heartbeat(ctx, time.Hour); err == nil && is {
				noted.Add(1)
			}
		})
	}
	all.Wait()
	if noted.Load() != 1 || ticks(t, pool) != 2 {
		t.Errorf("of four at once, %d noted the time; there are %d ticks", noted.Load(), ticks(t, pool))
	}
	_, err := g.Heartbeat(ctx, -time.Second)
	refuses(t, err, gnomon.ErrInvalid)
	ok(t, pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := gnomon.New(tx).Heartbeat(ctx, 0)
		refuses(t, err, gnomon.ErrIsolation)
		return nil
	}))
}

func TestHeartbeatRestsWhileNothingIsWritten(t *testing.T) {
	t.Parallel()
	_, g, pool := ownServer(t, nil) // transactions anywhere in the server may have written before they are seen
	counters(t, g, pool)
	beat(t, g, 0)
	beat(t, g, 0) // sees all that the first could not
	rest := ticks(t, pool)
	if beat(t, g, 0) || ticks(t, pool) != rest {
		t.Error("there is a tick of a time in which nothing was written")
	}
	// A transaction that wrote before the last tick and commits after it is something new.
	open := must[pgx.Tx](t)(pool.Begin(t.Context()))
	run(t, open, "update shop.counter set n = 1")
	beat(t, g, 0)
	beat(t, g, 0)
	ok(t, open.Commit(t.Context()))
	if !beat(t, g, 0) {
		t.Error("there is no tick after a commit")
	}
	for beat(t, g, 0) {
	}
	run(t, pool, "update annals.tick set at = at - interval '2 minutes'")
	if !beat(t, g, 0) || beat(t, g, 0) {
		t.Error("there is one tick in a minute all the same")
	}
}

func TestHeartbeatWakesConsumers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	listener := connectAs(t, pool.Config().ConnString(), "")
	run(t, listener, "listen gnomon_feed")
	wait, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	beat(t, g, 0)
	n, err := listener.WaitForNotification(wait)
	ok(t, err)
	if n.Channel != "gnomon_feed" || n.Payload != "" {
		t.Errorf("notified of %+v", n)
	}
}

func TestRunHeartbeatOutlastsTheServersRestart(t *testing.T) {
	t.Parallel()
	server, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	ctx, stop := context.WithCancel(t.Context())
	var failures atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- g.RunHeartbeat(ctx, 20*time.Millisecond, func(error) { failures.Add(1) })
	}()
	grows := func() {
		t.Helper()
		began := ticks(t, pool)
		for end := time.Now().Add(time.Minute); ticks(t, pool) < began+3; time.Sleep(10 * time.Millisecond) {
			run(t, pool, "update shop.counter set n = n + 1")
			if time.Now().After(end) {
				t.Fatal("there is no heartbeat")
			}
		}
	}
	grows()
	ok(t, server.Kill(ctx))
	for failures.Load() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	ok(t, server.Restart(ctx))
	pool.Reset()
	grows()
	stop()
	ok(t, <-done)
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		refuses(t, gnomon.New(tx).RunHeartbeat(t.Context(), time.Second), gnomon.ErrInvalid)
		return nil
	}))
}
