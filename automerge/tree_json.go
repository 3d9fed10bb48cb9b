package automerge

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/annals-db/annals/internal/amformat"
)

// errDepth says that objects lie too deep in each other.
type errDepth int64

func (e errDepth) Error() string {
	return fmt.Sprintf("objects are more than %d deep within each other", int64(e))
}

// json writes the tree as JSON: maps and tables as objects, lists as arrays, texts as strings with U+FFFC where a block begins; numbers and counters
// exactly, NaN and infinities as null, timestamps in ISO 8601, bytes in base 64; U+FFFD for NUL, which jsonb does not know. Of concurrent
// values it is the one that Automerge shows.
func (t *tree) json(depth int64) ([]byte, error) {
	return t.appendObject(nil, amformat.OpID{}, depth, depth)
}

func (t *tree) appendObject(b []byte, id amformat.OpID, left, depth int64) (_ []byte, err error) {
	if left == 0 {
		return nil, errDepth(depth)
	}
	o := t.objects[id]
	switch {
	case o == nil:
		return append(b, "null"...), nil
	case o.action == amformat.ActionMakeText:
		return o.appendText(b), nil
	case o.action == amformat.ActionMakeList:
		b = append(b, '[')
		first := true
		for _, e := range o.elements {
			if len(e.values) == 0 {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			if b, err = t.appendValue(b, e.values[len(e.values)-1], left, depth); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	b = append(b, '{')
	keys := make([]string, 0, len(o.keys))
	for key := range o.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	first := true
	for _, key := range keys {
		v := o.keys[key][len(o.keys[key])-1]
		if want, _ := o.want.below(key); want != nil {
			// Of something else than a map no part can be wanted.
			if v.action != amformat.ActionMakeMap && v.action != amformat.ActionMakeTable {
				continue
			}
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, key), ':')
		if b, err = t.appendValue(b, v, left, depth); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func (o *object) appendText(b []byte) []byte {
	b = append(b, '"')
	for _, e := range o.elements {
		if len(e.values) == 0 {
			continue
		}
		if v := e.values[len(e.values)-1]; v.action == amformat.ActionSet && v.typ == amformat.ValueString {
			b = appendEscaped(b, v.raw)
		} else {
			b = append(b, "\uFFFC"...)
		}
	}
	return append(b, '"')
}

func (t *tree) appendValue(b []byte, v value, left, depth int64) ([]byte, error) {
	if v.action.Makes() {
		return t.appendObject(b, v.id, left-1, depth)
	}
	return appendScalar(b, v), nil
}

// appendScalar writes a value that is no object.
func appendScalar(b []byte, v value) []byte {
	of := amformat.Value{Type: v.typ, Raw: v.raw}
	switch v.typ {
	case amformat.ValueFalse:
		return append(b, "false"...)
	case amformat.ValueTrue:
		return append(b, "true"...)
	case amformat.ValueUint:
		return strconv.AppendUint(b, of.Uint(), 10)
	case amformat.ValueInt:
		return strconv.AppendInt(b, of.Int(), 10)
	case amformat.ValueCounter:
		return strconv.AppendInt(b, of.Int()+v.plus, 10)
	case amformat.ValueFloat:
		f := math.Float64frombits(binary.LittleEndian.Uint64(v.raw))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...)
		}
		if f == 0 {
			return append(b, '0') // and no minus
		}
		return strconv.AppendFloat(b, f, 'g', -1, 64)
	case amformat.ValueString:
		return append(appendEscaped(append(b, '"'), v.raw), '"')
	case amformat.ValueBytes:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, v.raw)
		return append(b, '"')
	case amformat.ValueTimestamp:
		if ms := of.Int(); ms > lastTime || ms < -lastTime {
			return append(b, "null"...)
		}
		return append(appendTime(append(b, '"'), of.Int()), '"')
	}
	return append(b, "null"...)
}

// lastTime is the last moment, in milliseconds since 1970, that JavaScript knows.
const lastTime = 8_640_000_000_000_000

// appendTime writes milliseconds since 1970 as JavaScript does: years beyond four digits have a sign and six.
func appendTime(b []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		b = fmt.Appendf(b, "%+07d", y)
	} else {
		b = fmt.Appendf(b, "%04d", y)
	}
	return fmt.Appendf(b, "-%02d-%02dT%02d:%02d:%02d.%03dZ", t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond()/1_000_000)
}

func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), []byte(s)), '"')
}

// appendEscaped writes the inside of a string.
func appendEscaped(b, s []byte) []byte {
	const digits = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == 0:
			b = append(b, "\uFFFD"...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune(s[i:])
			b = utf8.AppendRune(b, r) // what is no UTF-8 becomes U+FFFD
			i += n
			continue
		}
		i++
	}
	return b
}
