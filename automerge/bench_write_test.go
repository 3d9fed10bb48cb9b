//go:build cgo

package automerge_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/automerge"
)

// BenchmarkApply adds one change, whose path status is projected. off-ms is that with synchronous_commit off.
func BenchmarkApply(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		ctx := b.Context()
		off, closeOff := d.with("synchronous_commit", "off")
		defer closeOff()
		apply := func(store *automerge.Store) {
			d.given = append(d.given, d.writer.next())
			if applied := must[automerge.Applied](b)(store.Apply(ctx, d.id, d.given[len(d.given)-1])); applied.Added != 1 {
				b.Fatalf("%+v", applied)
			}
		}
		for range 10 { // statements are prepared
			apply(d.store)
			apply(off)
		}
		var offs []time.Duration
		loaded := 0
		load := func(_ pgx.Tx, doc *engine.Doc) {
			ok(b, doc.LoadIncremental(join(d.given[loaded:])))
			loaded = len(d.given)
		}
		d.compare(side{do: func() { apply(d.store) }, after: func() { side{do: func() { apply(off) }}.measure(&offs) }},
			side{do: func() { d.update(1, load) }}, false)
		b.ReportMetric(median(offs), "off-ms")
		d.agree(d.id, func() *engine.Doc {
			d.update(1, load)
			return d.loaded(d.pool, 1)
		}, len(d.given), fmt.Sprintf("edit %d", d.writer.n))
	})
}

// BenchmarkResend adds a change that the document has.
func BenchmarkResend(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		change := d.writer.next()
		_ = must[automerge.Applied](b)(d.store.Apply(b.Context(), d.id, change))
		load := func(_ pgx.Tx, doc *engine.Doc) { ok(b, doc.LoadIncremental(change)) }
		if d.whole {
			d.update(1, load)
		}
		d.compare(side{do: func() {
			if applied := must[automerge.Applied](b)(d.store.Apply(b.Context(), d.id, change)); applied.Added != 0 {
				b.Fatalf("%+v", applied)
			}
		}}, side{do: func() { d.update(1, load) }}, false)
		d.agree(d.id, func() *engine.Doc { return d.loaded(d.pool, 1) }, 1, "edit 1")
	})
}

// newer is a save of the document with one change more.
func (d *benched) newer() []byte {
	fork := d.fork()
	defer d.drop(fork)
	_ = must[automerge.Applied](d.b)(d.store.Apply(d.b.Context(), fork, d.writer.next()))
	_ = must[int](d.b)(d.store.Fold(d.b.Context(), fork))
	return must[[]byte](d.b)(d.store.Save(d.b.Context(), fork))
}

// BenchmarkMergeSave merges a full save with one change that is new.
func BenchmarkMergeSave(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		newer := d.newer()
		fork, row := d.id, 1
		d.compare(side{
			before: func() { fork = d.fork() },
			do: func() {
				if applied := must[automerge.Applied](b)(d.store.MergeSave(b.Context(), fork, newer)); applied.Added != 1 {
					b.Fatalf("%+v", applied)
				}
			},
			after: func() {
				d.agree(fork, func() *engine.Doc { return must[*engine.Doc](b)(engine.Load(newer)) }, 1, "edit 1")
				d.drop(fork)
			},
		}, side{
			before: func() { row = d.row(d.save) },
			do: func() {
				d.update(row, func(_ pgx.Tx, doc *engine.Doc) {
					_ = must[[]engine.ChangeHash](b)(doc.Merge(must[*engine.Doc](b)(engine.Load(newer))))
				})
			},
		}, true)
	})
}

// BenchmarkUpsert takes a save of a document that there may be already: one that isn't there, then a newer one of the same.
func BenchmarkUpsert(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		newer := d.newer()
		var id uuid.UUID
		upsert := func(save []byte) {
			_, err := d.store.Create(b.Context(), automerge.CreateParams{ID: id, Content: save, Paths: []string{"status"}})
			if asRefusal(err) == automerge.ErrExists {
				_, err = d.store.MergeSave(b.Context(), id, save)
			}
			ok(b, err)
		}
		d.compare(side{
			before: func() { id = uuid.New() },
			do:     func() { upsert(d.save); upsert(newer) },
			after: func() {
				d.agree(id, func() *engine.Doc { return must[*engine.Doc](b)(engine.Load(newer)) }, 1, "edit 1")
				d.drop(id)
			},
		}, side{do: func() {
			row := d.row(must[*engine.Doc](b)(engine.Load(d.save)).Save())
			d.update(row, func(_ pgx.Tx, doc *engine.Doc) {
				_ = must[[]engine.ChangeHash](b)(doc.Merge(must[*engine.Doc](b)(engine.Load(newer))))
			})
		}}, true)
	})
}

