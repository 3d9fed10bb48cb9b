package bench

import (
	"math"
	"slices"
)

// confidence is that of all intervals.
const confidence = 0.95

// estimate is a median with its interval.
type estimate struct{ median, lo, hi float64 }

// estimateMedian estimates the median of the distribution that values were drawn from, whatever distribution that is.
//
// How many of n independent values lie below the true median is binomial with probability one half. So the k-th smallest
// and the k-th largest value enclose it unless fewer than k values lie on one of its sides, which has a
// known probability: the interval takes the largest k for which that is at most 1 - confidence. Equal chances
// of missing on either side make it symmetric, which benchstat's shorter intervals are not. With
// fewer than six values there is no such k and the interval is infinite.
func estimateMedian(values []float64) estimate {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return estimate{math.NaN(), math.Inf(-1), math.Inf(1)}
	}
	e := estimate{(sorted[(n-1)/2] + sorted[n/2]) / 2, math.Inf(-1), math.Inf(1)}
	if k := intervalRank(n); k > 0 {
		e.lo, e.hi = sorted[k-1], sorted[n-k]
	}
	return e
}

// intervalRank returns the largest k for which at most (1-confidence)/2 is the probability that fewer than k of
// n fair coins show heads.
func intervalRank(n int) int {
	logFactorial := func(i int) float64 {
		value, _ := math.Lgamma(float64(i + 1))
		return value
	}
	fewer := 0.0
	for k := range n {
		fewer += math.Exp(logFactorial(n) - logFactorial(k) - logFactorial(n-k) - float64(n)*math.Ln2)
		if fewer > (1-confidence)/2 {
			return k
		}
	}
	return n
}
