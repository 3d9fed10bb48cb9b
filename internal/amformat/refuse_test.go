package amformat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// unchecked writes a change that nobody has validated.
func unchecked(h Header, ops ...Op) []byte {
	if h.Actor == "" {
		h.Actor = "a"
	}
	if h.Seq == 0 {
		h.Seq = 1
	}
	if h.StartOp == 0 {
		h.StartOp = 100
	}
	if len(h.Actors) == 0 {
		h.Actors = []ActorID{h.Actor}
	}
	c := &Change{Header: h}
	w := newChangeWriter()
	for i := range ops {
		w.add(&ops[i], ops[i].Obj, ops[i].Elem, ops[i].Pred)
	}
	c.assemble(nil, w.finish())
	return c.Bytes
}

func refuses(t *testing.T, err, kind error, message string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), message) {
		t.Errorf("%v, and not %v with %q", err, kind, message)
	}
}

func TestSplitChunks(t *testing.T) {
	changes := mixed(t)
	a, b := changes[0].Bytes, changes[1].Bytes
	chunks := must(SplitChunks(slices.Concat(a, b, compressed(a))))(t)
	if len(chunks) != 3 || string(chunks[0].Bytes) != string(a) || string(chunks[1].Bytes) != string(b) || chunks[2].Kind != KindCompressed {
		t.Errorf("chunks: %+v", chunks)
	}
	if none := must(SplitChunks(nil))(t); len(none) != 0 {
		t.Errorf("chunks of nothing: %v", none)
	}
	kind := func(k byte) []byte { c := slices.Clone(a); c[8] = k; return c }
	for _, test := range []struct {
		name, message string
		data          []byte
		err           error
	}{
		{"no chunk", "no chunk begins", []byte("hello"), ErrMalformed},
		{"half a magic", "are no chunk", a[:3], ErrTruncated},
		{"a frame alone", "are no chunk", a[:9], ErrTruncated},
		{"half", "has", a[:len(a)-1], ErrTruncated},
		{"half the second", "chunk 2, at byte", slices.Concat(a, b[:20]), ErrTruncated},
		{"trailing bytes", "no chunk begins", slices.Concat(a, []byte{0}), ErrMalformed},
		{"bundle", "bundle", kind(3), ErrUnsupported},
		{"unknown", "unknown kind 4", kind(4), ErrMalformed},
		{"long length", "no number", slices.Concat(a[:9], []byte{0x81, 0x00, 0}), ErrMalformed},
		{"huge length", "has", slices.Concat(a[:9], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}), ErrTruncated},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := SplitChunks(test.data)
			refuses(t, err, test.err, test.message)
		})
	}
}

func TestParseChangeAndHeader(t *testing.T) {
	for _, c := range mixed(t) {
		for _, data := range [][]byte{c.Bytes, compressed(c.Bytes)} {
			again := must(ParseChange(data, Limits{}))(t)
			h := must(ParseHeader(data, Limits{}))(t)
			for _, h := range []*Header{&again.Header, h} {
				if h.Hash != c.Hash || string(h.Bytes) != string(c.Bytes) || !slices.Equal(h.Deps, c.Deps) || !slices.Equal(h.Actors, c.Actors) ||
					h.Seq != c.Seq || h.StartOp != c.StartOp || h.NumOps != c.NumOps || h.Time != c.Time || h.Message != c.Message {
					t.Errorf("got %+v\nwant %+v", h, c.Header)
				}
			}
			bad := slices.Clone(data)
			bad[5] ^= 1
			_, err := ParseChange(bad, Limits{})
			refuses(t, err, ErrChecksum, "checksum")
			_, err = ParseHeader(bad, Limits{})
			refuses(t, err, ErrChecksum, "checksum")
		}
	}
}

