package gnomon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// Every limit that the documentation tells has the test that it names.
func TestLimitsOfBranchesHaveTests(t *testing.T) {
	t.Parallel()
	doc := string(must[[]byte](t)(os.ReadFile("doc.go")))
	_, table, found := strings.Cut(doc, "the last column is the test that shows it:")
	if !found {
		t.Fatal("there is no table of limits")
	}
	table, _, _ = strings.Cut(table, "// # ")
	named := regexp.MustCompile(`  (Test\w+)\n`).FindAllStringSubmatch(table, -1)
	if len(named) < 15 {
		t.Fatalf("the table names %d tests", len(named))
	}
	var tests strings.Builder
	for _, name := range must[[]string](t)(filepath.Glob("*_test.go")) {
		tests.Write(must[[]byte](t)(os.ReadFile(name)))
	}
	for _, m := range named {
		if !strings.Contains(tests.String(), "func "+m[1]+"(t *testing.T)") {
			t.Errorf("there is no %s", m[1])
		}
	}
}

// Limit: a table with its schema before its name is that of main; so are names in functions that have a search_path of their own, or a body in standard SQL.
func TestQualifiedNamesMeanMain(t *testing.T) {
	t.Parallel()
	_, pool, b := working(t, "b")
	ctx := t.Context()
	run(t, pool, "create function shop.own() returns numeric language plpgsql set search_path = shop as 'begin return (select sum(total) from orders); end'",
		"create function shop.standard() returns numeric language sql return (select sum(total) from shop.orders)",
		"create function shop.plain() returns numeric language plpgsql as 'begin return (select sum(total) from orders); end'")
	if _, err := b.Exec(ctx, "update orders set total = 0"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, b, "select (select sum(total) from shop.orders), shop.own(), shop.standard(), shop.plain(), (select sum(total) from orders)"); got != "(55.00,55.00,55.00,0.00,0.00)" {
		t.Errorf("on the branch: %s", got)
	}
	// A write by such a name is one to main.
	if _, err := b.Exec(ctx, "update shop.orders set note = 'main' where id = 1"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, b, "select (select note from orders where id = 1), (select note from shop.orders where id = 1)"); got != "(,main)" {
		t.Errorf("on the branch: %s", got)
	}
}

// Limit: triggers BEFORE a row run on a branch if they are in PL/pgSQL and have neither WHEN nor columns; all of them run, so those again, when the branch is merged.
func TestTriggersOnBranches(t *testing.T) {
	t.Parallel()
	_, pool, b := working(t, "b")
	ctx := t.Context()
	run(t, pool, "create table shop.log (what text)",
		"create function shop.mark() returns trigger language plpgsql as $$ begin new.note := concat(new.note, tg_argv[0]); return new; end $$",
		"create function shop.tell() returns trigger language plpgsql as $$ begin insert into shop.log values (tg_argv[0]); return null; end $$",
		"create trigger a before update on shop.orders for each row execute function shop.mark('a')",
		"create trigger b before update on shop.orders for each row when (new.total > 0) execute function shop.mark('b')",
		"create trigger c before update of total on shop.orders for each row execute function shop.mark('c')",
		"create trigger d after update on shop.orders for each row execute function shop.tell('row')",
		"create trigger e after update on shop.orders execute function shop.tell('statement')")
	if _, err := b.Exec(ctx, "update orders set total = 100 where id = 1"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, b, "select note, (select count(*) from log) from orders where id = 1"); got != "(a,0)" {
		t.Errorf("on the branch: %s", got)
	}
	must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	if got := text(t, pool, "select note, (select string_agg(what, ' ' order by what) from shop.log) from shop.orders where id = 1"); !strings.HasPrefix(got, "(aabc,") || !strings.Contains(got, "row statement") {
		t.Errorf("merged: %s", got)
	}
}

// Limit: a branch shows all rows, so roles that row-level security restricts can't use the table on it.
func TestRowSecurityOnBranches(t *testing.T) {
	t.Parallel()
	_, pool, b := working(t, "b")
	ctx := t.Context()
	run(t, pool, "alter table shop.orders enable row level security", "create policy mine on shop.orders using (customer = 'c1')")
	role := pgserver.Role(t, pgserver.Shared(t), "gnomon_some")
	run(t, pool, "grant usage on schema shop to "+role, "grant select, update on shop.orders, shop.item to "+role)
	ok(t, gnomon.Grant(ctx, pool, "", role, ""))
	restricted := must[*gnomon.Branch](t)(gnomon.New(connectAs(t, pool.Config().ConnString(), role)).Branch(ctx, "b"))
	for _, sql := range []string{"select * from orders", "update orders set note = 'x'"} {
		_, err := restricted.Exec(ctx, sql)
		if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Table != "shop.orders" || e.Reason != "row-level security" {
			t.Errorf("%s: %+v", sql, e)
		}
	}
	if _, err := restricted.Exec(ctx, "select * from item"); err != nil {
		t.Error(err)
	}
	if got := text(t, b, "select count(*) from orders"); got != "(10)" {
		t.Errorf("whom it does not restrict sees %s", got)
	}
}

