package gnomon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// branchReader is reader, in a session that uses a branch.
func branchReader(side, branch, sql string, units int, args func() []any) bench.Side {
	return bench.Side{Name: side, Units: units, Open: func(ctx context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
		_, err := c.Exec(ctx, "select gnomon.use($1)", branch)
		return reading(c, sql, args), err
	}}
}

// BenchmarkBranchRead compares reads of one row by its key on a branch, or on a branch of a branch and so on, with those of the tracked table, in time. Each branch has changed
// a hundredth of the rows, and main a tenth of them since the base.
func BenchmarkBranchRead(b *testing.B) {
	for _, depth := range []int{1, 4} {
		for _, way := range []string{"sql", "typed"} {
			b.Run(fmt.Sprintf("depth=%d/%s", depth, way), func(b *testing.B) {
				ctx := b.Context()
				m := newBenchmark(b, 10)
				name, of := "", ""
				for i := range depth {
					name = fmt.Sprint("depth ", i+1)
					o := gnomon.BranchOptions{From: m.then}
					if of != "" {
						o = gnomon.BranchOptions{Of: of}
					}
					branch := must[*gnomon.Branch](b)(m.g.CreateBranch(ctx, name, o))
					run(b, branch, fmt.Sprintf("update item set amount = amount where id %% 100 = %d", i+3))
					of = name
				}
				id := func() []any { return []any{1 + rand.IntN(m.rows)} }
				r := bench.Run{Conn: m.conn, Unit: "reads/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "main", Of: bench.Time}}}
				if way == "sql" {
					r.Sides = []bench.Side{branchReader("branch", name, "select * from item where id = $1", 1, id), reader("main", "select * from item where id = $1", 1, id)}
				} else {
					r.Sides = []bench.Side{{Name: "branch", Open: func(ctx context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
						branch, err := gnomon.New(c).Branch(ctx, name)
						return func(ctx context.Context) error {
							id := 1 + rand.IntN(m.rows)
							row, found, err := gnomon.Get[item](ctx, branch, "public.item", id)
							if err == nil && (!found || row.Amount != int64(id)) {
								err = fmt.Errorf("row %d was %+v, %v", id, row, found)
							}
							return err
						}, err
					}}, {Name: "main", Open: func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
						return func(ctx context.Context) error {
							rows, err := c.Query(ctx, "select * from item where id = $1", id()...)
							if err == nil {
								_, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[item])
							}
							return err
						}, nil
					}}}
				}
				r.Benchmark(b)
			})
		}
	}
}

// BenchmarkBranchWrite compares updates of single rows on a branch with those of the tracked table, in transactions per second. The table has a unique and a foreign key.
func BenchmarkBranchWrite(b *testing.B) {
	for _, kind := range []string{"net", "logged"} {
		b.Run(kind+"/clients=4", func(b *testing.B) {
			ctx := b.Context()
			m := newBenchmark(b, 0)
			run(b, m.pool, "create table part (id int primary key, code text not null unique, item int not null references item, amount bigint not null)",
				fmt.Sprintf("insert into part select i, 'code ' || i, i, i from generate_series(1, %d) i", m.rows))
			track(b, m.g, "public.part")
			run(b, m.pool, fmt.Sprintf("update part set amount = amount where id <= %d", m.rows/100), "select annals.tick()")
			branch := must[*gnomon.Branch](b)(m.g.CreateBranch(ctx, kind, gnomon.BranchOptions{Logged: kind == "logged"}))
			// A hundredth of the rows has been changed: the planner takes a table that is empty when it is analyzed for one that stays empty.
			written := must[pgconn.CommandTag](b)(branch.Exec(ctx, "update part set amount = amount + 1 where id % 100 = 7")).RowsAffected()
			writer := func(side, branch string) bench.Side {
				return bench.Side{Name: side, Open: func(ctx context.Context, c *pgx.Conn, client int) (bench.Op, error) {
					if branch != "" {
						if _, err := c.Exec(ctx, "select gnomon.use($1)", branch); err != nil {
							return nil, err
						}
					}
					return func(ctx context.Context) error {
						// Clients have rows of their own: two that meet on a branch would be 40001.
						_, err := c.Exec(ctx, "update part set amount = $2 where id = $1", 1+rand.IntN(m.rows/4)*4+client%4, rand.Int64())
						return err
					}, nil
				}}
			}
			bench.Run{Conn: m.conn, Clients: 4, Unit: "writes/s", Baseline: "main", Sides: []bench.Side{writer("branch", kind), writer("main", "")}, Check: func(ctx context.Context, ops map[string]int64) error {
				if kind == "net" {
					return nil
				}
				var steps int64
				if err := m.pool.QueryRow(ctx, "select count(*) from gnomon.l2").Scan(&steps); err != nil || steps != written+ops["branch"] {
					return fmt.Errorf("%d steps of %d updates, %w", steps, written+ops["branch"], err)
				}
				return nil
			}}.Benchmark(b)
		})
	}
}

