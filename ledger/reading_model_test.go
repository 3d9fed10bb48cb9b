package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/ledger"
)

// modelEntry is an entry in the model of the books: a list, from which everything is added up anew each time.
type modelEntry struct {
	account            int
	version            int64
	source             uuid.UUID
	amount             decimal.Decimal
	createdAt, eventAt time.Time
	with               []int // accounts on the other legs
	tag                int
}

func (e modelEntry) at(by ledger.Clock) time.Time {
	if by == ledger.ByEvent {
		return e.eventAt
	}
	return e.createdAt
}

// modelBooks are books kept twice: in the database and as a list. Accounts with even and odd numbers are kept in different assets.
type modelBooks struct {
	t        *testing.T
	books    *ledger.Ledger
	prefix   string
	ids      []ledger.AccountID
	codes    []string
	assets   []string
	entries  []modelEntry
	versions []int64
}

func newModelBooks(t *testing.T, books *ledger.Ledger, prefix string) *modelBooks {
	m := &modelBooks{t: t, books: books, prefix: prefix}
	for i, path := range []string{"a", "a:x", "a:x:y", "b:x", "b", "a:x-1"} {
		asset := fmt.Sprint(prefix, ".", i%2)
		ok(t, books.CreateAsset(t.Context(), asset, 2))
		m.codes, m.assets = append(m.codes, prefix+":"+path), append(m.assets, asset)
		m.ids = append(m.ids, openWith(t, books, ledger.AccountParams{Name: path, Code: m.codes[i], Asset: asset}))
	}
	m.versions = make([]int64, len(m.ids))
	return m
}

func (m *modelBooks) record(source uuid.UUID, createdAt, eventAt time.Time, tag int, accounts []int, amounts ...decimal.Decimal) {
	if eventAt.IsZero() {
		eventAt = createdAt
	}
	for leg, a := range accounts {
		m.versions[a]++
		m.entries = append(m.entries, modelEntry{a, m.versions[a], source, amounts[leg], createdAt, eventAt, slices.Delete(slices.Clone(accounts), leg, leg+1), tag})
	}
}

// sum adds up the entries of an account that pass.
func (m *modelBooks) sum(account int, pass func(modelEntry) bool) (total decimal.Decimal) {
	for _, e := range m.entries {
		if e.account == account && pass(e) {
			total = total.Add(e.amount)
		}
	}
	return total
}

func (m *modelBooks) balanceAt(account int, at time.Time, by ledger.Clock) decimal.Decimal {
	return m.sum(account, func(e modelEntry) bool { return at.IsZero() || !e.at(by).After(at) })
}

