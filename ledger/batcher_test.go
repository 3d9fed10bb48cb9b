package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// TestBatcherGivesEachItsOwn: every caller gets the result of its own transfer, and a refusal is its own, too.
func TestBatcherGivesEachItsOwn(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	bank := open(t, books, "bank")
	for _, o := range []ledger.BatcherOptions{{}, {MaxBatch: 7, Calls: 3}, {MaxDelay: 2 * time.Millisecond}} {
		var accounts []ledger.AccountID
		for i := range 64 {
			id := openWith(t, books, ledger.AccountParams{Name: fmt.Sprint("customer ", i), Asset: "EUR", Min: limit("0")})
			pay(t, books, bank, id, fmt.Sprint(i+1))
			accounts = append(accounts, id)
		}
		shop := openWith(t, books, ledger.AccountParams{Name: "shop", Asset: "EUR"})
		b := ledger.NewBatcher(pool, o)
		together(t, len(accounts), func(i int) error {
			good := ledger.TransferParams{ID: ledger.NewTransferID(), From: accounts[i], To: shop, Amount: dec(fmt.Sprint(i + 1))}
			bad := good
			bad.ID = ledger.NewTransferID()
			want := error(nil)
			switch i % 8 {
			case 0:
				bad.Amount, want = dec("1000"), ledger.ErrLimit
			case 1:
				bad.To, want = ledger.NewAccountID(), ledger.ErrAccountNotFound
			case 2:
				bad.Metadata, want = json.RawMessage(`"\u0000"`), ledger.ErrInvalid
			case 3:
				bad.Amount, want = decimal.New(1, 1_000_000_000), ledger.ErrAmount
			case 4:
				bad.Amount, want = decimal.New(1, -2_000_000_000), ledger.ErrAmount
			case 5:
				bad.Metadata, want = json.RawMessage(`{`), ledger.ErrInvalid
			case 6:
				bad.To, want = bad.From, ledger.ErrSameAccount
			case 7:
				bad.EventAt, want = time.Date(-9000, 1, 1, 0, 0, 0, 0, time.UTC), ledger.ErrInvalid
			}
			_, err := b.Transfer(t.Context(), bad)
			var refusal *ledger.Error
			if !errors.Is(err, want) || !errors.As(err, &refusal) || refusal.Index != -1 {
				return fmt.Errorf("the bad transfer came to %w, want %w", err, want)
			}
			for _, replayed := range []bool{false, true} {
				p, err := b.Transfer(t.Context(), good)
				if err != nil || p.ID != good.ID || p.Replayed != replayed || !p.FromBalance.IsZero() || p.FromVersion != 2 || p.CreatedAt.IsZero() {
					return fmt.Errorf("the good transfer came to %+v, %w", p, err)
				}
			}
			return nil
		})
		b.Close()
		ok(t, books.AssertBalance(t.Context(), shop, dec("2080")))
	}
	sound(t, books)
}

// TestBatcherSameID: callers with one id and content get one result, those with other content a refusal, in one batch or several.
func TestBatcherSameID(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	for _, o := range []ledger.BatcherOptions{{MaxDelay: 20 * time.Millisecond}, {Calls: 4}} {
		b := ledger.NewBatcher(pool, o)
		for range 5 {
			one := ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("3")}
			var mu sync.Mutex
			first, versions := 0, map[int64]int{}
			together(t, 8, func(i int) error {
				mine := one
				if i == 7 {
					time.Sleep(10 * time.Millisecond)
					mine.Amount = dec("4")
				}
				p, err := b.Transfer(t.Context(), mine)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					versions[p.FromVersion]++
					if !p.Replayed {
						first++
					}
					return nil
				}
				if !errors.Is(err, ledger.ErrIDReused) {
					return err
				}
				return nil
			})
			if first != 1 || len(versions) != 1 {
				t.Errorf("%+v: one id was booked %d times with the versions %v", o, first, versions)
			}
		}
		b.Close()
	}
	sound(t, books)
}

// TestBatcherContext: who has gone does not hold up the others, and its transfer is booked once or not at all.
func TestBatcherContext(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	b := ledger.NewBatcher(pool, ledger.BatcherOptions{})
	defer b.Close()
	lock, err := pool.Begin(t.Context())
	ok(t, err)
	ok(t, ledger.New(lock).AssertBalance(t.Context(), from, dec("0")))
	mine := ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("1")}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Transfer(ctx, mine); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a transfer that waits for a lock outlived its context: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := b.Transfer(gone, ledger.TransferParams{From: from, To: to, Amount: dec("1")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a transfer whose context had ended: %v", err)
	}
	ok(t, lock.Rollback(t.Context()))
	p, err := b.Transfer(t.Context(), mine)
	ok(t, err)
	if p.FromVersion > 2 || p.ToBalance.GreaterThan(dec("2")) {
		t.Errorf("the repeated transfer: %+v", p)
	}
	sound(t, books)
}

