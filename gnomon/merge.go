package gnomon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// What a merge does about rows in conflict.
const (
	FailOnConflict = "fail"    // nothing is merged when there are any
	LeaveConflicts = "partial" // they stay on the branch, and the other rows are merged
	KeepTheirs     = "keep"    // columns in conflict stay as they are where the branch is merged into, and all else is merged
)

// MergeOptions say how a branch is merged. The zero value merges all that it changed into main, and nothing when there are conflicts.
type MergeOptions struct {
	// Into is the branch to merge into; empty means main.
	Into string
	// Conflicts is FailOnConflict (also when empty), LeaveConflicts or KeepTheirs.
	Conflicts string
	// Strategies decide before those of [Gnomon.SetStrategy] do.
	Strategies Strategies
	// Tables are those to merge, and Keys the rows, by table; empty means all.
	Tables []string
	Keys   map[string][]Key
	// NoStaleReads refuses, with [ErrStaleReads], when main has changed what was read on the branch.
	NoStaleReads bool
	// Policy is the name of a policy that the merge keeps to, beside those that cover the branch.
	Policy string
	// DryRun finds out and reports, and writes nothing.
	DryRun bool
}

// MarshalJSON returns the options as gnomon.merge takes them.
func (o MergeOptions) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Conflicts    string           `json:"conflicts,omitempty"`
		Strategies   Strategies       `json:"strategies,omitempty"`
		Tables       []string         `json:"tables,omitempty"`
		Keys         map[string][]Key `json:"keys,omitempty"`
		NoStaleReads bool             `json:"no_stale_reads,omitempty"`
		Policy       string           `json:"policy,omitempty"`
		DryRun       bool             `json:"dry_run,omitempty"`
	}{o.Conflicts, o.Strategies, o.Tables, o.Keys, o.NoStaleReads, o.Policy, o.DryRun})
}

// MergeCounts counts rows.
type MergeCounts struct {
	Inserted  int64 `json:"insert"`
	Updated   int64 `json:"update"`
	Deleted   int64 `json:"delete"`
	Already   int64 `json:"already"`  // were as they were to be
	Conflicts int64 `json:"conflict"` // in conflict
}

// What came of a merge.
const (
	StatusMerged     = "merged"
	StatusConflicts  = "conflicts"  // refused: both sides changed the same
	StatusViolations = "violations" // refused: constraints would be violated
	StatusDryRun     = "dry run"
)

// MergeReport says what came of a merge, of its undo or of a refresh. Of a merge that was refused, and of a dry run, it counts what would be written.
type MergeReport struct {
	ID     int64 // of the merge, by which [Gnomon.Conflicts], [Gnomon.Violations], [Gnomon.MergeRows] and [Gnomon.UndoMerge] know it
	Status string
	MergeCounts
	Violations int64
	Tables     map[string]MergeCounts
}

// report calls a function that returns a gnomon.merge_result.
func (g *Gnomon) report(ctx context.Context, sql string, args ...any) (r MergeReport, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&r.ID, &r.Status, &r.Inserted, &r.Updated, &r.Deleted, &r.Already, &r.Conflicts, &r.Violations, &r.Tables},
		"select merge, status, inserted, updated, deleted, already, conflicts, violations, tables from "+sql, args...)
	if err != nil {
		return MergeReport{}, refused(err)
	}
	detail, _ := json.Marshal(map[string]int64{"merge": r.ID})
	switch r.Status {
	case StatusConflicts:
		return r, &Error{Kind: ErrConflict, Message: fmt.Sprintf("merge %d was refused: both sides changed %d rows", r.ID, r.Conflicts), Hint: "Conflicts lists them. ResolveConflict and FinishMerge, or merge with strategies.", Detail: detail}
	case StatusViolations:
		return r, &Error{Kind: ErrViolation, Message: fmt.Sprintf("merge %d was refused: it would violate constraints with %d rows", r.ID, r.Violations), Hint: "Violations lists them. Change them on the branch, and merge again.", Detail: detail}
	}
	return r, nil
}

// Merge merges what was changed on a branch into main, or into another branch: three-way, column by column. What only the branch changed is taken, what only main changed
// since the base of the branch stays, and where both changed a column a strategy decides, or it is a conflict. So it is for rows: it is a conflict
// when both added one with the same key and other values, or when one side changed what the other deleted.
//
// It is one transaction, in which rows of main are locked and none of its tables is: whoever writes one of the rows at the same time comes before or after it. Main is written with the
// rights of the caller, and its triggers fire. What is merged is not merged again, and the branch can go on.
//
// [ErrConflict] and [ErrViolation] come with a report, and nothing was written: the merge can be looked at, and its conflicts be resolved, see
// [Gnomon.ResolveConflict]. In a transaction of the caller's that report is lost when he rolls back.
//
// [ErrUnknownBranch]; [ErrProtected]: the branch to merge into is; [ErrStaleReads]; [ErrPolicy]; [ErrNotOnBranch]: a table is not tracked any more, has got another key, or shows
// the role a part of its rows; [ErrStale]: history is behind a change of a table; [ErrInvalid]: a strategy does not fit a column. In a REPEATABLE READ transaction a row that another one changed since is 40001.
func (g *Gnomon) Merge(ctx context.Context, branch string, o MergeOptions) (MergeReport, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return MergeReport{}, err
	}
	return g.report(ctx, "gnomon.merge($1, $2, $3::text::jsonb)", branch, zeronull.Text(o.Into), string(options))
}

