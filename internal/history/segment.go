package history

import (
	"context"

	"github.com/annals-db/annals/internal/pgtx"
)

// Rotate begins another segment when the one that is written has grown to so many bytes; 0 means 16 MB and a sixteenth of the history. Writers
// go on. It returns false when it has not grown so far, or when [Sync] has to come first.
func Rotate(ctx context.Context, db pgtx.DB, id ID, bytes int64) (begun bool, err error) {
	err = locking(ctx, db, []any{&begun}, "select annals.rotate($1, nullif($2::bigint, 0))", int(id), bytes)
	return begun, err
}

// SealSegments finishes the segments in which nobody can write any more: it indexes them for reading. It returns how many it sealed.
func SealSegments(ctx context.Context, db pgtx.DB) (sealed int, err error) {
	err = locking(ctx, db, []any{&sealed}, "select annals.seal_segments()")
	return sealed, err
}
