package amsync_test

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var storms = flag.Int("amsync.storms", 100, "how many bad connections the tests make")

// diverged are two peers that have some changes in common, and some each alone.
func diverged(t testing.TB, common, left, right int) (a, b *ours) {
	t.Helper()
	a = newOurs(t)
	for range common {
		a.edit(t, "common")
	}
	b = newOurs(t)
	for _, c := range a.changes {
		b.add(t, c.Bytes)
	}
	for range left {
		a.edit(t, "left")
	}
	for range right {
		b.edit(t, "right")
	}
	return a, b
}

func same(t testing.TB, a, b peer) {
	t.Helper()
	if x, y := a.headsText(t), b.headsText(t); x != y {
		t.Fatalf("they differ: %s and %s", x, y)
	}
}

func TestPeersAgree(t *testing.T) {
	for _, c := range []struct {
		name                string
		common, left, right int
		rounds              int
	}{
		{"both empty", 0, 0, 0, 1}, {"equal", 5, 0, 0, 1}, {"empty to full", 0, 0, 9, 2}, {"full to empty", 0, 9, 0, 2}, {"one ahead", 5, 3, 0, 2},
		{"one behind", 5, 0, 3, 2}, {"diverged", 5, 3, 4, 2}, {"nothing in common", 0, 3, 4, 2}, {"many", 400, 100, 100, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := diverged(t, c.common, c.left, c.right)
			rounds, _ := talk(t, a, b)
			same(t, a, b)
			if rounds > c.rounds {
				t.Errorf("%d rounds", rounds)
			}
			// What comes later is sent at once.
			a.edit(t, "later")
			if rounds, _ := talk(t, a, b); rounds > 1 {
				t.Errorf("%d rounds for one change", rounds)
			}
			same(t, a, b)
			a.edit(t, "a")
			b.edit(t, "b")
			if rounds, _ := talk(t, a, b); rounds > 2 {
				t.Errorf("%d rounds for one change each", rounds)
			}
			same(t, a, b)
			for _, saved := range []bool{true, false} {
				a.restart(t, saved)
				b.edit(t, "b")
				if rounds, _ := talk(t, a, b); rounds > 3 {
					t.Errorf("%d rounds after a restart", rounds)
				}
				same(t, a, b)
			}
		})
	}
}

// A change is sent once.
func TestNothingIsSentTwice(t *testing.T) {
	a, b := diverged(t, 50, 10, 10)
	talk(t, a, b)
	for range 20 {
		a.edit(t, "left")
		m := a.generate(t)
		if len(m) > 400 {
			t.Fatalf("%d bytes for one change", len(m))
		}
		if again := a.generate(t); again != nil {
			t.Fatal("said twice")
		}
		b.receive(t, m)
		reply := b.generate(t)
		if len(reply) > 150 {
			t.Fatalf("%d bytes for an acknowledgement", len(reply))
		}
		a.receive(t, reply)
		if a.generate(t) != nil {
			t.Fatal("an acknowledgement is answered")
		}
	}
}

// Whatever happens to messages and peers, they agree once messages arrive.
func TestPeersAgreeOverBadConnections(t *testing.T) {
	for range *storms {
		r := random(t)
		a, b := diverged(t, r.IntN(20), r.IntN(10), r.IntN(10))
		storm(t, r, a, b, func(edits int) { a.edit(t, "a") }, func(edits int) { b.edit(t, "b") })
	}
}

// storm lets peers edit while messages are lost, doubled and come late, and connections break; then it lets them talk.
func storm(t testing.TB, r *rand.Rand, a, b peer, editA, editB func(n int)) {
	t.Helper()
	var toA, toB [][]byte
	deliver := func(to peer, queue [][]byte) [][]byte {
		if len(queue) == 0 {
			return queue
		}
		i := r.IntN(min(len(queue), 1+r.IntN(3)))
		m := queue[i]
		if r.IntN(4) > 0 {
			queue = append(queue[:i:i], queue[i+1:]...)
		}
		if r.IntN(10) > 0 {
			to.receive(t, m)
		}
		return queue
	}
	for n := range 30 {
		switch r.IntN(8) {
		case 0:
			editA(n + 1)
		case 1:
			editB(n + 1)
		case 2, 3:
			if m := a.generate(t); m != nil {
				toB = append(toB, m)
			}
		case 4:
			if m := b.generate(t); m != nil {
				toA = append(toA, m)
			}
		case 5:
			toA = deliver(a, toA)
		case 6:
			toB = deliver(b, toB)
		case 7:
			if r.IntN(4) == 0 {
				a.restart(t, r.IntN(2) == 0)
			}
			if r.IntN(4) == 0 {
				b.restart(t, r.IntN(2) == 0)
			}
		}
	}
	saved := r.IntN(2) == 0
	a.restart(t, saved)
	b.restart(t, saved)
	talk(t, a, b)
	same(t, a, b)
}
