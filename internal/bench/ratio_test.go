package bench

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestCompareIsMedianAndOrderStatistics(t *testing.T) {
	// The quotients are 1, 2, 4, 8, 16, 32, in disorder.
	e, ok := compare([]float64{80, 4, 10, 320, 2, 8}, []float64{10, 4, 5, 10, 0.125, 2})
	if !ok {
		t.Fatal("compare refused positive values")
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"median", e.median, math.Sqrt(4 * 8)},
		{"lo", e.lo, 1},
		{"hi", e.hi, 32},
	} {
		if math.Abs(c.got/c.want-1) > 1e-12 {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestCompareIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		positive := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e9), n, n)
		a, b := positive.Draw(t, "a"), positive.Draw(t, "b")
		ab, _ := compare(a, b)
		ba, _ := compare(b, a)
		if math.Abs(ab.median*ba.median-1) > 1e-9 {
			t.Fatalf("a/b = %v, b/a = %v", ab.median, ba.median)
		}
		if ab.lo > ab.median || ab.median > ab.hi {
			t.Fatalf("the median %v is outside of %v..%v", ab.median, ab.lo, ab.hi)
		}
		if infinite := n < roundsPerIteration; infinite != math.IsInf(ab.hi, 1) || infinite != (ab.lo == 0) {
			t.Fatalf("%d pairs have interval %v..%v", n, ab.lo, ab.hi)
		}
		if n >= roundsPerIteration && math.Abs(ab.hi*ba.lo-1) > 1e-9 {
			t.Fatalf("upper end of a/b is %v, lower end of b/a is %v", ab.hi, ba.lo)
		}
		if again, _ := compare(a, b); again != ab {
			t.Fatalf("%+v at first, %+v at second", ab, again)
		}
	})
}

func TestDriftCancels(t *testing.T) {
	for sides := 2; sides <= 3; sides++ {
		rates := make([][]float64, sides)
		speed := 1000.0
		for round := range roundsPerIteration {
			for _, i := range Order(sides, round) {
				rates[i] = append(rates[i], speed)
				speed *= 0.97
			}
		}
		for i := 1; i < sides; i++ {
			if e, _ := compare(rates[0], rates[i]); math.Abs(e.median-1) > 1e-9 {
				t.Errorf("%d equal sides on a machine that slows down: ratio 0/%d = %v, want 1", sides, i, e.median)
			}
		}
	}
}

func TestCompareRefusesWhatIsNotPositive(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN()} {
		values, ones := []float64{1, bad, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 1, 1}
		if e, ok := compare(values, ones); ok {
			t.Errorf("a dividend of %v gives %+v", bad, e)
		}
		if e, ok := compare(ones, values); ok {
			t.Errorf("a divisor of %v gives %+v", bad, e)
		}
	}
	if e, ok := compare(nil, nil); ok {
		t.Errorf("no slices give %+v", e)
	}
}

func TestQuantities(t *testing.T) {
	s := slice{units: 50, rate: 200, cpu: 2, wal: 1000}
	for q, want := range map[Quantity]float64{Rate: 200, Time: 0.005, CPU: 0.04, WAL: 20} {
		if got := q.of(s); got != want {
			t.Errorf("quantity %d of %+v = %v, want %v", q, s, got, want)
		}
	}
}
