package ibench

import (
	"fmt"
	"math"
	"strings"
)

// A table of the report.
type table struct {
	title, text string
	words       int // columns at the left that hold words, by default 1
	head        []string
	rows        [][]cell
}

// cell is a cell; its mark is "worse" or "better" where a ratio is below 0.95 or above 1.05.
type cell struct{ text, mark string }

// tables are those of the report, whatever form it has.
func (r *Result) tables() []table {
	all := []table{r.relative()}
	all = append(all, r.absolute(), r.latencies(), r.costs(), r.spaces(), r.upkeep())
	return all
}

func (r *Result) relative() table {
	t := table{title: "Relative to " + r.Sides[0].Name, text: "Units per second over those of the first side, with a 95 % interval. Below 0.95 and above 1.05 is marked; " +
		"where the interval holds 1 no difference is shown.", head: []string{"step"}}
	for _, s := range r.Sides {
		t.head = append(t.head, s.Name)
	}
	for _, st := range r.Steps {
		row := []cell{{text: st.Name}}
		for i, m := range st.Measures {
			row = append(row, ratio(i, m.Ratio))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// ratio shows a ratio of rates.
func ratio(side int, e Estimate) cell {
	if side == 0 {
		return cell{text: "1"}
	}
	c := cell{text: interval(e)}
	switch {
	case !e.Median.Known():
	case e.NoDifference():
		c.text += " no difference shown"
	case e.Median < 0.95:
		c.mark = "worse"
	case e.Median > 1.05:
		c.mark = "better"
	}
	return c
}

func interval(e Estimate) string {
	if !e.Median.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", e.Median, e.Low, e.High)
}

func (r *Result) absolute() table {
	t := table{title: "Throughput", words: 2, text: "Median over the slices, with its interval. Sides share the machine's good and bad moments: compare within a row.", head: []string{"step", "unit"}}
	for _, s := range r.Sides {
		t.head = append(t.head, s.Name)
	}
	for _, st := range r.Steps {
		row := []cell{{text: st.Name}, {text: st.Unit}}
		for _, m := range st.Measures {
			c := cell{text: fmt.Sprintf("%s (%s to %s)", number(m.Rate.Median), number(m.Rate.Low), number(m.Rate.High))}
			if m.Failed {
				c.text += fmt.Sprintf(" SLA failed: %.0f %% of the writes", m.Achieved*100)
				c.mark = "worse"
			}
			row = append(row, c)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func (r *Result) latencies() table {
	t := table{title: "Latency", words: 3, text: "Milliseconds: half of the operations were quicker than p50, 1 % slower than p99, one in a thousand slower than p99.9. " +
		"Of writes beside queries from when they were due.", head: []string{"step", "operation", "side", "operations", "p50", "p99", "p99.9", "longest"}}
	for _, st := range r.Steps {
		for _, o := range []Operation{Insert, Delete, Query, Build} {
			for i, m := range st.Measures {
				l, ok := m.Latency[o]
				if !ok {
					continue
				}
				ms := func(f Figure) cell { return cell{text: number(f / 1000)} }
				t.rows = append(t.rows, []cell{{text: st.Name}, {text: string(o)}, {text: r.Sides[i].Name}, {text: fmt.Sprint(l.Count)}, ms(l.P50), ms(l.P99), ms(l.P999), ms(l.Max)})
			}
		}
	}
	return t
}

func (r *Result) costs() table {
	t := table{title: "CPU, context switches and WAL", words: 2, text: "The server's CPU is in microseconds a unit, its ratio to the first side's with an interval; by operation it is a row that is inserted or deleted, or a query. " +
		"WAL is in bytes a row that is inserted, with the row that is deleted meanwhile; images are full-page images by 1,000 rows.",
		head: []string{"step", "side", "server CPU", "ratio", "insert", "delete", "query", "client CPU", "switches", "WAL", "ratio", "images"}}
	for _, st := range r.Steps {
		for i, m := range st.Measures {
			by := func(o Operation) cell {
				f, ok := m.CPUBy[o]
				if !ok {
					f = unknown
				}
				return cell{text: number(f)}
			}
			t.rows = append(t.rows, []cell{{text: st.Name}, {text: r.Sides[i].Name}, {text: number(m.CPU)}, {text: interval(m.CPURatio)}, by(Insert), by(Delete), by(Query),
				{text: number(m.ClientCPU)}, {text: number(m.Switches)}, {text: number(m.WAL)}, {text: interval(m.WALRatio)}, {text: number(m.Images)}})
		}
	}
	return t
}

func (r *Result) spaces() table {
	t := table{title: "Sizes after the run", text: "Megabytes.", head: []string{"what"}}
	var names []string
	bytes := map[string][]int64{}
	for i, e := range r.Ends {
		t.head = append(t.head, r.Sides[i].Name)
		for _, s := range e.Spaces {
			if bytes[s.Name] == nil {
				names = append(names, s.Name)
				bytes[s.Name] = make([]int64, len(r.Ends))
			}
			bytes[s.Name][i] = s.Bytes
		}
	}
	for _, name := range names {
		row := []cell{{text: name}}
		for _, n := range bytes[name] {
			text := "-"
			if n > 0 {
				text = number(Figure(float64(n) / 1e6))
			}
			row = append(row, cell{text: text})
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func (r *Result) upkeep() table {
	t := table{title: "Upkeep", words: 2, text: "Dead rows at the end of the step; autovacuum's runs (analyze included) and seconds; vacuums and checkpoints in the side's own slices; the share of updates that changed no index; how far a standby was behind.",
		head: []string{"step", "side", "dead rows", "autovacuums", "seconds", "vacuums", "checkpoints", "HOT", "lag, bytes", "lag, seconds"}}
	for _, st := range r.Steps {
		for i, m := range st.Measures {
			var vacuums, checkpoints int64
			for _, p := range m.Points {
				vacuums += p.Vacuums
				checkpoints += p.Checkpoint
			}
			t.rows = append(t.rows, []cell{{text: st.Name}, {text: r.Sides[i].Name}, {text: fmt.Sprint(m.Dead)}, {text: fmt.Sprint(m.Autovacuums)}, {text: number(m.AutovacuumS)},
				{text: fmt.Sprint(vacuums)}, {text: fmt.Sprint(checkpoints)}, {text: number(m.HOT)}, {text: number(m.LagBytes)}, {text: number(m.LagSeconds)}})
		}
	}
	return t
}

// number shows three digits at least, without an exponent.
func number(f Figure) string {
	if !f.Known() {
		return "-"
	}
	size := math.Abs(float64(f))
	decimals := 0
	switch {
	case size == 0:
	case size < 1:
		decimals = 3
	case size < 10:
		decimals = 2
	case size < 100:
		decimals = 1
	}
	text := fmt.Sprintf("%.*f", decimals, float64(f))
	if decimals > 0 || len(text) < 5 {
		return text
	}
	var groups []string
	for len(text) > 3 {
		groups = append([]string{text[len(text)-3:]}, groups...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, groups...), ",")
}
