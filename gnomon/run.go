package gnomon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// RunOptions say what [Run] does. Only Purpose must be given.
type RunOptions struct {
	// Purpose is what it is for, in a line: the branch is named after it, and it is the title of a change request.
	Purpose string
	// Actor is who does it: annals.actor in all of its transactions, and of its merge.
	Actor string
	// From and Of say where its branch begins, as in [BranchOptions].
	From Ref
	Of   string
	// Prefix is how the name of the branch begins; empty: "run/". Policies and confined roles go by it.
	Prefix string
	// Logged and RecordReads are as in [BranchOptions].
	Logged      bool
	RecordReads bool
	// Policy is one that holds for the merge beside those that cover the branch.
	Policy string
	// Merge merges the branch into main in the end. Without it, and where a policy, a conflict, a violated constraint or a stale read stands in the way, the branch is left
	// as a change request.
	Merge bool
	// Keep is how long the branch is kept where the process dies; 0: a day.
	Keep time.Duration
}

// RunOutcome is what came of a run.
type RunOutcome string

// Outcomes of runs that went well.
const (
	RunMerged    RunOutcome = "merged"    // into main; the branch was dropped
	RunRequested RunOutcome = "requested" // the branch is left as a change request
	RunUnchanged RunOutcome = "unchanged" // nothing was changed; the branch was dropped
)

// RunResult is what came of a run.
type RunResult struct {
	Branch  string // name of the branch
	Outcome RunOutcome
	Merge   int64 // number of the merge, also of one that met conflicts
	Rows    int64 // rows of main that the merge changed
	Request int   // the change request
	Refused error // why it was not merged though it was to be: [ErrPolicy], [ErrConflict], [ErrViolation] or [ErrStaleReads]
}

// Run does something on a branch of its own: what f does there is not seen on main until it is merged, at once or by way of a change request. Where f returns an
// error or panics, or ctx ends, the branch is dropped with all that was done on it; the error is returned, and the panic goes on. So it is with errors of
// the database afterwards: where Run returns an error nothing is left of the run.
//
// The branch has a name of the prefix, the purpose and a random number. Reads are noted if that is asked for ([BranchOptions.RecordReads]). In the caller's transaction
// all is a part of that.
func Run(ctx context.Context, db DB, o RunOptions, f func(ctx context.Context, b *Branch) error) (result RunResult, err error) {
	if o.Purpose == "" {
		return result, &Error{Kind: ErrInvalid, Message: "a run takes a purpose", Hint: "Say in a line what it is for."}
	}
	if o.Prefix == "" {
		o.Prefix = "run/"
	}
	if o.Keep == 0 {
		o.Keep = 24 * time.Hour
	}
	result.Branch = o.Prefix + firstRunes(o.Purpose, 100) + "/" + randomName()
	b, err := New(db).CreateBranch(ctx, result.Branch, BranchOptions{From: o.From, Of: o.Of, Logged: o.Logged, RecordReads: o.RecordReads, Note: o.Purpose, ExpiresAt: time.Now().Add(o.Keep)})
	if err != nil {
		return result, err
	}
	b.actor = o.Actor
	done := false
	defer func() { // also when f panics
		if done {
			return
		}
		undone, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if dropped := b.Drop(undone); err != nil && dropped != nil && !errors.Is(dropped, ErrUnknownBranch) {
			err = errors.Join(err, dropped)
		}
	}()
	if err = f(ctx, b); err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = o.finish(ctx, db, b, &result)
	}
	done = err == nil
	return result, err
}

// finish merges the branch, or leaves it as a change request.
func (o RunOptions) finish(ctx context.Context, db DB, b *Branch, result *RunResult) error {
	var changed bool
	if err := pgtx.QueryRow(ctx, db, []any{&changed}, "select changed_rows > 0 from gnomon.branches($1)", b.id); err != nil {
		return refused(err)
	}
	if !changed {
		result.Outcome = RunUnchanged
		return b.Drop(ctx)
	}
	if o.Merge {
		if err := o.merge(ctx, db, b, result); err != nil || result.Outcome == RunMerged {
			return err
		}
	}
	result.Outcome = RunRequested
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
		if result.Request, err = New(tx).OpenRequest(ctx, RequestParams{Branch: b.Name(), Title: o.Purpose, Policy: o.Policy}); err != nil {
			return err
		}
		return b.In(tx).Expire(ctx, time.Time{}) // it waits for as long as the request does
	})
}

// merge merges the branch, and drops it then. What stands in the way is noted in the result.
func (o RunOptions) merge(ctx context.Context, db DB, b *Branch, result *RunResult) error {
	options := map[string]string{}
	if o.Policy != "" {
		options["policy"] = o.Policy
	}
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	once := func() error {
		*result = RunResult{Branch: result.Branch}
		return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error { return o.mergeIn(ctx, tx, string(text), result) })
	}
	if pgtx.InTx(db) {
		err = once()
	} else {
		err = pgtx.Retry(ctx, once)
	}
	if err = refused(err); err != nil {
		result.Outcome, result.Merge, result.Rows = "", 0, 0
	}
	if errors.Is(err, ErrPolicy) || errors.Is(err, ErrStaleReads) || errors.Is(err, ErrConflict) || errors.Is(err, ErrViolation) {
		result.Refused = err
		return nil
	}
	return err
}

func (o RunOptions) mergeIn(ctx context.Context, tx pgx.Tx, options string, result *RunResult) error {
	var before, status string
	if err := tx.QueryRow(ctx, "select coalesce(current_setting('annals.actor', true), '')").Scan(&before); err != nil {
		return err
	}
	if o.Actor != "" {
		if _, err := tx.Exec(ctx, setActor, o.Actor); err != nil {
			return err
		}
	}
	err := tx.QueryRow(ctx, "select merge, status, inserted + updated + deleted from gnomon.merge($1, null, $2)", result.Branch, options).Scan(&result.Merge, &status, &result.Rows)
	if err != nil {
		return err
	}
	switch status {
	case "merged":
		result.Outcome = RunMerged
		if _, err := tx.Exec(ctx, "select gnomon.drop_branch($1)", result.Branch); err != nil {
			return err
		}
	case "violations":
		result.Refused = &Error{Kind: ErrViolation, Message: "what was changed on branch " + result.Branch + " violates constraints of main", Hint: "The violations of the merge tell which."}
	default:
		result.Refused = &Error{Kind: ErrConflict, Message: "main has changed what was changed on branch " + result.Branch, Hint: "Resolve the conflicts of the merge."}
	}
	if result.Refused != nil {
		result.Rows = 0
	}
	_, err = tx.Exec(ctx, setActor, before)
	return err
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
