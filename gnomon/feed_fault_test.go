package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/volvra"
)

// firstPage returns the first page that a consumer gets, after which its process fails.
func firstPage(t *testing.T, g *gnomon.Gnomon, name string, size int) (first []gnomon.Change) {
	t.Helper()
	failure := errors.New("no more")
	err := g.Feed(name, gnomon.FeedOptions{Drain: true, PageSize: size}).Run(t.Context(), func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
		if first != nil {
			return failure
		}
		first = page.Changes
		return nil
	})
	if !errors.Is(err, failure) {
		t.Fatal(err)
	}
	return first
}

// two is installed with volvra and the tables a and b, of which a is tracked.
func two(t *testing.T) (*gnomon.Gnomon, gnomon.DB) {
	t.Helper()
	g, pool := installed(t)
	ok(t, volvra.Install(t.Context(), pool))
	run(t, pool, "create table a (id int primary key)", "create table b (id int primary key)")
	track(t, g, "public.a")
	return g, pool
}

const inBoth = "do $$ begin insert into a values (1), (2), (3); insert into b values (1); end $$"

func TestFeedOfAnOpenWindowIsNotChangedByTracking(t *testing.T) {
	t.Parallel()
	g, pool := two(t)
	run(t, pool, "select volvra.cover('public.b', '{}')")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, inBoth)
	wants(t, lines(firstPage(t, g, "c", 1)), "insert public.a 1 - (id:1)")
	track(t, g, "public.b")
	run(t, pool, "insert into b values (2)")
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), `
	insert public.a 2 - (id:2)
	insert public.a 3 - (id:3) .
	insert public.b 2 - (id:2) .`)
}

func TestFeedOfAnOpenWindowIsNotChangedByUntracking(t *testing.T) {
	t.Parallel()
	g, pool := two(t)
	track(t, g, "public.b")
	run(t, pool, "select volvra.cover('public.b', '{}')")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, inBoth)
	firstPage(t, g, "c", 2)
	// The history goes on for volvra: what comes later is not for consumers.
	if got := text(t, pool, "select gnomon.untrack('b')"); got != "(shared)" {
		t.Fatal(got)
	}
	run(t, pool, "insert into b values (2)")
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), "insert public.a 3 - (id:3)\n\tinsert public.b 1 - (id:1) .")
	refuses(t, g.CreateConsumer(t.Context(), gnomon.ConsumerParams{Name: "d", Tables: []string{"public.b"}}), gnomon.ErrNotTracked)
	for _, err := range g.Changes(t.Context(), here(t, g), gnomon.Present, gnomon.ChangesOptions{Tables: []string{"public.b"}}) {
		refuses(t, err, gnomon.ErrNotTracked)
	}
}

func TestFeedRefusesToLeaveOutADroppedHistory(t *testing.T) {
	t.Parallel()
	g, pool := two(t)
	track(t, g, "public.b")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, inBoth)
	firstPage(t, g, "c", 1)
	run(t, pool, "select annals.untrack('b', 'gnomon')", "select gnomon.drop_routes(2)", "select annals.drop_history(2)")
	refuses(t, g.Feed("c", gnomon.FeedOptions{Drain: true}).Run(t.Context(), nil), gnomon.ErrNoHistory)
}

