package gnomon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

func TestUndoOfAMergeIsExact(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	run(t, pool, "create table shop.lines (id int primary key, order_id int references shop.orders on delete cascade, n int)", "insert into shop.lines values (1, 3, 1), (2, 4, 1)")
	track(t, g, "shop.lines")
	ok(t, b.Drop(ctx))
	b = must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	write(t, b, "update orders set note = 'branch', total = 50 where id in (1, 2)", "delete from orders where id in (3, 5)", "insert into orders values (11, 'new', 1, null), (12, 'new', 1, null)")
	before := text(t, pool, allOrders) + text(t, pool, "select * from shop.lines order by id")
	r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	after := text(t, pool, allOrders)
	alike(t, text(t, pool, "select id from shop.lines"), "(2)")

	// Untouched since, all is as it was, what foreign keys did included.
	alike(t, counts(must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{DryRun: true}))), "dry run 3 2 2 0 0 0")
	u := must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{}))
	alike(t, counts(u), "merged 3 2 2 0 0 0")
	alike(t, text(t, pool, allOrders)+text(t, pool, "select * from shop.lines order by id"), before)
	_, err := g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{})
	refuses(t, err, gnomon.ErrInvalid)
	// The undo of the undo.
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, u.ID, gnomon.UndoMergeOptions{}))
	alike(t, text(t, pool, allOrders), after)
	// And that the merge be undone once more: later changes stay, and are told.
	run(t, pool, "update shop.orders set note = 'later', customer = 'later' where id = 1", "delete from shop.orders where id = 2", "update shop.orders set total = 9 where id = 11")
	_, err = g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{Later: gnomon.FailOnLater})
	refuses(t, err, gnomon.ErrConflict)
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{Later: gnomon.ForceUndo, DryRun: true}))
	u = must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{}))
	alike(t, text(t, pool, "select * from shop.orders where id in (1, 2, 3, 11, 12) order by id"), "(1,later,1.00,later)\n(3,c3,3.00,n3)\n(11,new,9.00,)")
	var kinds []string
	for _, c := range must[[]gnomon.Conflict](t)(g.Conflicts(ctx, u.ID)) {
		kinds = append(kinds, words(c.Key, c.Kind))
	}
	alike(t, fmt.Sprint(kinds), "[[1] edit/edit [11] delete/edit [2] edit/delete]")
	// The branch is as it was, and what was merged counts as merged.
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 0 0 0 0 0 0")
	_, err = g.UndoMerge(ctx, 999, gnomon.UndoMergeOptions{})
	refuses(t, err, gnomon.ErrUnknownMerge)
}

func TestForcedUndoTakesAllBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id in (1, 2)", "delete from orders where id = 3", "insert into orders values (11, 'new', 1, null)")
	before := text(t, pool, allOrders)
	r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	run(t, pool, "update shop.orders set note = 'later' where id in (1, 11)", "delete from shop.orders where id = 2", "insert into shop.orders values (3, 'other', 1, null)")
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{Later: gnomon.ForceUndo}))
	alike(t, text(t, pool, allOrders), before)
}

func TestUndoNeedsHistory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	counters(t, g, pool)
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "set local search_path = shop", "select gnomon.use('b', true)", "update counter set n = n + 1")
	ok(t, tx.Commit(ctx))
	r := must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))
	ok(t, b.Drop(ctx))
	for range 3 {
		segment(t, g, pool)
	}
	must[[]gnomon.Pruned](t)(g.Prune(ctx, gnomon.Present, "shop.counter"))
	_, err := g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{})
	refuses(t, err, gnomon.ErrPruned)
	_, err = g.MergeRows(ctx, r.ID)
	refuses(t, err, gnomon.ErrPruned)
}

func TestUndoKeepsToTheMerge(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id = 1")
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "update shop.orders set total = 100 where id = 1")
	r := must[gnomon.MergeReport](t)(gnomon.New(tx).Merge(ctx, "b", gnomon.MergeOptions{}))
	run(t, tx, "update shop.orders set customer = 'same transaction' where id = 1")
	ok(t, tx.Commit(ctx))
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID, gnomon.UndoMergeOptions{}))
	alike(t, text(t, pool, "select * from shop.orders where id = 1"), `(1,"same transaction",100.00,n1)`)
}

func TestRefreshTakesWhatMainHas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branched(t)
	write(t, b, "update orders set note = 'branch' where id in (1, 2, 3)", "delete from orders where id = 4", "insert into orders values (11, 'new', 1, null)", "delete from orders where id = 5")
	run(t, pool, "update shop.orders set customer = 'main' where id in (1, 7)", "update shop.orders set note = 'branch' where id = 2", "delete from shop.orders where id in (4, 8)", "insert into shop.orders values (12, 'main', 1, null)", "update shop.orders set note = 'main' where id = 3")
	seen := text(t, b, "select * from orders order by id")
	r, err := b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrConflict)
	alike(t, fmt.Sprint(must[[]gnomon.Conflict](t)(g.Conflicts(ctx, r.ID))[0].Key, r.Conflicts), "[3] 1")
	alike(t, text(t, b, "select * from orders order by id"), seen)
	r = must[gnomon.MergeReport](t)(b.Refresh(ctx, "", gnomon.MergeOptions{Strategies: gnomon.Strategies{"shop.orders": {"note": gnomon.Ours}}}))
	alike(t, counts(r), "merged 1 2 1 2 0 0")
	alike(t, text(t, b, "select * from orders order by id"), "(1,main,1.00,branch)\n(2,c2,2.00,branch)\n(3,c3,3.00,branch)\n(6,c6,6.00,n6)\n(7,main,7.00,n7)\n(9,c9,9.00,n9)\n(10,c10,10.00,n10)\n(11,new,1.00,)\n(12,main,1.00,)")
	if info := must[gnomon.BranchInfo](t)(b.Info(ctx)); info.ChangedRows != 4 || info.RefreshedAt.IsZero() {
		t.Fatalf("%+v", info)
	}
	alike(t, counts(must[gnomon.MergeReport](t)(b.Merge(ctx, gnomon.MergeOptions{}))), "merged 1 2 1 0 0 0")
	alike(t, text(t, pool, allOrders), text(t, b, "select * from orders order by id"))
	// After a merge and its undo, a refresh shows main as it is.
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, r.ID+1, gnomon.UndoMergeOptions{}))
	must[gnomon.MergeReport](t)(b.Refresh(ctx, "", gnomon.MergeOptions{}))
	alike(t, text(t, b, "select * from orders order by id"), text(t, pool, allOrders))
	if info := must[gnomon.BranchInfo](t)(b.Info(ctx)); info.ChangedRows != 0 {
		t.Fatalf("%+v", info)
	}
	old := ref(t, g)
	run(t, pool, "update shop.orders set note = 'x' where id = 6")
	must[gnomon.MergeReport](t)(b.Refresh(ctx, "", gnomon.MergeOptions{}))
	_, err = b.Refresh(ctx, old, gnomon.MergeOptions{})
	refuses(t, err, gnomon.ErrInvalid)
}

