// Package bench compares ways of doing the same work against one PostgreSQL in one run.
//
// A machine that is shared, throttled or merely warm makes two benchmark runs differ by more than the
// change under test. So a [Run] never compares one run with another: it lets its sides take turns, a
// slice of a fraction of a second each, and compares every slice with its neighbour. What slows the
// machine down for longer than a slice slows both down, and cancels.
//
//	round 1   A B C
//	round 2   C B A
//	round 3   B C A
//	...
//
// While a side has its slice, its clients work in closed loops (the next operation starts when the last
// one has answered), everybody else's connections are idle, and the slice ends when every client has
// finished the operation it is in. Then, with nothing running, the server's counters are read. That is
// why CPU and WAL can be told apart by side. Work that a side leaves running after its operations have
// answered is charged to whoever comes next: don't.
//
// # What is reported
//
// The first side is the subject; its figures are the benchmark's metrics, under names that benchstat
// reads. A unit is what the user counts ([Side.Units]: a batch of ten transfers is one operation and ten
// units), and "/op" always means per unit.
//
//	Run.Unit      units per second: median over the slices
//	ns/op         its inverse
//	ratio         the subject's units per second over the baseline's: above 1, the subject is faster
//	ratio-lo, -hi its interval, see below
//	cpu-ratio     the subject's server CPU per unit over the baseline's: below 1, the subject is cheaper
//	cpu-us/op     server CPU per unit in microseconds, over all slices
//	wal-B/op      WAL per unit in bytes, over all slices
//	disk-B/op     growth on disk per unit in bytes, where the side has Bytes
//	p50-us, p99-us, p999-us
//	              latency of one call of an operation, in microseconds
//
// Medians hide a rare expensive operation, totals and p999 show it: read them together. With -v every
// side's figures are logged, after the facts about the server that matter.
//
// A ratio is the median of the quotients of the paired slices (the two that one round holds). It is taken
// over their logarithms, so that A over B is exactly the inverse of B over A, and its interval consists of
// two order statistics of the quotients, which needs no assumption about how they are distributed: it
// holds the true median with at least 95% confidence as long as the rounds are independent. On a busy
// machine they are not quite: every side has backends of its own, a backend stays for a while on the CPU
// where the scheduler put it, and so the same side can be the lucky one for a whole run. An interval knows
// nothing of that, nor of anything else that was drawn once per run, such as a data set or a page layout:
// a claim rests on several runs (-count and benchstat), never on one interval. BenchmarkEqualSides, whose
// true ratio is 1, tells how far to trust them on the machine at hand: under -count=40, more than two or three
// intervals without 1 are too many.
//
// What can't be measured is not reported: CPU needs a server on the same machine and a /proc, WAL a
// server that is not a standby; a ratio, values above zero in every slice. CPU is that of the side's own
// backends that live at the end of a slice. What checkpointer, WAL writer, parallel workers or I/O workers
// do for them is not counted.
//
// # Duration
//
// One iteration of the benchmark is six rounds: as many as give a 95% interval for a median, and all six
// orders of three sides. So -benchtime=1x measures six slices of each side, the default about a
// second and a half, -benchtime=20s as many rounds as fit into some 20 seconds. Under -short slices last
// a sixth of their time, and benchmarks are expected to load less data: that is for finding out whether a
// benchmark works and its check holds, not for figures. Set-up happens once, however long the benchmark
// runs. Allocation figures (-benchmem) are those of the harness and mean nothing.
//
// # A benchmark
//
//	func BenchmarkTransfer(b *testing.B) {
//		server := bench.Server(b, bench.Volatile)
//		for _, clients := range []int{1, 8} {
//			b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
//				db := bench.Database(b, server)
//				load(b, db)
//				bench.Run{
//					Conn:     db,
//					Clients:  clients,
//					Sides:    []bench.Side{{Name: "ours", Open: ours}, {Name: "floor", Open: floor}},
//					Baseline: "floor",
//					Unit:     "transfers/s",
//					Check: func(ctx context.Context, ops map[string]int64) error {
//						return balanced(ctx, db, ops["ours"])
//					},
//				}.Benchmark(b)
//			})
//		}
//	}
package bench