func TestParseChangeRefuses(t *testing.T) {
	text := OpID{Counter: 5}
	id := func(n uint64) OpID { return OpID{Counter: n} }
	set := Op{Key: "k", Action: ActionSet}
	inText := Op{Obj: text, InList: true, Insert: true, Action: ActionSet}
	with := func(op Op, change func(*Op)) Op { change(&op); return op }
	for _, test := range []struct {
		message string
		data    []byte
	}{
		{"the unknown action 8", unchecked(Header{}, with(set, func(o *Op) { o.Action = 8 }))},
		{"an increment by a value of type 3", unchecked(Header{}, with(set, func(o *Op) { o.Action, o.Value = ActionIncrement, Value{Type: ValueUint, Raw: []byte{1}} }))},
		{"a value with the action 0", unchecked(Header{}, with(set, func(o *Op) { o.Action, o.Value.Type = ActionMakeMap, ValueTrue }))},
		{"none of type 1", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueFalse, Raw: []byte{0}} }))},
		{"none of type 3", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueUint, Raw: []byte{0x80, 0}} }))},
		{"none of type 4", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueInt} }))},
		{"none of type 5", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueFloat, Raw: []byte{1, 2, 3}} }))},
		{"none of type 6", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueString, Raw: []byte{0xff}} }))},
		{"none of type 9", unchecked(Header{}, with(set, func(o *Op) { o.Value = Value{Type: ValueTimestamp, Raw: []byte{1, 1}} }))},
		{"a mark that isn't within a text", unchecked(Header{}, with(set, func(o *Op) { o.Action, o.MarkBegin = ActionMark, true }))},
		{"the parts of a mark", unchecked(Header{}, with(set, func(o *Op) { o.MarkBegin, o.MarkName = true, "b" }))},
		{"the parts of a mark", unchecked(Header{}, with(set, func(o *Op) { o.Expand = true }))},
		{"ends a mark that the one before doesn't begin", unchecked(Header{}, with(inText, func(o *Op) { o.Action = ActionMark }))},
		{"ends a mark that the one before doesn't begin", unchecked(Header{},
			with(inText, func(o *Op) { o.Action, o.MarkBegin = ActionMark, true }), inText, with(inText, func(o *Op) { o.Action = ActionMark }))},
		{"an element of the root", unchecked(Header{}, with(inText, func(o *Op) { o.Obj = OpID{} }))},
		{"the element before the first", unchecked(Header{}, with(inText, func(o *Op) { o.Insert = false }))},
		{"an element that is made later", unchecked(Header{}, with(inText, func(o *Op) { o.Elem = id(100) }))},
		{"an object that is made later", unchecked(Header{}, with(set, func(o *Op) { o.Obj = id(101) }))},
		{"inserted into a map", unchecked(Header{}, with(set, func(o *Op) { o.Insert = true }))},
		{"the action 3 inserts", unchecked(Header{}, with(inText, func(o *Op) { o.Action = ActionDelete }))},
		{"it deletes nothing", unchecked(Header{}, with(set, func(o *Op) { o.Action = ActionDelete }))},
		{"a new element overwrites something", unchecked(Header{}, with(inText, func(o *Op) { o.Pred = []OpID{id(7)} }))},
		{"it overwrites a later one", unchecked(Header{}, with(set, func(o *Op) { o.Pred = []OpID{id(100)} }))},
		{"predecessors out of order", unchecked(Header{}, with(set, func(o *Op) { o.Pred = []OpID{id(8), id(7)} }))},
		{"predecessors out of order", unchecked(Header{}, with(set, func(o *Op) { o.Pred = []OpID{id(8), id(8)} }))},
		{"no such object was made", unchecked(Header{}, set, with(set, func(o *Op) { o.Obj = id(100) }))},
		{"no such object was made", unchecked(Header{}, with(set, func(o *Op) { o.Action = ActionMakeMap }), with(inText, func(o *Op) { o.Obj = id(100) }))},
		{"actor 1 of 1", unchecked(Header{}, with(set, func(o *Op) { o.Pred = []OpID{{Counter: 7, Actor: 1}} }))},
		{"an actor that no operation names", unchecked(Header{Actors: []ActorID{"a", "b"}}, set)},
		{"other actors out of order", unchecked(Header{Actors: []ActorID{"a", "c", "b"}}, set)},
		{"other actors out of order", unchecked(Header{Actors: []ActorID{"a", "a"}}, set)},
		{"the sequence number", unchecked(Header{Seq: 1 << 32}, set)},
		{"the time", unchecked(Header{Time: 1 << 62}, set)},
		{"operations from", unchecked(Header{StartOp: 1<<32 - 1}, set)},
		{"the message isn't UTF-8", unchecked(Header{Message: "\xff"}, set)},
		{"hashes out of order", unchecked(Header{Deps: []Hash{{1}, {1}}}, set)},
	} {
		t.Run(test.message, func(t *testing.T) {
			_, err := ParseChange(test.data, Limits{})
			refuses(t, err, ErrMalformed, test.message)
		})
	}
	// What has the same operations and is written otherwise is another change, whose hash wouldn't survive a save.
	a, _ := dissect(mixed(t)[0].Bytes)
	for i, c := range a.tables[0] {
		if c.spec == colAction {
			split := slices.Clone(a.tables[0])
			var runs []byte
			r := uints{b: c.data}
			for range mixed(t)[0].NumOps {
				v, _ := r.next()
				runs = appendUint(append(runs, 0x7f), v)
			}
			split[i].data = runs
			_, err := ParseChange(anatomy{kind: a.kind, before: a.before, tables: []columns{split}, after: a.after}.assemble(), Limits{})
			refuses(t, err, ErrMalformed, "the way that all writers do")
		}
	}
	_, err := ParseChange(must(WriteDocument(t.Context(), nil, nil, mixed(t), Limits{}))(t), Limits{})
	refuses(t, err, ErrMalformed, "a document chunk where a change is expected")
	_, err = ParseDocument(mixed(t)[0].Bytes, Limits{})
	refuses(t, err, ErrMalformed, "a change chunk where a document is expected")
}

