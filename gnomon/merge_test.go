package gnomon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// branched is tracked, with ten orders, a search_path that finds them, and the branch b.
func branched(t testing.TB) (*gnomon.Gnomon, *pgxpool.Pool, *gnomon.Branch) {
	t.Helper()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders select i, 'c' || i, i, 'n' || i from generate_series(1, 10) i",
		"do $$ begin execute format('alter database %I set search_path = shop, public', current_database()); end $$")
	pool.Reset()
	return g, pool, must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), "b", gnomon.BranchOptions{}))
}

// write runs statements on a branch.
func write(t testing.TB, b *gnomon.Branch, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := b.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// counts are those of a report, in the order inserted, updated, deleted, already, conflicts, violations.
func counts(r gnomon.MergeReport) string {
	return fmt.Sprintf("%s %d %d %d %d %d %d", r.Status, r.Inserted, r.Updated, r.Deleted, r.Already, r.Conflicts, r.Violations)
}

// words are values with a space between any two.
func words(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func alike(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

const allOrders = "select * from shop.orders order by id"

func TestMergeIsThreeWayByColumn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id in (1, 2)", "delete from orders where id in (3, 4)", "insert into orders values (11, 'new', 1, null), (12, 'new', 2, null)", "update orders set total = 50 where id = 5",
		"update orders set note = note where id = 6", "insert into orders values (13, 'gone', 1, null)", "delete from orders where id = 13")
	run(t, pool, "update shop.orders set customer = 'main' where id in (1, 6)", "delete from shop.orders where id = 4", "insert into shop.orders values (12, 'new', 2, null)", "update shop.orders set total = 50 where id = 5")
	dry := must[gnomon.MergeReport](t)(g.Merge(ctx, "b", gnomon.MergeOptions{DryRun: true}))
	alike(t, counts(dry), "dry run 1 2 1 3 0 0")
	alike(t, text(t, pool, "select count(*), max(id) from shop.orders"), "(10,12)")
	r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	alike(t, counts(r), "merged 1 2 1 3 0 0")
	alike(t, fmt.Sprint(r.Tables), "map[shop.orders:{1 2 1 3 0}]")
	alike(t, text(t, pool, allOrders), "(1,main,1.00,branch)\n(2,c2,2.00,branch)\n(5,c5,50.00,n5)\n(6,main,6.00,n6)\n(7,c7,7.00,n7)\n(8,c8,8.00,n8)\n(9,c9,9.00,n9)\n(10,c10,10.00,n10)\n(11,new,1.00,)\n(12,new,2.00,)")
	var rows []string
	for _, row := range must[[]gnomon.MergedRow](t)(g.MergeRows(ctx, r.ID)) {
		rows = append(rows, words(row.Key, row.Operation, row.Columns, row.Old != nil, row.New != nil))
	}
	alike(t, strings.Join(rows, "\n"), "[1] update [note] true true\n[11] insert [customer total note] false true\n[2] update [note] true true\n[3] delete [customer total note] true false")

	// Again there is nothing to merge, and what comes later is told apart.
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 0 0 0 0 0")
	run(t, pool, "update shop.orders set note = 'later' where id = 1")
	write(t, b, "update orders set note = 'again' where id = 2", "update orders set total = 7 where id = 1")
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 2 0 0 0 0")
	alike(t, text(t, pool, allOrders+" limit 2"), "(1,main,7.00,later)\n(2,c2,2.00,again)")
	infos := must[[]gnomon.MergeInfo](t)(g.Merges(ctx, "b"))
	if len(infos) != 4 || infos[0].Status != gnomon.StatusDryRun || infos[1].Branch != "b" || infos[1].ID != r.ID {
		t.Fatalf("%+v", infos)
	}
	alike(t, text(t, pool, "select current_setting('search_path'), coalesce(current_setting('gnomon.branch', true), ''), coalesce(current_setting('gnomon.merging', true), '')"), `("shop, public","","")`)
}

func TestMergeReportsEachKindOfConflict(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch', total = 5 where id in (1, 2)", "delete from orders where id = 3", "insert into orders values (11, 'branch', 1, null)", "update orders set note = 'fine' where id = 9")
	run(t, pool, "update shop.orders set note = 'main' where id in (1, 3)", "delete from shop.orders where id = 2", "insert into shop.orders values (11, 'main', 1, null)")
	before := text(t, pool, allOrders)
	r, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	alike(t, counts(r), "conflicts 0 1 0 0 4 0")
	alike(t, text(t, pool, allOrders), before)
	var got []string
	conflicts := must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))
	for _, c := range conflicts {
		s := words(c.Table, c.Key, c.Kind, c.InBase, c.OnBranch, c.OnMain)
		for _, f := range c.Fields {
			s += fmt.Sprintf(" %s=%s/%s/%s", f.Column, f.Base, f.Branch, f.Main)
		}
		got = append(got, s)
	}
	alike(t, strings.Join(got, "\n"), `shop.orders [1] edit/edit true true true note="n1"/"branch"/"main"
shop.orders [11] add/add false true true customer=/"branch"/"main"
shop.orders [2] edit/delete true true false
shop.orders [3] delete/edit true false true`)

	// The rest can be merged without them; they stay on the branch.
	r = must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Conflicts: gnomon.LeaveConflicts}))
	alike(t, counts(r), "merged 0 1 0 0 4 0")
	alike(t, text(t, pool, "select note from shop.orders where id in (1, 9) order by id"), "(main)\n(fine)")
	// Or all but the columns in conflict.
	r = must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Conflicts: gnomon.KeepTheirs}))
	alike(t, counts(r), "merged 0 1 0 0 4 0")
	alike(t, text(t, pool, "select total, note from shop.orders where id = 1"), "(5.00,main)")
	for _, bad := range []gnomon.MergeOptions{{Conflicts: "no"}, {Strategies: gnomon.Strategies{"shop.orders": {"nope": gnomon.Ours}}}, {Strategies: gnomon.Strategies{"shop.orders": {"note": gnomon.Sum}}}, {Keys: map[string][]gnomon.Key{"shop.orders": {{"1", "2"}}}}} {
		_, err := b.Merge(ctx, bad)
		refuses(t, err, gnomon.ErrInvalid)
	}
	_, err = b.Merge(ctx, gnomon.MergeOptions{Tables: []string{"shop.nothing"}})
	refuses(t, err, gnomon.ErrNotTracked)
	_, err = g.Merge(ctx, "nobody", gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrUnknownBranch)
	_, err = g.Conflicts(ctx, 999)
	refuses(t, err, gnomon.ErrUnknownMerge)
}

