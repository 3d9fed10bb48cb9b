package automerge

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Fork makes a document that is what another one is, or was: with its changes, so that either can be merged into the other later. Of p, JSON and Content
// are not looked at. [ErrUnknownHeads]: it never had these heads.
func (s *Store) Fork(ctx context.Context, id uuid.UUID, at Moment, p CreateParams) (fork uuid.UUID, err error) {
	whole, paths := p.Whole, p.Paths
	p.JSON, p.Content, p.Whole, p.Paths = nil, nil, false, nil
	err = s.write(ctx, func(tx pgx.Tx) error {
		in := s.In(tx)
		d, err := in.load(ctx, tx, id)
		if err != nil {
			return err
		}
		within, unknown := d.upTo(at.heads)
		if len(unknown) > 0 {
			return unknownHeads(id, unknown)
		}
		if fork, err = in.Create(ctx, p); err != nil {
			return err
		}
		has := func(i int) bool { return !at.past || within[i] }
		var changes []incoming
		if d.snapshot != nil {
			all := true
			for i := range d.hashes {
				all = all && has(i)
			}
			if all {
				if err := s.copySnapshot(ctx, tx, id, fork, int64(len(d.hashes))); err != nil {
					return err
				}
			} else {
				list, err := d.since(ctx, nil)
				if err != nil {
					return err
				}
				for _, c := range list[:len(d.hashes)] {
					if i, _ := d.numberOf(c.Hash); has(i) {
						changes = append(changes, c)
					}
				}
			}
		}
		for i, c := range d.tail {
			if has(len(d.hashes) + i) {
				changes = append(changes, c)
			}
		}
		if len(changes) > 0 {
			if _, err := s.add(ctx, tx, fork, changes, false); err != nil {
				return err
			}
		}
		if whole || len(paths) > 0 {
			return in.SetProjection(ctx, fork, whole, paths...)
		}
		return nil
	})
	if err != nil {
		return uuid.Nil, err
	}
	return fork, nil
}

// copySnapshot begins a document with the snapshot of another one, which was proven when it was made.
func (s *Store) copySnapshot(ctx context.Context, tx pgx.Tx, from, to uuid.UUID, changes int64) error {
	tag, err := tx.Exec(ctx, "update automerge.writing w set snapshot = s.data, snapshot_heads = s.heads, snapshot_hashes = s.hashes, snapshot_authors = s.authors, snapshot_actors = s.actors, "+
		"snapshot_seqs = s.seqs, snapshot_max_ops = s.max_ops, snapshot_ops = s.ops from automerge.snapshot s where s.doc = $2 and s.changes = $3 and w.id = $1", to, from, changes)
	if err == nil && tag.RowsAffected() == 0 {
		err = errFolded
	}
	return err
}
