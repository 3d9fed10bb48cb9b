package automerge

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// RunOptions say how [Store.Run] works. Zero values mean the default.
type RunOptions struct {
	// Queue is how often it looks for what SQL clients have appended; default: every second.
	Queue time.Duration
	// Fold is how often it looks for documents to fold; default: every half minute.
	Fold time.Duration
	// FoldAfter is how many changes a document must have gained before they are folded into its snapshot; default 64. They are also to be a tenth of the
	// snapshot's size, or ten times as many, so that large documents are not written anew for little.
	FoldAfter int
	// OnError hears of documents that could not be folded, and of other failures after which it went on. Nil: nobody does.
	OnError func(doc uuid.UUID, err error)
}

// Run does what is to be done in the background until ctx ends: it validates what SQL clients have appended and adds it to the documents, and folds
// documents. Any number of processes may run it: they take turns, under advisory locks of transactions. It is for the owner of the schema.
//
// What was appended and is refused stays in automerge.queue with the reason. It returns the error of ctx.
func (s *Store) Run(ctx context.Context, o RunOptions) error {
	if o.Queue <= 0 {
		o.Queue = time.Second
	}
	if o.Fold <= 0 {
		o.Fold = 30 * time.Second
	}
	if o.FoldAfter <= 0 {
		o.FoldAfter = 64
	}
	if o.OnError == nil {
		o.OnError = func(uuid.UUID, error) {}
	}
	queue, fold := time.NewTicker(o.Queue), time.NewTicker(o.Fold)
	defer queue.Stop()
	defer fold.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-queue.C:
			if _, err := s.WorkQueue(ctx); err != nil && ctx.Err() == nil {
				o.OnError(uuid.Nil, err)
			}
		case <-fold.C:
			s.foldDue(ctx, o)
		}
	}
	return ctx.Err()
}

// queuePage is how many chunks are added in one transaction.
const queuePage = 100

// WorkQueue validates what SQL clients have appended so far and adds it to the documents. It returns how many chunks it looked at, none where another
// process is at it. Changes of which dependencies are missing wait for them. [Store.Run] calls it again and again.
func (s *Store) WorkQueue(ctx context.Context) (n int, err error) {
	for {
		done := 0
		err = s.write(ctx, func(tx pgx.Tx) (err error) {
			done, err = s.workPage(ctx, tx)
			return err
		})
		n += done
		if err != nil || done < queuePage {
			return n, err
		}
	}
}

// appended is a row of automerge.queue.
type appended struct {
	ID    int64
	Doc   uuid.UUID
	Chunk []byte
}

func (s *Store) workPage(ctx context.Context, tx pgx.Tx) (int, error) {
	var ours bool
	if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtextextended('automerge queue', 0))").Scan(&ours); err != nil || !ours {
		return 0, err
	}
	page, err := rowsOf(ctx, tx, pgx.RowToStructByPos[appended], "select id, doc, chunk from automerge.queue where tried_at is null order by id limit $1", queuePage)
	if err != nil {
		return 0, err
	}
	in := s.In(tx)
	in.mustFit = true
	for _, row := range page {
		_, err := in.take(ctx, row)
		var refusal *Error
		switch {
		case err == nil || errors.Is(err, ErrNotFound): // it was deleted, and what was appended to it with it
			_, err = tx.Exec(ctx, "delete from automerge.queue where id = $1", row.ID)
		case errors.As(err, &refusal):
			_, err = tx.Exec(ctx, "update automerge.queue set tried_at = now(), code = $2, reason = $3 where id = $1", row.ID, codeOf(refusal.Kind), refusal.Error())
		}
		if err != nil {
			return 0, err
		}
	}
	return len(page), nil
}

// take adds what was appended.
func (s *Store) take(ctx context.Context, row appended) (Applied, error) {
	if _, saves, err := s.parse(row.Doc, row.Chunk); err == nil && len(saves) > 0 {
		return s.MergeSave(ctx, row.Doc, row.Chunk)
	}
	return s.ApplyOrPark(ctx, row.Doc, row.Chunk)
}

// foldDue folds the documents for which it is worth it.
func (s *Store) foldDue(ctx context.Context, o RunOptions) {
	due, err := rowsOf(ctx, s.db, pgx.RowTo[uuid.UUID], "select d.id from automerge.document d left join automerge.snapshot s on s.doc = d.id where d.changes - d.folded >= $1 "+
		"and (10 * (d.bytes - coalesce(length(s.data), 0)) >= coalesce(length(s.data), 0) or d.changes - d.folded >= 10 * $1::bigint) order by d.changes - d.folded desc", o.FoldAfter)
	if err != nil && ctx.Err() == nil {
		o.OnError(uuid.Nil, err)
	}
	for _, id := range due {
		err := s.write(ctx, func(tx pgx.Tx) error {
			var ours bool
			if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock(hashtextextended('automerge fold ' || $1::text, 0))", id).Scan(&ours); err != nil || !ours {
				return err
			}
			_, err := s.fold(ctx, tx, id)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		// What another process folded at the same time is folded.
		if err != nil && !errors.Is(err, ErrNotFound) && !pgtx.Retryable(err) {
			o.OnError(id, err)
		}
	}
}
