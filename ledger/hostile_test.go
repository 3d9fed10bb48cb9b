package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// refusedAs fails unless err is a refusal of this kind that says something.
func refusedAs(t *testing.T, err, kind error) *ledger.Error {
	t.Helper()
	var e *ledger.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) || e.Message == "" {
		t.Fatalf("%v; wanted: %v", err, kind)
	}
	return e
}

var hostileTexts = []string{
	`o'clock "quoted" \ back\\slash`, `'; drop schema ledger cascade; --`, `$1 $$ %s %L {} ${x}`, "🏦 ключ \u202etxet", `\u0000 \x00`, "NULL", "{a,b}", `"`,
	strings.Repeat("long ", 200_000),
}

func TestHostileTextsComeBackAsTheyWere(t *testing.T) {
	books, pool := installed(t)
	conn := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
	defer conn.Release()
	for i, text := range hostileTexts {
		text = strings.TrimSpace(text)
		metadata := must[[]byte](t)(json.Marshal(map[string]string{text: text + "\n\t"}))
		code := fmt.Sprint(i, ":", strings.ReplaceAll(text, ":", ";")[:min(len(text), 40)])
		code = strings.TrimSpace(strings.ToValidUTF8(code, ""))
		id := openWith(t, books, ledger.AccountParams{Name: text, Code: code, Asset: "EUR", Metadata: metadata})
		other := open(t, books, fmt.Sprint("other", i))
		a := must[ledger.Account](t)(books.AccountByCode(t.Context(), code))
		if a.ID != id || a.Name != text || a.Code != code || !sameText(t, a.Metadata, metadata) {
			t.Errorf("account came back as %.200q %.200q %.200q", a.Name, a.Code, a.Metadata)
		}
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			db := withMode{conn.Conn(), mode}
			p := must[ledger.Posted](t)(ledger.New(db).Transfer(t.Context(), ledger.TransferParams{From: id, To: other, Amount: dec("1"), Metadata: metadata}))
			both := must[[]ledger.Posted](t)(ledger.New(db).Transfers(t.Context(), []ledger.TransferParams{
				{From: id, To: other, Amount: dec("1"), Metadata: metadata}, {From: id, To: other, Amount: dec("1")}, {From: id, To: other, Amount: dec("1"), Metadata: metadata}}))
			for _, posted := range []ledger.TransferID{p.ID, both[0].ID, both[2].ID} {
				if got := must[ledger.Transfer](t)(books.GetTransfer(t.Context(), posted)); !sameText(t, got.Metadata, metadata) {
					t.Errorf("metadata came back in mode %v as %.200q", mode, got.Metadata)
				}
			}
			if got := must[ledger.Transfer](t)(books.GetTransfer(t.Context(), both[1].ID)); got.Metadata != nil {
				t.Errorf("no metadata came back in mode %v as %.200q", mode, got.Metadata)
			}
		}
		j := must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), ledger.JournalParams{Description: text + "\n", Metadata: metadata,
			Postings: []ledger.Posting{{Account: id, Amount: dec("1")}, {Account: other, Amount: dec("-1")}}}))
		if got := must[ledger.Journal](t)(books.GetJournal(t.Context(), j.ID)); got.Description != text+"\n" || !sameText(t, got.Metadata, metadata) {
			t.Errorf("journal entry came back as %.200q %.200q", got.Description, got.Metadata)
		}
	}
	whole(t, books)
}

// withMode is a connection that uses one way of sending statements.
type withMode struct {
	*pgx.Conn
	mode pgx.QueryExecMode
}

func (c withMode) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.Conn.Query(ctx, sql, append([]any{c.mode}, args...)...)
}

func (c withMode) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.Conn.QueryRow(ctx, sql, append([]any{c.mode}, args...)...)
}

func (c withMode) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return c.Conn.Exec(ctx, sql, append([]any{c.mode}, args...)...)
}

func sameText(t *testing.T, x, y []byte) bool {
	t.Helper()
	var a, b map[string]string
	ok(t, json.Unmarshal(x, &a))
	ok(t, json.Unmarshal(y, &b))
	return fmt.Sprint(a) == fmt.Sprint(b)
}

