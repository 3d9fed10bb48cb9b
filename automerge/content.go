package automerge

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/amformat"
)

// fromJSON makes the first change of a document of a JSON object. Strings become texts, as they do in the JavaScript library, so that several people can
// write in them; numbers become integers where they are written as such.
func (s *Store) fromJSON(id uuid.UUID, data []byte) (incoming, error) {
	bad := func(err error) error {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("document %s can't be made of that JSON: %v", id, err), Hint: "A document is a JSON object.", Doc: id, Index: -1, cause: err}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var root map[string]any
	if err := d.Decode(&root); err != nil {
		return incoming{}, bad(err)
	}
	if root == nil {
		return incoming{}, bad(fmt.Errorf("it is null"))
	}
	if _, err := d.Token(); err != io.EOF {
		return incoming{}, bad(fmt.Errorf("something follows the object"))
	}
	actor := make([]byte, 16)
	_, _ = rand.Read(actor) // it never fails
	w := &jsonWriter{depth: s.limits.Depth, draft: amformat.Draft{Actor: amformat.ActorID(actor), Seq: 1, StartOp: 1, Time: time.Now().Unix(), Actors: []amformat.ActorID{amformat.ActorID(actor)}}}
	w.object(amformat.OpID{}, root, 1)
	if w.deepest > s.limits.Depth {
		return incoming{}, tooDeep(id, errDepth(s.limits.Depth))
	}
	change, err := w.draft.Write(s.limits.format())
	if err != nil {
		return incoming{}, malformed(id, err)
	}
	return incoming{Change: change, chunk: change.Bytes}, nil
}

// jsonWriter writes values as operations.
type jsonWriter struct {
	draft   amformat.Draft
	depth   int64
	deepest int64
}

// add adds an operation and returns its id.
func (w *jsonWriter) add(op amformat.Op) amformat.OpID {
	w.draft.Ops = append(w.draft.Ops, op)
	return amformat.OpID{Counter: uint64(len(w.draft.Ops))}
}

func (w *jsonWriter) object(obj amformat.OpID, m map[string]any, depth int64) {
	if w.deepest = max(w.deepest, depth); w.deepest > w.depth {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		w.value(amformat.Op{Obj: obj, Key: key}, m[key], depth)
	}
}

// value makes an operation that has its place set or make the value.
func (w *jsonWriter) value(op amformat.Op, v any, depth int64) amformat.OpID {
	op.Action = amformat.ActionSet
	switch v := v.(type) {
	case nil:
	case bool:
		op.Value.Type = amformat.ValueFalse
		if v {
			op.Value.Type = amformat.ValueTrue
		}
	case json.Number:
		op.Value = number(v)
	case string:
		op.Action = amformat.ActionMakeText
		text := w.add(op)
		at := amformat.OpID{}
		for _, r := range v {
			at = w.add(amformat.Op{Obj: text, InList: true, Elem: at, Insert: true, Action: amformat.ActionSet, Value: amformat.Value{Type: amformat.ValueString, Raw: []byte(string(r))}})
		}
		return text
	case map[string]any:
		op.Action = amformat.ActionMakeMap
		id := w.add(op)
		w.object(id, v, depth+1)
		return id
	case []any:
		op.Action = amformat.ActionMakeList
		id := w.add(op)
		if w.deepest = max(w.deepest, depth+1); w.deepest > w.depth {
			return id
		}
		at := amformat.OpID{}
		for _, e := range v {
			at = w.value(amformat.Op{Obj: id, InList: true, Elem: at, Insert: true}, e, depth+1)
		}
		return id
	}
	return w.add(op)
}

// number keeps integers exact where they fit.
func number(n json.Number) amformat.Value {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return amformat.Value{Type: amformat.ValueInt, Raw: appendSigned(nil, i)}
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return amformat.Value{Type: amformat.ValueUint, Raw: binary.AppendUvarint(nil, u)}
	}
	f, _ := n.Float64()
	return amformat.Value{Type: amformat.ValueFloat, Raw: binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))}
}

// appendSigned writes a signed LEB128.
func appendSigned(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7F)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