func TestStrategiesDecide(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create schema shop", `create table shop."ta""ble" ("select" int primary key, a int, "t" numeric, s text, m int, x int, list int[], doc jsonb, f int, gone int)`,
		`create function shop.pick(int, int, int) returns int language sql as 'select $1 * 100 + $2 * 10 + $3'`, `insert into shop."ta""ble" values (1, 1, 1.50, 'base', 5, 5, '{1,2,3}', '{"a": 1, "b": {"x": 1, "y": 1}}', 1, 1), (2, 1, 1, '', 1, 1, null, null, 1, 1), (3, 1, 1, '', 1, 1, null, null, 1, 1)`,
		"do $$ begin execute format('alter database %I set search_path = shop, public', current_database()); end $$")
	pool.Reset()
	const table = `shop."ta""ble"`
	track(t, g, table)
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	run(t, pool, `update shop."ta""ble" set a = 3, "t" = 4.00, s = 'main', m = 4, x = 4, list = '{2,3,9}', doc = '{"a": 1, "b": {"x": 1, "y": 2}, "n": null}', f = 3`, `delete from shop."ta""ble" where "select" = 3`)
	write(t, b, `update "ta""ble" set a = 2, "t" = 2.25, s = 'branch', m = 6, x = 6, list = '{1,3,5}', doc = '{"b": {"x": 2, "y": 1}}', f = 2 where "select" = 1`, `update "ta""ble" set a = 9 where "select" = 3`)
	for column, s := range map[string]gnomon.Strategy{"a": gnomon.Ours, "t": gnomon.Sum, "s": gnomon.Newest, "m": gnomon.Min, "x": gnomon.Max, "list": gnomon.Union, "doc": gnomon.JSON, "f": gnomon.Function("shop.pick(int, int, int)"), gnomon.AnyColumn: gnomon.Theirs} {
		ok(t, g.SetStrategy(ctx, table, column, s))
	}
	refuses(t, g.SetStrategy(ctx, table, "s", gnomon.Sum), gnomon.ErrInvalid)
	refuses(t, g.SetStrategy(ctx, table, "s", gnomon.Function("shop.pick(int, int, int)")), gnomon.ErrInvalid)
	refuses(t, g.SetStrategy(ctx, table, "select", gnomon.Ours), gnomon.ErrInvalid)
	if n := len(must[[]gnomon.ColumnStrategy](t)(g.Strategies(ctx))); n != 9 {
		t.Fatalf("%d strategies", n)
	}
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 1 0 1 0 0")
	alike(t, text(t, pool, `select * from shop."ta""ble" where "select" = 1`), `(1,2,4.75,branch,4,6,"{3,9,5}","{""b"": {""x"": 2, ""y"": 2}, ""n"": null}",123,1)`)

	// What is given with a merge goes before; what does not suit a type fails.
	c := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "c", gnomon.BranchOptions{}))
	write(t, c, `update "ta""ble" set a = 70, s = 'branch' where "select" = 2`)
	run(t, pool, `update shop."ta""ble" set a = 80, s = 'main again' where "select" = 2`)
	r, err := c.Merge(ctx, gnomon.MergeOptions{Strategies: gnomon.Strategies{gnomon.AnyTable: {gnomon.AnyColumn: gnomon.Sum}}})
	refuses(t, err, gnomon.ErrConflict)
	alike(t, fmt.Sprint(len(must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))[0].Fields)), "1")
	must[gnomon.MergeReport](t)(c.Merge(ctx, gnomon.MergeOptions{Strategies: gnomon.Strategies{table: {"a": gnomon.Max, gnomon.AnyColumn: gnomon.Ours}}}))
	alike(t, text(t, pool, `select a, s from shop."ta""ble" where "select" = 2`), "(80,branch)")
}

