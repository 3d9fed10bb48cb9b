package automerge

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgtx"
)

// addDirectly is [Store.add] in a transaction of its own, which takes two round trips: BEGIN travels with the look, COMMIT with the write. ok is
// false where the handle has no connection to send them on.
func (s *Store) addDirectly(ctx context.Context, id uuid.UUID, changes []incoming, park bool) (applied Applied, ok bool, err error) {
	var conn *pgx.Conn
	switch db := s.db.(type) {
	case *pgx.Conn:
		if pgtx.InTx(db) {
			return applied, false, nil
		}
		conn = db
	case *pgxpool.Pool:
		c, err := db.Acquire(ctx)
		if err != nil {
			return applied, true, err
		}
		defer c.Release()
		conn = c.Conn()
	default:
		return applied, false, nil
	}
	defer func() {
		if err == nil || conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
			return
		}
		undone, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if _, bad := conn.Exec(undone, "rollback"); bad != nil {
			err = errors.Join(err, bad)
		}
	}()
	var d *seen
	look := &pgx.Batch{}
	look.Queue("begin")
	look.Queue(lookSQL, lookArgs(id, changes)...).QueryRow(func(row pgx.Row) (err error) {
		d, err = scanLook(row)
		return err
	})
	if err := conn.SendBatch(ctx, look).Close(); err != nil {
		return applied, true, err
	}
	applied, args, err := s.decide(ctx, conn, id, d, changes, park)
	if err != nil {
		return applied, true, err
	}
	if args == nil {
		_, err := conn.Exec(ctx, "commit")
		return applied, true, err
	}
	put := &pgx.Batch{}
	put.Queue(putSQL, args...).QueryRow(func(row pgx.Row) error { return scanPut(row, &applied) })
	put.Queue("commit")
	err = conn.SendBatch(ctx, put).Close()
	return applied, true, err
}
