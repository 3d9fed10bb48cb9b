package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// TestRetryMakesTransactionsPass: at the higher levels 40001 reaches the caller, whose own transaction Retry repeats.
func TestRetryMakesTransactionsPass(t *testing.T) {
	t.Parallel()
	for _, level := range levels[1:] {
		books, pool := installed(t)
		a, b := open(t, books, "a"), open(t, books, "b")
		sessions := onLevel(t, pool, level)
		const goroutines, each = 6, 4
		together(t, goroutines, func(int) error {
			for range each {
				id := ledger.NewTransferID()
				err := retryLong(t.Context(), func() error {
					return pgx.BeginFunc(t.Context(), sessions, func(tx pgx.Tx) error {
						balance, err := ledger.New(tx).Balance(t.Context(), a)
						if err != nil {
							return err
						}
						_, err = ledger.New(tx).TransferIf(t.Context(), ledger.TransferParams{ID: id, From: a, To: b, Amount: dec("1")}, balance.Version, -1)
						return err
					})
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		ok(t, books.AssertBalance(t.Context(), b, dec(fmt.Sprint(goroutines*each))))
		sound(t, books)
	}
}

// retryLong goes on where Retry gives up after ten attempts, which a crowd on one account can use up on a busy machine.
func retryLong(ctx context.Context, fn func() error) error {
	for {
		err := ledger.Retry(ctx, fn)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
			return err
		}
	}
}

// TestSerializablePool: the library repeats its own calls on a pool that makes every transaction serializable.
func TestSerializablePool(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b, c := open(t, books, "a"), open(t, books, "b"), open(t, books, "c")
	serializable := ledger.New(onLevel(t, pool, "serializable"))
	ctx := t.Context()
	together(t, 4, func(i int) error {
		for range 5 {
			id := ledger.NewTransferID()
			if err := retryLong(ctx, func() error {
				_, err := serializable.Transfer(ctx, ledger.TransferParams{ID: id, From: a, To: b, Amount: dec("1")})
				return err
			}); err != nil {
				return err
			}
			batch := []ledger.TransferParams{{ID: ledger.NewTransferID(), From: b, To: c, Amount: dec("1")}, {ID: ledger.NewTransferID(), From: c, To: a, Amount: dec("1")}}
			if err := retryLong(ctx, func() error { _, err := serializable.Transfers(ctx, batch); return err }); err != nil {
				return err
			}
		}
		return nil
	})
	ok(t, books.AssertBalance(ctx, a, dec("0")))
	sound(t, books)
}

// TestNoDeadlocks: calls of all kinds on overlapping accounts in every order never meet 40P01, which nothing here would repeat: the
// calls run in transactions of their caller.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	ctx := t.Context()
	var accounts []ledger.AccountID
	for i := range 6 {
		accounts = append(accounts, open(t, books, fmt.Sprint("account ", i)))
	}
	config := pool.Config()
	config.MaxConns = 12
	config.ConnConfig.RuntimeParams["deadlock_timeout"] = "20ms"
	crowd, err := pgxpool.NewWithConfig(ctx, config)
	ok(t, err)
	defer crowd.Close()
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	together(t, 12, func(i int) error {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		two := func() (from, to ledger.AccountID) {
			at := random.Perm(len(accounts))
			return accounts[at[0]], accounts[at[1]]
		}
		transfer := func() ledger.TransferParams {
			from, to := two()
			return ledger.TransferParams{From: from, To: to, Amount: dec("1")}
		}
		for range rounds {
			kind := random.IntN(7)
			if err := pgx.BeginFunc(ctx, crowd, func(tx pgx.Tx) error {
				books := ledger.New(tx)
				switch kind {
				case 0:
					_, err := books.Transfer(ctx, transfer())
					return err
				case 1:
					_, err := books.Transfers(ctx, []ledger.TransferParams{transfer(), transfer()})
					return err
				case 2:
					_, err := books.Transfers(ctx, []ledger.TransferParams{transfer(), transfer(), transfer(), transfer()})
					return err
				case 6:
					nothing := transfer()
					nothing.Amount = dec("0") // makes the batch go the long way
					_, _, err := books.TransferEach(ctx, []ledger.TransferParams{transfer(), nothing, transfer(), transfer()})
					return err
				case 3:
					from, to := two()
					_, err := books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: from, Amount: dec("-1")}, {Account: to, Amount: dec("1")}}})
					return err
				case 4:
					from, to := two()
					_, err := books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1"), ExpiresAt: time.Now().Add(2 * time.Second)})
					return err
				default:
					_, err := books.ExpireHolds(ctx)
					return err
				}
			}); err != nil {
				return err
			}
		}
		return nil
	})
	sound(t, books)
}

// TestHoldsSettledByMany: posting, voiding and expiry of the same holds at once, beside transfers that need the money.
func TestHoldsSettledByMany(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	ctx := t.Context()
	bank := open(t, books, "bank")
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, bank, a, "100")
	pay(t, books, bank, b, "100")
	ok(t, books.SetLimits(ctx, a, limit("0"), limit("200")))
	ok(t, books.SetLimits(ctx, b, limit("0"), limit("200")))
	var holds []ledger.HoldID
	for i := range 20 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		h := ledger.HoldParams{From: from, To: to, Amount: dec("10")}
		if i >= 4 {
			h.ExpiresAt = time.Now().Add(time.Second)
		}
		held, err := books.Hold(ctx, h)
		ok(t, err)
		holds = append(holds, held.ID)
	}
	crowd := ledger.New(onLevel(t, pool, "read committed"))
	time.Sleep(900 * time.Millisecond)
	together(t, 8, func(i int) error {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		for _, at := range random.Perm(len(holds)) {
			var err error
			switch random.IntN(5) {
			case 0:
				_, err = crowd.PostHold(ctx, holds[at], ledger.PostParams{Amount: limit("7")})
			case 1:
				_, err = crowd.VoidHold(ctx, holds[at])
			case 2:
				_, err = crowd.ExpireHolds(ctx)
			case 3:
				_, err = crowd.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("30")})
			case 4:
				_, err = crowd.Transfer(ctx, ledger.TransferParams{From: b, To: a, Amount: dec("30")})
			}
			switch outcome(false, err) {
			case "ok", "limit", "settled", "expired":
			default:
				return err
			}
		}
		return nil
	})
	sound(t, books)
	time.Sleep(100 * time.Millisecond)
	_, err := books.ExpireHolds(ctx)
	ok(t, err)
	sound(t, books)
}

