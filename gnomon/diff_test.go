package gnomon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

// diffs collects a diff.
func diffs(t testing.TB, g *gnomon.Gnomon, from, to gnomon.Ref, o gnomon.DiffOptions) (list []gnomon.RowDiff) {
	t.Helper()
	for d, err := range g.Diff(t.Context(), from, to, o) {
		ok(t, err)
		list = append(list, d)
	}
	return list
}

// diffError returns the error with which a diff ends.
func diffError(g *gnomon.Gnomon, ctx context.Context, from, to gnomon.Ref, o gnomon.DiffOptions) (err error) {
	for _, err = range g.Diff(ctx, from, to, o) {
	}
	return err
}

// diffText writes a diff, a line for each row: "update shop.orders 1: note a>b".
func diffText(list []gnomon.RowDiff) string {
	lines := []string{}
	for _, d := range list {
		columns := []string{}
		for _, c := range d.Columns {
			columns = append(columns, c+" "+textOf(d.Old[c])+">"+textOf(d.New[c]))
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", d.Operation, d.Table, strings.Join(d.Key, ","), strings.Join(columns, ", ")))
	}
	return strings.Join(lines, "\n")
}

func textOf(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func ref(t testing.TB, g *gnomon.Gnomon) gnomon.Ref {
	t.Helper()
	return must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
}

func TestDiffIsNettedAndStepsAreNot(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1, 'x'), (2, 'b', 2, null), (3, 'c', 3, 'z'), (6, 'f', 6, null), (7, 'g', 7, null)")
	from := ref(t, g)
	run(t, pool, "update shop.orders set total = 5 where id = 1", "update shop.orders set note = 'n' where id = 1", "delete from shop.orders where id = 2", "insert into shop.orders values (4, 'd', 4, null)",
		"update shop.orders set id = 30 where id = 3", "insert into shop.orders values (5, 'e', 5, null)", "delete from shop.orders where id = 5", "update shop.orders set note = 'y' where id = 6", "update shop.orders set note = null where id = 6",
		"update shop.orders set note = note where id = 7")
	to := ref(t, g)
	run(t, pool, "update shop.orders set note = 'later'", "truncate shop.orders")
	netted := `update shop.orders 1: total 1.00>5.00, note x>n
delete shop.orders 2: id 2>-, customer b>-, total 2.00>-, note ->-
delete shop.orders 3: id 3>-, customer c>-, total 3.00>-, note z>-
insert shop.orders 4: id ->4, customer ->d, total ->4.00, note ->-
insert shop.orders 30: id ->30, customer ->c, total ->3.00, note ->z`
	if got := diffText(diffs(t, g, from, to, gnomon.DiffOptions{})); got != netted {
		t.Errorf("netted:\n%s", got)
	}
	if got := diffText(diffs(t, g, to, from, gnomon.DiffOptions{})); got != `update shop.orders 1: total 5.00>1.00, note n>x
insert shop.orders 2: id ->2, customer ->b, total ->2.00, note ->-
insert shop.orders 3: id ->3, customer ->c, total ->3.00, note ->z
delete shop.orders 4: id 4>-, customer d>-, total 4.00>-, note ->-
delete shop.orders 30: id 30>-, customer c>-, total 3.00>-, note z>-` {
		t.Errorf("back:\n%s", got)
	}
	steps := `update shop.orders 1: total 1.00>5.00
update shop.orders 1: note x>n
delete shop.orders 2: id 2>-, customer b>-, total 2.00>-, note ->-
insert shop.orders 4: id ->4, customer ->d, total ->4.00, note ->-
delete shop.orders 3: id 3>-, customer c>-, total 3.00>-, note z>-
insert shop.orders 30: id ->30, customer ->c, total ->3.00, note ->z
insert shop.orders 5: id ->5, customer ->e, total ->5.00, note ->-
delete shop.orders 5: id 5>-, customer e>-, total 5.00>-, note ->-
update shop.orders 6: note ->y
update shop.orders 6: note y>-`
	if got := diffText(diffs(t, g, from, to, gnomon.DiffOptions{Steps: true})); got != steps {
		t.Errorf("steps:\n%s", got)
	}
	back := diffs(t, g, to, from, gnomon.DiffOptions{Steps: true})
	if len(back) != 10 || diffText(back[:1]) != "update shop.orders 6: note y>-" && diffText(back[:1]) != "update shop.orders 6: note ->y" || back[9].Key[0] != "1" {
		t.Errorf("steps back:\n%s", diffText(back))
	}
	if counts, err := g.DiffCounts(t.Context(), from, to); err != nil || !slices.Equal(counts, []gnomon.DiffCount{{Table: "shop.orders", Inserts: 2, Updates: 1, Deletes: 2}}) {
		t.Errorf("counts: %+v, %v", counts, err)
	}
	if list := diffs(t, g, from, from, gnomon.DiffOptions{}); len(list) != 0 {
		t.Errorf("from a place to itself: %s", diffText(list))
	}
	truncated := diffs(t, g, to, gnomon.Present, gnomon.DiffOptions{Steps: true})
	if last := truncated[len(truncated)-1]; last.Operation != gnomon.Truncate || last.New != nil {
		t.Errorf("a truncate is %+v", last)
	}
}

func TestDiffSaysWho(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1, null)")
	from := ref(t, g)
	run(t, pool, "update shop.orders set note = 'first'", "begin; set local annals.actor = 'ann'; set local application_name = 'shop'; update shop.orders set note = 'last'; commit")
	for steps, want := range map[bool][]string{false: {"ann"}, true: {"", "ann"}} {
		list := diffs(t, g, from, gnomon.Present, gnomon.DiffOptions{Steps: steps})
		for i, d := range list {
			if d.Who.Actor != want[i] || d.Who.Login == "" || d.V == 0 || d.At.IsZero() || !strings.HasPrefix(d.Transaction, "1:") || want[i] != "" && d.Who.Application != "shop" {
				t.Errorf("steps %v: %+v", steps, d)
			}
		}
		if len(list) != len(want) {
			t.Errorf("steps %v: %s", steps, diffText(list))
		}
	}
	history := must[[]gnomon.Version](t)(g.History(t.Context(), "shop.orders", gnomon.KeyOf(1)))
	if list := diffs(t, g, from, gnomon.Present, gnomon.DiffOptions{}); list[0].V != history[0].V || list[0].Transaction != history[0].Transaction {
		t.Errorf("%+v, but history tells %+v", list[0], history[0])
	}
}

