package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/ledger"
)

// twins are the same books twice: in the database and in memory.
type twins struct {
	t     *testing.T
	books *ledger.Ledger
	model *mirror
	round string // code above those of the accounts
	ids   []ledger.AccountID
}

func TestLedgerAgainstModel(t *testing.T) {
	books, pool := installed(t)
	ok(t, books.CreateAsset(t.Context(), "JPY", 0))
	rounds := 0
	rapid.Check(t, func(r *rapid.T) {
		rounds++
		w := &twins{t: t, books: books, model: newMirror(), round: fmt.Sprint("round ", rounds)}
		ok(t, books.ReopenPeriod(t.Context(), time.Time{}))
		for i := range 6 {
			w.open(r, i)
		}
		r.Repeat(map[string]func(*rapid.T){
			"": w.checkAccounts, "Transfer": w.transfer, "TransferIf": w.transferIf, "TransferAvailable": w.transferAvailable,
			"Pair": w.pair, "Transfers": w.transfers, "TransferEach": w.transferEach, "PostJournal": w.postJournal, "Exchange": w.exchange,
			"Hold": w.hold, "HoldUntilPast": w.holdUntilPast, "PostHold": w.postHold, "VoidHold": w.voidHold, "ExpireHolds": w.expireHolds,
			"ReverseTransfer": w.reverseTransfer, "ReverseJournal": w.reverseJournal, "CloseAccount": w.closeAccount,
			"ReopenAccount": w.reopenAccount, "SetLimits": w.setLimits, "ClosePeriod": w.closePeriod, "ReopenPeriod": w.reopenPeriod,
		})
		w.checkBooks(r)
	})
	for problem, err := range books.Verify(t.Context(), ledger.VerifyOptions{}) {
		ok(t, err)
		t.Errorf("verify: %+v", problem)
	}
	var odd int
	ok(t, pool.QueryRow(t.Context(), `select count(*) from ledger.entry e join ledger.balance b on b.no = e.account_no
		where scale(e.amount) <> b.decimals or scale(e.balance) <> b.decimals`).Scan(&odd))
	if odd > 0 {
		t.Errorf("%d entries have other decimals than their asset", odd)
	}
}

func (w *twins) open(r *rapid.T, i int) {
	asset, decimals := "EUR", int32(2)
	if i > 3 {
		asset, decimals = "JPY", 0
	}
	a := mirrorAccount{asset: asset, decimals: decimals}
	a.min, a.max = limits(r)
	if a.min.Valid && a.max.Valid && a.min.Decimal.GreaterThan(a.max.Decimal) {
		a.min, a.max = a.max, a.min
	}
	a.min.Decimal, a.max.Decimal = a.min.Decimal.Truncate(decimals), a.max.Decimal.Truncate(decimals)
	id := openWith(w.t, w.books, ledger.AccountParams{Name: fmt.Sprint("account ", i), Code: fmt.Sprint(w.round, ":", i), Asset: asset, Min: a.min, Max: a.max})
	w.model.accounts[id] = a
	w.ids = append(w.ids, id)
}

// What is drawn: few values, so that they meet; mostly usable ones, so that something happens.

func oneIn(r *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(r, what) == n }

func limits(r *rapid.T) (lowest, highest decimal.NullDecimal) {
	draw := func(name string, choices ...string) (d decimal.NullDecimal) {
		if s := rapid.SampledFrom(choices).Draw(r, name); s != "" {
			return limit(s)
		}
		return d
	}
	return draw("min", "", "", "0", "-10", "-3.25", "1"), draw("max", "", "", "20", "5.50", "0")
}

func (w *twins) account(r *rapid.T, name string) ledger.AccountID {
	if oneIn(r, 60, name+" unknown") {
		return ledger.NewAccountID()
	}
	return rapid.SampledFrom(w.ids).Draw(r, name)
}

// accounts are two that mostly can pay one another.
func (w *twins) accounts(r *rapid.T) (from, to ledger.AccountID) {
	if oneIn(r, 12, "any accounts") {
		return w.account(r, "from"), w.account(r, "to")
	}
	same := slices.Clone(w.ids[:4])
	if oneIn(r, 4, "yen") {
		same = slices.Clone(w.ids[4:])
	}
	i := rapid.IntRange(0, len(same)-1).Draw(r, "from")
	j := rapid.IntRange(1, len(same)-1).Draw(r, "to")
	return same[i], same[(i+j)%len(same)]
}

