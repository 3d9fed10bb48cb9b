package automerge

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// One statement reads both, so that what is folded meanwhile is in one of them. A snapshot of which the document has the heads brings nothing, and forks
// mostly have the same.
const lackingSQL = `with c as (select distinct on (c.hash) c.hash, c.place, c.chunk from automerge.change c where c.doc = any ($2) order by c.hash, c.place),
	k as (select h from unnest(automerge.known($1, array(select hash from c))) h),
	s as (select distinct on (s.heads) s.changes, s.data from automerge.snapshot s where s.doc = any ($2) and not s.heads <@ automerge.known($1, s.heads) order by s.heads)
select q.chunk from (select 0 as part, -s.changes as nr, s.data as chunk from s union all select 1, c.place, c.chunk from c where c.hash not in (select h from k)) q order by q.part, q.nr`

// Merge merges other documents into a document, such as forks of it: the changes of theirs that it lacks are added. They stay as they are. Errors are
// those of [Store.Apply].
func (s *Store) Merge(ctx context.Context, id uuid.UUID, others ...uuid.UUID) (applied Applied, err error) {
	err = s.write(ctx, func(tx pgx.Tx) error {
		for _, d := range append([]uuid.UUID{id}, others...) {
			if err := s.In(tx).row(ctx, d, []any{new(bool)}, "select true from automerge.document where id = $1"); err != nil {
				return err
			}
		}
		chunks, err := rowsOf(ctx, tx, pgx.RowTo[[]byte], lackingSQL, id, others)
		if err != nil {
			return err
		}
		changes, saves, err := s.parse(id, chunks...)
		if err != nil {
			return err
		}
		applied, err = s.merge(ctx, tx, id, changes, saves)
		return err
	})
	if err != nil {
		return Applied{}, err
	}
	return applied, nil
}
