package amsync

import (
	"encoding/binary"
	"fmt"

	"github.com/annals-db/annals/internal/amformat"
)

// parser reads what messages and states consist of. After an error it reads nothing more.
type parser struct {
	b   []byte
	err error
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{amformat.ErrMalformed}, args...)...)
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b = nil
}

func (p *parser) uint(what string) uint64 {
	v, n := binary.Uvarint(p.b)
	switch {
	case n == 0:
		p.fail(fmt.Errorf("%w: the message ends at its %s", amformat.ErrTruncated, what))
	case n < 0 || n > 1 && p.b[n-1] == 0:
		p.fail(malformed("a number among the %s is none", what))
	default:
		p.b = p.b[n:]
		return v
	}
	return 0
}

// count reads how many things of so many bytes at least follow, which must be there.
func (p *parser) count(what string, size int, most int64) int {
	n := p.uint(what)
	switch {
	case p.err != nil:
		return 0
	case n > uint64(most):
		p.fail(&amformat.LimitError{What: what, Limit: most, Got: int64(min(n, 1<<62))})
		return 0
	case n > uint64(len(p.b)/size):
		p.fail(fmt.Errorf("%w: %d %s in %d bytes", amformat.ErrTruncated, n, what, len(p.b)))
		return 0
	}
	return int(n)
}

func (p *parser) sized(what string) []byte {
	n := p.count(what, 1, 1<<62)
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) hashes(what string) []amformat.Hash {
	n := p.count(what, 32, maxHashes)
	if n == 0 {
		return nil
	}
	list := make([]amformat.Hash, n)
	for i := range list {
		list[i] = amformat.Hash(p.b[:32])
		p.b = p.b[32:]
	}
	return amformat.SortHashes(list)
}

func appendHashes(b []byte, list []amformat.Hash) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		b = append(b, list[i][:]...)
	}
	return b
}
