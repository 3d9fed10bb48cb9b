package gnomon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// benchmark is a tracked table item and an untracked twin of it, plain.
type benchmark struct {
	conn string
	rows int
	pool *pgxpool.Pool
	g    *gnomon.Gnomon
	then gnomon.Ref // when nothing had been changed yet
}

// item is a row of the tables.
type item struct {
	ID     int
	Name   string
	Amount int64
	At     time.Time
	Tags   map[string]int
}

const makeItem = "create table %s (id int primary key, name text not null, amount bigint not null, at timestamptz not null, tags jsonb not null)"

// newBenchmark makes the tables, of 200,000 rows, and changes a share of them, in percent, after its coordinate was taken. A heartbeat runs.
func newBenchmark(b *testing.B, changed int) *benchmark {
	b.Helper()
	ctx := b.Context()
	m := &benchmark{conn: bench.Database(b, bench.Server(b, bench.Volatile)), rows: 200_000}
	if testing.Short() {
		m.rows = 20_000
	}
	m.pool = must[*pgxpool.Pool](b)(pgxpool.New(ctx, m.conn))
	b.Cleanup(m.pool.Close)
	ok(b, gnomon.Install(ctx, m.pool))
	m.g = gnomon.New(m.pool)
	for _, table := range []string{"item", "plain"} {
		run(b, m.pool, fmt.Sprintf(makeItem, table),
			fmt.Sprintf("insert into %s select i, 'item number ' || i, i, now(), jsonb_build_object('t' || i %% 1000, i) from generate_series(1, %d) i", table, m.rows),
			fmt.Sprintf("create index on %s using gin (tags)", table))
	}
	track(b, m.g, "public.item")
	// A little of a past that nobody asks for: the planner takes an empty history, once it is analyzed, for one that stays empty.
	run(b, m.pool, fmt.Sprintf("update item set amount = amount where id <= %d", m.rows/100), "select annals.tick()")
	m.then = must[gnomon.Coordinate](b)(m.g.Now(ctx)).Ref()
	if changed > 0 {
		for _, table := range []string{"item", "plain"} {
			run(b, m.pool, fmt.Sprintf("update %s set amount = amount + 1 where id %% %d = 0", table, 100/changed))
		}
	}
	beating, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.g.RunHeartbeat(beating, time.Second) }()
	b.Cleanup(func() { stop(); <-done })
	return m
}

// reader is a side that runs a statement and reads its rows.
func reader(name, sql string, units int, args func() []any) bench.Side {
	return bench.Side{Name: name, Units: units, Open: func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		return reading(c, sql, args), nil
	}}
}

// pastReader is reader, in a transaction that reads the past.
func (m *benchmark) pastReader(name, sql string, units int, args func() []any) bench.Side {
	return bench.Side{Name: name, Units: units, Open: func(ctx context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		if _, err := c.Exec(ctx, "begin"); err != nil {
			return nil, err
		}
		_, err := c.Exec(ctx, "select gnomon.at($1, true)", string(m.then))
		return reading(c, sql, args), err
	}}
}

func reading(c *pgx.Conn, sql string, args func() []any) bench.Op {
	return func(ctx context.Context) error {
		rows, err := c.Query(ctx, sql, args()...)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}

// BenchmarkPointRead compares reads of one row by its key with those of the untracked table, in time: of the tracked table, and of its past when
// nothing has changed and when a tenth of the rows has. Of the past ratio is that of SQL, and typed-ratio that of Get.
func BenchmarkPointRead(b *testing.B) {
	for _, c := range []struct {
		name    string
		changed int
	}{{"main", 0}, {"past-unchanged", 0}, {"past-10pct", 10}} {
		b.Run(c.name, func(b *testing.B) {
			m := newBenchmark(b, c.changed)
			id := func() []any { return []any{1 + rand.IntN(m.rows)} }
			r := bench.Run{Conn: m.conn, Unit: "reads/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "plain", Of: bench.Time}}}
			plain := reader("plain", "select * from plain where id = $1", 1, id)
			if c.name == "main" {
				r.Sides = []bench.Side{reader("item", "select * from item where id = $1", 1, id), plain}
			} else {
				r.Compare = append(r.Compare, bench.Ratio{Metric: "typed-ratio", Side: "typed", Over: "plain typed", Of: bench.Time})
				r.Sides = []bench.Side{m.pastReader("past", "select * from item where id = $1", 1, id), plain, m.typed(), plainTyped(id)}
			}
			r.Benchmark(b)
		})
	}
}

// typed is a side that gets rows of the past.
func (m *benchmark) typed() bench.Side {
	return bench.Side{Name: "typed", Open: func(ctx context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		past, err := gnomon.New(c).At(ctx, m.then)
		return func(ctx context.Context) error {
			id := 1 + rand.IntN(m.rows)
			row, found, err := gnomon.Get[item](ctx, past, "public.item", id)
			if err == nil && (!found || row.Amount != int64(id)) {
				err = fmt.Errorf("row %d was %+v, %v", id, row, found)
			}
			return err
		}, err
	}}
}

// plainTyped is a side that gets rows of the untracked table into the same struct.
func plainTyped(id func() []any) bench.Side {
	return bench.Side{Name: "plain typed", Open: func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		return func(ctx context.Context) error {
			rows, err := c.Query(ctx, "select * from plain where id = $1", id()...)
			if err == nil {
				_, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[item])
			}
			return err
		}, nil
	}}
}

