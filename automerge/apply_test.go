//go:build cgo

package automerge_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/automerge"
)

func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// In whatever order, number and grouping changes come, the document is the same.
func TestMergingIsUnion(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx, r := t.Context(), random(t)
	for range 3 {
		d := written(t, r, 3, 4)
		chunks, heads := changesOf(t, d), headsOf(t, d)
		for range 3 {
			id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
			calls := slices.Concat(chunks, chunks[:r.IntN(len(chunks))])
			r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
			for len(calls) > 0 {
				n := 1 + r.IntN(min(len(calls), 6))
				_, err := store.ApplyOrPark(ctx, id, calls[:n]...)
				ok(t, err)
				calls = calls[n:]
			}
			info := must[automerge.Document](t)(store.Document(ctx, id))
			if !slices.Equal(info.Heads, heads) || info.Changes != int64(len(chunks)) || info.Parked != 0 {
				t.Fatalf("got %+v, want heads %v and %d changes", info, heads, len(chunks))
			}
			loaded := must[*engine.Doc](t)(engine.Load(must[[]byte](t)(store.Save(ctx, id))))
			if !slices.Equal(headsOf(t, loaded), heads) {
				t.Fatal("the save has other heads")
			}
		}
	}
}

func TestApplyAgainWritesNothing(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	chunks := changesOf(t, written(t, random(t), 2, 2))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks, nil)}))
	before := text(t, pool, "select xmin, xmax, * from automerge.document")
	applied := must[automerge.Applied](t)(store.Apply(ctx, id, chunks...))
	if applied.Added != 0 || applied.Changes != int64(len(chunks)) {
		t.Errorf("got %+v", applied)
	}
	if after := text(t, pool, "select xmin, xmax, * from automerge.document"); after != before {
		t.Errorf("%s was written or locked: %s", before, after)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 2, 3)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0]}))
	last := chunks[len(chunks)-1]
	apply := func(data ...[]byte) error {
		_, err := store.Apply(ctx, id, data...)
		return err
	}
	// Missing ones are named.
	e := refuses(t, apply(last), automerge.ErrMissing)
	lastChange := must[[]*engine.Change](t)(engine.LoadChanges(bytes.Join(chunks, nil)))[len(chunks)-1]
	for _, h := range e.Hashes {
		if !slices.Contains(lastChange.Dependencies(), engine.ChangeHash(h)) {
			t.Errorf("%s is no dependency", h)
		}
	}
	if len(e.Hashes) == 0 || e.Doc != id {
		t.Errorf("got %+v", e)
	}
	damaged := slices.Clone(chunks[1])
	damaged[len(damaged)-1] ^= 1
	refuses(t, apply(damaged), automerge.ErrMalformed)
	refuses(t, apply(chunks[1][:len(chunks[1])-3]), automerge.ErrMalformed)
	refuses(t, apply(append(slices.Clone(chunks[1]), 1, 2, 3)), automerge.ErrMalformed)
	refuses(t, apply([]byte("hello")), automerge.ErrMalformed)
	_, err := store.Apply(ctx, uuid.New(), chunks[0])
	refuses(t, err, automerge.ErrNotFound)
	_, err = store.Create(ctx, automerge.CreateParams{ID: id})
	refuses(t, err, automerge.ErrExists)
	// Good changes beside a bad one are not taken either.
	refuses(t, apply(chunks[1], damaged), automerge.ErrMalformed)
	if got := must[[]automerge.Hash](t)(store.Heads(ctx, id)); len(got) != 1 || must[automerge.Document](t)(store.Document(ctx, id)).Changes != 1 {
		t.Errorf("after refusals: %v", got)
	}
	// Two programs with one actor id.
	a := engine.New()
	b := engine.New()
	ok(t, b.SetActorID(a.ActorID()))
	ok(t, a.Path("x").Set(1))
	ok(t, b.Path("x").Set(2))
	_, _ = must[engine.ChangeHash](t)(a.Commit("")), must[engine.ChangeHash](t)(b.Commit(""))
	ok(t, apply(changesOf(t, a)[0]))
	refuses(t, apply(changesOf(t, b)[0]), automerge.ErrReused)
	refuses(t, apply(changesOf(t, b)[0]), automerge.ErrReused)
	// Limits.
	for name, limits := range map[string]automerge.Limits{
		"DocumentBytes": {DocumentBytes: 10}, "DocumentOps": {DocumentOps: 3}, "DocumentChanges": {DocumentChanges: 2}, "operations": {ChunkOps: 1}, "bytes": {ChunkBytes: 10},
	} {
		_, err := automerge.NewWith(pool, automerge.Options{Limits: limits}).Apply(ctx, id, chunks...)
		if e := refuses(t, err, automerge.ErrLimit); e.Limit != name {
			t.Errorf("%s: %+v", name, e)
		}
	}
	_, err = automerge.NewWith(pool, automerge.Options{Limits: automerge.Limits{Parked: 1}}).ApplyOrPark(ctx, id, chunks[len(chunks)-2:]...)
	refuses(t, err, automerge.ErrLimit)
}

