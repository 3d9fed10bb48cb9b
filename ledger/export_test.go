package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// oddBooks has everything that a text format could trip over: names, codes, assets, metadata, descriptions, a batch whose ids are in
// the opposite order of its booking, event times before the accounts existed.
func oddBooks(t *testing.T) *ledger.Ledger {
	t.Helper()
	books, _ := installed(t)
	for code, decimals := range map[string]int{"JPY": 0, "€": 2, "X-1": 3, "1INCH": 18, "a;b": 1, "a_b": 1, "x": 2, "eur": 2, "pt'": 30, "A-VERY-LONG-CODE-OF-SOME-TOKEN-1": 2} {
		ok(t, books.CreateAsset(t.Context(), code, decimals))
		from := openWith(t, books, ledger.AccountParams{Name: "from " + code, Code: "equity:" + strings.ReplaceAll(code, ":", ""), Asset: code, NormalSide: ledger.Credit})
		to := openWith(t, books, ledger.AccountParams{Name: "to, type:Q " + code, Asset: code})
		pay(t, books, from, to, "7")
	}
	codes := []string{"assets:cash", "Assets:Cash", "assets:petty  cash", "assets:petty _cash", "assets:petty cash", "(virtual)", "[balanced]:x", "1000 cash:2 euro",
		"; comment", "* star", `he said "hi"`, "наличные:касса", "現金", "a:-b", "cash = 5", "@home", "expenses", "Revenue:Sales", "uncoded:acct_x", "assets:cash:eur", "%25:~", "assets:\u00a0nbsp"}
	var accounts []ledger.AccountID
	for i, code := range codes {
		side := ledger.Debit
		if i%3 == 0 {
			side = ledger.Credit
		}
		accounts = append(accounts, openWith(t, books, ledger.AccountParams{Name: `"` + code + `", \ 100% type:A`, Code: code, Asset: "EUR", NormalSide: side}))
	}
	accounts = append(accounts, openWith(t, books, ledger.AccountParams{Name: "no code", Asset: "EUR"}))
	for i := range accounts[1:] {
		p := ledger.TransferParams{From: accounts[0], To: accounts[i+1], Amount: dec("10.5"), Metadata: []byte(`{"invoice": 42, "note": "a, b: c; d \"q\" \\ \n date:2020-99-99 [2024-01-99] %41", "date": "x", "type": "Q",
			"Odd Key": [1, {"z": "<&>"}], "filename": "f", "ok_key": " spaced "}`)}
		switch i % 3 {
		case 1:
			p.EventAt, p.Metadata = time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC), []byte(`["not", "an object"]`)
		case 2:
			p.Metadata = []byte(`{"date2": "2020-99-99", "empty": "", "nothing": null}`)
		}
		must[ledger.Posted](t)(books.Transfer(t.Context(), p))
	}
	// The order of ids is not the order of booking.
	var batch []ledger.TransferParams
	for i := range 40 {
		id := ledger.TransferID{0: byte(200 - i), 6: 0x70, 8: 0x80, 15: 1}
		batch = append(batch, ledger.TransferParams{ID: id, From: accounts[i%5], To: accounts[(i+1)%5], Amount: decimal.NewFromInt(int64(i + 1))})
	}
	must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
	must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), ledger.JournalParams{
		Description: `(code) * = "quoted" ; comment | note` + "\n\t2024-01-01 second line\\",
		Postings:    []ledger.Posting{{Account: accounts[1], Amount: dec("3")}, {Account: accounts[2], Amount: dec("-2")}, {Account: accounts[1], Amount: dec("-1")}},
		EventAt:     time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC), Metadata: []byte(`"text"`),
	}))
	return books
}

func export(t *testing.T, books *ledger.Ledger, o ledger.ExportOptions) string {
	t.Helper()
	var text bytes.Buffer
	ok(t, books.Export(t.Context(), &text, o))
	return text.String()
}

// accepted runs a checker on an exported text where it is installed.
func accepted(t *testing.T, text string, command ...string) {
	t.Helper()
	program, err := exec.LookPath(command[0])
	if err != nil {
		t.Logf("%s is not installed: only this test's own checks were made", command[0])
		return
	}
	file := filepath.Join(t.TempDir(), "books")
	ok(t, os.WriteFile(file, []byte(text), 0o600))
	run := exec.CommandContext(t.Context(), program, append(command[1:], file)...)
	run.Env = append(os.Environ(), "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	if said, err := run.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, said)
	}
}

func hledgerAccepts(t *testing.T, text string) {
	t.Helper()
	accepted(t, text, "hledger", "check", "--strict", "ordereddates", "-f")
}

