package gnomon_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A model of branches: rows in memory, as text, with what statements, merges, undos and refreshes make of them.

// A modelTable is what the model knows of a table. Its first columns are the key.
type modelTable struct {
	name    string // as in SQL
	columns []string
	key     int
	unique  []int // columns that are unique, each by itself
	refs    []modelRef
}

// A modelRef is a foreign key.
type modelRef struct {
	columns            []int
	to                 string
	onDelete, onUpdate string
}

// modelNull stands for NULL.
const modelNull = "\x00"

type (
	modelRow   []string
	modelState map[string]map[string]modelRow // by table and key
)

func modelKey(row modelRow, n int) string { return strings.Join(row[:n], "\x01") }

func (s modelState) clone() modelState {
	c := modelState{}
	for table, rows := range s {
		c[table] = maps.Clone(rows)
	}
	return c
}

// A modelChange replaces a row (old) by another, or adds or removes one.
type modelChange struct {
	table    string
	old, new modelRow
}

// A modelError is a refusal with this SQLSTATE.
type modelError string

func (e modelError) Error() string { return string(e) }

type modelSchema []*modelTable

func (m modelSchema) table(name string) *modelTable {
	return m[slices.IndexFunc(m, func(t *modelTable) bool { return t.name == name })]
}

// apply makes the changes of a statement, and what follows from them by foreign keys. The state is unusable after an error.
func (m modelSchema) apply(s modelState, changes []modelChange) error {
	if err := m.write(s, changes); err != nil {
		return err
	}
	return m.check(s)
}

