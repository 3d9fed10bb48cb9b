package gnomon_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
)

// merging checks a property of merges through the database, a ten-thousandth as often as -gnomon.cases says.
func merging(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	for n := max(1, *mergeCases/10_000); n > 0; n -= 30 {
		few(t, n, property)
	}
}

// TestMergesAreAsTheModel runs random programs that merge more than anything: main, branches and branches of them into each other, with refreshes and undos between.
func TestMergesAreAsTheModel(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	done, worlds := map[string]int{}, slices.Clone(branchWorlds)
	merging(t, func(r *rapid.T) {
		p := &branchProgram{t: t, r: r, g: g, done: done, worlds: worlds, steps: []string{"main", "main", "branch", "branch", "branch", "create", "merge", "merge into a branch", "merge into a branch", "merge into a branch", "undo", "undo", "refresh", "refresh"}}
		p.run(pool)
		done["programs"]++
	})
	t.Logf("%v", done)
}

// A sided is a column of f.l and f.r, with the strategy that decides it.
type sided struct {
	name, kind string
	strategy   gnomon.Strategy
	values     []string // as in SQL
}

var sidedColumns = []sided{
	{"s", "int", gnomon.Sum, []string{"null", "0", "1", "5", "-2"}},
	{"m", "numeric", gnomon.Max, []string{"null", "1.0", "1.00", "2", "-3"}},
	{"n", "int", gnomon.Min, []string{"null", "1", "2", "3"}},
	{"c", "text", gnomon.Fail, []string{"null", "''", "'a'", "'b'"}},
	{"a", "int[]", gnomon.Union, []string{"null", "'{}'", "'{1}'", "'{1,2}'", "'{2,3}'", "'{3,1}'"}},
	{"j", "jsonb", gnomon.JSON, []string{"null", "'{}'", "'null'", `'{"a": 1}'`, `'{"a": 2, "b": {"x": 1}}'`, `'{"b": {"x": 2, "y": 1}}'`}},
}

// A threeWay is what a row is in the base or on one of both sides; nil: not there.
type threeWay []string

