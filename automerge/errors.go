package automerge

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// What can be refused. Every refusal is an [*Error] that matches one of these; the database raises the SQLSTATE named beside it, so
// that users of other languages tell them apart as well.
var (
	// ErrNotFound: there is no such document, or none that the role may see, or write (AM001).
	ErrNotFound = errors.New("no such document")
	// ErrExists: there is such a document already (AM002).
	ErrExists = errors.New("document exists")
	// ErrMissing: changes that others depend on are missing; Error.Hashes are theirs (AM003).
	ErrMissing = errors.New("missing dependencies")
	// ErrReused: an actor has used the number of a change for another change (AM004).
	ErrReused = errors.New("actor id reused")
	// ErrMalformed: the bytes are no changes or save of Automerge (AM005).
	ErrMalformed = errors.New("malformed")
	// ErrLimit: a limit would be passed; Error.Limit says which (AM006; 54000 where it is one of PostgreSQL's, such as the size of a jsonb).
	ErrLimit = errors.New("over a limit")
	// ErrUnknownHeads: the document has no changes with these hashes; Error.Hashes are they (AM007).
	ErrUnknownHeads = errors.New("unknown heads")
	// ErrUnsupported: a kind of chunk that is not supported, or a thing that SQL can't do (AM008).
	ErrUnsupported = errors.New("not supported")
	// ErrInvalid: an argument is not usable (AM009).
	ErrInvalid = errors.New("invalid argument")
	// ErrNoPath: there is nothing at the path, or nothing of the kind that was asked for.
	ErrNoPath = errors.New("nothing at the path")
)

var kindOf = map[string]error{
	"AM001": ErrNotFound, "AM002": ErrExists, "AM003": ErrMissing, "AM004": ErrReused, "AM005": ErrMalformed, "AM006": ErrLimit, "AM007": ErrUnknownHeads,
	"AM008": ErrUnsupported, "AM009": ErrInvalid,
}

// codeOf returns the SQLSTATE of a kind of refusal.
func codeOf(kind error) string {
	for code, k := range kindOf {
		if k == kind {
			return code
		}
	}
	return "XX000"
}

// Error is a refusal: nothing was written. Fields that say nothing about this refusal are zero.
type Error struct {
	Kind    error  // what was refused: one of the Err variables of this package
	Message string // in words, with the document and what it is about
	Hint    string // the way out

	Doc    uuid.UUID // the document
	Hashes []Hash    // what is missing or unknown, or the change that was refused
	Limit  string    // which limit, as a field of [Limits]
	Index  int       // place in the batch, from 0; -1 outside batches

	cause error
}

// Error returns the message and the way out.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "automerge: " + e.Message
	}
	return "automerge: " + e.Message + ". " + e.Hint
}

// Unwrap returns Kind, and the error below where there is one.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// refused turns a database error into *Error where it is a refusal.
func refused(err error) error {
	var already *Error
	var pgErr *pgconn.PgError
	if errors.As(err, &already) || !errors.As(err, &pgErr) {
		return err
	}
	if pgErr.Code == "23505" && pgErr.ConstraintName == "document_pkey" {
		return &Error{Kind: ErrExists, Message: "there is such a document already: " + pgErr.Detail, Hint: "Apply what is new to it.", Index: -1, cause: err}
	}
	if pgErr.Code == "54000" {
		return &Error{Kind: ErrLimit, Message: "a limit of PostgreSQL: " + pgErr.Message, Hint: pgErr.Hint, Limit: "PostgreSQL", Index: -1, cause: err}
	}
	if kindOf[pgErr.Code] == nil {
		return err
	}
	e := &Error{Kind: kindOf[pgErr.Code], Message: pgErr.Message, Hint: pgErr.Hint, Index: -1, cause: err}
	if pgErr.Detail == "" {
		return e
	}
	var detail struct {
		Doc     uuid.UUID
		Missing []Hash
		Hash    *Hash
	}
	if bad := json.Unmarshal([]byte(pgErr.Detail), &detail); bad != nil {
		return fmt.Errorf("reading the details %q of a refusal: %w", pgErr.Detail, errors.Join(bad, err))
	}
	e.Doc, e.Hashes = detail.Doc, detail.Missing
	if detail.Hash != nil {
		e.Hashes = []Hash{*detail.Hash}
	}
	return e
}
