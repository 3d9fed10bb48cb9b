//go:build cgo

package automerge_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// client is an engine that syncs with the store.
type client struct {
	doc   *engine.Doc
	state *engine.SyncState
}

func (c *client) next(t testing.TB) []byte {
	t.Helper()
	if m, valid := c.state.GenerateMessage(); valid {
		return m.Bytes()
	}
	return nil
}

func (c *client) receive(t testing.TB, message []byte) {
	t.Helper()
	_ = must[*engine.SyncMessage](t)(c.state.ReceiveMessage(message))
}

// syncs carries messages until nobody has anything to say.
func (c *client) syncs(t testing.TB, sync func(message []byte) ([]byte, error)) (rounds int) {
	t.Helper()
	for rounds = 1; rounds < 30; rounds++ {
		message := c.next(t)
		answer := must[[]byte](t)(sync(message))
		if answer != nil {
			c.receive(t, answer)
		}
		if message == nil && answer == nil {
			return rounds
		}
	}
	t.Fatal("they don't come to an end")
	return 0
}

// Engines sync with a document through Automerge's protocol, with state in memory and in the database, whatever each of them has, and while the document is folded.
func TestSync(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	for round := range 4 {
		base := written(t, r, 2, 3)
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
		if round%2 == 0 {
			_ = must[automerge.Applied](t)(store.MergeSave(ctx, id, base.Save()))
		}
		clients := make([]*client, 3)
		for i := range clients {
			d := must[*engine.Doc](t)(base.Fork())
			if i == 2 && round%2 == 0 {
				d = engine.New() // has nothing yet
			}
			clients[i] = &client{doc: d, state: engine.NewSyncState(d)}
		}
		inMemory := &automerge.SyncState{}
		for step := range 6 {
			for i, c := range clients {
				if c.doc.Path("title").Text().Len() > 0 || step > 1 {
					edit(t, r, c.doc)
					_ = must[engine.ChangeHash](t)(c.doc.Commit("", engine.CommitOptions{AllowEmpty: true}))
				}
				n := c.syncs(t, func(m []byte) ([]byte, error) {
					if i == 0 {
						return store.SyncWith(ctx, id, inMemory, m)
					}
					return store.Sync(ctx, id, string(rune('a'+i)), m)
				})
				if n > 8 {
					t.Errorf("%d rounds", n)
				}
				if r.IntN(3) == 0 {
					_ = must[int](t)(store.Fold(ctx, id))
				}
				if heads := must[[]automerge.Hash](t)(store.Heads(ctx, id)); !slices.Equal(heads, headsOf(t, c.doc)) {
					t.Fatalf("round %d, step %d, client %d: heads %v, and %v", round, step, i, heads, headsOf(t, c.doc))
				}
			}
			if step == 3 { // it connects anew
				clients[1].state = engine.NewSyncState(clients[1].doc)
				ok(t, store.ForgetPeer(ctx, id, "b"))
			}
		}
		if got, want := projected(t, pool, id), engineJSON(t, pool, clients[2].doc); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	wellKept(t, pool)
}

// A message is read as carefully as a change.
func TestSyncHostileMessages(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx, r := t.Context(), random(t)
	d := written(t, r, 2, 3)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save()}))
	fork := must[*engine.Doc](t)(d.Fork())
	edit(t, r, fork)
	_ = must[engine.ChangeHash](t)(fork.Commit("", engine.CommitOptions{AllowEmpty: true}))
	c := &client{doc: fork, state: engine.NewSyncState(fork)}
	var messages [][]byte
	var st automerge.SyncState
	for range 3 {
		if m := c.next(t); m != nil {
			messages = append(messages, m)
			if answer := must[[]byte](t)(store.SyncWith(ctx, id, &st, m)); answer != nil {
				messages = append(messages, answer)
				c.receive(t, answer)
			}
		}
	}
	for range 300 {
		m := slices.Clone(messages[r.IntN(len(messages))])
		switch rand.IntN(3) {
		case 0:
			m = m[:r.IntN(len(m))]
		case 1:
			m[r.IntN(len(m))] ^= byte(1 + r.IntN(255))
		default:
			m = slices.Insert(m, r.IntN(len(m)), byte(r.IntN(256)), 0xFF, 0xFF)
		}
		var st automerge.SyncState
		if _, err := store.SyncWith(ctx, id, &st, m); err != nil {
			var e *automerge.Error
			if !asError(err, &e) {
				t.Fatalf("%x: %v", m, err)
			}
		}
	}
	_, err := store.SyncWith(ctx, uuid.New(), &st, nil)
	refuses(t, err, automerge.ErrNotFound)
	_, err = store.Sync(ctx, uuid.New(), "x", nil)
	refuses(t, err, automerge.ErrNotFound)
	_, err = store.Sync(ctx, id, "x", []byte("hello"))
	refuses(t, err, automerge.ErrMalformed)
}
