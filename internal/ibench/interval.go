package ibench

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// Figure is a number, or NaN where it couldn't be measured; that is null in JSON.
type Figure float64

// Known tells whether it was measured.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

func (f *Figure) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*f = unknown
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

var unknown = Figure(math.NaN())

// Estimate is a median with its interval.
type Estimate struct {
	Median Figure `json:"median"`
	Low    Figure `json:"low"`
	High   Figure `json:"high"`
}

// NoDifference tells of a ratio that its interval holds 1.
func (e Estimate) NoDifference() bool { return e.Low <= 1 && 1 <= e.High }

// resamples is how many samples the bootstrap draws.
const resamples = 2000

// estimate draws from the values as often as there are values, again and again, and returns within which bounds 95 % of the medians of those
// draws are. The draws are the same in each run. Values that are not above zero make it unknown: leaving them out would favour one side.
func estimate(values []float64) Estimate {
	logs := make([]float64, len(values))
	for i, value := range values {
		if !(value > 0) || math.IsInf(value, 0) {
			return Estimate{unknown, unknown, unknown}
		}
		logs[i] = math.Log(value)
	}
	if len(logs) == 0 {
		return Estimate{unknown, unknown, unknown}
	}
	random := rand.New(rand.NewPCG(1, uint64(len(logs))))
	medians, draw := make([]float64, resamples), make([]float64, len(logs))
	for i := range medians {
		for j := range draw {
			draw[j] = logs[random.IntN(len(logs))]
		}
		medians[i] = median(draw)
	}
	slices.Sort(medians)
	back := func(log float64) Figure { return Figure(math.Exp(log)) }
	return Estimate{back(median(logs)), back(medians[resamples/40]), back(medians[resamples-1-resamples/40])}
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// quotients divides slice by slice.
func quotients(dividends, divisors []float64) []float64 {
	all := make([]float64, min(len(dividends), len(divisors)))
	for i := range all {
		all[i] = dividends[i] / divisors[i]
	}
	return all
}
