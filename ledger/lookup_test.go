package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/ledger"
)

func TestAccountLookup(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	ok(t, books.CreateAsset(ctx, "JPY", 0))
	id := openWith(t, books, ledger.AccountParams{Name: `The "till"`, Code: "a:b", Asset: "JPY", NormalSide: ledger.Credit, Min: limit("-5"), Metadata: []byte(`{"x": 1}`)})
	got := must[ledger.Account](t)(books.Account(ctx, id))
	if got.ID != id || got.Name != `The "till"` || got.Code != "a:b" || got.Asset != "JPY" || got.Decimals != 0 || got.NormalSide != ledger.Credit ||
		!got.Min.Valid || !got.Min.Decimal.Equal(dec("-5")) || got.Max.Valid || string(got.Metadata) != `{"x": 1}` ||
		time.Since(got.CreatedAt).Abs() > time.Hour || !got.ClosedAt.IsZero() || got.Balance.Version != 0 || !got.Balance.Posted.IsZero() || got.Balance.NormalSide != ledger.Credit {
		t.Errorf("%+v", got)
	}
	ok(t, books.CloseAccount(ctx, id))
	if got := must[ledger.Account](t)(books.AccountByCode(ctx, "a:b")); got.ID != id || got.ClosedAt.IsZero() {
		t.Errorf("closed, by its code: %+v", got)
	}
	for what, call := range map[string]func() (ledger.Account, error){
		"id":          func() (ledger.Account, error) { return books.Account(ctx, ledger.NewAccountID()) },
		"zero id":     func() (ledger.Account, error) { return books.Account(ctx, ledger.AccountID{}) },
		"code":        func() (ledger.Account, error) { return books.AccountByCode(ctx, "a") },
		"empty code":  func() (ledger.Account, error) { return books.AccountByCode(ctx, "") },
		"pattern":     func() (ledger.Account, error) { return books.AccountByCode(ctx, "a%") },
		"other cases": func() (ledger.Account, error) { return books.AccountByCode(ctx, "A:B") },
	} {
		var refusal *ledger.Error
		if _, err := call(); !errors.Is(err, ledger.ErrAccountNotFound) || !errors.As(err, &refusal) || refusal.Hint == "" || refusal.Index != -1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAccountsFiltered(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	ok(t, books.CreateAsset(ctx, "USD", 2))
	codes := map[ledger.AccountID]string{}
	for code, asset := range map[string]string{"assets": "EUR", "assets:cash": "USD", "assets:cash:eur": "EUR", "assetsheet": "EUR", "a_b:x": "EUR", "aXb:x": "EUR", "": "USD"} {
		id := openWith(t, books, ledger.AccountParams{Name: "n" + code, Code: code, Asset: asset, Metadata: []byte(`{"code": "` + code + `"}`)})
		codes[id] = code
	}
	ok(t, books.CloseAccount(ctx, must[ledger.Account](t)(books.AccountByCode(ctx, "assetsheet")).ID))
	for _, c := range []struct {
		filter ledger.AccountFilter
		want   []string
	}{
		{ledger.AccountFilter{}, []string{"", "a_b:x", "aXb:x", "assets", "assets:cash", "assets:cash:eur", "assetsheet"}},
		{ledger.AccountFilter{Prefix: "assets"}, []string{"assets", "assets:cash", "assets:cash:eur"}},
		{ledger.AccountFilter{Prefix: "assets:cash"}, []string{"assets:cash", "assets:cash:eur"}},
		{ledger.AccountFilter{Prefix: "a_b"}, []string{"a_b:x"}},
		{ledger.AccountFilter{Asset: "USD"}, []string{"", "assets:cash"}},
		{ledger.AccountFilter{Open: true, Prefix: "assetsheet"}, nil},
		{ledger.AccountFilter{Metadata: []byte(`{"code": "assets"}`)}, []string{"assets"}},
	} {
		var got []string
		var last ledger.AccountID
		for a, err := range books.Accounts(ctx, c.filter) {
			ok(t, err)
			if codes[a.ID] != a.Code || a.ID.String() <= last.String() {
				t.Errorf("%s after %s has the code %q", a.ID, last, a.Code)
			}
			got, last = append(got, a.Code), a.ID
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, not %q", c.filter, got, c.want)
		}
	}
	for _, err := range books.Accounts(ctx, ledger.AccountFilter{Metadata: []byte("no")}) {
		if !errors.Is(err, ledger.ErrInvalid) {
			t.Error(err)
		}
	}
}

func TestAccountsOfManyPages(t *testing.T) {
	books, _ := installed(t)
	var want []ledger.AccountID
	for range 200 {
		want = append(want, openWith(t, books, ledger.AccountParams{Name: "x", Asset: "EUR"}))
	}
	var got []ledger.AccountID
	for a, err := range books.Accounts(t.Context(), ledger.AccountFilter{}) {
		ok(t, err)
		got = append(got, a.ID)
	}
	slices.SortFunc(want, func(x, y ledger.AccountID) int { return slices.Compare(x[:], y[:]) })
	if !slices.Equal(got, want) {
		t.Errorf("%d accounts of %d, or in another order", len(got), len(want))
	}
}

func TestTransferLookup(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	a, b := open(t, books, "a"), open(t, books, "b")
	happened := time.Date(2001, 2, 3, 4, 5, 6, 789000, time.UTC)
	p := must[ledger.Posted](t)(books.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("1.5"), EventAt: happened, Metadata: []byte(`[1]`)}))
	back := must[ledger.Posted](t)(books.ReverseTransfer(ctx, p.ID, ledger.ReverseTransferParams{}))
	got := must[ledger.Transfer](t)(books.GetTransfer(ctx, p.ID))
	if got.ID != p.ID || got.From != a || got.To != b || got.Asset != "EUR" || !got.Amount.Equal(dec("1.5")) || got.FromVersion != 1 || got.ToVersion != 1 ||
		!got.FromBalance.Equal(dec("-1.5")) || !got.ToBalance.Equal(dec("1.5")) || !got.CreatedAt.Equal(p.CreatedAt) || !got.EventAt.Equal(happened) ||
		string(got.Metadata) != "[1]" || !got.Reverses.IsZero() || got.ReversedBy != back.ID || !got.Hold.IsZero() {
		t.Errorf("%+v", got)
	}
	got = must[ledger.Transfer](t)(books.GetTransfer(ctx, back.ID))
	if got.From != b || got.To != a || got.Reverses != p.ID || !got.ReversedBy.IsZero() || !got.EventAt.IsZero() || got.Metadata != nil {
		t.Errorf("its reversal: %+v", got)
	}
}

