package volvra

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// SetActor says for whom the application acts in this transaction: a user of the application, a job. Changes are recorded with it, and
// [Selection] finds them by it. It ends with the transaction, so it is safe behind a pooler. In SQL it is
//
//	set local annals.actor = 'ada'
//
// The actor is what the application says. The role of the session is recorded beside it, which nobody can choose. What is done through a
// [Volvra] is recorded in the same way: for an undo in somebody's name, set the actor and call New(tx).Undo in that transaction. The
// empty actor is none.
func SetActor(ctx context.Context, tx pgx.Tx, actor string) error {
	_, err := pgtx.Exec(ctx, tx, "select set_config('annals.actor', $1, true)", actor)
	return err
}
