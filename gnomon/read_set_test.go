package gnomon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// recording is tracked with ten orders and a branch that records reads.
func recording(t *testing.T) (*gnomon.Gnomon, gnomon.DB, *gnomon.Branch) {
	t.Helper()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders select i, 'c' || i % 3, i, null from generate_series(1, 10) i", "do 'begin execute format(''alter database %I set search_path = shop'', current_database()); end'")
	pool.Reset() // sessions begin with that search_path
	return g, pool, must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), "b", gnomon.BranchOptions{RecordReads: true}))
}

// stale lists what is stale on a branch: kind, key or ranges, changes, and the last of them.
func stale(t *testing.T, b *gnomon.Branch) string {
	t.Helper()
	var lines []string
	for _, r := range must[[]gnomon.StaleRead](t)(b.StaleReads(t.Context())) {
		line := fmt.Sprint(r.Table, " ", r.Kind, " ", r.Key, " ", len(r.Ranges), ": ", r.Changes, " ", r.Operation, " ", r.ChangedKey)
		if r.Why != "" {
			line = r.Table + " " + r.Kind + ": " + r.Why
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func wantStale(t *testing.T, b *gnomon.Branch, want ...string) {
	t.Helper()
	if got := stale(t, b); got != strings.Join(want, "\n") {
		t.Errorf("stale are\n%s\nnot\n%s", got, strings.Join(want, "\n"))
	}
}

func TestStaleReads(t *testing.T) {
	t.Parallel()
	_, db, b := recording(t)
	ctx := t.Context()
	row := func(id any) gnomon.Read { return gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(id)} }
	for _, r := range []gnomon.Read{row(3), row("03"), row(77), gnomon.Between("shop.orders", "total", 5, 6.5), {Table: "orders", Ranges: map[string]gnomon.Range{"customer": {From: "c0", To: "c0"}, "id": {From: 8}}}} {
		ok(t, b.Note(ctx, r))
	}
	if n := len(must[[]gnomon.NotedRead](t)(b.Reads(ctx))); n != 4 {
		t.Errorf("%d reads are noted, not 4", n)
	}
	wantStale(t, b)
	run(t, db, "update shop.orders set note = 'x' where id in (4, 7)", "insert into shop.orders values (50, 'c1', 50, null)", "delete from shop.orders where id = 10")
	wantStale(t, b)
	run(t, db, "update shop.orders set note = 'x' where id = 3")
	wantStale(t, b, "shop.orders row [3] 0: 1 update [3]")
	run(t, db, "update shop.orders set note = null where id = 3") // changed and changed back
	wantStale(t, b)
	run(t, db, "insert into shop.orders values (77, 'c2', 1, null)")
	wantStale(t, b, "shop.orders row [77] 0: 1 insert [77]")
	run(t, db, "update shop.orders set id = 78 where id = 77", "update shop.orders set id = 79 where id = 5") // the row of key 5, whose total is 5, has gone
	wantStale(t, b, "shop.orders range [] 1: 2 insert [79]")
	run(t, db, "update shop.orders set total = 5.5 where id = 1", "update shop.orders set total = 60 where id = 6", "update shop.orders set total = null where id = 79")
	wantStale(t, b, "shop.orders range [] 1: 3 update [6]")
	run(t, db, "update shop.orders set customer = 'c0' where id = 8", "update shop.orders set customer = 'c0' where id = 7")
	wantStale(t, b, "shop.orders range [] 1: 3 update [6]", "shop.orders range [] 2: 1 update [8]")
	ok(t, b.ForgetReads(ctx))
	wantStale(t, b)
	// What can't be told is not taken for unchanged.
	ok(t, b.Note(ctx, row(3)))
	run(t, db, "select gnomon.untrack('shop.orders')")
	wantStale(t, b, "shop.orders row: shop.orders is not tracked any more")
}

func TestReadsOfStatementsAreNoted(t *testing.T) {
	t.Parallel()
	g, db, b := recording(t)
	ctx := t.Context()
	run(t, db, `create table shop."Sch ema""t" ("select" text collate "C", t int, h date, primary key ("select", t))`, `insert into shop."Sch ema""t" values ('a', 1, '2026-01-01')`, "create table shop.other (id int primary key)")
	track(t, g, `shop."Sch ema""t"`, "shop.other")
	ok(t, b.Reset(ctx, gnomon.Present))
	noted := func(want ...string) {
		t.Helper()
		var got []string
		for _, r := range must[[]gnomon.NotedRead](t)(b.Reads(ctx)) {
			got = append(got, fmt.Sprint(r.Table, " ", r.Kind, r.Key))
		}
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("noted are %q, not %q", got, want)
		}
		ok(t, b.ForgetReads(ctx))
	}
	var n int
	ok(t, b.QueryRow(ctx, "select count(*) from orders where id > $1 and customer <> $2", 3, "x").Scan(&n))
	noted("shop.orders table[]")
	ok(t, b.QueryRow(ctx, `/* a comment */ with x as (select * from orders) select count(*) from x join "Sch ema""t" y on y.t = x.id`).Scan(&n))
	noted(`shop."Sch ema""t" table[]`, "shop.orders table[]")
	ok(t, b.QueryRow(ctx, "select count(*) from shop.orders").Scan(&n)) // that is main's
	noted()
	tx := must[pgx.Tx](t)(b.Begin(ctx))
	ok(t, tx.QueryRow(ctx, "select count(*) from orders where customer = @name", pgx.NamedArgs{"name": "c1"}).Scan(&n))
	ok(t, tx.Commit(ctx))
	if n == 0 {
		t.Error("a statement that is noted returns something else")
	}
	noted("shop.orders table[]")
	var batch pgx.Batch
	batch.Queue("select count(*) from orders")
	batch.Queue("select count(*) from other where id = $1", 1)
	ok(t, b.SendBatch(ctx, &batch).Close())
	noted("shop.orders table[]", "shop.other table[]")
	ok(t, b.Reading(gnomon.Read{Table: `"Sch ema""t"`, Key: gnomon.KeyOf("a", 1)}, gnomon.Read{Table: "other"}).QueryRow(ctx, "select count(*) from orders").Scan(&n))
	noted(`shop."Sch ema""t" row[a 1]`, "shop.other table[]")
	// A transaction that is taken back has read nothing that lasts.
	tx = must[pgx.Tx](t)(b.Begin(ctx))
	ok(t, tx.QueryRow(ctx, "select count(*) from orders").Scan(&n))
	ok(t, tx.Rollback(ctx))
	noted()
	// A mistake is told as it is without.
	if _, err := b.Exec(ctx, "select nothing from orders"); sqlState(err) != "42703" {
		t.Errorf("got %v", err)
	}
	plain := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "plain", gnomon.BranchOptions{}))
	ok(t, plain.QueryRow(ctx, "select count(*) from orders").Scan(&n))
	ok(t, plain.Note(ctx, gnomon.Read{Table: "orders"}))
	if list := must[[]gnomon.NotedRead](t)(plain.Reads(ctx)); len(list) != 0 {
		t.Errorf("a branch that does not record reads has %v", list)
	}
	// In SQL.
	run(t, db, "begin; select gnomon.use('b', true); select gnomon.note_read('orders', '{3}'); select gnomon.note_read('other'); commit")
	noted("shop.orders row[3]", "shop.other table[]")
}

func TestReadsThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	_, db, b := recording(t)
	ctx := t.Context()
	run(t, db, "create table shop.plain (id int)", "alter table shop.orders add place point")
	ok(t, b.Reset(ctx, gnomon.Present))
	for _, c := range []struct {
		read gnomon.Read
		kind error
	}{
		{gnomon.Read{Table: "shop.plain"}, gnomon.ErrNotTracked},
		{gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(1, 2)}, gnomon.ErrInvalid},
		{gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf("x")}, gnomon.ErrInvalid},
		{gnomon.Between("shop.orders", "nothing", 1, 2), gnomon.ErrInvalid},
		{gnomon.Between("shop.orders", "total", "x", nil), gnomon.ErrInvalid},
		{gnomon.Between("shop.orders", "place", "(1,1)", nil), gnomon.ErrInvalid},
		{gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(1), Ranges: map[string]gnomon.Range{"id": {}}}, gnomon.ErrInvalid},
		{gnomon.Read{Table: "shop.orders", Ranges: map[string]gnomon.Range{}}, gnomon.ErrInvalid},
	} {
		refuses(t, b.Note(ctx, c.read), c.kind)
	}
	if _, err := db.Exec(ctx, "select gnomon.note_read('shop.orders')"); sqlState(err) != "GN019" {
		t.Errorf("off every branch: %v", err)
	}
}

// A branch of a branch goes on from what was read there, and what is read again on a newer base is held against that.
func TestReadsFollowTheirBase(t *testing.T) {
	t.Parallel()
	g, db, b := recording(t)
	ctx := t.Context()
	ok(t, b.Note(ctx, gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(1)}, gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(2)}))
	child := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "child", gnomon.BranchOptions{Of: "b", RecordReads: true}))
	run(t, db, "update shop.orders set note = 'x' where id < 3")
	wantStale(t, child, "shop.orders row [1] 0: 1 update [1]", "shop.orders row [2] 0: 1 update [2]")
	run(t, db, "select gnomon.move_base((gnomon.branch_named('b')).id, gnomon.place_of('now'))")
	ok(t, b.Note(ctx, gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(1)}))
	wantStale(t, b, "shop.orders row [2] 0: 1 update [2]")
	ok(t, b.Reset(ctx, ""))
	wantStale(t, b)
}
