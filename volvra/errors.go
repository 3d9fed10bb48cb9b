package volvra

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// What can be refused. Every refusal is an [*Error] that matches one of these; the database raises the SQLSTATE named beside it, so
// that users of other languages tell them apart as well. What PostgreSQL itself refuses comes as its own *pgconn.PgError, such as 42501
// for a missing privilege; so does what capture refuses of the application's own statements (AN001, AN002).
var (
	// ErrSelection: a selection has an unknown member, or one that makes no sense (VO001).
	ErrSelection = errors.New("invalid selection")
	// ErrEmptySelection: a selection that selects everything without saying so (VO002).
	ErrEmptySelection = errors.New("empty selection")
	// ErrNotCovered: the table does not exist, is not covered, or never was (VO003).
	ErrNotCovered = errors.New("table not covered")
	// ErrNoColumn: no such column, or one whose values are not in history (VO004).
	ErrNoColumn = errors.New("no such column in history")
	// ErrValue: a value or a key does not fit its column (VO005).
	ErrValue = errors.New("invalid value")
	// ErrNoHistory: history does not reach back to the moment (VO006).
	ErrNoHistory = errors.New("no history")
	// ErrInvalid: an option or argument is not usable (VO007, AN003, AN012).
	ErrInvalid = errors.New("invalid argument")
	// ErrUnsupported: the table can't be covered (AN004).
	ErrUnsupported = errors.New("table cannot be covered")
	// ErrRights: this role may not do that to the table (VO008).
	ErrRights = errors.New("not permitted")
	// ErrBusy: a lock on a table could not be had (55P03).
	ErrBusy = errors.New("table in use")
	// ErrTruncate: TRUNCATE on a covered table was refused (AN001).
	ErrTruncate = errors.New("TRUNCATE refused")
	// ErrIsolation: that is refused in a transaction of this isolation level (AN002).
	ErrIsolation = errors.New("not in this isolation level")
	// ErrStale: the table has changed, and its history has not been brought up to date (AN005, AN006, AN011).
	ErrStale = errors.New("history is not up to date")
	// ErrStandby: that can't be done on a standby (AN007).
	ErrStandby = errors.New("not on a standby")
	// ErrCoordinate: a text is no coordinate, or one of another epoch (AN008, AN009).
	ErrCoordinate = errors.New("invalid coordinate")
	// ErrNotYet: a coordinate is later than what the transaction sees (AN010).
	ErrNotYet = errors.New("not seen yet")
)

var kindOf = map[string]error{
	"VO001": ErrSelection, "VO002": ErrEmptySelection, "VO003": ErrNotCovered, "VO004": ErrNoColumn, "VO005": ErrValue, "VO006": ErrNoHistory,
	"VO007": ErrInvalid, "VO008": ErrRights,
	"AN001": ErrTruncate, "AN002": ErrIsolation, "AN003": ErrInvalid, "AN004": ErrUnsupported, "AN005": ErrStale, "AN006": ErrStale,
	"AN007": ErrStandby, "AN008": ErrCoordinate, "AN009": ErrCoordinate, "AN010": ErrNotYet, "AN011": ErrStale, "AN012": ErrInvalid,
}

// Error is a refusal: nothing was done. Fields that say nothing about this refusal are zero.
type Error struct {
	Kind    error  // what was refused: one of the Err variables of this package
	Message string // in words, with the table, row and column
	Hint    string // the way out

	Table  string          // as in SQL
	Key    Key             // of the row
	Column string          // as in the catalog
	Reason string          // why, in a word or two, where a kind has several reasons
	Detail json.RawMessage // all that the database said about it, as a JSON object

	cause error
}

// Error returns the message and the way out.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "volvra: " + e.Message
	}
	return "volvra: " + e.Message + ". " + e.Hint
}

// Unwrap returns Kind, and the database's error where there is one.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// refused turns a database error into *Error where it is a refusal.
func refused(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || kindOf[pgErr.Code] == nil {
		return err
	}
	e := &Error{Kind: kindOf[pgErr.Code], Message: pgErr.Message, Hint: pgErr.Hint, cause: err}
	if pgErr.Detail == "" {
		return e
	}
	var detail struct {
		Table, Column, Reason string
		Key                   json.RawMessage // of a refused key it is what was given, whatever that is
	}
	if bad := json.Unmarshal([]byte(pgErr.Detail), &detail); bad != nil {
		return fmt.Errorf("reading the details %q of a refusal: %w", pgErr.Detail, errors.Join(bad, err))
	}
	e.Table, e.Column, e.Reason, e.Detail = detail.Table, detail.Column, detail.Reason, json.RawMessage(pgErr.Detail)
	if json.Unmarshal(detail.Key, &e.Key) != nil {
		e.Key = nil
	}
	return e
}
