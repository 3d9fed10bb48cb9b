package amstate

import (
	"slices"
	"unicode/utf8"

	"github.com/annals-db/annals/internal/amformat"
)

// State is what a document says at one moment, or chosen parts of it.
type State struct {
	root   *node
	actors []amformat.ActorID
}

// node is an object that is kept.
type node struct {
	id    amformat.OpID
	kind  Kind
	depth int32
	views view
	want  *selection

	keys []string // of maps, in the order of bytes
	vals []value  // of maps and lists
	at   []int    // of lists of which only chosen elements are kept: their indexes
	size int      // of lists: elements; of texts: characters

	text   []byte
	blocks []block
	marks  []markEvent

	rivals map[int][]value // by index of entry, element or character: its values if there are several, from the latest to the earliest

	// Of objects that two moments have in common:
	parent *node
	step   any
}

// block is an object within a text.
type block struct {
	from int // its U+FFFC in the text's bytes
	at   int // its index
	value
}

// object is the mark of everything in a text that isn't text.
const object = "\ufffc"

// Root is the whole document.
func (s *State) Root() Value { return s.value(&value{kind: Map, node: s.root}) }

func (s *State) value(v *value) Value { return Value{v: *v, actors: s.actors} }

// Get is the value at a path, if there is one. The steps are strings and ints as in [Path]; an index of a text leads to a block.
func (s *State) Get(path ...any) (Value, bool) {
	v := s.find(path)
	if v == nil {
		return Value{}, false
	}
	return s.value(v), true
}

func (s *State) find(path []any) *value {
	at := &value{kind: Map, node: s.root}
	for _, step := range path {
		if at.node == nil {
			return nil
		}
		switch i := at.node.position(step); {
		case i < 0:
			return nil
		case at.node.kind == Text:
			at = &at.node.blocks[i].value
		default:
			at = &at.node.vals[i]
		}
	}
	return at
}

// position is where the node keeps what a step leads to, -1 if there is no such thing.
func (n *node) position(step any) int {
	switch s := step.(type) {
	case string:
		if i, ok := slices.BinarySearch(n.keys, s); ok {
			return i
		}
	case int:
		if n.kind == Text {
			if i, ok := slices.BinarySearchFunc(n.blocks, s, func(b block, at int) int { return b.at - at }); ok {
				return i
			}
			return -1
		}
		if n.at != nil {
			if i, ok := slices.BinarySearch(n.at, s); ok {
				return i
			}
			return -1
		}
		if n.kind == List && s >= 0 && s < len(n.vals) {
			return s
		}
	}
	return -1
}

// Conflicts are all the values that were written to the key or the element at the path without knowledge of each other: the winner first, then from the latest
// to the earliest; a single one if there is no conflict, none if nothing is there. The state has to be read with [Options.Conflicts]. A character without conflict comes
// without the operation that set it.
func (s *State) Conflicts(path ...any) []Value {
	if len(path) == 0 {
		return nil
	}
	parent := s.find(path[:len(path)-1])
	if parent == nil || parent.node == nil {
		return nil
	}
	n := parent.node
	step := path[len(path)-1]
	i := n.position(step)
	if n.kind == Text {
		index, isIndex := step.(int)
		switch {
		case !isIndex || index < 0 || index >= n.size:
			return nil
		case n.rivals[index] != nil:
			return s.values(n.rivals[index])
		case i >= 0:
			return []Value{s.value(&n.blocks[i].value)}
		}
		return []Value{s.value(n.character(index))}
	}
	switch {
	case i < 0:
		return nil
	case n.rivals[i] != nil:
		return s.values(n.rivals[i])
	}
	return []Value{s.value(&n.vals[i])}
}

func (s *State) values(vs []value) []Value {
	out := make([]Value, len(vs))
	for i := range vs {
		out[i] = s.value(&vs[i])
	}
	return out
}

// character is the character of a text at an index. Which operation set it isn't kept.
func (n *node) character(index int) *value {
	b := n.text
	for range index {
		_, size := utf8.DecodeRune(b)
		b = b[size:]
	}
	_, size := utf8.DecodeRune(b)
	return &value{kind: String, raw: b[:size]}
}

// Conflict is a key or an element to which several values were written without knowledge of each other.
type Conflict struct {
	Path   Path
	Values []Value // the winner first, then from the latest to the earliest
}

// AllConflicts are the conflicts of everything that the JSON shows, from the root downwards. The state has to be read with [Options.Conflicts].
func (s *State) AllConflicts() []Conflict {
	var cs []Conflict
	s.walk(s.root, nil, func(n *node, path Path) {
		for _, i := range sortedKeys(n.rivals) {
			var step any = i
			switch {
			case n.kind == Map:
				step = n.keys[i]
			case n.at != nil:
				step = n.at[i]
			}
			cs = append(cs, Conflict{Path: append(slices.Clip(path), step), Values: s.values(n.rivals[i])})
		}
	})
	return cs
}

// walk goes through the objects that are there, each before those in it.
func (s *State) walk(n *node, path Path, visit func(*node, Path)) {
	visit(n, path)
	for i := range n.vals {
		child := n.vals[i].node
		if child == nil {
			continue
		}
		var step any = i
		switch {
		case n.kind == Map:
			step = n.keys[i]
		case n.at != nil:
			step = n.at[i]
		}
		s.walk(child, append(slices.Clip(path), step), visit)
	}
	for i := range n.blocks {
		s.walk(n.blocks[i].node, append(slices.Clip(path), n.blocks[i].at), visit)
	}
}

func sortedKeys(m map[int][]value) []int {
	ks := make([]int, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
