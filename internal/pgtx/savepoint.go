package pgtx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// One name serves all savepoints, so that a connection prepares two statements
// and not thousands. A savepoint hides an older one of the same name until it is
// released, which is what nested operations need.
const (
	setSavepoint     = "savepoint annals"
	releaseSavepoint = "release savepoint annals"
	undoToSavepoint  = "rollback to savepoint annals; release savepoint annals"
)

// undoTimeout bounds the way back, which goes on after the operation's own
// context has ended.
const undoTimeout = 10 * time.Second

// ErrTxAborted says that the caller's transaction had failed before the
// operation began. Nothing was executed. The way out is to roll the
// transaction back, or back to a savepoint that was set before it failed.
var ErrTxAborted = errors.New("the transaction has already failed: roll it back, or back to a savepoint, before using it again")

const inFailedTransaction = "25P02"

// notSet explains why a savepoint could not be set.
func notSet(err error) error {
	if HasCode(err, inFailedTransaction) {
		return fmt.Errorf("%w: %w", ErrTxAborted, err)
	}
	return err
}

// undo takes the transaction back to the savepoint because of err, which it
// returns. When the connection is closed there is no way back and no
// transaction left. When the way back fails, the error says so too.
func undo(ctx context.Context, db DB, err error) error {
	if conn := connOf(db); conn != nil && conn.IsClosed() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, undoErr := db.Exec(ctx, undoToSavepoint); undoErr != nil {
		return fmt.Errorf("%w (the transaction around it could not be restored and must be rolled back: %w)", err, undoErr)
	}
	return err
}

// HasCode reports whether err is an error of the database with one of these SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(codes, pgErr.Code)
}

// adopt makes a pgx.Tx of a connection on which the caller has executed BEGIN,
// and sets the savepoint. The Tx must not be committed or rolled back: its end
// is the release of the savepoint, or the way back to it.
func adopt(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: setSavepoint})
	if err != nil {
		return nil, notSet(err)
	}
	return tx, nil
}
