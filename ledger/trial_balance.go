package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// TrialBalance has every account that has entries, with its balance in the column of its sign. In books that are whole, the columns of
// each asset have the same sum.
type TrialBalance struct {
	At     time.Time // zero: now
	By     Clock
	Lines  []TrialLine  // by asset, then code (accounts without one last), then id
	Totals []TrialTotal // by asset
}

// TrialLine is an account in a trial balance. One of Debit and Credit is zero, neither is below.
type TrialLine struct {
	Account       AccountID
	Code          string // empty: none
	Name, Asset   string
	Debit, Credit decimal.Decimal
}

// TrialTotal has the sums of the columns for one asset.
type TrialTotal struct {
	Asset         string
	Debit, Credit decimal.Decimal
}

// Balanced reports whether debits and credits of each asset are equal.
func (t *TrialBalance) Balanced() bool {
	for _, total := range t.Totals {
		if !total.Debit.Equal(total.Credit) {
			return false
		}
	}
	return true
}

// TrialBalance returns the trial balance now (zero time) or at a time, all of it as of one moment.
func (l *Ledger) TrialBalance(ctx context.Context, at time.Time, by Clock) (*TrialBalance, error) {
	type row struct {
		line string // account or total
		TrialLine
	}
	scan := func(r pgx.CollectableRow) (found row, err error) {
		var debit, credit pgtype.Numeric
		err = r.Scan(&found.line, &found.Account, &found.Code, &found.Name, &found.Asset, &debit, &credit)
		found.Debit, found.Credit = fromNumeric(debit), fromNumeric(credit)
		return found, err
	}
	rows, err := list(ctx, l, scan, "select line, account_id, coalesce(code, ''), coalesce(name, ''), asset, debit, credit from ledger.trial_balance($1, $2)",
		toTime(at), by == ByEvent)
	if err != nil {
		return nil, err
	}
	t := &TrialBalance{At: at, By: by}
	for _, r := range rows {
		if r.line == "total" {
			t.Totals = append(t.Totals, TrialTotal{Asset: r.Asset, Debit: r.Debit, Credit: r.Credit})
		} else {
			t.Lines = append(t.Lines, r.TrialLine)
		}
	}
	return t, nil
}

// RollUpParams says what is summed up; the zero value is all accounts that have a code, at all levels, now.
type RollUpParams struct {
	Prefix string    // only accounts with this code or below it, in whole levels; empty: all
	Depth  int       // levels below Prefix that have lines of their own; 0: all
	At     time.Time // zero: now
	By     Clock
}

// RollUpLine is the sum over all accounts whose code is Code or below it, in one asset.
type RollUpLine struct {
	Code     string
	Level    int // how many levels Code has
	Asset    string
	Accounts int // how many are in the sum: those that have entries
	Balance  decimal.Decimal
}

// RollUp sums balances up along the hierarchy of account codes: a line for Prefix (unless it is empty) and for each code below it, each
// line followed by those below it. [ErrInvalid]: Prefix is not the beginning of a code, or Depth is below zero.
func (l *Ledger) RollUp(ctx context.Context, p RollUpParams) ([]RollUpLine, error) {
	scan := func(r pgx.CollectableRow) (line RollUpLine, err error) {
		var balance pgtype.Numeric
		err = r.Scan(&line.Code, &line.Level, &line.Asset, &line.Accounts, &balance)
		line.Balance = fromNumeric(balance)
		return line, err
	}
	const deepest = 1 << 20 // more than a code can have; depths beyond are the same, and fit an integer
	depth := pgtype.Int4{Int32: int32(max(-1, min(p.Depth, deepest))), Valid: p.Depth != 0}
	return list(ctx, l, scan, "select code, level, asset, accounts, balance from ledger.rollup($1, $2, $3, $4)",
		optional(p.Prefix), depth, toTime(p.At), p.By == ByEvent)
}
