package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Latencies are recorded in nanoseconds, to three digits, from 100 ns to ten minutes.
const (
	shortestLatency = 100 * time.Nanosecond
	longestLatency  = 10 * time.Minute
	latencyDigits   = 3
)

// lane is a side at work: its clients, their connections and what was measured of them.
type lane struct {
	Side
	clients []*client
	meter   *meter
	close   []func() // in order of opening

	slices     []slice
	ops        int64   // since the beginning, warm-up included
	bytes      int64   // on disk after the warm-up
	diskPerOp  float64 // growth since then in bytes per unit, NaN without Bytes
	percentile percentiles
}

// client is one closed loop.
type client struct {
	op      Op
	latency *hdrhistogram.Histogram
}

func newClient(op Op) *client {
	return &client{op, hdrhistogram.New(shortestLatency.Nanoseconds(), longestLatency.Nanoseconds(), latencyDigits)}
}

// slice is what a lane did in one turn.
type slice struct {
	units float64
	rate  float64 // units per second
	cpu   float64 // seconds in its backends, NaN when unknown
	wal   float64 // bytes, NaN when unknown
}

// percentiles are latencies in microseconds.
type percentiles struct{ p50, p99, p999 float64 }

// open opens a lane for every side. What it returns closes them, and may be called again.
func (r Run) open(ctx context.Context) ([]*lane, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var lanes []*lane
	closeLanes := func() {
		cancel()
		for _, l := range lanes {
			for len(l.close) > 0 {
				last := len(l.close) - 1
				l.close[last]()
				l.close = l.close[:last]
			}
		}
	}
	for _, side := range r.Sides {
		l := &lane{Side: side, diskPerOp: math.NaN()}
		lanes = append(lanes, l)
		if err := l.open(ctx, r.Clients); err != nil {
			return nil, closeLanes, fmt.Errorf("side %q: %w", side.Name, err)
		}
	}
	return lanes, closeLanes, nil
}

// open connects the lane's clients, under an application_name that only this lane has.
func (l *lane) open(ctx context.Context, clients int) error {
	application := "bench " + rand.Text()
	control, err := l.connect(ctx, "bench control")
	if err != nil {
		return err
	}
	if l.meter, err = newMeter(ctx, control, application, procfs); err != nil {
		return err
	}
	makeOp := func(client int) (Op, error) {
		conn, err := l.connect(ctx, application)
		if err != nil {
			return nil, err
		}
		return l.Open(ctx, conn, client)
	}
	if l.Share != nil {
		pool, err := l.connectPool(ctx, application)
		if err != nil {
			return err
		}
		share, err := l.Share(ctx, pool)
		if err != nil {
			return err
		}
		makeOp = func(client int) (Op, error) { return share(client), nil }
	}
	for i := range clients {
		op, err := makeOp(i)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		l.clients = append(l.clients, newClient(op))
	}
	return nil
}

func (l *lane) connect(ctx context.Context, application string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.Conn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	// The run's context has ended when connections are closed, and the server is to hear of it.
	l.close = append(l.close, func() { conn.Close(context.WithoutCancel(ctx)) })
	return conn, nil
}

func (l *lane) connectPool(ctx context.Context, application string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(l.Conn)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["application_name"] = application
	config.MaxConns = int32(l.PoolSize)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	l.close = append(l.close, pool.Close)
	return pool, nil
}

// warmUp gives the lane a turn that leaves nothing but filled caches and plans.
func (l *lane) warmUp(ctx context.Context, length time.Duration) error {
	if _, err := l.turn(ctx, length); err != nil {
		return err
	}
	for _, c := range l.clients {
		c.latency.Reset()
	}
	if l.Bytes == nil {
		return nil
	}
	var err error
	l.bytes, err = l.size(ctx)
	return err
}

