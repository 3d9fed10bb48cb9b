package amformat

import (
	"cmp"
	"errors"
	"slices"
	"sort"
)

// Merge reads the rows that a document has after more changes: those of doc, which may be nil, with the operations of changes put where they
// belong, in one pass, under doc's limits. The changes may come in any order; they must be ones that doc doesn't have, each actor's following the last
// of doc's. Whether their dependencies are there is not judged, but what their operations name has to be: a change with an operation on
// what isn't there, or in another place than what it overwrites, ends the rows with a [*ChangeError] that names it.
func Merge(doc *Document, changes []*Change) (*Rows, error) {
	limits := DefaultLimits
	if doc != nil {
		limits = doc.limits
	}
	return merge(doc, changes, limits)
}

func merge(doc *Document, changes []*Change, limits Limits) (*Rows, error) {
	if len(changes) == 0 && doc != nil {
		return doc.Rows(), nil
	}
	tables := make([][]ActorID, 1, 1+len(changes))
	if doc != nil {
		tables[0] = doc.Actors
	}
	for _, c := range changes {
		tables = append(tables, c.Actors)
	}
	actors, places := unite(tables...)
	if err := within("actors", int64(len(actors)), limits.Actors); err != nil {
		return nil, err
	}
	if err := follow(doc, changes); err != nil {
		return nil, err
	}
	tail, err := newTail(changes, places[1:], limits)
	if err != nil {
		return nil, err
	}
	r := &Rows{actors: actors, order: newOrder(limits), tail: tail}
	if doc != nil {
		r.doc = doc.reader()
		if len(actors) != len(doc.Actors) {
			r.remap = places[0]
		}
	}
	return r, nil
}

// follow judges that each actor's changes have the numbers after those of the document, and their operations too.
func follow(doc *Document, changes []*Change) error {
	type last struct{ seq, maxOp uint64 }
	lasts := map[ActorID]last{}
	if doc != nil {
		for i := range doc.Metas {
			m := &doc.Metas[i]
			lasts[doc.Actors[m.Actor]] = last{seq: m.Seq, maxOp: m.MaxOp}
		}
	}
	sorted := slices.Clone(changes)
	slices.SortFunc(sorted, func(a, b *Change) int {
		return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Seq, b.Seq))
	})
	for _, c := range sorted {
		l := lasts[c.Actor]
		if c.Seq != l.seq+1 || c.StartOp <= l.maxOp {
			return malformed("change %s, number %d of actor %s from operation %d, follows number %d up to operation %d",
				c.Hash, c.Seq, c.Actor, c.StartOp, l.seq, l.maxOp)
		}
		lasts[c.Actor] = last{seq: c.Seq, maxOp: c.MaxOp()}
	}
	return nil
}

// tail is the operations of changes that are merged into a document.
type tail struct {
	records
	hashes []Hash   // of the changes; the column of a record is the number of its change
	rows   []uint32 // the records that become rows, in the order of compareRows
	next   int      // the first row of the objects that are yet to come
	links  []link   // from predecessors to the records that succeed them, in order
	linked []bool   // which of the links met their predecessor
	preds  idFilter // the predecessors
	places idFilter // the elements that rows are about

	// Of the object at hand:
	inMap   span   // rows of a map that are yet to come
	inserts span   // rows that insert elements
	updates span   // rows that change elements
	placed  []bool // which of all the rows found their place
	current span   // rows that change the element at hand and are yet to come
	hint    int
}

type link struct {
	pred uint64 // packed
	succ uint32 // index of the record
}

