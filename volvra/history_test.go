package volvra_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// life writes a row's history, newest change first: "update 1: note a>b".
func life(t testing.TB, v *volvra.Volvra, table string, key ...any) string {
	t.Helper()
	changes, err := v.History(t.Context(), table, volvra.KeyOf(key...), 0)
	ok(t, err)
	lines := []string{}
	for _, c := range changes {
		columns := []string{}
		for name, d := range c.Columns {
			columns = append(columns, name+" "+value(d.From)+">"+value(d.To))
		}
		slices.Sort(columns)
		line := fmt.Sprintf("%s %s: %s", c.Operation, strings.Join(c.Key, ","), strings.Join(columns, ", "))
		if c.Note != "" {
			line += " (" + c.Note + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func value(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func TestHistoryOfARow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int, doc jsonb, secret text, big text)", "alter table shop.a alter big set storage external")
	_, err := v.Enable(ctx, "shop.a", volvra.Options{Exclude: []string{"secret"}, Wide: []string{"big"}})
	ok(t, err)
	run(t, pool, "insert into shop.a values (1, 1, '{\"x\": 1}', 's', repeat('b', 3000))", "update shop.a set n = 2 where id = 1", "update shop.a set id = 2 where id = 1", "update shop.a set doc = 'null' where id = 2",
		"update shop.a set doc = null, secret = 't' where id = 2", "update shop.a set n = n", "insert into shop.a values (1, 10)", "update shop.a set id = 3, big = 'small' where id = 2", "delete from shop.a where id = 3")
	big := strings.Repeat("b", 3000)
	want := `delete 3: big small>-, doc ->-, id 3>-, n 2>-
update 2: big ` + big + `>small, id 2>3
update 2: doc null>-
update 2: doc {"x": 1}>null
update 1: id 1>2
update 1: n 1>2
insert 1: big ->` + big + `, doc ->{"x": 1}, id ->1, n ->1`
	for _, key := range []int{2, 3} {
		if got := life(t, v, "shop.a", key); got != want {
			t.Errorf("key %d:\n%s", key, short(got))
		}
	}
	if got := life(t, v, "shop.a", 1); got != strings.Replace(want, "update 2: big", "insert 1: big ->-, doc ->-, id ->1, n ->10\nupdate 2: big", 1) && !strings.Contains(got, "insert 1: big ->-, doc ->-, id ->1, n ->10") {
		t.Errorf("key 1:\n%s", short(got))
	}
	if changes, err := v.History(ctx, "shop.a", volvra.Key{"2"}, 2); err != nil || len(changes) != 2 || changes[0].Operation != "delete" || changes[0].Who.Login == "" {
		t.Errorf("%+v, %v", changes, err)
	}
	for key, kind := range map[string]error{"x": volvra.ErrValue} {
		if _, err := v.History(ctx, "shop.a", volvra.Key{key}, 0); !errors.Is(err, kind) {
			t.Errorf("key %s: %v", key, err)
		}
	}
	if _, err := v.History(ctx, "shop.a", nil, 0); !errors.Is(err, volvra.ErrValue) {
		t.Errorf("no key: %v", err)
	}
	// Rows that change places, back and forth.
	run(t, pool, "create table shop.s (id int primary key deferrable, n int)", "insert into shop.s values (1, 10), (2, 20)")
	cover(t, v, "shop.s")
	run(t, pool, "update shop.s set id = 3 - id", "update shop.s set n = n + 1", "update shop.s set id = 3 - id")
	if got := life(t, v, "shop.s", 1); got != "update 1: id 1>2\nupdate 2: id 2>1\nupdate 2: n 10>11\nupdate 1: n 20>21\nupdate 2: id 2>1\nupdate 1: id 1>2" && sorted(strings.ReplaceAll(got, "\n", ",")) != sorted("update 1: id 1>2,update 2: id 2>1,update 2: n 10>11,update 1: n 20>21,update 2: id 2>1,update 1: id 1>2") {
		t.Errorf("swapped:\n%s", got)
	}
}

// What is not known is said to be unknown, and not made up.
func TestHistoryOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int)")
	_, err := v.Enable(t.Context(), "shop.a", volvra.Options{Truncate: volvra.AllowTruncate})
	ok(t, err)
	run(t, pool, "insert into shop.a values (1, 1)", "update shop.a set n = 2", "truncate shop.a", "insert into shop.a values (1, 3)", "update shop.a set n = 4")
	if got := life(t, v, "shop.a", 1); got != "update 1: n 3>4\ninsert 1: id ->1, n ->3\nupdate 1: id 1>-, n 1>- (what it became is unknown: history was interrupted after it)\ninsert 1: id ->1, n ->1" {
		t.Errorf("across an interruption:\n%s", got)
	}
	run(t, pool, "update annals.h1_1 set op = 'U', c2 = null where c2 = 3")
	if got := life(t, v, "shop.a", 1); !strings.HasPrefix(got, "update 1:  (erased)\ninsert 1:  (what it became is unknown: the change after it was erased)\n") {
		t.Errorf("erased:\n%s", got)
	}
	_, err = v.Disable(t.Context(), "shop.a", volvra.DisableOptions{})
	ok(t, err)
	run(t, pool, "update shop.a set n = 99")
	if got := life(t, v, "shop.a", 1); strings.Contains(got, "99") {
		t.Errorf("after coverage:\n%s", got)
	}
}

