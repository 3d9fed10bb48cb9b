//go:build cgo

package amstate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	automerge "github.com/automerge/automerge-go"

	"github.com/annals-db/annals/internal/amformat"
)

// comparable brings what two implementations have into one form.
func comparable(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.UnixMilli()
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = comparable(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = comparable(x)
		}
		return out
	case []byte:
		return fmt.Sprintf("bytes %x", v)
	case *automerge.Counter:
		n, err := v.Get()
		return fmt.Sprint(n, err)
	}
	return v
}

func sameAsEngine(t *testing.T, what string, d *automerge.Doc, s *State) {
	t.Helper()
	got, want := comparable(s.Root().Any()), comparable(d.Root().Interface())
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %s\nwant %s", what, short(got), short(want))
	}
}

func engineHeads(heads []amformat.Hash) (hs []automerge.ChangeHash) {
	for _, h := range heads {
		hs = append(hs, automerge.ChangeHash(h))
	}
	return hs
}

// compareWithEngine compares a save, its changes, and moments of its past with what automerge-go has of it.
func compareWithEngine(t *testing.T, r *rand.Rand, what string, save []byte) {
	t.Helper()
	d := must(automerge.Load(save))(t)
	doc := document(t, save)
	sameAsEngine(t, what, d, must(Read(t.Context(), doc.Rows(), Options{}))(t))
	changes := must(doc.Changes(t.Context()))(t)
	r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	sameAsEngine(t, what+" from changes", d, stateOf(t, changes, Options{}))
	for range 3 {
		heads := randomHeads(r, changes)
		past := must(d.Fork(engineHeads(heads)...))(t)
		clock := must(ClockOf(nodes(changes), heads))(t)
		sameAsEngine(t, fmt.Sprint(what, " as of ", heads), past, must(Read(t.Context(), doc.Rows(), Options{At: clock}))(t))
	}
}

func TestRandomDocumentsInEngine(t *testing.T) {
	for seed := range *randomDocs * 4 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		changes := plainChanges(must(randomWork(r, false))(t))
		if len(changes) == 0 {
			continue
		}
		compareWithEngine(t, r, fmt.Sprintf("document %d", seed), must(amformat.WriteDocument(t.Context(), nil, nil, changes, amformat.Limits{}))(t))
	}
}

// What automerge-go writes itself, by several actors apart and together.
func TestEngineDocuments(t *testing.T) {
	for seed := range *randomDocs * 2 {
		r := rand.New(rand.NewPCG(uint64(seed), 13))
		first := automerge.New()
		ok(t, first.SetActorID("00"))
		for k, v := range map[string]any{"list": []any{1, "x"}, "map": map[string]any{"a": 1}, "text": automerge.NewText("some text"), "n": automerge.NewCounter(3)} {
			ok(t, first.Path(k).Set(v))
		}
		must(first.Commit("first"))(t)
		docs := []*automerge.Doc{first}
		for i := range r.IntN(3) {
			d := must(first.Fork())(t)
			ok(t, d.SetActorID(fmt.Sprintf("%02x", i+1)))
			docs = append(docs, d)
		}
		for range 5 + r.IntN(40) {
			d := docs[r.IntN(len(docs))]
			if o := docs[r.IntN(len(docs))]; o != d && r.IntN(4) == 0 {
				must(d.Merge(o))(t)
				continue
			}
			for range 1 + r.IntN(3) {
				editInEngine(t, r, d)
			}
			_, _ = d.Commit("edit")
		}
		for _, d := range docs[1:] {
			must(first.Merge(d))(t)
		}
		compareWithEngine(t, r, fmt.Sprintf("document %d", seed), first.Save())
	}
}

func editInEngine(t *testing.T, r *rand.Rand, d *automerge.Doc) {
	t.Helper()
	values := []any{r.IntN(100), -1.5, "s", true, nil, []byte{1}, map[string]any{"k": []any{r.IntN(9)}}, time.UnixMilli(r.Int64N(1e12)), automerge.NewText("t"), automerge.NewCounter(1)}
	v := values[r.IntN(len(values))]
	key := string(rune('a' + r.IntN(4)))
	list, text := must(d.Path("list").Get())(t).List(), must(d.Path("text").Get())(t).Text()
	switch r.IntN(8) {
	case 0:
		ok(t, d.Path("map", key).Set(v))
	case 1:
		ok(t, d.Path("map", key).Delete())
	case 2:
		ok(t, d.Path("n").Counter().Inc(int64(r.IntN(10))))
	case 3:
		ok(t, list.Insert(r.IntN(list.Len()+1), v))
	case 4:
		if list.Len() > 0 {
			ok(t, list.Delete(r.IntN(list.Len())))
		}
	case 5:
		if list.Len() > 0 {
			ok(t, list.Set(r.IntN(list.Len()), v))
		}
	default:
		at := r.IntN(text.Len() + 1)
		ok(t, text.Splice(at, min(r.IntN(3), text.Len()-at), []string{"", "x", "yé😀"}[r.IntN(3)]))
	}
}
