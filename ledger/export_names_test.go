package ledger

import (
	"strings"
	"testing"
)

func TestExportNamesAreUnique(t *testing.T) {
	given := exportNames{}
	for _, c := range [][3]string{{"a", "1", "a"}, {"a", "2", "a-2"}, {"a-2", "3", "a-2-3"}, {"a", "2", "a-2-2"}, {"b", "1", "b"}} {
		if got := given.unique(c[0], c[1]); got != c[2] {
			t.Errorf("%s became %s, not %s", c[0], got, c[2])
		}
	}
}

func TestHLedgerNames(t *testing.T) {
	for code, want := range map[string]string{
		"assets:cash eur": "assets:cash eur", "a  b": "a _b", "(v)": "_v_", "a;b": "a_b", "Größe:1.5/2+3&4's": "Größe:1.5/2+3&4's", "a\u00a0b": "a_b", "x = 5": "x _ 5",
	} {
		if got := hledgerName(code); got != want {
			t.Errorf("%q became %q, not %q", code, got, want)
		}
	}
	given := exportNames{}
	for _, c := range []struct {
		code, want string
		no         int
	}{{"EUR", "EUR", 1}, {"€", `"€"`, 2}, {"X-1", `"X-1"`, 3}, {"a;b", `"a_b"`, 4}, {"a_b", `"a_b-5"`, 5}, {"1", `"1"`, 6}} {
		if got := hledgerSymbol(&exportAsset{code: c.code, no: c.no}, given); got != c.want {
			t.Errorf("%q became %s, not %s", c.code, got, c.want)
		}
	}
}

func TestBeancountNames(t *testing.T) {
	for code, want := range map[string]string{
		"assets:cash:eur": "Assets:Cash:Eur", "Revenue:sales": "Income:Sales", "liability:vat": "Liabilities:Vat", "expenses": "Expenses:Expenses", "cash": "Assets:Cash",
		"cash:100 eur": "Assets:Cash:100-eur", "equity:-x": "Equity:X-x", "assets:現金": "Assets:X現金", "assets:été": "Assets:Été",
	} {
		if got := beancountName(code, Debit); got != want {
			t.Errorf("%q became %q, not %q", code, got, want)
		}
	}
	if got := beancountName("wallets:7", Credit); got != "Liabilities:Wallets:7" {
		t.Errorf("a credit account became %s", got)
	}
	given := exportNames{}
	for _, c := range []struct {
		code, want string
		no         int
	}{{"EUR", "EUR", 1}, {"eur", "EUR-2", 2}, {"€", "ASSET-3", 3}, {"X", "ASSET-4", 4}, {"1INCH", "ASSET-5", 5}, {"pt's.x_y", "PT'S.X_Y", 6},
		{strings.Repeat("A", 24), strings.Repeat("A", 24), 7}, {strings.Repeat("a", 24), "ASSET-8", 8}, {strings.Repeat("A", 25), "ASSET-9", 9}} {
		if got := beancountSymbol(&exportAsset{code: c.code, no: c.no}, given); got != c.want {
			t.Errorf("%q became %s, not %s", c.code, got, c.want)
		}
	}
}
