package amformat

import (
	"testing"
	"time"
)

// loop repeats what is measured and reports the CPU time of one time.
func loop(b *testing.B, f func()) {
	var used time.Duration
	n := 0
	for b.Loop() {
		if n == 0 {
			used = cpu() // what was prepared is not counted
		}
		f()
		n++
	}
	b.ReportMetric(float64(cpu()-used)/float64(n)/1e6, "cpu-ms")
}

// each runs a benchmark on the fixtures that are measured everywhere.
func each(b *testing.B, f func(b *testing.B, name string, data []byte, d *Document)) {
	for _, name := range []string{"typed5k", "items2k", "items20k", "text3mb"} {
		b.Run(name, func(b *testing.B) {
			data := fixture(b, name+".am")
			d := must(ParseDocument(data, Limits{}))(b)
			b.ReportAllocs()
			f(b, name, data, d)
		})
	}
}

func BenchmarkParseDocument(b *testing.B) {
	each(b, func(b *testing.B, _ string, data []byte, _ *Document) {
		loop(b, func() {
			must(ParseDocument(data, Limits{}))(b)
		})
	})
}

func drain(b *testing.B, rows *Rows) {
	for rows.Next() {
	}
	ok(b, rows.Err())
}

func BenchmarkRows(b *testing.B) {
	each(b, func(b *testing.B, _ string, _ []byte, d *Document) {
		loop(b, func() {
			drain(b, d.Rows())
		})
	})
}

func BenchmarkMerge(b *testing.B) {
	each(b, func(b *testing.B, name string, _ []byte, d *Document) {
		tail := tailOf(b, name)
		loop(b, func() {
			drain(b, must(Merge(d, tail))(b))
		})
	})
}

func BenchmarkChanges(b *testing.B) {
	each(b, func(b *testing.B, _ string, _ []byte, d *Document) {
		loop(b, func() {
			must(d.Changes(b.Context()))(b)
		})
	})
}

// BenchmarkChangesSince takes the newest changes out of a save, as a merge of it does.
func BenchmarkChangesSince(b *testing.B) {
	each(b, func(b *testing.B, name string, _ []byte, d *Document) {
		changes := must(d.Changes(b.Context()))(b)
		known := map[ActorID][]Hash{}
		for _, c := range changes {
			known[c.Actor] = append(known[c.Actor], c.Hash)
		}
		tail := tailOf(b, name)
		newer := must(WriteDocument(b.Context(), d, nil, tail, Limits{}))(b)
		loop(b, func() {
			since := must(must(ParseDocument(newer, Limits{}))(b).ChangesSince(b.Context(), func(a ActorID, seq uint64) (h Hash, ok bool) {
				if hs := known[a]; seq <= uint64(len(hs)) {
					return hs[seq-1], true
				}
				return h, false
			}))(b)
			if len(since) != len(tail) {
				b.Fatal(len(since))
			}
		})
	})
}

func BenchmarkWriteDocument(b *testing.B) {
	each(b, func(b *testing.B, name string, _ []byte, d *Document) {
		tail := tailOf(b, name)
		_, hashes, err := d.extract(b.Context(), nil)
		ok(b, err)
		var saved []byte
		loop(b, func() {
			saved = must(WriteDocument(b.Context(), d, hashes, tail, Limits{}))(b)
		})
		b.ReportMetric(float64(len(saved)), "B/save")
	})
}

func BenchmarkParseHeader(b *testing.B) {
	parseOne(b, func(c []byte) error { _, err := ParseHeader(c, Limits{}); return err })
}
func BenchmarkParseChange(b *testing.B) {
	parseOne(b, func(c []byte) error { _, err := ParseChange(c, Limits{}); return err })
}

func parseOne(b *testing.B, parse func([]byte) error) {
	b.Run("small", func(b *testing.B) {
		data := fixture(b, "items20k.c1")
		b.ReportAllocs()
		loop(b, func() {
			ok(b, parse(data))
		})
	})
	b.Run("text3mb", func(b *testing.B) {
		d := must(ParseDocument(fixture(b, "text3mb.am"), Limits{}))(b)
		data := must(d.Changes(b.Context()))(b)[0].Bytes
		b.ReportAllocs()
		loop(b, func() {
			ok(b, parse(data))
		})
	})
}
