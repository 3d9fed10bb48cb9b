package amstate

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/annals-db/annals/internal/amformat"
)

// model is a document in the simplest way it can be kept: every operation is applied to a tree of everything that ever was.
type model struct {
	objects map[amformat.OpID]*modelObject
	seen    map[amformat.Hash]bool
	heads   []amformat.Hash
	maxOp   uint64
}

type modelObject struct {
	action   amformat.Action
	parent   amformat.OpID
	keys     map[string]*modelPlace
	elements []*modelPlace
}

// modelPlace is a key or an element with all the operations on it.
type modelPlace struct {
	id   amformat.OpID // of an element
	mark bool
	ops  []*modelOp
}

type modelOp struct {
	amformat.Op
	over bool  // whether something overwrote it
	sum  int64 // of a counter
}

func newModel() *model {
	return &model{objects: map[amformat.OpID]*modelObject{{}: {keys: map[string]*modelPlace{}}}, seen: map[amformat.Hash]bool{}}
}

// apply applies a change whose dependencies were applied. Its operations have ids of the table of all actors.
func (m *model) apply(c *madeChange) {
	if m.seen[c.Hash] {
		return
	}
	m.seen[c.Hash] = true
	m.heads = append(slices.DeleteFunc(m.heads, func(h amformat.Hash) bool { return slices.Contains(c.Deps, h) }), c.Hash)
	for i := range c.ops {
		m.do(&c.ops[i])
	}
}

func (m *model) do(op *amformat.Op) {
	m.maxOp = max(m.maxOp, op.ID.Counter)
	o := m.objects[op.Obj]
	var p *modelPlace
	switch {
	case !op.InList:
		if p = o.keys[op.Key]; p == nil {
			p = &modelPlace{}
			o.keys[op.Key] = p
		}
	case op.Insert:
		p = &modelPlace{id: op.ID, mark: op.Action == amformat.ActionMark}
		at := o.index(op.Elem) + 1
		for at < len(o.elements) && o.elements[at].id.Compare(op.ID) > 0 {
			at++
		}
		o.elements = slices.Insert(o.elements, at, p)
	default:
		p = o.elements[o.index(op.Elem)]
	}
	for _, q := range p.ops {
		if !slices.Contains(op.Pred, q.ID) {
			continue
		}
		if op.Action == amformat.ActionIncrement && q.Action == amformat.ActionSet && q.Value.Type == amformat.ValueCounter {
			q.sum += op.Value.Int()
		} else {
			q.over = true
		}
	}
	if op.Action == amformat.ActionDelete || op.Action == amformat.ActionIncrement {
		return
	}
	p.ops = append(p.ops, &modelOp{Op: *op})
	slices.SortFunc(p.ops, func(a, b *modelOp) int { return a.ID.Compare(b.ID) })
	if op.Action.Makes() {
		m.objects[op.ID] = &modelObject{action: op.Action, parent: op.Obj, keys: map[string]*modelPlace{}}
	}
}

func (o *modelObject) index(e amformat.OpID) int {
	return slices.IndexFunc(o.elements, func(p *modelPlace) bool { return p.id == e })
}

// there are the values of a place, the winner first.
func (p *modelPlace) there() (ops []*modelOp) {
	for _, op := range slices.Backward(p.ops) {
		if !op.over && op.Action != amformat.ActionMark {
			ops = append(ops, op)
		}
	}
	return ops
}

func (o *modelObject) visible() []*modelPlace {
	var ps []*modelPlace
	for _, p := range o.elements {
		if len(p.there()) > 0 {
			ps = append(ps, p)
		}
	}
	return ps
}

// value is what the state's Any is.
func (m *model) value(op *modelOp) any {
	switch op.Action {
	case amformat.ActionMakeMap, amformat.ActionMakeTable, amformat.ActionMakeList, amformat.ActionMakeText:
		return m.object(op.ID)
	}
	v := value{}
	v.scalar(op.Value)
	v.num += op.sum
	return v.any()
}

