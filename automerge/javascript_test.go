//go:build cgo

package automerge_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/amjs"
)

// JavaScript clients sync with a document, and with each other through it, offline for a while now and then.
func TestSyncWithJavaScript(t *testing.T) {
	t.Parallel()
	js := amjs.Start(t)
	store, pool := installed(t)
	ctx := t.Context()
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
	peers := []string{"ada", "bob", "eve"}
	state := map[string]amjs.State{}
	sync := func(peer, edit string) {
		t.Helper()
		state[peer] = js.Sync(t, peer, nil, edit)
		for range 20 {
			message := state[peer].Message
			answer := must[[]byte](t)(store.Sync(ctx, id, peer, message))
			if message == nil && answer == nil {
				return
			}
			state[peer] = js.Sync(t, peer, answer, "")
		}
		t.Fatal("they don't come to an end")
	}
	for step := range 8 {
		for i, peer := range peers {
			if step%(i+1) == 0 {
				sync(peer, fmt.Sprintf("%s %d", peer, step))
			} else {
				_ = js.Sync(t, "nobody", nil, "") // who is offline
			}
		}
		if step == 4 {
			_ = must[int](t)(store.Fold(ctx, id))
		}
	}
	for range 2 {
		for _, peer := range peers {
			sync(peer, "")
		}
	}
	var want []string
	for _, h := range must[[]automerge.Hash](t)(store.Heads(ctx, id)) {
		want = append(want, h.String())
	}
	for _, peer := range peers {
		if !slices.Equal(state[peer].Heads, want) {
			t.Errorf("%s has heads %v, want %v", peer, state[peer].Heads, want)
		}
		if got := column[string](t, pool, "select ($1::jsonb)::text", state[peer].JSON)[0]; got != projected(t, pool, id) {
			t.Errorf("%s has  %s\nthe store %s", peer, got, projected(t, pool, id))
		}
	}
	wellKept(t, pool)
}
