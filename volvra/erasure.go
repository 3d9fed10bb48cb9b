package volvra

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// What erasing, retention and the records of attempts can refuse.
var (
	// ErrRecorded: what was recorded is never changed (VO040).
	ErrRecorded = errors.New("records are not changed")
	// ErrAttempt: no such attempt of this role, or one that is finished (VO041, VO042).
	ErrAttempt = errors.New("no such open attempt")
	// ErrIncompleteKey: a subject is named by a whole key; an empty or partial one is not "any" (VO044).
	ErrIncompleteKey = errors.New("incomplete key")
	// ErrRowExists: history of a row that is still in its table can be redacted, not deleted (VO045).
	ErrRowExists = errors.New("row still exists")
)

func init() {
	for code, kind := range map[string]error{"VO040": ErrRecorded, "VO041": ErrAttempt, "VO042": ErrAttempt, "VO043": ErrIsolation, "VO044": ErrIncompleteKey,
		"VO045": ErrRowExists, "VO046": ErrBusy} {
		kindOf[code] = kind
	}
}

// EraseMode is what erasing does.
type EraseMode string

// Modes of erasing.
const (
	// Redact removes the values from images and leaves their keys, so it still shows when something was changed and by whom. A change
	// whose image was redacted can't be undone.
	Redact EraseMode = "redact"
	// Delete removes the entries. The row must not be in its table any more: [ErrRowExists].
	Delete EraseMode = "delete"
)

// Erasure is what was erased.
type Erasure struct {
	Attempt int64 // number of the recorded attempt
	Entries int64 // that were redacted or deleted
	Moves   int64 // records of changed keys that were deleted
	Keys    int   // keys that the subject had
}

// Forget erases one subject from all histories of a table, those included that have ended: every image of the row, under all keys that it had,
// including what others had at the same key. The ledger keeps who erased how much, when and why, and not whose; what remains of a sealed
// row is a hash, so that [Volvra.Verify] still tells it from one that was tampered with. Name no subject in the reason.
//
// The key must be whole: [ErrIncompleteKey]. A reason must be given, and a mode: [ErrInvalid]. That nothing was found is no error: Entries
// is 0, and it stands in the ledger. Only history is erased, of transactions that have ended; the row itself is not touched.
// Backups and replicas of the past are not, either. It is recorded as an attempt, as Undo is.
func (v *Volvra) Forget(ctx context.Context, table string, key Key, mode EraseMode, reason string) (Erasure, error) {
	var attempt *int64
	if !pgtx.InTx(v.db) {
		err := pgtx.QueryRow(ctx, v.db, []any{&attempt}, "select volvra.begin_attempt('forget', jsonb_build_object('tables', jsonb_build_array($1::text)), $2)", table, string(mode))
		if err != nil {
			return Erasure{}, refused(err)
		}
	}
	values, err := json.Marshal(key)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	var outcome string
	var code, message, hint, detail *string
	err = pgtx.QueryRow(ctx, v.db, []any{&e.Attempt, &outcome, &e.Entries, &e.Moves, &e.Keys, &code, &message, &hint, &detail},
		"select attempt, outcome, entries, moves, keys, code, reason, hint, detail::text from volvra.forget($1, $2::jsonb, $3, $4, $5)", table, string(values), string(mode), reason, attempt)
	if err != nil {
		if attempt != nil {
			v.failed(ctx, *attempt, err)
		}
		return Erasure{}, refused(err)
	}
	if outcome != OutcomeDone {
		return Erasure{}, refused(&pgconn.PgError{Severity: "ERROR", Code: *code, Message: *message, Hint: *hint, Detail: *detail})
	}
	return e, nil
}

// ErasureRecord is a line of the ledger of erasures.
type ErasureRecord struct {
	ID      int64 // ascending, not without gaps
	At      time.Time
	Table   string // as it was named then
	Mode    EraseMode
	Entries int64 // these three as in [Erasure]
	Moves   int64
	Keys    int
	Reason  string // as it was given
	Attempt int64  // number of the recorded attempt
	Login   string // role of the session, which can't be forged
	Role    string // what SET ROLE chose, else "none"
	Actor   string // who the application said it was
}

// Erasures returns the ledger of erasures, newest first.
func (v *Volvra) Erasures(ctx context.Context) ([]ErasureRecord, error) {
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[ErasureRecord],
		"select id, at, table_name, mode, entries, moves, keys, reason, attempt, login, role, actor from volvra.erasure order by id desc")
}
