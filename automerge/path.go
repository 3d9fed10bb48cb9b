package automerge

import (
	"fmt"
	"strings"
)

// A wanted says which part of a map is wanted: nil is all of it.
type wanted struct {
	keys map[string]*wanted
}

// splitPath takes a path apart: keys with dots between them. A backslash takes the meaning from a dot or a backslash after it.
func splitPath(path string) ([]string, error) {
	var keys []string
	var key strings.Builder
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '\\' && i+1 < len(path) && (path[i+1] == '.' || path[i+1] == '\\'):
			i++
			key.WriteByte(path[i])
		case c == '\\':
			return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the path %q has a backslash before neither a dot nor a backslash", path), Hint: "Write two.", Index: -1}
		case c == '.':
			keys = append(keys, key.String())
			key.Reset()
		default:
			key.WriteByte(c)
		}
	}
	return append(keys, key.String()), nil
}

// wantedOf makes one of paths. What one path wants as a whole stays whole, whatever others want of it.
func wantedOf(paths []string) (*wanted, error) {
	root := &wanted{keys: map[string]*wanted{}}
	for _, path := range paths {
		keys, err := splitPath(path)
		if err != nil {
			return nil, err
		}
		at := root
		for i, key := range keys {
			next, there := at.keys[key]
			if there && next == nil {
				break
			}
			if i == len(keys)-1 {
				at.keys[key] = nil
				break
			}
			if !there {
				next = &wanted{keys: map[string]*wanted{}}
				at.keys[key] = next
			}
			at = next
		}
	}
	return root, nil
}

// below returns what is wanted of the value of a key, and whether anything is.
func (w *wanted) below(key string) (*wanted, bool) {
	if w == nil {
		return nil, true
	}
	next, ok := w.keys[key]
	return next, ok
}
