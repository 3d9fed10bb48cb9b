package ledger

import (
	"context"
	"encoding/json"

	"github.com/shopspring/decimal"
)

// CreateAsset registers what amounts are counted in: a currency or any other code, with a fixed number of decimals from 0 to 30.
// Again with the same decimals is a no-op; with others it is [ErrTaken].
func (l *Ledger) CreateAsset(ctx context.Context, code string, decimals int) error {
	return l.call(ctx, nil, "select ledger.create_asset($1, $2)", code, decimals)
}

// Side is the side of an account on which it usually stands. A balance is debits minus credits, so an account whose normal side is
// Credit usually stands below zero.
type Side string

const (
	Debit  Side = "debit"  // assets and expenses
	Credit Side = "credit" // liabilities, equity and income
)

// AccountParams describes an account to open. Name and Asset are required.
type AccountParams struct {
	ID         AccountID           // zero: a new one
	Name       string              // for people
	Code       string              // unique, hierarchical, as in assets:cash:eur; empty: none
	Asset      string              // code of a registered asset
	NormalSide Side                // empty: Debit
	Min, Max   decimal.NullDecimal // limits of the balance, see SetLimits
	Metadata   json.RawMessage     // anything; empty: none
}

// OpenAccount opens an account and returns its id. Again with the same id and content it is a no-op, which makes a retry safe; with
// other content it is [ErrIDReused]. A code in use is [ErrTaken], an unknown asset [ErrAssetNotFound].
func (l *Ledger) OpenAccount(ctx context.Context, p AccountParams) (AccountID, error) {
	if p.ID.IsZero() {
		p.ID = NewAccountID()
	}
	if p.NormalSide == "" {
		p.NormalSide = Debit
	}
	lowest, err := toNull(p.Min)
	if err != nil {
		return AccountID{}, err
	}
	highest, err := toNull(p.Max)
	if err != nil {
		return AccountID{}, err
	}
	metadata, err := toJSON(p.Metadata)
	if err != nil {
		return AccountID{}, err
	}
	return p.ID, l.call(ctx, nil, "select ledger.open_account($1, $2, $3, $4, $5, $6, $7, $8)",
		p.Name, p.Asset, optional(p.Code), string(p.NormalSide), lowest, highest, metadata, pgUUID(p.ID))
}

// UpdateAccount sets name, code and metadata of an account; empty code or metadata: none.
func (l *Ledger) UpdateAccount(ctx context.Context, id AccountID, name, code string, metadata json.RawMessage) error {
	m, err := toJSON(metadata)
	if err != nil {
		return err
	}
	return l.call(ctx, nil, "select ledger.update_account($1, $2, $3, $4)", pgUUID(id), name, optional(code), m)
}

// SetLimits sets the least and the most that an account may stand at; an invalid NullDecimal is no limit. The least is checked when
// money goes out, against what is posted minus what is held, the most when money comes in: an account beyond a new limit stays
// where it is and may only move back.
func (l *Ledger) SetLimits(ctx context.Context, id AccountID, lowest, highest decimal.NullDecimal) error {
	low, err := toNull(lowest)
	if err != nil {
		return err
	}
	high, err := toNull(highest)
	if err != nil {
		return err
	}
	return l.call(ctx, nil, "select ledger.set_limits($1, $2, $3)", pgUUID(id), low, high)
}

// CloseAccount closes an account: it keeps its entries and balance and refuses new ones with [ErrAccountClosed]. An account with open
// holds is [ErrOpenHolds]. Closing it again is a no-op.
func (l *Ledger) CloseAccount(ctx context.Context, id AccountID) error {
	return l.call(ctx, nil, "select ledger.close_account($1)", pgUUID(id))
}

// ReopenAccount opens a closed account again, with the limits it had.
func (l *Ledger) ReopenAccount(ctx context.Context, id AccountID) error {
	return l.call(ctx, nil, "select ledger.reopen_account($1)", pgUUID(id))
}

// optional is NULL for the empty text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
