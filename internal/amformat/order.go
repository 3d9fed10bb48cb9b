package amformat

// order judges that rows come in the order of a document. That order isn't proven by hashes, which cover the operations and not
// their places, and everything that reads rows relies on it.
type order struct {
	limits  Limits
	objects map[uint64]object // what was made so far
	obj     OpID
	kind    object
	begun   bool
	key     string
	last    OpID // the row before
	elem    OpID // the element of the row before
	list    listOrder
}

type object struct {
	by    Action
	depth int64
}

func newOrder(limits Limits) *order {
	return &order{limits: limits, objects: map[uint64]object{}}
}

// made notes that an operation in the object at hand makes another.
func (o *order) made(id uint64, by Action) error {
	depth := o.kind.depth + 1
	if err := within("depth", depth, o.limits.Depth); err != nil {
		return err
	}
	o.objects[id] = object{by: by, depth: depth}
	return nil
}

// object tells what an object is.
func (o *order) object(id OpID) (object, error) {
	if id.IsZero() {
		return object{by: ActionMakeMap}, nil
	}
	kind, ok := o.objects[id.packed()]
	if !ok {
		return kind, malformed("operations on the object %d, which nothing makes", id.Counter)
	}
	return kind, nil
}

// begin goes to the next object.
func (o *order) begin(id OpID) (err error) {
	o.kind, err = o.object(id)
	o.begun, o.obj, o.key, o.last, o.elem = true, id, "", OpID{}, OpID{}
	o.list.reset()
	return err
}

// add judges the next row.
func (o *order) add(op *Op) error {
	if !o.begun || op.Obj != o.obj {
		if o.begun && op.Obj.Compare(o.obj) < 0 {
			return malformed("operation %d: objects out of order", op.ID.Counter)
		}
		if err := o.begin(op.Obj); err != nil {
			return err
		}
	}
	if op.InList != o.kind.by.List() {
		return malformed("operation %d: a key and an object that don't fit", op.ID.Counter)
	}
	switch {
	case op.Insert:
		// The caller lets the list enter the element, with what waits there.
		if err := o.list.insert(op.ID, op.Elem); err != nil {
			return err
		}
		o.elem = op.ID
	case op.InList:
		if op.Elem != o.elem || op.ID.Compare(o.last) <= 0 {
			return malformed("operation %d: changes of an element out of order", op.ID.Counter)
		}
	default:
		if op.Key < o.key || op.Key == o.key && op.ID.Compare(o.last) <= 0 {
			return malformed("operation %d: keys out of order", op.ID.Counter)
		}
		o.key = op.Key
	}
	o.last = op.ID
	if op.Action.Makes() {
		return o.made(op.ID.packed(), op.Action)
	}
	return nil
}

// listOrder judges that elements come in the order of their list: a tree, in which an element is below the one it was inserted after, read
// from the top with the latest of siblings first.
//
// What is kept is the way from the top to the last element, as runs of elements of one actor whose counters follow each other and each of
// which was inserted after the one before, as typing does: otherwise the way through a text would be as long as the text.
//
// Elements that are to be merged in wait at the place they were inserted after (see merge.go). What waits behind the way is due when the
// way is left.
type listOrder struct {
	way []branch
	due []span
}

type branch struct {
	actor    uint32
	from, to uint64 // counters of the run's elements
	last     OpID   // the child of the run's last element that came last
	waiting  span   // what is to be merged in after the run's last element
}

// span is a part of a sorted list.
type span struct{ from, to int }

func (s span) empty() bool { return s.from == s.to }

func (l *listOrder) reset() { l.way, l.due = append(l.way[:0], branch{}), l.due[:0] }

// insert goes to the next element. Afterwards, due is what has to be merged in before it, except of the place that it was inserted after.
func (l *listOrder) insert(id, after OpID) error {
	l.due = l.due[:0]
	i := len(l.way) - 1
	for ; i >= 0; i-- {
		b := &l.way[i]
		if after.Counter >= b.from && after.Counter <= b.to && after.Actor == b.actor {
			break
		}
		l.leave(b)
	}
	if i < 0 {
		return malformed("operation %d: an element that isn't below the one it was inserted after", id.Counter)
	}
	l.way = l.way[:i+1]
	b := &l.way[i]
	if after.Counter < b.to {
		l.leave(b)
		b.last = OpID{Counter: after.Counter + 1, Actor: b.actor}
		b.to = after.Counter
	}
	if !b.last.IsZero() && id.Compare(b.last) >= 0 {
		return malformed("operation %d: elements that were inserted in one place are out of order", id.Counter)
	}
	b.last = id
	return nil
}

// enter puts the element that insert judged on the way.
func (l *listOrder) enter(id OpID, waiting span) {
	b := &l.way[len(l.way)-1]
	if len(l.way) > 1 && id.Actor == b.actor && id.Counter == b.to+1 && b.waiting.empty() {
		b.to, b.last, b.waiting = id.Counter, OpID{}, waiting
		return
	}
	l.way = append(l.way, branch{actor: id.Actor, from: id.Counter, to: id.Counter, waiting: waiting})
}

func (l *listOrder) leave(b *branch) {
	if !b.waiting.empty() {
		l.due = append(l.due, b.waiting)
		b.waiting = span{}
	}
}

// end leaves the list.
func (l *listOrder) end() {
	l.due = l.due[:0]
	for i := len(l.way) - 1; i >= 0; i-- {
		l.leave(&l.way[i])
	}
	l.way = l.way[:0]
}

// markOrder judges the marks of a list: the operation after the one that begins a mark, by the same actor, ends it further on, and nothing
// overwrites either. Others rely on that.
type markOrder struct {
	obj   OpID
	begun map[uint64]bool
}

func (m *markOrder) add(op *Op) error {
	if op.Action != ActionMark {
		return nil
	}
	if op.Obj != m.obj || m.begun == nil {
		m.obj, m.begun = op.Obj, map[uint64]bool{}
	}
	if len(op.Succ) > 0 {
		return malformed("operation %d overwrites the mark %d", op.Succ[0].Counter, op.ID.Counter)
	}
	if op.MarkBegin {
		m.begun[op.ID.packed()] = true
		return nil
	}
	begin := OpID{Counter: op.ID.Counter - 1, Actor: op.ID.Actor}.packed()
	if !m.begun[begin] {
		return malformed("operation %d ends a mark that isn't begun before it", op.ID.Counter)
	}
	delete(m.begun, begin)
	return nil
}