func TestUnusableTextsAreRefused(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	accounts := map[string]ledger.AccountParams{
		"blank name": {Name: " \t ", Asset: "EUR"}, "no name": {Asset: "EUR"}, "newline in name": {Name: "a\nb", Asset: "EUR"},
		"NUL in name": {Name: "a\x00b", Asset: "EUR"}, "broken UTF-8": {Name: "a\xff", Asset: "EUR"}, "side": {Name: "a", Asset: "EUR", NormalSide: "left"},
		"NUL in code": {Name: "a", Code: "a\x00b", Asset: "EUR"}, "NUL in metadata": {Name: "a", Asset: "EUR", Metadata: []byte(`"\u0000"`)},
		"code longer than an index holds": {Name: "a", Code: randomDigits(100_000), Asset: "EUR"},
		"limits crossed":                  {Name: "a", Asset: "EUR", Min: limit("1"), Max: limit("0.99")},
		"limit with three decimals":       {Name: "a", Asset: "EUR", Min: limit("0.001")}, "limit too large": {Name: "a", Asset: "EUR", Max: limit("1e60")},
	}
	for _, code := range []string{":", "a:", ":a", "a::b", " a", "a ", "a: b", "a :b", "a\tb", "a:b\n", "a\u0001"} {
		accounts[fmt.Sprintf("code %q", code)] = ledger.AccountParams{Name: "a", Code: code, Asset: "EUR"}
	}
	for name, p := range accounts {
		t.Run(name, func(t *testing.T) {
			_, err := books.OpenAccount(t.Context(), p)
			refusedAs(t, err, ledger.ErrInvalid)
		})
	}
	for _, code := range []string{"", "A B", `A"`, "A\n", "\x00", strings.Repeat("A", 65), "A\xff"} {
		refusedAs(t, books.CreateAsset(t.Context(), code, 2), ledger.ErrInvalid)
	}
	refusedAs(t, books.CreateAsset(t.Context(), "X", -1), ledger.ErrInvalid)
	refusedAs(t, books.CreateAsset(t.Context(), "X", 31), ledger.ErrInvalid)
	refusedAs(t, books.CreateAsset(t.Context(), "EUR", 3), ledger.ErrTaken)
	_, err := books.OpenAccount(t.Context(), ledger.AccountParams{Name: "a", Asset: "eur"})
	refusedAs(t, err, ledger.ErrAssetNotFound)
	_, err = books.OpenAccount(t.Context(), ledger.AccountParams{Name: "a second a", Code: "a", Asset: "EUR"})
	refusedAs(t, err, ledger.ErrTaken)
	refusedAs(t, books.UpdateAccount(t.Context(), b, "b", "a", nil), ledger.ErrTaken)

	metadata := map[string]string{
		"not JSON": `{"a":`, "white space": "  ", "two values": `1 2`, "NUL escape": `{"a":"\u0000"}`, "half a surrogate pair": `"\ud800"`, "broken UTF-8": "\"\xff\"",
		"number out of range": `1e999999`, "NUL": "\"\x00\"",
	}
	for name, m := range metadata {
		t.Run(name, func(t *testing.T) {
			p := ledger.TransferParams{From: a, To: b, Amount: dec("1"), Metadata: json.RawMessage(m)}
			_, err := books.Transfer(t.Context(), p)
			refusedAs(t, err, ledger.ErrInvalid)
			_, err = books.Transfers(t.Context(), []ledger.TransferParams{{From: a, To: b, Amount: dec("1")}, p})
			refusedAs(t, err, ledger.ErrInvalid)
			_, _, err = books.TransferEach(t.Context(), []ledger.TransferParams{p, {From: a, To: b, Amount: dec("1")}})
			refusedAs(t, err, ledger.ErrInvalid)
			_, err = books.Hold(t.Context(), ledger.HoldParams{From: a, To: b, Amount: dec("1"), Metadata: json.RawMessage(m)})
			refusedAs(t, err, ledger.ErrInvalid)
		})
	}
	if got := must[ledger.Balance](t)(books.Balance(t.Context(), a)); got.Version != 0 || !got.HeldOut.IsZero() {
		t.Fatalf("something was booked: %+v", got)
	}
	whole(t, books)
}

// randomDigits can't be compressed to what an index row holds.
func randomDigits(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[r.IntN(36)]
	}
	return string(b)
}

