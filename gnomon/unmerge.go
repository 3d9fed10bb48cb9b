package gnomon

import (
	"context"
	"encoding/json"
)

// What the undo of a merge does about columns that were changed after the merge.
const (
	KeepLater   = "keep"  // they stay as they are, and are listed as conflicts; all else is undone
	FailOnLater = "fail"  // nothing is undone when there are any
	ForceUndo   = "force" // they are undone as well
)

// UndoMergeOptions say how a merge is undone.
type UndoMergeOptions struct {
	// Later is KeepLater (also when empty), FailOnLater or ForceUndo.
	Later string
	// Tables are those to undo; empty means all.
	Tables []string
	// DryRun finds out and reports, and writes nothing.
	DryRun bool
}

// UndoMerge takes back what a merge wrote to main or to a branch, and what triggers and foreign keys wrote with it: column by column, so that the work of others on the same rows stays. What was
// changed after the merge is listed by [Gnomon.Conflicts] of the undo. It is a merge itself, and can be undone. The branch that was merged is not changed, and what was merged counts as merged.
//
// [ErrConflict]: there are later changes, with FailOnLater; [ErrViolation]; both come with a report. [ErrPruned]: history does not tell any more, or, of a merge into a branch, that was reset
// since, or the merge is older than 30 days and the branch not Logged; [ErrUnknownBranch]: the branch is no more; [ErrProtected]: it is; [ErrInvalid]: the merge wrote nothing, or was undone;
// [ErrNotTracked]: a table that it wrote is not tracked any more; [ErrUnknownMerge].
func (g *Gnomon) UndoMerge(ctx context.Context, merge int64, o UndoMergeOptions) (MergeReport, error) {
	options, err := json.Marshal(struct {
		Later  string   `json:"conflicts,omitempty"`
		Tables []string `json:"tables,omitempty"`
		DryRun bool     `json:"dry_run,omitempty"`
	}{o.Later, o.Tables, o.DryRun})
	if err != nil {
		return MergeReport{}, err
	}
	return g.report(ctx, "gnomon.undo_merge($1, $2::text::jsonb)", merge, string(options))
}
