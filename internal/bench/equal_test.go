package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkEqualSides compares a side with itself, so that the true ratio is 1: it measures the harness. Run it with
// -count to see how often the interval holds 1.
func BenchmarkEqualSides(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	for _, slice := range []time.Duration{20 * time.Millisecond, 125 * time.Millisecond} {
		b.Run(fmt.Sprintf("slice=%v", slice), func(b *testing.B) {
			bench.Run{
				Conn:     bench.Database(b, server),
				Clients:  2,
				Sides:    []bench.Side{countCatalog("one"), countCatalog("other")},
				Baseline: "other",
				Slice:    slice,
				Hide:     []string{"wal-B/op", "p999-us"},
			}.Benchmark(b)
		})
	}
}

func countCatalog(name string) bench.Side {
	return bench.Side{
		Name: name,
		Open: func(_ context.Context, conn *pgx.Conn, _ int) (bench.Op, error) {
			return func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "select count(*) from pg_class")
				return err
			}, nil
		},
	}
}
