package ibench

import (
	"fmt"
	"time"
)

// Size is how much a run does, by side.
type Size struct {
	Slices    int           // of each step, but for l.x, which has six
	Load      int           // rows that l.i0 loads, by client
	Churn     int           // rows that l.i1 inserts and deletes, by client
	SmallRows int           // rows that l.i2 inserts and deletes, by client
	Serve     time.Duration // a slice of the steps with queries
	Wait      time.Duration // after vacuum and checkpoint
}

// Sizes of runs.
var (
	Short  = Size{Slices: 3, Load: 6_000, Churn: 1_500, SmallRows: 300, Serve: 100 * time.Millisecond}                                // checks that everything works
	Quick  = Size{Slices: 12, Load: 120_000, Churn: 24_000, SmallRows: 6_000, Serve: 500 * time.Millisecond, Wait: time.Second}       // a minute
	Normal = Size{Slices: 20, Load: 1_000_000, Churn: 200_000, SmallRows: 40_000, Serve: 2 * time.Second, Wait: 5 * time.Second}      // some minutes
	Full   = Size{Slices: 60, Load: 10_000_000, Churn: 2_000_000, SmallRows: 400_000, Serve: 10 * time.Second, Wait: 1 * time.Minute} // hours
)

type kind int

const (
	load kind = iota
	build
	churn
	settle
	ranges
	points
)

// A step is a part of the benchmark that is reported by itself.
type step struct {
	name  string
	kind  kind
	batch int // rows in a transaction
	rows  int // in all slices, by client
	rate  int // rows a second that are inserted, and deleted, by client
}

// Steps are the names of all steps that are reported, in their order.
func Steps() []string {
	var names []string
	for _, s := range steps(Short) {
		if s.kind != settle {
			names = append(names, s.name)
		}
	}
	return names
}

func steps(size Size) []step {
	all := []step{
		{name: "l.i0", kind: load, batch: 100, rows: size.Load},
		{name: "l.x", kind: build},
		{name: "l.i1", kind: churn, batch: 50, rows: size.Churn},
		{name: "l.i2", kind: churn, batch: 5, rows: size.SmallRows},
		{name: "settle", kind: settle},
	}
	for _, rate := range []int{100, 500, 1000} {
		batch := min(50, rate/10)
		all = append(all,
			step{name: fmt.Sprint("qr", rate), kind: ranges, batch: batch, rate: rate},
			step{name: fmt.Sprint("qp", rate), kind: points, batch: batch, rate: rate})
	}
	return all
}

// unit is what is counted by the second.
func (s step) unit() string {
	if s.kind == ranges || s.kind == points {
		return "queries/s"
	}
	return "rows/s"
}

// operation is the one that the unit counts.
func (s step) operation() Operation {
	switch s.kind {
	case build:
		return Build
	case ranges, points:
		return Query
	}
	return Insert
}

// slices is how many turns each side has.
func (s step) slices(size Size) int {
	switch s.kind {
	case settle:
		return 1
	case build:
		return 2 * len(indexes)
	}
	return size.Slices
}

// transactions is how many of them a slice of a step with a number of rows has.
func (s step) transactions(size Size) int {
	return max(1, s.rows/size.Slices/s.batch)
}

// Operation is what a connection does.
type Operation string

// What connections do.
const (
	Insert Operation = "insert" // a transaction
	Delete Operation = "delete" // a transaction
	Query  Operation = "query"
	Build  Operation = "build" // an index
)

type index struct{ name, columns string }

// indexes are those that l.x builds.
var indexes = []index{
	{"market", "productid, customerid, price"},
	{"register", "cashregisterid, customerid, price"},
	{"price", "price, dateandtime, customerid"},
}
