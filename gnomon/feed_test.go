package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// drained returns what a consumer gets now.
func drained(t testing.TB, g *gnomon.Gnomon, name string, o gnomon.FeedOptions) (list []gnomon.Change) {
	t.Helper()
	o.Drain = true
	ok(t, g.Feed(name, o).Run(t.Context(), func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
		list = append(list, page.Changes...)
		return nil
	}))
	return list
}

func consumer(t testing.TB, g *gnomon.Gnomon, p gnomon.ConsumerParams) {
	t.Helper()
	ok(t, g.CreateConsumer(t.Context(), p))
}

func TestFeedDeliversOverlappingTransactionsOnce(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key, n int")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	begin := func(sql string) pgx.Tx {
		tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
		run(t, tx, sql)
		return tx
	}
	insert := func(id int) string { return fmt.Sprintf("insert into %s values (%d, 0)", shopTable, id) }
	long, first := begin(insert(1)), begin(insert(2))
	run(t, pool, insert(3))
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `insert "Sch ema"."ta""ble" 3 - (id:3 n:0) .`)
	run(t, pool, "update "+shopTable+" set n = 1", "select annals.tick()")
	ok(t, first.Commit(t.Context()))
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `
	insert "Sch ema"."ta""ble" 2 - (id:2 n:0) .
	update "Sch ema"."ta""ble" 3 (id:3 n:0) (id:3 n:1) .`)
	run(t, long, "update "+shopTable+" set n = 5 where id = 3")
	ok(t, long.Commit(t.Context()))
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `
	insert "Sch ema"."ta""ble" 1 - (id:1 n:0)
	update "Sch ema"."ta""ble" 3 (id:3 n:1) (id:3 n:5) .`)
	if list := drained(t, g, "c", gnomon.FeedOptions{}); len(list) != 0 {
		t.Fatalf("again: %s", lines(list))
	}
}

func TestFeedDeliversPreparedTransactions(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), server.ConnString("postgres")))
	defer pool.Close()
	ok(t, gnomon.Install(t.Context(), pool))
	g := gnomon.New(pool)
	run(t, pool, "create table s (id int primary key)")
	track(t, g, "public.s")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	prepare := func(id int) {
		conn := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
		defer conn.Release()
		run(t, conn, "begin", fmt.Sprintf("insert into s values (%d)", id), fmt.Sprintf("prepare transaction 'p%d'", id))
	}
	prepare(1)
	prepare(2)
	run(t, pool, "insert into s values (3)")
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `insert public.s 3 - (id:3) .`)
	run(t, pool, "commit prepared 'p1'", "rollback prepared 'p2'")
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `insert public.s 1 - (id:1) .`)
	// What a server that commits asynchronously loses, nobody got.
	prepare(4)
	run(t, pool, "insert into s values (5)")
	drained(t, g, "c", gnomon.FeedOptions{})
	ok(t, server.Kill(t.Context()))
	ok(t, server.Restart(t.Context()))
	pool.Reset()
	run(t, pool, "commit prepared 'p4'", "insert into s values (6)")
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), "insert public.s 4 - (id:4) .\n\tinsert public.s 6 - (id:6) .")
}

func TestFeedPagesEndWhereTransactionsEnd(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c", NoImages: true})
	for _, n := range []int{2, 2, 7, 1, 3} {
		run(t, pool, fmt.Sprintf("insert into %s select coalesce(max(id), 0) + i from generate_series(1, %d) i left join %[1]s on true group by i", shopTable, n))
	}
	var pages []string
	ok(t, g.Feed("c", gnomon.FeedOptions{PageSize: 3, Drain: true}).Run(t.Context(), func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
		pages = append(pages, fmt.Sprint(len(page.Changes), page.Complete))
		return nil
	}))
	if want := []string{"2 true", "2 true", "3 false", "3 false", "2 true", "3 true"}; !slices.Equal(pages, want) {
		t.Fatalf("pages %v, want %v", pages, want)
	}
}

