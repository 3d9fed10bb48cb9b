package amstate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// written is one change of one actor that starts from nothing. Operations have ids from 1 by their place.
func written(t testing.TB, ops ...amformat.Op) []*amformat.Change {
	t.Helper()
	d := amformat.Draft{Actor: "\x01", Seq: 1, StartOp: 1, Actors: []amformat.ActorID{"\x01"}, Ops: ops}
	return []*amformat.Change{must(d.Write(amformat.Limits{}))(t)}
}

func at(n int) amformat.OpID { return amformat.OpID{Counter: uint64(n)} }

func set(key string, kind amformat.ValueType, raw ...byte) amformat.Op {
	return amformat.Op{Key: key, Action: amformat.ActionSet, Value: amformat.Value{Type: kind, Raw: raw}}
}

func float(f float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)) }

func TestJSONOfScalars(t *testing.T) {
	long := strings.Repeat("é\"\x00", 100_000)
	for _, c := range []struct {
		v    amformat.Value
		want string
	}{
		{amformat.Value{Type: amformat.ValueNull}, `null`},
		{amformat.Value{Type: amformat.ValueTrue}, `true`},
		{amformat.Value{Type: amformat.ValueFalse}, `false`},
		{number(amformat.ValueInt, math.MinInt64), `-9223372036854775808`},
		{amformat.Value{Type: amformat.ValueUint, Raw: binary.AppendUvarint(nil, math.MaxUint64)}, `18446744073709551615`},
		{number(amformat.ValueCounter, 1<<53+1), `9007199254740993`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(1.5)}, `1.5`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(math.Copysign(0, -1))}, `0`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(1e21)}, `1e+21`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(1e20)}, `100000000000000000000`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(1e-7)}, `1e-7`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(1.25e-100)}, `1.25e-100`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(math.MaxFloat64)}, `1.7976931348623157e+308`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(math.NaN())}, `null`},
		{amformat.Value{Type: amformat.ValueFloat, Raw: float(math.Inf(-1))}, `null`},
		{number(amformat.ValueTimestamp, 0), `"1970-01-01T00:00:00.000Z"`},
		{number(amformat.ValueTimestamp, -1), `"1969-12-31T23:59:59.999Z"`},
		{number(amformat.ValueTimestamp, 253402300800000), `"+010000-01-01T00:00:00.000Z"`},
		{number(amformat.ValueTimestamp, -62167219200001), `"-000001-12-31T23:59:59.999Z"`},
		{number(amformat.ValueTimestamp, -62167219200000), `"0000-01-01T00:00:00.000Z"`},
		{number(amformat.ValueTimestamp, maxDate), `"+275760-09-13T00:00:00.000Z"`},
		{number(amformat.ValueTimestamp, -maxDate), `"-271821-04-20T00:00:00.000Z"`},
		{number(amformat.ValueTimestamp, maxDate+1), `null`},
		{number(amformat.ValueTimestamp, math.MinInt64), `null`},
		{amformat.Value{Type: amformat.ValueBytes, Raw: []byte{0, 1, 2, 255}}, `"AAEC/w=="`},
		{amformat.Value{Type: amformat.ValueBytes}, `""`},
		{amformat.Value{Type: 12, Raw: []byte("?")}, `null`},
		{amformat.Value{Type: amformat.ValueString, Raw: []byte("a\x00\x1f\"\\/\b\f\n\r\t\x7f\u2028😀")}, "\"a\ufffd\\u001f\\\"\\\\/\\b\\f\\n\\r\\t\x7f\u2028😀\""},
		{amformat.Value{Type: amformat.ValueString, Raw: []byte(long)}, `"` + strings.Repeat("é\\\"\ufffd", 100_000) + `"`},
	} {
		s := stateOf(t, written(t, amformat.Op{Key: "v", Action: amformat.ActionSet, Value: c.v}), Options{})
		want := `{"v":` + c.want + `}`
		var b bytes.Buffer
		ok(t, s.WriteJSON(&b))
		if got := string(s.JSON()); got != want || b.String() != want || !json.Valid(b.Bytes()) {
			t.Errorf("%.100v: %.200s and %.200s, want %.200s", c.v, got, b.Bytes(), want)
		}
	}
}

// What is longer than a piece is the same as in one piece.
func TestJSONOfLongBytes(t *testing.T) {
	for _, n := range []int{base64Piece - 1, base64Piece, base64Piece + 1, 3*base64Piece + 5} {
		s := stateOf(t, written(t, set("b", amformat.ValueBytes, bytes.Repeat([]byte{1, 2, 250}, n)[:n]...)), Options{})
		var b bytes.Buffer
		ok(t, s.WriteJSON(&b))
		var got struct{ B []byte }
		ok(t, json.Unmarshal(b.Bytes(), &got))
		if len(got.B) != n || !bytes.Equal(b.Bytes(), s.JSON()) {
			t.Errorf("%d bytes of %d", len(got.B), n)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteJSONFails(t *testing.T) {
	s := stateOf(t, written(t, set("a", amformat.ValueNull)), Options{})
	if err := s.WriteJSON(fullDisk{}); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}
