package amstate

import (
	"runtime"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// A sweep keeps what is alive: of a text that was written and deleted, of values that were overwritten and of what was in objects that are gone,
// nothing.
func TestMemoryOfWhatIsGone(t *testing.T) {
	const n = 20_000
	ops := []amformat.Op{{Key: "t", Action: amformat.ActionMakeText}, {Key: "gone", Action: amformat.ActionMakeList}}
	last := at(0)
	for range n {
		ops = append(ops, insertRune(at(1), last, 'x'))
		last = at(len(ops))
	}
	for i := range n {
		ops = append(ops, deleteElement(at(1), at(3+i)))
	}
	for range n {
		op := insertRune(at(2), at(0), 'y')
		ops = append(ops, op)
	}
	ops = append(ops, amformat.Op{Key: "gone", Action: amformat.ActionDelete, Pred: []amformat.OpID{at(2)}}, set("v", amformat.ValueTrue))
	for range n {
		op := set("v", amformat.ValueFalse)
		op.Pred = []amformat.OpID{at(len(ops))}
		ops = append(ops, op)
	}
	save := must(amformat.WriteDocument(t.Context(), nil, nil, written(t, ops...), amformat.Limits{}))(t)
	doc := document(t, save)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := must(Read(t.Context(), doc.Rows(), Options{Conflicts: true}))(t)
	runtime.ReadMemStats(&after)
	if got := string(s.JSON()); got != `{"t":"","v":false}` {
		t.Fatal(got)
	}
	// Rows judge that the elements of a list are in order, which takes some memory for those that are inserted in one place.
	if used := after.TotalAlloc - before.TotalAlloc; used > 4*n {
		t.Errorf("%d bytes for %d rows that are gone", used, 4*n)
	}
}