func (m modelSchema) write(s modelState, changes []modelChange) error {
	for _, c := range changes {
		if t := m.table(c.table); c.old != nil {
			delete(s[c.table], modelKey(c.old, t.key))
		}
	}
	for _, c := range changes {
		if t := m.table(c.table); c.new != nil {
			key := modelKey(c.new, t.key)
			if _, taken := s[c.table][key]; taken {
				return modelError("23505")
			}
			s[c.table][key] = c.new
		}
	}
	for _, c := range changes {
		t := m.table(c.table)
		if c.old == nil || c.new != nil && modelKey(c.old, t.key) == modelKey(c.new, t.key) {
			continue
		}
		for _, child := range m {
			for _, ref := range child.refs {
				if ref.to != c.table {
					continue
				}
				action := ref.onDelete
				if c.new != nil {
					action = ref.onUpdate
				}
				var more []modelChange
				for _, row := range s[child.name] {
					if !ref.points(row, c.old) || action == "no action" {
						continue
					}
					next := modelChange{table: child.name, old: row}
					if action == "set null" || c.new != nil {
						next.new = slices.Clone(row)
						for i, column := range ref.columns {
							next.new[column] = modelNull
							if action == "cascade" {
								next.new[column] = c.new[i]
							}
						}
					}
					more = append(more, next)
				}
				if err := m.write(s, more); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r modelRef) points(row, to modelRow) bool {
	for i, column := range r.columns {
		if row[column] != to[i] {
			return false
		}
	}
	return true
}

// check tells whether the keys of a state hold.
func (m modelSchema) check(s modelState) error {
	for _, t := range m {
		for _, column := range t.unique {
			seen := map[string]bool{}
			for _, row := range s[t.name] {
				if row[column] != modelNull && seen[row[column]] {
					return modelError("23505")
				}
				seen[row[column]] = true
			}
		}
		for _, ref := range t.refs {
			for _, row := range s[t.name] {
				var to []string
				for _, column := range ref.columns {
					to = append(to, row[column])
				}
				if _, there := s[ref.to][strings.Join(to, "\x01")]; !there && !slices.Contains(to, modelNull) {
					return modelError("23503")
				}
			}
		}
	}
	return nil
}

// A decision is what a three-way merge makes of a row.
type decision struct {
	row      modelRow // as it shall be; nil: not there
	conflict bool
}

func sameRow(a, b modelRow) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// decide merges a row: base is what ours was, theirs what stands where it goes to. Where both changed the same the strategy decides: ours, theirs or fail.
// In a conflict the row is theirs, with what else ours changed.
func decide(base, ours, theirs modelRow, strategy string) (d decision) {
	switch {
	case sameRow(ours, base), sameRow(ours, theirs):
		return decision{row: theirs}
	case sameRow(theirs, base):
		return decision{row: ours}
	case ours == nil || theirs == nil:
		if strategy == "ours" {
			return decision{row: ours}
		}
		return decision{row: theirs, conflict: strategy == "fail"}
	}
	d.row = slices.Clone(theirs)
	for i := range ours {
		switch {
		case base != nil && ours[i] == base[i] || ours[i] == theirs[i]:
		case base != nil && theirs[i] == base[i] || strategy == "ours":
			d.row[i] = ours[i]
		case strategy == "fail":
			d.conflict = true
		}
	}
	return d
}

// A modelBranch is a branch as the model has it.
type modelBranch struct {
	name   string
	logged bool
	parent *modelBranch
	base   modelState // main where it began
	state  modelState
	was    modelState // what a merge into main compares with
	fork   modelState // what it would be had it changed nothing since it was made from its parent
	origin modelState // what it was then, or when it was merged into the parent
}

// forked is what a merge into the parent compares with. What the branch has not changed itself, but got with a later base, does not go there.
func (b *modelBranch) forked(m modelSchema) modelState {
	base := m.empty()
	for _, t := range m {
		keys := maps.Clone(b.state[t.name])
		maps.Copy(keys, b.fork[t.name])
		for key := range keys {
			f, o, g := b.fork[t.name][key], b.state[t.name][key], b.origin[t.name][key]
			row := g
			switch {
			case sameRow(f, o):
				row = o
			case f != nil && o != nil && g != nil:
				row = slices.Clone(g)
				for i := range o {
					if f[i] == o[i] {
						row[i] = o[i]
					}
				}
			}
			if row != nil {
				base[t.name][key] = row
			}
		}
	}
	return base
}

// settled notes what was merged into the parent.
func (b *modelBranch) settled(p modelPlan) {
	for table, keys := range p.settled {
		for _, key := range keys {
			f, o, g := b.fork[table][key], b.state[table][key], b.origin[table][key]
			row := o
			if f != nil && o != nil && g != nil {
				row = slices.Clone(g)
				for i := range o {
					if f[i] != o[i] {
						row[i] = o[i]
					}
				}
			}
			set(b.origin[table], key, row)
			set(b.fork[table], key, o)
		}
	}
}

// refreshed notes that the branch was refreshed to a state of main, which made it another one.
func (b *modelBranch) refreshed(m modelSchema, main, next modelState) {
	for _, t := range m {
		keys := maps.Clone(b.state[t.name])
		maps.Copy(keys, next[t.name])
		maps.Copy(keys, b.fork[t.name])
		for key := range keys {
			f, o, n, there := b.fork[t.name][key], b.state[t.name][key], next[t.name][key], main[t.name][key]
			switch {
			case (n == nil) != (o == nil), o == nil && f == nil:
				f = n
			case o != nil && f != nil:
				f = slices.Clone(f)
				for i := range n {
					if f[i] == o[i] || n[i] != o[i] && there != nil && n[i] == there[i] {
						f[i] = n[i]
					}
				}
			}
			set(b.fork[t.name], key, f)
		}
	}
}

func set(rows map[string]modelRow, key string, row modelRow) {
	if row == nil {
		delete(rows, key)
	} else {
		rows[key] = row
	}
}

// A modelMerge is one into main, or into a branch.
type modelMerge struct {
	id            int64
	into          *modelBranch
	before, after modelState // of what it went into
	undoes        *modelMerge
	undone        bool
}

// exchanges tells whether rows of a table that others refer to, in ways that would notice if one of them went and came back, exchange unique values: then main has no order
// in which it could write them.
func (m modelSchema) exchanges(changes []modelChange) bool {
	for _, t := range m {
		if !slices.ContainsFunc(m, func(child *modelTable) bool {
			return slices.ContainsFunc(child.refs, func(r modelRef) bool { return r.to == t.name && r.onDelete != "no action" })
		}) {
			continue
		}
		for _, column := range t.unique {
			gives, takes := map[string]string{}, map[string]string{} // values, by what their rows had and have
			for _, c := range changes {
				if c.table == t.name && c.old != nil && c.new != nil && c.old[column] != c.new[column] {
					takes[c.old[column]] = c.new[column]
				}
			}
			delete(takes, modelNull)
			for from := range takes {
				clear(gives)
				for v, there := from, true; there && v != modelNull; v, there = takes[v], takes[v] != "" {
					if gives[v] != "" {
						return true
					}
					gives[v] = "given"
				}
			}
		}
	}
	return false
}

// A modelPlan is what a merge is to do.
type modelPlan struct {
	changes   []modelChange
	settled   map[string][]string // keys, by table, that ours changed and that are decided
	conflicts int
}

// plan merges what ours has otherwise than base into a state. How conflicts are dealt with: fail, partial (rows in conflict are left out) or keep.
func (m modelSchema) plan(base, ours, into modelState, strategy, conflicts string) (p modelPlan) {
	p.settled = map[string][]string{}
	for _, t := range m {
		keys := maps.Clone(ours[t.name])
		maps.Copy(keys, base[t.name])
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			b, o, theirs := base[t.name][key], ours[t.name][key], into[t.name][key]
			if sameRow(b, o) {
				continue
			}
			d := decide(b, o, theirs, strategy)
			if d.conflict {
				p.conflicts++
			} else {
				p.settled[t.name] = append(p.settled[t.name], key)
			}
			if !sameRow(d.row, theirs) && !(d.conflict && conflicts == "partial") {
				p.changes = append(p.changes, modelChange{t.name, theirs, d.row})
			}
		}
	}
	return p
}

// settle makes a base what was merged.
func (p modelPlan) settle(base, ours modelState) {
	for table, keys := range p.settled {
		for _, key := range keys {
			set(base[table], key, ours[table][key])
		}
	}
}

// rowsSQL lists all rows of all tables, as texts.
func (m modelSchema) rowsSQL() string {
	var arms []string
	for _, t := range m {
		var columns []string
		for _, c := range t.columns {
			columns = append(columns, c+"::text")
		}
		arms = append(arms, fmt.Sprintf("select '%s' as of, array[%s] as row from %s", strings.ReplaceAll(t.name, "'", "''"), strings.Join(columns, ", "), t.name))
	}
	return strings.Join(arms, " union all ")
}

func (m modelSchema) empty() modelState {
	s := modelState{}
	for _, t := range m {
		s[t.name] = map[string]modelRow{}
	}
	return s
}

// differences lists rows that are not the same.
func (m modelSchema) differences(got, want modelState) string {
	var list []string
	for _, t := range m {
		keys := maps.Clone(got[t.name])
		maps.Copy(keys, want[t.name])
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if g, w := got[t.name][key], want[t.name][key]; !slices.Equal(g, w) || (g == nil) != (w == nil) {
				list = append(list, fmt.Sprintf("%s %q: %q, want %q", t.name, key, g, w))
			}
		}
	}
	return strings.Join(list, "\n")
}

// startAt makes a state of main what a branch shows, without changes.
func (b *modelBranch) startAt(s modelState) {
	b.base, b.state, b.was, b.fork, b.origin, b.parent = s.clone(), s.clone(), s.clone(), nil, nil, nil
}
