package amstate

import (
	"context"
	"unicode/utf8"

	"github.com/annals-db/annals/internal/amformat"
)

// Rows are what is swept: the operations of a document in its order, each with its successors, as [amformat.Rows] gives them. They are read
// once, and not always to their end.
type Rows interface {
	Next() bool
	Op() *amformat.Op
	Err() error
	Actors() []amformat.ActorID
}

// Options say what [Read] is to keep.
type Options struct {
	At        Clock  // the moment; nil is now
	Paths     []Path // what is kept; nil is everything. Of lists and maps in between, only what leads there is kept
	Conflicts bool   // whether values that lost are kept, with what is in them
	Depth     int64  // how deep objects may be within objects; 0 is the default of amformat
}

// Read sweeps the rows and gives the state of the moment. The state shares memory with the document and the changes that the rows are of. It
// fails with the rows' errors, with an [amformat.LimitError] if objects are nested too deeply, and when ctx is done.
func Read(ctx context.Context, rows Rows, o Options) (*State, error) {
	want, err := selectPaths(o.Paths)
	if err != nil {
		return nil, err
	}
	s := newSweep(ctx, rows, o.Depth)
	s.conflicts = o.Conflicts
	s.groups[present].clock = o.At.table(s.actors)
	root := &node{kind: Map, views: 1 << present, want: want}
	if err := s.run(root); err != nil {
		return nil, err
	}
	return &State{root: root, actors: s.actors}, nil
}

// A sweep looks at one moment or at two. Objects are kept for the moments in which they are reached from the root.
const (
	past = iota
	present
)

type view uint8

func (v view) has(moment int) bool { return v>>moment&1 != 0 }

const common view = 1<<past | 1<<present

type sweep struct {
	ctx       context.Context
	rows      Rows
	actors    []amformat.ActorID
	depth     int64
	conflicts bool

	live   map[uint64]*node // objects whose rows are yet to come
	latest amformat.OpID    // the last of them
	groups [2]group         // of the key or element at hand, at each moment

	node   *node // the object at hand, nil if it isn't kept
	open   bool  // whether there is a key or an element at hand
	key    string
	want   *selection
	wanted bool
	single value // a string that is all there is of the element at hand so far, instead of a group: nearly all of a text is such
	isOne  bool

	// What objects consist of is gathered here and kept in pieces that many of them share.
	keys       []string
	vals       []value
	text       []byte
	keptKeys   slab[string]
	keptValues slab[value]
	keptText   slab[byte]
	keptNodes  slab[node]

	differ *differ // of two moments
}

func newSweep(ctx context.Context, rows Rows, depth int64) *sweep {
	if depth == 0 {
		depth = amformat.DefaultLimits.Depth
	}
	return &sweep{ctx: ctx, rows: rows, actors: rows.Actors(), depth: depth, live: map[uint64]*node{}}
}

func (s *sweep) run(root *node) error {
	s.live[packed(root.id)] = root
	var at amformat.OpID
	begun := false
	for n := 0; s.rows.Next(); n++ {
		if n&0xfff == 0 {
			if err := s.ctx.Err(); err != nil {
				return err
			}
		}
		op := s.rows.Op()
		if !begun || op.Obj != at {
			if err := s.leave(); err != nil {
				return err
			}
			if op.Obj.Compare(s.latest) > 0 {
				return nil // nothing that follows is kept
			}
			begun, at = true, op.Obj
			if s.node = s.live[packed(at)]; s.node != nil {
				delete(s.live, packed(at))
				s.enter()
			}
		}
		if s.node != nil {
			if err := s.add(op); err != nil {
				return err
			}
		}
	}
	if err := s.rows.Err(); err != nil {
		return err
	}
	return s.leave()
}

// packed is an id as one number: counters that are read have no more than 32 bits.
func packed(id amformat.OpID) uint64 { return id.Counter<<32 | uint64(id.Actor) }

func (s *sweep) enter() {
	n := s.node
	if n.kind == List && n.want != nil {
		n.at = []int{}
	}
	n.keys, n.vals, n.text = s.keys[:0], s.vals[:0], s.text[:0]
	if n.views == common {
		s.differ.enter(n)
	}
}

