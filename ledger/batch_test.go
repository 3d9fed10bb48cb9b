package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// A batch of two has a path of its own, which must do what the general one does for every way in which the accounts of two transfers
// can coincide.
func TestPairsBookAsBatchesDo(t *testing.T) {
	books, _ := installed(t)
	ids := []ledger.AccountID{open(t, books, "a"), open(t, books, "b"), open(t, books, "c"), open(t, books, "d")}
	stands := map[ledger.AccountID]int64{}
	version := map[ledger.AccountID]int64{}
	for _, c := range [][4]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 3, 1, 2}, {0, 1, 0, 2}, {1, 0, 2, 0}, {0, 1, 1, 2}, {1, 2, 0, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {2, 3, 3, 1}} {
		batch := []ledger.TransferParams{
			{ID: ledger.NewTransferID(), From: ids[c[0]], To: ids[c[1]], Amount: dec("3.00")},
			{ID: ledger.NewTransferID(), From: ids[c[2]], To: ids[c[3]], Amount: dec("5.00")},
		}
		posted := must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
		for i, p := range posted {
			amount := batch[i].Amount.IntPart()
			from, to := batch[i].From, batch[i].To
			stands[from] -= amount
			stands[to] += amount
			version[from]++
			version[to]++
			if p.Replayed || p.ID != batch[i].ID || p.FromBalance.IntPart() != stands[from] || p.ToBalance.IntPart() != stands[to] || p.FromVersion != version[from] || p.ToVersion != version[to] {
				t.Fatalf("accounts %v, transfer %d: %+v, want balances %d and %d, versions %d and %d", c, i, p, stands[from], stands[to], version[from], version[to])
			}
		}
		again := must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
		for i, p := range again {
			if !p.Replayed || p.FromVersion != posted[i].FromVersion || !p.ToBalance.Equal(posted[i].ToBalance) || !p.CreatedAt.Equal(posted[i].CreatedAt) {
				t.Fatalf("the pair again: %+v, first %+v", p, posted[i])
			}
		}
	}
	whole(t, books)
}

// What is refused in a pair is refused as in any batch, names the transfer, and leaves no trace.
func TestRefusedPairLeavesNoTrace(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	poor := openWith(t, books, ledger.AccountParams{Name: "poor", Asset: "EUR", Min: limit("0")})
	good := ledger.TransferParams{From: a, To: b, Amount: dec("1")}
	for _, c := range []struct {
		name string
		bad  ledger.TransferParams
		want error
	}{
		{"limit", ledger.TransferParams{From: poor, To: a, Amount: dec("0.01")}, ledger.ErrLimit},
		{"decimals", ledger.TransferParams{From: a, To: b, Amount: dec("0.001")}, ledger.ErrAmount},
		{"unknown", ledger.TransferParams{From: a, To: ledger.NewAccountID(), Amount: dec("1")}, ledger.ErrAccountNotFound},
		{"self", ledger.TransferParams{From: a, To: a, Amount: dec("1")}, ledger.ErrSameAccount},
		{"zero", ledger.TransferParams{From: a, To: b}, ledger.ErrAmount},
	} {
		for index := range 2 {
			batch := []ledger.TransferParams{good, good}
			batch[index] = c.bad
			_, err := books.Transfers(t.Context(), batch)
			var refused *ledger.Error
			if !errors.Is(err, c.want) || !errors.As(err, &refused) || refused.Index != index {
				t.Errorf("%s at %d: %v", c.name, index, err)
			}
		}
	}
	if balance := must[ledger.Balance](t)(books.Balance(t.Context(), a)); balance.Version != 0 || !balance.Posted.IsZero() {
		t.Errorf("refused pairs left %+v", balance)
	}
	whole(t, books)
}

// whole fails the test unless Verify finds nothing.
func whole(t testing.TB, books *ledger.Ledger) {
	t.Helper()
	for problem, err := range books.Verify(t.Context(), ledger.VerifyOptions{}) {
		ok(t, err)
		t.Errorf("verify: %+v", problem)
	}
}

