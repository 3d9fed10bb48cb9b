package amformat

import (
	"bytes"
	"compress/flate"
	"math"
	"slices"
	"testing"
)

// seeds are chunks that hostile inputs are made of: those of mixed, and the small fixtures where they are.
func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	changes := mixed(t)
	for _, c := range changes {
		all = append(all, c.Bytes, compressed(c.Bytes))
	}
	all = append(all, must(WriteDocument(t.Context(), nil, nil, changes, Limits{}))(t))
	all = append(all, must(WriteDocument(t.Context(), nil, nil, changes[:1], Limits{}))(t))
	for _, name := range []string{
		"author.am", "author.chunk", "bomb.am", "bomb.chunk", "bundle.am", "ks_blocks.am", "ks_conf.am", "ks_marks.am", "typed5k.am", "typed5k.c1",
		"crash-load-0.bin", "crash-inc-0.bin", "crash-inc-1.bin",
	} {
		if data, there := maybeFixture(t, name); there {
			all = append(all, data)
		}
	}
	return all
}

// compressed is the change chunk as a compressed one.
func compressed(chunk []byte) []byte {
	frame, err := oneChunk(chunk)
	if err != nil || frame.Kind != KindChange {
		return chunk
	}
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.DefaultCompression)
	_, _ = w.Write(chunk[frame.body:])
	_ = w.Close()
	b := slices.Concat(magic, chunk[4:8], []byte{byte(KindCompressed)})
	return append(appendUint(b, uint64(out.Len())), out.Bytes()...)
}

// anatomy is a chunk taken apart into columns, so that it can be put together again with one of them changed.
type anatomy struct {
	kind   Kind
	before []byte
	tables []columns
	after  []byte
}

func dissect(chunk []byte) (a anatomy, ok bool) {
	frame, err := oneChunk(chunk)
	if err != nil || frame.Kind != KindDocument && frame.Kind != KindChange {
		return a, false
	}
	a.kind = frame.Kind
	p := &parser{b: chunk[frame.body:]}
	if a.kind == KindChange {
		p.hashes("")
		p.sized("")
		p.uint("")
		p.uint("")
		p.int("")
		p.sized("")
		for range p.count("", 1) {
			p.sized("")
		}
	} else {
		for range p.count("", 1) {
			p.sized("")
		}
		p.hashes("")
	}
	a.before = chunk[frame.body : len(chunk)-len(p.b)]
	budget := int64(1 << 20)
	if a.kind == KindChange {
		a.tables = []columns{p.columns("", changeOpColumns, false)}
	} else {
		a.tables = []columns{p.columns("", documentChangeColumns, true), p.columns("", documentOpColumns, true)}
	}
	for _, cs := range a.tables {
		p.fill(cs, &budget)
		for i := range cs {
			cs[i].deflated = false
			cs[i].data = slices.Clone(cs[i].data)
		}
	}
	a.after = p.b
	return a, p.err == nil
}

func (a anatomy) assemble() []byte {
	b := slices.Clone(a.before)
	for _, cs := range a.tables {
		b = appendColumnTable(b, cs)
	}
	for _, cs := range a.tables {
		for _, c := range cs {
			b = append(b, c.data...)
		}
	}
	chunk, _ := appendChunk(nil, a.kind, append(b, a.after...))
	return chunk
}

// mutated is a chunk that was tampered with and whose checksum is right.
func mutated(r randomSource, chunks [][]byte) []byte {
	chunk := chunks[r.IntN(len(chunks))]
	if r.IntN(3) > 0 {
		if a, ok := dissect(chunk); ok {
			for range 1 + r.IntN(3) {
				cs := a.tables[r.IntN(len(a.tables))]
				if len(cs) == 0 {
					continue
				}
				c := &cs[r.IntN(len(cs))]
				switch r.IntN(12) {
				case 0:
					known := [][]spec{changeOpColumns, documentOpColumns, documentChangeColumns}[r.IntN(3)]
					c.spec = known[r.IntN(len(known))]
				case 1:
					c.data = nil
				case 2:
					if other, ok := dissect(chunks[r.IntN(len(chunks))]); ok && len(other.tables[0]) > 0 {
						t := other.tables[r.IntN(len(other.tables))]
						if len(t) > 0 {
							c.data = t[r.IntN(len(t))].data
						}
					}
				case 3:
					a.before = tamper(r, slices.Clone(a.before))
				default:
					c.data = tamper(r, c.data)
				}
			}
			if r.IntN(8) == 0 {
				return compressed(a.assemble())
			}
			return a.assemble()
		}
	}
	body := 10
	if frame, err := oneChunk(chunk); err == nil {
		body = frame.body
	}
	switch r.IntN(10) {
	case 0:
		return chunk[:r.IntN(len(chunk)+1)]
	case 1:
		return tamper(r, slices.Clone(chunk))
	case 2:
		return repaired(tamper(r, slices.Clone(chunk)))
	default:
		chunk, _ := appendChunk(nil, Kind(chunk[8]), tamper(r, slices.Clone(chunk[min(body, len(chunk)):])))
		return chunk
	}
}