func amount(r *rapid.T, of string) decimal.Decimal {
	if oneIn(r, 20, "odd amount") {
		return dec(rapid.SampledFrom([]string{"0", "-1", "1.001", "1e60", "1e59", "-1e60", "0.00"}).Draw(r, of))
	}
	return dec(rapid.SampledFrom([]string{"1", "2", "3", "5", "10", "0.5", "2.50", "0.01", "3.2500", "4e0"}).Draw(r, of))
}

func eventTime(r *rapid.T) (event time.Time) {
	if oneIn(r, 3, "dated") {
		event = day(rapid.IntRange(0, 9).Draw(r, "day"))
	}
	return event
}

func day(n int) time.Time {
	return time.Date(2020, 2, 1+n, 12, 0, 0, 123456789, time.UTC).Truncate(time.Microsecond)
}

func metadata(r *rapid.T) json.RawMessage {
	return json.RawMessage(rapid.SampledFrom([]string{"", "", "", `{"k":1}`, `{ "k" : 1 }`, `null`, `["a\"b", "$1"]`}).Draw(r, "metadata"))
}

func byID[ID ~[16]byte, V any](known map[ID]V) []ID {
	return slices.SortedFunc(maps.Keys(known), func(x, y ID) int { return bytes.Compare(x[:], y[:]) })
}

// someID is now and then one that nobody knows.
func someID[ID ~[16]byte, V any](r *rapid.T, known map[ID]V, fresh func() ID) ID {
	if len(known) == 0 || oneIn(r, 20, "unknown id") {
		return fresh()
	}
	return rapid.SampledFrom(byID(known)).Draw(r, "id")
}

// usedID is mostly a new one.
func usedID[ID ~[16]byte, V any](r *rapid.T, known map[ID]V, fresh func() ID) ID {
	if len(known) == 0 || !oneIn(r, 8, "used id") {
		return fresh()
	}
	return rapid.SampledFrom(byID(known)).Draw(r, "id")
}

// request is a new transfer, a retry of one that was booked, or one that has another's id.
func (w *twins) request(r *rapid.T) ledger.TransferParams {
	id := usedID(r, w.model.transfers, ledger.NewTransferID)
	p := ledger.TransferParams{ID: id, Amount: amount(r, "amount"), EventAt: eventTime(r), Metadata: metadata(r)}
	p.From, p.To = w.accounts(r)
	if t, before := w.model.transfers[id]; before {
		drawn := p
		p = t.TransferParams
		switch rapid.IntRange(0, 8).Draw(r, "retry with other") {
		case 1:
			p.Amount = drawn.Amount
		case 2:
			p.From = drawn.From
		case 3:
			p.To = drawn.To
		case 4:
			p.EventAt = drawn.EventAt
		case 5:
			p.Metadata = drawn.Metadata
		}
	}
	return p
}

// Each operation below is done in memory on a clone and in the database; both must agree on everything that is returned.

// agreed compares errors and keeps the clone of a success. It returns whether there is a result to compare.
func (w *twins) agreed(r *rapid.T, next *mirror, index int, want, got error) bool {
	switch {
	case want == nil && got == nil:
		w.model = next
		return true
	case want == nil || got == nil || !errors.Is(got, want):
		r.Fatalf("the model says %v, the ledger %v", want, got)
	}
	var e *ledger.Error
	if !errors.As(got, &e) || e.Index != index || e.Message == "" || e.Hint == "" {
		r.Fatalf("refusal %#v; its index should be %d", got, index)
	}
	return false
}

func (w *twins) checkPosted(r *rapid.T, want, got ledger.Posted) {
	if got.ID != want.ID || got.Replayed != want.Replayed || got.FromVersion != want.FromVersion || got.ToVersion != want.ToVersion ||
		!got.FromBalance.Equal(want.FromBalance) || !got.ToBalance.Equal(want.ToBalance) {
		r.Fatalf("posted %+v\nthe model says %+v", got, want)
	}
	t := w.model.transfers[got.ID]
	if got.Replayed && !got.CreatedAt.Equal(t.posted.CreatedAt) {
		r.Fatalf("booked at %v, the first time at %v", got.CreatedAt, t.posted.CreatedAt)
	}
	t.posted.CreatedAt = got.CreatedAt
	w.model.transfers[got.ID] = t
}

