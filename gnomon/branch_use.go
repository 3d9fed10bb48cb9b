package gnomon

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgtx"
)

// branchOpening is what has to be set to use a branch.
type branchOpening struct {
	Place, Snapshot, Bound, Versions, Checked, Path, Outside, Role string
	Base                                                           int
	Tables                                                         map[string]string // views, by the OIDs of their tables
	Reads                                                          bool              // what is read is noted
}

// OnBranch puts the rest of a transaction on a branch: from now on names of tables mean them as they are there. A savepoint that was set
// before goes back to where the transaction was. [ErrUnknownBranch].
func OnBranch(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := pgtx.Exec(ctx, tx, "select gnomon.use($1, true)", name)
	return refused(err)
}

// open finds what has to be set, and remembers it.
func (b *Branch) open(ctx context.Context, db DB) (o branchOpening, err error) {
	var id int
	name := b.Name()
	err = pgtx.QueryRow(ctx, db, []any{&id, &o.Base, &o.Place, &o.Snapshot, &o.Bound, &o.Versions, &o.Checked, &o.Path, &o.Outside, &o.Role, &o.Tables, &o.Reads}, `
		select b.id, b.base, (o.place).coordinate, (o.place).snapshot::text, (o.place).bound::text, gnomon.versions(), o.checked, o.path, o.outside, current_user::text, o.tables, b.reads
		from gnomon.open_branch($1, pg_catalog.current_schemas(false), pg_catalog.current_setting('search_path')) o cross join gnomon.branch_named($1) b`, name)
	if err != nil {
		return o, refused(err)
	}
	if id != b.id {
		return o, &Error{Kind: ErrUnknownBranch, Message: fmt.Sprintf("branch %q is another one than it was", name), Hint: "Ask for it anew with Branch."}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened, b.points = o, nil
	return o, nil
}

// use returns what has to be set, as it was found last.
func (b *Branch) use(ctx context.Context, db DB) (branchOpening, error) {
	b.mu.Lock()
	o := b.opened
	b.mu.Unlock()
	if o.Place == "" {
		return b.open(ctx, db)
	}
	return o, nil
}

// forget says that what was found does not hold any more.
func (b *Branch) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened, b.points = branchOpening{}, nil
}

// changed reports whether err may come of what was found before not holding any more, and something else was found now.
func (b *Branch) changed(ctx context.Context, before branchOpening, err error) bool {
	// 42P01, 42703: a view was written anew in between, or the table changed; 0A000: so did the plan of a prepared statement.
	if !pgtx.HasCode(err, "GN008", "42P01", "42703", "0A000") {
		return false
	}
	o, err := b.open(ctx, b.db)
	return err == nil && (o.Place != before.Place || o.Checked != before.Checked || o.Versions != before.Versions || o.Outside != before.Outside || o.Role != before.Role)
}

// Begin begins a transaction on the branch. In the caller's transaction it is a part of that, which [pgx.Tx.Commit] releases and [pgx.Tx.Rollback] takes back;
// either puts the caller's transaction back to where it was before: on main, or on another branch.
//
// Errors of what can't be done on a branch are [ErrNotOnBranch]. Statements that end a transaction, such as COMMIT, must not be given.
func (b *Branch) Begin(ctx context.Context) (pgx.Tx, error) { return b.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx is [Branch.Begin] with modes, which are not looked at in the caller's transaction.
func (b *Branch) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := b.begin(ctx, options)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (b *Branch) begin(ctx context.Context, options pgx.TxOptions) (*branchTx, error) {
	for again := false; ; again = true {
		o, err := b.use(ctx, b.db)
		if err != nil {
			return nil, err
		}
		t, err := b.beginIn(ctx, o, options)
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, ErrStale) {
			return nil, err
		}
		b.forget()
		if again {
			return nil, err
		}
	}
}

