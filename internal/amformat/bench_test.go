package amformat

import "testing"

func benchDoc(b *testing.B, name string) (*Document, []byte) {
	data := fixture(b, name+".am")
	return must(ParseDocument(data, Limits{}))(b), data
}

var benchNames = []string{"typed5k", "items2k", "items20k", "text3mb"}

func BenchmarkParseDocument(b *testing.B) {
	for _, name := range benchNames {
		b.Run(name, func(b *testing.B) {
			_, data := benchDoc(b, name)
			b.ReportAllocs()
			for b.Loop() {
				must(ParseDocument(data, Limits{}))(b)
			}
		})
	}
}

func BenchmarkRows(b *testing.B) {
	for _, name := range benchNames {
		b.Run(name, func(b *testing.B) {
			d, _ := benchDoc(b, name)
			b.ReportAllocs()
			for b.Loop() {
				rows := d.Rows()
				for rows.Next() {
				}
				ok(b, rows.Err())
			}
		})
	}
}

func BenchmarkChanges(b *testing.B) {
	for _, name := range benchNames {
		b.Run(name, func(b *testing.B) {
			d, _ := benchDoc(b, name)
			b.ReportAllocs()
			for b.Loop() {
				must(d.Changes(b.Context()))(b)
			}
		})
	}
}

func BenchmarkParseChanges(b *testing.B) {
	for _, name := range benchNames {
		b.Run(name, func(b *testing.B) {
			d, _ := benchDoc(b, name)
			changes := must(d.Changes(b.Context()))(b)
			b.ReportAllocs()
			for b.Loop() {
				for _, c := range changes {
					must(ParseChange(c.Bytes, Limits{}))(b)
				}
			}
		})
	}
}
