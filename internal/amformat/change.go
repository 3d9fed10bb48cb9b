package amformat

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Header is what a change says of itself, without its operations.
type Header struct {
	Hash    Hash
	Deps    []Hash  // the changes it was made on, in order
	Actor   ActorID // who made it
	Seq     uint64  // its number among the actor's changes, from 1
	StartOp uint64  // the counter of its first operation; the others follow one by one
	NumOps  int64
	Time    int64     // seconds since 1970; 0 if not known
	Message string    // empty if there is none
	Actors  []ActorID // the table that its operations' indexes mean: the author first, the others in order
	Extra   []byte    // bytes of later versions that follow the operations
	Bytes   []byte    // the whole chunk, not compressed: the same for a change that came compressed
}

// MaxOp is the counter of the change's last operation, or of the one before its first if it has none.
func (h *Header) MaxOp() uint64 { return h.StartOp + uint64(h.NumOps) - 1 }

// Change is a change whose operations were validated.
type Change struct {
	Header
	columns columns
}

// maxTime keeps the difference of any two times a number.
const maxTime = 1 << 61

// ParseHeader reads the header of a change chunk, plain or compressed: frame, checksum, hash, and the number of operations as the run lengths
// announce it. The operations are not looked at, so what it accepts may still be refused by [ParseChange]. It is for chunks that were
// parsed before, and for telling early what a chunk is. The header shares the chunk's memory.
func ParseHeader(chunk []byte, limits Limits) (*Header, error) {
	c, err := parseChangeHeader(chunk, limits.orDefault())
	if err != nil {
		return nil, err
	}
	return &c.Header, nil
}

// ParseChange reads a change chunk, plain or compressed, and validates every operation in it. What only the document can tell is not judged: whether
// dependencies, objects and predecessors exist. The change shares the chunk's memory, which must not be written to.
func ParseChange(chunk []byte, limits Limits) (*Change, error) {
	limits = limits.orDefault()
	c, err := parseChangeHeader(chunk, limits)
	if err != nil {
		return nil, err
	}
	if err := c.validate(limits); err != nil {
		return nil, err
	}
	return c, nil
}

func parseChangeHeader(data []byte, limits Limits) (*Change, error) {
	frame, err := oneChunk(data)
	if err != nil {
		return nil, err
	}
	if frame.Kind != KindChange && frame.Kind != KindCompressed {
		return nil, malformed("a %s chunk where a change is expected", frame.Kind)
	}
	chunk, body, hash, err := frame.plain(limits)
	if err != nil {
		return nil, err
	}
	c := &Change{Header: Header{Hash: hash, Bytes: chunk}}
	p := &parser{b: body}
	c.Deps = p.hashes("dependencies")
	c.Actor = ActorID(p.sized("actor"))
	c.Seq = p.uint("sequence number")
	c.StartOp = p.uint("first operation")
	c.Time = p.int("time")
	message := p.sized("message")
	others := p.count("other actors", 1)
	if p.err == nil {
		p.err = within("actors", int64(others)+1, limits.Actors)
	}
	if p.err != nil {
		return nil, p.err
	}
	c.Actors = make([]ActorID, 1, 1+others)
	c.Actors[0] = c.Actor
	for range others {
		a := ActorID(p.sized("other actors"))
		if len(c.Actors) > 1 && c.Actors[len(c.Actors)-1] >= a || a == c.Actor {
			p.fail(malformed("other actors out of order"))
		}
		c.Actors = append(c.Actors, a)
	}
	c.columns = p.columns("columns", changeOpColumns, false)
	var none int64
	p.fill(c.columns, &none)
	if p.err != nil {
		return nil, p.err
	}
	c.Extra = p.b
	if !utf8.Valid(message) {
		return nil, malformed("the message isn't UTF-8")
	}
	c.Message = string(message)
	if c.Seq == 0 || c.Seq > maxCounter {
		return nil, malformed("the sequence number %d", c.Seq)
	}
	if c.Time > maxTime || c.Time < -maxTime {
		return nil, malformed("the time %d", c.Time)
	}
	// Every operation has an action, so this column says how many there are.
	actions, err := tallyUints(c.columns.get(colAction), manyRows, 0, "actions")
	if err == nil {
		err = within("operations", actions.rows, limits.Ops)
	}
	if err != nil {
		return nil, err
	}
	c.NumOps = actions.rows
	if c.StartOp == 0 || c.StartOp > maxCounter || c.StartOp+uint64(c.NumOps) > maxCounter {
		return nil, malformed("operations from %d to %d", c.StartOp, c.StartOp+uint64(c.NumOps)-1)
	}
	return c, nil
}

// Ops gives the operations in order. The Op is used again for the next one. Indexes of actors are of [Header.Actors].
func (c *Change) Ops() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		r := c.reader()
		for r.next() {
			if !yield(&r.op) {
				return
			}
		}
	}
}

// opColumns are the columns that operations of changes and of documents have in common.
type opColumns struct {
	objActor   uints
	objCounter uints
	keyActor   uints
	keyCounter deltas
	keyString  texts
	insert     bools
	action     uints
	valueMeta  uints
	valueRaw   []byte
	expand     bools
	markName   texts
}

