package amsync_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amsync"
)

// memory is a set of changes in memory.
type memory struct {
	changes []*amformat.Change
	index   map[amformat.Hash]int
	parked  []*amformat.Change
}

func newMemory(t testing.TB, chunks ...[]byte) *memory {
	t.Helper()
	m := &memory{index: map[amformat.Hash]int{}}
	m.add(t, chunks...)
	return m
}

// add adds chunks, among which documents may be.
func (m *memory) add(t testing.TB, data ...[]byte) {
	t.Helper()
	for _, d := range data {
		for _, c := range must[[]amformat.Chunk](t)(amformat.SplitChunks(d)) {
			if c.Kind == amformat.KindDocument {
				doc := must[*amformat.Document](t)(amformat.ParseDocument(c.Bytes, amformat.Limits{}))
				m.parked = append(m.parked, must[[]*amformat.Change](t)(doc.Changes(t.Context()))...)
			} else {
				m.parked = append(m.parked, must[*amformat.Change](t)(amformat.ParseChange(c.Bytes, amformat.Limits{})))
			}
		}
	}
	for again := true; again; {
		again = false
		var rest []*amformat.Change
		seen := map[amformat.Hash]bool{}
		for _, c := range m.parked {
			switch {
			case m.has(c.Hash) || seen[c.Hash]:
			case !slices.ContainsFunc(c.Deps, func(h amformat.Hash) bool { return !m.has(h) }):
				m.index[c.Hash] = len(m.changes)
				m.changes = append(m.changes, c)
				again = true
			default:
				seen[c.Hash] = true
				rest = append(rest, c)
			}
		}
		m.parked = rest
	}
}

func (m *memory) has(h amformat.Hash) bool {
	_, ok := m.index[h]
	return ok
}

func (m *memory) heads() (heads []amformat.Hash) {
	followed := map[amformat.Hash]bool{}
	for _, c := range m.changes {
		for _, d := range c.Deps {
			followed[d] = true
		}
	}
	for _, c := range m.changes {
		if !followed[c.Hash] {
			heads = append(heads, c.Hash)
		}
	}
	return amformat.SortHashes(heads)
}

func (m *memory) Heads(context.Context) ([]amformat.Hash, error) { return m.heads(), nil }

func (m *memory) Known(_ context.Context, hashes []amformat.Hash) (known []amformat.Hash, err error) {
	for _, h := range hashes {
		if m.has(h) {
			known = append(known, h)
		}
	}
	return known, nil
}

func (m *memory) Waiting(context.Context) (waiting, missing []amformat.Hash, err error) {
	for _, c := range m.parked {
		waiting = append(waiting, c.Hash)
	}
	for _, c := range m.parked {
		for _, d := range c.Deps {
			if !m.has(d) && !slices.Contains(waiting, d) {
				missing = append(missing, d)
			}
		}
	}
	return waiting, missing, nil
}

func (m *memory) Hashes(ctx context.Context, heads []amformat.Hash) (hashes []amformat.Hash, err error) {
	links, err := m.Since(ctx, heads)
	for _, l := range links {
		hashes = append(hashes, l.Hash)
	}
	return hashes, err
}

func (m *memory) Since(_ context.Context, heads []amformat.Hash) (links []amsync.Link, err error) {
	within := map[amformat.Hash]bool{}
	for _, h := range heads {
		if !m.has(h) {
			panic("a head that isn't there")
		}
		within[h] = true
	}
	for i := len(m.changes) - 1; i >= 0; i-- {
		if c := m.changes[i]; within[c.Hash] {
			for _, d := range c.Deps {
				within[d] = true
			}
		} else {
			links = append(links, amsync.Link{Hash: c.Hash, Deps: c.Deps})
		}
	}
	slices.Reverse(links)
	return links, nil
}

func (m *memory) Chunks(ctx context.Context, hashes []amformat.Hash, documents bool) (chunks [][]byte, err error) {
	if documents && 3*len(hashes) > len(m.changes) {
		save, err := m.Save(ctx)
		return [][]byte{save}, err
	}
	asked := map[amformat.Hash]bool{}
	for _, h := range hashes {
		asked[h] = true
	}
	for _, c := range m.changes {
		if asked[c.Hash] {
			chunks = append(chunks, c.Bytes)
		}
	}
	return chunks, nil
}

func (m *memory) Save(ctx context.Context) ([]byte, error) {
	if len(m.changes) == 0 {
		return nil, nil
	}
	return amformat.WriteDocument(ctx, nil, nil, m.changes, amformat.Limits{})
}

// edit adds a change of the actor on top of all.
func (m *memory) edit(t testing.TB, actor string) {
	t.Helper()
	d := amformat.Draft{Actor: amformat.ActorID(actor), Seq: 1, StartOp: 1, Deps: m.heads(), Actors: []amformat.ActorID{amformat.ActorID(actor)}}
	for _, c := range m.changes {
		if c.Actor == d.Actor {
			d.Seq = max(d.Seq, c.Seq+1)
		}
		d.StartOp = max(d.StartOp, c.MaxOp()+1)
	}
	c := must[*amformat.Change](t)(d.Write(amformat.Limits{}))
	m.add(t, c.Bytes)
}

// peer is an end of the protocol.
type peer interface {
	receive(t testing.TB, message []byte)
	generate(t testing.TB) []byte
	restart(t testing.TB, saved bool)
	headsText(t testing.TB) string
}

// ours is this package's.
type ours struct {
	*memory
	state *amsync.State
}

func newOurs(t testing.TB, chunks ...[]byte) *ours {
	return &ours{memory: newMemory(t, chunks...), state: &amsync.State{}}
}

func (o *ours) receive(t testing.TB, message []byte) {
	t.Helper()
	m := must[*amsync.Message](t)(amsync.ParseMessage(message, 1<<30))
	if !bytes.Equal(m.Bytes(), message) {
		t.Fatalf("read and written again, %x is %x", message, m.Bytes())
	}
	o.add(t, m.Changes...)
	ok(t, o.state.Receive(t.Context(), o, m))
}

func (o *ours) generate(t testing.TB) []byte {
	t.Helper()
	m := must[*amsync.Message](t)(o.state.Generate(t.Context(), o))
	o.state = must[*amsync.State](t)(amsync.ResumeState(o.state.Suspend())) // any process may go on
	if m == nil {
		return nil
	}
	return m.Bytes()
}

func (o *ours) restart(t testing.TB, saved bool) {
	t.Helper()
	before := o.state
	o.state = &amsync.State{}
	if saved {
		o.state = must[*amsync.State](t)(amsync.LoadState(before.Save()))
	}
}

func (o *ours) headsText(testing.TB) (text string) {
	for _, h := range o.heads() {
		text += h.String() + " "
	}
	return text
}

// talk lets two peers exchange messages until neither has anything to say, and returns how many rounds and bytes that took.
func talk(t testing.TB, a, b peer) (rounds, size int) {
	t.Helper()
	for {
		toB := a.generate(t)
		if toB != nil {
			b.receive(t, toB)
		}
		toA := b.generate(t)
		if toA != nil {
			a.receive(t, toA)
		}
		if toA == nil && toB == nil {
			return rounds, size
		}
		size += len(toA) + len(toB)
		if rounds++; rounds > 100 {
			t.Fatal("they don't come to an end")
		}
	}
}

func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		ok(t, err)
		return v
	}
}
