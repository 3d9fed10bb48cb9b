package amformat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type randomSource = *rand.Rand

// randomEdits makes a document of random changes with automerge-go. It is nil without cgo.
var randomEdits func(r randomSource, actors, steps int) (chunks [][]byte, heads []Hash, err error)

// listed is the rows as text, with actors by name.
func listed(t testing.TB, rows *Rows, err error) (all []string) {
	t.Helper()
	ok(t, err)
	actors := rows.Actors()
	name := func(id OpID) string {
		if id.IsZero() {
			return "0"
		}
		return fmt.Sprintf("%d@%s", id.Counter, actors[id.Actor])
	}
	for rows.Next() {
		op := rows.Op()
		var succ []string
		for _, s := range op.Succ {
			succ = append(succ, name(s))
		}
		all = append(all, fmt.Sprintf("%s in %s at %q %s insert %v action %d value %v mark %v %q %v succ %v",
			name(op.ID), name(op.Obj), op.Key, name(op.Elem), op.Insert, op.Action, op.Value, op.MarkBegin, op.MarkName, op.Expand, succ))
	}
	ok(t, rows.Err())
	return all
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: row %d of %d is missing: %s", what, i, len(want), want[i])
		case i >= len(want):
			t.Fatalf("%s: row %d, after %d: %s", what, i, len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("%s: row %d\n got %s\nwant %s", what, i, got[i], want[i])
		}
	}
}

// holds checks everything that is promised of a document that consists of the changes: it is written, extracted, proven, and merged
// from any part and the rest, in any order.
func holds(t testing.TB, r randomSource, chunks [][]byte, heads []Hash) (saved []byte) {
	t.Helper()
	ctx := t.Context()
	var changes []*Change
	for _, c := range chunks {
		changes = append(changes, must(ParseChange(c, Limits{}))(t))
	}
	saved = must(WriteDocument(ctx, nil, nil, changes, Limits{}))(t)
	doc := must(ParseDocument(saved, Limits{}))(t)
	if !slices.Equal(doc.Heads, heads) {
		t.Fatalf("heads %v, and not %v", doc.Heads, heads)
	}
	found := must(doc.Changes(ctx))(t)
	byHash := map[Hash]*Change{}
	for _, c := range found {
		byHash[c.Hash] = c
	}
	if len(byHash) != len(changes) {
		t.Fatalf("%d changes of %d", len(byHash), len(changes))
	}
	for _, c := range changes {
		f := byHash[c.Hash]
		if f == nil || string(f.Bytes) != string(c.Bytes) {
			t.Fatalf("change %s isn't extracted as it was", c.Hash)
		}
		must(ParseChange(f.Bytes, Limits{}))(t)
	}
	rows := listed(t, doc.Rows(), nil)
	for range 3 {
		cut := r.IntN(len(found) + 1)
		part := must(WriteDocument(ctx, nil, nil, found[:cut], Limits{}))(t)
		rest := slices.Clone(found[cut:])
		r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		partDoc := must(ParseDocument(part, Limits{}))(t)
		merged, err := Merge(partDoc, rest)
		same(t, "merged", listed(t, merged, err), rows)
		again := must(ParseDocument(must(WriteDocument(ctx, partDoc, nil, rest, Limits{}))(t), Limits{}))(t)
		same(t, "saved", listed(t, again.Rows(), nil), rows)
		if !slices.Equal(again.Heads, heads) {
			t.Fatalf("heads %v, and not %v", again.Heads, heads)
		}
		since := must(doc.ChangesSince(ctx, func(a ActorID, seq uint64) (Hash, bool) {
			for _, c := range found[:cut] {
				if c.Actor == a && c.Seq == seq {
					return c.Hash, true
				}
			}
			return Hash{}, false
		}))(t)
		if !slices.EqualFunc(since, found[cut:], func(a, b *Change) bool { return a.Hash == b.Hash }) {
			t.Fatal("other changes since")
		}
	}
	return saved
}

func TestRandomDocuments(t *testing.T) {
	if randomEdits == nil {
		t.Skip("automerge-go needs cgo")
	}
	e := goEngine(t)
	for seed := range *randomDocs {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		chunks, heads, err := randomEdits(r, 1+r.IntN(4), 5+r.IntN(60))
		ok(t, err)
		saved := holds(t, r, chunks, heads)
		// The engine reads what was written as it reads the changes.
		ours, theirs := e.load(saved), e.load(slices.Concat(chunks...))
		if ours != theirs || ours.heads != headsText(heads) || ours.err != "" {
			t.Fatalf("document %d:\n got %+v\nwant %+v", seed, ours, theirs)
		}
	}
}
