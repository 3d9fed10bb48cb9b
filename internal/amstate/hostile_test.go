package amstate

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// everything reads all that can be read of changes. What it gives doesn't matter here, but that it ends.
func everything(t testing.TB, changes []*amformat.Change, clock Clock) error {
	t.Helper()
	for _, o := range []Options{{}, {At: clock, Conflicts: true}, {Paths: []Path{{"a", 1}, {"t"}}}} {
		rows, err := amformat.Merge(nil, changes)
		if err != nil {
			return err
		}
		s, err := Read(t.Context(), rows, o)
		if err != nil {
			return err
		}
		if err := s.WriteJSON(io.Discard); err != nil {
			return err
		}
		s.AllConflicts()
		var texts []*node
		s.walk(s.root, nil, func(n *node, _ Path) {
			if n.kind == Text {
				texts = append(texts, n)
			}
		})
		for _, n := range texts {
			if _, err := s.value(&value{kind: Text, node: n}).Spans(); err != nil {
				return err
			}
		}
	}
	for _, clocks := range [][2]Clock{{clock, nil}, {nil, clock}} {
		rows, err := amformat.Merge(nil, changes)
		if err != nil {
			return err
		}
		if _, err := Diff(t.Context(), rows, clocks[0], clocks[1]); err != nil {
			return err
		}
	}
	return nil
}

// Changes that are well formed and otherwise as strange as can be never make reading panic.
func TestHostileChanges(t *testing.T) {
	accepted := 0
	for seed := range *randomDocs * 100 {
		changes := strangeChanges(rand.New(rand.NewPCG(uint64(seed), 9)))
		if len(changes) == 0 {
			continue
		}
		err := everything(t, changes, Clock{"\x00": uint64(seed % 20)})
		switch {
		case err == nil:
			accepted++
		case errors.Is(err, amformat.ErrMalformed), errors.Is(err, amformat.ErrLimit):
		default:
			t.Fatalf("document %d: %v", seed, err)
		}
	}
	t.Log(accepted, "accepted")
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}

// strangeChanges are operations that name whatever there is: increments of what is no counter, values of marks, predecessors anywhere.
func strangeChanges(r *rand.Rand) (changes []*amformat.Change) {
	actors := []amformat.ActorID{"\x00", "\x01"}
	var made []amformat.Op // what there is, with ids
	next := uint64(1)
	seqs := [2]uint64{}
	for range 1 + r.IntN(4) {
		self := r.IntN(2)
		d := amformat.Draft{Actor: actors[self], Actors: actors, Seq: seqs[self] + 1, StartOp: next}
		for range 1 + r.IntN(12) {
			id := amformat.OpID{Counter: next + uint64(len(d.Ops)), Actor: uint32(self)}
			op := strange(r, made)
			op.ID = id
			if r.IntN(3) > 0 { // in a place where there is something
				for _, o := range made {
					if o.Obj == op.Obj && o.InList == op.InList && !op.Insert && o.Key == op.Key && o.Element() == op.Elem && r.IntN(2) == 0 {
						op.Pred = append(op.Pred, o.ID)
					}
				}
			}
			if op.Action == amformat.ActionDelete && len(op.Pred) == 0 {
				op.Action = amformat.ActionMakeMap
			}
			made = append(made, op)
			d.Ops = append(d.Ops, op)
		}
		c, err := d.Write(amformat.Limits{})
		if err != nil {
			return changes // what can't be written can't be sent
		}
		seqs[self]++
		next += uint64(len(d.Ops))
		changes = append(changes, c)
	}
	return changes
}

func strange(r *rand.Rand, made []amformat.Op) (op amformat.Op) {
	var objects []amformat.Op
	for _, o := range made {
		if o.Action.Makes() {
			objects = append(objects, o)
		}
	}
	op.Key = []string{"a", "t"}[r.IntN(2)]
	op.Action = amformat.Action(r.IntN(8))
	if len(objects) > 0 && r.IntN(4) > 0 {
		o := objects[r.IntN(len(objects))]
		op.Obj, op.InList = o.ID, o.Action.List()
	}
	if op.InList {
		op.Key = ""
		var elements []amformat.OpID
		for _, o := range made {
			if o.Obj == op.Obj && o.Insert {
				elements = append(elements, o.ID)
			}
		}
		if len(elements) > 0 && r.IntN(4) > 0 {
			op.Elem = elements[r.IntN(len(elements))]
		}
		op.Insert = op.Elem.IsZero() || op.Action == amformat.ActionMark || r.IntN(2) == 0
		if op.Insert && (op.Action == amformat.ActionDelete || op.Action == amformat.ActionIncrement) {
			op.Action = amformat.ActionSet
		}
	} else if op.Action == amformat.ActionMark {
		op.Action = amformat.ActionMakeText
	}
	switch op.Action {
	case amformat.ActionSet:
		op.Value = scalar(r)
	case amformat.ActionIncrement:
		op.Value = number(amformat.ValueInt, r.Int64())
	case amformat.ActionMark:
		if op.MarkBegin = r.IntN(2) == 0; op.MarkBegin {
			op.MarkName, op.Value = "m", scalar(r)
		}
	}
	return op
}