func TestConflictsAreResolvedAndMergesFinished(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch', total = 20 where id <= 4", "update orders set note = 'alone' where id = 9")
	run(t, pool, "update shop.orders set note = 'main' where id <= 4")
	r, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(1), gnomon.TakeOurs, nil))
	ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(2), gnomon.TakeTheirs, nil))
	ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(3), gnomon.TakeValues, map[string]any{"note": "both"}))
	refuses(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(9), gnomon.TakeOurs, nil), gnomon.ErrInvalid)
	refuses(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(3), gnomon.TakeValues, map[string]any{"nope": 1}), gnomon.ErrInvalid)
	// What is not resolved is one again, and so is what changed since.
	run(t, pool, "update shop.orders set customer = 'changed' where id = 1")
	r, err = g.FinishMerge(ctx, r.ID)
	refuses(t, err, gnomon.ErrConflict)
	alike(t, counts(r), "conflicts 0 3 0 0 2 0")
	ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(1), gnomon.TakeOurs, nil))
	ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(4), gnomon.TakeValues, nil))
	r = must[gnomon.MergeReport](t)(g.FinishMerge(ctx, r.ID))
	alike(t, counts(r), "merged 0 4 1 0 0 0")
	// What one side alone changed is merged beside what was chosen.
	alike(t, text(t, pool, allOrders+" limit 4"), "(1,changed,20.00,branch)\n(2,c2,20.00,main)\n(3,c3,20.00,both)\n(5,c5,5.00,n5)")
	_, err = g.FinishMerge(ctx, r.ID)
	refuses(t, err, gnomon.ErrInvalid)
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 0 0 0 0 0")
}

func TestMergeOfTablesAndKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	run(t, pool, "create table shop.other (a int, b text, v int, primary key (a, b))", "insert into shop.other values (1, 'x', 1), (1, 'y', 1)")
	track(t, g, "shop.other")
	ok(t, b.Drop(ctx))
	b = must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, "update orders set note = 'branch' where id <= 4", "update other set v = 2")
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Keys: map[string][]gnomon.Key{"shop.orders": {{"2"}, {"3"}}, "shop.other": {{"1", "y"}}}}))), "merged 0 3 0 0 0 0")
	alike(t, text(t, pool, "select id from shop.orders where note = 'branch' order by id"), "(2)\n(3)")
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Tables: []string{"shop.other"}}))), "merged 0 1 0 0 0 0")
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 2 0 0 0 0")
}

func TestMergeListsViolations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create schema shop", `create table shop.parent (id int primary key, code text unique, "t" int not null)`,
		"create table shop.child (id int primary key, parent int references shop.parent, during int4range, word text, exclude using gist (during with &&))", "create unique index word_once on shop.child (lower(word)) where parent is not null",
		"create table shop.late (id int primary key, parent int references shop.parent deferrable initially deferred)", "insert into shop.parent select i, 'c' || i, i from generate_series(1, 6) i",
		"do $$ begin execute format('alter database %I set search_path = shop, public', current_database()); end $$")
	pool.Reset()
	track(t, g, "shop.parent", "shop.child", "shop.late")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, "update parent set code = 'one' where id = 3", `update parent set "t" = -1 where id = 4`, "delete from parent where id = 2", "insert into child values (9, 5, '[2,9)', 'a')", "insert into late values (9, 6)")
	// Each is fine on the branch and on main, but not together.
	run(t, pool, "update shop.parent set code = 'one' where id = 1", "insert into shop.child values (1, 2, '[1,3)', 'A')", "delete from shop.parent where id in (5, 6)", `alter table shop.parent add constraint positive check ("t" > 0) not valid`)
	before := text(t, pool, "select * from shop.parent order by id")
	for _, dry := range []bool{true, false} {
		r, err := b.Merge(ctx, gnomon.MergeOptions{DryRun: dry})
		if dry {
			ok(t, err)
		} else {
			refuses(t, err, gnomon.ErrViolation)
		}
		alike(t, fmt.Sprint(r.Violations, r.Conflicts), "7 0")
		var got []string
		for _, v := range must[[]gnomon.Violation](t)(g.Violations(ctx, r.ID)) {
			got = append(got, words(v.Kind, v.Constraint, v.Table, v.Key, v.Columns, string(v.Values), string(v.Other)))
		}
		slices.Sort(got)
		alike(t, strings.Join(got, "\n"), `check positive shop.parent [4] [t] {"t": -1} 
exclusion child_during_excl shop.child [9] [during] {"during": "[2,9)"} ["1"]
foreign key child_parent_fkey shop.child [9] [parent] {"parent": 5} 
foreign key child_parent_fkey shop.parent [2] [id] {"id": 2} {"parent": 2}
foreign key late_parent_fkey shop.late [9] [parent] {"parent": 6} 
unique parent_code_key shop.parent [3] [code] {"code": "one"} ["1"]
unique word_once shop.child [9] [] {} ["1"]`)
	}
	alike(t, text(t, pool, "select * from shop.parent order by id"), before)
	// What violates nothing can go by itself.
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Keys: map[string][]gnomon.Key{"shop.parent": {{"3"}}}, DryRun: true}))), "dry run 0 1 0 0 0 1")
}

func TestMergeNeedsNoOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	// Foreign keys in a cycle, a unique key whose values swap, and names that are hard to write.
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema".a ("t" int primary key, "new" int unique, "old" int)`, `create table "Sch ema"."ta""ble" ("o" int primary key, "n" int references "Sch ema".a)`, `alter table "Sch ema".a add foreign key ("old") references "Sch ema"."ta""ble" deferrable`,
		`insert into "Sch ema".a values (1, 1, null), (2, 2, null)`, `insert into "Sch ema"."ta""ble" values (1, 1)`, `do $$ begin execute format('alter database %I set search_path = "Sch ema", public', current_database()); end $$`)
	pool.Reset()
	track(t, g, `"Sch ema".a`, `"Sch ema"."ta""ble"`)
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, `insert into a values (7, 7, null)`, `insert into "ta""ble" values (7, 7)`, `update a set "old" = 7 where "t" = 7`, `update "ta""ble" set n = 7 where o = 1`, `update a set "new" = 70 where "t" = 1`, `update a set "new" = 1 where "t" = 2`, `delete from a where "t" = 1`)
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 2 2 1 0 0 0")
	alike(t, text(t, pool, `select * from "Sch ema".a order by 1`)+text(t, pool, `select * from "Sch ema"."ta""ble" order by 1`), "(2,1,)\n(7,7,7)(1,7)\n(7,7)")
}

func TestMergeFiresTriggersAndAsksForRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	run(t, pool, "create table shop.log (line text)", "create function shop.note() returns trigger language plpgsql as $$ begin insert into log values (tg_op || ' ' || current_user || ' ' || current_setting('search_path')); return null; end $$",
		"create trigger note after insert or update or delete on shop.orders for each row execute function shop.note()")
	write(t, b, "update orders set note = 'branch' where id = 1", "delete from orders where id = 2", "insert into orders values (11, 'x', 1, null)")
	// Also when the session is on another branch.
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "select gnomon.create_branch('elsewhere')", "select gnomon.use('elsewhere', true)")
	must[gnomon.MergeReport](t)(gnomon.New(tx).Merge(ctx, "b", gnomon.MergeOptions{}))
	alike(t, text(t, tx, "select gnomon.branch_here(), current_setting('search_path') like 'gnomon_branch%'"), "(elsewhere,t)")
	ok(t, tx.Commit(ctx))
	alike(t, text(t, pool, "select line from shop.log order by 1"), "(\"DELETE postgres shop, public\")\n(\"INSERT postgres shop, public\")\n(\"UPDATE postgres shop, public\")")

	write(t, b, "update orders set note = 'again' where id in (1, 3)")
	role := fmt.Sprintf("merger_%d", time.Now().UnixNano())
	run(t, pool, "create role "+role+" login", "grant usage on schema shop to "+role, "grant insert on shop.log to "+role)
	t.Cleanup(func() {
		_, err := pool.Exec(context.WithoutCancel(ctx), "drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	})
	ok(t, gnomon.Grant(ctx, pool, "", role, ""))
	c := connectAs(t, pool.Config().ConnString(), role)
	for _, grant := range []string{"", "grant select on shop.orders to " + role} {
		if grant != "" {
			run(t, pool, grant)
		}
		if _, err := gnomon.New(c).Merge(ctx, "b", gnomon.MergeOptions{}); sqlState(err) != "42501" {
			t.Fatal(err)
		}
	}
	run(t, pool, "grant update on shop.orders to "+role)
	alike(t, counts(must[gnomon.MergeReport](t)(gnomon.New(c).Merge(ctx, "b", gnomon.MergeOptions{}))), "merged 0 2 0 0 0 0")
	// It may write, but sees a part only.
	write(t, b, "update orders set note = 'hidden' where id in (1, 3)")
	run(t, pool, "alter table shop.orders enable row level security", "create policy p on shop.orders using (id = 1)")
	_, err := gnomon.New(c).Merge(ctx, "b", gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrNotOnBranch)
	// A trigger that keeps rows from being written is no success.
	run(t, pool, "alter table shop.orders disable row level security", "create function shop.no() returns trigger language plpgsql as 'begin return null; end'", "create trigger no before update on shop.orders for each row execute function shop.no()")
	_, err = b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrViolation)
	_ = g
}

func TestMergeAfterColumnsChanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id = 1", "update orders set total = 5 where id = 2", "insert into orders values (11, 'new', 3, 'x')")
	run(t, pool, "alter table shop.orders add more int not null default 7", "alter table shop.orders rename customer to buyer")
	ok(t, errOf(g.Sync(ctx, "shop.orders")))
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Keys: map[string][]gnomon.Key{"shop.orders": {{"1"}, {"11"}}}}))), "merged 1 1 0 0 0 0")
	alike(t, text(t, pool, "select * from shop.orders where id in (1, 11) order by id"), "(1,c1,1.00,branch,7)\n(11,new,3.00,x,7)")
	run(t, pool, "alter table shop.orders drop total")
	ok(t, errOf(g.Sync(ctx, "shop.orders")))
	r, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	c := must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))
	if len(c) != 1 || c[0].Kind != "column gone" || c[0].Fields[0].Column != "total" {
		t.Fatalf("%+v", c)
	}
	must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Strategies: gnomon.Strategies{gnomon.AnyTable: {gnomon.AnyColumn: gnomon.Theirs}}}))
}

