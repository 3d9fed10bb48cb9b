package gnomon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// ConsumerParams say what a consumer of the change feed wants. The zero value, with a name, wants all changes of all tracked tables from now on.
type ConsumerParams struct {
	Name       string
	Tables     []string    // none: all tracked tables, those that are tracked later as well
	Operations []Operation // none: all
	Keys       []Key       // rows with these keys, see ChangesOptions.Keys; none: all
	NoImages   bool        // without old and new rows
	Noop       bool        // also updates that changed nothing
	From       Ref         // where it begins; "" is [Present]
	Snapshot   bool        // the rows that the tables had there come first, as changes of operation [SnapshotRow]; then what happened since
}

// CreateConsumer makes a consumer of the change feed. From then on the history that it has not had is kept. The error is
// [ErrConsumerExists] when there is one of that name, [ErrNotTracked] for a table that is not tracked, [ErrInvalid] for a key that none of the
// tables can have, and [ErrNoHistory] or [ErrPruned] when history does not reach back to where it begins. Tables that are dropped later end their
// part: what they still had to tell comes, except for rows at the beginning.
func (g *Gnomon) CreateConsumer(ctx context.Context, p ConsumerParams) error {
	options := ChangesOptions{Tables: p.Tables, Operations: p.Operations, Keys: p.Keys, NoImages: p.NoImages, Noop: p.Noop}.json()
	options["snapshot"] = p.Snapshot
	if p.From != "" {
		options["from"] = p.From
	}
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.create_consumer($1, $2::text::jsonb)", p.Name, jsonText(options))
	return refused(err)
}

// DropConsumer drops a consumer and lets go of the history that it kept. A process that works for it ends with [ErrLease] or
// [ErrUnknownConsumer].
func (g *Gnomon) DropConsumer(ctx context.Context, name string) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.drop_consumer($1)", name)
	return refused(err)
}

// ConsumerStatus tells how far a consumer is.
type ConsumerStatus struct {
	Name           string
	Tables         []string  // nil: all
	Delivering     bool      // part of a change set was delivered
	WaitingRowsOf  []string  // tables whose rows at the beginning are still to be delivered
	EntriesBehind  int64     // about how many entries it has not had, those that it does not want included
	BehindSince    time.Time // about when it was where the present was; zero when it is there now, or ticks don't tell
	PinnedV        int64     // entries from this position on are kept for it
	PinnedBytes    int64     // size of the segments that hold them
	Holder         string    // which process works for it; "" when none does
	LeaseUntil     time.Time // until when that does unless it says more
	Delivered      int64     // changes and rows so far
	Created, Moved time.Time // when it was made, and when its position moved last
}

// Consumers returns the consumers of the change feed by name. A slow one keeps history from being pruned.
func (g *Gnomon) Consumers(ctx context.Context) ([]ConsumerStatus, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (s ConsumerStatus, err error) {
		var since, until *time.Time
		var holder *string
		err = row.Scan(&s.Name, &s.Tables, &s.Delivering, &s.WaitingRowsOf, &s.EntriesBehind, &since, &s.PinnedV, &s.PinnedBytes, &holder, &until, &s.Delivered, &s.Created, &s.Moved)
		if since != nil {
			s.BehindSince = *since
		}
		if until != nil {
			s.LeaseUntil, s.Holder = *until, *holder
		}
		return s, err
	}, "select name, tables, delivering, waiting_rows_of, entries_behind, behind_since, pinned_v, pinned_bytes, holder, lease_until, delivered, created_at, moved_at from gnomon.consumers()")
}