func TestFeedPositionGoesWithWhatTheHandlerWrites(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	run(t, pool, "create table got (id text primary key)")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "insert into "+shopTable+" select i from generate_series(1, 10) i")
	failure := errors.New("no more")
	calls := 0
	handle := func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
		calls++
		for _, c := range page.Changes {
			if _, err := tx.Exec(ctx, "insert into got values ($1)", c.Key[0]); err != nil {
				return err
			}
		}
		if calls%2 == 0 {
			return failure
		}
		return nil
	}
	for {
		err := g.Feed("c", gnomon.FeedOptions{PageSize: 3, Drain: true}).Run(t.Context(), handle)
		if err == nil {
			break
		}
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	if n := column[int64](t, pool, "select count(*) from got"); n[0] != 10 {
		t.Fatalf("got %d", n[0])
	}
	if s := must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context())); len(s) != 1 || s[0].Delivered != 10 || s[0].Holder != "" || s[0].Delivering {
		t.Fatalf("status %+v", s)
	}
}

func TestFeedOfALoopRepeatsThePageThatItEndedIn(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "insert into "+shopTable+" select i from generate_series(1, 10) i")
	var keys []string
	for c, err := range g.Feed("c", gnomon.FeedOptions{PageSize: 4}).All(t.Context()) {
		ok(t, err)
		if keys = append(keys, c.Key[0]); len(keys) == 6 {
			break
		}
	}
	for c, err := range g.Feed("c", gnomon.FeedOptions{PageSize: 4, Drain: true}).All(t.Context()) {
		ok(t, err)
		keys = append(keys, c.Key[0])
	}
	if want := "[1 2 3 4 5 6 5 6 7 8 9 10]"; fmt.Sprint(keys) != want {
		t.Fatalf("got %v", keys)
	}
}

func TestFeedBeginsWithTheRowsThatWereThere(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int, k text, n int, primary key (k, id)")
	run(t, pool, "create table empty (id int primary key)")
	track(t, g, "public.empty")
	run(t, pool, "insert into "+shopTable+" select i, 'k' || i % 3, 0 from generate_series(1, 50) i")
	consumer(t, g, gnomon.ConsumerParams{Name: "c", Snapshot: true})
	want := column[string](t, pool, "select format('(id:%s k:%s n:%s)', id, k, n) from "+shopTable+" order by 1")
	run(t, pool, "delete from "+shopTable+" where id % 5 = 0", "update "+shopTable+" set n = n + 1 where id % 3 = 0", "update "+shopTable+" set id = id + 100 where id = 7", "insert into "+shopTable+" values (200, 'k0', 9)")
	state := map[string]string{}
	failed := false
	var rows []string
	stop := errors.New("stop")
	handle := func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
		if len(rows) == 14 && !failed {
			failed = true
			return stop
		}
		for _, c := range page.Changes {
			if page.Snapshot != (c.Operation == gnomon.SnapshotRow) {
				t.Errorf("%s in a page of the other kind", line(c))
			}
			if page.Snapshot {
				rows = append(rows, imageText(c.New))
				c.Operation = gnomon.Insert
			}
			replay(t, state, c)
		}
		return nil
	}
	if err := g.Feed("c", gnomon.FeedOptions{PageSize: 7, Drain: true}).Run(t.Context(), handle); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	ok(t, g.Feed("c", gnomon.FeedOptions{PageSize: 7, Drain: true}).Run(t.Context(), handle))
	if slices.Sort(rows); !slices.Equal(rows, want) {
		t.Fatalf("rows %v, want %v", rows, want)
	}
	same(t, pool, shopTable, state, "format('(id:%s k:%s n:%s)', id, k, n)")
}

// same compares what was replayed with a table.
func same(t testing.TB, db gnomon.DB, table string, state map[string]string, row string) {
	t.Helper()
	want := column[string](t, db, "select "+row+" from "+table+" order by 1")
	var got []string
	for _, image := range state {
		got = append(got, image)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("replayed\n%v\nwant\n%v", got, want)
		}
	}
}

func TestFeedBeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	run(t, pool, "insert into "+shopTable+" values (1)")
	from := here(t, g)
	run(t, pool, "insert into "+shopTable+" values (2)")
	consumer(t, g, gnomon.ConsumerParams{Name: "then", From: from, Tables: []string{shopTable}, Operations: []gnomon.Operation{gnomon.Insert}})
	consumer(t, g, gnomon.ConsumerParams{Name: "now", Keys: []gnomon.Key{{"3"}, {"9"}}})
	consumer(t, g, gnomon.ConsumerParams{Name: "rows", From: from, Snapshot: true})
	run(t, pool, "insert into "+shopTable+" values (3), (4)", "delete from "+shopTable+" where id in (1, 4)", "update "+shopTable+" set id = 9 where id = 2")
	for name, want := range map[string]string{
		"then": `insert "Sch ema"."ta""ble" 2 - (id:2) .
	insert "Sch ema"."ta""ble" 3 - (id:3)
	insert "Sch ema"."ta""ble" 4 - (id:4) .`,
		"now": `insert "Sch ema"."ta""ble" 3 - (id:3) .
	update "Sch ema"."ta""ble" 2 => 9 (id:2) (id:9) .`,
		"rows": `snapshot "Sch ema"."ta""ble" 1 - (id:1) .
	insert "Sch ema"."ta""ble" 2 - (id:2) .
	insert "Sch ema"."ta""ble" 3 - (id:3)
	insert "Sch ema"."ta""ble" 4 - (id:4) .
	delete "Sch ema"."ta""ble" 1 (id:1) -
	delete "Sch ema"."ta""ble" 4 (id:4) - .
	update "Sch ema"."ta""ble" 2 => 9 (id:2) (id:9) .`,
	} {
		wants(t, lines(drained(t, g, name, gnomon.FeedOptions{})), want)
	}
	refuses(t, g.CreateConsumer(t.Context(), gnomon.ConsumerParams{Name: "now"}), gnomon.ErrConsumerExists)
	refuses(t, g.CreateConsumer(t.Context(), gnomon.ConsumerParams{Name: ""}), gnomon.ErrInvalid)
	refuses(t, g.CreateConsumer(t.Context(), gnomon.ConsumerParams{Name: "x", Operations: []gnomon.Operation{"merge"}}), gnomon.ErrInvalid)
	ok(t, g.DropConsumer(t.Context(), "now"))
	refuses(t, g.DropConsumer(t.Context(), "now"), gnomon.ErrUnknownConsumer)
	refuses(t, g.Feed("now", gnomon.FeedOptions{}).Run(t.Context(), nil), gnomon.ErrUnknownConsumer)
}

func TestFeedIsTakenOver(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "insert into "+shopTable+" values (1)")
	o := gnomon.FeedOptions{Poll: 10 * time.Millisecond, Lease: 300 * time.Millisecond, PollOnly: true}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working atomic.Int32
	got := make(chan string, 10)
	ended := make(chan error, 2)
	work := func(ctx context.Context, name string) {
		o := o
		o.Holder = name
		ended <- g.Feed("c", o).Run(ctx, func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
			if working.Add(1) > 1 {
				t.Error("two work at once")
			}
			got <- name + page.Changes[0].Key[0]
			time.Sleep(time.Second) // longer than the lease, which is kept
			working.Add(-1)
			return nil
		})
	}
	go work(ctx, "a")
	if first := <-got; first != "a1" {
		t.Fatal(first)
	}
	go work(t.Context(), "b")
	run(t, pool, "insert into "+shopTable+" values (2)")
	if second := <-got; second != "a2" {
		t.Fatal(second)
	}
	if s := must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context())); s[0].Holder != "a" {
		t.Fatalf("status %+v", s)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	working.Store(0)
	if third := <-got; third != "b2" { // it was not committed
		t.Fatal(third)
	}
	// Somebody who was thought dead can't move the position.
	run(t, pool, "update gnomon.consumer set lease = gen_random_uuid()")
	refuses(t, <-ended, gnomon.ErrLease)
}

