package ibench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// slice is what a side did in one turn.
type slice struct {
	units    float64 // rows that were inserted or indexed, or queries
	rows     float64 // that were inserted
	seconds  float64
	cpu      map[Operation]float64 // seconds of the backends, nil where it isn't known
	client   float64               // seconds
	switches float64
	wal      float64
	images   float64
	lagBytes float64
	lag      float64
	p99      float64 // microseconds, of the step's operation
	vacuums  int64
	checks   int64 // checkpoints
	before   reading
	after    reading
}

func (s slice) serverCPU() float64 {
	if s.cpu == nil {
		return math.NaN()
	}
	var sum float64
	for _, seconds := range s.cpu {
		sum += seconds
	}
	return sum
}

// turn lets the side's clients work for a slice.
func (l *lane) turn(ctx context.Context, st step, size Size, number int) (s slice, err error) {
	for _, c := range l.clients {
		for _, h := range c.latency {
			h.Reset()
		}
	}
	if st.kind == build && number >= len(indexes) {
		for _, c := range l.clients {
			if _, err := l.control.Exec(ctx, "drop index "+c.table+"_"+indexes[number%len(indexes)].name); err != nil {
				return s, err
			}
		}
	}
	if s.before, err = l.read(ctx); err != nil {
		return s, err
	}
	switch st.kind {
	case load:
		err = l.drive(ctx, &s, func(ctx context.Context, c *client) (float64, error) {
			return c.load(ctx, st.batch, st.transactions(size))
		})
	case churn:
		err = l.drive(ctx, &s, func(ctx context.Context, c *client) (float64, error) {
			return c.churn(ctx, st.batch, st.transactions(size))
		})
	case build:
		err = l.drive(ctx, &s, func(ctx context.Context, c *client) (float64, error) {
			return c.build(ctx, indexes[number%len(indexes)])
		})
	case ranges, points:
		err = l.drive(ctx, &s, func(ctx context.Context, c *client) (float64, error) { return c.serve(ctx, st, size.Serve, number) })
	}
	if err != nil {
		return s, err
	}
	if s.after, err = l.read(ctx); err != nil {
		return s, err
	}
	s.since(s.before, s.after)
	merged := newHistogram()
	for _, c := range l.clients {
		merged.Merge(c.latency[st.operation()])
	}
	s.p99 = float64(merged.ValueAtQuantile(99)) / 1000
	return s, nil
}

// since takes what the counters counted.
func (s *slice) since(before, after reading) {
	s.client = after.client - before.client
	s.wal, s.images = after.wal-before.wal, after.images-before.images
	s.vacuums, s.checks = after.vacuums-before.vacuums, after.checkpoints-before.checkpoints
	s.lagBytes, s.lag = after.lagBytes, after.lagSeconds
	s.switches = math.NaN()
	if before.usage == nil || after.usage == nil {
		return
	}
	s.cpu, s.switches = map[Operation]float64{}, 0
	for o, u := range after.usage {
		s.cpu[o] = u.CPU - before.usage[o].CPU
		s.switches += float64(u.Switches - before.usage[o].Switches)
	}
}

// drive starts all clients at once and returns when the last one has finished. The first error stops all of them.
func (l *lane) drive(ctx context.Context, s *slice, work func(context.Context, *client) (units float64, err error)) error {
	before := l.inserted()
	units := make([]float64, len(l.clients))
	began := time.Now()
	err := together(ctx, len(l.clients), func(ctx context.Context, i int) (err error) {
		if units[i], err = work(ctx, l.clients[i]); err != nil {
			err = fmt.Errorf("client %d: %w", i+1, err)
		}
		return err
	})
	s.seconds = time.Since(began).Seconds()
	for _, n := range units {
		s.units += n
	}
	s.rows = float64(l.inserted() - before)
	return err
}

func (l *lane) inserted() (rows int64) {
	for _, c := range l.clients {
		rows += c.inserted
	}
	return rows
}

// together calls work with each number below n at once. The first error, which is returned, ends the others' context.
func together(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := work(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// load inserts at full speed.
func (c *client) load(ctx context.Context, batch, transactions int) (float64, error) {
	if c.inserter.mode == Lean {
		return float64(batch * transactions), c.inserter.pipeline(ctx, batch, transactions, func(sent time.Time) {
			c.inserted += int64(batch)
			c.record(Insert, time.Since(sent))
		})
	}
	for range transactions {
		if err := c.insert(ctx, batch, time.Now()); err != nil {
			return 0, err
		}
	}
	return float64(batch * transactions), nil
}

func (c *client) insert(ctx context.Context, rows int, from time.Time) error {
	if err := c.inserter.insert(ctx, rows); err != nil {
		return err
	}
	c.inserted += int64(rows)
	c.record(Insert, time.Since(from))
	return nil
}

func (c *client) delete(ctx context.Context, rows int, from time.Time) error {
	if err := c.deleter.delete(ctx, rows); err != nil {
		return err
	}
	c.record(Delete, time.Since(from))
	return nil
}

// churn inserts at full speed while as many transactions delete: at most two of them are behind.
func (c *client) churn(ctx context.Context, batch, transactions int) (float64, error) {
	inserted := make(chan struct{}, 2)
	return float64(batch * transactions), together(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			defer close(inserted)
			for range transactions {
				if err := c.insert(ctx, batch, time.Now()); err != nil {
					return err
				}
				select {
				case inserted <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
			}
			return nil
		}
		for range inserted {
			if err := c.delete(ctx, batch, time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// build builds an index. What is counted are the table's rows.
func (c *client) build(ctx context.Context, i index) (float64, error) {
	began := time.Now()
	_, err := execute(ctx, c.inserter.conn, fmt.Sprintf("create index %s_%s on %s (%s)", c.table, i.name, c.table, i.columns))
	c.record(Build, time.Since(began))
	return float64(c.inserted - c.deleter.oldest + 1), err
}

// serve queries at full speed while rows are inserted and deleted at the step's rate.
func (c *client) serve(ctx context.Context, st step, length time.Duration, number int) (queries float64, err error) {
	p := pace{every: time.Duration(float64(time.Second) * float64(st.batch) / float64(st.rate)), began: time.Now(), passed: time.Duration(number) * length, length: length}
	if number == 0 {
		c.insertions, c.deletions = 0, 0
	}
	// They move while queries choose their keys.
	var oldest, newest atomic.Int64
	oldest.Store(c.deleter.oldest)
	newest.Store(c.inserted)
	err = together(ctx, 3, func(ctx context.Context, i int) error {
		switch i {
		case 0:
			return p.keep(ctx, &c.insertions, 0, func(from time.Time) error {
				defer func() { newest.Store(c.inserted) }()
				return c.insert(ctx, st.batch, from)
			})
		case 1:
			return p.keep(ctx, &c.deletions, p.every/2, func(from time.Time) error {
				defer func() { oldest.Store(c.deleter.oldest) }()
				return c.delete(ctx, st.batch, from)
			})
		}
		for end := p.began.Add(length); ; queries++ {
			began := time.Now()
			if !began.Before(end) || ctx.Err() != nil {
				return nil
			}
			ask := c.asker.rangeRows
			if st.kind == points {
				ask = func(ctx context.Context) error { return c.asker.pointRows(ctx, oldest.Load(), newest.Load()) }
			}
			if err := ask(ctx); err != nil {
				return err
			}
			c.record(Query, time.Since(began))
		}
	})
	return queries, err
}
