package amstate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/amformat"
)

func text(s string) amformat.Value { return amformat.Value{Type: amformat.ValueString, Raw: []byte(s)} }

// sample is {"list": [1, {"k": "v"}, "z"], "m": {"a": {"b": true}, "c": 2}, "t": "a<block>b"}.
func sample(t testing.TB) []*amformat.Change {
	insert := func(obj, after amformat.OpID, a amformat.Action, v amformat.Value) amformat.Op {
		return amformat.Op{Obj: obj, InList: true, Insert: true, Elem: after, Action: a, Value: v}
	}
	key := func(obj amformat.OpID, k string, a amformat.Action, v amformat.Value) amformat.Op {
		return amformat.Op{Obj: obj, Key: k, Action: a, Value: v}
	}
	var none amformat.Value
	setTo := amformat.ActionSet
	return written(t,
		key(at(0), "list", amformat.ActionMakeList, none),                // 1
		key(at(0), "m", amformat.ActionMakeTable, none),                  // 2
		key(at(0), "t", amformat.ActionMakeText, none),                   // 3
		insert(at(1), at(0), setTo, number(amformat.ValueInt, 1)),        // 4
		insert(at(1), at(4), amformat.ActionMakeMap, none),               // 5
		insert(at(1), at(5), setTo, text("z")),                           // 6
		key(at(5), "k", setTo, text("v")),                                // 7
		key(at(2), "a", amformat.ActionMakeMap, none),                    // 8
		key(at(8), "b", setTo, amformat.Value{Type: amformat.ValueTrue}), // 9
		key(at(2), "c", setTo, number(amformat.ValueCounter, 2)),         // 10
		insert(at(3), at(0), setTo, text("a")),                           // 11
		insert(at(3), at(11), amformat.ActionMakeMap, none),              // 12
		insert(at(3), at(12), setTo, text("b")),                          // 13
		key(at(12), "type", setTo, text("p")),                            // 14
	)
}

func TestGet(t *testing.T) {
	s := stateOf(t, sample(t), Options{})
	for _, c := range []struct {
		path Path
		kind Kind
		id   string
		json string
	}{
		{nil, Map, "_root", `{"list":[1,{"k":"v"},"z"],"m":{"a":{"b":true},"c":2},"t":"a` + object + `b"}`},
		{Path{"list"}, List, "1@01", `[1,{"k":"v"},"z"]`},
		{Path{"list", 0}, Int, "4@01", `1`},
		{Path{"list", 1}, Map, "5@01", `{"k":"v"}`},
		{Path{"list", 1, "k"}, String, "7@01", `"v"`},
		{Path{"m"}, Map, "2@01", `{"a":{"b":true},"c":2}`},
		{Path{"m", "a", "b"}, Bool, "9@01", `true`},
		{Path{"m", "c"}, Counter, "10@01", `2`},
		{Path{"t"}, Text, "3@01", `"a` + object + `b"`},
		{Path{"t", 1}, Map, "12@01", `{"type":"p"}`},
	} {
		v, there := s.Get(c.path...)
		if !there || v.Kind() != c.kind || v.ID().String() != c.id || string(v.JSON()) != c.json {
			t.Errorf("%v: %v %v %v %s", c.path, there, v.Kind(), v.ID(), v.JSON())
		}
		// The same from what is kept of the path alone.
		part := stateOf(t, sample(t), Options{Paths: []Path{c.path, {"other"}}})
		v, there = part.Get(c.path...)
		if !there || v.Kind() != c.kind || v.ID().String() != c.id || string(v.JSON()) != c.json {
			t.Errorf("%v alone: %v %v %v %s", c.path, there, v.Kind(), v.ID(), v.JSON())
		}
	}
	for _, path := range []Path{{"x"}, {"list", 3}, {"list", -1}, {"list", "k"}, {"m", 0}, {"m", "c", "d"}, {"t", 0}, {"t", "a"}, {1}, {1.5}} {
		if v, there := s.Get(path...); there {
			t.Errorf("%v: %s", path, v.JSON())
		}
		if path[0] == 1.5 {
			continue
		}
		if v, there := stateOf(t, sample(t), Options{Paths: []Path{path}}).Get(path...); there {
			t.Errorf("%v alone: %s", path, v.JSON())
		}
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		paths []Path
		want  string
	}{
		{[]Path{}, `{}`},
		{[]Path{{"m"}}, `{"m":{"a":{"b":true},"c":2}}`},
		{[]Path{{"m", "a"}, {"m", "a", "b"}}, `{"m":{"a":{"b":true}}}`},
		{[]Path{{"m", "a", "b"}, {"m", "a"}, {"list", 2}}, `{"list":["z"],"m":{"a":{"b":true}}}`},
		{[]Path{{"m", "a", "x"}, {"m", "c"}}, `{"m":{"a":{},"c":2}}`},
		{[]Path{{"list", 1, "k"}, {"list", 0}}, `{"list":[1,{"k":"v"}]}`},
		{[]Path{{}, {"m"}}, `{"list":[1,{"k":"v"},"z"],"m":{"a":{"b":true},"c":2},"t":"a` + object + `b"}`},
	} {
		if got := string(stateOf(t, sample(t), Options{Paths: c.paths}).JSON()); got != c.want {
			t.Errorf("%v: %s, want %s", c.paths, got, c.want)
		}
	}
	rows := must(amformat.Merge(nil, sample(t)))(t)
	if _, err := Read(t.Context(), rows, Options{Paths: []Path{{"m", 1.5}}}); err == nil {
		t.Error("a step that is no step")
	}
}

