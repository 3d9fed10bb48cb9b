package amformat

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is what a chunk holds.
type Kind byte

// The kinds of chunks.
const (
	KindDocument   Kind = 0
	KindChange     Kind = 1
	KindCompressed Kind = 2 // a change, deflated
	KindBundle     Kind = 3 // changes of a later version, which are refused
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case KindDocument:
		return "document"
	case KindChange:
		return "change"
	case KindCompressed:
		return "compressed change"
	case KindBundle:
		return "bundle"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Chunk is one chunk of a file: its frame was read, its content was not.
type Chunk struct {
	Kind  Kind
	Bytes []byte // the whole chunk, frame included
	body  int    // where the content begins
}

var magic = []byte{0x85, 0x6f, 0x4a, 0x83}

// The frame: magic, checksum (4 bytes), kind (1), length of the content.
const frameMin = 4 + 4 + 1 + 1

// SplitChunks splits what saves and messages consist of into its chunks, which share the memory of data. Nothing but frames is read: the
// checksums are judged when a chunk is parsed. Data that ends inside a chunk is [ErrTruncated]; bytes that are no chunk, also after
// the last one, and kinds that don't exist are [ErrMalformed]; a bundle is [ErrUnsupported]. No data is no chunks.
func SplitChunks(data []byte) ([]Chunk, error) {
	var chunks []Chunk
	for at := 0; at < len(data); {
		c, err := firstChunk(data[at:])
		if err != nil {
			if at > 0 {
				return nil, fmt.Errorf("chunk %d, at byte %d: %w", len(chunks)+1, at, err)
			}
			return nil, err
		}
		chunks = append(chunks, c)
		at += len(c.Bytes)
	}
	return chunks, nil
}

func firstChunk(data []byte) (Chunk, error) {
	if n := min(len(data), len(magic)); !bytes.Equal(data[:n], magic[:n]) {
		return Chunk{}, malformed("no chunk begins here")
	}
	if len(data) < frameMin {
		return Chunk{}, truncated("%d bytes are no chunk", len(data))
	}
	c := Chunk{Kind: Kind(data[8])}
	switch c.Kind {
	case KindDocument, KindChange, KindCompressed:
	case KindBundle:
		return Chunk{}, unsupported("a bundle of changes")
	default:
		return Chunk{}, malformed("a chunk of the unknown kind %d", data[8])
	}
	length, n := readUint(data[9:])
	switch {
	case n == 0:
		return Chunk{}, truncated("a %s chunk without its length", c.Kind)
	case n < 0:
		return Chunk{}, malformed("the length of a %s chunk is no number", c.Kind)
	}
	c.body = 9 + n
	if length > uint64(len(data)-c.body) {
		return Chunk{}, truncated("a %s chunk of %d bytes has %d", c.Kind, length, len(data)-c.body)
	}
	c.Bytes = data[:c.body+int(length)]
	return c, nil
}

// oneChunk reads data that has to be exactly one chunk.
func oneChunk(data []byte) (Chunk, error) {
	c, err := firstChunk(data)
	if err == nil && len(c.Bytes) != len(data) {
		err = malformed("%d bytes follow the chunk", len(data)-len(c.Bytes))
	}
	return c, err
}

// plain gives the content of a chunk after inflating it, with its checksum proven, the hash, and the chunk as it is when not
// compressed. The checksum and hash of a compressed change are those of the plain one.
func (c Chunk) plain(limits Limits) (chunk, body []byte, hash Hash, err error) {
	chunk, body = c.Bytes, c.Bytes[c.body:]
	if err := within("bytes", int64(len(chunk)), limits.Bytes); err != nil {
		return nil, nil, hash, err
	}
	if c.Kind == KindCompressed {
		if body, err = inflate(nil, body, limits.Bytes); err != nil {
			return nil, nil, hash, err
		}
		chunk, hash = appendChunk(make([]byte, 0, frameMin+10+len(body)), KindChange, body)
	} else {
		hash = Hash(sha256.Sum256(chunk[8:]))
	}
	if !bytes.Equal(c.Bytes[4:8], hash[:4]) {
		return nil, nil, hash, fmt.Errorf("%w: %x in a %s chunk, %x of its content", ErrChecksum, c.Bytes[4:8], c.Kind, hash[:4])
	}
	return chunk, chunk[len(chunk)-len(body):], hash, nil
}

// appendChunk appends a chunk with the content, and gives its hash.
func appendChunk(b []byte, kind Kind, body []byte) ([]byte, Hash) {
	start := len(b)
	b = append(b, magic...)
	b = append(b, 0, 0, 0, 0, byte(kind))
	b = appendUint(b, uint64(len(body)))
	b = append(b, body...)
	sum := Hash(sha256.Sum256(b[start+8:]))
	copy(b[start+4:], sum[:4])
	return b, sum
}

var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflate appends what the deflated data is to b, limit bytes at most. Nothing may follow the deflated data.
func inflate(b, data []byte, limit int64) ([]byte, error) {
	src := bytes.NewReader(data)
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	if err := r.(flate.Resetter).Reset(src, nil); err != nil {
		return nil, err
	}
	if cap(b) == 0 {
		b = make([]byte, 0, min(int64(len(data))*3, limit, 1<<20)+512)
	}
	start := len(b)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if got := int64(len(b) - start); got > limit {
			return nil, &LimitError{What: "bytes", Limit: limit, Got: got}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if src.Len() > 0 {
				return nil, malformed("%d bytes follow what is deflated", src.Len())
			}
			return b, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, truncated("what is deflated ends early")
		default:
			return nil, malformed("what is deflated can't be inflated: %v", err)
		}
	}
}
