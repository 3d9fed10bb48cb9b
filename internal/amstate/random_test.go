package amstate

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// Random documents say what the simplest implementation says: from changes in any order, from a save, from a save and changes, and as of any moment,
// which is what the changes up to then say alone.
func TestRandomDocuments(t *testing.T) {
	conflicts, marked := 0, 0
	for seed := range *randomDocs * 4 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		changes := must(randomChanges(r))(t)
		if len(changes) == 0 {
			continue
		}
		plain := plainChanges(changes)
		m := newModel()
		for _, c := range changes {
			m.apply(c)
		}
		o := Options{Conflicts: true}
		s := stateOf(t, plain, o)
		equal(t, "state", s.Root().Any(), m.object(amformat.OpID{}))
		want := s.JSON()
		jsonValue(t, want)
		s.walk(s.root, nil, func(n *node, path Path) {
			if n.kind != Text {
				return
			}
			got, _ := markedOf(t, s, path)
			id := amformat.OpID{Counter: n.id.Counter, Actor: uint32(s.actors[n.id.Actor][0])} // in the table of all authors
			equal(t, "marks", got, m.marked(id))
			for _, marks := range got {
				marked += len(marks)
			}
		})
		all := s.AllConflicts()
		if n := m.conflicts(amformat.OpID{}); n != len(all) {
			t.Fatalf("document %d: %d conflicts, want %d", seed, len(all), n)
		}
		conflicts += len(all)
		for _, c := range all {
			for i, v := range c.Values {
				if i > 1 && (c.Values[i-1].ID().Counter < v.ID().Counter) {
					t.Fatalf("document %d: conflict %v isn't from the latest to the earliest", seed, c)
				}
			}
		}

		shuffled := slices.Clone(plain)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		sameBytes(t, seed, stateOf(t, shuffled, o).JSON(), want)
		save := must(amformat.WriteDocument(t.Context(), nil, nil, shuffled, amformat.Limits{}))(t)
		doc := document(t, save)
		sameBytes(t, seed, must(Read(t.Context(), doc.Rows(), Options{}))(t).JSON(), want)

		for range 3 {
			heads := randomHeads(r, plain)
			clock := must(ClockOf(nodes(plain), heads))(t)
			past, rest := split(plain, clock)
			alone := stateOf(t, past, o)
			then := must(Read(t.Context(), doc.Rows(), Options{At: clock, Conflicts: true}))(t)
			sameBytes(t, seed, then.JSON(), alone.JSON())
			sameBytes(t, seed, spans(t, then), spans(t, alone))
			sameBytes(t, seed, conflictsOf(then), conflictsOf(alone))

			part := document(t, must(amformat.WriteDocument(t.Context(), nil, nil, past, amformat.Limits{}))(t))
			rows := must(amformat.Merge(part, rest))(t)
			merged := must(Read(t.Context(), rows, o))(t)
			sameBytes(t, seed, merged.JSON(), want)
			sameBytes(t, seed, spans(t, merged), spans(t, s))
			sameBytes(t, seed, conflictsOf(merged), conflictsOf(s))
		}
	}
	t.Log(conflicts, "conflicts", marked, "marked characters")
	if conflicts == 0 || marked == 0 {
		t.Error("too little was compared")
	}
}

func sameBytes(t *testing.T, seed int, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("document %d:\n got %.2000s\nwant %.2000s", seed, got, want)
	}
}

// split tells the changes of a moment from the others.
func split(changes []*amformat.Change, clock Clock) (past, rest []*amformat.Change) {
	for _, c := range changes {
		if c.MaxOp() <= clock[c.Actor] {
			past = append(past, c)
		} else {
			rest = append(rest, c)
		}
	}
	return past, rest
}

// spans are those of all texts.
func spans(t testing.TB, s *State) []byte {
	t.Helper()
	var out []byte
	s.walk(s.root, nil, func(n *node, path Path) {
		if n.kind == Text {
			v := s.value(&value{id: n.id, kind: Text, node: n})
			out = append(out, path.String()...)
			out = append(out, must(json.Marshal(must(v.Spans())(t)))(t)...)
		}
	})
	return out
}

func conflictsOf(s *State) []byte {
	var out []byte
	for _, c := range s.AllConflicts() {
		out = append(out, c.Path.String()...)
		for _, v := range c.Values {
			out = append(out, v.ID().String()...)
			out = append(out, v.JSON()...)
		}
	}
	return out
}