func (m *model) object(id amformat.OpID) any {
	o := m.objects[id]
	switch o.action {
	case amformat.ActionMakeList:
		l := []any{}
		for _, p := range o.visible() {
			l = append(l, m.value(p.there()[0]))
		}
		return l
	case amformat.ActionMakeText:
		var b strings.Builder
		for _, p := range o.visible() {
			if op := p.there()[0]; op.Action == amformat.ActionSet && op.Value.Type == amformat.ValueString {
				b.Write(op.Value.Raw)
			} else {
				b.WriteString(object)
			}
		}
		return b.String()
	}
	out := map[string]any{}
	for k, p := range o.keys {
		if ops := p.there(); len(ops) > 0 {
			out[k] = m.value(ops[0])
		}
	}
	return out
}

// conflicts counts the places that are shown and have several values.
func (m *model) conflicts(id amformat.OpID) (n int) {
	o := m.objects[id]
	places := o.visible()
	for _, p := range o.keys {
		places = append(places, p)
	}
	for _, p := range places {
		ops := p.there()
		nothing := o.action == amformat.ActionMakeText && len(ops) > 0 && ops[0].Value.Type == amformat.ValueString && len(ops[0].Value.Raw) == 0
		if len(ops) > 1 && !nothing { // an empty text is at no index
			n++
		}
		shown := len(ops) > 0 && ops[0].Action.Makes()
		if shown && (o.action != amformat.ActionMakeText || ops[0].Action == amformat.ActionMakeMap || ops[0].Action == amformat.ActionMakeTable) {
			n += m.conflicts(ops[0].ID)
		}
	}
	return n
}

// madeChange is a change with its operations in the table of all actors.
type madeChange struct {
	*amformat.Change
	ops []amformat.Op
}

// author makes random changes.
type author struct {
	*model
	self   uint32
	actors []amformat.ActorID
	tables bool
	seq    uint64
	ops    []amformat.Op // of the change that is being made
}

func (a *author) op(op amformat.Op) amformat.OpID {
	op.ID = amformat.OpID{Counter: a.maxOp + 1, Actor: a.self}
	a.do(&op)
	a.ops = append(a.ops, op)
	return op.ID
}

// change makes a change of a few operations.
func (a *author) change(r *rand.Rand, edit func()) (*madeChange, error) {
	d := amformat.Draft{Actor: a.actors[a.self], Actors: a.actors, Seq: a.seq + 1, StartOp: a.maxOp + 1, Deps: a.heads, Time: int64(r.IntN(1e9))}
	a.ops = nil
	edit()
	d.Ops = a.ops
	c, err := d.Write(amformat.Limits{})
	if err != nil {
		return nil, err
	}
	a.seq++
	a.seen[c.Hash] = true
	a.heads = []amformat.Hash{c.Hash}
	return &madeChange{Change: c, ops: a.ops}, nil
}

func ids(ops []*modelOp) (pred []amformat.OpID) {
	for _, op := range ops {
		pred = append(pred, op.ID)
	}
	return pred
}

// shown are the objects that are reached from the root.
func (m *model) shown(id amformat.OpID) []amformat.OpID {
	out := []amformat.OpID{id}
	o := m.objects[id]
	places := o.visible()
	for _, k := range slices.Sorted(maps.Keys(o.keys)) {
		places = append(places, o.keys[k])
	}
	for _, p := range places {
		if ops := p.there(); len(ops) > 0 && ops[0].Action.Makes() {
			out = append(out, m.shown(ops[0].ID)...)
		}
	}
	return out
}

