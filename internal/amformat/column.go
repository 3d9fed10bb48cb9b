package amformat

import (
	"cmp"
	"math"
	"slices"
)

// A table of operations is written as columns. The specification of a column is its id, whether it is deflated, and how it is encoded.
type spec uint32

const deflated spec = 8

// The columns of operations. Some are of changes only, some of documents only.
const (
	colObjActor   spec = 0<<4 | 1
	colObjCounter spec = 0<<4 | 2
	colKeyActor   spec = 1<<4 | 1
	colKeyCounter spec = 1<<4 | 3
	colKeyString  spec = 1<<4 | 5
	colIDActor    spec = 2<<4 | 1 // documents
	colIDCounter  spec = 2<<4 | 3 // documents
	colInsert     spec = 3<<4 | 4
	colAction     spec = 4<<4 | 2
	colValueMeta  spec = 5<<4 | 6
	colValueRaw   spec = 5<<4 | 7
	colPredGroup  spec = 7 << 4 // changes
	colPredActor  spec = 7<<4 | 1
	colPredCount  spec = 7<<4 | 3
	colSuccGroup  spec = 8 << 4 // documents
	colSuccActor  spec = 8<<4 | 1
	colSuccCount  spec = 8<<4 | 3
	colExpand     spec = 9<<4 | 4
	colMarkName   spec = 10<<4 | 5
)

// The columns of a document's changes.
const (
	colChangeActor   spec = 0<<4 | 1
	colChangeSeq     spec = 0<<4 | 3
	colChangeMaxOp   spec = 1<<4 | 3
	colChangeTime    spec = 2<<4 | 3
	colChangeMessage spec = 3<<4 | 5
	colChangeDeps    spec = 4 << 4
	colChangeDep     spec = 4<<4 | 3
	colExtraMeta     spec = 5<<4 | 6
	colExtraRaw      spec = 5<<4 | 7
)

var (
	changeOpColumns = []spec{
		colObjActor, colObjCounter, colKeyActor, colKeyCounter, colKeyString, colInsert, colAction, colValueMeta, colValueRaw,
		colPredGroup, colPredActor, colPredCount, colExpand, colMarkName,
	}
	documentOpColumns = []spec{
		colObjActor, colObjCounter, colKeyActor, colKeyCounter, colKeyString, colIDActor, colIDCounter, colInsert, colAction,
		colValueMeta, colValueRaw, colSuccGroup, colSuccActor, colSuccCount, colExpand, colMarkName,
	}
	documentChangeColumns = []spec{
		colChangeActor, colChangeSeq, colChangeMaxOp, colChangeTime, colChangeMessage, colChangeDeps, colChangeDep,
		colExtraMeta, colExtraRaw,
	}
)

type column struct {
	spec     spec
	length   int
	deflated bool
	data     []byte
}

type columns []column

// get is the column's bytes, none if it isn't there: then every row of it is null.
func (cs columns) get(s spec) []byte {
	i, ok := slices.BinarySearchFunc(cs, s, func(c column, s spec) int { return cmp.Compare(c.spec, s) })
	if !ok {
		return nil
	}
	return cs[i].data
}

// columns reads the table that says which columns follow, which have to be known ones in order.
func (p *parser) columns(what string, known []spec, mayDeflate bool) columns {
	n := p.count(what, 2)
	cs := make(columns, 0, min(n, len(known)))
	for range n {
		s, length := p.uint(what), p.uint(what)
		if p.err != nil {
			return nil
		}
		c := column{spec: spec(s) &^ deflated, length: int(length), deflated: spec(s)&deflated != 0}
		switch {
		case s > math.MaxUint32 || !slices.Contains(known, c.spec):
			p.fail(unsupported("the unknown column %d", s))
			return nil
		case len(cs) > 0 && cs[len(cs)-1].spec >= c.spec:
			p.fail(malformed("columns out of order"))
			return nil
		case c.deflated && !mayDeflate:
			p.fail(malformed("a deflated column in a change"))
			return nil
		case length > uint64(len(p.b)):
			p.fail(truncated("a column of %d bytes has %d at most", length, len(p.b)))
			return nil
		}
		cs = append(cs, c)
	}
	return cs
}

// fill takes the columns' bytes. What is deflated is inflated, budget bytes in all at most.
func (p *parser) fill(cs columns, budget *int64) {
	for i := range cs {
		c := &cs[i]
		c.data = p.take(c.length, "a column")
		if p.err != nil {
			return
		}
		if c.deflated {
			data, err := inflate(nil, c.data, *budget)
			if err != nil {
				p.fail(err)
				return
			}
			c.data = data
			*budget -= int64(len(data))
		}
	}
}

// parser takes a header apart. After an error everything it gives is zero.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b = nil
}

func (p *parser) uint(what string) uint64 {
	v, n := readUint(p.b)
	if n <= 0 {
		p.number(what, n)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) int(what string) int64 {
	v, n := readInt(p.b)
	if n <= 0 {
		p.number(what, n)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) number(what string, n int) {
	if n == 0 {
		p.fail(truncated("%s: a number is missing", what))
	} else {
		p.fail(malformed("%s: no number in its shortest form", what))
	}
}

// count reads how many things follow that take at least size bytes each.
func (p *parser) count(what string, size int) int {
	n := p.uint(what)
	if n > uint64(len(p.b)/size) {
		p.fail(truncated("%s: %d are announced and there are %d bytes", what, n, len(p.b)))
		return 0
	}
	return int(n)
}

func (p *parser) take(n int, what string) []byte {
	if n > len(p.b) {
		p.fail(truncated("%s: %d bytes are announced and there are %d", what, n, len(p.b)))
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

// sized reads bytes that follow their number.
func (p *parser) sized(what string) []byte { return p.take(p.count(what, 1), what) }

// hashes reads a list of hashes, which has to be in order.
func (p *parser) hashes(what string) []Hash {
	n := p.count(what, len(Hash{}))
	hs := make([]Hash, 0, n)
	for range n {
		h := Hash(p.take(len(Hash{}), what))
		if len(hs) > 0 && hs[len(hs)-1].Compare(h) >= 0 {
			p.fail(malformed("%s: hashes out of order", what))
			return nil
		}
		hs = append(hs, h)
	}
	return hs
}