func newTail(changes []*Change, places [][]uint32, limits Limits) (*tail, error) {
	t := &tail{}
	var ops, bytes int64
	for _, c := range changes {
		ops += c.NumOps
		bytes += int64(len(c.Bytes))
	}
	if err := within("operations", ops, limits.Ops); err != nil {
		return nil, err
	}
	if err := within("bytes", bytes, limits.Bytes); err != nil {
		return nil, err
	}
	t.ops = make([]record, 0, ops)
	t.rows = make([]uint32, 0, ops)
	for i, c := range changes {
		renumber := func(id OpID) OpID {
			if !id.IsZero() {
				id.Actor = places[i][id.Actor]
			}
			return id
		}
		t.hashes = append(t.hashes, c.Hash)
		t.columns = append(t.columns, c.columns.get(colValueRaw))
		from := 0
		for op := range c.Ops() {
			op.ID, op.Obj, op.Elem = renumber(op.ID), renumber(op.Obj), renumber(op.Elem)
			index := uint32(len(t.ops))
			t.add(op, i, from)
			from += len(op.Value.Raw)
			if op.Action != ActionDelete {
				t.rows = append(t.rows, index)
			}
			for _, p := range op.Pred {
				t.links = append(t.links, link{pred: renumber(p).packed(), succ: index})
			}
		}
	}
	if err := within("operations", int64(len(t.links)), limits.Ops); err != nil {
		return nil, err
	}
	slices.SortFunc(t.links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.pred, b.pred), compareID(t.ops[a.succ].id, t.ops[b.succ].id))
	})
	slices.SortFunc(t.rows, t.compareRows)
	t.linked, t.placed = make([]bool, len(t.links)), make([]bool, len(t.rows))
	t.preds = newIDFilter(len(t.links))
	for _, l := range t.links {
		t.preds.add(l.pred)
	}
	t.places = newIDFilter(len(t.rows))
	for _, i := range t.rows {
		if r := &t.ops[i]; r.flags&inList != 0 {
			t.places.add(r.place.packed())
		}
	}
	return t, nil
}

// compareRows orders rows by object. Of a list those that insert come first, by the element they follow and the latest of them first, then
// those that change elements, by element. Those of a map are by key.
func (t *tail) compareRows(i, j uint32) int {
	a, b := &t.ops[i], &t.ops[j]
	if c := compareID(a.obj, b.obj); c != 0 {
		return c
	}
	if c := int(a.class()) - int(b.class()); c != 0 {
		return c
	}
	if a.flags&inList == 0 {
		if a.place != b.place {
			return cmp.Compare(t.names[a.place.counter], t.names[b.place.counter])
		}
		return compareID(a.id, b.id)
	}
	if c := compareID(a.place, b.place); c != 0 {
		return c
	}
	if a.flags&inserts != 0 {
		return compareID(b.id, a.id)
	}
	return compareID(a.id, b.id)
}

// class is 0 for rows that insert elements, 1 for those that change them, 2 for those of maps.
func (r *record) class() uint8 {
	switch {
	case r.flags&inList == 0:
		return 2
	case r.flags&inserts == 0:
		return 1
	}
	return 0
}

func (t *tail) row(i int) *record { return &t.ops[t.rows[i]] }

// object finds the rows of the next object, if that is the one.
func (t *tail) object(id uint64, list bool) error {
	from, to := t.next, t.next
	for to < len(t.rows) && t.row(to).obj.packed() == id {
		to++
	}
	t.next, t.hint, t.current = to, 0, span{}
	t.inMap, t.inserts, t.updates = span{from, from}, span{from, from}, span{from, from}
	if from == to {
		return nil
	}
	if (t.row(from).class() < 2) != list || (t.row(to-1).class() < 2) != list {
		wrong := from
		if (t.row(from).class() < 2) == list {
			wrong = to - 1
		}
		return t.blame(t.rows[wrong], malformed("operation %d: a key and an object that don't fit", t.row(wrong).id.counter))
	}
	if !list {
		t.inMap = span{from, to}
		return nil
	}
	mid := from + sort.Search(to-from, func(i int) bool { return t.row(from+i).class() > 0 })
	t.inserts, t.updates = span{from, mid}, span{mid, to}
	t.hint = from
	return nil
}

// about finds the rows among s that are about the element.
func (t *tail) about(s span, id OpID) span {
	p := id.packed()
	if s.empty() || !t.places.has(p) {
		return span{}
	}
	from := t.hint // where elements follow each other, so do the rows
	if from < s.from || from >= s.to || t.row(from).place.packed() != p || from > s.from && t.row(from-1).place.packed() == p {
		from = s.from + sort.Search(s.to-s.from, func(i int) bool { return t.row(s.from+i).place.packed() >= p })
	}
	to := from
	for to < s.to && t.row(to).place.packed() == p {
		to++
	}
	if to > from && s == t.inserts {
		t.hint = to
	}
	return span{from, to}
}

