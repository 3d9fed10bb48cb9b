package volvra

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/annals-db/annals/internal/history"
)

// Selection says which changes a call is about. All that is given must hold, so each further criterion narrows it. The zero Selection
// is refused with [ErrEmptySelection], so that a criterion forgotten never means every change there is.
//
// What is unknown is refused and never passed over: a table that is not covered is [ErrNotCovered], a column that a selected table does
// not have [ErrNoColumn], a value that its type does not know [ErrValue], and all else that makes no sense [ErrSelection].
//
// As JSON it is what the SQL functions take: see volvra.check_selection.
type Selection struct {
	Tables       []string        `json:"tables,omitempty"`       // names as in SQL, with schema; none: all covered tables
	Keys         []Key           `json:"keys,omitempty"`         // of the one table that Tables names; a change of a key is a change under the old key, and unlike History it does not follow rows to other keys
	From         time.Time       `json:"from,omitzero"`          // the transaction began at or after it
	To           time.Time       `json:"to,omitzero"`            // the transaction began before it
	Since        Moment          `json:"since,omitempty"`        // not seen at this coordinate or mark; times are for From
	UntilV       int64           `json:"until_v,omitempty"`      // position that a preview froze; by itself it selects nothing
	Transactions []TransactionID `json:"transactions,omitempty"` // made by these transactions
	Actor        string          `json:"actor,omitempty"`        // made by this actor, as the application said
	Role         string          `json:"role,omitempty"`         // made by sessions of this role, which can't be forged
	Application  string          `json:"application,omitempty"`  // made with this application_name
	Where        []Condition     `json:"where,omitempty"`        // all hold for the row before or after the change; every selected table must have the columns
	Everything   bool            `json:"everything,omitempty"`   // every change is meant, so nothing else need be given
}

// TransactionID identifies a transaction: its epoch and its transaction id, "1:7001". The epoch grows when the database is
// restored into another cluster or database, where transaction ids begin anew.
type TransactionID string

// Key identifies a row: the values of the columns of the key by which its table is covered, in that order, as texts.
type Key = history.Key

// KeyOf returns the key with these values, one for each column of the key, in its order: see [TableStatus]. Texts, numbers, times, bytes and
// whatever can marshal itself as text are written as PostgreSQL reads them.
func KeyOf(values ...any) Key { return history.KeyOf(values...) }

// Op is how a [Condition] compares.
type Op string

// Comparisons, as their SQL operators mean them: none but IsNull is true of null.
const (
	Equal          Op = "="
	NotEqual       Op = "<>"
	Less           Op = "<"
	LessOrEqual    Op = "<="
	Greater        Op = ">"
	GreaterOrEqual Op = ">="
	IsNull         Op = "is null"     // takes no value
	IsNotNull      Op = "is not null" // takes no value
	In             Op = "in"          // takes a slice
	Like           Op = "like"        // on the column's value as text
)

// Condition compares a column of the row with a value. The value is always a value: whatever it holds, it is never executed.
type Condition struct {
	Column string // as in the catalog, without quotes
	Op     Op
	Value  any // as in KeyOf; of In a slice of such, of IsNull and IsNotNull nil
}

type conditionJSON struct {
	Column string `json:"column"`
	Op     Op     `json:"op"`
	Value  any    `json:"value,omitempty"`
}

// MarshalJSON writes the value as text, or as a list of texts for In.
func (c Condition) MarshalJSON() ([]byte, error) {
	out := conditionJSON{c.Column, c.Op, nil}
	v := reflect.ValueOf(c.Value)
	switch {
	case !v.IsValid():
	case c.Op == In && v.Kind() == reflect.Slice:
		list := make([]string, v.Len())
		for i := range list {
			list[i] = history.Text(v.Index(i).Interface())
		}
		out.Value = list
	default:
		out.Value = history.Text(c.Value)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote: the value is a string, a []string for In, or nil.
func (c *Condition) UnmarshalJSON(data []byte) error {
	var in struct {
		Column string
		Op     Op
		Value  json.RawMessage
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*c = Condition{Column: in.Column, Op: in.Op}
	if in.Value == nil {
		return nil
	}
	if in.Op == In {
		var list []string
		err := json.Unmarshal(in.Value, &list)
		c.Value = list
		return err
	}
	var text string
	err := json.Unmarshal(in.Value, &text)
	c.Value = text
	return err
}
