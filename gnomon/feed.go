package gnomon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// FeedOptions say how a process works for a consumer. The zero value is usable.
type FeedOptions struct {
	PageSize int           // changes in a page at most, up to a million; 0: 1000
	Window   int64         // about how many entries are read at once, where ticks tell, up to a billion; 0: 50,000
	Poll     time.Duration // how often it is looked for changes where no notice comes; 0: a second
	Lease    time.Duration // how long another process waits when this one dies; 0: 30 seconds
	Holder   string        // what the process is called in ConsumerStatus; "": host and process id
	Drain    bool          // end when there is nothing more, instead of waiting

	// Outside has the handler called outside of a transaction, with a nil Tx, and the position moved after it: for handlers that write
	// elsewhere. They may get a page again after a failure. Changes of a transaction that commits asynchronously may be delivered
	// before a crash of the server loses it.
	Outside bool

	// PollOnly does without notices. Set it, or Listen, behind a transaction pooler, where LISTEN does not work.
	PollOnly bool
	// Listen connects for notices; nil: as the pool does.
	Listen func(ctx context.Context) (*pgx.Conn, error)
}

// What FeedOptions may ask for.
const (
	maxPageSize = 1_000_000
	maxWindow   = 1_000_000_000
)

// Page is a run of changes of a consumer, in order.
type Page struct {
	Consumer string
	Changes  []Change
	// Complete says that the page ends where a transaction ends. Transactions that are shorter than a page are not split.
	Complete bool
	// Snapshot says that these are rows as they were where the consumer begins.
	Snapshot bool
}

// Handler works for a consumer. What it writes by tx is committed together with the consumer's position, or not at all: exactly once. An
// error ends the feed. The transaction is the feed's to end: Commit and Rollback of tx are [ErrInvalid].
type Handler func(ctx context.Context, tx pgx.Tx, page Page) error

// Feed delivers changes to a consumer. Make one with [Gnomon.Feed].
type Feed struct {
	g    *Gnomon
	name string
	o    FeedOptions
}

// Feed returns the feed of a consumer, which [Gnomon.CreateConsumer] made. The database handle must be a *pgxpool.Pool; a feed uses three of
// its connections at most, and one of its own for notices.
func (g *Gnomon) Feed(consumer string, o FeedOptions) *Feed {
	o.PageSize, o.Window = cmp.Or(o.PageSize, 1000), cmp.Or(o.Window, 50_000)
	o.Poll, o.Lease = cmp.Or(o.Poll, time.Second), cmp.Or(o.Lease, 30*time.Second)
	if o.Holder == "" {
		host, _ := os.Hostname()
		o.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	return &Feed{g, consumer, o}
}

// Run hands pages to a handler until the context ends, whose error it returns then, or the handler fails, whose error it returns. While
// another process works for the consumer it waits and takes over when that ends or dies. Errors are [ErrUnknownConsumer],
// [ErrLease] when the consumer was taken over, as after a pause longer than the lease, [ErrEpoch] after a restore, and
// [ErrNoHistory] when history was interrupted, so that changes are not known. After an error of the connection, call Run again.
//
// The handler sees every change once, in an order that agrees with the order of commits along each row. A change that commits while an older one
// is still in process comes later: however transactions overlap, none is missed. What is being delivered stays the same when tables are tracked or untracked in its midst.
func (f *Feed) Run(ctx context.Context, handle Handler) (err error) {
	pool, ok := f.g.db.(*pgxpool.Pool)
	if !ok {
		return &Error{Kind: ErrInvalid, Message: "a feed needs a pool of connections", Hint: "Make the Gnomon with a *pgxpool.Pool."}
	}
	if f.o.PageSize < 1 || f.o.PageSize > maxPageSize || f.o.Window < 1 || f.o.Window > maxWindow || f.o.Poll < 0 || f.o.Lease < 0 {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("a page has 1 to %d changes, a window 1 to %d entries, and no time of a feed is negative", maxPageSize, maxWindow), Hint: "Leave them out."}
	}
	r := &feedRun{Feed: f, pool: pool, handle: handle, lease: newLease()}
	wake, stop := f.listen(ctx, pool)
	defer stop()
	if err := r.acquire(ctx); err != nil {
		return refused(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// Until the handler has returned, also when the context ended before.
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		r.renew(renewing, cancel)
	}()
	defer func() {
		cancel(nil)
		end()
		<-renewed
		released, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = pool.Exec(released, "select gnomon.release_consumer($1, $2)", f.name, r.lease) // else it ends by itself
	}()
	for {
		idle, err := r.step(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(cause, ErrLease) {
			return cause
		}
		if err != nil {
			return refused(err)
		}
		if !idle {
			continue
		}
		if f.o.Drain {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
		case <-time.After(f.o.Poll):
		}
	}
}

// All returns the changes of a consumer one by one. The position moves past a page when the loop asks for what comes after it, so a loop
// that ends early gets the page that it was in again: at least once.
func (f *Feed) All(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		outside := *f
		outside.o.Outside = true
		stopped := false
		err := outside.Run(ctx, func(_ context.Context, _ pgx.Tx, page Page) error {
			for _, c := range page.Changes {
				if !yield(c, nil) {
					stopped = true
					return errStopped
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Change{}, err)
		}
	}
}

// feedRun is a process that works for a consumer.
type feedRun struct {
	*Feed
	pool   *pgxpool.Pool
	handle Handler
	lease  pgtype.UUID
}

func newLease() (u pgtype.UUID) {
	_, _ = rand.Read(u.Bytes[:]) // never fails
	u.Valid = true
	return u
}

// take begins to work for the consumer, or goes on to; false while another process does.
func (r *feedRun) take(ctx context.Context) (taken bool, err error) {
	err = r.pool.QueryRow(ctx, "select gnomon.lease_consumer($1, $2, $3, $4)", r.name, r.lease, r.o.Holder, r.o.Lease.Seconds()).Scan(&taken)
	return taken, err
}

// acquire waits until the consumer is free.
func (r *feedRun) acquire(ctx context.Context) error {
	for {
		if taken, err := r.take(ctx); taken || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(r.o.Poll, r.o.Lease/3)):
		}
	}
}

// renew keeps the consumer until the context ends, or says that the consumer is lost.
func (r *feedRun) renew(ctx context.Context, lost context.CancelCauseFunc) {
	until := time.Now().Add(r.o.Lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.o.Lease / 3):
		}
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, r.o.Lease/3)
		taken, err := r.take(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case taken:
			until = asked.Add(r.o.Lease)
		case err == nil, time.Now().After(until), pgtx.HasCode(err, "GN012"):
			lost(&Error{Kind: ErrLease, Message: fmt.Sprintf("consumer %q was taken over by another process", r.name), Hint: "Call Run again to wait for it", cause: err})
			return
		}
	}
}

