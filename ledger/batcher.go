package ledger

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrBatcherClosed is returned by transfers that come after [Batcher.Close].
var ErrBatcherClosed = errors.New("ledger: the batcher is closed")

// BatcherOptions tunes a [Batcher]. The zero value is a good start.
type BatcherOptions struct {
	// MaxBatch is how many transfers go into one call at most, by default 200.
	MaxBatch int
	// MaxDelay is how long a transfer may wait for company when the database is idle, by default not at all: transfers that arrive while
	// a call is under way gather by themselves.
	MaxDelay time.Duration
	// Calls is how many calls may be under way at once, by default 1, which is best when the accounts of the callers overlap.
	Calls int
}

// Batcher gathers the transfers of many goroutines into few calls. Each caller gets its own result or refusal, as if it had called
// [Ledger.Transfer]; a refused transfer never fails its neighbours. It books in transactions of its own, so it is no use inside a
// caller's transaction, and its calls end with none of its callers' contexts: set statement_timeout on the pool where the server may
// hang. Close it to stop.
type Batcher struct {
	ledger  *Ledger
	options BatcherOptions
	queue   chan *waiting
	workers sync.WaitGroup

	mu     sync.RWMutex // held for reading while sending on queue
	closed bool
}

// waiting is one caller.
type waiting struct {
	transfer TransferParams
	gone     atomic.Bool // its context ended
	done     chan struct{}
	posted   Posted
	err      error
}

// NewBatcher starts a batcher on a pool: anything else can't run calls beside its caller.
func NewBatcher(pool DB, o BatcherOptions) *Batcher {
	if o.MaxBatch <= 0 {
		o.MaxBatch = 200
	}
	if o.Calls <= 0 {
		o.Calls = 1
	}
	b := &Batcher{ledger: New(pool), options: o, queue: make(chan *waiting, o.MaxBatch)}
	for range o.Calls {
		b.workers.Go(b.work)
	}
	return b
}

// Transfer books one transfer together with those of other callers. When ctx ends first it returns ctx's error, and the transfer may
// have been booked nevertheless: repeating it with the same ID tells.
func (b *Batcher) Transfer(ctx context.Context, t TransferParams) (Posted, error) {
	if t.ID.IsZero() {
		t.ID = NewTransferID()
	}
	// What can't even be sent must not take its neighbours down.
	if _, err := newBatchArgs([]TransferParams{t}); err != nil {
		return Posted{}, at(-1, err)
	}
	w := &waiting{transfer: t, done: make(chan struct{})}
	if err := b.enqueue(ctx, w); err != nil {
		return Posted{}, err
	}
	select {
	case <-w.done:
		return w.posted, w.err
	case <-ctx.Done():
		w.gone.Store(true)
		return Posted{}, ctx.Err()
	}
}

func (b *Batcher) enqueue(ctx context.Context, w *waiting) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return ErrBatcherClosed
	}
	select {
	case b.queue <- w:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close refuses new transfers, books those that wait, and returns when all have their results.
func (b *Batcher) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.queue)
	}
	b.mu.Unlock()
	b.workers.Wait()
}

func (b *Batcher) work() {
	var later []*waiting // transfers whose id is in the batch before: their own result is that one's, replayed
	for {
		batch := later
		if len(batch) == 0 {
			first, ok := <-b.queue
			if !ok {
				return
			}
			batch = []*waiting{first}
		}
		batch, later = apart(b.gather(batch))
		b.run(batch)
	}
}

// gather takes what waits, and waits for more only if it may.
func (b *Batcher) gather(batch []*waiting) []*waiting {
	var expired <-chan time.Time
	if b.options.MaxDelay > 0 {
		timer := time.NewTimer(b.options.MaxDelay)
		defer timer.Stop()
		expired = timer.C
	}
	for len(batch) < b.options.MaxBatch {
		select {
		case w, ok := <-b.queue:
			if !ok {
				return batch
			}
			batch = append(batch, w)
			continue
		default:
		}
		if expired == nil {
			return batch
		}
		select {
		case w, ok := <-b.queue:
			if !ok {
				return batch
			}
			batch = append(batch, w)
		case <-expired:
			return batch
		}
	}
	return batch
}

// apart leaves out who has gone, and puts off a second transfer with the same id.
func apart(all []*waiting) (batch, later []*waiting) {
	seen := make(map[TransferID]bool, len(all))
	for _, w := range all {
		switch {
		case w.gone.Load():
			close(w.done)
		case seen[w.transfer.ID]:
			later = append(later, w)
		default:
			seen[w.transfer.ID] = true
			batch = append(batch, w)
		}
	}
	return batch, later
}

func (b *Batcher) run(batch []*waiting) {
	// The callers' contexts end each for itself; a call under way is theirs together.
	ctx := context.Background()
	if len(batch) > 1 {
		transfers := make([]TransferParams, len(batch))
		for i, w := range batch {
			transfers[i] = w.transfer
		}
		posted, refused, err := b.ledger.TransferEach(ctx, transfers)
		var pgErr *pgconn.PgError
		if err == nil || !errors.As(err, &pgErr) {
			for i, w := range batch {
				if w.err = err; err == nil {
					w.posted, w.err = posted[i], at(-1, refused[i])
				}
				close(w.done)
			}
			return
		}
		// A value in one of them is not usable: each on its own tells whose it is.
	}
	for _, w := range batch {
		w.posted, w.err = b.ledger.Transfer(ctx, w.transfer)
		close(w.done)
	}
}
