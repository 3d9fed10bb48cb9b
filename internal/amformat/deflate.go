package amformat

import (
	"bytes"
	"cmp"
	"compress/flate"
	"math/bits"
	"slices"
)

// Columns of more bytes than this are deflated.
const deflateAbove = 256

// deflate compresses the column if that makes it smaller.
func (c *column) deflate() error {
	if len(c.data) <= deflateAbove {
		return nil
	}
	out, err := deflateText(c.data)
	if c.spec != colValueRaw && c.spec != colExtraRaw && c.spec&7 != 5 {
		out, err = deflateNumbers(c.data), nil
	}
	if err == nil && len(out) < len(c.data) {
		c.data, c.deflated = out, true
	}
	return err
}

func deflateText(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// deflateNumbers is for columns of numbers. What repeats in them is three bytes long as often as not (a run of one, two bytes of a number
// whose third differs), and the standard library looks for four: a list of objects takes almost twice the bytes then.
func deflateNumbers(data []byte) []byte {
	w := &bitWriter{}
	tokens := make([]token, 0, min(len(data), tokensOfBlock))
	m := newMatcher(data)
	for at := 0; at < len(data); {
		length, distance := m.find(at)
		if length > 0 && at+1 < len(data) {
			// A longer match at the next byte is worth a byte alone.
			m.add(at)
			if next, _ := m.find(at + 1); next > length {
				length = 0
			}
		} else {
			m.add(at)
		}
		if length == 0 {
			tokens = append(tokens, token(data[at]))
			at++
		} else {
			tokens = append(tokens, matched|token(length-minMatch)<<15|token(distance-1))
			for i := at + 1; i < at+length; i++ {
				m.add(i)
			}
			at += length
		}
		if len(tokens) == tokensOfBlock && at < len(data) {
			w.block(tokens, false)
			tokens = tokens[:0]
		}
	}
	w.block(tokens, true)
	return w.finish()
}

// token is a byte, or a match: matched, length less minMatch, distance less one.
type token uint32

const (
	matched       token = 1 << 31
	minMatch            = 3
	maxMatch            = 258
	window              = 1 << 15
	tokensOfBlock       = 1 << 15
	chain               = 64   // how many places are tried
	nearby              = 4096 // further away than this three bytes aren't worth their distance
	hashBits            = 15
)

// matcher finds earlier places with the same bytes.
type matcher struct {
	data []byte
	head []int32 // the last place of a hash, plus one
	prev []int32 // the place before with the same hash, by place within the window
}

func newMatcher(data []byte) *matcher {
	return &matcher{data: data, head: make([]int32, 1<<hashBits), prev: make([]int32, min(window, len(data)))}
}

func (m *matcher) hash(at int) uint32 {
	d := m.data[at:]
	return (uint32(d[0]) | uint32(d[1])<<8 | uint32(d[2])<<16) * 0x9e3779b1 >> (32 - hashBits)
}

func (m *matcher) add(at int) {
	if at+minMatch > len(m.data) {
		return
	}
	h := m.hash(at)
	m.prev[at%len(m.prev)] = m.head[h]
	m.head[h] = int32(at) + 1
}

// find gives the longest match before at that is worth it, or 0.
func (m *matcher) find(at int) (length, distance int) {
	if at+minMatch > len(m.data) {
		return 0, 0
	}
	rest := m.data[at:min(len(m.data), at+maxMatch)]
	best := minMatch - 1
	place := int(m.head[m.hash(at)]) - 1
	for range chain {
		if place < 0 || at-place >= len(m.prev) {
			break
		}
		earlier := m.data[place:]
		if best >= len(rest) || earlier[best] == rest[best] {
			n := 0
			for n < len(rest) && earlier[n] == rest[n] {
				n++
			}
			if n > best && (n > minMatch || at-place <= nearby) {
				best, distance = n, at-place
				if n == len(rest) {
					break
				}
			}
		}
		next := int(m.prev[place%len(m.prev)]) - 1
		if next >= place {
			break
		}
		place = next
	}
	if distance == 0 {
		return 0, 0
	}
	return best, distance
}

var (
	lengthBase    = [29]int{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra   = [29]uint{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distanceBase  = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distanceExtra = [30]uint{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
	lengthOrder   = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// parts are the codes of a match and what is added to them.
func (t token) parts() (length, lengthRest, distance, distanceRest int) {
	l, d := int(t>>15&0xff)+minMatch, int(t&0x7fff)+1
	length, found := slices.BinarySearch(lengthBase[:], l)
	if !found {
		length--
	}
	if distance, found = slices.BinarySearch(distanceBase[:], d); !found {
		distance--
	}
	return length, l - lengthBase[length], distance, d - distanceBase[distance]
}

type bitWriter struct {
	out []byte
	acc uint64
	n   uint
}

func (w *bitWriter) put(v uint32, n uint) {
	w.acc |= uint64(v) << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
}

func (w *bitWriter) finish() []byte {
	if w.n > 0 {
		w.out = append(w.out, byte(w.acc))
	}
	return w.out
}

// block writes tokens with codes of their own.
func (w *bitWriter) block(tokens []token, last bool) {
	const end = 256
	literals, distances := make([]int, 286), make([]int, 30)
	literals[end] = 1
	for _, t := range tokens {
		if t&matched == 0 {
			literals[t]++
			continue
		}
		length, _, distance, _ := t.parts()
		literals[end+1+length]++
		distances[distance]++
	}
	literal, distance := newCode(literals, 15), newCode(distances, 15)
	w.put(uint32(map[bool]int{true: 1}[last]), 1)
	w.put(2, 2)
	w.codes(literal, distance)
	for _, t := range tokens {
		if t&matched == 0 {
			literal.put(w, int(t))
			continue
		}
		l, lengthRest, d, distanceRest := t.parts()
		literal.put(w, end+1+l)
		w.put(uint32(lengthRest), lengthExtra[l])
		distance.put(w, d)
		w.put(uint32(distanceRest), distanceExtra[d])
	}
	literal.put(w, end)
}

// codes writes the lengths of two codes: runs of them, in a code of their own.
func (w *bitWriter) codes(literal, distance *code) {
	literals, distances := literal.used(257), distance.used(1)
	lengths := slices.Concat(literal.lengths[:literals], distance.lengths[:distances])
	type symbol struct {
		value int
		rest  uint32
		bits  uint
	}
	var symbols []symbol
	counts := make([]int, len(lengthOrder))
	emit := func(value int, rest uint32, bits uint) {
		symbols = append(symbols, symbol{value, rest, bits})
		counts[value]++
	}
	for len(lengths) > 0 {
		v, n := lengths[0], 1
		for n < len(lengths) && lengths[n] == v {
			n++
		}
		lengths = lengths[n:]
		if v != 0 {
			emit(int(v), 0, 0)
			n--
		}
		for n > 0 {
			switch {
			case v == 0 && n >= 11:
				k := min(n, 138)
				emit(18, uint32(k-11), 7)
				n -= k
			case v == 0 && n >= 3:
				emit(17, uint32(n-3), 3)
				n = 0
			case v != 0 && n >= 3:
				k := min(n, 6)
				emit(16, uint32(k-3), 2)
				n -= k
			default:
				emit(int(v), 0, 0)
				n--
			}
		}
	}
	lengthCode := newCode(counts, 7)
	written := len(lengthOrder)
	for written > 4 && lengthCode.lengths[lengthOrder[written-1]] == 0 {
		written--
	}
	w.put(uint32(literals-257), 5)
	w.put(uint32(distances-1), 5)
	w.put(uint32(written-4), 4)
	for _, i := range lengthOrder[:written] {
		w.put(uint32(lengthCode.lengths[i]), 3)
	}
	for _, s := range symbols {
		lengthCode.put(w, s.value)
		w.put(s.rest, s.bits)
	}
}

// code is a Huffman code.
type code struct {
	lengths []uint8
	bits    []uint16 // as they are written, the first lowest
}

func (c *code) put(w *bitWriter, symbol int) { w.put(uint32(c.bits[symbol]), uint(c.lengths[symbol])) }

// used is how many lengths have to be written, at least so many.
func (c *code) used(least int) int {
	n := len(c.lengths)
	for n > least && c.lengths[n-1] == 0 {
		n--
	}
	return n
}

// newCode makes a code for symbols that occur so often. No code is longer than longest, and there are two at least.
func newCode(counts []int, longest uint8) *code {
	counts = slices.Clone(counts)
	for i, n := 0, 0; n < 2; i++ {
		if n = len(counts) - countOf(counts, 0); n < 2 && counts[i] == 0 {
			counts[i] = 1
		}
	}
	c := &code{bits: make([]uint16, len(counts))}
	for {
		c.lengths = huffman(counts)
		if slices.Max(c.lengths) <= longest {
			break
		}
		for i, n := range counts {
			counts[i] = (n + 1) / 2 // closer to each other, so that the tree is flatter
		}
	}
	var next uint16
	for length := uint8(1); length <= longest; length++ {
		for i, l := range c.lengths {
			if l == length {
				c.bits[i] = bits.Reverse16(next << (16 - length))
				next++
			}
		}
		next <<= 1
	}
	return c
}

func countOf(list []int, v int) (n int) {
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

// huffman gives the lengths of the codes of symbols that occur so often.
func huffman(counts []int) []uint8 {
	type node struct {
		count, parent int
	}
	var nodes []node
	var leaves []int // by their count
	for i, n := range counts {
		if n > 0 {
			leaves = append(leaves, i)
		}
	}
	slices.SortStableFunc(leaves, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
	for _, i := range leaves {
		nodes = append(nodes, node{count: counts[i]})
	}
	// The two that occur least become one, until there is one: those that were joined come in order, as the leaves do.
	leaf, inner := 0, len(leaves)
	least := func() (i int) {
		if leaf < len(leaves) && (inner == len(nodes) || nodes[leaf].count <= nodes[inner].count) {
			leaf++
			return leaf - 1
		}
		inner++
		return inner - 1
	}
	for range len(leaves) - 1 {
		a, b := least(), least()
		nodes = append(nodes, node{count: nodes[a].count + nodes[b].count})
		nodes[a].parent, nodes[b].parent = len(nodes)-1, len(nodes)-1
	}
	depth := make([]uint8, len(nodes))
	for i := len(nodes) - 2; i >= 0; i-- {
		depth[i] = depth[nodes[i].parent] + 1
	}
	lengths := make([]uint8, len(counts))
	for at, i := range leaves {
		lengths[i] = depth[at]
	}
	return lengths
}
