package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// serverOf returns a server of the test's own, with gnomon in its database postgres.
func serverOf(t *testing.T, settings map[string]string) (*pgserver.Server, *gnomon.Gnomon, *pgxpool.Pool) {
	t.Helper()
	server := pgserver.New(t, pgserver.Options{Own: true, Settings: settings})
	pool := poolOn(t, server)
	ok(t, gnomon.Install(t.Context(), pool))
	return server, gnomon.New(pool), pool
}

func poolOn(t *testing.T, server *pgserver.Server) *pgxpool.Pool {
	t.Helper()
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), server.ConnString("postgres")))
	t.Cleanup(pool.Close)
	return pool
}

// workTime is how long sessions work where the checker is a part of a test.
func workTime() time.Duration {
	if testing.Short() {
		return 400 * time.Millisecond
	}
	return *checkerTime / 5
}

// A timeSeen is what the past showed at a time.
type timeSeen struct {
	at    gnomon.Ref
	texts map[string]string // rows, by table
}

// timesSeen reads what the past shows at the times of some ticks.
func (j *journal) timesSeen(t *testing.T, g *gnomon.Gnomon) (list []timeSeen) {
	t.Helper()
	for _, at := range column[time.Time](t, j.pool, "select at from (select at, row_number() over (order by at) as nr, count(*) over () as n from annals.tick where at > (select max(since) from gnomon.history)) k where nr % greatest(n / 4, 1) = 0 order by at") {
		s := timeSeen{at: gnomon.AtTime(at), texts: map[string]string{}}
		past := must[*gnomon.Past](t)(g.At(t.Context(), s.at))
		for _, table := range j.tables {
			s.texts[table.name] = text(t, past, "select * from "+table.name+" order by 1")
		}
		list = append(list, s)
	}
	return list
}

// tag sets a tag at what it reads.
func (j *journal) tag(ctx context.Context, conn *pgx.Conn, r *rand.Rand, name string) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		s, err := j.look(ctx, conn, r, pgx.RepeatableRead)
		if err != nil {
			return err
		}
		s.tag = name
		j.mu.Lock()
		j.seen = append(j.seen, s)
		j.mu.Unlock()
		_, err = tx.Exec(ctx, "select gnomon.tag($1)", name)
		return err
	})
}

// outlast replays what was seen before a server lost what it had not written: coordinates are refused or answered exactly; tags that are
// left and times are answered exactly.
func (j *journal) outlast(t *testing.T, g *gnomon.Gnomon, db gnomon.DB, times []timeSeen, allTags bool) {
	t.Helper()
	tags := map[string]bool{}
	for _, name := range column[string](t, db, "select name from gnomon.tag") {
		tags[name] = true
	}
	var refused, exact, kept, lost int
	for i := range j.seen {
		s := &j.seen[i]
		if err := s.replay(t.Context(), g, s.at); errors.Is(err, gnomon.ErrEpoch) {
			refused++
		} else if err != nil {
			t.Errorf("a coordinate: %v", err)
		} else {
			exact++
		}
		if s.tag == "" {
			continue
		}
		err := s.replay(t.Context(), g, gnomon.AtTag(s.tag))
		switch {
		case err != nil && !tags[s.tag] && errors.Is(err, gnomon.ErrUnknownTag):
			lost++
		case err != nil:
			t.Errorf("tag %s: %v", s.tag, err)
		default:
			kept++
		}
	}
	if allTags && lost > 0 {
		t.Errorf("%d tags were lost", lost)
	}
	for _, seen := range times {
		past, err := g.At(t.Context(), seen.at)
		if err != nil {
			t.Errorf("time %s: %v", seen.at, err)
			continue
		}
		for _, table := range j.tables {
			if got := text(t, past, "select * from "+table.name+" order by 1"); got != seen.texts[table.name] {
				t.Errorf("%s at %s:\n%s\nwas:\n%s", table.name, seen.at, got, seen.texts[table.name])
			}
		}
	}
	t.Logf("%d coordinates refused, %d exact; %d tags exact, %d lost; %d times exact", refused, exact, kept, lost, len(times))
}

// goesOn lets sessions work again and replays what they see.
func (j *journal) goesOn(t *testing.T, g *gnomon.Gnomon, pool *pgxpool.Pool) {
	t.Helper()
	begin := must[gnomon.Coordinate](t)(g.Now(t.Context()))
	feed := newFollower(t, j.checkerWorld, pool)
	again := j.checkerWorld.work(t, pool, workTime(), 15, beating(t), rotation(t))
	again.replayAll(t, g)
	feed.follow(t, g, begin, again.chain(t, begin))
	again.positionsRise(t)
	if findings := text(t, pool, "select * from annals.check_capture()"); findings != "" {
		t.Errorf("capture is not well: %s", findings)
	}
}

// TestKilledServersHistoryIsExact: the server is killed while sessions work, and starts again. With synchronous_commit off it loses the
// last commits. Coordinates of before are refused; tags and times that are left, and all that comes later, are exact.
func TestKilledServersHistoryIsExact(t *testing.T) {
	t.Parallel()
	for _, synchronous := range []string{"on", "off"} {
		t.Run("synchronous_commit "+synchronous, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			settings := map[string]string{"synchronous_commit": synchronous, "max_prepared_transactions": "20"}
			if synchronous == "off" { // and nothing that makes the log be written soon
				maps.Copy(settings, map[string]string{"max_prepared_transactions": "0", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "64MB"})
			}
			server, g, pool := serverOf(t, settings)
			r := checkerRandom(t)
			w := newCheckerWorld(t, g, pool, r)
			run(t, pool, "select gnomon.heartbeat('0')")
			first := w.work(t, pool, workTime()/2, 10, beating(t))
			times := first.timesSeen(t, g)
			run(t, pool, "checkpoint") // what was seen until now must outlast the crash, whatever else is lost
			last := connectAs(t, server.ConnString("postgres"), "")
			var killed error
			j := w.work(t, pool, workTime(), 30, beating(t), func(j *journal) {
				time.Sleep(workTime() * 3 / 4)
				for i := range 3 { // right before the end
					if err := j.tag(ctx, last, r, fmt.Sprintf("last %d", i)); err != nil {
						t.Error(err)
					}
				}
				j.killed.Store(true)
				killed = server.Kill(context.WithoutCancel(ctx))
			})
			ok(t, killed)
			ok(t, server.Restart(ctx))
			pool.Reset()
			// What was prepared is still there. Its locks would be in the way.
			for _, gid := range column[string](t, pool, "select gid from pg_prepared_xacts order by prepared") {
				run(t, pool, fmt.Sprintf("commit prepared '%s'", gid))
			}
			j.seen = append(first.seen, j.seen...)
			if len(j.seen) < 5 || len(times) == 0 {
				t.Errorf("%d sightings, %d times", len(j.seen), len(times))
			}
			j.outlast(t, g, pool, times, synchronous == "on")
			j.goesOn(t, g, pool)
			j.outlast(t, g, pool, times, synchronous == "on")
		})
	}
}
