package amformat

import (
	"slices"
	"sort"
)

// Rows are the operations of a document in its order, each with its successors; see the package's documentation. A row that isn't where
// the format says it has to be, or is about something that isn't there, ends them with an error, which is a [*ChangeError] where it is one
// of the changes that are merged in that doesn't fit.
type Rows struct {
	actors []ActorID
	remap  []uint32 // from the document's actors to these; nil if they are the same
	doc    *documentReader
	order  *order
	marks  markOrder
	tail   *tail // nil if there is nothing to merge in
	op     *Op
	found  bool // whether a row of the document was read that is yet to be given
	ended  bool
	err    error

	queue  []uint32 // rows of the tail that come first
	at     int
	merged Op
}

// Rows reads the document's rows.
func (d *Document) Rows() *Rows {
	return &Rows{actors: d.Actors, doc: d.reader(), order: newOrder(d.limits)}
}

// Actors is the table of actors that the rows' indexes mean, in order.
func (r *Rows) Actors() []ActorID { return r.actors }

// Op is the row that Next found. It is used again for the next one.
func (r *Rows) Op() *Op { return r.op }

// Err is why there are no more rows, nil at the end.
func (r *Rows) Err() error { return r.err }

// Next goes to the next row, if there is one.
func (r *Rows) Next() bool {
	for r.err == nil {
		switch {
		case r.at < len(r.queue):
			r.give(r.queue[r.at])
			if r.at++; r.at == len(r.queue) {
				r.queue, r.at = r.queue[:0], 0
			}
			return r.err == nil
		case r.found:
			r.found, r.op = false, &r.doc.op
			if r.tail != nil {
				r.err = r.tail.link(r.op)
			}
			if r.err == nil && r.op.Action == ActionMark {
				r.err = r.marks.add(r.op)
			}
			return r.err == nil
		case r.ended:
			if r.tail != nil {
				r.err = r.tail.allLinked()
			}
			return false
		case r.doc != nil && r.doc.next():
			r.found = true
			if r.remap != nil {
				r.renumber(&r.doc.op)
			}
			if r.tail == nil {
				if r.err = r.order.add(&r.doc.op); r.err == nil && r.doc.op.Insert {
					r.order.list.enter(r.doc.op.ID, span{})
				}
			} else {
				r.err = r.mergeBefore(&r.doc.op)
			}
		case r.doc != nil && r.doc.err != nil:
			r.err = r.doc.err
		default:
			r.ended = true
			if r.tail != nil {
				r.err = r.mergeRest()
			}
		}
	}
	return false
}

func (r *Rows) renumber(op *Op) {
	op.ID.Actor = r.remap[op.ID.Actor]
	if !op.Obj.IsZero() {
		op.Obj.Actor = r.remap[op.Obj.Actor]
	}
	if !op.Elem.IsZero() {
		op.Elem.Actor = r.remap[op.Elem.Actor]
	}
	for i := range op.Succ {
		op.Succ[i].Actor = r.remap[op.Succ[i].Actor]
	}
}

// give makes a record of the tail the row.
func (r *Rows) give(i uint32) {
	r.op = &r.merged
	r.tail.read(&r.tail.ops[i], r.op)
	if r.err = r.tail.link(r.op); r.err == nil && r.op.Action == ActionMark {
		r.err = r.tail.blame(i, r.marks.add(r.op))
	}
}

// unite is the table of all the actors, in order, and for each of the given tables the places of its actors.
func unite(tables ...[]ActorID) (all []ActorID, places [][]uint32) {
	n := 0
	for _, t := range tables {
		n += len(t)
	}
	all = make([]ActorID, 0, n)
	for _, t := range tables {
		all = append(all, t...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, t := range tables {
		place := make([]uint32, len(t))
		for i, a := range t {
			place[i] = uint32(sort.Search(len(all), func(j int) bool { return all[j] >= a }))
		}
		places = append(places, place)
	}
	return all, places
}
