package ledger

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Entry is one account's side of a transfer, or one leg of a journal entry.
type Entry struct {
	Account      AccountID
	Version      int64           // place among the account's entries, from 1 without a gap
	Kind         string          // transfer or journal
	Source       uuid.UUID       // the transfer (a TransferID) or journal entry (a JournalID)
	Leg          int             // place in that, from 1; in a transfer 1 pays and 2 receives
	Counterparty AccountID       // the other side of a transfer; zero in journal entries
	Amount       decimal.Decimal // debit above zero, credit below
	Previous     decimal.Decimal // balance before it
	Balance      decimal.Decimal // balance after it
	CreatedAt    time.Time       // when it was booked
	EventAt      time.Time       // when it happened; CreatedAt if nobody said
	Metadata     json.RawMessage // nil: none
	Description  string          // of the journal entry; empty: none
}

// EntryFilter says which entries of an account are read and from which end; its zero value is all of them, oldest first.
type EntryFilter struct {
	From, To     time.Time       // booked at From or later, and before To; zero: unbounded
	Counterparty AccountID       // in transfers with this account, or in journal entries that it also takes part in; zero: any
	Metadata     json.RawMessage // metadata contains this, as jsonb's @> has it; empty: any
	NewestFirst  bool
	After        int64 // goes on after the entry of this version, in the direction of reading; 0: at the beginning
}

// Entries yields entries of an account in the order of their versions, which is that of their booking. It reads page by page, and yields
// what is booked while it reads if it comes to it. Bounds in time cost no reading; Counterparty and Metadata drop entries that were read.
// An error ends it; [ErrAccountNotFound]: no such account, or no such counterparty.
func (l *Ledger) Entries(ctx context.Context, account AccountID, f EntryFilter) iter.Seq2[Entry, error] {
	return paged(func(last *Entry, limit int) ([]Entry, error) {
		after := pgtype.Int8{Int64: f.After, Valid: f.After != 0}
		if last != nil {
			after = pgtype.Int8{Int64: last.Version, Valid: true}
		}
		metadata, err := toJSON(f.Metadata)
		if err != nil {
			return nil, err
		}
		return list(ctx, l, scanEntry, "select $1::uuid, "+entryColumns+" from ledger.entries_of($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)",
			pgUUID(account), after, int64(limit), f.NewestFirst, toTime(f.From), toTime(f.To), pgUUID(f.Counterparty), metadata)
	})
}

const entryColumns = "version, kind, source_id, leg, counterparty_id, amount, previous, balance, created_at, event_at, metadata, coalesce(description, '')"

// scanEntry reads the account and entryColumns.
func scanEntry(row pgx.CollectableRow) (Entry, error) {
	return scanEntryAfter(row)
}

// scanEntryAfter is scanEntry for rows with more columns in front, of which any other may be NULL.
func scanEntryAfter(row pgx.CollectableRow, front ...any) (Entry, error) {
	var e Entry
	var version pgtype.Int8
	var kind pgtype.Text
	var leg pgtype.Int4
	var amount, previous, balance pgtype.Numeric
	var created, event pgtype.Timestamptz
	err := row.Scan(append(front, &e.Account, &version, &kind, &e.Source, &leg, &e.Counterparty, &amount, &previous, &balance, &created, &event,
		(*[]byte)(&e.Metadata), &e.Description)...)
	e.Version, e.Kind, e.Leg, e.CreatedAt, e.EventAt = version.Int64, kind.String, int(leg.Int32), created.Time, event.Time
	e.Amount, e.Previous, e.Balance = fromNumeric(amount), fromNumeric(previous), fromNumeric(balance)
	return e, err
}