func TestJSONNullIsMetadata(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	p := ledger.TransferParams{ID: ledger.NewTransferID(), From: a, To: b, Amount: dec("1"), Metadata: json.RawMessage("null")}
	must[ledger.Posted](t)(books.Transfer(t.Context(), p))
	if got := must[ledger.Transfer](t)(books.GetTransfer(t.Context(), p.ID)); string(got.Metadata) != "null" {
		t.Errorf("metadata %q", got.Metadata)
	}
	if again := must[ledger.Posted](t)(books.Transfer(t.Context(), p)); !again.Replayed {
		t.Errorf("%+v", again)
	}
	p.Metadata = nil
	_, err := books.Transfer(t.Context(), p)
	refusedAs(t, err, ledger.ErrIDReused)
}

func TestAmountsAtTheEdge(t *testing.T) {
	books, pool := installed(t)
	ok(t, books.CreateAsset(t.Context(), "ATTO", 30))
	a, b := open(t, books, "a"), open(t, books, "b")
	x, y := openWith(t, books, ledger.AccountParams{Name: "x", Asset: "ATTO"}), openWith(t, books, ledger.AccountParams{Name: "y", Asset: "ATTO"})
	nines := strings.Repeat("9", 60)
	for i, amount := range []struct {
		in       decimal.Decimal
		stored   string // empty where it is refused
		from, to ledger.AccountID
	}{
		{dec("0.01"), "0.01", a, b}, {dec("1.500"), "1.50", a, b}, {dec("1." + strings.Repeat("0", 900)), "1.00", a, b}, {dec("100e-2"), "1.00", a, b},
		{dec("1e30"), "1" + strings.Repeat("0", 30) + ".00", a, b}, {dec("1e59"), "1" + strings.Repeat("0", 59) + ".00", a, b},
		{dec(nines + ".99"), nines + ".99", a, b}, {dec("1e-30"), "0." + strings.Repeat("0", 29) + "1", x, y},
		{dec(nines + "." + nines[:30]), nines + "." + nines[:30], x, y},
		{dec("0.001"), "", a, b}, {dec("1.501"), "", a, b}, {dec("1e60"), "", a, b}, {dec("1e61"), "", a, b}, {dec("1e-31"), "", x, y},
		{decimal.New(1, 999_999_999), "", a, b}, {decimal.New(-1, 999_999_999), "", a, b}, {decimal.New(0, 999_999_999), "", a, b}, {decimal.New(1, -999_999_999), "", a, b},
		{decimal.New(1, math.MaxInt32), "", a, b}, {decimal.New(1, math.MinInt32), "", a, b},
		{decimal.Decimal{}, "", a, b}, {dec("0.00"), "", a, b}, {dec("-1"), "", a, b}, {dec("-0.01"), "", a, b},
	} {
		d := amount.in
		calls := map[string]func() (ledger.TransferID, error){
			"Transfer": func() (ledger.TransferID, error) {
				p, err := books.Transfer(t.Context(), ledger.TransferParams{From: amount.from, To: amount.to, Amount: d})
				return p.ID, err
			},
			"TransferAvailable": func() (ledger.TransferID, error) {
				p, err := books.TransferAvailable(t.Context(), ledger.TransferParams{From: amount.from, To: amount.to, Amount: d})
				return p.ID, err
			},
			"Transfers of 1": func() (ledger.TransferID, error) {
				return lastOf(books.Transfers(t.Context(), copies(1, amount.from, amount.to, d)))
			},
			"Transfers of 2": func() (ledger.TransferID, error) {
				return lastOf(books.Transfers(t.Context(), copies(2, amount.from, amount.to, d)))
			},
			"Transfers of 3": func() (ledger.TransferID, error) {
				return lastOf(books.Transfers(t.Context(), copies(3, amount.from, amount.to, d)))
			},
			"Hold": func() (ledger.TransferID, error) {
				h, err := books.Hold(t.Context(), ledger.HoldParams{From: amount.from, To: amount.to, Amount: d})
				if err != nil {
					return ledger.TransferID{}, err
				}
				p, err := books.PostHold(t.Context(), h.ID, ledger.PostParams{})
				return p.ID, err
			},
		}
		for name, call := range calls {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				id, err := call()
				if amount.stored == "" {
					refusedAs(t, err, ledger.ErrAmount)
					return
				}
				ok(t, err)
				var stored string
				ok(t, pool.QueryRow(t.Context(), "select amount::text from ledger.transfer where id = $1", uuid.UUID(id)).Scan(&stored))
				if stored != amount.stored {
					t.Errorf("%.100s was stored as %.100s", amount.stored, stored)
				}
			})
		}
	}
	var odd int
	ok(t, pool.QueryRow(t.Context(), `select count(*) from ledger.balance
		where scale(balance) <> decimals or scale(held_out) > decimals or scale(held_in) > decimals`).Scan(&odd))
	if odd > 0 {
		t.Errorf("%d accounts keep amounts with other decimals than their asset", odd)
	}
	whole(t, books)
}