// TestBatcherFullQueue: a context ends the wait for a place in the queue, too.
func TestBatcherFullQueue(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	b := ledger.NewBatcher(pool, ledger.BatcherOptions{MaxBatch: 1})
	lock, err := pool.Begin(t.Context())
	ok(t, err)
	ok(t, ledger.New(lock).AssertBalance(t.Context(), from, dec("0")))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	together(t, 6, func(int) error {
		if _, err := b.Transfer(ctx, ledger.TransferParams{From: from, To: to, Amount: dec("1")}); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a transfer behind a lock outlived its context: %w", err)
		}
		return nil
	})
	ok(t, lock.Rollback(t.Context()))
	_, err = b.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")})
	ok(t, err)
	b.Close()
	sound(t, books)
}

// TestBatcherClose: Close waits for those that came before, refuses those that come after, and may be called again and at any time.
func TestBatcherClose(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	for range 3 {
		b := ledger.NewBatcher(pool, ledger.BatcherOptions{MaxBatch: 5, Calls: 2})
		before := must[ledger.Balance](t)(books.Balance(t.Context(), to)).Version
		var booked, refused int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				_, err := b.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					booked++
				case errors.Is(err, ledger.ErrBatcherClosed):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		all.Go(b.Close)
		all.Go(b.Close)
		all.Wait()
		if n := must[ledger.Balance](t)(books.Balance(t.Context(), to)).Version - before; booked+refused != 40 || n != int64(booked) {
			t.Errorf("%d booked and %d refused of 40, %d in the books", booked, refused, n)
		}
		b.Close()
		if _, err := b.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")}); !errors.Is(err, ledger.ErrBatcherClosed) {
			t.Errorf("a transfer after Close: %v", err)
		}
	}
}

// TestBatcherDrains: what waits when Close is called is booked.
func TestBatcherDrains(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	lock, err := pool.Begin(t.Context())
	ok(t, err)
	ok(t, ledger.New(lock).AssertBalance(t.Context(), from, dec("0")))
	b := ledger.NewBatcher(pool, ledger.BatcherOptions{MaxBatch: 10})
	var all sync.WaitGroup
	results := make(chan error, 10)
	for range 10 {
		all.Go(func() {
			_, err := b.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")})
			results <- err
		})
	}
	awaitBlocked(t, pool)
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("Close did not wait for the transfers that wait")
	case <-time.After(50 * time.Millisecond):
	}
	ok(t, lock.Rollback(t.Context()))
	all.Wait()
	<-closed
	booked := 0
	for range 10 {
		if err := <-results; err == nil {
			booked++
		} else if !errors.Is(err, ledger.ErrBatcherClosed) {
			t.Error(err)
		}
	}
	if balance := must[ledger.Balance](t)(books.Balance(t.Context(), to)); booked == 0 || balance.Version != int64(booked) {
		t.Errorf("%d transfers were answered, %d are in the books", booked, balance.Version)
	}
}

// TestBatcherMaxDelay: transfers that arrive one after the other within the delay go into one transaction.
func TestBatcherMaxDelay(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	b := ledger.NewBatcher(pool, ledger.BatcherOptions{MaxDelay: time.Minute, MaxBatch: 3})
	defer b.Close()
	together(t, 3, func(i int) error {
		time.Sleep(time.Duration(i) * 30 * time.Millisecond)
		_, err := b.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")})
		return err
	})
	var transactions int
	ok(t, pool.QueryRow(t.Context(), "select count(distinct xid) from ledger.transfer").Scan(&transactions))
	if transactions != 1 {
		t.Errorf("three transfers that may wait a minute took %d transactions", transactions)
	}
	short := ledger.NewBatcher(pool, ledger.BatcherOptions{MaxDelay: 10 * time.Millisecond})
	defer short.Close()
	_, err := short.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("1")}) // alone, it doesn't wait for ever
	ok(t, err)
}

// TestBatcherBrokenConnections: callers get errors while there is no server, and results when it is back.
func TestBatcherBrokenConnections(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{})
	database, err := server.CreateDatabase(t.Context())
	ok(t, err)
	pool, err := pgxpool.New(t.Context(), server.ConnString(database))
	ok(t, err)
	defer pool.Close()
	ok(t, ledger.Install(t.Context(), pool))
	books := ledger.New(pool)
	ok(t, books.CreateAsset(t.Context(), "EUR", 2))
	from, to := open(t, books, "from"), open(t, books, "to")
	b := ledger.NewBatcher(pool, ledger.BatcherOptions{})
	defer b.Close()
	transfers := make([]ledger.TransferParams, 8)
	for i := range transfers {
		transfers[i] = ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("1")}
	}
	for _, t := range transfers[:4] {
		_, _ = b.Transfer(context.Background(), t)
	}
	_, err = pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	ok(t, err)
	ok(t, server.Kill(t.Context()))
	together(t, len(transfers), func(i int) error {
		if _, err := b.Transfer(t.Context(), transfers[i]); err == nil {
			return errors.New("a transfer went through without a server")
		}
		return nil
	})
	ok(t, server.Restart(t.Context()))
	together(t, len(transfers), func(i int) error {
		var err error
		for range 20 { // the pool may have connections of before
			if _, err = b.Transfer(t.Context(), transfers[i]); err == nil {
				return nil
			}
		}
		return err
	})
	ok(t, books.AssertBalance(t.Context(), to, dec("8")))
	sound(t, books)
}
