package amstate

import (
	"encoding/base64"
	"io"
	"math"
	"strconv"
	"time"
)

// WriteJSON writes the state as JSON, in pieces.
func (s *State) WriteJSON(w io.Writer) error {
	e := encoder{w: w, buf: make([]byte, 0, pieceSize+4096)}
	e.node(s.root, Map)
	if e.err == nil {
		_, e.err = w.Write(e.buf)
	}
	return e.err
}

// JSON is the state as JSON.
func (s *State) JSON() []byte { return s.Root().JSON() }

// JSON is the value as JSON.
func (v Value) JSON() []byte {
	e := encoder{}
	e.value(&v.v)
	return e.buf
}

// MarshalJSON is [Value.JSON].
func (v Value) MarshalJSON() ([]byte, error) { return v.JSON(), nil }

const pieceSize = 64 << 10

// encoder writes JSON as the package's documentation says.
type encoder struct {
	w   io.Writer // nil keeps everything in buf
	buf []byte
	err error
}

// drain writes what was gathered, if that is a piece.
func (e *encoder) drain() {
	if e.w == nil || len(e.buf) < pieceSize {
		return
	}
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *encoder) node(n *node, kind Kind) {
	if e.err != nil {
		return
	}
	switch kind {
	case Map:
		e.buf = append(e.buf, '{')
		if n != nil {
			for i := range n.vals {
				if i > 0 {
					e.buf = append(e.buf, ',')
				}
				e.string(n.keys[i])
				e.buf = append(e.buf, ':')
				e.value(&n.vals[i])
			}
		}
		e.buf = append(e.buf, '}')
	case List:
		e.buf = append(e.buf, '[')
		if n != nil {
			for i := range n.vals {
				if i > 0 {
					e.buf = append(e.buf, ',')
				}
				e.value(&n.vals[i])
			}
		}
		e.buf = append(e.buf, ']')
	default:
		if n == nil {
			e.buf = append(e.buf, '"', '"')
		} else {
			writeString(e, n.text)
		}
	}
	e.drain()
}

func (e *encoder) value(v *value) {
	switch v.kind {
	case Bool:
		e.buf = strconv.AppendBool(e.buf, v.num != 0)
	case Int, Counter:
		e.buf = strconv.AppendInt(e.buf, v.num, 10)
	case Uint:
		e.buf = strconv.AppendUint(e.buf, uint64(v.num), 10)
	case Float:
		e.buf = appendFloat(e.buf, math.Float64frombits(uint64(v.num)))
	case String:
		writeString(e, v.raw)
	case Bytes:
		e.buf = append(e.buf, '"')
		for raw := v.raw; ; raw = raw[base64Piece:] {
			if len(raw) <= base64Piece {
				e.buf = base64.StdEncoding.AppendEncode(e.buf, raw)
				break
			}
			e.buf = base64.StdEncoding.AppendEncode(e.buf, raw[:base64Piece])
			e.drain()
		}
		e.buf = append(e.buf, '"')
	case Timestamp:
		e.buf = appendTime(e.buf, v.num)
	case Map, List, Text:
		e.node(v.node, v.kind)
	default:
		e.buf = append(e.buf, "null"...)
	}
	e.drain()
}

// base64Piece is a number of bytes that needs no padding.
const base64Piece = 48 << 10

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return append(b, "null"...)
	case f == 0:
		return append(b, '0')
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-4] == 'e' && b[n-2] == '0' { // e-07
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b
}

// maxDate is the last millisecond that ECMAScript's dates can hold, the negated one the first.
const maxDate = 8_640_000_000_000_000

func appendTime(b []byte, ms int64) []byte {
	if ms < -maxDate || ms > maxDate {
		return append(b, "null"...)
	}
	t := time.UnixMilli(ms).UTC()
	b = append(b, '"')
	digits := 4
	year := t.Year()
	if year < 0 || year > 9999 {
		digits = 6
		if year < 0 {
			b = append(b, '-')
			year = -year
		} else {
			b = append(b, '+')
		}
	}
	b = appendPadded(b, year, digits)
	b = t.AppendFormat(b, "-01-02T15:04:05.000Z")
	return append(b, '"')
}

func appendPadded(b []byte, n, digits int) []byte {
	for d, i := int(math.Pow10(digits-1)), 0; i < digits; i, d = i+1, d/10 {
		b = append(b, byte('0'+n/d%10))
	}
	return b
}

func (e *encoder) string(s string) { writeString(e, s) }

const hexDigits = "0123456789abcdef"

// plain are the bytes that strings are written with as they are.
var plain = func() (t [256]bool) {
	for i := range t {
		t[i] = i >= 0x20 && i != '"' && i != '\\'
	}
	return t
}()

func writeString[S string | []byte](e *encoder, s S) {
	e.buf = append(e.buf, '"')
	for len(s) > pieceSize {
		appendString(e, s[:pieceSize])
		s = s[pieceSize:]
		e.drain()
	}
	appendString(e, s)
	e.buf = append(e.buf, '"')
}

// appendString escapes what needs it. What is no single byte is written as it is, so that a piece may end within a character.
func appendString[S string | []byte](e *encoder, s S) {
	b := e.buf
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if plain[c] {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case 0:
			b = append(b, "\ufffd"...)
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	e.buf = append(b, s[from:]...)
}