// tamper changes bytes in a place or two.
func tamper(r randomSource, b []byte) []byte {
	for range 1 + r.IntN(2) {
		at := r.IntN(len(b) + 1)
		upTo := min(len(b), at+1+r.IntN(4))
		number := appendUint(nil, []uint64{0, 1, 127, 128, math.MaxInt32, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxUint64, uint64(r.IntN(1 << 20))}[r.IntN(10)])
		if r.IntN(2) == 0 {
			number = appendInt(nil, []int64{-1, -2, 2, 3, -64, -65, math.MinInt64, math.MaxInt64, math.MinInt32, int64(r.IntN(1 << 20))}[r.IntN(10)])
		}
		switch r.IntN(7) {
		case 0, 1:
			if at < len(b) {
				b[at] ^= 1 << r.IntN(8)
			}
		case 2:
			if at < len(b) {
				b[at] = byte(r.IntN(256))
			}
		case 3:
			b = slices.Insert(b, at, number...)
		case 4:
			b = slices.Delete(b, at, upTo)
		case 5:
			b = slices.Replace(b, at, upTo, number...)
		case 6:
			b = slices.Insert(b, at, slices.Clone(b[at:upTo])...)
		}
	}
	return b
}

// redrafted is a change some of whose operations say something else.
func redrafted(r randomSource, c *Change) []byte {
	d := Draft{Actor: c.Actor, Seq: c.Seq, StartOp: c.StartOp, Deps: c.Deps, Time: c.Time, Message: c.Message, Actors: c.Actors}
	for op := range c.Ops() {
		o := *op
		o.Pred = slices.Clone(op.Pred)
		d.Ops = append(d.Ops, o)
	}
	if len(d.Ops) == 0 {
		return c.Bytes
	}
	id := func() OpID {
		return OpID{Counter: uint64(r.IntN(int(c.StartOp) + len(d.Ops) + 1)), Actor: uint32(r.IntN(len(c.Actors)))}
	}
	for range 1 + r.IntN(3) {
		op := &d.Ops[r.IntN(len(d.Ops))]
		switch r.IntN(12) {
		case 0:
			op.Obj = id()
		case 1:
			op.Elem = id()
		case 2:
			op.Pred = append(op.Pred, id())
		case 3:
			op.Pred = []OpID{id()}
		case 4:
			op.Pred = nil
		case 5:
			op.Action = Action(r.IntN(8))
			if op.Action != ActionSet {
				op.Value = Value{}
			}
		case 6:
			op.InList = !op.InList
		case 7:
			op.Insert = !op.Insert
			op.Pred = nil
		case 8:
			op.Key = []string{"list", "text", "n", "f", ""}[r.IntN(5)]
		case 9:
			op.Value = Value{Type: ValueType(r.IntN(16)), Raw: []byte{byte(r.IntN(128))}[:r.IntN(2)]}
		case 10:
			op.MarkBegin, op.MarkName, op.Expand = !op.MarkBegin, []string{"", "bold"}[r.IntN(2)], r.IntN(2) == 0
		case 11:
			i := r.IntN(len(d.Ops))
			d.Ops[i], *op = *op, d.Ops[i]
		}
	}
	w, err := d.Write(Limits{})
	if err != nil {
		return c.Bytes
	}
	return w.Bytes
}

// rebase gives the changes with the one put in the place of the one that has its number, and with what depended on that one made to depend on it.
func rebase(t testing.TB, changes []*Change, by *Change) (all []*Change) {
	t.Helper()
	now := map[Hash]Hash{}
	found := false
	for _, c := range changes {
		d := Draft{Actor: c.Actor, Seq: c.Seq, StartOp: c.StartOp, Deps: slices.Clone(c.Deps), Time: c.Time, Message: c.Message, Actors: c.Actors}
		if c.Actor == by.Actor && c.Seq == by.Seq {
			now[c.Hash] = by.Hash
			all = append(all, by)
			found = true
			continue
		}
		for i, dep := range d.Deps {
			if h, changed := now[dep]; changed {
				d.Deps[i] = h
			}
		}
		for op := range c.Ops() {
			o := *op
			o.Pred = slices.Clone(op.Pred)
			d.Ops = append(d.Ops, o)
		}
		w := must(d.Write(Limits{}))(t)
		now[c.Hash] = w.Hash
		all = append(all, w)
	}
	if !found {
		all = append(all, by)
	}
	return all
}
