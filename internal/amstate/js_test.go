package amstate

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amjs"
)

var randomDocs = flag.Int("amstate.documents", 24, "how many random documents the tests try")

// What JavaScript shows of random documents, now and at moments of their past, is what is read: JSON, spans and conflicts, from the save and from
// the changes in any order.
func TestJavaScript(t *testing.T) {
	js := amjs.Start(t)
	conflicts, marks, blocks := 0, 0, 0
	for seed := range max(1, *randomDocs/2) {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		made := js.Make(t, 1000+seed, 1+r.IntN(4), 5+r.IntN(70))
		doc := document(t, made.Save)
		changes := must(doc.Changes(t.Context()))(t)
		heads := [][]string{{}}
		moments := []Clock{nil}
		for range 4 {
			some := randomHeads(r, changes)
			heads = append(heads, hexes(some))
			moments = append(moments, must(ClockOf(nodes(changes), some))(t))
		}
		views := js.View(t, made.Save, heads...)
		shuffled := slices.Clone(changes)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for i, v := range views {
			o := Options{At: moments[i], Conflicts: true}
			for _, s := range []*State{must(Read(t.Context(), doc.Rows(), o))(t), stateOf(t, shuffled, o)} {
				equal(t, fmt.Sprintf("JSON of %d", seed), jsonValue(t, s.JSON()), fromJS(jsonValue(t, v.JSON)))
				if rich, there := s.Get("rich"); there && rich.Kind() == Text {
					spans := must(rich.Spans())(t)
					for _, s := range spans {
						marks += len(s.Marks)
						if s.Block != nil {
							blocks++
						}
					}
					equal(t, "spans", jsonValue(t, must(json.Marshal(spans))(t)), fromJS(jsonValue(t, v.Spans)))
				}
				if i == 0 { // in the past, JavaScript tells conflicts of now
					conflicts += sameConflicts(t, s, v.Conflicts)
				}
			}
		}
	}
	t.Log(conflicts, "conflicts", marks, "marks", blocks, "blocks")
	if conflicts == 0 || marks == 0 || blocks == 0 {
		t.Error("too little was compared")
	}
}

func sameConflicts(t *testing.T, s *State, want []amjs.Conflict) int {
	t.Helper()
	got := s.AllConflicts()
	got = slices.DeleteFunc(got, func(c Conflict) bool { // JavaScript can't tell those in texts and in their blocks
		for i := range c.Path {
			if v, _ := s.Get(c.Path[:i]...); v.Kind() == Text {
				return true
			}
		}
		return false
	})
	type byID map[string]any
	of := func(c []any, values byID) [2]any { return [2]any{short(c), map[string]any(values)} }
	var a, b [][2]any
	for _, c := range got {
		values := byID{}
		for _, v := range c.Values {
			values[v.ID().String()] = jsonValue(t, v.JSON())
		}
		a = append(a, of(c.Path, values))
	}
	for _, c := range want {
		values := byID{}
		for id, v := range c.Values {
			values[id] = fromJS(jsonValue(t, v))
		}
		b = append(b, of(c.Path, values))
	}
	order := func(x, y [2]any) int { return strings.Compare(x[0].(string), y[0].(string)) }
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	equal(t, "conflicts", a, b)
	return len(got)
}

// fromJS turns what the JavaScript side shows into what JSON shows.
func fromJS(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = fromJS(v[i])
		}
		return out
	case map[string]any:
		if len(v) == 1 {
			for k, x := range v {
				switch k {
				case "$date":
					ms, _ := x.(json.Number).Int64()
					return strings.Trim(string(appendTime(nil, ms)), `"`)
				case "$counter":
					return x
				}
			}
		}
		if m, is := mapped(v).(map[string]any); is {
			for k, x := range v {
				m[strings.ReplaceAll(k, "\x00", "\ufffd")] = fromJS(x)
			}
			return m
		}
	}
	return mapped(v)
}

// randomHeads are heads that the document may have had: some changes, none of which another depends on.
func randomHeads(r *rand.Rand, changes []*amformat.Change) []amformat.Hash {
	byHash := map[amformat.Hash]*amformat.Change{}
	for _, c := range changes {
		byHash[c.Hash] = c
	}
	var heads []amformat.Hash
	for range 1 + r.IntN(3) {
		heads = append(heads, changes[r.IntN(len(changes))].Hash)
	}
	heads = amformat.SortHashes(heads)
	below := map[amformat.Hash]bool{}
	var walk func(h amformat.Hash)
	walk = func(h amformat.Hash) {
		for _, d := range byHash[h].Deps {
			if !below[d] {
				below[d] = true
				walk(d)
			}
		}
	}
	for _, h := range heads {
		walk(h)
	}
	return slices.DeleteFunc(heads, func(h amformat.Hash) bool { return below[h] })
}

func hexes(hs []amformat.Hash) (out []string) {
	for _, h := range hs {
		out = append(out, h.String())
	}
	return out
}

// Random documents of our own making, with what JavaScript's API doesn't do, are in JavaScript what they are here.
func TestRandomDocumentsInJavaScript(t *testing.T) {
	js := amjs.Start(t)
	compared := 0
	for seed := range *randomDocs {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		changes := plainChanges(must(randomWork(r, false))(t))
		if len(changes) == 0 {
			continue
		}
		save := must(amformat.WriteDocument(t.Context(), nil, nil, changes, amformat.Limits{}))(t)
		heads := [][]string{{}}
		moments := []Clock{nil}
		for range 3 {
			some := randomHeads(r, changes)
			heads = append(heads, hexes(some))
			moments = append(moments, must(ClockOf(nodes(changes), some))(t))
		}
		for i, v := range js.View(t, save, heads...) {
			s := stateOf(t, changes, Options{At: moments[i], Conflicts: true})
			equal(t, fmt.Sprintf("JSON of %d", seed), jsonValue(t, s.JSON()), fromJS(jsonValue(t, v.JSON)))
			if i > 0 {
				continue // in the past, JavaScript looks for conflicts and texts where they are now
			}
			if rich, there := s.Get("rich"); there && rich.Kind() == Text {
				compared++
				equal(t, fmt.Sprintf("spans of %d", seed), jsonValue(t, must(json.Marshal(must(rich.Spans())(t)))(t)), fromJS(jsonValue(t, v.Spans)))
			}
			sameConflicts(t, s, v.Conflicts)
		}
	}
	if compared == 0 {
		t.Error("no spans were compared")
	}
}