// beginIn begins a transaction with what was found.
func (b *Branch) beginIn(ctx context.Context, o branchOpening, options pgx.TxOptions) (*branchTx, error) {
	t := &branchTx{b: b, opened: o, mark: fmt.Sprintf("\n/* branch %d, %s, %s */", b.id, o.Place[:8], o.Versions)}
	const enter = "select gnomon.enter_branch($1, $2, $3, $4, $5, $6, $7, $8)"
	args := []any{b.id, b.Name(), o.Place, o.Versions, o.Checked, o.Path, o.Outside, o.Role}
	var before []string
	var err error
	sender, sends := b.db.(interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	})
	_, onBranch := b.db.(interface{ In(DB) *Branch })
	part := pgtx.InTx(b.db)
	if !part && sends && !onBranch { // in one round trip
		var batch pgx.Batch
		batch.BeginTx(options)
		if b.actor != "" {
			batch.Queue(setActor, b.actor)
		}
		batch.Queue(enter, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&before) })
		results := sender.SendBatch(ctx, &batch)
		err = results.Close()
		t.Tx = results.Tx()
	} else {
		if part {
			t.Tx, t.release, err = partOf(ctx, b.db)
		} else {
			t.Tx, err = b.db.Begin(ctx)
		}
		if err != nil {
			return nil, err
		}
		if err = t.Tx.QueryRow(ctx, enter, args...).Scan(&before); err == nil && b.actor != "" {
			err = t.Tx.QueryRow(ctx, "select coalesce(current_setting('annals.actor', true), ''), set_config('annals.actor', $1, true)", b.actor).Scan(&t.actor, nil)
		}
	}
	if err == nil && before == nil {
		err = &Error{Kind: ErrStale, Message: fmt.Sprintf("branch %q, the history of a table, or who reads has changed since the branch was put to use", b.Name()), Hint: "Begin again, in another transaction."}
	}
	if err != nil {
		_ = t.Rollback(context.WithoutCancel(ctx))
		return nil, refused(err)
	}
	if part {
		t.before = before
	}
	return t, nil
}

// partOf begins a part of the caller's transaction. After its end release is called.
func partOf(ctx context.Context, db DB) (tx pgx.Tx, release string, err error) {
	// On a connection on which the caller has executed BEGIN, Begin would send another, and its end would be that of the caller's transaction.
	if beginner, has := db.(interface {
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	}); has {
		if db, err = beginner.BeginTx(ctx, pgx.TxOptions{BeginQuery: "savepoint gnomon_branch"}); err != nil {
			return nil, "", err
		}
		release = "release savepoint gnomon_branch"
	}
	tx, err = db.Begin(ctx)
	return tx, release, err
}

// Query runs a statement on the branch. The rows must be closed, as pgx's own; pgx.CollectRows does that. What the statement wrote is
// committed then.
func (b *Branch) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	for again := false; ; again = true {
		t, err := b.begin(ctx, pgx.TxOptions{})
		if err != nil {
			return nil, err
		}
		var rows pgx.Rows
		if err = t.note(ctx, sql, args); err == nil {
			rows, err = t.Tx.Query(ctx, t.marked(sql), args...)
		}
		r := t.rows(rows, sql)
		if err == nil {
			// The first row tells whether the query is answered at all.
			r.end, r.peeked = func() error { return t.Commit(context.WithoutCancel(ctx)) }, true
			if r.more = rows.Next(); r.more {
				return r, nil
			}
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			_ = t.Rollback(context.WithoutCancel(ctx))
			r.end = nil
			if !again && b.changed(ctx, t.opened, err) {
				continue
			}
			if rows == nil {
				return nil, b.refused(sql, err)
			}
			return r, b.refused(sql, err)
		}
		r.Close()
		return r, r.Err()
	}
}

// QueryRow runs a statement of which one row is wanted.
func (b *Branch) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := b.Query(ctx, sql, args...)
	return placedRow{rows, err}
}

// Exec runs a statement that returns no rows.
func (b *Branch) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := b.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// SendBatch runs statements on the branch, in one transaction, which closing the results commits. The batch must not begin one itself.
func (b *Branch) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	t, err := b.begin(ctx, pgx.TxOptions{})
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	if err := t.noteBatch(ctx, batch); err != nil {
		_ = t.Rollback(context.WithoutCancel(ctx))
		return pgx.FailedBatchResults(batch, b.refused("", err))
	}
	return &branchBatch{BatchResults: t.Tx.SendBatch(ctx, t.markedBatch(batch)), ctx: ctx, tx: t, own: true}
}

// BranchPool is a branch on a pool of its own: whatever is asked of it happens on the branch, through poolers, too. Close it in the end.
type BranchPool struct {
	*Branch
	pool *pgxpool.Pool
}

// Pool connects as config says, which may be as another role, and returns the branch on that pool. [ErrUnknownBranch]: that role may not use the branch.
func (b *Branch) Pool(ctx context.Context, config *pgxpool.Config) (*BranchPool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &BranchPool{Branch: b.In(pool), pool: pool}
	if _, err := p.open(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}

// Close closes the pool.
func (p *BranchPool) Close() { p.pool.Close() }
