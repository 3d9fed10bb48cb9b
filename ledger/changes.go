package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgtx"
)

// Position is how far a reader has followed the books. It is exact: whatever commits, and however late, is either before it or after it.
// Keep it as text beside what you made of the entries. The empty position is the beginning.
//
// Positions are in terms of the transactions of one database: they survive restarts, and failover to a standby that lost nothing. After
// a restore into another cluster, or pg_upgrade, reading is [ErrPosition] until [Ledger.AdoptBooks] was called once, and then begins anew.
type Position string

// Change is an entry of the books, as [Ledger.Changes] delivers it.
type Change struct {
	Position     Position // where to go on after it
	Kind         string   // transfer or journal
	Source       uuid.UUID
	Leg          int // in a transfer 1 pays and 2 receives
	CreatedAt    time.Time
	EventAt      time.Time // when it happened; CreatedAt if nobody said
	Account      AccountID
	Version      int64
	Amount       decimal.Decimal // debit above zero, credit below
	Balance      decimal.Decimal // running balance
	Counterparty AccountID       // the other side of a transfer; zero in journal entries
	Description  string
	Metadata     json.RawMessage
}

// Position returns the position after everything that is committed now. It is [ErrPosition] on a standby.
func (l *Ledger) Position(ctx context.Context) (Position, error) {
	var p string
	err := l.call(ctx, []any{&p}, "select ledger.position_now()")
	return Position(p), err
}

// AdoptBooks makes books that came from another database cluster, by restoring a dump or by pg_upgrade, fit to be followed here: all that
// is in them counts as booked before any position. It rewrites every transfer, once; elsewhere it is a no-op. Only the owner of the
// books may call it.
func (l *Ledger) AdoptBooks(ctx context.Context) error {
	return l.call(ctx, nil, "select ledger.adopt_books()")
}

// changesPage is how many entries are fetched at a time.
const changesPage = 1000

// Changes yields the entries after a position that are committed when it begins, in the order in which they were booked, all legs of a
// transfer or journal entry together, and each account's versions without a gap. It reads in a transaction of its own, or in the
// caller's, through a cursor that it closes; the body of the loop may use the caller's transaction.
//
// To follow the books, keep the Position of the last entry and call again: see [Ledger.Follow].
func (l *Ledger) Changes(ctx context.Context, after Position) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var err error
		if pgtx.InTx(l.db) {
			err = readChanges(ctx, l.db, after, yield)
		} else {
			err = pgtx.Run(ctx, l.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
				return readChanges(ctx, tx, after, yield)
			})
		}
		if err != nil && err != errLeft {
			yield(Change{}, refused(err))
		}
	}
}

// errLeft says that the body of the loop has left it.
var errLeft = errors.New("the loop was left")

// cursors numbers cursors, so that loops inside loops have their own.
var cursors atomic.Int64

// readChanges goes through a cursor, because the entries of a window are sorted once and not once a page. Each statement is
// guarded by itself: what the loop's body writes in the same transaction stays.
func readChanges(ctx context.Context, db DB, after Position, yield func(Change, error) bool) error {
	cursor := fmt.Sprintf("ledger_changes_%d", cursors.Add(1))
	_, err := pgtx.Exec(ctx, db, "declare "+cursor+" no scroll cursor for select * from ledger.changes($1, null)", string(after))
	if err != nil {
		return err
	}
	// However this ends, in the caller's transaction it leaves no cursor behind, not even one that failed.
	defer func() { _, _ = pgtx.Exec(ctx, db, "close "+cursor) }()
	for {
		page, err := fetchChanges(ctx, db, cursor)
		if err != nil {
			return err
		}
		for _, c := range page {
			if !yield(c, nil) {
				return errLeft
			}
		}
		if len(page) < changesPage {
			return nil
		}
	}
}

func fetchChanges(ctx context.Context, db DB, cursor string) (page []Change, err error) {
	err = pgtx.Query(ctx, db, func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, scanChange)
		return err
	}, fmt.Sprintf("fetch %d from %s", changesPage, cursor))
	return page, err
}

func scanChange(row pgx.CollectableRow) (c Change, err error) {
	var amount, balance pgtype.Numeric
	var source, account, counterparty pgtype.UUID
	var description *string
	err = row.Scan(&c.Position, &c.Kind, &source, &c.Leg, &c.CreatedAt, &c.EventAt, &account, &c.Version, &amount, &balance,
		&counterparty, &description, &c.Metadata)
	c.Source, c.Account, c.Counterparty = source.Bytes, account.Bytes, counterparty.Bytes
	c.Amount, c.Balance = fromNumeric(amount), fromNumeric(balance)
	if description != nil {
		c.Description = *description
	}
	return c, err
}

// SetNotify switches on or off that the database tells listeners, once per commit, when something was booked. It is off after Install,
// because NOTIFY makes commits wait for each other. Only the owner of the books may switch it.
func (l *Ledger) SetNotify(ctx context.Context, on bool) error {
	return l.call(ctx, nil, "select ledger.set_notify($1)", on)
}

// Follow calls handle for each entry after a position, and for each that is booked later, until ctx ends or handle returns an error,
// which it returns. It looks every so often (zero: each second), and at once when [Ledger.SetNotify] is on and the ledger is on a
// *pgxpool.Pool that reaches the server without a transaction pooler.
//
// handle keeps Change.Position together with what it made of the entry, in one transaction where it can; Follow begun again from there
// then neither skips nor repeats one.
func (l *Ledger) Follow(ctx context.Context, after Position, every time.Duration, handle func(context.Context, Change) error) error {
	if every <= 0 {
		every = time.Second
	}
	bell := l.listen(ctx)
	defer bell.close()
	for {
		for c, err := range l.Changes(ctx, after) {
			if err != nil {
				return err
			}
			if err := handle(ctx, c); err != nil {
				return err
			}
			after = c.Position
		}
		if err := bell.wait(ctx, every); err != nil {
			return err
		}
	}
}

// bell is a connection that listens, if there is one.
type bell struct {
	conn *pgx.Conn
}

// listen connects as the pool does. Where it can't, looking every so often has to do.
func (l *Ledger) listen(ctx context.Context) *bell {
	pool, ok := l.db.(*pgxpool.Pool)
	if !ok {
		return &bell{}
	}
	config := pool.Config()
	if config.BeforeConnect != nil && config.BeforeConnect(ctx, config.ConnConfig) != nil {
		return &bell{}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return &bell{}
	}
	if _, err := conn.Exec(ctx, "listen ledger"); err != nil {
		_ = conn.Close(ctx)
		return &bell{}
	}
	return &bell{conn: conn}
}

func (b *bell) close() {
	if b.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.conn.Close(ctx)
	}
}

// wait returns when the bell rings or the time is over. A bell that broke is done without: looking every so often remains.
func (b *bell) wait(ctx context.Context, every time.Duration) error {
	timed, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	if b.conn != nil {
		_, err := b.conn.WaitForNotification(timed)
		if err == nil || timed.Err() != nil {
			return ctx.Err()
		}
		b.close()
		b.conn = nil
	}
	<-timed.Done()
	return ctx.Err()
}
