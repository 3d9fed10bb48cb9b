package pgtx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

func TestCancelWhileServerWorks(t *testing.T) {
	t.Parallel()
	connString := pgserver.Database(t)
	for _, handle := range handles {
		db := inTransaction(t, connString, handle, pgx.QueryExecModeExec)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var sleepErr error
		err := pgtx.Guard(ctx, db, func(db pgtx.DB) error {
			_, sleepErr = db.Exec(ctx, "select pg_sleep($1::int)", 600)
			return sleepErr
		})
		if !errors.Is(err, context.DeadlineExceeded) || err != sleepErr {
			t.Errorf("%s: error is %v, want the context's as it was: %v", handle, err, sleepErr)
		}
	}
}

// TestCancelByRequest: with a context watcher that asks the server to cancel and
// leaves the connection open, the transaction survives.
func TestCancelByRequest(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(database(t))
	must(t, err)
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	must(t, err)
	must(t, insert(t.Context(), tx, 0))
	const sleepAndInsert = "insert into item select 1 from pg_sleep($1::int)"
	for range 2 { // the second time it is pipelined
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := pgtx.Exec(ctx, tx, sleepAndInsert, 600); err == nil {
			t.Error("a statement outlived its context")
		}
		wantItems(t, tx, 0)
		wantNoSavepoint(t, tx)
		_, err := pgtx.Exec(t.Context(), tx, sleepAndInsert, 0) // prepares it
		must(t, err)
		_, err = tx.Exec(t.Context(), "delete from item where id = 1")
		must(t, err)
	}
}

func TestCancelBetweenStatements(t *testing.T) {
	t.Parallel()
	connString := pgserver.Database(t)
	for name, operation := range operations {
		db := inTransaction(t, connString, "tx", pgx.QueryExecModeCacheStatement)
		ctx, cancel := context.WithCancel(t.Context())
		err := operation(ctx, db, func(db pgtx.DB) error {
			must(t, insert(ctx, db, 1))
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error is %v, want the context's", name, err)
		}
		wantItems(t, db, 0)
		wantNoSavepoint(t, db)
	}
}

func TestCancelledStatement(t *testing.T) {
	t.Parallel()
	inEveryMode(t, func(t *testing.T, db pgtx.DB) {
		const sleep = "select pg_sleep($1::int)"
		_, err := pgtx.Exec(t.Context(), db, sleep, 0) // prepares it
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err = pgtx.Exec(ctx, db, sleep, 600); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want the context's", err)
		}
	})
}
