package volvra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// Behind a pooler that hands out sessions by transaction, each change is recorded with its own actor, whatever the session did before, and
// every call works on any session.
func TestPooler(t *testing.T) {
	t.Parallel()
	_, direct := covered(t)
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), pgserver.Pooler(t, direct.Config().ConnString())))
	defer pool.Close()
	v := volvra.New(pool)
	const actors, rounds = 6, 10
	run(t, direct, fmt.Sprintf("insert into shop.orders select i, 'nobody', 0, null from generate_series(1, %d) i", actors))
	coordinate := must[volvra.Moment](t)(v.Coordinate(t.Context()))

	var wait sync.WaitGroup
	failures := make([]error, actors)
	for i := range actors {
		wait.Go(func() {
			for range rounds {
				actor := fmt.Sprint("actor ", i)
				_, err := pool.Exec(t.Context(), "update shop.orders set total = total + 1, customer = $1 where id = $2", actor, i+1) // for nobody
				failures[i] = errors.Join(failures[i], err, addOne(t.Context(), pool, actor, i+1))
			}
		})
	}
	wait.Wait()
	ok(t, errors.Join(failures...))

	for i := range actors {
		actor := fmt.Sprint("actor ", i)
		plan := must[*volvra.Plan](t)(v.Preview(t.Context(), volvra.Selection{Actor: actor}))
		if len(plan.Rows) != 1 || !slices.Equal(plan.Rows[0].Key, volvra.KeyOf(i+1)) {
			t.Errorf("%s changed %+v", actor, plan.Rows)
		}
		changes := must[[]volvra.Change](t)(v.History(t.Context(), "shop.orders", volvra.KeyOf(i+1), 0))
		said := 0
		for _, c := range changes {
			if c.Who.Actor == actor {
				said++
			}
		}
		if said != rounds {
			t.Errorf("%s made %d changes, want %d", actor, said, rounds)
		}
		row, found, err := volvra.AsOfRow[map[string]any](t.Context(), v, "shop.orders", volvra.KeyOf(i+1), coordinate)
		if err != nil || !found || row["customer"] != "nobody" {
			t.Errorf("as of the coordinate: %v %t %v", row, found, err)
		}
	}
	must[string](t)(v.Mark(t.Context(), "m"))
	undone := must[*volvra.Result](t)(v.Undo(t.Context(), volvra.Selection{Since: coordinate}, volvra.UndoOptions{}))
	if got := text(t, direct, "select count(*), max(total) from shop.orders where customer = 'nobody'"); undone.Rows != actors || got != fmt.Sprintf("(%d,0.00)", actors) {
		t.Errorf("%d rows undone, then %s", undone.Rows, got)
	}
	must[*volvra.Result](t)(v.UndoTo(t.Context(), "m", volvra.UndoOptions{}))
	if got := text(t, direct, "select min(total) from shop.orders"); got != fmt.Sprintf("(%d.00)", 2*rounds) {
		t.Errorf("to the mark: %s", got)
	}
	must[volvra.Seal](t)(v.Seal(t.Context()))
	for e, err := range v.Verify(t.Context(), volvra.VerifyOptions{}) {
		if err != nil || e.Problem {
			t.Errorf("%+v %v", e, err)
		}
	}
}

// addOne adds one to the total of an order, for an actor.
func addOne(ctx context.Context, pool *pgxpool.Pool, actor string, id int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := volvra.SetActor(ctx, tx, actor); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update shop.orders set total = total + 1 where id = $1", id)
		return err
	})
}
