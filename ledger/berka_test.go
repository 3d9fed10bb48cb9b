package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// berkaEntry is a transfer of the replay, and where it must leave the customer's account.
type berkaEntry struct {
	id       ledger.TransferID
	customer string // code of the customer's account
	with     string // code of the bank's
	amount   heller // above zero into the customer's account
	day      time.Time
	metadata berkaMetadata
	balance  heller
}

// berkaMetadata says which transaction of the data set an entry is, or belongs to.
type berkaMetadata struct {
	Trans    int    `json:"trans_id"`
	Symbol   string `json:"k_symbol,omitempty"`
	Partner  string `json:"partner,omitempty"`
	Rounding bool   `json:"rounding,omitempty"`
}

// berkaSpace makes the ids of transfers from those of transactions.
var berkaSpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("berka"))

func berkaID(kind string, transaction int) ledger.TransferID {
	return ledger.TransferID(uuid.NewSHA1(berkaSpace, fmt.Append(nil, kind, transaction)))
}

// berkaEntries turns chained days into what is booked. Where amount and balance disagree, the difference is an entry of its own before the
// transaction, which then ends at the balance that was printed.
func berkaEntries(days [][]berkaTransaction) []berkaEntry {
	var entries []berkaEntry
	balance := map[int]heller{}
	for _, day := range days {
		for _, t := range day {
			customer := fmt.Sprint("customer:", t.account)
			if d := t.difference(balance[t.account]); d != 0 {
				entries = append(entries, berkaEntry{id: berkaID("rounding", t.id), customer: customer, with: "bank:rounding", amount: d, day: t.day,
					metadata: berkaMetadata{Trans: t.id, Rounding: true}, balance: balance[t.account] + d})
			}
			entries = append(entries, berkaEntry{id: berkaID("transaction", t.id), customer: customer, with: "bank:" + t.with(), amount: t.amount, day: t.day,
				metadata: berkaMetadata{Trans: t.id, Symbol: t.symbol, Partner: t.partner}, balance: t.balance})
			balance[t.account] = t.balance
		}
	}
	return entries
}

// berkaBooks are the books of the bank as its customers see them: what they have is above zero, as in the data set.
type berkaBooks struct {
	*ledger.Ledger
	pool     *pgxpool.Pool
	entries  []berkaEntry
	accounts map[string]ledger.AccountID // by code
	least    map[string]heller           // the limit of each customer's account: 0, or the lowest that it ever stands at
	balance  map[string]heller           // where each account must end
}

func newBerkaBooks(t *testing.T, entries []berkaEntry) *berkaBooks {
	t.Helper()
	books, pool := installed(t)
	ok(t, books.CreateAsset(t.Context(), "CZK", 2))
	b := &berkaBooks{Ledger: books, pool: pool, entries: entries, accounts: map[string]ledger.AccountID{}, least: map[string]heller{}, balance: map[string]heller{}}
	for _, e := range entries {
		b.least[e.customer] = min(b.least[e.customer], e.balance)
		b.balance[e.customer] = e.balance
		b.balance[e.with] -= e.amount
	}
	for code := range b.balance {
		p := ledger.AccountParams{Name: code, Code: code, Asset: "CZK"}
		if least, customer := b.least[code]; customer {
			p.Min = decimal.NewNullDecimal(least.decimal())
		}
		b.accounts[code] = openWith(t, books, p)
	}
	return b
}

// book books all entries in batches and returns the results.
func (b *berkaBooks) book(t *testing.T) []ledger.Posted {
	t.Helper()
	var posted []ledger.Posted
	for chunk := range slices.Chunk(b.entries, 250) {
		var batch []ledger.TransferParams
		for _, e := range chunk {
			p := ledger.TransferParams{ID: e.id, From: b.accounts[e.with], To: b.accounts[e.customer], Amount: e.amount.abs().decimal(), EventAt: e.day,
				Metadata: must[[]byte](t)(json.Marshal(e.metadata))}
			if e.amount < 0 {
				p.From, p.To = p.To, p.From
			}
			batch = append(batch, p)
		}
		posted = append(posted, must[[]ledger.Posted](t)(b.Transfers(t.Context(), batch))...)
	}
	return posted
}

// TestBerkaReplay books the data set's first 35,000 transactions. Whatever the ledger says about a balance must be what the bank printed.
func TestBerkaReplay(t *testing.T) {
	transactions := berkaTransactions(t)
	days := berkaDays(transactions)
	entries := berkaEntries(days)
	b := newBerkaBooks(t, entries)

	posted := b.book(t)
	for i, e := range entries {
		p := posted[i]
		balance := p.ToBalance
		if e.amount < 0 {
			balance = p.FromBalance
		}
		if p.ID != e.id || p.Replayed || !balance.Equal(e.balance.decimal()) {
			t.Fatalf("transaction %d (%+v) left %s at %s, the data set says %s", e.metadata.Trans, p, e.customer, balance, e.balance.decimal())
		}
	}

	t.Run("entries", b.testEntries)
	t.Run("balances at event times", func(t *testing.T) { b.testBalancesAt(t, transactions[0].day, days) })
	t.Run("limits", b.testLimits)
	t.Run("replayed", func(t *testing.T) { b.testReplay(t, posted) })
	t.Run("verify", func(t *testing.T) { verifyBerka(t, b.Ledger) })
}

