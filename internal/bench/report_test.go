package bench

import (
	"math"
	"strings"
	"testing"
)

// synthetic returns an outcome of two sides in which the subject is twice as fast and needs three times the CPU.
func synthetic() *outcome {
	ours := &lane{Side: Side{Name: "ours"}, diskPerOp: 64, percentile: percentiles{p50: 1, p99: 2, p999: 3}}
	floor := &lane{Side: Side{Name: "floor"}, diskPerOp: math.NaN()}
	for i := range roundsPerIteration {
		machine := float64(100 + i)
		ours.slices = append(ours.slices, slice{units: 20, rate: 2 * machine, cpu: 3e-3, wal: 1000})
		floor.slices = append(floor.slices, slice{units: 10, rate: machine, cpu: 5e-4, wal: 0})
	}
	return &outcome{lanes: []*lane{ours, floor}, facts: "server_version=15.0"}
}

func values(metrics []metric) map[string]float64 {
	byName := map[string]float64{}
	for _, m := range metrics {
		byName[m.name] = m.value
	}
	return byName
}

func comparison() Run {
	return Run{Unit: "transfers/s", Baseline: "floor", Sides: []Side{{Name: "ours"}, {Name: "floor"}}}
}

func TestMetrics(t *testing.T) {
	r := comparison()
	r.Compare = []Ratio{
		{Metric: "vs-floor", Over: "floor"},
		{Metric: "time-ratio", Over: "floor", Of: Time},
		{Metric: "floor-over-ours", Side: "floor", Over: "ours"},
		{Metric: "wal-ratio", Over: "floor", Of: WAL}, // the floor writes none
	}
	got := values(r.metrics(synthetic()))
	want := map[string]float64{
		"transfers/s": 205, "ns/op": 1e9 / 205,
		"ratio": 2, "ratio-lo": 2, "ratio-hi": 2,
		"cpu-ratio": 3, "cpu-ratio-lo": 3, "cpu-ratio-hi": 3,
		"vs-floor": 2, "vs-floor-lo": 2, "vs-floor-hi": 2,
		"time-ratio": 0.5, "time-ratio-lo": 0.5, "time-ratio-hi": 0.5,
		"floor-over-ours": 0.5, "floor-over-ours-lo": 0.5, "floor-over-ours-hi": 0.5,
		"cpu-us/op": 150, "wal-B/op": 50, "disk-B/op": 64, "p50-us": 1, "p99-us": 2, "p999-us": 3,
	}
	for name, value := range want {
		if math.Abs(got[name]/value-1) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected metric %s = %v", name, got[name])
		}
	}
}

func TestWhatIsUnknownIsNotReported(t *testing.T) {
	out := synthetic()
	for i := range out.lanes[0].slices {
		out.lanes[0].slices[i].cpu = math.NaN()
		out.lanes[0].slices[i].wal = math.NaN()
	}
	out.lanes[0].diskPerOp = math.NaN()
	for name, value := range values(comparison().metrics(out)) {
		if strings.HasPrefix(name, "cpu") || strings.HasPrefix(name, "wal") || strings.HasPrefix(name, "disk") {
			t.Errorf("%s = %v", name, value)
		}
	}
	if table := out.table("transfers/s"); strings.Contains(table, "NaN") {
		t.Errorf("unknown figures in the table:\n%s", table)
	}
}

func TestHide(t *testing.T) {
	r := comparison()
	r.Hide = []string{"ratio", "p50-us", "ns/op"}
	got := values(r.metrics(synthetic()))
	for _, name := range []string{"ratio", "ratio-lo", "ratio-hi", "p50-us", "ns/op"} {
		if value, ok := got[name]; ok {
			t.Errorf("hidden metric %s = %v is reported", name, value)
		}
	}
	if _, ok := got["p99-us"]; !ok {
		t.Error("p99-us is not reported although it isn't hidden")
	}
}

func TestTableShowsEverySide(t *testing.T) {
	table := synthetic().table("transfers/s")
	for _, part := range []string{"server_version=15.0", "6 rounds", "transfers/s", "ours", "floor", "150", "102.5"} {
		if !strings.Contains(table, part) {
			t.Errorf("the table does not hold %q:\n%s", part, table)
		}
	}
}
