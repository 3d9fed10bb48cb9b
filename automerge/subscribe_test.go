//go:build cgo

package automerge_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// A subscriber that knows nothing but what it hears ends with the documents, whatever happens to its connections, and while they are folded.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 3, 6)
	chunks := changesOf(t, d)
	a := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0]}))
	b := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	other := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	go func() {
		for i, c := range chunks {
			for _, id := range []uuid.UUID{a, b, other} {
				if _, err := store.Apply(ctx, id, c); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			switch i % 5 {
			case 2: // its listener, too
				_, _ = pool.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ~* '^listen' and pid <> pg_backend_pid()")
			case 3:
				_, _ = store.Fold(ctx, a)
			case 4:
				_, _ = store.Fold(ctx, b)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	heard := map[uuid.UUID]*engine.Doc{a: engine.New(), b: engine.New()}
	heads := map[uuid.UUID][]automerge.Hash{}
	seen := map[uuid.UUID]map[automerge.Hash]bool{a: {}, b: {}}
	limited, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	o := automerge.SubscribeOptions{Since: map[uuid.UUID][]automerge.Hash{a: nil, b: nil}, Poll: 50 * time.Millisecond}
	for e, err := range store.Subscribe(limited, o, a, b) {
		ok(t, err)
		if !slices.Equal(e.Before, heads[e.Doc]) {
			t.Fatalf("a gap: %v, then %v", heads[e.Doc], e.Before)
		}
		heads[e.Doc] = e.Heads
		for _, c := range e.Changes {
			if seen[e.Doc][c.Hash] {
				t.Fatalf("%s twice", c.Hash)
			}
			for _, dep := range c.Deps {
				if !seen[e.Doc][dep] {
					t.Fatalf("%s before what it depends on", c.Hash)
				}
			}
			seen[e.Doc][c.Hash] = true
			ok(t, heard[e.Doc].LoadIncremental(c.Chunk))
		}
		if got := headsOf(t, heard[e.Doc]); !slices.Equal(got, e.Heads) {
			t.Fatalf("heads %v, want %v", got, e.Heads)
		}
		if slices.Equal(heads[a], headsOf(t, d)) && slices.Equal(heads[b], headsOf(t, d)) {
			break
		}
	}
}

// Events are heard at once, with patches where they are wanted; the end of a document is an event.
func TestSubscribeListens(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	d := engine.New()
	ok(t, d.Path("x").Set("one"))
	_ = must[engine.ChangeHash](t)(d.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save()}))
	limited, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	go func() {
		time.Sleep(200 * time.Millisecond)
		if err := d.Path("x").Set("two"); err != nil {
			t.Error(err)
		}
		_, _ = d.Commit("")
		if _, err := store.MergeSave(ctx, id, d.Save()); err != nil {
			t.Error(err)
		}
	}()
	// Nothing is looked for in that time: it has to be heard.
	n := 0
	for e, err := range store.Subscribe(limited, automerge.SubscribeOptions{Patches: true, Poll: time.Hour}, id) {
		ok(t, err)
		n++
		if n == 1 {
			if len(e.Changes) != 1 || len(e.Patches) != 1 || e.Patches[0].New.Any() != "two" {
				t.Fatalf("got %+v", e)
			}
			break
		}
	}
	_ = must[int64](t)(store.Delete(ctx, id))
	for e, err := range store.Subscribe(limited, automerge.SubscribeOptions{}, id) {
		ok(t, err)
		if !e.Deleted {
			t.Errorf("got %+v", e)
		}
		break
	}
	cancel()
	for _, err := range store.Subscribe(limited, automerge.SubscribeOptions{}, id) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}
