package pgtx_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

var errGiveUp = errors.New("give up")

// operations run fn either as Guard or as Run does.
var operations = map[string]func(ctx context.Context, db pgtx.DB, fn func(db pgtx.DB) error) error{
	"Guard": pgtx.Guard,
	"Run": func(ctx context.Context, db pgtx.DB, fn func(db pgtx.DB) error) error {
		return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error { return fn(tx) })
	},
}

func TestFailureLeavesTransactionUsable(t *testing.T) {
	t.Parallel()
	connString := pgserver.Database(t)
	for name, operation := range operations {
		for i, handle := range handles {
			t.Run(name+" on "+handle, func(t *testing.T) {
				t.Parallel()
				ctx, db := t.Context(), inTransaction(t, connString, handle, modes[i%len(modes)])
				must(t, operation(ctx, db, func(db pgtx.DB) error { return insert(ctx, db, 1) }))
				wantNoSavepoint(t, db)

				err := operation(ctx, db, func(db pgtx.DB) error {
					must(t, insert(ctx, db, 2))
					_, err := db.Exec(ctx, divideByZero, 0)
					return err
				})
				if !hasCode(err, "22012") {
					t.Errorf("error is %v, want the server's division by zero", err)
				}
				err = operation(ctx, db, func(db pgtx.DB) error {
					must(t, insert(ctx, db, 3))
					return errGiveUp
				})
				if err != errGiveUp {
					t.Errorf("error is %v, want the operation's own", err)
				}
				err = operation(ctx, db, func(db pgtx.DB) error {
					_, _ = db.Exec(ctx, divideByZero, 0)
					return nil
				})
				if !hasCode(err, "25P02") {
					t.Errorf("an operation that hid a statement's error returned %v, want in_failed_sql_transaction", err)
				}
				wantItems(t, db, 0, 1)
				wantNoSavepoint(t, db)
			})
		}
	}
}

func TestPanicLeavesTransactionUsable(t *testing.T) {
	t.Parallel()
	connString := pgserver.Database(t)
	for name, operation := range operations {
		ctx, db := t.Context(), inTransaction(t, connString, "tx", pgx.QueryExecModeCacheStatement)
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("%s: recovered %v, want the operation's panic", name, r)
				}
			}()
			_ = operation(ctx, db, func(db pgtx.DB) error {
				must(t, insert(ctx, db, 1))
				panic("boom")
			})
		}()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = operation(ctx, db, func(db pgtx.DB) error {
				_ = insert(ctx, db, 2)
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		wantItems(t, db, 0)
		wantNoSavepoint(t, db)
	}
}

func TestRunOutsideTransaction(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), database(t)
	conn := connect(t, connString, pgx.QueryExecModeCacheStatement)
	for _, db := range []pgtx.DB{pool(t, connString, pgx.QueryExecModeCacheStatement), conn} {
		_, err := conn.Exec(ctx, "truncate item")
		must(t, err)
		var level, access string
		must(t, pgtx.Run(ctx, db, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			must(t, insert(ctx, tx, 1))
			return tx.QueryRow(ctx, "select current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(&level, &access)
		}))
		if level != "serializable" || access != "off" {
			t.Errorf("%T: transaction is %s, read only %s", db, level, access)
		}
		err = pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
			must(t, insert(ctx, tx, 2))
			return errGiveUp
		})
		if err != errGiveUp {
			t.Errorf("%T: error is %v, want the operation's own", db, err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
				must(t, insert(ctx, tx, 3))
				panic("boom")
			})
		}()
		err = pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, divideByZero, 0)
			return nil
		})
		if !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%T: an operation that hid a statement's error returned %v, want ErrTxCommitRollback", db, err)
		}
		if pgtx.InTx(db) {
			t.Errorf("%T: Run left a transaction open", db)
		}
		wantItems(t, db, 1)
	}
}

// narrow hides everything of a pool but the four methods.
type narrow struct{ pgtx.DB }

func TestRunNeedsBeginTxForModes(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), narrow{pool(t, database(t), pgx.QueryExecModeExec)}
	must(t, pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error { return insert(ctx, tx, 1) }))
	called := false
	err := pgtx.Run(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(pgx.Tx) error { called = true; return nil })
	if err == nil || called {
		t.Errorf("modes that can't be had were ignored: %v", err)
	}
	wantItems(t, db, 1)
}

func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	connString := pgserver.Database(t)
	for _, handle := range handles {
		ctx, db := t.Context(), inTransaction(t, connString, handle, pgx.QueryExecModeCacheStatement)
		_, err := pgtx.Exec(ctx, db, insertItem, 1) // prepares it
		must(t, err)
		_, err = db.Exec(ctx, "savepoint mine")
		must(t, err)
		_, _ = db.Exec(ctx, divideByZero, 0)
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, pgtx.ErrTxAborted) {
				t.Errorf("%s on %s: %v, want ErrTxAborted", what, handle, err)
			}
		}
		for name, operation := range operations {
			check(name, operation(ctx, db, func(pgtx.DB) error { return nil }))
		}
		_, err = pgtx.Exec(ctx, db, insertItem, 2)
		check("Exec", err)
		_, err = pgtx.Exec(ctx, db, "select 1")
		check("Exec of a new statement", err)
		_, err = db.Exec(ctx, "rollback to savepoint mine")
		must(t, err)
		wantItems(t, db, 0, 1)
	}
}

// TestEndedTransaction: the connection of a transaction that has ended may be in
// somebody else's hands, so it must not be touched.
func TestEndedTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	tx := inTransaction(t, pgserver.Database(t), "pool's tx", pgx.QueryExecModeCacheStatement).(pgx.Tx)
	must(t, tx.Commit(ctx))
	_, err := pgtx.Exec(ctx, tx, insertItem, 1)
	for _, err := range []error{err, pgtx.Guard(ctx, tx, func(pgtx.DB) error { return nil })} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("operation on a committed transaction: %v, want ErrTxClosed", err)
		}
	}
	if data := tx.Conn().PgConn().CustomData(); len(data) > 0 {
		t.Errorf("the connection got %v", data)
	}
}

func TestGuardSendsNothingOutsideTransaction(t *testing.T) {
	t.Parallel()
	conn, trips := connectCounting(t, database(t), pgx.QueryExecModeExec)
	before := trips.Load()
	must(t, pgtx.Guard(t.Context(), conn, func(db pgtx.DB) error { return insert(t.Context(), db, 1) }))
	if n := trips.Load() - before; n != 1 {
		t.Errorf("one statement took %d round trips, want 1", n)
	}
}

func TestSessionUnchanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, database(t), pgx.QueryExecModeCacheStatement)
	tx, err := conn.Begin(ctx)
	must(t, err)
	change := func(db pgtx.DB) error {
		_, err := db.Exec(ctx, "set work_mem = '77MB'; set search_path = pg_catalog; set constraints all deferred; set local role pg_monitor")
		must(t, err)
		return errGiveUp
	}
	for _, operation := range operations {
		pgtxtest.AssertSessionUnchanged(t, conn, func() { _ = operation(ctx, tx, change) })
	}
}
