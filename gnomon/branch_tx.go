package gnomon

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// branchTx is a transaction on a branch, or a part of one.
type branchTx struct {
	pgx.Tx
	b       *Branch
	opened  branchOpening
	mark    string   // sets its statements apart, for pgx prepares them by their text, see Past.mark
	before  []string // settings of the caller's transaction
	actor   string   // annals.actor of the caller's transaction, where the branch has one of its own
	noted   bool     // the reads that its statements make, as they were given
	release string   // ends what was begun around Tx
	ended   bool
}

func (t *branchTx) marked(sql string) string {
	if !strings.ContainsAny(sql, " \n\t") { // the name of a prepared statement
		return sql
	}
	return sql + t.mark
}

func (t *branchTx) markedBatch(batch *pgx.Batch) *pgx.Batch {
	marked := &pgx.Batch{}
	for _, q := range batch.QueuedQueries {
		copied := *q
		copied.SQL = t.marked(q.SQL)
		marked.QueuedQueries = append(marked.QueuedQueries, &copied)
	}
	return marked
}

// Query runs a statement on the branch.
func (t *branchTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.note(ctx, sql, args); err != nil {
		return nil, t.b.refused(sql, err)
	}
	rows, err := t.Tx.Query(ctx, t.marked(sql), args...)
	return t.rows(rows, sql), t.b.refused(sql, err)
}

func (t *branchTx) rows(rows pgx.Rows, sql string) *placedRows {
	return &placedRows{Rows: rows, refused: func(err error) error { return t.b.refused(sql, err) }}
}

// QueryRow runs a statement of which one row is wanted.
func (t *branchTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return placedRow{rows, err}
}

// Exec runs a statement that returns no rows.
func (t *branchTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.note(ctx, sql, args); err != nil {
		return pgconn.CommandTag{}, t.b.refused(sql, err)
	}
	tag, err := t.Tx.Exec(ctx, t.marked(sql), args...)
	return tag, t.b.refused(sql, err)
}

// SendBatch runs statements on the branch.
func (t *branchTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := t.noteBatch(ctx, batch); err != nil {
		return pgx.FailedBatchResults(batch, t.b.refused("", err))
	}
	return &branchBatch{BatchResults: t.Tx.SendBatch(ctx, t.markedBatch(batch)), tx: t}
}

// CopyFrom inserts rows.
func (t *branchTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	n, err := t.Tx.CopyFrom(ctx, table, columns, source)
	return n, t.b.refused("", err)
}

// Begin begins a part of the transaction, on the branch as well.
func (t *branchTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &branchTx{Tx: tx, b: t.b, opened: t.opened, mark: t.mark}, nil
}

// Commit ends the transaction.
func (t *branchTx) Commit(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	if t.before == nil {
		t.ended = true
		return t.b.refused("", t.Tx.Commit(ctx))
	}
	if conn := t.Tx.Conn(); conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() == 'E' {
		return errors.Join(pgx.ErrTxCommitRollback, t.Rollback(ctx))
	}
	if _, err := t.Tx.Exec(ctx, "select gnomon.resume($1)", t.before); err != nil {
		return errors.Join(err, t.Rollback(ctx))
	}
	if t.b.actor != "" {
		if _, err := t.Tx.Exec(ctx, setActor, t.actor); err != nil {
			return errors.Join(err, t.Rollback(ctx))
		}
	}
	t.ended = true
	return errors.Join(t.Tx.Commit(ctx), t.released(ctx))
}

// Rollback ends the transaction without what was done in it.
func (t *branchTx) Rollback(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	if err := t.Tx.Rollback(ctx); err != nil {
		return err
	}
	return t.released(ctx)
}

func (t *branchTx) released(ctx context.Context) error {
	if t.release == "" {
		return nil
	}
	_, err := t.Tx.Conn().Exec(ctx, t.release)
	return err
}

// branchBatch are the results of statements on a branch.
type branchBatch struct {
	pgx.BatchResults
	ctx context.Context
	tx  *branchTx
	own bool
}

// Exec reads the result of the next statement.
func (r *branchBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.tx.b.refused("", err)
}

// Query reads the rows of the next statement.
func (r *branchBatch) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return r.tx.rows(rows, ""), r.tx.b.refused("", err)
}

// QueryRow reads the row of the next statement.
func (r *branchBatch) QueryRow() pgx.Row {
	rows, err := r.Query()
	return placedRow{rows, err}
}

// Close ends the batch, and the transaction if that is the batch's own.
func (r *branchBatch) Close() error {
	err := r.tx.b.refused("", r.BatchResults.Close())
	if !r.own {
		return err
	}
	r.own = false
	ended := r.tx.Commit(context.WithoutCancel(r.ctx))
	if err != nil {
		return err
	}
	return ended
}

// refused turns a database error into *Error where it is a refusal, or comes of a branch's tables being views.
func (b *Branch) refused(sql string, err error) error {
	if err == nil {
		return nil
	}
	if pgtx.HasCode(err, "GN008") {
		b.forget() // the next transaction opens it anew
	}
	if e := b.notOn(sql, err); e != nil {
		return e
	}
	return refused(err)
}
