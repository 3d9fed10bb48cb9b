package amsync

import (
	"encoding/binary"

	"github.com/annals-db/annals/internal/amformat"
)

// Ten bits an entry and seven probes give one false answer in a hundred. Filters of others say what theirs are.
const (
	bitsPerEntry = 10
	probes       = 7
	maxProbes    = 64 // more would only make looking slow
)

// Filter is a Bloom filter of hashes: it may hold some that were not put into it, and never misses one that was. The zero filter holds none.
type Filter struct {
	entries, perEntry, probes uint64
	bits                      []byte
}

// NewFilter returns a filter of hashes.
func NewFilter(hashes []amformat.Hash) Filter {
	if len(hashes) == 0 {
		return Filter{}
	}
	f := Filter{entries: uint64(len(hashes)), perEntry: bitsPerEntry, probes: probes}
	f.bits = make([]byte, f.size())
	for _, h := range hashes {
		f.probe(h, func(bit uint64) bool {
			f.bits[bit/8] |= 1 << (bit % 8)
			return true
		})
	}
	return f
}

// size is how many bytes of bits there are.
func (f *Filter) size() uint64 { return (f.entries*f.perEntry + 7) / 8 }

// Empty tells whether it holds nothing.
func (f *Filter) Empty() bool { return f.entries == 0 }

// Has tells whether a hash was put into it, or might have been.
func (f *Filter) Has(h amformat.Hash) bool {
	if f.entries == 0 {
		return false
	}
	all := true
	f.probe(h, func(bit uint64) bool {
		all = f.bits[bit/8]&(1<<(bit%8)) != 0
		return all
	})
	return all
}

// probe gives the bits that stand for a hash, made of its first twelve bytes, until it is told to stop.
func (f *Filter) probe(h amformat.Hash, yield func(bit uint64) bool) {
	n := uint64(len(f.bits)) * 8
	number := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(h[at:])) % n }
	x, y, z := number(0), number(4), number(8)
	for range f.probes {
		if !yield(x) {
			return
		}
		x = (x + y) % n
		y = (y + z) % n
	}
}

func (f *Filter) append(b []byte) []byte {
	if f.entries == 0 {
		return binary.AppendUvarint(b, 0)
	}
	var head []byte
	for _, n := range []uint64{f.entries, f.perEntry, f.probes} {
		head = binary.AppendUvarint(head, n)
	}
	b = binary.AppendUvarint(b, uint64(len(head)+len(f.bits)))
	return append(append(b, head...), f.bits...)
}

// parseFilter reads a filter; data has to be all of it.
func parseFilter(data []byte) (f Filter, err error) {
	if len(data) == 0 {
		return Filter{}, nil
	}
	p := &parser{b: data}
	f.entries, f.perEntry, f.probes = p.uint("filter"), p.uint("filter"), p.uint("filter")
	if p.err != nil {
		return Filter{}, p.err
	}
	if f.entries == 0 {
		return Filter{}, nil
	}
	const most = 1 << 31 // of either, so that the product is a number
	if f.entries >= most || f.perEntry >= most || f.size() != uint64(len(p.b)) || f.perEntry == 0 {
		return Filter{}, malformed("a filter of %d entries with %d bits each has %d bytes", f.entries, f.perEntry, len(p.b))
	}
	if f.probes == 0 || f.probes > maxProbes {
		return Filter{}, malformed("a filter with %d probes", f.probes)
	}
	f.bits = p.b
	return f, nil
}