// BenchmarkMergeNine merges nine forks, each with a change of its own, which are documents of the same database.
func BenchmarkMergeNine(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		var forks []uuid.UUID
		var rows []int
		for i := range 9 {
			w := *d.writer
			w.as(i + 1)
			change := w.next()
			forks = append(forks, d.fork())
			_ = must[automerge.Applied](b)(d.store.Apply(b.Context(), forks[i], change))
			if d.whole {
				doc := must[*engine.Doc](b)(engine.Load(d.save))
				ok(b, doc.LoadIncremental(change))
				rows = append(rows, d.row(doc.Save()))
			}
		}
		merged := func(tx pgx.Tx, doc *engine.Doc) {
			for _, r := range rows {
				_ = must[[]engine.ChangeHash](b)(doc.Merge(d.loaded(tx, r)))
			}
		}
		var id uuid.UUID
		var row int
		d.compare(side{
			before: func() { id = d.fork() },
			do: func() {
				if applied := must[automerge.Applied](b)(d.store.Merge(b.Context(), id, forks...)); applied.Added != 9 {
					b.Fatalf("%+v", applied)
				}
			},
		}, side{before: func() { row = d.row(d.save) }, do: func() { d.update(row, merged) }}, false)
		d.agree(id, func() *engine.Doc { return d.loaded(d.pool, row) }, 9, "edit 9001")
	})
}

// BenchmarkMergeThenRead adds two changes and then reads a field ten times.
func BenchmarkMergeThenRead(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		ctx := b.Context()
		var all [][]byte
		loaded := 0
		read := func(got string) {
			if want := fmt.Sprintf("edit %d", d.writer.n); got != want {
				b.Fatalf("%q, want %q", got, want)
			}
		}
		d.compare(side{
			before: func() { d.given = [][]byte{d.writer.next(), d.writer.next()} },
			do: func() {
				for _, c := range d.given {
					_ = must[automerge.Applied](b)(d.store.Apply(ctx, d.id, c))
				}
				for range 10 {
					read(must[string](b)(automerge.Get[string](ctx, d.store, d.id, "status")))
				}
			},
			after: func() { all = append(all, d.given...) },
		}, side{do: func() {
			// The last two changes each in an update of its own; the first with those that were only ours.
			for _, upTo := range []int{len(all) - 1, len(all)} {
				d.update(1, func(_ pgx.Tx, doc *engine.Doc) { ok(b, doc.LoadIncremental(join(all[loaded:upTo]))) })
				loaded = upTo
			}
			for range 10 {
				read(must[string](b)(engine.As[string](d.loaded(d.pool, 1).Path("status").Get())))
			}
		}}, false)
		d.agree(d.id, func() *engine.Doc { return d.loaded(d.pool, 1) }, len(all), fmt.Sprintf("edit %d", d.writer.n))
	})
}

// asRefusal returns the kind of a refusal.
func asRefusal(err error) error {
	var e *automerge.Error
	if asError(err, &e) {
		return e.Kind
	}
	return nil
}

// BenchmarkCompact folds 64 changes into the snapshot.
func BenchmarkCompact(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		ctx := b.Context()
		for range 64 {
			d.given = append(d.given, d.writer.next())
		}
		fork, row := d.id, 1
		d.compare(side{
			before: func() {
				fork = d.fork()
				_ = must[automerge.Applied](b)(d.store.Apply(ctx, fork, d.given...))
			},
			do: func() {
				if n := must[int](b)(d.store.Fold(ctx, fork)); n != 64 {
					b.Fatalf("%d changes were folded", n)
				}
			},
			after: func() {
				d.agree(fork, func() *engine.Doc { return must[*engine.Doc](b)(engine.Load(must[[]byte](b)(d.store.Save(ctx, fork)))) }, 64, "edit 64")
				if n := len(must[[]automerge.Change](b)(d.store.Changes(ctx, fork, must[[]automerge.Hash](b)(d.store.Heads(ctx, d.id))...))); n != 64 {
					b.Fatalf("%d changes are left", n)
				}
				d.drop(fork)
			},
		}, side{
			before: func() { row = d.row(d.save) },
			do: func() {
				d.update(row, func(_ pgx.Tx, doc *engine.Doc) { ok(b, doc.LoadIncremental(join(slices.Clone(d.given)))) })
			},
		}, true)
	})
}

// BenchmarkLoadSave takes in a full save: every operation in it is validated, and its changes are proven by their hashes.
func BenchmarkLoadSave(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		var id uuid.UUID
		d.compare(side{
			do: func() {
				id = must[uuid.UUID](b)(d.store.Create(b.Context(), automerge.CreateParams{Content: d.save, Paths: []string{"status"}}))
			},
			after: func() {
				d.agree(id, func() *engine.Doc { return must[*engine.Doc](b)(engine.Load(d.save)) }, 0, "")
				d.drop(id)
			},
		}, side{do: func() { d.row(must[*engine.Doc](b)(engine.Load(d.save)).Save()) }}, true)
	})
}
