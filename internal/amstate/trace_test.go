package amstate

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/amformat"
)

func trace(t *testing.T, name string, into any) {
	t.Helper()
	r := must(gzip.NewReader(bytes.NewReader(testdata(t, name))))(t)
	ok(t, json.NewDecoder(r).Decode(into))
}

type patch struct {
	at, deleted int
	inserted    []rune
}

func (p *patch) UnmarshalJSON(b []byte) error {
	var inserted string
	err := json.Unmarshal(b, &[]any{&p.at, &p.deleted, &inserted})
	p.inserted = []rune(inserted)
	return err
}

// typist writes a text as one actor's changes.
type typist struct {
	t      *testing.T
	draft  amformat.Draft
	next   uint64
	change *amformat.Change // the last one
}

func newTypist(t *testing.T, actors []amformat.ActorID, self int) *typist {
	return &typist{t: t, draft: amformat.Draft{Actor: actors[self], Actors: actors}}
}

func (y *typist) op(self uint32, op amformat.Op) amformat.OpID {
	id := amformat.OpID{Counter: y.next, Actor: self}
	y.next++
	y.draft.Ops = append(y.draft.Ops, op)
	return id
}

// commit ends the change.
func (y *typist) commit() *amformat.Change {
	y.t.Helper()
	y.draft.Seq++
	y.change = must(y.draft.Write(amformat.Limits{}))(y.t)
	y.draft.Ops = y.draft.Ops[:0]
	return y.change
}

func insertRune(text, after amformat.OpID, r rune) amformat.Op {
	return amformat.Op{
		Obj: text, InList: true, Elem: after, Insert: true, Action: amformat.ActionSet,
		Value: amformat.Value{Type: amformat.ValueString, Raw: []byte(string(r))},
	}
}

func deleteElement(text, e amformat.OpID) amformat.Op {
	return amformat.Op{Obj: text, InList: true, Elem: e, Action: amformat.ActionDelete, Pred: []amformat.OpID{e}}
}

func checkText(t *testing.T, changes []*amformat.Change, want string) {
	t.Helper()
	start := time.Now()
	s := stateOf(t, changes, Options{})
	t.Log(len(changes), "changes swept in", time.Since(start))
	v, _ := s.Get("text")
	if got, _ := v.Text(); got != want {
		t.Fatalf("a text of %d bytes, want one of %d", len(got), len(want))
	}
	save := must(amformat.WriteDocument(t.Context(), nil, nil, changes, amformat.Limits{}))(t)
	start = time.Now()
	s = must(Read(t.Context(), document(t, save).Rows(), Options{}))(t)
	t.Log(len(save), "bytes swept in", time.Since(start))
	v, _ = s.Get("text")
	if got, _ := v.Text(); got != want {
		t.Fatalf("a saved text of %d bytes, want one of %d", len(got), len(want))
	}
}

// A real text that one author wrote, edit by edit, ends as it ended.
func TestSequentialTrace(t *testing.T) {
	var tr struct {
		StartContent string
		EndContent   string
		Txns         []struct{ Patches []patch }
	}
	trace(t, "automerge-paper.json.gz", &tr)
	y := newTypist(t, []amformat.ActorID{"\x01"}, 0)
	y.next, y.draft.StartOp = 1, 1
	text := y.op(0, amformat.Op{Key: "text", Action: amformat.ActionMakeText})
	changes := []*amformat.Change{}
	list := &idList{}
	for i, txn := range tr.Txns {
		for _, p := range txn.Patches {
			for range p.deleted {
				y.op(0, deleteElement(text, list.remove(p.at)))
			}
			var after amformat.OpID
			if p.at > 0 {
				after = list.get(p.at - 1)
			}
			for j, r := range p.inserted {
				after = y.op(0, insertRune(text, after, r))
				list.insert(p.at+j, after)
			}
		}
		if i%500 == 499 || i == len(tr.Txns)-1 {
			c := y.commit()
			changes = append(changes, c)
			y.draft.StartOp, y.draft.Deps = y.next, []amformat.Hash{c.Hash}
		}
	}
	checkText(t, changes, tr.EndContent)
}

// idList is a list of ids with fast changes in the middle.
type idList struct{ parts [][]amformat.OpID }

func (l *idList) find(at int) (part, in int) {
	for part < len(l.parts)-1 && at > len(l.parts[part]) {
		at -= len(l.parts[part])
		part++
	}
	return part, at
}

func (l *idList) at(at int) (part, in int) {
	part, in = l.find(at)
	if in == len(l.parts[part]) {
		part, in = part+1, 0
		for len(l.parts[part]) == 0 {
			part++
		}
	}
	return part, in
}

