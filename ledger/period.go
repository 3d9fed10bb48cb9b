package ledger

import (
	"context"
	"time"
)

// ClosePeriod closes the books before a moment that has passed: from then on nothing is booked with an event time before it
// ([ErrPeriodClosed]). It waits for the transactions that are booking and holds back new ones meanwhile. Moving the end of the closed
// period back is [Ledger.ReopenPeriod].
func (l *Ledger) ClosePeriod(ctx context.Context, before time.Time) error {
	return l.call(ctx, nil, "select ledger.close_period($1)", toTime(before))
}

// ReopenPeriod takes the end of the closed period back to an earlier moment; the zero time opens the books entirely.
func (l *Ledger) ReopenPeriod(ctx context.Context, before time.Time) error {
	if before.IsZero() {
		return l.call(ctx, nil, "select ledger.reopen_period()")
	}
	return l.call(ctx, nil, "select ledger.reopen_period($1)", toTime(before))
}
