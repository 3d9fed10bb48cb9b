package ledger_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// installed returns a ledger with the asset EUR (two decimals) in a fresh database, and its pool.
func installed(t testing.TB) (*ledger.Ledger, *pgxpool.Pool) {
	t.Helper()
	pool := pgserver.Pool(t)
	ok(t, ledger.Install(t.Context(), pool))
	books := ledger.New(pool)
	ok(t, books.CreateAsset(t.Context(), "EUR", 2))
	return books, pool
}

// open opens an account in EUR without limits.
func open(t testing.TB, books *ledger.Ledger, code string) ledger.AccountID {
	t.Helper()
	return openWith(t, books, ledger.AccountParams{Name: code, Code: code, Asset: "EUR"})
}

// openWith opens an account.
func openWith(t testing.TB, books *ledger.Ledger, p ledger.AccountParams) ledger.AccountID {
	t.Helper()
	id, err := books.OpenAccount(t.Context(), p)
	ok(t, err)
	return id
}

// pay books a transfer that must succeed.
func pay(t testing.TB, books *ledger.Ledger, from, to ledger.AccountID, amount string) ledger.Posted {
	t.Helper()
	p, err := books.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec(amount)})
	ok(t, err)
	return p
}

func dec(s string) decimal.Decimal { return decimal.RequireFromString(s) }

// limit is a limit that is set.
func limit(s string) decimal.NullDecimal { return decimal.NewNullDecimal(dec(s)) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}