func (w *twins) checkJournal(r *rapid.T, want, got ledger.JournalPosted) {
	if got.ID != want.ID || got.Replayed != want.Replayed || !slices.Equal(got.Versions, want.Versions) ||
		!slices.EqualFunc(got.Balances, want.Balances, decimal.Decimal.Equal) {
		r.Fatalf("posted %+v\nthe model says %+v", got, want)
	}
	j := w.model.journals[got.ID]
	if got.Replayed && !got.CreatedAt.Equal(j.posted.CreatedAt) {
		r.Fatalf("booked at %v, the first time at %v", got.CreatedAt, j.posted.CreatedAt)
	}
	j.posted.CreatedAt = got.CreatedAt
	w.model.journals[got.ID] = j
}

func (w *twins) transfer(r *rapid.T) {
	p, next := w.request(r), w.model.clone()
	want, refusal := next.transfer(p)
	got, err := w.books.Transfer(w.t.Context(), p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkPosted(r, want, got)
	}
}

func (w *twins) transferIf(r *rapid.T) {
	p, next := w.request(r), w.model.clone()
	version := func(id ledger.AccountID) int64 {
		n := int64(len(w.model.accounts[id].entries))
		return rapid.SampledFrom([]int64{n, n, n, n - 1, n + 1, -1}).Draw(r, "version")
	}
	fromVersion, toVersion := version(p.From), version(p.To)
	want, refusal := next.transferIf(p, fromVersion, toVersion)
	got, err := w.books.TransferIf(w.t.Context(), p, fromVersion, toVersion)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkPosted(r, want, got)
	}
}

func (w *twins) transferAvailable(r *rapid.T) {
	p, next := w.request(r), w.model.clone()
	if t, before := w.model.transfers[p.ID]; before && t.upTo.Valid && !oneIn(r, 3, "another maximum") {
		p.Amount = t.upTo.Decimal
	}
	want, refusal := next.transferAvailable(p)
	got, err := w.books.TransferAvailable(w.t.Context(), p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkPosted(r, want, got)
	}
}

func (w *twins) batch(r *rapid.T, n int) []ledger.TransferParams {
	batch := make([]ledger.TransferParams, n)
	for i := range batch {
		batch[i] = w.request(r)
		if i > 0 && oneIn(r, 30, "id twice") {
			batch[i].ID = batch[0].ID
		}
	}
	return batch
}

func (w *twins) pair(r *rapid.T) { w.all(r, w.batch(r, 2)) }

func (w *twins) transfers(r *rapid.T) {
	w.all(r, w.batch(r, rapid.SampledFrom([]int{1, 3, 4, 7}).Draw(r, "transfers")))
}

func (w *twins) all(r *rapid.T, batch []ledger.TransferParams) {
	next := w.model.clone()
	want, refused, refusal := next.transferEach(batch)
	index := slices.IndexFunc(refused, func(err error) bool { return err != nil })
	if index >= 0 {
		refusal = refused[index]
	}
	got, err := w.books.Transfers(w.t.Context(), batch)
	if w.agreed(r, next, index, refusal, err) {
		for i := range want {
			w.checkPosted(r, want[i], got[i])
		}
	}
}

func (w *twins) transferEach(r *rapid.T) {
	batch, next := w.batch(r, rapid.IntRange(1, 6).Draw(r, "transfers")), w.model.clone()
	want, refused, refusal := next.transferEach(batch)
	got, refusals, err := w.books.TransferEach(w.t.Context(), batch)
	if w.agreed(r, next, -1, refusal, err) {
		for i := range want {
			if w.agreed(r, next, i, refused[i], refusals[i]) {
				w.checkPosted(r, want[i], got[i])
			}
		}
	}
}

