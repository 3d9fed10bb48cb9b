package ibench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/bench"
)

//go:embed sql/table.sql
var tableSQL string

//go:embed sql/reading.sql
var readingSQL string

//go:embed sql/checkpoints.sql
var checkpointsSQL string

//go:embed sql/checkpoints_17.sql
var checkpoints17SQL string

//go:embed sql/sizes.sql
var sizesSQL string

// Side is one of those that are compared.
type Side struct {
	Server  string `json:"server"`
	Variant string `json:"variant"`
	Mode    Mode   `json:"mode"`
	Name    string `json:"name"` // what tells it from the others
}

// lane is a side at work.
type lane struct {
	Side
	facts   Facts
	config  *pgx.ConnConfig
	control *pgx.Conn // reads counters, vacuums, checks
	clients []*client
	close   []func() error // in order of opening

	moment  string // after the last step, where there is a history
	content []content
	notes   map[string]bool
}

// client is one of the side's clients: a table, a connection that inserts into it, one that deletes from it and one that queries it.
type client struct {
	table    string
	inserter *inserter
	deleter  *deleter
	asker    *asker
	inserted int64
	latency  map[Operation]*hdrhistogram.Histogram // in the slice

	insertions, deletions int64 // that were due in the step and are done
}

func (c *client) conns() map[Operation]*pgconn.PgConn {
	return map[Operation]*pgconn.PgConn{Insert: c.inserter.conn, Delete: c.deleter.conn, Query: c.asker.conn}
}

// Latencies are recorded in nanoseconds, to three digits.
const longestLatency = 10 * time.Minute

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1000, longestLatency.Nanoseconds(), 3)
}

// record takes down how long an operation took.
func (c *client) record(o Operation, took time.Duration) {
	_ = c.latency[o].RecordValue(min(max(took, 0), longestLatency).Nanoseconds()) // always within its bounds
}

// openLane makes the side's database, its tables and connections.
func openLane(ctx context.Context, server *Server, facts Facts, side Side, clients int, seed uint64) (l *lane, err error) {
	l = &lane{Side: side, facts: facts, notes: map[string]bool{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("side %s: %w", side.Name, errors.Join(err, l.end()))
		}
	}()
	config, drop, err := server.createDatabase(ctx)
	if err != nil {
		return l, err
	}
	l.close = append(l.close, drop)
	l.config = config
	if l.control, err = l.connect(ctx); err != nil {
		return l, err
	}
	var tables []string
	for i := range clients {
		table := fmt.Sprint("purchases", i+1)
		if _, err := l.control.Exec(ctx, fmt.Sprintf(tableSQL, table)); err != nil {
			return l, err
		}
		tables = append(tables, table)
	}
	if err := variants[side.Variant].prepare(ctx, l.control, tables); err != nil {
		return l, err
	}
	for i, table := range tables {
		c, err := l.openClient(ctx, table, seed, uint64(2*i))
		if err != nil {
			return l, err
		}
		l.clients = append(l.clients, c)
	}
	return l, l.remember(ctx)
}