// edit does something to a random object, now and then to one that isn't shown any more.
func (a *author) edit(r *rand.Rand) {
	var objects []amformat.OpID
	if r.IntN(5) == 0 {
		for id := range a.objects {
			objects = append(objects, id)
		}
		slices.SortFunc(objects, amformat.OpID.Compare)
	} else if objects = a.shown(amformat.OpID{}); r.IntN(2) == 0 {
		// What is edited often has conflicts and marks.
		longest := slices.MaxFunc(objects, func(x, y amformat.OpID) int { return len(a.objects[x].elements) - len(a.objects[y].elements) })
		objects = []amformat.OpID{objects[0], longest}
	}
	obj := objects[r.IntN(len(objects))]
	o := a.objects[obj]
	op := amformat.Op{Obj: obj}
	if !o.action.List() {
		if op.Key = []string{"a", "b", "c", "é", "", "\x00"}[r.IntN(6)]; r.IntN(30) == 0 {
			op.Key = "rich"
		}
		var there []*modelOp
		if p := o.keys[op.Key]; p != nil {
			there = p.there()
		}
		a.write(r, op, there, o)
		return
	}
	op.InList = true
	visible := o.visible()
	if len(visible) == 0 || r.IntN(5) < 3 {
		op.Insert = true
		if at := r.IntN(len(o.elements) + 1); at > 0 {
			op.Elem = o.elements[at-1].id
		}
		if o.action == amformat.ActionMakeText && len(o.elements) > 1 && r.IntN(4) == 0 {
			a.mark(r, op, o)
			return
		}
		a.put(r, op, o)
		return
	}
	p := visible[r.IntN(len(visible))]
	op.Elem = p.id
	a.write(r, op, p.there(), o)
}

// mark begins a mark where op would insert an element, and ends it further on.
func (a *author) mark(r *rand.Rand, op amformat.Op, o *modelObject) {
	from := o.index(op.Elem)
	ends := slices.Clone(o.elements[from+1:])
	op.Action, op.MarkBegin, op.Expand = amformat.ActionMark, true, r.IntN(2) == 0
	op.MarkName = []string{"bold", "link", "x"}[r.IntN(3)]
	op.Value = scalar(r)
	begin := a.op(op)
	end := amformat.Op{Obj: op.Obj, InList: true, Insert: true, Elem: begin, Action: amformat.ActionMark, Expand: r.IntN(2) == 0}
	if len(ends) > 0 {
		end.Elem = ends[r.IntN(len(ends))].id
	}
	a.op(end)
}

// write overwrites, deletes or increments what is there.
func (a *author) write(r *rand.Rand, op amformat.Op, there []*modelOp, o *modelObject) {
	if len(there) > 1 && r.IntN(3) == 0 {
		there = there[:1+r.IntN(len(there))] // leaves some of the conflict
	}
	op.Pred = ids(there)
	counters := slices.ContainsFunc(there, func(op *modelOp) bool { return op.Value.Type == amformat.ValueCounter })
	switch n := r.IntN(10); {
	case len(there) > 0 && n < 3:
		op.Action = amformat.ActionDelete
		a.op(op)
	case counters && n < 8:
		op.Action, op.Value = amformat.ActionIncrement, number(amformat.ValueInt, int64(r.IntN(20)-10))
		a.op(op)
	default:
		a.put(r, op, o)
	}
}

func (a *author) put(r *rand.Rand, op amformat.Op, o *modelObject) {
	makes := []amformat.Action{amformat.ActionMakeMap, amformat.ActionMakeList, amformat.ActionMakeText, amformat.ActionMakeText, amformat.ActionMakeTable}
	if !a.tables {
		makes = makes[:4]
	}
	switch n := r.IntN(10); {
	case o.action == amformat.ActionMakeText && n < 8:
		op.Action, op.Value = amformat.ActionSet, amformat.Value{Type: amformat.ValueString, Raw: []byte([]string{"a", "b", "é", "😀", "ab", ""}[r.IntN(6)])}
	case n < 4:
		op.Action = makes[r.IntN(len(makes))]
	default:
		op.Action, op.Value = amformat.ActionSet, scalar(r)
	}
	a.op(op)
}

func number(kind amformat.ValueType, i int64) amformat.Value {
	var b []byte
	for i < -0x40 || i >= 0x40 {
		b = append(b, byte(i)|0x80)
		i >>= 7
	}
	return amformat.Value{Type: kind, Raw: append(b, byte(i)&0x7f)}
}

