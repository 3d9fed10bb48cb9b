package ibench

import (
	"encoding/json"
	"io"
	"time"
)

// Result is what a run measured. It is the report as JSON.
type Result struct {
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took"`
	Command  string        `json:"command"`
	Seed     uint64        `json:"seed"`
	Clients  int           `json:"clients"`
	Size     Size          `json:"size"`
	CPUs     int           `json:"cpus"`
	Load     string        `json:"load"` // load average before and after the run; empty where it isn't known
	Servers  []Facts       `json:"servers"`
	Sides    []Side        `json:"sides"`
	Steps    []StepResult  `json:"steps"`
	Ends     []End         `json:"ends"`     // by side
	Notes    []string      `json:"notes"`    // what the reader should know
	Settling []Figure      `json:"settling"` // seconds that vacuum, checkpoint and the wait took, by side
}

// StepResult is what was measured in a step.
type StepResult struct {
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Measures []Measure `json:"measures"` // by side
}

// Measure is what was measured of a side in a step.
type Measure struct {
	Rate     Estimate `json:"rate"`     // units per second
	Ratio    Estimate `json:"ratio"`    // of the rate, to the first side's
	CPU      Figure   `json:"cpu"`      // of the server, microseconds a unit
	CPURatio Estimate `json:"cpuRatio"` // to the first side's

	CPUBy     map[Operation]Figure `json:"cpuBy"`     // of the server, microseconds a row that is inserted or deleted, or a query
	ClientCPU Figure               `json:"clientCPU"` // microseconds a unit
	Switches  Figure               `json:"switches"`  // of context, a unit
	WAL       Figure               `json:"wal"`       // bytes a row that is inserted, with all that is deleted meanwhile
	WALRatio  Estimate             `json:"walRatio"`  // to the first side's
	Images    Figure               `json:"images"`    // full-page images in WAL, by 1,000 rows that are inserted

	Latency map[Operation]Latency `json:"latency"`

	Achieved Figure `json:"achieved"` // share of the insertions and deletions beside queries that were done in time
	Failed   bool   `json:"failed"`   // it is under 95 %

	Dead        int64  `json:"dead"`        // rows that are dead at the end
	HOT         Figure `json:"hot"`         // share of the updates that changed no index; there are some in histories only
	Autovacuums int64  `json:"autovacuums"` // of tables, analyze included
	AutovacuumS Figure `json:"autovacuumS"` // seconds that they took; known since PostgreSQL 18
	LagBytes    Figure `json:"lagBytes"`    // the most that a standby was behind in replay
	LagSeconds  Figure `json:"lagSeconds"`

	Points []Point `json:"points"` // slice by slice
}

// Latency is in microseconds.
type Latency struct {
	Count int64  `json:"count"`
	P50   Figure `json:"p50"`
	P99   Figure `json:"p99"`
	P999  Figure `json:"p999"`
	Max   Figure `json:"max"`
}

// Point is a slice on the time line.
type Point struct {
	At         float64 `json:"at"` // seconds of the side's own time in the step
	Rate       Figure  `json:"rate"`
	P99        Figure  `json:"p99"` // microseconds
	Vacuums    int64   `json:"vacuums"`
	Checkpoint int64   `json:"checkpoints"`
}

// End is what a side left behind.
type End struct {
	Spaces []Space `json:"spaces"`
}

// WriteJSON writes the result, [ReadJSON] reads it.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ReadJSON reads a result.
func ReadJSON(from io.Reader) (*Result, error) {
	r := new(Result)
	return r, json.NewDecoder(from).Decode(r)
}
