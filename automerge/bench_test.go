//go:build cgo

package automerge_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/bench"
)

// Each benchmark here prints ms, the median of one operation, and ratio, in time to the same work as a whole document: loaded with automerge-go, changed,
// saved, and written with an UPDATE. Both take turns.

var engineText = flag.Bool("automerge.text3mb", false, "compare with automerge-go on text3mb, too: each load takes 22 s and 2.7 GB")

// benched are the documents.
var benched = []string{"typed5k", "items2k", "items20k", "text300k", "text3mb"}

// bed is where benchmarks run: durable, with a table of whole documents beside.
type bed struct {
	pool  *pgxpool.Pool
	store *automerge.Store
}

func newBed(b *testing.B, synchronous string) *bed {
	b.Helper()
	pool := must[*pgxpool.Pool](b)(pgxpool.New(b.Context(), bench.Database(b, bench.Server(b, bench.Durable))))
	b.Cleanup(pool.Close)
	run(b, pool, "do $$ begin execute format('alter database %I set synchronous_commit = "+synchronous+"', current_database()); end $$", "create table whole (id int primary key, data bytea not null)")
	pool.Reset()
	ok(b, automerge.Install(b.Context(), pool))
	return &bed{pool: pool, store: automerge.New(pool)}
}

// saveOf is the save of a document, and two changes that follow it.
func saveOf(b *testing.B, name string) (save []byte, next [][]byte) {
	b.Helper()
	var d *engine.Doc
	switch name {
	case "text300k":
		d = engine.New()
		ok(b, d.Path("text").Set(engine.NewText(strings.Repeat("so it is written, and so it is read\n", 8333))))
		_ = must[engine.ChangeHash](b)(d.Commit(""))
	case "items2k":
		d = must[*engine.Doc](b)(engine.Load(fixture(b, name+".am")))
	default:
		return fixture(b, name+".am"), [][]byte{fixture(b, name+".c1"), fixture(b, name+".c2")}
	}
	save = d.Save()
	for i := range 2 {
		since := d.Heads()
		ok(b, d.Path("status").Set(fmt.Sprint(i)))
		_ = must[engine.ChangeHash](b)(d.Commit(""))
		next = append(next, must[[]*engine.Change](b)(d.Changes(since...))[0].Save())
	}
	return save, next
}

// compare measures ours and, unless it is nil, theirs, which take turns; before each, prepare is called and not measured.
func compare(b *testing.B, prepare, ours, theirs func()) {
	b.Helper()
	var took, took2 []time.Duration
	timed := func(f func()) time.Duration {
		if prepare != nil {
			prepare()
		}
		began := time.Now()
		f()
		return time.Since(began)
	}
	ours() // so that statements are prepared
	for b.Loop() {
		took = append(took, timed(ours))
		if theirs != nil && (len(took2) < 3 || len(took)%8 == 0) {
			took2 = append(took2, timed(theirs))
		}
	}
	median := func(d []time.Duration) time.Duration {
		slices.Sort(d)
		return d[len(d)/2]
	}
	b.ReportMetric(float64(median(took).Microseconds())/1000, "ms")
	b.ReportMetric(0, "ns/op")
	if len(took2) > 0 {
		b.ReportMetric(float64(median(took))/float64(median(took2)), "ratio")
	}
}

// asWhole is a change of a document that is kept as a whole.
func (d *bed) asWhole(b *testing.B, save []byte, change func(doc *engine.Doc)) func() {
	ctx := b.Context()
	_, err := d.pool.Exec(ctx, "insert into whole values (1, $1) on conflict (id) do update set data = excluded.data", save)
	ok(b, err)
	return func() {
		tx, err := d.pool.Begin(ctx)
		ok(b, err)
		defer tx.Rollback(ctx)
		var data []byte
		ok(b, tx.QueryRow(ctx, "select data from whole where id = 1 for update").Scan(&data))
		doc := must[*engine.Doc](b)(engine.Load(data))
		change(doc)
		_, err = tx.Exec(ctx, "update whole set data = $1 where id = 1", doc.Save())
		ok(b, err)
		ok(b, tx.Commit(ctx))
	}
}

func eachDoc(b *testing.B, fn func(b *testing.B, name string, save []byte, next [][]byte, theirs bool)) {
	b.Helper()
	for _, name := range benched {
		b.Run(name, func(b *testing.B) {
			save, next := saveOf(b, name)
			fn(b, name, save, next, name != "text3mb" || *engineText)
		})
	}
}

