package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

func TestOrderIsBalanced(t *testing.T) {
	for n := 1; n <= 5; n++ {
		first := make([]int, n)
		before := map[[2]int]int{}
		for round := range 2 * n {
			turns := Order(n, round)
			if sorted := slices.Sorted(slices.Values(turns)); len(slices.Compact(sorted)) != n || sorted[0] != 0 || sorted[n-1] != n-1 {
				t.Fatalf("round %d of %d sides is %v: not everybody's turn", round, n, turns)
			}
			first[turns[0]]++
			for i, a := range turns {
				for _, b := range turns[i+1:] {
					before[[2]int{a, b}]++
				}
			}
		}
		for side, times := range first {
			if n > 1 && times != 2 {
				t.Errorf("side %d of %d begins %d of %d rounds", side, n, times, 2*n)
			}
		}
		for pair, times := range before {
			if times != n {
				t.Errorf("%d sides: %d precedes %d in %d of %d rounds", n, pair[0], pair[1], times, 2*n)
			}
		}
	}
	orders := map[string]bool{}
	for round := range roundsPerIteration {
		orders[fmt.Sprint(Order(3, round))] = true
	}
	if len(orders) != 6 {
		t.Errorf("three sides take turns in %d different orders in one iteration, want 6", len(orders))
	}
}

// Sides run one at a time, in the promised order, each with connections that nobody else has.
func TestSidesTakeTurns(t *testing.T) {
	const clients, iterations = 3, 2
	names := []string{"a", "b", "c"}
	var (
		mu    sync.Mutex
		turns []string                // names in the order of operations, repetitions removed
		pids  = map[string][]uint32{} // by side, in the order of clients
	)
	r := Run{Conn: pgserver.Database(t), Clients: clients, Slice: turnLength}
	for _, name := range names {
		r.Sides = append(r.Sides, Side{Name: name, Open: func(_ context.Context, conn *pgx.Conn, client int) (Op, error) {
			if client != len(pids[name]) {
				t.Errorf("client %d of side %s is opened as number %d", client, name, len(pids[name]))
			}
			pids[name] = append(pids[name], conn.PgConn().PID())
			return func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if len(turns) == 0 || turns[len(turns)-1] != name {
					turns = append(turns, name)
				}
				return nil
			}, nil
		}})
	}
	r = r.withDefaults()
	out, err := r.measure(t.Context(), times(iterations))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(names) // the warm-up
	for round := range iterations * roundsPerIteration {
		for _, i := range Order(len(names), round) {
			want = append(want, names[i])
		}
	}
	if want := slices.Compact(want); !slices.Equal(turns, want) {
		t.Errorf("turns %v, want %v", turns, want)
	}
	for _, l := range out.lanes {
		if len(l.slices) != iterations*roundsPerIteration {
			t.Errorf("side %s has %d slices, want %d", l.Name, len(l.slices), iterations*roundsPerIteration)
		}
	}
	distinct := map[uint32]bool{}
	for _, side := range pids {
		for _, pid := range side {
			distinct[pid] = true
		}
	}
	if len(distinct) != clients*len(names) {
		t.Errorf("%d sides of %d clients have %d connections: %v", len(names), clients, len(distinct), pids)
	}
}

func TestUnits(t *testing.T) {
	out := measure(t, Run{
		Conn: pgserver.Database(t), Clients: 3, Slice: turnLength,
		Sides: []Side{{Name: "batches", Units: 10, Open: query("select 1")}},
	})
	l := out.lanes[0]
	var measured int64
	for _, c := range l.clients {
		measured += c.latency.TotalCount()
	}
	if units := l.total(func(s slice) float64 { return s.units }); units != float64(10*measured) {
		t.Errorf("%d operations of ten units count as %v", measured, units)
	}
	if measured >= l.ops {
		t.Errorf("%d operations were measured of %d: the warm-up counts", measured, l.ops)
	}
}

func TestBytesOnDisk(t *testing.T) {
	// What was there before is not growth. (CREATE TABLE AS would leave empty pages at the end, from PostgreSQL 16 on.)
	db, _ := database(t, "create table t (filler text); insert into t select repeat('x', 500) from generate_series(1, 10000)")
	out := measure(t, Run{
		Conn: db, Slice: turnLength,
		Sides: []Side{{
			Name:  "batches",
			Units: 10,
			Open:  query("insert into t select repeat('x', 500) from generate_series(1, 10)"),
			Bytes: func(ctx context.Context, conn *pgx.Conn) (size int64, err error) {
				err = conn.QueryRow(ctx, "select pg_total_relation_size('t')").Scan(&size)
				return size, err
			},
		}},
	})
	if perRow := out.lanes[0].diskPerOp; perRow < 250 || perRow > 2500 {
		t.Errorf("a row of 500 bytes takes %v bytes on disk", perRow)
	}
}