// step delivers what there is; idle says that there was nothing.
func (r *feedRun) step(ctx context.Context) (idle bool, err error) {
	var snapshot *uint32
	var open, latest bool
	if err := r.pool.QueryRow(ctx, "select w.rows_of::oid, w.open, w.latest from gnomon.open_window($1, $2, $3) w", r.name, r.lease, r.o.Window).Scan(&snapshot, &open, &latest); err != nil {
		return false, err
	}
	if snapshot != nil {
		return false, r.deliverRows(ctx, *snapshot)
	}
	if !open {
		return true, nil
	}
	n, err := r.deliverWindow(ctx)
	if err != nil {
		return false, err
	}
	_, err = r.pool.Exec(ctx, "select gnomon.close_window($1, $2)", r.name, r.lease)
	return n == 0 && latest, err
}

// deliver hands a page to the handler and moves the position by a statement.
func (r *feedRun) deliver(ctx context.Context, page Page, move string, args ...any) error {
	if r.o.Outside {
		if err := r.handle(ctx, nil, page); err != nil {
			return err
		}
		_, err := r.pool.Exec(ctx, move, args...)
		return err
	}
	return pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if err := r.handle(ctx, handlersTx{tx}, page); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, move, args...)
		return err
	})
}

// handlersTx is the transaction of a page, which the feed ends: else what the handler wrote would be committed and the position not.
type handlersTx struct{ pgx.Tx }

var errFeedEnds = &Error{Kind: ErrInvalid, Message: "the feed ends the transaction of a page", Hint: "Return nil to commit it, or an error to roll it back."}

// Commit is refused.
func (handlersTx) Commit(context.Context) error { return errFeedEnds }

// Rollback is refused.
func (handlersTx) Rollback(context.Context) error { return errFeedEnds }

