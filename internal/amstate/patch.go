package amstate

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"
)

// Action is what a patch does.
type Action string

// The actions of patches.
const (
	Put       Action = "put"       // gives an entry or an element another value; or makes an entry, if there is no old value
	Delete    Action = "delete"    // takes an entry or an element out, or a block out of a text
	Insert    Action = "insert"    // puts an element in, or a block into a text
	Splice    Action = "splice"    // replaces Old by New in a text, from Index on; either may be empty
	SetMark   Action = "mark"      // gives the characters from Index up to End another value of a mark; none if there is no new value
	Increment Action = "increment" // adds By to a counter
)

// Patch is a step from one state to another. Patches are to be applied in order: each path and index is of what the patches before it have
// made. What is within an object that one patch deletes or puts is not told again.
//
// Inserted text has no marks until the patches that follow give it its own. Paths that lead through a text lead into one of its blocks, of which
// JSON shows only U+FFFC.
type Patch struct {
	Action Action
	Path   Path   // of the entry or the element; of Splice and SetMark, of the text
	Old    *Value // nil if there was nothing
	New    *Value // nil if there is nothing
	Index  int    // of Splice and SetMark: the first character
	End    int    // of SetMark: the character after the last
	Name   string // of SetMark
	By     int64  // of Increment
}

// MarshalJSON writes what the patch has: action, path, index, end, name, by, old, new.
func (p Patch) MarshalJSON() ([]byte, error) {
	e := encoder{}
	e.buf = append(e.buf, `{"action":`...)
	e.string(string(p.Action))
	e.buf = append(e.buf, `,"path":[`...)
	for i, step := range p.Path {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.step(step)
	}
	e.buf = append(e.buf, ']')
	number := func(name string, i int64) {
		e.buf = append(e.buf, ',', '"')
		e.buf = append(e.buf, name...)
		e.buf = append(e.buf, '"', ':')
		e.value(&value{kind: Int, num: i})
	}
	switch p.Action {
	case Splice:
		number("index", int64(p.Index))
	case SetMark:
		number("index", int64(p.Index))
		number("end", int64(p.End))
		e.buf = append(e.buf, `,"name":`...)
		e.string(p.Name)
	case Increment:
		number("by", p.By)
	}
	if p.Old != nil {
		e.buf = append(e.buf, `,"old":`...)
		e.value(&p.Old.v)
	}
	if p.New != nil {
		e.buf = append(e.buf, `,"new":`...)
		e.value(&p.New.v)
	}
	return append(e.buf, '}'), nil
}

func (e *encoder) step(step any) {
	switch s := step.(type) {
	case string:
		e.string(s)
	case int:
		e.value(&value{kind: Int, num: int64(s)})
	}
}

// Diff sweeps the rows once and gives the patches that lead from the state of one moment to that of another, which may be an earlier one. Values that lost
// are not looked at. Objects may be nested as deeply as [Options.Depth] has it by default.
func Diff(ctx context.Context, rows Rows, from, to Clock) ([]Patch, error) {
	s := newSweep(ctx, rows, 0)
	s.groups[past].clock = from.table(s.actors)
	s.groups[present].clock = to.table(s.actors)
	s.differ = &differ{sweep: s}
	if err := s.run(&node{kind: Map, views: common}); err != nil {
		return nil, err
	}
	return s.differ.patches, nil
}

// differ makes the patches of the objects that two moments have in common.
type differ struct {
	sweep   *sweep
	patches []Patch

	node  *node
	path  Path
	index int // in lists and texts: where in the new one we are

	// Of texts:
	spliceAt      int
	removed       []byte
	inserted      []byte
	splicing      bool
	marks         [2]markState
	cost          int64
	fresh         bool // whether the character before was inserted
	marked        bool // whether there are marks to compare from here on
	compared      [2][]*mark
	runs          []markRun // differences that are open, by name
	markPatches   []Patch
	anyCharacters bool
}

