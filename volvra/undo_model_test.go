package volvra_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/volvra"
)

// modelRow is a row of the table: its columns as texts, "null" for null. The first is the key.
type modelRow [4]string

var modelColumns = [...]string{"id", "a", "b", "c"}

// modelChange is one change of one row by one transaction; nil: there is no row.
type modelChange struct {
	tx            int
	before, after *modelRow
}

// modelLife is a row through its changes. A row that is deleted and inserted again under its key is the same one.
type modelLife struct{ changes []modelChange }

func (l *modelLife) today() *modelRow {
	if len(l.changes) == 0 {
		return nil
	}
	return l.changes[len(l.changes)-1].after
}

// model is the table in memory: whose life each key is now, and all lives.
type model struct {
	at    map[int]*modelLife
	lives []*modelLife
}

func (m *model) rows() map[string]modelRow {
	rows := map[string]modelRow{}
	for _, l := range m.lives {
		if r := l.today(); r != nil {
			rows[r[0]] = *r
		}
	}
	return rows
}

// planned is what the plan says of a row.
type planned struct {
	status volvra.Status
	op     volvra.Operation
	key    string
	to     *modelRow // what the row is afterwards, if the undo is done
}

// run is what selected and other changes did to one thing, a column or whether the row exists.
type modelRun struct {
	touched  bool   // by a selected change
	base     string // value before the last run of selected changes
	left     string // value after the last selected change
	since    bool   // others changed it after that
	last, by int    // positions of the last selected change and of the last other one
}

func (r *modelRun) note(position int, selected bool, before, after string) {
	if before == after {
		return
	}
	if !selected {
		r.by, r.since = position, r.touched
		return
	}
	if !r.touched || r.since {
		r.base = before
	}
	r.touched, r.since, r.left, r.last = true, false, after, position
}

// plan says what an undo of transactions does to a row; nil: nothing.
func (l *modelLife) plan(selected map[int]bool) *planned {
	first := slices.IndexFunc(l.changes, func(c modelChange) bool { return selected[c.tx] })
	if first < 0 {
		return nil
	}
	exists := modelRun{last: -1, by: -1}
	var columns [4]modelRun
	for c := range columns {
		columns[c] = modelRun{last: -1, by: -1}
	}
	word := func(r *modelRow) string { return fmt.Sprint(r != nil) }
	var known, gone *modelRow // the last row there was, and the one before the run that exists describes
	images := map[int]*modelRow{}
	for i, c := range l.changes {
		if i < first {
			continue
		}
		if c.before != nil {
			known = c.before
		}
		was := exists.base
		touched, since := exists.touched, exists.since
		exists.note(i, selected[c.tx], word(c.before), word(c.after))
		if selected[c.tx] && word(c.before) != word(c.after) && (!touched || since || was != exists.base) {
			gone = c.before
		}
		if c.after != nil && known != nil {
			for n := range columns {
				columns[n].note(i, selected[c.tx], known[n], c.after[n])
			}
		}
		if c.after != nil {
			known = c.after
		}
		images[i] = known
	}

	today := l.today()
	wants := today != nil
	if exists.touched {
		wants = exists.base == "true"
	}
	moved := [4]bool{} // others changed it, and it is not what selected changes left
	anyMoved, anyUndone, conflict, differs := false, false, false, false
	target := modelRow{}
	var writes []int
	for n := range columns {
		r := &columns[n]
		since := max(r.last, exists.last)
		left := known
		if since >= 0 {
			left = images[since]
		}
		moved[n] = today != nil && r.by > since && left != nil && left[n] != today[n]
		anyMoved = anyMoved || moved[n]
		switch {
		case r.touched:
			target[n] = r.base
		case exists.touched && gone != nil && (today == nil || exists.since):
			target[n] = gone[n]
		case today != nil:
			target[n] = today[n]
		}
		if today != nil && target[n] != today[n] {
			differs = true
			if r.touched && moved[n] {
				conflict = true
			} else if r.touched {
				writes = append(writes, n)
			}
		}
		anyUndone = anyUndone || r.touched && r.since
		if today == nil && wants && exists.touched && r.touched && r.since && target[n] != gone[n] {
			conflict = true
		}
	}
	undone := wants == (today != nil) && (!wants || !differs)
	restored := exists.left == word(today) && !anyMoved
	lost := exists.touched && exists.since && !undone && !restored
	anyTouched := slices.ContainsFunc(columns[:], func(r modelRun) bool { return r.touched })

	p := &planned{status: volvra.Clean}
	switch {
	case wants && today != nil:
		p.op, p.key = volvra.OpUpdate, today[0]
		row := *today
		for _, n := range writes {
			row[n] = target[n]
		}
		p.to = &row
		switch {
		case lost || conflict:
			p.status = volvra.Conflict
		case len(writes) > 0:
		case anyUndone || exists.touched && exists.since:
			p.status = volvra.Undone
		default:
			return nil
		}
	case wants:
		p.op, p.key, p.to = volvra.OpInsert, target[0], &target
		if lost || conflict {
			p.status = volvra.Conflict
		}
	case today != nil:
		p.op, p.key = volvra.OpDelete, today[0]
		if lost || anyMoved {
			p.status = volvra.Conflict
		}
	default:
		p.op, p.key = volvra.OpNone, known[0]
		switch {
		case !exists.touched && anyTouched, lost:
			p.status = volvra.Conflict
		case exists.touched && exists.since:
			p.status = volvra.Undone
		default:
			return nil
		}
	}
	return p
}

