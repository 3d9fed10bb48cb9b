package amformat

import (
	"math"
	"math/bits"
	"unicode/utf8"
)

// A column of runs: a positive number n and a value are n rows of the value; a negative number -n and n values are n rows that differ;
// zero and a number n are n rows without a value. A column without bytes has no value in any row.

// manyRows is the limit of the column that says how many rows there are, before that number is compared with the limits.
const manyRows = 1 << 40

// tally is what a column was found to hold before anything reads its rows.
type tally struct {
	rows  int64
	nulls int64
	max   uint64
	sum   uint64 // of the values shifted right
}

// exactly refuses a column that has another number of rows than its table. A column that isn't there has any.
func (t tally) exactly(rows int64, what string) error {
	if t.rows != rows && t.rows != 0 {
		return malformed("%s: %d rows in a table of %d", what, t.rows, rows)
	}
	return nil
}

// full refuses a column that lacks values.
func (t tally) full(rows int64, what string) error {
	if t.rows != rows || t.nulls != 0 {
		return malformed("%s: %d values in a table of %d rows", what, t.rows-t.nulls, rows)
	}
	return nil
}

// runs walks a column run by run: value is called for every value with the number of rows that have it, and says how many bytes the value
// takes or what is wrong. Numbers of rows are added up against limit first: for most columns it is the number of rows of the table.
func runs(b []byte, limit int64, what string, value func(b []byte, n int64) (int, error)) (t tally, err error) {
	for len(b) > 0 {
		n, size := readInt(b)
		if size <= 0 {
			return t, malformed("%s: a run without its length", what)
		}
		b = b[size:]
		rows, literal := n, n < 0
		if literal {
			rows = -n
		}
		if n == 0 {
			nulls, size := readUint(b)
			if size <= 0 || nulls == 0 {
				return t, malformed("%s: a run of nothing without its length", what)
			}
			b = b[size:]
			rows = int64(min(nulls, math.MaxInt64))
			t.nulls += rows
		}
		if rows < 0 || rows > limit-t.rows {
			return t, malformed("%s: more than %d rows", what, limit)
		}
		t.rows += rows
		switch {
		case n == 0:
		case literal:
			for range rows {
				size, err := value(b, 1)
				if err != nil {
					return t, err
				}
				b = b[size:]
			}
		default:
			size, err := value(b, rows)
			if err != nil {
				return t, err
			}
			b = b[size:]
		}
	}
	return t, nil
}

// tallyUints measures a column of unsigned numbers.
func tallyUints(b []byte, limit int64, shift int, what string) (tally, error) {
	var top, sum uint64
	t, err := runs(b, limit, what, func(b []byte, n int64) (int, error) {
		v, size := readUint(b)
		if size <= 0 {
			return 0, malformed("%s: a value is no number", what)
		}
		top = max(top, v)
		hi, lo := bits.Mul64(v>>shift, uint64(n))
		total, carry := bits.Add64(sum, lo, 0)
		if hi != 0 || carry != 0 {
			return 0, malformed("%s: values add up to too much", what)
		}
		sum = total
		return size, nil
	})
	t.max, t.sum = top, sum
	return t, err
}

// tallyStrings measures a column of strings.
func tallyStrings(b []byte, limit int64, what string) (tally, error) {
	return runs(b, limit, what, func(b []byte, _ int64) (int, error) {
		length, size := readUint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			return 0, malformed("%s: a string ends early", what)
		}
		end := size + int(length)
		if !utf8.Valid(b[size:end]) {
			return 0, malformed("%s: a string isn't UTF-8", what)
		}
		return end, nil
	})
}

// uints reads a column of unsigned numbers that was measured before.
type uints struct {
	b       []byte
	n       int64 // rows left of the run
	v       uint64
	literal bool
	null    bool
}

func (c *uints) next() (v uint64, ok bool) {
	if c.n > 0 && !c.literal {
		c.n--
		return c.v, !c.null
	}
	return c.step()
}

