package automerge

import (
	"encoding/binary"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/annals-db/annals/internal/amformat"
)

// The state of a tree, as it is kept beside a projection: the actors, then the root. An object is its keys with their values, or its elements in
// runs; an object that is a value follows it at once. What is typed is a run of elements of one actor, each a character, which takes little
// more than its text.

const stateVersion = 1

// Kinds of runs of elements.
const (
	runGone  = 0 // elements without values
	runTyped = 1 // elements that still are the one character that was inserted
	runOther = 2 // one element with its values
)

var errState = errors.New("the state of a projection is damaged")

// encode writes the tree. It returns nil where that would take more than most bytes.
func (t *tree) encode(most int) []byte {
	b := []byte{stateVersion}
	b = binary.AppendUvarint(b, uint64(len(t.actors)))
	for _, a := range t.actors {
		b = appendSized(b, []byte(a))
	}
	b = t.encodeObject(b, t.objects[amformat.OpID{}], most)
	if len(b) > most {
		return nil
	}
	return b
}

func appendSized(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func appendID(b []byte, id amformat.OpID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.Counter), uint64(id.Actor))
}

func (t *tree) encodeObject(b []byte, o *object, most int) []byte {
	if len(b) > most {
		return b
	}
	if o.keys != nil {
		b = binary.AppendUvarint(b, uint64(len(o.keys)))
		for key, values := range o.keys {
			b = appendSized(b, []byte(key))
			b = t.encodeValues(b, values, most)
		}
		return b
	}
	for i := 0; i < len(o.elements); {
		kind, n := runOf(o.elements[i:])
		b = appendID(append(b, kind), o.elements[i].id)
		switch kind {
		case runGone:
			b = binary.AppendUvarint(b, uint64(n))
		case runTyped:
			size := 0
			for _, e := range o.elements[i : i+n] {
				size += len(e.values[0].raw)
			}
			b = binary.AppendUvarint(b, uint64(size))
			for _, e := range o.elements[i : i+n] {
				b = append(b, e.values[0].raw...)
			}
		default:
			b = t.encodeValues(b, o.elements[i].values, most)
		}
		if i += n; len(b) > most {
			return b
		}
	}
	return append(b, 0xFF)
}

// runOf returns the kind of the run that elements begin with, and how long it is.
func runOf(elements []element) (kind byte, n int) {
	first := elements[0]
	kind = kindOfElement(first)
	if kind == runOther {
		return kind, 1
	}
	for n = 1; n < len(elements); n++ {
		e := elements[n]
		if e.id.Actor != first.id.Actor || e.id.Counter != first.id.Counter+uint64(n) || kindOfElement(e) != kind {
			break
		}
	}
	return kind, n
}

func kindOfElement(e element) byte {
	switch {
	case len(e.values) == 0:
		return runGone
	case len(e.values) == 1 && e.values[0].id == e.id && e.values[0].action == amformat.ActionSet && e.values[0].typ == amformat.ValueString:
		if _, n := utf8.DecodeRune(e.values[0].raw); n == len(e.values[0].raw) && n > 0 {
			return runTyped
		}
	}
	return runOther
}

func (t *tree) encodeValues(b []byte, values []value, most int) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = appendID(b, v.id)
		b = append(b, byte(v.action)<<4|byte(v.typ))
		b = appendSized(b, v.raw)
		b = binary.AppendVarint(b, v.plus)
		if v.action.Makes() {
			b = t.encodeObject(b, t.objects[v.id], most)
		}
	}
	return b
}

// decodeTree reads a tree that was encoded for the same wish.
func decodeTree(state []byte, want *wanted) (*tree, error) {
	d := &stateReader{b: state}
	if d.byte() != stateVersion {
		return nil, errState
	}
	t := newTree(want)
	for range d.uint() {
		if d.err != nil {
			return nil, d.err
		}
		t.place(amformat.ActorID(d.sized()))
	}
	d.object(t, t.objects[amformat.OpID{}])
	if d.err != nil || len(d.b) > 0 {
		return nil, errState
	}
	return t, nil
}

type stateReader struct {
	b   []byte
	err error
}

func (d *stateReader) fail() {
	d.err, d.b = errState, nil
}

func (d *stateReader) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *stateReader) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *stateReader) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *stateReader) sized() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	data := d.b[:n:n]
	d.b = d.b[n:]
	return data
}

func (d *stateReader) id() amformat.OpID {
	return amformat.OpID{Counter: d.uint(), Actor: uint32(d.uint())}
}

func (d *stateReader) object(t *tree, o *object) {
	if o.keys != nil {
		for range d.uint() {
			if d.err != nil {
				return
			}
			key := string(d.sized())
			want, ok := o.want.below(key)
			if !ok {
				d.fail()
				return
			}
			o.keys[key] = d.values(t, want)
		}
		return
	}
	for {
		kind := d.byte()
		if kind == 0xFF || d.err != nil {
			return
		}
		id := d.id()
		switch kind {
		case runGone:
			for i := range d.uint() {
				if i > maxState*64 {
					d.fail()
					return
				}
				o.elements = append(o.elements, element{id: amformat.OpID{Counter: id.Counter + i, Actor: id.Actor}})
			}
		case runTyped:
			text := d.sized()
			o.elements = slices.Grow(o.elements, len(text)/2)
			values := make([]value, 0, len(text))
			for len(text) > 0 {
				_, n := utf8.DecodeRune(text)
				values = append(values, value{id: id, action: amformat.ActionSet, typ: amformat.ValueString, raw: text[:n:n]})
				o.elements = append(o.elements, element{id: id, values: values[len(values)-1 : len(values) : len(values)]})
				text = text[n:]
				id.Counter++
			}
		case runOther:
			o.elements = append(o.elements, element{id: id, values: d.values(t, nil)})
		default:
			d.fail()
			return
		}
	}
}

func (d *stateReader) values(t *tree, want *wanted) []value {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	values := make([]value, 0, n)
	for range n {
		v := value{id: d.id()}
		c := d.byte()
		v.action, v.typ = amformat.Action(c>>4), amformat.ValueType(c&15)
		v.raw = d.sized()
		v.plus = d.int()
		if d.err != nil {
			return nil
		}
		if int(v.id.Actor) >= len(t.actors) {
			d.fail()
			return nil
		}
		values = append(values, v)
		if v.action.Makes() {
			o := newObject(v.action, want)
			t.objects[v.id] = o
			d.object(t, o)
		}
	}
	return values
}