func (w *twins) postJournal(r *rapid.T) {
	next := w.model.clone()
	p := ledger.JournalParams{ID: usedID(r, w.model.journals, ledger.NewJournalID), Description: rapid.SampledFrom([]string{"", "o'clock"}).Draw(r, "description"),
		EventAt: eventTime(r), Metadata: metadata(r)}
	n := rapid.SampledFrom([]int{1, 2, 3, 4, 5}).Draw(r, "legs")
	rest := map[string]decimal.Decimal{}
	for range n {
		leg := ledger.Posting{Account: w.account(r, "account"), Amount: amount(r, "amount")}
		if rapid.Bool().Draw(r, "credit") {
			leg.Amount = leg.Amount.Neg()
		}
		a := w.model.accounts[leg.Account]
		if !oneIn(r, 10, "as drawn") {
			leg.Amount = leg.Amount.RoundUp(a.decimals)
		}
		if oneIn(r, 25, "assertion") {
			leg.Balance = decimal.NewNullDecimal(a.balance.Add(leg.Amount))
		}
		rest[a.asset] = rest[a.asset].Add(leg.Amount)
		p.Postings = append(p.Postings, leg)
	}
	if !oneIn(r, 10, "unbalanced") {
		for i, asset := range []string{"EUR", "JPY"} {
			if !rest[asset].IsZero() {
				p.Postings = append(p.Postings, ledger.Posting{Account: w.ids[4*i+rapid.IntRange(0, 1).Draw(r, "last")], Amount: rest[asset].Neg()})
			}
		}
	}
	if j, before := w.model.journals[p.ID]; before {
		drawn := p
		p = j.JournalParams
		switch rapid.IntRange(0, 6).Draw(r, "retry with other") {
		case 1:
			p.Description = drawn.Description
		case 2:
			p.EventAt = drawn.EventAt
		case 3:
			p.Metadata = drawn.Metadata
		case 4:
			p.Postings = drawn.Postings
		}
	}
	want, refusal := next.postJournal(p)
	got, err := w.books.PostJournal(w.t.Context(), p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkJournal(r, want, got)
	}
}

func (w *twins) exchange(r *rapid.T) {
	next := w.model.clone()
	p := ledger.ExchangeParams{ID: usedID(r, w.model.journals, ledger.NewJournalID), From: w.account(r, "from"), FromLiquidity: w.ids[0],
		ToLiquidity: w.ids[5], To: w.ids[4], FromAmount: amount(r, "from amount"), ToAmount: amount(r, "to amount").RoundUp(0), EventAt: eventTime(r), Metadata: metadata(r)}
	want, refusal := next.exchange(p)
	got, err := w.books.Exchange(w.t.Context(), p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkJournal(r, want, got)
	}
}

func (w *twins) holdRequest(r *rapid.T) ledger.HoldParams {
	t := w.request(r)
	p := ledger.HoldParams{ID: usedID(r, w.model.holds, ledger.NewHoldID), From: t.From, To: t.To, Amount: t.Amount, EventAt: t.EventAt, Metadata: t.Metadata}
	if rapid.Bool().Draw(r, "expires") {
		p.ExpiresAt = day(10000)
	}
	if h, before := w.model.holds[p.ID]; before {
		drawn := p
		p = h.HoldParams
		switch rapid.IntRange(0, 4).Draw(r, "retry with other") {
		case 1:
			p.Amount, p.From = drawn.Amount, drawn.From
		case 2:
			p.ExpiresAt = drawn.ExpiresAt
		case 3:
			p.EventAt, p.Metadata = drawn.EventAt, drawn.Metadata
		}
	}
	return p
}

func (w *twins) checkHeld(r *rapid.T, want, got ledger.Held) {
	if got.ID != want.ID || got.Replayed != want.Replayed || got.State != want.State || !got.Amount.Equal(want.Amount) ||
		!got.ExpiresAt.Equal(w.model.holds[got.ID].ExpiresAt) {
		r.Fatalf("held %+v\nthe model says %+v", got, want)
	}
}

func (w *twins) hold(r *rapid.T) {
	p, next := w.holdRequest(r), w.model.clone()
	want, refusal := next.hold(p)
	got, err := w.books.Hold(w.t.Context(), p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkHeld(r, want, got)
	}
}

// holdUntilPast makes a hold and lets it expire: from then on it must not count, whether or not anybody has given it back.
func (w *twins) holdUntilPast(r *rapid.T) {
	p, next := w.holdRequest(r), w.model.clone()
	p.ID = ledger.NewHoldID()
	p.ExpiresAt = time.Now().Add(15 * time.Millisecond).Truncate(time.Microsecond)
	want, refusal := next.hold(p)
	got, err := w.books.Hold(w.t.Context(), p)
	if refusal == nil && errors.Is(err, ledger.ErrHoldExpired) && time.Now().After(p.ExpiresAt) {
		return // a slow machine: it had expired on arrival
	}
	if w.agreed(r, next, -1, refusal, err) {
		w.checkHeld(r, want, got)
		time.Sleep(time.Until(p.ExpiresAt.Add(time.Millisecond)))
		h := w.model.holds[p.ID]
		h.state = ledger.HoldExpired
		w.model.holds[p.ID] = h
	}
}

