package amformat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
)

// Known tells the hash of an actor's change of that number, if it is known already.
type Known func(actor ActorID, seq uint64) (Hash, bool)

// Changes writes the changes of the document anew, each after those that it depends on, and proves them: their hashes have to add up to
// the heads that the document names, or the error is [ErrHash]. A document of which this returns no error holds exactly what its heads stand
// for, in its order.
func (d *Document) Changes(ctx context.Context) ([]*Change, error) {
	return d.ChangesSince(ctx, nil)
}

// ChangesSince is Changes for one who knows some of them: those are trusted to be what their hashes name, and only the others are written. It
// costs one pass over the rows and the writing of what is new. The hashes of new changes prove, up to the heads, that they are built on
// the known ones; a document whose change of a known number is another has heads that can't be reached. The rows of known changes are not
// proven: who wants to read the document itself, and not only take the new changes, asks for [Document.Changes].
func (d *Document) ChangesSince(ctx context.Context, known Known) ([]*Change, error) {
	changes, _, err := d.extract(ctx, known)
	return changes, err
}

// extract gives the changes that aren't known, and the hashes of all.
func (d *Document) extract(ctx context.Context, known Known) ([]*Change, []Hash, error) {
	x := &extraction{doc: d, hashes: make([]Hash, len(d.Metas)), since: make([]uint64, len(d.Actors)), known: make([]bool, len(d.Metas))}
	wanted := 0
	claimed := map[int]Hash{} // hashes that are known of changes that follow unknown ones: these are written too, and compared
	if known != nil {
		broken := make([]bool, len(d.Actors))
		for i := range d.Metas {
			m := &d.Metas[i]
			hash, ok := known(d.Actors[m.Actor], m.Seq)
			switch {
			case ok && !broken[m.Actor]:
				x.hashes[i], x.known[i] = hash, true
				x.since[m.Actor] = m.MaxOp
			case ok:
				claimed[i] = hash
			default:
				broken[m.Actor] = true
			}
			if !x.known[i] {
				wanted++
			}
		}
	} else {
		wanted = len(d.Metas)
	}
	if wanted > 0 || known == nil { // a document without changes has no rows either
		if err := x.sweep(ctx); err != nil {
			return nil, nil, err
		}
	}
	changes := make([]*Change, 0, wanted)
	var written int64
	for i := range d.Metas {
		if x.known[i] {
			continue
		}
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
		}
		c, err := x.write(i)
		if err != nil {
			return nil, nil, err
		}
		if h, ok := claimed[i]; ok && h != c.Hash {
			return nil, nil, fmt.Errorf("%w: number %d of actor %s is %s, and not %s", ErrHash, c.Seq, c.Actor, c.Hash, h)
		}
		if written += int64(len(c.Bytes)); written > d.limits.Bytes {
			return nil, nil, &LimitError{What: "bytes", Limit: d.limits.Bytes, Got: written}
		}
		x.hashes[i] = c.Hash
		changes = append(changes, c)
	}
	if x.used != len(x.ops) || x.usedLinks != len(x.links) {
		return nil, nil, malformed("%d operations are of no change", len(x.ops)-x.used+len(x.links)-x.usedLinks)
	}
	return changes, x.hashes, d.reaches(x.hashes)
}

// extraction puts the rows of a document back into changes.
type extraction struct {
	doc    *Document
	hashes []Hash
	known  []bool
	since  []uint64 // by actor: operations up to this one are known

	records // the rows that aren't known
	links   []backlink
	w       *changeWriter
	body    []byte
	tops    []uint64 // by actor: the last operation of its changes so far
	place   []uint32 // by actor: its index in the change at hand, plus one
	table   []uint32 // the actors of the change at hand
	pred    []OpID
	op      Op

	used, usedLinks int
}

// backlink says which operation is the predecessor of one that isn't known, and where both are: for deletions there is nothing else
// that says so.
type backlink struct {
	succ, pred id32
	obj, place id32
	inList     bool
}

