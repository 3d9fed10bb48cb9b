package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/bench"
	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
)

// captureLoad is one kind of write, done to a captured table and to the same table without capture.
type captureLoad struct {
	name    string
	options string
	wide    bool
	sql     string // table %s, parameters $1 (the row) and $2 (a value)
	next    func(client, n, clients, rows int, r *rand.Rand) []any
	entries int // by operation
}

func anyRow(_, _, _, rows int, r *rand.Rand) []any {
	return []any{1 + r.IntN(rows), r.Int32()}
}

var captureLoads = []captureLoad{
	{name: "update", sql: "update %s set a = $2 where id = $1", next: anyRow, entries: 1},
	{name: "update-wide", wide: true, sql: "update %s set a = $2 where id = $1", next: anyRow, entries: 1},
	{name: "update-noop", options: `{"skip_noop": true}`, sql: "update %s set a = a where id = $1", next: func(_, _, _, rows int, r *rand.Rand) []any { return []any{1 + r.IntN(rows)} }},
	{name: "insert", sql: "insert into %s values ($1, $2, 'eleven char', 'fourteen chars')", entries: 1, next: func(client, n, _, rows int, r *rand.Rand) []any {
		return []any{rows + 1 + client*20_000_000 + n, r.Int32()}
	}},
	{name: "delete", sql: "delete from %s where id = $1", entries: 1, next: func(client, n, clients, _ int, _ *rand.Rand) []any {
		return []any{1 + n*clients + client}
	}},
}

// BenchmarkCapture compares writes of a captured table with those of the same table uncaptured. ratio is transactions per second over
// uncaptured, for bulk-update time over uncaptured. B/version is what an entry occupies in the history, with index and TOAST.
func BenchmarkCapture(b *testing.B) {
	server := bench.Server(b, bench.Volatile)
	for _, load := range captureLoads {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", load.name, clients), func(b *testing.B) { load.measure(b, server, clients) })
		}
	}
	b.Run("bulk-update/clients=1", func(b *testing.B) {
		bulk := captureLoad{sql: "update %s set a = a + $1"}
		conn, rows := bulk.prepare(b, server, "captured", "plain")
		side := func(table string) bench.Side {
			return bench.Side{Name: table, Units: rows, Open: func(_ context.Context, conn *pgx.Conn, _ int) (bench.Op, error) {
				return func(ctx context.Context) error {
					_, err := conn.Exec(ctx, fmt.Sprintf(bulk.sql, table), 1)
					return err
				}, nil
			}}
		}
		bench.Run{
			Conn: conn, Unit: "rows/s", Sides: []bench.Side{side("captured"), side("plain")},
			Compare: []bench.Ratio{{Metric: "ratio", Side: "plain", Over: "captured"}}, // rows per second the other way round: time
			Check:   weigh(b, conn, rows),
		}.Benchmark(b)
	})
}

func (l captureLoad) measure(b *testing.B, server *pgserver.Server, clients int) {
	tables := []string{"captured", "plain"}
	if l.name == "update-noop" {
		tables = append(tables, "real_captured", "real_plain")
	}
	conn, rows := l.prepare(b, server, tables...)
	run := bench.Run{
		Conn: conn, Clients: clients, Unit: "writes/s", Baseline: "plain", Check: weigh(b, conn, l.entries),
		Sides: []bench.Side{l.side("captured", clients, rows), l.side("plain", clients, rows)},
	}
	if l.name == "update-noop" {
		// What it costs updates that do change something to be looked at.
		real := captureLoads[0]
		run.Sides = append(run.Sides, real.side("real_captured", clients, rows), real.side("real_plain", clients, rows))
		run.Compare = []bench.Ratio{{Metric: "real-ratio", Side: "real_captured", Over: "real_plain"}}
	}
	run.Benchmark(b)
}

func (l captureLoad) side(table string, clients, rows int) bench.Side {
	return bench.Side{Name: table, Open: func(_ context.Context, conn *pgx.Conn, client int) (bench.Op, error) {
		sql, r, n := fmt.Sprintf(l.sql, table), rand.New(rand.NewPCG(1, uint64(client))), 0
		return func(ctx context.Context) error {
			tag, err := conn.Exec(ctx, sql, l.next(client, n, clients, rows, r)...)
			if err == nil && tag.RowsAffected() != 1 {
				err = fmt.Errorf("%d rows were written by operation %d: for a long run there are too few", tag.RowsAffected(), n)
			}
			n++
			return err
		}, nil
	}}
}

// prepare makes the tables: 59 bytes a row, or 4 kB more that do not shrink and are stored out of line.
func (l captureLoad) prepare(b *testing.B, server *pgserver.Server, tables ...string) (conn string, rows int) {
	b.Helper()
	rows = 200_000
	if testing.Short() && l.name != "delete" { // which needs a row for each operation
		rows = 20_000
	}
	conn = bench.Database(b, server)
	pool, err := pgxpool.New(b.Context(), conn)
	ok(b, err)
	defer pool.Close()
	ok(b, history.Install(b.Context(), pool))
	for _, table := range tables {
		exec(b, pool, fmt.Sprintf("create table %s (id int primary key, a int not null, b text not null, c text not null)", table))
		if l.wide {
			exec(b, pool, fmt.Sprintf("alter table %[1]s add w text; alter table %[1]s alter w set storage external", table))
		}
		exec(b, pool, fmt.Sprintf("insert into %s select i, i, 'eleven char', 'fourteen chars'%s from generate_series(1, %d) i", table,
			map[bool]string{true: ", (select string_agg(md5(i::text || k::text), '') from generate_series(1, 125) k)"}[l.wide], rows))
		if table == "captured" || table == "real_captured" {
			track(b, pool, table, l.options)
		}
	}
	return conn, rows
}

// weigh checks that every operation of the captured table left as many entries as it should, and reports their size.
func weigh(b *testing.B, conn string, entries int) func(context.Context, map[string]int64) error {
	return func(ctx context.Context, ops map[string]int64) error {
		pool, err := pgxpool.New(ctx, conn)
		if err != nil {
			return err
		}
		defer pool.Close()
		var found, bytes int64
		if err := pool.QueryRow(ctx, "select count(*), pg_total_relation_size('annals.h1_1') from annals.h1_1").Scan(&found, &bytes); err != nil {
			return err
		}
		if want := ops["captured"] * int64(entries); found != want {
			return fmt.Errorf("%d entries, want %d", found, want)
		}
		if found > 0 {
			b.ReportMetric(float64(bytes)/float64(found), "B/version")
		}
		return nil
	}
}
