package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// writeAtRandom lets sessions change two tables until the context ends: rows come, change, change their keys, go, in transactions that overlap, some of
// which are rolled back, in whole or in part, or fail.
func writeAtRandom(ctx context.Context, t testing.TB, pool *pgxpool.Pool, sessions int) (wait func()) {
	var group sync.WaitGroup
	for range sessions {
		group.Go(func() {
			for ctx.Err() == nil {
				// Errors are locks that take long, keys that exist, and a server that is gone.
				_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "set local lock_timeout = '50ms'"); err != nil {
						return err
					}
					for range 1 + rand.IntN(4) {
						sql := randomStatement()
						if rand.IntN(4) == 0 {
							sql = "savepoint a; " + sql + "; rollback to a; " + randomStatement()
						}
						if _, err := tx.Exec(ctx, sql); err != nil {
							return err
						}
						if rand.IntN(3) == 0 {
							time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
						}
					}
					if rand.IntN(6) == 0 {
						return errors.New("rolled back")
					}
					return nil
				})
			}
		})
	}
	return group.Wait
}

func randomStatement() string {
	const parents, children = 12, 30
	p, q, c := rand.IntN(parents), rand.IntN(parents), rand.IntN(children)
	switch rand.IntN(12) {
	case 0, 1:
		return fmt.Sprintf("insert into parent select i, 0, repeat('p', 20) from generate_series(%d, %d) i on conflict do nothing", p, p+2)
	case 2, 3:
		return fmt.Sprintf("insert into child select %d, min(id), 'c', 0 from parent where id >= %d having count(*) > 0 on conflict do nothing", c, p)
	case 4:
		return fmt.Sprintf("update parent set n = n + 1 where id between %d and %d", p, p+3)
	case 5:
		return fmt.Sprintf("update child set n = n + 1 where id = %d", c)
	case 6:
		return fmt.Sprintf("update child set doc = doc || 'x', n = n where id = %d", c)
	case 7:
		return fmt.Sprintf("delete from parent where id = %d", p) // and its children
	case 8:
		return fmt.Sprintf("delete from child where id = %d", c)
	case 9:
		return fmt.Sprintf("update parent set id = %d where id = %d and not exists (select from parent where id = %[1]d)", q, p) // and its children follow
	case 10:
		return fmt.Sprintf("update parent set n = n where id = %d", p)
	default:
		return fmt.Sprintf("update child set id = %d where id = %d and not exists (select from child where id = %[1]d)", rand.IntN(children), c)
	}
}

// copies are tables that writeAtRandom writes to, and a table into which a handler replays their changes.
func copies(t testing.TB, g *gnomon.Gnomon, pool *pgxpool.Pool) {
	t.Helper()
	run(t, pool, "create table parent (id int primary key, n int, doc text)", "create table child (id int primary key, parent int references parent on delete cascade on update cascade, doc text, n int)",
		"create table copy (consumer text, relation text, key text[], image text, primary key (consumer, relation, key))")
	run(t, pool, "select gnomon.track('parent')", `select gnomon.track('child', '{"form": "row", "wide": ["doc"]}')`)
}

// intoCopy replays a page within the transaction of the position. It fails where a change does not fit what is there: when one was missed, or came twice.
func intoCopy(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
	var batch pgx.Batch
	var unfit []string
	for _, c := range page.Changes {
		if c.Operation != gnomon.Insert && c.Operation != gnomon.SnapshotRow {
			batch.Queue("delete from copy where consumer = $1 and relation = $2 and key = $3 and image = $4 returning 1", page.Consumer, c.Table, c.Key, imageText(c.Old)).Query(one(&unfit, c))
		}
		if c.New.Known() {
			key := c.Key
			if c.NewKey != nil {
				key = c.NewKey
			}
			batch.Queue("insert into copy values ($1, $2, $3, $4) on conflict do nothing returning 1", page.Consumer, c.Table, key, imageText(c.New)).Query(one(&unfit, c))
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	if len(unfit) > 0 {
		return fmt.Errorf("%w: %s", errUnfit, strings.Join(unfit, "; "))
	}
	return nil
}

var errUnfit = errors.New("changes that do not fit")

// one notes the change unless a statement returned one row.
func one(unfit *[]string, c gnomon.Change) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		n := 0
		for rows.Next() {
			n++
		}
		if n != 1 && rows.Err() == nil {
			*unfit = append(*unfit, fmt.Sprintf("%s (v %d of %s)", line(c), c.V, c.Transaction))
		}
		return rows.Err()
	}
}

