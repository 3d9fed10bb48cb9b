package gnomon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-db/annals/internal/pgtx"
)

// Pin is what keeps history from being pruned: a tag, a consumer of the feed, a checkpoint that is kept by name, or another package's.
type Pin struct {
	Owner   string    `json:"owner"` // its kind, such as "gnomon tag", "gnomon consumer", "gnomon checkpoint", "volvra mark"
	Name    string    `json:"name"`
	V       int64     `json:"v"`       // entries from this position on are kept
	At      time.Time `json:"at"`      // since when
	Entries int64     `json:"entries"` // that stand in what is kept, an estimate; only in a [TableStatus]
	Bytes   int64     `json:"bytes"`   // that these take with indexes; only in a [TableStatus]
}

// Pruned tells what was pruned of a history.
type Pruned struct {
	Table    string    // as in SQL
	History  int       // number of the history
	Segments int       // tables of the history that were dropped
	Entries  int64     // that stood in them
	Begins   time.Time // states can be told from then on; zero: none at present
	HeldBy   []Pin     // what kept more from being dropped
}

// Prune drops history that lies before a place, of tables or, without any, of all. The place stays readable; what is asked before where history
// begins then is [ErrPruned]. History goes by whole segments that are finished (see [Gnomon.Maintain]) and that nothing pins, as far as ticks
// tell that the place sees them: a transaction that runs for long, in whatever database of the server, keeps what is younger than it. History
// of a table which volvra covers, too, is not pruned: volvra does that. In one transaction; it waits a second at most for who reads what goes.
func (g *Gnomon) Prune(ctx context.Context, before Ref, tables ...string) (list []Pruned, err error) {
	if len(tables) == 0 {
		return prune(ctx, g.db, before, nil)
	}
	err = pgtx.Run(ctx, g.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		list = nil
		for _, table := range tables {
			pruned, err := prune(ctx, tx, before, &table)
			if err != nil {
				return err
			}
			list = append(list, pruned...)
		}
		return nil
	})
	return list, refused(err)
}

func prune(ctx context.Context, db DB, before Ref, table *string) ([]Pruned, error) {
	return rowsOf(ctx, db, func(row pgx.CollectableRow) (p Pruned, err error) {
		var begins *time.Time
		err = row.Scan(&p.Table, &p.History, &p.Segments, &p.Entries, &begins, &p.HeldBy)
		p.Begins = timeOf(begins)
		return p, err
	}, `select "table", tracked, segments, entries, begins, held_by from gnomon.prune($1, $2::text::regclass)`, string(before), table)
}

// Policy is what maintenance does for a table.
type Policy struct {
	Keep              time.Duration // history older than this is pruned; 0: none is
	CheckpointChanges int64         // a checkpoint is made after so many changes; 0: none is
}

// SetPolicy sets what [Gnomon.Maintain] does for a table; the zero value is nothing. [ErrNotTracked]: it has no history.
func (g *Gnomon) SetPolicy(ctx context.Context, table string, p Policy) error {
	keep := pgtype.Interval{Microseconds: p.Keep.Microseconds(), Valid: p.Keep != 0}
	changes := pgtype.Int8{Int64: p.CheckpointChanges, Valid: p.CheckpointChanges != 0}
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.set_policy($1::text::regclass, $2, $3)", table, keep, changes)
	return refused(err)
}