// rowsOf are the rows of a document, to be written in another way.
func rowsOf(t testing.TB, d *Document) (ops []Op) {
	t.Helper()
	rows := d.Rows()
	for rows.Next() {
		op := *rows.Op()
		op.Succ = slices.Clone(op.Succ)
		ops = append(ops, op)
	}
	ok(t, rows.Err())
	return ops
}

func rewritten(t testing.TB, d *Document, ops []Op, metas []Meta) []byte {
	t.Helper()
	w := newRowWriter()
	for i := range ops {
		w.add(&ops[i])
	}
	return must(assembleDocument(t.Context(), d.Actors, d.Heads, nil, metas, w.finish()))(t)
}

// TestDocumentsThatLie takes a document apart and puts it together wrongly: every part is proven or judged.
func TestDocumentsThatLie(t *testing.T) {
	saved := must(WriteDocument(t.Context(), nil, nil, mixed(t), Limits{}))(t)
	d := must(ParseDocument(saved, Limits{}))(t)
	ops := rowsOf(t, d)
	ok(t, judge(t.Context(), rewritten(t, d, ops, d.Metas), Limits{}))

	// Any two neighbours the other way round, any row left out or there twice, and any field of a row changed.
	for i := range ops {
		if i > 0 {
			swapped := slices.Clone(ops)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			if err := judge(t.Context(), rewritten(t, d, swapped, d.Metas), Limits{}); !typed(err) {
				t.Errorf("rows %d and %d swapped: %v", i-1, i, err)
			}
		}
		if err := judge(t.Context(), rewritten(t, d, slices.Delete(slices.Clone(ops), i, i+1), d.Metas), Limits{}); !typed(err) {
			t.Errorf("row %d left out: %v", i, err)
		}
		if err := judge(t.Context(), rewritten(t, d, slices.Insert(slices.Clone(ops), i, ops[i]), d.Metas), Limits{}); !typed(err) {
			t.Errorf("row %d twice: %v", i, err)
		}
		for name, change := range map[string]func(*Op){
			"counter":  func(o *Op) { o.ID.Counter++ },
			"actor":    func(o *Op) { o.ID.Actor ^= 1 },
			"object":   func(o *Op) { o.Obj = OpID{Counter: 2} },
			"key":      func(o *Op) { o.Key += "x" },
			"insert":   func(o *Op) { o.Insert = !o.Insert },
			"value":    func(o *Op) { o.Value = Value{Type: ValueUint, Raw: []byte{77}} },
			"type":     func(o *Op) { o.Value.Type++ },
			"action":   func(o *Op) { o.Action ^= 1 },
			"expand":   func(o *Op) { o.Expand = !o.Expand },
			"name":     func(o *Op) { o.MarkName += "x"; o.MarkBegin = true },
			"succ":     func(o *Op) { o.Succ = append(slices.Clone(o.Succ), OpID{Counter: 60}) },
			"no succ":  func(o *Op) { o.Succ = nil },
			"deletion": func(o *Op) { o.Action, o.Value = ActionDelete, Value{} },
		} {
			changed := slices.Clone(ops)
			change(&changed[i])
			data := rewritten(t, d, changed, d.Metas)
			if string(data) == string(rewritten(t, d, ops, d.Metas)) {
				continue
			}
			if err := judge(t.Context(), data, Limits{}); !typed(err) {
				t.Errorf("row %d with another %s: %v", i, name, err)
			}
		}
	}
	for i := range d.Metas {
		for name, change := range map[string]func(*Meta){
			"actor":   func(m *Meta) { m.Actor ^= 1 },
			"number":  func(m *Meta) { m.Seq++ },
			"last":    func(m *Meta) { m.MaxOp++ },
			"first":   func(m *Meta) { m.MaxOp-- },
			"time":    func(m *Meta) { m.Time++ },
			"message": func(m *Meta) { m.Message += "x" },
			"extra":   func(m *Meta) { m.Extra = []byte{1} },
			"later":   func(m *Meta) { m.Deps = append(slices.Clone(m.Deps), uint32(i)) },
			"no deps": func(m *Meta) { m.Deps = nil },
			"twice":   func(m *Meta) { m.Deps = append(slices.Clone(m.Deps), m.Deps...) },
		} {
			metas := slices.Clone(d.Metas)
			change(&metas[i])
			data := rewritten(t, d, ops, metas)
			if string(data) == string(rewritten(t, d, ops, d.Metas)) {
				continue
			}
			if err := judge(t.Context(), data, Limits{}); !typed(err) {
				t.Errorf("change %d with another %s: %v", i, name, err)
			}
		}
	}
	// Heads that aren't the document's, and indexes of heads that aren't theirs.
	other := *d
	other.Heads = []Hash{{1}}
	refuses(t, judge(t.Context(), rewritten(t, &other, ops, d.Metas), Limits{}), ErrHash, "and not")
	w := newRowWriter()
	for i := range ops {
		w.add(&ops[i])
	}
	data := must(assembleDocument(t.Context(), d.Actors, d.Heads, []uint32{0}, d.Metas, w.finish()))(t)
	refuses(t, judge(t.Context(), data, Limits{}), ErrMalformed, "change 0 is no head")
}