// link adds to a row the successors that it has among the records.
func (t *tail) link(op *Op) error {
	p := op.ID.packed()
	if !t.preds.has(p) {
		return nil
	}
	from := sort.Search(len(t.links), func(i int) bool { return t.links[i].pred >= p })
	before := len(op.Succ)
	for i := from; i < len(t.links) && t.links[i].pred == p; i++ {
		s := &t.ops[t.links[i].succ]
		same := s.obj == op.Obj.short() && (s.flags&inList != 0) == op.InList
		if same && op.InList {
			same = s.place == op.Element().short()
		} else if same {
			same = t.names[s.place.counter] == op.Key
		}
		if !same {
			return t.blame(t.links[i].succ, malformed("operation %d overwrites operation %d, which is in another place", s.id.counter, op.ID.Counter))
		}
		if op.Action == ActionMark {
			return t.blame(t.links[i].succ, malformed("operation %d overwrites the mark %d", s.id.counter, op.ID.Counter))
		}
		if t.linked[i] {
			return malformed("operation %d is there twice", op.ID.Counter)
		}
		op.Succ = append(op.Succ, s.id.long())
		t.linked[i] = true
	}
	if before > 0 && len(op.Succ) > before {
		slices.SortFunc(op.Succ, OpID.Compare)
	}
	return nil
}

func (t *tail) allLinked() error {
	if i := slices.Index(t.linked, false); i >= 0 {
		l := t.links[i]
		return t.blame(l.succ, malformed("operation %d overwrites operation %d, which isn't there", t.ops[l.succ].id.counter, l.pred>>32))
	}
	return nil
}

// blame says whose record the error is about.
func (t *tail) blame(record uint32, err error) error {
	if err == nil {
		return nil
	}
	return &ChangeError{Hash: t.hashes[t.ops[record].column], Err: err}
}