func TestShare(t *testing.T) {
	const clients, poolSize = 8, 2
	var mu sync.Mutex
	pids, seen := map[uint32]bool{}, map[int]bool{}
	var background sync.WaitGroup
	share := func(ctx context.Context, pool *pgxpool.Pool) (func(int) Op, error) {
		background.Go(func() { <-ctx.Done() })
		return func(client int) Op {
			return func(ctx context.Context) error {
				return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
					mu.Lock()
					pids[conn.Conn().PgConn().PID()] = true
					seen[client] = true
					mu.Unlock()
					_, err := conn.Exec(ctx, "select 1")
					return err
				})
			}
		}, nil
	}
	r := Run{
		Conn: pgserver.Database(t), Clients: clients, Slice: turnLength,
		Sides: []Side{{Name: "pooled", Share: share, PoolSize: poolSize}},
	}
	r.Check = func(context.Context, map[string]int64) error {
		background.Wait() // hangs unless the run has ended for what Share started
		return nil
	}
	measure(t, r)
	if len(seen) != clients {
		t.Errorf("%d of %d clients had a turn", len(seen), clients)
	}
	if len(pids) == 0 || len(pids) > poolSize {
		t.Errorf("a pool of %d connections had %d", poolSize, len(pids))
	}
}

func TestOperationErrorNamesTheSide(t *testing.T) {
	broken := errors.New("broken")
	var ops atomic.Int64
	r := Run{
		Conn: pgserver.Database(t), Clients: 3, Slice: turnLength,
		Sides: []Side{
			{Name: "floor", Open: query("select 1")},
			{Name: "ours", Open: func(_ context.Context, conn *pgx.Conn, client int) (Op, error) {
				return func(ctx context.Context) error {
					if client == 1 && ops.Add(1) > 3 {
						return broken
					}
					_, err := conn.Exec(ctx, "select pg_sleep(0.001)")
					return err
				}, nil
			}},
		},
		Check: func(context.Context, map[string]int64) error {
			t.Error("the run was checked although it failed")
			return nil
		},
	}
	_, err := r.withDefaults().measure(t.Context(), times(100))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), `side "ours": client 1: `) {
		t.Errorf("error %v, want one that wraps %q and names side and client", err, broken)
	}
	if failed := testing.Benchmark(r.Benchmark); failed.N != 0 {
		t.Errorf("the benchmark did not fail: %v", failed)
	}
}

func TestOpenErrorNamesTheSide(t *testing.T) {
	broken := errors.New("broken")
	for name, side := range map[string]Side{
		"open":  {Open: func(context.Context, *pgx.Conn, int) (Op, error) { return nil, broken }},
		"share": {Share: func(context.Context, *pgxpool.Pool) (func(int) Op, error) { return nil, broken }},
		"bytes": {
			Open:  query("select 1"),
			Bytes: func(context.Context, *pgx.Conn) (int64, error) { return 0, broken },
		},
	} {
		side.Name = "ours"
		r := Run{Conn: pgserver.Database(t), Slice: turnLength, Sides: []Side{side}}
		_, err := r.withDefaults().measure(t.Context(), times(1))
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), `side "ours"`) {
			t.Errorf("%s: error %v, want one that wraps %q and names the side", name, err, broken)
		}
	}
}