// TestEmptyDocument writes a document of nothing, and reads rows that no change accounts for.
func TestEmptyDocument(t *testing.T) {
	saved := must(WriteDocument(t.Context(), nil, nil, nil, Limits{}))(t)
	ok(t, judge(t.Context(), saved, Limits{}))
	if s := goEngine(t).load(saved); s.heads != "" || s.err != "" || s.died {
		t.Errorf("automerge-go has %+v", s)
	}
	d := must(ParseDocument(saved, Limits{}))(t)
	d.Actors = []ActorID{"a"}
	data := rewritten(t, d, []Op{{ID: OpID{Counter: 1}, Key: "k", Action: ActionSet}}, nil)
	refuses(t, judge(t.Context(), data, Limits{}), ErrMalformed, "of no change")
}

// TestOrderIsJudged swaps parts of documents that no hash covers: siblings of a list, objects.
func TestOrderIsJudged(t *testing.T) {
	id := func(n uint64) OpID { return OpID{Counter: n} }
	list := []Op{
		{Key: "l", Action: ActionMakeList},
		{Obj: id(1), InList: true, Insert: true, Action: ActionSet},
		{Obj: id(1), InList: true, Insert: true, Action: ActionSet},
	}
	maps := []Op{
		{Key: "a", Action: ActionMakeMap},
		{Key: "b", Action: ActionMakeMap},
		{Obj: id(1), Key: "k", Action: ActionSet},
		{Obj: id(2), Key: "k", Action: ActionSet},
	}
	for message, ops := range map[string][]Op{"inserted in one place are out of order": list, "objects out of order": maps} {
		c := must((&Draft{Actor: "a", Seq: 1, StartOp: 1, Actors: []ActorID{"a"}, Ops: ops}).Write(Limits{}))(t)
		d := must(ParseDocument(must(WriteDocument(t.Context(), nil, nil, []*Change{c}, Limits{}))(t), Limits{}))(t)
		rows := rowsOf(t, d)
		ok(t, judge(t.Context(), rewritten(t, d, rows, d.Metas), Limits{}))
		n := len(rows)
		rows[n-1], rows[n-2] = rows[n-2], rows[n-1]
		refuses(t, judge(t.Context(), rewritten(t, d, rows, d.Metas), Limits{}), ErrMalformed, message)
	}
}

