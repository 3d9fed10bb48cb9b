package amformat

import (
	"testing"
	"time"
)

func TestRowsOfFixtures(t *testing.T) {
	for _, name := range []string{"author", "items20k", "items2k", "ks_blocks", "ks_conf", "ks_marks", "text3mb", "typed5k", "ks_since"} {
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name+".am")
			chunks := must(SplitChunks(data))(t)
			t.Log(len(chunks), chunks[0].Kind)
			if chunks[0].Kind != KindDocument {
				return
			}
			start := time.Now()
			d := must(ParseDocument(data, Limits{}))(t)
			parsed := time.Since(start)
			rows := d.Rows()
			var n int64
			for rows.Next() {
				n++
			}
			ok(t, rows.Err())
			t.Log(n, d.NumOps, len(d.Metas), d.Heads, parsed, time.Since(start))
		})
	}
}

func TestChangesOfFixtures(t *testing.T) {
	for _, name := range []string{"author", "items20k", "items2k", "ks_blocks", "ks_conf", "ks_marks", "text3mb", "typed5k"} {
		t.Run(name, func(t *testing.T) {
			d := must(ParseDocument(fixture(t, name+".am"), Limits{}))(t)
			start := time.Now()
			changes := must(d.Changes(t.Context()))(t)
			t.Log(time.Since(start))
			start = time.Now()
			for _, c := range changes {
				again := must(ParseChange(c.Bytes, Limits{}))(t)
				if again.Hash != c.Hash {
					t.Fatal("other hash")
				}
			}
			t.Log(time.Since(start))
			start = time.Now()
			b := must(WriteDocument(t.Context(), nil, nil, changes, Limits{}))(t)
			t.Log(time.Since(start), len(b), len(fixture(t, name+".am")))
			start = time.Now()
			b = must(WriteDocument(t.Context(), d, nil, nil, Limits{}))(t)
			t.Log(time.Since(start), len(b))
		})
	}
}
