package amformat

import "math"

// A column of differences is a column of runs of signed numbers, each the difference to the value before, the first to zero.

// tallyDeltas measures a column of differences, all of whose values have to be from lowest to highest.
func tallyDeltas(b []byte, limit, lowest, highest int64, what string) (tally, error) {
	var at int64
	return runs(b, limit, what, func(b []byte, n int64) (int, error) {
		d, size := readInt(b)
		if size <= 0 {
			return 0, malformed("%s: a difference is no number", what)
		}
		if n > 1 && (d > math.MaxInt64/n || d < math.MinInt64/n) {
			return 0, malformed("%s: values out of range", what)
		}
		// Values between the first and the last of a run are between them.
		first, ok1 := addInt(at, d)
		last, ok2 := addInt(at, d*n)
		if !ok1 || !ok2 || min(first, last) < lowest || max(first, last) > highest {
			return 0, malformed("%s: values out of range", what)
		}
		at = last
		return size, nil
	})
}

func addInt(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

// deltas reads a column of differences that was measured before.
type deltas struct {
	b       []byte
	n       int64
	d       int64
	at      int64
	literal bool
	null    bool
}

func (c *deltas) next() (v int64, ok bool) {
	if c.n > 0 && !c.literal && !c.null {
		c.n--
		c.at += c.d
		return c.at, true
	}
	return c.step()
}

func (c *deltas) step() (int64, bool) {
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
			nulls, size := readUint(c.b)
			c.b, c.n = c.b[size:], int64(nulls)
		default:
			c.d, size = readInt(c.b)
			c.b = c.b[size:]
		}
	}
	c.n--
	if c.null {
		return 0, false
	}
	if c.literal {
		var size int
		c.d, size = readInt(c.b)
		c.b = c.b[size:]
	}
	c.at += c.d
	return c.at, true
}

type deltaWriter struct {
	rleWriter[int64]
	at int64
}

func newDeltaWriter() deltaWriter { return deltaWriter{rleWriter: rleWriter[int64]{put: appendInt}} }

func (w *deltaWriter) add(v int64) {
	w.rleWriter.add(v - w.at)
	w.at = v
}

func (w *deltaWriter) addMaybe(v int64, ok bool) {
	if ok {
		w.add(v)
	} else {
		w.addNull()
	}
}
