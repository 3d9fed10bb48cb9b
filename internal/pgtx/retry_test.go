package pgtx_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// TestRetrySerializable lets writers add to one row under SERIALIZABLE, where
// some of them must lose. Two wait for each other in their first attempt, so
// that one surely does.
func TestRetrySerializable(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), database(t)
	p := pool(t, connString, pgx.QueryExecModeCacheStatement)
	must(t, insert(ctx, p, 0))
	var bothRead, writers sync.WaitGroup
	bothRead.Add(2)
	attempts := make([]int, 2)
	for i := range attempts {
		writers.Go(func() {
			err := pgtx.Retry(ctx, func() error {
				return pgtx.Run(ctx, p, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
					var id int32
					err := tx.QueryRow(ctx, "select id from item").Scan(&id)
					if attempts[i]++; attempts[i] == 1 {
						bothRead.Done()
						bothRead.Wait()
					}
					if err != nil {
						return err
					}
					_, err = tx.Exec(ctx, "update item set id = $1", id+1)
					return err
				})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	wantItems(t, p, 2)
	if attempts[0]+attempts[1] < 3 {
		t.Errorf("attempts were %v: nobody had to repeat", attempts)
	}
}

func TestRetryable(t *testing.T) {
	for code, want := range map[string]bool{
		"40001": true, "40P01": true, // serialization failure, deadlock
		"23505": false, "25P02": false, "55P03": false, "57014": false, "57P01": false, "08006": false, "40003": false,
	} {
		if got := pgtx.Retryable(errors.Join(errGiveUp, &pgconn.PgError{Code: code})); got != want {
			t.Errorf("Retryable(%s) = %t", code, got)
		}
	}
	if pgtx.Retryable(nil) || pgtx.Retryable(errGiveUp) || pgtx.Retryable(context.Canceled) {
		t.Error("what has nothing to do with the server is retryable")
	}
}

func TestRetryableDeadConnection(t *testing.T) {
	t.Parallel()
	conn := connect(t, database(t), pgx.QueryExecModeExec)
	must(t, conn.Close(t.Context()))
	if err := insert(t.Context(), conn, 1); !pgtx.Retryable(err) {
		t.Errorf("%v: not retryable, though nothing was sent", err)
	}
}

func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	conflict := &pgconn.PgError{Code: "40001"}
	calls := 0
	err := pgtx.Retry(t.Context(), func() error { calls++; return conflict })
	if calls != 10 || !errors.Is(err, conflict) {
		t.Errorf("%d calls, then %v", calls, err)
	}
	calls = 0
	err = pgtx.Retry(t.Context(), func() error { calls++; return errGiveUp })
	if calls != 1 || err != errGiveUp {
		t.Errorf("an error that isn't retryable: %d calls, then %v", calls, err)
	}
	calls = 0
	_ = pgtx.Retry(t.Context(), func() error { calls++; return &pgconn.PgError{Code: "55P03"} }, "55P03")
	if calls != 10 {
		t.Errorf("a code that was asked for: %d calls", calls)
	}
}

func TestRetryHonoursContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	conflict := &pgconn.PgError{Code: "40001"}
	calls := 0
	err := pgtx.Retry(ctx, func() error { calls++; cancel(); return conflict })
	if calls != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, conflict) {
		t.Errorf("%d calls, then %v", calls, err)
	}
}
