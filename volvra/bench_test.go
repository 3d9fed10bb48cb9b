package volvra_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/bench"
	"github.com/annals-db/annals/volvra"
)

const benchRows = 200_000

// benchTables makes a covered table and an uncovered twin, 200,000 rows of four columns and about 60 bytes each.
func benchTables(b *testing.B) (*volvra.Volvra, *pgxpool.Pool) {
	b.Helper()
	pool, err := pgxpool.New(b.Context(), bench.Database(b, bench.Server(b, bench.Volatile)))
	ok(b, err)
	b.Cleanup(pool.Close)
	ok(b, volvra.Install(b.Context(), pool))
	for _, name := range []string{"item", "twin"} {
		run(b, pool, fmt.Sprintf("create table %s (id int primary key, name text, quantity int, at timestamptz) with (fillfactor = 50)", name),
			fmt.Sprintf("insert into %s select g, 'item number ' || g, g, now() from generate_series(1, %d) g", name, benchRows), "vacuum analyze "+name)
	}
	v := volvra.New(pool)
	cover(b, v, "item")
	return v, pool
}

// benchAgainstUpdate makes a mistake in n rows, times what to do about it, and next to it a plain UPDATE of as many rows of the twin.
func benchAgainstUpdate(b *testing.B, n int, timed func(v *volvra.Volvra, s volvra.Selection) (rows int)) {
	v, pool := benchTables(b)
	where := fmt.Sprintf(" where id %% %d = 0", benchRows/n)
	var took, plain []time.Duration
	for i := 0; b.Loop(); i++ {
		actor := fmt.Sprint("mistake ", i)
		as(b, pool, actor, "update item set quantity = quantity + 1"+where)
		began := time.Now()
		if rows := timed(v, volvra.Selection{Actor: actor, Tables: []string{"public.item"}}); rows != n {
			b.Fatalf("%d rows, not %d", rows, n)
		}
		took = append(took, time.Since(began))
		began = time.Now()
		run(b, pool, "update twin set quantity = quantity + 1"+where)
		plain = append(plain, time.Since(began))
	}
	b.ReportMetric(median(took).Seconds()*1000, "ms")
	b.ReportMetric(median(took).Seconds()/median(plain).Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
	if sum := column[int64](b, pool, "select sum(quantity)::bigint from item"); sum[0] != wantSum(b, pool, n, len(took)) {
		b.Errorf("the table is not what it should be: %d", sum[0])
	}
}

// wantSum is the sum of the quantities when each of so many mistakes was undone, or none.
func wantSum(b *testing.B, pool *pgxpool.Pool, n, mistakes int) int64 {
	sum := int64(benchRows) * (benchRows + 1) / 2
	if column[int64](b, pool, "select count(*) from volvra.attempts(p_action => 'undo')")[0] == 0 {
		sum += int64(n) * int64(mistakes)
	}
	return sum
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func BenchmarkPreview(b *testing.B) {
	for _, n := range []int{10_000, benchRows} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchAgainstUpdate(b, n, func(v *volvra.Volvra, s volvra.Selection) int {
				return must[*volvra.Plan](b)(v.Preview(b.Context(), s)).Counts[volvra.Clean]
			})
		})
	}
}

func BenchmarkUndo(b *testing.B) {
	for _, n := range []int{10_000, benchRows} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchAgainstUpdate(b, n, func(v *volvra.Volvra, s volvra.Selection) int {
				return int(must[*volvra.Result](b)(v.Undo(b.Context(), s, volvra.UndoOptions{MaxRows: volvra.Unlimited})).Rows)
			})
		})
	}
}
