//go:build cgo

package automerge_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

// wellKept looks at what must hold of every document between transactions.
func wellKept(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if bad := text(t, pool, `select d.id, d.changes, d.folded, d.ops, d.bytes, s.changes, n, o, b from automerge.document d left join automerge.snapshot s on s.doc = d.id
		left join lateral (select count(*) n, sum(ops) o, sum(length(chunk)) b, min(place) p from automerge.change c where c.doc = d.id) c on true
		where d.changes <> n + coalesce(s.changes, 0) or d.folded <> coalesce(s.changes, 0) or d.ops <> coalesce(o, 0) + coalesce(s.ops, 0) or d.bytes <> coalesce(b, 0) + coalesce(length(s.data), 0)
		or length(s.hashes) <> 32 * s.changes or p <> s.changes + 1 or d.parked <> (select count(*) from automerge.parked p where p.doc = d.id)
		or not d.heads <@ automerge.known(d.id, d.heads)`); bad != "" {
		t.Errorf("not well kept: %s", bad)
	}
}

// Saves, changes and folding in any order give one document.
func TestMergeSave(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	for range 2 {
		d := written(t, r, 3, 4)
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save(), Whole: true}))
		copies := make([]*engine.Doc, 5)
		for i := range copies {
			copies[i] = must[*engine.Doc](t)(d.Fork())
			for range r.IntN(4) {
				edit(t, r, copies[i])
				_ = must[engine.ChangeHash](t)(copies[i].Commit("", engine.CommitOptions{AllowEmpty: true}))
			}
			if i > 0 && r.IntN(2) == 0 {
				_ = must[[]engine.ChangeHash](t)(copies[i].Merge(copies[i-1]))
			}
		}
		calls := append(slices.Clone(copies), copies[:2]...)
		r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		for _, c := range calls {
			if r.IntN(2) == 0 {
				_ = must[automerge.Applied](t)(store.MergeSave(ctx, id, c.Save()))
			} else {
				_ = must[automerge.Applied](t)(store.Apply(ctx, id, changesOf(t, c)...))
			}
			if r.IntN(3) == 0 {
				_ = must[int](t)(store.Fold(ctx, id))
			}
			wellKept(t, pool)
			_ = must[[]engine.ChangeHash](t)(d.Merge(c))
		}
		if heads := must[[]automerge.Hash](t)(store.Heads(ctx, id)); !slices.Equal(heads, headsOf(t, d)) {
			t.Fatalf("heads %v, want %v", heads, headsOf(t, d))
		}
		if got, want := projected(t, pool, id), engineJSON(t, pool, d); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		for range 2 {
			if applied := must[automerge.Applied](t)(store.MergeSave(ctx, id, d.Save())); applied.Added != 0 {
				t.Errorf("the same save again: %+v", applied)
			}
			sameChanges(t, store, id, d)
			_ = must[int](t)(store.Fold(ctx, id))
		}
		if n := column[int](t, pool, "select count(*)::int from automerge.change where doc = $1", id)[0]; n != 0 {
			t.Errorf("%d changes are not folded", n)
		}
		_, err := store.Delete(ctx, id)
		ok(t, err)
	}
}

// sameChanges compares all that can be asked about changes with what the engine says.
func sameChanges(t testing.TB, store *automerge.Store, id uuid.UUID, d *engine.Doc) {
	t.Helper()
	ctx := t.Context()
	all := must[[]*engine.Change](t)(d.Changes())
	byHash := map[automerge.Hash]*engine.Change{}
	for _, c := range all {
		byHash[automerge.Hash(c.Hash())] = c
	}
	since := []engine.ChangeHash{all[rand.IntN(len(all))].Hash()}
	for _, s := range [][]engine.ChangeHash{nil, since, d.Heads()} {
		want := must[[]*engine.Change](t)(d.Changes(s...))
		var from []automerge.Hash
		for _, h := range s {
			from = append(from, automerge.Hash(h))
		}
		got := must[[]automerge.Change](t)(store.Changes(ctx, id, from...))
		if len(got) != len(want) {
			t.Fatalf("%d changes since %v, want %d", len(got), s, len(want))
		}
		for _, g := range got {
			c := byHash[g.Hash]
			if c == nil || g.Actor != c.ActorID() || g.Seq != int64(c.ActorSeq()) || len(g.Deps) != len(c.Dependencies()) || g.Message != c.Message() || !bytes.Equal(g.Chunk, c.Save()) {
				t.Fatalf("got %+v", g)
			}
		}
	}
	if !must[bool](t)(store.Contains(ctx, id, automerge.Hash(since[0]))) || must[bool](t)(store.Contains(ctx, id, automerge.Hash{7})) {
		t.Error("contains")
	}
	loaded := must[*engine.Doc](t)(engine.Load(must[[]byte](t)(store.Save(ctx, id))))
	if !slices.Equal(headsOf(t, loaded), headsOf(t, d)) {
		t.Error("the save has other heads")
	}
}

