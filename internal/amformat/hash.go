package amformat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Hash is the identity of a change: the SHA-256 of its chunk.
type Hash [sha256.Size]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Compare orders hashes by their bytes, as heads and dependencies are ordered.
func (h Hash) Compare(o Hash) int { return bytes.Compare(h[:], o[:]) }

// ParseHash reads a hash from hexadecimal.
func ParseHash(s string) (Hash, error) {
	var h Hash
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, malformed("%.80q is no hash of a change", s)
	}
	return Hash(b), nil
}

// SortHashes puts hashes in the order of heads and dependencies, in place, and drops what is there twice.
func SortHashes(hs []Hash) []Hash {
	slices.SortFunc(hs, Hash.Compare)
	return slices.Compact(hs)
}

// ActorID is who writes: raw bytes, whose order breaks ties between operations of the same counter.
type ActorID string

// String is the actor in hexadecimal.
func (a ActorID) String() string { return hex.EncodeToString([]byte(a)) }
