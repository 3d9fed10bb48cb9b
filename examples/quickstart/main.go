// Command quickstart runs a small story of each package on a real PostgreSQL that it finds or fetches, starts and stops by itself.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	return pgserver.WithPool(ctx, func(pool *pgxpool.Pool) error {
		if err := ledgerStory(ctx, out, pool); err != nil {
			return err
		}
		if err := volvraStory(ctx, out, pool); err != nil {
			return err
		}
		if err := gnomonStory(ctx, out, pool); err != nil {
			return err
		}
		return automergeStory(ctx, out, pool)
	})
}