// TestARefreshedBranchAndItsParent merges a branch of a branch into it after the child got a later base: what that brought is not the child's own, and its own changes meet the parent's as they
// would have before.
func TestARefreshedBranchAndItsParent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, parent := branched(t)
	write(t, parent, "update orders set note = 'parent' where id in (1, 2)")
	child := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "child", gnomon.BranchOptions{Of: "b"}))
	write(t, child, "update orders set total = 50 where id in (1, 3)", "delete from orders where id = 4")
	run(t, pool, "update shop.orders set customer = 'main' where id in (1, 3, 5, 6, 7)", "insert into shop.orders values (11, 'main', 1, null)", "delete from shop.orders where id in (4, 8)")
	const later = "select (gnomon.place_of('now')).bound > b.bound from gnomon.branch b where b.name = 'child'"
	for end := time.Now().Add(time.Minute); text(t, pool, later) == "(f)"; run(t, pool, "select annals.tick()") { // others' transactions may run
		if time.Now().After(end) {
			t.Fatal("no tick is later than the branch")
		}
	}
	must[gnomon.MergeReport](t)(child.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{}))
	// Rows that it changes only now, of which its parent has what main had once.
	write(t, child, "update orders set note = 'child' where id in (5, 11)", "update orders set customer = 'child' where id = 6")
	write(t, parent, "update orders set total = 70 where id = 5")
	alike(t, counts(must[gnomon.MergeReport](t)(child.Merge(ctx, gnomon.MergeOptions{Into: "b"}))), "merged 1 4 1 0 0 0")
	alike(t, text(t, parent, "select * from orders order by id"), "(1,c1,50.00,parent)\n(2,c2,2.00,parent)\n(3,c3,50.00,n3)\n(5,c5,70.00,child)\n(6,child,6.00,n6)\n(7,c7,7.00,n7)\n(8,c8,8.00,n8)\n(9,c9,9.00,n9)\n(10,c10,10.00,n10)\n(11,main,1.00,child)")
	alike(t, counts(must[gnomon.MergeReport](t)(child.Merge(ctx, gnomon.MergeOptions{Into: "b"}))), "merged 0 0 0 0 0 0")
	// It pins what tells that, until its parent goes.
	pinned := func() string {
		return text(t, pool, "select p.v = b.bound + 1 from annals.pin p, gnomon.branch b where p.owner = 'gnomon branch' and p.name = b.id::text and b.name = 'child'")
	}
	alike(t, pinned(), "(f)")
	ok(t, parent.Drop(ctx))
	alike(t, pinned(), "(t)")
}

func TestRefreshListsViolations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, _ := branched(t)
	run(t, pool, "create table shop.line (id int primary key, orders int references shop.orders, code text unique)", "insert into shop.line values (1, 1, 'a'), (2, 2, 'b')")
	track(t, g, "shop.line")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "with lines", gnomon.BranchOptions{}))
	write(t, b, "insert into line values (3, 5, 'c'), (4, 6, 'd')", "delete from orders where id = 7")
	run(t, pool, "delete from shop.orders where id = 5", "insert into shop.line values (9, 7, 'd')")
	seen := text(t, b, "select * from line order by id")
	for _, dry := range []bool{true, false} {
		r, err := b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{DryRun: dry})
		if dry {
			ok(t, err)
		} else {
			refuses(t, err, gnomon.ErrViolation)
		}
		var got []string
		for _, v := range must[[]gnomon.Violation](t)(g.Violations(ctx, r.ID)) {
			got = append(got, words(v.Kind, v.Constraint, v.Table, v.Key))
		}
		alike(t, fmt.Sprint(got, r.Violations), "[unique line_code_key shop.line [4] foreign key line_orders_fkey shop.line [3] foreign key line_orders_fkey shop.orders [7]] 3")
	}
	alike(t, text(t, b, "select * from line order by id"), seen)
	write(t, b, "delete from line where id = 3", "update line set code = 'e' where id = 4", "insert into orders values (7, 'again', 1, null)")
	must[gnomon.MergeReport](t)(b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{Strategies: gnomon.Strategies{"orders": {gnomon.AnyColumn: gnomon.Theirs}}}))
	alike(t, text(t, b, "select * from line order by id"), "(1,1,a)\n(2,2,b)\n(4,6,e)\n(9,7,d)")
}