// measure gives the lane a turn that counts.
func (l *lane) measure(ctx context.Context, length time.Duration) error {
	s, err := l.turn(ctx, length)
	if err != nil {
		return err
	}
	l.slices = append(l.slices, s)
	return nil
}

// finish computes what can only be known after the last slice.
func (l *lane) finish(ctx context.Context) error {
	l.percentile = l.percentiles()
	if l.Bytes == nil {
		return nil
	}
	size, err := l.size(ctx)
	if err != nil {
		return err
	}
	l.diskPerOp = float64(size-l.bytes) / l.total(func(s slice) float64 { return s.units })
	return nil
}

// percentiles returns those of all clients' operations since the warm-up.
func (l *lane) percentiles() percentiles {
	all := l.clients[0].latency.Clone()
	for _, c := range l.clients[1:] {
		all.Merge(c.latency)
	}
	us := func(p float64) float64 { return float64(all.ValueAtPercentile(p)) / 1e3 }
	return percentiles{p50: us(50), p99: us(99), p999: us(99.9)}
}

func (l *lane) size(ctx context.Context) (int64, error) {
	size, err := l.Bytes(ctx, l.meter.conn)
	if err != nil {
		return 0, fmt.Errorf("side %q: bytes on disk: %w", l.Name, err)
	}
	return size, nil
}

// total sums a figure over all slices.
func (l *lane) total(figure func(slice) float64) float64 {
	var sum float64
	for _, s := range l.slices {
		sum += figure(s)
	}
	return sum
}

// turn lets all clients loop for length, while nobody else does, and returns what it took.
func (l *lane) turn(ctx context.Context, length time.Duration) (slice, error) {
	before, err := l.meter.read(ctx)
	if err != nil {
		return slice{}, fmt.Errorf("side %q: %w", l.Name, err)
	}
	s, err := l.drive(ctx, length)
	if err != nil {
		return slice{}, fmt.Errorf("side %q: %w", l.Name, err)
	}
	after, err := l.meter.read(ctx)
	if err != nil {
		return slice{}, fmt.Errorf("side %q: %w", l.Name, err)
	}
	s.cpu, s.wal = after.cpuSince(before), after.wal-before.wal
	return s, nil
}

// drive starts all clients at once and returns when the last one has finished. The first error stops all of them.
func (l *lane) drive(ctx context.Context, length time.Duration) (slice, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		clients sync.WaitGroup
		begin   time.Time
		start   = make(chan struct{})
		ops     = make([]int64, len(l.clients))
		seconds = make([]float64, len(l.clients))
	)
	for i, c := range l.clients {
		clients.Go(func() {
			<-start
			n, end, err := c.loop(ctx, begin, length)
			if err != nil {
				cancel(fmt.Errorf("client %d: %w", i, err))
			}
			ops[i], seconds[i] = n, end.Sub(begin).Seconds()
		})
	}
	begin = time.Now()
	close(start)
	clients.Wait()
	if err := context.Cause(ctx); err != nil {
		return slice{}, err
	}
	var s slice
	for i := range ops {
		l.ops += ops[i]
		units := float64(ops[i]) * float64(l.Units)
		s.units += units
		// Clients that wait for the last one to finish are idle through no fault of the side: each
		// client's rate is taken over its own time.
		s.rate += units / seconds[i]
	}
	return s, nil
}

// loop repeats the operation until length has passed since begin, and returns how often and when it ended.
func (c *client) loop(ctx context.Context, begin time.Time, length time.Duration) (int64, time.Time, error) {
	var ops int64
	now := time.Now()
	for {
		if err := c.op(ctx); err != nil {
			return ops, now, err
		}
		ops++
		end := time.Now()
		latency := min(end.Sub(now), longestLatency)
		if err := c.latency.RecordValue(latency.Nanoseconds()); err != nil {
			return ops, end, err
		}
		now = end
		if now.Sub(begin) >= length || ctx.Err() != nil {
			return ops, now, nil
		}
	}
}
