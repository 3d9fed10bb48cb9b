package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Account is an account as it is described, and what it holds now.
type Account struct {
	ID         AccountID
	Name       string
	Code       string // empty: none
	Asset      string
	Decimals   int // of the asset
	NormalSide Side
	Min, Max   decimal.NullDecimal // invalid: no limit
	Metadata   json.RawMessage     // nil: none
	CreatedAt  time.Time
	ClosedAt   time.Time // zero: open
	Balance    Balance
}

const accountColumns = `id, name, coalesce(code, ''), asset, decimals, normal_side, min_balance, max_balance, metadata, created_at, closed_at,
	version, posted, held_out, held_in`

// Account returns an account. [ErrAccountNotFound]: no such account.
func (l *Ledger) Account(ctx context.Context, id AccountID) (Account, error) {
	return one(ctx, l, scanAccount, &Error{Kind: ErrAccountNotFound, Account: id, Message: fmt.Sprintf("account %s does not exist", id),
		Hint: "Open it with OpenAccount first."},
		"select "+accountColumns+" from ledger.accounts where id = $1", pgUUID(id))
}

// AccountByCode returns the account with exactly this code. [ErrAccountNotFound]: no such account.
func (l *Ledger) AccountByCode(ctx context.Context, code string) (Account, error) {
	return one(ctx, l, scanAccount, &Error{Kind: ErrAccountNotFound, Message: fmt.Sprintf("no account has the code %q", code),
		Hint: "Open it with OpenAccount, or give one the code with UpdateAccount."},
		"select "+accountColumns+" from ledger.accounts where code = $1", code)
}

// AccountFilter says which accounts are listed; its zero value is all of them.
type AccountFilter struct {
	Prefix   string          // code is this one or below it: assets is also assets:cash, not assetsheet; empty: any
	Asset    string          // code of the asset; empty: any
	Open     bool            // only accounts that are not closed
	Metadata json.RawMessage // metadata contains this, as jsonb's @> has it; empty: any
}

// Accounts yields accounts in the order of their ids, which for ids made here is the order of their opening. It reads page by page,
// so an account may be as of a later moment than the one before it. An error ends it.
func (l *Ledger) Accounts(ctx context.Context, f AccountFilter) iter.Seq2[Account, error] {
	return paged(func(last *Account, limit int) ([]Account, error) {
		after := pgtype.UUID{Valid: true}
		if last != nil {
			after = pgUUID(last.ID)
		}
		metadata, err := toJSON(f.Metadata)
		if err != nil {
			return nil, err
		}
		return list(ctx, l, scanAccount, "select "+accountColumns+` from ledger.accounts
			where id > $1 and ($2::text is null or code = $2 or starts_with(code, $2 || ':')) and ($3::text is null or asset = $3)
			  and (closed_at is null or not $4) and ($5::text is null or metadata @> $5::jsonb)
			order by id limit $6`, after, optional(f.Prefix), optional(f.Asset), f.Open, metadata, limit)
	})
}

func scanAccount(row pgx.CollectableRow) (Account, error) {
	var a Account
	var side string
	var lowest, highest, posted, heldOut, heldIn pgtype.Numeric
	var closed pgtype.Timestamptz
	err := row.Scan(&a.ID, &a.Name, &a.Code, &a.Asset, &a.Decimals, &side, &lowest, &highest, (*[]byte)(&a.Metadata), &a.CreatedAt, &closed,
		&a.Balance.Version, &posted, &heldOut, &heldIn)
	a.NormalSide, a.Balance.NormalSide = Side(side), Side(side)
	a.Min, a.Max, a.ClosedAt = fromNull(lowest), fromNull(highest), closed.Time
	a.Balance.Posted, a.Balance.HeldOut, a.Balance.HeldIn = fromNumeric(posted), fromNumeric(heldOut), fromNumeric(heldIn)
	return a, err
}

// Transfer is a transfer as it was booked.
type Transfer struct {
	ID                     TransferID
	From, To               AccountID
	Asset                  string
	Amount                 decimal.Decimal
	FromVersion, ToVersion int64           // versions of the two entries
	FromBalance, ToBalance decimal.Decimal // running balances after it
	CreatedAt              time.Time       // when it was booked
	EventAt                time.Time       // zero: none given
	Metadata               json.RawMessage // nil: none
	Reverses               TransferID      // the transfer that it took back; zero: none
	ReversedBy             TransferID      // the transfer that took it back; zero: none
	Hold                   HoldID          // the hold that it posted; zero: none
}

// GetTransfer returns a transfer. [ErrNotFound]: no such transfer.
func (l *Ledger) GetTransfer(ctx context.Context, id TransferID) (Transfer, error) {
	return one(ctx, l, scanTransfer, notFound(ErrNotFound, "transfer", id, uuid.UUID(id)),
		`select id, from_id, to_id, asset, amount, from_version, to_version, from_balance, to_balance, created_at, event_at, metadata,
			reverses_id, reversed_by_id, hold_id from ledger.transfers where id = $1`, pgUUID(id))
}

