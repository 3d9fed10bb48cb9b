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
