package amformat

import (
	"math/rand/v2"
	"testing"
)

// mixed is a small document by two actors with every kind of operation, made without another implementation.
func mixed(t testing.TB) (changes []*Change) {
	t.Helper()
	const a, b = ActorID("\x01first"), ActorID("\x02second")
	value := func(typ ValueType, raw ...byte) Value { return Value{Type: typ, Raw: raw} }
	id := func(n uint64, actor uint32) OpID { return OpID{Counter: n, Actor: actor} }
	write := func(d Draft) *Change {
		d.Actors = []ActorID{a, b}
		c := must(d.Write(Limits{}))(t)
		changes = append(changes, c)
		return c
	}
	one := write(Draft{Actor: a, Seq: 1, StartOp: 1, Time: 1700000000, Message: "begin", Ops: []Op{
		{Key: "list", Action: ActionMakeList},
		{Key: "text", Action: ActionMakeText},
		{Key: "n", Action: ActionSet, Value: value(ValueCounter, 5)},
		{Key: "f", Action: ActionSet, Value: value(ValueFloat, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f)},
		{Obj: id(1, 0), InList: true, Insert: true, Action: ActionSet, Value: value(ValueUint, 7)},
		{Obj: id(1, 0), InList: true, Elem: id(5, 0), Insert: true, Action: ActionMakeMap},
		{Obj: id(6, 0), Key: "deep", Action: ActionSet, Value: value(ValueString, 'x', 'y')},
		{Obj: id(2, 0), InList: true, Insert: true, Action: ActionSet, Value: value(ValueString, 'h')},
		{Obj: id(2, 0), InList: true, Elem: id(8, 0), Insert: true, Action: ActionSet, Value: value(ValueString, 'i')},
	}})
	left := write(Draft{Actor: a, Seq: 2, StartOp: 10, Deps: []Hash{one.Hash}, Ops: []Op{
		{Obj: id(2, 0), InList: true, Elem: id(8, 0), Insert: true, Action: ActionMark, MarkBegin: true, MarkName: "bold", Value: value(ValueTrue), Expand: true},
		{Obj: id(2, 0), InList: true, Elem: id(9, 0), Insert: true, Action: ActionMark},
		{Obj: id(2, 0), InList: true, Elem: id(8, 0), Action: ActionDelete, Pred: []OpID{id(8, 0)}},
		{Key: "n", Action: ActionIncrement, Value: value(ValueInt, 0x7d), Pred: []OpID{id(3, 0)}},
		{Key: "t", Action: ActionSet, Value: value(ValueTimestamp, 0x7f)},
		{Key: "f", Action: ActionDelete, Pred: []OpID{id(4, 0)}},
		{Obj: id(1, 0), InList: true, Elem: id(5, 0), Action: ActionSet, Value: value(ValueInt, 1), Pred: []OpID{id(5, 0)}},
	}})
	right := write(Draft{Actor: b, Seq: 1, StartOp: 10, Deps: []Hash{one.Hash}, Ops: []Op{
		{Obj: id(2, 0), InList: true, Elem: id(8, 0), Insert: true, Action: ActionSet, Value: value(ValueString, 0xc3, 0xa9)},
		{Obj: id(2, 0), InList: true, Elem: id(10, 1), Insert: true, Action: ActionSet, Value: value(ValueString, '!')},
		{Key: "n", Action: ActionIncrement, Value: value(ValueInt, 2), Pred: []OpID{id(3, 0)}},
		{Obj: id(1, 0), InList: true, Elem: id(5, 0), Action: ActionSet, Value: value(ValueNull), Pred: []OpID{id(5, 0)}},
		{Key: "f", Action: ActionSet, Value: value(ValueFalse), Pred: []OpID{id(4, 0)}},
		{Key: "bytes", Action: ActionSet, Value: value(ValueBytes, 0, 255)},
		{Key: "table", Action: ActionMakeTable},
		{Key: "later", Action: ActionSet, Value: value(12, 1, 2, 3)},
	}})
	both := write(Draft{Actor: b, Seq: 2, StartOp: 18, Deps: []Hash{left.Hash, right.Hash}, Ops: []Op{
		{Obj: id(1, 0), InList: true, Elem: id(5, 0), Action: ActionSet, Value: value(ValueInt, 3), Pred: []OpID{id(13, 1), id(16, 0)}},
	}})
	write(Draft{Actor: a, Seq: 3, StartOp: 19, Deps: []Hash{both.Hash}, Message: "nothing"})
	return changes
}
func TestMixedDocument(t *testing.T) {
	var chunks [][]byte
	changes := mixed(t)
	for _, c := range changes {
		chunks = append(chunks, c.Bytes)
	}
	saved := holds(t, rand.New(rand.NewPCG(1, 3)), chunks, []Hash{changes[len(changes)-1].Hash})
	e := goEngine(t)
	t.Log(e.load(saved))
}
