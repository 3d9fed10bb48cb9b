package ledger

import (
	"context"
	"encoding/json"
	"time"
)

// ReverseTransferParams says how a transfer is taken back. The zero value is usual.
type ReverseTransferParams struct {
	ID       TransferID      // of the reversal, makes a retry safe; zero: a new one
	EventAt  time.Time       // zero: none
	Metadata json.RawMessage // empty: none
}

// ReverseTransfer takes a transfer back by one the other way, once: [ErrReversed] the second time, unless it is a retry with the same ID.
// The reversal is a transfer like any other, with the same refusals; it can be reversed, too. [ErrNotFound]: no such transfer.
func (l *Ledger) ReverseTransfer(ctx context.Context, id TransferID, p ReverseTransferParams) (Posted, error) {
	if p.ID.IsZero() {
		p.ID = NewTransferID()
	}
	metadata, err := toJSON(p.Metadata)
	if err != nil {
		return Posted{}, err
	}
	return l.posted(ctx, "ledger.reverse_transfer($1, $2, $3, $4)", pgUUID(id), pgUUID(p.ID), toTime(p.EventAt), metadata)
}

// ReverseJournalParams says how a journal entry is taken back. The zero value is usual.
type ReverseJournalParams struct {
	ID          JournalID       // of the reversal, makes a retry safe; zero: a new one
	Description string          // empty: none
	EventAt     time.Time       // zero: none
	Metadata    json.RawMessage // empty: none
}

// ReverseJournal takes a journal entry back by one with all signs turned; otherwise as [Ledger.ReverseTransfer].
func (l *Ledger) ReverseJournal(ctx context.Context, id JournalID, p ReverseJournalParams) (JournalPosted, error) {
	if p.ID.IsZero() {
		p.ID = NewJournalID()
	}
	metadata, err := toJSON(p.Metadata)
	if err != nil {
		return JournalPosted{}, err
	}
	return l.journalPosted(ctx, "ledger.reverse_journal($1, $2, $3, $4, $5)", pgUUID(id), pgUUID(p.ID), optional(p.Description), toTime(p.EventAt), metadata)
}
