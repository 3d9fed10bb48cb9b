package ibench

import (
	"fmt"
	"math"
	"strings"
)

// A plot is a drawing in SVG, of a quantity over the time of a step.
type plot struct {
	Title         string
	Width, Height int
	Ticks         []tick
	Lines         []line
	Marks         []mark
}

type tick struct {
	X1, Y1, X2, Y2 float64
	X, Y           float64
	Anchor, Text   string
}

type line struct{ Points, Colour string }

// mark is what happened at a moment.
type mark struct{ Path, Colour string }

type legend struct{ Name, Colour string }

// Colours that can be told apart, by people who see some of them alike as well.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"}

func colour(side int) string { return colours[side%len(colours)] }

func (r *Result) legend() []legend {
	var all []legend
	for i, s := range r.Sides {
		all = append(all, legend{s.Name, colour(i)})
	}
	return all
}

// plots draws throughput and p99 of each step.
func (r *Result) plots() []plot {
	var all []plot
	for _, st := range r.Steps {
		all = append(all,
			st.plot(st.Name+", "+st.Unit, func(p Point) float64 { return float64(p.Rate) }),
			st.plot(st.Name+", p99 in ms", func(p Point) float64 { return float64(p.P99) / 1000 }))
	}
	return all
}

// Where the axes are.
const (
	plotWidth, plotHeight         = 420, 180
	plotLeft, plotRight           = 62.0, 408.0
	plotTop, plotBottom   float64 = 24, 152
)

func (st StepResult) plot(title string, of func(Point) float64) plot {
	p := plot{Title: title, Width: plotWidth, Height: plotHeight}
	var last, top float64
	for _, m := range st.Measures {
		for _, point := range m.Points {
			last = max(last, point.At)
			if value := of(point); Figure(value).Known() {
				top = max(top, value)
			}
		}
	}
	if last == 0 {
		last = 1
	}
	step := niceStep(top / 3)
	top = max(math.Ceil(top/step)*step, step)
	x := func(at float64) float64 { return plotLeft + (plotRight-plotLeft)*at/last }
	y := func(value float64) float64 { return plotBottom - (plotBottom-plotTop)*value/top }
	for value := 0.0; value <= top*1.0001; value += step {
		p.Ticks = append(p.Ticks, tick{X1: plotLeft, X2: plotRight, Y1: y(value), Y2: y(value), X: plotLeft - 6, Y: y(value) + 4, Anchor: "end", Text: axis(value)})
	}
	every := niceStep(last / 5)
	for at := 0.0; at <= last*1.0001; at += every {
		p.Ticks = append(p.Ticks, tick{X1: x(at), X2: x(at), Y1: plotBottom, Y2: plotBottom + 4, X: x(at), Y: plotBottom + 18, Anchor: "middle", Text: axis(at) + " s"})
	}
	for i, m := range st.Measures {
		var points []string
		for _, point := range m.Points {
			value := of(point)
			if !Figure(value).Known() {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(point.At), y(value)))
			// On the axis: the line may be anywhere.
			if point.Vacuums > 0 {
				p.Marks = append(p.Marks, mark{fmt.Sprintf("M%.1f %.1fl4 7h-8z", x(point.At), plotBottom-8), colour(i)})
			}
			if point.Checkpoint > 0 {
				p.Marks = append(p.Marks, mark{fmt.Sprintf("M%.1f %.1fl4 5l-4 5l-4 -5z", x(point.At), plotTop-2), colour(i)})
			}
		}
		p.Lines = append(p.Lines, line{strings.Join(points, " "), colour(i)})
	}
	return p
}

// niceStep returns 1, 2 or 5 times a power of ten, at least as large as wanted.
func niceStep(wanted float64) float64 {
	if !(wanted > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(wanted)))
	for _, times := range []float64{1, 2, 5} {
		if times*power >= wanted*0.9999 {
			return times * power
		}
	}
	return 10 * power
}

// axis writes a value beside an axis.
func axis(value float64) string {
	if value >= 10_000 {
		return fmt.Sprintf("%gk", math.Round(value/100)/10)
	}
	return fmt.Sprintf("%g", math.Round(value*1000)/1000)
}
