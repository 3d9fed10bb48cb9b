package amformat

// A column of booleans is the number of rows that are false, then of those that are true, and so on. Without bytes every row is false.

// tallyBools measures a column of booleans.
func tallyBools(b []byte, limit int64, what string) (t tally, err error) {
	for first := true; len(b) > 0; first = false {
		n, size := readUint(b)
		if size <= 0 || n == 0 && !first {
			return t, malformed("%s: a run without its length", what)
		}
		b = b[size:]
		if n > uint64(limit-t.rows) {
			return t, malformed("%s: more than %d rows", what, limit)
		}
		t.rows += int64(n)
	}
	return t, nil
}

// bools reads a column of booleans that was measured before.
type bools struct {
	b []byte
	n uint64
	v bool // of the run that is next
}

func (c *bools) next() bool {
	for c.n == 0 {
		if len(c.b) == 0 {
			return false
		}
		var size int
		c.n, size = readUint(c.b)
		c.b = c.b[size:]
		c.v = !c.v
	}
	c.n--
	return !c.v
}

type boolWriter struct {
	out []byte
	n   uint64
	v   bool
	any bool // whether something was true
}

func (w *boolWriter) add(v bool) {
	if v != w.v {
		w.out = appendUint(w.out, w.n)
		w.v, w.n, w.any = v, 0, true
	}
	w.n++
}

func (w *boolWriter) finish() []byte {
	if w.n > 0 {
		w.out = appendUint(w.out, w.n)
	}
	return w.out
}

// finishMaybe is finish for a column that is left out where nothing is true.
func (w *boolWriter) finishMaybe() []byte {
	if !w.any {
		return nil
	}
	return w.finish()
}
