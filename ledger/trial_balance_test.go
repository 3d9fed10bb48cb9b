package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/annals-db/annals/ledger"
)

func TestTrialBalance(t *testing.T) {
	books, pool := installed(t)
	ctx := t.Context()
	ok(t, books.CreateAsset(ctx, "AUD", 2))
	a, b := open(t, books, "z"), open(t, books, "b")
	nameless := openWith(t, books, ledger.AccountParams{Name: "no code", Asset: "EUR"})
	open(t, books, "unused")
	x, y := openWith(t, books, ledger.AccountParams{Name: "x", Asset: "AUD"}), openWith(t, books, ledger.AccountParams{Name: "y", Asset: "AUD"})
	pay(t, books, a, b, "5")
	pay(t, books, a, nameless, "2")
	pay(t, books, x, y, "1")
	tb := must[*ledger.TrialBalance](t)(books.TrialBalance(ctx, time.Time{}, ledger.ByBooking))
	var got []string
	for _, line := range tb.Lines[2:] { // two in AUD before them
		got = append(got, fmt.Sprintf("%s %s %s %s/%s", line.Code, line.Name, line.Asset, line.Debit, line.Credit))
	}
	if want := []string{"b b EUR 5/0", "z z EUR 0/7", " no code EUR 2/0"}; !slices.Equal(got, want) || len(tb.Totals) != 2 || !tb.Totals[1].Debit.Equal(dec("7")) || !tb.Balanced() {
		t.Errorf("%q, totals %+v", got, tb.Totals)
	}
	_, err := pool.Exec(ctx, "alter table ledger.balance disable trigger guard_update; update ledger.balance set balance = balance + 1 where version > 0 and asset_no = 1")
	ok(t, err)
	if tb := must[*ledger.TrialBalance](t)(books.TrialBalance(ctx, time.Time{}, ledger.ByBooking)); tb.Balanced() {
		t.Errorf("books that don't balance have the totals %+v", tb.Totals)
	}
}

func TestRollUp(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	ok(t, books.CreateAsset(ctx, "USD", 2))
	out := openWith(t, books, ledger.AccountParams{Name: "out", Asset: "EUR"})
	for code, amount := range map[string]string{"a": "1", "a:b": "2", "a:b:c": "4", "a-b": "8", "a:b-c": "16", "a:B": "32", "a%": "64"} {
		pay(t, books, out, open(t, books, code), amount)
	}
	usd := openWith(t, books, ledger.AccountParams{Name: "usd", Code: "a:b:usd", Asset: "USD"})
	pay(t, books, openWith(t, books, ledger.AccountParams{Name: "out", Asset: "USD"}), usd, "3")
	for what, c := range map[string]struct {
		params ledger.RollUpParams
		want   []string
	}{
		"all":          {ledger.RollUpParams{}, []string{"a EUR 5 55", "a USD 1 3", "a:B EUR 1 32", "a:b EUR 2 6", "a:b USD 1 3", "a:b:c EUR 1 4", "a:b:usd USD 1 3", "a:b-c EUR 1 16", "a% EUR 1 64", "a-b EUR 1 8"}},
		"top":          {ledger.RollUpParams{Depth: 1}, []string{"a EUR 5 55", "a USD 1 3", "a% EUR 1 64", "a-b EUR 1 8"}},
		"below a":      {ledger.RollUpParams{Prefix: "a", Depth: 1}, []string{"a EUR 5 55", "a USD 1 3", "a:B EUR 1 32", "a:b EUR 2 6", "a:b USD 1 3", "a:b-c EUR 1 16"}},
		"below a:b":    {ledger.RollUpParams{Prefix: "a:b", Depth: math.MaxInt}, []string{"a:b EUR 2 6", "a:b USD 1 3", "a:b:c EUR 1 4", "a:b:usd USD 1 3"}},
		"no such code": {ledger.RollUpParams{Prefix: "x"}, nil},
	} {
		var got []string
		for _, line := range must[[]ledger.RollUpLine](t)(books.RollUp(ctx, c.params)) {
			got = append(got, fmt.Sprintf("%s %s %d %s", line.Code, line.Asset, line.Accounts, line.Balance))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, not\n%q", what, got, c.want)
		}
	}
	for _, p := range []ledger.RollUpParams{{Prefix: "a:"}, {Prefix: ":a"}, {Prefix: ":"}, {Depth: -1}, {Depth: math.MinInt}} {
		if _, err := books.RollUp(ctx, p); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