// The last position of a transaction becomes an earlier one, before that of another that was delivered.
func TestFeedDeliversWhatAnErasureMovedBack(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	ok(t, volvra.Install(t.Context(), pool))
	run(t, pool, "create table a (id int primary key)")
	track(t, g, "public.a")
	run(t, pool, "select volvra.cover('public.a', '{}')")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	early := must[pgx.Tx](t)(pool.Begin(t.Context()))
	run(t, early, "insert into a values (1)")
	run(t, pool, "insert into a values (2), (3), (4)", "insert into a values (5)")
	run(t, early, "insert into a values (6)")
	ok(t, early.Commit(t.Context()))
	run(t, pool, "delete from a where id in (4, 6)")
	wants(t, lines(firstPage(t, g, "c", 2)), "insert public.a 2 - (id:2)\n\tinsert public.a 3 - (id:3)")
	// Then of the part that was delivered, and of the transaction that began first, the last entries go.
	for _, key := range []string{"[4]", "[6]"} {
		if got := text(t, pool, "select outcome from volvra.forget('public.a', $1, 'delete', 'asked')", key); got != "(done)" {
			t.Fatal(got)
		}
	}
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{PageSize: 1})), "insert public.a 1 - (id:1) .\n\tinsert public.a 5 - (id:5) .")
	if n := column[int64](t, pool, "select count(*) from gnomon.delivered"); n[0] != 0 {
		t.Fatalf("%d pages are still noted", n[0])
	}
}

func TestFeedBeginsWithRowsOfTablesUntrackedSince(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key, n int")
	run(t, pool, "insert into "+shopTable+" values (1, 0), (2, 0)")
	from := here(t, g)
	run(t, pool, "update "+shopTable+" set n = 1 where id = 1", "select gnomon.untrack('"+shopTable+"')", "insert into "+shopTable+" values (3, 3)")
	consumer(t, g, gnomon.ConsumerParams{Name: "named", Snapshot: true, From: from, Tables: []string{shopTable}})
	consumer(t, g, gnomon.ConsumerParams{Name: "all", Snapshot: true, From: from})
	consumer(t, g, gnomon.ConsumerParams{Name: "late", Snapshot: true})
	for _, name := range []string{"named", "all"} {
		wants(t, lines(drained(t, g, name, gnomon.FeedOptions{})), `
	snapshot "Sch ema"."ta""ble" 1 - (id:1 n:0) .
	snapshot "Sch ema"."ta""ble" 2 - (id:2 n:0) .
	update "Sch ema"."ta""ble" 1 (id:1 n:0) (id:1 n:1) .`)
	}
	if list := drained(t, g, "late", gnomon.FeedOptions{}); len(list) != 0 {
		t.Fatal(lines(list))
	}
	// What saving the rows wrote is no change, without images either.
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{NoImages: true})), `update "Sch ema"."ta""ble" 1 - - .`)
}

func TestFeedReadsKeysAsTheColumnsDo(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table a (id numeric(10, 2) primary key)", "create table b (id char(3), d date, primary key (d, id))", "insert into a values (1), (2), (3)")
	track(t, g, "public.a", "public.b")
	from := here(t, g)
	keys := []gnomon.Key{{"1"}, {"20240102", "x"}}
	consumer(t, g, gnomon.ConsumerParams{Name: "c", Snapshot: true, Keys: keys})
	run(t, pool, "insert into b values ('x', '2024-01-02'), ('y', '2024-01-02')", "delete from a where id < 3")
	want := "insert public.b 2024-01-02,x   - (id:x   d:2024-01-02) .\n\tdelete public.a 1.00 (id:1.00) - ."
	wants(t, lines(drained(t, g, "c", gnomon.FeedOptions{})), "snapshot public.a 1.00 - (id:1.00) .\n\t"+want)
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{Keys: keys})), want)
	for _, key := range []gnomon.Key{{"x"}, {"1.005"}, {"1", "2", "3"}, {"2024-01-02", "long"}, {}, nil} {
		invalid := func(err error) {
			if e := refuses(t, err, gnomon.ErrInvalid); len(key) > 0 && e.Table == "" {
				t.Errorf("key %q: %v names no table", key, err)
			}
		}
		invalid(g.CreateConsumer(t.Context(), gnomon.ConsumerParams{Name: "x", Keys: []gnomon.Key{{"1"}, key}}))
		for _, err := range g.Changes(t.Context(), from, gnomon.Present, gnomon.ChangesOptions{Keys: []gnomon.Key{key}}) {
			invalid(err)
		}
	}
}

