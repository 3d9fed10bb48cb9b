//go:build cgo

package automerge_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// BenchmarkStorage tells how many bytes on disk a change takes, with indexes: as a row, and folded with all others. save-ratio is how much that
// is over the save; of it, hash-B/change are the hashes, which a save doesn't hold.
func BenchmarkStorage(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		ctx := b.Context()
		var chunks [][]byte
		for _, c := range must[[]automerge.Change](b)(d.store.Changes(ctx, d.id)) {
			chunks = append(chunks, c.Chunk)
		}
		d.drop(d.id)
		// As many copies as it takes for pages that are partly filled not to count.
		copies := 1
		for copies*len(d.save) < 1<<20 && copies*len(chunks) < 20_000 && !testing.Short() {
			copies++
		}
		size := func() int64 {
			run(b, d.pool, "vacuum full automerge.document", "vacuum full automerge.change", "vacuum full automerge.snapshot")
			return column[int64](b, d.pool, "select sum(pg_total_relation_size(t::regclass))::bigint from unnest(array['automerge.document', 'automerge.change', 'automerge.snapshot']) t")[0]
		}
		var rows, folded float64
		for b.Loop() {
			empty := size()
			var ids []uuid.UUID
			for range copies {
				ids = append(ids, must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: join(chunks)})))
			}
			rows = float64(size()-empty) / float64(copies)
			for _, id := range ids {
				_ = must[int](b)(d.store.Fold(ctx, id))
			}
			folded = float64(size()-empty) / float64(copies)
			wellKept(b, d.pool)
			d.drop(ids...)
		}
		n := float64(len(chunks))
		b.ReportMetric(rows/n, "B/change")
		b.ReportMetric(folded/n, "folded-B/change")
		b.ReportMetric(folded/float64(len(d.save)), "save-ratio")
		b.ReportMetric(32, "hash-B/change")
		b.ReportMetric(0, "ns/op")
	})
}
