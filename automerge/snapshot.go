package automerge

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
)

// A snapshot is what a row of automerge.snapshot says.
type snapshot struct {
	data    []byte
	heads   []amformat.Hash
	ops     int64
	hashes  []amformat.Hash    // of its changes, in its order
	authors []uint32           // who made each, as a place among actors
	actors  []amformat.ActorID // in order
	seqs    []int64            // how many changes each made
	maxOps  []int64            // the last operation of each
}

// snapshotOf describes a save whose changes have these hashes, in its order.
func snapshotOf(data []byte, d *amformat.Document, hashes []amformat.Hash, ops int64) *snapshot {
	s := &snapshot{data: data, heads: d.Heads, ops: ops, hashes: hashes, actors: d.Actors, authors: make([]uint32, len(d.Metas)), seqs: make([]int64, len(d.Actors)), maxOps: make([]int64, len(d.Actors))}
	for i := range d.Metas {
		m := &d.Metas[i]
		s.authors[i] = m.Actor
		s.seqs[m.Actor], s.maxOps[m.Actor] = int64(m.Seq), int64(m.MaxOp)
	}
	return s
}

// runs writes who made which.
func (s *snapshot) runs() []byte {
	b := []byte{}
	for i := 0; i < len(s.authors); {
		n := i
		for n < len(s.authors) && s.authors[n] == s.authors[i] {
			n++
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.authors[i])), uint64(n-i))
		i = n
	}
	return b
}

// readRuns reads who made which of n changes.
func readRuns(b []byte, actors, n int) ([]uint32, error) {
	authors := make([]uint32, 0, n)
	for len(b) > 0 {
		a, k := binary.Uvarint(b)
		count, l := binary.Uvarint(b[max(k, 0):])
		if k <= 0 || l <= 0 || a >= uint64(actors) || count > uint64(n-len(authors)) {
			return nil, fmt.Errorf("automerge: the authors of a snapshot are damaged")
		}
		for range count {
			authors = append(authors, uint32(a))
		}
		b = b[k+l:]
	}
	if len(authors) != n {
		return nil, fmt.Errorf("automerge: the authors of a snapshot are damaged")
	}
	return authors, nil
}

// byAuthor gives each change of a snapshot with the number that it has among its actor's.
func (s *snapshot) byAuthor(yield func(i int, actor amformat.ActorID, seq uint64)) {
	seqs := make([]uint64, len(s.actors))
	for i, a := range s.authors {
		seqs[a]++
		yield(i, s.actors[a], seqs[a])
	}
}

const putSnapshotSQL = "update automerge.writing set snapshot = $2, snapshot_heads = $3, snapshot_hashes = $4, snapshot_authors = $5, snapshot_actors = $6, snapshot_seqs = $7, " +
	"snapshot_max_ops = $8, snapshot_ops = $9, folds = $10, data = $11, state = $12 where id = $1 returning heads, changes"

// put writes a snapshot: what a document begins with where folds is nil, else another form of the changes in its snapshot, which are as many as
// folds says, and of some more.
func (s *snapshot) put(ctx context.Context, tx pgx.Tx, id uuid.UUID, folds *int64, data *string, state []byte, applied *Applied) error {
	actors := make([][]byte, len(s.actors))
	for i, a := range s.actors {
		actors[i] = []byte(a)
	}
	var heads [][]byte
	err := tx.QueryRow(ctx, putSnapshotSQL, id, s.data, toArray(s.heads), joined(s.hashes), s.runs(), actors, s.seqs, s.maxOps, s.ops, folds, data, state).Scan(&heads, &applied.Changes)
	applied.Heads = fromArray(heads)
	return err
}

// begin writes a save into a document that has nothing yet, and is locked.
func (s *Store) begin(ctx context.Context, tx pgx.Tx, id uuid.UUID, d *seen, save *provenSave, applied *Applied) error {
	if err := s.fitsSnapshot(id, save); err != nil {
		return err
	}
	var data *string
	var state []byte
	if d.projected() {
		want, err := d.wanted()
		if err != nil {
			return err
		}
		t := newTree(want)
		if err := t.readRows(save.doc.Rows()); err != nil {
			return malformed(id, err)
		}
		json, err := t.json(s.limits.Depth)
		if err != nil {
			return tooDeep(id, err)
		}
		text := string(json)
		data, state = &text, t.encode(maxState)
	}
	applied.Added = len(save.hashes)
	return snapshotOf(save.chunk, save.doc, save.hashes, save.ops).put(ctx, tx, id, nil, data, state, applied)
}

func (s *Store) fitsSnapshot(id uuid.UUID, save *provenSave) error {
	for _, l := range []struct {
		name      string
		got, most int64
	}{
		{"DocumentChanges", int64(len(save.hashes)), s.limits.DocumentChanges}, {"DocumentOps", save.ops, s.limits.DocumentOps}, {"DocumentBytes", int64(len(save.chunk)), s.limits.DocumentBytes},
	} {
		if err := within(id, l.name, l.got, l.most); err != nil {
			return err
		}
	}
	return nil
}

// provenSave is a save whose changes have the hashes that its heads name.
type provenSave struct {
	chunk  []byte
	doc    *amformat.Document
	hashes []amformat.Hash // of its changes, in its order
	ops    int64
}

// prove proves a save.
func (s *Store) prove(ctx context.Context, id uuid.UUID, chunk []byte) (*provenSave, []*amformat.Change, error) {
	doc, err := amformat.ParseDocument(chunk, s.limits.format())
	if err != nil {
		return nil, nil, malformed(id, err)
	}
	changes, err := doc.Changes(ctx)
	if err != nil {
		return nil, nil, malformed(id, err)
	}
	p := &provenSave{chunk: chunk, doc: doc, hashes: make([]amformat.Hash, len(changes))}
	for i, c := range changes {
		p.hashes[i] = c.Hash
		p.ops += c.NumOps
	}
	return p, changes, nil
}

// list makes changes that were extracted what comes into a document.
func list(changes []*amformat.Change) []incoming {
	l := make([]incoming, len(changes))
	for i, c := range changes {
		l[i] = incoming{Change: c, chunk: c.Bytes}
	}
	return l
}

// storable is what is kept of what the maker of a change said about it.
func storable(text string) *string {
	if text == "" {
		return nil
	}
	text = strings.ReplaceAll(text, "\x00", "\uFFFD") // PostgreSQL has none
	return &text
}
