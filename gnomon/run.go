package gnomon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
	// Options are those of the merge, or of the change request. A policy that they name holds beside those that cover the branch.
	Options MergeOptions
	// Merge merges the branch in the end, into main unless the options name another branch. Without it, and where a policy, a conflict, a violated constraint, a stale read or a missing right stands in the way, the branch is left
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
	Merge   MergeReport // also of a merge that met conflicts
	Request int         // number of the change request
	Refused error       // why it was not merged though it was to be: [ErrPolicy], [ErrConflict], [ErrViolation], [ErrStaleReads], or 42501 for a missing right
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
	o.Options.DryRun = false
	if o.Merge {
		if err := o.merge(ctx, db, result); err != nil || result.Outcome == RunMerged {
			return err
		}
	}
	result.Outcome = RunRequested
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
		if result.Request, err = New(tx).OpenRequest(ctx, RequestParams{Branch: b.Name(), Title: o.Purpose, Options: o.Options}); err != nil {
			return err
		}
		return b.In(tx).Expire(ctx, time.Time{}) // it waits for as long as the request does
	})
}

// merge merges the branch, and drops it then. What stands in the way is noted in the result.
func (o RunOptions) merge(ctx context.Context, db DB, result *RunResult) error {
	once := func() error {
		*result = RunResult{Branch: result.Branch}
		return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error { return o.mergeIn(ctx, tx, result) })
	}
	var err error
	if pgtx.InTx(db) {
		err = once()
	} else {
		err = pgtx.Retry(ctx, once)
	}
	const mayNot = "42501" // somebody else may
	if errors.Is(err, ErrPolicy) || errors.Is(err, ErrStaleReads) || errors.Is(err, ErrViolation) || pgtx.HasCode(err, mayNot) {
		*result = RunResult{Branch: result.Branch, Refused: err}
		return nil
	}
	return err
}

func (o RunOptions) mergeIn(ctx context.Context, tx pgx.Tx, result *RunResult) error {
	var before string
	if err := tx.QueryRow(ctx, "select coalesce(current_setting('annals.actor', true), '')").Scan(&before); err != nil {
		return err
	}
	if o.Actor != "" {
		if _, err := tx.Exec(ctx, setActor, o.Actor); err != nil {
			return err
		}
	}
	report, err := New(tx).Merge(ctx, result.Branch, o.Options)
	if err != nil && report.ID == 0 {
		return err
	}
	result.Merge = report
	if err != nil {
		result.Refused = err // what stands in the way was written down
	} else if report.Conflicts == 0 {
		result.Outcome = RunMerged
		if _, err := tx.Exec(ctx, "select gnomon.drop_branch($1)", result.Branch); err != nil {
			return refused(err)
		}
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
