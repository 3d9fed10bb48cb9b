package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Coordinate is an exact moment in the history of the database: what was committed then. It is a text, good until the server crashes, is promoted
// or restored: then it is [ErrEpoch].
type Coordinate string

// Position orders entries. Along one row a later change has a higher one.
type Position int64

// Now takes the coordinate of what is committed now or, in a REPEATABLE READ transaction, of what that sees; without the changes of the
// calling transaction. [ErrStandby]: it can't be taken on a standby; [ErrRestored]: see [Adopt].
func Now(ctx context.Context, db pgtx.DB) (c Coordinate, err error) {
	err = pgtx.QueryRow(ctx, db, []any{&c}, "select annals.coordinate()")
	return c, Refused(err)
}

// At returns the coordinate of the last tick at or before a time. [ErrNoTick]: none is as old; [ErrEpoch]: it was taken before a restore.
func At(ctx context.Context, db pgtx.DB, at time.Time) (c Coordinate, err error) {
	err = pgtx.QueryRow(ctx, db, []any{&c}, "select annals.coordinate_at($1)", at)
	return c, Refused(err)
}

// Tick notes the present position in time, and returns it. Call it every few seconds while tables are written: what is asked by time is as
// exact as ticks are frequent. In a transaction above READ COMMITTED it is [ErrIsolation].
func Tick(ctx context.Context, db pgtx.DB) (v Position, err error) {
	err = pgtx.Run(ctx, db, readCommitted, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select annals.tick()").Scan(&v)
	})
	return v, Refused(err)
}