func copies(n int, from, to ledger.AccountID, amount decimal.Decimal) []ledger.TransferParams {
	batch := make([]ledger.TransferParams, n)
	for i := range batch {
		batch[i] = ledger.TransferParams{From: from, To: to, Amount: amount}
	}
	return batch
}

func lastOf(posted []ledger.Posted, err error) (ledger.TransferID, error) {
	if err != nil {
		return ledger.TransferID{}, err
	}
	return posted[len(posted)-1].ID, nil
}

// TestRefusedBatchLeavesNoTrace has a refusal after which everything must look as before, the number of decimals included.
func TestRefusedBatchLeavesNoTrace(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	look := func() (s string) {
		ok(t, pool.QueryRow(t.Context(), "select string_agg(format('%s %s %s %s', no, version, balance, lowest), '; ' order by no) from ledger.balance").Scan(&s))
		return s
	}
	before := look()
	for _, amount := range []string{"1.001", "-1", "1e60"} {
		_, err := books.Transfers(t.Context(), copies(2, a, b, dec(amount)))
		refusedAs(t, err, ledger.ErrAmount)
		if after := look(); after != before {
			t.Errorf("after %s: %s, before: %s", amount, after, before)
		}
	}
}

func TestBatchesAtTheEdge(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	posted, err := books.Transfers(t.Context(), nil)
	if err != nil || len(posted) != 0 {
		t.Errorf("empty batch: %v %v", posted, err)
	}
	for n := 2; n <= 4; n++ {
		batch := copies(n, a, b, dec("1"))
		batch[0].ID = ledger.NewTransferID()
		batch[n-1].ID = batch[0].ID
		_, err = books.Transfers(t.Context(), batch)
		refusedAs(t, err, ledger.ErrInvalid)
		_, _, err = books.TransferEach(t.Context(), batch)
		refusedAs(t, err, ledger.ErrInvalid)
	}
	if got := must[ledger.Balance](t)(books.Balance(t.Context(), a)); got.Version != 0 {
		t.Errorf("something was booked: %+v", got)
	}
	whole(t, books)
}

// TestReusedIDInBatch: the batch says which transfer it is, and the others of TransferEach are booked.
func TestReusedIDInBatch(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	used := pay(t, books, a, b, "5").ID
	for n := 2; n <= 3; n++ {
		batch := copies(n, a, b, dec("1"))
		batch[1].ID = used
		_, err := books.Transfers(t.Context(), batch)
		if e := refusedAs(t, err, ledger.ErrIDReused); e.Index != 1 {
			t.Errorf("index %d of %v", e.Index, e)
		}
		posted, refused, err := books.TransferEach(t.Context(), batch)
		ok(t, err)
		if e := refusedAs(t, refused[1], ledger.ErrIDReused); e.Index != 1 || e.ID != uuid.UUID(used) {
			t.Errorf("%#v", e)
		}
		if refused[0] != nil || posted[0].ID.IsZero() {
			t.Errorf("its neighbour: %+v, %v", posted[0], refused[0])
		}
	}
	whole(t, books)
}

func TestBatchOf100000(t *testing.T) {
	if testing.Short() {
		t.Skip("books 100,000 transfers")
	}
	const n, accounts = 100_000, 2_000
	books, pool := installed(t)
	_, err := pool.Exec(t.Context(), "select ledger.open_account('account ' || i, 'EUR') from generate_series(1, $1) i", accounts)
	ok(t, err)
	var ids []ledger.AccountID
	for a, err := range books.Accounts(t.Context(), ledger.AccountFilter{}) {
		ok(t, err)
		ids = append(ids, a.ID)
	}
	r := rand.New(rand.NewPCG(3, 4))
	batch := make([]ledger.TransferParams, n)
	for i := range batch {
		from := r.IntN(accounts)
		batch[i] = ledger.TransferParams{ID: ledger.NewTransferID(), From: ids[from], To: ids[(from+1+r.IntN(accounts-1))%accounts], Amount: decimal.New(1+r.Int64N(100_000), -2)}
	}
	posted := must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
	balance, version := map[ledger.AccountID]decimal.Decimal{}, map[ledger.AccountID]int64{}
	for i, p := range posted {
		from, to := batch[i].From, batch[i].To
		balance[from], balance[to] = balance[from].Sub(batch[i].Amount), balance[to].Add(batch[i].Amount)
		version[from]++
		version[to]++
		if p.ID != batch[i].ID || !p.FromBalance.Equal(balance[from]) || !p.ToBalance.Equal(balance[to]) || p.FromVersion != version[from] || p.ToVersion != version[to] {
			t.Fatalf("transfer %d: %+v", i, p)
		}
	}
	whole(t, books)
}

