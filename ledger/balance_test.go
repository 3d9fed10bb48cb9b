package ledger_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

func TestBalanceOfHolds(t *testing.T) {
	books, pool := installed(t)
	till := open(t, books, "till")
	wallet := openWith(t, books, ledger.AccountParams{Name: "wallet", Asset: "EUR", NormalSide: ledger.Credit})
	pay(t, books, wallet, till, "100") // the customer paid in: the wallet owes 100
	hold := func(from, to ledger.AccountID, amount string, expires time.Time) ledger.HoldID {
		return must[ledger.Held](t)(books.Hold(t.Context(), ledger.HoldParams{From: from, To: to, Amount: dec(amount), ExpiresAt: expires})).ID
	}
	hold(till, wallet, "30", time.Time{}) // the customer wants 30 back
	hold(wallet, till, "7", time.Time{})  // and pays 7 in with a card

	check := func(id ledger.AccountID, posted, heldOut, heldIn, pending, available string) {
		t.Helper()
		b := must[ledger.Balance](t)(books.Balance(t.Context(), id))
		for what, pair := range map[string][2]decimal.Decimal{
			"posted": {b.Posted, dec(posted)}, "held out": {b.HeldOut, dec(heldOut)}, "held in": {b.HeldIn, dec(heldIn)},
			"pending": {b.Pending(), dec(pending)}, "available": {b.Available(), dec(available)}} {
			if !pair[0].Equal(pair[1]) {
				t.Errorf("%s is %s, not %s", what, pair[0], pair[1])
			}
		}
		var inSQL [2]string
		ok(t, pool.QueryRow(t.Context(), "select pending::text, available::text from ledger.accounts where id = $1", id).Scan(&inSQL[0], &inSQL[1]))
		if !dec(inSQL[0]).Equal(b.Pending()) || !dec(inSQL[1]).Equal(b.Available()) {
			t.Errorf("pending and available are %v in SQL, %s and %s in Go", inSQL, b.Pending(), b.Available())
		}
		if n := b.Normal(); b.NormalSide == ledger.Credit && (!n.Posted.Equal(b.Posted.Neg()) || !n.Available().Equal(b.Available().Neg()) || !n.Pending().Equal(b.Pending().Neg())) ||
			b.NormalSide == ledger.Debit && n != b {
			t.Errorf("%+v is %+v on its normal side", b, n)
		}
	}
	check(till, "100", "30", "7", "77", "70")
	check(wallet, "-100", "7", "30", "-77", "-70")

	soon := time.Now().Add(200 * time.Millisecond)
	expiring := hold(till, wallet, "50", soon)
	check(till, "100", "80", "7", "27", "20")
	waitUntil(t, pool, soon)
	check(till, "100", "30", "7", "77", "70") // nobody has given it back yet
	check(wallet, "-100", "7", "30", "-77", "-70")
	if h := must[ledger.Hold](t)(books.GetHold(t.Context(), expiring)); h.State != ledger.HoldExpired || !h.SettledAt.IsZero() {
		t.Errorf("a hold past its expiry: %+v", h)
	}
	must[int](t)(books.ExpireHolds(t.Context()))
	check(till, "100", "30", "7", "77", "70")
}

// waitUntil returns when the database's clock has passed a time.
func waitUntil(t *testing.T, db ledger.DB, at time.Time) {
	t.Helper()
	_, err := db.Exec(t.Context(), "select pg_sleep(greatest(0, extract(epoch from $1::timestamptz - clock_timestamp())) + 0.001)", at)
	ok(t, err)
}

func TestBalanceAtTheEnds(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	must[ledger.Posted](t)(books.Transfer(t.Context(), ledger.TransferParams{From: a, To: b, Amount: dec("2"), EventAt: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)}))
	for at, want := range map[string][2]string{"-infinity": {"0", "0"}, "2999-01-01": {"3", "3"}, "2998-12-31": {"3", "1"}, "infinity": {"3", "3"}} {
		for i, function := range []string{"balance_at", "balance_at_event"} {
			var got string
			ok(t, pool.QueryRow(t.Context(), "select ledger."+function+"($1, $2::text::timestamptz)::text", b, at).Scan(&got))
			if !dec(got).Equal(dec(want[i])) {
				t.Errorf("%s(%s) is %s, not %s", function, at, got, want[i])
			}
		}
	}
	if got := must[decimal.Decimal](t)(books.BalanceAt(t.Context(), b, time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), ledger.ByEvent)); !got.IsZero() {
		t.Errorf("in the year 1 it stood at %s", got)
	}
}

