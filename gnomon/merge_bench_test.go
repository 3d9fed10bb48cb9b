package gnomon_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/annals-db/annals/gnomon"
)

// mergeRounds is how often each iteration of a benchmark of merges measures each side, in turns.
const mergeRounds = 5

// median is the middle of times, in seconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return times[len(times)/2].Seconds()
}

// timed adds to times how long something takes.
func timed(times *[]time.Duration, do func()) {
	began := time.Now()
	do()
	*times = append(*times, time.Since(began))
}

// changeOnBranch makes a branch that has changed one column of so many rows. What INSTEAD OF triggers would write is written at once.
func changeOnBranch(b *testing.B, m *benchmark, rows int) *gnomon.Branch {
	b.Helper()
	branch := must[*gnomon.Branch](b)(m.g.CreateBranch(b.Context(), "changes", gnomon.BranchOptions{}))
	run(b, m.pool, fmt.Sprintf(`insert into gnomon.o1 (branch, alive, was, k1, c2, b2, c3, b3, c4, b4, c5, b5) select b.id, true, true, i.id, i.name, i.name, i.amount + 1, i.amount, i.at, i.at, i.tags, i.tags from item i, gnomon.branch b where b.name = 'changes' and i.id <= %d`, rows),
		"vacuum analyze gnomon.o1", "vacuum item", "select annals.tick()", "checkpoint")
	return branch
}

// BenchmarkMerge merges a branch that has changed one column of each of so many rows, alone or with 10% in conflict (those stay on the branch): rows/s, and the time
// over that of one UPDATE of the same rows of the tracked table.
func BenchmarkMerge(b *testing.B) {
	rows := 50_000
	if testing.Short() {
		rows = 5_000
	}
	for _, c := range []struct {
		name      string
		conflicts int // percent
	}{{"clean", 0}, {"conflicts=10pct", 10}} {
		b.Run(fmt.Sprintf("rows=%d/%s", rows, c.name), func(b *testing.B) {
			ctx := b.Context()
			m := newBenchmark(b, 0)
			var merges, updates []time.Duration
			for b.Loop() {
				for range mergeRounds {
					branch := changeOnBranch(b, m, rows)
					conflicts := 0
					if c.conflicts > 0 {
						conflicts = rows * c.conflicts / 100
						run(b, m.pool, fmt.Sprintf("update item set amount = amount - 1 where id %% %d = 0 and id <= %d", 100/c.conflicts, rows), "vacuum item")
					}
					timed(&merges, func() {
						r := must[gnomon.MergeReport](b)(branch.Merge(ctx, gnomon.MergeOptions{Conflicts: gnomon.LeaveConflicts}))
						if r.Updated != int64(rows-conflicts) || r.Conflicts != int64(conflicts) {
							b.Fatalf("%+v", r)
						}
					})
					ok(b, branch.Drop(ctx))
					run(b, m.pool, "vacuum item", "checkpoint")
					timed(&updates, func() { run(b, m.pool, fmt.Sprintf("update item set amount = amount + 1 where id <= %d", rows)) })
				}
			}
			b.ReportMetric(float64(rows)/median(merges), "rows/s")
			b.ReportMetric(median(merges)/median(updates), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkUndoMerge undoes merges of so many updated rows: rows/s, and the time over that of one UPDATE of the same rows of the tracked table.
func BenchmarkUndoMerge(b *testing.B) {
	ctx := b.Context()
	rows := 50_000
	if testing.Short() {
		rows = 5_000
	}
	m := newBenchmark(b, 0)
	var undos, updates []time.Duration
	for b.Loop() {
		for range mergeRounds {
			branch := changeOnBranch(b, m, rows)
			r := must[gnomon.MergeReport](b)(branch.Merge(ctx, gnomon.MergeOptions{}))
			ok(b, branch.Drop(ctx))
			run(b, m.pool, "vacuum item", "checkpoint")
			timed(&undos, func() {
				if r := must[gnomon.MergeReport](b)(m.g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{})); r.Updated != int64(rows) || r.Conflicts != 0 {
					b.Fatalf("%+v", r)
				}
			})
			run(b, m.pool, "vacuum item", "checkpoint")
			timed(&updates, func() { run(b, m.pool, fmt.Sprintf("update item set amount = amount + 1 where id <= %d", rows)) })
		}
	}
	b.ReportMetric(float64(rows)/median(undos), "rows/s")
	b.ReportMetric(median(undos)/median(updates), "ratio")
	b.ReportMetric(0, "ns/op")
}
