//go:build cgo

package automerge_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// Documents as they were are what the engine says they were, folded or not, and forks of them are those documents.
func TestPastStates(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	asJSONB := func(data []byte) string { return column[string](t, pool, "select ($1::jsonb)::text", string(data))[0] }
	for range 2 {
		d := written(t, r, 3, 4)
		chunks := changesOf(t, d)
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks[:len(chunks)/2], nil)}))
		_ = must[int](t)(store.Fold(ctx, id))
		_ = must[automerge.Applied](t)(store.Apply(ctx, id, chunks...))
		for range 2 {
			if got := asJSONB(must[json.RawMessage](t)(store.JSON(ctx, id, automerge.Now))); got != engineJSON(t, pool, d) {
				t.Fatalf("now: %s", got)
			}
			all := must[[]*engine.Change](t)(d.Changes())
			for range 3 {
				heads := []engine.ChangeHash{all[r.IntN(len(all))].Hash(), all[r.IntN(len(all))].Hash()}
				past := must[*engine.Doc](t)(d.Fork(heads...))
				at := automerge.AsOf(automerge.Hash(heads[0]), automerge.Hash(heads[1]))
				if got := asJSONB(must[json.RawMessage](t)(store.JSON(ctx, id, at))); got != engineJSON(t, pool, past) {
					t.Fatalf("as of %v:\n%s\n%s", heads, got, engineJSON(t, pool, past))
				}
				fork := must[uuid.UUID](t)(store.Fork(ctx, id, at, automerge.CreateParams{Whole: true}))
				if h := must[[]automerge.Hash](t)(store.Heads(ctx, fork)); !slices.Equal(h, headsOf(t, past)) {
					t.Fatalf("fork: heads %v, want %v", h, headsOf(t, past))
				}
				if got := projected(t, pool, fork); got != engineJSON(t, pool, past) {
					t.Fatalf("fork: %s", got)
				}
			}
			_ = must[int](t)(store.Fold(ctx, id))
			fork := must[uuid.UUID](t)(store.Fork(ctx, id, automerge.Now, automerge.CreateParams{}))
			sameChanges(t, store, fork, d)
		}
		if got := must[json.RawMessage](t)(store.JSON(ctx, id, automerge.AsOf())); string(got) != "{}" {
			t.Errorf("before the first change: %s", got)
		}
		_, err := store.JSON(ctx, id, automerge.AsOf(automerge.Hash{9}))
		if e := refuses(t, err, automerge.ErrUnknownHeads); !slices.Equal(e.Hashes, []automerge.Hash{{9}}) {
			t.Errorf("got %+v", e)
		}
	}
	wellKept(t, pool)
}