// deliverWindow delivers what is left of the window that is open.
func (r *feedRun) deliverWindow(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// As many pages as a window has unless those are small, so that its snapshot is let go of while they are handled; of a giant transaction, no more.
	pages := make(chan Page, min(r.o.Window/int64(r.o.PageSize)+2, 64))
	read := make(chan error, 1)
	go func() {
		read <- r.readWindow(ctx, pages)
		close(pages)
	}()
	for page := range pages {
		last := page.Changes[len(page.Changes)-1]
		whole := []string{}
		for _, c := range page.Changes {
			if c.Last {
				whole = append(whole, c.xid())
			}
		}
		var within *string
		if !last.Last {
			xid := last.xid()
			within = &xid
		}
		if err := r.deliver(ctx, page, "select gnomon.move_consumer($1, $2, $3, $4, $5::text::xid8, $6::text[]::xid8[], $7)", r.name, r.lease, last.top, last.place, within, whole, len(page.Changes)); err != nil {
			cancel()
			<-read
			return n, err
		}
		n += len(page.Changes)
	}
	return n, <-read
}

// readWindow reads the window that is open.
func (r *feedRun) readWindow(ctx context.Context, pages chan<- Page) error {
	p := pager{consumer: r.name, size: r.o.PageSize, emit: func(page Page) error {
		select {
		case pages <- page:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	return inSettings(ctx, r.pool, func(tx pgx.Tx) error {
		var query string
		if err := tx.QueryRow(ctx, "select gnomon.window_query(gnomon.consumer_of($1))", r.name).Scan(&query); err != nil {
			return err
		}
		if err := readChanges(ctx, tx, query, p.add); err != nil {
			return err
		}
		return p.flush(len(p.changes))
	})
}

// pager makes pages of changes, which end where transactions end if these are shorter than a page.
type pager struct {
	consumer string
	size     int
	emit     func(Page) error
	changes  []Change
	ended    int // length of the changes up to the last end of a transaction
}

func (p *pager) add(c Change) error {
	if p.changes == nil {
		p.changes = make([]Change, 0, min(p.size, 1000))
	}
	p.changes = append(p.changes, c)
	if c.Last {
		p.ended = len(p.changes)
	}
	if len(p.changes) < p.size {
		return nil
	}
	return p.flush(cmp.Or(p.ended, len(p.changes)))
}

// flush emits the first n changes.
func (p *pager) flush(n int) error {
	if n == 0 {
		return nil
	}
	rest := p.changes[n:]
	page := Page{Consumer: p.consumer, Changes: p.changes[:n:n], Complete: p.ended == n}
	p.changes, p.ended = nil, 0
	if len(rest) > 0 {
		p.changes = append(make([]Change, 0, max(len(rest), min(p.size, 1000))), rest...)
	}
	return p.emit(page)
}

// deliverRows delivers rows of a table as they were where the consumer begins.
func (r *feedRun) deliverRows(ctx context.Context, table uint32) error {
	limit := max(20_000, r.o.PageSize)
	var rows []Change
	err := inSettings(ctx, r.pool, func(tx pgx.Tx) error {
		shapes, err := shapesOf(ctx, tx)
		if err != nil {
			return err
		}
		var query string
		var id int32
		if err := tx.QueryRow(ctx, "select gnomon.snapshot_query(c, $2), gnomon.history_at(c.snapshot_tables[1], gnomon.stored_place(c.from_snapshot, c.epoch, c.from_bound)) from gnomon.consumer_of($1) c", r.name, limit).Scan(&query, &id); err != nil {
			return err
		}
		found, err := tx.Query(ctx, query, inBinary(2)...)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			raw := found.RawValues()
			rows = append(rows, Change{Table: shapes[id].table, Operation: SnapshotRow, Key: textsOf(string(raw[0])), New: Image{shapes[id], string(raw[1])}, Last: true})
		}
		return found.Err()
	})
	if err != nil {
		return err
	}
	last := len(rows) < limit
	for {
		n := min(len(rows), r.o.PageSize)
		var key []string // null: that was all
		if !last || n < len(rows) {
			key = rows[n-1].Key
		}
		page := Page{Consumer: r.name, Changes: rows[:n:n], Complete: true, Snapshot: true}
		move, args := "select gnomon.move_rows($1, $2, $3::oid::regclass, $4, $5)", []any{r.name, r.lease, table, key, n}
		if n == 0 {
			if last {
				_, err = r.pool.Exec(ctx, move, args...)
			}
			return err
		}
		if err := r.deliver(ctx, page, move, args...); err != nil {
			return err
		}
		rows = rows[n:]
		if len(rows) == 0 {
			return nil
		}
	}
}
