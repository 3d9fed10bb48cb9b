package automerge

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
)

// Fold folds the changes of a document that are rows into its snapshot. Nothing of the document changes by that: all changes can still be
// read, and heads and projection stay as they are. It returns how many were folded.
//
// The new snapshot has been read again before it takes their place, and gave each of them with the same hash. Writers are not in the way, and do
// not wait but for the moment in which the snapshot is put in place. [Store.Run] folds what is worth it.
func (s *Store) Fold(ctx context.Context, id uuid.UUID) (n int, err error) {
	err = s.write(ctx, func(tx pgx.Tx) error {
		n, err = s.fold(ctx, tx, id)
		return err
	})
	return n, err
}

func (s *Store) fold(ctx context.Context, tx pgx.Tx, id uuid.UUID) (int, error) {
	d, err := s.load(ctx, tx, id)
	if err != nil || len(d.tail) == 0 {
		return 0, err
	}
	data, err := amformat.WriteDocument(ctx, d.snapshot, d.hashes, changesIn(d.tail), s.limits.format())
	if err != nil {
		return 0, malformed(id, err)
	}
	doc, err := amformat.ParseDocument(data, s.limits.format())
	if err != nil {
		return 0, malformed(id, err)
	}
	// The old changes come first, as they were; the others follow.
	tail := make(map[author]amformat.Hash, len(d.tail))
	hashes := append([]amformat.Hash(nil), d.hashes...)
	var ops int64
	for _, c := range d.tail {
		tail[author{c.Actor, c.Seq}] = c.Hash
		ops += c.NumOps
	}
	for _, m := range doc.Metas[len(d.hashes):] {
		hashes = append(hashes, tail[author{doc.Actors[m.Actor], m.Seq}])
	}
	folds := int64(len(d.hashes))
	if folds > 0 {
		var before int64
		if err := tx.QueryRow(ctx, "select coalesce(sum(ops), 0)::bigint from automerge.snapshot where doc = $1", id).Scan(&before); err != nil {
			return 0, err
		}
		ops += before
	}
	return len(d.tail), snapshotOf(data, doc, hashes, ops).put(ctx, tx, id, &folds, nil, nil, &Applied{})
}