// copied fails the test where the copy of a consumer differs from the tables.
func copied(t testing.TB, db gnomon.DB, consumer string) {
	t.Helper()
	for table, image := range map[string]string{"parent": "format('(id:%s n:%s doc:%s)', id, n, doc)", "child": "format('(id:%s parent:%s doc:%s n:%s)', id, parent, doc, n)"} {
		differ := text(t, db, fmt.Sprintf(`select * from ((select %[1]s as row, 'table' from %[2]s except select image, 'table' from copy where consumer = %[3]s and relation = 'public.%[2]s')
			union all (select image, 'copy' from copy where consumer = %[3]s and relation = 'public.%[2]s' except select %[1]s, 'copy' from %[2]s)) d order by 1`, image, table, "'"+consumer+"'"))
		if differ != "" {
			t.Fatalf("%s differs from its copy:\n%s", table, differ)
		}
	}
}

var errByChance = errors.New("by chance")

// feedAtRandom works for a consumer until the context ends, with pages and windows of random sizes, handlers that fail by chance, and restarts. Rows that it
// got at the beginning are replayed as well.
func feedAtRandom(ctx context.Context, g *gnomon.Gnomon, name string) error {
	for {
		once, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Millisecond)
		err := g.Feed(name, gnomon.FeedOptions{PageSize: 1 + rand.IntN(20), Window: int64(1 + rand.IntN(200)), Poll: time.Millisecond, Lease: time.Second, PollOnly: rand.IntN(2) == 0}).Run(once,
			func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
				if err := intoCopy(ctx, tx, page); err != nil {
					return err
				}
				if rand.IntN(8) == 0 {
					return errByChance
				}
				return nil
			})
		stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errUnfit):
			return err
		case errors.Is(err, errByChance), once.Err() != nil:
		default:
			return err
		}
	}
}

// A consumer that begins before all writes, and one that begins among them with the rows that were there.
func TestFeedReplayedEqualsTheTables(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	copies(t, g, pool)
	consumer(t, g, gnomon.ConsumerParams{Name: "all"})
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	wait := writeAtRandom(ctx, t, pool, 8)
	time.Sleep(300 * time.Millisecond)
	consumer(t, g, gnomon.ConsumerParams{Name: "rows", Snapshot: true, Tables: []string{"public.parent", "public.child"}})
	go func() {
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, "select annals.tick()")
			_, _ = pool.Exec(ctx, "select annals.rotate(t.id, 0) from annals.tracked t where $1", rand.IntN(4) == 0)
			_, _ = pool.Exec(ctx, "select annals.seal_segments()")
			time.Sleep(50 * time.Millisecond)
		}
	}()
	names := []string{"all", "rows"}
	failures := make(chan error, 4)
	for _, name := range slices.Concat(names, names) { // two processes for each
		go func() { failures <- feedAtRandom(ctx, g, name) }()
	}
	wait()
	for range cap(failures) {
		ok(t, <-failures)
	}
	for _, name := range names {
		ok(t, g.Feed(name, gnomon.FeedOptions{Drain: true, Poll: 10 * time.Millisecond}).Run(t.Context(), intoCopy))
		copied(t, pool, name)
	}
	for _, s := range must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context())) {
		if t.Logf("%s got %d", s.Name, s.Delivered); s.Delivered < 100 {
			t.Fatalf("%s got only %d changes", s.Name, s.Delivered)
		}
	}
}

// Positions and history stand in one log, so a crash takes both back to one place, with synchronous_commit off as well.
func TestFeedGoesOnAfterCrashes(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "100ms"}})
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), server.ConnString("postgres")))
	defer pool.Close()
	ok(t, gnomon.Install(t.Context(), pool))
	g := gnomon.New(pool)
	copies(t, g, pool)
	consumer(t, g, gnomon.ConsumerParams{Name: "c", Snapshot: true, Tables: []string{"public.parent", "public.child"}})
	run(t, pool, "checkpoint")
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		wait := writeAtRandom(ctx, t, pool, 4)
		ended := make(chan error, 1)
		go func() {
			for {
				err := feedAtRandom(ctx, g, "c")
				if ctx.Err() != nil || errors.Is(err, errUnfit) {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(700 * time.Millisecond)
		ok(t, server.Kill(t.Context()))
		stop()
		wait()
		if err := <-ended; errors.Is(err, errUnfit) {
			t.Fatal(err)
		}
		ok(t, server.Restart(t.Context()))
		pool.Reset()
		ok(t, g.Feed("c", gnomon.FeedOptions{Drain: true, Poll: 10 * time.Millisecond}).Run(t.Context(), intoCopy))
		copied(t, pool, "c")
	}
	if s := must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context()))[0]; s.Delivered < 20 {
		t.Fatalf("only %d changes", s.Delivered)
	}
}
