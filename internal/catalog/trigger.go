package catalog

import "slices"

// Trigger is a trigger, one of PostgreSQL's own for constraints included.
type Trigger struct {
	Name       string
	Timing     Timing
	Events     []Event
	Columns    []string // of UPDATE OF; empty: all
	ForEachRow bool     // else for each statement
	When       bool     // has a condition; see Definition
	OldTable   string   // name of the transition table; "" when there is none
	NewTable   string

	Enabled           Firing
	Function          string // qualified and quoted
	FunctionOID       uint32
	Constraint        bool // belongs to a constraint, or is a CONSTRAINT TRIGGER
	Deferrable        bool
	InitiallyDeferred bool
	Internal          bool   // made by PostgreSQL for a constraint
	Cloned            bool   // comes from the partitioned table above
	Definition        string // as CREATE TRIGGER
}

// Fires reports whether the trigger is for an event.
func (t *Trigger) Fires(event Event) bool { return slices.Contains(t.Events, event) }

// Timing is when a trigger fires.
type Timing string

// The timings.
const (
	Before    Timing = "before"
	After     Timing = "after"
	InsteadOf Timing = "instead of"
)

// Event is what a trigger fires on.
type Event string

// The events.
const (
	Insert   Event = "insert"
	Update   Event = "update"
	Delete   Event = "delete"
	Truncate Event = "truncate"
)

// Firing is in which sessions a trigger fires, by session_replication_role.
type Firing string

// The modes of firing.
const (
	FiresOrigin  Firing = "origin"  // but not when changes are replicated: the default
	FiresReplica Firing = "replica" // only when changes are replicated
	FiresAlways  Firing = "always"
	FiresNever   Firing = "disabled"
)

// Policy is a policy of row-level security.
type Policy struct {
	Name       string
	Command    string // all, select, insert, update, delete
	Permissive bool   // else restrictive
	Roles      []string
	Using      string // expression that rows must satisfy to be seen; "" when there is none
	WithCheck  string // expression that new rows must satisfy; "" when there is none
}
