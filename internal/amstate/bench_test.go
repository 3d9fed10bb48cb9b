package amstate

import (
	"fmt"
	"io"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

var benched = []string{"typed5k", "items2k", "items20k", "text3mb"}

// BenchmarkJSON is a save to JSON: parsed, swept, written.
func BenchmarkJSON(b *testing.B) {
	for _, name := range benched {
		b.Run(name, func(b *testing.B) {
			data := testdata(b, "automerge", name+".am")
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				doc := document(b, data)
				ok(b, must(Read(b.Context(), doc.Rows(), Options{}))(b).WriteJSON(io.Discard))
			}
		})
	}
}

// BenchmarkSweep is the sweep alone, with and without a change merged in.
func BenchmarkSweep(b *testing.B) {
	for _, name := range benched {
		doc := document(b, testdata(b, "automerge", name+".am"))
		var changes []*amformat.Change
		if name != "items2k" { // there is none
			changes = append(changes, must(amformat.ParseChange(testdata(b, "automerge", name+".c1"), amformat.Limits{}))(b))
		}
		for tail := range len(changes) + 1 {
			b.Run(fmt.Sprintf("%s/tail=%d", name, tail), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rows := must(amformat.Merge(doc, changes[:tail]))(b)
					must(Read(b.Context(), rows, Options{}))(b)
				}
			})
		}
		b.Run(name+"/rows", func(b *testing.B) {
			for b.Loop() {
				for rows := doc.Rows(); rows.Next(); {
				}
			}
		})
	}
}
