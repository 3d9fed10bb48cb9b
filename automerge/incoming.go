package automerge

import (
	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/amformat"
)

// incoming are changes that have been validated, and are on their way into a document.
type incoming struct {
	*amformat.Change
	chunk []byte // as it came
}

// parse reads chunks that are changes, in any order and number, and validates every operation in them. Saves among them are returned as they are.
func (s *Store) parse(doc uuid.UUID, data ...[]byte) (changes []incoming, saves [][]byte, err error) {
	there := map[amformat.Hash]bool{}
	for _, d := range data {
		chunks, err := amformat.SplitChunks(d)
		if err != nil {
			return nil, nil, malformed(doc, err)
		}
		for _, c := range chunks {
			if c.Kind == amformat.KindDocument {
				saves = append(saves, c.Bytes)
				continue
			}
			change, err := amformat.ParseChange(c.Bytes, s.limits.format())
			if err != nil {
				return nil, nil, malformed(doc, err)
			}
			if !there[change.Hash] {
				there[change.Hash] = true
				changes = append(changes, incoming{Change: change, chunk: c.Bytes})
			}
		}
	}
	return inOrder(changes), saves, nil
}

// inOrder puts each change after those of the list that it depends on, and else leaves the order as it is.
func inOrder(changes []incoming) []incoming {
	at := make(map[amformat.Hash]int, len(changes))
	sorted := true
	for i, c := range changes {
		at[c.Hash] = i
	}
	for i, c := range changes {
		for _, d := range c.Deps {
			if j, ok := at[d]; ok && j > i {
				sorted = false
			}
		}
	}
	if sorted {
		return changes
	}
	list := make([]incoming, 0, len(changes))
	waits := make([]int, len(changes)) // how many of its dependencies are still to come
	next := make([][]int, len(changes))
	var ready []int
	for i, c := range changes {
		for _, d := range c.Deps {
			if j, ok := at[d]; ok {
				waits[i]++
				next[j] = append(next[j], i)
			}
		}
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		list = append(list, changes[i])
		for _, j := range next[i] {
			if waits[j]--; waits[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	return list // a cycle would be a collision of SHA-256
}

// outside returns the dependencies of changes that are not among the changes.
func outside(changes []incoming) (deps []amformat.Hash) {
	there := make(map[amformat.Hash]bool, len(changes))
	for _, c := range changes {
		there[c.Hash] = true
	}
	for _, c := range changes {
		for _, d := range c.Deps {
			if !there[d] {
				there[d] = true
				deps = append(deps, d)
			}
		}
	}
	return deps
}

// split tells the changes that can be added from those that wait, directly or not, for what is missing.
func split(changes []incoming, missing []Hash) (ready, waiting []incoming) {
	lacks := make(map[amformat.Hash]bool, len(missing))
	for _, h := range missing {
		lacks[amformat.Hash(h)] = true
	}
	for _, c := range changes { // in causal order
		waits := false
		for _, d := range c.Deps {
			waits = waits || lacks[d]
		}
		if waits {
			lacks[c.Hash] = true
			waiting = append(waiting, c)
		} else {
			ready = append(ready, c)
		}
	}
	return ready, waiting
}