var hledgerPosting = regexp.MustCompile(`^    (\S(?:[^\s]| [^\s])*)  (-?[\d.]+) (\S+) = (-?[\d.]+) (\S+)$`)

// replayHLedger checks what an accounting program would: everything used is declared, once; each transaction sums to zero; each assertion holds
// in the order of the text; dates rise. It returns where the accounts end.
func replayHLedger(t *testing.T, text string) map[string]decimal.Decimal {
	t.Helper()
	accounts, symbols := map[string]bool{}, map[string]bool{}
	stands := map[string]decimal.Decimal{}
	lastDate := ""
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		sums, transaction := map[string]decimal.Decimal{}, false
		for _, line := range strings.Split(paragraph, "\n") {
			switch {
			case strings.HasPrefix(line, ";"), strings.HasPrefix(line, "    ;"), line == "decimal-mark .":
			case strings.HasPrefix(line, "commodity "):
				symbol := strings.Fields(line)[2]
				if symbols[symbol] {
					t.Errorf("%s is declared twice", symbol)
				}
				symbols[symbol] = true
			case strings.HasPrefix(line, "account "):
				name, _, _ := strings.Cut(strings.TrimPrefix(line, "account "), "  ")
				if accounts[name] {
					t.Errorf("account %q is declared twice", name)
				}
				accounts[name] = true
			case transaction:
				part := hledgerPosting.FindStringSubmatch(line)
				if part == nil {
					t.Fatalf("not a posting: %q", line)
				}
				name, symbol := part[1], part[3]
				if !accounts[name] || !symbols[symbol] || part[5] != symbol {
					t.Errorf("undeclared: %q", line)
				}
				sums[symbol] = sums[symbol].Add(dec(part[2]))
				stands[name] = stands[name].Add(dec(part[2]))
				if !stands[name].Equal(dec(part[4])) {
					t.Errorf("%q, but it stands at %s", line, stands[name])
				}
			default:
				if line[:10] < lastDate {
					t.Errorf("%q after %s", line, lastDate)
				}
				transaction, lastDate = true, line[:10]
			}
		}
		for symbol, sum := range sums {
			if !sum.IsZero() {
				t.Errorf("sums to %s %s:\n%s", sum, symbol, paragraph)
			}
		}
	}
	return stands
}

func TestExportHLedger(t *testing.T) {
	books := oddBooks(t)
	text := export(t, books, ledger.ExportOptions{})
	stands := replayHLedger(t, text)
	cash := must[ledger.Account](t)(books.AccountByCode(t.Context(), "assets:cash"))
	if !stands["assets:cash"].Equal(cash.Balance.Posted) || cash.Balance.Posted.IsZero() {
		t.Errorf("assets:cash ends at %s, the books say %s", stands["assets:cash"], cash.Balance.Posted)
	}
	for _, want := range []string{"; The books. Dates and times are in UTC.\n", "\ncommodity 1000. JPY\n", "\n    ; invoice:42\n", "=1999-12-31 (xfer_", `(code) * = "quoted" , comment / note  2024-01-01 second line\`} {
		if !strings.Contains(text, want) {
			t.Errorf("the export has no %q", want)
		}
	}
	hledgerAccepts(t, text)
	if again := export(t, books, ledger.ExportOptions{Format: ledger.HLedger}); again != text {
		t.Error("a second export of the same books differs")
	}
}

func TestExportBeancount(t *testing.T) {
	text := export(t, oddBooks(t), ledger.ExportOptions{Format: ledger.Beancount})
	opened := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^\S+ open (\S+) \S+$`).FindAllStringSubmatch(text, -1) {
		name := found[1]
		if opened[name] {
			t.Errorf("%s is opened twice", name)
		}
		opened[name] = true
		if !regexp.MustCompile(`^(Assets|Liabilities|Equity|Income|Expenses)(:[\p{Lu}\p{Nd}][\p{L}\p{Nd}-]*)+$`).MatchString(name) {
			t.Errorf("%s is no name for an account", name)
		}
	}
	for _, name := range []string{"Assets:Cash", "Income:Sales", "Expenses:Expenses", "Liabilities:X現金"} {
		if !opened[name] {
			t.Errorf("%s is missing among %v", name, opened)
		}
	}
	if !strings.Contains(text, " balance Assets:Cash  ") {
		t.Error("no balance is asserted")
	}
	accepted(t, text, "bean-check")
}