// Limit: a table whose columns changed since the base is not read on the branch until that is refreshed; it can be merged as it is.
func TestColumnsThatChangeUnderABranch(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(context.Context, *gnomon.Branch) (gnomon.MergeReport, error){
		"refresh": func(ctx context.Context, b *gnomon.Branch) (gnomon.MergeReport, error) {
			return b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{})
		},
		"merge": func(ctx context.Context, b *gnomon.Branch) (gnomon.MergeReport, error) {
			return b.Merge(ctx, gnomon.MergeOptions{})
		},
	} {
		_, pool, b := working(t, "b")
		ctx := t.Context()
		if _, err := b.Exec(ctx, "update orders set total = 100 where id = 1"); err != nil {
			t.Fatal(err)
		}
		run(t, pool, "alter table shop.orders add colour text default 'red'", "update shop.orders set colour = 'blue' where id = 1")
		_, err := b.Exec(ctx, "select * from orders")
		refuses(t, err, gnomon.ErrNotOnBranch)
		if _, err := then(ctx, b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		db := gnomon.DB(b)
		if name == "merge" {
			db = pool
		}
		if got := text(t, db, "select total, colour from "+map[string]string{"merge": "shop."}[name]+"orders where id = 1"); got != "(100.00,blue)" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Limit: only a branch that is logged has a past.
func TestPastOfBranches(t *testing.T) {
	t.Parallel()
	g, _, net := working(t, "net")
	ctx := t.Context()
	logged := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "logged", gnomon.BranchOptions{Logged: true}))
	for _, b := range []*gnomon.Branch{net, logged} {
		if _, err := b.Exec(ctx, "update orders set total = 100 where id = 1"); err != nil {
			t.Fatal(err)
		}
	}
	between := must[gnomon.Coordinate](t)(g.Now(ctx))
	for _, b := range []*gnomon.Branch{net, logged} {
		if _, err := b.Exec(ctx, "update orders set total = 200 where id = 1"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := g.CreateBranch(ctx, "a", gnomon.BranchOptions{Of: "net", From: between.Ref()})
	refuses(t, err, gnomon.ErrNotOnBranch)
	then := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{Of: "logged", From: between.Ref()}))
	if got := text(t, then, "select total from orders where id = 1"); got != "(100.00)" {
		t.Errorf("then it was %s", got)
	}
}

// Limit: merges into a branch can be undone until it is reset, and as long as their reports are kept if it is not logged.
func TestUndoOfMergesIntoBranches(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "b")
	ctx := t.Context()
	const all = "select o::text from orders o union all select i::text from item i order by 1"
	for _, logged := range []bool{false, true} {
		into := must[*gnomon.Branch](t)(g.CreateBranch(ctx, fmt.Sprintf("into %t", logged), gnomon.BranchOptions{Logged: logged}))
		write(t, b, "update orders set total = 100, note = 'b' where id = 1", "delete from orders where id = 2", "insert into orders values (11, 'new', 1, null)")
		write(t, into, "update orders set note = 'own' where id = 3")
		before := text(t, into, all)
		report := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Into: into.Name()}))
		after := text(t, into, all)
		// With what its foreign keys did, which was no part of the merge.
		if rows := must[[]gnomon.MergedRow](t)(g.MergeRows(ctx, report.ID)); len(rows) != 5 {
			t.Errorf("the merge wrote %v", rows)
		}
		undo := must[gnomon.MergeReport](t)(g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{}))
		alike(t, text(t, into, all), before)
		undo = must[gnomon.MergeReport](t)(g.UndoMerge(ctx, undo.ID, gnomon.UndoMergeOptions{}))
		alike(t, text(t, into, all), after)
		_, err := g.UndoMerge(ctx, report.ID+1, gnomon.UndoMergeOptions{})
		refuses(t, err, gnomon.ErrInvalid)
		// Later changes stay, and are told.
		write(t, into, "update orders set note = 'later' where id = 1")
		undo = must[gnomon.MergeReport](t)(g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{}))
		alike(t, text(t, into, "select * from orders where id = 1"), "(1,c1,1.00,later)")
		alike(t, fmt.Sprint(undo.Conflicts), "1")
		redo := must[gnomon.MergeReport](t)(g.UndoMerge(ctx, undo.ID, gnomon.UndoMergeOptions{}))
		ok(t, into.Protect(ctx, true))
		_, err = g.UndoMerge(ctx, redo.ID, gnomon.UndoMergeOptions{})
		refuses(t, err, gnomon.ErrProtected)
		ok(t, into.Protect(ctx, false))
		run(t, pool, "select gnomon.reset_branch('b')")
		if must[int64](t)(g.PruneReports(ctx, 0)); !logged {
			_, err = g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{})
			refuses(t, err, gnomon.ErrPruned)
			continue
		}
		run(t, pool, fmt.Sprintf("select gnomon.reset_branch('%s')", into.Name()))
		_, err = g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{})
		refuses(t, err, gnomon.ErrPruned)
		ok(t, into.Drop(ctx))
		_, err = g.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{})
		refuses(t, err, gnomon.ErrUnknownBranch)
	}
}

