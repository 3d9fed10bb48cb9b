package amstate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// patched applies patches to what JSON shows of a document.
func patched(doc any, patches []Patch) (any, error) {
	var err error
	for i, p := range patches {
		if doc, err = applyPatch(doc, p.Path, &p); err != nil {
			return nil, fmt.Errorf("patch %d, %s: %w", i, short(p), err)
		}
	}
	return doc, nil
}

func applyPatch(at any, path Path, p *Patch) (any, error) {
	_, isText := at.(string)
	if isText && len(path) > 1 {
		return at, nil // within a block
	}
	inText := len(path) == 0 && (p.Action == Splice || p.Action == SetMark)
	if len(path) > 1 || len(path) == 1 && (p.Action == Splice || p.Action == SetMark) {
		switch v := at.(type) {
		case map[string]any:
			child, err := applyPatch(v[path[0].(string)], path[1:], p)
			v[path[0].(string)] = child
			return v, err
		case []any:
			i := path[0].(int)
			if i >= len(v) {
				return nil, fmt.Errorf("no element %d", i)
			}
			child, err := applyPatch(v[i], path[1:], p)
			v[i] = child
			return v, err
		case string:
			return v, nil
		}
		return nil, fmt.Errorf("%T where %v is to be found", at, path)
	}
	old := func(there any, ok bool) error {
		if (p.Old == nil) == ok || ok && short(p.Old.Any()) != short(there) {
			return fmt.Errorf("there was %s", short(there))
		}
		return nil
	}
	switch v := at.(type) {
	case string:
		runes := []rune(v)
		switch {
		case inText && p.Action == Splice:
			removed, _ := p.Old.Text()
			inserted, _ := p.New.Text()
			end := p.Index + len([]rune(removed))
			if end > len(runes) || string(runes[p.Index:end]) != removed || removed == "" && inserted == "" {
				return nil, fmt.Errorf("no %q in %q", removed, v)
			}
			return string(slices.Concat(runes[:p.Index], []rune(inserted), runes[end:])), nil
		case inText:
			if p.Index >= p.End || p.End > len(runes) {
				return nil, fmt.Errorf("no such range in %q", v)
			}
			return v, nil
		case p.Action == Insert:
			i := path[0].(int)
			return string(slices.Insert(runes, i, []rune(object)[0])), nil
		case p.Action == Delete:
			i := path[0].(int)
			if string(runes[i]) != object {
				return nil, fmt.Errorf("no block at %d of %q", i, v)
			}
			return string(slices.Delete(runes, i, i+1)), nil
		}
	case map[string]any:
		k := path[0].(string)
		there, ok := v[k]
		if err := old(there, ok); err != nil {
			return nil, err
		}
		switch p.Action {
		case Put:
			v[k] = p.New.Any()
			return v, nil
		case Delete:
			delete(v, k)
			return v, nil
		case Increment:
			v[k] = there.(int64) + p.By
			return v, nil
		}
	case []any:
		i := path[0].(int)
		switch {
		case p.Action == Insert:
			return slices.Insert(v, i, p.New.Any()), nil
		case i >= len(v):
			return nil, fmt.Errorf("no element %d", i)
		}
		if err := old(v[i], true); err != nil {
			return nil, err
		}
		switch p.Action {
		case Put:
			v[i] = p.New.Any()
			return v, nil
		case Delete:
			return slices.Delete(v, i, i+1), nil
		case Increment:
			v[i] = v[i].(int64) + p.By
			return v, nil
		}
	}
	return nil, fmt.Errorf("that can't be done to %T", at)
}

