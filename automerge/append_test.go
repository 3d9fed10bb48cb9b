//go:build cgo

package automerge_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// SQL clients append what can be checked without reading operations; none of it counts before a worker has seen it.
func TestAppend(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 2, 2)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{}))
	appendChunk := func(chunk []byte) (hash []byte, err error) {
		err = pool.QueryRow(ctx, "select automerge.append($1, $2)", id, chunk).Scan(&hash)
		return hash, err
	}
	damaged := slices.Clone(chunks[0])
	damaged[len(damaged)-1] ^= 1
	for name, c := range map[string]struct {
		chunk []byte
		code  string
	}{
		"nothing": {nil, "AM005"}, "short": {chunks[0][:8], "AM005"}, "no magic": {[]byte("0123456789abcdef"), "AM005"}, "damaged": {damaged, "AM005"},
		"cut off": {chunks[0][:len(chunks[0])-1], "AM005"}, "two": {bytes.Join(chunks[:2], nil), "AM005"}, "a bundle": {fixture(t, "bundle.am"), "AM008"},
		"without what it depends on": {chunks[len(chunks)-1], "AM003"},
	} {
		if _, err := appendChunk(c.chunk); sqlState(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := must[[]*engine.Change](t)(d.Changes())
	for range 2 { // the second time does nothing
		for i, c := range chunks {
			if hash := must[[]byte](t)(appendChunk(c)); !bytes.Equal(hash, hashBytes(all[i])) {
				t.Errorf("hash %x, want %s", hash, all[i].Hash())
			}
		}
	}
	if n := column[int](t, pool, "select count(*)::int from automerge.queue")[0]; n != len(chunks) {
		t.Errorf("%d wait", n)
	}
	if heads := must[[]automerge.Hash](t)(store.Heads(ctx, id)); len(heads) > 0 {
		t.Errorf("what was appended counts already: %v", heads)
	}
	if err := pool.QueryRow(ctx, "select automerge.append($1, $2)", uuid.New(), chunks[0]).Scan(nil); sqlState(err) != "AM001" {
		t.Errorf("no such document: %v", err)
	}
}

func hashBytes(c *engine.Change) []byte {
	h := c.Hash()
	return h[:]
}

// What SQL says about documents is what Go says.
func TestSQLReads(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	d := written(t, r, 3, 3)
	chunks := changesOf(t, d)
	whole := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks, nil)}))
	part := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks[:3], nil)}))
	other := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(changesOf(t, written(t, r, 2, 2)), nil)}))
	ids := map[string]uuid.UUID{"whole": whole, "part": part, "other": other}
	for sql, want := range map[string]string{
		"select automerge.contains(:whole, :part)":                                                                "(t)",
		"select automerge.contains(:part, :whole)":                                                                "(f)",
		"select automerge.contains(:whole, :other)":                                                               "(f)",
		"select automerge.contains(:whole, (automerge.heads(:part))[1])":                                          "(t)",
		"select automerge.contains(:part, '\\x00'::bytea)":                                                        "(f)",
		"select count(*) from automerge.changes(:part)":                                                           "(3)",
		"select count(*) from automerge.changes(:whole, automerge.heads(:whole))":                                 "(0)",
		"select count(*) from automerge.changes(:whole, array['\\x00'::bytea])":                                   fmt.Sprintf("(%d)", len(chunks)),
		"select automerge.save(:whole) = automerge.merge(id) from automerge.document where id in (:whole, :part)": "(t)",
	} {
		for name, id := range ids {
			sql = strings.ReplaceAll(sql, ":"+name, "'"+id.String()+"'::uuid")
		}
		if got := text(t, pool, sql); got != want {
			t.Errorf("%s: %s", sql, got)
		}
	}
	merged := must[*engine.Doc](t)(engine.Load(column[[]byte](t, pool, "select automerge.merge(id) from automerge.document")[0]))
	second := must[*engine.Doc](t)(engine.Load(must[[]byte](t)(store.Save(ctx, other))))
	_ = must[[]engine.ChangeHash](t)(d.Merge(second))
	if !slices.Equal(headsOf(t, merged), headsOf(t, d)) {
		t.Error("the aggregate is not the union")
	}
}
