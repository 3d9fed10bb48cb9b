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

func run(ctx context.Context, out io.Writer) (err error) {
	server, err := pgserver.Start(ctx, pgserver.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
	}()
	database, err := server.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	defer server.DropDatabase(context.WithoutCancel(ctx), database)
	pool, err := pgxpool.New(ctx, server.ConnString(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	return ledgerStory(ctx, out, pool)
}
