package gnomon_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
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
	before *modelBranch // the parent before a refresh, since when it is not told what a merge into it compares with
	base   modelState   // main where it began
	state  modelState
	was    modelState // what a merge into main compares with
	fork   modelState // what a merge into the parent compares with
}

// A modelMerge is one into main.
type modelMerge struct {
	id            int64
	before, after modelState // main
	undoes        *modelMerge
	undone        bool
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
			if row := ours[table][key]; row == nil {
				delete(base[table], key)
			} else {
				base[table][key] = row
			}
		}
	}
}

// branchProgram is a random program on main and branches.
type branchProgram struct {
	t        *testing.T
	r        *rapid.T
	g        *gnomon.Gnomon
	conn     *pgx.Conn
	schema   modelSchema
	main     modelState
	branches []*modelBranch
	merges   []*modelMerge
	places   []modelPlace
	names    int
	rotated  bool // takes its time
	worlds   []branchWorld
	done     map[string]int // of all programs
	trace    []string
}

// A modelPlace is main at a coordinate.
type modelPlace struct {
	ref   string
	state modelState
}

func (p *branchProgram) fatal(format string, args ...any) {
	p.t.Helper()
	p.r.Fatalf("%s\n\nprogram:\n%s;", fmt.Sprintf(format, args...), strings.Join(p.trace, ";\n"))
}

func (p *branchProgram) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.fatal("%v", err)
	}
}