// book books something at random.
func (m *modelBooks) book(r *rapid.T) {
	ctx := m.t.Context()
	var eventAt time.Time
	if rapid.Bool().Draw(r, "dated") {
		eventAt = time.Now().Add(time.Duration(rapid.IntRange(-2000, 2000).Draw(r, "event ms")) * time.Millisecond).Truncate(time.Microsecond)
	}
	amount := decimal.New(rapid.Int64Range(1, 500).Draw(r, "cents"), -2)
	tag := rapid.IntRange(0, 2).Draw(r, "tag")
	metadata := fmt.Appendf(nil, `{"tag": %d}`, tag)
	evens, odds := []int{0, 2, 4}, []int{1, 3, 5} // kept in one asset each
	same := rapid.SampledFrom([][]int{evens, odds}).Draw(r, "asset")
	pair := rapid.Permutation(same).Draw(r, "accounts")[:2]
	switch rapid.IntRange(0, 2).Draw(r, "what") {
	case 0:
		p := must[ledger.Posted](m.t)(m.books.Transfer(ctx, ledger.TransferParams{From: m.ids[pair[0]], To: m.ids[pair[1]], Amount: amount, EventAt: eventAt, Metadata: metadata}))
		m.record(uuid.UUID(p.ID), p.CreatedAt, eventAt, tag, pair, amount.Neg(), amount)
	case 1: // several at one time
		var batch []ledger.TransferParams
		for i := range 3 {
			batch = append(batch, ledger.TransferParams{From: m.ids[pair[i%2]], To: m.ids[pair[(i+1)%2]], Amount: amount, EventAt: eventAt, Metadata: metadata})
		}
		for i, p := range must[[]ledger.Posted](m.t)(m.books.Transfers(ctx, batch)) {
			m.record(uuid.UUID(p.ID), p.CreatedAt, eventAt, tag, []int{pair[i%2], pair[(i+1)%2]}, amount.Neg(), amount)
		}
	case 2: // legs in both assets, one account twice
		accounts := []int{evens[0], pair[0], evens[1], pair[1], evens[0]}
		amounts := []decimal.Decimal{amount.Neg(), amount, amount.Mul(dec("2")), amount.Neg(), amount.Neg()}
		var postings []ledger.Posting
		for i, a := range accounts {
			postings = append(postings, ledger.Posting{Account: m.ids[a], Amount: amounts[i]})
		}
		j := must[ledger.JournalPosted](m.t)(m.books.PostJournal(ctx, ledger.JournalParams{Postings: postings, EventAt: eventAt, Metadata: metadata}))
		m.record(uuid.UUID(j.ID), j.CreatedAt, eventAt, tag, accounts, amounts...)
	}
}

// someTime is a time at which something may change: that of an entry, a microsecond before or after it, or none.
func (m *modelBooks) someTime(r *rapid.T, name string) time.Time {
	if len(m.entries) == 0 || rapid.IntRange(0, 5).Draw(r, name+" none") == 0 {
		return time.Time{}
	}
	e := rapid.SampledFrom(m.entries).Draw(r, name)
	return e.at(someClock(r)).Add(time.Duration(rapid.IntRange(-1, 1).Draw(r, name+" offset")) * time.Microsecond)
}

func someClock(r *rapid.T) ledger.Clock {
	return rapid.SampledFrom([]ledger.Clock{ledger.ByBooking, ledger.ByEvent}).Draw(r, "clock")
}

func TestReadingAgainstModel(t *testing.T) {
	books, _ := installed(t)
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		m := newModelBooks(t, books, fmt.Sprint("r", round))
		for range rapid.IntRange(0, 8).Draw(r, "bookings") {
			m.book(r)
		}
		for range 4 {
			m.checkBalances(r)
			m.checkEntries(r)
			m.checkStatement(r)
		}
		m.checkRollUp(r)
		if round%5 == 0 { // it has the accounts of all rounds
			m.checkTrialBalance(r)
		}
	})
}

func (m *modelBooks) checkBalances(r *rapid.T) {
	ctx := m.t.Context()
	a, at, by := rapid.IntRange(0, len(m.ids)-1).Draw(r, "account"), m.someTime(r, "at"), someClock(r)
	now := must[ledger.Balance](m.t)(m.books.Balance(ctx, m.ids[a]))
	if want := m.balanceAt(a, time.Time{}, by); !now.Posted.Equal(want) || now.Version != m.versions[a] {
		r.Fatalf("%s stands at %s after version %d, not at %s after %d", m.codes[a], now.Posted, now.Version, want, m.versions[a])
	}
	if !at.IsZero() {
		got := must[decimal.Decimal](m.t)(m.books.BalanceAt(ctx, m.ids[a], at, by))
		if want := m.balanceAt(a, at, by); !got.Equal(want) {
			r.Fatalf("%s at %s by clock %d: %s, not %s", m.codes[a], at, by, got, want)
		}
	}
	version := rapid.Int64Range(0, m.versions[a]).Draw(r, "version")
	got := must[decimal.Decimal](m.t)(m.books.BalanceAfter(ctx, m.ids[a], version))
	if want := m.sum(a, func(e modelEntry) bool { return e.version <= version }); !got.Equal(want) {
		r.Fatalf("%s after version %d: %s, not %s", m.codes[a], version, got, want)
	}
}

