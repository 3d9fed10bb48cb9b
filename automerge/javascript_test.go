//go:build cgo

package automerge_test

import (
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
	names := []string{"ada", "bob", "eve"}
	peers := map[string]*amjs.Peer{}
	for _, name := range names {
		peers[name] = js.Peer(t)
	}
	sync := func(name string) {
		t.Helper()
		for range 20 {
			message := peers[name].Generate(t)
			answer := must[[]byte](t)(store.Sync(ctx, id, name, message))
			if answer != nil {
				peers[name].Receive(t, answer)
			} else if message == nil {
				return
			}
		}
		t.Fatal("they don't come to an end")
	}
	for step := range 8 {
		for i, name := range names {
			if step%(i+1) == 0 { // who is offline goes on editing
				sync(name)
			}
			peers[name].Edit(t, 1+10*step+i)
		}
		switch step {
		case 2: // the browser was closed, and nobody said so
			peers["bob"].Restart(t, true)
		case 4:
			_ = must[int](t)(store.Fold(ctx, id))
		case 5:
			peers["ada"].Restart(t, false)
		}
	}
	for range 2 {
		for _, name := range names {
			sync(name)
		}
	}
	var want []string
	for _, h := range must[[]automerge.Hash](t)(store.Heads(ctx, id)) {
		want = append(want, h.String())
	}
	for _, name := range names {
		has := peers[name].Show(t)
		if !slices.Equal(has.Heads, want) {
			t.Errorf("%s has heads %v, want %v", name, has.Heads, want)
		}
		if got := column[string](t, pool, "select ($1::jsonb -> 0)::text", has.JSON)[0]; got != projected(t, pool, id) {
			t.Errorf("%s has  %s\nthe store %s", name, got, projected(t, pool, id))
		}
	}
	wellKept(t, pool)
}