func TestJournalLookup(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	a, b := open(t, books, "a"), open(t, books, "b")
	happened := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	j := must[ledger.JournalPosted](t)(books.PostJournal(ctx, ledger.JournalParams{Description: "why", EventAt: happened, Metadata: []byte(`{"k": "v"}`),
		Postings: []ledger.Posting{{Account: b, Amount: dec("-2")}, {Account: a, Amount: dec("5")}, {Account: b, Amount: dec("-3")}}}))
	back := must[ledger.JournalPosted](t)(books.ReverseJournal(ctx, j.ID, ledger.ReverseJournalParams{}))
	got := must[ledger.Journal](t)(books.GetJournal(ctx, j.ID))
	if got.ID != j.ID || got.Description != "why" || !got.CreatedAt.Equal(j.CreatedAt) || !got.EventAt.Equal(happened) || string(got.Metadata) != `{"k": "v"}` ||
		!got.Reverses.IsZero() || got.ReversedBy != back.ID || len(got.Entries) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct {
		account ledger.AccountID
		amount  string
		version int64
		balance string
	}{{b, "-2", 1, "-2"}, {a, "5", 1, "5"}, {b, "-3", 2, "-5"}} {
		e := got.Entries[i]
		if e.Account != want.account || !e.Amount.Equal(dec(want.amount)) || e.Version != want.version || !e.Balance.Equal(dec(want.balance)) || e.Leg != i+1 || e.Kind != "journal" || e.Description != "why" {
			t.Errorf("leg %d is %+v", i+1, e)
		}
	}
	got = must[ledger.Journal](t)(books.GetJournal(ctx, back.ID))
	if got.Reverses != j.ID || !got.ReversedBy.IsZero() || !got.EventAt.IsZero() || got.Description != "" || got.Metadata != nil {
		t.Errorf("its reversal: %+v", got)
	}
}