// checkEntriesAre compares entries with those of the model, whose order is given.
func (m *modelBooks) checkEntriesAre(r *rapid.T, got []ledger.Entry, want []modelEntry) {
	if len(got) != len(want) {
		r.Fatalf("%d entries, not %d:\n%+v\n%+v", len(got), len(want), got, want)
	}
	for i, e := range got {
		w := want[i]
		if e.Version != w.version || !e.Amount.Equal(w.amount) || e.Source != w.source || !e.CreatedAt.Equal(w.createdAt) || !e.EventAt.Equal(w.eventAt) ||
			!e.Previous.Add(e.Amount).Equal(e.Balance) || e.Account != m.ids[w.account] || string(e.Metadata) != fmt.Sprintf(`{"tag": %d}`, w.tag) {
			r.Fatalf("entry %d is %+v, not %+v", i, e, w)
		}
		if e.Kind == "transfer" && e.Counterparty != m.ids[w.with[0]] || e.Kind == "journal" && !e.Counterparty.IsZero() {
			r.Fatalf("counterparty of %+v", e)
		}
	}
}

func (m *modelBooks) checkEntries(r *rapid.T) {
	a := rapid.IntRange(0, len(m.ids)-1).Draw(r, "account")
	f := ledger.EntryFilter{From: m.someTime(r, "from"), To: m.someTime(r, "to"), NewestFirst: rapid.Bool().Draw(r, "newest first"), After: rapid.Int64Range(0, 4).Draw(r, "after")}
	other, tag := rapid.IntRange(-1, len(m.ids)-1).Draw(r, "counterparty"), rapid.IntRange(-1, 2).Draw(r, "tag")
	if other >= 0 {
		f.Counterparty = m.ids[other]
	}
	if tag >= 0 {
		f.Metadata = fmt.Appendf(nil, `{"tag": %d}`, tag)
	}
	var want []modelEntry
	for _, e := range m.entries {
		after := f.After == 0 || !f.NewestFirst && e.version > f.After || f.NewestFirst && e.version < f.After
		if e.account == a && after && (f.From.IsZero() || !e.createdAt.Before(f.From)) && (f.To.IsZero() || e.createdAt.Before(f.To)) &&
			(tag < 0 || e.tag == tag) && (other < 0 || slices.Contains(e.with, other)) {
			want = append(want, e)
		}
	}
	if f.NewestFirst {
		slices.Reverse(want)
	}
	var got []ledger.Entry
	for e, err := range m.books.Entries(m.t.Context(), m.ids[a], f) {
		ok(m.t, err)
		got = append(got, e)
	}
	m.checkEntriesAre(r, got, want)
}

func (m *modelBooks) checkStatement(r *rapid.T) {
	a, by, from, to := rapid.IntRange(0, len(m.ids)-1).Draw(r, "account"), someClock(r), m.someTime(r, "from"), m.someTime(r, "to")
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		from, to = to, from
	}
	s := must[*ledger.Statement](m.t)(m.books.Statement(m.t.Context(), m.ids[a], from, to, by))
	var want []modelEntry
	for _, e := range m.entries {
		if e.account == a && !e.at(by).Before(from) && (to.IsZero() || e.at(by).Before(to)) {
			want = append(want, e)
		}
	}
	slices.SortStableFunc(want, func(x, y modelEntry) int { return x.at(by).Compare(y.at(by)) })
	m.checkEntriesAre(r, s.Entries, want)
	running := m.sum(a, func(e modelEntry) bool { return e.at(by).Before(from) })
	if !s.Opening.Equal(running) || !s.Closing.Equal(s.Opening.Add(s.Debits).Sub(s.Credits)) || s.Debits.IsNegative() || s.Credits.IsNegative() {
		r.Fatalf("opening %s + %s - %s = closing %s; opening should be %s", s.Opening, s.Debits, s.Credits, s.Closing, running)
	}
	for _, e := range s.Entries {
		if !e.Previous.Equal(running) {
			r.Fatalf("the balance before %+v should be %s", e, running)
		}
		running = e.Balance
	}
	if !s.Closing.Equal(running) {
		r.Fatalf("closing is %s, not %s", s.Closing, running)
	}
}

