package amformat

// id32 is an OpID in half the size: counters that are accepted fit.
type id32 struct{ counter, actor uint32 }

func (id OpID) short() id32 { return id32{counter: uint32(id.Counter), actor: id.Actor} }
func (id id32) long() OpID  { return OpID{Counter: uint64(id.counter), Actor: id.actor} }

// packed is a number that orders as the ids do.
func (id id32) packed() uint64 { return uint64(id.counter)<<32 | uint64(id.actor) }
func (id OpID) packed() uint64 { return id.Counter<<32 | uint64(id.Actor) }

func compareID(a, b id32) int {
	switch x, y := a.packed(), b.packed(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// record is an operation that is kept, small because there may be millions. Its strings and value are of the records it is part of.
type record struct {
	id, obj id32
	place   id32   // the element, or the index of the key's name
	column  uint32 // the value: a part of a column of values
	from    uint32
	size    uint32
	mark    uint32 // index of the mark's name
	action  Action
	value   ValueType
	flags   uint8
}

const (
	inList = 1 << iota
	inserts
	expands
	marks
)

// records are operations that are kept.
type records struct {
	ops     []record
	columns [][]byte
	names   []string
	index   map[string]uint32
}

func (rs *records) name(s string) uint32 {
	if n := len(rs.names); n > 0 && rs.names[n-1] == s {
		return uint32(n - 1)
	}
	if i, ok := rs.index[s]; ok {
		return i
	}
	if rs.index == nil {
		rs.index = map[string]uint32{}
	}
	i := uint32(len(rs.names))
	rs.names = append(rs.names, s)
	rs.index[s] = i
	return i
}

// place is where an operation is within its object.
func (rs *records) place(op *Op) id32 {
	if op.InList {
		return op.Elem.short()
	}
	return id32{counter: rs.name(op.Key)}
}

// add keeps an operation whose value begins at from in the column.
func (rs *records) add(op *Op, column, from int) {
	r := record{
		id: op.ID.short(), obj: op.Obj.short(), place: rs.place(op), column: uint32(column), from: uint32(from), size: uint32(len(op.Value.Raw)),
		action: op.Action, value: op.Value.Type,
	}
	if op.InList {
		r.flags |= inList
	}
	if op.Insert {
		r.flags |= inserts
	}
	if op.Expand {
		r.flags |= expands
	}
	if op.MarkBegin {
		r.flags |= marks
		r.mark = rs.name(op.MarkName)
	}
	rs.ops = append(rs.ops, r)
}

// read makes op the record again, without predecessors and successors.
func (rs *records) read(r *record, op *Op) {
	op.ID, op.Obj = r.id.long(), r.obj.long()
	op.InList = r.flags&inList != 0
	if op.InList {
		op.Key, op.Elem = "", r.place.long()
	} else {
		op.Key, op.Elem = rs.names[r.place.counter], OpID{}
	}
	op.Insert, op.Expand, op.MarkBegin = r.flags&inserts != 0, r.flags&expands != 0, r.flags&marks != 0
	op.MarkName = ""
	if op.MarkBegin {
		op.MarkName = rs.names[r.mark]
	}
	op.Action, op.Value.Type = r.action, r.value
	op.Value.Raw = nil
	if r.size > 0 {
		end := r.from + r.size
		op.Value.Raw = rs.columns[r.column][r.from:end:end]
	}
	op.Pred, op.Succ = op.Pred[:0], op.Succ[:0]
}