func errOf[T any](_ T, err error) error { return err }

func TestMergeIntoBranches(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, parent := branched(t)
	write(t, parent, "update orders set note = 'parent' where id in (1, 2)", "insert into orders values (11, 'parent', 1, null)", "insert into orders values (12, 'parent', 1, null)")
	child := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "child", gnomon.BranchOptions{Of: "b"}))
	write(t, child, "update orders set note = 'child' where id in (1, 3)", "delete from orders where id = 12", "insert into orders values (13, 'child', 1, null)")
	write(t, parent, "update orders set customer = 'parent' where id = 1")
	main := text(t, pool, allOrders)
	alike(t, counts(must[gnomon.MergeReport](t)(child.Merge(ctx, gnomon.MergeOptions{Into: "b"}))), "merged 1 2 1 0 0 0")
	alike(t, text(t, parent, "select * from orders where id in (1, 2, 3) or id > 10 order by id"), "(1,parent,1.00,child)\n(2,c2,2.00,parent)\n(3,c3,3.00,child)\n(11,parent,1.00,)\n(13,child,1.00,)")
	alike(t, text(t, pool, allOrders), main)
	alike(t, counts(must[gnomon.MergeReport](t)(child.Merge(ctx, gnomon.MergeOptions{Into: "b"}))), "merged 0 0 0 0 0 0")
	write(t, child, "update orders set note = 'both' where id = 1")
	write(t, parent, "update orders set note = 'as well' where id = 1")
	r, err := child.Merge(ctx, gnomon.MergeOptions{Into: "b"})
	refuses(t, err, gnomon.ErrConflict)
	alike(t, string(must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))[0].Fields[0].Base), `"child"`)
	_, err = child.Merge(ctx, gnomon.MergeOptions{Into: "child"})
	refuses(t, err, gnomon.ErrInvalid)
	ok(t, parent.Protect(ctx, true))
	_, err = child.Merge(ctx, gnomon.MergeOptions{Into: "b"})
	refuses(t, err, gnomon.ErrProtected)
	_, err = g.UndoMerge(ctx, 1, gnomon.UndoMergeOptions{})
	refuses(t, err, gnomon.ErrProtected)
}

// TestMergesAndWritersOnMain lets merges and writers of main meet at the same rows, at each isolation level: no increment is lost.
func TestMergesAndWritersOnMain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, _ := branched(t)
	ok(t, g.SetStrategy(ctx, "shop.orders", "total", gnomon.Sum))
	run(t, pool, "update shop.orders set total = 0")
	var mu sync.Mutex
	added := 0
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 6 {
				level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[(i+n)%3]
				tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Error(err)
					return
				}
				if i < 2 {
					name := fmt.Sprintf("w%d_%d", i, n)
					b, err := g.CreateBranch(ctx, name, gnomon.BranchOptions{})
					if err == nil {
						_, err = b.Exec(ctx, "update orders set total = total + 1 where id <= 5")
					}
					if err != nil {
						t.Error(err)
					}
					_, err = gnomon.New(tx).Merge(ctx, name, gnomon.MergeOptions{})
					if err != nil {
						_ = tx.Rollback(ctx)
						if s := sqlState(err); s != "40001" {
							t.Error(err)
						}
						continue
					}
				} else if _, err = tx.Exec(ctx, "update shop.orders set total = total + 1 where id <= 5"); err != nil {
					_ = tx.Rollback(ctx)
					if s := sqlState(err); s != "40001" && s != "40P01" {
						t.Error(err)
					}
					continue
				}
				if err := tx.Commit(ctx); err == nil {
					mu.Lock()
					added++
					mu.Unlock()
				} else if sqlState(err) != "40001" {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	alike(t, text(t, pool, "select distinct total::int from shop.orders where id <= 5"), fmt.Sprintf("(%d)", added))
	if added < 8 {
		t.Errorf("only %d of 24 went through", added)
	}
}

