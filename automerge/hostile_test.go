//go:build cgo

package automerge_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

var hostileInputs = flag.Int("automerge.hostile", 300, "how many damaged chunks TestHostileBytes sends through every entrance")

// An entrance is a way by which bytes come into a document.
type entrance struct {
	name string
	send func(ctx context.Context, s *automerge.Store, db automerge.DB, id uuid.UUID, data []byte) error
}

// entrances take changes one behind the other. All but those that say so take saves, too.
var entrances = []entrance{
	{"Apply or park, changes only", func(ctx context.Context, s *automerge.Store, _ automerge.DB, id uuid.UUID, data []byte) error {
		_, err := s.ApplyOrPark(ctx, id, data)
		return err
	}},
	{"batch, changes only", func(ctx context.Context, s *automerge.Store, _ automerge.DB, id uuid.UUID, data []byte) error {
		_, err := s.ApplyEach(ctx, []automerge.Delivery{{ID: id, Data: data}})
		return err
	}},
	{"MergeSave", func(ctx context.Context, s *automerge.Store, _ automerge.DB, id uuid.UUID, data []byte) error {
		_, err := s.MergeSave(ctx, id, data)
		return err
	}},
	{"another document", func(ctx context.Context, s *automerge.Store, _ automerge.DB, id uuid.UUID, data []byte) error {
		other, err := s.Create(ctx, automerge.CreateParams{Content: data})
		if err != nil {
			return err
		}
		_, err = s.Merge(ctx, id, other)
		_, bad := s.Delete(ctx, other)
		return errors.Join(err, bad)
	}},
	{"SQL", func(ctx context.Context, s *automerge.Store, db automerge.DB, id uuid.UUID, data []byte) error {
		if _, err := db.Exec(ctx, "select automerge.append($1, $2)", id, data); err != nil {
			return err
		}
		_, err := s.WorkQueue(ctx)
		return err
	}},
}

// Whichever way changes come, in whatever order and how often, the document is the same, and so is its projection.
func TestEveryEntrance(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	d := written(t, r, 3, 6)
	chunks, heads, want := changesOf(t, d), headsOf(t, d), engineJSON(t, pool, d)
	for range 3 {
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
		calls := slices.Concat(chunks, chunks[:r.IntN(len(chunks))])
		r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		for _, c := range calls {
			e := entrances[r.IntN(len(entrances))]
			err := e.send(ctx, store, pool, id, c)
			if sqlState(err) == "AM003" || errors.Is(err, automerge.ErrMissing) {
				_, err = store.ApplyOrPark(ctx, id, c) // it comes too early for that entrance
			}
			if err != nil {
				t.Fatalf("%s: %v", e.name, err)
			}
			if r.IntN(8) == 0 {
				_ = must[int](t)(store.Fold(ctx, id))
			}
		}
		if got := must[[]automerge.Hash](t)(store.Heads(ctx, id)); !slices.Equal(got, heads) {
			t.Fatalf("heads %v, want %v", got, heads)
		}
		if got := projected(t, pool, id); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		wellKept(t, pool)
	}
	if n := column[int](t, pool, "select count(*)::int from automerge.queue")[0]; n != 0 {
		t.Errorf("%d chunks are left in the queue", n)
	}
}

// damage makes bytes of bytes. Checksums are mostly made right again, so that what is in a chunk is looked at.
func damage(r *rand.Rand, data []byte) []byte {
	b := slices.Clone(data)
	for range 1 + r.IntN(4) {
		switch at := r.IntN(len(b)); r.IntN(6) {
		case 0:
			b = b[:at+1]
		case 1:
			b = slices.Insert(b, at, byte(r.Uint32()))
		default:
			b[at] ^= 1 << r.IntN(8)
		}
	}
	if r.IntN(8) > 0 && len(b) > 10 {
		b = checked(b)
	}
	return b
}

// checked puts the checksum of a chunk right, and its length.
func checked(b []byte) []byte {
	kind := b[8]
	body := b[9:]
	for len(body) > 0 && body[0] > 127 {
		body = body[1:]
	}
	if len(body) > 0 {
		body = body[1:]
	}
	return chunkOf(kind, body)
}

