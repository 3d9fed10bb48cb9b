//go:build cgo

package automerge_test

import (
	"encoding/json"
	"slices"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/automerge"
)

// BenchmarkReadField reads a field that is projected.
func BenchmarkReadField(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		var got, want string
		_ = must[automerge.Applied](b)(d.store.Apply(b.Context(), d.id, d.writer.next()))
		d.update1()
		d.compare(side{do: func() { got = must[string](b)(automerge.Get[string](b.Context(), d.store, d.id, "status")) }},
			side{do: func() { want = must[string](b)(engine.As[string](d.loaded(d.pool, 1).Path("status").Get())) }}, false)
		if got != "edit 1" || d.whole && got != want {
			b.Fatalf("got %q and %q", got, want)
		}
	})
}

// update1 lets the row follow the document.
func (d *benched) update1() {
	if d.whole {
		_ = must[pgconn.CommandTag](d.b)(d.pool.Exec(d.b.Context(), "update whole set doc = $1 where id = 1", must[[]byte](d.b)(d.store.Save(d.b.Context(), d.id))))
	}
}

// BenchmarkHeads reads heads.
func BenchmarkHeads(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		var got, want []automerge.Hash
		d.compare(side{do: func() { got = must[[]automerge.Hash](b)(d.store.Heads(b.Context(), d.id)) }},
			side{do: func() { want = headsOf(b, d.loaded(d.pool, 1)) }}, false)
		if len(got) != 1 || d.whole && !slices.Equal(got, want) {
			b.Fatalf("got %v and %v", got, want)
		}
	})
}

// BenchmarkProject reads all of a document as JSON, of which only a path is projected: from its snapshot and three changes.
func BenchmarkProject(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		_ = must[automerge.Applied](b)(d.store.Apply(b.Context(), d.id, d.writer.next(), d.writer.next(), d.writer.next()))
		d.update1()
		var got json.RawMessage
		d.compare(side{do: func() { got = must[json.RawMessage](b)(d.store.JSON(b.Context(), d.id, automerge.Now)) }},
			side{do: func() { wholeJSON(b, d.loaded(d.pool, 1)) }}, true)
		d.agree(d.id, func() *engine.Doc { return d.loaded(d.pool, 1) }, 3, "edit 3")
		var status struct{ Status string }
		if err := json.Unmarshal(got, &status); err != nil || status.Status != "edit 3" {
			b.Fatalf("%v, %+v", err, status)
		}
	})
}

// BenchmarkAsOf reads all of a document as JSON, as it was after half of its changes, or before the last three.
func BenchmarkAsOf(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		_ = must[automerge.Applied](b)(d.store.Apply(b.Context(), d.id, d.writer.next(), d.writer.next(), d.writer.next()))
		d.update1()
		all := must[[]automerge.Change](b)(d.store.ChangeMeta(b.Context(), d.id))
		then := all[len(all)/2-1].Hash
		var got, want []byte
		d.compare(side{do: func() { got = must[json.RawMessage](b)(d.store.JSON(b.Context(), d.id, automerge.AsOf(then))) }},
			side{do: func() { want = wholeJSON(b, must[*engine.Doc](b)(d.loaded(d.pool, 1).Fork(engine.ChangeHash(then)))) }}, true)
		if d.whole && text(b, d.pool, "select $1::jsonb = $2::jsonb", string(got), string(want)) != "(t)" {
			b.Fatalf("%.300s, want %.300s", got, want)
		}
		if now := must[json.RawMessage](b)(d.store.JSON(b.Context(), d.id, automerge.Now)); len(got) == 0 || string(now) == string(got) {
			b.Fatalf("%.300s, and now %.300s", got, now)
		}
	})
}

// BenchmarkChanges reads all changes with their bytes, which are written out of the snapshot.
func BenchmarkChanges(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		var got []automerge.Change
		var want [][]byte
		d.compare(side{do: func() { got = must[[]automerge.Change](b)(d.store.Changes(b.Context(), d.id)) }},
			side{do: func() { want = changesOf(b, d.loaded(d.pool, 1)) }}, true)
		var chunks [][]byte
		for _, c := range got {
			chunks = append(chunks, c.Chunk)
		}
		id := must[uuid.UUID](b)(d.store.Create(b.Context(), automerge.CreateParams{Content: join(chunks)}))
		if heads := must[[]automerge.Hash](b)(d.store.Heads(b.Context(), id)); !slices.Equal(heads, must[[]automerge.Hash](b)(d.store.Heads(b.Context(), d.id))) || d.whole && len(want) != len(got) {
			b.Fatalf("%d changes, want %d, with heads %v", len(got), len(want), heads)
		}
	})
}
