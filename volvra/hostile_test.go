package volvra_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// A function takes at most 100 arguments, and a query has at most 1664 columns.
func TestUndoOfTablesWithManyColumns(t *testing.T) {
	v, pool := installed(t)
	for _, n := range []int{60, 480, 520} {
		columns := ""
		for i := range n - 1 {
			columns += fmt.Sprintf(", a%d int", i)
		}
		table := fmt.Sprintf("public.w%d", n)
		run(t, pool, "create table "+table+" (id int primary key"+columns+")")
		cover(t, v, table)
		run(t, pool, "insert into "+table+" (id, a0) values (1, 1), (2, 1), (3, 1)")
		mistake(t, pool, "update "+table+" set a0 = 2 where id = 1", "update "+table+" set a1 = 3 where id = 1", "delete from "+table+" where id = 2",
			"update "+table+" set a1 = 4 where id = 3")
		run(t, pool, "update "+table+" set a1 = 5 where id = 3")
		s := volvra.Selection{Actor: "mistake", Tables: []string{table}}
		if n > 500 {
			_, err := v.Preview(t.Context(), s)
			refusedWith(t, err, volvra.ErrInvalid)
			continue
		}
		if got := fmt.Sprint(statuses(t, v, s)); got != "[clean clean conflict]" {
			t.Errorf("%d columns: %s", n, got)
		}
		must[*volvra.Result](t)(v.Undo(t.Context(), s, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
		if got := text(t, pool, "select id, a0, a1 from "+table+" order by id"); got != "(1,1,)\n(2,1,)\n(3,1,5)" {
			t.Errorf("%d columns: undone:\n%s", n, got)
		}
	}
}

func TestUndoOfManyTables(t *testing.T) {
	v, pool := installed(t)
	var statements []string
	for i := range 55 {
		table := fmt.Sprintf("public.t%d", i)
		run(t, pool, "create table "+table+" (id int primary key, a int)", "insert into "+table+" values (1, 1)")
		cover(t, v, table)
		statements = append(statements, "update "+table+" set a = 2")
	}
	mistake(t, pool, statements...)
	if r := must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{})); r.Rows != 55 {
		t.Errorf("%d rows", r.Rows)
	}
}

// All rows of a table that the selection is about are left out, those of another one are not.
func TestSkipConflictsLeavesOutATable(t *testing.T) {
	v, pool := installed(t)
	run(t, pool, "create table a (id int primary key, x int)", "create table b (id int primary key, x int)", "insert into a values (1, 1)", "insert into b values (1, 1)")
	cover(t, v, "public.a", "public.b")
	mistake(t, pool, "update a set x = 2", "update b set x = 2")
	run(t, pool, "update a set x = 3")
	r := must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
	if r.Rows != 1 || r.Skipped != 1 {
		t.Errorf("%+v", r)
	}
	if got := text(t, pool, "select a.x, b.x from a, b"); got != "(3,1)" {
		t.Error(got)
	}
}

