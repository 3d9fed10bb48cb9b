package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/annals-db/annals/ledger"
)

func TestStatement(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	a, b := open(t, books, "a"), open(t, books, "b")
	day := func(n int) time.Time { return time.Date(2020, 1, n, 12, 0, 0, 0, time.UTC) }
	var booked []time.Time
	for _, e := range []struct {
		amount string
		day    int
	}{{"1", 3}, {"10", 1}, {"100", 2}, {"1000", 9}} {
		p := must[ledger.Posted](t)(books.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec(e.amount), EventAt: day(e.day)}))
		booked = append(booked, p.CreatedAt)
	}
	pay(t, books, b, a, "7")
	for what, c := range map[string]struct {
		from, to         time.Time
		by               ledger.Clock
		opening, closing string
		versions         []int64
		debits, credits  string
	}{
		"all, as booked":       {time.Time{}, time.Time{}, ledger.ByBooking, "0", "1104", []int64{1, 2, 3, 4, 5}, "1111", "7"},
		"all, as it happened":  {time.Time{}, time.Time{}, ledger.ByEvent, "0", "1104", []int64{2, 3, 1, 4, 5}, "1111", "7"},
		"middle, as booked":    {booked[1], booked[3], ledger.ByBooking, "1", "111", []int64{2, 3}, "110", "0"},
		"two days, late":       {day(2), day(9), ledger.ByEvent, "10", "111", []int64{3, 1}, "101", "0"},
		"a day when none was":  {day(4), day(5), ledger.ByEvent, "111", "111", nil, "0", "0"},
		"no time at all":       {day(2), day(2), ledger.ByEvent, "10", "10", nil, "0", "0"},
		"before the first day": {time.Time{}, day(1), ledger.ByEvent, "0", "0", nil, "0", "0"},
	} {
		s := must[*ledger.Statement](t)(books.Statement(ctx, b, c.from, c.to, c.by))
		if !s.Opening.Equal(dec(c.opening)) || !s.Closing.Equal(dec(c.closing)) || !s.Debits.Equal(dec(c.debits)) || !s.Credits.Equal(dec(c.credits)) || len(s.Entries) != len(c.versions) {
			t.Errorf("%s: %+v", what, s)
			continue
		}
		running := s.Opening
		for i, e := range s.Entries {
			if e.Version != c.versions[i] || !e.Previous.Equal(running) || !e.Balance.Equal(running.Add(e.Amount)) || e.Counterparty != a || e.Account != b {
				t.Errorf("%s: entry %d is %+v", what, i, e)
			}
			running = e.Balance
		}
	}
	if _, err := books.Statement(ctx, b, day(2), day(1), ledger.ByBooking); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("a statement that ends before it begins: %v", err)
	}
	if _, err := books.Statement(ctx, ledger.NewAccountID(), time.Time{}, time.Time{}, ledger.ByBooking); !errors.Is(err, ledger.ErrAccountNotFound) {
		t.Errorf("a statement of an unknown account: %v", err)
	}
}