func TestConflicts(t *testing.T) {
	a := amformat.Draft{Actor: "\x01", Seq: 1, StartOp: 1, Ops: []amformat.Op{set("k", amformat.ValueTrue), {Key: "o", Action: amformat.ActionMakeMap}, set("z", amformat.ValueNull)}}
	a.Ops[2].Obj, a.Actors = at(2), []amformat.ActorID{"\x01"}
	b := amformat.Draft{Actor: "\x02", Seq: 1, StartOp: 1, Actors: []amformat.ActorID{"\x02"}, Ops: []amformat.Op{
		set("k", amformat.ValueFalse), {Key: "o", Action: amformat.ActionMakeList},
		{Obj: at(2), InList: true, Insert: true, Action: amformat.ActionSet, Value: text("x")},
	}}
	changes := []*amformat.Change{must(a.Write(amformat.Limits{}))(t), must(b.Write(amformat.Limits{}))(t)}
	s := stateOf(t, changes, Options{Conflicts: true})
	vs := s.Conflicts("k")
	if len(vs) != 2 || vs[0].ID().String() != "1@02" || vs[1].ID().String() != "1@01" || vs[0].Any() != false || vs[1].Any() != true {
		t.Errorf("%s", short(vs))
	}
	if vs = s.Conflicts("o"); len(vs) != 2 || string(vs[0].JSON()) != `["x"]` || string(vs[1].JSON()) != `{"z":null}` {
		t.Errorf("%s", short(vs))
	}
	if vs = s.Conflicts("o", 0); len(vs) != 1 || s.Conflicts("x") != nil || s.Conflicts() != nil || s.Conflicts("k", 1) != nil {
		t.Errorf("%s", short(vs))
	}
	if vs := stateOf(t, changes, Options{}).Conflicts("k"); len(vs) != 1 {
		t.Errorf("without being asked to keep them: %s", short(vs))
	}
}

func TestClockOf(t *testing.T) {
	h := func(b byte) amformat.Hash { return amformat.Hash{b} }
	all := []Node{
		{Hash: h(3), Deps: []amformat.Hash{h(1), h(2)}, Actor: "a", MaxOp: 9},
		{Hash: h(1), Actor: "a", MaxOp: 3},
		{Hash: h(2), Actor: "b", MaxOp: 5},
		{Hash: h(4), Deps: []amformat.Hash{h(9)}, Actor: "c", MaxOp: 1},
	}
	if c := must(ClockOf(slices.Values(all), []amformat.Hash{h(3)}))(t); len(c) != 2 || c["a"] != 9 || c["b"] != 5 {
		t.Errorf("%v", c)
	}
	if c := must(ClockOf(slices.Values(all), []amformat.Hash{h(1)}))(t); len(c) != 1 || c["a"] != 3 {
		t.Errorf("%v", c)
	}
	if c := must(ClockOf(slices.Values(all), nil))(t); c == nil || len(c) != 0 {
		t.Errorf("%v", c)
	}
	if _, err := ClockOf(slices.Values(all), []amformat.Hash{h(8)}); !errors.Is(err, ErrUnknownHead) {
		t.Errorf("%v", err)
	}
	if _, err := ClockOf(slices.Values(all), []amformat.Hash{h(4)}); !errors.Is(err, amformat.ErrMissing) {
		t.Errorf("%v", err)
	}
}