func scalar(r *rand.Rand) amformat.Value {
	switch r.IntN(9) {
	case 0:
		return amformat.Value{Type: amformat.ValueNull}
	case 1:
		return amformat.Value{Type: amformat.ValueTrue}
	case 2:
		return number(amformat.ValueInt, r.Int64()>>r.IntN(64))
	case 3:
		return amformat.Value{Type: amformat.ValueUint, Raw: binary.AppendUvarint(nil, r.Uint64()>>r.IntN(64))}
	case 4:
		f := []float64{1.5, -2.25e-9, 1e300, 0}[r.IntN(4)]
		return amformat.Value{Type: amformat.ValueFloat, Raw: binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))}
	case 5:
		return amformat.Value{Type: amformat.ValueString, Raw: []byte("text")}
	case 6:
		return amformat.Value{Type: amformat.ValueBytes, Raw: []byte{1, 2}}
	case 7:
		return number(amformat.ValueTimestamp, int64(r.IntN(1e12)))
	}
	return number(amformat.ValueCounter, int64(r.IntN(100)))
}

// randomChanges are those of several authors who work apart and together.
func randomChanges(r *rand.Rand) ([]*madeChange, error) { return randomWork(r, true) }

func randomWork(r *rand.Rand, tables bool) ([]*madeChange, error) {
	authors, steps := 1+r.IntN(4), 4+r.IntN(60)
	var actors []amformat.ActorID
	for i := range authors {
		actors = append(actors, amformat.ActorID([]byte{byte(i)}))
	}
	all := make([]*author, authors)
	for i := range all {
		all[i] = &author{model: newModel(), self: uint32(i), actors: actors, tables: tables}
	}
	var changes []*madeChange
	if r.IntN(2) == 0 { // all begin with a text
		c, err := all[0].change(r, func() {
			text := all[0].op(amformat.Op{Key: "rich", Action: amformat.ActionMakeText})
			var after amformat.OpID
			for _, c := range "begin" {
				after = all[0].op(insertRune(text, after, c))
			}
		})
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
		for _, a := range all {
			a.apply(c)
		}
	}
	for range steps {
		a := all[r.IntN(authors)]
		if r.IntN(4) == 0 {
			a.learn(all[r.IntN(authors)], changes)
			continue
		}
		c, err := a.change(r, func() {
			for range 1 + r.IntN(5) {
				a.edit(r)
			}
		})
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func (a *author) learn(from *author, changes []*madeChange) {
	for _, c := range changes {
		if from.seen[c.Hash] {
			a.apply(c)
		}
	}
}

func plainChanges(cs []*madeChange) []*amformat.Change {
	out := make([]*amformat.Change, len(cs))
	for i, c := range cs {
		out[i] = c.Change
	}
	return out
}

// marked are the characters of a text, each with its marks.
func (m *model) marked(id amformat.OpID) marked {
	var out marked
	var begun []*modelOp
	for _, p := range m.objects[id].elements {
		if p.mark {
			for _, op := range p.ops {
				switch {
				case op.Action != amformat.ActionMark:
				case !op.MarkBegin:
					begun = slices.DeleteFunc(begun, func(b *modelOp) bool { return b.ID.Actor == op.ID.Actor && b.ID.Counter == op.ID.Counter-1 })
				case !op.over:
					begun = append(begun, op)
				}
			}
		}
		there := p.there()
		if len(there) == 0 {
			continue
		}
		marks := map[string]string{}
		latest := map[string]amformat.OpID{}
		for _, b := range begun {
			if l, ok := latest[b.MarkName]; ok && b.ID.Compare(l) < 0 {
				continue
			}
			latest[b.MarkName] = b.ID
			v := value{}
			v.scalar(b.Value)
			if marks[b.MarkName] = string(Value{v: v}.JSON()); v.kind == Null {
				delete(marks, b.MarkName)
			}
		}
		n := 1
		if op := there[0]; op.Action == amformat.ActionSet && op.Value.Type == amformat.ValueString {
			n = utf8.RuneCount(op.Value.Raw)
		}
		for range n {
			out = append(out, marks)
		}
	}
	return out
}