// Merge is [Gnomon.Merge] of the branch.
func (b *Branch) Merge(ctx context.Context, o MergeOptions) (MergeReport, error) {
	return New(b.db).Merge(ctx, b.Name(), o)
}

// Refresh gives the branch a later base, and decides as [Gnomon.Merge] does about what both it and main have changed: what is its own stays, over the new base. Ours is the
// branch, theirs is main. Empty means [Present]. Of the options Strategies, Conflicts (but LeaveConflicts) and DryRun hold. The report counts in how many rows the branch then differs from its base.
//
// [ErrConflict] and [ErrViolation] come with a report, and the branch is as it was; [ErrInvalid]: the place is before the base; [ErrUnknownBranch]; [ErrProtected]; other errors are those of places.
func (b *Branch) Refresh(ctx context.Context, to Ref, o MergeOptions) (MergeReport, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return MergeReport{}, err
	}
	if to == "" {
		to = Present
	}
	return New(b.db).report(ctx, "gnomon.refresh_branch($1, $2, $3::text::jsonb)", b.Name(), string(to), string(options))
}

// Violation is a row that would violate a constraint.
type Violation struct {
	Kind       string // unique, foreign key, check, exclusion or not null
	Constraint string // or the unique index, or the column that is not null
	Table      string
	Key        Key // of the row; empty for one that a trigger wrote
	Columns    []string
	Values     json.RawMessage // of the columns, as a JSON object
	Other      json.RawMessage // key of the row that it cannot be with, or what refers to a row that would go; empty where there is none
}

// Violations lists the constraints that stood in the way of a merge. [ErrUnknownMerge].
func (g *Gnomon) Violations(ctx context.Context, merge int64) ([]Violation, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (v Violation, err error) {
		err = row.Scan(&v.Kind, &v.Constraint, &v.Table, (*[]string)(&v.Key), &v.Columns, &v.Values, &v.Other)
		return v, err
	}, `select kind, "constraint"::text, "table", key, columns, "values", other from gnomon.violations($1)`, merge)
}

// MergedRow is a row that a merge wrote.
type MergedRow struct {
	Table     string
	Key       Key
	Operation string          // insert, update or delete
	Columns   []string        // that it changed
	Old, New  json.RawMessage // before and after, as JSON objects; empty where there is no row
}

// MergeRows lists what a merge wrote, also by triggers and foreign keys, as long as history tells, or, of a merge into a branch, as long as it can be undone. [ErrUnknownMerge]; [ErrPruned].
func (g *Gnomon) MergeRows(ctx context.Context, merge int64) ([]MergedRow, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (r MergedRow, err error) {
		err = row.Scan(&r.Table, (*[]string)(&r.Key), &r.Operation, &r.Columns, &r.Old, &r.New)
		return r, err
	}, `select "table", key, operation, columns, old, new from gnomon.merge_rows($1)`, merge)
}

// PruneReports forgets dry runs and refused merges that are older than keep, with their conflicts and violations, which conflicts older merges left, and what merges wrote to branches that
// are not Logged; it returns how many merges it forgot. [Gnomon.Maintain] does it after 30 days. [ErrInvalid]: keep is negative.
func (g *Gnomon) PruneReports(ctx context.Context, keep time.Duration) (n int64, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&n}, "select gnomon.prune_reports($1)", pgtype.Interval{Microseconds: keep.Microseconds(), Valid: true})
	return n, refused(err)
}

// MergeInfo tells of a merge, an undo of one, or a refresh.
type MergeInfo struct {
	MergeReport
	Kind        string // merge, undo or refresh
	Branch      string // its name then; empty of an undo
	Into        string // empty for main
	At          time.Time
	Login       string
	Transaction string
	Undoes      int64 // the merge that it undoes; 0: none
	UndoneBy    int64 // the merge that undid it last; 0: none
}

// Merges lists the merges of a branch, or all where the name is empty, the oldest first: also those that were refused, and dry runs.
func (g *Gnomon) Merges(ctx context.Context, branch string) ([]MergeInfo, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (m MergeInfo, err error) {
		err = row.Scan(&m.ID, &m.Kind, &m.Branch, &m.Into, &m.Status, &m.At, &m.Login, &m.Transaction, &m.Inserted, &m.Updated, &m.Deleted, &m.Already, &m.Conflicts, &m.Violations, &m.Tables, &m.Undoes, &m.UndoneBy)
		return m, err
	}, `select merge, kind, coalesce(branch, ''), coalesce("into", ''), status, at, login::text, transaction, inserted, updated, deleted, already, conflicts, violations, tables, coalesce(undoes, 0), coalesce(undone_by, 0) from gnomon.merges($1)`, zeronull.Text(branch))
}