// TestExpiredHoldsDontCount: nobody has given the hold back when it is in the way, on one side or on both at once.
func TestExpiredHoldsDontCount(t *testing.T) {
	books, _ := installed(t)
	calls := map[string]func(from, to ledger.AccountID, held ledger.HoldID) error{
		"Transfer": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			_, err := books.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("10")})
			return err
		},
		"Transfers of 2": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			_, err := books.Transfers(t.Context(), copies(2, from, to, dec("5")))
			return err
		},
		"Transfers of 4": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			_, err := books.Transfers(t.Context(), copies(4, from, to, dec("2.5")))
			return err
		},
		"TransferAvailable": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			_, err := books.TransferAvailable(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("50")})
			return err
		},
		"PostJournal": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			_, err := books.PostJournal(t.Context(), ledger.JournalParams{Postings: []ledger.Posting{{Account: from, Amount: dec("-10")}, {Account: to, Amount: dec("10")}}})
			return err
		},
		"Hold": func(from, to ledger.AccountID, _ ledger.HoldID) error {
			h, err := books.Hold(t.Context(), ledger.HoldParams{From: from, To: to, Amount: dec("10")})
			if err == nil {
				_, err = books.PostHold(t.Context(), h.ID, ledger.PostParams{})
			}
			return err
		},
		"VoidHold": func(from, to ledger.AccountID, held ledger.HoldID) error {
			h, err := books.VoidHold(t.Context(), held)
			if h.State != ledger.HoldExpired {
				t.Errorf("an expired hold is %s", h.State)
			}
			return errors.Join(err, books.CloseAccount(t.Context(), from), books.ReopenAccount(t.Context(), from), func() error {
				_, err := books.Transfer(t.Context(), ledger.TransferParams{From: from, To: to, Amount: dec("10")})
				return err
			}())
		},
	}
	for name, call := range calls {
		for _, between := range [][2]int{{0, 1}, {0, 2}, {2, 1}} {
			t.Run(fmt.Sprint(name, between), func(t *testing.T) {
				bank := openWith(t, books, ledger.AccountParams{Name: "bank", Asset: "EUR"})
				from := openWith(t, books, ledger.AccountParams{Name: "from", Asset: "EUR", Min: limit("0")})
				to := openWith(t, books, ledger.AccountParams{Name: "to", Asset: "EUR", Max: limit("10")})
				pay(t, books, bank, from, "10")
				accounts := []ledger.AccountID{from, to, bank}
				expires := time.Now().Add(100 * time.Millisecond)
				held := must[ledger.Held](t)(books.Hold(t.Context(), ledger.HoldParams{From: accounts[between[0]], To: accounts[between[1]], Amount: dec("6"), ExpiresAt: expires}))
				time.Sleep(time.Until(expires.Add(time.Millisecond)))
				ok(t, call(from, to, held.ID))
				if got := must[ledger.Balance](t)(books.Balance(t.Context(), to)); !got.Posted.Equal(dec("10")) {
					t.Errorf("10 were possible: %+v", got)
				}
			})
		}
	}
	whole(t, books)
}

func TestCancelledContextBooksNothing(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := books.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("1")})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err = books.Transfers(ctx, copies(3, a, b, dec("1"))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := must[ledger.Balance](t)(books.Balance(t.Context(), a)); got.Version != 0 {
		t.Errorf("%+v", got)
	}
	pay(t, books, a, b, "1")
}