func TestDiffOfPlacesThatTablesDoNotReach(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	before := ref(t, g)
	run(t, pool, "create table shop.later (id int primary key)", "create table shop.never (id int primary key)", "insert into shop.orders values (1, 'a', 1, null)")
	track(t, g, "shop.later")
	if e := refuses(t, diffError(g, ctx, before, gnomon.Present, gnomon.DiffOptions{}), gnomon.ErrNoHistory); e.Table != "shop.later" {
		t.Errorf("all tables: %+v", e)
	}
	if list := diffs(t, g, before, gnomon.Present, gnomon.DiffOptions{Tables: []string{"shop.orders"}}); len(list) != 1 {
		t.Errorf("the table that reaches it: %s", diffText(list))
	}
	refuses(t, diffError(g, ctx, before, gnomon.Present, gnomon.DiffOptions{Tables: []string{"shop.never"}}), gnomon.ErrNotTracked)
	refuses(t, diffError(g, ctx, "tag:none", gnomon.Present, gnomon.DiffOptions{}), gnomon.ErrUnknownTag)
	if _, err := g.DiffCounts(ctx, before, gnomon.Present); !errors.Is(err, gnomon.ErrNoHistory) {
		t.Errorf("counts: %v", err)
	}
	// Each sees a transaction that the other one doesn't.
	first := column[int64](t, pool, "insert into shop.orders values (2, 'b', 2, null) returning pg_current_xact_id()::text::bigint")[0]
	second := column[int64](t, pool, "insert into shop.orders values (3, 'c', 3, null) returning pg_current_xact_id()::text::bigint")[0]
	run(t, pool, "insert into shop.orders values (4, 'd', 4, null)")
	now := ref(t, g)
	without := func(xid int64) gnomon.Ref {
		return gnomon.Ref(column[string](t, pool, `select concat_ws('/', c[1], concat_ws(':', least(pg_snapshot_xmin(s), x), pg_snapshot_xmax(s), (select string_agg(y::text, ',' order by y) from (select pg_snapshot_xip(s) union select x) u (y))), c[3], c[4])
			from string_to_array($1, '/') c, lateral (select c[2]::pg_snapshot as s, $2::text::xid8 as x) q`, string(now), fmt.Sprint(xid))[0])
	}
	refuses(t, diffError(g, ctx, without(first), without(second), gnomon.DiffOptions{Tables: []string{"shop.orders"}}), gnomon.ErrInvalid)
}