// TestMergeMeetsTheSameKey inserts a key on main while a merge that inserts it waits.
func TestMergeMeetsTheSameKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "insert into orders values (11, 'branch', 1, null)", "update orders set note = 'branch' where id = 1")
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		writer := must[pgx.Tx](t)(pool.Begin(ctx))
		run(t, writer, "insert into shop.orders values (11, 'main', 1, null)")
		tx := must[pgx.Tx](t)(pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level}))
		done := make(chan error, 1)
		var r gnomon.MergeReport
		go func() {
			var err error
			r, err = gnomon.New(tx).Merge(ctx, "b", gnomon.MergeOptions{})
			done <- err
		}()
		waits(t, pool)
		ok(t, writer.Commit(ctx))
		err := <-done
		if level == pgx.ReadCommitted {
			refuses(t, err, gnomon.ErrConflict)
			alike(t, counts(r), "conflicts 0 1 0 0 1 0")
			ok(t, tx.Commit(ctx))
			alike(t, must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))[0].Kind, "add/add")
		} else {
			alike(t, sqlState(err), "40001")
			ok(t, tx.Rollback(ctx))
		}
		run(t, pool, "delete from shop.orders where id = 11")
	}
	// A row that changes while the merge waits for it is decided as it is then.
	writer := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, writer, "update shop.orders set note = 'main' where id = 1")
	done := make(chan error, 1)
	go func() { done <- errOf(b.Merge(ctx, gnomon.MergeOptions{})) }()
	waits(t, pool)
	ok(t, writer.Commit(ctx))
	refuses(t, <-done, gnomon.ErrConflict)
}

// waits returns when a session waits for a lock.
func waits(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for range 500 {
		if text(t, pool, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()") != "(0)" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nobody waits")
}

func TestMergeOptionsAreWritten(t *testing.T) {
	t.Parallel()
	text := must[[]byte](t)(json.Marshal(gnomon.MergeOptions{Strategies: gnomon.Strategies{"*": {"*": gnomon.Ours}, "a": {"b": gnomon.Function("f(int)"), "c": gnomon.Sum}}, Keys: map[string][]gnomon.Key{"a": {{"1"}}}}))
	alike(t, string(text), `{"strategies":{"*":"ours","a":{"b":{"function":"f(int)"},"c":"sum"}},"keys":{"a":[["1"]]}}`)

}

// TestAChoiceIsForWhatIsInConflict in every kind of conflict, beside a column that a strategy decides.
func TestAChoiceIsForWhatIsInConflict(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, c := range []struct {
		choice gnomon.ResolutionChoice
		values map[string]any
		rows   string
	}{
		{gnomon.TakeOurs, nil, "(1,main,13.00,branch)\n(2,branch,2.00,n2)\n(4,branch,4.00,branch)"},
		{gnomon.TakeTheirs, nil, "(1,main,13.00,main)\n(3,c3,7.00,main)\n(4,main,4.00,main)"},
		{gnomon.TakeValues, map[string]any{"note": "value"}, "(1,main,13.00,value)\n(2,branch,2.00,value)\n(3,c3,7.00,value)\n(4,main,4.00,value)"},
		{gnomon.TakeValues, nil, ""},
	} {
		g, pool, b := branched(t)
		run(t, pool, "delete from shop.orders where id > 3") // so that 4 is new on both sides
		must[gnomon.MergeReport](t)(b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{}))
		ok(t, g.SetStrategy(ctx, "shop.orders", "total", gnomon.Sum))
		write(t, b, "update orders set note = 'branch', total = total + 2 where id = 1", "update orders set customer = 'branch' where id = 2", "delete from orders where id = 3", "insert into orders values (4, 'branch', 4, 'branch')")
		run(t, pool, "update shop.orders set note = 'main', customer = 'main', total = total + 10 where id = 1", "delete from shop.orders where id = 2", "update shop.orders set note = 'main', total = 7 where id = 3", "insert into shop.orders values (4, 'main', 0, 'main')")
		r, err := b.Merge(ctx, gnomon.MergeOptions{})
		refuses(t, err, gnomon.ErrConflict)
		for id := range 4 {
			ok(t, g.ResolveConflict(ctx, r.ID, "shop.orders", gnomon.KeyOf(id+1), c.choice, c.values))
		}
		must[gnomon.MergeReport](t)(g.FinishMerge(ctx, r.ID))
		alike(t, text(t, pool, allOrders), c.rows)
		alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 0 0 0 0 0")
	}
}