func (l *idList) get(at int) amformat.OpID {
	part, in := l.at(at)
	return l.parts[part][in]
}

func (l *idList) remove(at int) amformat.OpID {
	part, in := l.at(at)
	id := l.parts[part][in]
	l.parts[part] = slices.Delete(l.parts[part], in, in+1)
	return id
}

func (l *idList) insert(at int, id amformat.OpID) {
	if len(l.parts) == 0 {
		l.parts = append(l.parts, nil)
	}
	part, in := l.find(at)
	l.parts[part] = slices.Insert(l.parts[part], in, id)
	if p := l.parts[part]; len(p) > 1024 {
		l.parts[part] = slices.Clone(p[:512])
		l.parts = slices.Insert(l.parts, part+1, slices.Clone(p[512:]))
	}
}

// A real text that two people wrote at the same time, each change made on what its author knew, ends as it ended for both of them.
func TestConcurrentTrace(t *testing.T) {
	var tr struct {
		EndContent string
		NumAgents  int
		Txns       []struct {
			Parents []int
			Agent   int
			Patches []patch
		}
	}
	trace(t, "friendsforever.json.gz", &tr)
	actors := []amformat.ActorID{"\x00"}
	for i := range tr.NumAgents {
		actors = append(actors, amformat.ActorID([]byte{byte(i + 1)}))
	}
	y := newTypist(t, actors, 0)
	y.next, y.draft.StartOp = 1, 1
	text := y.op(0, amformat.Op{Key: "text", Action: amformat.ActionMakeText})
	first := y.commit()
	changes := []*amformat.Change{first}
	replicas := make([]*replica, tr.NumAgents)
	for i := range replicas {
		replicas[i] = &replica{typist: newTypist(t, actors, i+1), self: uint32(i + 1), known: make([]bool, len(tr.Txns))}
	}
	ops := make([][]amformat.Op, len(tr.Txns)) // with ids
	tops := make([]uint64, len(tr.Txns))       // the highest counter that the transaction's author knew afterwards
	for i, txn := range tr.Txns {
		r := replicas[txn.Agent]
		top := first.MaxOp()
		r.draft.Deps = nil
		for _, p := range txn.Parents {
			r.learn(p, ops, func(i int) []int { return tr.Txns[i].Parents })
			top = max(top, tops[p])
			r.draft.Deps = append(r.draft.Deps, changes[p+1].Hash)
		}
		if len(txn.Parents) == 0 {
			r.draft.Deps = []amformat.Hash{first.Hash}
		}
		r.next, r.draft.StartOp = top+1, top+1
		for _, p := range txn.Patches {
			for range p.deleted {
				at := r.visible(p.at)
				r.list[at].deleted = true
				r.op(r.self, deleteElement(text, r.list[at].id))
			}
			var after amformat.OpID
			at := 0
			if p.at > 0 {
				at = r.visible(p.at-1) + 1
				after = r.list[at-1].id
			}
			for j, c := range p.inserted {
				after = r.op(r.self, insertRune(text, after, c))
				r.list = slices.Insert(r.list, at+j, place{id: after})
			}
		}
		ops[i] = slices.Clone(r.draft.Ops)
		for j := range ops[i] {
			ops[i][j].ID = amformat.OpID{Counter: r.draft.StartOp + uint64(j), Actor: r.self}
		}
		tops[i] = r.next - 1
		r.known[i] = true
		changes = append(changes, r.commit())
	}
	checkText(t, changes, tr.EndContent)
}

type place struct {
	id      amformat.OpID
	deleted bool
}

// replica is what one of several authors has of a text.
type replica struct {
	*typist
	self  uint32
	list  []place
	known []bool
}

func (r *replica) visible(at int) int {
	for i := range r.list {
		if !r.list[i].deleted {
			if at == 0 {
				return i
			}
			at--
		}
	}
	return -1
}

// learn takes over a transaction and what it was made on.
func (r *replica) learn(i int, ops [][]amformat.Op, parents func(int) []int) {
	var todo, missing []int
	todo = append(todo, i)
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !r.known[i] {
			r.known[i] = true
			missing = append(missing, i)
			todo = append(todo, parents(i)...)
		}
	}
	slices.Sort(missing)
	for _, i := range missing {
		for _, op := range ops[i] {
			at := slices.IndexFunc(r.list, func(p place) bool { return p.id == op.Elem })
			if op.Action == amformat.ActionDelete {
				r.list[at].deleted = true
				continue
			}
			for at++; at < len(r.list) && r.list[at].id.Compare(op.ID) > 0; {
				at++
			}
			r.list = slices.Insert(r.list, at, place{id: op.ID})
		}
	}
}
