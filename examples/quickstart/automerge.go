//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
)

// automergeStory is a shopping list that two people change at once, one of them offline.
func automergeStory(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	fmt.Fprintln(out, "automerge: documents that merge")
	if err := automerge.Install(ctx, pool); err != nil {
		return err
	}
	store := automerge.New(pool)
	list, err := store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"title": "Shopping", "bread": 1}`), Whole: true})
	if err != nil {
		return err
	}
	before, err := store.Heads(ctx, list)
	if err != nil {
		return err
	}

	// Ada takes a copy along. Both write in the same title meanwhile.
	copied, err := store.Fork(ctx, list, automerge.Now, automerge.CreateParams{})
	if err != nil {
		return err
	}
	if _, err := store.Edit(ctx, copied, func(doc *automerge.EngineDoc) error { return doc.Path("title").Text().Insert(0, "Weekend ") }); err != nil {
		return err
	}
	if _, err := store.Edit(ctx, list, func(doc *automerge.EngineDoc) error {
		if err := doc.Path("milk").Set(2); err != nil {
			return err
		}
		return doc.Path("title").Text().Append(" list")
	}); err != nil {
		return err
	}
	// Nothing is loaded for merging, and merging again adds nothing.
	merged, err := store.Merge(ctx, list, copied)
	if err != nil {
		return err
	}
	again, err := store.Merge(ctx, list, copied)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Merged %d change, and then %d.\n", merged.Added, again.Added)

	// The projection is an ordinary table.
	var title string
	if err := pool.QueryRow(ctx, "select data->>'title' from automerge.projection where (data->>'milk')::int = 2").Scan(&title); err != nil {
		return err
	}
	fmt.Fprintf(out, "  Where there are two of milk, the title is %s.\n", title)

	bread, err := automerge.Get[int](ctx, store, list, "bread")
	if err != nil {
		return err
	}
	then, err := store.JSON(ctx, list, automerge.AsOf(before...))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %d bread. Before all that it was %s.\n", bread, then)
	patches, err := store.Diff(ctx, list, automerge.AsOf(before...), automerge.Now)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "  What was done to it:")
	for _, p := range patches {
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "    %s\n", line)
	}
	return nil
}
