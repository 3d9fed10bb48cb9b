package amformat

import (
	"slices"
	"sync"
)

// changeWriter writes the operations of one change.
type changeWriter struct {
	opWriter
	predGroup   rleWriter[uint64]
	predActor   rleWriter[uint64]
	predCounter deltaWriter
}

// opWriter writes the columns that operations of changes and of documents have in common.
type opWriter struct {
	objActor   rleWriter[uint64]
	objCounter rleWriter[uint64]
	keyActor   rleWriter[uint64]
	keyCounter deltaWriter
	keyString  rleWriter[string]
	insert     boolWriter
	action     rleWriter[uint64]
	valueMeta  rleWriter[uint64]
	valueRaw   []byte
	expand     boolWriter
	markName   rleWriter[string]
}

func newOpWriter() opWriter {
	return opWriter{
		objActor: uintWriter(), objCounter: uintWriter(), keyActor: uintWriter(), keyCounter: newDeltaWriter(), keyString: textWriter(),
		action: uintWriter(), valueMeta: uintWriter(), markName: textWriter(),
	}
}

// changeWriters are writers that wait to be used again: most changes are small.
var changeWriters = sync.Pool{New: func() any { return newChangeWriter() }}

func (w *changeWriter) release() {
	if cap(w.valueRaw) < 1<<16 {
		w.reset()
		changeWriters.Put(w)
	}
}

func newChangeWriter() *changeWriter {
	return &changeWriter{opWriter: newOpWriter(), predGroup: uintWriter(), predActor: uintWriter(), predCounter: newDeltaWriter()}
}

func (w *opWriter) add(op *Op, obj, elem OpID) {
	w.objActor.addMaybe(uint64(obj.Actor), !obj.IsZero())
	w.objCounter.addMaybe(obj.Counter, !obj.IsZero())
	w.keyActor.addMaybe(uint64(elem.Actor), op.InList && !elem.IsZero())
	w.keyCounter.addMaybe(int64(elem.Counter), op.InList)
	w.keyString.addMaybe(op.Key, !op.InList)
	w.insert.add(op.Insert)
	w.action.add(uint64(op.Action))
	w.valueMeta.add(uint64(len(op.Value.Raw))<<4 | uint64(op.Value.Type))
	w.valueRaw = append(w.valueRaw, op.Value.Raw...)
	w.expand.add(op.Expand)
	w.markName.addMaybe(op.MarkName, op.MarkBegin)
}

// add appends an operation, whose ids are given anew because they may be of another table of actors.
func (w *changeWriter) add(op *Op, obj, elem OpID, pred []OpID) {
	w.opWriter.add(op, obj, elem)
	w.predGroup.add(uint64(len(pred)))
	for _, p := range pred {
		w.predActor.add(uint64(p.Actor))
		w.predCounter.add(int64(p.Counter))
	}
}

func (w *opWriter) finish() columns {
	return columns{
		{spec: colObjActor, data: w.objActor.finish()},
		{spec: colObjCounter, data: w.objCounter.finish()},
		{spec: colKeyActor, data: w.keyActor.finish()},
		{spec: colKeyCounter, data: w.keyCounter.finish()},
		{spec: colKeyString, data: w.keyString.finish()},
		{spec: colInsert, data: w.insert.finish()},
		{spec: colAction, data: w.action.finish()},
		{spec: colValueMeta, data: w.valueMeta.finish()},
		{spec: colValueRaw, data: w.valueRaw},
		{spec: colExpand, data: w.expand.finishMaybe()},
		{spec: colMarkName, data: w.markName.finish()},
	}
}

// finish gives the columns that aren't empty, in order.
func (w *changeWriter) finish() columns {
	return arrange(append(w.opWriter.finish(),
		column{spec: colPredGroup, data: w.predGroup.finish()},
		column{spec: colPredActor, data: w.predActor.finish()},
		column{spec: colPredCount, data: w.predCounter.finish()}))
}

func arrange(cs columns) columns {
	cs = slices.DeleteFunc(cs, func(c column) bool { return len(c.data) == 0 })
	slices.SortFunc(cs, func(a, b column) int { return int(a.spec) - int(b.spec) })
	return cs
}

// appendColumns writes the table of columns and their bytes.
func appendColumns(b []byte, cs columns) []byte {
	b = appendColumnTable(b, cs)
	for _, c := range cs {
		b = append(b, c.data...)
	}
	return b
}

func appendColumnTable(b []byte, cs columns) []byte {
	b = appendUint(b, uint64(len(cs)))
	for _, c := range cs {
		s := c.spec
		if c.deflated {
			s |= deflated
		}
		b = appendUint(appendUint(b, uint64(s)), uint64(len(c.data)))
	}
	return b
}

// assemble writes the chunk of a change whose header is filled in and whose columns are given, and with it the change's hash. It uses and
// returns scratch.
func (c *Change) assemble(scratch []byte, cs columns) []byte {
	b := appendUint(scratch, uint64(len(c.Deps)))
	for i := range c.Deps {
		b = append(b, c.Deps[i][:]...)
	}
	b = appendText(b, string(c.Actor))
	b = appendUint(b, c.Seq)
	b = appendUint(b, c.StartOp)
	b = appendInt(b, c.Time)
	b = appendText(b, c.Message)
	b = appendUint(b, uint64(len(c.Actors)-1))
	for _, a := range c.Actors[1:] {
		b = appendText(b, string(a))
	}
	b = appendColumns(b, cs)
	b = append(b, c.Extra...)
	c.Bytes, c.Hash = appendChunk(make([]byte, 0, frameMin+10+len(b)), KindChange, b)
	// The columns of the change are those in its chunk.
	at := len(c.Bytes) - len(c.Extra)
	c.columns = slices.Clone(cs)
	for i := len(cs) - 1; i >= 0; i-- {
		from := at - len(cs[i].data)
		c.columns[i].data = c.Bytes[from:at:at]
		at = from
	}
	if len(c.Extra) > 0 {
		c.Extra = c.Bytes[len(c.Bytes)-len(c.Extra):]
	}
	return b
}

func (w *rleWriter[T]) reset() {
	w.out, w.diff, w.nulls, w.n, w.diffs = w.out[:0], w.diff[:0], 0, 0, 0
}

func (w *deltaWriter) reset() {
	w.rleWriter.reset()
	w.at = 0
}

func (w *boolWriter) reset() { *w = boolWriter{out: w.out[:0]} }

func (w *opWriter) reset() {
	w.objActor.reset()
	w.objCounter.reset()
	w.keyActor.reset()
	w.keyCounter.reset()
	w.keyString.reset()
	w.insert.reset()
	w.action.reset()
	w.valueMeta.reset()
	w.valueRaw = w.valueRaw[:0]
	w.expand.reset()
	w.markName.reset()
}

func (w *changeWriter) reset() {
	w.opWriter.reset()
	w.predGroup.reset()
	w.predActor.reset()
	w.predCounter.reset()
}