func TestFeedGoesOnWithoutATableThatWasDropped(t *testing.T) {
	t.Parallel()
	g, pool := two(t)
	track(t, g, "public.b")
	run(t, pool, "insert into a values (1)", "insert into b values (1)")
	consumer(t, g, gnomon.ConsumerParams{Name: "rows", Tables: []string{"public.a", "public.b"}, Snapshot: true})
	consumer(t, g, gnomon.ConsumerParams{Name: "changes", Tables: []string{"public.a", "public.b"}})
	run(t, pool, "insert into a values (2)", "insert into b values (2)", "drop table a")
	const later = "insert public.a 2 - - .\n\tinsert public.b 2 - (id:2) ."
	wants(t, lines(drained(t, g, "changes", gnomon.FeedOptions{})), later)
	wants(t, lines(drained(t, g, "rows", gnomon.FeedOptions{})), "snapshot public.b 1 - (id:1) .\n\t"+later)
}

func TestFeedRefusesSizesThatNobodyCanHold(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "insert into "+shopTable+" values (1)")
	for _, o := range []gnomon.FeedOptions{{Window: math.MaxInt64}, {PageSize: math.MaxInt}, {PageSize: -1}, {Window: -1}} {
		refuses(t, g.Feed("c", o).Run(t.Context(), nil), gnomon.ErrInvalid)
	}
	if n := len(drained(t, g, "c", gnomon.FeedOptions{PageSize: 1_000_000, Window: 1_000_000_000})); n != 1 {
		t.Fatalf("got %d", n)
	}
}

func TestEmptyFiltersWantAll(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	from := here(t, g)
	run(t, pool, "insert into "+shopTable+" values (1)")
	if n := len(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{Tables: []string{}, Operations: []gnomon.Operation{}, Keys: []gnomon.Key{}})); n != 1 {
		t.Fatalf("%d changes", n)
	}
	consumer(t, g, gnomon.ConsumerParams{Name: "go", From: from, Tables: []string{}, Operations: []gnomon.Operation{}, Keys: []gnomon.Key{}})
	run(t, pool, fmt.Sprintf(`select gnomon.create_consumer('sql', '{"tables": [], "operations": [], "keys": [], "from": "%s"}')`, from))
	for _, name := range []string{"go", "sql"} {
		if n := len(drained(t, g, name, gnomon.FeedOptions{})); n != 1 {
			t.Fatalf("%s: %d changes", name, n)
		}
	}
	for _, tables := range [][]string{nil, {}} {
		n := 0
		for _, err := range g.Diff(t.Context(), from, gnomon.Present, gnomon.DiffOptions{Tables: tables}) {
			ok(t, err)
			n++
		}
		if n != 1 || len(must[[]gnomon.DiffCount](t)(g.DiffCounts(t.Context(), from, gnomon.Present, tables...))) != 1 {
			t.Fatalf("%d differences", n)
		}
	}
	if got := column[string](t, pool, "select operation from gnomon.changes($1, p_tables => '{}')", string(from)); !slices.Equal(got, []string{"insert"}) {
		t.Fatal(got)
	}
	_, err := pool.Exec(t.Context(), "select * from gnomon.history('"+shopTable+"', '{1}', p_limit => -1)")
	if sqlState(err) != "GN006" {
		t.Fatal(err)
	}
}

func TestFeedGoesOnBehindWholeTransactions(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key")
	consumer(t, g, gnomon.ConsumerParams{Name: "c"})
	run(t, pool, "insert into "+shopTable+" values (1)", "insert into "+shopTable+" values (2)", "insert into "+shopTable+" values (3), (4)")
	var got []string
	failure := errors.New("no more")
	for range 10 {
		pages := 0
		err := g.Feed("c", gnomon.FeedOptions{Drain: true, PageSize: 1}).Run(t.Context(), func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
			if pages++; pages > 1 {
				return failure
			}
			got = append(got, page.Changes[0].Key[0])
			return nil
		})
		if err == nil {
			break
		}
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	if want := []string{"1", "2", "3", "4"}; !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
}
