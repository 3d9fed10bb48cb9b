package automerge

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/amformat"
)

// Limits bound what is taken in. They are looked at before work is done and memory is allocated for it. Zero values mean the default.
type Limits struct {
	ChunkBytes      int64 // of one change or save, inflated; default 256 MiB
	ChunkOps        int64 // operations of one change or save; default 20 million
	DocumentBytes   int64 // of a document: its snapshot and the changes after that; default 512 MiB
	DocumentOps     int64 // operations of a document; default 50 million
	DocumentChanges int64 // changes of a document; default 2 million
	Parked          int64 // changes of a document that wait for others; default 1,000
	Depth           int64 // objects within objects; default 1,000
}

// DefaultLimits are the limits that zero values stand for.
var DefaultLimits = Limits{
	ChunkBytes: 256 << 20, ChunkOps: 20_000_000, DocumentBytes: 512 << 20, DocumentOps: 50_000_000, DocumentChanges: 2_000_000, Parked: 1_000, Depth: 1_000,
}

func (l Limits) orDefault() Limits {
	for _, f := range []struct {
		v *int64
		d int64
	}{
		{&l.ChunkBytes, DefaultLimits.ChunkBytes}, {&l.ChunkOps, DefaultLimits.ChunkOps}, {&l.DocumentBytes, DefaultLimits.DocumentBytes},
		{&l.DocumentOps, DefaultLimits.DocumentOps}, {&l.DocumentChanges, DefaultLimits.DocumentChanges}, {&l.Parked, DefaultLimits.Parked}, {&l.Depth, DefaultLimits.Depth},
	} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	return l
}

// format are the limits of one chunk.
func (l Limits) format() amformat.Limits {
	return amformat.Limits{Bytes: l.ChunkBytes, Ops: l.ChunkOps, Changes: l.DocumentChanges, Depth: l.Depth}
}

// within refuses what would be more than a limit.
func within(doc uuid.UUID, limit string, got, most int64) error {
	if got <= most {
		return nil
	}
	return &Error{Kind: ErrLimit, Message: fmt.Sprintf("document %s would pass the limit %s of %d with %d", doc, limit, most, got), Hint: "Raise the limit in Options.Limits if that is wanted.", Doc: doc, Limit: limit, Index: -1}
}

// malformed makes an error about bytes an *Error.
func malformed(doc uuid.UUID, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Kind: ErrMalformed, Message: err.Error(), Hint: "Nothing of it was taken.", Doc: doc, Index: -1, cause: err}
	var limit *amformat.LimitError
	var unfit *amformat.ChangeError
	if errors.As(err, &unfit) {
		e.Hashes = []Hash{Hash(unfit.Hash)}
	}
	switch {
	case errors.As(err, &limit):
		e.Kind, e.Limit, e.Hint = ErrLimit, limit.What, "Raise the limit in Options.Limits if that is wanted."
	case errors.Is(err, amformat.ErrUnsupported):
		e.Kind, e.Hint = ErrUnsupported, "It may have been written by a later version of Automerge."
	case errors.Is(err, amformat.ErrMissing):
		e.Kind = ErrMissing
	case !errors.Is(err, amformat.ErrMalformed) && !errors.Is(err, amformat.ErrChecksum) && !errors.Is(err, amformat.ErrTruncated) && !errors.Is(err, amformat.ErrHash):
		return err // the context's
	}
	return e
}
