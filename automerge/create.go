package automerge

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// CreateParams say what a document begins with. All of it is optional: without content the document is empty.
type CreateParams struct {
	ID     uuid.UUID // zero: a new one, of version 7
	Owner  string    // whose it is, for your policies; empty: the role that creates it
	Tenant string    // what it belongs to, for your policies
	// Whole and Paths say what automerge.projection holds of it: see [Store.SetProjection].
	Whole bool
	Paths []string
	// JSON is a JSON object that it begins with, as the change of an actor of its own. Strings become texts.
	JSON json.RawMessage
	// Content is what it holds: a save of Automerge, or changes with all that they depend on, one behind the other in any order, or both.
	Content []byte
}

// Create makes a document and returns its id. Besides the errors of [Store.Apply] there is [ErrExists].
func (s *Store) Create(ctx context.Context, p CreateParams) (uuid.UUID, error) {
	id := p.ID
	if id == uuid.Nil {
		var err error
		if id, err = uuid.NewV7(); err != nil {
			return uuid.Nil, err
		}
	}
	changes, saves, err := s.parse(id, p.Content)
	if err != nil {
		return uuid.Nil, err
	}
	if p.JSON != nil {
		if len(changes)+len(saves) > 0 {
			return uuid.Nil, &Error{Kind: ErrInvalid, Message: "a document begins with JSON or with content", Hint: "Apply one after the other.", Doc: id, Index: -1}
		}
		first, err := s.fromJSON(id, p.JSON)
		if err != nil {
			return uuid.Nil, err
		}
		changes = []incoming{first}
	}
	if _, err := wantedOf(p.Paths); err != nil {
		return uuid.Nil, err
	}
	err = s.write(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into automerge.document (id, owner, tenant, whole, paths) values ($1, coalesce(nullif($2, ''), current_user), nullif($3, ''), $4, coalesce($5::text[], '{}'))", id, p.Owner, p.Tenant, p.Whole, p.Paths); err != nil {
			return err
		}
		if len(changes)+len(saves) == 0 {
			if !p.Whole && len(p.Paths) == 0 {
				return nil
			}
			_, err := tx.Exec(ctx, "update automerge.writing set data = '{}' where id = $1", id)
			return err
		}
		_, err := s.merge(ctx, tx, id, changes, saves)
		return err
	})
	if err != nil {
		return uuid.Nil, err
	}
	return id, nil
}

// uuids makes ids an argument of a statement.
func uuids(ids []uuid.UUID) []pgtype.UUID {
	array := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		array[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return array
}

// Delete deletes documents with all that belongs to them. It returns how many there were: those that the role may not delete are none.
func (s *Store) Delete(ctx context.Context, ids ...uuid.UUID) (n int64, err error) {
	err = s.write(ctx, func(tx pgx.Tx) error {
		// Others lock several documents in the order of their ids, too.
		tag, err := tx.Exec(ctx, "delete from automerge.document where id in (select id from automerge.document where id = any ($1) order by id for update)", uuids(ids))
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