// TestHotAccount: sixteen goroutines on one account lose nothing.
func TestHotAccount(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	hot := openWith(t, books, ledger.AccountParams{Name: "hot", Asset: "EUR", Min: limit("0")})
	bank := open(t, books, "bank")
	crowd := ledger.New(onLevel(t, pool, "read committed"))
	var others []ledger.AccountID
	for i := range 16 {
		others = append(others, open(t, books, fmt.Sprint("other ", i)))
	}
	pay(t, books, bank, hot, "100")
	var mu sync.Mutex
	paid := 0
	together(t, 16, func(i int) error {
		for range 10 {
			_, err := crowd.Transfer(t.Context(), ledger.TransferParams{From: hot, To: others[i], Amount: dec("1")})
			switch {
			case err == nil:
				mu.Lock()
				paid++
				mu.Unlock()
			case !errors.Is(err, ledger.ErrLimit):
				return err
			}
		}
		return nil
	})
	if paid != 100 {
		t.Errorf("%d transfers of 1 were booked out of 100", paid)
	}
	ok(t, books.AssertBalance(t.Context(), hot, dec("0")))
	sound(t, books)
}

// TestGrowthInOneSession: plans that a session made while the tables were tiny go on to use their indexes.
func TestGrowthInOneSession(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgserver.Database(t))
	ok(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	ctx := t.Context()
	ok(t, ledger.Install(ctx, conn))
	books := ledger.New(conn)
	ok(t, books.CreateAsset(ctx, "EUR", 2))
	a, b := open(t, books, "a"), open(t, books, "b")
	_, err = conn.Exec(ctx, "analyze")
	ok(t, err)

	// everything books in every way between two accounts.
	everything := func(from, to ledger.AccountID) {
		t.Helper()
		transfer := func() ledger.TransferParams {
			return ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("1")}
		}
		one := transfer()
		for range 2 { // the second time it is replayed
			_, err := books.Transfer(ctx, one)
			ok(t, err)
		}
		pair, three := []ledger.TransferParams{transfer(), transfer()}, []ledger.TransferParams{transfer(), transfer(), transfer()}
		for range 2 {
			_, err = books.Transfers(ctx, pair)
			ok(t, err)
			_, err = books.Transfers(ctx, three)
			ok(t, err)
		}
		_, err = books.TransferIf(ctx, transfer(), -1, -1)
		ok(t, err)
		_, err = books.TransferAvailable(ctx, transfer())
		ok(t, err)
		held, err := books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1")})
		ok(t, err)
		_, err = books.PostHold(ctx, held.ID, ledger.PostParams{})
		ok(t, err)
		held, err = books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1")})
		ok(t, err)
		_, err = books.VoidHold(ctx, held.ID)
		ok(t, err)
		_, err = books.ReverseTransfer(ctx, one.ID, ledger.ReverseTransferParams{})
		ok(t, err)
		j, err := books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: from, Amount: dec("-1")}, {Account: to, Amount: dec("1")}}})
		ok(t, err)
		_, err = books.ReverseJournal(ctx, j.ID, ledger.ReverseJournalParams{})
		ok(t, err)
		ok(t, books.SetLimits(ctx, from, decimal.NullDecimal{}, decimal.NullDecimal{}))
		_, err = books.Transfer(ctx, ledger.TransferParams{From: from, To: to, Amount: dec("0.001")}) // a refusal looks around, too
		if !errors.Is(err, ledger.ErrAmount) {
			t.Fatal(err)
		}
	}
	for range 6 { // past the five custom plans that PL/pgSQL tries first
		everything(a, b)
	}
	const accounts = 5000
	_, err = conn.Exec(ctx, "select ledger.open_account('account ' || i, 'EUR') from generate_series(1, $1::int) i", accounts)
	ok(t, err)
	rows, err := conn.Query(ctx, "select id from ledger.account order by no")
	ok(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[ledger.AccountID])
	ok(t, err)
	before := sequentialScans(t, conn)
	for i := range 12 {
		everything(ids[i], ids[len(ids)-1-i])
	}
	after := sequentialScans(t, conn)
	for table, n := range after {
		if n > before[table] {
			t.Errorf("%d sequential scans of ledger.%s crept in", n-before[table], table)
		}
	}
}

// sequentialScans counts those of each table that grows with the books.
func sequentialScans(t testing.TB, conn *pgx.Conn) map[string]int64 {
	t.Helper()
	_, err := conn.Exec(t.Context(), "select pg_stat_force_next_flush()")
	ok(t, err)
	rows, err := conn.Query(t.Context(), "select relname::text, seq_scan from pg_stat_user_tables where schemaname = 'ledger' and relname not in ('asset', 'period')")
	ok(t, err)
	scans := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error { scans[table] = n; return nil })
	ok(t, err)
	if len(scans) == 0 {
		t.Fatal("no statistics of the tables of ledger")
	}
	return scans
}
