package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

var branchSettings = append([]string{"gnomon.branch"}, placeSettings...)

// branchOfO makes the tracked table o with rows 1 to 3, whose values sum to 6 on the branch that it returns, and to 409 on main.
func branchOfO(t *testing.T) (g *gnomon.Gnomon, pool *pgxpool.Pool, b *gnomon.Branch) {
	t.Helper()
	pool, then := pastOfO(t)
	g = gnomon.New(pool)
	return g, pool, must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), "o'clock", gnomon.BranchOptions{From: then}))
}

// usings are all ways to use a branch that change nothing, among them those that fail: askings, and these.
var usings = askedOf(map[string]func(ctx context.Context, b *gnomon.Branch) error{
	"transaction": func(ctx context.Context, b *gnomon.Branch) error {
		for _, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Commit(ctx) }, func(tx pgx.Tx) error { return tx.Rollback(ctx) }} {
			tx, err := b.Begin(ctx)
			if err != nil {
				return err
			}
			part, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(scanOne(tx.QueryRow(ctx, "select sum(n) from o"), nil), scanOne(part.QueryRow(ctx, "select sum(n) from o"), nil), end(part), scanOne(tx.QueryRow(ctx, "select sum(n) from o"), nil), end(tx)); err != nil {
				return err
			}
			if err := tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				return fmt.Errorf("once more: %w", err)
			}
			if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				return fmt.Errorf("once more: %w", err)
			}
		}
		return nil
	},
	"transaction that fails": func(ctx context.Context, b *gnomon.Branch) error {
		for _, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Rollback(ctx) }, func(tx pgx.Tx) error {
			if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
				return fmt.Errorf("a commit says %w", err)
			}
			return nil
		}} {
			tx, err := b.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err = tx.Exec(ctx, "select 1 / 0"); sqlState(err) != "22012" {
				return fmt.Errorf("it says %w", err)
			}
			if err := end(tx); err != nil {
				return err
			}
		}
		return nil
	},
	"batch": func(ctx context.Context, b *gnomon.Branch) error {
		var sum, count int
		batch := &pgx.Batch{}
		batch.Queue("select sum(n)::int from o").QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
		batch.Queue("select count(*)::int from o where id > $1", 1).QueryRow(func(row pgx.Row) error { return row.Scan(&count) })
		if err := b.SendBatch(ctx, batch).Close(); err != nil || sum != 6 || count != 2 {
			return fmt.Errorf("%d, %d, %w", sum, count, err)
		}
		batch = &pgx.Batch{}
		batch.Queue("select 1 / 0")
		if err := b.SendBatch(ctx, batch).Close(); sqlState(err) != "22012" {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	},
	"settings": func(ctx context.Context, b *gnomon.Branch) error {
		_, err := b.Exec(ctx, "select set_config('gnomon.place', 'x', true), set_config('search_path', 'nowhere', true)")
		return err
	},
})

// TestUsingABranchLeavesNothingBehind, on any handle, whether it succeeds or not; the caller's transaction goes on, on main or on another branch.
func TestUsingABranchLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	g, pool, b := branchOfO(t)
	must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), "other", gnomon.BranchOptions{}))
	for _, mode := range []string{"", " default_query_exec_mode=exec", " default_query_exec_mode=simple_protocol"} {
		config := must[*pgxpool.Config](t)(pgxpool.ParseConfig(pool.Config().ConnString() + mode))
		config.MaxConns = 1
		one := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(t.Context(), config))
		t.Cleanup(one.Close)
		acquired := must[*pgxpool.Conn](t)(one.Acquire(t.Context()))
		conn := acquired.Conn()
		acquired.Release()
		for name, using := range usings {
			for _, handle := range []string{"pool", "conn", "tx", "savepoint", "begun", "on another branch", "branch"} {
				t.Run(fmt.Sprint(handle, mode, ": ", name), func(t *testing.T) {
					ctx := t.Context()
					var db gnomon.DB = one
					insert, of := "insert into o values (50, 5)", "o"
					switch handle {
					case "conn":
						db = conn
					case "begun":
						run(t, conn, "begin", insert)
						defer conn.Exec(context.WithoutCancel(ctx), "rollback")
						db = conn
					case "tx", "savepoint", "on another branch":
						tx := must[pgx.Tx](t)(conn.Begin(ctx))
						defer tx.Rollback(context.WithoutCancel(ctx))
						run(t, tx, insert, "set local work_mem = '7MB'")
						if handle == "savepoint" {
							tx = must[pgx.Tx](t)(tx.Begin(ctx))
							run(t, tx, "savepoint gnomon_branch") // of the caller's
						}
						if handle == "on another branch" {
							ok(t, gnomon.OnBranch(ctx, tx, "other"))
							of = "public.o"
						}
						db = tx
					case "branch":
						db = must[*gnomon.Branch](t)(g.Branch(ctx, "other")).In(one)
					}
					used := b.In(db)
					check := func() {
						for range 2 {
							if err := using(ctx, used); err != nil {
								t.Error(err)
							}
						}
					}
					if handle == "on another branch" {
						settings := "select current_setting('search_path') || current_setting('gnomon.branch') || current_setting('gnomon.place') || current_setting('gnomon.snapshot') || current_setting('gnomon.bound') || current_setting('gnomon.checked') || current_setting('gnomon.outside')"
						before := column[string](t, db, settings)[0]
						check()
						if after := column[string](t, db, settings)[0]; after != before {
							t.Errorf("settings are %s, were %s", after, before)
						}
					} else {
						pgtxtest.AssertSessionUnchanged(t, conn, check, branchSettings...)
					}
					if handle != "pool" && handle != "conn" && handle != "branch" {
						run(t, db, "insert into public.o values (51, 5)")
						if n := column[int](t, db, "select count(*)::int from "+of+" where id >= 50"); n[0] != 2 {
							t.Errorf("%d rows of the transaction are there", n[0])
						}
					}
				})
			}
		}
	}
}

