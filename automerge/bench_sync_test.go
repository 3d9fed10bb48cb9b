//go:build cgo

package automerge_test

import (
	"fmt"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/jackc/pgx/v5"
)

// BenchmarkSyncRound is a change of a client on its way: a message and its answer. Of text3mb there is none, because the client would load it.
func BenchmarkSyncRound(b *testing.B) {
	onDocuments(b, []string{"typed5k", "items2k", "items20k", "text300k"}, func(b *testing.B, d *benched) {
		ctx := b.Context()
		doc := must[*engine.Doc](b)(engine.Load(d.save))
		c := &client{doc: doc, state: engine.NewSyncState(doc)}
		sync := func(m []byte) ([]byte, error) { return d.store.Sync(ctx, d.id, "peer", m) }
		n := 0
		var message, answer []byte
		edit := func() {
			_ = c.syncs(b, sync)
			d.update1()
			n++
			ok(b, doc.Path("status").Set(fmt.Sprint(n)))
			_ = must[engine.ChangeHash](b)(doc.Commit(""))
			message = c.next(b)
		}
		d.compare(side{before: edit, do: func() { answer = must[[]byte](b)(sync(message)) }, after: func() {
			if answer == nil {
				b.Fatal("no answer")
			}
			c.receive(b, answer)
		}}, side{before: edit, do: func() {
			d.update(1, func(_ pgx.Tx, doc *engine.Doc) {
				state := engine.NewSyncState(doc)
				_ = must[*engine.SyncMessage](b)(state.ReceiveMessage(message))
				state.GenerateMessage()
			})
		}, after: func() { c.receive(b, must[[]byte](b)(sync(message))) }}, false)
		_ = c.syncs(b, sync)
		d.agree(d.id, func() *engine.Doc { return doc }, n, fmt.Sprint(n))
		if heads := headsOf(b, doc); !must[bool](b)(d.store.Contains(ctx, d.id, heads...)) {
			b.Fatalf("%v are not there", heads)
		}
	})
}