// program is a random history: transactions by their statements, and what they do to the model.
func program(t *rapid.T, table string, base int) (m *model, transactions [][]string) {
	m = &model{at: map[int]*modelLife{}}
	values := [...][]string{nil, {"1", "2", "3", "4", "null"}, {"'x'", "'y'", "null"}, {"1.0", "1.00", "2"}}
	value := func(n int) string { return rapid.SampledFrom(values[n]).Draw(t, modelColumns[n]) }
	for tx := range rapid.IntRange(3, 10).Draw(t, "transactions") {
		var statements []string
		for range rapid.IntRange(1, 5).Draw(t, "statements") {
			key := base + rapid.IntRange(0, 2).Draw(t, "key")
			life := m.at[key]
			var row *modelRow
			if life != nil {
				row = life.today()
			}
			if row == nil {
				r := &modelRow{fmt.Sprint(key), value(1), value(2), value(3)}
				if life == nil {
					life = &modelLife{}
					m.lives, m.at[key] = append(m.lives, life), life
				}
				life.changes = append(life.changes, modelChange{tx, nil, r})
				statements = append(statements, fmt.Sprintf("insert into %s values (%s)", table, strings.Join(r[:], ", ")))
				continue
			}
			r := *row
			switch rapid.SampledFrom([]string{"update", "update", "update", "update", "update", "delete", "move"}).Draw(t, "kind") {
			case "delete":
				life.changes = append(life.changes, modelChange{tx, row, nil})
				statements = append(statements, fmt.Sprintf("delete from %s where id = %d", table, key))
			case "move":
				to := base + rapid.IntRange(0, 3).Draw(t, "to")
				if taken := m.at[to]; to == key || taken != nil && taken.today() != nil {
					continue
				}
				r[0] = fmt.Sprint(to)
				life.changes = append(life.changes, modelChange{tx, row, &r})
				delete(m.at, key)
				m.at[to] = life
				statements = append(statements, fmt.Sprintf("update %s set id = %d where id = %d", table, to, key))
			default:
				n := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "column")
				r[n] = value(n)
				life.changes = append(life.changes, modelChange{tx, row, &r})
				statements = append(statements, fmt.Sprintf("update %s set %s = %s where id = %d", table, modelColumns[n], r[n], key))
			}
		}
		transactions = append(transactions, statements)
	}
	return m, transactions
}

