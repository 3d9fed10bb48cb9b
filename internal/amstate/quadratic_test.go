//go:build unix

package amstate

import (
	"strconv"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/amformat"
)

// Documents that are made to be slow take a time that is in proportion to their size: twice the size takes far less than four times as long.
func TestNothingIsQuadratic(t *testing.T) {
	insert := func(text, after amformat.OpID) amformat.Op {
		return amformat.Op{Obj: text, InList: true, Insert: true, Elem: after, Action: amformat.ActionSet, Value: amformat.Value{Type: amformat.ValueString, Raw: []byte("x")}}
	}
	mark := func(text, after amformat.OpID, name string) amformat.Op {
		op := amformat.Op{Obj: text, InList: true, Insert: true, Elem: after, Action: amformat.ActionMark}
		if name != "" {
			op.MarkBegin, op.MarkName, op.Value = true, name, amformat.Value{Type: amformat.ValueTrue}
		}
		return op
	}
	for name, ops := range map[string]func(n int) []amformat.Op{
		"marks of one name that overlap": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			ops = append(ops, insert(at(1), at(0)))
			for range n { // each begins at the beginning and ends behind what was there first
				begin := len(ops) + 1
				ops = append(ops, mark(at(1), at(0), "m"), mark(at(1), at(2), ""), insert(at(1), at(begin)))
			}
			return ops
		},
		"marks that never end": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			for range n {
				last := at(len(ops))
				if len(ops) == 1 {
					last = at(0)
				}
				ops = append(ops, mark(at(1), last, "m"), insert(at(1), at(len(ops)+1)))
			}
			return ops
		},
		"many names of marks at one place": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			for i := range n {
				ops = append(ops, mark(at(1), at(0), strconv.Itoa(i)), mark(at(1), at(len(ops)+1), ""))
			}
			return ops
		},
		"counters of one key with increments": func(n int) []amformat.Op {
			var ops []amformat.Op
			for range n {
				ops = append(ops, set("a", amformat.ValueCounter, 1))
				ops = append(ops, amformat.Op{Key: "a", Action: amformat.ActionIncrement, Value: number(amformat.ValueInt, 1), Pred: []amformat.OpID{at(len(ops))}})
			}
			return ops
		},
		"one counter with many increments, then many counters": func(n int) []amformat.Op {
			ops := []amformat.Op{set("a", amformat.ValueCounter, 1)}
			for range n {
				ops = append(ops, amformat.Op{Key: "a", Action: amformat.ActionIncrement, Value: number(amformat.ValueInt, 1), Pred: []amformat.OpID{at(1)}})
			}
			for i := range n {
				ops = append(ops, set("b"+strconv.Itoa(i), amformat.ValueCounter, 1))
			}
			return ops
		},
		"values of one key that conflict": func(n int) []amformat.Op {
			var ops []amformat.Op
			for range n {
				ops = append(ops, set("a", amformat.ValueTrue))
			}
			return ops
		},
		"elements before the first": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			for range n {
				ops = append(ops, insert(at(1), at(0)))
			}
			return ops
		},
		"characters that conflict": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			for range n {
				op := insert(at(1), at(len(ops)+1))
				op.Insert = false
				ops = append(ops, insert(at(1), at(0)), op)
			}
			return ops
		},
		"blocks": func(n int) []amformat.Op {
			ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}}
			for range n {
				op := insert(at(1), at(0))
				op.Action, op.Value = amformat.ActionMakeMap, amformat.Value{}
				ops = append(ops, op)
			}
			return ops
		},
	} {
		t.Run(name, func(t *testing.T) {
			took := func(n int) time.Duration {
				changes := written(t, ops(n)...)
				start := cpuTime(t)
				ok(t, everything(t, changes, Clock{}))
				return cpuTime(t) - start
			}
			n := 2000
			if small, large := took(n), took(8*n); large > 25*small+200*time.Millisecond {
				t.Errorf("%v for %d, %v for %d", small, n, large, 8*n)
			} else {
				t.Logf("%v for %d, %v for %d", small, n, large, 8*n)
			}
		})
	}
}
