package automerge

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Change is a change of a document.
type Change struct {
	Hash    Hash
	Deps    []Hash
	Actor   string // in hexadecimal
	Seq     int64  // number of the change among the actor's, from 1
	StartOp int64  // number of its first operation
	Ops     int64  // how many operations it has
	Time    time.Time
	Message string
	Chunk   []byte // as Automerge loads it; nil where only what is known about changes was asked for
}

// Changes returns the changes of a document that do not belong to what the hashes name, each after those that it depends on. Hashes that the
// document does not have are passed over; without any, all changes are returned. [ErrNotFound]: there is no such document.
func (s *Store) Changes(ctx context.Context, id uuid.UUID, since ...Hash) ([]Change, error) {
	return s.changes(ctx, id, true, since)
}

// ChangeMeta is [Store.Changes] without the chunks.
func (s *Store) ChangeMeta(ctx context.Context, id uuid.UUID, since ...Hash) ([]Change, error) {
	return s.changes(ctx, id, false, since)
}

func (s *Store) changes(ctx context.Context, id uuid.UUID, chunks bool, since []Hash) (list []Change, err error) {
	err = refused(pgtx.Query(ctx, s.db, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scanChange)
		return err
	}, "select hash, deps, actor, seq, start_op, ops, time, coalesce(message, ''), case when $3 then chunk end from automerge.changes($1, $2)", id, toArray(since), chunks))
	if !errors.Is(err, ErrUnsupported) {
		return list, err
	}
	// They are in the snapshot.
	d, err := s.load(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	all, err := d.since(ctx, since)
	if err != nil {
		return nil, err
	}
	list = make([]Change, len(all))
	for i, c := range all {
		list[i] = changeOf(c)
		if !chunks {
			list[i].Chunk = nil
		}
	}
	return list, nil
}

func changeOf(c incoming) Change {
	change := Change{Hash: Hash(c.Hash), Actor: c.Actor.String(), Seq: int64(c.Seq), StartOp: int64(c.StartOp), Ops: c.NumOps, Message: strings.ReplaceAll(c.Message, "\x00", "\uFFFD"), Chunk: c.chunk}
	for _, d := range c.Deps {
		change.Deps = append(change.Deps, Hash(d))
	}
	if c.Time != 0 {
		change.Time = time.Unix(c.Time, 0).UTC()
	}
	return change
}

func scanChange(row pgx.CollectableRow) (c Change, err error) {
	var hash, actor []byte
	var deps [][]byte
	var seconds int64
	err = row.Scan(&hash, &deps, &actor, &c.Seq, &c.StartOp, &c.Ops, &seconds, &c.Message, &c.Chunk)
	copy(c.Hash[:], hash)
	c.Deps, c.Actor = fromArray(deps), hex.EncodeToString(actor)
	if seconds != 0 {
		c.Time = time.Unix(seconds, 0).UTC()
	}
	return c, err
}

// Save returns a document as Automerge loads it: its snapshot, if it has one, and the changes after that.
func (s *Store) Save(ctx context.Context, id uuid.UUID) (save []byte, err error) {
	err = s.row(ctx, id, []any{&save}, "select automerge.save($1)")
	return save, err
}

// SaveSince returns the changes that [Store.Changes] returns, one behind the other, as Automerge loads them into a document that has the rest.
func (s *Store) SaveSince(ctx context.Context, id uuid.UUID, since ...Hash) ([]byte, error) {
	list, err := s.Changes(ctx, id, since...)
	var save []byte
	for _, c := range list {
		save = append(save, c.Chunk...)
	}
	return save, err
}