// markRun is a difference of marks that began at a character and has not ended yet.
type markRun struct {
	name     string
	from     int
	old, new *mark
}

func (d *differ) enter(n *node) {
	d.node, d.index = n, 0
	d.path = n.path()
	if n.kind == Text {
		d.removed, d.inserted, d.splicing = d.removed[:0], d.inserted[:0], false
		d.marked, d.fresh, d.anyCharacters = false, false, false
		d.marks[past], d.marks[present] = markState{}, markState{}
		d.compared = [2][]*mark{}
		d.runs, d.markPatches = d.runs[:0], nil
	}
}

// path is the way to an object that two moments have in common, in the new one.
func (n *node) path() Path {
	p := make(Path, n.depth)
	for at := n; at.parent != nil; at = at.parent {
		p[at.depth-1] = at.step
	}
	return p
}

func (d *differ) leave() error {
	if d.node.kind != Text {
		return nil
	}
	d.endSplice()
	if d.marked {
		d.endRuns(nil)
	}
	slices.SortStableFunc(d.markPatches, func(a, b Patch) int { return a.Index - b.Index })
	d.patches = append(d.patches, d.markPatches...)
	return nil
}

func (d *differ) add(action Action, step any, old, new *value) {
	d.patches = append(d.patches, Patch{Action: action, Path: append(slices.Clip(d.path), step), Old: d.value(old), New: d.value(new)})
}

func (d *differ) value(v *value) *Value {
	if v == nil {
		return nil
	}
	return &Value{v: *v, actors: d.sweep.actors}
}

// place compares what a key or an element had and has; nil is nothing.
func (d *differ) place(old, new *value) error {
	if old == nil && new == nil {
		return nil
	}
	var step any = d.index
	if d.node.kind == Map {
		step = d.sweep.key
	}
	if old != nil && new != nil && old.id == new.id {
		if err := d.same(old, new, step); err != nil {
			return err
		}
		return nil
	}
	if old != nil {
		if err := d.keep(old, 1<<past, nil); err != nil {
			return err
		}
	}
	if new != nil {
		if err := d.keep(new, 1<<present, nil); err != nil {
			return err
		}
	}
	if d.node.kind == Text {
		return d.placeText(old, new)
	}
	switch {
	case old == nil && d.node.kind == Map:
		d.add(Put, step, nil, new)
	case old == nil:
		d.add(Insert, step, nil, new)
	case new == nil:
		d.add(Delete, step, old, nil)
	case !old.same(new):
		d.add(Put, step, old, new)
	}
	if new != nil {
		d.index++
	}
	return nil
}

// same is for a value that is there at both moments.
func (d *differ) same(old, new *value, step any) error {
	if d.node.kind == Text {
		if new.characters() == 0 {
			return nil
		}
		if err := d.character(false); err != nil {
			return err
		}
		d.endSplice()
	}
	if err := d.keep(new, common, step); err != nil {
		return err
	}
	if old.num != new.num && d.node.kind != Text {
		d.add(Increment, step, old, new)
		d.patches[len(d.patches)-1].By = new.num - old.num
	}
	if d.node.kind == Text {
		d.index += new.characters()
	} else {
		d.index++
	}
	return nil
}

// characters is how many characters an element of a text is.
func (v *value) characters() int {
	switch {
	case v.kind != String || len(v.raw) == 1:
		return 1
	default:
		return utf8.RuneCount(v.raw)
	}
}

func (d *differ) keep(v *value, views view, step any) error {
	if v.kind < Map || d.node.kind == Text && v.kind != Map {
		return nil
	}
	s := d.sweep
	if err := s.keep(v); err != nil {
		return err
	}
	v.node.views = views
	if views == common {
		v.node.parent, v.node.step = d.node, step
	}
	return nil
}