// A program that uses another's actor id is refused, in saves too and when the other's change is folded.
func TestReusedActorInSaves(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	a, b := engine.New(), engine.New()
	ok(t, b.SetActorID(a.ActorID()))
	ok(t, a.Path("x").Set(1))
	ok(t, b.Path("x").Set(2))
	_, _ = must[engine.ChangeHash](t)(a.Commit("")), must[engine.ChangeHash](t)(b.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: a.Save()}))
	for i := range 2 {
		_, err := store.MergeSave(ctx, id, b.Save())
		refuses(t, err, automerge.ErrReused)
		_, err = store.Apply(ctx, id, changesOf(t, b)...)
		refuses(t, err, automerge.ErrReused)
		ok(t, a.Path("y").Set(i))
		_ = must[engine.ChangeHash](t)(a.Commit(""))
		_ = must[automerge.Applied](t)(store.MergeSave(ctx, id, a.Save()))
	}
	wellKept(t, pool)
}

func TestFixtures(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	for _, name := range []string{"ks_conf", "ks_blocks", "ks_marks", "typed5k", "author", "items2k", "items20k", "text3mb"} {
		e := expectedOf(t, name)
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: fixture(t, name+".am")}))
		d := must[automerge.Document](t)(store.Document(ctx, id))
		if !slices.Equal(d.Heads, e.Heads) || d.Changes != int64(e.Changes) {
			t.Errorf("%s: %+v, want heads %v and %d changes", name, d, e.Heads, e.Changes)
		}
		if n := len(must[[]automerge.Change](t)(store.Changes(ctx, id))); n != e.Changes {
			t.Errorf("%s: %d changes", name, n)
		}
		if !bytes.Equal(must[[]byte](t)(store.Save(ctx, id)), fixture(t, name+".am")) {
			t.Errorf("%s: another save", name)
		}
		if name == "items20k" || strings.HasPrefix(name, "t") {
			_ = must[automerge.Applied](t)(store.Apply(ctx, id, fixture(t, name+".c1")))
			_ = must[automerge.Applied](t)(store.Apply(ctx, id, fixture(t, name+".c2")))
			n := must[int](t)(store.Fold(ctx, id))
			if applied := must[automerge.Applied](t)(store.Apply(ctx, id, fixture(t, name+".c1"), fixture(t, name+".c2"))); n != 2 || applied.Added != 0 {
				t.Errorf("%s: %d folded, then %+v", name, n, applied)
			}
		}
	}
	wellKept(t, pool)
	if bigint := column[string](t, pool, "select max(length(data))::text from automerge.snapshot")[0]; bigint == "" {
		t.Error("no snapshots")
	}
}

// Bytes that would end the process of the engine are refused, or are a document of which every part can be read.
func TestHostileFixtures(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	files := must[[]string](t)(filepath.Glob(filepath.Join(pgserver.TestData(t, "automerge"), "*")))
	small := automerge.NewWith(pool, automerge.Options{Limits: automerge.Limits{ChunkOps: 50_000}})
	for _, file := range files {
		name := filepath.Base(file)
		hostile := strings.HasPrefix(name, "crash") || strings.HasPrefix(name, "bomb") || strings.HasPrefix(name, "bundle")
		if !hostile {
			continue
		}
		_, err := small.Create(ctx, automerge.CreateParams{Content: fixture(t, name), Whole: true})
		var e *automerge.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	deep := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: fixture(t, "items2k.am"), Whole: true}))
	_, err := store.Create(ctx, automerge.CreateParams{Content: fixture(t, "deep.am"), Whole: true})
	refuses(t, err, automerge.ErrLimit)
	_, err = store.MergeSave(ctx, deep, fixture(t, "items2k.am"), []byte{1})
	refuses(t, err, automerge.ErrMalformed)
}
