//go:build cgo

package automerge_test

import (
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// BenchmarkSyncRound takes a message of a peer that has one change more, and answers it; what is known about the peer is kept.
func BenchmarkSyncRound(b *testing.B) {
	d := newBed(b, "on")
	ctx := b.Context()
	eachDoc(b, func(b *testing.B, name string, save []byte, next [][]byte, theirs bool) {
		if name == "text3mb" && !*engineText {
			b.Skip("making the messages takes automerge-go half a minute and 5 GB: see the flag automerge.text3mb")
		}
		// A peer that has synced makes a change.
		peer, server := must[*engine.Doc](b)(engine.Load(save)), must[*engine.Doc](b)(engine.Load(save))
		states := [2]*engine.SyncState{engine.NewSyncState(peer), engine.NewSyncState(server)}
		for range 4 {
			var said [2][]byte
			for i := range states {
				if m, ok := states[i].GenerateMessage(); ok {
					said[i] = m.Bytes()
				}
			}
			for i, message := range said {
				if message != nil {
					_ = must[*engine.SyncMessage](b)(states[1-i].ReceiveMessage(message))
				}
			}
		}
		ok(b, peer.LoadIncremental(next[0]))
		m, is := states[0].GenerateMessage()
		if !is {
			b.Fatal("the peer has nothing to say")
		}
		message, kept := m.Bytes(), states[1].Save()

		base := must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: save}))
		var id uuid.UUID
		fresh := func() { id = must[uuid.UUID](b)(d.store.Fork(ctx, base, automerge.Now, automerge.CreateParams{})) }
		fresh()
		var other func()
		if theirs {
			other = d.asWhole(b, save, func(doc *engine.Doc) {
				state := must[*engine.SyncState](b)(engine.LoadSyncState(doc, kept))
				_ = must[*engine.SyncMessage](b)(state.ReceiveMessage(message))
				if m, ok := state.GenerateMessage(); ok {
					_ = m.Bytes()
				}
			})
		}
		ours := func() {
			if answer := must[[]byte](b)(d.store.Sync(ctx, id, "peer", message)); answer == nil {
				b.Fatal("no answer")
			}
		}
		compare(b, fresh, ours, other)
		fresh()
		ours()
		if want := headsOf(b, peer); len(want) != 1 || must[[]automerge.Hash](b)(d.store.Heads(ctx, id))[0] != want[0] {
			b.Error("the document has other heads than the peer")
		}
	})
}
