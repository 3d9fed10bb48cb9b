package amstate

import (
	"errors"
	"fmt"
	"iter"

	"github.com/annals-db/annals/internal/amformat"
)

// Clock is a moment of a document: for each actor, the counter of the last of its operations that had been made. Who isn't in it had made
// none, so an empty clock is before the first change. A nil clock is now: everything.
type Clock map[amformat.ActorID]uint64

// ErrUnknownHead means that a moment is named by a change that isn't there.
var ErrUnknownHead = errors.New("an Automerge change that is named as a head is unknown")

// Node is what [ClockOf] has to know of a change.
type Node struct {
	Hash  amformat.Hash
	Deps  []amformat.Hash
	Actor amformat.ActorID
	MaxOp uint64 // the counter of its last operation, or of the one before its first if it has none
}

// ClockOf is the moment that heads name: they and everything that they depend on had happened. The changes may come in any order, and may
// be more than those. It fails with [ErrUnknownHead], or with [amformat.ErrMissing] if a dependency isn't among the changes.
func ClockOf(changes iter.Seq[Node], heads []amformat.Hash) (Clock, error) {
	clock := Clock{}
	if len(heads) == 0 {
		return clock, nil
	}
	nodes := map[amformat.Hash]Node{}
	for n := range changes {
		nodes[n.Hash] = n
	}
	for _, h := range heads {
		if _, ok := nodes[h]; !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnknownHead, h)
		}
	}
	waiting := append([]amformat.Hash(nil), heads...)
	done := map[amformat.Hash]bool{}
	for len(waiting) > 0 {
		h := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if done[h] {
			continue
		}
		done[h] = true
		n, ok := nodes[h]
		if !ok {
			return nil, fmt.Errorf("%w: %s", amformat.ErrMissing, h)
		}
		clock[n.Actor] = max(clock[n.Actor], n.MaxOp)
		for _, d := range n.Deps {
			if !done[d] {
				waiting = append(waiting, d)
			}
		}
	}
	return clock, nil
}

// table is the clock for actors by their index; nil if it is now.
func (c Clock) table(actors []amformat.ActorID) []uint64 {
	if c == nil {
		return nil
	}
	t := make([]uint64, len(actors))
	for i, a := range actors {
		t[i] = c[a]
	}
	return t
}
