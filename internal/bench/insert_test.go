package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/bench"
)

// BenchmarkInsert measures what a second index costs an insert.
func BenchmarkInsert(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	for _, clients := range []int{1, 4} {
		b.Run(fmt.Sprintf("single/clients=%d", clients), func(b *testing.B) {
			db := bench.Database(b, server)
			createTables(b, db)
			bench.Run{
				Conn:     db,
				Clients:  clients,
				Sides:    []bench.Side{insertInto("indexed"), insertInto("plain")},
				Baseline: "plain",
				Compare:  []bench.Ratio{{Metric: "wal-ratio", Over: "plain", Of: bench.WAL}},
				Unit:     "rows/s",
				Check: func(ctx context.Context, ops map[string]int64) error {
					return checkRows(ctx, db, ops)
				},
			}.Benchmark(b)
		})
	}
}

func insertInto(table string) bench.Side {
	return bench.Side{
		Name: table,
		Open: func(ctx context.Context, conn *pgx.Conn, client int) (bench.Op, error) {
			insert := "insert into " + pgx.Identifier{table}.Sanitize() + " (account, amount) values ($1, $2)"
			account := int64(client)
			return func(ctx context.Context) error {
				account += 7919 // a walk over all accounts, the same on both sides
				_, err := conn.Exec(ctx, insert, account%10_000, 1)
				return err
			}, nil
		},
		Bytes: func(ctx context.Context, conn *pgx.Conn) (size int64, err error) {
			err = conn.QueryRow(ctx, "select pg_total_relation_size(quote_ident($1)::regclass)", table).Scan(&size)
			return size, err
		},
	}
}

func createTables(b *testing.B, db string) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	_, err = conn.Exec(b.Context(), `
		create table plain (id bigint generated always as identity primary key, account bigint, amount bigint);
		create table indexed (like plain including all);
		create index on indexed (account)`)
	if err != nil {
		b.Fatal(err)
	}
}

func checkRows(ctx context.Context, db string, ops map[string]int64) error {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for table, want := range ops {
		var rows int64
		if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{table}.Sanitize()).Scan(&rows); err != nil {
			return err
		}
		if rows != want {
			return fmt.Errorf("%s holds %d rows after %d inserts", table, rows, want)
		}
	}
	return nil
}
