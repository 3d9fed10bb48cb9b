package amstate

import (
	"fmt"
	"math"
	"time"

	"github.com/annals-db/annals/internal/amformat"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values. Tables are maps.
const (
	Null Kind = iota
	Bool
	Int
	Uint
	Float
	String
	Bytes
	Counter
	Timestamp
	Unknown // of a later version: it is there and means nothing
	Map
	List
	Text
)

var kindNames = [...]string{"null", "bool", "int", "uint", "float", "string", "bytes", "counter", "timestamp", "unknown", "map", "list", "text"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// value is a value as sweeps keep it.
type value struct {
	id   amformat.OpID
	num  int64  // of numbers, booleans and times; a float's and a uint's bits
	raw  []byte // of strings, bytes and the unknown
	node *node  // of objects, once they are kept
	kind Kind
}

// fill makes v what the operation sets or makes.
func (v *value) fill(op *amformat.Op) {
	*v = value{id: op.ID}
	switch op.Action {
	case amformat.ActionMakeMap, amformat.ActionMakeTable:
		v.kind = Map
	case amformat.ActionMakeList:
		v.kind = List
	case amformat.ActionMakeText:
		v.kind = Text
	default:
		v.scalar(op.Value)
	}
}

func (v *value) scalar(x amformat.Value) {
	switch x.Type {
	case amformat.ValueNull:
		v.kind = Null
	case amformat.ValueFalse:
		v.kind = Bool
	case amformat.ValueTrue:
		v.kind, v.num = Bool, 1
	case amformat.ValueUint:
		v.kind, v.num = Uint, int64(x.Uint())
	case amformat.ValueInt:
		v.kind, v.num = Int, x.Int()
	case amformat.ValueFloat:
		v.kind, v.num = Float, int64(math.Float64bits(x.Float()))
	case amformat.ValueString:
		v.kind, v.raw = String, x.Raw
	case amformat.ValueBytes:
		v.kind, v.raw = Bytes, x.Raw
	case amformat.ValueCounter:
		v.kind, v.num = Counter, x.Int()
	case amformat.ValueTimestamp:
		v.kind, v.num = Timestamp, x.Int()
	default:
		v.kind, v.raw = Unknown, x.Raw
	}
}

// same tells whether two scalars are equal. Objects are only equal to themselves.
func (v *value) same(o *value) bool {
	if v.kind != o.kind {
		return false
	}
	if v.kind >= Map {
		return v.id == o.id
	}
	return v.num == o.num && string(v.raw) == string(o.raw)
}

// ID is an operation, and the object or element that it made.
type ID struct {
	Counter uint64
	Actor   amformat.ActorID
}

// String is the id as Automerge writes it: counter@actor, and _root for the root.
func (id ID) String() string {
	if id.Counter == 0 {
		return "_root"
	}
	return fmt.Sprintf("%d@%s", id.Counter, id.Actor)
}

// Value is a value of a [State]. The zero Value is null.
type Value struct {
	v      value
	actors []amformat.ActorID
}

// Kind is what the value is.
func (v Value) Kind() Kind { return v.v.kind }

// ID is the operation that set the value; of maps, lists and texts it is the object's id.
func (v Value) ID() ID {
	if v.v.id.IsZero() {
		return ID{}
	}
	return ID{Counter: v.v.id.Counter, Actor: v.actors[v.v.id.Actor]}
}

// Len is the number of a map's entries, of a list's elements, of the bytes of a text, a string or of bytes.
func (v Value) Len() int {
	switch n := v.v.node; {
	case n == nil:
		return len(v.v.raw)
	case n.kind == Text:
		return len(n.text)
	default:
		return len(n.vals)
	}
}

// Int is the value of an integer, a counter or a timestamp (milliseconds since 1970); ok is false for others, and for integers that an
// int64 can't hold.
func (v Value) Int() (i int64, ok bool) {
	switch v.v.kind {
	case Int, Counter, Timestamp:
		return v.v.num, true
	case Uint:
		return v.v.num, v.v.num >= 0
	}
	return 0, false
}

// Text is the value of a string or a text.
func (v Value) Text() (s string, ok bool) {
	switch v.v.kind {
	case String:
		return string(v.v.raw), true
	case Text:
		if v.v.node != nil {
			s = string(v.v.node.text)
		}
		return s, true
	}
	return "", false
}

// Any is the value as Go has it: nil, bool, int64 (integers and counters), uint64, float64, string (strings and texts), []byte, time.Time in UTC,
// map[string]any, []any; nil for the unknown.
func (v Value) Any() any { return v.v.any() }

func (v *value) any() any {
	switch v.kind {
	case Bool:
		return v.num != 0
	case Int, Counter:
		return v.num
	case Uint:
		return uint64(v.num)
	case Float:
		return math.Float64frombits(uint64(v.num))
	case String:
		return string(v.raw)
	case Bytes:
		return append([]byte{}, v.raw...)
	case Timestamp:
		return time.UnixMilli(v.num).UTC()
	case Map:
		m := map[string]any{}
		if v.node != nil {
			for i, k := range v.node.keys {
				m[k] = v.node.vals[i].any()
			}
		}
		return m
	case List:
		l := []any{}
		if v.node != nil {
			for i := range v.node.vals {
				l = append(l, v.node.vals[i].any())
			}
		}
		return l
	case Text:
		if v.node != nil {
			return string(v.node.text)
		}
		return ""
	}
	return nil
}
