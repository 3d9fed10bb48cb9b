package amformat

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsOfFixtures reads what other implementations wrote, takes the changes out, and writes it anew: the same heads, the same changes,
// the same rows.
func TestDocumentsOfFixtures(t *testing.T) {
	for _, name := range documents {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			data := fixture(t, name+".am")
			var expected struct {
				Heads   []string
				Changes int
			}
			ok(t, json.Unmarshal(fixture(t, name+".am.expected.json"), &expected))
			d := must(ParseDocument(data, Limits{}))(t)
			if headsText(d.Heads) != strings.Join(expected.Heads, " ") || len(d.Metas) != expected.Changes {
				t.Fatalf("%d changes up to %s, and not %d up to %s", len(d.Metas), headsText(d.Heads), expected.Changes, expected.Heads)
			}
			changes := must(d.Changes(ctx))(t)
			if len(changes) != expected.Changes {
				t.Fatalf("%d changes, and not %d", len(changes), expected.Changes)
			}
			for _, c := range changes {
				if again := must(ParseChange(c.Bytes, Limits{}))(t); again.Hash != c.Hash || again.NumOps != c.NumOps {
					t.Fatalf("change %s is read as %s", c.Hash, again.Hash)
				}
			}
			if name == "text3mb" && !*longTests {
				return
			}
			rows := listed(t, d.Rows(), nil)
			for what, saved := range map[string][]byte{
				"from the document": must(WriteDocument(ctx, d, nil, nil, Limits{}))(t),
				"from the changes":  must(WriteDocument(ctx, nil, nil, changes, Limits{}))(t),
				"from parts":        must(WriteDocument(ctx, part1(t, changes), nil, changes[len(changes)/2:], Limits{}))(t),
			} {
				again := must(ParseDocument(saved, Limits{}))(t)
				same(t, what, listed(t, again.Rows(), nil), rows)
				if !slices.Equal(again.Heads, d.Heads) {
					t.Fatalf("%s: heads %v, and not %v", what, again.Heads, d.Heads)
				}
			}
			// The changes that follow the document fit it.
			tail := tailOf(t, name)
			saved := must(WriteDocument(ctx, d, nil, tail, Limits{}))(t)
			again := must(ParseDocument(saved, Limits{}))(t)
			if n := len(must(again.Changes(ctx))(t)); n != len(changes)+len(tail) {
				t.Fatalf("%d changes with those that follow, and not %d", n, len(changes)+len(tail))
			}
		})
	}
}

func part1(t testing.TB, changes []*Change) *Document {
	t.Helper()
	return must(ParseDocument(must(WriteDocument(t.Context(), nil, nil, changes[:len(changes)/2], Limits{}))(t), Limits{}))(t)
}

// TestChangesOfFixtures reads single changes.
func TestChangesOfFixtures(t *testing.T) {
	for _, name := range []string{"author.chunk", "bomb.chunk", "items20k.c1", "items20k.c2", "text3mb.c1", "text3mb.c2", "typed5k.c1", "typed5k.c2"} {
		t.Run(name, func(t *testing.T) {
			c := must(ParseChange(fixture(t, name), Limits{}))(t)
			var n int64
			for range c.Ops() {
				n++
			}
			if n != c.NumOps {
				t.Errorf("%d operations of %d", n, c.NumOps)
			}
		})
	}
	if c := must(ParseChange(fixture(t, "author.chunk"), Limits{}))(t); len(c.Extra) != 18 {
		t.Errorf("%d bytes after the operations", len(c.Extra))
	}
	// What saveSince gives is changes one after another.
	for _, c := range must(SplitChunks(fixture(t, "ks_since.am")))(t) {
		must(ParseChange(c.Bytes, Limits{}))(t)
	}
}

// TestRowsCostNothing reads the rows of a text: nothing is allocated for one.
func TestRowsCostNothing(t *testing.T) {
	d := must(ParseDocument(fixture(t, "text3mb.am"), Limits{}))(t)
	before := allocated()
	rows := d.Rows()
	n := 0
	for rows.Next() {
		n++
	}
	ok(t, rows.Err())
	if used := allocated() - before; n < 3_000_000 || used > 1<<16 {
		t.Errorf("%d rows allocate %d bytes", n, used)
	}
}
