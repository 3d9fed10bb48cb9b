package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Statement is what happened on an account between two times.
type Statement struct {
	Account         AccountID
	From, To        time.Time // From is included, To is not; zero: unbounded
	By              Clock
	Opening         decimal.Decimal // balance before From
	Closing         decimal.Decimal // balance before To
	Debits, Credits decimal.Decimal // sums of what came in and of what went out, both zero or above: Opening + Debits - Credits = Closing
	Entries         []Entry         // in the order of Clock; Previous and Balance run in that order
}

// Statement returns the statement of an account from a time (included) to a time (not included), all of it as of one moment and in memory:
// for very many entries see [Ledger.Entries]. By event, entries stand in the order in which they happened, with balances that run
// in that order. [ErrAccountNotFound]: no such account. [ErrInvalid]: it ends before it begins.
func (l *Ledger) Statement(ctx context.Context, account AccountID, from, to time.Time, by Clock) (*Statement, error) {
	s := &Statement{Account: account, From: from, To: to, By: by}
	type row struct {
		line string // opening, entry or closing
		Entry
	}
	scan := func(r pgx.CollectableRow) (found row, err error) {
		found.Entry, err = scanEntryAfter(r, &found.line)
		return found, err
	}
	rows, err := list(ctx, l, scan, "select line, $1::uuid, "+entryColumns+" from ledger.statement($1, $2, $3, $4)",
		pgUUID(account), since(from), until(to), by == ByEvent)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		switch r.line {
		case "opening":
			s.Opening = r.Balance
		case "closing":
			s.Closing = r.Balance
		default:
			s.Entries = append(s.Entries, r.Entry)
			s.Debits = s.Debits.Add(decimal.Max(r.Amount, decimal.Zero))
			s.Credits = s.Credits.Sub(decimal.Min(r.Amount, decimal.Zero))
		}
	}
	return s, nil
}

// since is a lower bound in time; zero: none.
func since(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return toTime(t)
}

// until is an upper bound in time; zero: none.
func until(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	}
	return toTime(t)
}