// TestABranchHandleOutlastsChanges: what was found when the branch was opened is found anew when it no longer holds, by whatever is done next.
func TestABranchHandleOutlastsChanges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branchOfO(t)
	uses := map[string]func(*gnomon.Branch) (int, error){
		"query": func(b *gnomon.Branch) (n int, err error) {
			return n, b.QueryRow(ctx, "select sum(n)::int from o").Scan(&n)
		},
		"transaction": func(b *gnomon.Branch) (n int, err error) {
			return n, pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select sum(n)::int from o").Scan(&n) })
		},
		"list": func(b *gnomon.Branch) (n int, err error) {
			rows, err := gnomon.List[map[string]any](ctx, b, "public.o", "")
			for _, row := range rows {
				n += int(row["n"].(int32))
			}
			return n, err
		},
		"get": func(b *gnomon.Branch) (n int, err error) {
			for id := range 10 {
				row, found, err := gnomon.Get[map[string]any](ctx, b, "public.o", id)
				if err != nil {
					return 0, err
				}
				if found {
					n += int(row["n"].(int32))
				}
			}
			return n, nil
		},
	}
	// Each use has a handle, so that each is the first to meet what has changed.
	handles := map[string]*gnomon.Branch{}
	hold := func(branch string) {
		for name := range uses {
			handles[name] = must[*gnomon.Branch](t)(g.Branch(ctx, branch))
		}
	}
	list := func(what string, want int) {
		t.Helper()
		for name, use := range uses {
			if n, err := use(handles[name]); n != want || err != nil {
				t.Errorf("%s: %s: %d, %v, want %d", what, name, n, err, want)
			}
		}
	}
	refused := func(want error, but ...string) {
		t.Helper()
		for name, use := range uses {
			if slices.Contains(but, name) {
				continue
			}
			if _, err := use(handles[name]); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
	hold("o'clock")
	list("at first", 6)
	for _, first := range []string{"rotate", "seal", "rights", "drop and add a table"} {
		switch first {
		case "rotate":
			run(t, pool, "update o set n = n", "select annals.rotate(1, 0)")
		case "seal":
			run(t, pool, "select annals.seal_segments()", "select gnomon.sync('o')")
		case "rights":
			run(t, pool, "create table more (id int primary key)")
			track(t, g, "public.more")
		case "drop and add a table":
			run(t, pool, "drop table more", "create table more (id int primary key)")
		}
		list(first, 6)
	}
	run(t, pool, "select gnomon.reset_branch('o''clock', 'now')")
	list("reset elsewhere", 409)
	run(t, b, "update o set n = 0 where id = 9")
	list("written", 400)
	run(t, pool, "alter table o add more int")
	refused(gnomon.ErrNotOnBranch)
	run(t, pool, "select gnomon.reset_branch('o''clock', 'now')")
	list("reset again", 409)
	run(t, pool, "select gnomon.rename_branch('o''clock', 'other')")
	refused(gnomon.ErrUnknownBranch, "get") // a row that is read by its key goes by the branch's identity
	b = must[*gnomon.Branch](t)(g.Branch(ctx, "other"))
	hold("other")
	list("renamed", 409)
	run(t, pool, "select gnomon.drop_branch('other')", "select gnomon.create_branch('other')")
	refused(gnomon.ErrUnknownBranch)
	refuses(t, second(b.Begin(ctx)), gnomon.ErrUnknownBranch)
}

func second[T any](_ T, err error) error { return err }

// TestACancelledUseOfABranch leaves no settings in any session of the pool, and no connection in use.
func TestACancelledUseOfABranch(t *testing.T) {
	t.Parallel()
	_, pool, b := branchOfO(t)
	for i := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := b.Query(ctx, "select id, repeat('x', 10000) from o, generate_series(1, 3000)")
		ok(t, err)
		for range i {
			rows.Next()
		}
		cancel()
		for rows.Next() {
		}
		rows.Close()
		if _, err := b.Exec(ctx, "delete from o"); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	}
	for range 8 {
		if got := column[string](t, pool, "select current_setting('search_path') || coalesce(current_setting('gnomon.branch', true), '')")[0]; got != `"$user", public` {
			t.Fatalf("a session is left on the branch: %s", got)
		}
	}
	for range 100 { // broken ones are closed in the background
		if pool.Stat().AcquiredConns() != 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if pool.Stat().AcquiredConns() != 0 {
		t.Errorf("%d connections are not given back", pool.Stat().AcquiredConns())
	}
	if n := column[int](t, b, "select count(*)::int from o")[0]; n != 3 {
		t.Errorf("%d rows", n)
	}
}
