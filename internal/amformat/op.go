package amformat

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// OpID names an operation: a counter and the index of its actor in a table of actors (see the package's documentation). The zero OpID is
// none: as an object it is the root map, as an element the place before the first.
type OpID struct {
	Counter uint64
	Actor   uint32
}

// IsZero tells the root, the head of a list, and no operation from an operation.
func (id OpID) IsZero() bool { return id.Counter == 0 }

// Compare orders operations of tables that are in the order of actors, as a document's is: by counter, then actor. The later of two
// concurrent values wins.
func (id OpID) Compare(o OpID) int {
	switch {
	case id.Counter < o.Counter:
		return -1
	case id.Counter > o.Counter:
		return 1
	case id.Actor < o.Actor:
		return -1
	case id.Actor > o.Actor:
		return 1
	}
	return 0
}

// maxCounter is the highest counter that other implementations can hold.
const maxCounter = math.MaxUint32

// Action is what an operation does.
type Action uint8

// The actions.
const (
	ActionMakeMap   Action = 0
	ActionSet       Action = 1
	ActionMakeList  Action = 2
	ActionDelete    Action = 3 // only in changes: a document has it as the successor of what it deleted
	ActionMakeText  Action = 4
	ActionIncrement Action = 5 // adds to the counters that it succeeds
	ActionMakeTable Action = 6
	ActionMark      Action = 7 // begins or ends a range of formatted text
)

// Makes tells whether the operation makes an object, which then has the operation's id.
func (a Action) Makes() bool {
	return a == ActionMakeMap || a == ActionMakeList || a == ActionMakeText || a == ActionMakeTable
}

// List tells whether the object that the action makes is a sequence: a list or a text.
func (a Action) List() bool { return a == ActionMakeList || a == ActionMakeText }

// ValueType says how a value is to be read.
type ValueType uint8

// The types of values. Those from 10 to 15 are unknown: they are kept and have no meaning.
const (
	ValueNull      ValueType = 0
	ValueFalse     ValueType = 1
	ValueTrue      ValueType = 2
	ValueUint      ValueType = 3
	ValueInt       ValueType = 4
	ValueFloat     ValueType = 5
	ValueString    ValueType = 6
	ValueBytes     ValueType = 7
	ValueCounter   ValueType = 8
	ValueTimestamp ValueType = 9 // milliseconds since 1970
)

// Value is the value of an operation. Raw shares the memory of what was parsed and must not be written to.
type Value struct {
	Type ValueType
	Raw  []byte
}

// Uint is the number of a [ValueUint].
func (v Value) Uint() uint64 {
	u, _ := readUint(v.Raw)
	return u
}

// Int is the number of a [ValueInt], [ValueCounter] or [ValueTimestamp].
func (v Value) Int() int64 {
	i, _ := readInt(v.Raw)
	return i
}

// Float is the number of a [ValueFloat].
func (v Value) Float() float64 {
	if len(v.Raw) != 8 {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(v.Raw))
}

// valid judges whether the bytes are of the type.
func (v Value) valid() bool {
	switch v.Type {
	case ValueNull, ValueFalse, ValueTrue:
		return len(v.Raw) == 0
	case ValueUint:
		_, n := readUint(v.Raw)
		return n == len(v.Raw) && n > 0
	case ValueInt, ValueCounter, ValueTimestamp:
		_, n := readInt(v.Raw)
		return n == len(v.Raw) && n > 0
	case ValueFloat:
		return len(v.Raw) == 8
	case ValueString:
		return len(v.Raw) == 1 && v.Raw[0] < utf8.RuneSelf || utf8.Valid(v.Raw)
	}
	return v.Type <= 15
}

// Op is one operation. Where operations are iterated, the Op and its slices are used again for the next one: copy what is to be kept.
// Strings and Value.Raw stay valid.
type Op struct {
	ID     OpID
	Obj    OpID // zero is the root
	InList bool // whether Elem names the place; else Key does
	Key    string
	Elem   OpID // the element that is changed or, with Insert, that the new element follows; zero is before the first
	Insert bool // whether the operation makes a new element, with the operation's id
	Action Action
	Value  Value

	Pred []OpID // in changes: the operations that this one overwrites, in order
	Succ []OpID // in documents: the operations that have this one as predecessor, in order (increments are among them)

	// Of marks: the operation that begins a mark has its name and value, the one that ends it has neither.
	MarkBegin bool
	MarkName  string
	Expand    bool // whether text inserted at this end belongs to the range
}

// Element is the element of a list that the operation is about: itself if it inserts one.
func (op *Op) Element() OpID {
	if op.Insert {
		return op.ID
	}
	return op.Elem
}

// check judges what can be judged of an operation alone.
func (op *Op) check() error {
	if op.Action > ActionMark {
		return malformed("the unknown action %d", op.Action)
	}
	if !op.Value.valid() {
		return malformed("a value of %d bytes is none of type %d", len(op.Value.Raw), op.Value.Type)
	}
	if op.Action != ActionSet {
		switch {
		case op.Action == ActionMark && op.MarkBegin:
		case op.Action == ActionIncrement:
			if op.Value.Type != ValueInt {
				return malformed("an increment by a value of type %d", op.Value.Type)
			}
		case op.Value.Type != ValueNull:
			return malformed("a value with the action %d", op.Action)
		}
	}
	if op.Action == ActionMark {
		if !op.InList || !op.Insert {
			return malformed("a mark that isn't within a text")
		}
	} else if op.MarkBegin || op.Expand {
		return malformed("the parts of a mark with the action %d", op.Action)
	}
	if op.Insert && (op.Action == ActionDelete || op.Action == ActionIncrement) {
		return malformed("the action %d inserts an element", op.Action)
	}
	if op.InList {
		if op.Obj.IsZero() {
			return malformed("an element of the root, which is a map")
		}
		if op.Elem.IsZero() && !op.Insert {
			return malformed("a change of the element before the first")
		}
		if op.Elem.Counter >= op.ID.Counter {
			return malformed("an operation on an element that is made later")
		}
	} else if op.Insert {
		return malformed("an element is inserted into a map")
	}
	if op.Obj.Counter >= op.ID.Counter {
		return malformed("an operation on an object that is made later")
	}
	return nil
}
