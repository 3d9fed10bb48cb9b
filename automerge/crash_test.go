//go:build cgo

package automerge_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

// The server is killed while sessions apply, merge and fold: each document is whole afterwards, has every change that was acknowledged, and takes the rest.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{Own: true})
	pool := must[*pgxpool.Pool](t)(pgxpool.New(ctx, server.ConnString("postgres")))
	t.Cleanup(pool.Close)
	ok(t, automerge.Install(ctx, pool))
	store := automerge.New(pool)
	r := random(t)
	d := written(t, r, 3, 8)
	chunks := changesOf(t, d)
	ids := make([]uuid.UUID, 4)
	for i := range ids {
		ids[i] = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: i%2 == 0, Paths: []string{"status", "meta"}}))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[uuid.UUID][]int{}
	dead := make(chan struct{})
	for range 4 {
		order := rand.Perm(len(chunks))
		all.Go(func() {
			for _, n := range order {
				for _, id := range ids {
					select {
					case <-dead:
						return
					default:
					}
					if _, err := store.ApplyOrPark(ctx, id, chunks[n]); err == nil {
						mu.Lock()
						acknowledged[id] = append(acknowledged[id], n)
						mu.Unlock()
					}
					if rand.IntN(4) == 0 {
						_, _ = store.Fold(ctx, id)
					}
				}
			}
		})
	}
	time.Sleep(time.Duration(50+r.IntN(300)) * time.Millisecond)
	ok(t, server.Kill(context.WithoutCancel(ctx)))
	close(dead)
	all.Wait()
	ok(t, server.Restart(ctx))
	pool.Reset()
	wellKept(t, pool)
	n := 0
	for _, id := range ids {
		n += len(acknowledged[id])
		there := map[string]bool{}
		for _, h := range column[[]byte](t, pool, "select hash from automerge.parked where doc = $1", id) {
			there[string(h)] = true
		}
		for _, c := range must[[]automerge.Change](t)(store.ChangeMeta(ctx, id)) {
			there[string(c.Hash[:])] = true
		}
		for _, at := range acknowledged[id] {
			h := hashOf(t, pool, chunks[at])
			if !there[string(h)] {
				t.Errorf("%x was acknowledged and is lost", h)
			}
		}
		_ = must[automerge.Applied](t)(store.Apply(ctx, id, chunks...))
		if got := must[[]automerge.Hash](t)(store.Heads(ctx, id)); !slices.Equal(got, headsOf(t, d)) {
			t.Errorf("heads %v, want %v", got, headsOf(t, d))
		}
	}
	if n == 0 {
		t.Error("it was killed before anything was acknowledged")
	}
	if got, want := projected(t, pool, ids[0]), engineJSON(t, pool, d); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	wellKept(t, pool)
}

func hashOf(t testing.TB, pool *pgxpool.Pool, chunk []byte) []byte {
	t.Helper()
	return column[[]byte](t, pool, "select sha256(substring($1::bytea from 9))", chunk)[0]
}
