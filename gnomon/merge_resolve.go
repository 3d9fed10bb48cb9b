package gnomon

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// Conflict is a row that a merge could not decide.
type Conflict struct {
	Table  string
	Key    Key
	Kind   string           // edit/edit, edit/delete, delete/edit or add/add, what the branch did first; or column gone
	Fields []ConflictField  // the columns that both sides changed
	Choice ResolutionChoice // how it was resolved; empty: it was not

	InBase, OnBranch, OnMain bool // where the row is
}

// ConflictField is a column in conflict, with its values as JSON: nil where there is no row. Main is what the branch is merged into.
type ConflictField struct {
	Column             string
	Base, Branch, Main json.RawMessage
}

// Conflicts lists the rows that a merge could not decide. Of an undo the branch is what was before the merge, and the base what it left. [ErrUnknownMerge].
func (g *Gnomon) Conflicts(ctx context.Context, merge int64) ([]Conflict, error) {
	var list []Conflict
	last := ""
	err := pgtx.Query(ctx, g.db, func(rows pgx.Rows) error {
		for rows.Next() {
			var c Conflict
			var f ConflictField
			var row string
			if err := rows.Scan(&row, &c.Table, (*[]string)(&c.Key), &c.Kind, (*zeronull.Text)(&f.Column), &f.Base, &f.Branch, &f.Main, (*zeronull.Text)(&c.Choice), &c.InBase, &c.OnBranch, &c.OnMain); err != nil {
				return err
			}
			if row != last || list == nil {
				list = append(list, c)
			}
			last = row
			if f.Column != "" {
				fields := &list[len(list)-1].Fields
				*fields = append(*fields, f)
			}
		}
		return nil
	}, `select "table" || ' ' || key::text, "table", key, kind, "column", base, branch, main, choice, in_base, on_branch, on_main from gnomon.conflicts($1)`, merge)
	return list, refused(err)
}

// ResolutionChoice is how a conflict is resolved.
type ResolutionChoice string

// How a conflict is resolved. A choice is for the columns in conflict: what one side alone changed in the row, or a strategy decides, is merged beside it. Where
// one side deleted the row, the choice is whether it goes.
const (
	TakeOurs   ResolutionChoice = "ours"   // as the branch has it
	TakeTheirs ResolutionChoice = "theirs" // as it is where the branch is merged into
	TakeValues ResolutionChoice = "value"  // these values, of any columns; what else is in conflict stays as it is there
)

// ResolveConflict says how a conflict of a refused merge is to be decided. Values are for TakeValues, as JSON can write them; without any the row goes.
// A resolution holds as long as the row that the branch is merged into is as it was when the merge was refused.
//
// [ErrUnknownMerge]; [ErrInvalid]: there is no such conflict, or a column is not one that merges decide.
func (g *Gnomon) ResolveConflict(ctx context.Context, merge int64, table string, key Key, choice ResolutionChoice, values map[string]any) error {
	var written zeronull.Text
	if values != nil {
		text, err := json.Marshal(values)
		if err != nil {
			return err
		}
		written = zeronull.Text(text)
	}
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.resolve($1, $2::text::regclass, $3, $4, $5::text::jsonb)", merge, table, []string(key), string(choice), written)
	return refused(err)
}

// FinishMerge merges anew what a refused merge was about, with its conflicts as they were resolved. What has become a conflict since is one: [ErrConflict] comes with the report
// of another merge, which lists all that are left. Otherwise as [Gnomon.Merge]. [ErrInvalid]: the merge waits for nothing; [ErrUnknownMerge].
func (g *Gnomon) FinishMerge(ctx context.Context, merge int64) (MergeReport, error) {
	return g.report(ctx, "gnomon.finish_merge($1)", merge)
}
