package pgtx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Guard runs one operation of the caller's. In the caller's transaction fn runs
// under a savepoint: if it fails, or panics, the transaction is taken back to the
// state before it and remains usable. Otherwise fn runs on db as it is, without
// any extra round trip and without a transaction around it.
//
// fn must have closed its rows when it returns. See the package documentation
// for what a failure leaves behind; errors are fn's, with the reason added if the
// transaction could not be restored.
func Guard(ctx context.Context, db DB, fn func(db DB) error) error {
	if !InTx(db) {
		return fn(db)
	}
	if _, err := db.Exec(ctx, setSavepoint); err != nil {
		return notSet(err)
	}
	return underSavepoint(ctx, db, func() error { return fn(db) })
}

// underSavepoint runs fn and ends the savepoint that has been set before it.
func underSavepoint(ctx context.Context, db DB, fn func() error) error {
	returned := false
	defer func() {
		if !returned { // fn panicked, or ended its goroutine
			_ = undo(ctx, db, nil)
		}
	}()
	err := fn()
	returned = true
	if err == nil {
		// Also fails when fn hid the error of one of its statements.
		_, err = db.Exec(ctx, releaseSavepoint)
	}
	if err != nil {
		return undo(ctx, db, err)
	}
	return nil
}

// Run runs fn in a transaction: one of its own with the modes of opts, which is
// committed when fn returns nil and rolled back when it fails or panics; or, in
// the caller's transaction, under a savepoint as [Guard] does. The modes of the
// caller's transaction then hold, and opts are not looked at.
//
// fn must neither commit nor roll back tx. An error of the commit is returned as
// it is, pgx.ErrTxCommitRollback if fn hid the error of one of its statements.
func Run(ctx context.Context, db DB, opts pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	if tx, ok := db.(pgx.Tx); ok {
		return Guard(ctx, db, func(DB) error { return fn(tx) })
	}
	if InTx(db) {
		tx, err := adopt(ctx, connOf(db))
		if err != nil {
			return err
		}
		return underSavepoint(ctx, db, func() error { return fn(tx) })
	}
	tx, err := begin(ctx, db, opts)
	if err != nil {
		return err
	}
	// After a commit this finds the transaction closed and does nothing.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

var errNoBeginTx = errors.New("has no method BeginTx, which a transaction with modes of its own needs")

func begin(ctx context.Context, db DB, opts pgx.TxOptions) (pgx.Tx, error) {
	beginner, ok := db.(interface {
		BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	})
	switch {
	case ok:
		return beginner.BeginTx(ctx, opts)
	case opts == pgx.TxOptions{}:
		return db.Begin(ctx)
	}
	return nil, fmt.Errorf("%T %w", db, errNoBeginTx)
}
