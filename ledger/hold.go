package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// HoldParams is money to set aside for a transfer that is decided later.
type HoldParams struct {
	ID        HoldID // makes a retry safe, as a transfer's id does; zero: a new one
	From, To  AccountID
	Amount    decimal.Decimal
	ExpiresAt time.Time       // from then on it can't be posted and no longer counts; zero: never
	EventAt   time.Time       // event time of the transfer to come; zero: none
	Metadata  json.RawMessage // of the transfer to come; empty: none
}

// HoldState says what became of a hold.
type HoldState string

const (
	HoldOpen    HoldState = "open"    // the money is set aside
	HoldPosted  HoldState = "posted"  // a transfer booked it
	HoldVoided  HoldState = "voided"  // it was given back
	HoldExpired HoldState = "expired" // its time ran out
)

// Held is a hold after a call.
type Held struct {
	ID        HoldID
	Replayed  bool // the call found it so and changed nothing
	State     HoldState
	Amount    decimal.Decimal
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
}

// Hold sets an amount aside: it leaves what From may pay and what To may receive, and is checked against the same limits as a transfer,
// with the same refusals. An expiry that has passed is [ErrHoldExpired].
func (l *Ledger) Hold(ctx context.Context, h HoldParams) (Held, error) {
	if h.ID.IsZero() {
		h.ID = NewHoldID()
	}
	amount, err := toNumeric(h.Amount)
	if err != nil {
		return Held{}, err
	}
	metadata, err := toJSON(h.Metadata)
	if err != nil {
		return Held{}, err
	}
	return l.held(ctx, "ledger.hold($1, $2, $3, $4, $5, $6, $7)",
		pgUUID(h.From), pgUUID(h.To), amount, pgUUID(h.ID), toTime(h.ExpiresAt), toTime(h.EventAt), metadata)
}

// PostParams says how a hold is posted. The zero value posts it in full.
type PostParams struct {
	TransferID TransferID          // of the transfer that books it; zero: a new one
	Amount     decimal.NullDecimal // at most what is held; the rest is given back. Invalid: all of it
	EventAt    time.Time           // zero: the hold's
	Metadata   json.RawMessage     // empty: the hold's
}

// PostHold books a hold. Again with the same content it returns the first result; otherwise a hold that is no longer open is
// [ErrHoldSettled] or [ErrHoldExpired], one that does not exist [ErrHoldNotFound]. More than what is held is [ErrAmount].
func (l *Ledger) PostHold(ctx context.Context, id HoldID, p PostParams) (Posted, error) {
	amount, err := toNull(p.Amount)
	if err != nil {
		return Posted{}, err
	}
	metadata, err := toJSON(p.Metadata)
	if err != nil {
		return Posted{}, err
	}
	return l.posted(ctx, "ledger.post_hold($1, $2, $3, $4, $5)", pgUUID(id), amount, pgUUID(p.TransferID), toTime(p.EventAt), metadata)
}

// VoidHold gives a hold back. Voiding one that is voided or expired is a no-op; one that is posted is [ErrHoldSettled].
func (l *Ledger) VoidHold(ctx context.Context, id HoldID) (Held, error) {
	return l.held(ctx, "ledger.void_hold($1)", pgUUID(id))
}

func (l *Ledger) held(ctx context.Context, function string, args ...any) (Held, error) {
	var h Held
	var state string
	var amount pgtype.Numeric
	var expires pgtype.Timestamptz
	err := l.call(ctx, []any{&h.ID, &h.Replayed, &state, &amount, &h.CreatedAt, &expires},
		"select (r).id, (r).replayed, (r).state, (r).amount, (r).created_at, (r).expires_at from (select "+function+" as r offset 0) q", args...)
	if err != nil {
		return Held{}, err
	}
	h.State, h.Amount = HoldState(state), fromNumeric(amount)
	if expires.Valid {
		h.ExpiresAt = expires.Time
	}
	return h, nil
}

// ExpireHolds gives expired holds back and returns how many. It is housekeeping: transfers that need the money give it back themselves,
// and available balances leave it out. It waits for nobody, so what is busy stays for the next call.
func (l *Ledger) ExpireHolds(ctx context.Context) (int, error) {
	const page = 1000
	total := 0
	for {
		var n int
		if err := l.call(ctx, []any{&n}, "select ledger.expire_holds($1)", page); err != nil {
			return total, err
		}
		total += n
		if n < page {
			return total, nil
		}
	}
}