// BenchmarkApply adds one change to a document of which paths are projected.
func BenchmarkApply(b *testing.B) {
	for _, synchronous := range []string{"on", "off"} {
		b.Run("synchronous_commit="+synchronous, func(b *testing.B) {
			d := newBed(b, synchronous)
			ctx := b.Context()
			eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, theirs bool) {
				base := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
				var id uuid.UUID
				fresh := func() {
					id = must[uuid.UUID](b)(d.store.Fork(ctx, base, automerge.Now, automerge.CreateParams{Paths: []string{"status", "title", "meta"}}))
				}
				fresh()
				var other func()
				if theirs {
					whole := d.asWhole(b, save, func(doc *engine.Doc) { ok(b, doc.LoadIncremental(next[0])) })
					other = whole
				}
				compare(b, fresh, func() { _ = must[automerge.Applied](b)(d.store.Apply(ctx, id, next[0])) }, other)
			})
		})
	}
}

// BenchmarkMergeSave merges a newer full save.
func BenchmarkMergeSave(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, theirs bool) {
		base := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		newer := must[uuid.UUID](b)(d.store.Fork(ctx, base, automerge.Now, automerge.CreateParams{}))
		_ = must[automerge.Applied](b)(d.store.Apply(ctx, newer, next[0]))
		_ = must[int](b)(d.store.Fold(ctx, newer))
		newest := must[[]byte](b)(d.store.Save(ctx, newer))
		var id uuid.UUID
		fresh := func() { id = must[uuid.UUID](b)(d.store.Fork(ctx, base, automerge.Now, automerge.CreateParams{})) }
		fresh()
		var other func()
		if theirs {
			other = d.asWhole(b, save, func(doc *engine.Doc) {
				_ = must[[]engine.ChangeHash](b)(doc.Merge(must[*engine.Doc](b)(engine.Load(newest))))
			})
		}
		compare(b, fresh, func() { _ = must[automerge.Applied](b)(d.store.MergeSave(ctx, id, newest)) }, other)
	})
}

// wholeRead reads from a document that is kept as a whole.
func (d *bed) wholeRead(b *testing.B, save []byte, read func(doc *engine.Doc)) func() {
	ctx := b.Context()
	_, err := d.pool.Exec(ctx, "insert into whole values (1, $1) on conflict (id) do update set data = excluded.data", save)
	ok(b, err)
	return func() {
		var data []byte
		ok(b, d.pool.QueryRow(ctx, "select data from whole where id = 1").Scan(&data))
		read(must[*engine.Doc](b)(engine.Load(data)))
	}
}

// BenchmarkReadField reads a field that is projected.
func BenchmarkReadField(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, theirs bool) {
		id := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		keys := must[map[string]any](b)(automerge.Get[map[string]any](ctx, d.store, id))
		var key string
		for key = range keys {
			if _, large := keys[key].([]any); !large {
				break
			}
		}
		if text, _ := keys[key].(string); len(text) > 1000 {
			_ = must[automerge.Applied](b)(d.store.Apply(ctx, id, next[0]))
			key = "status"
		}
		ok(b, d.store.SetProjection(ctx, id, false, key))
		var other func()
		if theirs {
			other = d.wholeRead(b, save, func(doc *engine.Doc) { _, _ = doc.Path(key).Get() })
		}
		compare(b, nil, func() { _, _ = automerge.Get[any](ctx, d.store, id, key) }, other)
	})
}

// BenchmarkProject reads a document that is not projected as JSON, BenchmarkAsOf as of its heads before a change.
func BenchmarkProject(b *testing.B) { benchmarkJSON(b, false) }

func BenchmarkAsOf(b *testing.B) { benchmarkJSON(b, true) }

func benchmarkJSON(b *testing.B, past bool) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, theirs bool) {
		id := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		at := automerge.Now
		if past {
			at = automerge.AsOf(must[[]automerge.Hash](b)(d.store.Heads(ctx, id))...)
			_ = must[automerge.Applied](b)(d.store.Apply(ctx, id, next[0]))
		}
		var other func()
		if theirs {
			other = d.wholeRead(b, save, func(doc *engine.Doc) {
				if past {
					doc = must[*engine.Doc](b)(doc.Fork(doc.Heads()...))
				}
				_ = doc.Root().Interface()
			})
		}
		compare(b, nil, func() { _, _ = d.store.JSON(ctx, id, at) }, other)
	})
}