func TestHoldLookup(t *testing.T) {
	books, _ := installed(t)
	ctx := t.Context()
	a, b := open(t, books, "a"), open(t, books, "b")
	expires := time.Date(2999, 1, 2, 3, 4, 5, 6000, time.UTC)
	h := must[ledger.Held](t)(books.Hold(ctx, ledger.HoldParams{From: a, To: b, Amount: dec("9"), ExpiresAt: expires, Metadata: []byte("2")}))
	got := must[ledger.Hold](t)(books.GetHold(ctx, h.ID))
	if got.ID != h.ID || got.From != a || got.To != b || got.Asset != "EUR" || !got.Amount.Equal(dec("9")) || got.State != ledger.HoldOpen || got.PostedAmount.Valid ||
		!got.Transfer.IsZero() || !got.CreatedAt.Equal(h.CreatedAt) || !got.ExpiresAt.Equal(expires) || !got.SettledAt.IsZero() || !got.EventAt.IsZero() || string(got.Metadata) != "2" {
		t.Errorf("%+v", got)
	}
	p := must[ledger.Posted](t)(books.PostHold(ctx, h.ID, ledger.PostParams{Amount: limit("4")}))
	got = must[ledger.Hold](t)(books.GetHold(ctx, h.ID))
	if got.State != ledger.HoldPosted || !got.PostedAmount.Valid || !got.PostedAmount.Decimal.Equal(dec("4")) || got.Transfer != p.ID || !got.SettledAt.Equal(p.CreatedAt) {
		t.Errorf("posted: %+v", got)
	}
	if booked := must[ledger.Transfer](t)(books.GetTransfer(ctx, p.ID)); booked.Hold != h.ID {
		t.Errorf("the transfer that posted it: %+v", booked)
	}
}

func TestLookupOfWhatIsNotThere(t *testing.T) {
	_, pool := installed(t)
	ctx := t.Context()
	tx, err := pool.Begin(ctx)
	ok(t, err)
	defer tx.Rollback(context.WithoutCancel(ctx))
	books := ledger.New(tx)
	for what, c := range map[string]struct {
		call func() error
		want error
	}{
		"transfer":      {func() error { _, err := books.GetTransfer(ctx, ledger.NewTransferID()); return err }, ledger.ErrNotFound},
		"zero transfer": {func() error { _, err := books.GetTransfer(ctx, ledger.TransferID{}); return err }, ledger.ErrNotFound},
		"journal":       {func() error { _, err := books.GetJournal(ctx, ledger.NewJournalID()); return err }, ledger.ErrNotFound},
		"hold":          {func() error { _, err := books.GetHold(ctx, ledger.NewHoldID()); return err }, ledger.ErrHoldNotFound},
	} {
		var refusal *ledger.Error
		if err := c.call(); !errors.Is(err, c.want) || !errors.As(err, &refusal) || refusal.Hint == "" || refusal.Index != -1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	open(t, books, "a") // the transaction goes on
}

// Every call reads the same in all ways in which pgx can send it, and leaves no setting behind.
func TestReadingInEveryQueryMode(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "x:a"), open(t, books, "x:b")
	p := must[ledger.Posted](t)(books.Transfer(t.Context(), ledger.TransferParams{From: a, To: b, Amount: dec("1.5"), EventAt: time.Now().Add(-time.Hour), Metadata: []byte(`{"k": 1}`)}))
	j := must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), ledger.JournalParams{Postings: []ledger.Posting{{Account: a, Amount: dec("1")}, {Account: b, Amount: dec("-1")}}}))
	h := must[ledger.Held](t)(books.Hold(t.Context(), ledger.HoldParams{From: a, To: b, Amount: dec("0.25")}))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			config := pool.Config().ConnConfig
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			ok(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			pgtxtest.AssertSessionUnchanged(t, conn, func() { readEverything(t, ledger.New(conn), a, b, p, j, h) })
			tx, err := conn.Begin(t.Context())
			ok(t, err)
			pgtxtest.AssertSessionUnchanged(t, conn, func() { readEverything(t, ledger.New(tx), a, b, p, j, h) })
			ok(t, tx.Commit(t.Context()))
		})
	}
}

