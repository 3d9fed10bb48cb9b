package ledger

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// exportNames are the names in one exported file, each given once.
type exportNames map[string]bool

// unique returns name, or name with a suffix if an earlier one is the same.
func (n exportNames) unique(name, suffix string) string {
	for n[name] {
		name += "-" + suffix
	}
	n[name] = true
	return name
}

// nameOf is the name that an account would like to have: its code, or what is made of its id.
func (a *exportAccount) nameOf() string {
	if a.code == "" {
		return "uncoded:" + a.id.String()
	}
	return a.code
}

// hledgerName keeps what hledger takes for part of a name wherever it stands: letters, digits, some signs, single spaces.
func hledgerName(code string) string {
	last := ' '
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune(":-_./&+'", r) && (r != ' ' || last == ' ') {
			r = '_'
		}
		last = r
		return r
	}, code)
}

var hledgerPlainSymbol = regexp.MustCompile(`^[A-Za-z]+$`)

// hledgerSymbol quotes what could be taken for part of a number.
func hledgerSymbol(a *exportAsset, given exportNames) string {
	symbol := given.unique(strings.ReplaceAll(a.code, ";", "_"), fmt.Sprint(a.no))
	if hledgerPlainSymbol.MatchString(symbol) {
		return symbol
	}
	return `"` + symbol + `"`
}

// beancountRoots are the five accounts below which Beancount has all others.
var beancountRoots = map[string]string{
	"asset": "Assets", "assets": "Assets", "liability": "Liabilities", "liabilities": "Liabilities", "equity": "Equity",
	"income": "Income", "revenue": "Income", "revenues": "Income", "expense": "Expenses", "expenses": "Expenses",
}

// beancountName is a root and at least one more level. A level has letters, digits and hyphens, and begins with a capital or a digit.
func beancountName(code string, normalSide Side) string {
	levels := strings.Split(code, ":")
	root, known := beancountRoots[strings.ToLower(levels[0])]
	switch {
	case known && len(levels) > 1:
		levels = levels[1:]
	case !known && normalSide == Credit:
		root = "Liabilities"
	case !known:
		root = "Assets"
	}
	name := root
	for _, level := range levels {
		runes := []rune(level)
		for i, r := range runes {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				runes[i] = '-'
			}
		}
		if runes[0] = unicode.ToUpper(runes[0]); !unicode.IsUpper(runes[0]) && !unicode.IsDigit(runes[0]) {
			runes = append([]rune{'X'}, runes...)
		}
		name += ":" + string(runes)
	}
	return name
}

var beancountPlainSymbol = regexp.MustCompile(`^[A-Z][A-Z0-9'._-]{0,22}[A-Z0-9]$`)

// beancountSymbol is 2 to 24 capitals, digits and a few signs.
func beancountSymbol(a *exportAsset, given exportNames) string {
	no := fmt.Sprint(a.no)
	symbol := strings.Map(func(r rune) rune {
		if r = unicode.ToUpper(r); r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("'._-", r) {
			return r
		}
		return '-'
	}, a.code)
	if !beancountPlainSymbol.MatchString(symbol) || given[symbol] && len(symbol+"-"+no) > 24 {
		symbol = "ASSET-" + no
	}
	return given.unique(symbol, no)
}