func TestBalanceAfterAnEntry(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	a, b, c := open(t, books, "a"), open(t, books, "b"), open(t, books, "c")
	first, second := pay(t, books, a, b, "1"), pay(t, books, a, b, "2")
	j := must[ledger.JournalPosted](t)(books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{
		{Account: b, Amount: dec("5")}, {Account: a, Amount: dec("-9")}, {Account: b, Amount: dec("4")}}}))
	for what, got := range map[string]decimal.Decimal{
		"1":  must[decimal.Decimal](t)(books.BalanceAfterTransfer(ctx, b, first.ID)),
		"-3": must[decimal.Decimal](t)(books.BalanceAfterTransfer(ctx, a, second.ID)),
		"12": must[decimal.Decimal](t)(books.BalanceAfterJournal(ctx, b, j.ID)), // after its last leg there
		"8":  must[decimal.Decimal](t)(books.BalanceAfter(ctx, b, 3)),
		"0":  must[decimal.Decimal](t)(books.BalanceAfter(ctx, b, 0)),
	} {
		if !got.Equal(dec(what)) {
			t.Errorf("%s instead of %s", got, what)
		}
	}
	for what, call := range map[string]func() (decimal.Decimal, error){
		"a version to come":        func() (decimal.Decimal, error) { return books.BalanceAfter(ctx, b, 5) },
		"a version below zero":     func() (decimal.Decimal, error) { return books.BalanceAfter(ctx, b, -1) },
		"no version at all":        func() (decimal.Decimal, error) { return books.BalanceAfter(ctx, b, math.MaxInt64) },
		"a transfer of others":     func() (decimal.Decimal, error) { return books.BalanceAfterTransfer(ctx, c, first.ID) },
		"an unknown transfer":      func() (decimal.Decimal, error) { return books.BalanceAfterTransfer(ctx, a, ledger.NewTransferID()) },
		"no transfer":              func() (decimal.Decimal, error) { return books.BalanceAfterTransfer(ctx, a, ledger.TransferID{}) },
		"a transfer for a journal": func() (decimal.Decimal, error) { return books.BalanceAfterJournal(ctx, a, ledger.JournalID(first.ID)) },
	} {
		var refusal *ledger.Error
		if _, err := call(); !errors.Is(err, ledger.ErrNotFound) || !errors.As(err, &refusal) || refusal.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	unknown := ledger.NewAccountID()
	for what, call := range map[string]func() error{
		"now":            func() error { _, err := books.Balance(ctx, unknown); return err },
		"at":             func() error { _, err := books.BalanceAt(ctx, unknown, time.Now(), ledger.ByBooking); return err },
		"at event":       func() error { _, err := books.BalanceAt(ctx, unknown, time.Now(), ledger.ByEvent); return err },
		"after":          func() error { _, err := books.BalanceAfter(ctx, unknown, 0); return err },
		"after transfer": func() error { _, err := books.BalanceAfterTransfer(ctx, unknown, first.ID); return err },
		"zero id":        func() error { _, err := books.BalanceAfter(ctx, ledger.AccountID{}, 0); return err },
	} {
		if err := call(); !errors.Is(err, ledger.ErrAccountNotFound) {
			t.Errorf("%s of an unknown account: %v", what, err)
		}
	}
}

// A moment is found by bisection: the books are not read from the beginning.
func TestBalanceAtReadsLittle(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	const n = 4096
	at := bookMany(t, books, a, b, n)
	read := rowsRead(t, pool, "select ledger.balance_at($1, $2)", b, at)
	if read.sequential > 0 || read.byIndex == 0 || read.byIndex > 13+1 { // log2(n) probes and the balance
		t.Errorf("%+v of %d entries were read", read, n)
	}
}

// The zero time is no bound, as everywhere else.
func TestBalanceAtTheZeroTime(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "3")
	for _, by := range []ledger.Clock{ledger.ByBooking, ledger.ByEvent} {
		if stands := must[decimal.Decimal](t)(books.BalanceAt(t.Context(), b, time.Time{}, by)); !stands.Equal(dec("3")) {
			t.Errorf("clock %d: %s, not 3", by, stands)
		}
	}
}
