package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// TransferParams is a transfer to book: Amount goes out of From (its credit) and into To (its debit).
type TransferParams struct {
	// ID makes a retry safe: the same ID with the same content returns the first result, with other content it is ErrIDReused.
	// Zero: a new one, which protects nobody.
	ID TransferID
	// From and To are kept in the same asset.
	From, To AccountID
	// Amount is above zero and has no more decimals than the asset.
	Amount decimal.Decimal
	// EventAt is when it happened, if that is not now; zero: none. Kept to the microsecond.
	EventAt time.Time
	// Metadata is any JSON; empty: none.
	Metadata json.RawMessage
}

// Posted is what a transfer did.
type Posted struct {
	ID                     TransferID
	Replayed               bool            // it had been booked before, and this is the first result again
	FromVersion, ToVersion int64           // versions of the two entries
	FromBalance, ToBalance decimal.Decimal // running balances after it
	CreatedAt              time.Time       // when it was booked
}

// Transfer books one transfer. Refusals: [ErrAccountNotFound], [ErrAmount], [ErrSameAccount], [ErrAssetMismatch], [ErrAccountClosed],
// [ErrLimit], [ErrPeriodClosed], [ErrIDReused], [ErrInvalid].
func (l *Ledger) Transfer(ctx context.Context, t TransferParams) (Posted, error) {
	return l.transfer(ctx, "ledger.transfer($1, $2, $3, $4, $5, $6)", &t)
}

// TransferIf books a transfer if the accounts are still at the versions given, as read from a balance, an entry or an earlier result; a
// version below zero is not looked at. Otherwise it is [ErrVersion]. A retry of a transfer that was booked returns the first result.
func (l *Ledger) TransferIf(ctx context.Context, t TransferParams, fromVersion, toVersion int64) (Posted, error) {
	return l.transfer(ctx, "ledger.transfer_if($1, $2, $3, $7, $8, $4, $5, $6)", &t, expected(fromVersion), expected(toVersion))
}

// TransferAvailable books a balancing transfer: as much as the limits of both accounts allow, at most t.Amount. It is [ErrLimit] when
// that is nothing. The amount moved is in the entry, and is the difference to the balances before.
func (l *Ledger) TransferAvailable(ctx context.Context, t TransferParams) (Posted, error) {
	return l.transfer(ctx, "ledger.transfer_available($1, $2, $3, $4, $5, $6)", &t)
}

func expected(version int64) pgtype.Int8 {
	return pgtype.Int8{Int64: version, Valid: version >= 0}
}

func (l *Ledger) transfer(ctx context.Context, function string, t *TransferParams, more ...any) (Posted, error) {
	if t.ID.IsZero() {
		t.ID = NewTransferID()
	}
	amount, err := toNumeric(t.Amount)
	if err != nil {
		return Posted{}, err
	}
	metadata, err := toJSON(t.Metadata)
	if err != nil {
		return Posted{}, err
	}
	args := append([]any{pgUUID(t.From), pgUUID(t.To), amount, pgUUID(t.ID), toTime(t.EventAt), metadata}, more...)
	return l.posted(ctx, function, args...)
}

// posted calls a function that returns ledger.posted. The sub-select with OFFSET 0 takes its result apart without calling it
// once for each column, and without the tuplestore that a function in FROM costs.
func (l *Ledger) posted(ctx context.Context, function string, args ...any) (Posted, error) {
	var p Posted
	var fromBalance, toBalance pgtype.Numeric
	err := l.call(ctx, []any{&p.ID, &p.Replayed, &p.FromVersion, &p.ToVersion, &fromBalance, &toBalance, &p.CreatedAt},
		"select (r).id, (r).replayed, (r).from_version, (r).to_version, (r).from_balance, (r).to_balance, (r).created_at from (select "+
			function+" as r offset 0) q", args...)
	if err != nil {
		return Posted{}, err
	}
	p.FromBalance, p.ToBalance = fromNumeric(fromBalance), fromNumeric(toBalance)
	return p, nil
}

// AssertBalance fails with [ErrAssertion] unless the account's posted balance is exactly this. Inside a transaction it stays so until
// the transaction ends.
func (l *Ledger) AssertBalance(ctx context.Context, account AccountID, balance decimal.Decimal) error {
	expected, err := toNumeric(balance)
	if err != nil {
		return err
	}
	return l.call(ctx, nil, "select ledger.assert_balance($1, $2)", pgUUID(account), expected)
}
