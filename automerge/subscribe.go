package automerge

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgtx"
)

// Event says that a document has changed.
type Event struct {
	Doc     uuid.UUID
	Changes []Change // what was added, each after those that it depends on
	Before  []Hash   // heads before that
	Heads   []Hash   // heads after it: keep them to go on from there ([SubscribeOptions].Since)
	Patches []Patch  // what that does to the document, where it was asked for
	Deleted bool     // the document is gone, or may not be seen any more: nothing follows
}

// SubscribeOptions say how [Store.Subscribe] works. Zero values mean the default.
type SubscribeOptions struct {
	// Since says which heads of a document are known already; without, its events begin with what comes after the loop has begun.
	Since map[uuid.UUID][]Hash
	// Patches are wanted, too: each event then takes a pass over its document.
	Patches bool
	// Poll is how often it looks where it hears nothing; default: every second.
	Poll time.Duration
	// Listen connects for listening; it must not go through a transaction pooler. Default: as the pool does. Where it fails, looking has to do.
	Listen func(ctx context.Context) (*pgx.Conn, error)
}

// Subscribe yields what is added to documents, in the order in which it is, without a gap or a duplicate: what is heard through LISTEN only says
// when to look, so what happened while a connection was lost is found afterwards. Changes that come close to each other come in one event.
//
// It goes on until the loop is left or ctx ends, whose error is the last that is yielded; other errors end it, too, but for lost connections. The store must
// be on a *pgxpool.Pool, or nothing is heard and it looks every so often.
func (s *Store) Subscribe(ctx context.Context, o SubscribeOptions, ids ...uuid.UUID) iter.Seq2[Event, error] {
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		f := &following{store: s, o: o, docs: map[uuid.UUID]*position{}}
		for _, id := range ids {
			f.docs[id] = &position{}
			if heads, ok := o.Since[id]; ok {
				f.docs[id] = &position{begun: true, changes: -1, heads: heads}
			}
		}
		wake := f.listen(ctx)
		for {
			events, err := f.look(ctx)
			if err != nil && ctx.Err() == nil && !lost(err) {
				yield(Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				yield(Event{}, context.Cause(ctx))
				return
			case <-wake:
			case <-time.After(o.Poll):
			}
		}
	}
}