func TestCheck(t *testing.T) {
	db, conn := database(t, "create table t (n int)")
	r := Run{Conn: db, Clients: 2, Slice: turnLength, Sides: []Side{
		{Name: "writer", Open: query("insert into t values (1)")},
		{Name: "reader", Open: query("select from t limit 1")},
	}}
	// All operations are counted, and the connections are closed.
	begin := time.Now()
	r.Check = func(ctx context.Context, ops map[string]int64) error {
		var rows int64
		if err := conn.QueryRow(ctx, "select count(*) from t").Scan(&rows); err != nil {
			return err
		}
		if rows != ops["writer"] || ops["reader"] == 0 {
			t.Errorf("%d rows after %v operations", rows, ops)
		}
		// A backend takes a moment to notice that its client has closed the connection.
		for connections := 1; connections > 0; {
			err := conn.QueryRow(ctx, `select count(*) from pg_stat_activity
				where datname = current_database() and application_name like 'bench %'`).Scan(&connections)
			if err != nil || time.Since(begin) > time.Minute {
				t.Fatalf("%d connections are still open: %v", connections, err)
			}
		}
		return nil
	}
	measure(t, r)

	// A check that fails is the run's error, and fails the benchmark.
	wrong := errors.New("a row is missing")
	r.Check = func(context.Context, map[string]int64) error { return wrong }
	if _, err := r.withDefaults().measure(t.Context(), times(1)); !errors.Is(err, wrong) {
		t.Errorf("error %v, want that of the check", err)
	}
	if failed := testing.Benchmark(r.Benchmark); failed.N != 0 {
		t.Errorf("the benchmark did not fail: %v", failed)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := Run{
		Conn: pgserver.Database(t), Clients: 2, Slice: turnLength,
		Sides: []Side{{Name: "ours", Open: func(_ context.Context, conn *pgx.Conn, client int) (Op, error) {
			return func(ctx context.Context) error {
				if client == 0 {
					cancel()
					return nil // an operation that doesn't look at ctx
				}
				_, err := conn.Exec(ctx, "select pg_sleep(3600)")
				return err
			}, nil
		}}},
	}
	if _, err := r.withDefaults().measure(ctx, times(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// The whole way through the testing package: set-up happens once, and the metrics arrive.
func TestBenchmarkReports(t *testing.T) {
	var opened, checked int
	r := Run{
		Conn: pgserver.Database(t), Clients: 2, Slice: 3 * turnLength, Unit: "queries/s", Baseline: "floor",
		Compare: []Ratio{{Metric: "vs-single", Over: "single"}},
		Hide:    []string{"p999-us"},
		Check:   func(context.Context, map[string]int64) error { checked++; return nil },
	}
	for _, name := range []string{"ours", "floor", "single"} {
		open := query("select 1")
		r.Sides = append(r.Sides, Side{Name: name, Open: func(ctx context.Context, conn *pgx.Conn, client int) (Op, error) {
			opened++
			return open(ctx, conn, client)
		}})
	}
	result := testing.Benchmark(r.Benchmark)
	if result.N == 0 {
		t.Fatal("the benchmark failed")
	}
	if opened != 6 || checked != 1 {
		t.Errorf("clients were opened %d times and the run checked %d times, want 6 and 1", opened, checked)
	}
	for _, name := range []string{"queries/s", "ns/op", "ratio", "ratio-lo", "ratio-hi",
		"vs-single", "vs-single-lo", "vs-single-hi", "p50-us", "p99-us"} {
		if !(result.Extra[name] > 0) {
			t.Errorf("metric %s is %v; all are %v", name, result.Extra[name], result.Extra)
		}
	}
	for name := range maps.Keys(result.Extra) {
		if name == "p999-us" || name == "disk-B/op" {
			t.Errorf("metric %s is reported", name)
		}
	}
}

func TestValidate(t *testing.T) {
	open := query("select 1")
	good := func() Run {
		return Run{Conn: "dbname=d", Baseline: "floor",
			Sides: []Side{{Name: "ours", Open: open}, {Name: "floor", Open: open}}}
	}
	if err := good().withDefaults().validate(); err != nil {
		t.Errorf("a good run: %v", err)
	}
	for want, spoil := range map[string]func(*Run){
		"at least one of Sides":         func(r *Run) { r.Sides = nil },
		"needs a Name":                  func(r *Run) { r.Sides[0].Name = "" },
		`two Sides are named "floor"`:   func(r *Run) { r.Sides[0].Name = "floor" },
		`"ours" needs either Open or`:   func(r *Run) { r.Sides[0].Open = nil },
		`"floor" has no database`:       func(r *Run) { r.Conn = ""; r.Sides[0].Conn = "dbname=d" },
		`"ratio" compares side "base"`:  func(r *Run) { r.Baseline = "base" },
		`"vs" compares side "other"`:    func(r *Run) { r.Compare = []Ratio{{Metric: "vs", Over: "other"}} },
		`"by" compares side "other"`:    func(r *Run) { r.Compare = []Ratio{{Metric: "by", Side: "other", Over: "ours"}} },
		`two metrics are named "ratio"`: func(r *Run) { r.Compare = []Ratio{{Metric: "ratio", Over: "floor"}} },
		`two metrics are named "ns/op"`: func(r *Run) { r.Unit = "ns/op" },
		"must be one word":              func(r *Run) { r.Unit = "rows per second" },
		`"" can't be a metric's name`:   func(r *Run) { r.Compare = []Ratio{{Over: "floor"}} },
		`"p90-us" does not exist`:       func(r *Run) { r.Hide = []string{"p90-us"} },
	} {
		r := good()
		spoil(&r)
		if _, err := r.withDefaults().measure(t.Context(), times(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}