func (l *lane) openClient(ctx context.Context, table string, seed, number uint64) (*client, error) {
	c := &client{table: table, latency: map[Operation]*hdrhistogram.Histogram{}}
	for _, o := range []Operation{Insert, Delete, Query, Build} {
		c.latency[o] = newHistogram()
	}
	var conns [3]*pgx.Conn
	for i := range conns {
		var err error
		if conns[i], err = l.connect(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	if c.inserter, err = newInserter(ctx, conns[0].PgConn(), l.Mode, table, newStream(seed, number)); err != nil {
		return nil, err
	}
	if c.deleter, err = newDeleter(ctx, conns[1].PgConn(), l.Mode, table); err != nil {
		return nil, err
	}
	c.asker, err = newAsker(ctx, conns[2].PgConn(), l.Mode, table, newStream(seed, number+1).Rand)
	return c, err
}

func (l *lane) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
	if err == nil {
		l.close = append(l.close, func() error { return conn.Close(context.WithoutCancel(ctx)) })
	}
	return conn, err
}

// end closes the connections and drops the database.
func (l *lane) end() error {
	var errs []error
	for len(l.close) > 0 {
		last := len(l.close) - 1
		errs = append(errs, l.close[last]())
		l.close = l.close[:last]
	}
	return errors.Join(errs...)
}

// reading is the state of the counters at one moment.
type reading struct {
	wal, images, lagBytes, lagSeconds float64
	dead, updated, hot, vacuums       int64
	autovacuums                       int64
	autovacuumMillis                  float64
	checkpoints                       int64
	usage                             map[Operation]bench.Usage // nil where it isn't known
	client                            float64                   // seconds of CPU of this process
}

// read must be called while the side is idle.
func (l *lane) read(ctx context.Context) (r reading, err error) {
	r.client = processCPU()
	r.usage = map[Operation]bench.Usage{}
	for _, c := range l.clients {
		for o, conn := range c.conns() {
			u, ok := bench.BackendUsage(int32(conn.PID()), l.config.Database)
			if !ok {
				r.usage = nil
				break
			}
			if r.usage == nil {
				break
			}
			sum := r.usage[o]
			r.usage[o] = bench.Usage{CPU: sum.CPU + u.CPU, Switches: sum.Switches + u.Switches}
		}
	}
	// What backends have counted reaches others once in a while, or when that is asked for.
	for _, c := range l.clients {
		for _, conn := range c.conns() {
			if _, err := conn.Exec(ctx, "select pg_catalog.pg_stat_force_next_flush()").ReadAll(); err != nil {
				return r, err
			}
		}
	}
	var images, lagBytes, lagSeconds *float64
	err = l.control.QueryRow(ctx, readingSQL).Scan(&r.wal, &images, &r.dead, &r.updated, &r.hot, &r.vacuums, &r.autovacuums, &r.autovacuumMillis, &lagBytes, &lagSeconds)
	if err != nil {
		return r, fmt.Errorf("reading the server's counters: %w", err)
	}
	r.images, r.lagBytes, r.lagSeconds = orNaN(images), orNaN(lagBytes), orNaN(lagSeconds)
	sql := checkpointsSQL
	if l.facts.Number >= 170000 {
		sql = checkpoints17SQL
	}
	return r, l.control.QueryRow(ctx, sql).Scan(&r.checkpoints)
}

func orNaN(f *float64) float64 {
	if f == nil {
		return math.NaN()
	}
	return *f
}

// check compares what is in the tables with what was inserted and deleted, and what they were after the step before, according to their history,
// with what they were then.
func (l *lane) check(ctx context.Context) error {
	for i, c := range l.clients {
		var rows, oldest, newest int64
		if err := l.control.QueryRow(ctx, "select count(*), coalesce(min(transactionid), 0), coalesce(max(transactionid), 0) from "+c.table).Scan(&rows, &oldest, &newest); err != nil {
			return err
		}
		if rows != c.inserted-c.deleter.oldest+1 || rows > 0 && (oldest != c.deleter.oldest || newest != c.inserted) {
			return fmt.Errorf("%s holds %d rows, keys %d to %d, after %d were inserted and %d deleted", c.table, rows, oldest, newest, c.inserted, c.deleter.oldest-1)
		}
		if past := variants[l.Variant].past; past != nil {
			got, err := past(ctx, l.control, l.moment, c.table)
			if err != nil {
				return err
			}
			if got != l.content[i] {
				return fmt.Errorf("the history of %s tells of %d rows where there were %d", c.table, got.rows, l.content[i].rows)
			}
		}
	}
	return l.remember(ctx)
}

// remember takes down what the tables are now, for the next check.
func (l *lane) remember(ctx context.Context) (err error) {
	moment := variants[l.Variant].moment
	if moment == nil {
		return nil
	}
	if l.moment, err = moment(ctx, l.control); err != nil {
		return err
	}
	l.content = make([]content, len(l.clients))
	for i, c := range l.clients {
		if err := l.control.QueryRow(ctx, fmt.Sprintf(contentSQL, c.table)).Scan(&l.content[i].rows, &l.content[i].hash); err != nil {
			return err
		}
	}
	return nil
}

// settle vacuums, makes a checkpoint where the role may, and waits.
func (l *lane) settle(ctx context.Context, wait time.Duration) error {
	if _, err := l.control.Exec(ctx, "vacuum (analyze)"); err != nil {
		return err
	}
	var refused *pgconn.PgError
	if _, err := l.control.Exec(ctx, "checkpoint"); errors.As(err, &refused) && refused.Code == "42501" {
		l.notes["No checkpoint was made before the queries: the role may not."] = true
	} else if err != nil {
		return err
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Space is what something takes on disk.
type Space struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func (l *lane) sizes(ctx context.Context) ([]Space, error) {
	rows, err := l.control.Query(ctx, sizesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Space, err error) {
		var order int
		return s, row.Scan(&s.Name, &s.Bytes, &order)
	})
}

// names gives each side a name that tells it from the others: of server, variant and mode what differs.
func names(sides []Side) {
	differ := func(of func(Side) string) bool {
		for _, s := range sides {
			if of(s) != of(sides[0]) {
				return true
			}
		}
		return false
	}
	server := differ(func(s Side) string { return s.Server })
	mode := differ(func(s Side) string { return string(s.Mode) })
	seen := map[string]int{}
	for i := range sides {
		s := &sides[i]
		parts := []string{s.Variant}
		if server {
			parts = append([]string{s.Server}, parts...)
		}
		if mode {
			parts = append(parts, string(s.Mode))
		}
		s.Name = strings.Join(parts, " ")
		seen[s.Name]++
		if n := seen[s.Name]; n > 1 {
			s.Name = fmt.Sprint(s.Name, " again")
			if n > 2 {
				s.Name = fmt.Sprint(s.Name, " ", n-1)
			}
		}
	}
}
