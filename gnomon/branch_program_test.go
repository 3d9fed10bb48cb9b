package gnomon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
)

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
	steps    []string // what it does; nil: anything
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
		b.base, b.state, b.was, b.fork, b.origin = b.parent.base.clone(), b.parent.state.clone(), b.parent.was.clone(), b.parent.state.clone(), b.parent.state.clone()
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

func (p *branchProgram) drop(b *modelBranch) {
	if state := p.exec(nil, fmt.Sprintf("select gnomon.drop_branch(%s)", literal(b.name))); state != "" {
		p.fatal("drop")
	}
	p.branches = slices.DeleteFunc(p.branches, func(x *modelBranch) bool { return x == b })
	p.forget(b)
	for _, x := range p.branches {
		if x.parent == b {
			x.parent = nil
		}
	}
}

// forget forgets merges into a branch: they can't be undone any more.
func (p *branchProgram) forget(b *modelBranch) {
	p.merges = slices.DeleteFunc(p.merges, func(m *modelMerge) bool { return m.into == b })
}

// step does something.
func (p *branchProgram) step() {
	pick := func() *modelBranch { return rapid.SampledFrom(p.branches).Draw(p.r, "branch") }
	steps := p.steps
	if steps == nil {
		steps = []string{"main", "main", "branch", "branch", "branch", "branch", "branch", "create", "create", "drop", "reset", "rename", "remember", "rotate", "merge", "merge", "merge into a branch", "undo", "refresh"}
	}
	do := rapid.SampledFrom(steps).Draw(p.r, "do")
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
		if b != into {
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
	p.forget(b)
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
			base = b.forked(p.schema)
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
	case err != nil, into == nil && p.schema.exchanges(plan.changes):
		want = "violations"
	}
	id, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.merge(%s, %s, '{"conflicts": "%s", "strategies": {"*": "%s"}, "dry_run": %t}') m`, literal(b.name), target, conflicts, strategy, dry))
	if status != want || found != plan.conflicts {
		p.fatal("merge of %s into %s: %s with %d conflicts, want %s with %d: %v", b.name, p.nameOf(into), status, found, want, plan.conflicts, err)
	}
	if status == "merged" {
		p.merges = append(p.merges, &modelMerge{id: id, into: into, before: p.stateOf(into), after: next})
		if into == nil {
			p.main = next
			plan.settle(b.was, b.state)
		} else {
			into.state = next
			if b.parent == into {
				b.settled(plan)
			}
		}
	}
	p.compare(b)
	p.compare(into)
}

// undo takes back a merge, or the undo of one.
func (p *branchProgram) undo(m *modelMerge) {
	p.t.Helper()
	strategy, conflicts := "fail", rapid.SampledFrom([]string{"keep", "keep", "fail", "force"}).Draw(p.r, "conflicts")
	if conflicts == "force" {
		strategy = "ours"
	}
	plan := p.schema.plan(m.after, m.before, p.stateOf(m.into), strategy, conflicts)
	next := p.stateOf(m.into).clone()
	err := p.schema.apply(next, plan.changes)
	want := "merged"
	switch {
	case plan.conflicts > 0 && conflicts == "fail":
		want = "conflicts"
	case err != nil, m.into == nil && p.schema.exchanges(plan.changes):
		want = "violations"
	}
	id, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.undo_merge(%d, '{"conflicts": "%s"}') m`, m.id, conflicts))
	if status != want || found != plan.conflicts {
		p.fatal("undo of %d: %s with %d conflicts, want %s with %d: %v", m.id, status, found, want, plan.conflicts, err)
	}
	if status == "merged" {
		p.merges = append(p.merges, &modelMerge{id: id, into: m.into, before: p.stateOf(m.into), after: next, undoes: m})
		if m.into == nil {
			p.main = next
		} else {
			m.into.state = next
		}
		m.undone = true
		if m.undoes != nil {
			m.undoes.undone = false
		}
	}
	p.compare(m.into)
}

// refresh gives a branch main as it is now for its base.
func (p *branchProgram) refresh(b *modelBranch) {
	p.t.Helper()
	strategy := rapid.SampledFrom([]string{"fail", "ours", "theirs"}).Draw(p.r, "strategy")
	conflicts := rapid.SampledFrom([]string{"fail", "keep"}).Draw(p.r, "conflicts")
	plan := p.schema.plan(b.was, b.state, p.main, strategy, conflicts)
	next := p.main.clone()
	for _, c := range plan.changes {
		set(next[c.table], modelKey(append(slices.Clone(c.old), c.new...), p.schema.table(c.table).key), c.new)
	}
	want := "merged"
	switch {
	case plan.conflicts > 0 && conflicts == "fail":
		want = "conflicts"
	case p.schema.check(next) != nil:
		want = "violations"
	}
	_, status, found := p.merging(fmt.Sprintf(`select m.merge, m.status, m.conflicts from gnomon.refresh_branch(%s, 'now', '{"conflicts": "%s", "strategies": {"*": "%s"}}') m`, literal(b.name), conflicts, strategy))
	if status != want || found != plan.conflicts {
		p.fatal("refresh of %s: %s with %d conflicts, want %s with %d", b.name, status, found, want, plan.conflicts)
	}
	if status == "merged" {
		if b.parent != nil {
			b.refreshed(p.schema, p.main, next)
		}
		b.base, b.state, b.was = p.main.clone(), next, p.main.clone()
	}
	p.compare(b)
}

// merging executes what returns the number of a merge, its status and the number of conflicts.
func (p *branchProgram) merging(sql string) (id int64, status string, conflicts int) {
	p.t.Helper()
	p.trace = append(p.trace, sql)
	p.ok(p.conn.QueryRow(p.t.Context(), sql).Scan(&id, &status, &conflicts))
	p.trace[len(p.trace)-1] += fmt.Sprintf(" /* %d: %s, %d conflicts */", id, status, conflicts)
	return id, status, conflicts
}
