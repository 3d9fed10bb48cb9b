package amstate

import (
	"fmt"
	"strconv"
	"strings"
)

// Path is the way from the root to a value: keys of maps are strings, indexes of lists and of texts are ints. Indexes of texts count Unicode
// characters, each block as one.
type Path []any

// String writes the path for people.
func (p Path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch s := step.(type) {
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		case int:
			b.WriteString("[" + strconv.Itoa(s) + "]")
		default:
			fmt.Fprintf(&b, "?%v", s)
		}
	}
	return b.String()
}

// selection is a tree of the paths that are to be kept; nil keeps everything.
type selection struct {
	keys    map[string]*selection
	indexes map[int]*selection
}

func selectPaths(paths []Path) (*selection, error) {
	if paths == nil {
		return nil, nil
	}
	root := &selection{}
	for _, p := range paths {
		if len(p) == 0 {
			return nil, nil
		}
		at := root
		for i, step := range p {
			last := i == len(p)-1
			var next *selection
			var there bool
			switch s := step.(type) {
			case string:
				next, there = at.keys[s]
				if !there || last && next != nil {
					next = newSelection(last)
					if at.keys == nil {
						at.keys = map[string]*selection{}
					}
					at.keys[s] = next
				}
			case int:
				next, there = at.indexes[s]
				if !there || last && next != nil {
					next = newSelection(last)
					if at.indexes == nil {
						at.indexes = map[int]*selection{}
					}
					at.indexes[s] = next
				}
			default:
				return nil, fmt.Errorf("a step of a path is a %T, not a string or an int", step)
			}
			if next == nil {
				break
			}
			at = next
		}
	}
	return root, nil
}

func newSelection(whole bool) *selection {
	if whole {
		return nil
	}
	return &selection{}
}

// key tells whether a map's entry is kept, and what of it.
func (s *selection) key(k string) (of *selection, kept bool) {
	if s == nil {
		return nil, true
	}
	of, kept = s.keys[k]
	return of, kept
}

// index tells whether a list's element is kept, and what of it.
func (s *selection) index(i int) (of *selection, kept bool) {
	if s == nil {
		return nil, true
	}
	of, kept = s.indexes[i]
	return of, kept
}
