//go:build cgo

package automerge_test

import (
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/automerge"
)

// BenchmarkSyncRound takes a message of a peer that has one change more, and answers it; what is known about the peer is kept.
func BenchmarkSyncRound(b *testing.B) {
	onDocuments(b, allDocuments, func(b *testing.B, d *benched) {
		ctx, save := b.Context(), d.save
		if !d.whole {
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
		ok(b, peer.LoadIncremental(d.writer.next()))
		m, is := states[0].GenerateMessage()
		if !is {
			b.Fatal("the peer has nothing to say")
		}
		message, kept := m.Bytes(), states[1].Save()

		var id uuid.UUID
		var row int
		fresh := func() { id = d.fork() }
		ours := func() {
			if answer := must[[]byte](b)(d.store.Sync(ctx, id, "peer", message)); answer == nil {
				b.Fatal("no answer")
			}
		}
		d.compare(side{before: fresh, do: ours}, side{before: func() { row = d.row(save) }, do: func() {
			d.update(row, func(_ pgx.Tx, doc *engine.Doc) {
				state := must[*engine.SyncState](b)(engine.LoadSyncState(doc, kept))
				_ = must[*engine.SyncMessage](b)(state.ReceiveMessage(message))
				if m, ok := state.GenerateMessage(); ok {
					_ = m.Bytes()
				}
			})
		}}, false)
		fresh()
		ours()
		if want := headsOf(b, peer); len(want) != 1 || must[[]automerge.Hash](b)(d.store.Heads(ctx, id))[0] != want[0] {
			b.Error("the document has other heads than the peer")
		}
	})
}
