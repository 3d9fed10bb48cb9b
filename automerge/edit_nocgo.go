//go:build !cgo

package automerge

import (
	"context"

	"github.com/google/uuid"
)

// EngineDoc is a document in Automerge's own code, which this program was built without.
type EngineDoc struct{}

type engineCache struct{}

func newEngineCache(EditOptions) *engineCache { return nil }

// Edit returns [ErrNoEngine].
func (s *Store) Edit(ctx context.Context, id uuid.UUID, fn func(doc *EngineDoc) error) (Applied, error) {
	return Applied{}, ErrNoEngine
}