// BenchmarkCreateBranch tells in ms how long it takes to make a branch (the first of a database apart), and by how many bytes the catalog and the table of branches grow for each; with 100,000
// open also how reads (in time) and writes (per second) of main compare with those where there is none.
func BenchmarkCreateBranch(b *testing.B) {
	const catalog = `select sum(pg_total_relation_size(c.oid))::bigint from pg_class c where c.relkind in ('r', 'm') and (c.relnamespace = 'pg_catalog'::regnamespace and not c.relisshared or c.oid in ('gnomon.branch'::regclass, 'annals.pin'::regclass))`
	create := func(b *testing.B, m *benchmark, name string) time.Duration {
		began := time.Now()
		must[*gnomon.Branch](b)(m.g.CreateBranch(b.Context(), name, gnomon.BranchOptions{}))
		return time.Since(began)
	}
	report := func(b *testing.B, took []time.Duration, bytes int64) {
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms")
		b.ReportMetric(float64(bytes), "catalog-bytes")
	}
	b.Run("one", func(b *testing.B) {
		m := newBenchmark(b, 0)
		first := create(b, m, "the first") // makes what all branches of the database share
		before := column[int64](b, m.pool, catalog)[0]
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			took = append(took, create(b, m, fmt.Sprint("branch ", i)))
		}
		report(b, took, (column[int64](b, m.pool, catalog)[0]-before)/int64(len(took)))
		b.ReportMetric(first.Seconds()*1000, "first-ms")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("100000", func(b *testing.B) {
		without, m := newBenchmark(b, 0), newBenchmark(b, 0)
		open := 100_000
		if testing.Short() {
			open = 2000
		}
		before := column[int64](b, m.pool, catalog)[0]
		run(b, m.pool, fmt.Sprintf("select count(gnomon.create_branch('open ' || i)) from generate_series(1, %d) i", open-100))
		var took []time.Duration
		for i := range 100 {
			took = append(took, create(b, m, fmt.Sprint("branch ", i)))
		}
		bytes := column[int64](b, m.pool, catalog)[0] - before
		if n := column[int](b, m.pool, "select count(*)::int from gnomon.branches()")[0]; n != open {
			b.Fatalf("%d branches", n)
		}
		id := func() []any { return []any{1 + rand.IntN(m.rows)} }
		const read, write = "select * from item where id = $1", "update item set amount = amount + 1 where id = $1"
		none, noneWritten := reader("none", read, 1, id), reader("none written", write, 1, id)
		none.Conn, noneWritten.Conn = without.conn, without.conn
		bench.Run{Conn: m.conn, Unit: "reads/s", Compare: []bench.Ratio{{Metric: "read-ratio", Over: "none", Of: bench.Time}, {Metric: "write-ratio", Side: "written", Over: "none written"}},
			Sides: []bench.Side{reader("open", read, 1, id), none, reader("written", write, 1, id), noneWritten}}.Benchmark(b)
		report(b, took, bytes/int64(open))
	})
}