// An event time that is no time is refused on every path, and says so.
func TestInfiniteEventTimesAreRefused(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	for _, call := range []string{
		"ledger.transfer($1, $2, 1, p_event_at => $3)",
		"ledger.transfers(array[$1::uuid], array[$2::uuid], array[1.0], p_event_at => array[$3::timestamptz])",
		"ledger.hold($1, $2, 1, p_event_at => $3)",
		"ledger.post_journal(array[$1::uuid, $2::uuid], array[1.0, -1.0], p_event_at => $3)",
	} {
		for _, when := range []pgtype.InfinityModifier{pgtype.Infinity, pgtype.NegativeInfinity} {
			infinite := pgtype.Timestamptz{InfinityModifier: when, Valid: true}
			_, err := pool.Exec(t.Context(), "select "+call, uuid.UUID(a), uuid.UUID(b), infinite)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != "LG016" {
				t.Errorf("%s at %s: %v", call, when, err)
			}
		}
	}
	whole(t, books)
}

// A transfer that is retried alone while a batch with it commits, on an account that can pay it only once, is that one transfer.
func TestRetryOfATransferInABatchUnderWay(t *testing.T) {
	ctx := t.Context()
	books, pool := installed(t)
	payer := openWith(t, books, ledger.AccountParams{Name: "payer", Asset: "EUR"})
	receiver := openWith(t, books, ledger.AccountParams{Name: "receiver", Asset: "EUR"})
	if bytes.Compare(payer[:], receiver[:]) > 0 {
		t.Fatal("ids of version 7 rise")
	}
	for _, to := range []ledger.AccountID{receiver, payer} { // whichever of the two sorts, and so is locked, first
		from := payer
		if to == payer {
			from = receiver
		}
		balance := must[ledger.Balance](t)(books.Balance(ctx, from))
		ok(t, books.SetLimits(ctx, from, decimal.NewNullDecimal(balance.Posted.Sub(dec("10"))), decimal.NullDecimal{}))
		transfer := ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("10")}
		tx, err := pool.Begin(ctx)
		ok(t, err)
		_, refused, err := ledger.New(tx).TransferEach(ctx, []ledger.TransferParams{transfer})
		ok(t, errors.Join(append(refused, err)...))
		alone := make(chan error)
		go func() {
			p, err := books.Transfer(ctx, transfer)
			if err == nil && !p.Replayed {
				err = fmt.Errorf("booked twice: %+v", p)
			}
			alone <- err
		}()
		waitForLock(t, pool)
		ok(t, tx.Commit(ctx))
		ok(t, <-alone)
		whole(t, books)
		ok(t, books.SetLimits(ctx, from, decimal.NullDecimal{}, decimal.NullDecimal{}))
	}
}

// waitForLock returns when some session of the database waits for a lock.
func waitForLock(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		ok(t, pool.QueryRow(t.Context(), "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&waits))
	}
}

// Arrays of plain SQL need not begin at subscript 1.
func TestArraysWithOtherBounds(t *testing.T) {
	ctx := t.Context()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	_, err := pool.Exec(ctx, `select * from ledger.transfers(('[0:1]={' || $1::text || ',' || $1::text || '}')::uuid[], ('[5:6]={' || $2::text || ',' || $2::text || '}')::uuid[], '[0:1]={5,7}')`,
		uuid.UUID(a), uuid.UUID(b))
	ok(t, err)
	_, err = pool.Exec(ctx, `select ledger.post_journal(('[0:1]={' || $1::text || ',' || $2::text || '}')::uuid[], '[3:4]={-1,1}')`, uuid.UUID(a), uuid.UUID(b))
	ok(t, err)
	if balance := must[ledger.Balance](t)(books.Balance(ctx, b)); !balance.Posted.Equal(dec("13")) {
		t.Errorf("booked %s, not 13", balance.Posted)
	}
	whole(t, books)
}