func TestDiffAcrossChangesOfColumns(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" ("t" int primary key, "o" text, "select" boolean, gone int, big text, g int generated always as ("t" * 2) stored)`, `alter table "Sch ema"."ta""ble" alter big set storage external`)
	ok(t, g.TrackWith(t.Context(), `"Sch ema"."ta""ble"`, gnomon.Options{Wide: []string{"big"}}))
	run(t, pool, `insert into "Sch ema"."ta""ble" values (1, 'one', true, 1, repeat('b', 9)), (2, 'two', false, 2, 'c'), (3, 'three', null, 3, 'd')`)
	from := ref(t, g)
	run(t, pool, `update "Sch ema"."ta""ble" set "o" = 'eins' where "t" = 1`, `alter table "Sch ema"."ta""ble" rename "o" to "o%s"`, `alter table "Sch ema"."ta""ble" drop gone`, `alter table "Sch ema"."ta""ble" add new text default 'n'`)
	middle := ref(t, g)
	run(t, pool, `update "Sch ema"."ta""ble" set new = 'm' where "t" in (1, 2)`, `delete from "Sch ema"."ta""ble" where "t" = 3`)
	for _, c := range []struct {
		from, to gnomon.Ref
		want     string
	}{
		{from, middle, `update "Sch ema"."ta""ble" 1: o%s one>eins, new ->n`},
		{middle, gnomon.Present, `update "Sch ema"."ta""ble" 1: new n>m` + "\n" + `update "Sch ema"."ta""ble" 2: new n>m` + "\n" + `delete "Sch ema"."ta""ble" 3: t 3>-, o%s three>-, select ->-, big d>-, new n>-`},
		{from, gnomon.Present, `update "Sch ema"."ta""ble" 1: o%s one>eins, new ->m` + "\n" + `update "Sch ema"."ta""ble" 2: new n>m` + "\n" + `delete "Sch ema"."ta""ble" 3: t 3>-, o%s three>-, select ->-, big d>-, new n>-`},
	} {
		list := diffs(t, g, c.from, c.to, gnomon.DiffOptions{})
		if got := diffText(list); got != c.want {
			t.Errorf("%s", got)
		}
		if old := list[0].Old; textOf(old["big"]) != "bbbbbbbbb" || textOf(old["select"]) != "t" {
			t.Errorf("what an entry lacks is made up: %v", list[0])
		}
	}
}

// History that ended tells what it told before, and another one does not continue it.
func TestDiffOfATableThatWasTrackedBefore(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1, 'x'), (2, 'b', 2, 'y'), (3, 'c', 3, 'z')")
	from := ref(t, g)
	run(t, pool, "update shop.orders set note = 'new' where id = 1", "delete from shop.orders where id = 2", "insert into shop.orders values (4, 'd', 4, null)")
	to := ref(t, g)
	ok(t, g.Untrack(t.Context(), "shop.orders", gnomon.KeepHistory))
	run(t, pool, "update shop.orders set note = 'unseen', total = 0", "insert into shop.orders values (2, 'again', 2, null)")
	o := gnomon.DiffOptions{Tables: []string{"shop.orders"}}
	want := "update shop.orders 1: note x>new\ndelete shop.orders 2: id 2>-, customer b>-, total 2.00>-, note y>-\ninsert shop.orders 4: id ->4, customer ->d, total ->4.00, note ->-"
	if got := diffText(diffs(t, g, from, to, o)); got != want {
		t.Errorf("%s", got)
	}
	refuses(t, diffError(g, t.Context(), from, gnomon.Present, o), gnomon.ErrNoHistory)
	if list := diffs(t, g, from, gnomon.Present, gnomon.DiffOptions{}); len(list) != 0 {
		t.Errorf("of all that are tracked: %s", diffText(list))
	}
	track(t, g, "shop.orders")
	if got := diffText(diffs(t, g, from, to, o)); got != want {
		t.Errorf("tracked again: %s", got)
	}
	if e := refuses(t, diffError(g, t.Context(), from, gnomon.Present, o), gnomon.ErrNoHistory); e.Table != "shop.orders" {
		t.Errorf("across: %+v", e)
	}
}

// What was erased is not made up, and not taken for equal.
func TestDiffOfWhatWasErased(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1, 'x')")
	from := ref(t, g)
	run(t, pool, "update shop.orders set note = 'y'", "update shop.orders set note = 'z'", "update annals.h1_1 set op = 'U', c2 = null, c3 = null, c4 = null where c4 = 'x'")
	list := diffs(t, g, from, gnomon.Present, gnomon.DiffOptions{})
	if len(list) != 1 || list[0].Operation != gnomon.Update || list[0].Columns != nil || list[0].Old == nil || len(list[0].Old) != 0 || textOf(list[0].New["note"]) != "z" {
		t.Errorf("%+v", list)
	}
	if got := diffText(diffs(t, g, from, gnomon.Present, gnomon.DiffOptions{Steps: true})); got != "update shop.orders 1: \nupdate shop.orders 1: note y>z" {
		t.Errorf("steps:\n%s", got)
	}
}