// mergeBefore queues the rows that come before a row of the document.
func (r *Rows) mergeBefore(op *Op) error {
	o, t := r.order, r.tail
	if !o.begun || op.Obj != o.obj {
		if o.begun && op.Obj.Compare(o.obj) < 0 {
			return malformed("operation %d: objects out of order", op.ID.Counter)
		}
		if err := r.leaveObject(); err != nil {
			return err
		}
		if err := r.mergeObjects(op.Obj.packed()); err != nil {
			return err
		}
		if err := r.enterObject(op.Obj); err != nil {
			return err
		}
	}
	if err := o.add(op); err != nil {
		return err
	}
	id := op.ID.short()
	switch {
	case op.Insert:
		if err := r.placeElements(); err != nil {
			return err
		}
		// Of the elements that were inserted in the same place, the later ones come first.
		siblings := &o.list.way[len(o.list.way)-1].waiting
		first := span{siblings.from, siblings.from}
		for first.to < siblings.to && compareID(t.row(first.to).id, id) >= 0 {
			if t.row(first.to).id == id {
				return t.blame(t.rows[first.to], malformed("operation %d is there twice", op.ID.Counter))
			}
			first.to++
		}
		siblings.from = first.to
		if err := r.placeTree(first); err != nil {
			return err
		}
		o.list.enter(op.ID, t.about(t.inserts, op.ID))
		t.current = t.about(t.updates, op.ID)
	case op.InList:
		for !t.current.empty() && compareID(t.row(t.current.from).id, id) <= 0 {
			if err := r.queueOne(&t.current, id); err != nil {
				return err
			}
		}
	default:
		for !t.inMap.empty() {
			next := t.row(t.inMap.from)
			if key := t.names[next.place.counter]; key > op.Key || key == op.Key && compareID(next.id, id) > 0 {
				break
			}
			if err := r.queueOne(&t.inMap, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// queueOne queues the first row of s, which isn't to be the row that it comes before.
func (r *Rows) queueOne(s *span, before id32) error {
	if r.tail.row(s.from).id == before {
		return r.tail.blame(r.tail.rows[s.from], malformed("operation %d is there twice", before.counter))
	}
	s.from++
	return r.queueRow(s.from - 1)
}

// queueRow queues a row of the tail in the object at hand.
func (r *Rows) queueRow(i int) error {
	rec := r.tail.row(i)
	r.queue = append(r.queue, r.tail.rows[i])
	r.tail.placed[i] = true
	if rec.action.Makes() {
		return r.tail.blame(r.tail.rows[i], r.order.made(rec.id.packed(), rec.action))
	}
	return nil
}

func (r *Rows) queueAll(s *span) error {
	for ; !s.empty(); s.from++ {
		if err := r.queueRow(s.from); err != nil {
			return err
		}
	}
	return nil
}

// placeElements queues what changes the element at hand, then the elements that are due.
func (r *Rows) placeElements() error {
	if err := r.queueAll(&r.tail.current); err != nil {
		return err
	}
	for _, s := range r.order.list.due {
		if err := r.placeTree(s); err != nil {
			return err
		}
	}
	return nil
}

// placeTree queues elements with what changes them and with the elements that were inserted after them.
func (r *Rows) placeTree(s span) error {
	t := r.tail
	if s.empty() {
		return nil
	}
	stack := []span{s}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		i := top.from
		if top.from++; top.empty() {
			stack = stack[:len(stack)-1]
		}
		if err := r.queueRow(i); err != nil {
			return err
		}
		id := t.row(i).id.long()
		changes := t.about(t.updates, id)
		if err := r.queueAll(&changes); err != nil {
			return err
		}
		if below := t.about(t.inserts, id); !below.empty() {
			stack = append(stack, below)
		}
	}
	return nil
}

func (r *Rows) enterObject(id OpID) error {
	o, t := r.order, r.tail
	if err := o.begin(id); err != nil {
		return err
	}
	if err := t.object(id.packed(), o.kind.by.List()); err != nil {
		return err
	}
	o.list.way[0].waiting = t.about(t.inserts, OpID{})
	return nil
}

// leaveObject queues what is left of the tail's rows in the object at hand.
func (r *Rows) leaveObject() error {
	o, t := r.order, r.tail
	if !o.begun {
		return nil
	}
	if !o.kind.by.List() {
		return r.queueAll(&t.inMap)
	}
	o.list.end()
	if err := r.placeElements(); err != nil {
		return err
	}
	for _, s := range []span{t.inserts, t.updates} {
		if i := slices.Index(t.placed[s.from:s.to], false); i >= 0 {
			i += s.from
			return t.blame(t.rows[i], malformed("operation %d: its element isn't in the list %d", t.row(i).id.counter, o.obj.Counter))
		}
	}
	return nil
}

// mergeObjects queues the rows of the tail's objects before the one, of which the document has no rows.
func (r *Rows) mergeObjects(before uint64) error {
	t := r.tail
	for t.next < len(t.rows) && t.row(t.next).obj.packed() < before {
		first := t.rows[t.next]
		if err := r.enterObject(t.row(t.next).obj.long()); err != nil {
			if change := (*ChangeError)(nil); !errors.As(err, &change) {
				err = t.blame(first, err)
			}
			return err
		}
		if err := r.leaveObject(); err != nil {
			return err
		}
	}
	return nil
}

// mergeRest queues the rows that come after those of the document.
func (r *Rows) mergeRest() error {
	if err := r.leaveObject(); err != nil {
		return err
	}
	return r.mergeObjects(1<<64 - 1)
}

// idFilter tells quickly that an id isn't among some. What it says is there may not be.
type idFilter struct {
	bits  []uint64
	shift uint
}

func newIDFilter(n int) idFilter {
	log := 10
	for n > 1<<log/16 && log < 30 {
		log++
	}
	return idFilter{bits: make([]uint64, 1<<log/64), shift: 64 - uint(log)}
}

func (f *idFilter) slot(id uint64) uint64 { return id * 0x9e3779b97f4a7c15 >> f.shift }

func (f *idFilter) add(id uint64) {
	s := f.slot(id)
	f.bits[s/64] |= 1 << (s % 64)
}

func (f *idFilter) has(id uint64) bool {
	s := f.slot(id)
	return f.bits[s/64]&(1<<(s%64)) != 0
}