// TestMergesKeepTheirInvariants merges what two sides made of the same rows, in one table with one of them on the branch and in another with the other one, and finds what must hold however
// it is decided: it makes no difference who is merged into whom, columns that one side left alone are the other's, both sides' additions are kept, nothing is invented, a row is in
// conflict just where nothing decides, merging again changes nothing, and undoing gives back what was.
func TestMergesKeepTheirInvariants(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	var columns []string
	for _, c := range sidedColumns {
		columns = append(columns, c.name+" "+c.kind)
	}
	run(t, pool, "create schema f", "create table f.l (id int primary key, "+strings.Join(columns, ", ")+")", "create table f.r (like f.l including all)")
	track(t, g, "f.l", "f.r")
	strategies := gnomon.Strategies{"f.l": {}, "f.r": {}}
	for _, c := range sidedColumns {
		strategies["f.l"][c.name], strategies["f.r"][c.name] = c.strategy, c.strategy
	}
	conn := connectAs(t, pool.Config().ConnString(), "")
	run(t, conn, "set search_path = f")
	execute := func(r *rapid.T, sql []string) {
		if _, err := conn.Exec(ctx, "begin; "+strings.Join(sql, "; ")+"; commit", pgx.QueryExecModeSimpleProtocol); err != nil {
			r.Fatalf("%s: %v", strings.Join(sql, ";\n"), err)
		}
	}
	names := 0
	merging(t, func(r *rapid.T) {
		draw := func() (s threeWay) {
			for _, c := range sidedColumns {
				s = append(s, rapid.SampledFrom(c.values).Draw(r, c.name))
			}
			return s
		}
		// What a side makes of a row: it stays, goes, or has some columns changed.
		edit := func(base threeWay) threeWay {
			switch n := rapid.IntRange(0, 9).Draw(r, "edit"); {
			case base == nil && n < 5, base != nil && n == 0:
				return nil
			case base == nil:
				return draw()
			case n < 3:
				return base
			}
			next := slices.Clone(base)
			for i, v := range draw() {
				if rapid.IntRange(0, 2).Draw(r, "column") == 0 {
					next[i] = v
				}
			}
			return next
		}
		var rows [][3]threeWay // base, one, other
		for range rapid.IntRange(4, 25).Draw(r, "rows") {
			var base threeWay
			if rapid.IntRange(0, 9).Draw(r, "there") < 8 {
				base = draw()
			}
			rows = append(rows, [3]threeWay{base, edit(base), edit(base)})
		}
		write := func(table string, which, from int) (sql []string) {
			for id, row := range rows {
				old, row := row[from], row[which]
				switch {
				case which == 0 && row != nil || old == nil && row != nil:
					sql = append(sql, fmt.Sprintf("insert into %s values (%d, %s)", table, id, strings.Join(row, ", ")))
				case which == 0:
				case old != nil && row == nil:
					sql = append(sql, fmt.Sprintf("delete from %s where id = %d", table, id))
				case row != nil:
					for i, c := range sidedColumns {
						if row[i] != old[i] {
							sql = append(sql, fmt.Sprintf("update %s set %s = %s where id = %d", table, c.name, row[i], id))
						}
					}
				}
			}
			return sql
		}
		names++
		name := fmt.Sprintf("branch %d", names)
		execute(r, append(append([]string{"delete from l", "delete from r"}, write("l", 0, 0)...), write("r", 0, 0)...))
		execute(r, []string{"select gnomon.create_branch(" + literal(name) + ")"})
		execute(r, append(append([]string{"select gnomon.use(" + literal(name) + ", true)"}, write("l", 1, 0)...), write("r", 2, 0)...))
		execute(r, append(write("l", 2, 0), write("r", 1, 0)...))
		// The sides, as PostgreSQL has them.
		execute(r, []string{"drop table if exists pg_temp.sides", "create temp table sides (of text, like l)"})
		for which, of := range []string{"base", "one", "other"} {
			for id, row := range rows {
				if row[which] != nil {
					execute(r, []string{fmt.Sprintf("insert into sides values ('%s', %d, %s)", of, id, strings.Join(row[which], ", "))})
				}
			}
		}
		const both = "select 'l' as t, l.* from l union all select 'r', r.* from r order by 1, 2"
		before := text(t, conn, both)
		conflicts := rapid.SampledFrom([]string{gnomon.LeaveConflicts, gnomon.KeepTheirs}).Draw(r, "conflicts")
		options := gnomon.MergeOptions{Conflicts: conflicts, Strategies: strategies}
		report, err := gnomon.New(conn).Merge(ctx, name, options)
		if err != nil {
			r.Fatal(err)
		}
		after := text(t, conn, both)
		fail := func(what, found string) {
			r.Fatalf("%s: %s\nbefore\n%s\nafter\n%s\nsides\n%s", what, found, before, after, text(t, conn, "select * from sides order by id, of"))
		}
		list, err := gnomon.New(conn).Conflicts(ctx, report.ID)
		if err != nil {
			r.Fatal(err)
		}
		kept, _ := json.Marshal(list)
		execute(r, []string{"drop table if exists pg_temp.found", "create temp table found (t text, id int, columns text[])"})
		for _, c := range list {
			var fields []string
			for _, f := range c.Fields {
				fields = append(fields, f.Column)
			}
			if _, err := conn.Exec(ctx, "insert into found values ($1, $2::text::int, $3)", strings.TrimPrefix(c.Table, "f."), c.Key[0], fields); err != nil {
				r.Fatal(err)
			}
		}
		rule := func(what, sql string) {
			if found := text(t, conn, sql); found != "" {
				fail(what, found+" "+string(kept))
			}
		}
		rule("it is a conflict from either side", "(select id, columns from found where t = 'l' except all select id, columns from found where t = 'r') union all (select id, columns from found where t = 'r' except all select id, columns from found where t = 'l')")
		set := func(alias string) string { return "array(select e from unnest(" + alias + ".a) e order by e)" }
		rule("it makes no difference who is merged into whom", "select l, r from l full join r using (id) where id not in (select id from found) and (l.id is null or r.id is null or not record_image_eq(row(l.s, l.m, l.n, l.c, l.j), row(r.s, r.m, r.n, r.c, r.j)) or "+set("l")+" <> "+set("r")+" or (l.a is null) <> (r.a is null))")
		for _, table := range []string{"l", "r"} {
			// ours is what was on the branch, theirs what was on main.
			from := fmt.Sprintf("from (select id from sides group by id) k left join sides b on b.of = 'base' and b.id = k.id left join sides o on o.of = '%s' and o.id = k.id left join sides m on m.of = '%s' and m.id = k.id left join %s t on t.id = k.id left join found f on f.t = '%[3]s' and f.id = k.id where ",
				map[string]string{"l": "one", "r": "other"}[table], map[string]string{"l": "other", "r": "one"}[table], table)
			row := func(alias string) string {
				return fmt.Sprintf("row(%[1]s.s, %[1]s.m, %[1]s.n, %[1]s.c, %[1]s.a, %[1]s.j)", alias)
			}
			same := func(a, b string) string { return "record_image_eq(" + row(a) + ", " + row(b) + ")" }
			show := "select k.id, '" + table + "', to_jsonb(b.*), to_jsonb(o.*), to_jsonb(m.*), to_jsonb(t.*), to_jsonb(f.*) " + from
			rule("who changed nothing is not asked", show+"(b.id is null) = (o.id is null) and "+same("b", "o")+" and (f.id is not null or (m.id is null) <> (t.id is null) or not "+same("m", "t")+")")
			rule("what one side alone changed is taken", show+"(b.id is null) = (m.id is null) and "+same("b", "m")+" and (f.id is not null or (o.id is null) <> (t.id is null) or not "+same("o", "t")+")")
			rule("what one side deleted and the other changed is a conflict", show+"b.id is not null and ((o.id is null) <> (m.id is null)) and (f.id is not null) <> (case when o.id is null then not "+same("b", "m")+" else not "+same("b", "o")+" end)")
			if conflicts == gnomon.LeaveConflicts {
				rule("a row in conflict stays as it is", show+"f.id is not null and ((m.id is null) <> (t.id is null) or not "+same("m", "t")+")")
			}
			for _, c := range sidedColumns {
				image := func(a, b string) string {
					return fmt.Sprintf("record_image_eq(row(%s.%s), row(%s.%[2]s))", a, c.name, b)
				}
				there := "o.id is not null and m.id is not null and "
				// Both changed it, and not to the same; of sums also to the same.
				contested := fmt.Sprintf("((b.id is null or not %s and not %s) and not %s)", image("b", "o"), image("b", "m"), image("o", "m"))
				undecided := map[gnomon.Strategy]string{gnomon.Fail: contested, gnomon.Max: "false", gnomon.Min: "false", gnomon.Union: "false"}[c.strategy]
				if c.strategy == gnomon.Sum {
					contested = fmt.Sprintf("(b.id is null and not %[3]s or b.id is not null and not %[1]s and not %[2]s)", image("b", "o"), image("b", "m"), image("o", "m"))
					undecided = contested + " and num_nulls(o.s, m.s) > 0"
				}
				if undecided != "" {
					rule("column "+c.name+" is in conflict just where nothing decides", show+there+fmt.Sprintf("coalesce('%s' = any (f.columns), false) <> (%s)", c.name, undecided))
				} else {
					rule("column "+c.name+" is in conflict only where both changed it", show+there+fmt.Sprintf("'%s' = any (f.columns) and not %s", c.name, contested))
				}
				merged := there + "f.id is null and "
				rule("column "+c.name+" is the other's where one left it alone", show+merged+fmt.Sprintf("b.id is not null and (%s and not %s or %s and not %s)", image("b", "o"), image("t", "m"), image("b", "m"), image("t", "o")))
				decided := map[gnomon.Strategy]string{
					gnomon.Sum:   "t.s is distinct from o.s + m.s - coalesce(b.s, 0)",
					gnomon.Max:   "t.m is distinct from greatest(o.m, m.m)",
					gnomon.Min:   "t.n is distinct from least(o.n, m.n)",
					gnomon.Union: "(exists (select from unnest(t.a) e where e <> all (coalesce(o.a, '{}')) and e <> all (coalesce(m.a, '{}'))) or exists (select from unnest(o.a) e where e = any (m.a) and e <> all (coalesce(t.a, '{}'))) or exists (select from unnest(b.a) e where (e <> all (coalesce(o.a, '{}')) or e <> all (coalesce(m.a, '{}'))) and e = any (t.a)))",
					gnomon.JSON:  "exists (select from jsonb_path_query(t.j, 'strict $.**') v where jsonb_typeof(v) not in ('object', 'null') and not exists (select from jsonb_path_query(o.j, 'strict $.**') w where w = v) and not exists (select from jsonb_path_query(m.j, 'strict $.**') w where w = v))",
				}[c.strategy]
				if decided != "" {
					rule("column "+c.name+" is decided by its strategy", show+merged+contested+" and "+decided)
				}
			}
		}
		// Again it changes nothing but what is in conflict still.
		again, err := gnomon.New(conn).Merge(ctx, name, options)
		if err != nil || again.Inserted+again.Updated+again.Deleted > 0 && conflicts == gnomon.LeaveConflicts || text(t, conn, both) != after {
			fail("merging again", fmt.Sprintf("%+v, %v", again, err))
		}
		undo, err := gnomon.New(conn).UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{Later: gnomon.FailOnLater})
		if err != nil || text(t, conn, both) != before {
			fail("the undo", fmt.Sprintf("%+v, %v: %s", undo, err, text(t, conn, both)))
		}
		redo, err := gnomon.New(conn).UndoMerge(ctx, undo.ID, gnomon.UndoMergeOptions{Later: gnomon.FailOnLater})
		if err != nil || text(t, conn, both) != after {
			fail("the undo of the undo", fmt.Sprintf("%+v, %v: %s", redo, err, text(t, conn, both)))
		}
		execute(r, []string{"select gnomon.drop_branch(" + literal(name) + ")"})
	})
}
