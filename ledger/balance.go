package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"
)

// Balance is what an account holds now. Amounts are debits minus credits, in the account's asset.
type Balance struct {
	Version    int64           // of the last entry: how many there are
	Posted     decimal.Decimal // what is booked
	HeldOut    decimal.Decimal // holds that would take money out; expired ones no longer count
	HeldIn     decimal.Decimal // holds that would bring money in; expired ones no longer count
	NormalSide Side            // of the account
}

// Pending is where the account would stand if all holds were posted in full.
func (b Balance) Pending() decimal.Decimal {
	return b.Posted.Add(b.HeldIn).Sub(b.HeldOut)
}

// Available is what is posted without what holds would take off the account's normal side: money that would come is not there yet, money
// that would go is gone. An account with normal side Debit loses what is held out of it. One with normal side Credit loses what
// is held into it: a customer's deposit of 100 stands at -100, and with 30 held for a payment -70 of it is available. Limits are not part of it.
func (b Balance) Available() decimal.Decimal {
	if b.NormalSide == Credit {
		return b.Posted.Add(b.HeldIn)
	}
	return b.Posted.Sub(b.HeldOut)
}

// Normal is the balance as seen from the account's normal side, where it is usually above zero: unchanged for Debit; for Credit as if
// debit and credit had changed places.
func (b Balance) Normal() Balance {
	if b.NormalSide == Credit {
		b.Posted, b.HeldOut, b.HeldIn, b.NormalSide = b.Posted.Neg(), b.HeldIn, b.HeldOut, Debit
	}
	return b
}

// Clock says by which time entries count.
type Clock int

const (
	// ByBooking goes by when entries were booked: what the books said at that time. It no longer changes once the
	// transactions that ran at that time have ended.
	ByBooking Clock = iota
	// ByEvent goes by when entries happened, which is their event time, or else when they were booked: what is known now about that
	// time. It changes when something is booked with an earlier event time.
	ByEvent
)

// Balance returns what an account holds now. [ErrAccountNotFound]: no such account.
func (l *Ledger) Balance(ctx context.Context, id AccountID) (Balance, error) {
	a, err := l.Account(ctx, id)
	return a.Balance, err
}

// BalanceAt returns the posted balance of an account at a time (zero: with all that is booked): of the entries that were booked, or had happened, then or before. It is
// found in the books by bisection, at a cost that hardly grows with them; ByEvent also reads the entries whose event time lies on
// the other side of that time than their booking. Both go by the server's clock, which must not step back. [ErrAccountNotFound]: no such
// account.
func (l *Ledger) BalanceAt(ctx context.Context, id AccountID, at time.Time, by Clock) (decimal.Decimal, error) {
	function := "select ledger.balance_at($1, $2)"
	if by == ByEvent {
		function = "select ledger.balance_at_event($1, $2)"
	}
	return l.amount(ctx, function, pgUUID(id), until(at))
}

// BalanceAfter returns the posted balance of an account after its entry of this version; version 0 is before the first.
// [ErrAccountNotFound]: no such account. [ErrNotFound]: no such version.
func (l *Ledger) BalanceAfter(ctx context.Context, id AccountID, version int64) (decimal.Decimal, error) {
	return l.amount(ctx, "select ledger.balance_after($1, $2)", pgUUID(id), version)
}

// BalanceAfterTransfer returns the posted balance of an account after a transfer that it took part in. [ErrAccountNotFound]: no such
// account. [ErrNotFound]: no such transfer, or not on that account.
func (l *Ledger) BalanceAfterTransfer(ctx context.Context, id AccountID, transfer TransferID) (decimal.Decimal, error) {
	return l.amount(ctx, "select ledger.balance_after_transfer($1, $2)", pgUUID(id), pgUUID(transfer))
}

// BalanceAfterJournal returns the posted balance of an account after a journal entry that it took part in, in the way of
// [Ledger.BalanceAfterTransfer].
func (l *Ledger) BalanceAfterJournal(ctx context.Context, id AccountID, journal JournalID) (decimal.Decimal, error) {
	return l.amount(ctx, "select ledger.balance_after_journal($1, $2)", pgUUID(id), pgUUID(journal))
}

func (l *Ledger) amount(ctx context.Context, sql string, args ...any) (decimal.Decimal, error) {
	var n pgtype.Numeric
	err := l.call(ctx, []any{&n}, sql, args...)
	return fromNumeric(n), err
}