// BenchmarkLoadSave takes in a save: validates it, proves it by its hashes, and stores it.
func BenchmarkLoadSave(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, _ [][]byte, theirs bool) {
		var other func()
		if theirs {
			other = func() {
				doc := must[*engine.Doc](b)(engine.Load(save))
				_, err := d.pool.Exec(ctx, "insert into whole values (1, $1) on conflict (id) do update set data = excluded.data", doc.Save())
				ok(b, err)
			}
		}
		compare(b, nil, func() { _ = must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save})) }, other)
	})
}

// BenchmarkCompact folds a change into the snapshot.
func BenchmarkCompact(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, theirs bool) {
		base := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		_ = must[automerge.Applied](b)(d.store.Apply(ctx, base, next[0]))
		var id uuid.UUID
		fresh := func() { id = must[uuid.UUID](b)(d.store.Fork(ctx, base, automerge.Now, automerge.CreateParams{})) }
		fresh()
		var other func()
		if theirs {
			other = d.asWhole(b, save, func(doc *engine.Doc) { ok(b, doc.LoadIncremental(next[0])) })
		}
		compare(b, fresh, func() { _ = must[int](b)(d.store.Fold(ctx, id)) }, other)
	})
}

// BenchmarkResend applies a change that is there already.
func BenchmarkResend(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, next [][]byte, _ bool) {
		id := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		_ = must[automerge.Applied](b)(d.store.Apply(ctx, id, next[0]))
		compare(b, nil, func() { _ = must[automerge.Applied](b)(d.store.Apply(ctx, id, next[0])) }, nil)
	})
}

// BenchmarkHeads reads the heads.
func BenchmarkHeads(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, _ [][]byte, theirs bool) {
		id := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		var other func()
		if theirs {
			other = d.wholeRead(b, save, func(doc *engine.Doc) { _ = doc.Heads() })
		}
		compare(b, nil, func() { _ = must[[]automerge.Hash](b)(d.store.Heads(ctx, id)) }, other)
	})
}

// BenchmarkChanges reads all changes with their bytes.
func BenchmarkChanges(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, _ string, save []byte, _ [][]byte, theirs bool) {
		id := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		var other func()
		if theirs {
			other = d.wholeRead(b, save, func(doc *engine.Doc) {
				for _, c := range must[[]*engine.Change](b)(doc.Changes()) {
					_ = c.Save()
				}
			})
		}
		compare(b, nil, func() { _ = must[[]automerge.Change](b)(d.store.Changes(ctx, id)) }, other)
	})
}

// BenchmarkStorage prints what a change takes before and after it is folded (B/change, folded-B/change), with indexes and all, and the size of a
// folded document over its save (ratio), of several documents.
func BenchmarkStorage(b *testing.B) {
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, name string, save []byte, next [][]byte, _ bool) {
		for b.Loop() { // once
		}
		documents := 8
		if name == "text3mb" || name == "typed5k" {
			documents = 1
		}
		d := newBed(b, "off")
		source := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: append(slices.Clone(save), next[0]...)}))
		changes := must[[]automerge.Change](b)(d.store.Changes(ctx, source))
		size := func() float64 {
			run(b, d.pool, "vacuum full automerge.document", "vacuum full automerge.snapshot", "vacuum full automerge.change")
			return float64(column[int64](b, d.pool, "select sum(pg_total_relation_size(c::regclass))::bigint from unnest('{automerge.document,automerge.snapshot,automerge.change}'::text[]) c")[0])
		}
		_ = must[int64](b)(d.store.Delete(ctx, source))
		var all []byte
		for _, c := range changes {
			all = append(all, c.Chunk...)
		}
		empty := size()
		ids := make([]uuid.UUID, documents)
		for i := range ids {
			ids[i] = must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{}))
			_ = must[automerge.Applied](b)(d.store.Apply(ctx, ids[i], all))
		}
		rows := size() - empty
		for _, id := range ids {
			_ = must[int](b)(d.store.Fold(ctx, id))
		}
		folded := size() - empty
		n := float64(documents)
		b.ReportMetric(rows/n/float64(len(changes)), "B/change")
		b.ReportMetric(folded/n/float64(len(changes)), "folded-B/change")
		b.ReportMetric(folded/n/float64(len(save)), "ratio")
		b.ReportMetric(0, "ns/op")
	})
}
