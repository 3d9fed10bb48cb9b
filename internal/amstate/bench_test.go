//go:build unix

package amstate

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/amformat"
)

// measure reports the processor's time as well, which a busy machine doesn't change as much.
func measure(b *testing.B, name string, f func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime(b)
		for b.Loop() {
			f()
		}
		b.ReportMetric(float64(cpuTime(b)-start)/float64(time.Millisecond)/float64(b.N), "cpu-ms")
	})
}

// BenchmarkState is sweeps of the fixtures: json is a save to JSON, parsed, swept and written; sweep is the sweep alone; tail has a change merged in;
// past is as of the half of the changes; field is one key of the root; diff is the patches from nothing.
func BenchmarkState(b *testing.B) {
	for _, name := range []string{"typed5k", "items2k", "items20k", "text3mb"} {
		data := testdata(b, "automerge", name+".am")
		doc := document(b, data)
		var changes []*amformat.Change
		if name != "items2k" { // there is none
			changes = append(changes, must(amformat.ParseChange(testdata(b, "automerge", name+".c1"), amformat.Limits{}))(b))
		}
		half := Clock{}
		for _, m := range doc.Metas[:len(doc.Metas)/2] {
			half[doc.Actors[m.Actor]] = m.MaxOp
		}
		read := func(rows *amformat.Rows, o Options) *State { return must(Read(context.Background(), rows, o))(b) }
		b.Run("doc="+name, func(b *testing.B) {
			measure(b, "json", func() { ok(b, read(document(b, data).Rows(), Options{}).WriteJSON(io.Discard)) })
			measure(b, "sweep", func() { read(doc.Rows(), Options{}) })
			measure(b, fmt.Sprintf("tail=%d", len(changes)), func() { read(must(amformat.Merge(doc, changes))(b), Options{}) })
			measure(b, "past", func() { read(doc.Rows(), Options{At: half}) })
			measure(b, "field", func() { read(doc.Rows(), Options{Paths: []Path{{"status"}}}) })
			measure(b, "diff", func() { must(Diff(context.Background(), doc.Rows(), Clock{}, nil))(b) })
			measure(b, "rows", func() {
				for rows := doc.Rows(); rows.Next(); {
				}
			})
		})
	}
}