func (w *twins) postHold(r *rapid.T) {
	id, next := someID(r, w.model.holds, ledger.NewHoldID), w.model.clone()
	p := ledger.PostParams{TransferID: usedID(r, w.model.transfers, ledger.NewTransferID), EventAt: eventTime(r), Metadata: metadata(r)}
	if rapid.Bool().Draw(r, "partly") {
		p.Amount = decimal.NewNullDecimal(amount(r, "amount"))
	}
	want, refusal := next.postHold(id, p)
	got, err := w.books.PostHold(w.t.Context(), id, p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkPosted(r, want, got)
	}
}

func (w *twins) voidHold(r *rapid.T) {
	id, next := someID(r, w.model.holds, ledger.NewHoldID), w.model.clone()
	want, refusal := next.voidHold(id)
	got, err := w.books.VoidHold(w.t.Context(), id)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkHeld(r, want, got)
	}
}

func (w *twins) expireHolds(r *rapid.T) {
	_, err := w.books.ExpireHolds(w.t.Context())
	if err != nil {
		r.Fatal(err)
	}
}

func (w *twins) reverseTransfer(r *rapid.T) {
	id, next := someID(r, w.model.transfers, ledger.NewTransferID), w.model.clone()
	p := ledger.ReverseTransferParams{ID: usedID(r, w.model.transfers, ledger.NewTransferID), EventAt: eventTime(r), Metadata: metadata(r)}
	if by := w.model.transfers[id].reversedBy; !by.IsZero() && rapid.Bool().Draw(r, "retry") {
		first := w.model.transfers[by]
		p = ledger.ReverseTransferParams{ID: by, EventAt: first.EventAt, Metadata: first.Metadata}
	}
	want, refusal := next.reverseTransfer(id, p)
	got, err := w.books.ReverseTransfer(w.t.Context(), id, p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkPosted(r, want, got)
	}
}

func (w *twins) reverseJournal(r *rapid.T) {
	id, next := someID(r, w.model.journals, ledger.NewJournalID), w.model.clone()
	p := ledger.ReverseJournalParams{ID: usedID(r, w.model.journals, ledger.NewJournalID), Description: "back", EventAt: eventTime(r), Metadata: metadata(r)}
	if by := w.model.journals[id].reversedBy; !by.IsZero() && rapid.Bool().Draw(r, "retry") {
		first := w.model.journals[by]
		p = ledger.ReverseJournalParams{ID: by, Description: first.Description, EventAt: first.EventAt, Metadata: first.Metadata}
	}
	want, refusal := next.reverseJournal(id, p)
	got, err := w.books.ReverseJournal(w.t.Context(), id, p)
	if w.agreed(r, next, -1, refusal, err) {
		w.checkJournal(r, want, got)
	}
}

func (w *twins) closeAccount(r *rapid.T) {
	id, next := w.account(r, "account"), w.model.clone()
	w.agreed(r, next, -1, next.closeAccount(id), w.books.CloseAccount(w.t.Context(), id))
}

func (w *twins) reopenAccount(r *rapid.T) {
	id, next := w.account(r, "account"), w.model.clone()
	for _, shut := range w.ids { // else soon most are closed
		if w.model.accounts[shut].closed {
			id = shut
		}
	}
	w.agreed(r, next, -1, next.reopenAccount(id), w.books.ReopenAccount(w.t.Context(), id))
}

func (w *twins) setLimits(r *rapid.T) {
	id, next := w.account(r, "account"), w.model.clone()
	lowest, highest := limits(r)
	w.agreed(r, next, -1, next.setLimits(id, lowest, highest), w.books.SetLimits(w.t.Context(), id, lowest, highest))
}

func (w *twins) closePeriod(r *rapid.T) {
	before, next := day(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 20000}).Draw(r, "before")), w.model.clone()
	w.agreed(r, next, -1, next.closePeriod(before), w.books.ClosePeriod(w.t.Context(), before))
}