// Who is restricted by row-level security gets what he could read, and never the value of another place.
func TestDiffRespectsRowSecurity(t *testing.T) {
	t.Parallel()
	conn := pgserver.Database(t)
	super := connectAs(t, conn, "")
	ok(t, gnomon.Install(t.Context(), super))
	red, stranger := pgserver.Role(t, pgserver.Shared(t), "red"), pgserver.Role(t, pgserver.Shared(t), "stranger")
	run(t, super, "create schema shop", "create table shop.orders (id int primary key, tenant name, note text)", "alter table shop.orders enable row level security", "create policy own on shop.orders using (tenant = current_user)",
		"grant usage on schema shop to "+red+", "+stranger, "grant select on shop.orders to "+red)
	owner := gnomon.New(super)
	track(t, owner, "shop.orders")
	letRead(t, super, red)
	letRead(t, super, stranger)
	run(t, super, "insert into shop.orders values (1, '"+red+"', 'r1'), (2, 'blue', 'b1'), (3, '"+red+"', 'x1'), (4, '"+red+"', 'y1'), (5, 'blue', 'z1')")
	from := ref(t, owner)
	run(t, super, "update shop.orders set note = note || '+' where id < 5", "update shop.orders set tenant = 'blue', note = 'hidden' where id = 3", "update shop.orders set tenant = 'blue', note = 'secret' where id = 4")
	middle := ref(t, owner)
	run(t, super, "update shop.orders set note = 'seen by blue' where id = 3", "update shop.orders set tenant = '"+red+"', note = 'back' where id = 3", "update shop.orders set note = 'again' where id = 3", "update shop.orders set note = 'r2' where id = 1")
	g := gnomon.New(connectAs(t, conn, red))
	for _, c := range []struct {
		from, to gnomon.Ref
		steps    bool
		want     string
	}{
		{from, middle, false, "update shop.orders 1: note r1>r1+\ndelete shop.orders 3: id 3>-, tenant RED>-, note x1>-\ndelete shop.orders 4: id 4>-, tenant RED>-, note y1>-"},
		{from, gnomon.Present, false, "update shop.orders 1: note r1>r2\nupdate shop.orders 3: note x1>again\ndelete shop.orders 4: id 4>-, tenant RED>-, note y1>-"},
		{middle, gnomon.Present, false, "update shop.orders 1: note r1+>r2\ninsert shop.orders 3: id ->3, tenant ->RED, note ->again"},
		{from, middle, true, "update shop.orders 1: note r1>r1+\nupdate shop.orders 3: note x1>x1+\nupdate shop.orders 4: note y1>y1+\n" +
			"delete shop.orders 3: id 3>-, tenant RED>-, note x1+>-\ndelete shop.orders 4: id 4>-, tenant RED>-, note y1+>-"},
	} {
		if got := strings.ReplaceAll(diffText(diffs(t, g, c.from, c.to, gnomon.DiffOptions{Steps: c.steps})), red, "RED"); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
	other := gnomon.New(connectAs(t, conn, stranger))
	if err := diffError(other, t.Context(), from, gnomon.Ref(middle), gnomon.DiffOptions{Tables: []string{"shop.orders"}}); sqlState(err) != "42501" {
		t.Errorf("without SELECT: %v", err)
	}
	if list := diffs(t, other, from, middle, gnomon.DiffOptions{}); len(list) != 0 {
		t.Errorf("without SELECT: %s", diffText(list))
	}
}

func TestDiffIsPartOfTheTransactionAndLeavesTheSession(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders select i, 'c', i, null from generate_series(1, 300) i")
	from := ref(t, g)
	run(t, pool, "update shop.orders set total = total + 1")
	conn := connectAs(t, pool.Config().ConnString(), "")
	pgtxtest.AssertSessionUnchanged(t, conn, func() {
		g, n := gnomon.New(conn), 0
		for d, err := range g.Diff(t.Context(), from, gnomon.Present, gnomon.DiffOptions{}) {
			ok(t, err)
			if n++; d.Key[0] == "3" {
				break
			}
		}
		if n != 3 {
			t.Errorf("%d rows before the third", n)
		}
		must[[]gnomon.DiffCount](t)(g.DiffCounts(t.Context(), from, gnomon.Present))
		must[[]gnomon.Version](t)(g.History(t.Context(), "shop.orders", gnomon.KeyOf(1)))
	})
	// What the transaction itself has not committed is not at any place, nor does it show through.
	tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
	defer tx.Rollback(t.Context())
	run(t, tx, "set local datestyle = 'German'", "update shop.orders set note = 'mine' where id = 1", "delete from shop.orders where id = 2")
	if got := diffs(t, gnomon.New(tx), from, gnomon.Present, gnomon.DiffOptions{}); len(got) != 300 || textOf(got[0].New["note"]) != "-" || got[1].Operation != gnomon.Update {
		t.Errorf("%d rows, %s", len(got), diffText(got[:2]))
	}
	if got := column[string](t, tx, "show datestyle")[0]; !strings.HasPrefix(got, "German") {
		t.Errorf("DateStyle is %s after a diff", got)
	}
}

func TestDiffOfAnEarlySpanReadsLittleOfWhatCameLater(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders select i, 'c', i, null from generate_series(1, 100) i", "select annals.tick()")
	from := ref(t, g)
	run(t, pool, "update shop.orders set total = total + 1 where id <= 10", "delete from shop.orders where id = 3", "update shop.orders set id = 1000 where id = 4")
	to := ref(t, g)
	query := func() string {
		return column[string](t, pool, "select query from gnomon.diff_queries($1, $2, null, false)", string(from), string(to))[0]
	}
	want := diffText(diffs(t, g, from, to, gnomon.DiffOptions{}))
	if strings.Contains(query(), "lateral (select x.v") {
		t.Error("rows are looked up although nothing came later")
	}
	for column[*int64](t, pool, "select annals.upper_bound((gnomon.place_of($1)).snapshot)", string(to))[0] == nil {
		run(t, pool, "select annals.tick()") // others' transactions may run
	}
	for range 5 {
		run(t, pool, "update shop.orders set note = 'later', total = 0", "update shop.orders set id = id + 10000 where id > 10")
	}
	if !strings.Contains(query(), "lateral (select x.v") {
		t.Error("all that came later is read")
	}
	if got := diffText(diffs(t, g, from, to, gnomon.DiffOptions{})); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// What an update left as it was is not stored with it, but with what came after: however much that is, and whether the row is still there.
func TestWideValuesAreThoseBeforeWhatCameLater(t *testing.T) {
	t.Parallel()
	const nest = "create function nudge() returns trigger language plpgsql as $$ begin if pg_trigger_depth() = 1 then update t set x = x where id = new.id; end if; return null; end $$; create trigger a after update on t for each row execute function nudge();"
	for name, c := range map[string]struct{ setup, end string }{
		"stays": {"", "select"}, "deleted": {"", "delete from t where id < 9"}, "truncated": {"", "truncate t"}, "moved": {"", "update t set id = -id"},
		"triggers nest": {nest, "delete from t where id < 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			g, pool := installed(t)
			run(t, pool, "create table t (id int primary key, x int, w text)", c.setup)
			ok(t, g.TrackWith(ctx, "t", gnomon.Options{Wide: []string{"w"}}))
			run(t, pool, "insert into t select i, 0, 'w' || i from generate_series(1, 5) i")
			from := ref(t, g)
			run(t, pool, "update t set x = 1 where id <= 2", "update t set w = w || '!' where id in (3, 4)")
			to := ref(t, g)
			for column[*int64](t, pool, "select annals.upper_bound((gnomon.place_of($1)).snapshot)", string(to))[0] == nil {
				run(t, pool, "select annals.tick()") // others' transactions may run
			}
			branch := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "to", gnomon.BranchOptions{From: to}))
			want := `update public.t 1: x 0>1
update public.t 2: x 0>1
update public.t 3: w w3>w3!
update public.t 4: w w4>w4!`
			rows := "(1,1,w1)\n(2,1,w2)\n(3,0,w3!)\n(4,0,w4!)\n(5,0,w5)"
			check := func(when string) {
				t.Helper()
				for _, o := range []gnomon.DiffOptions{{}, {Steps: true}} {
					list := diffs(t, g, from, to, o)
					netted := list
					if o.Steps { // of what a trigger wrote, only what changed something
						netted = slices.DeleteFunc(slices.Clone(list), func(d gnomon.RowDiff) bool { return len(d.Columns) == 0 })
						slices.SortStableFunc(netted, func(a, b gnomon.RowDiff) int { return strings.Compare(a.Key[0], b.Key[0]) })
					}
					if got := diffText(netted); got != want {
						t.Errorf("%s, the diff is\n%s", when, got)
					}
					for _, d := range list {
						changed := ""
						if d.Key[0] > "2" {
							changed = "!"
						}
						if old, new := textOf(d.Old["w"]), textOf(d.New["w"]); old != "w"+d.Key[0] || new != "w"+d.Key[0]+changed {
							t.Errorf("%s, %s has w %s>%s", when, d.Key[0], old, new)
						}
					}
				}
				if got := text(t, must[*gnomon.Past](t)(g.At(ctx, to)), "select * from t order by id"); got != rows {
					t.Errorf("%s, the past is\n%s", when, got)
				}
				if got := text(t, branch, "select * from t order by id"); got != rows {
					t.Errorf("%s, the branch is\n%s", when, got)
				}
				if got := text(t, pool, `select c.key[1] as key, c.new->>'x' as x, c.new->>'w' as w from gnomon.changes($1, $2) c where c.operation = 'update' and c.old is distinct from c.new order by 1`, string(from), string(to)); got != "(1,1,w1)\n(2,1,w2)\n(3,0,w3!)\n(4,0,w4!)" {
					t.Errorf("%s, the changes are\n%s", when, got)
				}
				for _, id := range []int{1, 3} {
					versions := must[[]gnomon.Version](t)(g.History(ctx, "t", gnomon.KeyOf(id)))
					first := versions[len(versions)-1]
					if w := first.Columns["w"].To; first.Operation != gnomon.Insert || textOf(w) != fmt.Sprintf("w%d", id) || first.Note != "" {
						t.Errorf("%s, the history of %d begins with %s: %s %s", when, id, first.Operation, textOf(w), first.Note)
					}
				}
			}
			check("at once")
			run(t, pool, "select setval('annals.v', nextval('annals.v') + 1000000)")
			if !strings.Contains(column[string](t, pool, "select query from gnomon.diff_queries($1, $2, null, false)", string(from), string(to))[0], "lateral (select x.v") {
				t.Fatal("all that came later is read")
			}
			check("much later")
			run(t, pool, "update t set x = 2")
			check("after an update that leaves them")
			run(t, pool, "update t set w = 'new' where id in (2, 4)")
			check("after an update of them")
			run(t, pool, c.end)
			check("at the end")
		})
	}
}

