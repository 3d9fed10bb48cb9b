package gnomon

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// What can be refused. Every refusal is an [*Error] that matches one of these; the database raises the SQLSTATE named beside it, so
// that users of other languages tell them apart as well. What PostgreSQL itself refuses comes as its own *pgconn.PgError, such as 42501
// for a missing privilege; so does what capture refuses of the application's own statements (AN001, AN002).
var (
	// ErrNoHistory: history does not reach back to the place; Error.Begins is where it does (GN001).
	ErrNoHistory = errors.New("no history")
	// ErrPruned: history reached back to the place and was pruned (GN002).
	ErrPruned = errors.New("history pruned")
	// ErrColumnGone: a value was lost when its column was dropped (GN003).
	ErrColumnGone = errors.New("column gone")
	// ErrUnknownTag: there is no such tag (GN004).
	ErrUnknownTag = errors.New("unknown tag")
	// ErrTagExists: there is such a tag already (GN005).
	ErrTagExists = errors.New("tag exists")
	// ErrInvalid: an argument is not usable (GN006, AN003, AN008).
	ErrInvalid = errors.New("invalid argument")
	// ErrNotTracked: the table is not tracked (GN007, AN005).
	ErrNotTracked = errors.New("not tracked")
	// ErrStale: history, or who reads, changed while a place was being read, or capture is behind a change of the table (GN008, AN006, AN011).
	ErrStale = errors.New("out of date")
	// ErrUntracked: the past was asked of a table that is not tracked (GN009).
	ErrUntracked = errors.New("read of an untracked table")
	// ErrView: the past was asked of a view that cannot be read there (GN010).
	ErrView = errors.New("view cannot be read in the past")
	// ErrNoPlace: a view of the past was read without saying at which place (GN011).
	ErrNoPlace = errors.New("no place in the past")
	// ErrUnknownConsumer: there is no such consumer (GN012).
	ErrUnknownConsumer = errors.New("unknown consumer")
	// ErrConsumerExists: there is such a consumer already (GN013).
	ErrConsumerExists = errors.New("consumer exists")
	// ErrLease: another process works for the consumer now (GN014).
	ErrLease = errors.New("consumer is held by another process")
	// ErrReadOnly: a write to the past (25006).
	ErrReadOnly = errors.New("the past is read-only")
	// ErrUnknownCheckpoint: there is no such checkpoint (GN015).
	ErrUnknownCheckpoint = errors.New("unknown checkpoint")
	// ErrUnknownBranch: there is no such branch, or none that the role may use (GN016).
	ErrUnknownBranch = errors.New("unknown branch")
	// ErrBranchExists: there is such a branch already (GN017).
	ErrBranchExists = errors.New("branch exists")
	// ErrProtected: the branch is protected (GN018).
	ErrProtected = errors.New("branch is protected")
	// ErrNoBranch: what needs a branch was asked where none is in use (GN019).
	ErrNoBranch = errors.New("no branch in use")
	// ErrNotOnBranch: that can't be done on a branch; Error.Reason is why, and Error.Hint the way that works (GN020).
	ErrNotOnBranch = errors.New("not on a branch")
	// ErrConflict: both sides of a merge changed the same (GN021).
	ErrConflict = errors.New("merge conflict")
	// ErrViolation: what is merged would violate constraints (GN022).
	ErrViolation = errors.New("constraint violation")
	// ErrStaleReads: what was read on the branch has changed since (GN023).
	ErrStaleReads = errors.New("stale reads")
	// ErrUnknownMerge: there is no such merge (GN024).
	ErrUnknownMerge = errors.New("unknown merge")
	// ErrPolicy: a policy refuses (GN025).
	ErrPolicy = errors.New("refused by a policy")
	// ErrUnknownRequest: there is no such change request (GN026).
	ErrUnknownRequest = errors.New("unknown change request")
	// ErrConfined: the role is confined to other branches (GN027).
	ErrConfined = errors.New("role is confined")
	// ErrUnsupported: the table can't be tracked (AN004).
	ErrUnsupported = errors.New("table cannot be tracked")
	// ErrIsolation: that is refused in a transaction of this isolation level (AN002).
	ErrIsolation = errors.New("not in this isolation level")
	// ErrStandby: that can't be done on a standby (AN007).
	ErrStandby = errors.New("not on a standby")
	// ErrEpoch: the coordinate was taken before a restore, crash or promotion (AN009).
	ErrEpoch = errors.New("coordinate of another epoch")
	// ErrNotYet: the coordinate is later than what the transaction sees (AN010).
	ErrNotYet = errors.New("not seen yet")
	// ErrNoTick: no tick is as old as the time (AN012).
	ErrNoTick = errors.New("no tick")
)

var kindOf = map[string]error{
	"GN001": ErrNoHistory, "GN002": ErrPruned, "GN003": ErrColumnGone, "GN004": ErrUnknownTag, "GN005": ErrTagExists, "GN006": ErrInvalid, "GN007": ErrNotTracked,
	"GN008": ErrStale, "GN009": ErrUntracked, "GN010": ErrView, "GN011": ErrNoPlace, "GN012": ErrUnknownConsumer, "GN013": ErrConsumerExists, "GN014": ErrLease, "GN015": ErrUnknownCheckpoint,
	"GN016": ErrUnknownBranch, "GN017": ErrBranchExists, "GN018": ErrProtected, "GN019": ErrNoBranch, "GN020": ErrNotOnBranch, "GN021": ErrConflict, "GN022": ErrViolation, "GN023": ErrStaleReads,
	"GN024": ErrUnknownMerge, "GN025": ErrPolicy, "GN026": ErrUnknownRequest, "GN027": ErrConfined,
	"AN002": ErrIsolation, "AN003": ErrInvalid, "AN004": ErrUnsupported, "AN005": ErrNotTracked, "AN006": ErrStale,
	"AN007": ErrStandby, "AN008": ErrInvalid, "AN009": ErrEpoch, "AN010": ErrNotYet, "AN011": ErrStale, "AN012": ErrNoTick,
}

// Error is a refusal: nothing was done. Fields that say nothing about this refusal are zero.
type Error struct {
	Kind    error  // what was refused: one of the Err variables of this package
	Message string // in words, with the table and what it is about
	Hint    string // the way out

	Table  string          // as in SQL
	Column string          // as in the catalog
	Reason string          // why, in a word or two, where a kind has several reasons
	Begins time.Time       // where history begins, of [ErrNoHistory] and [ErrPruned] where it is known
	Detail json.RawMessage // all that the database said about it, as a JSON object

	cause error
}

// Error returns the message and the way out.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "gnomon: " + e.Message
	}
	return "gnomon: " + e.Message + ". " + e.Hint
}

// Unwrap returns Kind and the database's error, where there is one.
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
		Begins                *time.Time
	}
	if bad := json.Unmarshal([]byte(pgErr.Detail), &detail); bad != nil {
		return fmt.Errorf("reading the details %q of a refusal: %w", pgErr.Detail, errors.Join(bad, err))
	}
	e.Table, e.Column, e.Reason, e.Detail = detail.Table, detail.Column, detail.Reason, json.RawMessage(pgErr.Detail)
	if detail.Begins != nil {
		e.Begins = *detail.Begins
	}
	return e
}
