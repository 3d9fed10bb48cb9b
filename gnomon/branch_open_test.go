package gnomon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// TestUntrackedTablesOnABranch are read as they are on main, with the rights of the caller, and not written; nothing of a user's fails for it.
func TestUntrackedTablesOnABranch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "create type shop.mood as enum ('good', 'bad')", "create domain shop.amount as int check (value > 0)",
		`create table shop."Sch ema" (id shop.amount primary key, "t" shop.mood, "select" varchar(5), o numeric(6, 2), list int[])`,
		`insert into shop."Sch ema" values (1, 'good', 'abc', 1.50, '{1,2}')`, `create view shop.beside as select id, "select" as s from shop."Sch ema"`, "create view shop.over as select id, upper(customer) as who from shop.orders",
		"create materialized view shop.kept as select count(*) from shop.orders", `create materialized view shop.other as select id from shop."Sch ema"`,
		"create table shop.none ()", "insert into shop.none default values", "insert into shop.orders values (1, 'ann', 10)", "create table shop.parts (id int) partition by range (id)", "create table shop.parts_1 partition of shop.parts for values from (0) to (10)", "insert into shop.parts values (3)",
		"create table shop.secret (id int, who text)", "insert into shop.secret values (1, 'reader'), (2, 'other')", "alter table shop.secret enable row level security", "create policy mine on shop.secret using (who = current_user)",
		"create role reader_of_open login", "grant usage on schema shop to reader_of_open", "grant select on shop.orders, shop.over, shop.secret to reader_of_open", "set search_path = shop")
	letRead(t, pool, "reader_of_open")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	run(t, pool, "update shop.orders set customer = 'changed'", "alter database "+pool.Config().ConnConfig.Database+" set search_path = shop")
	b = b.In(connectAs(t, pool.Config().ConnString(), ""))
	for sql, want := range map[string]string{
		`select * from "Sch ema" where id = 1`: "(1,good,abc,1.50,\"{1,2}\")", "select * from beside": "(1,abc)", "select * from over": "(1,ANN)", "select * from other": "(1)", "select count(*) from none": "(1)", "select * from parts": "(3)",
		`select x.id from orders join "Sch ema" x using (id)`: "(1)", "select who from secret order by id": "(reader)\n(other)",
	} {
		if got := text(t, b, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	_, err := b.Exec(ctx, "select * from kept")
	refuses(t, err, gnomon.ErrView)
	for _, sql := range []string{`insert into "Sch ema" values (2)`, `update "Sch ema" set o = 1`, `delete from "Sch ema" where false`, "delete from beside", "update none set nothing = 'x'", "insert into parts values (4)", "delete from secret", "update other set id = 3"} {
		_, err := b.Exec(ctx, sql)
		if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Reason != "untracked" || e.Table == "" || e.Hint == "" {
			t.Errorf("%s: %+v", sql, e)
		}
	}
	run(t, b, `insert into shop."Sch ema" values (2)`)

	reader := b.In(connectAs(t, pool.Config().ConnString(), "reader_of_open"))
	if got := text(t, reader, "select who from secret"); got != "" {
		t.Errorf("the reader reads %q", got)
	}
	if _, err := reader.Exec(ctx, `select * from "Sch ema"`); sqlState(err) != "42501" {
		t.Errorf("what may not be read: %v", err)
	}

	run(t, pool, "drop materialized view shop.other", "drop view shop.beside", `alter table shop."Sch ema" alter id type bigint, drop "t"`, "drop type shop.mood", `alter table shop."Sch ema" rename to renamed`, "alter table shop.renamed rename o to p")
	if got := text(t, b, "select * from renamed"); got != "(1,abc,1.50,\"{1,2}\")\n(2,,,)" {
		t.Errorf("after changes: %q", got)
	}
	run(t, pool, "drop table shop.renamed, shop.none, shop.parts, shop.secret")
	if _, err := b.Exec(ctx, "select * from renamed"); sqlState(err) != "42P01" {
		t.Errorf("a dropped table: %v", err)
	}
}

// TestATableUntrackedUnderABranch does not show rows of main in place of those of the branch; on branches made later it is like any that is not tracked.
func TestATableUntrackedUnderABranch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branchOfO(t)
	run(t, pool, "select gnomon.untrack('o')")
	_, err := b.Exec(ctx, "select * from o")
	if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Reason != "untracked" {
		t.Errorf("it says %+v", e)
	}
	later := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "later", gnomon.BranchOptions{}))
	if n := column[int](t, later, "select sum(n)::int from o")[0]; n != 409 {
		t.Errorf("a branch of later reads %d", n)
	}
	track(t, g, "public.o")
	_, err = b.Exec(ctx, "select * from o")
	refuses(t, err, gnomon.ErrNoHistory)
	_, err = later.Exec(ctx, "select * from o")
	refuses(t, err, gnomon.ErrNoHistory)
	must[*gnomon.Branch](t)(g.CreateBranch(ctx, "last", gnomon.BranchOptions{}))
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	defer tx.Rollback(ctx)
	ok(t, gnomon.OnBranch(ctx, tx, "last"))
	if n := column[int](t, tx, "select sum(n)::int from o")[0]; n != 409 {
		t.Errorf("the last branch reads %d", n)
	}
}