func TestGet(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	const content = `{"status": "open", "n": 9007199254740993, "f": 1.5, "list": [1, {"x": "y"}, null], "meta": {"author": {"name": "ada é😀"}, "0": "zero", "none": null}, "big": 18446744073709551615}`
	for _, p := range []automerge.CreateParams{{}, {Whole: true}, {Paths: []string{"status", "meta", "list"}}} {
		p.JSON = json.RawMessage(content)
		id := must[uuid.UUID](t)(store.Create(ctx, p))
		if got := must[string](t)(automerge.Get[string](ctx, store, id, "meta", "author", "name")); got != "ada é😀" {
			t.Errorf("got %q", got)
		}
		if got := must[int64](t)(automerge.Get[int64](ctx, store, id, "n")); got != 9007199254740993 {
			t.Errorf("got %d", got)
		}
		if got := must[uint64](t)(automerge.Get[uint64](ctx, store, id, "big")); got != 18446744073709551615 {
			t.Errorf("got %d", got)
		}
		if got := must[string](t)(automerge.Get[string](ctx, store, id, "list", 1, "x")); got != "y" {
			t.Errorf("got %q", got)
		}
		if got := must[string](t)(automerge.Get[string](ctx, store, id, "meta", "0")); got != "zero" {
			t.Errorf("got %q", got)
		}
		if got := must[*int](t)(automerge.Get[*int](ctx, store, id, "meta", "none")); got != nil {
			t.Errorf("got %v", got)
		}
		whole := must[map[string]any](t)(automerge.Get[map[string]any](ctx, store, id))
		if len(whole) != 6 || whole["f"] != 1.5 {
			t.Errorf("got %v", whole)
		}
		for _, path := range [][]any{{"no"}, {"list", 7}, {"list", -1}, {"list", "1"}, {"status", "x"}, {"meta", 0}} {
			_, err := automerge.Get[any](ctx, store, id, path...)
			refuses(t, err, automerge.ErrNoPath)
		}
		_, err := automerge.Get[int](ctx, store, id, "status")
		refuses(t, err, automerge.ErrNoPath)
		_, err = automerge.Get[int](ctx, store, id, 1.5)
		refuses(t, err, automerge.ErrInvalid)
		loaded := must[*engine.Doc](t)(engine.Load(must[[]byte](t)(store.Save(ctx, id))))
		if text := must[string](t)(loaded.Path("status").Text().Get()); text != "open" {
			t.Errorf("the engine reads %q", text)
		}
	}
	for name, c := range map[string]struct {
		json string
		kind error
	}{
		"no object": {"[1]", automerge.ErrInvalid}, "null": {"null", automerge.ErrInvalid}, "two": {"{}{}", automerge.ErrInvalid}, "none": {"{", automerge.ErrInvalid},
		"deep": {`{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, automerge.ErrLimit},
	} {
		if _, err := store.Create(ctx, automerge.CreateParams{JSON: json.RawMessage(c.json)}); err == nil {
			t.Errorf("%s was taken", name)
		} else {
			refuses(t, err, c.kind)
		}
	}
}

func TestConflictsSpansPatches(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	a := engine.New()
	ok(t, a.Path("x").Set("base"))
	_ = must[engine.ChangeHash](t)(a.Commit(""))
	b := must[*engine.Doc](t)(a.Fork())
	from := headsOf(t, a)
	ok(t, a.Path("x").Set("of a"))
	ok(t, b.Path("x").Set("of b"))
	_, _ = must[engine.ChangeHash](t)(a.Commit("")), must[engine.ChangeHash](t)(b.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: a.Save()}))
	_ = must[automerge.Applied](t)(store.MergeSave(ctx, id, b.Save()))
	values := must[[]automerge.Value](t)(store.Conflicts(ctx, id, automerge.Now, "x"))
	if len(values) != 2 || values[0].Any() != must[string](t)(automerge.Get[string](ctx, store, id, "x")) || values[0].Any() == values[1].Any() {
		t.Errorf("got %v", values)
	}
	patches := must[[]automerge.Patch](t)(store.Diff(ctx, id, automerge.AsOf(from...), automerge.Now))
	if len(patches) != 1 || patches[0].Action != automerge.Put || patches[0].Old.Any() != "base" || patches[0].New.Any() != values[0].Any() {
		t.Errorf("got %+v", patches)
	}
	rich := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: fixture(t, "ks_marks.am")}))
	if spans := must[[]automerge.Span](t)(store.Spans(ctx, rich, automerge.Now, "rich")); len(spans) < 2 {
		t.Errorf("got %+v", spans)
	}
	_, err := store.Spans(ctx, id, automerge.Now, "nothing")
	refuses(t, err, automerge.ErrNoPath)
}

// A batch is applied as a whole or not at all, whatever its order and whoever else writes.
func TestApplyEach(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	d := written(t, r, 2, 3)
	chunks := changesOf(t, d)
	ids := make([]uuid.UUID, 20)
	for i := range ids {
		ids[i] = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0], Whole: i%2 == 0}))
	}
	batch := func() (list []automerge.Delivery) {
		for _, i := range r.Perm(len(ids)) {
			list = append(list, automerge.Delivery{ID: ids[i], Data: bytes.Join(chunks, nil)})
		}
		return list
	}
	bad := batch()
	bad[7].Data = chunks[len(chunks)-1]
	for _, change := range []func(){func() {}, func() { bad[7].ID = uuid.New() }} {
		change()
		_, err := store.ApplyEach(ctx, bad)
		if e := refuses(t, err, map[bool]error{true: automerge.ErrMissing, false: automerge.ErrNotFound}[slices.Contains(ids, bad[7].ID)]); e.Index != 7 {
			t.Errorf("got %+v", e)
		}
	}
	if n := column[int](t, pool, "select count(*)::int from automerge.change")[0]; n != len(ids) {
		t.Errorf("%d changes after refusals", n)
	}
	done := make(chan error)
	for range 4 {
		list := batch()
		go func() {
			_, err := store.ApplyEach(ctx, list)
			done <- err
		}()
	}
	for range 4 {
		ok(t, <-done)
	}
	for _, a := range must[[]automerge.Applied](t)(store.ApplyEach(ctx, batch())) {
		if !slices.Equal(a.Heads, headsOf(t, d)) || a.Added != 0 {
			t.Errorf("got %+v", a)
		}
	}
	_, err := store.ApplyEach(ctx, append(batch(), automerge.Delivery{ID: ids[0]}))
	refuses(t, err, automerge.ErrInvalid)
	wellKept(t, pool)
}
