package amformat

import "math"

// Limits bound what one call reads, and with that its memory: a few bytes can say millions of operations. To read the rows of a document
// takes about as much as its Bytes; to extract changes or to merge them in takes up to about 100 bytes an operation and a link more,
// 300 a change. Sizes are of data as it is after inflating. Zero values mean the default.
type Limits struct {
	Bytes   int64 // of all that a chunk inflates to, and of all the changes that are extracted from it
	Ops     int64 // operations of a chunk, and as many links (predecessors or successors) between them
	Changes int64 // changes of a document, and four times as many dependencies between them
	Actors  int64 // actors of a chunk
	Depth   int64 // objects within objects of a document
}

// DefaultLimits are the limits that zero values stand for.
var DefaultLimits = Limits{Bytes: 256 << 20, Ops: 5_000_000, Changes: 1_000_000, Actors: 100_000, Depth: 1_000}

func (l Limits) orDefault() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Bytes, DefaultLimits.Bytes)
	set(&l.Ops, DefaultLimits.Ops)
	set(&l.Changes, DefaultLimits.Changes)
	set(&l.Actors, DefaultLimits.Actors)
	set(&l.Depth, DefaultLimits.Depth)
	// What is kept of an operation has indexes of this size.
	l.Bytes, l.Ops = min(l.Bytes, math.MaxUint32), min(l.Ops, math.MaxInt32)
	return l
}

func within(what string, got, limit int64) error {
	if got > limit || got < 0 {
		return &LimitError{What: what, Limit: limit, Got: got}
	}
	return nil
}
