package volvra

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// Why an undo can be refused, or a mark.
var (
	// ErrMark: no such mark, one of that name already, or no name for one (VO020, VO021, VO022).
	ErrMark = errors.New("mark")
	// ErrToken: a text is no token of a preview (VO023).
	ErrToken = errors.New("invalid token")
	// ErrConflict: others have since changed what would change, and perhaps rows are blocked for other reasons as well (VO024).
	ErrConflict = errors.New("conflict")
	// ErrTooManyRows: more rows would be written than are allowed (VO025).
	ErrTooManyRows = errors.New("too many rows")
	// ErrPlanChanged: the plan is not what the preview showed any more (VO026).
	ErrPlanChanged = errors.New("plan has changed")
	// ErrNotWritten: a trigger or row-level security kept rows from being written (VO027).
	ErrNotWritten = errors.New("rows not written")
	// ErrUnique: a unique key is taken (VO028).
	ErrUnique = errors.New("unique key taken")
	// ErrForeignKey: a row would refer to one that is not there, or others still refer to one that would go (VO029).
	ErrForeignKey = errors.New("foreign key")
	// ErrErased: what a row held was erased (VO030).
	ErrErased = errors.New("erased")
	// ErrInterrupted: history has a gap (VO031).
	ErrInterrupted = errors.New("history interrupted")
	// ErrNotAnUndo: an attempt is no undo that was done (VO032).
	ErrNotAnUndo = errors.New("not an undo")
	// ErrPolicy: no such policy (VO033).
	ErrPolicy = errors.New("unknown policy")
	// ErrFailed: PostgreSQL refused to write: a check, a privilege, an error of a trigger.
	ErrFailed = errors.New("undo failed")
)

func init() {
	for code, kind := range map[string]error{
		"VO020": ErrMark, "VO021": ErrMark, "VO022": ErrMark, "VO023": ErrToken, "VO024": ErrConflict, "VO025": ErrTooManyRows,
		"VO026": ErrPlanChanged, "VO027": ErrNotWritten, "VO028": ErrUnique, "VO029": ErrForeignKey, "VO030": ErrErased,
		"VO031": ErrInterrupted, "VO032": ErrNotAnUndo, "VO033": ErrPolicy,
	} {
		kindOf[code] = kind
	}
}

// Policy is what an undo does about rows that can't be undone.
type Policy string

// Policies. None of them forces a conflict: to undo what others did as well, select that, too.
const (
	Refuse                Policy = "refuse"                  // nothing is undone then; the default
	SkipConflicts         Policy = "skip conflicts"          // such rows are left as they are
	NonConflictingColumns Policy = "non-conflicting columns" // of rows in conflict, the columns that nobody else changed are undone
)

// DefaultMaxRows is how many rows an undo writes at most, unless told otherwise.
const DefaultMaxRows = 100_000

// Unlimited as MaxRows means that an undo may write any number of rows.
const Unlimited = -1

// UndoOptions are how to undo; the zero value is all or nothing, up to [DefaultMaxRows] rows.
type UndoOptions struct {
	Policy  Policy // empty: [Refuse]
	MaxRows int64  // most rows to write, else [ErrTooManyRows]; 0: [DefaultMaxRows]; [Unlimited]
	// Progress, if set, is called when the undo has been planned or written: while it is being written nothing can be told, since it is one
	// statement. A table comes once with the rows that were written.
	Progress func(Progress)
}

// Progress is how far an undo has come.
type Progress struct {
	Table string
	Rows  int64 // written
}

// Undoable says what to undo: a [Selection], or a [Token].
type Undoable interface {
	undoable() (selection, token *string)
}

// Token is the token of a [Plan]: undoing it does what the preview showed, or is refused with [ErrPlanChanged]. It is kept nowhere, does not
// expire, and any session may present it. It holds the selection, legibly, with its keys and values, and is no secret: it permits nothing.
type Token string

func (t Token) undoable() (selection, token *string) { s := string(t); return nil, &s }

func (s Selection) undoable() (selection, token *string) { text := selectionText(s); return &text, nil }

// Result is what an undo did.
type Result struct {
	Attempt     int64         // its number among the recorded attempts; for [Volvra.Redo]
	Transaction TransactionID // that wrote it
	Rows        int64         // written
	Skipped     int64         // that the policy left as they are
	Undone      int64         // that were as they should be already
	Inserted    int64
	Updated     int64
	Deleted     int64
	Tables      map[string]int64 // rows written, by table
	SkippedRows []PlannedRow     // the first hundred
}

// Undo makes the rows that selected changes touched what they would be had those changes not happened. What others did to other columns
// and rows stays; where they did something to the same column since, that is a conflict, and policy decides. It is one transaction, or part
// of the caller's, with the caller's privileges, and it is history as any other change.
//
// A refusal is an [*Error] that matches one of the Err variables of this package and whose [Error.Blocked] are the rows in the way. Every
// attempt is recorded: outside a transaction in one of its own, so that a refused or failed one stays on record whatever happens;
// in the caller's transaction the record is part of that transaction.
func (v *Volvra) Undo(ctx context.Context, what Undoable, o UndoOptions) (*Result, error) {
	if what == nil {
		what = Selection{} // which is refused
	}
	selection, token := what.undoable()
	if token != nil {
		return v.attempt(ctx, "undo", nil, o, "volvra.undo($1::text, $2, $3, $4)", *token)
	}
	return v.attempt(ctx, "undo", selection, o, "volvra.undo($1::jsonb, $2, $3, $4)", *selection)
}

