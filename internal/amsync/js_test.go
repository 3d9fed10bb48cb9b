package amsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amjs"
)

// script is JavaScript's end of the protocol.
type script struct{ *amjs.Peer }

func (s script) receive(t testing.TB, message []byte) { s.Receive(t, message) }
func (s script) generate(t testing.TB) []byte         { return s.Generate(t) }
func (s script) restart(t testing.TB, saved bool)     { s.Restart(t, saved) }
func (s script) headsText(t testing.TB) string {
	heads := s.Heads(t)
	if len(heads) == 0 {
		return ""
	}
	return strings.Join(heads, " ") + " "
}

func chunksOf(o *ours) (chunks [][]byte) {
	for _, c := range o.changes {
		chunks = append(chunks, c.Bytes)
	}
	return chunks
}

// With JavaScript at the other end it takes no more rounds than JavaScript takes with itself.
func TestAgreesWithJS(t *testing.T) {
	js := amjs.Start(t)
	for _, c := range []struct{ common, left, right int }{
		{0, 0, 0}, {5, 0, 0}, {0, 0, 9}, {0, 9, 0}, {5, 3, 0}, {5, 0, 3}, {5, 3, 4}, {0, 3, 4}, {100, 1, 1}, {0, 401, 0}, {0, 0, 401}, {10, 200, 190},
	} {
		a, b := diverged(t, c.common, c.left, c.right)
		for _, weBegin := range []bool{true, false} {
			t.Run(fmt.Sprint(c, weBegin), func(t *testing.T) {
				their := [2]script{{js.Peer(t, chunksOf(a)...)}, {js.Peer(t, chunksOf(b)...)}}
				theirs, theirSize := talk(t, their[0], their[1])
				same(t, their[0], their[1])
				var ends [2]peer
				var x script
				if weBegin {
					x = script{js.Peer(t, chunksOf(b)...)}
					ends = [2]peer{newOurs(t, chunksOf(a)...), x}
				} else {
					x = script{js.Peer(t, chunksOf(a)...)}
					ends = [2]peer{x, newOurs(t, chunksOf(b)...)}
				}
				rounds, size := talk(t, ends[0], ends[1])
				same(t, ends[0], ends[1])
				same(t, ends[0], their[0])
				if rounds > theirs {
					t.Errorf("%d rounds, and %d of theirs", rounds, theirs)
				}
				if size > theirSize+theirSize/4+200 {
					t.Errorf("%d bytes, and %d of theirs", size, theirSize)
				}
				x.Edit(t, 1)
				if rounds, _ := talk(t, ends[0], ends[1]); rounds > 2 {
					t.Errorf("%d rounds for one change", rounds)
				}
				same(t, ends[0], ends[1])
				for _, saved := range []bool{true, false} {
					for i := range 2 {
						ends[i].restart(t, saved)
					}
					if rounds, _ := talk(t, ends[0], ends[1]); rounds > 1 {
						t.Errorf("%d rounds for nothing", rounds)
					}
				}
				// Each end alone begins anew.
				for i := range 2 {
					x.Edit(t, i+2)
					ends[i].restart(t, true)
					talk(t, ends[0], ends[1])
					same(t, ends[0], ends[1])
				}
			})
		}
	}
}

func TestAgreesWithJSOverBadConnections(t *testing.T) {
	js := amjs.Start(t)
	for range *storms / 3 {
		r := random(t)
		a, b := diverged(t, r.IntN(20), r.IntN(10), r.IntN(10))
		x := script{js.Peer(t, chunksOf(b)...)}
		storm(t, r, a, x, func(int) { a.edit(t, "ours") }, func(n int) { x.Edit(t, n) })
	}
}

// A peer that has lost its document, or has an older one than it said, gets all it lacks.
func TestAgreesWithJSThatLostItsDocument(t *testing.T) {
	js := amjs.Start(t)
	for _, saved := range []bool{true, false} {
		a, b := diverged(t, 10, 3, 3)
		x := script{js.Peer(t, chunksOf(b)...)}
		talk(t, a, x)
		x.Lose(t)
		x.Restart(t, saved)
		talk(t, x, a)
		same(t, a, x)
		// And so it is when it is our end that lost changes.
		lost := newOurs(t, chunksOf(a)[:5]...)
		x.Restart(t, saved)
		talk(t, x, lost)
		same(t, lost, x)
	}
}

// Who takes no changes is sent none, and gives what it has.
func TestReadOnlyJS(t *testing.T) {
	js := amjs.Start(t)
	a, _ := diverged(t, 10, 3, 3)
	before := a.headsText(t)
	x := script{js.ReadOnlyPeer(t)}
	_, size := talk(t, x, a)
	if got := x.headsText(t); got != "" || size > 1000 {
		t.Errorf("%d bytes were sent to a peer that takes none, which has %s now", size, got)
	}
	if a.headsText(t) != before {
		t.Error("changed by a peer that has nothing")
	}
	x.Edit(t, 1)
	talk(t, x, a)
	if a.headsText(t) == before {
		t.Error("what a peer has that takes no changes is not taken")
	}
}
