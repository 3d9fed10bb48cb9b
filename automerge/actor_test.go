//go:build cgo

package automerge_test

import (
	"math/rand/v2"
	"testing"

	engine "github.com/automerge/automerge-go"

	"github.com/annals-db/annals/automerge"
)

// changesOf are all changes of an engine's document, in causal order.
func changesOf(t testing.TB, d *engine.Doc) (chunks [][]byte) {
	t.Helper()
	for _, c := range must[[]*engine.Change](t)(d.Changes()) {
		chunks = append(chunks, c.Save())
	}
	return chunks
}

// headsOf are the heads of an engine's document.
func headsOf(t testing.TB, d *engine.Doc) (heads []automerge.Hash) {
	t.Helper()
	for _, h := range d.Heads() {
		heads = append(heads, automerge.Hash(h))
	}
	return heads
}

// written is a document in which actors have written concurrently: maps, lists, text, counters, deletions, nested objects. It is made anew from
// the same random numbers.
func written(t testing.TB, r *rand.Rand, actors, rounds int) *engine.Doc {
	t.Helper()
	first := engine.New()
	for path, v := range map[string]any{"title": engine.NewText("a title"), "n": engine.NewCounter(1), "list": []any{1, "two", nil}, "meta": map[string]any{"author": map[string]any{"name": "ada"}}, "status": "open"} {
		ok(t, first.Path(path).Set(v))
	}
	_ = must[engine.ChangeHash](t)(first.Commit("begin"))
	copies := make([]*engine.Doc, actors)
	for i := range copies {
		copies[i] = must[*engine.Doc](t)(first.Fork())
	}
	for range rounds {
		for _, d := range copies {
			if r.IntN(3) == 0 {
				_ = must[[]engine.ChangeHash](t)(d.Merge(copies[(r.IntN(actors-1)+1+indexOf(copies, d))%actors]))
			}
			for range 1 + r.IntN(4) {
				edit(t, r, d)
			}
			_ = must[engine.ChangeHash](t)(d.Commit("edit", engine.CommitOptions{AllowEmpty: true}))
		}
	}
	for _, d := range copies {
		_ = must[[]engine.ChangeHash](t)(first.Merge(d))
	}
	return first
}

func indexOf(list []*engine.Doc, d *engine.Doc) int {
	for i := range list {
		if list[i] == d {
			return i
		}
	}
	return -1
}

// edit makes one random edit.
func edit(t testing.TB, r *rand.Rand, d *engine.Doc) {
	t.Helper()
	switch r.IntN(9) {
	case 0:
		ok(t, d.Path("status").Set([]string{"open", "done", "lost"}[r.IntN(3)]))
	case 1:
		ok(t, d.Path("n").Counter().Inc(int64(r.IntN(10)-3)))
	case 2:
		text := d.Path("title").Text()
		ok(t, text.Splice(r.IntN(text.Len()+1), 0, string(rune('a'+r.IntN(26)))+"é😀"))
	case 3:
		if text := d.Path("title").Text(); text.Len() > 2 {
			ok(t, text.Delete(r.IntN(text.Len()-1), 1))
		}
	case 4:
		list := must[*engine.Value](t)(d.Path("list").Get()).List()
		ok(t, list.Insert(r.IntN(list.Len()+1), r.IntN(100)))
	case 5:
		if list := must[*engine.Value](t)(d.Path("list").Get()).List(); list.Len() > 1 {
			ok(t, list.Delete(r.IntN(list.Len())))
		}
	case 6:
		ok(t, d.Path("meta", "author", "name").Set([]any{"eve", 5, 2.5, true}[r.IntN(4)]))
	case 7:
		ok(t, d.Path("meta", "author").Set(map[string]any{"name": "bob", "age": r.IntN(90)}))
	case 8:
		if r.IntN(2) == 0 {
			ok(t, d.Path("status").Delete())
		} else {
			ok(t, d.Path("meta", string(rune('a'+r.IntN(5)))).Set([]any{r.IntN(9), map[string]any{"x": "y"}}))
		}
	}
}
