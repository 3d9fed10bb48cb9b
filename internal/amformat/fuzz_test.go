package amformat

import (
	"bytes"
	"slices"
	"testing"
)

func FuzzChunks(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := SplitChunks(data)
		if err != nil && !typed(err) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		var all []byte
		for _, c := range chunks {
			all = append(all, c.Bytes...)
		}
		if !bytes.Equal(all, data) {
			t.Fatal("the chunks aren't the data")
		}
	})
}

func FuzzChange(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = repaired(data)
		h, headerErr := ParseHeader(data, tight)
		c, err := ParseChange(data, tight)
		if err != nil {
			if !typed(err) {
				t.Fatal(err)
			}
			return
		}
		if headerErr != nil || h.Hash != c.Hash || h.NumOps != c.NumOps {
			t.Fatalf("the header is %+v, %v", h, headerErr)
		}
		d := Draft{Actor: c.Actor, Seq: c.Seq, StartOp: c.StartOp, Deps: c.Deps, Time: c.Time, Message: c.Message, Actors: c.Actors}
		for op := range c.Ops() {
			o := *op
			o.Pred = slices.Clone(op.Pred)
			d.Ops = append(d.Ops, o)
		}
		if int64(len(d.Ops)) != c.NumOps {
			t.Fatalf("%d operations of %d", len(d.Ops), c.NumOps)
		}
		again, err := d.Write(tight)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Extra) == 0 && !bytes.Equal(again.Bytes, c.Bytes) {
			t.Fatalf("written anew it is %x", again.Bytes)
		}
	})
}

func FuzzDocument(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := judge(t.Context(), repaired(data), tight); err != nil && !typed(err) {
			t.Fatal(err)
		}
	})
}

// FuzzColumns reads bytes as every kind of column. What is measured without an error is read to its last row, and what is read and written
// anew reads the same.
func FuzzColumns(f *testing.F) {
	f.Add([]byte{0x7f, 1, 2, 3, 0, 4})
	for _, s := range seeds(f) {
		if a, ok := dissect(s); ok {
			for _, cs := range a.tables {
				for _, c := range cs {
					f.Add(c.data)
				}
			}
		}
	}
	const many = 10_000
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := tallyUints(data, many, 0, "x"); err == nil {
			r, w := uints{b: data}, uintWriter()
			var sum uint64
			for range n.rows {
				v, ok := r.next()
				w.addMaybe(v, ok)
				sum += v
			}
			again := uints{b: w.finish()}
			if _, ok := r.next(); ok || sum != n.sum {
				t.Fatal("more than was measured")
			}
			for r = (uints{b: data}); n.rows > 0; n.rows-- {
				v, ok := r.next()
				if v2, ok2 := again.next(); v != v2 || ok != ok2 {
					t.Fatal("numbers read otherwise")
				}
			}
		}
		if n, err := tallyDeltas(data, many, -1<<40, 1<<40, "x"); err == nil {
			r, w := deltas{b: data}, newDeltaWriter()
			for range n.rows {
				w.addMaybe(r.next())
			}
			again := deltas{b: w.finish()}
			for r = (deltas{b: data}); n.rows > 0; n.rows-- {
				v, ok := r.next()
				if v2, ok2 := again.next(); v != v2 || ok != ok2 || v > 1<<40 || v < -1<<40 {
					t.Fatal("differences read otherwise")
				}
			}
		}
		if n, err := tallyStrings(data, many, "x"); err == nil {
			r, w := newTexts(data), textWriter()
			for range n.rows {
				w.addMaybe(r.next())
			}
			again := newTexts(w.finish())
			for r = newTexts(data); n.rows > 0; n.rows-- {
				v, ok := r.next()
				if v2, ok2 := again.next(); v != v2 || ok != ok2 {
					t.Fatal("strings read otherwise")
				}
			}
		}
		if n, err := tallyBools(data, many, "x"); err == nil {
			r, w := bools{b: data}, boolWriter{}
			for range n.rows {
				w.add(r.next())
			}
			again := bools{b: w.finish()}
			for r = (bools{b: data}); n.rows > 0; n.rows-- {
				if r.next() != again.next() {
					t.Fatal("booleans read otherwise")
				}
			}
		}
	})
}

func FuzzNumbers(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{0x80, 0x00})
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, n := readUint(data); n > 0 && !bytes.Equal(appendUint(nil, v), data[:n]) {
			t.Fatalf("%x is read as %d", data[:n], v)
		}
		if v, n := readInt(data); n > 0 && !bytes.Equal(appendInt(nil, v), data[:n]) {
			t.Fatalf("%x is read as %d", data[:n], v)
		}
	})
}