func (d *differ) placeText(old, new *value) error {
	switch {
	case old == nil || old.kind == String && len(old.raw) == 0:
	case old.kind == Map:
		d.endSplice()
		d.add(Delete, d.index, old, nil)
	default:
		d.splice()
		d.removed = old.appendText(d.removed)
	}
	if new == nil || new.kind == String && len(new.raw) == 0 {
		return nil
	}
	if err := d.character(true); err != nil {
		return err
	}
	if new.kind == Map {
		d.endSplice()
		d.add(Insert, d.index, nil, new)
		d.index++
		return nil
	}
	d.splice()
	d.inserted = new.appendText(d.inserted)
	d.index += new.characters()
	return nil
}

func (v *value) appendText(b []byte) []byte {
	if v.kind == String {
		return append(b, v.raw...)
	}
	return append(b, object...)
}

func (d *differ) splice() {
	if !d.splicing {
		d.splicing, d.spliceAt = true, d.index
	}
}

func (d *differ) endSplice() {
	if !d.splicing {
		return
	}
	d.splicing = false
	d.patches = append(d.patches, Patch{
		Action: Splice, Path: d.path, Index: d.spliceAt,
		Old: d.value(&value{kind: String, raw: slices.Clone(d.removed)}), New: d.value(&value{kind: String, raw: slices.Clone(d.inserted)}),
	})
	d.removed, d.inserted = d.removed[:0], d.inserted[:0]
}

// mark follows the marks of one of the moments.
func (d *differ) mark(moment int, e *markEvent) error {
	if !d.marked {
		d.marked = true
		d.marks[past], d.marks[present] = newMarkState(&d.cost), newMarkState(&d.cost)
	}
	return d.marks[moment].add(e)
}

// character compares the marks at the character at hand, which was inserted or was there before.
func (d *differ) character(inserted bool) error {
	if !d.marked {
		return nil
	}
	old, new := d.marks[past].set, d.marks[present].set
	if inserted {
		old = nil
	}
	if d.anyCharacters && d.fresh == inserted && sameSet(old, d.compared[past]) && sameSet(new, d.compared[present]) {
		return nil
	}
	d.anyCharacters, d.fresh, d.compared = true, inserted, [2][]*mark{old, new}
	if err := d.marks[present].pay(len(old) + len(new)); err != nil {
		return err
	}
	var runs []markRun
	for len(old) > 0 || len(new) > 0 {
		r := markRun{from: d.index}
		c := 0
		switch {
		case len(old) == 0:
			c = 1
		case len(new) == 0:
			c = -1
		default:
			c = strings.Compare(old[0].name, new[0].name)
		}
		if c <= 0 {
			r.name, r.old = old[0].name, old[0]
			old = old[1:]
		}
		if c >= 0 {
			r.name, r.new = new[0].name, new[0]
			new = new[1:]
		}
		if r.old == nil || r.new == nil || !r.old.value.same(&r.new.value) {
			runs = append(runs, r)
		}
	}
	d.endRuns(runs)
	return nil
}

// sameSet tells whether two sets are one. Sets are never changed in place.
func sameSet(a, b []*mark) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// endRuns ends the differences that aren't among those of the next character, and begins new ones.
func (d *differ) endRuns(next []markRun) {
	i := 0
	for _, r := range d.runs {
		for i < len(next) && next[i].name < r.name {
			i++
		}
		if i < len(next) && next[i].name == r.name && sameMark(next[i].old, r.old) && sameMark(next[i].new, r.new) {
			next[i].from = r.from
			continue
		}
		p := Patch{Action: SetMark, Path: d.path, Index: r.from, End: d.index, Name: r.name}
		if r.old != nil {
			p.Old = d.value(&r.old.value)
		}
		if r.new != nil {
			p.New = d.value(&r.new.value)
		}
		d.markPatches = append(d.markPatches, p)
	}
	d.runs = next
}

func sameMark(a, b *mark) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.value.same(&b.value)
}