// Whoever lost the consumer while its handler ran commits nothing.
func TestFeedOfALostConsumerMovesNothing(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	run(t, pool, "create table got (id text primary key)")
	for _, name := range []string{"changes", "rows"} {
		snapshot := name == "rows"
		from := here(t, g)
		if !snapshot {
			run(t, pool, "insert into "+shopTable+" values (1)")
		}
		consumer(t, g, gnomon.ConsumerParams{Name: name, From: from, Snapshot: snapshot})
		refuses(t, g.Feed(name, gnomon.FeedOptions{Drain: true}).Run(t.Context(), func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
			run(t, pool, "update gnomon.consumer set lease = gen_random_uuid()")
			_, err := tx.Exec(ctx, "insert into got values ($1)", page.Changes[0].Key[0])
			return err
		}), gnomon.ErrLease)
		run(t, pool, "update gnomon.consumer set lease = null")
		if n := column[int64](t, pool, "select count(*) from got"); n[0] != 0 {
			t.Fatalf("%s: the handler's writes were committed", name)
		}
		if list := drained(t, g, name, gnomon.FeedOptions{}); len(list) != 1 {
			t.Fatalf("%s: then got %s", name, lines(list))
		}
	}
	// After a restore, transaction ids mean something else.
	run(t, pool, "update gnomon.consumer set epoch = epoch - 1")
	refuses(t, g.Feed("rows", gnomon.FeedOptions{Drain: true}).Run(t.Context(), nil), gnomon.ErrEpoch)
}

func TestFeedKeepsHistory(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "select annals.tick()")
	prune := func() int64 {
		run(t, pool, "insert into "+shopTable+" select coalesce(max(id), 0) + 1 from "+shopTable, "select annals.rotate(1, 0)", "select annals.seal_segments()", "select annals.tick()")
		return column[int64](t, pool, "select segments::bigint from annals.prune(1, (select last_value from annals.v))")[0]
	}
	if n := prune(); n != 0 {
		t.Fatalf("%d segments were pruned that a consumer needs", n)
	}
	s := must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context()))[0]
	if s.EntriesBehind == 0 || s.PinnedBytes == 0 || s.BehindSince.IsZero() {
		t.Fatalf("status %+v", s)
	}
	if list := drained(t, g, "c", gnomon.FeedOptions{}); len(list) != 1 {
		t.Fatal(lines(list))
	}
	// Transactions that run elsewhere on the server hold it back for a while.
	for prune() == 0 {
		drained(t, g, "c", gnomon.FeedOptions{})
		time.Sleep(50 * time.Millisecond)
	}
	drained(t, g, "c", gnomon.FeedOptions{})
	if s := must[[]gnomon.ConsumerStatus](t)(g.Consumers(t.Context()))[0]; s.EntriesBehind != 0 || !s.BehindSince.IsZero() {
		t.Fatalf("status %+v", s)
	}
}

func TestFeedIsWokenByNotices(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan string, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- g.Feed("c", gnomon.FeedOptions{Poll: time.Hour}).Run(ctx, func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
			got <- page.Changes[0].Key[0]
			return nil
		})
	}()
	for column[int64](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen gnomon_feed'")[0] == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	run(t, pool, "insert into "+shopTable+" values (1)", "select gnomon.heartbeat('0')")
	if key := <-got; key != "1" {
		t.Fatal(key)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestFeedWorksBehindAPooler(t *testing.T) {
	t.Parallel()
	_, pool := shop(t, "id int primary key")
	config := must[*pgxpool.Config](t)(pgxpool.ParseConfig(pgserver.Pooler(t, pool.Config().ConnString())))
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pooled := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(t.Context(), config))
	defer pooled.Close()
	g := gnomon.New(pooled)
	consumer(t, g, gnomon.ConsumerParams{Name: "c", Snapshot: true})
	run(t, pool, "insert into "+shopTable+" select i from generate_series(1, 50) i")
	if n := len(drained(t, g, "c", gnomon.FeedOptions{PageSize: 7, PollOnly: true})); n != 50 {
		t.Fatalf("got %d", n)
	}
}