// TestMergeOptionsFindTables names tables in options as search_path finds them, also from a branch, and resolves and undoes by such names.
func TestMergeOptionsFindTables(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	run(t, pool, `create table shop."ta""ble" (id int primary key, v int)`, `insert into shop."ta""ble" values (1, 1)`, "create schema other", "create table other.orders (like shop.orders including all)", "insert into other.orders values (1, 'c', 1, 'n')")
	track(t, g, `shop."ta""ble"`, "other.orders")
	ok(t, b.Drop(ctx))
	b = must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, "update orders set note = 'branch' where id <= 3", `update "ta""ble" set v = 2`)
	run(t, pool, "update orders set note = 'main' where id = 3")
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "select gnomon.use('b', true)")
	r := must[gnomon.MergeReport](t)(gnomon.New(tx).Merge(ctx, "b", gnomon.MergeOptions{Tables: []string{`"ta""ble"`}, Keys: map[string][]gnomon.Key{"orders": {{"1"}}}}))
	alike(t, fmt.Sprint(r.Tables), `map[shop."ta""ble":{0 1 0 0 0} shop.orders:{0 1 0 0 0}]`)
	alike(t, text(t, tx, "select gnomon.branch_here(), current_setting('search_path') like 'gnomon_branch%'"), "(b,t)")
	ok(t, tx.Commit(ctx))
	_, err := b.Merge(ctx, gnomon.MergeOptions{Tables: []string{"orders"}})
	refuses(t, err, gnomon.ErrConflict)
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Strategies: gnomon.Strategies{"orders": {"note": gnomon.Ours}}}))), "merged 0 2 0 0 0 0")
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{Tables: []string{"orders"}}))
	alike(t, text(t, pool, "select note from orders where id <= 3 order by id"), "(n1)\n(branch)\n(branch)")
	_, err = b.Merge(ctx, gnomon.MergeOptions{Tables: []string{"nothing"}})
	refuses(t, err, gnomon.ErrNotTracked)
	// A change request means what its author does.
	write(t, b, "update orders set note = 'asked for' where id = 2")
	id := must[int](t)(g.OpenRequest(ctx, gnomon.RequestParams{Branch: "b", Title: "x", Options: gnomon.MergeOptions{Tables: []string{"orders"}}}))
	elsewhere := connectAs(t, pool.Config().ConnString(), "")
	run(t, elsewhere, "set search_path = other")
	alike(t, counts(must[gnomon.MergeReport](t)(gnomon.New(elsewhere).MergeRequest(ctx, id, gnomon.MergeOptions{}))), "merged 0 1 0 0 0 0")
}

func TestReportsOfMergesArePruned(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id <= 2")
	run(t, pool, "update shop.orders set note = 'main' where id = 1")
	dry := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{DryRun: true}))
	_, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	done := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Conflicts: gnomon.LeaveConflicts}))
	alike(t, fmt.Sprint(must[int64](t)(g.PruneReports(ctx, time.Hour))), "0")
	run(t, pool, "update gnomon.merged set at = at - interval '29 days'")
	ok(t, g.Maintain(ctx, nil))
	alike(t, fmt.Sprint(len(must[[]gnomon.Conflict](t)(g.Conflicts(ctx, dry.ID)))), "1")
	run(t, pool, "update gnomon.merged set at = at - interval '2 days'")
	var removed []string
	ok(t, g.Maintain(ctx, func(s gnomon.MaintainStep) {
		if s.Step == "reports" {
			removed = append(removed, string(s.Detail))
		}
	}))
	alike(t, fmt.Sprint(removed), `[{"removed": 2}]`)
	_, err = g.Conflicts(ctx, dry.ID)
	refuses(t, err, gnomon.ErrUnknownMerge)
	alike(t, fmt.Sprint(len(must[[]gnomon.MergedRow](t)(g.MergeRows(ctx, done.ID))), len(must[[]gnomon.Conflict](t)(g.Conflicts(ctx, done.ID)))), "1 0")
	alike(t, text(t, pool, "select count(*) from gnomon.conflict"), "(0)")
	_, err = g.PruneReports(ctx, -time.Hour)
	refuses(t, err, gnomon.ErrInvalid)
}

