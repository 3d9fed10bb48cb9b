package amformat

import (
	"context"
	"fmt"
	"slices"
)

// WriteDocument writes the document that doc, which may be nil, and more changes make up, as one document chunk that every Automerge loads. The changes
// may come in any order; what they depend on has to be in doc or among them, or the error is [ErrMissing]. hashes are those of doc's changes
// in the order of doc.Metas, for who has them and trusts doc; without them doc's changes are written, which proves doc and gives the hashes.
//
// What was written is read again and proven: the new changes come out of it with the hashes that they went in with, and the heads are
// reached. So what is saved can be extracted, and changes that are in it need not be kept beside it.
func WriteDocument(ctx context.Context, doc *Document, hashes []Hash, changes []*Change, limits Limits) ([]byte, error) {
	limits = limits.orDefault()
	if doc != nil && hashes == nil {
		var err error
		if _, hashes, err = doc.extract(ctx, nil); err != nil {
			return nil, err
		}
	}
	if doc != nil && len(hashes) != len(doc.Metas) {
		return nil, fmt.Errorf("%w: %d hashes of %d changes", ErrHash, len(hashes), len(doc.Metas))
	}
	if doc != nil {
		if err := doc.reaches(hashes); err != nil {
			return nil, err
		}
	}
	s := &save{doc: doc, index: make(map[Hash]uint32, len(hashes)+len(changes))}
	for i, h := range hashes {
		s.index[h] = uint32(i)
	}
	ordered, err := s.arrange(changes)
	if err != nil {
		return nil, err
	}
	rows, err := merge(doc, ordered, limits)
	if err != nil {
		return nil, err
	}
	metas := s.metas(rows.Actors(), ordered)
	w := newRowWriter()
	for n := 0; rows.Next(); n++ {
		if n&0xffff == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		w.add(rows.Op())
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	heads, at := s.heads(hashes, ordered, metas)
	chunk, err := assembleDocument(ctx, rows.Actors(), heads, at, metas, w.finish())
	if err != nil {
		return nil, err
	}
	return chunk, s.prove(ctx, chunk, hashes, ordered, limits)
}

type save struct {
	doc   *Document
	index map[Hash]uint32 // the place of each change in the document
}

// arrange puts the changes after those that they depend on, else in the order they came.
func (s *save) arrange(changes []*Change) ([]*Change, error) {
	base := len(s.index)
	waiting := make(map[Hash][]int) // by what they wait for
	missing := make([]int, len(changes))
	given := make(map[Hash]bool, len(changes))
	for _, c := range changes {
		if _, there := s.index[c.Hash]; there || given[c.Hash] {
			return nil, malformed("change %s is given twice", c.Hash)
		}
		given[c.Hash] = true
	}
	var ready []int
	for i, c := range changes {
		for _, d := range c.Deps {
			if given[d] {
				waiting[d] = append(waiting[d], i)
				missing[i]++
			} else if _, there := s.index[d]; !there {
				return nil, fmt.Errorf("%w: %s, which change %s depends on", ErrMissing, d, c.Hash)
			}
		}
		if missing[i] == 0 {
			ready = append(ready, i)
		}
	}
	ordered := make([]*Change, 0, len(changes))
	for ; len(ready) > 0; ready = ready[1:] {
		c := changes[ready[0]]
		s.index[c.Hash] = uint32(base + len(ordered))
		ordered = append(ordered, c)
		for _, i := range waiting[c.Hash] {
			if missing[i]--; missing[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	if len(ordered) != len(changes) {
		return nil, malformed("changes that depend on each other")
	}
	return ordered, nil
}

// metas is what the document says of its changes, with indexes of actors in the new table.
func (s *save) metas(actors []ActorID, changes []*Change) []Meta {
	place := func(a ActorID) uint32 {
		i, _ := slices.BinarySearch(actors, a)
		return uint32(i)
	}
	var metas []Meta
	if s.doc != nil {
		metas = slices.Grow(slices.Clone(s.doc.Metas), len(changes))
		for i := range metas {
			metas[i].Actor = place(s.doc.Actors[metas[i].Actor])
		}
	}
	for _, c := range changes {
		m := Meta{Actor: place(c.Actor), Seq: c.Seq, MaxOp: c.MaxOp(), Time: c.Time, Message: c.Message, Extra: c.Extra}
		for _, d := range c.Deps {
			m.Deps = append(m.Deps, s.index[d])
		}
		metas = append(metas, m)
	}
	return metas
}

// heads are the changes that no other depends on, in order, and where they are.
func (s *save) heads(hashes []Hash, changes []*Change, metas []Meta) (heads []Hash, at []uint32) {
	follows := make([]bool, len(metas))
	for i := range metas {
		for _, d := range metas[i].Deps {
			follows[d] = true
		}
	}
	for i := range metas {
		switch {
		case follows[i]:
		case i < len(hashes):
			heads = append(heads, hashes[i])
		default:
			heads = append(heads, changes[i-len(hashes)].Hash)
		}
	}
	heads = SortHashes(heads)
	for _, h := range heads {
		at = append(at, s.index[h])
	}
	return heads, at
}

// prove reads what was written.
func (s *save) prove(ctx context.Context, chunk []byte, hashes []Hash, changes []*Change, limits Limits) error {
	written, err := ParseDocument(chunk, limits)
	if err != nil {
		return err
	}
	type number struct {
		actor ActorID
		seq   uint64
	}
	known := make(map[number]Hash, len(hashes))
	if s.doc != nil {
		for i := range s.doc.Metas {
			m := &s.doc.Metas[i]
			known[number{s.doc.Actors[m.Actor], m.Seq}] = hashes[i]
		}
	}
	found, err := written.ChangesSince(ctx, func(a ActorID, seq uint64) (Hash, bool) {
		h, ok := known[number{a, seq}]
		return h, ok
	})
	if err != nil {
		return err
	}
	if !slices.EqualFunc(found, changes, func(a, b *Change) bool { return a.Hash == b.Hash }) {
		return fmt.Errorf("%w: the changes that were saved come out as others", ErrHash)
	}
	return nil
}

// rowWriter writes the rows of a document.
type rowWriter struct {
	opWriter
	idActor     rleWriter[uint64]
	idCounter   deltaWriter
	succGroup   rleWriter[uint64]
	succActor   rleWriter[uint64]
	succCounter deltaWriter
}

func newRowWriter() *rowWriter {
	return &rowWriter{
		opWriter: newOpWriter(), idActor: uintWriter(), idCounter: newDeltaWriter(), succGroup: uintWriter(), succActor: uintWriter(),
		succCounter: newDeltaWriter(),
	}
}

func (w *rowWriter) add(op *Op) {
	w.opWriter.add(op, op.Obj, op.Elem)
	w.idActor.add(uint64(op.ID.Actor))
	w.idCounter.add(int64(op.ID.Counter))
	w.succGroup.add(uint64(len(op.Succ)))
	for _, s := range op.Succ {
		w.succActor.add(uint64(s.Actor))
		w.succCounter.add(int64(s.Counter))
	}
}

func (w *rowWriter) finish() columns {
	return arrange(append(w.opWriter.finish(),
		column{spec: colIDActor, data: w.idActor.finish()},
		column{spec: colIDCounter, data: w.idCounter.finish()},
		column{spec: colSuccGroup, data: w.succGroup.finish()},
		column{spec: colSuccActor, data: w.succActor.finish()},
		column{spec: colSuccCount, data: w.succCounter.finish()}))
}

func writeMetas(metas []Meta) columns {
	actor, message, group, extraMeta := uintWriter(), textWriter(), uintWriter(), uintWriter()
	seq, maxOp, time, dep := newDeltaWriter(), newDeltaWriter(), newDeltaWriter(), newDeltaWriter()
	var extra []byte
	for i := range metas {
		m := &metas[i]
		actor.add(uint64(m.Actor))
		seq.add(int64(m.Seq))
		maxOp.add(int64(m.MaxOp))
		time.add(m.Time)
		message.addMaybe(m.Message, m.Message != "")
		group.add(uint64(len(m.Deps)))
		for _, d := range m.Deps {
			dep.add(int64(d))
		}
		extraMeta.add(uint64(len(m.Extra))<<4 | uint64(ValueBytes))
		extra = append(extra, m.Extra...)
	}
	return arrange(columns{
		{spec: colChangeActor, data: actor.finish()},
		{spec: colChangeSeq, data: seq.finish()},
		{spec: colChangeMaxOp, data: maxOp.finish()},
		{spec: colChangeTime, data: time.finish()},
		{spec: colChangeMessage, data: message.finish()},
		{spec: colChangeDeps, data: group.finish()},
		{spec: colChangeDep, data: dep.finish()},
		{spec: colExtraMeta, data: extraMeta.finish()},
		{spec: colExtraRaw, data: extra},
	})
}

func assembleDocument(ctx context.Context, actors []ActorID, heads []Hash, at []uint32, metas []Meta, ops columns) ([]byte, error) {
	changes := writeMetas(metas)
	for _, cs := range []columns{changes, ops} {
		for i := range cs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := cs[i].deflate(); err != nil {
				return nil, err
			}
		}
	}
	b := appendUint(nil, uint64(len(actors)))
	for _, a := range actors {
		b = appendText(b, string(a))
	}
	b = appendUint(b, uint64(len(heads)))
	for i := range heads {
		b = append(b, heads[i][:]...)
	}
	b = appendColumnTable(b, changes)
	b = appendColumnTable(b, ops)
	for _, cs := range []columns{changes, ops} {
		for _, c := range cs {
			b = append(b, c.data...)
		}
	}
	for _, i := range at {
		b = appendUint(b, uint64(i))
	}
	chunk, _ := appendChunk(make([]byte, 0, frameMin+10+len(b)), KindDocument, b)
	return chunk, nil
}
