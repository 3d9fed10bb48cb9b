package pgserver

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// WithPool starts a server, or uses the one that the environment names, and calls fn with a pool on a fresh database of it. When fn has
// returned, the database is dropped and a server of ours stopped. Its errors are those of [Start] and of fn.
func WithPool(ctx context.Context, fn func(pool *pgxpool.Pool) error) (err error) {
	server, err := Start(ctx, Options{})
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
	return fn(pool)
}