// land is a kind of tables for random programs.
type land struct {
	name       string
	setup      string
	options    gnomon.Options
	tables     []string
	id, w      string                  // columns
	key        func(k int) string      // as SQL
	statements func(k, n int) []string // more, of this kind
}

const items = "create table t (id int primary key deferrable, x int, w text); insert into t select i, i, repeat('w', i) from generate_series(1, 9) i;"

const nesting = items + `
	create function nudge() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then update t set x = x + 1, w = w || 'n' where id = new.id % 9 + 1; end if; return new; end $$;
	create function drop_next() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then delete from t where id = old.id + 1; end if; return null; end $$;
	create function replace() returns trigger language plpgsql as $$ begin delete from t where id = new.id; return new; end $$;
	create function make_room() returns trigger language plpgsql as $$ begin
		if new.id <> old.id then delete from t where id = new.id; end if; return new; end $$;`

func number(k int) string { return fmt.Sprint(k) }

func swaps(k, n int) []string {
	return []string{fmt.Sprintf("update t set id = %d - id where id in (%d, %d)", k+n%5, k, n%5), fmt.Sprintf("update t set w = w || '%d' where id %% 3 = %d", n%10, k%3)}
}

var lands = []land{
	{name: "plain", setup: items + "create table u (id int primary key, x int, w text);", tables: []string{"t", "u"}, id: "id", w: "w", key: number, statements: swaps},
	{name: "wide", setup: items, options: gnomon.Options{Wide: []string{"w"}}, tables: []string{"t"}, id: "id", w: "w", key: number, statements: swaps},
	{name: "nesting", setup: nesting + "create trigger a after insert or update on t for each row execute function nudge(); create trigger b after update or delete on t for each row execute function drop_next();",
		options: gnomon.Options{Wide: []string{"w"}}, tables: []string{"t"}, id: "id", w: "w", key: number, statements: swaps},
	{name: "nesting before", setup: nesting + "create trigger a before insert on t for each row execute function replace(); create trigger b before update of id on t for each row execute function make_room(); create trigger c after update of w on t for each row execute function nudge();",
		options: gnomon.Options{Wide: []string{"w"}}, tables: []string{"t"}, id: "id", w: "w", key: number, statements: swaps},
	{name: "partitions", setup: "create table t (id int primary key, x int, w text) partition by range (id); create table t1 partition of t for values from (minvalue) to (4); create table t2 partition of t default;", tables: []string{"t"}, id: "id", w: "w", key: number, statements: swaps},
	{name: "keys", setup: `create schema "Sch ema"; create table "Sch ema"."ta""ble" ("t" uuid, "o" numeric default 1.50, x int, "select" text, primary key ("t", "o")); create table named ("t" text primary key, x int, "select" text);`,
		tables: []string{`"Sch ema"."ta""ble"`, "named"}, id: `"t"`, w: `"select"`, key: func(k int) string { return fmt.Sprintf("lpad('%d', 32, '0')::uuid::text", k) }},
}