func TestLimits(t *testing.T) {
	changes := mixed(t)
	saved := must(WriteDocument(t.Context(), nil, nil, changes, Limits{}))(t)
	for _, test := range []struct {
		what   string
		data   []byte
		limits Limits
	}{
		{"bytes", saved, Limits{Bytes: 100}},
		{"bytes", changes[0].Bytes, Limits{Bytes: 100}},
		{"bytes", compressed(changes[0].Bytes), Limits{Bytes: 125}},
		{"operations", saved, Limits{Ops: 5}},
		{"operations", changes[0].Bytes, Limits{Ops: 5}},
		{"changes", saved, Limits{Changes: 3}},
		{"actors", saved, Limits{Actors: 1}},
		{"actors", changes[2].Bytes, Limits{Actors: 1}},
		{"depth", saved, Limits{Depth: 1}},
	} {
		err := judge(t.Context(), test.data, test.limits)
		var limit *LimitError
		if !errors.As(err, &limit) || limit.What != test.what || limit.Got <= limit.Limit || !errors.Is(err, ErrLimit) {
			t.Errorf("%+v: %v", test.limits, err)
		}
	}
	// A deflated column is inflated no further than the limit.
	long := strings.Repeat("x", 1<<20)
	c := must((&Draft{Actor: "a", Seq: 1, StartOp: 1, Message: "m", Ops: []Op{{Key: "k", Action: ActionSet, Value: Value{Type: ValueString, Raw: []byte(long)}}}}).Write(Limits{}))(t)
	saved = must(WriteDocument(t.Context(), nil, nil, []*Change{c}, Limits{}))(t)
	if len(saved) > 1<<14 {
		t.Fatalf("%d bytes", len(saved))
	}
	for _, data := range [][]byte{saved, compressed(c.Bytes)} {
		before := allocated()
		err := judge(t.Context(), data, Limits{Bytes: 1 << 16})
		if used := allocated() - before; !errors.Is(err, ErrLimit) || used > 1<<19 {
			t.Errorf("%v, with %d bytes", err, used)
		}
		ok(t, judge(t.Context(), data, Limits{}))
	}
}

