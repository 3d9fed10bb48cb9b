package automerge

import (
	"encoding/hex"
	"fmt"

	"github.com/annals-db/annals/internal/amformat"
)

// Hash names a change: the SHA-256 of its bytes. As text it is hexadecimal, as Automerge shows it.
type Hash [32]byte

// String returns it in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads a hash in hexadecimal. What is none is [ErrInvalid].
func ParseHash(s string) (Hash, error) {
	var h Hash
	return h, h.UnmarshalText([]byte(s))
}

// MarshalText writes it in hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads it in hexadecimal.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%.80q is no hash", text), Hint: "A hash has 64 hexadecimal digits.", Index: -1}
	}
	*h = Hash(b)
	return nil
}

// toArray makes hashes an argument of a statement.
func toArray[H Hash | amformat.Hash](hashes []H) [][]byte {
	array := make([][]byte, len(hashes))
	for i, h := range hashes {
		array[i] = append([]byte(nil), h[:]...)
	}
	return array
}

// joined puts hashes one behind the other.
func joined(hashes []amformat.Hash) []byte {
	b := make([]byte, 0, 32*len(hashes))
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

// fromArray reads hashes that a statement returned. All of the database's are 32 bytes long.
func fromArray(array [][]byte) []Hash {
	hashes := make([]Hash, len(array))
	for i, b := range array {
		copy(hashes[i][:], b)
	}
	return hashes
}