func (w *twins) reopenPeriod(r *rapid.T) {
	next := w.model.clone()
	var before time.Time
	if n := rapid.IntRange(-3, 4).Draw(r, "before"); n >= 0 {
		before = day(n)
	}
	w.agreed(r, next, -1, next.reopenPeriod(before), w.books.ReopenPeriod(w.t.Context(), before))
}

// checkAccounts compares what every account holds.
func (w *twins) checkAccounts(r *rapid.T) {
	sum := map[string]decimal.Decimal{}
	n := 0
	for got, err := range w.books.Accounts(w.t.Context(), ledger.AccountFilter{Prefix: w.round}) {
		if err != nil {
			r.Fatal(err)
		}
		id, want := got.ID, w.model.accounts[got.ID]
		n++
		out, in := w.model.held(id)
		b := got.Balance
		if b.Version != int64(len(want.entries)) || !b.Posted.Equal(want.balance) || !b.HeldOut.Equal(out) || !b.HeldIn.Equal(in) ||
			!b.Pending().Equal(want.balance.Sub(out).Add(in)) || !b.Available().Equal(want.balance.Sub(out)) || got.ClosedAt.IsZero() == want.closed ||
			got.Min.Valid != want.min.Valid || !got.Min.Decimal.Equal(want.min.Decimal) || got.Max.Valid != want.max.Valid || !got.Max.Decimal.Equal(want.max.Decimal) {
			r.Fatalf("account %s is %+v\nthe model says balance %s, limits %v and %v, held %s out and %s in, closed %v, %d entries", id, got,
				want.balance, want.min, want.max, out, in, want.closed, len(want.entries))
		}
		sum[got.Asset] = sum[got.Asset].Add(b.Posted)
	}
	if n != len(w.ids) {
		r.Fatalf("%d accounts instead of %d", n, len(w.ids))
	}
	for asset, s := range sum {
		if !s.IsZero() {
			r.Fatalf("the accounts in %s sum to %s", asset, s)
		}
	}
}

// checkBooks compares everything that was ever booked.
func (w *twins) checkBooks(r *rapid.T) {
	for _, id := range w.ids {
		want := w.model.accounts[id].entries
		var last time.Time
		n := 0
		for got, err := range w.books.Entries(w.t.Context(), id, ledger.EntryFilter{}) {
			if err != nil {
				r.Fatal(err)
			}
			if n == len(want) {
				r.Fatalf("one entry too many: %+v", got)
			}
			e := want[n]
			if e.EventAt.IsZero() {
				e.EventAt = got.CreatedAt
			}
			if got.Account != id || got.Version != e.Version || got.Kind != e.Kind || got.Source != e.Source || got.Leg != e.Leg || got.Counterparty != e.Counterparty ||
				!got.Amount.Equal(e.Amount) || !got.Previous.Equal(e.Previous) || !got.Balance.Equal(e.Balance) || !got.EventAt.Equal(e.EventAt) ||
				!sameJSON(got.Metadata, e.Metadata) || got.Description != e.Description || got.CreatedAt.Before(last) {
				r.Fatalf("entry %+v\nthe model says %+v", got, e)
			}
			last = got.CreatedAt
			n++
		}
		if n != len(want) {
			r.Fatalf("account %s has %d entries instead of %d", id, n, len(want))
		}
	}
	for id, want := range w.model.transfers {
		got, err := w.books.GetTransfer(w.t.Context(), id)
		if err != nil || got.Reverses != want.reverses || got.ReversedBy != want.reversedBy || got.Hold != want.hold || !got.Amount.Equal(want.Amount) {
			r.Fatalf("transfer %+v (%v)\nthe model says %+v", got, err, want)
		}
	}
	for id, want := range w.model.journals {
		got, err := w.books.GetJournal(w.t.Context(), id)
		if err != nil || got.Reverses != want.reverses || got.ReversedBy != want.reversedBy || len(got.Entries) != len(want.Postings) {
			r.Fatalf("journal entry %+v (%v)\nthe model says %+v", got, err, want)
		}
	}
	for id, want := range w.model.holds {
		got, err := w.books.GetHold(w.t.Context(), id)
		if err != nil || got.State != want.state || !got.Amount.Equal(want.Amount) || got.Transfer != want.transfer ||
			got.PostedAmount.Valid != want.posted.Valid || !got.PostedAmount.Decimal.Equal(want.posted.Decimal) {
			r.Fatalf("hold %+v (%v)\nthe model says %+v", got, err, want)
		}
	}
}
