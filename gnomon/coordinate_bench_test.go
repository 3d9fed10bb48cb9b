package gnomon_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkCoordinate takes coordinates. us: in the server, for each, without what an empty statement of as many rows takes; roundtrip-us: asked
// for by Go, one at a time. Medians, of 5,000 coordinates a statement.
func BenchmarkCoordinate(b *testing.B) {
	const each = 5_000
	pool, err := pgxpool.New(b.Context(), bench.Database(b, bench.Server(b, bench.Volatile)))
	ok(b, err)
	b.Cleanup(pool.Close)
	ok(b, gnomon.Install(b.Context(), pool))
	g := gnomon.New(pool)
	counters(b, g, pool)
	conn := connectAs(b, pool.Config().ConnString(), "")
	took := func(expression string) time.Duration {
		began := time.Now()
		if n := column[int64](b, conn, fmt.Sprintf("select count(%s) from generate_series(1, %d)", expression, each))[0]; n != each {
			b.Fatalf("%d values", n)
		}
		return time.Since(began)
	}
	var inServer, roundTrip []time.Duration
	for b.Loop() {
		empty := took("clock_timestamp()")
		inServer = append(inServer, (took("gnomon.now()")-empty)/each)
		for range 20 {
			began := time.Now()
			must[gnomon.Coordinate](b)(g.Now(b.Context()))
			roundTrip = append(roundTrip, time.Since(began))
		}
	}
	slices.Sort(inServer)
	slices.Sort(roundTrip)
	b.ReportMetric(float64(inServer[len(inServer)/2].Nanoseconds())/1000, "us")
	b.ReportMetric(float64(roundTrip[len(roundTrip)/2].Nanoseconds())/1000, "roundtrip-us")
	b.ReportMetric(0, "ns/op")
}
