package automerge

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// ErrNoEngine: the program was built without cgo, which editing takes: Automerge's own code is a C library. All else works without.
var ErrNoEngine = errors.New("automerge: this program was built without cgo, which Edit needs")

// EditOptions say how [Store.Edit] works.
type EditOptions struct {
	// CacheBytes is how much memory documents that are loaded for editing may take between edits, as measured when they are loaded; default
	// 256 MiB. Below zero none are kept.
	CacheBytes int64
}

func newActor() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}
