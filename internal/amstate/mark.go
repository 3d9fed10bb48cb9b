package amstate

import (
	"container/heap"
	"slices"
	"strings"

	"github.com/annals-db/annals/internal/amformat"
)

// markEvent is where in a text a mark begins or ends. A text that is inserted later at an end of a mark is within it or not by the place that the writer gave
// it, before the event or after it: whether marks expand is decided when something is written.
type markEvent struct {
	at     int           // the place in the text's bytes
	id     amformat.OpID // the operation that begins the mark
	begins bool
	name   string
	value  value
}

// Mark is a name and a value that a part of a text has.
type Mark struct {
	Name  string
	Value Value
}

type mark struct {
	name  string
	value value
	over  bool
}

// markState follows the marks through a text. Of several with one name the latest counts; if its value is null, there is no mark of the
// name.
type markState struct {
	active map[amformat.OpID]*mark
	named  map[string]*markHeap
	set    []*mark // those that count, by name; never changed in place
	cost   *int64  // how many marks all sets have together
}

// maxMarks bounds the marks of all pieces of a text together: a text with as many names of marks as characters would have the square of them.
const maxMarks = 20_000_000

func newMarkState(cost *int64) markState {
	return markState{active: map[amformat.OpID]*mark{}, named: map[string]*markHeap{}, cost: cost}
}

func (m *markState) add(e *markEvent) error {
	if e.begins {
		if m.active[e.id] != nil {
			return nil
		}
		added := &mark{name: e.name, value: e.value}
		m.active[e.id] = added
		h := m.named[e.name]
		if h == nil {
			h = &markHeap{}
			m.named[e.name] = h
		}
		heap.Push(h, added)
		return m.update(e.name, h)
	}
	ended := m.active[e.id]
	if ended == nil {
		return nil
	}
	delete(m.active, e.id)
	ended.over = true
	h := m.named[ended.name]
	for len(*h) > 0 && (*h)[0].over {
		heap.Pop(h)
	}
	if len(*h) == 0 {
		delete(m.named, ended.name)
	}
	return m.update(ended.name, h)
}

// update puts the mark of a name that counts into the set.
func (m *markState) update(name string, h *markHeap) error {
	var counts *mark
	if len(*h) > 0 && (*h)[0].value.kind != Null {
		counts = (*h)[0]
	}
	i, there := slices.BinarySearchFunc(m.set, name, func(k *mark, name string) int { return strings.Compare(k.name, name) })
	if there == (counts != nil) && (!there || m.set[i] == counts) {
		return nil
	}
	set := make([]*mark, 0, len(m.set)+1)
	set = append(set, m.set[:i]...)
	if counts != nil {
		set = append(set, counts)
	}
	if there {
		i++
	}
	m.set = append(set, m.set[i:]...)
	return m.pay(len(m.set))
}

func (m *markState) pay(n int) error {
	if *m.cost += int64(n); *m.cost > maxMarks {
		return &amformat.LimitError{What: "marks", Limit: maxMarks, Got: *m.cost}
	}
	return nil
}

// sameMarks tells whether two sets say the same.
func sameMarks(a, b []*mark) bool {
	return slices.EqualFunc(a, b, func(a, b *mark) bool { return a == b || a.name == b.name && a.value.same(&b.value) })
}

// markHeap has the latest mark first.
type markHeap []*mark

func (h markHeap) Len() int           { return len(h) }
func (h markHeap) Less(i, j int) bool { return h[i].value.id.Compare(h[j].value.id) > 0 }
func (h markHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *markHeap) Push(x any)        { *h = append(*h, x.(*mark)) }
func (h *markHeap) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	*h = old[:n]
	return x
}
