package automerge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Document is what is known about a document without reading it.
type Document struct {
	ID                   uuid.UUID
	Owner, Tenant        string
	CreatedAt, ChangedAt time.Time
	Heads                []Hash // changes that no other one depends on: they name this state of the document
	Changes              int64  // how many changes it has
	Folded               int64  // how many of them its snapshot holds
	Parked               int64  // how many changes wait for others
	Ops                  int64  // how many operations it has
	Bytes                int64  // size of its snapshot and the changes after that
}

// row reads one row of a document. Where there is none it is [ErrNotFound].
func (s *Store) row(ctx context.Context, id uuid.UUID, dest []any, sql string, args ...any) error {
	err := pgtx.QueryRow(ctx, s.db, dest, sql, append([]any{id}, args...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return &Error{Kind: ErrNotFound, Message: fmt.Sprintf("there is no document %s", id), Hint: "Create it first. Where row-level security is enabled, the role must see it.", Doc: id, Index: -1}
	}
	return refused(err)
}

// Document returns what is known about a document. [ErrNotFound]: there is none.
func (s *Store) Document(ctx context.Context, id uuid.UUID) (Document, error) {
	d := Document{ID: id}
	var heads [][]byte
	err := s.row(ctx, id, []any{&d.Owner, &d.Tenant, &d.CreatedAt, &d.ChangedAt, &heads, &d.Changes, &d.Folded, &d.Parked, &d.Ops, &d.Bytes},
		"select owner, coalesce(tenant, ''), created_at, changed_at, heads, changes, folded, parked, ops, bytes from automerge.document where id = $1")
	d.Heads = fromArray(heads)
	return d, err
}

// Heads returns the heads of a document: the changes that no other one depends on, in order. [ErrNotFound]: there is none.
func (s *Store) Heads(ctx context.Context, id uuid.UUID) ([]Hash, error) {
	var heads [][]byte
	err := s.row(ctx, id, []any{&heads}, "select heads from automerge.document where id = $1")
	return fromArray(heads), err
}

// Contains tells whether a document has all of these changes. Given another document's heads it tells whether merging that would add nothing.
func (s *Store) Contains(ctx context.Context, id uuid.UUID, hashes ...Hash) (bool, error) {
	var all bool
	err := s.row(ctx, id, []any{&all}, "select case when $2::bytea[] <@ heads then true else $2::bytea[] <@ automerge.known($1, $2) end from automerge.document where id = $1", toArray(hashes))
	return all, err
}