func readOpColumns(cs columns) opColumns {
	return opColumns{
		objActor:   uints{b: cs.get(colObjActor)},
		objCounter: uints{b: cs.get(colObjCounter)},
		keyActor:   uints{b: cs.get(colKeyActor)},
		keyCounter: deltas{b: cs.get(colKeyCounter)},
		keyString:  newTexts(cs.get(colKeyString)),
		insert:     bools{b: cs.get(colInsert)},
		action:     uints{b: cs.get(colAction)},
		valueMeta:  uints{b: cs.get(colValueMeta)},
		valueRaw:   cs.get(colValueRaw),
		expand:     bools{b: cs.get(colExpand)},
		markName:   newTexts(cs.get(colMarkName)),
	}
}

// tallyOpColumns measures them, so that reading them can't go wrong.
func tallyOpColumns(cs columns, rows int64, actors int) error {
	for _, s := range []spec{colObjActor, colKeyActor} {
		t, err := tallyUints(cs.get(s), rows, 0, "objects and keys")
		if err == nil {
			err = t.exactly(rows, "objects and keys")
		}
		if err == nil && t.rows > t.nulls && t.max >= uint64(actors) {
			err = malformed("actor %d of %d", t.max, actors)
		}
		if err != nil {
			return err
		}
	}
	t, err := tallyUints(cs.get(colObjCounter), rows, 0, "objects")
	if err == nil {
		err = t.exactly(rows, "objects")
	}
	if err == nil && t.max > maxCounter {
		err = malformed("object %d", t.max)
	}
	if err != nil {
		return err
	}
	if t, err = tallyDeltas(cs.get(colKeyCounter), rows, 0, maxCounter, "elements"); err == nil {
		err = t.exactly(rows, "elements")
	}
	if err != nil {
		return err
	}
	for _, s := range []spec{colKeyString, colMarkName} {
		if t, err = tallyStrings(cs.get(s), rows, "keys and marks"); err == nil {
			err = t.exactly(rows, "keys and marks")
		}
		if err != nil {
			return err
		}
	}
	if t, err = tallyBools(cs.get(colInsert), rows, "insertions"); err == nil {
		err = t.full(rows, "insertions")
	}
	if err != nil {
		return err
	}
	if t, err = tallyBools(cs.get(colExpand), rows, "marks"); err == nil {
		err = t.exactly(rows, "marks")
	}
	if err != nil {
		return err
	}
	if t, err = tallyUints(cs.get(colAction), rows, 0, "actions"); err == nil {
		err = t.full(rows, "actions")
	}
	if err == nil && t.max > uint64(ActionMark) {
		err = malformed("the unknown action %d", t.max)
	}
	if err != nil {
		return err
	}
	if t, err = tallyUints(cs.get(colValueMeta), rows, 4, "values"); err == nil {
		err = t.full(rows, "values")
	}
	if err == nil && t.sum != uint64(len(cs.get(colValueRaw))) {
		err = malformed("values of %d bytes in a column of %d", t.sum, len(cs.get(colValueRaw)))
	}
	return err
}

// tallyLinks measures the three columns of predecessors or successors.
func tallyLinks(cs columns, group, actor, counter spec, rows int64, actors int, limits Limits) error {
	groups, err := tallyUints(cs.get(group), rows, 0, "links")
	if err == nil {
		err = groups.full(rows, "links")
	}
	if err != nil {
		return err
	}
	if groups.sum > uint64(limits.Ops) {
		return &LimitError{What: "operations", Limit: limits.Ops, Got: int64(min(groups.sum, 1<<62))}
	}
	links := int64(groups.sum)
	t, err := tallyUints(cs.get(actor), links, 0, "links")
	if err == nil {
		err = t.full(links, "links")
	}
	if err == nil && links > 0 && t.max >= uint64(actors) {
		err = malformed("actor %d of %d", t.max, actors)
	}
	if err != nil {
		return err
	}
	if t, err = tallyDeltas(cs.get(counter), links, 1, maxCounter, "links"); err == nil {
		err = t.full(links, "links")
	}
	return err
}

// next reads the next row into op. It says what is wrong with the columns' being set or not, which measuring them can't tell.
func (c *opColumns) next(op *Op) error {
	oa, hasActor := c.objActor.next()
	oc, hasCounter := c.objCounter.next()
	if hasActor != hasCounter || hasCounter && oc == 0 {
		return malformed("an object is half there")
	}
	op.Obj = OpID{Counter: oc, Actor: uint32(oa)}
	ka, hasActor := c.keyActor.next()
	kc, hasCounter := c.keyCounter.next()
	key, hasKey := c.keyString.next()
	if hasKey == hasCounter || hasActor != (hasCounter && kc != 0) {
		return malformed("an operation without a key or with two")
	}
	op.InList, op.Key, op.Elem = !hasKey, key, OpID{Counter: uint64(kc), Actor: uint32(ka)}
	op.Insert = c.insert.next()
	action, _ := c.action.next()
	op.Action = Action(action)
	meta, _ := c.valueMeta.next()
	op.Value.Type = ValueType(meta & 15)
	length := int(meta >> 4)
	op.Value.Raw, c.valueRaw = c.valueRaw[:length:length], c.valueRaw[length:]
	op.Expand = c.expand.next()
	op.MarkName, op.MarkBegin = c.markName.next()
	return nil
}

