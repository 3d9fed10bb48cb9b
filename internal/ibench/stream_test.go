package ibench

import (
	"bytes"
	"strings"
	"testing"
)

func TestStream(t *testing.T) {
	sample := func(seed, number uint64) (list []row) {
		s := newStream(seed, number)
		for range 20_000 {
			var r row
			s.next(&r)
			list = append(list, r)
		}
		return list
	}
	rows := sample(1, 0)
	if again := sample(1, 0); again[0] != rows[0] || again[len(rows)-1] != rows[len(rows)-1] {
		t.Error("a stream is not the same again")
	}
	if other := sample(1, 2); other[0] == rows[0] {
		t.Error("clients have the same stream")
	}
	if other := sample(2, 0); other[0] == rows[0] {
		t.Error("seeds give the same stream")
	}
	lengths := map[int]int{}
	var price, highest int32
	for _, r := range rows {
		if r.register < 0 || r.register >= registers || r.product < 0 || r.product >= products || r.customer < 0 || r.customer >= customers || r.price < 0 || r.price >= prices {
			t.Fatalf("%+v", r)
		}
		data := r.data[:r.length]
		if !bytes.HasPrefix(data, []byte(strings.Repeat("a", (r.length+1)/2))) || bytes.ContainsAny(data, "'\\\x00") {
			t.Fatalf("data %q", data)
		}
		lengths[r.length]++
		price += r.price
		highest = max(highest, r.price)
	}
	if len(lengths) != dataMax-dataMin+1 || highest != prices-1 {
		t.Errorf("lengths %v, highest price %d", lengths, highest)
	}
	if mean := float64(price) / float64(len(rows)); mean < 245 || mean > 255 {
		t.Errorf("the mean price is %g", mean)
	}
}

func BenchmarkStream(b *testing.B) {
	s, r, sql := newStream(1, 0), row{}, []byte{}
	for b.Loop() {
		s.next(&r)
		sql = r.appendValues(sql[:0], "2026-01-01 00:00:00")
	}
}