// testEntries reads every customer's entries back from the books.
func (b *berkaBooks) testEntries(t *testing.T) {
	expected := map[string][]berkaEntry{}
	for _, e := range b.entries {
		expected[e.customer] = append(expected[e.customer], e)
	}
	for customer, want := range expected {
		n := 0
		for got, err := range b.Entries(t.Context(), b.accounts[customer], ledger.EntryFilter{}) {
			ok(t, err)
			if n == len(want) {
				t.Fatalf("%s has more than %d entries", customer, n)
			}
			e := want[n]
			var metadata berkaMetadata
			ok(t, json.Unmarshal(got.Metadata, &metadata))
			if n++; got.Version != int64(n) || ledger.TransferID(got.Source) != e.id || got.Counterparty != b.accounts[e.with] || metadata != e.metadata ||
				!got.EventAt.Equal(e.day) || !got.Amount.Equal(e.amount.decimal()) || !got.Balance.Equal(e.balance.decimal()) {
				t.Fatalf("entry %d of %s is\n%+v, expected\n%+v", n, customer, got, e)
			}
		}
		if n != len(want) {
			t.Fatalf("%s has %d entries, expected %d", customer, n, len(want))
		}
	}
}

// testBalancesAt compares balances at the end of each month with the last ones that the bank had printed by then: those of some accounts,
// and every fourth month those of all.
func (b *berkaBooks) testBalancesAt(t *testing.T, first time.Time, days [][]berkaTransaction) {
	printed := map[string]heller{}
	for month := range 14 {
		at := first.AddDate(0, month, -1)
		for len(days) > 0 && !days[0][0].day.After(at) {
			last := days[0][len(days[0])-1]
			printed[fmt.Sprint("customer:", last.account)] = last.balance
			days = days[1:]
		}
		for i := month; i < len(b.entries); i += len(b.entries) / 20 {
			customer := b.entries[i].customer
			got := must[decimal.Decimal](t)(b.BalanceAt(t.Context(), b.accounts[customer], at, ledger.ByEvent))
			if !got.Equal(printed[customer].decimal()) {
				t.Fatalf("on %s %s had %s, the data set says %s", at, customer, got, printed[customer].decimal())
			}
		}
		if month%4 == 0 {
			b.testTrialBalance(t, at, printed)
		}
	}
}

func (b *berkaBooks) testTrialBalance(t *testing.T, at time.Time, printed map[string]heller) {
	t.Helper()
	trial := must[*ledger.TrialBalance](t)(b.TrialBalance(t.Context(), at, ledger.ByEvent))
	found := 0
	for _, line := range trial.Lines {
		if _, customer := b.least[line.Code]; !customer {
			continue
		}
		want, known := printed[line.Code]
		if known {
			found++
		}
		if got := line.Debit.Sub(line.Credit); !got.Equal(want.decimal()) {
			t.Fatalf("on %s %s had %s, the data set says %s", at, line.Code, got, want.decimal())
		}
	}
	if found != len(printed) || !trial.Balanced() {
		t.Fatalf("on %s there were %d customers, expected %d; totals %v", at, found, len(printed), trial.Totals)
	}
}

// testLimits tries to take a heller too much out of each customer's account.
func (b *berkaBooks) testLimits(t *testing.T) {
	var batch []ledger.TransferParams
	for customer, least := range b.least {
		batch = append(batch, ledger.TransferParams{From: b.accounts[customer], To: b.accounts["bank:cash"], Amount: (b.balance[customer] - least + 1).decimal()})
	}
	_, refused, err := b.TransferEach(t.Context(), batch)
	ok(t, err)
	for i, err := range refused {
		if !errors.Is(err, ledger.ErrLimit) {
			t.Fatalf("%+v: %v", batch[i], err)
		}
	}
}

// testReplay books everything again, which must change nothing.
func (b *berkaBooks) testReplay(t *testing.T, posted []ledger.Posted) {
	before := b.snapshot(t)
	for i, again := range b.book(t) {
		p := posted[i]
		if !again.Replayed || again.ID != p.ID || again.FromVersion != p.FromVersion || again.ToVersion != p.ToVersion || !again.CreatedAt.Equal(p.CreatedAt) ||
			!again.FromBalance.Equal(p.FromBalance) || !again.ToBalance.Equal(p.ToBalance) {
			t.Fatalf("first\n%+v, then\n%+v", p, again)
		}
	}
	if after := b.snapshot(t); after != before {
		t.Fatalf("the books were %s, and are %s", before, after)
	}
	for code, id := range b.accounts {
		balance := must[ledger.Balance](t)(b.Balance(t.Context(), id))
		if !balance.Posted.Equal(b.balance[code].decimal()) {
			t.Fatalf("%s ends at %s, expected %s", code, balance.Posted, b.balance[code].decimal())
		}
	}
}

// snapshot is a text that changes when the books do. Their balances must sum to zero.
func (b *berkaBooks) snapshot(t *testing.T) (text string) {
	t.Helper()
	var sum string
	ok(t, b.pool.QueryRow(t.Context(), `select sum(balance)::text, format('%s transfers, balances %s', (select count(*) from ledger.transfer),
		md5(string_agg(format('%s %s %s', no, version, balance), ',' order by no))) from ledger.balance`).Scan(&sum, &text))
	if !dec(sum).IsZero() {
		t.Fatalf("balances sum to %s", sum)
	}
	return text
}

// verifyBerka fails the test if Verify finds anything.
func verifyBerka(t testing.TB, books *ledger.Ledger) {
	t.Helper()
	for problem, err := range books.Verify(t.Context(), ledger.VerifyOptions{}) {
		ok(t, err)
		t.Errorf("%+v", problem)
	}
}