// TestUndoModel compares plan and undo of random selections from random histories with the model, row by row and column by column;
// then undoes the undo, which must bring back exactly the table there was.
func TestUndoModel(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	// Each is captured in another way.
	tables := []string{"plain", "delayed", "nesting", "parted", "by_row", "sparing"}
	for _, table := range tables {
		run(t, pool, "create table "+table+" (id int primary key "+map[string]string{"delayed": "deferrable"}[table]+", a int, b text, c numeric) "+map[string]string{"parted": "partition by hash (id)"}[table])
	}
	run(t, pool, "create table parted_0 partition of parted for values with (modulus 2, remainder 0)", "create table parted_1 partition of parted for values with (modulus 2, remainder 1)",
		"create function nothing() returns trigger language plpgsql as $$ begin perform 1; return null; end $$", "create trigger nothing after update on nesting for each row execute function nothing()",
		"create table other (id int primary key, x int)", "insert into other values (1, 1)")
	cover(t, v, append([]string{"other"}, tables[:4]...)...)
	must[volvra.Covering](t)(v.Enable(t.Context(), "by_row", volvra.Options{ByRow: true}))
	must[volvra.Covering](t)(v.Enable(t.Context(), "sparing", volvra.Options{Wide: []string{"b", "c"}}))
	cases := 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		base := cases * 100
		table := rapid.SampledFrom(tables).Draw(t, "table")
		m, transactions := program(t, table, base)
		ids := make([]volvra.TransactionID, len(transactions))
		for i, statements := range transactions {
			id, err := transact(context.Background(), pool, statements)
			if err != nil {
				t.Fatalf("%s: %v", strings.Join(statements, "; "), err)
			}
			ids[i] = id
		}
		before := placeRows(t, pool, table, base)
		if want := m.rows(); !maps.Equal(before, want) {
			t.Fatalf("the history is not the model's: %v, want %v", before, want)
		}
		selected := map[int]bool{}
		var s volvra.Selection
		for i := range transactions {
			if rapid.Bool().Draw(t, "selected") {
				selected[i] = true
				s.Transactions = append(s.Transactions, ids[i])
			}
		}
		if len(selected) == 0 {
			return
		}
		var want []*planned
		after := m.rows()
		for _, l := range m.lives {
			if p := l.plan(selected); p != nil {
				want = append(want, p)
			}
		}
		expected := len(want)
		plan, err := v.Preview(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Rows) != expected {
			t.Fatalf("%d rows are planned, want %d:\n%s\n%s", len(plan.Rows), expected, describe(plan.Rows), describeModel(m, selected))
		}
		var moved []*planned
		for _, r := range plan.Rows {
			i := slices.IndexFunc(want, func(p *planned) bool {
				return p.key == r.Key[0] && p.op == r.Operation && (r.Status == p.status || r.Status == volvra.Unique && p.status == volvra.Clean)
			})
			if i < 0 {
				t.Fatalf("%s is not what the model plans\n%s", describe([]volvra.PlannedRow{r}), describeModel(m, selected))
			}
			p := want[i]
			want = slices.Delete(want, i, i+1)
			if r.Status == volvra.Clean {
				if p.op != volvra.OpInsert {
					delete(after, r.Key[0])
				}
				moved = append(moved, p)
			}
		}
		blocked := plan.Counts[volvra.Unique] > 0
		for _, p := range moved {
			if p.to != nil {
				after[p.to[0]] = *p.to
			}
		}
		result, err := v.Undo(context.Background(), volvra.Token(plan.Token), volvra.UndoOptions{Policy: volvra.SkipConflicts})
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, describe(plan.Rows), describeModel(m, selected))
		}
		// Leaving out a blocked row can block another one, so then only the undo of the undo is checked.
		if got := placeRows(t, pool, table, base); !blocked && !maps.Equal(got, after) {
			t.Fatalf("undone: %v, want %v\n%s\n%s", got, after, describe(plan.Rows), describeModel(m, selected))
		}
		if _, err := v.Redo(context.Background(), result.Attempt, volvra.UndoOptions{}); err != nil {
			t.Fatalf("undo of the undo: %v\n%s\n%s\n%s", err, describe(plan.Rows), describeModel(m, selected), entries(pool, table, base))
		}
		if got := placeRows(t, pool, table, base); !maps.Equal(got, before) {
			t.Fatalf("undo of the undo: %v, want %v", got, before)
		}
	})
	if got := column[int](t, pool, "select x from other"); !slices.Equal(got, []int{1}) {
		t.Errorf("another table changed: %v", got)
	}
}

// transact runs statements in one transaction and returns which.
func transact(ctx context.Context, pool *pgxpool.Pool, statements []string) (volvra.TransactionID, error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer c.Release()
	results, err := c.Conn().PgConn().Exec(ctx, "begin; "+strings.Join(append(slices.Clone(statements), "select volvra.this_transaction()", "commit"), "; ")).ReadAll()
	if err != nil {
		_, _ = c.Exec(ctx, "rollback")
		return "", err
	}
	return volvra.TransactionID(results[len(results)-2].Rows[0][0]), nil
}

func placeRows(t *rapid.T, pool *pgxpool.Pool, table string, base int) map[string]modelRow {
	rows, err := pool.Query(context.Background(), "select id::text, coalesce(a::text, 'null'), coalesce(quote_literal(b), 'null'), c::text from "+table+" where id between $1 and $1 + 99", base)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	list := map[string]modelRow{}
	for rows.Next() {
		var r modelRow
		if err := rows.Scan(&r[0], &r[1], &r[2], &r[3]); err != nil {
			t.Fatal(err)
		}
		list[r[0]] = r
	}
	return list
}

// entries returns the history of the case.
func entries(pool *pgxpool.Pool, table string, base int) string {
	var s string
	_ = pool.QueryRow(context.Background(), "select 'annals.h' || id from annals.tracked where relation = $1::regclass", table).Scan(&s)
	_ = pool.QueryRow(context.Background(), "select string_agg(concat_ws(' ', e.v, e.xid, e.op, e.start, e.missing, e.c1, e.c2, e.c3, e.c4), E'\\n' order by e.c1, e.v) from "+s+" e where e.c1 between $1 and $1 + 99", base).Scan(&s)
	return s
}

func describe(rows []volvra.PlannedRow) string {
	var s strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&s, "%v %s %s %s\n", r.Key, r.Operation, r.Status, r.SQL)
	}
	return s.String()
}

func describeModel(m *model, selected map[int]bool) string {
	var s strings.Builder
	for _, l := range m.lives {
		for _, c := range l.changes {
			mark := " "
			if selected[c.tx] {
				mark = "S"
			}
			fmt.Fprintf(&s, "%s%d %v -> %v; ", mark, c.tx, c.before, c.after)
		}
		if p := l.plan(selected); p != nil {
			fmt.Fprintf(&s, "  => %+v", *p)
		}
		s.WriteString("\n")
	}
	return s.String()
}