// lost tells whether an error is one of the connection, which may be better next time.
func lost(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return strings.HasPrefix(pgErr.Code, "08") || strings.HasPrefix(pgErr.Code, "57P") || strings.HasPrefix(pgErr.Code, "53")
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	return pgconn.SafeToRetry(err) || errors.As(err, &connecting) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// following is what a subscription has seen.
type following struct {
	store *Store
	o     SubscribeOptions
	docs  map[uuid.UUID]*position
}

// position is how far a document was followed. A document has as many changes as its last one's place says; where that is not known (-1), its
// heads say what is.
type position struct {
	begun   bool
	changes int64
	heads   []Hash
}

const lookForSQL = "select d.id, d.heads, d.changes, c.hash, c.deps, c.actor, c.seq, c.start_op, c.ops, c.time, coalesce(c.message, ''), c.chunk from unnest($1::uuid[], $2::bigint[]) w (id, changes) " +
	"join automerge.document d on d.id = w.id left join automerge.change c on c.doc = d.id and c.place > w.changes and w.changes >= 0 order by d.id, c.place"

// look finds what is new.
func (f *following) look(ctx context.Context) ([]Event, error) {
	ids := slices.Collect(maps.Keys(f.docs))
	if len(ids) == 0 {
		return nil, nil
	}
	known := make([]int64, len(ids))
	for i, id := range ids {
		known[i] = -1
		if p := f.docs[id]; p.begun {
			known[i] = p.changes
		}
	}
	found := map[uuid.UUID]*news{}
	var order []uuid.UUID
	err := pgtx.Query(ctx, f.store.db, func(rows pgx.Rows) error {
		for rows.Next() {
			n, c, err := scanNews(rows)
			if err != nil {
				return err
			}
			if found[n.id] == nil {
				found[n.id] = n
				order = append(order, n.id)
			}
			if c != nil {
				found[n.id].added = append(found[n.id].added, *c)
			}
		}
		return rows.Err()
	}, lookForSQL, uuids(ids), known)
	if err != nil {
		return nil, refused(err)
	}
	var events []Event
	for _, id := range ids {
		if found[id] == nil {
			delete(f.docs, id)
			events = append(events, Event{Doc: id, Deleted: true})
		}
	}
	for _, id := range order {
		p, n := f.docs[id], found[id]
		if !p.begun {
			*p = position{begun: true, changes: n.changes, heads: n.heads}
			continue
		}
		e, err := f.event(ctx, p, n)
		if err != nil {
			return events, err
		}
		if len(e.Changes) > 0 {
			events = append(events, e)
		}
	}
	return events, nil
}

// news is what a look found of a document.
type news struct {
	id      uuid.UUID
	heads   []Hash
	changes int64
	added   []Change
}

func scanNews(rows pgx.Rows) (*news, *Change, error) {
	n := &news{}
	var heads, deps [][]byte
	var hash, actor, chunk []byte
	var seq, startOp, ops, seconds *int64
	var text string
	if err := rows.Scan(&n.id, &heads, &n.changes, &hash, &deps, &actor, &seq, &startOp, &ops, &seconds, &text, &chunk); err != nil {
		return nil, nil, err
	}
	n.heads = fromArray(heads)
	if hash == nil {
		return n, nil, nil
	}
	c := &Change{Hash: Hash(hash), Deps: fromArray(deps), Actor: hex.EncodeToString(actor), Seq: *seq, StartOp: *startOp, Ops: *ops, Message: text, Chunk: chunk}
	if *seconds != 0 {
		c.Time = time.Unix(*seconds, 0).UTC()
	}
	return n, c, nil
}

// event makes an event of news, and goes on to there.
func (f *following) event(ctx context.Context, p *position, n *news) (Event, error) {
	if p.changes < 0 || int64(len(n.added)) != n.changes-p.changes {
		// Some of what is new was folded: the document tells.
		d, err := f.store.load(ctx, f.store.db, n.id)
		if errors.Is(err, ErrNotFound) {
			return Event{}, nil // the next look says so
		}
		if err != nil {
			return Event{}, err
		}
		all, err := d.since(ctx, p.heads)
		if err != nil {
			return Event{}, err
		}
		n = &news{id: n.id, heads: d.heads, changes: d.changes}
		for _, c := range all {
			n.added = append(n.added, changeOf(c))
		}
	}
	e := Event{Doc: n.id, Changes: n.added, Before: p.heads, Heads: n.heads}
	if f.o.Patches && len(n.added) > 0 {
		var err error
		if e.Patches, err = f.store.Diff(ctx, n.id, AsOf(e.Before...), AsOf(e.Heads...)); err != nil {
			if errors.Is(err, ErrNotFound) {
				return Event{}, nil
			}
			return Event{}, err
		}
	}
	*p = position{begun: true, changes: n.changes, heads: n.heads}
	return e, nil
}

// listen returns a channel that says when it is time to look.
func (f *following) listen(ctx context.Context) <-chan struct{} {
	wake := make(chan struct{}, 1)
	connect := f.o.Listen
	if connect == nil {
		pool, ok := f.store.db.(*pgxpool.Pool)
		if !ok {
			return wake
		}
		connect = func(ctx context.Context) (*pgx.Conn, error) {
			config := pool.Config()
			if config.BeforeConnect != nil {
				if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
					return nil, err
				}
			}
			return pgx.ConnectConfig(ctx, config.ConnConfig)
		}
	}
	wanted := map[string]bool{}
	for id := range f.docs {
		wanted[id.String()] = true
	}
	go func() {
		for ctx.Err() == nil {
			hear(ctx, connect, wanted, wake)
			// Looking goes on meanwhile.
			select {
			case <-ctx.Done():
			case <-time.After(f.o.Poll):
			}
		}
	}()
	return wake
}

// hear listens until the connection or the context ends.
func hear(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), wanted map[string]bool, wake chan<- struct{}) {
	conn, err := connect(ctx)
	if err != nil {
		return
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen automerge"); err != nil {
		return
	}
	ring := func() {
		select {
		case wake <- struct{}{}:
		default: // it will look anyway
		}
	}
	ring() // for what came before it listened
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		if doc, _, _ := strings.Cut(n.Payload, " "); wanted[doc] {
			ring()
		}
	}
}