// exec executes SQL on a branch, or on main (nil), and returns the SQLSTATE of what was refused.
func (p *branchProgram) exec(b *modelBranch, sql string) (state string) {
	p.t.Helper()
	if b != nil {
		sql = fmt.Sprintf("select gnomon.use(%s, true); %s", literal(b.name), sql)
	}
	sql = "begin; " + sql + "; commit"
	p.trace = append(p.trace, sql)
	if _, err := p.conn.Exec(p.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		state = sqlState(err)
		p.trace[len(p.trace)-1] += " /* " + state + ": " + err.Error() + " */"
		_, err := p.conn.Exec(p.t.Context(), "rollback")
		p.ok(err)
	}
	return state
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

// read returns what a branch, or main, shows.
func (p *branchProgram) read(b *modelBranch) (s modelState) {
	p.t.Helper()
	ctx := p.t.Context()
	tx, err := p.conn.Begin(ctx)
	p.ok(err)
	defer tx.Rollback(ctx)
	if b != nil {
		_, err := tx.Exec(ctx, "select gnomon.use($1, true)", b.name)
		p.ok(err)
	}
	rows, err := tx.Query(ctx, p.schema.rowsSQL(), pgx.QueryExecModeExec)
	p.ok(err)
	s = p.schema.empty()
	for rows.Next() {
		var table string
		var row []*string
		p.ok(rows.Scan(&table, &row))
		values := modelRow{}
		for _, v := range row {
			if v == nil {
				values = append(values, modelNull)
			} else {
				values = append(values, *v)
			}
		}
		key := modelKey(values, p.schema.table(table).key)
		if _, twice := s[table][key]; twice {
			p.fatal("%s shows key %q of %s twice", p.nameOf(b), key, table)
		}
		s[table][key] = values
	}
	p.ok(rows.Err())
	return s
}

func (m modelSchema) empty() modelState {
	s := modelState{}
	for _, t := range m {
		s[t.name] = map[string]modelRow{}
	}
	return s
}

func (p *branchProgram) nameOf(b *modelBranch) string {
	if b == nil {
		return "main"
	}
	return b.name
}

func (p *branchProgram) stateOf(b *modelBranch) modelState {
	if b == nil {
		return p.main
	}
	return b.state
}

// compare fails the program unless a branch, or main, shows what the model has.
func (p *branchProgram) compare(b *modelBranch) {
	p.t.Helper()
	got, want := p.read(b), p.stateOf(b)
	if diff := p.schema.differences(got, want); diff != "" {
		p.fatal("%s is not as the model has it:\n%s", p.nameOf(b), diff)
	}
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

// A modelStatement is SQL, and the changes that it makes of a state.
type modelStatement struct {
	sql     string
	changes func(s modelState) ([]modelChange, error)
}

func literal(v string) string {
	if v == modelNull {
		return "null"
	}
	return "'" + strings.ReplaceAll(v, "'", "''") + "'"
}

func literals(values []string) string {
	var list []string
	for _, v := range values {
		list = append(list, literal(v))
	}
	return strings.Join(list, ", ")
}

// Values of columns, by their names; the first letter of a column says which.
var modelValues = map[byte][]string{
	'i': {"1", "2", "3", "4", "5"},
	'k': {"a", "b", "B", "it's", ""},
	'u': {modelNull, "one", "two", "three", "ÄÖ", "six"},
	'n': {"0", "1", "2", "10"},
	'd': {modelNull, "1", "1.0", "1.00", "-2.5"},
	'w': {modelNull, "", "w", "v", "o'", `"q"`},
	'j': {modelNull, "{}", `{"a": 1}`, `{"a": 2, "b": [1]}`, "null", "[]"},
	'p': {modelNull, "1", "2", "3"},
	'q': {modelNull, "a", "b", "B"},
}

func columnValues(column string) []string { return modelValues[strings.Trim(column, `"`)[0]] }

// A branchWorld is a kind of tables: with a composite key and a unique column, children of it, and one that refers to itself. They stand in a schema
// of their own, and programs use them one after the other.
type branchWorld struct {
	onDelete, onUpdate, up string // of the foreign keys
	made                   bool
}

var branchWorlds = []branchWorld{{"", "", "", false}, {"cascade", "cascade", "cascade", false}, {"set null", "cascade", "no action", false}, {"no action", "no action", "set null", false}, {"cascade", "set null", "cascade", false}}

func (w branchWorld) schema() modelSchema {
	schema := modelSchema{
		{name: "region", columns: []string{"i", "k", "u", "n"}, key: 2, unique: []int{2}},
		{name: `"ta""ble"`, columns: []string{"k", `"w"`, `"p"`, `"q"`, "d"}, key: 1},
		{name: "item", columns: []string{"i", "n", "w2", "j", "p"}, key: 1},
	}
	if w.up != "" {
		schema[1].refs = []modelRef{{[]int{2, 3}, "region", w.onDelete, w.onUpdate}}
		schema[2].refs = []modelRef{{[]int{4}, "item", w.up, "no action"}}
	}
	return schema
}

func (w branchWorld) name() string { return fmt.Sprintf(`"%s, %s, %s"`, w.onDelete, w.onUpdate, w.up) }

func (w branchWorld) setup() string {
	keys := ""
	if w.up != "" {
		keys = fmt.Sprintf(`;
alter table "ta""ble" add foreign key ("p", "q") references region (i, k) on delete %s on update %s;
alter table item add foreign key (p) references item on delete %s`, w.onDelete, w.onUpdate, w.up)
	}
	return fmt.Sprintf(`create schema %[1]s; set search_path = %[1]s;
create table region (i int, k text collate "C", u text unique, n int not null, primary key (k, i));
create table "ta""ble" (k text collate "C" primary key, "w" text, "p" int, "q" text collate "C", d numeric);
create index on "ta""ble" ("p", "q");
create table item (n int not null, i int primary key, j jsonb, w2 text, p int)%[2]s;
select gnomon.track('region'), gnomon.track('"ta""ble"'), gnomon.track('item')`, w.name(), keys)
}

// row draws one.
func (p *branchProgram) row(t *modelTable) (row modelRow) {
	for _, c := range t.columns {
		row = append(row, rapid.SampledFrom(columnValues(c)).Draw(p.r, c))
	}
	return row
}

// where says which row it is.
func (t *modelTable) where(row modelRow) string {
	var list []string
	for i := range t.key {
		list = append(list, fmt.Sprintf("%s = %s", t.columns[i], literal(row[i])))
	}
	return strings.Join(list, " and ")
}

// some draws a row whose key is one that there is, if that can be.
func (p *branchProgram) some(t *modelTable, s modelState) modelRow {
	row := p.row(t)
	if keys := slices.Sorted(maps.Keys(s[t.name])); len(keys) > 0 && rapid.IntRange(0, 9).Draw(p.r, "there") > 0 {
		copy(row, s[t.name][rapid.SampledFrom(keys).Draw(p.r, "key")][:t.key])
	}
	return row
}

// statement draws one.
func (p *branchProgram) statement(s modelState) modelStatement {
	t := rapid.SampledFrom(p.schema).Draw(p.r, "table")
	row := p.row(t)
	column := rapid.IntRange(t.key, len(t.columns)-1).Draw(p.r, "column")
	if rapid.IntRange(0, 9).Draw(p.r, "there") > 0 {
		row = p.some(t, s)
	}
	found := func(s modelState) modelRow { return s[t.name][modelKey(row, t.key)] }
	one := func(change func(old modelRow) modelRow) func(modelState) ([]modelChange, error) {
		return func(s modelState) ([]modelChange, error) {
			old := found(s)
			if old == nil {
				return nil, nil
			}
			return []modelChange{{t.name, old, change(old)}}, nil
		}
	}
	insert := fmt.Sprintf("insert into %s (%s) values (%s)", t.name, strings.Join(t.columns, ", "), literals(row))
	switch rapid.SampledFrom([]string{"insert", "insert", "update", "update", "update", "update all", "key", "delete", "again", "move", "delete some"}).Draw(p.r, "statement") {
	case "insert":
		row = p.row(t)
		return modelStatement{fmt.Sprintf("insert into %s (%s) values (%s)", t.name, strings.Join(t.columns, ", "), literals(row)),
			func(modelState) ([]modelChange, error) { return []modelChange{{t.name, nil, row}}, nil }}
	case "update":
		return modelStatement{fmt.Sprintf("update %s set %s = %s where %s", t.name, t.columns[column], literal(row[column]), t.where(row)),
			one(func(old modelRow) modelRow {
				next := slices.Clone(old)
				next[column] = row[column]
				return next
			})}
	case "update all": // of a column that is neither unique nor refers to anything
		column = slices.IndexFunc(t.columns, func(c string) bool { return strings.ContainsAny(c[:1], "n") || c == `"w"` })
		return modelStatement{fmt.Sprintf("update %s as \"new\" set %s = %s where %s >= %s", t.name, t.columns[column], literal(row[column]), t.columns[0], literal(row[0])),
			func(s modelState) (list []modelChange, err error) {
				for _, old := range s[t.name] {
					if old[0] >= row[0] {
						next := slices.Clone(old)
						next[column] = row[column]
						list = append(list, modelChange{t.name, old, next})
					}
				}
				return list, nil
			}}
	case "key":
		to := p.row(t)
		var set []string
		for i := range t.key {
			set = append(set, fmt.Sprintf("%s = %s", t.columns[i], literal(to[i])))
		}
		return modelStatement{fmt.Sprintf("update %s set %s where %s", t.name, strings.Join(set, ", "), t.where(row)),
			one(func(old modelRow) modelRow { return append(slices.Clone(to[:t.key]), old[t.key:]...) })}
	case "delete":
		return modelStatement{fmt.Sprintf("delete from %s where %s", t.name, t.where(row)), one(func(modelRow) modelRow { return nil })}
	case "delete some":
		return modelStatement{fmt.Sprintf("delete from %s where %s is not distinct from %s", t.name, t.columns[column], literal(row[column])+map[bool]string{true: "::jsonb"}[t.columns[column] == "j"]),
			func(s modelState) (list []modelChange, err error) {
				for _, old := range s[t.name] {
					same := old[column] == row[column]
					if t.columns[column] == "d" && row[column] != modelNull && old[column] != modelNull { // equal, but written otherwise
						same = strings.TrimRight(old[column], ".0") == strings.TrimRight(row[column], ".0")
					}
					if same {
						list = append(list, modelChange{t.name, old, nil})
					}
				}
				return list, nil
			}}
	case "again": // a row goes and comes back
		return modelStatement{fmt.Sprintf("delete from %s where %s; %s", t.name, t.where(row), insert), nil}.then(p.schema,
			one(func(modelRow) modelRow { return nil }), func(modelState) ([]modelChange, error) { return []modelChange{{t.name, nil, row}}, nil })
	default: // a row takes another's key
		other := p.some(t, s)
		var set []string
		for i := range t.key {
			set = append(set, fmt.Sprintf("%s = %s", t.columns[i], literal(row[i])))
		}
		return modelStatement{fmt.Sprintf("delete from %s where %s; update %s set %s where %s", t.name, t.where(row), t.name, strings.Join(set, ", "), t.where(other)), nil}.then(p.schema,
			one(func(modelRow) modelRow { return nil }), func(s modelState) ([]modelChange, error) {
				old := s[t.name][modelKey(other, t.key)]
				if old == nil {
					return nil, nil
				}
				return []modelChange{{t.name, old, append(slices.Clone(row[:t.key]), old[t.key:]...)}}, nil
			})
	}
}

// then makes a statement of two, the changes of which are applied one after the other.
func (s modelStatement) then(m modelSchema, first, second func(modelState) ([]modelChange, error)) modelStatement {
	s.changes = func(state modelState) ([]modelChange, error) {
		list, err := first(state)
		if err == nil {
			err = m.apply(state, list)
		}
		if err != nil {
			return nil, err
		}
		return second(state)
	}
	return s
}

// write executes a statement on a branch, or on main, and in the model.
func (p *branchProgram) write(b *modelBranch) {
	p.t.Helper()
	st := p.statement(p.stateOf(b))
	sql := st.sql
	lost := rapid.IntRange(0, 9).Draw(p.r, "savepoint") == 0
	if lost {
		sql = "savepoint s; " + sql + "; rollback to s"
	}
	next := p.stateOf(b).clone()
	changes, err := st.changes(next)
	if err == nil {
		err = p.schema.apply(next, changes)
	}
	state := p.exec(b, sql)
	if (err == nil) != (state == "") || err != nil && !strings.HasPrefix(state, "23") {
		p.fatal("%s: %q, the model says %v", sql, state, err)
	}
	if err != nil || lost {
		return
	}
	if b == nil {
		p.main = next
	} else {
		b.state = next
	}
}

// create makes a branch: of main now or earlier, or of another branch.
func (p *branchProgram) create() {
	p.names++
	b := &modelBranch{name: fmt.Sprintf("branch %d", p.names), logged: rapid.Bool().Draw(p.r, "logged")}
	from := "now"
	switch n := rapid.IntRange(0, 5).Draw(p.r, "from"); {
	case n < 2 && len(p.branches) > 0:
		b.parent = rapid.SampledFrom(p.branches).Draw(p.r, "parent")
		from = "branch:" + b.parent.name
		b.base, b.state, b.was, b.fork = b.parent.base.clone(), b.parent.state.clone(), b.parent.was.clone(), b.parent.state.clone()
	case n == 3 && len(p.places) > 0:
		place := rapid.SampledFrom(p.places).Draw(p.r, "place")
		from = place.ref
		b.startAt(place.state)
	default:
		b.startAt(p.main)
	}
	if state := p.exec(nil, fmt.Sprintf("select gnomon.create_branch(%s, %s, %t)", literal(b.name), literal(from), b.logged)); state != "" {
		p.fatal("create")
	}
	p.branches = append(p.branches, b)
}

// startAt makes a state of main what a branch shows, without changes.
func (b *modelBranch) startAt(s modelState) {
	b.base, b.state, b.was, b.fork, b.parent = s.clone(), s.clone(), s.clone(), nil, nil
}

func (p *branchProgram) drop(b *modelBranch) {
	if state := p.exec(nil, fmt.Sprintf("select gnomon.drop_branch(%s)", literal(b.name))); state != "" {
		p.fatal("drop")
	}
	p.branches = slices.DeleteFunc(p.branches, func(x *modelBranch) bool { return x == b })
	for _, x := range p.branches {
		if x.parent == b {
			x.parent = nil
		}
	}
}

// step does something.
func (p *branchProgram) step() {
	pick := func() *modelBranch { return rapid.SampledFrom(p.branches).Draw(p.r, "branch") }
	do := rapid.SampledFrom([]string{"main", "main", "branch", "branch", "branch", "branch", "branch", "create", "create", "drop", "reset", "rename", "remember", "rotate", "merge", "merge", "merge into a branch", "undo", "refresh"}).Draw(p.r, "do")
	p.done[do]++
	switch {
	case do == "main":
		p.write(nil)
		p.compare(nil)
	case do == "remember":
		var ref string
		p.ok(p.conn.QueryRow(p.t.Context(), "select gnomon.now()").Scan(&ref))
		p.places = append(p.places, modelPlace{ref, p.main.clone()})
		p.trace = append(p.trace, "-- "+ref)
	case do == "rotate" && !p.rotated && rapid.IntRange(0, 3).Draw(p.r, "really") == 0:
		p.rotated = true
		if state := p.exec(nil, fmt.Sprintf("select annals.rotate(t.id, 0) from annals.tracked t where t.relation = '%s'::regclass", strings.ReplaceAll(rapid.SampledFrom(p.schema).Draw(p.r, "table").name, "'", "''"))); state != "" {
			p.fatal("rotate")
		}
		_, err := p.conn.Exec(p.t.Context(), "select annals.seal_segments()")
		p.ok(err)
	case do == "undo":
		if list := slices.DeleteFunc(slices.Clone(p.merges), func(m *modelMerge) bool { return m.undone }); len(list) > 0 {
			p.undo(rapid.SampledFrom(list).Draw(p.r, "merge"))
		}
	case do == "create" && len(p.branches) < 4:
		p.create()
		p.compare(p.branches[len(p.branches)-1])
	case len(p.branches) == 0:
	case do == "branch":
		b := pick()
		p.write(b)
		p.compare(b)
	case do == "drop":
		p.drop(pick())
	case do == "reset":
		p.reset(pick())
	case do == "merge":
		p.merge(pick(), nil)
	case do == "merge into a branch":
		b, into := pick(), pick()
		if b.parent != nil && rapid.Bool().Draw(p.r, "into its parent") {
			into = b.parent
		}
		if b != into && (into != b.before || into == nil) {
			p.merge(b, into)
		}
	case do == "refresh":
		p.refresh(pick())
	case do == "rename":
		b := pick()
		p.names++
		to := fmt.Sprintf("branch %d'", p.names)
		if state := p.exec(nil, fmt.Sprintf("select gnomon.rename_branch(%s, %s)", literal(b.name), literal(to))); state != "" {
			p.fatal("rename")
		}
		b.name = to
	}
}

// reset takes back what was done on a branch, or moves it elsewhere.
func (p *branchProgram) reset(b *modelBranch) {
	to, state := "null", b.base
	switch n := rapid.IntRange(0, 3).Draw(p.r, "to"); {
	case n == 0:
		to, state = "'now'", p.main
	case n == 1 && len(p.places) > 0:
		place := rapid.SampledFrom(p.places).Draw(p.r, "place")
		to, state = literal(place.ref), place.state
	}
	if state := p.exec(nil, fmt.Sprintf("select gnomon.reset_branch(%s, %s)", literal(b.name), to)); state != "" {
		p.fatal("reset")
	}
	b.startAt(state)
}

// merge merges a branch into main, or into another branch.
func (p *branchProgram) merge(b, into *modelBranch) {
	p.t.Helper()
	strategy := rapid.SampledFrom([]string{"fail", "fail", "ours", "theirs"}).Draw(p.r, "strategy")
	conflicts := rapid.SampledFrom([]string{"fail", "fail", "partial", "keep"}).Draw(p.r, "conflicts")
	dry := rapid.IntRange(0, 5).Draw(p.r, "dry run") == 0
	base, target := b.was, "null"
	if into != nil {
		target = literal(into.name)
		if b.parent == into {
			base = b.fork
		}
	}
	plan := p.schema.plan(base, b.state, p.stateOf(into), strategy, conflicts)
	next := p.stateOf(into).clone()
	err := p.schema.apply(next, plan.changes)
	want := "merged"
	switch {
	case dry:
		want = "dry run"
	case plan.conflicts > 0 && conflicts == "fail":
		want = "conflicts"
	case err != nil:
		want = "violations"
	}
	id, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.merge(%s, %s, '{"conflicts": "%s", "strategies": {"*": "%s"}, "dry_run": %t}') m`, literal(b.name), target, conflicts, strategy, dry))
	if status != want || found != plan.conflicts {
		p.fatal("merge of %s into %s: %s with %d conflicts, want %s with %d: %v", b.name, p.nameOf(into), status, found, want, plan.conflicts, err)
	}
	if status == "merged" {
		if into == nil {
			p.merges = append(p.merges, &modelMerge{id: id, before: p.main, after: next})
			p.main = next
			plan.settle(b.was, b.state)
		} else {
			into.state = next
			if b.parent == into {
				plan.settle(b.fork, b.state)
			}
		}
	}
	p.compare(b)
	p.compare(into)
}

// undo takes back a merge into main, or the undo of one.
func (p *branchProgram) undo(m *modelMerge) {
	p.t.Helper()
	strategy, conflicts := "fail", rapid.SampledFrom([]string{"keep", "keep", "fail", "force"}).Draw(p.r, "conflicts")
	if conflicts == "force" {
		strategy = "ours"
	}
	plan := p.schema.plan(m.after, m.before, p.main, strategy, conflicts)
	next := p.main.clone()
	err := p.schema.apply(next, plan.changes)
	want := "merged"
	switch {
	case plan.conflicts > 0 && conflicts == "fail":
		want = "conflicts"
	case err != nil:
		want = "violations"
	}
	id, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.undo_merge(%d, '{"conflicts": "%s"}') m`, m.id, conflicts))
	if status != want || found != plan.conflicts {
		p.fatal("undo of %d: %s with %d conflicts, want %s with %d: %v", m.id, status, found, want, plan.conflicts, err)
	}
	if status == "merged" {
		p.merges = append(p.merges, &modelMerge{id: id, before: p.main, after: next, undoes: m})
		p.main = next
		m.undone = true
		if m.undoes != nil {
			m.undoes.undone = false
		}
	}
	p.compare(nil)
}

