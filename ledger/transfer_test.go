package ledger_test

import (
	"errors"
	"testing"

	"github.com/annals-db/annals/ledger"
)

func TestTransferMovesMoneyAndNumbersEntries(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	p := pay(t, books, a, b, "10.50")
	if p.Replayed || p.FromVersion != 1 || p.ToVersion != 1 || !p.FromBalance.Equal(dec("-10.50")) || !p.ToBalance.Equal(dec("10.50")) {
		t.Fatalf("first transfer: %+v", p)
	}
	p = pay(t, books, b, a, "0.5")
	if p.FromVersion != 2 || p.ToVersion != 2 || p.FromBalance.String() != "10" || p.ToBalance.StringFixed(2) != "-10.00" {
		t.Fatalf("second transfer: %+v", p)
	}
	_, err := books.Transfer(t.Context(), ledger.TransferParams{From: a, To: b, Amount: dec("-1")})
	if !errors.Is(err, ledger.ErrAmount) {
		t.Fatal(err)
	}
}
