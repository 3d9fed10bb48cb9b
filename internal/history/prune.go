package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Pin keeps entries from a position on from being pruned.
type Pin struct {
	History ID       `json:"-"`     // 0 means all
	Owner   string   `json:"owner"` // what pins it, such as "volvra mark"
	Name    string   `json:"name"`  // which of the owner's it is
	V       Position // the first that is kept
}

// Pruned says what was pruned.
type Pruned struct {
	Segments int      // dropped
	Entries  int64    // that stood in them
	Begins   Position // where the history begins now
	PinnedBy []Pin    // what kept more from being dropped
}

// Prune drops the oldest segments of a history, as far as all their entries lie before a position and none is pinned. The one that is
// written stays. [ErrNotTracked]: there is no such history.
func Prune(ctx context.Context, db pgtx.DB, id ID, before Position) (p Pruned, err error) {
	err = locking(ctx, db, []any{&p.Segments, &p.Entries, &p.Begins, &p.PinnedBy}, "select * from annals.prune($1, $2)", int(id), int64(before))
	return p, err
}

// PositionAt returns the position of the last tick at or before a time, for [Prune]. It matches [ErrNoTick] when there is none.
func PositionAt(ctx context.Context, db pgtx.DB, at time.Time) (v Position, err error) {
	var found *int64
	if err := pgtx.QueryRow(ctx, db, []any{&found}, "select annals.position_at($1)", at); err != nil {
		return 0, Refused(err)
	}
	if found == nil {
		return 0, &Error{Kind: ErrNoTick, Message: "no tick is as old as " + at.Format(time.RFC3339), cause: pgx.ErrNoRows}
	}
	return Position(*found), nil
}

// Pins returns what is pinned, lowest position first.
func Pins(ctx context.Context, db pgtx.DB) (pins []Pin, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		pins, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Pin])
		return err
	}, "select coalesce(tracked, 0), owner, name, v from annals.pin order by v, owner, name")
	return pins, Refused(err)
}