func (c *uints) step() (uint64, bool) {
	if c.n == 0 {
		if len(c.b) == 0 {
			return 0, false
		}
		var size int
		c.n, size = readInt(c.b)
		c.b = c.b[size:]
		c.literal, c.null = c.n < 0, c.n == 0
		switch {
		case c.literal:
			c.n = -c.n
		case c.null:
			var nulls uint64
			nulls, size = readUint(c.b)
			c.b, c.n, c.v = c.b[size:], int64(nulls), 0
		default:
			c.v, size = readUint(c.b)
			c.b = c.b[size:]
		}
	}
	c.n--
	if c.literal {
		v, size := readUint(c.b)
		c.b = c.b[size:]
		return v, true
	}
	return c.v, !c.null
}

// texts reads a column of strings that was measured before. They are parts of one copy of the column, so that reading one allocates nothing.
type texts struct {
	b       []byte
	all     string
	n       int64
	v       string
	literal bool
	null    bool
}

func newTexts(b []byte) texts { return texts{b: b, all: string(b)} }

func (c *texts) next() (v string, ok bool) {
	if c.n > 0 && !c.literal {
		c.n--
		return c.v, !c.null
	}
	return c.step()
}

func (c *texts) step() (string, bool) {
	if c.n == 0 {
		if len(c.b) == 0 {
			return "", false
		}
		var size int
		c.n, size = readInt(c.b)
		c.b = c.b[size:]
		c.literal, c.null = c.n < 0, c.n == 0
		switch {
		case c.literal:
			c.n = -c.n
		case c.null:
			nulls, size := readUint(c.b)
			c.b, c.n, c.v = c.b[size:], int64(nulls), ""
		default:
			c.v = c.read()
		}
	}
	c.n--
	if c.literal {
		return c.read(), true
	}
	return c.v, !c.null
}

func (c *texts) read() string {
	length, size := readUint(c.b)
	from := len(c.all) - len(c.b) + size
	c.b = c.b[size+int(length):]
	return c.all[from : from+int(length)]
}

// rleWriter writes a column of runs the one way that it is written: runs of two and more, the rest as rows that differ, and nothing at
// all for a column without a value.
type rleWriter[T comparable] struct {
	out   []byte
	put   func([]byte, T) []byte
	nulls uint64
	last  T
	n     uint64 // how often last was added in a row
	diff  []byte // the values before last that differ
	diffs int64
}

func (w *rleWriter[T]) add(v T) {
	if w.n > 0 && v == w.last {
		if w.n == 1 && w.diffs > 0 {
			w.flushDiff()
		}
		w.n++
		return
	}
	w.start(v)
}

func (w *rleWriter[T]) start(v T) {
	switch {
	case w.nulls > 0:
		w.flushNulls()
	case w.n == 1:
		w.diff = w.put(w.diff, w.last)
		w.diffs++
	case w.n > 1:
		w.flushRun()
	}
	w.last, w.n = v, 1
}

func (w *rleWriter[T]) addNull() {
	if w.n > 0 {
		w.flushValues()
	}
	w.nulls++
}

// addMaybe adds the value, or its absence.
func (w *rleWriter[T]) addMaybe(v T, ok bool) {
	if ok {
		w.add(v)
	} else {
		w.addNull()
	}
}

func (w *rleWriter[T]) flushValues() {
	if w.n == 1 {
		w.diff = w.put(w.diff, w.last)
		w.diffs++
		w.flushDiff()
	} else {
		w.flushRun()
	}
	w.n = 0
}

func (w *rleWriter[T]) flushRun() {
	w.out = w.put(appendInt(w.out, int64(w.n)), w.last)
}

func (w *rleWriter[T]) flushDiff() {
	w.out = append(appendInt(w.out, -w.diffs), w.diff...)
	w.diff, w.diffs = w.diff[:0], 0
}

func (w *rleWriter[T]) flushNulls() {
	w.out = appendUint(append(w.out, 0), w.nulls)
	w.nulls = 0
}

func (w *rleWriter[T]) finish() []byte {
	switch {
	case w.n > 0:
		w.flushValues()
	case w.nulls > 0 && len(w.out) > 0:
		w.flushNulls()
	}
	return w.out
}

func uintWriter() rleWriter[uint64] { return rleWriter[uint64]{put: appendUint} }
func textWriter() rleWriter[string] { return rleWriter[string]{put: appendText} }

func appendText(b []byte, s string) []byte { return append(appendUint(b, uint64(len(s))), s...) }
