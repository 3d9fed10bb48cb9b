package amstate

import "github.com/annals-db/annals/internal/amformat"

// group finds which of the values that were written to one key or element are there at a moment: those that no operation of the moment
// has overwritten. Operations come from the earliest to the latest.
type group struct {
	clock  []uint64 // nil is now
	values []candidate
	// Of counters, the successors that may turn out to be increments: which candidates they belong to.
	waiting map[amformat.OpID][]int32
}

type candidate struct {
	value
	open int32 // of counters: successors that aren't known to be increments
}

func (g *group) covers(id amformat.OpID) bool {
	return g.clock == nil || id.Counter <= g.clock[id.Actor]
}

// overwritten tells whether an operation of the moment has the operation as its predecessor.
func (g *group) overwritten(op *amformat.Op) bool {
	if g.clock == nil {
		return len(op.Succ) > 0
	}
	for _, s := range op.Succ {
		if g.covers(s) {
			return true
		}
	}
	return false
}

func (g *group) add(op *amformat.Op) {
	if !g.covers(op.ID) {
		return
	}
	switch {
	case op.Action == amformat.ActionIncrement:
		by := op.Value.Int()
		for _, i := range g.waiting[op.ID] {
			g.values[i].num += by
			g.values[i].open--
		}
		return
	case op.Action == amformat.ActionMark || op.Action == amformat.ActionDelete:
		return
	case op.Action == amformat.ActionSet && op.Value.Type == amformat.ValueCounter:
	case g.overwritten(op):
		return
	}
	g.values = append(g.values, candidate{})
	c := &g.values[len(g.values)-1]
	c.fill(op)
	if c.kind != Counter {
		return
	}
	for _, s := range op.Succ {
		if g.covers(s) {
			if g.waiting == nil {
				g.waiting = map[amformat.OpID][]int32{}
			}
			g.waiting[s] = append(g.waiting[s], int32(len(g.values)-1))
			c.open++
		}
	}
}

// winner is the latest of the values that are there, nil if there is none.
func (g *group) winner() *value {
	for i := len(g.values) - 1; i >= 0; i-- {
		if g.values[i].open == 0 {
			return &g.values[i].value
		}
	}
	return nil
}

// there are all the values that are there, the winner first.
func (g *group) there() (vs []value) {
	for i := len(g.values) - 1; i >= 0; i-- {
		if g.values[i].open == 0 {
			vs = append(vs, g.values[i].value)
		}
	}
	return vs
}

func (g *group) reset() {
	g.values = g.values[:0]
	switch n := len(g.waiting); {
	case n > 16: // clearing a map takes as long as it ever was large
		g.waiting = nil
	case n > 0:
		clear(g.waiting)
	}
}