// Patches between any two moments, in either direction, make one state of the other.
func TestPatches(t *testing.T) {
	kinds := map[Action]int{}
	for seed := range *randomDocs * 4 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		changes := plainChanges(must(randomChanges(r))(t))
		if len(changes) == 0 {
			continue
		}
		moments := []Clock{nil, {}}
		for range 3 {
			moments = append(moments, must(ClockOf(nodes(changes), randomHeads(r, changes)))(t))
		}
		for i, from := range moments {
			for j, to := range moments {
				before, after := stateOf(t, changes, Options{At: from}), stateOf(t, changes, Options{At: to})
				rows := must(amformat.Merge(nil, changes))(t)
				patches := must(Diff(t.Context(), rows, from, to))(t)
				for _, p := range patches {
					kinds[p.Action]++
					jsonValue(t, must(json.Marshal(p))(t))
				}
				got, err := patched(before.Root().Any(), patches)
				if err != nil {
					t.Fatalf("document %d, %d to %d: %v", seed, i, j, err)
				}
				if !reflect.DeepEqual(got, after.Root().Any()) {
					t.Fatalf("document %d, %d to %d:\n got %s\nwant %s\nby %s", seed, i, j, short(got), short(after.Root().Any()), short(patches))
				}
				if i == j && len(patches) > 0 {
					t.Fatalf("document %d: %s between one moment and itself", seed, short(patches))
				}
				sameMarked(t, before, after, patches)
			}
		}
	}
	t.Log(kinds)
	for _, a := range []Action{Put, Delete, Insert, Splice, SetMark, Increment} {
		if kinds[a] == 0 {
			t.Errorf("no %s was made", a)
		}
	}
}

// marked are a text's characters, each with its marks.
type marked []map[string]string

func markedOf(t *testing.T, s *State, path Path) (marked, bool) {
	t.Helper()
	v, there := s.Get(path...)
	if !there || v.Kind() != Text {
		return nil, false
	}
	var out marked
	for _, span := range must(v.Spans())(t) {
		n := len([]rune(span.Text))
		if span.Block != nil {
			n = 1
		}
		for range n {
			marks := map[string]string{}
			for _, m := range span.Marks {
				marks[m.Name] = string(m.Value.JSON())
			}
			out = append(out, marks)
		}
	}
	return out, true
}

// sameMarked applies the patches of each text to its marks. Texts that are new, or whose place in a list changed, are left to the values of
// patches.
func sameMarked(t *testing.T, before, after *State, patches []Patch) {
	t.Helper()
	for _, p := range patches {
		if slices.ContainsFunc(p.Path, func(step any) bool { _, is := step.(int); return is }) {
			return
		}
	}
	after.walk(after.root, nil, func(n *node, path Path) {
		if n.kind != Text || slices.ContainsFunc(path, func(step any) bool { _, is := step.(int); return is }) {
			return
		}
		was := before.find(path)
		if was == nil || was.node == nil || was.node.id != n.id {
			return
		}
		got, _ := markedOf(t, before, path)
		want, _ := markedOf(t, after, path)
		for _, p := range patches {
			if p.Path.String() != path.String() || len(p.Path) != len(path) {
				continue
			}
			switch p.Action {
			case Splice:
				removed, _ := p.Old.Text()
				inserted, _ := p.New.Text()
				fresh := marked{}
				for range []rune(inserted) {
					fresh = append(fresh, map[string]string{})
				}
				got = slices.Concat(got[:p.Index], fresh, got[p.Index+len([]rune(removed)):])
			case SetMark:
				for i := p.Index; i < p.End; i++ {
					had, there := got[i][p.Name]
					if there != (p.Old != nil) || there && had != string(p.Old.JSON()) {
						t.Fatalf("%s, but there was %q", short(p), had)
					}
					if p.New == nil {
						delete(got[i], p.Name)
					} else {
						got[i][p.Name] = string(p.New.JSON())
					}
				}
			}
		}
		if short(got) != short(want) {
			t.Fatalf("marks of %s:\n got %s\nwant %s\nafter %s", path, short(got), short(want), short(patches))
		}
	})
}