// BenchmarkPastScan compares reading all rows of the past with reading all of the untracked table, in time, when so many percent of them have changed
// since; and when all have, with a checkpoint near: faster is how much faster it is than without.
func BenchmarkPastScan(b *testing.B) {
	none := func() []any { return nil }
	for _, changed := range []int{0, 10, 100} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			m := newBenchmark(b, changed)
			bench.Run{Conn: m.conn, Unit: "rows/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "plain", Of: bench.Time}},
				Sides: []bench.Side{m.pastReader("past", "select * from item", m.rows, none), reader("plain", "select * from plain", m.rows, none)}}.Benchmark(b)
		})
	}
	b.Run("checkpoint", func(b *testing.B) {
		m := newBenchmark(b, 0)
		run(b, m.pool, "create table other as select * from plain", "alter table other add primary key (id)")
		track(b, m.g, "public.other")
		run(b, m.pool, fmt.Sprintf("update other set amount = amount where id <= %d", m.rows/100), "select annals.tick()")
		m.then = must[gnomon.Coordinate](b)(m.g.Now(b.Context())).Ref()
		run(b, m.pool, "update other set amount = amount + 1", "update item set amount = amount + 1", "select annals.tick()")
		must[int](b)(m.g.MakeCheckpoint(b.Context(), "public.item", m.then, "near"))
		bench.Run{Conn: m.conn, Unit: "rows/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "plain", Of: bench.Time}, {Metric: "faster", Over: "without"}},
			Sides: []bench.Side{m.pastReader("with", "select * from item", m.rows, none), reader("plain", "select * from plain", m.rows, none), m.pastReader("without", "select * from other", m.rows, none)}}.Benchmark(b)
	})
}

// BenchmarkGIN compares a search by a GIN index of the tracked table with that of the untracked one, in time.
func BenchmarkGIN(b *testing.B) {
	m := newBenchmark(b, 0)
	tag := func() []any { return []any{fmt.Sprintf(`{"t%d": %d}`, 7, 7+1000*rand.IntN(m.rows/1000))} }
	bench.Run{Conn: m.conn, Unit: "reads/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "plain", Of: bench.Time}}, Sides: []bench.Side{
		reader("item", "select * from item where tags @> $1::text::jsonb", 1, tag), reader("plain", "select * from plain where tags @> $1::text::jsonb", 1, tag)}}.Benchmark(b)
}

// BenchmarkTrackedUpdate compares updates of single rows of the tracked table with those of the untracked one: ratio is transactions per second over untracked.
func BenchmarkTrackedUpdate(b *testing.B) {
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			m := newBenchmark(b, 0)
			bench.Run{Conn: m.conn, Clients: clients, Unit: "writes/s", Baseline: "plain", Sides: []bench.Side{m.updater("item"), m.updater("plain")}, Check: func(ctx context.Context, ops map[string]int64) error {
				var entries int64
				if err := m.pool.QueryRow(ctx, "select count(*) from annals.h1").Scan(&entries); err != nil || entries != ops["item"]+int64(m.rows/100) {
					return fmt.Errorf("%d entries of %d updates, %w", entries, ops["item"], err)
				}
				return nil
			}}.Benchmark(b)
		})
	}
}

func (m *benchmark) updater(table string) bench.Side {
	return bench.Side{Name: table, Open: func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		sql := "update " + table + " set amount = $2 where id = $1"
		return func(ctx context.Context) error {
			_, err := c.Exec(ctx, sql, 1+rand.IntN(m.rows), rand.Int64())
			return err
		}, nil
	}}
}

// BenchmarkTrack tells in ms how long it takes to begin to track a table of 200,000 rows.
func BenchmarkTrack(b *testing.B) {
	m := newBenchmark(b, 0)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		table := fmt.Sprintf("public.more_%d", i)
		run(b, m.pool, fmt.Sprintf(makeItem, table), fmt.Sprintf("insert into %s select * from plain", table))
		began := time.Now()
		track(b, m.g, table)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms")
	b.ReportMetric(0, "ns/op")
}