// Changes that row-level security hides from who undoes are not ascribed to those that it shows.
func TestUndoWithHiddenChanges(t *testing.T) {
	v, pool := installed(t)
	ada, bob := pgserver.Role(t, pgserver.Shared(t), "hostile"), pgserver.Role(t, pgserver.Shared(t), "hostile")
	run(t, pool, "create table acc (id int primary key, tenant text, price int, note text)", "alter table acc enable row level security",
		"create policy p on acc using (tenant = current_user)", "grant select, insert, update, delete on acc to "+ada,
		"insert into acc values (1, '"+ada+"', 10, 'n'), (2, '"+ada+"', 10, 'n'), (3, '"+ada+"', 10, 'n')")
	cover(t, v, "public.acc")
	ok(t, volvra.Grant(t.Context(), pool, "", ada, ""))
	mistake(t, pool, "update acc set note = 'moved' where id = 2", "update acc set note = 'kept' where id = 3", "update acc set tenant = '"+bob+"', note = 'moved' where id = 1")
	run(t, pool, "update acc set tenant = '"+bob+"' where id = 2", "update acc set price = 99 where id < 3", "update acc set tenant = '"+ada+"'")
	as := volvra.New(connectAs(t, pool.Config().ConnString(), ada))
	if got := fmt.Sprint(statuses(t, as, mistakes)); got != "[interrupted interrupted clean]" {
		t.Error(got)
	}
	must[*volvra.Result](t)(as.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
	if got := text(t, pool, "select id, price, note from acc order by id"); got != "(1,99,moved)\n(2,99,moved)\n(3,10,n)" {
		t.Error(got)
	}
}

// Types belong to users, and so does the code that runs when a value is read or cast. None of it runs with the rights of who installed.
func TestNoCodeOfTypesRunsAsOwner(t *testing.T) {
	v, pool := installed(t)
	eve := pgserver.Role(t, pgserver.Shared(t), "hostile")
	run(t, pool, "create table public.loot (who text)", "grant insert on loot to public", "create schema s authorization "+eve)
	conn := connectAs(t, pool.Config().ConnString(), eve)
	run(t, conn,
		"create type s.mood as enum ('a', 'b', 'c')",
		"create function s.to_text(s.mood) returns text language plpgsql as 'begin insert into public.loot values (current_user); return ''a''; end'",
		"create function s.from_text(text) returns s.mood language plpgsql as 'declare m s.mood; begin insert into public.loot values (current_user); return m; end'",
		"create cast (s.mood as text) with function s.to_text(s.mood) as assignment", "create cast (text as s.mood) with function s.from_text(text) as assignment",
		"create function s.fine(int) returns boolean language plpgsql as 'begin insert into public.loot values (current_user); return true; end'",
		"create domain s.d as int check (s.fine(value))", "create type s.c as (d s.d)",
		"create table s.by_mood (k s.mood primary key, v int)", "create table s.by_row (k s.mood primary key, v int)", "create table s.by_part (k s.mood primary key, v int) partition by list (k)",
		"create table s.part partition of s.by_part default", "create table s.by_domains (k s.d[] primary key)", "create table s.with_domains (k int primary key, c s.c, l s.d[])",
		"insert into s.by_mood values ('a', 1)", "insert into s.by_row values ('a', 1)", "insert into s.by_part values ('a', 1)")
	cover(t, v, "s.by_mood", "s.by_part", "s.with_domains")
	run(t, pool, "select annals.track('s.by_row', 'volvra', '{\"form\": \"row\"}')")
	if _, err := v.Enable(t.Context(), "s.by_domains", volvra.Options{}); err == nil {
		t.Error("a key that holds domains is accepted")
	}
	ok(t, volvra.Grant(t.Context(), pool, eve, "", ""))
	run(t, conn, "update s.by_mood set k = 'b'", "update s.by_row set k = 'b'", "update s.by_part set k = 'b'", "insert into s.with_domains values (1, row(1), '{1}')", "delete from s.with_domains")
	for _, condition := range []string{`{"column": "c", "op": "=", "value": "(1)"}`, `{"column": "l", "op": "=", "value": "{1}"}`} {
		run(t, conn, "select volvra.preview_token('{\"tables\": [\"s.with_domains\"], \"where\": ["+condition+"]}')")
	}
	run(t, pool, `select volvra.forget('s.by_mood', '["b"]', 'redact', 'asked')`, "select volvra.seal()")
	for range v.Verify(t.Context(), volvra.VerifyOptions{}) {
	}
	if got := strings.Join(column[string](t, pool, "select distinct who from loot where who <> $1", eve), " "); got != "" {
		t.Errorf("code of %s ran as %s", eve, got)
	}
	if got := text(t, pool, "select from_key, to_key from annals.move order by tracked"); got != "({a},{b})\n({a},{b})\n({a},{b})" {
		t.Error(got)
	}
}

// A publication for all tables, as replication tools make it, covers histories as well. What has no key to replicate by can't be changed then.
func TestPublicationForAllTables(t *testing.T) {
	v, pool := covered(t)
	run(t, pool, "create publication everything for all tables", "insert into shop.orders values (1, 'Ada', 10), (2, 'Bob', 20)")
	mistake(t, pool, "update shop.orders set total = 0", "update shop.orders set id = 3 where id = 1")
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{}))
	ok(t, v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: 1000000000}))
	ok(t, v.SetRetention(t.Context(), "shop.orders", volvra.Retention{Keep: 1000000000}))
	ok(t, v.SetRetention(t.Context(), "shop.orders", volvra.Retention{Keep: 2000000000}))
	run(t, pool, "select annals.tick()", "select annals.tick()", "select volvra.seal()", `select volvra.forget('shop.orders', '["1"]', 'redact', 'asked')`, "delete from shop.orders",
		`select volvra.forget('shop.orders', '["1"]', 'delete', 'asked')`, "select annals.rotate(1, 1)", "select annals.seal_segments()", "select volvra.purge()", "select volvra.seal()", "select annals.tick()")
	for e, err := range v.Verify(t.Context(), volvra.VerifyOptions{}) {
		ok(t, err)
		if e.Problem {
			t.Errorf("%+v", e)
		}
	}
}