func readEverything(t *testing.T, books *ledger.Ledger, a, b ledger.AccountID, p ledger.Posted, j ledger.JournalPosted, h ledger.Held) {
	t.Helper()
	ctx := t.Context()
	stands := dec("0.5")
	check := func(what string, got decimal.Decimal) {
		t.Helper()
		if !got.Equal(stands) {
			t.Errorf("%s is %s, not %s", what, got, stands)
		}
	}
	check("balance", must[ledger.Balance](t)(books.Balance(ctx, b)).Posted)
	check("by code", must[ledger.Account](t)(books.AccountByCode(ctx, "x:b")).Balance.Posted)
	check("at a time", must[decimal.Decimal](t)(books.BalanceAt(ctx, b, j.CreatedAt, ledger.ByBooking)))
	check("at an event time", must[decimal.Decimal](t)(books.BalanceAt(ctx, b, j.CreatedAt, ledger.ByEvent)))
	check("after a version", must[decimal.Decimal](t)(books.BalanceAfter(ctx, b, 2)))
	check("after a transfer", must[decimal.Decimal](t)(books.BalanceAfterTransfer(ctx, b, p.ID)).Sub(dec("1")))
	check("after a journal entry", must[decimal.Decimal](t)(books.BalanceAfterJournal(ctx, b, j.ID)))
	check("transfer", must[ledger.Transfer](t)(books.GetTransfer(ctx, p.ID)).ToBalance.Sub(dec("1")))
	check("journal entry", must[ledger.Journal](t)(books.GetJournal(ctx, j.ID)).Entries[1].Balance)
	check("hold", must[ledger.Hold](t)(books.GetHold(ctx, h.ID)).Amount.Mul(dec("2")))
	for _, by := range []ledger.Clock{ledger.ByBooking, ledger.ByEvent} {
		check("statement", must[*ledger.Statement](t)(books.Statement(ctx, b, p.CreatedAt.Add(-2*time.Hour), time.Time{}, by)).Closing)
		check("trial balance", must[*ledger.TrialBalance](t)(books.TrialBalance(ctx, j.CreatedAt, by)).Totals[0].Credit)
		check("roll-up", must[[]ledger.RollUpLine](t)(books.RollUp(ctx, ledger.RollUpParams{Prefix: "x", Depth: 1, By: by}))[2].Balance)
	}
	count := 0
	for e, err := range books.Entries(ctx, b, ledger.EntryFilter{From: p.CreatedAt, To: j.CreatedAt, Counterparty: a, Metadata: []byte(`{"k": 1}`)}) {
		ok(t, err)
		count++
		check("entry", e.Balance.Sub(dec("1")))
	}
	for acc, err := range books.Accounts(ctx, ledger.AccountFilter{Prefix: "x:b", Asset: "EUR", Open: true}) {
		ok(t, err)
		count++
		check("account", acc.Balance.Posted)
	}
	if count != 2 {
		t.Errorf("%d rows", count)
	}
	if text := export(t, books, ledger.ExportOptions{From: j.CreatedAt}); text == "" {
		t.Error("nothing exported")
	}
}
