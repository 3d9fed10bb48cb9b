package pgtx_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

// inEveryMode runs check in a transaction of every kind and mode.
func inEveryMode(t *testing.T, check func(t *testing.T, db pgtx.DB)) {
	t.Helper()
	connString := pgserver.Database(t)
	for _, mode := range modes {
		for _, handle := range []string{"tx", "pool's tx", "conn after BEGIN"} {
			t.Run(mode.String()+" on "+handle, func(t *testing.T) {
				t.Parallel()
				check(t, inTransaction(t, connString, handle, mode))
			})
		}
	}
}

func TestStatementInTransaction(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		ctx := t.Context()
		for i := range int32(3) { // the first time differs from the rest
			var id int32
			must(t, pgtx.QueryRow(ctx, db, []any{&id}, insertItem, 10+i))
			if id != 10+i {
				t.Errorf("returned %d, want %d", id, 10+i)
			}
			tag, err := pgtx.Exec(ctx, db, "insert into item values ($1), ($2)", 20+i, 30+i)
			must(t, err)
			if tag.String() != "INSERT 0 2" {
				t.Errorf("tag is %q", tag)
			}
			var ids []int32
			must(t, pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
				ids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
				return err
			}, "select id from item where id >= $1 and id < $2 order by id", 10, 20))
			if len(ids) != int(i)+1 {
				t.Errorf("read %v, want %d items", ids, i+1)
			}
			if err := pgtx.QueryRow(ctx, db, []any{&id}, "select id from item where id = $1", -1); !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("no row: %v, want ErrNoRows", err)
			}
			if _, err := pgtx.Exec(ctx, db, insertItem, 10); !hasCode(err, "23505") {
				t.Errorf("second item 10: %v, want unique_violation", err)
			}
			if _, err := pgtx.Exec(ctx, db, divideByZero, 0); !hasCode(err, "22012") {
				t.Errorf("error is %v, want division_by_zero", err)
			}
			// Fails while rows are on their way.
			err = pgtx.Query(ctx, db, func(rows pgx.Rows) error {
				for rows.Next() {
				}
				return rows.Err()
			}, "select 1 / (3000 - n) from generate_series(1, $1::int) as n", 3000)
			if !hasCode(err, "22012") {
				t.Errorf("error is %v, want division_by_zero", err)
			}
			if _, err := pgtx.Exec(ctx, db, "select * from no_such_table where id = $1", 1); !hasCode(err, "42P01") {
				t.Errorf("error is %v, want undefined_table", err)
			}
			if _, err := pgtx.Exec(ctx, db, "selekt $1", 1); !hasCode(err, "42601") {
				t.Errorf("error is %v, want syntax_error", err)
			}
			wantNoSavepoint(t, db)
		}
		wantItems(t, db, 0, 10, 11, 12, 20, 21, 22, 30, 31, 32)
	})
}

// TestUnusableArguments: what the client or the server can't even take in must
// harm neither the connection nor the transaction.
func TestUnusableArguments(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		ctx := t.Context()
		for range 3 {
			for _, args := range [][]any{{make(chan int)}, {"\xff"}, {"nul \x00 byte"}, {1, 2}, {}, {"not a number"}, {int64(1) << 40}} {
				if _, err := pgtx.Exec(ctx, db, insertItem, args...); err == nil {
					t.Errorf("%q was accepted", args)
				}
			}
			_, err := pgtx.Exec(ctx, db, "insert into item values (@id) on conflict do nothing", pgx.NamedArgs{"id": 1})
			must(t, err)
			_, err = pgtx.Exec(ctx, db, "insert into item values ($1) on conflict do nothing", pgx.QueryExecModeExec, 2)
			must(t, err)
		}
		wantItems(t, db, 0, 1, 2)
		wantNoSavepoint(t, db)
	})
}

