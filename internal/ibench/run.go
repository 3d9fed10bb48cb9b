package ibench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/annals-db/annals/internal/bench"
)

// Options of a run. Servers are required.
type Options struct {
	Servers  []Server
	Variants []string // plain, gnomon or volvra, by default plain. One that comes twice is compared with itself
	Modes    []Mode   // by default Lean
	Clients  int      // by default 1
	Seed     uint64
	Size     Size // by default Quick

	// AnyBuild compares servers that were optimised differently.
	AnyBuild bool

	// Progress is called after each slice.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Step string
	Side string
	Done float64 // share of the whole run
	Rate float64 // of the last slice
	Unit string
	Left time.Duration // estimated
}

// Run runs the benchmark. It returns [ErrBuilds] for servers that should not be compared, and an error where what is in the tables is not what
// should be.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if o.Size == (Size{}) {
		o.Size = Quick
	}
	o.Clients = max(o.Clients, 1)
	if len(o.Variants) == 0 {
		o.Variants = []string{"plain"}
	}
	if len(o.Modes) == 0 {
		o.Modes = []Mode{Lean}
	}
	r := &run{Options: o, began: time.Now(), result: &Result{Seed: o.Seed, Clients: o.Clients, Size: o.Size, CPUs: runtime.NumCPU(), Load: loadAverage()}}
	r.result.Began = r.began
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	for _, st := range steps(o.Size) {
		if err := r.step(ctx, st); err != nil {
			return nil, fmt.Errorf("%s: %w", st.name, err)
		}
	}
	notes := map[string]bool{}
	for _, l := range r.lanes {
		spaces, err := l.sizes(ctx)
		if err != nil {
			return nil, err
		}
		r.result.Ends = append(r.result.Ends, End{spaces})
		maps.Copy(notes, l.notes)
	}
	if slices.ContainsFunc(r.result.Servers, func(f Facts) bool { return f.built() == "unknown" }) && len(r.result.Servers) > 1 {
		notes["How a server was built is not known: the role may not read it."] = true
	}
	r.result.Notes = slices.Sorted(maps.Keys(notes))
	r.result.Took = time.Since(r.began)
	if r.result.Load != "" {
		r.result.Load += ", then " + loadAverage()
	}
	return r.result, nil
}

// run is a run in progress.
type run struct {
	Options
	began  time.Time
	lanes  []*lane
	done   float64 // seconds of turns, as planned
	result *Result
}

func (r *run) open(ctx context.Context) error {
	if len(r.Servers) == 0 {
		return errors.New("ibench: no server")
	}
	var sides []Side
	servers := map[string]int{}
	for i := range r.Servers {
		s := &r.Servers[i]
		facts, err := s.facts(ctx)
		if err != nil {
			return err
		}
		if _, taken := servers[s.Name]; taken {
			s.Name = fmt.Sprint(s.Name, " (", i+1, ")")
			facts.Server = s.Name
		}
		servers[s.Name] = i
		r.result.Servers = append(r.result.Servers, facts)
	}
	if err := alike(r.result.Servers); err != nil {
		if !r.AnyBuild {
			return err
		}
		r.result.Notes = append(r.result.Notes, err.Error())
	}
	for _, mode := range r.Modes {
		if mode != Compatible && mode != Lean {
			return fmt.Errorf("ibench: mode %q is neither %s nor %s", mode, Compatible, Lean)
		}
		for _, variant := range r.Variants {
			if _, known := variants[variant]; !known {
				return fmt.Errorf("ibench: variant %q is none of %s", variant, strings.Join(slices.Sorted(maps.Keys(variants)), ", "))
			}
			for _, s := range r.Servers {
				sides = append(sides, Side{Server: s.Name, Variant: variant, Mode: mode})
			}
		}
	}
	names(sides)
	r.result.Sides = sides
	for _, side := range sides {
		i := servers[side.Server]
		l, err := openLane(ctx, &r.Servers[i], r.result.Servers[i], side, r.Clients, r.Seed)
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
	}
	return nil
}

func (r *run) end() error {
	var errs []error
	for _, l := range r.lanes {
		errs = append(errs, l.end())
	}
	return errors.Join(errs...)
}

// step lets all sides take their turns in a step.
func (r *run) step(ctx context.Context, st step) error {
	count := st.slices(r.Size)
	turns := make([][]slice, len(r.lanes))
	latency := make([]map[Operation]*hdrhistogram.Histogram, len(r.lanes))
	for i := range latency {
		latency[i] = map[Operation]*hdrhistogram.Histogram{}
	}
	settling := make([]Figure, len(r.lanes))
	for number := range count {
		for _, i := range bench.Order(len(r.lanes), number) {
			l := r.lanes[i]
			if st.kind == settle {
				began := time.Now()
				if err := l.settle(ctx, r.Size.Wait); err != nil {
					return fmt.Errorf("%s: %w", l.Name, err)
				}
				settling[i] = Figure(time.Since(began).Seconds())
				r.progress(st, l, slice{})
				continue
			}
			s, err := l.turn(ctx, st, r.Size, number)
			if err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
			turns[i] = append(turns[i], s)
			for _, c := range l.clients {
				for o, h := range c.latency {
					if h.TotalCount() == 0 {
						continue
					}
					if latency[i][o] == nil {
						latency[i][o] = newHistogram()
					}
					latency[i][o].Merge(h)
				}
			}
			r.progress(st, l, s)
		}
	}
	for _, l := range r.lanes {
		if err := l.check(ctx); err != nil {
			return fmt.Errorf("%s: check: %w", l.Name, err)
		}
	}
	if st.kind == settle {
		r.result.Settling = settling
		return nil
	}
	out := StepResult{Name: st.name, Unit: st.unit()}
	for i, l := range r.lanes {
		m := measure(st, turns[i], turns[0], latency[i])
		if st.rate > 0 {
			due := float64(st.rate) * r.Size.Serve.Seconds() * float64(count)
			for _, c := range l.clients {
				for _, n := range []int64{c.insertions, c.deletions} {
					m.Achieved = Figure(math.Min(float64(m.Achieved), float64(n)*float64(st.batch)/due))
				}
			}
			m.Failed = m.Achieved < 0.95
		}
		out.Measures = append(out.Measures, m)
	}
	r.result.Steps = append(r.result.Steps, out)
	return nil
}