// Patches are what one would say has changed.
func TestPatchesOfFixture(t *testing.T) {
	doc := document(t, testdata(t, "automerge", "ks_conf.am"))
	changes := must(doc.Changes(t.Context()))(t)
	first := must(ClockOf(nodes(changes), changes[0].Deps))(t)
	patches := must(Diff(t.Context(), doc.Rows(), first, nil))(t)
	if len(patches) == 0 || strings.Contains(string(must(json.Marshal(patches))(t)), `"old"`) {
		t.Errorf("from nothing to something: %s", short(patches))
	}
}

// diffOf is the patches that the operations from one counter on make.
func diffOf(t *testing.T, from int, ops ...amformat.Op) string {
	t.Helper()
	rows := must(amformat.Merge(nil, written(t, ops...)))(t)
	return string(must(json.Marshal(must(Diff(t.Context(), rows, Clock{"\x01": uint64(from) - 1}, nil))(t)))(t))
}

func TestPatchesAreWritten(t *testing.T) {
	text := amformat.Op{Key: "t", Action: amformat.ActionMakeText}
	block := insertRune(at(1), at(4), 'x')
	block.Action, block.Value = amformat.ActionMakeMap, amformat.Value{}
	again := set("a", amformat.ValueTrue)
	again.Pred = []amformat.OpID{at(1)}
	other := set("a", amformat.ValueFalse)
	other.Pred = again.Pred
	add := amformat.Op{Key: "n", Action: amformat.ActionIncrement, Value: number(amformat.ValueInt, -3), Pred: []amformat.OpID{at(1)}}
	gone := amformat.Op{Key: "a", Action: amformat.ActionDelete, Pred: []amformat.OpID{at(1)}}
	begin := amformat.Op{Obj: at(1), InList: true, Insert: true, Elem: at(2), Action: amformat.ActionMark, MarkBegin: true, MarkName: "bold", Value: amformat.Value{Type: amformat.ValueTrue}}
	end := amformat.Op{Obj: at(1), InList: true, Insert: true, Elem: at(3), Action: amformat.ActionMark}
	for _, c := range []struct {
		name string
		from int
		ops  []amformat.Op
		want string
	}{
		{"put", 1, []amformat.Op{set("a", amformat.ValueTrue)}, `[{"action":"put","path":["a"],"new":true}]`},
		{"overwritten", 2, []amformat.Op{set("a", amformat.ValueTrue), other}, `[{"action":"put","path":["a"],"old":true,"new":false}]`},
		{"by the same", 2, []amformat.Op{set("a", amformat.ValueTrue), again}, `null`},
		{"deleted", 2, []amformat.Op{set("a", amformat.ValueTrue), gone}, `[{"action":"delete","path":["a"],"old":true}]`},
		{"increment", 2, []amformat.Op{set("n", amformat.ValueCounter, 5), add}, `[{"action":"increment","path":["n"],"by":-3,"old":5,"new":2}]`},
		{"splice", 4, []amformat.Op{text, insertRune(at(1), at(0), 'é'), insertRune(at(1), at(2), 'b'), deleteElement(at(1), at(3)), insertRune(at(1), at(2), 'c')},
			`[{"action":"splice","path":["t"],"index":1,"old":"b","new":"c"}]`},
		{"block", 4, []amformat.Op{text, insertRune(at(1), at(0), 'a'), insertRune(at(1), at(2), 'b'), insertRune(at(1), at(2), 'x'), block, insertRune(at(1), at(5), 'y')},
			`[{"action":"splice","path":["t"],"index":1,"old":"","new":"x"},{"action":"insert","path":["t",2],"new":{}},{"action":"splice","path":["t"],"index":3,"old":"","new":"y"}]`},
		{"mark", 4, []amformat.Op{text, insertRune(at(1), at(0), 'a'), insertRune(at(1), at(2), 'b'), begin, end}, `[{"action":"mark","path":["t"],"index":1,"end":2,"name":"bold","new":true}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := diffOf(t, c.from, c.ops...); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}
