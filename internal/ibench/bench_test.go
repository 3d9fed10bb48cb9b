package ibench

import (
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

// BenchmarkInsert runs the Insert Benchmark once, on tables that are plain, tracked by gnomon and covered by volvra, and reports each step of each variant as a
// benchmark of its own. ratio is units per second over those of plain tables, with its interval, cpu-us/op the server's CPU and client-us/op the client's
// for a row or a query, wal-B/row WAL for a row that is inserted and one that is deleted meanwhile. Under -short it takes seconds, else minutes: examples/ibench
// has more choices, and reports.
func BenchmarkInsert(b *testing.B) {
	o := Options{Variants: []string{"plain", "gnomon", "volvra"}, Modes: []Mode{Lean}, Seed: 1, Size: Quick}
	if testing.Short() {
		o.Size = Short
	}
	benchmark(b, o, func(r *Result, i int) string { return r.Sides[i].Variant })
}

// BenchmarkInsertMode compares in which form statements are sent; ratio is over compatible mode.
func BenchmarkInsertMode(b *testing.B) {
	o := Options{Modes: []Mode{Compatible, Lean}, Seed: 1, Size: Quick}
	if testing.Short() {
		o.Size = Short
	}
	benchmark(b, o, func(r *Result, i int) string { return string(r.Sides[i].Mode) })
}

func benchmark(b *testing.B, o Options, name func(r *Result, side int) string) {
	server := pgserver.New(b, pgserver.Options{Settings: Settings(false)})
	o.Servers = []Server{{Conn: server.ConnString("postgres")}}
	r, err := Run(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	for _, st := range r.Steps {
		for i, m := range st.Measures {
			// It has been measured: the loop has nothing left to do.
			b.Run(st.Name+"/"+name(r, i), func(b *testing.B) {
				report := func(f Figure, unit string) {
					if f.Known() {
						b.ReportMetric(float64(f), unit)
					}
				}
				b.ReportMetric(0, "ns/op")
				report(m.Rate.Median, st.Unit)
				if i > 0 {
					report(m.Ratio.Median, "ratio")
					report(m.Ratio.Low, "ratio-lo")
					report(m.Ratio.High, "ratio-hi")
				}
				report(m.CPU, "cpu-us/op")
				report(m.ClientCPU, "client-us/op")
				report(m.WAL, "wal-B/row")
				report(m.Latency[stepNamed(st.Name).operation()].P99, "p99-us")
			})
		}
	}
}