// Limit: unique indexes of expressions or of some rows, and exclusion constraints, are not looked at on a branch; merging finds what violates them.
func TestMergingFindsWhatBranchesDoNot(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "b")
	ctx := t.Context()
	run(t, pool, "create table shop.stay (id int primary key, name text, kind int, span int4range, exclude using gist (span with &&))", "create unique index on shop.stay (lower(name))", "create unique index on shop.stay (kind) where kind > 5",
		"insert into shop.stay values (1, 'ada', 6, '[1,5)')")
	track(t, g, "shop.stay")
	for _, c := range []struct{ sql, kind string }{
		{"insert into stay values (2, 'ADA', 1, '[10,11)')", "unique"}, {"insert into stay values (2, 'bob', 6, '[10,11)')", "unique"}, {"insert into stay values (2, 'bob', 1, '[4,7)')", "exclusion"},
	} {
		ok(t, b.Reset(ctx, gnomon.Present))
		if _, err := b.Exec(ctx, c.sql); err != nil {
			t.Fatal(err)
		}
		report, err := b.Merge(ctx, gnomon.MergeOptions{})
		refuses(t, err, gnomon.ErrViolation)
		list := must[[]gnomon.Violation](t)(g.Violations(ctx, report.ID))
		if len(list) != 1 || list[0].Kind != c.kind || list[0].Table != "shop.stay" {
			t.Errorf("%s: %+v", c.sql, list)
		}
	}
}

// Limit: what functions read, and COPY, is not noted by itself.
func TestReadsThatAreNotSeen(t *testing.T) {
	t.Parallel()
	_, pool, b := working(t, "b")
	ctx := t.Context()
	run(t, pool, "create function shop.plain() returns numeric language plpgsql as 'begin return (select sum(total) from orders); end'")
	if _, err := b.Exec(ctx, "select shop.plain()"); err != nil {
		t.Fatal(err)
	}
	tx := must[pgx.Tx](t)(b.Begin(ctx))
	if _, err := tx.Exec(ctx, "copy (select * from orders) to stdout"); err != nil {
		t.Fatal(err)
	}
	ok(t, tx.Commit(ctx))
	if list := must[[]gnomon.NotedRead](t)(b.Reads(ctx)); len(list) != 0 {
		t.Errorf("noted are %v", list)
	}
	ok(t, b.Note(ctx, gnomon.Read{Table: "orders"}))
	if list := must[[]gnomon.NotedRead](t)(b.Reads(ctx)); len(list) != 1 {
		t.Errorf("noted are %v", list)
	}
}

// Limit: policies, and stale reads, are about main. A merge into a branch is judged by what that demands itself, against main.
func TestPoliciesAreForMain(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "b")
	ctx := t.Context()
	other := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "other", gnomon.BranchOptions{}))
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Reviews: 1, Tables: map[string]gnomon.TableRule{}}))
	ok(t, b.Note(ctx, gnomon.Read{Table: "orders", Key: gnomon.KeyOf(1)}))
	for _, x := range []*gnomon.Branch{b, other} {
		if _, err := x.Exec(ctx, "update orders set total = 100 where id = $1", map[bool]int{true: 2, false: 1}[x == b]); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Merge(ctx, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrPolicy)
	// The other branch has changed what was read, and main has not.
	must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{Into: "other", NoStaleReads: true}))
	run(t, pool, "update shop.orders set total = 100 where id = 1")
	if _, err := b.Exec(ctx, "update orders set total = 101 where id = 2"); err != nil {
		t.Fatal(err)
	}
	_, err = b.Merge(ctx, gnomon.MergeOptions{Into: "other", NoStaleReads: true})
	refuses(t, err, gnomon.ErrStaleReads)
}
