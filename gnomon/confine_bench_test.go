package gnomon_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkConfinedRead compares reads of one row by its key, on a branch whose base is not what main is any more, as a confined role, with those of the untracked
// table, in time; branch-ratio is that to the same read as a role that is not confined.
func BenchmarkConfinedRead(b *testing.B) {
	m := newBenchmark(b, 0)
	ctx := b.Context()
	const agent = "benchmark_agent"
	run(b, m.pool, "drop role if exists "+agent, "create role "+agent)
	b.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_, _ = m.g.Release(ctx, agent)
		_, _ = m.pool.Exec(ctx, "drop role "+agent)
	})
	must[*gnomon.Branch](b)(m.g.CreateBranch(ctx, "agent/one", gnomon.BranchOptions{}))
	ok(b, m.g.Confine(ctx, agent, gnomon.ConfineOptions{Prefixes: []string{"agent/"}, Tables: map[string][]string{"public.item": {"select"}}, Masks: map[string]map[string]*string{"public.item": {"name": new("masked")}}}))
	run(b, m.pool, "update item set amount = amount + 1 where id % 10 = 0")
	id := func() []any { return []any{1 + rand.IntN(m.rows)} }
	const query = "select * from item where id = $1"
	onBranch := func(name string, before ...string) bench.Side {
		return bench.Side{Name: name, Units: 1, Open: func(ctx context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
			for _, sql := range append(before, "begin", "select gnomon.use('agent/one', true)") {
				if _, err := c.Exec(ctx, sql); err != nil {
					return nil, err
				}
			}
			return reading(c, query, id), nil
		}}
	}
	bench.Run{Conn: m.conn, Unit: "reads/s", Compare: []bench.Ratio{{Metric: "ratio", Over: "plain", Of: bench.Time}, {Metric: "branch-ratio", Over: "branch", Of: bench.Time}},
		Sides: []bench.Side{onBranch("confined", "set session authorization "+agent), reader("plain", "select * from plain where id = $1", 1, id), onBranch("branch")}}.Benchmark(b)
}
