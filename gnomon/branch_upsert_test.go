package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// TestUpsert inserts a row on the branch, or updates the one that is there: on any handle, and when several do it at once.
func TestUpsert(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "create table shop.stock (shop int, item text, n int not null default 7, code text unique, primary key (shop, item))", "insert into shop.orders values (1, 'ann', 10, 'x')")
	track(t, g, "shop.stock")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	upsert := func(b *gnomon.Branch, want bool, table string, row any, conflict ...string) {
		t.Helper()
		if inserted := must[bool](t)(b.Upsert(ctx, table, row, conflict...)); inserted != want {
			t.Errorf("inserted: %v", inserted)
		}
	}
	type order struct {
		ID       int
		Customer string
		Sum      *float64 `db:"total"`
		Shown    bool     `db:"-"`
	}
	half := 0.5
	upsert(b, false, "shop.orders", order{ID: 1, Customer: "bob"})
	upsert(b, true, "shop.orders", &order{ID: 2, Customer: "cid", Sum: &half})
	upsert(b, true, "shop.stock", map[string]any{"shop": 1, "item": "tea"})
	upsert(b, false, "shop.stock", map[string]any{"shop": 1, "item": "tea"})
	upsert(b, false, "shop.stock", map[string]any{"shop": 1, "item": "tea", "n": 8, "code": "t"})
	upsert(b, false, "shop.stock", map[string]any{"code": "t", "shop": 2, "item": "cup"}, "code")
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	defer tx.Rollback(context.WithoutCancel(ctx))
	upsert(b.In(tx), true, "shop.stock", map[string]any{"shop": 3, "item": "pot"})
	if n := column[int](t, tx, "select count(*)::int from shop.stock")[0]; n != 0 {
		t.Errorf("main has %d", n)
	}
	ok(t, tx.Commit(ctx))
	if got := text(t, b.In(pool), "select * from gnomon_branch_1.orders order by 1"); got != "(1,bob,,x)\n(2,cid,0.50,)" {
		t.Errorf("orders are %s", got)
	}
	if got := text(t, b, "select * from gnomon_branch_1.stock order by 1"); got != "(2,cup,8,t)\n(3,pot,7,)" {
		t.Errorf("stock is %s", got)
	}
	for name, row := range map[string]any{"no row": 5, "lacks the key": map[string]any{"n": 1, "shop": 1}, "another field": struct{ Shop, Nothing int }{}} {
		if _, err := b.Upsert(ctx, "shop.stock", row); !errors.Is(err, gnomon.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Upsert(ctx, "shop.stock", map[string]any{"shop": 9, "item": "x", "code": "t"}); sqlState(err) != "23505" {
		t.Errorf("another unique key: %v", err)
	}
	if _, err := b.Upsert(ctx, "pg_catalog.pg_class", map[string]any{}); !errors.Is(err, gnomon.ErrNotTracked) {
		t.Errorf("an untracked table: %v", err)
	}

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 10 {
				if _, err := b.Upsert(ctx, "shop.orders", map[string]any{"id": 100 + i%5, "customer": "many"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := column[int](t, b, "select count(*)::int from gnomon_branch_1.orders where customer = 'many'")[0]; n != 5 {
		t.Errorf("%d rows of many", n)
	}
}

// TestCopyFrom inserts many rows on the branch, or none.
func TestCopyFromOnABranch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool, b := branchOfO(t)
	rows := func(n int) pgx.CopyFromSource {
		return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{1000 + i, i}, nil })
	}
	if n := must[int64](t)(b.CopyFrom(ctx, pgx.Identifier{"o"}, []string{"id", "n"}, rows(300))); n != 300 {
		t.Errorf("copied %d", n)
	}
	if _, err := b.CopyFrom(ctx, pgx.Identifier{"o"}, []string{"id", "n"}, rows(301)); sqlState(err) != "23505" {
		t.Errorf("again: %v", err)
	}
	if n := column[int](t, b, "select count(*)::int from o")[0]; n != 303 {
		t.Errorf("%d rows", n)
	}
	if n := column[int](t, pool, "select count(*)::int from o")[0]; n != 3 {
		t.Errorf("%d rows on main", n)
	}
}

// TestLock: who has locked a row on the branch is the only one to change it there until his transaction ends, and nothing else has changed by it.
func TestLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branchOfO(t)
	run(t, b, "update o set n = 20 where id = 2")
	for _, id := range []int{1, 2} { // one that the branch has not changed, and one that it has
		first := must[pgx.Tx](t)(b.Begin(ctx))
		second := must[pgx.Tx](t)(b.Begin(ctx))
		defer first.Rollback(context.WithoutCancel(ctx))
		defer second.Rollback(context.WithoutCancel(ctx))
		ok(t, b.Lock(ctx, first, "public.o", gnomon.KeyOf(id), gnomon.KeyOf(77)))
		done := make(chan error)
		go func() {
			err := b.Lock(ctx, second, "public.o", gnomon.KeyOf(id))
			if err == nil {
				_, err = second.Exec(ctx, "update o set n = n + 1 where id = $1", id)
			}
			done <- errors.Join(err, second.Commit(ctx))
		}()
		select {
		case err := <-done:
			t.Fatalf("it was not locked: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		run(t, first, fmt.Sprint("update o set n = n + 1 where id = ", id))
		ok(t, first.Commit(ctx))
		ok(t, <-done)
	}
	if got := text(t, b, "select id, n from o order by id"); got != "(1,3)\n(2,22)\n(3,3)" {
		t.Errorf("rows are %s", got)
	}

	// A lock that is all that was done changes nothing.
	locked := must[pgx.Tx](t)(b.Begin(ctx))
	defer locked.Rollback(context.WithoutCancel(ctx))
	ok(t, b.Lock(ctx, locked, "public.o", gnomon.KeyOf(3)))
	ok(t, locked.Commit(ctx))
	if got := text(t, b, "select id, n from o order by id"); got != "(1,3)\n(2,22)\n(3,3)" {
		t.Errorf("rows are %s", got)
	}

	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	defer tx.Rollback(context.WithoutCancel(ctx))
	refuses(t, b.Lock(ctx, tx, "public.o", gnomon.KeyOf(1)), gnomon.ErrNoBranch)
	must[*gnomon.Branch](t)(g.CreateBranch(ctx, "other", gnomon.BranchOptions{}))
	ok(t, gnomon.OnBranch(ctx, tx, "other"))
	refuses(t, b.Lock(ctx, tx, "public.o", gnomon.KeyOf(1)), gnomon.ErrNoBranch)
	ok(t, gnomon.OnBranch(ctx, tx, "o'clock"))
	refuses(t, b.Lock(ctx, tx, "public.o", gnomon.KeyOf(1, 2)), gnomon.ErrInvalid)
	refuses(t, b.Lock(ctx, tx, "pg_catalog.pg_class", gnomon.KeyOf(1)), gnomon.ErrNotTracked)
	ok(t, b.Lock(ctx, tx, "public.o", gnomon.KeyOf(1)))
	ok(t, tx.Rollback(ctx))
	ok(t, b.Protect(ctx, true))
	other := must[pgx.Tx](t)(b.Begin(ctx))
	defer other.Rollback(context.WithoutCancel(ctx))
	refuses(t, b.Lock(ctx, other, "public.o", gnomon.KeyOf(1)), gnomon.ErrProtected)

	run(t, pool, "create role locker login", "grant select on public.o to locker")
	ok(t, gnomon.Grant(ctx, pool, "", "locker", ""))
	reader := must[*gnomon.Branch](t)(gnomon.New(connectAs(t, pool.Config().ConnString(), "locker")).Branch(ctx, "other"))
	mine := must[pgx.Tx](t)(reader.Begin(ctx))
	defer mine.Rollback(context.WithoutCancel(ctx))
	if err := reader.Lock(ctx, mine, "public.o", gnomon.KeyOf(1)); sqlState(err) != "42501" {
		t.Errorf("who may only read: %v", err)
	}
}

// TestWritingOnABranch: what is written is committed with the call, or with the transaction, or not at all; through a pooler as well.
func TestWritingOnABranch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, direct, b := branchOfO(t)
	pooled := must[*pgxpool.Config](t)(pgxpool.ParseConfig(pgserver.Pooler(t, direct.Config().ConnString())))
	pool := must[*gnomon.BranchPool](t)(b.Pool(ctx, pooled))
	t.Cleanup(pool.Close)
	conn := connectAs(t, direct.Config().ConnString(), "")
	for name, b := range map[string]*gnomon.Branch{"pool": b, "conn": b.In(conn), "pooler": pool.Branch} {
		id := map[string]int{"pool": 100, "conn": 200, "pooler": 300}[name]
		if got := must[int](t)(pgx.CollectExactlyOneRow(must[pgx.Rows](t)(b.Query(ctx, "insert into o values ($1, 0) returning id", id)), pgx.RowTo[int])); got != id {
			t.Errorf("%s: inserted %d", name, got)
		}
		if tag, err := b.Exec(ctx, "update o set n = n + 1 where id = $1", id); err != nil || tag.RowsAffected() != 1 {
			t.Errorf("%s: %v, %v", name, tag, err)
		}
		var wrong time.Time // a failure to read undoes nothing
		if err := b.QueryRow(ctx, "update o set n = n + 1 where id = $1 returning n", id).Scan(&wrong); err == nil {
			t.Errorf("%s: a number was read as a time", name)
		}
		errStop := errors.New("stop")
		if err := pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error {
			run(t, tx, "update o set n = 99")
			return errStop
		}); err != errStop {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Exec(ctx, "insert into o values ($1, 5)", id); sqlState(err) != "23505" {
			t.Errorf("%s: %v", name, err)
		}
		batch := &pgx.Batch{}
		batch.Queue("update o set n = n + 1 where id = $1", id)
		batch.Queue("update o set n = n + 1 where id = $1", id)
		ok(t, b.SendBatch(ctx, batch).Close())
		batch = &pgx.Batch{}
		batch.Queue("update o set n = n + 1 where id = $1", id)
		batch.Queue("select 1 / 0")
		if err := b.SendBatch(ctx, batch).Close(); sqlState(err) != "22012" {
			t.Errorf("%s: %v", name, err)
		}
		if n := column[int](t, b, "select n from o where id = $1", id)[0]; n != 4 {
			t.Errorf("%s: %d, want 4", name, n)
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 5 {
				for name, using := range usings {
					if name == "settings" || name == "query" || name == "row" || name == "transaction" || name == "batch" || name == "list" {
						continue // rows are not what they were
					}
					if err := using(ctx, pool.Branch); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, err := pool.Exec(ctx, "insert into o values ($1)", 1000+i*10+j); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := column[int](t, direct, "select count(*)::int from o where id >= 100")[0]; n != 0 {
		t.Errorf("%d rows on main", n)
	}
	if n := column[int](t, b, "select count(*)::int from o where id >= 1000")[0]; n != 20 {
		t.Errorf("%d rows on the branch", n)
	}
	for range 6 {
		if got := column[string](t, direct, "select current_setting('search_path') || coalesce(current_setting('gnomon.branch', true), '')")[0]; got != `"$user", public` {
			t.Fatalf("a session is left on the branch: %s", got)
		}
	}
}