// TestBombs reads bytes that say a million operations, links or changes: they cost what the limits allow, and nothing beyond the limits.
func TestBombs(t *testing.T) {
	run := func(n int64, v ...byte) []byte { return append(appendInt(nil, n), v...) }
	const n = 1 << 40
	a, _ := dissect(must(WriteDocument(t.Context(), nil, nil, mixed(t)[:1], Limits{}))(t))
	for name, tables := range map[string][]columns{
		"operations": {a.tables[0], {{spec: colAction, data: run(n, 1)}}},
		"links":      {a.tables[0], {{spec: colAction, data: run(2, 1)}, {spec: colValueMeta, data: run(2, 0)}, {spec: colSuccGroup, data: appendUint(run(2), n)}}},
		"changes":    {{{spec: colChangeActor, data: run(n, 0)}}, a.tables[1]},
		"values":     {a.tables[0], {{spec: colAction, data: run(2, 1)}, {spec: colValueMeta, data: appendUint(run(2), n<<4)}}},
	} {
		t.Run(name, func(t *testing.T) {
			data := anatomy{kind: KindDocument, before: a.before, tables: tables, after: a.after}.assemble()
			before := allocated()
			err := judge(t.Context(), data, Limits{})
			if used := allocated() - before; !typed(err) || used > 1<<16 {
				t.Errorf("%v, with %d bytes", err, used)
			}
		})
	}
}

func TestWriteDocumentRefuses(t *testing.T) {
	ctx := t.Context()
	changes := mixed(t)
	_, err := WriteDocument(ctx, nil, nil, changes[1:], Limits{})
	refuses(t, err, ErrMissing, changes[0].Hash.String())
	_, err = WriteDocument(ctx, nil, nil, append(slices.Clone(changes), changes[0]), Limits{})
	refuses(t, err, ErrMalformed, "given twice")
	doc := must(ParseDocument(must(WriteDocument(ctx, nil, nil, changes[:2], Limits{}))(t), Limits{}))(t)
	_, err = WriteDocument(ctx, doc, nil, changes[1:], Limits{})
	refuses(t, err, ErrMalformed, "given twice")
	_, err = WriteDocument(ctx, doc, []Hash{{1}}, changes[2:], Limits{})
	refuses(t, err, ErrHash, "1 hashes of 2")
	_, err = WriteDocument(ctx, doc, []Hash{changes[0].Hash, {1}}, nil, Limits{})
	refuses(t, err, ErrHash, "and not")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err = WriteDocument(gone, doc, nil, changes[2:], Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after the context is done", err)
	}
	if _, err = doc.Changes(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after the context is done", err)
	}
}

