package amformat

import (
	"math"
)

// Meta is what a document says of one of its changes. The first operation and the hash are not among it: they follow from the rows.
type Meta struct {
	Actor   uint32 // index in the document's actors
	Seq     uint64
	MaxOp   uint64 // the counter of its last operation, or of the one before its first if it has none
	Time    int64
	Message string
	Deps    []uint32 // indexes of earlier changes of the document
	Extra   []byte
}

// Document is a document chunk: the operations of many changes as one table. Its header and its changes' metadata are read, its columns
// measured; its rows are read and judged by [Document.Rows]. Until [Document.Changes] has proven it, a document is what its sender says. It
// doesn't change, so that many may read it at once.
type Document struct {
	Heads  []Hash    // the changes that no other depends on, in order
	Actors []ActorID // in order
	Metas  []Meta    // the changes, each after those that it depends on
	NumOps int64     // the rows

	headIndexes []uint64 // where the heads are among the changes; not in old documents
	columns     columns
	limits      Limits
}

// ParseDocument reads a document chunk. The document shares the chunk's memory, which must not be written to.
func ParseDocument(chunk []byte, limits Limits) (*Document, error) {
	limits = limits.orDefault()
	frame, err := oneChunk(chunk)
	if err != nil {
		return nil, err
	}
	if frame.Kind != KindDocument {
		return nil, malformed("a %s chunk where a document is expected", frame.Kind)
	}
	_, body, _, err := frame.plain(limits)
	if err != nil {
		return nil, err
	}
	d := &Document{limits: limits}
	p := &parser{b: body}
	n := p.count("actors", 1)
	if p.err == nil {
		p.err = within("actors", int64(n), limits.Actors)
	}
	if p.err != nil {
		return nil, p.err
	}
	d.Actors = make([]ActorID, 0, n)
	for range n {
		a := ActorID(p.sized("actors"))
		if len(d.Actors) > 0 && d.Actors[len(d.Actors)-1] >= a {
			p.fail(malformed("actors out of order"))
		}
		d.Actors = append(d.Actors, a)
	}
	d.Heads = p.hashes("heads")
	changes := p.columns("columns of changes", documentChangeColumns, true)
	d.columns = p.columns("columns of operations", documentOpColumns, true)
	budget := limits.Bytes - int64(len(chunk))
	p.fill(changes, &budget)
	p.fill(d.columns, &budget)
	if p.err == nil && len(p.b) > 0 {
		d.headIndexes = make([]uint64, 0, len(d.Heads))
		for range d.Heads {
			d.headIndexes = append(d.headIndexes, p.uint("indexes of heads"))
		}
		if p.err == nil && len(p.b) > 0 {
			return nil, unsupported("%d bytes after the end of the document", len(p.b))
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := d.readMetas(changes); err != nil {
		return nil, err
	}
	return d, d.tally()
}

func (d *Document) tally() error {
	actions, err := tallyUints(d.columns.get(colAction), manyRows, 0, "actions")
	if err == nil {
		err = within("operations", actions.rows, d.limits.Ops)
	}
	if err != nil {
		return err
	}
	d.NumOps = actions.rows
	if err := tallyOpColumns(d.columns, d.NumOps, len(d.Actors)); err != nil {
		return err
	}
	if err := tallyLinks(d.columns, colSuccGroup, colSuccActor, colSuccCount, d.NumOps, len(d.Actors), d.limits); err != nil {
		return err
	}
	t, err := tallyUints(d.columns.get(colIDActor), d.NumOps, 0, "ids")
	if err == nil {
		err = t.full(d.NumOps, "ids")
	}
	if err == nil && t.rows > 0 && t.max >= uint64(len(d.Actors)) {
		err = malformed("actor %d of %d", t.max, len(d.Actors))
	}
	if err != nil {
		return err
	}
	if t, err = tallyDeltas(d.columns.get(colIDCounter), d.NumOps, 1, maxCounter, "ids"); err == nil {
		err = t.full(d.NumOps, "ids")
	}
	return err
}

func (d *Document) readMetas(cs columns) error {
	actors, err := tallyUints(cs.get(colChangeActor), manyRows, 0, "actors of changes")
	if err == nil {
		err = within("changes", actors.rows, d.limits.Changes)
	}
	if err != nil {
		return err
	}
	n := actors.rows
	if err := actors.full(n, "actors of changes"); err != nil {
		return err
	}
	if n > 0 && actors.max >= uint64(len(d.Actors)) {
		return malformed("actor %d of %d", actors.max, len(d.Actors))
	}
	for _, c := range []struct {
		spec            spec
		lowest, highest int64
	}{{colChangeSeq, 1, maxCounter}, {colChangeMaxOp, 0, maxCounter}, {colChangeTime, -maxTime, maxTime}} {
		t, err := tallyDeltas(cs.get(c.spec), n, c.lowest, c.highest, "changes")
		if err == nil {
			err = t.full(n, "changes")
		}
		if err != nil {
			return err
		}
	}
	messages, err := tallyStrings(cs.get(colChangeMessage), n, "messages")
	if err == nil {
		err = messages.exactly(n, "messages")
	}
	if err != nil {
		return err
	}
	groups, err := tallyUints(cs.get(colChangeDeps), n, 0, "dependencies")
	if err == nil {
		err = groups.full(n, "dependencies")
	}
	if err != nil {
		return err
	}
	if groups.sum > uint64(d.limits.Changes)*4 {
		return &LimitError{What: "changes", Limit: d.limits.Changes * 4, Got: int64(min(groups.sum, math.MaxInt64))}
	}
	links := int64(groups.sum)
	t, err := tallyDeltas(cs.get(colChangeDep), links, 0, maxCounter, "dependencies")
	if err == nil {
		err = t.full(links, "dependencies")
	}
	if err != nil {
		return err
	}
	// Extra bytes are values; all of them have to be bytes.
	extras, err := tallyUints(cs.get(colExtraMeta), n, 4, "extra bytes")
	if err == nil {
		err = extras.exactly(n, "extra bytes")
	}
	if err == nil && extras.sum != uint64(len(cs.get(colExtraRaw))) {
		err = malformed("extra bytes: %d in a column of %d", extras.sum, len(cs.get(colExtraRaw)))
	}
	if err != nil {
		return err
	}

	var (
		actor   = uints{b: cs.get(colChangeActor)}
		seq     = deltas{b: cs.get(colChangeSeq)}
		maxOp   = deltas{b: cs.get(colChangeMaxOp)}
		time    = deltas{b: cs.get(colChangeTime)}
		message = newTexts(cs.get(colChangeMessage))
		group   = uints{b: cs.get(colChangeDeps)}
		dep     = deltas{b: cs.get(colChangeDep)}
		meta    = uints{b: cs.get(colExtraMeta)}
		raw     = cs.get(colExtraRaw)
		deps    = make([]uint32, 0, links)
		last    = make([]Meta, len(d.Actors))
		follows = make([]bool, n) // whether another change depends on it
		heads   = n
	)
	d.Metas = make([]Meta, n)
	for i := range d.Metas {
		m := &d.Metas[i]
		a, _ := actor.next()
		s, _ := seq.next()
		top, _ := maxOp.next()
		m.Actor, m.Seq, m.MaxOp = uint32(a), uint64(s), uint64(top)
		m.Time, _ = time.next()
		m.Message, _ = message.next()
		if l := &last[a]; m.Seq != l.Seq+1 || m.MaxOp < l.MaxOp {
			return malformed("change %d: number %d up to operation %d of its actor after number %d up to %d", i, m.Seq, m.MaxOp, l.Seq, l.MaxOp)
		}
		last[a] = *m
		from := len(deps)
		count, _ := group.next()
		for range count {
			v, _ := dep.next()
			if v >= int64(i) {
				return malformed("change %d depends on change %d", i, v)
			}
			if !follows[v] {
				follows[v] = true
				heads--
			}
			deps = append(deps, uint32(v))
		}
		m.Deps = deps[from:len(deps):len(deps)]
		if info, ok := meta.next(); ok {
			if ValueType(info&15) != ValueBytes {
				return malformed("change %d: extra bytes of type %d", i, info&15)
			}
			size := int(info >> 4)
			m.Extra, raw = raw[:size:size], raw[size:]
		}
	}
	if heads != int64(len(d.Heads)) {
		return malformed("%d heads are named and %d changes have no other that depends on them", len(d.Heads), heads)
	}
	seen := map[uint64]bool{}
	for _, i := range d.headIndexes {
		if i >= uint64(n) || follows[i] || seen[i] {
			return malformed("change %d is no head", i)
		}
		seen[i] = true
	}
	return nil
}

// documentReader reads the rows of a document one after another, each judged alone.
type documentReader struct {
	opColumns
	op          Op
	left        int64
	idActor     uints
	idCounter   deltas
	succGroup   uints
	succActor   uints
	succCounter deltas
	values      []byte // the whole column
	from        int    // where in it the row's value begins
	err         error
}

func (d *Document) reader() *documentReader {
	return &documentReader{
		opColumns:   readOpColumns(d.columns),
		left:        d.NumOps,
		idActor:     uints{b: d.columns.get(colIDActor)},
		idCounter:   deltas{b: d.columns.get(colIDCounter)},
		succGroup:   uints{b: d.columns.get(colSuccGroup)},
		succActor:   uints{b: d.columns.get(colSuccActor)},
		succCounter: deltas{b: d.columns.get(colSuccCount)},
		values:      d.columns.get(colValueRaw),
	}
}

func (r *documentReader) next() bool {
	if r.left == 0 || r.err != nil {
		return false
	}
	r.left--
	op := &r.op
	a, _ := r.idActor.next()
	n, _ := r.idCounter.next()
	op.ID = OpID{Counter: uint64(n), Actor: uint32(a)}
	r.from = len(r.values) - len(r.valueRaw)
	if r.err = r.opColumns.next(op); r.err != nil {
		return false
	}
	op.Succ = op.Succ[:0]
	links, _ := r.succGroup.next()
	for i := range links {
		a, _ := r.succActor.next()
		n, _ := r.succCounter.next()
		s := OpID{Counter: uint64(n), Actor: uint32(a)}
		if s.Counter <= op.ID.Counter || i > 0 && op.Succ[i-1].Compare(s) >= 0 {
			r.err = malformed("operation %d: successors out of order", op.ID.Counter)
			return false
		}
		op.Succ = append(op.Succ, s)
	}
	if op.Action == ActionDelete {
		r.err = malformed("operation %d: a deletion among the rows", op.ID.Counter)
		return false
	}
	if r.err = op.check(); r.err != nil {
		return false
	}
	return true
}
