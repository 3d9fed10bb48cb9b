package schema_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
)

func TestInstallConcurrently(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		ctx, pool := t.Context(), pgserver.Pool(t)
		exec(t, pool, fmt.Sprintf("alter database %s set default_transaction_isolation = '%s'", pool.Config().ConnConfig.Database, isolation))
		for _, version := range []int{1, 3} {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close(ctx)
					if err := schema.Install(ctx, conn, library(version)); err != nil {
						t.Errorf("%s: %v", isolation, err)
					}
				})
			}
			all.Wait()
			wantVersion(t, pool, library(3), version)
		}
	}
}

// TestInstallWithOldSnapshot: a caller's transaction that can't see what another
// installer did must not do it again.
func TestInstallWithOldSnapshot(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	for _, version := range []int{1, 3} {
		tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		must(t, err)
		exec(t, tx, "select 1")
		must(t, schema.Install(ctx, pool, library(version)))
		if err := schema.Install(ctx, tx, library(version)); !hasCode(err, "40001") {
			t.Errorf("version %d: %v, want serialization_failure", version, err)
		}
		must(t, tx.Rollback(ctx))
	}
}

// TestUpgradeWhileWritersRun: an upgrade that can't have its lock makes way for
// those queued behind it, and comes again.
func TestUpgradeWhileWritersRun(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	must(t, schema.Install(ctx, pool, library(1)))
	writer, err := pool.Begin(ctx)
	must(t, err)
	exec(t, writer, "insert into library.book values (1, 'emma')")

	upgrade := make(chan error, 1)
	go func() { upgrade <- schema.Install(ctx, pool, library(3)) }()
	waitUntil(t, pool, "an upgrade waits", "select exists (select from pg_locks where not granted and relation = 'library.book'::regclass)")
	exec(t, pool, "insert into library.book values (2, 'persuasion')") // queues behind the upgrade

	tx, err := pool.Begin(ctx)
	must(t, err)
	waitUntil(t, pool, "the upgrade waits no more", "select not exists (select from pg_locks where locktype = 'advisory')")
	if err := schema.Install(ctx, tx, library(3)); !hasCode(err, "55P03") {
		t.Errorf("in a transaction: %v, want lock_not_available", err)
	}
	must(t, tx.Rollback(ctx))
	must(t, writer.Commit(ctx))
	must(t, <-upgrade)
	if n := value[int](t, pool, "select count(*) from library.book where title in ('EMMA', 'PERSUASION')"); n != 2 {
		t.Errorf("%d books were upgraded, want 2", n)
	}
}

func waitUntil(t *testing.T, pool *pgxpool.Pool, what, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !value[bool](t, pool, sql) {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
