package history

import (
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// What can be refused. Every refusal is an [*Error] that matches one of these; the database raises the SQLSTATE named beside it.
var (
	// ErrTruncate: the options of the table refuse TRUNCATE (AN001).
	ErrTruncate = errors.New("TRUNCATE refused")
	// ErrIsolation: it takes a READ COMMITTED transaction (AN002).
	ErrIsolation = errors.New("isolation level")
	// ErrOption: an option is unknown or makes no sense for the table (AN003).
	ErrOption = errors.New("invalid option")
	// ErrUntrackable: the table cannot be tracked (AN004).
	ErrUntrackable = errors.New("cannot be tracked")
	// ErrNotTracked: there is no such history, or it has ended (AN005).
	ErrNotTracked = errors.New("not tracked")
	// ErrStale: the table, its segments or its policies are others than the view of the history was made for (AN006).
	ErrStale = errors.New("history out of date")
	// ErrStandby: not on a standby (AN007).
	ErrStandby = errors.New("on a standby")
	// ErrCoordinate: the text is no coordinate (AN008).
	ErrCoordinate = errors.New("malformed coordinate")
	// ErrEpoch: the coordinate was taken before a crash, promotion or restore (AN009).
	ErrEpoch = errors.New("coordinate of another epoch")
	// ErrNotYet: the coordinate is later than what the transaction sees (AN010).
	ErrNotYet = errors.New("coordinate not reached")
	// ErrRestored: the database was restored, and its histories have not been adopted: see [Adopt] (AN011).
	ErrRestored = errors.New("restored")
	// ErrNoTick: no tick is as old as the time, or no position was given (AN012).
	ErrNoTick = errors.New("no tick")
)

var kindOf = map[string]error{
	"AN001": ErrTruncate, "AN002": ErrIsolation, "AN003": ErrOption, "AN004": ErrUntrackable, "AN005": ErrNotTracked, "AN006": ErrStale,
	"AN007": ErrStandby, "AN008": ErrCoordinate, "AN009": ErrEpoch, "AN010": ErrNotYet, "AN011": ErrRestored, "AN012": ErrNoTick,
}

// Error is a refusal: nothing was changed.
type Error struct {
	Kind    error  // what was refused: one of the Err variables of this package
	Message string // in words, with the table or history
	Hint    string // the way out

	Table  string // the table, qualified, where it is about one
	Reason string // why a table cannot be tracked

	cause error
}

// Error returns the message and the way out.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "history: " + e.Message
	}
	return "history: " + e.Message + ". " + e.Hint
}

// Unwrap returns Kind and the database's error.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.cause} }

// Refused turns a database error into an *Error where it is a refusal of the history engine.
func Refused(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || kindOf[pgErr.Code] == nil {
		return err
	}
	var detail struct{ Table, Reason string }
	if pgErr.Detail != "" {
		if bad := json.Unmarshal([]byte(pgErr.Detail), &detail); bad != nil {
			return errors.Join(err, bad)
		}
	}
	return &Error{Kind: kindOf[pgErr.Code], Message: pgErr.Message, Hint: pgErr.Hint, Table: detail.Table, Reason: detail.Reason, cause: err}
}
