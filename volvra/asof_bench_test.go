package volvra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/bench"
	"github.com/annals-db/annals/volvra"
)

// BenchmarkAsOf compares reading a table as it was with reading it as it is: one row by its key, and all of its rows, a tenth of which have
// changed since.
func BenchmarkAsOf(b *testing.B) {
	ctx := b.Context()
	rows := 200_000
	if testing.Short() {
		rows = 20_000
	}
	server := bench.Server(b, bench.Volatile)
	conn := bench.Database(b, server)
	pool := must[*pgxpool.Pool](b)(pgxpool.New(ctx, conn))
	defer pool.Close()
	ok(b, volvra.Install(ctx, pool))
	v := volvra.New(pool)
	run(b, pool, "create schema shop", "create table shop.items (id int primary key, name text not null, amount bigint not null, at timestamptz not null)",
		fmt.Sprintf("insert into shop.items select i, 'item number ' || i, i, now() from generate_series(1, %d) i", rows))
	cover(b, v, "shop.items")
	run(b, pool, "update shop.items set amount = amount + 1", "select annals.tick()", "vacuum analyze shop.items")
	at := must[volvra.Moment](b)(v.Coordinate(ctx))
	run(b, pool, "update shop.items set amount = amount + 1 where id % 10 = 0", "vacuum analyze shop.items", "analyze annals.h1_1")
	if n := column[int64](b, pool, "select sum(amount - id)::bigint from volvra.as_of(null::shop.items, $1::text)", string(at)); n[0] != int64(rows) {
		b.Fatalf("the sum of the past is off by %d", n[0]-int64(rows))
	}
	reader := func(sql string, args func() []any) func(context.Context, *pgx.Conn, int) (bench.Op, error) {
		return func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
			return func(ctx context.Context) error {
				rows, err := c.Query(ctx, sql, args()...)
				if err != nil {
					return err
				}
				rows.Close()
				return rows.Err()
			}, nil
		}
	}
	type item struct {
		ID     int
		Name   string
		Amount int64
		At     time.Time
	}
	id := func() int { return 1 + rand.IntN(rows) }
	b.Run("point", func(b *testing.B) {
		bench.Run{Conn: conn, Baseline: "now", Unit: "reads/s", Sides: []bench.Side{
			{Name: "past", Open: func(_ context.Context, c *pgx.Conn, _ int) (bench.Op, error) {
				v := volvra.New(c)
				return func(ctx context.Context) error {
					_, _, err := volvra.AsOfRow[item](ctx, v, "shop.items", volvra.KeyOf(id()), at)
					return err
				}, nil
			}},
			{Name: "past in SQL", Open: reader("select * from volvra.as_of_row(null::shop.items, $1, $2::text)", func() []any { return []any{volvra.KeyOf(id()), string(at)} })},
			{Name: "now", Open: reader("select * from shop.items where id = $1", func() []any { return []any{id()} })},
		}}.Benchmark(b)
	})
	b.Run("table", func(b *testing.B) {
		bench.Run{Conn: conn, Baseline: "now", Unit: "rows/s", Sides: []bench.Side{
			{Name: "past", Units: rows, Open: reader("select * from volvra.as_of(null::shop.items, $1::text)", func() []any { return []any{string(at)} })},
			{Name: "now", Units: rows, Open: reader("select * from shop.items", func() []any { return nil })},
		}}.Benchmark(b)
	})
}