// TestUniqueValuesChangePlaces merges rows that exchange unique values, or take each other's in a row: into main and into a branch, and back by undo. Where it can't be, it is a violation.
func TestUniqueValuesChangePlaces(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, `create schema s`, `create table s.plain (id int primary key, u int not null unique, v text)`, `insert into s.plain select i, i, 'v' || i from generate_series(1, 100) i`,
		`create table s.kinds (id int primary key, w text, "on" boolean default true, r int4range, exclude using gist (r with &&))`, `create unique index on s.kinds (lower(w)) where "on"`, `insert into s.kinds values (1, 'A', true, '[1,2)'), (2, 'b', true, '[2,3)')`,
		`create table s.heard (id int primary key, u int unique)`, `create function s.hear() returns trigger language plpgsql as 'begin return new; end'`, `create trigger hear after update on s.heard for each row execute function s.hear()`, `insert into s.heard values (1, 1), (2, 2), (3, 3)`,
		`create table s.parent (id int primary key, u int unique deferrable)`, `create table s.child (id int primary key references s.parent on delete cascade)`, `insert into s.parent values (1, 1), (2, 2)`, `insert into s.child values (1), (2)`,
		`do $$ begin execute format('alter database %I set search_path = s', current_database()); end $$`)
	pool.Reset()
	track(t, g, "s.plain", "s.kinds", "s.heard", "s.parent", "s.child")
	const all = "select 'plain' || x from plain x union all select 'kinds' || x from kinds x union all select 'parent' || x from parent x union all select 'child' || x from child x order by 1"
	before := text(t, pool, all)
	exchange := []string{"update plain set u = 1000 where id = 1", "update plain set u = 1 where id = 2", "update plain set u = 2 where id = 1", "update plain set u = u + 1000 where id > 10", "update plain set u = u - 999 where id > 10",
		"delete from plain where id = 3", "update plain set u = 3 where id = 4", "insert into plain values (300, 4, 'new')",
		"update parent set u = 9 where id = 1", "update parent set u = 1 where id = 2", "update parent set u = 2 where id = 1"}
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, exchange...)
	write(t, b, "update kinds set w = 'zz', r = '[90,91)' where id = 1", "update kinds set w = 'a', r = '[1,2)' where id = 2", "update kinds set w = 'B', r = '[2,3)' where id = 1")
	wanted := text(t, b, all)
	for _, into := range []string{"net", "logged"} {
		target := must[*gnomon.Branch](t)(g.CreateBranch(ctx, into, gnomon.BranchOptions{Logged: into == "logged"}))
		r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Into: into}))
		alike(t, text(t, target, all), wanted)
		must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{}))
		alike(t, text(t, target, all), before)
	}
	alike(t, text(t, pool, "select count(*) from gnomon.branch_steps('logged', null, array['plain'::regclass], '{1}')"), "(2)")
	must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{DryRun: true}))
	r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	alike(t, text(t, pool, all), wanted)
	alike(t, text(t, pool, `select operation, count(*) from gnomon.merge_rows($1) where "table" = 's.plain' group by 1 order by 1`, r.ID), "(delete,1)\n(insert,1)\n(update,93)")
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{}))
	alike(t, text(t, pool, all), before)

	// Triggers are told of an update as one: rows take turns, but can't exchange.
	write(t, b, "update heard set u = 4 where id = 3", "update heard set u = 3 where id = 2", "update heard set u = 2 where id = 1")
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 3 0 0 0 0")
	write(t, b, "update heard set u = 9 where id = 1", "update heard set u = 2 where id = 2", "update heard set u = 3 where id = 1")
	r, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrViolation)
	var got []string
	for _, v := range must[[]gnomon.Violation](t)(g.Violations(ctx, r.ID)) {
		got = append(got, words(v.Kind, v.Constraint, v.Table, v.Key, v.Columns, string(v.Values), string(v.Other)))
	}
	alike(t, strings.Join(got, "\n"), `unique heard_u_key s.heard [1] [u] {"u": 3} ["2"]
unique heard_u_key s.heard [2] [u] {"u": 2} ["1"]`)
	alike(t, text(t, pool, "select * from heard order by id"), "(1,2)\n(2,3)\n(3,4)")

	// Resolved conflicts as well.
	c := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "c", gnomon.BranchOptions{}))
	write(t, c, "update plain set u = 1000, v = 'c' where id = 5", "update plain set u = 5, v = 'c' where id = 6", "update plain set u = 6 where id = 5")
	run(t, pool, "update plain set v = 'main' where id in (5, 6)")
	r, err = c.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	for _, id := range []int{5, 6} {
		ok(t, g.ResolveConflict(ctx, r.ID, "plain", gnomon.KeyOf(id), gnomon.TakeOurs, nil))
	}
	must[gnomon.MergeReport](t)(g.FinishMerge(ctx, r.ID))
	alike(t, text(t, pool, "select * from plain where id in (5, 6) order by id"), "(5,6,c)\n(6,5,c)")
}