// What is hostile is refused at every entrance, or is a change like others; the document stays whole, readable and open for what is good.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	store := automerge.NewWith(pool, automerge.Options{Fit: true, Limits: automerge.Limits{ChunkOps: 50_000, Depth: 100}})
	ctx, r := t.Context(), random(t)
	d := written(t, r, 2, 3)
	chunks := changesOf(t, d)
	inputs := [][]byte{}
	for _, file := range must[[]string](t)(filepath.Glob(filepath.Join(pgserver.TestData(t, "automerge"), "*"))) {
		if name := filepath.Base(file); strings.HasPrefix(name, "crash") || strings.HasPrefix(name, "bomb") || strings.HasPrefix(name, "bundle") || strings.HasPrefix(name, "deep") {
			inputs = append(inputs, fixture(t, name))
		}
	}
	n := *hostileInputs
	if testing.Short() {
		n /= 10
	}
	sources := append(slices.Clone(chunks), d.Save())
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks, nil), Whole: true}))
	taken := 0
	for i := range n + len(inputs) {
		var data []byte
		if i < len(inputs) {
			data = inputs[i]
		} else {
			data = damage(r, sources[r.IntN(len(sources))])
		}
		for _, e := range entrances {
			err := e.send(ctx, store, pool, id, data)
			var refusal *automerge.Error
			if err != nil && !errors.As(err, &refusal) && !strings.HasPrefix(sqlState(err), "AM") {
				t.Fatalf("%s: %x: %v", e.name, data, err)
			}
			if err == nil {
				taken++
			}
		}
		_, _ = store.Sync(ctx, id, "hostile", data)
		if i%50 == 0 {
			wellKept(t, pool)
			if _, err := store.JSON(ctx, id, automerge.Now); err != nil {
				t.Fatalf("after %x: %v", data, err)
			}
		}
	}
	t.Logf("%d were taken", taken)
	ok(t, d.Path("status").Set("last"))
	_ = must[engine.ChangeHash](t)(d.Commit(""))
	_ = must[automerge.Applied](t)(store.MergeSave(ctx, id, d.Save()))
	if !must[bool](t)(store.Contains(ctx, id, headsOf(t, d)...)) {
		t.Error("the last change is not there")
	}
	_ = must[int](t)(store.Fold(ctx, id))
	_ = must[json.RawMessage](t)(store.JSON(ctx, id, automerge.AsOf(headsOf(t, d)...)))
	wellKept(t, pool)
}

// Sessions apply, merge, fold, fork, read and delete at once, at two isolation levels: what is acknowledged is there, and all ends with the union.
func TestSessionsOnOneDocument(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			_, plain := installed(t)
			ctx := t.Context()
			config := plain.Config().Copy()
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
			config.MaxConns = 8
			pool := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(ctx, config))
			t.Cleanup(pool.Close)
			store := automerge.New(pool)
			d := written(t, random(t), 3, 5)
			chunks, heads := changesOf(t, d), headsOf(t, d)
			id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0], Whole: true}))
			doomed := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0]}))
			// Serializable sessions may be told to begin anew for as long as others write.
			try := func(what string, do func() error) {
				for range 200 {
					if err := do(); err == nil {
						return
					} else if s := sqlState(err); s != "40001" && s != "40P01" {
						t.Errorf("%s: %v", what, err)
						return
					}
				}
				t.Errorf("%s: again and again", what)
			}
			var all sync.WaitGroup
			for range 3 {
				mine := slices.Clone(chunks)
				rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				all.Go(func() {
					for _, c := range mine {
						try("apply", func() error { _, err := store.ApplyOrPark(ctx, id, c); return err })
						if _, err := store.ApplyOrPark(ctx, doomed, c); err != nil && !errors.Is(err, automerge.ErrNotFound) && sqlState(err) != "40001" && sqlState(err) != "40P01" {
							t.Errorf("apply to what is deleted: %v", err)
						}
					}
				})
			}
			all.Go(func() {
				try("merge", func() error { _, err := store.MergeSave(ctx, id, d.Save()); return err })
				_, err := store.Delete(ctx, doomed)
				if s := sqlState(err); err != nil && s != "40001" && s != "40P01" {
					t.Errorf("delete: %v", err)
				}
			})
			all.Go(func() {
				for range 10 {
					try("fold", func() error { _, err := store.Fold(ctx, id); return err })
					fork := uuid.New()
					try("fork", func() error {
						_, err := store.Fork(ctx, id, automerge.Now, automerge.CreateParams{ID: fork})
						return err
					})
					try("merge the fork", func() error { _, err := store.Merge(ctx, id, fork); return err })
					_ = must[json.RawMessage](t)(store.JSON(ctx, id, automerge.Now))
				}
			})
			all.Wait()
			info := must[automerge.Document](t)(store.Document(ctx, id))
			if !slices.Equal(info.Heads, heads) || info.Changes != int64(len(chunks)) || info.Parked != 0 {
				t.Errorf("got %+v, want heads %v and %d changes", info, heads, len(chunks))
			}
			if got, want := projected(t, plain, id), engineJSON(t, plain, d); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			wellKept(t, plain)
		})
	}
}