// A refusal leaves the caller's transaction usable, and everything is part of it.
func TestInTransaction(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	chunks := changesOf(t, written(t, random(t), 2, 2))
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	in := store.In(tx)
	id := must[uuid.UUID](t)(in.Create(ctx, automerge.CreateParams{Content: chunks[0]}))
	_, err := in.Apply(ctx, id, chunks[len(chunks)-1])
	refuses(t, err, automerge.ErrMissing)
	_, err = in.Apply(ctx, id, chunks...)
	ok(t, err)
	if _, err := store.Heads(ctx, id); err == nil {
		t.Error("seen before the commit")
	}
	ok(t, tx.Commit(ctx))
	if n := len(must[[]automerge.Change](t)(store.Changes(ctx, id))); n != len(chunks) {
		t.Errorf("%d changes", n)
	}
}

// Sessions that write one document at once end with the union.
func TestConcurrentApply(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 4, 6)
	chunks, heads := changesOf(t, d), headsOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	var all sync.WaitGroup
	for range 6 {
		mine := slices.Clone(chunks)
		rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		all.Go(func() {
			for _, c := range mine {
				if _, err := store.ApplyOrPark(ctx, id, c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	info := must[automerge.Document](t)(store.Document(ctx, id))
	if !slices.Equal(info.Heads, heads) || info.Changes != int64(len(chunks)) || info.Parked != 0 {
		t.Errorf("got %+v, want heads %v and %d changes", info, heads, len(chunks))
	}
	if bad := text(t, pool, "select count(*), min(place), max(place), count(distinct place) from automerge.change"); bad != fmt.Sprintf("(%[1]d,1,%[1]d,%[1]d)", len(chunks)) {
		t.Errorf("places: %s", bad)
	}
}

// At REPEATABLE READ a writer that would not see another's changes has to begin anew.
func TestRepeatableReadWriters(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	chunks := changesOf(t, written(t, random(t), 2, 2))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0]}))
	tx := must[pgx.Tx](t)(pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
	defer tx.Rollback(ctx)
	_ = must[[]automerge.Hash](t)(store.In(tx).Heads(ctx, id))
	_ = must[automerge.Applied](t)(store.Apply(ctx, id, chunks...))
	if _, err := store.In(tx).Apply(ctx, id, chunks...); sqlState(err) != "40001" {
		t.Errorf("got %v", err)
	}
}

func TestChangesSince(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 3, 4)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks, nil)}))
	all := must[[]*engine.Change](t)(d.Changes())
	for range 20 {
		since := all[rand.IntN(len(all))].Hash()
		want := map[automerge.Hash]bool{}
		for _, c := range must[[]*engine.Change](t)(d.Changes(since)) {
			want[automerge.Hash(c.Hash())] = true
		}
		got := must[[]automerge.Change](t)(store.Changes(ctx, id, automerge.Hash(since), automerge.Hash{1}))
		if len(got) != len(want) {
			t.Fatalf("%d changes, want %d", len(got), len(want))
		}
		for _, c := range got {
			if !want[c.Hash] || len(c.Chunk) == 0 || c.Actor == "" || c.Seq == 0 {
				t.Errorf("got %+v", c)
			}
		}
		f := must[*engine.Doc](t)(d.Fork(since))
		ok(t, f.LoadIncremental(must[[]byte](t)(store.SaveSince(ctx, id, automerge.Hash(since)))))
		if !slices.Equal(headsOf(t, f), headsOf(t, d)) {
			t.Error("the rest does not complete it")
		}
	}
	contains := func(h automerge.Hash) bool { return must[bool](t)(store.Contains(ctx, id, h)) }
	if !contains(automerge.Hash(all[0].Hash())) || contains(automerge.Hash{1}) || !must[bool](t)(store.Contains(ctx, id, headsOf(t, d)...)) {
		t.Error("contains")
	}
	if n := must[int64](t)(store.Delete(ctx, id, uuid.New())); n != 1 {
		t.Errorf("%d deleted", n)
	}
	_, err := store.Heads(ctx, id)
	refuses(t, err, automerge.ErrNotFound)
}
