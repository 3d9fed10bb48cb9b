package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper returns a client whose operation takes exactly d of the fake clock.
func sleeper(d time.Duration) *client {
	return newClient(func(context.Context) error { time.Sleep(d); return nil })
}

func TestRateIsOverEachClientsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lane{Side: Side{Units: 2}, clients: []*client{sleeper(70 * time.Millisecond), sleeper(time.Millisecond)}}
		begin := time.Now()
		s, err := l.drive(t.Context(), 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		// The slow client does two operations in 140 ms, the other one a hundred in 100 ms.
		if took := time.Since(begin); took != 140*time.Millisecond {
			t.Errorf("the slice took %v, want 140ms: until the slowest client has finished", took)
		}
		if l.ops != 102 || s.units != 204 {
			t.Errorf("%d operations, %v units, want 102 and 204", l.ops, s.units)
		}
		if want := 2*2/0.140 + 2*100/0.100; math.Abs(s.rate-want) > 1e-6 {
			t.Errorf("rate %v, want %v", s.rate, want)
		}
	})
}

func TestPercentiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Over 20 s: 20,000 operations of 1 ms, 400 of 50 ms and 40 of 500 ms.
		l := &lane{Side: Side{Units: 1}, clients: []*client{
			sleeper(time.Millisecond), sleeper(50 * time.Millisecond), sleeper(500 * time.Millisecond),
		}}
		if _, err := l.drive(t.Context(), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		got := l.percentiles()
		for _, c := range []struct {
			name      string
			got, want float64
		}{{"p50", got.p50, 1e3}, {"p99", got.p99, 50e3}, {"p999", got.p999, 500e3}} {
			if math.Abs(c.got/c.want-1) > 0.002 {
				t.Errorf("%s is %v us, want %v", c.name, c.got, c.want)
			}
		}
	})
}

func TestLatencyBeyondTheHistogram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lane{Side: Side{Units: 1}, clients: []*client{sleeper(time.Hour)}}
		if _, err := l.drive(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if got, want := l.percentiles().p50, float64(longestLatency.Microseconds()); math.Abs(got/want-1) > 0.002 {
			t.Errorf("p50 of an hour's operation is %v us, want the longest latency, %v", got, want)
		}
	})
}

func TestFirstErrorStopsAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		patient := newClient(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		failing := newClient(func(context.Context) error { time.Sleep(time.Second); return broken })
		heedless := sleeper(time.Millisecond)
		l := &lane{clients: []*client{patient, failing, heedless}}
		begin := time.Now()
		_, err := l.drive(t.Context(), time.Hour)
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want the first one", err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("clients went on for %v after another one's error", took)
		}
	})
}