func TestExportPart(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "assets:a"), open(t, books, "income:b")
	pay(t, books, b, a, "10")
	from := pay(t, books, b, a, "20").CreatedAt
	to := pay(t, books, a, b, "5").CreatedAt

	zone, err := time.LoadLocation("Pacific/Kiritimati")
	ok(t, err)
	for format, asserted := range map[ledger.ExportFormat]string{ledger.HLedger: "= 30.00 EUR", ledger.Beancount: "balance Assets:A  30.00 EUR"} {
		text := export(t, books, ledger.ExportOptions{Format: format, From: from, To: to, TimeZone: zone})
		for _, want := range []string{"opening balances", "10.00 EUR", "20.00 EUR", asserted, "Pacific/Kiritimati", from.In(zone).Format("2006-01-02"),
			"from " + from.In(zone).Format(time.RFC3339Nano), "to before " + to.In(zone).Format(time.RFC3339Nano)} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q:\n%s", format, want, text)
			}
		}
		if strings.Contains(text, "5.00 EUR") {
			t.Errorf("%s has what was booked at To:\n%s", format, text)
		}
		if format == ledger.HLedger {
			replayHLedger(t, text)
			hledgerAccepts(t, text)
		} else {
			accepted(t, text, "bean-check")
		}
	}
}

// A wrong running balance in the books shows in the export, as an assertion that fails.
func TestExportAssertsRunningBalances(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	_, err := pool.Exec(t.Context(), `alter table ledger.transfer disable trigger guard_books; update ledger.transfer set to_balance = 2`)
	ok(t, err)
	if text := export(t, books, ledger.ExportOptions{}); !strings.Contains(text, "    b  1.00 EUR = 2.00 EUR\n") {
		t.Errorf("the export hides a wrong balance:\n%s", text)
	}
}

func TestExportRefuses(t *testing.T) {
	books, _ := installed(t)
	for name, o := range map[string]ledger.ExportOptions{
		"format": {Format: "ledger-cli"}, "local time": {TimeZone: time.Local}, "nameless zone": {TimeZone: time.FixedZone("", 3600)},
	} {
		if err := books.Export(t.Context(), new(bytes.Buffer), o); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type fullDisk struct{ room int }

var errFull = errors.New("no space left")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestExportReportsWriteErrors(t *testing.T) {
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	var batch []ledger.TransferParams
	for range 200 {
		batch = append(batch, ledger.TransferParams{From: a, To: b, Amount: dec("1")})
	}
	must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
	for _, format := range []ledger.ExportFormat{ledger.HLedger, ledger.Beancount} {
		for _, room := range []int{0, 10_000} {
			if err := books.Export(t.Context(), &fullDisk{room}, ledger.ExportOptions{Format: format}); !errors.Is(err, errFull) {
				t.Errorf("%s: %v", format, err)
			}
		}
	}
}

// In the caller's transaction the export has what that transaction booked, and the transaction goes on after an export that failed.
func TestExportInTransaction(t *testing.T) {
	books, pool := installed(t)
	a := open(t, books, "a")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	inside := ledger.New(tx)
	pay(t, inside, a, open(t, inside, "b"), "3")
	if err := inside.Export(t.Context(), &fullDisk{10}, ledger.ExportOptions{}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if text := export(t, inside, ledger.ExportOptions{}); !strings.Contains(text, "    b  3.00 EUR = 3.00 EUR\n") {
		t.Errorf("the export lacks what its transaction booked:\n%s", text)
	}
}

// meddler runs something else in the middle of an export, when its first part is written.
type meddler struct {
	bytes.Buffer
	meddle func()
}

func (m *meddler) Write(p []byte) (int, error) {
	if m.meddle != nil {
		meddle := m.meddle
		m.meddle = nil
		meddle()
	}
	return m.Buffer.Write(p)
}

// What is opened and booked while an export runs is not in it.
func TestExportIsOneSnapshot(t *testing.T) {
	books, pool := installed(t)
	a := open(t, books, "a")
	for i := range 60 { // the first part is written while accounts are read
		pay(t, books, a, open(t, books, fmt.Sprint("account:", i)), "1")
	}
	late := &meddler{meddle: func() { pay(t, books, a, open(t, books, "late"), "1000") }}
	ok(t, books.Export(t.Context(), late, ledger.ExportOptions{}))
	if stands := replayHLedger(t, late.String())["a"]; !stands.Equal(dec("-60")) || strings.Contains(late.String(), "late") {
		t.Errorf("the export has what was booked while it ran: a ends at %s", stands)
	}

	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	later := &meddler{meddle: func() { pay(t, books, a, open(t, books, "later"), "1000") }}
	if err := ledger.New(tx).Export(t.Context(), later, ledger.ExportOptions{}); err == nil || !strings.Contains(err.Error(), "REPEATABLE READ") {
		t.Errorf("an account was opened during an export under READ COMMITTED: %v", err)
	}
}
