package volvra

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-db/annals/internal/pgtx"
)

// Retention is how long history is kept.
type Retention struct {
	Keep        time.Duration // what is older may be removed; 0: nothing is, whatever KeepEntries says
	KeepEntries int64         // so many of the latest entries are kept, however old they are; 0: none because of their number
}

// AllTables stands for all tables without a policy of their own.
const AllTables = ""

// SetRetention sets how long the history of a table is kept, or that of [AllTables]. [Volvra.Purge] and [Volvra.Maintain] act on it. A table that is
// covered again inherits the policy that it had. [ErrInvalid]: it is negative; [ErrNotCovered]: the table has no history.
//
// How old history is, is known from the times that [Volvra.Maintain] notes: without it nothing expires. History is removed by whole segments (see
// [MaintainOptions]), and the one that is written stays: one that is smaller is kept as a whole unless Partial is asked for.
func (v *Volvra) SetRetention(ctx context.Context, table string, r Retention) error {
	keep := pgtype.Interval{Microseconds: r.Keep.Microseconds(), Valid: r.Keep != 0}
	var entries *int64
	if r.KeepEntries != 0 {
		entries = &r.KeepEntries
	}
	_, err := pgtx.Exec(ctx, v.db, "select volvra.set_retention($1, $2, $3)", optional(table), keep, entries)
	return refused(err)
}

// ResetRetention removes the policy of a table, so that the one for [AllTables] holds, or that one.
func (v *Volvra) ResetRetention(ctx context.Context, table string) error {
	_, err := pgtx.Exec(ctx, v.db, "select volvra.reset_retention($1)", optional(table))
	return refused(err)
}

// PurgeOptions say what a purge may do.
type PurgeOptions struct {
	Table   string // one table, or [AllTables]: here really all of them
	Partial bool   // also delete the expired part of segments that have not expired as a whole, which costs work and leaves dead rows
}

// Purging is what was, or would be, done with a segment of a history.
type Purging struct {
	Table   string // as in SQL
	Segment int
	Action  string   // "drop" of the segment, "delete" of a part, or "keep": it has expired and is held back
	Entries int64    // that were removed
	HeldBy  []string // what holds it back: marks and other pins by name, or "not sealed"
}

// Purge removes history that has expired, the oldest first: whole segments, unless Partial asks for more. What marks and other pins need is
// kept, and where seals are made nothing goes that is not sealed. The ledger says what was removed; states before it can't be told any more.
// It takes READ COMMITTED, else [ErrIsolation]; [ErrBusy]: somebody reads that history for longer than a moment.
func (v *Volvra) Purge(ctx context.Context, o PurgeOptions) ([]Purging, error) {
	var attempt *int64
	if !pgtx.InTx(v.db) {
		err := pgtx.QueryRow(ctx, v.db, []any{&attempt}, "select volvra.begin_attempt('purge', $1::jsonb, $2)", tablesJSON(o.Table), purgePolicy(o.Partial))
		if err != nil {
			return nil, refused(err)
		}
	}
	list, err := rowsOf(ctx, v.db, pgx.RowToStructByPos[Purging],
		`select "table", segment, action, entries, held_by from volvra.purge($1, $2, $3)`, o.Partial, optional(o.Table), attempt)
	if err != nil && attempt != nil {
		v.failed(ctx, *attempt, err)
	}
	return list, err
}

// Purgeable tells what Purge would do, and does nothing. It does not count entries.
func (v *Volvra) Purgeable(ctx context.Context, o PurgeOptions) ([]Purging, error) {
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[Purging], `select "table", segment, action, 0::bigint, held_by from volvra.purgeable($1, $2)`, o.Partial, optional(o.Table))
}

func purgePolicy(partial bool) string {
	if partial {
		return "partial"
	}
	return "whole segments"
}

// tablesJSON is a selection of one table, or none.
func tablesJSON(table string) *string {
	if table == AllTables {
		return nil
	}
	text := selectionText(Selection{Tables: []string{table}})
	return &text
}
