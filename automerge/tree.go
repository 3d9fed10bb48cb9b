package automerge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/annals-db/annals/internal/amformat"
)

// A tree holds the values of a document, or of the wanted part of it, with the operations that made them: enough to follow later changes without the
// rest of the document. Operations come after those that they name, so a value that was overwritten never comes back, and what was
// written into an object that is gone never matters: both are forgotten. Elements of lists and texts stay as places when their values
// went, since later ones may be inserted behind them.
type tree struct {
	want    *wanted
	actors  []amformat.ActorID
	places  map[amformat.ActorID]uint32
	objects map[amformat.OpID]*object // by the operation that made them; the zero id is the root. Indexes are of actors
	touched bool                      // whether an operation changed something since it was asked
}

type object struct {
	action   amformat.Action
	want     *wanted
	keys     map[string][]value
	elements []element
	last     int // where an element was found last: the next one is mostly near
}

// element is a place in a list or text.
type element struct {
	id     amformat.OpID
	values []value
}

// value is an operation whose value was not overwritten. Where there are several, concurrent ones, the last wins: they are in the order of ids.
type value struct {
	id     amformat.OpID
	action amformat.Action
	typ    amformat.ValueType
	raw    []byte
	plus   int64 // what increments have added to a counter
}

func newTree(want *wanted) *tree {
	t := &tree{want: want, places: map[amformat.ActorID]uint32{}, objects: map[amformat.OpID]*object{}}
	t.objects[amformat.OpID{}] = newObject(amformat.ActionMakeMap, want)
	return t
}

func newObject(action amformat.Action, want *wanted) *object {
	o := &object{action: action, want: want}
	if !action.List() {
		o.keys = map[string][]value{}
	}
	return o
}

// place returns the index of an actor, which may be new.
func (t *tree) place(a amformat.ActorID) uint32 {
	i, ok := t.places[a]
	if !ok {
		i = uint32(len(t.actors))
		t.actors = append(t.actors, a)
		t.places[a] = i
	}
	return i
}

// compare orders operations: the later of two concurrent ones wins.
func (t *tree) compare(a, b amformat.OpID) int {
	if c := cmp.Compare(a.Counter, b.Counter); c != 0 || a.Actor == b.Actor {
		return c
	}
	return strings.Compare(string(t.actors[a.Actor]), string(t.actors[b.Actor]))
}

// applyChange follows a change, all of whose dependencies were followed.
func (t *tree) applyChange(c *amformat.Change) {
	ids := make([]uint32, len(c.Actors))
	known := make([]bool, len(c.Actors))
	own := func(id amformat.OpID) amformat.OpID {
		if id.IsZero() {
			return id
		}
		if !known[id.Actor] {
			known[id.Actor], ids[id.Actor] = true, t.place(c.Actors[id.Actor])
		}
		return amformat.OpID{Counter: id.Counter, Actor: ids[id.Actor]}
	}
	var pred []amformat.OpID
	for op := range c.Ops() {
		o := t.objects[own(op.Obj)]
		if o == nil {
			continue
		}
		pred = pred[:0]
		for _, p := range op.Pred {
			pred = append(pred, own(p))
		}
		if op.InList {
			t.applyToList(o, op, own(op.ID), own(op.Elem), pred)
		} else if want, ok := o.want.below(op.Key); ok && o.keys != nil {
			o.keys[op.Key] = t.follow(o.keys[op.Key], op, own(op.ID), pred, want)
			if len(o.keys[op.Key]) == 0 {
				delete(o.keys, op.Key)
			}
		}
	}
}

func (t *tree) applyToList(o *object, op *amformat.Op, id, elem amformat.OpID, pred []amformat.OpID) {
	if !o.action.List() || o.want != nil {
		return
	}
	at := -1
	if !elem.IsZero() {
		if at = o.find(elem); at < 0 {
			return
		}
	}
	if !op.Insert {
		o.elements[at].values = t.follow(o.elements[at].values, op, id, pred, nil)
		return
	}
	// Behind its element, and behind what later operations have inserted there, with all that follows those.
	at++
	for at < len(o.elements) && t.compare(o.elements[at].id, id) > 0 {
		at++
	}
	o.elements = slices.Insert(o.elements, at, element{id: id, values: t.follow(nil, op, id, nil, nil)})
	o.last = at
}

// find returns where an element is, -1 if there is none.
func (o *object) find(id amformat.OpID) int {
	for _, i := range []int{o.last, o.last + 1, o.last - 1} {
		if i >= 0 && i < len(o.elements) && o.elements[i].id == id {
			o.last = i
			return i
		}
	}
	i := slices.IndexFunc(o.elements, func(e element) bool { return e.id == id })
	o.last = max(i, 0)
	return i
}