// leave ends the object at hand.
func (s *sweep) leave() error {
	if s.node == nil {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	n := s.node
	s.node = nil
	s.keys, s.vals, s.text = n.keys, n.vals, n.text
	n.keys, n.vals, n.text = s.keptKeys.keep(&s.keys), s.keptValues.keep(&s.vals), s.keptText.keep(&s.text)
	if n.views == common {
		return s.differ.leave()
	}
	return nil
}

const pieceLength = 1024

// slab keeps slices of many small objects in few large pieces of memory.
type slab[T any] struct {
	free []T
	size int
}

// take is a slice of n.
func (s *slab[T]) take(n int) []T {
	if n > len(s.free) {
		s.size = min(max(2*s.size, 16), pieceLength)
		s.free = make([]T, max(n, s.size))
	}
	out := s.free[:n:n]
	s.free = s.free[n:]
	return out
}

// keep copies what was gathered, unless it is long: then it is kept itself.
func (s *slab[T]) keep(gathered *[]T) []T {
	all := *gathered
	switch {
	case len(all) == 0:
		return nil
	case len(all) > pieceLength:
		*gathered = nil
		return all
	}
	out := s.take(len(all))
	copy(out, all)
	return out
}

func (s *sweep) add(op *amformat.Op) error {
	n := s.node
	switch {
	case n.kind == Map:
		if !s.open || op.Key != s.key {
			if err := s.flush(); err != nil {
				return err
			}
			s.open, s.key = true, op.Key
			s.want, s.wanted = n.want.key(op.Key)
		}
		if !s.wanted {
			return nil
		}
	case op.Insert:
		if err := s.flush(); err != nil {
			return err
		}
		s.open = true
		switch {
		case op.Action == amformat.ActionMark:
			return s.mark(op)
		case n.kind == Text && n.views == 1<<present && op.Action == amformat.ActionSet && op.Value.Type == amformat.ValueString && len(op.Succ) == 0:
			if s.groups[present].covers(op.ID) {
				s.isOne, s.single.id, s.single.raw = true, op.ID, op.Value.Raw
			}
			return nil
		}
	}
	if s.isOne {
		s.isOne = false
		s.groups[present].values = append(s.groups[present].values, candidate{value: value{id: s.single.id, kind: String, raw: s.single.raw}})
	}
	if n.views.has(past) {
		s.groups[past].add(op)
	}
	if n.views.has(present) {
		s.groups[present].add(op)
	}
	return nil
}

// mark notes that a mark begins or ends here.
func (s *sweep) mark(op *amformat.Op) error {
	n := s.node
	if n.kind != Text {
		return nil
	}
	for moment := range s.groups {
		g := &s.groups[moment]
		if !n.views.has(moment) || !g.covers(op.ID) {
			continue
		}
		e := markEvent{at: len(n.text), id: op.ID, begins: op.MarkBegin, name: op.MarkName}
		if op.MarkBegin {
			e.value.id = op.ID
			e.value.scalar(op.Value)
		} else {
			e.id.Counter--
		}
		if n.views != common {
			n.marks = append(n.marks, e)
		} else if err := s.differ.mark(moment, &e); err != nil {
			return err
		}
	}
	return nil
}

// flush ends the key or element at hand.
func (s *sweep) flush() error {
	if !s.open {
		return nil
	}
	s.open = false
	n := s.node
	if s.isOne {
		s.isOne = false
		n.addText(s.single.raw)
		return nil
	}
	var err error
	switch {
	case n.views == common:
		err = s.differ.place(s.groups[past].winner(), s.groups[present].winner())
	case n.views.has(past):
		err = s.place(&s.groups[past])
	default:
		err = s.place(&s.groups[present])
	}
	if n.views.has(past) {
		s.groups[past].reset()
	}
	if n.views.has(present) {
		s.groups[present].reset()
	}
	return err
}

// place keeps what the group found in the object at hand.
func (s *sweep) place(g *group) error {
	v := g.winner()
	if v == nil {
		return nil
	}
	n := s.node
	switch n.kind {
	case Map:
		n.keys = append(n.keys, s.key)
		n.size++
	case List:
		s.want, s.wanted = n.want.index(n.size)
		if n.at != nil && s.wanted {
			n.at = append(n.at, n.size)
		}
		if n.size++; !s.wanted {
			return nil
		}
	case Text:
		return s.placeText(g, v)
	}
	if err := s.keep(v); err != nil {
		return err
	}
	n.vals = append(n.vals, *v)
	return s.placeRivals(g, len(n.vals)-1)
}

func (s *sweep) placeText(g *group, v *value) error {
	n := s.node
	at := n.size
	switch v.kind {
	case String:
		n.addText(v.raw)
		if len(g.values) == 1 || len(v.raw) == 0 {
			return nil
		}
	case Map:
		s.want, _ = n.want.index(at)
		if err := s.keep(v); err != nil {
			return err
		}
		n.blocks = append(n.blocks, block{from: len(n.text), at: at, value: *v})
		fallthrough
	default:
		n.text = append(n.text, object...)
		n.size++
	}
	return s.placeRivals(g, at)
}

func (n *node) addText(b []byte) {
	if len(b) == 1 {
		n.text = append(n.text, b[0])
		n.size++
		return
	}
	n.text = append(n.text, b...)
	n.size += utf8.RuneCount(b)
}

func (s *sweep) placeRivals(g *group, at int) error {
	if !s.conflicts || len(g.values) < 2 {
		return nil
	}
	rivals := g.there()
	if len(rivals) < 2 {
		return nil
	}
	for i := range rivals {
		if err := s.keep(&rivals[i]); err != nil {
			return err
		}
	}
	if s.node.rivals == nil {
		s.node.rivals = map[int][]value{}
	}
	s.node.rivals[at] = rivals
	return nil
}

// keep makes the rows of the object that v is be kept, for the moments of the object that it is in.
func (s *sweep) keep(v *value) error {
	if v.kind < Map || v.node != nil {
		return nil
	}
	depth := s.node.depth + 1
	if int64(depth) > s.depth {
		return &amformat.LimitError{What: "depth", Limit: s.depth, Got: int64(depth)}
	}
	v.node = &s.keptNodes.take(1)[0]
	*v.node = node{id: v.id, kind: v.kind, depth: depth, views: s.node.views, want: s.want}
	s.await(v.node)
	return nil
}

func (s *sweep) await(n *node) {
	s.live[packed(n.id)] = n
	if n.id.Compare(s.latest) > 0 {
		s.latest = n.id
	}
}