// refresh gives a branch main as it is now for its base.
func (p *branchProgram) refresh(b *modelBranch) {
	p.t.Helper()
	strategy := rapid.SampledFrom([]string{"fail", "ours", "theirs"}).Draw(p.r, "strategy")
	conflicts := rapid.SampledFrom([]string{"fail", "keep"}).Draw(p.r, "conflicts")
	plan := p.schema.plan(b.was, b.state, p.main, strategy, conflicts)
	want := "merged"
	if plan.conflicts > 0 && conflicts == "fail" {
		want = "conflicts"
	}
	_, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.refresh_branch(%s, 'now', '{"conflicts": "%s", "strategies": {"*": "%s"}}') m`, literal(b.name), conflicts, strategy))
	if status != want || found != plan.conflicts {
		p.fatal("refresh of %s: %s with %d conflicts, want %s with %d", b.name, status, found, want, plan.conflicts)
	}
	if status == "merged" {
		b.before = b.parent
		b.startAt(p.main)
		for _, c := range plan.changes {
			key := modelKey(append(slices.Clone(c.old), c.new...), p.schema.table(c.table).key)
			delete(b.state[c.table], key)
			if c.new != nil {
				b.state[c.table][key] = c.new
			}
		}
	}
	p.compare(b)
	if p.schema.check(b.state) != nil { // that of both together; merging would find it
		p.drop(b)
	}
}

// merging executes what returns the number of a merge, its status and the number of conflicts.
func (p *branchProgram) merging(sql string) (id int64, status string, conflicts int) {
	p.t.Helper()
	p.trace = append(p.trace, sql)
	p.ok(p.conn.QueryRow(p.t.Context(), sql).Scan(&id, &status, &conflicts))
	p.trace[len(p.trace)-1] += fmt.Sprintf(" /* %d: %s, %d conflicts */", id, status, conflicts)
	return id, status, conflicts
}

// TestBranchesAreAsTheModel runs random programs on main and on branches, and compares all that they show with a model.
func TestBranchesAreAsTheModel(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	long := time.Now().Add(7 * time.Second)
	done, worlds := map[string]int{}, slices.Clone(branchWorlds)
	few(t, 1000, func(r *rapid.T) {
		if time.Now().After(long) && flag.Lookup("rapid.checks").Value.String() == usualChecks {
			return
		}
		p := &branchProgram{t: t, r: r, g: g, done: done, worlds: worlds}
		p.run(pool)
		done["programs"]++
	})
	t.Logf("%v", done)
}

func (p *branchProgram) run(pool *pgxpool.Pool) {
	ctx := p.t.Context()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	p.ok(err)
	defer conn.Close(context.WithoutCancel(ctx))
	p.conn = conn
	w := &p.worlds[rapid.IntRange(0, len(p.worlds)-1).Draw(p.r, "world")]
	p.schema = w.schema()
	p.trace = append(p.trace, w.setup())
	if !w.made {
		w.made = true
		_, err := conn.Exec(ctx, w.setup())
		p.ok(err)
	}
	_, err = conn.Exec(ctx, "set search_path = "+w.name())
	p.ok(err)
	if state := p.exec(nil, `select gnomon.drop_branch(name) from gnomon.branch; delete from "ta""ble"; delete from region; update item set p = null; delete from item`); state != "" {
		p.fatal("setup")
	}
	p.main = p.schema.empty()
	for range rapid.IntRange(0, 8).Draw(p.r, "rows") {
		p.write(nil)
	}
	for range rapid.IntRange(15, 40).Draw(p.r, "steps") {
		p.step()
	}
	p.compare(nil)
	for _, b := range p.branches {
		p.compare(b)
	}
}

// TestSQLOnABranchIsAsOnATable runs random statements on branches of tables of many kinds, and on a table alike that is not tracked. They do the same.
func TestSQLOnABranchIsAsOnATable(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	long := time.Now().Add(5 * time.Second)
	done := map[string]int{}
	few(t, 1000, func(r *rapid.T) {
		if time.Now().After(long) && flag.Lookup("rapid.checks").Value.String() == usualChecks {
			return
		}
		w := rapid.SampledFrom(worlds).Draw(r, "world")
		if strings.HasPrefix(w.name, "nesting") || w.name == "parent" { // triggers that run after a row don't on branches; those who inherit are other tables
			return
		}
		p := &branchProgram{t: t, r: r, g: g, done: done}
		p.runAlike(pool, w)
		done["programs"]++
	})
	t.Logf("%v", done)
}

func (p *branchProgram) runAlike(pool *pgxpool.Pool, w world) {
	ctx := p.t.Context()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	p.ok(err)
	defer conn.Close(context.WithoutCancel(ctx))
	p.conn = conn
	p.trace = append(p.trace, w.setup, w.options)
	for _, sql := range []string{"select gnomon.drop_branch(name) from gnomon.branch", "drop schema if exists plain, public cascade", "create schema plain", "set search_path = plain", w.setup, "create schema public", "set search_path = public", w.setup, fmt.Sprintf("select gnomon.track('t', '%s')", w.options)} {
		_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		p.ok(err)
	}
	logged := rapid.Bool().Draw(p.r, "logged")
	b := &modelBranch{name: "b"}
	if state := p.exec(nil, fmt.Sprintf("select gnomon.create_branch('b', 'now', %t)", logged)); state != "" {
		p.fatal("create")
	}
	rows := func(sql string) string {
		p.t.Helper()
		var text string
		_, err := conn.Exec(ctx, "begin; "+sql, pgx.QueryExecModeSimpleProtocol)
		p.ok(err)
		err = conn.QueryRow(ctx, "select coalesce(string_agg(q::text, E'\\n' order by q::text collate \"C\"), '') from (select * from t) q", pgx.QueryExecModeExec).Scan(&text)
		p.ok(err)
		_, err = conn.Exec(ctx, "rollback")
		p.ok(err)
		return text
	}
	before := rows("set local search_path = public")
	for range rapid.IntRange(3, 15).Draw(p.r, "steps") {
		sql := statement(p.r)
		if strings.HasPrefix(sql, "truncate") || strings.HasPrefix(sql, "merge") {
			continue
		}
		p.done["statements"]++
		want := p.exec(nil, "set local search_path = plain; "+sql)
		got := p.exec(b, sql)
		if want == "" && got == "23505" && strings.Contains(sql, "set id = case") {
			p.done["swaps"]++ // rows change places in one statement: on a branch each has to find its place free
			return
		}
		if got != want {
			p.fatal("%s: %q on the branch, %q on a table", sql, got, want)
		}
		if on, plain := rows("select gnomon.use('b', true)"), rows("set local search_path = plain"); on != plain {
			p.fatal("after %s the branch shows\n%s\nwant\n%s", sql, on, plain)
		}
	}
	if now := rows("set local search_path = public"); now != before {
		p.fatal("main was\n%s\nand is\n%s", before, now)
	}
}
