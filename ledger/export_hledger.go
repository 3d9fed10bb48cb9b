package ledger

import (
	"bufio"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/shopspring/decimal"
)

// hledgerFormat writes an hledger journal, version 1.25 or later.
type hledgerFormat struct {
	w        *bufio.Writer
	zone     *time.Location
	symbols  exportNames
	accounts exportNames
}

const (
	exportDate = "2006-01-02"
	exportTime = "2006-01-02T15:04:05.999999Z07:00"
)

// period says in words what is exported.
func (o ExportOptions) period() string {
	text := "The books"
	if !o.From.IsZero() {
		text += " from " + o.From.In(o.TimeZone).Format(exportTime)
	}
	if !o.To.IsZero() {
		text += " to before " + o.To.In(o.TimeZone).Format(exportTime)
	}
	return text + ". Dates and times are in " + o.TimeZone.String() + "."
}

func (f *hledgerFormat) begin(o ExportOptions) error {
	f.symbols, f.accounts = exportNames{}, exportNames{}
	_, err := fmt.Fprintf(f.w, "; %s\ndecimal-mark .\n\n", o.period())
	return err
}

func (f *hledgerFormat) asset(a *exportAsset) error {
	a.symbol = hledgerSymbol(a, f.symbols)
	sample := a.format(decimal.NewFromInt(1000))
	if a.decimals == 0 {
		sample += "." // the directive insists on a decimal mark
	}
	_, err := fmt.Fprintf(f.w, "commodity %s %s\n", sample, a.symbol)
	return err
}

func (f *hledgerFormat) account(a *exportAccount) error {
	a.name = f.accounts.unique(hledgerName(a.nameOf()), a.id.String())
	_, err := fmt.Fprintf(f.w, "account %s  ; id:%s, name:%s\n", a.name, a.id, hledgerValue(a.title))
	return err
}

func (f *hledgerFormat) opening(at time.Time, balances []exportLeg) error {
	fmt.Fprintf(f.w, "\n%s opening balances\n", at.In(f.zone).Format(exportDate))
	return f.postings(balances)
}

func (f *hledgerFormat) booking(b *booking) error {
	fmt.Fprintf(f.w, "\n%s", b.createdAt.In(f.zone).Format(exportDate))
	event := b.eventAt.In(f.zone)
	if !b.eventAt.IsZero() && event.Year() > 0 && event.Year() <= 9999 {
		fmt.Fprintf(f.w, "=%s", event.Format(exportDate))
	}
	fmt.Fprintf(f.w, " (%s) %s\n", b.id(), hledgerDescription(b))
	fmt.Fprintf(f.w, "    ; created_at:%s\n", b.createdAt.In(f.zone).Format(exportTime))
	if !b.eventAt.IsZero() {
		fmt.Fprintf(f.w, "    ; event_at:%s\n", event.Format(exportTime))
	}
	for _, tag := range tagsOf(b.metadata) {
		fmt.Fprintf(f.w, "    ; %s:%s\n", tag.key, hledgerValue(tag.value))
	}
	return f.postings(b.legs)
}

func (f *hledgerFormat) postings(legs []exportLeg) (err error) {
	for _, leg := range legs {
		a := leg.account
		_, err = fmt.Fprintf(f.w, "    %s  %s %s = %s %s\n", a.name, a.asset.format(leg.amount), a.asset.symbol, a.asset.format(leg.balance), a.asset.symbol)
	}
	return err
}

func (f *hledgerFormat) end() error { return nil }

// hledgerDescription is one line without what would begin a comment or a note.
func hledgerDescription(b *booking) string {
	if b.description == "" {
		return map[string]string{"transfer": "transfer", "journal": "journal entry"}[b.kind]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case r == ';':
			return ','
		case r == '|':
			return '/'
		}
		return r
	}, b.description)
}

// hledgerValue keeps a tag's value in one piece: a comma or the end of the line would end it, and space around it is lost. What could
// do that is written as in a URL.
func hledgerValue(s string) string {
	var out strings.Builder
	for i, r := range s {
		space := unicode.IsSpace(r)
		outside := i == 0 || i == len(s)-1
		if r == '%' || r == ',' || unicode.IsControl(r) || space && (r != ' ' || outside) {
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}