func (m *modelBooks) checkTrialBalance(r *rapid.T) {
	at, by := m.someTime(r, "at"), someClock(r)
	tb := must[*ledger.TrialBalance](m.t)(m.books.TrialBalance(m.t.Context(), at, by))
	if !tb.Balanced() {
		r.Fatalf("not balanced: %+v", tb.Totals)
	}
	got := map[ledger.AccountID]decimal.Decimal{}
	sums := map[string]ledger.TrialTotal{}
	for _, line := range tb.Lines {
		if line.Debit.IsNegative() || line.Credit.IsNegative() || !line.Debit.IsZero() && !line.Credit.IsZero() {
			r.Fatalf("columns of %+v", line)
		}
		got[line.Account] = line.Debit.Sub(line.Credit)
		sum := sums[line.Asset]
		sums[line.Asset] = ledger.TrialTotal{Debit: sum.Debit.Add(line.Debit), Credit: sum.Credit.Add(line.Credit)}
	}
	for a, id := range m.ids {
		balance, listed := got[id]
		if want := m.balanceAt(a, at, by); !balance.Equal(want) || listed != (m.versions[a] > 0) {
			r.Fatalf("%s at %s by clock %d: %s (listed: %v), not %s", m.codes[a], at, by, balance, listed, want)
		}
	}
	for _, total := range tb.Totals {
		if sum := sums[total.Asset]; !sum.Debit.Equal(total.Debit) || !sum.Credit.Equal(total.Credit) {
			r.Fatalf("total %+v of lines that sum to %+v", total, sum)
		}
	}
}

func (m *modelBooks) checkRollUp(r *rapid.T) {
	p := ledger.RollUpParams{Prefix: m.prefix, Depth: rapid.IntRange(0, 3).Draw(r, "depth"), At: m.someTime(r, "at"), By: someClock(r)}
	if below := rapid.SampledFrom([]string{"", ":a", ":a:x", ":b", ":none"}).Draw(r, "below"); below != "" {
		p.Prefix += below
	}
	want := map[string]ledger.RollUpLine{}
	base := strings.Count(p.Prefix, ":") + 1
	for a, code := range m.codes {
		levels := strings.Split(code, ":")
		for n := base; n <= len(levels) && (p.Depth == 0 || n <= base+p.Depth) && (code == p.Prefix || strings.HasPrefix(code, p.Prefix+":")) && m.versions[a] > 0; n++ {
			node := strings.Join(levels[:n], ":")
			line := want[node+m.assets[a]]
			want[node+m.assets[a]] = ledger.RollUpLine{Code: node, Level: n, Asset: m.assets[a], Accounts: line.Accounts + 1, Balance: line.Balance.Add(m.balanceAt(a, p.At, p.By))}
		}
	}
	got := must[[]ledger.RollUpLine](m.t)(m.books.RollUp(m.t.Context(), p))
	if len(got) != len(want) {
		r.Fatalf("%+v has %d lines, not %d: %+v", p, len(got), len(want), got)
	}
	for i, line := range got {
		w := want[line.Code+line.Asset]
		if line.Level != w.Level || line.Accounts != w.Accounts || !line.Balance.Equal(w.Balance) {
			r.Fatalf("line %+v of %+v should be %+v", line, p, w)
		}
		if i > 0 && line.Code != p.Prefix && !slices.ContainsFunc(got[:i], func(above ledger.RollUpLine) bool {
			return above.Code == line.Code[:strings.LastIndex(line.Code, ":")]
		}) {
			r.Fatalf("%s stands before what it is below: %+v", line.Code, got)
		}
	}
}