func TestReadIsCancelled(t *testing.T) {
	doc := document(t, testdata(t, "automerge", "text3mb.am"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if _, err := Read(ctx, doc.Rows(), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := Diff(ctx, doc.Rows(), nil, Clock{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("after %v", took)
	}
}

// nested is objects within objects.
func nested(t testing.TB, depth int) []*amformat.Change {
	ops := []amformat.Op{{Key: "k", Action: amformat.ActionMakeMap}}
	for i := 1; i < depth; i++ {
		ops = append(ops, amformat.Op{Obj: at(i), Key: "k", Action: amformat.ActionMakeMap})
	}
	return written(t, ops...)
}

func TestDepth(t *testing.T) {
	s := stateOf(t, nested(t, 1000), Options{})
	jsonValue(t, s.JSON())
	for _, depth := range []int64{0, 10} {
		n := 1001
		if depth > 0 {
			n = 11
		}
		rows, err := amformat.Merge(nil, nested(t, n))
		if err == nil {
			_, err = Read(t.Context(), rows, Options{Depth: depth})
		}
		var limit *amformat.LimitError
		if !errors.As(err, &limit) || limit.What != "depth" || !errors.Is(err, amformat.ErrLimit) {
			t.Errorf("%d within each other: %v", n, err)
		}
	}
	doc, err := amformat.ParseDocument(testdata(t, "automerge", "deep.am"), amformat.Limits{})
	if err == nil {
		_, err = Read(t.Context(), doc.Rows(), Options{})
	}
	if !errors.Is(err, amformat.ErrLimit) {
		t.Errorf("deep.am: %v", err)
	}
}

func TestSpansOfNoText(t *testing.T) {
	if _, err := stateOf(t, sample(t), Options{}).Root().Spans(); !errors.Is(err, ErrNotText) {
		t.Errorf("%v", err)
	}
}

// An element of a text may have several values as well.
func TestConflictInText(t *testing.T) {
	over := insertRune(at(1), at(2), 'b')
	over.Insert = false
	s := stateOf(t, written(t, amformat.Op{Key: "t", Action: amformat.ActionMakeText}, insertRune(at(1), at(0), 'a'), over, insertRune(at(1), at(2), 'é')), Options{Conflicts: true})
	if got := string(s.JSON()); got != `{"t":"bé"}` {
		t.Error(got)
	}
	if vs := s.Conflicts("t", 0); short(vs) != `["b","a"]` || vs[0].ID().Counter != 3 {
		t.Errorf("%s", short(vs))
	}
	if vs := s.Conflicts("t", 1); short(vs) != `["é"]` || s.Conflicts("t", 2) != nil || s.Conflicts("t", -1) != nil || s.Conflicts("t", "x") != nil {
		t.Errorf("%s", short(vs))
	}
	if all := s.AllConflicts(); len(all) != 1 || all[0].Path.String() != "t[0]" {
		t.Errorf("%s", short(all))
	}
}

// counted counts how many rows are asked for.
type counted struct {
	Rows
	n int
}

func (c *counted) Next() bool {
	c.n++
	return c.Rows.Next()
}

// Rows that say nothing about what is asked for aren't read.
func TestReadEndsEarly(t *testing.T) {
	ops := []amformat.Op{set("v", amformat.ValueTrue), {Key: "t", Action: amformat.ActionMakeText}}
	for range 100 {
		ops = append(ops, insertRune(at(2), at(0), 'x'))
	}
	rows := &counted{Rows: must(amformat.Merge(nil, written(t, ops...)))(t)}
	s := must(Read(t.Context(), rows, Options{Paths: []Path{{"v"}}}))(t)
	if string(s.JSON()) != `{"v":true}` || rows.n > 4 {
		t.Errorf("%d rows for %s", rows.n, s.JSON())
	}
}