// Who may read one row of a table reads the history of that row.
func TestFaultHistoryRespectsRowSecurity(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := pgserver.Database(t)
	super := connectAs(t, conn, "")
	red, stranger := pgserver.Role(t, pgserver.Shared(t), "red"), pgserver.Role(t, pgserver.Shared(t), "stranger")
	ok(t, volvra.Install(ctx, super))
	ok(t, volvra.Grant(ctx, super, red, "", ""))
	ok(t, volvra.Grant(ctx, super, stranger, "", ""))
	run(t, super, "create schema shop", "create table shop.orders (id int primary key, tenant name, note text)", "alter table shop.orders enable row level security", "create policy own on shop.orders using (tenant = current_user)",
		"grant usage on schema shop to "+red+", "+stranger, "grant select on shop.orders to "+red)
	cover(t, volvra.New(super), "shop.orders")
	run(t, super, "insert into shop.orders values (1, '"+red+"', 'r1'), (2, 'blue', 'b1'), (3, '"+red+"', 'x1')", "update shop.orders set note = note || '+'", "update shop.orders set tenant = 'blue', note = 'hidden' where id = 3",
		"update shop.orders set note = 'seen by blue' where id = 3", "update shop.orders set tenant = '"+red+"' where id = 3", "update shop.orders set id = 7 where id = 1", "delete from shop.orders where id = 2")
	as := connectAs(t, conn, red)
	v := volvra.New(as)
	if got := life(t, v, "shop.orders", 1); got != "update 1: id 1>7\nupdate 1: note r1>r1+\ninsert 1: id ->1, note ->r1, tenant ->"+red {
		t.Errorf("own row:\n%s", got)
	}
	if got := life(t, v, "shop.orders", 2); got != "" {
		t.Errorf("the row of another tenant:\n%s", got)
	}
	if got := life(t, v, "shop.orders", 3); strings.Contains(got, "blue") || strings.Contains(got, "hidden") || !strings.Contains(got, "a change after it is not shown") {
		t.Errorf("a row that was another tenant's for a while:\n%s", got)
	}
	list, err := v.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{})
	ok(t, err)
	rows := int64(0)
	for _, x := range list {
		rows += x.Rows
	}
	if rows != 6 {
		t.Errorf("%d changes are listed: %+v", rows, list)
	}
	for _, sql := range []string{"select * from annals.move", "select from_key from annals.move", "select * from annals.h1_1", "select * from volvra.attempt"} {
		if _, err := as.Exec(ctx, sql); sqlState(err) != denied {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// No right to the table, no history.
	other := volvra.New(connectAs(t, conn, stranger))
	if _, err := other.History(ctx, "shop.orders", volvra.Key{"1"}, 0); sqlState(err) != denied {
		t.Errorf("history without SELECT: %v", err)
	}
	if list, err := other.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{}); err != nil || len(list) != 0 {
		t.Errorf("transactions without SELECT: %+v, %v", list, err)
	}
	if _, err := volvra.AsOf[map[string]any](ctx, other, "shop.orders", now(t, super)); sqlState(err) != denied {
		t.Errorf("the past without SELECT: %v", err)
	}
}

