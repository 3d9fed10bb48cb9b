package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// roundsPerIteration is how many rounds one iteration of the benchmark has. Six is the smallest number of
// quotients whose extremes are a 95% interval for their median, and how many orders three sides have.
const roundsPerIteration = 6

// quickDivisor is how much shorter slices are under -short.
const quickDivisor = 6

// Run is a comparison of sides. Sides and Conn are required.
type Run struct {
	// Conn is the connection string of the database.
	Conn string

	// Clients is how many clients each side has, by default 1.
	Clients int

	// Sides are what is compared. The first is the subject, whose figures are reported.
	Sides []Side

	// Baseline names the side that ratio and cpu-ratio divide by. Empty: there are no such metrics.
	Baseline string

	// Compare asks for further ratios.
	Compare []Ratio

	// Unit is the name of the throughput metric, by default "units/s".
	Unit string

	// Hide lists metrics not to report. A ratio's interval is hidden with it.
	Hide []string

	// Slice is how long a side has its turn, by default 125 ms, and a sixth of it under -short. Every
	// client finishes at least one operation per slice, however long that takes.
	Slice time.Duration

	// Check is called after the last slice, when all sides' connections are closed. It gets the number of
	// operations that each side did, warm-up included (all of them succeeded), and fails the benchmark
	// if what they left in the database is not right.
	Check func(ctx context.Context, ops map[string]int64) error
}

// Benchmark measures and reports the run as the (sub-)benchmark b. It fails b, naming side and client, on an
// operation's error, and on that of Check. It is called once per b and has b.Loop for itself.
//
// Before the first slice all data is vacuumed and analyzed, so that every side starts with the statistics
// and the visibility map that autovacuum, which would come at a random moment, would have given it.
func (r Run) Benchmark(b *testing.B) {
	b.Helper()
	r = r.withDefaults()
	if testing.Short() {
		r.Slice /= quickDivisor
	}
	outcome, err := r.measure(b.Context(), b.Loop)
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	if testing.Verbose() {
		b.Log(outcome.table(r.Unit))
	}
	for _, m := range r.metrics(outcome) {
		b.ReportMetric(m.value, m.name)
	}
}

func (r Run) withDefaults() Run {
	r.Sides = slices.Clone(r.Sides)
	r.Clients = max(r.Clients, 1)
	for i := range r.Sides {
		side := &r.Sides[i]
		side.Units = max(side.Units, 1)
		if side.PoolSize <= 0 {
			side.PoolSize = r.Clients
		}
		if side.Conn == "" {
			side.Conn = r.Conn
		}
	}
	if r.Unit == "" {
		r.Unit = "units/s"
	}
	if r.Slice <= 0 {
		r.Slice = 125 * time.Millisecond
	}
	return r
}

// validate finds the mistakes that would otherwise surface as a metric that is silently missing.
func (r Run) validate() error {
	if len(r.Sides) == 0 {
		return errors.New("a Run needs at least one of Sides")
	}
	seen := map[string]bool{}
	for _, side := range r.Sides {
		switch {
		case side.Name == "":
			return errors.New("every Side needs a Name")
		case seen[side.Name]:
			return fmt.Errorf("two Sides are named %q", side.Name)
		case (side.Open == nil) == (side.Share == nil):
			return fmt.Errorf("side %q needs either Open or Share", side.Name)
		case side.Conn == "":
			return fmt.Errorf("side %q has no database: set Run.Conn", side.Name)
		}
		seen[side.Name] = true
	}
	for _, ratio := range r.ratios() {
		for _, name := range []string{ratio.Side, ratio.Over} {
			if !seen[name] {
				return fmt.Errorf("metric %q compares side %q, which is not among Sides", ratio.Metric, name)
			}
		}
	}
	names := map[string]bool{}
	for _, name := range r.metricNames() {
		switch {
		case name == "" || strings.ContainsAny(name, " \t\r\n"):
			return fmt.Errorf("%q can't be a metric's name: it must be one word", name)
		case names[name]:
			return fmt.Errorf("two metrics are named %q", name)
		}
		names[name] = true
	}
	for _, name := range r.Hide {
		if !names[name] {
			return fmt.Errorf("hidden metric %q does not exist", name)
		}
	}
	return nil
}

// measure runs rounds for as long as loop says so.
func (r Run) measure(ctx context.Context, loop func() bool) (*outcome, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	lanes, closeLanes, err := r.open(ctx)
	defer closeLanes()
	if err != nil {
		return nil, err
	}
	out := &outcome{lanes: lanes}
	if out.facts, err = lanes[0].meter.facts(ctx); err != nil {
		return nil, err
	}
	if err := settle(ctx, lanes); err != nil {
		return nil, err
	}
	for _, l := range lanes {
		if err := l.warmUp(ctx, r.Slice); err != nil {
			return nil, err
		}
	}
	round := 0
	for loop() {
		for range roundsPerIteration {
			for _, i := range Order(len(lanes), round) {
				if err := lanes[i].measure(ctx, r.Slice); err != nil {
					return nil, err
				}
			}
			round++
		}
	}
	ops := map[string]int64{}
	for _, l := range lanes {
		if err := l.finish(ctx); err != nil {
			return nil, err
		}
		ops[l.Name] = l.ops
	}
	closeLanes()
	if r.Check != nil {
		if err := r.Check(ctx, ops); err != nil {
			return nil, fmt.Errorf("check after the run: %w", err)
		}
	}
	return out, nil
}

// Order returns in which order n sides take their turns in a round. The first side rotates, so that each
// comes first equally often, and every other round goes backwards, so that of any two sides each precedes
// the other in half of the rounds: a steady drift then cancels.
func Order(n, round int) []int {
	turns := make([]int, n)
	for i := range turns {
		turns[i] = (i + round/2) % n
	}
	if round%2 == 1 {
		slices.Reverse(turns)
	}
	return turns
}
