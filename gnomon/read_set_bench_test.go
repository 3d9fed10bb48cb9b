package gnomon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/annals-db/annals/gnomon"
)

// BenchmarkStaleReads asks what is stale of 10,000 rows and so many ranges that were read on a branch, after 50,000 rows were updated and 1,000 came: seconds, and the
// time over that of the diff of all that changed.
func BenchmarkStaleReads(b *testing.B) {
	ctx := b.Context()
	for _, ranges := range []int{100, 1000} {
		b.Run(fmt.Sprintf("ranges=%d", ranges), func(b *testing.B) {
			m := newBenchmark(b, 0)
			branch := must[*gnomon.Branch](b)(m.g.CreateBranch(ctx, "b", gnomon.BranchOptions{RecordReads: true}))
			base := must[gnomon.Coordinate](b)(m.g.Now(ctx)).Ref()
			changed, read := m.rows/4, m.rows/20
			run(b, m.pool, "begin; select gnomon.use('b', true)"+
				fmt.Sprintf("; select count(gnomon.note_read('item', array[(i * 17 %% %d)::text])) from generate_series(1, %d) i", m.rows, read)+
				fmt.Sprintf("; select count(gnomon.note_read('item', null, jsonb_build_object('amount', jsonb_build_array((i * %[1]d)::text, (i * %[1]d + %[1]d / 2)::text)))) from generate_series(1, %[2]d) i; commit", m.rows/ranges, ranges),
				fmt.Sprintf("update item set amount = amount + 1 where id %% 4 = 0 and id <= %d", 4*changed),
				fmt.Sprintf("insert into item select i, 'more', i, now(), '{}' from generate_series(%d, %d) i", m.rows+1, m.rows+1000), "vacuum analyze item", "analyze")
			var stale, diffs []time.Duration
			for b.Loop() {
				timed(&stale, func() {
					if list := must[[]gnomon.StaleRead](b)(branch.StaleReads(ctx)); len(list) < ranges/2 {
						b.Fatalf("%d reads are stale", len(list))
					}
				})
				timed(&diffs, func() { column[int64](b, m.pool, "select count(*) from gnomon.diff($1, 'now')", base) })
			}
			b.ReportMetric(median(stale), "s")
			b.ReportMetric(median(stale)/median(diffs), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
