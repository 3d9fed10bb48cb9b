package automerge

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amstate"
)

// loaded is a document as it was read at one moment: its snapshot and the changes after that. Changes are numbered, first those of the snapshot in
// its order.
type loaded struct {
	id       uuid.UUID
	heads    []Hash
	changes  int64
	snapshot *amformat.Document // nil where there is none
	data     []byte             // the snapshot as it is stored
	hashes   []amformat.Hash    // of the snapshot's changes
	tail     []incoming
	index    map[amformat.Hash]int // made when it is first needed
}

// load reads a document.
func (s *Store) load(ctx context.Context, db DB, id uuid.UUID) (*loaded, error) {
	var chunks, heads [][]byte
	var hashes []byte
	d := &loaded{id: id}
	err := s.In(db).row(ctx, id, []any{&heads, &d.changes, &d.data, &hashes, &chunks}, "select d.heads, d.changes, s.data, s.hashes, array(select c.chunk from automerge.change c where c.doc = d.id order by c.place) "+
		"from automerge.document d left join automerge.snapshot s on s.doc = d.id where d.id = $1")
	if err != nil {
		return nil, err
	}
	d.heads = fromArray(heads)
	if d.data != nil {
		if d.snapshot, err = amformat.ParseDocument(d.data, s.limits.format()); err != nil {
			return nil, malformed(id, err)
		}
		for ; len(hashes) >= 32; hashes = hashes[32:] {
			d.hashes = append(d.hashes, amformat.Hash(hashes[:32]))
		}
		if len(d.hashes) != len(d.snapshot.Metas) {
			return nil, fmt.Errorf("automerge: the snapshot of document %s has %d changes and the hashes of %d", id, len(d.snapshot.Metas), len(d.hashes))
		}
	}
	d.tail = make([]incoming, len(chunks))
	for i, chunk := range chunks {
		c, err := amformat.ParseChange(chunk, s.limits.format())
		if err != nil {
			return nil, malformed(id, err)
		}
		d.tail[i] = incoming{Change: c, chunk: chunk}
	}
	return d, nil
}

// rows are the rows of the document with more changes.
func (d *loaded) rows(more []incoming) (*amformat.Rows, error) {
	return amformat.Merge(d.snapshot, append(changesIn(d.tail), changesIn(more)...))
}

func changesIn(list []incoming) []*amformat.Change {
	changes := make([]*amformat.Change, len(list))
	for i, c := range list {
		changes[i] = c.Change
	}
	return changes
}

// numberOf returns the number of a change, if the document has it.
func (d *loaded) numberOf(h amformat.Hash) (int, bool) {
	if d.index == nil {
		d.index = make(map[amformat.Hash]int, len(d.hashes)+len(d.tail))
		for i, h := range d.hashes {
			d.index[h] = i
		}
		for i, c := range d.tail {
			d.index[c.Hash] = len(d.hashes) + i
		}
	}
	i, ok := d.index[h]
	return i, ok
}

// upTo tells which changes belong to what hashes name: these and all that they depend on. Hashes that the document does not have are returned.
func (d *loaded) upTo(hashes []Hash) (within []bool, unknown []Hash) {
	within = make([]bool, len(d.hashes)+len(d.tail))
	var waiting []int
	visit := func(i int) {
		if !within[i] {
			within[i] = true
			waiting = append(waiting, i)
		}
	}
	for _, h := range hashes {
		if i, ok := d.numberOf(amformat.Hash(h)); ok {
			visit(i)
		} else {
			unknown = append(unknown, h)
		}
	}
	for len(waiting) > 0 {
		i := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if i < len(d.hashes) {
			for _, j := range d.snapshot.Metas[i].Deps {
				visit(int(j))
			}
			continue
		}
		for _, h := range d.tail[i-len(d.hashes)].Deps {
			if j, ok := d.numberOf(h); ok {
				visit(j)
			}
		}
	}
	return within, unknown
}

// clock is the last operation of each actor among changes.
func (d *loaded) clock(within []bool) amstate.Clock {
	clock := amstate.Clock{}
	for i, in := range within {
		if !in {
			continue
		}
		var actor amformat.ActorID
		var maxOp uint64
		if i < len(d.hashes) {
			m := &d.snapshot.Metas[i]
			actor, maxOp = d.snapshot.Actors[m.Actor], m.MaxOp
		} else {
			c := d.tail[i-len(d.hashes)]
			actor, maxOp = c.Actor, c.MaxOp()
		}
		clock[actor] = max(clock[actor], maxOp)
	}
	return clock
}

// since returns the changes that do not belong to what hashes name, in causal order; those of the snapshot are written out of it.
func (d *loaded) since(ctx context.Context, hashes []Hash) ([]incoming, error) {
	within, _ := d.upTo(hashes)
	var all []incoming
	if d.snapshot != nil {
		known := map[author]amformat.Hash{}
		for i := range d.snapshot.Metas {
			if m := &d.snapshot.Metas[i]; within[i] {
				known[author{d.snapshot.Actors[m.Actor], m.Seq}] = d.hashes[i]
			}
		}
		folded, err := d.snapshot.ChangesSince(ctx, func(actor amformat.ActorID, seq uint64) (amformat.Hash, bool) {
			h, ok := known[author{actor, seq}]
			return h, ok
		})
		if err != nil {
			return nil, malformed(d.id, err)
		}
		all = list(folded)
	}
	for i, c := range d.tail {
		if !within[len(d.hashes)+i] {
			all = append(all, c)
		}
	}
	return all, nil
}

// unknownHeads refuses hashes that a document does not have.
func unknownHeads(id uuid.UUID, hashes []Hash) error {
	var names []string
	for _, h := range hashes[:min(len(hashes), 5)] {
		names = append(names, h.String())
	}
	return &Error{Kind: ErrUnknownHeads, Message: fmt.Sprintf("document %s has no changes %s", id, strings.Join(names, ", ")), Hint: "Ask for heads that it had.", Doc: id, Hashes: hashes, Index: -1}
}
