package bench

import (
	"context"
	_ "embed"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/reading.sql
var readingSQL string

//go:embed sql/flush.sql
var flushSQL string

//go:embed sql/facts.sql
var factsSQL string

// meter reads the server's counters for the backends of one application_name, over a connection of its own.
type meter struct {
	conn        *pgx.Conn
	application string
	proc        proc
	local       bool // the server's processes are among proc's
}

// reading is the state of the counters at one moment.
type reading struct {
	wal float64           // bytes since the beginning of WAL, NaN on a standby
	cpu map[int32]float64 // seconds by backend, nil when not all of them are known
}

func newMeter(ctx context.Context, conn *pgx.Conn, application string, p proc) (*meter, error) {
	m := &meter{conn: conn, application: application, proc: p}
	var pid int32
	var database string
	err := conn.QueryRow(ctx, "select pg_backend_pid(), current_database()").Scan(&pid, &database)
	if err != nil {
		return nil, err
	}
	m.local = p.isBackend(pid, database)
	return m, nil
}

// read must be called while the backends are idle, or their CPU time is that of some moment before.
func (m *meter) read(ctx context.Context) (reading, error) {
	var wal *int64
	var pids []int32
	if err := m.conn.QueryRow(ctx, readingSQL, m.application).Scan(&wal, &pids); err != nil {
		return reading{}, fmt.Errorf("reading the server's counters: %w", err)
	}
	r := reading{wal: math.NaN()}
	if wal != nil {
		r.wal = float64(*wal)
	}
	if !m.local {
		return r, nil
	}
	r.cpu = make(map[int32]float64, len(pids))
	for _, pid := range pids {
		seconds, ok := m.proc.cpuTime(pid)
		if !ok {
			r.cpu = nil
			break
		}
		r.cpu[pid] = seconds
	}
	return r, nil
}

// cpuSince returns the seconds of CPU that the backends have used since before, NaN when unknown. A
// backend that wasn't there before is charged in full: the side made the server start it.
func (r reading) cpuSince(before reading) float64 {
	if r.cpu == nil || before.cpu == nil {
		return math.NaN()
	}
	var seconds float64
	for pid, now := range r.cpu {
		seconds += now - before.cpu[pid]
	}
	return seconds
}

// facts returns the settings without which the figures mean nothing.
func (m *meter) facts(ctx context.Context) (string, error) {
	var facts string
	err := m.conn.QueryRow(ctx, factsSQL).Scan(&facts)
	return facts, err
}

// settle vacuums and analyzes the lanes' databases, each once.
func settle(ctx context.Context, lanes []*lane) error {
	settled := map[string]bool{}
	for _, l := range lanes {
		if settled[l.Conn] {
			continue
		}
		settled[l.Conn] = true
		var standby bool
		if err := l.meter.conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil {
			return err
		}
		if standby {
			continue
		}
		if _, err := l.meter.conn.Exec(ctx, flushSQL); err != nil {
			return fmt.Errorf("side %q: flush before the first slice: %w", l.Name, err)
		}
		if _, err := l.meter.conn.Exec(ctx, "vacuum (analyze)"); err != nil {
			return fmt.Errorf("side %q: vacuum before the first slice: %w", l.Name, err)
		}
	}
	return nil
}