// After coverage ended, who may read the table still sees what happened.
func TestFaultHistoryAfterDisable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := pgserver.Database(t)
	super := connectAs(t, conn, "")
	reader := pgserver.Role(t, pgserver.Shared(t), "reader")
	ok(t, volvra.Install(ctx, super))
	ok(t, volvra.Grant(ctx, super, reader, "", ""))
	run(t, super, "create schema shop", "create table shop.orders (id int primary key, note text)", "grant usage on schema shop to "+reader, "grant select on shop.orders to "+reader)
	owner := volvra.New(super)
	cover(t, owner, "shop.orders")
	run(t, super, "insert into shop.orders values (1, 'a')", "update shop.orders set note = 'b'")
	_, err := owner.Disable(ctx, "shop.orders", volvra.DisableOptions{})
	ok(t, err)
	v := volvra.New(connectAs(t, conn, reader))
	if got := life(t, v, "shop.orders", 1); got != "update 1: id 1>-, note a>- (what it became is unknown: history ended after it)\ninsert 1: id ->1, note ->a" {
		t.Errorf("%s", got)
	}
	for _, s := range []volvra.Selection{{Everything: true}, {Tables: []string{"shop.orders"}}} {
		if list, err := v.Transactions(ctx, s, volvra.Page{}); err != nil || len(list) != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	}
	if list, err := v.Activity(ctx, volvra.ByTable, volvra.Selection{Everything: true}); err != nil || len(list) != 1 || list[0].Counts != (volvra.Counts{Insert: 1, Update: 1}) {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := v.Storage(ctx); err != nil || len(list) != 1 || list[0].EndedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := covered(t)
	run(t, pool, "create table shop.lines (id int primary key)")
	cover(t, v, "shop.lines")
	for i := range 5 {
		tx := must[pgx.Tx](t)(pool.Begin(ctx))
		run(t, tx, fmt.Sprintf("set local annals.actor = 'actor %d'", i), fmt.Sprintf("insert into shop.orders values (%d, 'eva', 1), (%d, 'eva', 2)", i, i+10), "update shop.orders set total = 3", fmt.Sprintf("insert into shop.lines values (%d)", i))
		ok(t, tx.Commit(ctx))
	}
	run(t, pool, "update shop.lines set id = id + 100", "delete from shop.lines", "truncate shop.orders")
	all, err := v.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{})
	ok(t, err)
	if len(all) != 8 || all[0].Tables["shop.orders"] != (volvra.Counts{Truncate: 10}) || all[1].Tables["shop.lines"] != (volvra.Counts{Delete: 5}) || all[2].Tables["shop.lines"] != (volvra.Counts{Update: 5}) ||
		all[3].Who.Actor != "actor 4" || all[3].Tables["shop.orders"] != (volvra.Counts{Insert: 2, Update: 10}) || all[3].Tables["shop.lines"] != (volvra.Counts{Insert: 1}) || all[3].Rows != 13 {
		t.Errorf("%+v", all)
	}
	var paged []volvra.Transaction
	for page := (volvra.Page{Limit: 3}); ; {
		list := must[[]volvra.Transaction](t)(v.Transactions(ctx, volvra.Selection{Everything: true}, page))
		paged = append(paged, list...)
		if len(list) < 3 {
			break
		}
		page.Before = list[len(list)-1].LastV
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Errorf("paged: %+v", paged)
	}
	if list := must[[]volvra.Transaction](t)(v.Transactions(ctx, volvra.Selection{Tables: []string{"shop.orders"}, Where: []volvra.Condition{where("total", volvra.Equal, "1")}, Actor: "actor 2"}, volvra.Page{})); len(list) != 1 || list[0].Tables["shop.orders"] != (volvra.Counts{Insert: 1, Update: 1}) {
		t.Errorf("%+v", list)
	}
	for by, want := range map[volvra.By]int{volvra.ByTable: 2, volvra.ByActor: 6, volvra.ByRole: 1, volvra.ByHour: 1, volvra.ByApplication: 1} {
		list, err := v.Activity(ctx, by, volvra.Selection{Everything: true})
		if err != nil || len(list) < want || len(list) > want+1 {
			t.Errorf("by %s: %+v, %v", by, list, err)
		}
	}
	if _, err := v.Activity(ctx, "weather", volvra.Selection{Everything: true}); !errors.Is(err, volvra.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
