package volvra_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/volvra"
)

func TestSetActorEndsWithTheTransaction(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), pool.Config().ConnString()))
	defer conn.Close(t.Context())
	tx := must[pgx.Tx](t)(conn.Begin(t.Context()))
	ok(t, volvra.SetActor(t.Context(), tx, `O'Hara "x"`))
	run(t, tx, "insert into shop.orders values (1, 'a', 1, null)")
	ok(t, tx.Commit(t.Context()))
	run(t, conn, "insert into shop.orders values (2, 'b', 1, null)")

	list := must[[]volvra.Transaction](t)(v.Transactions(t.Context(), volvra.Selection{Everything: true}, volvra.Page{}))
	if len(list) != 2 || list[0].Who.Actor != "" || list[1].Who.Actor != `O'Hara "x"` {
		t.Errorf("got %+v", list)
	}
}