func TestZeroIDsNameNothing(t *testing.T) {
	books, _ := installed(t)
	a := open(t, books, "a")
	none := ledger.AccountID{}
	_, err := books.Transfer(t.Context(), ledger.TransferParams{To: a, Amount: dec("1")})
	refusedAs(t, err, ledger.ErrAccountNotFound)
	for n := 1; n <= 3; n++ {
		_, err = books.Transfers(t.Context(), copies(n, a, none, dec("1")))
		refusedAs(t, err, ledger.ErrAccountNotFound)
	}
	_, err = books.Hold(t.Context(), ledger.HoldParams{From: a, Amount: dec("1")})
	refusedAs(t, err, ledger.ErrAccountNotFound)
	_, err = books.PostJournal(t.Context(), ledger.JournalParams{Postings: []ledger.Posting{{Account: a, Amount: dec("1")}, {Amount: dec("-1")}}})
	refusedAs(t, err, ledger.ErrAccountNotFound)
	_, err = books.PostHold(t.Context(), ledger.HoldID{}, ledger.PostParams{})
	refusedAs(t, err, ledger.ErrHoldNotFound)
	_, err = books.VoidHold(t.Context(), ledger.HoldID{})
	refusedAs(t, err, ledger.ErrHoldNotFound)
	_, err = books.ReverseTransfer(t.Context(), ledger.TransferID{}, ledger.ReverseTransferParams{})
	refusedAs(t, err, ledger.ErrNotFound)
	_, err = books.ReverseJournal(t.Context(), ledger.JournalID{}, ledger.ReverseJournalParams{})
	refusedAs(t, err, ledger.ErrNotFound)
	refusedAs(t, books.CloseAccount(t.Context(), none), ledger.ErrAccountNotFound)
	refusedAs(t, books.SetLimits(t.Context(), none, decimal.NullDecimal{}, decimal.NullDecimal{}), ledger.ErrAccountNotFound)
	whole(t, books)
}

// TestRetryWithOtherContent changes one thing at a time about a request that was booked.
func TestRetryWithOtherContent(t *testing.T) {
	books, _ := installed(t)
	a, b, c := open(t, books, "a"), open(t, books, "b"), open(t, books, "c")
	first := ledger.TransferParams{ID: ledger.NewTransferID(), From: a, To: b, Amount: dec("2"), EventAt: day(1), Metadata: json.RawMessage(`{"k":1}`)}
	done := must[ledger.Posted](t)(books.Transfer(t.Context(), first))
	others := make([]ledger.TransferParams, 6)
	for i, change := range []func(p *ledger.TransferParams){
		func(p *ledger.TransferParams) { p.From = c }, func(p *ledger.TransferParams) { p.To = c }, func(p *ledger.TransferParams) { p.Amount = dec("2.01") },
		func(p *ledger.TransferParams) { p.EventAt = day(2) }, func(p *ledger.TransferParams) { p.Metadata = nil }, func(p *ledger.TransferParams) { p.From, p.To = b, a },
	} {
		others[i] = first
		change(&others[i])
	}
	first.Metadata, first.Amount = json.RawMessage(` {"k" : 1} `), dec("2.000") // the same to the database
	for name, call := range map[string]func(ledger.TransferParams) (ledger.Posted, error){
		"Transfer":   func(p ledger.TransferParams) (ledger.Posted, error) { return books.Transfer(t.Context(), p) },
		"TransferIf": func(p ledger.TransferParams) (ledger.Posted, error) { return books.TransferIf(t.Context(), p, 0, 0) },
		"Transfers": func(p ledger.TransferParams) (ledger.Posted, error) {
			posted, err := books.Transfers(t.Context(), []ledger.TransferParams{p})
			return append(posted, ledger.Posted{})[0], err
		},
		"Transfers of 2": func(p ledger.TransferParams) (ledger.Posted, error) {
			posted, err := books.Transfers(t.Context(), []ledger.TransferParams{p, {From: a, To: c, Amount: dec("1")}})
			return append(posted, ledger.Posted{})[0], err
		},
	} {
		for i, p := range others {
			if _, err := call(p); !errors.Is(err, ledger.ErrIDReused) {
				t.Errorf("%s, change %d: %v", name, i, err)
			}
		}
		again := must[ledger.Posted](t)(call(first))
		if !again.Replayed || again.FromVersion != done.FromVersion || !again.ToBalance.Equal(done.ToBalance) || !again.CreatedAt.Equal(done.CreatedAt) {
			t.Errorf("%s again: %+v", name, again)
		}
	}
	whole(t, books)
}
