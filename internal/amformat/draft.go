package amformat

import (
	"fmt"
	"slices"
	"strings"
)

// Draft is a change before it is written.
type Draft struct {
	Actor   ActorID
	Seq     uint64 // its number among the actor's changes, from 1
	StartOp uint64 // higher than the counter of every operation of the changes that it depends on
	Deps    []Hash
	Time    int64 // seconds since 1970
	Message string
	Actors  []ActorID // the table that the operations' indexes mean, in any order; it may hold more than they name
	Ops     []Op      // their ids follow from StartOp and needn't be set
}

// Write makes the change. It is validated as by [ParseChange], and what that refuses is an error; whether objects, elements and predecessors
// exist is for the writer to know. Predecessors may be in any order.
func (d *Draft) Write(limits Limits) (*Change, error) {
	used := make([]bool, len(d.Actors))
	outside := false
	use := func(id OpID) {
		switch {
		case id.IsZero():
		case int(id.Actor) < len(used):
			used[id.Actor] = true
		default:
			outside = true
		}
	}
	for i := range d.Ops {
		op := &d.Ops[i]
		use(op.Obj)
		if op.InList {
			use(op.Elem)
		}
		for _, p := range op.Pred {
			use(p)
		}
	}
	if outside {
		return nil, malformed("an operation names an actor that isn't in the table")
	}
	c := &Change{Header: Header{
		Actor: d.Actor, Seq: d.Seq, StartOp: d.StartOp, NumOps: int64(len(d.Ops)), Time: d.Time, Message: d.Message,
		Deps: SortHashes(slices.Clone(d.Deps)), Actors: []ActorID{d.Actor},
	}}
	for i, a := range d.Actors {
		if used[i] && a != d.Actor {
			c.Actors = append(c.Actors, a)
		}
	}
	others := c.Actors[1:]
	slices.Sort(others)
	c.Actors = c.Actors[:1+len(slices.Compact(others))]
	places := make([]uint32, len(d.Actors))
	for i, a := range d.Actors {
		if used[i] && a != d.Actor {
			at, _ := slices.BinarySearchFunc(c.Actors[1:], a, func(a, b ActorID) int { return strings.Compare(string(a), string(b)) })
			places[i] = uint32(at) + 1
		}
	}
	place := func(id OpID) OpID {
		if id.IsZero() {
			return OpID{}
		}
		return OpID{Counter: id.Counter, Actor: places[id.Actor]}
	}
	ranks := actorRanks(c.Actors)
	w := newChangeWriter()
	for i := range d.Ops {
		op := &d.Ops[i]
		pred := make([]OpID, len(op.Pred))
		for j, p := range op.Pred {
			pred[j] = place(p)
		}
		slices.SortFunc(pred, func(a, b OpID) int { return compareRanked(a, b, ranks) })
		w.add(op, place(op.Obj), place(op.Elem), pred)
	}
	c.assemble(nil, w.finish())
	written, err := ParseChange(c.Bytes, limits)
	if err != nil {
		return nil, fmt.Errorf("a change that can't be: %w", err)
	}
	return written, nil
}
