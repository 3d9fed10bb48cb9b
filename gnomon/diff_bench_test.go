package gnomon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkDiff reads the rows that differ between a coordinate and now, of tables of 200,000 rows and of ten times as many: ms of each diff.
func BenchmarkDiff(b *testing.B) {
	ctx := b.Context()
	rows := 200_000
	if testing.Short() {
		rows = 20_000
	}
	server := bench.Server(b, bench.Volatile)
	for _, c := range []struct {
		times, changed int
		name           string
	}{{1, 1000, "changed=1000"}, {1, 10_000, "changed=10000"}, {10, 1000, "changed=1000,x10"}, {10, 10_000, "changed=10000,x10"}} {
		b.Run(c.name, func(b *testing.B) {
			pool := must[*pgxpool.Pool](b)(pgxpool.New(ctx, bench.Database(b, server)))
			defer pool.Close()
			ok(b, gnomon.Install(ctx, pool))
			g := gnomon.New(pool)
			run(b, pool, "create schema shop", "create table shop.items (id int primary key, name text not null, amount bigint not null, at timestamptz not null)",
				fmt.Sprintf("insert into shop.items select i, 'item number ' || i, i, now() from generate_series(1, %d) i", rows*c.times))
			track(b, g, "shop.items")
			run(b, pool, "vacuum analyze shop.items", "select annals.tick()")
			from := ref(b, g)
			run(b, pool, fmt.Sprintf("update shop.items set amount = amount + 1 where id %% %d = 0", rows*c.times/c.changed), "vacuum analyze shop.items")
			read := func() (n int) {
				for d, err := range g.Diff(ctx, from, gnomon.Present, gnomon.DiffOptions{}) {
					ok(b, err)
					if len(d.Columns) != 1 {
						b.Fatalf("%+v", d)
					}
					n++
				}
				return n
			}
			if n := read(); n != c.changed {
				b.Fatalf("%d rows differ, not %d", n, c.changed)
			}
			began := time.Now()
			b.ResetTimer()
			for range b.N {
				read()
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000/float64(b.N), "ms")
		})
	}
}