// statement draws one that writes a table, whose keys are few so that sessions meet.
func (l land) statement(r *rapid.T) string {
	table := rapid.SampledFrom(l.tables).Draw(r, "table")
	key := rapid.IntRange(0, 12)
	k, n := key.Draw(r, "key"), rapid.IntRange(0, 99).Draw(r, "value")
	id, w, at, as := l.id, l.w, "::text = "+l.key(k), func(k int) string { return l.key(k) }
	if strings.HasPrefix(l.name, "key") && strings.HasSuffix(table, `le"`) {
		as = func(k int) string { return l.key(k) + "::uuid" }
	}
	if id == "id" {
		at = " = " + l.key(k)
	}
	list := []string{
		fmt.Sprintf("update %s set %s = 'w%d' where %s%s", table, w, n, id, at),
		fmt.Sprintf("update %s set x = %d where %s%s", table, n%3, id, at),
		fmt.Sprintf("update %s set %s = repeat('%d', 5) where x > %d", table, w, n, k),
		fmt.Sprintf("update %s set x = x where %s%s", table, id, at),
		fmt.Sprintf("update %s set %s = %s, x = x + 1 where %s%s", table, id, as(key.Draw(r, "new key")), id, at),
		fmt.Sprintf("insert into %s (%s, x, %s) values (%s, %d, 'i%d')", table, id, w, as(k), n, n),
		fmt.Sprintf("insert into %[1]s (%[2]s, x) select v, 2 from (values (%[3]s), (%[4]s)) n (v) where not exists (select from %[1]s where %[2]s = v)", table, id, as(k), as(k+1)),
		fmt.Sprintf("delete from %s where %s%s", table, id, at),
		fmt.Sprintf("delete from %s where x = %d", table, n%3),
		fmt.Sprintf("with gone as (delete from %[1]s where %[2]s%[3]s returning *) insert into %[1]s (%[2]s, x, %[4]s) select %[2]s, x, %[4]s || '%[5]d' from gone", table, id, at, w, n),
		"truncate " + table,
	}
	if l.statements != nil {
		list = append(list, l.statements(k, n)...)
	}
	return rapid.SampledFrom(list).Draw(r, "statement")
}