// TestReadFailure: once the server has executed a statement, what becomes of its
// result does not undo it, whichever way it was sent.
func TestReadFailure(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		ctx := t.Context()
		for i := range int32(3) {
			var wrong time.Time
			if err := pgtx.QueryRow(ctx, db, []any{&wrong}, insertItem, 10+i); err == nil {
				t.Error("a number was scanned as a time")
			}
			err := pgtx.Query(ctx, db, func(pgx.Rows) error { return errGiveUp }, insertItem, 20+i)
			if err != errGiveUp {
				t.Errorf("error is %v, want that of the read function", err)
			}
		}
		wantItems(t, db, 0, 10, 11, 12, 20, 21, 22)
		wantNoSavepoint(t, db)
	})
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for mode, want := range map[pgx.QueryExecMode][2]int64{ // the first time, then
		pgx.QueryExecModeCacheStatement: {4, 1},
		pgx.QueryExecModeExec:           {1, 1},
		pgx.QueryExecModeCacheDescribe:  {4, 3},
		pgx.QueryExecModeDescribeExec:   {4, 4},
		pgx.QueryExecModeSimpleProtocol: {3, 3},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			conn, trips := connectCounting(t, database(t), mode)
			tx, err := conn.Begin(ctx)
			must(t, err)
			count := func(fn func()) int64 {
				before := trips.Load()
				fn()
				return trips.Load() - before
			}
			// Another operation's statement has brought SAVEPOINT into pgx's cache.
			for range 2 {
				_, err = pgtx.Exec(ctx, tx, "select 1")
				must(t, err)
			}
			for i := range int32(3) {
				var id int32
				n := count(func() { must(t, pgtx.QueryRow(ctx, tx, []any{&id}, insertItem, i)) })
				if want := want[min(i, 1)]; n != want {
					t.Errorf("call %d took %d round trips, want %d", i+1, n, want)
				}
			}
			must(t, tx.Rollback(ctx))
			if mode == pgx.QueryExecModeDescribeExec {
				return // always takes two
			}
			must(t, insert(ctx, conn, 1))
			n := count(func() { _, err = pgtx.Exec(ctx, conn, "insert into item values ($1)", 2) })
			if must(t, err); n != 1 {
				t.Errorf("outside a transaction a statement took %d round trips, want 1", n)
			}
		})
	}
}

func TestOutsideTransaction(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), database(t)
	for i, mode := range modes {
		p := pool(t, connString, mode)
		var id int32
		must(t, pgtx.QueryRow(ctx, p, []any{&id}, insertItem, i))
		if _, err := pgtx.Exec(ctx, p, divideByZero, 0); !hasCode(err, "22012") {
			t.Errorf("%v: %v, want division_by_zero", mode, err)
		}
	}
	wantItems(t, pool(t, connString, modes[0]), 0, 1, 2, 3, 4)
}

// TestChangedResultType: a statement prepared before an ALTER is prepared anew.
func TestChangedResultType(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		ctx := t.Context()
		const all = "select * from item where id = $1"
		for _, column := range []string{"a", "b", "c"} {
			for range 2 {
				if _, err := pgtx.Exec(ctx, db, all, 0); err != nil {
					t.Errorf("before column %s: %v", column, err)
				}
			}
			_, err := db.Exec(ctx, "alter table item add "+column+" int")
			must(t, err)
		}
		_, err := db.Exec(ctx, "drop table item")
		must(t, err)
		for range 2 {
			if _, err := pgtx.Exec(ctx, db, all, 0); !hasCode(err, "42P01") {
				t.Errorf("error is %v, want undefined_table", err)
			}
		}
		wantNoSavepoint(t, db)
	})
}

// TestDroppedTable: a prepared statement whose table is gone fails like any other.
func TestDroppedTable(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		ctx := t.Context()
		_, err := db.Exec(ctx, "create temporary table other (id int)")
		must(t, err)
		for range 2 {
			_, err = pgtx.Exec(ctx, db, "insert into other values ($1)", 1)
			must(t, err)
		}
		_, err = db.Exec(ctx, "drop table other")
		must(t, err)
		for range 2 {
			if _, err = pgtx.Exec(ctx, db, "insert into other values ($1)", 1); !hasCode(err, "42P01") {
				t.Errorf("error is %v, want undefined_table", err)
			}
		}
		wantItems(t, db, 0)
	})
}

func TestManyStatements(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), inTransaction(t, pgserver.Database(t), "tx", pgx.QueryExecModeCacheStatement)
	sql := "select $1::int"
	for range 200 { // more than are prepared
		sql += " + 0"
		var n int
		must(t, pgtx.QueryRow(ctx, db, []any{&n}, sql, 7))
		must(t, pgtx.QueryRow(ctx, db, []any{&n}, sql, 7))
		if n != 7 {
			t.Fatalf("got %d, want 7", n)
		}
	}
	var prepared int
	must(t, db.QueryRow(ctx, "select count(*) from pg_prepared_statements where name like 'stmt\\_%'").Scan(&prepared))
	if prepared == 0 || prepared > 128 {
		t.Errorf("%d statements are prepared, want some, and at most 128", prepared)
	}
}

func TestThroughPooler(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), pgserver.Pooler(t, database(t))
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		p := pool(t, connString, mode)
		for j := range 3 {
			must(t, pgtx.Run(ctx, p, pgx.TxOptions{}, func(tx pgx.Tx) error {
				if _, err := pgtx.Exec(ctx, tx, divideByZero, 0); !hasCode(err, "22012") {
					t.Errorf("%v: %v, want division_by_zero", mode, err)
				}
				_, err := pgtx.Exec(ctx, tx, insertItem, 10*i+j)
				return err
			}))
		}
	}
	wantItems(t, pool(t, connString, pgx.QueryExecModeExec), 0, 1, 2, 10, 11, 12, 20, 21, 22)
}