// attempt runs call, which takes what, policy, most rows and attempt.
func (v *Volvra) attempt(ctx context.Context, action string, selection *string, o UndoOptions, call string, what any) (*Result, error) {
	policy := o.Policy
	if policy == "" {
		policy = Refuse
	}
	maxRows := &o.MaxRows
	if o.MaxRows == 0 {
		limit := int64(DefaultMaxRows)
		maxRows = &limit
	} else if o.MaxRows < 0 {
		maxRows = nil
	}

	var attempt *int64
	if !pgtx.InTx(v.db) {
		var token *string
		if t, ok := what.(string); ok && selection == nil {
			token = &t
		}
		if err := pgtx.QueryRow(ctx, v.db, []any{&attempt}, "select volvra.begin_attempt($1, $2::jsonb, $3, $4)", action, selection, string(policy), token); err != nil {
			return nil, refused(err)
		}
	}
	var answer answer
	err := pgtx.QueryRow(ctx, v.db, []any{&answer.attempt, &answer.outcome, &answer.rows, &answer.skipped, &answer.transaction, &answer.code, &answer.reason, &answer.detail},
		"select attempt, outcome, rows, skipped, transaction, code, reason, detail::text from "+call, what, string(policy), maxRows, attempt)
	if err != nil {
		if attempt != nil {
			v.failed(ctx, *attempt, err)
		}
		return nil, refused(err)
	}
	return answer.result(o.Progress)
}

// failed records that an attempt ended with an error. That it could not be recorded is no news: it then stands there without an outcome.
func (v *Volvra) failed(ctx context.Context, attempt int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	detail := map[string]string{"reason": "the call did not complete"}
	var pgErr *pgconn.PgError
	outcome := "failed"
	if errors.As(err, &pgErr) {
		detail = map[string]string{"code": pgErr.Code, "reason": "error " + pgErr.Code}
		if kindOf[pgErr.Code] != nil {
			outcome = "refused"
		}
	}
	text, _ := json.Marshal(detail)
	_, _ = pgtx.Exec(ctx, v.db, "select volvra.finish_attempt($1, $2, $3::jsonb)", attempt, outcome, string(text))
}

// answer is a row of volvra.undo.
type answer struct {
	attempt           int64
	outcome           string
	rows, skipped     int64
	transaction, code *string
	reason            *string
	detail            []byte
}

func (a *answer) result(progress func(Progress)) (*Result, error) {
	if a.outcome != "done" {
		return nil, a.refusal()
	}
	r := &Result{Attempt: a.attempt, Rows: a.rows, Skipped: a.skipped, Transaction: TransactionID(*a.transaction)}
	var detail struct {
		Undone, Inserted, Updated, Deleted int64
		Tables                             map[string]int64
		Skipped                            []PlannedRow
	}
	if err := json.Unmarshal(a.detail, &detail); err != nil {
		return nil, err
	}
	r.Undone, r.Inserted, r.Updated, r.Deleted, r.Tables, r.SkippedRows = detail.Undone, detail.Inserted, detail.Updated, detail.Deleted, detail.Tables, detail.Skipped
	if progress != nil {
		for table, rows := range r.Tables {
			progress(Progress{Table: table, Rows: rows})
		}
	}
	return r, nil
}

func (a *answer) refusal() error {
	e := &Error{Kind: ErrFailed, Detail: a.detail}
	var code string
	if a.code != nil {
		code = *a.code
	}
	if a.reason != nil {
		e.Message = *a.reason
	}
	e.cause = &pgconn.PgError{Severity: "ERROR", Code: code, Message: e.Message}
	if kind := kindOf[code]; kind != nil {
		e.Kind = kind
	}
	switch e.Kind {
	case ErrConflict, ErrUnique, ErrForeignKey, ErrErased, ErrInterrupted:
		e.Hint = "Preview shows every row; the policies SkipConflicts and NonConflictingColumns leave such rows out."
	case ErrTooManyRows:
		e.Hint = "Narrow the selection, or set MaxRows."
	case ErrPlanChanged:
		e.Hint = "Preview again."
	}
	if blocked := e.Blocked(); len(blocked) > 0 {
		e.Table, e.Key = blocked[0].Table, blocked[0].Key
	}
	return e
}

// Blocked returns the rows that stood in the way of an undo, the first hundred of them.
func (e *Error) Blocked() []PlannedRow {
	var detail struct{ Rows []PlannedRow }
	if json.Unmarshal(e.Detail, &detail) != nil {
		return nil
	}
	return detail.Rows
}