// tableCopy is a copy of tables at a place: their rows by table and key.
type tableCopy struct {
	at   gnomon.Ref
	rows map[string]map[string]*string
}

// copy copies the tables as a snapshot shows them.
func (l land) copy(ctx context.Context, pool *pgxpool.Pool) (c tableCopy, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return c, err
	}
	defer tx.Rollback(ctx)
	c.rows = map[string]map[string]*string{}
	if _, err := tx.Exec(ctx, "set local lock_timeout = '15ms'"); err != nil {
		return c, err
	}
	if err := tx.QueryRow(ctx, "select gnomon.now()").Scan(&c.at); err != nil {
		return c, err
	}
	for _, table := range l.tables {
		key := "array[" + l.id + "::text]"
		if strings.HasSuffix(table, `le"`) {
			key = `array["t"::text, "o"::text]`
		}
		name := table
		if !strings.Contains(table, ".") {
			name = "public." + table
		}
		rows, err := tx.Query(ctx, fmt.Sprintf("select %s::text, (select jsonb_object_agg(key, value) from jsonb_each_text(to_jsonb(row_of))) from %s row_of", key, table))
		if err != nil {
			return c, err
		}
		var k string
		var image []byte
		if _, err = pgx.ForEachRow(rows, []any{&k, &image}, func() error {
			row := map[string]*string{}
			c.rows[name+" "+k] = row
			return json.Unmarshal(image, &row)
		}); err != nil {
			return c, err
		}
	}
	return c, nil
}

