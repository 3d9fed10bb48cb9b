package gnomon

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Heartbeat notes the present position in time, unless somebody did within the interval or nothing was written since: then it returns false,
// as it does on a standby. [ErrIsolation]: the caller's transaction is above READ COMMITTED.
func (g *Gnomon) Heartbeat(ctx context.Context, every time.Duration) (noted bool, err error) {
	err = pgtx.Run(ctx, g.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select gnomon.heartbeat($1) is not null", every).Scan(&noted)
	})
	return noted, refused(err)
}

// RunHeartbeat calls [Gnomon.Heartbeat] now and every so often until ctx ends, and then returns nil. It carries on after errors, such as those of a
// server that restarts, and tells them to failed, where that is given. Any number of processes may run it: one of them notes the time. What is asked by
// time is as exact as it runs often, unless commits carry times, and feeds wait for it to wake them. Only a lack of rights ends it, with the database's
// error. [ErrInvalid]: every is not above zero, or the handle is in a transaction.
func (g *Gnomon) RunHeartbeat(ctx context.Context, every time.Duration, failed ...func(error)) error {
	return g.repeat(ctx, every, failed, func() error {
		_, err := g.Heartbeat(ctx, every*9/10) // one of two that come at almost the same time
		return err
	})
}

// repeat calls fn now and every so often until ctx ends, and then returns nil.
func (g *Gnomon) repeat(ctx context.Context, every time.Duration, failed []func(error), fn func() error) error {
	if pgtx.InTx(g.db) {
		return &Error{Kind: ErrInvalid, Message: "this can't run on inside a transaction", Hint: "Give it a pool."}
	}
	if every <= 0 {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the interval is %v", every), Hint: "Give one above zero, such as a second."}
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := fn()
		if pgtx.HasCode(err, "42501", "3F000", "42883") { // no rights, or not installed: that does not pass
			return refused(err)
		}
		if err != nil && ctx.Err() == nil {
			for _, tell := range failed {
				tell(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}
