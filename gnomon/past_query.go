package gnomon

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
	"github.com/jackc/pgx/v5/pgconn"
)

// mostDeadlocks is how often a reading that had to give way in a deadlock, to somebody who changes what it reads, is done again: several may do so
// in a row. In a caller's transaction it is once, for what that has locked before stays locked.
const mostDeadlocks = 5

// Query runs a query on the past. The rows must be closed, as pgx's own; pgx.CollectRows does that.
func (p *Past) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	reopened, deadlocks := false, mostDeadlocks
	if pgtx.InTx(p.db) {
		deadlocks = 1
	}
	again := func(err error) bool {
		if pgtx.HasCode(err, "40P01") {
			deadlocks--
			return deadlocks >= 0 && ctx.Err() == nil
		}
		if reopened {
			return false
		}
		reopened = true
		return p.reopen(ctx, err)
	}
	for {
		s, err := p.begin(ctx)
		if err != nil {
			if pgtx.HasCode(err, "40P01") && again(err) {
				continue
			}
			return nil, err
		}
		rows, err := s.db.Query(ctx, sql+p.mark(), args...)
		if err != nil {
			s.end()
			if again(err) {
				continue
			}
			return nil, ofPast(err)
		}
		// The first row tells whether the query is answered at all.
		r := &placedRows{Rows: rows, refused: ofPast, end: func() error { s.end(); return nil }, peeked: true, more: rows.Next()}
		if !r.more {
			rows.Close()
			if err := rows.Err(); err != nil {
				r.Close()
				if again(err) {
					continue
				}
				return r, r.Err()
			}
		}
		return r, nil
	}
}

// QueryRow runs a query of which one row is wanted.
func (p *Past) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...)
	return placedRow{rows, err}
}

// Exec runs a statement that returns no rows, such as one that is refused.
func (p *Past) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := p.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// Begin begins a transaction on the past, for several queries in one: Commit and Rollback end it alike. In the caller's transaction it
// is a part of that.
func (p *Past) Begin(ctx context.Context) (pgx.Tx, error) {
	s, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := beginIn(ctx, s.db)
	if err != nil {
		s.end()
		return nil, err
	}
	return &pastTx{Tx: tx, end: s.end, mark: p.mark()}, nil
}

// beginIn begins a part of a transaction.
func beginIn(ctx context.Context, db DB) (pgx.Tx, error) {
	// On a connection on which the caller has executed BEGIN, Begin would send another, and its end would be that of the caller's transaction.
	if beginner, has := db.(interface {
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	}); has {
		outer, err := beginner.BeginTx(ctx, pgx.TxOptions{BeginQuery: "savepoint gnomon_begun"})
		if err != nil {
			return nil, err
		}
		db = outer // never ended: that of the span ends it
	}
	return db.Begin(ctx)
}

// mark is a comment that sets statements of the past apart, for pgx prepares them by their text: the same text may have other columns outside,
// or by other views, and PostgreSQL refuses to run it then.
func (p *Past) mark() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "\n/* the past:" + p.opened.Checked + "*/"
}

// reopen reports whether err tells that what was found does not hold any more, and whether it could be found anew.
func (p *Past) reopen(ctx context.Context, err error) bool {
	// 42P01, 42703: a view was written anew in between, or the table changed; 0A000: so did the plan of a prepared statement; 40P01: who changed it waited for this.
	return pgtx.HasCode(err, "GN008", "42P01", "42703", "0A000", "40P01") && p.openAgain(ctx, p.db) == nil
}

// ofPast turns a database error into *Error where it is a refusal.
func ofPast(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "25006" || pgErr.Code == "55000" && pgErr.File == "rewriteHandler.c") {
		return &Error{Kind: ErrReadOnly, Message: "the past is read-only: " + pgErr.Message, Hint: "Write to the tables of today, outside of it.", cause: err}
	}
	return refused(err)
}

// pastTx is a transaction on the past.
type pastTx struct {
	pgx.Tx
	end  func()
	mark string
}

// Query runs a query on the past.
func (t *pastTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := t.Tx.Query(ctx, sql+t.mark, args...)
	if err != nil {
		return nil, ofPast(err)
	}
	return &placedRows{Rows: rows, refused: ofPast}, nil
}

// QueryRow runs a query of which one row is wanted.
func (t *pastTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return placedRow{rows, err}
}

// Exec runs a statement that returns no rows, such as one that is refused.
func (t *pastTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := t.Tx.Exec(ctx, sql+t.mark, args...)
	return tag, ofPast(err)
}

// Commit ends the transaction.
func (t *pastTx) Commit(ctx context.Context) error { return t.Rollback(ctx) }

// Rollback ends the transaction.
func (t *pastTx) Rollback(ctx context.Context) error {
	if t.end == nil {
		return pgx.ErrTxClosed
	}
	err := t.Tx.Rollback(ctx)
	t.end()
	t.end = nil
	return err
}
