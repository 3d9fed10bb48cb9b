package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   estimate
	}{
		{[]float64{3}, estimate{3, math.Inf(-1), math.Inf(1)}},
		{[]float64{5, 1, 2, 4, 3}, estimate{3, math.Inf(-1), math.Inf(1)}},
		{[]float64{6, 1, 5, 2, 4, 3}, estimate{3.5, 1, 6}},
		{[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, estimate{5, 2, 8}},
	} {
		before := append([]float64(nil), c.values...)
		if got := estimateMedian(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", before, got, c.want)
		}
		for i := range before {
			if c.values[i] != before[i] {
				t.Fatalf("estimating reordered %v into %v", before, c.values)
			}
		}
	}
	if got := estimateMedian(nil); !math.IsNaN(got.median) {
		t.Errorf("the median of nothing is %v", got.median)
	}
}

// The ranks that tables of the sign test give for 95%.
func TestIntervalRank(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 12: 3, 18: 5, 24: 7, 30: 10, 100: 40, 3000: 1446} {
		if got := intervalRank(n); got != want {
			t.Errorf("rank for %d values is %d, want %d", n, got, want)
		}
	}
	if got := intervalRank(roundsPerIteration - 1); got != 0 {
		t.Errorf("%d rounds would be enough for an interval", roundsPerIteration-1)
	}
}

// The interval's promise, for skewed noise that is shared by both slices of a pair and noise that isn't.
func TestIntervalHoldsTheTrueRatio(t *testing.T) {
	const truth, samples = 1.3, 4000
	random := rand.New(rand.NewPCG(1, 2))
	for _, pairs := range []int{roundsPerIteration, 4 * roundsPerIteration} {
		held := 0
		for range samples {
			a, b := make([]float64, pairs), make([]float64, pairs)
			for i := range a {
				machine := 1000 / (1 + random.ExpFloat64())
				a[i] = truth * machine * math.Exp(0.1*random.NormFloat64())
				b[i] = machine * math.Exp(0.3*random.NormFloat64())
			}
			if e, ok := compare(a, b); ok && e.lo <= truth && truth <= e.hi {
				held++
			}
		}
		// The standard deviation of this share is 0.003.
		if share := float64(held) / samples; share < confidence-0.01 || share > 0.99 {
			t.Errorf("intervals of %d pairs hold the true ratio in %.3f of %d samples, want about %v",
				pairs, share, samples, confidence)
		}
	}
}
