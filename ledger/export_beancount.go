package ledger

import (
	"bufio"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/shopspring/decimal"
)

// beancountFormat writes Beancount's input, version 2 or 3.
type beancountFormat struct {
	w        *bufio.Writer
	zone     *time.Location
	symbols  exportNames
	names    exportNames
	accounts []*exportAccount
	stands   map[*exportAccount]decimal.Decimal // where each account stands that has been posted to
	lastDay  time.Time
}

func (f *beancountFormat) begin(o ExportOptions) error {
	f.symbols, f.names, f.stands = exportNames{}, exportNames{}, map[*exportAccount]decimal.Decimal{}
	_, err := fmt.Fprintf(f.w, "; %s\n\n", o.period())
	return err
}

func (f *beancountFormat) asset(a *exportAsset) error {
	a.symbol = beancountSymbol(a, f.symbols)
	_, err := fmt.Fprintf(f.w, "1970-01-01 commodity %s\n  code: %s\n", a.symbol, beancountText(a.code))
	return err
}

func (f *beancountFormat) account(a *exportAccount) error {
	a.name = f.names.unique(beancountName(a.nameOf(), a.normalSide), strings.ReplaceAll(a.id.String(), "_", "-"))
	f.accounts = append(f.accounts, a)
	fmt.Fprintf(f.w, "\n%s open %s %s\n", a.openedAt.In(f.zone).Format(exportDate), a.name, a.asset.symbol)
	if a.code != "" {
		fmt.Fprintf(f.w, "  code: %s\n", beancountText(a.code))
	}
	_, err := fmt.Fprintf(f.w, "  id: %s\n  name: %s\n", beancountText(a.id.String()), beancountText(a.title))
	return err
}

func (f *beancountFormat) opening(at time.Time, balances []exportLeg) error {
	fmt.Fprintf(f.w, "\n%s * \"opening balances\"\n", at.In(f.zone).Format(exportDate))
	return f.postings(at, balances)
}

func (f *beancountFormat) booking(b *booking) error {
	narration := b.description
	if narration == "" {
		narration = b.kind
	}
	fmt.Fprintf(f.w, "\n%s * %s ^%s\n", b.createdAt.In(f.zone).Format(exportDate), beancountText(narration), b.id())
	fmt.Fprintf(f.w, "  created_at: %s\n", beancountText(b.createdAt.In(f.zone).Format(exportTime)))
	if !b.eventAt.IsZero() {
		fmt.Fprintf(f.w, "  event_at: %s\n", beancountText(b.eventAt.In(f.zone).Format(exportTime)))
	}
	for _, tag := range tagsOf(b.metadata) {
		fmt.Fprintf(f.w, "  %s: %s\n", tag.key, beancountText(tag.value))
	}
	return f.postings(b.createdAt, b.legs)
}

func (f *beancountFormat) postings(at time.Time, legs []exportLeg) (err error) {
	f.lastDay = at.In(f.zone)
	for _, leg := range legs {
		a := leg.account
		f.stands[a] = leg.balance
		_, err = fmt.Fprintf(f.w, "  %s  %s %s\n", a.name, a.asset.format(leg.amount), a.asset.symbol)
	}
	return err
}

// end asserts where the accounts stand. Beancount checks it at the beginning of a day, hence of the one after the last, and takes an
// account to hold what those below it hold.
func (f *beancountFormat) end() (err error) {
	below := map[string]decimal.Decimal{}
	for a, stands := range f.stands {
		levels := strings.Split(a.name, ":")
		for n := range levels {
			key := strings.Join(levels[:n+1], ":") + " " + a.asset.symbol
			below[key] = below[key].Add(stands)
		}
	}
	day := f.lastDay.AddDate(0, 0, 1).Format(exportDate)
	fmt.Fprintln(f.w)
	for _, a := range f.accounts {
		if _, posted := f.stands[a]; posted {
			_, err = fmt.Fprintf(f.w, "%s balance %s  %s %s\n", day, a.name, a.asset.format(below[a.name+" "+a.asset.symbol]), a.asset.symbol)
		}
	}
	return err
}

// beancountText quotes a text.
func beancountText(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case unicode.IsControl(r):
			out.WriteByte(' ')
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