// TestMergeNamesTheChange merges changes that don't fit: they are named.
func TestMergeNamesTheChange(t *testing.T) {
	changes := mixed(t)
	doc := must(ParseDocument(must(WriteDocument(t.Context(), nil, nil, changes, Limits{}))(t), Limits{}))(t)
	id := func(n uint64, a uint32) OpID { return OpID{Counter: n, Actor: a} }
	for _, test := range []struct {
		message string
		op      Op
	}{
		{"which nothing makes", Op{Obj: id(3, 0), Key: "k", Action: ActionSet}},
		{"which isn't there", Op{Key: "n", Action: ActionSet, Pred: []OpID{id(77, 0)}}},
		{"which is in another place", Op{Key: "n", Action: ActionSet, Pred: []OpID{id(1, 0)}}},
		{"which is in another place", Op{Obj: id(2, 0), InList: true, Elem: id(9, 0), Action: ActionDelete, Pred: []OpID{id(8, 0)}}},
		{"isn't in the list", Op{Obj: id(2, 0), InList: true, Elem: id(5, 0), Insert: true, Action: ActionSet}},
		{"isn't in the list", Op{Obj: id(2, 0), InList: true, Elem: id(5, 0), Action: ActionSet}},
		{"don't fit", Op{Obj: id(2, 0), Key: "k", Action: ActionSet}},
		{"don't fit", Op{Obj: id(6, 0), InList: true, Insert: true, Action: ActionSet}},
		{"overwrites the mark", Op{Obj: id(2, 0), InList: true, Elem: id(10, 0), Action: ActionDelete, Pred: []OpID{id(10, 0)}}},
	} {
		d := Draft{Actor: "\x03third", Seq: 1, StartOp: 100, Deps: doc.Heads, Actors: []ActorID{"\x01first", "\x02second", "\x03third"}, Ops: []Op{{Key: "fine", Action: ActionSet}, test.op}}
		bad := must(d.Write(Limits{}))(t)
		d.Actor, d.Ops = "\x02second", []Op{{Key: "good", Action: ActionSet}}
		d.Seq = 3
		good := must(d.Write(Limits{}))(t)
		for _, base := range []struct {
			doc     *Document
			changes []*Change
		}{{doc, nil}, {nil, changes}} {
			rows, err := Merge(base.doc, append(slices.Clone(base.changes), good, bad))
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
			}
			var change *ChangeError
			if refuses(t, err, ErrMalformed, test.message); !errors.As(err, &change) || change.Hash != bad.Hash {
				t.Errorf("%v doesn't name the change", err)
			}
		}
	}
	// A mark that ends before it begins.
	d := Draft{Actor: "\x03third", Seq: 1, StartOp: 100, Deps: doc.Heads, Actors: []ActorID{"\x01first", "\x02second", "\x03third"}, Ops: []Op{
		{Obj: id(2, 0), InList: true, Elem: id(9, 0), Insert: true, Action: ActionMark, MarkBegin: true, MarkName: "bold"},
		{Obj: id(2, 0), InList: true, Insert: true, Action: ActionMark},
	}}
	rows := must(Merge(doc, []*Change{must(d.Write(Limits{}))(t)}))(t)
	for rows.Next() {
	}
	refuses(t, rows.Err(), ErrMalformed, "ends a mark that isn't begun before it")
	// Numbers that don't follow.
	for _, c := range []Draft{{Actor: "\x01first", Seq: 5, StartOp: 100}, {Actor: "\x01first", Seq: 3, StartOp: 100}, {Actor: "\x01first", Seq: 4, StartOp: 3}} {
		c.Ops = []Op{{Key: "k", Action: ActionSet}}
		_, err := Merge(doc, []*Change{must(c.Write(Limits{}))(t)})
		refuses(t, err, ErrMalformed, "follows number 3")
	}
}

// TestChangesSinceIsProven gives hashes that aren't the document's.
func TestChangesSinceIsProven(t *testing.T) {
	changes := mixed(t)
	doc := must(ParseDocument(must(WriteDocument(t.Context(), nil, nil, changes, Limits{}))(t), Limits{}))(t)
	_, err := doc.ChangesSince(t.Context(), func(a ActorID, seq uint64) (Hash, bool) { return Hash{9}, a == changes[0].Actor && seq == 1 })
	refuses(t, err, ErrHash, "and not")
	// A hash that is known of a change whose predecessor isn't known.
	_, err = doc.ChangesSince(t.Context(), func(a ActorID, seq uint64) (Hash, bool) { return Hash{9}, a == changes[0].Actor && seq == 2 })
	refuses(t, err, ErrHash, "number 2 of actor")
	all := must(doc.ChangesSince(t.Context(), func(a ActorID, seq uint64) (Hash, bool) {
		for _, c := range changes {
			if c.Actor == a && c.Seq == seq {
				return c.Hash, true
			}
		}
		return Hash{}, false
	}))(t)
	if len(all) != 0 {
		t.Errorf("%d changes since all", len(all))
	}
}

func TestHash(t *testing.T) {
	h := mixed(t)[0].Hash
	if again := must(ParseHash(h.String()))(t); again != h {
		t.Errorf("%s", again)
	}
	for _, s := range []string{"", "zz", h.String()[2:], h.String() + "00"} {
		_, err := ParseHash(s)
		refuses(t, err, ErrMalformed, "no hash")
	}
}
