package automerge

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
)

// maxState is how much is kept beside a projection so that a change needs nothing else. Where more would be needed, a change is followed by a pass over
// the whole document.
const maxState = 128 << 10

// wanted returns what is projected.
func (d *seen) wanted() (*wanted, error) {
	if d.whole {
		return nil, nil
	}
	return wantedOf(d.paths)
}

// project returns what the projection of a document is after changes that are being added: its JSON, nil where it stays as it is, and its state, nil
// where that would be too large.
func (s *Store) project(ctx context.Context, tx DB, id uuid.UUID, d *seen, changes []incoming) (data, state []byte, err error) {
	want, err := d.wanted()
	if err != nil {
		return nil, nil, err
	}
	var t *tree
	switch {
	case d.changes == 0:
		t = newTree(want)
		t.touched = true
	case len(d.state) > 0:
		if t, err = decodeTree(d.state, want); err != nil {
			return nil, nil, err
		}
	default:
		rows, err := s.rowsWith(ctx, tx, id, changes)
		if err != nil {
			return nil, nil, err
		}
		t = newTree(want)
		t.touched = true
		changes = nil
		if err := t.readRows(rows); err != nil {
			return nil, nil, malformed(id, err)
		}
	}
	for _, c := range changes {
		t.applyChange(c.Change)
	}
	if !t.touched {
		return nil, nil, nil
	}
	if data, err = t.json(s.limits.Depth); err != nil {
		return nil, nil, tooDeep(id, err)
	}
	return data, t.encode(maxState), nil
}

func tooDeep(id uuid.UUID, err error) error {
	return &Error{Kind: ErrLimit, Message: fmt.Sprintf("document %s: %v", id, err), Hint: "Raise the limit in Options.Limits, or project paths that are not as deep.", Doc: id, Limit: "Depth", Index: -1, cause: err}
}

// rowsWith reads a document and merges changes into it that are not in it yet.
func (s *Store) rowsWith(ctx context.Context, db DB, id uuid.UUID, changes []incoming) (*amformat.Rows, error) {
	d, err := s.load(ctx, db, id)
	if err != nil {
		return nil, err
	}
	rows, err := d.rows(changes)
	return rows, malformed(id, err)
}

// SetProjection says what automerge.projection holds of a document: all of it (whole), the chosen paths, or nothing. A path is the keys of maps with
// dots between them, such as meta.author.name; what is there may be of any kind. A backslash takes the meaning from a dot or backslash in a
// key. In the row's column data the values stand where they stand in the document. From then on each change is projected in the transaction that
// adds it.
//
// Where what is projected is small (some ten thousand values and characters), that takes no longer in a large document than in a small one. Else
// every change takes a pass over the whole document.
func (s *Store) SetProjection(ctx context.Context, id uuid.UUID, whole bool, paths ...string) error {
	want, err := (&seen{whole: whole, paths: paths}).wanted()
	if err != nil {
		return err
	}
	if paths == nil {
		paths = []string{}
	}
	return s.write(ctx, func(tx pgx.Tx) error {
		// Locked before it is read.
		if err := s.In(tx).row(ctx, id, []any{new(bool)}, "update automerge.writing set whole = $2, paths = $3 where id = $1 returning true", whole, paths); err != nil {
			return err
		}
		if !whole && len(paths) == 0 {
			return nil
		}
		rows, err := s.rowsWith(ctx, tx, id, nil)
		if err != nil {
			return err
		}
		t := newTree(want)
		if err := t.readRows(rows); err != nil {
			return malformed(id, err)
		}
		data, err := t.json(s.limits.Depth)
		if err != nil {
			return tooDeep(id, err)
		}
		_, err = tx.Exec(ctx, "update automerge.writing set data = $2, state = $3 where id = $1", id, string(data), t.encode(maxState))
		return err
	})
}
