package volvra

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Fingerprint returns a SHA-256, in hexadecimal, over all that records and undoes: functions, views, triggers and rules of the schemas annals
// and volvra, the generated ones and the triggers on covered tables included. It is the same after a dump and restore, and when
// something is generated anew. It changes when a table is covered or uncovered; each seal holds it.
func (v *Volvra) Fingerprint(ctx context.Context) (fingerprint string, err error) {
	err = pgtx.QueryRow(ctx, v.db, []any{&fingerprint}, "select volvra.fingerprint()")
	return fingerprint, refused(err)
}

// CodeChange is an installed object that is not what it was when a seal was made.
type CodeChange struct {
	Object string // such as "function volvra.seal()" or "trigger annals_capture_update on shop.orders"
	Change string // "added", "removed" or "changed"
}

// ChangedCode compares what is installed with what was when a seal was made; 0: the last one. Nothing has changed when it returns none,
// or when there is no such seal.
func (v *Volvra) ChangedCode(ctx context.Context, seal int64) ([]CodeChange, error) {
	var number *int64
	if seal != 0 {
		number = &seal
	}
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[CodeChange], "select object, change from volvra.changed_code($1)", number)
}