// follow does what an operation does to the values of a key or an element.
func (t *tree) follow(values []value, op *amformat.Op, id amformat.OpID, pred []amformat.OpID, want *wanted) []value {
	t.touched = true
	for _, p := range pred {
		i := slices.IndexFunc(values, func(v value) bool { return v.id == p })
		if i < 0 {
			continue
		}
		if op.Action == amformat.ActionIncrement {
			values[i].plus += op.Value.Int()
			continue
		}
		t.forget(values[i])
		values = slices.Delete(values, i, i+1)
	}
	switch op.Action {
	case amformat.ActionDelete, amformat.ActionIncrement, amformat.ActionMark:
		return values
	}
	if op.Action.Makes() {
		t.objects[id] = newObject(op.Action, want)
	}
	at, _ := slices.BinarySearchFunc(values, id, func(v value, id amformat.OpID) int { return t.compare(v.id, id) })
	return slices.Insert(values, at, value{id: id, action: op.Action, typ: op.Value.Type, raw: op.Value.Raw})
}

// forget forgets the object that a value is, with all in it.
func (t *tree) forget(v value) {
	o := t.objects[v.id]
	if !v.action.Makes() || o == nil {
		return
	}
	delete(t.objects, v.id)
	for _, values := range o.keys {
		for _, v := range values {
			t.forget(v)
		}
	}
	for _, e := range o.elements {
		for _, v := range e.values {
			t.forget(v)
		}
	}
}

// readRows takes the values out of all rows of a document, which come in the document's order: objects after those that hold them, elements in
// their places.
func (t *tree) readRows(rows *amformat.Rows) error {
	var g group
	g.tree = t
	for _, a := range rows.Actors() {
		t.place(a) // so that the indexes of rows are ours
	}
	for rows.Next() {
		g.add(rows.Op())
	}
	g.end()
	return rows.Err()
}

// group are the rows of one key or element.
type group struct {
	tree   *tree
	object *object
	obj    amformat.OpID
	key    string
	elem   amformat.OpID
	inList bool
	begun  bool
	want   *wanted
	values []value
	succ   [][]amformat.OpID
	adds   []amformat.OpID
	added  []int64
}

func (g *group) add(op *amformat.Op) {
	if !g.begun || op.Obj != g.obj || op.InList != g.inList || op.InList && op.Element() != g.elem || !op.InList && op.Key != g.key {
		g.end()
		if op.Obj != g.obj || !g.begun {
			g.object = g.tree.objects[op.Obj]
		}
		g.begun, g.obj, g.key, g.elem, g.inList = true, op.Obj, op.Key, op.Element(), op.InList
		g.want = nil
		if o := g.object; o != nil {
			ok := o.want == nil // of a list that is to be a map nothing is wanted
			if !o.action.List() {
				g.want, ok = o.want.below(op.Key)
			}
			if !ok {
				g.object, g.begun = nil, false // but maybe the next one
			}
		}
	}
	if g.object == nil {
		return
	}
	switch op.Action {
	case amformat.ActionIncrement:
		g.adds, g.added = append(g.adds, op.ID), append(g.added, op.Value.Int())
	case amformat.ActionMark:
	default:
		g.values = append(g.values, value{id: op.ID, action: op.Action, typ: op.Value.Type, raw: op.Value.Raw})
		g.succ = append(g.succ, slices.Clone(op.Succ))
	}
}

func (g *group) end() {
	o := g.object
	if o == nil || !g.begun {
		g.values, g.succ, g.adds, g.added = nil, nil, nil, nil
		return
	}
	var kept []value
	for i, v := range g.values {
		overwritten := false
		for _, s := range g.succ[i] {
			if j := slices.Index(g.adds, s); j >= 0 {
				v.plus += g.added[j]
			} else {
				overwritten = true
			}
		}
		if overwritten {
			continue
		}
		kept = append(kept, v)
		if v.action.Makes() {
			g.tree.objects[v.id] = newObject(v.action, g.want)
		}
	}
	switch {
	case o.keys != nil:
		if len(kept) > 0 {
			o.keys[g.key] = kept
		}
	case o.want == nil:
		o.elements = append(o.elements, element{id: g.elem, values: kept})
	}
	g.values, g.succ, g.adds, g.added = g.values[:0], g.succ[:0], g.adds[:0], g.added[:0]
}
