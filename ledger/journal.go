package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Posting is one leg of a journal entry.
type Posting struct {
	Account AccountID
	Amount  decimal.Decimal     // debit (money in) above zero, credit (money out) below
	Balance decimal.NullDecimal // balance assertion: where the leg leaves the account; invalid: not looked at
}

// JournalParams is a journal entry to book: two or more postings that sum to zero in each asset.
type JournalParams struct {
	ID          JournalID // makes a retry safe, as a transfer's id does; zero: a new one
	Postings    []Posting
	Description string          // empty: none
	EventAt     time.Time       // zero: none
	Metadata    json.RawMessage // empty: none
}

// JournalPosted is what a journal entry did; Versions and Balances are those of its postings, in input order.
type JournalPosted struct {
	ID        JournalID
	Replayed  bool // it had been booked before, and this is the first result again
	Versions  []int64
	Balances  []decimal.Decimal
	CreatedAt time.Time
}

// PostJournal books a journal entry, all legs or none. An account may stand in it several times: its limits are checked against where
// the whole entry leaves it. Refusals are those of [Ledger.Transfer], [ErrUnbalanced] and [ErrAssertion].
func (l *Ledger) PostJournal(ctx context.Context, j JournalParams) (JournalPosted, error) {
	if j.ID.IsZero() {
		j.ID = NewJournalID()
	}
	accounts := make([]pgtype.UUID, len(j.Postings))
	amounts := make([]pgtype.Numeric, len(j.Postings))
	var balances []pgtype.Numeric
	for i, p := range j.Postings {
		accounts[i] = pgUUID(p.Account)
		var err error
		if amounts[i], err = toNumeric(p.Amount); err != nil {
			return JournalPosted{}, err
		}
		if p.Balance.Valid {
			if balances == nil {
				balances = make([]pgtype.Numeric, len(j.Postings))
			}
			if balances[i], err = toNull(p.Balance); err != nil {
				return JournalPosted{}, err
			}
		}
	}
	metadata, err := toJSON(j.Metadata)
	if err != nil {
		return JournalPosted{}, err
	}
	return l.journalPosted(ctx, "ledger.post_journal($1, $2, $3, $4, $5, $6, $7)",
		accounts, amounts, pgUUID(j.ID), optional(j.Description), toTime(j.EventAt), metadata, balances)
}

// ExchangeParams exchanges one asset for another. The liquidity accounts belong to whoever makes the market: one takes what is given, the
// other gives what is taken.
type ExchangeParams struct {
	ID                         JournalID // makes a retry safe; zero: a new one
	From, To                   AccountID
	FromAmount, ToAmount       decimal.Decimal // in the assets of From and To, both above zero
	FromLiquidity, ToLiquidity AccountID       // kept in the assets of From and To
	EventAt                    time.Time       // zero: none
	Metadata                   json.RawMessage // empty: none
}

// Exchange books an exchange as one journal entry of four postings: from, its liquidity account, the other liquidity account, to.
func (l *Ledger) Exchange(ctx context.Context, x ExchangeParams) (JournalPosted, error) {
	if x.ID.IsZero() {
		x.ID = NewJournalID()
	}
	from, err := toNumeric(x.FromAmount)
	if err != nil {
		return JournalPosted{}, err
	}
	to, err := toNumeric(x.ToAmount)
	if err != nil {
		return JournalPosted{}, err
	}
	metadata, err := toJSON(x.Metadata)
	if err != nil {
		return JournalPosted{}, err
	}
	return l.journalPosted(ctx, "ledger.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9)", pgUUID(x.From), pgUUID(x.To), from, to,
		pgUUID(x.FromLiquidity), pgUUID(x.ToLiquidity), pgUUID(x.ID), toTime(x.EventAt), metadata)
}

func (l *Ledger) journalPosted(ctx context.Context, function string, args ...any) (JournalPosted, error) {
	var j JournalPosted
	var balances []pgtype.Numeric
	err := l.call(ctx, []any{&j.ID, &j.Replayed, &j.Versions, &balances, &j.CreatedAt},
		"select (r).id, (r).replayed, (r).versions, (r).balances, (r).created_at from (select "+function+" as r offset 0) q", args...)
	if err != nil {
		return JournalPosted{}, err
	}
	j.Balances = make([]decimal.Decimal, len(balances))
	for i, b := range balances {
		j.Balances[i] = fromNumeric(b)
	}
	return j, nil
}
