//go:build cgo

package automerge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
)

// projected returns the projection of a document.
func projected(t testing.TB, pool *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	return column[string](t, pool, "select data::text from automerge.projection where doc = $1", id)[0]
}

// engineJSON is the JSON of an engine's document as PostgreSQL writes it.
func engineJSON(t testing.TB, pool *pgxpool.Pool, d *engine.Doc) string {
	t.Helper()
	v := must[[]byte](t)(json.Marshal(d.Root().Interface()))
	return column[string](t, pool, "select ($1::jsonb)::text", string(v))[0]
}

// In whatever order changes come, the projection is what the engine makes of them, and what a pass over the document gives.
func TestProjectionFollows(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx, r := t.Context(), random(t)
	paths := []string{"status", "meta.author.name", "n"}
	for range 3 {
		d := written(t, r, 3, 6)
		chunks := changesOf(t, d)
		whole := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Whole: true}))
		part := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Paths: paths}))
		calls := slices.Clone(chunks)
		r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		for len(calls) > 0 {
			n := 1 + r.IntN(min(len(calls), 5))
			for _, id := range []uuid.UUID{whole, part} {
				_, err := store.ApplyOrPark(ctx, id, calls[:n]...)
				ok(t, err)
			}
			calls = calls[n:]
			before := projected(t, pool, whole)
			ok(t, store.SetProjection(ctx, whole, true))
			if after := projected(t, pool, whole); after != before {
				t.Fatalf("followed: %s\nanew:     %s", before, after)
			}
		}
		want := engineJSON(t, pool, d)
		if got := projected(t, pool, whole); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		for _, sql := range []string{
			"select p.data->'status' is not distinct from $1::jsonb->'status' and p.data->'n' = $1::jsonb->'n' and p.data#>'{meta,author,name}' is not distinct from $1::jsonb#>'{meta,author,name}' from automerge.projection p where p.doc = $2",
			"select not exists (select jsonb_object_keys(p.data) except select unnest('{status,meta,n}'::text[])) and $1::jsonb is not null from automerge.projection p where p.doc = $2",
		} {
			if !column[bool](t, pool, sql, want, part)[0] {
				t.Errorf("%s: %s of %s", sql, projected(t, pool, part), want)
			}
		}
		followed := projected(t, pool, part)
		ok(t, store.SetProjection(ctx, part, false, paths...))
		if anew := projected(t, pool, part); anew != followed {
			t.Errorf("followed: %s\nanew:     %s", followed, anew)
		}
	}
}

// jsValue makes of a value as the JavaScript library showed it what the projection shows.
func jsValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, f := range map[string]func(string) any{
			"$bigint": func(s string) any { return json.Number(s) }, "$bytes": func(s string) any { return s }, "$float": func(string) any { return nil },
		} {
			if s, ok := v[key].(string); ok && len(v) == 1 {
				return f(s)
			}
		}
		m := map[string]any{}
		for k, e := range v {
			m[string(bytes.ReplaceAll([]byte(k), []byte{0}, []byte("\uFFFD")))] = jsValue(e)
		}
		return m
	case []any:
		for i := range v {
			v[i] = jsValue(v[i])
		}
		return v
	case string:
		return string(bytes.ReplaceAll([]byte(v), []byte{0}, []byte("\uFFFD")))
	}
	return v
}

func jsJSON(t testing.TB, pool *pgxpool.Pool, data []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	ok(t, d.Decode(&v))
	return column[string](t, pool, "select ($1::jsonb)::text", string(must[[]byte](t)(json.Marshal(jsValue(v)))))[0]
}

// What the JavaScript library shows of documents that it wrote is what the projection shows.
func TestProjectionOfFixtures(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	for _, name := range []string{"ks_conf", "ks_blocks", "ks_marks", "typed5k", "author"} {
		e := expectedOf(t, name)
		d := must[*engine.Doc](t)(engine.Load(fixture(t, name+".am")))
		want := jsJSON(t, pool, e.JSON)
		for _, whole := range []bool{true, false} { // followed, and read in a pass
			id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(changesOf(t, d), nil), Whole: whole}))
			ok(t, store.SetProjection(ctx, id, true))
			if got := projected(t, pool, id); got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
			}
		}
	}
}

// A projection that is too large to be followed is made in a pass for each change, and is right.
func TestLargeProjection(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := engine.New()
	ok(t, d.Path("numbers").Set(slices.Repeat([]any{1234567}, 30_000)))
	ok(t, d.Path("status").Set("open"))
	_ = must[engine.ChangeHash](t)(d.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(changesOf(t, d), nil), Whole: true}))
	if state := column[bool](t, pool, "select state is null from automerge.projection")[0]; !state {
		t.Error("the state is kept though it is large")
	}
	since := d.Heads()
	for i := range 2 {
		ok(t, d.Path("status").Set(fmt.Sprint(i)))
		_ = must[engine.ChangeHash](t)(d.Commit(""))
		for _, c := range must[[]*engine.Change](t)(d.Changes(since...)) {
			_ = must[automerge.Applied](t)(store.Apply(ctx, id, c.Save()))
		}
		since = d.Heads()
		if got := projected(t, pool, id); got != engineJSON(t, pool, d) {
			t.Errorf("%d: other values", i)
		}
	}
}

func TestProjectionPaths(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := engine.New()
	for path, v := range map[string]any{"a.b": 1, `a\b`: 2, "map": map[string]any{"x": map[string]any{"y": 1, "z": 2}, "w": 3}, "text": engine.NewText("words")} {
		ok(t, d.Path(path).Set(v))
	}
	_ = must[engine.ChangeHash](t)(d.Commit(""))
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(changesOf(t, d), nil)}))
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{`a\.b`}, `{"a.b": 1}`}, {[]string{`a\\b`}, `{"a\\b": 2}`}, {[]string{"map.x.y"}, `{"map": {"x": {"y": 1}}}`}, {[]string{"map.x.y", "map.x"}, `{"map": {"x": {"y": 1, "z": 2}}}`},
		{[]string{"map.x", "map.x.y", "nothing"}, `{"map": {"x": {"y": 1, "z": 2}}}`}, {[]string{"text.x", "text.y.z"}, `{}`}, {[]string{"text"}, `{"text": "words"}`},
	} {
		ok(t, store.SetProjection(ctx, id, false, c.paths...))
		if got := projected(t, pool, id); got != c.want {
			t.Errorf("%q: %s, want %s", c.paths, got, c.want)
		}
	}
	refuses(t, store.SetProjection(ctx, id, false, `a\x`), automerge.ErrInvalid)
	refuses(t, store.SetProjection(ctx, uuid.New(), true), automerge.ErrNotFound)
	ok(t, store.SetProjection(ctx, id, false))
	if n := column[int](t, pool, "select count(*)::int from automerge.projection")[0]; n != 0 {
		t.Errorf("%d projections are left", n)
	}
}