// measure sums up a side's slices, beside those of the first side.
func measure(st step, turns, first []slice, latency map[Operation]*hdrhistogram.Histogram) Measure {
	each := func(turns []slice, of func(slice) float64) []float64 {
		values := make([]float64, len(turns))
		for i, s := range turns {
			values[i] = of(s)
		}
		return values
	}
	sum := func(of func(slice) float64) (total float64) {
		for _, s := range turns {
			total += of(s)
		}
		return total
	}
	rate := func(s slice) float64 { return s.units / s.seconds }
	cpu := func(s slice) float64 { return s.serverCPU() / s.units }
	wal := func(s slice) float64 { return s.wal / s.rows }
	units, rows := sum(func(s slice) float64 { return s.units }), sum(func(s slice) float64 { return s.rows })
	m := Measure{
		Rate:      estimate(each(turns, rate)),
		Ratio:     estimate(quotients(each(turns, rate), each(first, rate))),
		CPU:       Figure(sum(slice.serverCPU) * 1e6 / units),
		CPURatio:  estimate(quotients(each(turns, cpu), each(first, cpu))),
		ClientCPU: Figure(sum(func(s slice) float64 { return s.client }) * 1e6 / units),
		Switches:  Figure(sum(func(s slice) float64 { return s.switches }) / units),
		WAL:       Figure(sum(func(s slice) float64 { return s.wal }) / rows),
		WALRatio:  estimate(quotients(each(turns, wal), each(first, wal))),
		Images:    Figure(sum(func(s slice) float64 { return s.images }) * 1000 / rows),
		CPUBy:     map[Operation]Figure{},
		Latency:   map[Operation]Latency{},
		Achieved:  1,
		HOT:       unknown,
		LagBytes:  unknown, LagSeconds: unknown, AutovacuumS: unknown,
	}
	for _, o := range []Operation{Insert, Delete, Query} {
		h := latency[o]
		if h == nil {
			continue
		}
		of := rows
		if o == Query {
			of = units
		}
		m.CPUBy[o] = Figure(sum(func(s slice) float64 {
			if s.cpu == nil {
				return math.NaN()
			}
			return s.cpu[o]
		}) * 1e6 / of)
	}
	for o, h := range latency {
		at := func(q float64) Figure { return Figure(float64(h.ValueAtQuantile(q)) / 1000) }
		m.Latency[o] = Latency{Count: h.TotalCount(), P50: at(50), P99: at(99), P999: at(99.9), Max: Figure(float64(h.Max()) / 1000)}
	}
	var passed float64
	for _, s := range turns {
		m.Points = append(m.Points, Point{At: passed, Rate: Figure(rate(s)), P99: Figure(s.p99), Vacuums: s.vacuums, Checkpoint: s.checks})
		passed += s.seconds
		m.LagBytes = larger(m.LagBytes, s.lagBytes)
		m.LagSeconds = larger(m.LagSeconds, s.lag)
	}
	begin, end := turns[0].before, turns[len(turns)-1].after
	m.Dead = end.dead
	m.Autovacuums = end.autovacuums - begin.autovacuums
	if millis := end.autovacuumMillis - begin.autovacuumMillis; end.autovacuumMillis > 0 {
		m.AutovacuumS = Figure(millis / 1000)
	}
	if updated := end.updated - begin.updated; updated > 0 {
		m.HOT = Figure(float64(end.hot-begin.hot) / float64(updated))
	}
	return m
}

func larger(f Figure, value float64) Figure {
	if !f.Known() || value > float64(f) {
		return Figure(value)
	}
	return f
}

// plannedSeconds is about how long a turn takes, for the estimate of what is left.
func plannedSeconds(st step, size Size) float64 {
	switch st.kind {
	case settle:
		return 1 + size.Wait.Seconds()
	case build:
		return float64(size.Load) / 500_000
	case ranges, points:
		return size.Serve.Seconds() + 0.02
	case churn:
		return float64(st.rows/size.Slices)/float64(1000*math.Sqrt(float64(st.batch))) + 0.02
	}
	return float64(st.rows/size.Slices)/50_000 + 0.02
}

func (r *run) progress(st step, l *lane, s slice) {
	r.done += plannedSeconds(st, r.Size)
	if r.Progress == nil {
		return
	}
	var all float64
	for _, st := range steps(r.Size) {
		all += plannedSeconds(st, r.Size) * float64(st.slices(r.Size)*len(r.lanes))
	}
	p := Progress{Step: st.name, Side: l.Name, Done: r.done / all, Unit: st.unit()}
	if s.seconds > 0 {
		p.Rate = s.units / s.seconds
	}
	p.Left = time.Duration(float64(time.Since(r.began)) * (1 - p.Done) / p.Done)
	r.Progress(p)
}

// loadAverage returns the three load averages of Linux, nothing on other systems.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(content))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
