package automerge

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Delivery are changes for one document of a batch.
type Delivery struct {
	ID   uuid.UUID
	Data []byte // chunks, one behind the other
}

// ApplyEach applies changes to many documents in one transaction, which takes no more round trips than one document does. The results are in the order
// of the batch. All of it is applied or nothing: a refusal is about the delivery at Error.Index. A document may stand in it once.
func (s *Store) ApplyEach(ctx context.Context, batch []Delivery) ([]Applied, error) {
	parsed := make([][]incoming, len(batch))
	order := make([]int, len(batch)) // others lock several documents in the order of their ids, too
	for i, b := range batch {
		order[i] = i
		changes, saves, err := s.parse(b.ID, b.Data)
		if err == nil && len(saves) > 0 {
			err = &Error{Kind: ErrUnsupported, Message: "a save is among the changes", Hint: "MergeSave takes saves.", Doc: b.ID}
		}
		if err != nil {
			return nil, at(i, err)
		}
		parsed[i] = changes
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(batch[a].ID[:], batch[b].ID[:]) })
	for n := 1; n < len(order); n++ {
		if batch[order[n]].ID == batch[order[n-1]].ID {
			return nil, &Error{Kind: ErrInvalid, Message: "document " + batch[order[n]].ID.String() + " stands in the batch twice", Hint: "Join what is for one document.", Doc: batch[order[n]].ID, Index: order[n]}
		}
	}
	var applied []Applied
	err := s.write(ctx, func(tx pgx.Tx) (err error) {
		applied, err = s.addEach(ctx, tx, batch, parsed, order)
		return err
	})
	if err != nil {
		return nil, err
	}
	return applied, nil
}

func (s *Store) addEach(ctx context.Context, tx pgx.Tx, batch []Delivery, parsed [][]incoming, order []int) ([]Applied, error) {
	applied := make([]Applied, len(batch))
	looks := &pgx.Batch{}
	seen := make([]*seen, len(batch))
	for _, i := range order {
		looks.Queue(lookSQL, lookArgs(batch[i].ID, parsed[i])...).QueryRow(func(row pgx.Row) (err error) {
			if seen[i], err = scanLook(row); err != nil {
				return at(i, refused(err))
			}
			return nil
		})
	}
	if err := tx.SendBatch(ctx, looks).Close(); err != nil {
		return nil, err
	}
	puts := &pgx.Batch{}
	for _, i := range order {
		var args []any
		var err error
		if applied[i], args, err = s.decide(ctx, tx, batch[i].ID, seen[i], parsed[i], false); err != nil {
			return nil, at(i, err)
		}
		if args == nil {
			continue
		}
		puts.Queue(putSQL, args...).QueryRow(func(row pgx.Row) error {
			if err := scanPut(row, &applied[i]); err != nil {
				return at(i, refused(err))
			}
			return nil
		})
	}
	return applied, tx.SendBatch(ctx, puts).Close()
}

// at says which part of a batch a refusal is about.
func at(i int, err error) error {
	if e, ok := err.(*Error); ok {
		e.Index = i
	}
	return err
}
