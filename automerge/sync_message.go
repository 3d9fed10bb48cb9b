package automerge

import (
	"encoding/binary"
	"fmt"
)

// The messages of Automerge's sync protocol: heads of the sender, hashes that it needs, what it has (the heads of what both had last, and a Bloom
// filter of what it has beyond), and changes. What later versions put behind that is passed over.
const (
	syncMessage   = 0x42
	syncMessageV2 = 0x43 // the same, and changes may be saves
)

type message struct {
	heads, need []Hash
	have        []have
	changes     [][]byte
}

type have struct {
	lastSync []Hash
	bloom    bloom
}

// bloom is a Bloom filter of hashes: it may take one that is not in it for one that is, and never the other way round.
type bloom struct {
	entries, bitsPerEntry, probes uint64
	bits                          []byte
}

func newBloom(hashes []Hash) bloom {
	b := bloom{entries: uint64(len(hashes)), bitsPerEntry: 10, probes: 7}
	b.bits = make([]byte, (b.entries*b.bitsPerEntry+7)/8)
	for _, h := range hashes {
		b.probe(h, func(at uint32) bool {
			b.bits[at/8] |= 1 << (at % 8)
			return true
		})
	}
	return b
}

// probe calls f with the places that stand for a hash until it returns false.
func (b *bloom) probe(h Hash, f func(at uint32) bool) bool {
	modulo := uint32(8 * len(b.bits))
	x, y, z := binary.LittleEndian.Uint32(h[0:])%modulo, binary.LittleEndian.Uint32(h[4:])%modulo, binary.LittleEndian.Uint32(h[8:])%modulo
	for i := uint64(0); i < b.probes; i++ {
		if !f(x) {
			return false
		}
		x = uint32((uint64(x) + uint64(y)) % uint64(modulo))
		y = uint32((uint64(y) + uint64(z)) % uint64(modulo))
	}
	return true
}

func (b *bloom) contains(h Hash) bool {
	return b.entries > 0 && len(b.bits) > 0 && b.probe(h, func(at uint32) bool { return b.bits[at/8]&(1<<(at%8)) != 0 })
}

func appendHashes(b []byte, hashes []Hash) []byte {
	b = binary.AppendUvarint(b, uint64(len(hashes)))
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

func (h *have) append(b []byte) []byte {
	b = appendHashes(b, h.lastSync)
	var filter []byte
	if h.bloom.entries > 0 {
		filter = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, h.bloom.entries), h.bloom.bitsPerEntry), h.bloom.probes)
		filter = append(filter, h.bloom.bits...)
	}
	return appendSized(b, filter)
}

func appendHaves(b []byte, haves []have) []byte {
	b = binary.AppendUvarint(b, uint64(len(haves)))
	for i := range haves {
		b = haves[i].append(b)
	}
	return b
}

func (m *message) encode() []byte {
	b := appendHaves(appendHashes(appendHashes([]byte{syncMessage}, m.heads), m.need), m.have)
	b = binary.AppendUvarint(b, uint64(len(m.changes)))
	for _, c := range m.changes {
		b = appendSized(b, c)
	}
	return b
}

// decodeMessage reads a message of whoever.
func decodeMessage(data []byte) (*message, error) {
	if len(data) == 0 || data[0] != syncMessage && data[0] != syncMessageV2 {
		return nil, fmt.Errorf("this is no message of Automerge's sync protocol")
	}
	r := &stateReader{b: data[1:]}
	m := &message{heads: r.hashes(), need: r.hashes(), have: r.haves()}
	for range r.uint() {
		if r.err != nil {
			break
		}
		m.changes = append(m.changes, r.sized())
	}
	if r.err != nil {
		return nil, fmt.Errorf("the message of Automerge's sync protocol ends early")
	}
	return m, nil
}

func (r *stateReader) hashes() []Hash {
	n := r.uint()
	if n > uint64(len(r.b))/32 {
		r.fail()
		return nil
	}
	hashes := make([]Hash, n)
	for i := range hashes {
		copy(hashes[i][:], r.b)
		r.b = r.b[32:]
	}
	return hashes
}

func (r *stateReader) haves() (haves []have) {
	for range r.uint() {
		h := have{lastSync: r.hashes()}
		filter := &stateReader{b: r.sized()}
		if len(filter.b) > 0 {
			h.bloom = bloom{entries: filter.uint(), bitsPerEntry: filter.uint(), probes: filter.uint(), bits: filter.b}
			if filter.err != nil || h.bloom.probes > 64 || h.bloom.entries > 1<<32 || h.bloom.bitsPerEntry > 1<<10 || uint64(len(h.bloom.bits)) != (h.bloom.entries*h.bloom.bitsPerEntry+7)/8 {
				r.fail()
			}
		}
		if r.err != nil {
			return nil
		}
		haves = append(haves, h)
	}
	return haves
}
