package amsync

import (
	"encoding/binary"

	"github.com/annals-db/annals/internal/amformat"
)

// What a message may hold at most. Those of documents that many have edited at once name tens of hashes.
const (
	maxHashes = 100_000 // in one list
	maxHaves  = 64
)

const (
	version1 = 0x42
	version2 = 0x43
	chunkMin = 10 // the frame of a chunk
)

// What a sender can do: the first byte stands for version 2, the bits of the last for the rest.
const (
	readsVersion2 = 0x02
	bitsFollow    = 0x80
	bitReset      = 1 // it asks for everything once more
	bitReadOnly   = 2 // it takes no changes
	bitKnowsReset = 4 // it understands bitReset
)

// Have says what a peer has: the changes that belong to Last, and those in the filter.
type Have struct {
	Last   []amformat.Hash // heads of the last agreement, in order
	Filter Filter
}

// Message is what one peer says to the other.
type Message struct {
	Version int             // 1 or 2; others are written as 1
	Heads   []amformat.Hash // of the sender's document, in order
	Need    []amformat.Hash // changes that the sender knows to be missing
	Have    []Have          // what the sender has; it asks for the rest. Empty: it asks for nothing but what it needs
	Changes [][]byte        // chunks, not validated: in version 2 an item may be several, and documents
	Can     Abilities
}

// Abilities are what a peer says it can do.
type Abilities struct {
	Said                        bool // whether it said anything
	Version2, ReadOnly, Restart bool
	KnowsRestart                bool
}

// ParseMessage reads a message of maxBytes at most. The chunks in it are not looked at, and share the memory of data.
func ParseMessage(data []byte, maxBytes int64) (*Message, error) {
	if int64(len(data)) > maxBytes {
		return nil, &amformat.LimitError{What: "bytes", Limit: maxBytes, Got: int64(len(data))}
	}
	if len(data) == 0 {
		return nil, malformed("no message has no bytes")
	}
	m := &Message{}
	switch data[0] {
	case version1:
		m.Version = 1
	case version2:
		m.Version = 2
	default:
		return nil, malformed("a message does not begin with %#x", data[0])
	}
	p := &parser{b: data[1:]}
	m.Heads = p.hashes("heads")
	m.Need = p.hashes("hashes that are needed")
	for range p.count("filters", 2, maxHaves) {
		h := Have{Last: p.hashes("heads of the last agreement")}
		filter := p.sized("filter")
		if p.err != nil {
			return nil, p.err
		}
		var err error
		if h.Filter, err = parseFilter(filter); err != nil {
			return nil, err
		}
		m.Have = append(m.Have, h)
	}
	if n := p.count("changes", 1+chunkMin, 1<<62); n > 0 {
		m.Changes = make([][]byte, n)
		for i := range m.Changes {
			m.Changes[i] = p.sized("changes")
		}
	}
	if p.err == nil && len(p.b) > 0 {
		m.Can = parseAbilities(p.sized("abilities")) // what follows is of later writers
	}
	if p.err != nil {
		return nil, p.err
	}
	return m, nil
}

func parseAbilities(b []byte) (a Abilities) {
	a.Said = true
	for _, c := range b {
		switch {
		case c == readsVersion2:
			a.Version2 = true
		case c&bitsFollow != 0:
			a.Restart, a.ReadOnly, a.KnowsRestart = c&bitReset != 0, c&bitReadOnly != 0, c&bitKnowsReset != 0
		}
	}
	return a
}

// Bytes is the message as it is sent.
func (m *Message) Bytes() []byte {
	size := 64 + 32*(len(m.Heads)+len(m.Need))
	for _, h := range m.Have {
		size += 32*len(h.Last) + len(h.Filter.bits) + 32
	}
	for _, c := range m.Changes {
		size += len(c) + binary.MaxVarintLen64
	}
	b := append(make([]byte, 0, size), version1)
	if m.Version == 2 {
		b[0] = version2
	}
	b = appendHashes(b, m.Heads)
	b = appendHashes(b, m.Need)
	b = binary.AppendUvarint(b, uint64(len(m.Have)))
	for i := range m.Have {
		b = appendHashes(b, m.Have[i].Last)
		b = m.Have[i].Filter.append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Changes)))
	for _, c := range m.Changes {
		b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
	}
	if !m.Can.Said {
		return b
	}
	var can []byte
	if m.Can.Version2 {
		can = append(can, readsVersion2)
	}
	bits := byte(bitsFollow)
	for _, f := range []struct {
		is  bool
		bit byte
	}{{m.Can.Restart, bitReset}, {m.Can.ReadOnly, bitReadOnly}, {m.Can.KnowsRestart, bitKnowsReset}} {
		if f.is {
			bits |= f.bit
		}
	}
	can = append(can, bits)
	return append(binary.AppendUvarint(b, uint64(len(can))), can...)
}
