//go:build cgo

package automerge_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// compressed is a change as Automerge compresses it.
func compressed(t testing.TB, chunk []byte) []byte {
	t.Helper()
	_, n := binary.Uvarint(chunk[9:])
	var deflated bytes.Buffer
	w := must[*flate.Writer](t)(flate.NewWriter(&deflated, flate.BestSpeed))
	_ = must[int](t)(w.Write(chunk[9+n:]))
	ok(t, w.Close())
	b := append(slices.Clone(chunk[:8]), 2)
	b = binary.AppendUvarint(b, uint64(deflated.Len()))
	return append(b, deflated.Bytes()...)
}

// What SQL clients append becomes part of documents once a worker has validated it; what is bad stays with the reason.
func TestWorkQueue(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 2, 3)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
	other := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	for i, c := range chunks {
		if i%2 == 1 {
			c = compressed(t, c) // in which nothing can be looked at
		}
		if i == 0 {
			run(t, pool, "select 1")
		}
		_, err := pool.Exec(ctx, "select automerge.append($1, $2)", id, c)
		if sqlState(err) == "AM003" { // it depends on one that is compressed
			_, err = pool.Exec(ctx, "select automerge.append($1, $2)", id, compressed(t, c))
		}
		ok(t, err)
	}
	for _, bad := range [][]byte{fixture(t, "crash-inc-0.bin"), d.Save()[:len(d.Save())-1]} {
		_, err := pool.Exec(ctx, "insert into automerge.queue (doc, chunk) values ($1, $2)", id, bad)
		ok(t, err)
	}
	_, err := pool.Exec(ctx, "select automerge.append($1, $2)", other, d.Save())
	ok(t, err)
	n := must[int](t)(store.WorkQueue(ctx))
	if n != len(chunks)+3 {
		t.Errorf("looked at %d", n)
	}
	for _, doc := range []uuid.UUID{id, other} {
		if heads := must[[]automerge.Hash](t)(store.Heads(ctx, doc)); !slices.Equal(heads, headsOf(t, d)) {
			t.Errorf("heads %v, want %v", heads, headsOf(t, d))
		}
	}
	if got := projected(t, pool, id); got != engineJSON(t, pool, d) {
		t.Errorf("got %s", got)
	}
	if left := text(t, pool, "select code, reason <> '', tried_at is not null from automerge.queue order by id"); left != "(AM005,t,t)\n(AM005,t,t)" {
		t.Errorf("left: %s", left)
	}
	if n := must[int](t)(store.WorkQueue(ctx)); n != 0 {
		t.Errorf("looked at %d again", n)
	}
	wellKept(t, pool)
}

// In the background documents are folded and the queue is worked on, by several processes at once, while others write.
func TestRun(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	d := written(t, random(t), 3, 6)
	chunks := changesOf(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	for range 2 {
		go func() {
			done <- store.Run(ctx, automerge.RunOptions{Queue: 5 * time.Millisecond, Fold: 5 * time.Millisecond, FoldAfter: 3, OnError: func(id uuid.UUID, err error) { t.Errorf("%s: %v", id, err) }})
		}()
	}
	ids := make([]uuid.UUID, 3)
	for i := range ids {
		ids[i] = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Paths: []string{"status"}}))
	}
	for i, c := range chunks {
		for _, id := range ids {
			if i%3 == 1 {
				_, err := pool.Exec(ctx, "select automerge.append($1, $2)", id, compressed(t, c))
				ok(t, err)
			} else {
				_ = must[automerge.Applied](t)(store.ApplyOrPark(ctx, id, c))
			}
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for column[bool](t, pool, "select exists (select from automerge.queue) or exists (select from automerge.document where changes - folded >= 3)")[0] && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	ctx = t.Context()
	for _, id := range ids {
		info := must[automerge.Document](t)(store.Document(ctx, id))
		if !slices.Equal(info.Heads, headsOf(t, d)) || info.Folded == 0 {
			t.Errorf("got %+v", info)
		}
		sameChanges(t, store, id, d)
	}
	wellKept(t, pool)
}
