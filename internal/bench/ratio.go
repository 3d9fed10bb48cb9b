package bench

import "math"

// Suffixes of the metrics that hold a ratio's interval.
const (
	loSuffix = "-lo"
	hiSuffix = "-hi"
)

// Ratio is a metric that compares two sides: Side's quantity divided by Over's, slice by slice.
type Ratio struct {
	// Metric is its name; the interval's ends have "-lo" and "-hi" appended.
	Metric string

	// Side is the dividend, by default the subject.
	Side string

	// Over is the divisor.
	Over string

	// Of is what is divided, by default Rate.
	Of Quantity
}

// Quantity is what a [Ratio] compares.
type Quantity int

const (
	Rate Quantity = iota // units per second: above 1, Side is the faster one
	Time                 // clients' time per unit, the inverse of Rate: above 1, Side is the slower one
	CPU                  // server CPU per unit
	WAL                  // WAL bytes per unit
)

func (q Quantity) of(s slice) float64 {
	switch q {
	case Time:
		return 1 / s.rate
	case CPU:
		return s.cpu / s.units
	case WAL:
		return s.wal / s.units
	default:
		return s.rate
	}
}

// ratios returns all that the run asks for, with their defaults filled in.
func (r Run) ratios() []Ratio {
	var all []Ratio
	if r.Baseline != "" {
		all = append(all,
			Ratio{Metric: "ratio", Over: r.Baseline},
			Ratio{Metric: "cpu-ratio", Over: r.Baseline, Of: CPU})
	}
	all = append(all, r.Compare...)
	for i := range all {
		if all[i].Side == "" {
			all[i].Side = r.Sides[0].Name
		}
	}
	return all
}

// compare estimates the quotient of two quantities that were measured in pairs. It is not ok when a value is missing
// or not above zero: dropping that pair would favour one side.
func compare(dividends, divisors []float64) (e estimate, ok bool) {
	logs := make([]float64, len(dividends))
	for i := range dividends {
		if !(dividends[i] > 0) || !(divisors[i] > 0) {
			return estimate{}, false
		}
		logs[i] = math.Log(dividends[i] / divisors[i])
	}
	e = estimateMedian(logs)
	return estimate{median: math.Exp(e.median), lo: math.Exp(e.lo), hi: math.Exp(e.hi)}, len(logs) > 0
}
