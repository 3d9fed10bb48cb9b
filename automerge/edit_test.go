//go:build cgo

package automerge_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/automerge"
)

// Edits of many goroutines, of other processes and of transactions all count, each once.
func TestEdit(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	others := automerge.New(pool) // with a cache of its own
	ctx := t.Context()
	d := engine.New()
	ok(t, d.Path("n").Set(engine.NewCounter(0)))
	_ = must[engine.ChangeHash](t)(d.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save(), Whole: true}))
	inc := func(doc *automerge.EngineDoc) error { return doc.Path("n").Counter().Inc(1) }
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for range 5 {
				s := store
				switch i {
				case 1, 2:
					s = others
				case 3:
					tx, err := pool.Begin(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := store.In(tx).Edit(ctx, id, inc); err != nil {
						t.Error(err)
					}
					if err := tx.Commit(ctx); err != nil {
						t.Error(err)
					}
					continue
				}
				if _, err := s.Edit(ctx, id, inc); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := must[int](t)(automerge.Get[int](ctx, store, id, "n")); n != 30 {
		t.Errorf("counted to %d", n)
	}
	failed := errors.New("failed")
	if _, err := store.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return errors.Join(inc(doc), failed) }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	_ = must[automerge.Applied](t)(store.In(tx).Edit(ctx, id, inc))
	ok(t, tx.Rollback(ctx))
	if applied := must[automerge.Applied](t)(store.Edit(ctx, id, func(*automerge.EngineDoc) error { return nil })); applied.Added != 0 {
		t.Errorf("nothing was done, and %+v", applied)
	}
	_ = must[automerge.Applied](t)(store.Edit(ctx, id, inc))
	if n := must[int](t)(automerge.Get[int](ctx, store, id, "n")); n != 31 {
		t.Errorf("counted to %d", n)
	}
	_, err := store.Edit(ctx, uuid.New(), inc)
	refuses(t, err, automerge.ErrNotFound)
	if year := must[[]automerge.Change](t)(store.ChangeMeta(ctx, id))[1].Time.Year(); year < 2020 || year > 2100 {
		t.Errorf("changes were made in %d", year)
	}
	wellKept(t, pool)
}

// However many documents are edited, no more are kept than may be, and all are right.
func TestEditCache(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	ctx := t.Context()
	for _, most := range []int64{-1, 1, 200_000, 0} {
		store := automerge.NewWith(pool, automerge.Options{Edit: automerge.EditOptions{CacheBytes: most}})
		ids := make([]uuid.UUID, 6)
		for i := range ids {
			ids[i] = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"text": "words"}`)}))
		}
		for round := range 3 {
			for i, id := range ids {
				_ = must[automerge.Applied](t)(store.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return doc.Path(fmt.Sprintf("k%d", round)).Set(i) }))
			}
		}
		for i, id := range ids {
			if got := must[int](t)(automerge.Get[int](ctx, store, id, "k2")); got != i {
				t.Errorf("got %d", got)
			}
		}
	}
}