// Every call works behind a pooler that hands out sessions by transaction.
func TestPooler(t *testing.T) {
	t.Parallel()
	_, direct := installed(t)
	ctx := t.Context()
	pool := must[*pgxpool.Pool](t)(pgxpool.New(ctx, pgserver.Pooler(t, direct.Config().ConnString())))
	defer pool.Close()
	store := automerge.New(pool)
	d := written(t, random(t), 3, 3)
	chunks := changesOf(t, d)
	ids := make([]uuid.UUID, 3)
	for i := range ids {
		ids[i] = must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for _, c := range chunks {
				if _, err := store.ApplyOrPark(ctx, ids[i%3], c); err != nil {
					t.Error(err)
				}
			}
			if _, err := store.MergeSave(ctx, ids[i%3], d.Save()); err != nil {
				t.Error(err)
			}
			if _, err := store.Fold(ctx, ids[i%3]); err != nil && sqlState(err) != "40001" {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if got := must[[]automerge.Hash](t)(store.Heads(ctx, id)); !slices.Equal(got, headsOf(t, d)) {
			t.Errorf("heads %v", got)
		}
		if got, want := projected(t, direct, id), engineJSON(t, direct, d); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	wellKept(t, direct)
}

// Merging documents of the database is as good as merging their saves.
func TestMerge(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	d := written(t, r, 2, 3)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save(), Whole: true}))
	var forks []uuid.UUID
	for i := range 5 {
		fork := must[uuid.UUID](t)(store.Fork(ctx, id, automerge.Now, automerge.CreateParams{}))
		doc := must[*engine.Doc](t)(d.Fork())
		ok(t, doc.Path(fmt.Sprint("fork ", i)).Set(i))
		_ = must[engine.ChangeHash](t)(doc.Commit(""))
		_ = must[automerge.Applied](t)(store.MergeSave(ctx, fork, doc.Save()))
		if i%2 == 0 { // what is new is in the snapshot then
			_ = must[int](t)(store.Fold(ctx, fork))
		}
		forks = append(forks, fork)
		_ = must[[]engine.ChangeHash](t)(d.Merge(doc))
	}
	unrelated := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	for i := range 2 {
		applied := must[automerge.Applied](t)(store.Merge(ctx, id, append(forks, unrelated, id)...))
		if want := 5 * (1 - i); applied.Added != want || !slices.Equal(applied.Heads, headsOf(t, d)) {
			t.Errorf("got %+v, want %d", applied, want)
		}
	}
	if got, want := projected(t, pool, id), engineJSON(t, pool, d); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	loaded := must[*engine.Doc](t)(engine.Load(column[[]byte](t, pool, "select automerge.merge(id) from automerge.document where id = any ($1)", forks)[0]))
	if !slices.Equal(headsOf(t, loaded), headsOf(t, d)) {
		t.Errorf("the aggregate has heads %v", headsOf(t, loaded))
	}
	_, err := store.Merge(ctx, id, uuid.New())
	refuses(t, err, automerge.ErrNotFound)
	_, err = store.Merge(ctx, uuid.Max, id)
	refuses(t, err, automerge.ErrNotFound)
	wellKept(t, pool)
}

// A document and its fork, both edited by one store, can be merged.
func TestEditedForksMerge(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{JSON: []byte(`{}`)}))
	fork := must[uuid.UUID](t)(store.Fork(ctx, id, automerge.Now, automerge.CreateParams{}))
	for key, doc := range map[string]uuid.UUID{"here": id, "there": fork} {
		_ = must[automerge.Applied](t)(store.Edit(ctx, doc, func(d *automerge.EngineDoc) error { return d.Path(key).Set(true) }))
	}
	if applied := must[automerge.Applied](t)(store.Merge(ctx, id, fork)); applied.Added != 1 {
		t.Errorf("got %+v", applied)
	}
	if got := string(must[json.RawMessage](t)(store.JSON(ctx, id, automerge.Now))); got != `{"here":true,"there":true}` {
		t.Error(got)
	}
}

// Every UUID is an identity but that of zeros, which stands for a new one.
func TestOddIdentities(t *testing.T) {
	t.Parallel()
	store, _ := installed(t)
	ctx := t.Context()
	for _, id := range []uuid.UUID{uuid.Max, {15: 1}, uuid.NewMD5(uuid.NameSpaceURL, []byte("x"))} {
		if got := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{ID: id, JSON: []byte(`{"a": 1}`)})); got != id || must[int](t)(automerge.Get[int](ctx, store, id, "a")) != 1 {
			t.Errorf("%s became %s", id, got)
		}
	}
	if id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{})); id == uuid.Nil {
		t.Error("the zero id was used")
	}
}

// chunkOf makes a chunk with a right checksum.
func chunkOf(kind byte, body []byte) []byte {
	content := append(binary.AppendUvarint([]byte{kind}, uint64(len(body))), body...)
	sum := sha256.Sum256(content)
	return slices.Concat([]byte{0x85, 0x6f, 0x4a, 0x83}, sum[:4], content)
}
