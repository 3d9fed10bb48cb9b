package gnomon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// RequestState is how far a change request is.
type RequestState string

// States of change requests. A change of the branch voids verdicts, so an approved or rejected request is open again then.
const (
	RequestOpen      RequestState = "open"
	RequestApproved  RequestState = "approved" // by as many as policies demand, and by one at least
	RequestRejected  RequestState = "rejected" // by somebody
	RequestMerged    RequestState = "merged"
	RequestWithdrawn RequestState = "withdrawn" // or its branch was dropped
)

// RequestParams are what a change request asks for.
type RequestParams struct {
	Branch  string
	Title   string // what it is, in a line
	Purpose string // what it is for
	// Options are those of the merge. A policy that they name holds beside those that cover the branch.
	Options MergeOptions
}

// Counts are how many rows of a table are inserted, updated and deleted.
type Counts struct {
	Inserts, Updates, Deletes int64
}

// ChangeRequest asks for a branch to be merged.
type ChangeRequest struct {
	ID          int
	Branch      string
	Into        string // empty: main
	Title       string
	Purpose     string
	Policy      string
	Login       string // the role that opened it
	At          time.Time
	State       RequestState
	Approvals   int64             // that count for the branch as it is
	Counts      map[string]Counts // what the branch changes over its base, by table; of a merged request what the merge wrote
	BranchState string            // changes with every change of the branch
	ClosedAt    time.Time
	ClosedBy    string
	Merge       int64 // the merge
}

// OpenRequest asks for a branch to be merged, and returns the number of the request. The branch can be worked on further.
//
// [ErrUnknownBranch]; [ErrInvalid]: there is no title, or no such policy.
func (g *Gnomon) OpenRequest(ctx context.Context, p RequestParams) (id int, err error) {
	policy, into := p.Options.Policy, p.Options.Into
	p.Options.Policy = ""
	options, err := json.Marshal(p.Options)
	if err != nil {
		return 0, err
	}
	err = pgtx.QueryRow(ctx, g.db, []any{&id}, "select gnomon.open_request($1, $2, $3, $4, $5, $6::text::jsonb)", p.Branch, p.Title, p.Purpose, zeronull.Text(into), zeronull.Text(policy), string(options))
	return id, refused(err)
}

const requestColumns = `id, branch, coalesce(target, ''), title, purpose, coalesce(policy, ''), login::text, at, state, approvals, counts, coalesce(branch_state, ''), closed_at, coalesce(closed_by, '')::text, coalesce(merge, 0)`

func scanRequest(row pgx.CollectableRow) (r ChangeRequest, err error) {
	err = row.Scan(&r.ID, &r.Branch, &r.Into, &r.Title, &r.Purpose, &r.Policy, &r.Login, &r.At, &r.State, &r.Approvals, &r.Counts, &r.BranchState, (*zeronull.Timestamptz)(&r.ClosedAt), &r.ClosedBy, &r.Merge)
	return r, err
}

// ChangeRequests lists the requests of a state for the branches that the role may use, the oldest first; an empty state means all.
func (g *Gnomon) ChangeRequests(ctx context.Context, state RequestState) ([]ChangeRequest, error) {
	return rowsOf(ctx, g.db, scanRequest, "select "+requestColumns+" from gnomon.change_requests($1)", zeronull.Text(state))
}

// ChangeRequest returns the request of a number. [ErrUnknownRequest].
func (g *Gnomon) ChangeRequest(ctx context.Context, id int) (ChangeRequest, error) {
	list, err := rowsOf(ctx, g.db, scanRequest, "select "+requestColumns+" from gnomon.change_requests(null, $1)", id)
	if err == nil && len(list) == 0 {
		_, err = pgtx.Exec(ctx, g.db, "select gnomon.request_of($1)", id)
		err = refused(err)
	}
	if err != nil || len(list) == 0 {
		return ChangeRequest{}, err
	}
	return list[0], nil
}

// Verdict is what a reviewer says.
type Verdict string

// Verdicts.
const (
	Approve Verdict = "approve"
	Reject  Verdict = "reject" // the request can't be merged as the branch is
	Comment Verdict = "comment"
)

// Review is what a reviewer said to a change request.
type Review struct {
	Verdict Verdict
	Comment string
	// BranchState is the [ChangeRequest.BranchState] that was looked at. Given with a review, that is refused when the branch has changed since.
	BranchState string

	// These are not for giving.
	Login  string
	At     time.Time
	Stands bool // it is the reviewer's last verdict, and about the branch as it is
}

// Review says what the role has to say to a change request. The last verdict of each role counts, until the branch changes.
//
// [ErrUnknownRequest]: there is no such request, or it is closed; [ErrStale]: the branch has changed since it was looked at; [ErrInvalid].
func (g *Gnomon) Review(ctx context.Context, request int, r Review) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.review_request($1, $2, $3, $4)", request, string(r.Verdict), r.Comment, zeronull.Text(r.BranchState))
	return refused(err)
}

// Reviews lists what was said to a change request, the oldest first. [ErrUnknownRequest].
func (g *Gnomon) Reviews(ctx context.Context, request int) ([]Review, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (r Review, err error) {
		err = row.Scan(&r.Verdict, &r.Comment, &r.BranchState, &r.Login, &r.At, &r.Stands)
		return r, err
	}, "select verdict, comment, state, login::text, at, stands from gnomon.reviews($1)", request)
}

// MergeRequest merges what a change request asks for, with its options; those that are given here are added to them, but for Into and Policy. It closes the request when all of
// it was merged. Conflicts and violations leave it open: [Gnomon.FinishMerge] closes it when they are resolved.
//
// [ErrUnknownRequest]: there is no such request, or it is closed; [ErrPolicy]: it was rejected, or is not approved by as many as a policy demands; other errors are those of [Gnomon.Merge].
func (g *Gnomon) MergeRequest(ctx context.Context, request int, o MergeOptions) (MergeReport, error) {
	o.Into, o.Policy = "", ""
	options, err := json.Marshal(o)
	if err != nil {
		return MergeReport{}, err
	}
	return g.report(ctx, "gnomon.merge_request($1, $2::text::jsonb)", request, string(options))
}

// WithdrawRequest withdraws a change request; the branch stays. It is for the role that opened it. [ErrUnknownRequest].
func (g *Gnomon) WithdrawRequest(ctx context.Context, request int) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.withdraw_request($1)", request)
	return refused(err)
}
