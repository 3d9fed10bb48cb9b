package gnomon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// MergePolicy is what merges into main have to keep to, see [Gnomon.SetMergePolicy]. The zero value of a field demands nothing.
type MergePolicy struct {
	Name string
	// Prefix is how the names of the branches begin that it covers: empty for all of them.
	Prefix string
	// Named says that it covers no branches, only merges that name it.
	Named bool
	// Roles are those whose members may merge; none: any that may write the tables.
	Roles []string
	// MaxRows is how many rows a merge may change at most, of all tables together.
	MaxRows int64
	// Tables are the only ones that a merge may change, and what of them; nil: any.
	Tables map[string]TableRule
	// NoStaleReads demands that nothing that was read on the branch has changed on main.
	NoStaleReads bool
	// Reviews is how many approvals of a change request a merge takes.
	Reviews int
	// SelfReview lets those approve who opened the request or wrote on the branch.
	SelfReview bool
	// Note is for people.
	Note string

	// When it was set last, and by which role; these are not for setting.
	At    time.Time
	Login string
}

// TableRule is what a policy says of a table.
type TableRule struct {
	Operations []Operation // [Insert], [Update], [Delete]; none: all of them
	MaxRows    int64       // that a merge may change; 0: any number
	Conditions []Condition // true of every row that is inserted or updated, as it is after the merge
}

// Condition compares a column with a value: by =, <>, <, <=, >, >=, or without a value "is null" and "is not null". What is compared with null is not true.
type Condition struct {
	Column   string `json:"column"`
	Operator string `json:"operator"`
	Value    any    `json:"value,omitempty"` // written as those of [KeyOf]; a text where it was read
}

// SetMergePolicy makes a policy, or sets it anew. It is judged when a merge into main has written its rows, before it is committed, by what history took down; so rows count
// that cascades and triggers wrote as well. Every policy that covers a branch has to be kept to: else the merge is [ErrPolicy], and Error.Detail names the rule (roles,
// reviews, max_rows, tables, operations or conditions), the table and the count.
//
// A policy keeps from happening what nobody wants. It is no wall: whoever may write the tables of main can do so without a merge, and who may rename
// branches can give one a name that is not covered.
//
// [ErrInvalid]: it contradicts itself, or names a role, a column or an operator that there is not; [ErrNotTracked].
func (g *Gnomon) SetMergePolicy(ctx context.Context, p MergePolicy) error {
	options, err := json.Marshal(p.options())
	if err != nil {
		return err
	}
	_, err = pgtx.Exec(ctx, g.db, "select gnomon.set_merge_policy($1, $2)", p.Name, string(options))
	return refused(err)
}

func (p MergePolicy) options() map[string]any {
	options := map[string]any{"prefix": p.Prefix, "no_stale_reads": p.NoStaleReads, "reviews": p.Reviews, "self_review": p.SelfReview, "note": p.Note}
	if p.Named {
		options["prefix"] = nil
	}
	if len(p.Roles) > 0 {
		options["roles"] = p.Roles
	}
	if p.MaxRows != 0 {
		options["max_rows"] = p.MaxRows
	}
	if p.Tables == nil {
		return options
	}
	tables := map[string]any{}
	for name, rule := range p.Tables {
		table := map[string]any{}
		if len(rule.Operations) > 0 {
			table["operations"] = rule.Operations
		}
		if rule.MaxRows != 0 {
			table["max_rows"] = rule.MaxRows
		}
		conditions := make([]Condition, len(rule.Conditions))
		for i, c := range rule.Conditions {
			conditions[i] = c
			if c.Value != nil {
				conditions[i].Value = KeyOf(c.Value)[0]
			}
		}
		table["conditions"] = conditions
		tables[name] = table
	}
	options["tables"] = tables
	return options
}

// DropMergePolicy drops a policy. [ErrInvalid]: there is none of that name.
func (g *Gnomon) DropMergePolicy(ctx context.Context, name string) error {
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.drop_merge_policy($1)", name)
	return refused(err)
}

// MergePolicies lists the policies by name.
func (g *Gnomon) MergePolicies(ctx context.Context) ([]MergePolicy, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (p MergePolicy, err error) {
		var o struct {
			Prefix  *string
			Roles   []string
			MaxRows *int64 `json:"max_rows"`
			Tables  map[string]struct {
				Operations []Operation
				MaxRows    *int64 `json:"max_rows"`
				Conditions []Condition
			}
			NoStaleReads bool `json:"no_stale_reads"`
			Reviews      int
			SelfReview   bool `json:"self_review"`
			Note         string
		}
		if err := row.Scan(&p.Name, &o, &p.At, &p.Login); err != nil {
			return p, err
		}
		p.Named, p.Roles, p.NoStaleReads, p.Reviews, p.SelfReview, p.Note = o.Prefix == nil, o.Roles, o.NoStaleReads, o.Reviews, o.SelfReview, o.Note
		if o.Prefix != nil {
			p.Prefix = *o.Prefix
		}
		if o.MaxRows != nil {
			p.MaxRows = *o.MaxRows
		}
		if o.Tables == nil {
			return p, nil
		}
		p.Tables = map[string]TableRule{}
		for name, t := range o.Tables {
			rule := TableRule{Operations: t.Operations, Conditions: t.Conditions}
			if t.MaxRows != nil {
				rule.MaxRows = *t.MaxRows
			}
			p.Tables[name] = rule
		}
		return p, nil
	}, "select name, options, at, login::text from gnomon.merge_policies()")
}
