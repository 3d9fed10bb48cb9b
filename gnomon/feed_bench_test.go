package gnomon_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkFeed reads the changes of all rows of a table: without images and with them, as one change set, and with them by a consumer in
// pages of 1,000. rows/s are changes that Go got; server-rows/s are those that the server computes, in order, when it keeps them to itself.
func BenchmarkFeed(b *testing.B) {
	ctx := b.Context()
	rows := 200_000
	if testing.Short() {
		rows = 20_000
	}
	pool := must[*pgxpool.Pool](b)(pgxpool.New(ctx, bench.Database(b, bench.Server(b, bench.Volatile))))
	defer pool.Close()
	ok(b, gnomon.Install(ctx, pool))
	g := gnomon.New(pool)
	run(b, pool, "create schema shop", "create table shop.items (id int primary key, name text not null, amount bigint not null, at timestamptz not null)",
		fmt.Sprintf("insert into shop.items select i, 'item number ' || i, i, now() from generate_series(1, %d) i", rows), "vacuum analyze shop.items")
	track(b, g, "shop.items")
	run(b, pool, "select annals.tick()")
	from := here(b, g)
	// In transactions of 1,000 rows, with a tick now and then as the heartbeat takes them.
	for i := 0; i < rows; i += 1000 {
		run(b, pool, fmt.Sprintf("update shop.items set amount = amount + 1 where id > %d and id <= %d", i, i+1000))
		if i%10_000 == 0 {
			run(b, pool, "select annals.tick()")
		}
	}
	run(b, pool, "vacuum analyze shop.items", "analyze annals.h1_1", "select annals.tick()")
	rate := func(b *testing.B, name string, took time.Duration) {
		b.ReportMetric(float64(rows)*float64(b.N)/took.Seconds(), name)
	}
	for _, kind := range []struct {
		name     string
		noImages bool
	}{{"changes", true}, {"images", false}} {
		b.Run(kind.name, func(b *testing.B) {
			var inGo, inServer time.Duration
			for range b.N {
				began := time.Now()
				n := 0
				for c, err := range g.Changes(ctx, from, gnomon.Present, gnomon.ChangesOptions{NoImages: kind.noImages}) {
					ok(b, err)
					if c.New.Known() != kind.noImages {
						n++
					}
				}
				inGo += time.Since(began)
				began = time.Now()
				counted := countInServer(b, pool, from, kind.noImages)
				inServer += time.Since(began)
				if n != rows || counted != int64(rows) {
					b.Fatalf("%d and %d changes, want %d", n, counted, rows)
				}
			}
			rate(b, "rows/s", inGo)
			rate(b, "server-rows/s", inServer)
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("pages", func(b *testing.B) {
		var took time.Duration
		for range b.N {
			ok(b, g.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "bench", From: from}))
			n := 0
			began := time.Now()
			ok(b, g.Feed("bench", gnomon.FeedOptions{PageSize: 1000, Drain: true}).Run(ctx, func(_ context.Context, _ pgx.Tx, page gnomon.Page) error {
				n += len(page.Changes)
				return nil
			}))
			took += time.Since(began)
			if n != rows {
				b.Fatalf("%d changes, want %d", n, rows)
			}
			ok(b, g.DropConsumer(ctx, "bench"))
		}
		rate(b, "rows/s", took)
		b.ReportMetric(0, "ns/op")
	})
}

// countInServer has the server compute a change set with all of its columns, and keep it.
func countInServer(b *testing.B, pool *pgxpool.Pool, from gnomon.Ref, noImages bool) (n int64) {
	ok(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
		run(b, tx, "set local work_mem = '64MB'", "set local jit = off")
		query := column[string](b, tx, "select gnomon.changes_query(gnomon.place_of($1), gnomon.place_of('now'), jsonb_build_object('images', $2::boolean))", string(from), !noImages)[0]
		return tx.QueryRow(b.Context(), "select greatest(count(v), count(key), count(old), count(new), count(transaction), count(at), count(login), count(operation)) from ("+query+" offset 0) q").Scan(&n)
	}))
	return n
}
