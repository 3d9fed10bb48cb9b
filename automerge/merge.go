package automerge

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
)

// MergeSave merges a save of Automerge into a document: the changes in it that the document lacks are added. It takes changes behind or instead of
// the save, too. A save without anything new costs a look at its heads.
//
// Of what the document has already nothing is read but hashes; what is new is written out of the save as changes, whose hashes have to add up to
// the heads that the save names. Errors are those of [Store.Apply].
func (s *Store) MergeSave(ctx context.Context, id uuid.UUID, data ...[]byte) (applied Applied, err error) {
	changes, saves, err := s.parse(id, data...)
	if err != nil {
		return Applied{}, err
	}
	err = s.write(ctx, func(tx pgx.Tx) (err error) {
		applied, err = s.merge(ctx, tx, id, changes, saves)
		return err
	})
	if err != nil {
		return Applied{}, err
	}
	return applied, nil
}

// merge merges saves, then changes.
func (s *Store) merge(ctx context.Context, tx pgx.Tx, id uuid.UUID, changes []incoming, saves [][]byte) (applied Applied, err error) {
	added := 0
	for _, save := range saves {
		if applied, err = s.mergeSave(ctx, tx, id, save); err != nil {
			return Applied{}, err
		}
		added += applied.Added
	}
	if len(changes) > 0 || len(saves) == 0 {
		if applied, err = s.add(ctx, tx, id, changes, false); err != nil {
			return Applied{}, err
		}
		added += applied.Added
	}
	applied.Added = added
	return applied, nil
}

func (s *Store) mergeSave(ctx context.Context, tx pgx.Tx, id uuid.UUID, save []byte) (Applied, error) {
	heads, err := amformat.DocumentHeads(save)
	if err != nil {
		return Applied{}, malformed(id, err)
	}
	var now [][]byte
	var applied Applied
	var all bool
	err = s.In(tx).row(ctx, id, []any{&now, &applied.Changes, &all}, "select heads, changes, case when $2::bytea[] <@ heads then true else $2::bytea[] <@ automerge.known(id, $2) end from automerge.document where id = $1", toArray(heads))
	if err != nil {
		return Applied{}, err
	}
	if applied.Heads = fromArray(now); all && applied.Changes > 0 {
		return applied, nil
	}
	if applied.Changes == 0 {
		d, err := s.lock(ctx, tx, id)
		if err != nil {
			return Applied{}, err
		}
		if d.changes == 0 && d.parked == 0 {
			proven, _, err := s.prove(ctx, id, save)
			if err != nil {
				return Applied{}, err
			}
			err = s.begin(ctx, tx, id, d, proven, &applied)
			return applied, err
		}
	}
	changes, err := s.unknownOf(ctx, tx, id, save)
	if err != nil {
		return Applied{}, err
	}
	return s.add(ctx, tx, id, inOrder(changes), false)
}

// lock locks a document and returns what it is then.
func (s *Store) lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*seen, error) {
	var d seen
	var heads [][]byte
	// A statement sees what was committed before it began: it begins when the lock is held.
	if _, err := tx.Exec(ctx, "select from automerge.document where id = $1 for no key update", id); err != nil {
		return nil, err
	}
	err := s.In(tx).row(ctx, id, []any{&heads, &d.changes, &d.ops, &d.bytes, &d.folded, &d.parked, &d.whole, &d.paths},
		"select heads, changes, ops, bytes, folded, parked, whole, paths from automerge.document where id = $1")
	d.heads = fromArray(heads)
	return &d, err
}

// author names a change.
type author struct {
	actor amformat.ActorID
	seq   uint64
}

// unknownOf returns the changes of a save that a document lacks.
func (s *Store) unknownOf(ctx context.Context, tx pgx.Tx, id uuid.UUID, save []byte) ([]incoming, error) {
	doc, err := amformat.ParseDocument(save, s.limits.format())
	if err != nil {
		return nil, malformed(id, err)
	}
	known, err := s.authors(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	changes, err := doc.ChangesSince(ctx, func(actor amformat.ActorID, seq uint64) (amformat.Hash, bool) {
		h, ok := known[author{actor, seq}]
		return h, ok
	})
	if errors.Is(err, amformat.ErrHash) {
		// Either the save is wrong by itself, or it has another change of the same name: then adding its changes says which.
		changes, err = doc.Changes(ctx)
	}
	if err != nil {
		return nil, malformed(id, err)
	}
	return list(changes), nil
}

// authors returns the hashes of a document's changes by who made them.
func (s *Store) authors(ctx context.Context, db DB, id uuid.UUID) (map[author]amformat.Hash, error) {
	var actors, hashes [][]byte
	var seqs []int64
	var folded snapshot
	var list, runs []byte
	var folders [][]byte
	err := s.In(db).row(ctx, id, []any{&actors, &seqs, &hashes, &list, &runs, &folders}, "select (select array_agg(c.actor order by c.place) from automerge.change c where c.doc = d.id), "+
		"(select array_agg(c.seq order by c.place) from automerge.change c where c.doc = d.id), (select array_agg(c.hash order by c.place) from automerge.change c where c.doc = d.id), "+
		"s.hashes, s.authors, s.actors from automerge.document d left join automerge.snapshot s on s.doc = d.id where d.id = $1")
	if err != nil {
		return nil, err
	}
	known := make(map[author]amformat.Hash, len(hashes)+len(list)/32)
	for i := range hashes {
		known[author{amformat.ActorID(actors[i]), uint64(seqs[i])}] = amformat.Hash(hashes[i])
	}
	for _, a := range folders {
		folded.actors = append(folded.actors, amformat.ActorID(a))
	}
	if folded.authors, err = readRuns(runs, len(folded.actors), len(list)/32); err != nil {
		return nil, err
	}
	folded.byAuthor(func(i int, actor amformat.ActorID, seq uint64) {
		known[author{actor, seq}] = amformat.Hash(list[i*32 : i*32+32])
	})
	return known, nil
}