// check fails unless diffs between the copies are what they tell.
func (l land) check(ctx context.Context, g *gnomon.Gnomon, a, b tableCopy) error {
	keyOf := func(d gnomon.RowDiff) string {
		quoted := []string{}
		for _, k := range d.Key {
			quoted = append(quoted, strings.Trim(strings.TrimSpace(k), " "))
		}
		return d.Table + " {" + strings.Join(quoted, ",") + "}"
	}
	found := map[string]gnomon.RowDiff{}
	for d, err := range g.Diff(ctx, a.at, b.at, gnomon.DiffOptions{}) {
		if err != nil {
			return err
		}
		if _, twice := found[keyOf(d)]; twice {
			return fmt.Errorf("%s comes twice", keyOf(d))
		}
		found[keyOf(d)] = d
	}
	for key := range maps.Keys(union(a.rows, b.rows)) {
		old, new := a.rows[key], b.rows[key]
		d, differs := found[key]
		delete(found, key)
		if differs == reflect.DeepEqual(old, new) || differs && (!reflect.DeepEqual(d.Old, old) || !reflect.DeepEqual(d.New, new)) {
			return fmt.Errorf("%s: from %s to %s, but the diff has %s", key, rowText(old), rowText(new), diffText([]gnomon.RowDiff{d}))
		}
		for _, c := range d.Columns {
			if old != nil && new != nil && textOf(old[c]) == textOf(new[c]) {
				return fmt.Errorf("%s: column %s did not change", key, c)
			}
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("what never was: %v", found)
	}
	state := maps.Clone(a.rows)
	for d, err := range g.Diff(ctx, a.at, b.at, gnomon.DiffOptions{Steps: true}) {
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(state[keyOf(d)], d.Old) {
			return fmt.Errorf("a step finds %s, not %s: %s", rowText(state[keyOf(d)]), rowText(d.Old), diffText([]gnomon.RowDiff{d}))
		}
		if d.New == nil {
			delete(state, keyOf(d))
		} else {
			state[keyOf(d)] = d.New
		}
	}
	if !reflect.DeepEqual(state, b.rows) {
		return fmt.Errorf("the steps lead to %d rows, not %d", len(state), len(b.rows))
	}
	return nil
}

func union(a, b map[string]map[string]*string) map[string]map[string]*string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func rowText(row map[string]*string) string {
	if row == nil {
		return "no row"
	}
	parts := []string{}
	for name, value := range row {
		parts = append(parts, name+" "+textOf(value))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Random programs in sessions that overlap: a diff is what comparing copies tells, and its steps lead from one to the other, also when
// much came later.
func TestDiffEqualsTheComparisonOfCopies(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	few(t, 15, func(r *rapid.T) {
		rapid.SampledFrom(lands).Draw(r, "land").program(t, r, g, pool)
	})
}

func (l land) program(t *testing.T, r *rapid.T, g *gnomon.Gnomon, pool *pgxpool.Pool) {
	must := func(err error) {
		if err != nil {
			r.Fatal(err)
		}
	}
	ctx := t.Context()
	_, err := pool.Exec(ctx, `drop schema public cascade; drop schema if exists "Sch ema" cascade; create schema public;`+l.setup)
	must(err)
	for _, table := range l.tables {
		must(g.TrackWith(ctx, table, l.options))
	}
	var conns [2]*pgx.Conn
	var inTx [2]bool
	for i := range conns {
		conns[i], err = pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		must(err)
		defer conns[i].Close(context.WithoutCancel(ctx))
		// Who waits for the other session gives up: the sessions take turns here.
		_, err = conns[i].Exec(ctx, "set lock_timeout = '15ms'")
		must(err)
	}
	var trace []string
	do := func(i int, sql string) bool {
		_, err := conns[i].Exec(ctx, sql)
		trace = append(trace, fmt.Sprintf("%d: %s", i, sql))
		if err != nil {
			trace[len(trace)-1] += " -- " + sqlState(err)
			if code := sqlState(err); !slices.Contains([]string{"55P03", "40001", "40P01", "25P02", "27000"}, code) && !strings.HasPrefix(code, "23") {
				r.Fatalf("%v\n%s", err, strings.Join(trace, "\n"))
			}
		}
		return err == nil
	}
	var copies []tableCopy
	remember := func() {
		c, err := l.copy(ctx, pool)
		if sqlState(err) == "55P03" { // somebody truncates
			return
		}
		must(err)
		copies = append(copies, c)
		trace = append(trace, "remember "+string(c.at))
	}
	check := func(when string, from, to int) {
		if err := l.check(ctx, g, copies[from], copies[to]); err != nil {
			r.Fatalf("%s, from %d to %d: %v\n%s", when, from, to, err, strings.Join(trace, "\n"))
		}
	}
	remember()
	for range rapid.IntRange(5, 20).Draw(r, "steps") {
		i := rapid.IntRange(0, 1).Draw(r, "session")
		switch rapid.SampledFrom([]string{"write", "write", "write", "write", "begin", "end", "remember", "tick"}).Draw(r, "do") {
		case "write":
			if inTx[i] {
				do(i, "savepoint w")
			}
			if !do(i, l.statement(r)) && inTx[i] {
				do(i, "rollback to w")
			}
		case "begin":
			if !inTx[i] {
				do(i, "begin")
				inTx[i] = true
			}
		case "end":
			if inTx[i] {
				do(i, rapid.SampledFrom([]string{"commit", "commit", "rollback"}).Draw(r, "end"))
				inTx[i] = false
			}
		case "remember":
			if len(copies) < 2 {
				remember()
			}
		case "tick":
			do(i, "select annals.tick()")
		}
	}
	for i := range conns {
		if inTx[i] {
			do(i, "commit")
		}
	}
	remember()
	last := len(copies) - 1
	for i := range last {
		check("at once", i, last)
	}
	check("at once", last, rapid.IntRange(0, last).Draw(r, "back to"))
	for range 5 {
		_, err = pool.Exec(ctx, "select annals.tick()")
		must(err)
	}
	_, err = pool.Exec(ctx, "select setval('annals.v', nextval('annals.v') + 1000000)")
	must(err)
	for range 3 {
		do(0, l.statement(r))
	}
	check("much later", 0, min(1, last))
	check("much later", last, max(0, last-1))
}
