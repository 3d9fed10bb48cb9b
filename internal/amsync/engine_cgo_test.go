//go:build cgo

package amsync_test

import (
	"fmt"
	"testing"

	automerge "github.com/automerge/automerge-go"

	"github.com/annals-db/annals/internal/amformat"
)

// engine is automerge-go's end of the protocol.
type engine struct {
	doc   *automerge.Doc
	state *automerge.SyncState
	n     int
}

func newEngine(t testing.TB, chunks ...[]byte) *engine {
	t.Helper()
	d := automerge.New()
	ok(t, d.SetActorID(fmt.Sprintf("%032x", len(chunks)+1)))
	for _, c := range chunks {
		ok(t, d.LoadIncremental(c))
	}
	return &engine{doc: d, state: automerge.NewSyncState(d)}
}

func (e *engine) receive(t testing.TB, message []byte) {
	t.Helper()
	_, err := e.state.ReceiveMessage(message)
	ok(t, err)
}

func (e *engine) generate(testing.TB) []byte {
	m, valid := e.state.GenerateMessage()
	if !valid {
		return nil
	}
	return m.Bytes()
}

func (e *engine) restart(t testing.TB, saved bool) {
	t.Helper()
	if !saved {
		e.state = automerge.NewSyncState(e.doc)
		return
	}
	e.state = must[*automerge.SyncState](t)(automerge.LoadSyncState(e.doc, e.state.Save()))
}

func (e *engine) headsText(testing.TB) (text string) {
	var heads []amformat.Hash
	for _, h := range e.doc.Heads() {
		heads = append(heads, amformat.Hash(h))
	}
	for _, h := range amformat.SortHashes(heads) {
		text += h.String() + " "
	}
	return text
}

func (e *engine) edit(t testing.TB) {
	t.Helper()
	e.n++
	ok(t, e.doc.RootMap().Set(fmt.Sprint("k", e.n%7), fmt.Sprint(e.doc.ActorID(), e.n)))
	_ = must[automerge.ChangeHash](t)(e.doc.Commit("edit"))
}

// engines are two documents of automerge-go that have some changes in common and some alone.
func engines(t testing.TB, common, left, right int) (a, b *engine) {
	t.Helper()
	first := newEngine(t)
	for range common {
		first.edit(t)
	}
	fork := func(edits int) *engine {
		e := &engine{doc: must[*automerge.Doc](t)(first.doc.Fork()), n: common}
		if common == 0 {
			e = newEngine(t)
			ok(t, e.doc.SetActorID(fmt.Sprintf("%032x", edits+1000)))
		}
		e.state = automerge.NewSyncState(e.doc)
		for range edits {
			e.edit(t)
		}
		return e
	}
	return fork(left), fork(right)
}

func (e *engine) chunks(t testing.TB) (chunks [][]byte) {
	t.Helper()
	for _, c := range must[[]*automerge.Change](t)(e.doc.Changes()) {
		chunks = append(chunks, c.Save())
	}
	return chunks
}

var shapes = []struct{ common, left, right int }{
	{0, 0, 0}, {5, 0, 0}, {0, 0, 9}, {0, 9, 0}, {5, 3, 0}, {5, 0, 3}, {5, 3, 4}, {0, 3, 4}, {100, 1, 1}, {400, 1, 0}, {0, 401, 0}, {0, 0, 401}, {10, 200, 190},
}

// With automerge-go at the other end it takes no more rounds than automerge-go takes with itself.
func TestAgreesWithGo(t *testing.T) {
	for _, c := range shapes {
		for _, weBegin := range []bool{true, false} {
			t.Run(fmt.Sprint(c, weBegin), func(t *testing.T) {
				a, b := engines(t, c.common, c.left, c.right)
				chunks := [][][]byte{a.chunks(t), b.chunks(t)}
				var ends [2]peer
				if weBegin {
					ends = [2]peer{newOurs(t, chunks[0]...), newEngine(t, chunks[1]...)}
				} else {
					ends = [2]peer{newEngine(t, chunks[0]...), newOurs(t, chunks[1]...)}
				}
				theirs, theirSize := talk(t, a, b)
				same(t, a, b)
				rounds, size := talk(t, ends[0], ends[1])
				same(t, ends[0], ends[1])
				same(t, ends[0], a)
				if rounds > theirs {
					t.Errorf("%d rounds, and %d of theirs", rounds, theirs)
				}
				// Nothing is sent for nothing.
				if size > theirSize+theirSize/4+200 {
					t.Errorf("%d bytes, and %d of theirs", size, theirSize)
				}
				for _, saved := range []bool{true, false} {
					for i := range 2 {
						ends[i].restart(t, saved)
					}
					if rounds, _ := talk(t, ends[0], ends[1]); rounds > 2 {
						t.Errorf("%d rounds for nothing", rounds)
					}
				}
			})
		}
	}
}

// automerge-go reads our state, and we read its.
func TestStatesAreAsInGo(t *testing.T) {
	a, b := engines(t, 20, 3, 4)
	o := newOurs(t, a.chunks(t)...)
	talk(t, o, b)
	if got, want := o.state.Save(), b.state.Save(); string(got) != string(want) {
		t.Errorf("saved as %x, and as %x", got, want)
	}
}

func TestAgreesWithGoOverBadConnections(t *testing.T) {
	for range *storms {
		r := random(t)
		a, b := engines(t, r.IntN(20), r.IntN(10), r.IntN(10))
		o := newOurs(t, a.chunks(t)...)
		storm(t, r, o, b, func(int) { o.edit(t, "ours") }, func(int) { b.edit(t) })
	}
}