type changeReader struct {
	opColumns
	op          Op
	left        int64
	counter     uint64
	predGroup   uints
	predActor   uints
	predCounter deltas
	err         error
}

func (c *Change) reader() *changeReader {
	r := &changeReader{
		opColumns:   readOpColumns(c.columns),
		left:        c.NumOps,
		counter:     c.StartOp,
		predGroup:   uints{b: c.columns.get(colPredGroup)},
		predActor:   uints{b: c.columns.get(colPredActor)},
		predCounter: deltas{b: c.columns.get(colPredCount)},
	}
	return r
}

func (r *changeReader) next() bool {
	if r.left == 0 || r.err != nil {
		return false
	}
	r.op.ID = OpID{Counter: r.counter}
	r.counter++
	r.left--
	if r.err = r.opColumns.next(&r.op); r.err != nil {
		return false
	}
	r.op.Pred = r.op.Pred[:0]
	links, _ := r.predGroup.next()
	for range links {
		a, _ := r.predActor.next()
		n, _ := r.predCounter.next()
		r.op.Pred = append(r.op.Pred, OpID{Counter: uint64(n), Actor: uint32(a)})
	}
	return true
}

// validate judges every operation, and that the change is written as every writer writes it.
func (c *Change) validate(limits Limits) error {
	if err := tallyOpColumns(c.columns, c.NumOps, len(c.Actors)); err != nil {
		return err
	}
	if err := tallyLinks(c.columns, colPredGroup, colPredActor, colPredCount, c.NumOps, len(c.Actors), limits); err != nil {
		return err
	}
	ranks := actorRanks(c.Actors)
	used := make([]bool, len(c.Actors))
	used[0] = true
	made := map[uint64]Action{} // the objects that this change makes
	var mark OpID               // the object in which the operation before begins a mark
	w := changeWriters.Get().(*changeWriter)
	defer w.release()
	r := c.reader()
	for r.next() {
		op := &r.op
		if err := op.check(); err != nil {
			return fmt.Errorf("operation %d: %w", op.ID.Counter, err)
		}
		if op.Action == ActionDelete && len(op.Pred) == 0 {
			return malformed("operation %d: it deletes nothing", op.ID.Counter)
		}
		if op.Insert && len(op.Pred) > 0 {
			return malformed("operation %d: a new element overwrites something", op.ID.Counter)
		}
		for i, p := range op.Pred {
			if p.Counter >= op.ID.Counter {
				return malformed("operation %d: it overwrites a later one", op.ID.Counter)
			}
			if i > 0 && compareRanked(op.Pred[i-1], p, ranks) >= 0 {
				return malformed("operation %d: predecessors out of order", op.ID.Counter)
			}
			used[p.Actor] = true
		}
		used[op.Obj.Actor], used[op.Elem.Actor] = true, true
		if op.Obj.Actor == 0 && op.Obj.Counter >= c.StartOp {
			if by, ok := made[op.Obj.Counter]; !ok || by.List() != op.InList {
				return malformed("operation %d: no such object was made", op.ID.Counter)
			}
		}
		if op.Action.Makes() {
			made[op.ID.Counter] = op.Action
		}
		if op.Action == ActionMark && !op.MarkBegin && op.Obj != mark {
			return malformed("operation %d: it ends a mark that the one before doesn't begin", op.ID.Counter)
		}
		mark = OpID{}
		if op.MarkBegin {
			mark = op.Obj
		}
		w.add(op, op.Obj, op.Elem, op.Pred)
	}
	if r.err != nil {
		return fmt.Errorf("operation %d: %w", r.op.ID.Counter, r.err)
	}
	if slices.Contains(used, false) {
		return malformed("an actor that no operation names")
	}
	written := w.finish()
	same := slices.EqualFunc(c.columns, written, func(a, b column) bool {
		// Values are the same by the way they are read.
		return a.spec == b.spec && (a.spec == colValueRaw || bytes.Equal(a.data, b.data))
	})
	if !same {
		return malformed("the columns aren't written the way that all writers do")
	}
	return nil
}

// actorRanks is, by index, the place of each actor in the order of actors.
func actorRanks(actors []ActorID) []uint32 {
	order := make([]uint32, len(actors))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return strings.Compare(string(actors[a]), string(actors[b])) })
	ranks := make([]uint32, len(actors))
	for rank, i := range order {
		ranks[i] = uint32(rank)
	}
	return ranks
}

func compareRanked(a, b OpID, ranks []uint32) int {
	if c := cmp.Compare(a.Counter, b.Counter); c != 0 {
		return c
	}
	return cmp.Compare(ranks[a.Actor], ranks[b.Actor])
}
