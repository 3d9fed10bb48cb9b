package ibench

import (
	"context"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

// shared is the server of the tests, for Options.
func shared(t testing.TB) []Server {
	s := pgserver.Shared(t)
	name, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return []Server{{Conn: s.ConnString(name)}}
}

func TestRun(t *testing.T) {
	t.Run("variants", func(t *testing.T) {
		testRun(t, Options{Variants: []string{"plain", "gnomon", "volvra"}, Modes: []Mode{Lean}})
	})
	t.Run("modes", func(t *testing.T) {
		testRun(t, Options{Modes: []Mode{Compatible, Lean}, Clients: 2})
	})
}

func testRun(t *testing.T, o Options) {
	o.Servers, o.Seed = shared(t), 7
	o.Size = Size{Slices: 2, Load: 2_000, Churn: 200, SmallRows: 20, Serve: 40 * time.Millisecond}
	var last Progress
	o.Progress = func(p Progress) {
		if p.Done < last.Done {
			t.Errorf("progress went from %v to %v", last, p)
		}
		last = p
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if last.Done < 0.999 || last.Done > 1.001 {
		t.Errorf("progress ended at %v", last)
	}
	if len(r.Steps) != len(Steps()) {
		t.Fatalf("%d steps", len(r.Steps))
	}
	for _, st := range r.Steps {
		for i, m := range st.Measures {
			if !m.Rate.Median.Known() || !m.Ratio.Median.Known() || m.Latency[stepNamed(st.Name).operation()].Count == 0 {
				t.Errorf("%s, %s: %+v", st.Name, r.Sides[i].Name, m)
			}
		}
	}
	for i, e := range r.Ends {
		history := e.Spaces[len(e.Spaces)-1].Name == "history"
		if history != (r.Sides[i].Variant != "plain") || len(e.Spaces) < 5 {
			t.Errorf("%s takes %v", r.Sides[i].Name, e.Spaces)
		}
	}
}

func stepNamed(name string) step {
	for _, st := range steps(Short) {
		if st.name == name {
			return st
		}
	}
	panic(name)
}