func scanTransfer(row pgx.CollectableRow) (Transfer, error) {
	var t Transfer
	var amount, fromBalance, toBalance pgtype.Numeric
	var event pgtype.Timestamptz
	err := row.Scan(&t.ID, &t.From, &t.To, &t.Asset, &amount, &t.FromVersion, &t.ToVersion, &fromBalance, &toBalance, &t.CreatedAt, &event,
		(*[]byte)(&t.Metadata), &t.Reverses, &t.ReversedBy, &t.Hold)
	t.Amount, t.FromBalance, t.ToBalance, t.EventAt = fromNumeric(amount), fromNumeric(fromBalance), fromNumeric(toBalance), event.Time
	return t, err
}

// Journal is a journal entry as it was booked.
type Journal struct {
	ID          JournalID
	Description string  // empty: none
	Entries     []Entry // its legs, in the order in which they were given
	CreatedAt   time.Time
	EventAt     time.Time       // zero: none given
	Metadata    json.RawMessage // nil: none
	Reverses    JournalID       // the journal entry that it took back; zero: none
	ReversedBy  JournalID       // the journal entry that took it back; zero: none
}

// GetJournal returns a journal entry. [ErrNotFound]: no such journal entry.
func (l *Ledger) GetJournal(ctx context.Context, id JournalID) (Journal, error) {
	j, err := one(ctx, l, scanJournal, notFound(ErrNotFound, "journal entry", id, uuid.UUID(id)),
		`select id, coalesce(description, ''), created_at, event_at, metadata, reverses_id, reversed_by_id from ledger.journals where id = $1`, pgUUID(id))
	if err != nil {
		return Journal{}, err
	}
	// Legs are never changed or added, so a second statement sees what the first one did.
	j.Entries, err = list(ctx, l, scanEntry, "select account_id, "+entryColumns+" from ledger.entries where kind = 'journal' and source_id = $1 order by leg", pgUUID(id))
	return j, err
}

func scanJournal(row pgx.CollectableRow) (Journal, error) {
	var j Journal
	var event pgtype.Timestamptz
	err := row.Scan(&j.ID, &j.Description, &j.CreatedAt, &event, (*[]byte)(&j.Metadata), &j.Reverses, &j.ReversedBy)
	j.EventAt = event.Time
	return j, err
}

// Hold is money set aside, and what became of it.
type Hold struct {
	ID           HoldID
	From, To     AccountID
	Asset        string
	Amount       decimal.Decimal
	State        HoldState           // HoldExpired from its expiry on, also while nobody has given it back
	PostedAmount decimal.NullDecimal // invalid: not posted
	Transfer     TransferID          // that posted it; zero: none
	CreatedAt    time.Time
	ExpiresAt    time.Time       // zero: never
	SettledAt    time.Time       // when it was posted, voided or given back; zero: not yet
	EventAt      time.Time       // zero: none given
	Metadata     json.RawMessage // nil: none
}

// GetHold returns a hold. [ErrHoldNotFound]: no such hold.
func (l *Ledger) GetHold(ctx context.Context, id HoldID) (Hold, error) {
	return one(ctx, l, scanHold, notFound(ErrHoldNotFound, "hold", id, uuid.UUID(id)),
		`select id, from_id, to_id, asset, amount, state, posted_amount, transfer_id, created_at, expires_at, settled_at, event_at, metadata
			from ledger.holds where id = $1`, pgUUID(id))
}

func scanHold(row pgx.CollectableRow) (Hold, error) {
	var h Hold
	var state string
	var amount, posted pgtype.Numeric
	var expires, settled, event pgtype.Timestamptz
	err := row.Scan(&h.ID, &h.From, &h.To, &h.Asset, &amount, &state, &posted, &h.Transfer, &h.CreatedAt, &expires, &settled, &event, (*[]byte)(&h.Metadata))
	h.State, h.Amount, h.PostedAmount = HoldState(state), fromNumeric(amount), fromNull(posted)
	h.ExpiresAt, h.SettledAt, h.EventAt = expires.Time, settled.Time, event.Time
	return h, err
}

// one returns the row that a statement finds, or the error that says what it looked for.
func one[T any](ctx context.Context, l *Ledger, scan pgx.RowToFunc[T], missing *Error, sql string, args ...any) (T, error) {
	rows, err := list(ctx, l, scan, sql, args...)
	if err == nil && len(rows) == 0 {
		missing.Index = -1
		err = missing
	}
	if err != nil {
		var none T
		return none, err
	}
	return rows[0], nil
}

func notFound(kind error, what string, id fmt.Stringer, plain uuid.UUID) *Error {
	return &Error{Kind: kind, ID: plain, Message: fmt.Sprintf("%s %s does not exist", what, id),
		Hint: "It was never booked, or its transaction was rolled back."}
}
