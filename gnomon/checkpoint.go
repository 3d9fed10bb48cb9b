package gnomon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Checkpoint is the state of a table at a place, saved whole. Reads of the past near it use it where that is less work than going back from
// today.
type Checkpoint struct {
	ID         int
	Table      string // as in SQL
	Name       string // empty for one that a policy made
	Coordinate string
	Rows       int64
	Bytes      int64 // with its index
	At         time.Time
}

// MakeCheckpoint saves the rows of a table at a place, and returns the number of the checkpoint. It takes as much room as the table, and reads go on
// meanwhile. One with a name keeps history from there on until it is dropped; others, with an empty name, go when history before them is pruned.
// Errors are those of [Gnomon.At] and [Past], [ErrInvalid] when the name is taken.
func (g *Gnomon) MakeCheckpoint(ctx context.Context, table string, at Ref, name string) (id int, err error) {
	err = locking(ctx, g.db, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select gnomon.make_checkpoint($1::text::regclass, $2, nullif($3, ''))", table, string(at), name).Scan(&id)
	})
	return id, err
}

// DropCheckpoint drops a checkpoint. [ErrUnknownCheckpoint]: there is none of that number.
func (g *Gnomon) DropCheckpoint(ctx context.Context, id int) error {
	return locking(ctx, g.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select gnomon.drop_checkpoint($1)", id)
		return err
	})
}

// Checkpoints lists all checkpoints, oldest first.
func (g *Gnomon) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	return rowsOf(ctx, g.db, pgx.RowToStructByPos[Checkpoint], `select k.id, gnomon.table_of(k.tracked), coalesce(k.name, ''), k.coordinate, k.rows, pg_catalog.pg_total_relation_size(k.relation), k.at
		from gnomon.checkpoint k order by k.id`)
}

const lockNotAvailable = "55P03"

// locking runs fn, which waits a second at most for users' tables: again and again where the transaction is its own.
func locking(ctx context.Context, db DB, fn func(tx pgx.Tx) error) error {
	once := func() error { return pgtx.Run(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn) }
	if pgtx.InTx(db) {
		return refused(once())
	}
	return refused(pgtx.Retry(ctx, once, lockNotAvailable))
}
