package amformat

import (
	"errors"
	"fmt"
)

// The kinds of errors. Every error of this package is one of them under [errors.Is], or the context's.
var (
	// ErrMalformed means that bytes break a rule of the format.
	ErrMalformed = errors.New("malformed Automerge data")
	// ErrChecksum means that a chunk isn't the one that its checksum was computed of.
	ErrChecksum = errors.New("the checksum of an Automerge chunk is wrong")
	// ErrTruncated means that a chunk ends before its end.
	ErrTruncated = errors.New("truncated Automerge data")
	// ErrUnsupported means that the data may be right, and is of a kind that this package doesn't read: a bundle, or columns of a later version.
	ErrUnsupported = errors.New("unsupported Automerge data")
	// ErrHash means that a document's rows don't add up to the changes that its heads name.
	ErrHash = errors.New("the changes of an Automerge document don't have the hashes that its heads name")
	// ErrMissing means that a change depends on changes that aren't there.
	ErrMissing = errors.New("an Automerge change depends on changes that are missing")
	// ErrLimit is the kind of every [*LimitError].
	ErrLimit = errors.New("an Automerge limit is exceeded")
)

// LimitError says which of [Limits] something exceeds. It matches [ErrLimit].
type LimitError struct {
	What  string // bytes, operations, changes, actors, depth
	Limit int64
	Got   int64 // at least this many: counting stops where the limit is passed
}

// Error names the limit and by how much it is exceeded.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %d %s, %d at most", ErrLimit, e.Got, e.What, e.Limit)
}

// Is makes the error an [ErrLimit].
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// ChangeError says which change doesn't fit the document that it is merged into.
type ChangeError struct {
	Hash Hash
	Err  error
}

// Error names the change and what is wrong with it.
func (e *ChangeError) Error() string { return fmt.Sprintf("change %s: %v", e.Hash, e.Err) }

// Unwrap is what is wrong.
func (e *ChangeError) Unwrap() error { return e.Err }

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}

func truncated(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrTruncated}, args...)...)
}
