package ibench

import (
	"testing"
	"testing/synctest"
	"time"
)

// A server that stalls makes what was due meanwhile late, in the next slice too.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var next int64
		var late []time.Duration
		for number := range 2 {
			p := pace{every: 100 * time.Millisecond, began: time.Now(), passed: time.Duration(number) * time.Second, length: time.Second}
			err := p.keep(t.Context(), &next, 0, func(due time.Time) error {
				if next == 2 {
					time.Sleep(1050 * time.Millisecond)
				}
				late = append(late, time.Since(due))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour) // the others' turns
		}
		if len(late) != 20 || next != 20 {
			t.Fatalf("%d operations were done", len(late))
		}
		for i, took := range late {
			want := time.Duration(0)
			switch {
			case i == 2:
				want = 1050 * time.Millisecond
			case i > 2 && i < 10:
				want = time.Second - time.Duration(i)*100*time.Millisecond // due before the second slice began
			}
			if took != want {
				t.Errorf("operation %d was late by %v, not %v", i, took, want)
			}
		}
	})
}

func TestEstimate(t *testing.T) {
	e := estimate([]float64{1, 1.02, 0.98, 1.01, 0.99, 1, 1.03, 0.97})
	if e.Median < 0.999 || e.Median > 1.001 || !e.NoDifference() || e.Low < 0.97 || e.High > 1.03 {
		t.Errorf("%+v", e)
	}
	if e := estimate([]float64{0.5, 0.51, 0.49, 0.5, 0.52, 0.48}); e.NoDifference() || e.High > 0.52 {
		t.Errorf("%+v", e)
	}
	if e := estimate([]float64{1, 0, 1}); e.Median.Known() {
		t.Errorf("a slice without anything is left out: %+v", e)
	}
	if e := estimate(nil); e.Low.Known() {
		t.Errorf("%+v", e)
	}
}

func TestAlike(t *testing.T) {
	facts := func(build ...string) Facts { return Facts{Build: build} }
	fast, small := facts("CFLAGS = -Wall -g -O2 -O3"), facts("CFLAGS = -Os")
	if err := alike([]Facts{fast, facts("CFLAGS = -O3"), fast}); err != nil {
		t.Error(err)
	}
	for _, other := range []Facts{small, facts("CFLAGS = -O3", "CONFIGURE = '--enable-cassert'"), facts()} {
		if alike([]Facts{fast, other}) == nil {
			t.Errorf("%v is compared with %v", fast, other)
		}
	}
}

func TestNames(t *testing.T) {
	sides := []Side{{"15", "plain", Lean, ""}, {"15", "plain", Lean, ""}, {"15", "gnomon", Compatible, ""}, {"15", "plain", Lean, ""}}
	names(sides)
	for i, want := range []string{"plain lean", "plain lean again", "gnomon compatible", "plain lean again 2"} {
		if sides[i].Name != want {
			t.Errorf("%q, not %q", sides[i].Name, want)
		}
	}
}