func (x *extraction) sweep(ctx context.Context) error {
	rows := x.doc.Rows()
	x.columns = [][]byte{x.doc.columns.get(colValueRaw)}
	if len(x.since) > 0 && slices.Max(x.since) == 0 {
		x.ops = make([]record, 0, x.doc.NumOps)
	}
	for n := 0; rows.Next(); n++ {
		if n&0xffff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		op := rows.Op()
		if op.ID.Counter > x.since[op.ID.Actor] {
			x.add(op, 0, rows.doc.from)
		}
		for _, s := range op.Succ {
			if s.Counter <= x.since[s.Actor] {
				continue
			}
			l := backlink{succ: s.short(), pred: op.ID.short(), obj: op.Obj.short(), inList: op.InList}
			if op.InList {
				l.place = op.Element().short()
			} else {
				l.place = x.records.place(op)
			}
			x.links = append(x.links, l)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	byActor := func(a, b id32) int {
		return cmp.Or(cmp.Compare(a.actor, b.actor), cmp.Compare(a.counter, b.counter))
	}
	inOrder := func(a, b record) int { return byActor(a.id, b.id) }
	if !slices.IsSortedFunc(x.ops, inOrder) {
		slices.SortFunc(x.ops, inOrder)
	}
	slices.SortFunc(x.links, func(a, b backlink) int {
		return cmp.Or(byActor(a.succ, b.succ), compareID(a.pred, b.pred))
	})
	x.w = newChangeWriter()
	x.tops = slices.Clone(x.since)
	x.place = make([]uint32, len(x.doc.Actors))
	return ctx.Err()
}

// part finds what has ids of the actor from after to up to, in a list that is in the order of actors and counters.
func part(n int, actor uint32, after, upTo uint64, id func(int) id32) (from, to int) {
	find := func(counter uint64) int {
		return sort.Search(n, func(i int) bool {
			id := id(i)
			return id.actor > actor || id.actor == actor && uint64(id.counter) > counter
		})
	}
	return find(after), find(upTo)
}

// write writes one change.
func (x *extraction) write(i int) (*Change, error) {
	m := &x.doc.Metas[i]
	after := x.tops[m.Actor]
	x.tops[m.Actor] = m.MaxOp
	from, to := part(len(x.ops), m.Actor, after, m.MaxOp, func(i int) id32 { return x.ops[i].id })
	ops := x.ops[from:to]
	from, to = part(len(x.links), m.Actor, after, m.MaxOp, func(i int) id32 { return x.links[i].succ })
	links := x.links[from:to]
	x.used += len(ops)
	x.usedLinks += len(links)

	n, err := count(ops, links, m.MaxOp)
	if err != nil {
		return nil, err
	}
	c := &Change{Header: Header{
		Actor: x.doc.Actors[m.Actor], Seq: m.Seq, StartOp: m.MaxOp - uint64(n) + 1, NumOps: n, Time: m.Time, Message: m.Message, Extra: m.Extra,
		Deps: make([]Hash, len(m.Deps)),
	}}
	for i, d := range m.Deps {
		c.Deps[i] = x.hashes[d]
	}
	c.Deps = SortHashes(c.Deps)
	if len(c.Deps) != len(m.Deps) {
		return nil, malformed("change %d depends on one change twice", i)
	}
	x.actors(m.Actor, ops, links)
	c.Actors = make([]ActorID, len(x.table))
	for i, a := range x.table {
		c.Actors[i] = x.doc.Actors[a]
	}

	x.w.reset()
	for counter := c.StartOp; counter <= m.MaxOp; counter++ {
		x.pred = x.pred[:0]
		var preds []backlink
		for preds = links; len(links) > 0 && uint64(links[0].succ.counter) == counter; links = links[1:] {
			x.pred = append(x.pred, x.local(links[0].pred))
		}
		preds = preds[:len(x.pred)]
		if len(ops) > 0 && uint64(ops[0].id.counter) == counter {
			x.read(&ops[0], &x.op)
			ops = ops[1:]
		} else {
			l := &preds[0]
			r := record{id: l.succ, obj: l.obj, place: l.place, action: ActionDelete}
			if l.inList {
				r.flags = inList
			}
			x.read(&r, &x.op)
		}
		if err := x.follows(preds); err != nil {
			return nil, err
		}
		x.w.add(&x.op, x.local(x.op.Obj.short()), x.local(x.op.Elem.short()), x.pred)
	}
	x.body = c.assemble(x.body[:0], x.w.finish())
	for _, a := range x.table {
		x.place[a] = 0
	}
	return c, nil
}

// count is how many operations there are, which have to end at maxOp without a gap.
func count(ops []record, links []backlink, maxOp uint64) (int64, error) {
	var n int64
	var first, last uint64
	for len(ops) > 0 || len(links) > 0 {
		var at uint64
		if len(links) == 0 || len(ops) > 0 && ops[0].id.counter <= links[0].succ.counter {
			at = uint64(ops[0].id.counter)
			ops = ops[1:]
		} else {
			at = uint64(links[0].succ.counter)
		}
		for len(links) > 0 && uint64(links[0].succ.counter) == at {
			links = links[1:]
		}
		if n > 0 && at != last+1 {
			return 0, malformed("operation %d follows operation %d of the same change", at, last)
		}
		if n == 0 {
			first = at
		}
		last = at
		n++
	}
	if n > 0 && last != maxOp || uint64(n) > maxOp {
		return 0, malformed("operations from %d to %d of a change that ends at %d", first, last, maxOp)
	}
	return n, nil
}

// follows judges the predecessors of the operation at hand.
func (x *extraction) follows(preds []backlink) error {
	op := &x.op
	if op.Insert && len(preds) > 0 {
		return malformed("operation %d: a new element overwrites something", op.ID.Counter)
	}
	place := x.records.place(op)
	for i, p := range preds {
		if p.obj != op.Obj.short() || p.place != place || p.inList != op.InList {
			return malformed("operation %d overwrites operation %d, which is in another place", op.ID.Counter, p.pred.counter)
		}
		if i > 0 && preds[i-1].pred == p.pred {
			return malformed("operation %d is there twice", p.pred.counter)
		}
	}
	return nil
}

// actors makes the table of the change's actors: the author, then the others that its operations name.
func (x *extraction) actors(author uint32, ops []record, links []backlink) {
	x.table = append(x.table[:0], author)
	x.place[author] = 1
	use := func(id id32) {
		if id.counter > 0 && x.place[id.actor] == 0 {
			x.place[id.actor] = 1
			x.table = append(x.table, id.actor)
		}
	}
	for i := range ops {
		use(ops[i].obj)
		if ops[i].flags&inList != 0 {
			use(ops[i].place)
		}
	}
	for i := range links {
		use(links[i].pred)
		use(links[i].obj)
		if links[i].inList {
			use(links[i].place)
		}
	}
	slices.Sort(x.table[1:])
	for i, a := range x.table {
		x.place[a] = uint32(i) + 1
	}
}

// local is the id in the table of the change at hand.
func (x *extraction) local(id id32) OpID {
	if id.counter == 0 {
		return OpID{}
	}
	return OpID{Counter: uint64(id.counter), Actor: x.place[id.actor] - 1}
}

// reaches judges whether the hashes of the changes are the heads, where no other depends on them.
func (d *Document) reaches(hashes []Hash) error {
	follows := make([]bool, len(d.Metas))
	for i := range d.Metas {
		for _, dep := range d.Metas[i].Deps {
			follows[dep] = true
		}
	}
	heads := make([]Hash, 0, len(d.Heads))
	for i, h := range hashes {
		if !follows[i] {
			heads = append(heads, h)
		}
	}
	if heads = SortHashes(heads); !slices.Equal(heads, d.Heads) {
		return fmt.Errorf("%w: %v, and not %v", ErrHash, sample(heads), sample(d.Heads))
	}
	for i, at := range d.headIndexes {
		if hashes[at] != d.Heads[i] {
			return fmt.Errorf("%w: change %d is said to be %s", ErrHash, at, d.Heads[i])
		}
	}
	return nil
}

// sample is enough of the hashes for a message.
func sample(hs []Hash) []Hash { return hs[:min(len(hs), 5)] }
