package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// outcome is what a run measured.
type outcome struct {
	lanes []*lane
	facts string
}

type metric struct {
	name  string
	value float64
}

// metricNames returns the names of all metrics that the run could report.
func (r Run) metricNames() []string {
	names := []string{r.Unit, "ns/op", "cpu-us/op", "wal-B/op", "disk-B/op", "p50-us", "p99-us", "p999-us"}
	for _, ratio := range r.ratios() {
		names = append(names, ratio.Metric, ratio.Metric+loSuffix, ratio.Metric+hiSuffix)
	}
	return names
}

// metrics returns what is reported, without what is hidden or could not be measured.
func (r Run) metrics(o *outcome) []metric {
	var all []metric
	report := func(name string, value float64) {
		if !math.IsNaN(value) && !math.IsInf(value, 0) && !slices.Contains(r.Hide, name) {
			all = append(all, metric{name, value})
		}
	}
	subject := o.lanes[0]
	rate := estimateMedian(subject.each(Rate)).median
	report(r.Unit, rate)
	report("ns/op", 1e9/rate)
	for _, ratio := range r.ratios() {
		if slices.Contains(r.Hide, ratio.Metric) {
			continue
		}
		e, ok := compare(o.lane(ratio.Side).each(ratio.Of), o.lane(ratio.Over).each(ratio.Of))
		if ok {
			report(ratio.Metric, e.median)
			report(ratio.Metric+loSuffix, e.lo)
			report(ratio.Metric+hiSuffix, e.hi)
		}
	}
	report("cpu-us/op", subject.cpuMicros())
	report("wal-B/op", subject.walBytes())
	report("disk-B/op", subject.diskPerOp)
	report("p50-us", subject.percentile.p50)
	report("p99-us", subject.percentile.p99)
	report("p999-us", subject.percentile.p999)
	return all
}

// table shows all sides, which the metrics don't. The testing package keeps only ten lines of it.
func (o *outcome) table(unit string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d CPUs, %d rounds\n", o.facts, runtime.NumCPU(), len(o.lanes[0].slices))
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "side\tclients\t%s\tcpu-us/op\twal-B/op\tdisk-B/op\tp50-us\tp99-us\tp999-us\t\n", unit)
	for _, l := range o.lanes {
		fmt.Fprintf(w, "%s\t%d\t%.5g\t%s\t%s\t%s\t%.5g\t%.5g\t%.5g\t\n", l.Name, len(l.clients), estimateMedian(l.each(Rate)).median,
			known(l.cpuMicros()), known(l.walBytes()), known(l.diskPerOp),
			l.percentile.p50, l.percentile.p99, l.percentile.p999)
	}
	w.Flush()
	return text.String()
}

func known(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.5g", value)
}

func (o *outcome) lane(name string) *lane {
	return o.lanes[slices.IndexFunc(o.lanes, func(l *lane) bool { return l.Name == name })]
}

// each returns a quantity slice by slice.
func (l *lane) each(q Quantity) []float64 {
	values := make([]float64, len(l.slices))
	for i, s := range l.slices {
		values[i] = q.of(s)
	}
	return values
}

func (l *lane) cpuMicros() float64 {
	return l.total(func(s slice) float64 { return s.cpu }) * 1e6 / l.total(func(s slice) float64 { return s.units })
}

func (l *lane) walBytes() float64 {
	return l.total(func(s slice) float64 { return s.wal }) / l.total(func(s slice) float64 { return s.units })
}
