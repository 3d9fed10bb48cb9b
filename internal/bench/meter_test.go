package bench

import (
	"context"
	"math"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

// needCPU skips where CPU can't be measured: elsewhere than on Linux, or on a server that isn't ours and may be remote.
func needCPU(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || !pgserver.Shared(t).Owned() {
		t.Skip("needs Linux and a local server")
	}
}

func TestCPUIsThatOfTheSidesBackends(t *testing.T) {
	needCPU(t)
	const busy = "select count(*) from generate_series(1, $1::int)"
	pooled := func(ctx context.Context, pool *pgxpool.Pool) (func(int) Op, error) {
		return func(int) Op {
			return func(ctx context.Context) error {
				_, err := pool.Exec(ctx, busy, 20_000)
				return err
			}
		}, nil
	}
	out := measure(t, Run{
		Conn:    pgserver.Database(t),
		Clients: 2,
		Slice:   turnLength,
		Sides: []Side{
			{Name: "busy", Open: query(busy, 20_000)},
			{Name: "pooled", Share: pooled, PoolSize: 1},
			{Name: "idle", Open: query("select pg_sleep(0.002)")},
		},
	})
	busyCPU, pooledCPU, idleCPU := out.lanes[0].cpuMicros(), out.lanes[1].cpuMicros(), out.lanes[2].cpuMicros()
	for name, cpu := range map[string]float64{"busy": busyCPU, "pooled": pooledCPU, "idle": idleCPU} {
		if !(cpu > 0) || math.IsInf(cpu, 0) {
			t.Errorf("CPU per operation of side %s is %v us", name, cpu)
		}
	}
	// No timing: twenty thousand rows against none, whatever the machine.
	if idleCPU >= busyCPU || idleCPU >= pooledCPU {
		t.Errorf("CPU per operation: sleeping %v us, counting rows %v us, through a pool %v us", idleCPU, busyCPU, pooledCPU)
	}
	e, ok := compare(out.lanes[0].each(CPU), out.lanes[2].each(CPU))
	if !ok || !(e.median > 1) {
		t.Errorf("CPU of counting rows over that of sleeping is %+v, %v", e, ok)
	}
}

func TestCPUGrowsWithTheWork(t *testing.T) {
	needCPU(t)
	const busy = "select count(*) from generate_series(1, $1::int)"
	out := measure(t, Run{
		Conn:  pgserver.Database(t),
		Slice: turnLength,
		Sides: []Side{{Name: "twice", Open: query(busy, 40_000)}, {Name: "once", Open: query(busy, 20_000)}},
	})
	e, ok := compare(out.lanes[0].each(CPU), out.lanes[1].each(CPU))
	if !ok || !(e.median > 1.2) || e.median > 10 {
		t.Errorf("twice the rows take %+v (%v) times the CPU", e, ok)
	}
}

func TestCPUIsUnknownWithoutProc(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgserver.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for name, p := range map[string]proc{
		"no /proc":                    "/nonexistent",
		"processes of another server": fakeProc(t, nil),
	} {
		m, err := newMeter(t.Context(), conn, "anything", p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := m.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if cpu := r.cpuSince(r); !math.IsNaN(cpu) {
			t.Errorf("%s: CPU is %v, want unknown", name, cpu)
		}
		if !(r.wal > 0) {
			t.Errorf("%s: WAL position is %v", name, r.wal)
		}
	}
}

func TestCPUSince(t *testing.T) {
	before := reading{cpu: map[int32]float64{1: 10, 2: 5}}
	for _, c := range []struct {
		name  string
		after reading
		want  float64
	}{
		{"both worked", reading{cpu: map[int32]float64{1: 11, 2: 7}}, 3},
		{"one is new", reading{cpu: map[int32]float64{1: 11, 2: 5, 3: 4}}, 5},
		{"one has gone", reading{cpu: map[int32]float64{1: 11}}, 1},
	} {
		if got := c.after.cpuSince(before); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := before.cpuSince(reading{}); !math.IsNaN(got) {
		t.Errorf("since an unknown reading: %v", got)
	}
}

func TestWALIsThatOfTheSide(t *testing.T) {
	db, _ := database(t, "create table t (id bigint generated always as identity, filler text)")
	out := measure(t, Run{
		Conn:  db,
		Slice: turnLength,
		Sides: []Side{
			{Name: "writer", Open: query("insert into t (filler) values (repeat('x', 1000))")},
			{Name: "reader", Open: query("select 1")},
		},
	})
	writer, reader := out.lanes[0].walBytes(), out.lanes[1].walBytes()
	if writer < 1000 {
		t.Errorf("inserting a row of 1000 bytes writes %v bytes of WAL", writer)
	}
	if reader > writer/10 {
		t.Errorf("a reader writes %v bytes of WAL per operation beside a writer of %v", reader, writer)
	}
}

func TestDataIsVacuumedAndAnalyzedFirst(t *testing.T) {
	// Loaded the fast way, on whatever server.
	db, _ := database(t, "set synchronous_commit = off; create table t as select generate_series(1, 500) as n")
	const ready = `select 1 / (reltuples = 500 and relallvisible = relpages)::int from pg_class where oid = 't'::regclass`
	measure(t, Run{Conn: db, Slice: turnLength, Sides: []Side{{Name: "ours", Open: query(ready)}}})
}
