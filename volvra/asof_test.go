package volvra_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// asOf returns the rows of a table at a moment, as texts in order.
func asOf(t testing.TB, db volvra.DB, table string, at volvra.Moment) string {
	t.Helper()
	return strings.Join(column[string](t, db, "select r::text from volvra.as_of(null::"+table+", $1::text) r order by 1", string(at)), " ")
}

func now(t testing.TB, db volvra.DB) volvra.Moment {
	t.Helper()
	m, err := volvra.New(db).Coordinate(t.Context())
	ok(t, err)
	return m
}

// Rows that changed their key stand under the key they had, and renamed columns under their present name only.
func TestFaultAsOfKeyChangesAndRenames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, note text)", "insert into shop.orders values (1, 'first'), (9, 'other')")
	cover(t, v, "shop.orders")
	moments := []volvra.Moment{now(t, pool)}
	for _, sql := range []string{"update shop.orders set id = 2, note = 'second' where id = 1", "update shop.orders set id = 3 where id = 2", "insert into shop.orders values (1, 'new one')", "alter table shop.orders rename note to remark",
		"update shop.orders set remark = 'third' where id = 3", "delete from shop.orders where id = 9"} {
		run(t, pool, sql)
		moments = append(moments, now(t, pool))
	}
	for i, want := range []string{"(1,first) (9,other)", "(2,second) (9,other)", "(3,second) (9,other)", `(1,"new one") (3,second) (9,other)`, `(1,"new one") (3,second) (9,other)`, `(1,"new one") (3,third) (9,other)`, `(1,"new one") (3,third)`} {
		if got := asOf(t, pool, "shop.orders", moments[i]); got != want {
			t.Errorf("moment %d: %s, want %s", i, got, want)
		}
	}
	type order struct {
		ID     int
		Remark string
	}
	orders, err := volvra.AsOf[order](ctx, v, "shop.orders", moments[1])
	if err != nil || len(orders) != 2 || orders[0] != (order{2, "second"}) {
		t.Errorf("%+v, %v", orders, err)
	}
	one, found, err := volvra.AsOfRow[map[string]any](ctx, v, "shop.orders", volvra.KeyOf(2), moments[1])
	if err != nil || !found || one["remark"] != "second" || len(one) != 2 {
		t.Errorf("%v, %v, %v", one, found, err)
	}
	if _, found, err := volvra.AsOfRow[order](ctx, v, "shop.orders", volvra.KeyOf(2), moments[0]); found || err != nil {
		t.Errorf("a row that was not there: %v, %v", found, err)
	}
}

func TestAsOfColumns(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.goods (id int primary key, price int, vat int generated always as (price / 5) stored, secret text, big text, gone int)", "alter table shop.goods alter big set storage external",
		"insert into shop.goods (id, price, secret, big, gone) select i, 100, 's', repeat('x', 5000), 1 from generate_series(1, 4) i")
	_, err := v.Enable(t.Context(), "shop.goods", volvra.Options{Exclude: []string{"secret"}, Wide: []string{"big"}})
	ok(t, err)
	first := now(t, pool)
	run(t, pool, "update shop.goods set price = 200 where id = 1", "update shop.goods set id = 5 where id = 2", "update shop.goods set price = 300 where id = 5", "update shop.goods set big = 'small' where id = 5",
		"alter table shop.goods add extra int default 7", "alter table shop.goods drop gone")
	second := now(t, pool)
	run(t, pool, "update shop.goods set extra = 8", "delete from shop.goods where id = 1")
	const query = "select id, price, vat, secret, length(big), extra from volvra.as_of(null::shop.goods, $1::text) order by id"
	if got := text(t, pool, query, string(first)); got != "(1,100,20,,5000,)\n(2,100,20,,5000,)\n(3,100,20,,5000,)\n(4,100,20,,5000,)" {
		t.Errorf("first:\n%s", got)
	}
	if got := text(t, pool, query, string(second)); got != "(1,200,40,,5000,7)\n(3,100,20,,5000,7)\n(4,100,20,,5000,7)\n(5,300,60,,5,7)" {
		t.Errorf("second:\n%s", got)
	}
}

func TestAsOfMoments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'eva', 1)")
	time.Sleep(2 * time.Millisecond)
	between := time.Now()
	time.Sleep(2 * time.Millisecond)
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "update shop.orders set total = 2", "select volvra.mark('here')", "update shop.orders set total = 3", "insert into shop.orders values (2, 'eva', 9)")
	if got := asOf(t, tx, "shop.orders", volvra.AtMark("here")); got != "(1,eva,2.00,)" {
		t.Errorf("at a mark of the same transaction: %s", got)
	}
	ok(t, tx.Commit(ctx))
	run(t, pool, "delete from shop.orders where id = 1")
	if got := asOf(t, pool, "shop.orders", volvra.AtMark("here")); got != "(1,eva,2.00,)" {
		t.Errorf("at a mark: %s", got)
	}
	if got := asOf(t, pool, "shop.orders", volvra.AtTime(between)); got != "(1,eva,1.00,)" {
		t.Errorf("at a time: %s", got)
	}
	if got := text(t, pool, "select id from volvra.as_of(null::shop.orders, now())"); got != "(2)" {
		t.Errorf("now: %s", got)
	}
	for moment, code := range map[string]string{"": "VO007", "whenever": "VO007", "mark:nothing": "VO022", "0123abcd/1:1:/0/0": "AN009", "2001-01-01": "VO006"} {
		_, err := pool.Exec(ctx, "select * from volvra.as_of(null::shop.orders, $1::text)", moment)
		if got := sqlState(err); got != code {
			t.Errorf("%q: %v, want %s", moment, err, code)
		}
	}
	if _, err := pool.Exec(ctx, "select * from volvra.as_of(null::int, 'now')"); sqlState(err) != "VO007" {
		t.Errorf("no table: %v", err)
	}
	for _, key := range []string{"{}", "{1,2}", "{one}", "{null}"} {
		if _, err := pool.Exec(ctx, "select * from volvra.as_of_row(null::shop.orders, $1, 'now')", key); sqlState(err) != "VO005" {
			t.Errorf("key %s: %v", key, err)
		}
	}
}

// Where history does not reach, the answer is an error and never today's rows.
func TestAsOfWithoutHistory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int)", "insert into shop.a values (1, 1)")
	reason := func(at volvra.Moment) string {
		t.Helper()
		_, err := volvra.AsOf[map[string]any](ctx, v, "shop.a", at)
		if _, _, one := volvra.AsOfRow[map[string]any](ctx, v, "shop.a", volvra.KeyOf(1), at); fmt.Sprint(one) != fmt.Sprint(err) {
			t.Errorf("%s: of one row %v, of all %v", at, one, err)
		}
		if err == nil {
			return "none"
		}
		e, isRefusal := errors.AsType[*volvra.Error](err)
		if !isRefusal || e.Table != "shop.a" {
			t.Fatal(err)
		}
		if e.Kind == volvra.ErrNotCovered {
			return "never"
		}
		if e.Kind != volvra.ErrNoHistory {
			t.Fatal(err)
		}
		return e.Reason
	}
	check := func(at volvra.Moment, want string) {
		t.Helper()
		if got := reason(at); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	before, beforeTime := now(t, pool), volvra.AtTime(time.Now())
	check(before, "never")
	_, err := v.Enable(ctx, "shop.a", volvra.Options{Truncate: volvra.AllowTruncate})
	ok(t, err)
	check(before, "not covered then")
	check(beforeTime, "not covered then")
	first, firstTime := now(t, pool), volvra.AtTime(time.Now())
	check(first, "none")
	check(firstTime, "none")
	run(t, pool, "truncate shop.a")
	check(first, "interrupted")
	check(firstTime, "interrupted")
	second := now(t, pool)
	run(t, pool, "insert into shop.a values (2, 2)")
	check(second, "none")
	_, err = v.Disable(ctx, "shop.a", volvra.DisableOptions{})
	ok(t, err)
	check(second, "ended")
	check(now(t, pool), "ended")
	cover(t, v, "shop.a")
	check(second, "ended")
	third := now(t, pool)
	run(t, pool, "update shop.a set n = 3")
	if got := asOf(t, pool, "shop.a", third); got != "(2,2)" {
		t.Errorf("%s", got)
	}
	// With all rows saved, states before the end can still be told.
	_, err = v.Disable(ctx, "shop.a", volvra.DisableOptions{SaveRows: true})
	ok(t, err)
	run(t, pool, "update shop.a set n = 4", "insert into shop.a values (5, 5)")
	if got := asOf(t, pool, "shop.a", third); got != "(2,2)" {
		t.Errorf("%s", got)
	}
	check(now(t, pool), "ended")
	cover(t, v, "shop.a")
	if got := asOf(t, pool, "shop.a", third); got != "(2,2)" {
		t.Errorf("covered again: %s", got)
	}
	fourth, fourthTime := now(t, pool), volvra.AtTime(time.Now())
	run(t, pool, "update shop.a set n = 5", "select annals.rotate(id, 0) from annals.tracked where ended_v is null", "select annals.seal_segments()")
	fifth := now(t, pool)
	check(fourth, "none")
	run(t, pool, "select annals.prune(id, (select last_value from annals.v)) from annals.tracked where ended_v is null")
	check(fourth, "pruned")
	check(fourthTime, "pruned")
	run(t, pool, "alter table shop.a disable trigger user")
	check(fifth, "not captured")
	check(now(t, pool), "not captured")
	run(t, pool, "alter table shop.a enable trigger user")
	check(fifth, "interrupted")
	// Seen to have everything that was pruned, once all transactions of the server that were open then have ended.
	for at := now(t, pool); reason(at) != "none"; at = now(t, pool) {
		if time.Sleep(20 * time.Millisecond); t.Context().Err() != nil {
			t.Fatal("pruned still")
		}
	}
}

// Random programs: what a session read is what is told of that moment later. Keys change and are swapped, triggers write again, columns
// are stored only when they change, transactions are rolled back in part.
func TestAsOfReplaysWhatWasRead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			replay(t, seed)
		})
	}
}

func replay(t *testing.T, seed uint64) {
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 5))
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.plain (id int, k text, n int, big text, primary key (id, k) deferrable)", "alter table shop.plain alter big set storage external",
		"create table shop.nested (id int primary key deferrable, k text, n int, big text)",
		`create function shop.again() returns trigger language plpgsql as $$ begin
			if pg_trigger_depth() < 2 then update shop.nested set n = n + 1, big = case when n % 3 = 0 then big || 'y' else big end where id in (new.id, new.id + 1); end if; return null; end $$`,
		"create trigger again after update on shop.nested for each row execute function shop.again()")
	tables := []string{"shop.plain", "shop.nested"}
	for _, table := range tables {
		run(t, pool, "insert into "+table+" select i, 'k', 0, repeat('x', 3000) from generate_series(1, 8) i")
		_, err := v.Enable(ctx, table, volvra.Options{Wide: []string{"big"}, SkipNoop: seed%2 == 1})
		ok(t, err)
	}
	type reading struct {
		table, rows string
		at          volvra.Moment
	}
	var readings []reading
	read := func(db volvra.DB, table string) string {
		return strings.Join(column[string](t, db, "select r::text from "+table+" r order by 1"), " ")
	}
	statement := func(table string, first bool) string {
		id, other := random.IntN(12), random.IntN(12)
		switch random.IntN(9) {
		case 0:
			return fmt.Sprintf("insert into %s values (%d, 'k', %d, repeat('z', 2500))", table, id, other)
		case 1:
			return fmt.Sprintf("delete from %s where id = %d", table, id)
		case 2:
			return fmt.Sprintf("update %s set id = %d where id = %d and not exists (select from %[1]s where id = %[2]d)", table, other, id)
		case 3:
			if !first { // of rows that the transaction changed before, swapped keys can't be told from rows that come and go
				return fmt.Sprintf("update %s set k = 'k', n = n + 1 where id = %d", table, other)
			}
			return fmt.Sprintf("update %s set id = 2 * %d + 1 - id where id in (%[2]d, %[2]d + 1)", table, id)
		case 4:
			return fmt.Sprintf("update %s set big = repeat('%c', 2100), n = n where id >= %d", table, 'a'+rune(other), id)
		case 5:
			return fmt.Sprintf("update %s set n = n where id <> %d", table, id)
		case 6:
			if other < 2 {
				return "truncate " + table
			}
			return fmt.Sprintf("update %s set id = id + 100 where id < 3", table)
		case 7:
			return fmt.Sprintf("update %s set id = id - 100 where id > 99 and not exists (select from %[1]s s where s.id = %[1]s.id - 100)", table)
		}
		return fmt.Sprintf("update %s set n = n + %d where id = %d", table, other, id)
	}
	for range 40 {
		table := tables[random.IntN(2)]
		tx := must[pgx.Tx](t)(pool.Begin(ctx))
		defer tx.Rollback(context.WithoutCancel(ctx))
		for i := range 1 + random.IntN(4) {
			sub := must[pgx.Tx](t)(tx.Begin(ctx))
			sql := statement(table, i == 0)
			_, err := sub.Exec(ctx, sql)
			if err != nil && sqlState(err) != "23505" {
				t.Fatalf("seed %d: %s: %v", seed, sql, err)
			}
			if err != nil || random.IntN(4) == 0 {
				ok(t, sub.Rollback(ctx))
			} else {
				ok(t, sub.Commit(ctx))
			}
		}
		if random.IntN(5) == 0 {
			name := fmt.Sprintf("m%d", len(readings))
			run(t, tx, "select volvra.mark('"+name+"')")
			readings = append(readings, reading{table, read(tx, table), volvra.AtMark(name)})
			run(t, tx, fmt.Sprintf("update %s set n = n + 1000 where id < 4", table), "delete from "+table+" where id = 5")
		}
		ok(t, tx.Commit(ctx))
		if random.IntN(3) == 0 {
			run(t, pool, "select annals.tick()")
		}
		if random.IntN(6) == 0 {
			run(t, pool, "select annals.rotate(id, 0) from annals.tracked", "select annals.seal_segments()")
		}
		readings = append(readings, reading{table, read(pool, table), now(t, pool)})
	}
	for i, r := range readings {
		if got := asOf(t, pool, r.table, r.at); got != r.rows {
			t.Fatalf("seed %d, reading %d of %s at %s:\n%s, want\n%s", seed, i, r.table, r.at, short(got), short(r.rows))
		}
		if i%10 == 0 {
			for id := range 12 {
				key := []string{fmt.Sprint(id)}
				if r.table == "shop.plain" {
					key = append(key, "k")
				}
				got := strings.Join(column[string](t, pool, "select r::text from volvra.as_of_row(null::"+r.table+", $1, $2) r", key, string(r.at)), " ")
				want := ""
				for _, row := range strings.Split(r.rows, " ") {
					if strings.HasPrefix(row, "("+key[0]+",") {
						want = row
					}
				}
				if got != want {
					t.Errorf("seed %d, reading %d: row %d of %s: %s, want %s", seed, i, id, r.table, short(got), short(want))
				}
			}
		}
	}
}

// short leaves out what is long and the same.
func short(s string) string {
	for _, c := range "xyzabcdefghijkl" {
		s = strings.ReplaceAll(s, strings.Repeat(string(c), 100), "")
	}
	return s
}

// A tenant sees the past of what he might have seen then, no more, and what is hidden from him never looks like today's row.
func TestFaultRowSecurityInThePast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := pgserver.Database(t)
	super := connectAs(t, conn, "")
	red, blue := pgserver.Role(t, pgserver.Shared(t), "red"), pgserver.Role(t, pgserver.Shared(t), "blue")
	ok(t, volvra.Install(ctx, super))
	ok(t, volvra.Grant(ctx, super, red, "", ""))
	ok(t, volvra.Grant(ctx, super, blue, "", ""))
	run(t, super, "create schema shop", "create table shop.orders (id int primary key, tenant name, note text)", "alter table shop.orders enable row level security",
		"create policy own on shop.orders using (tenant = current_user)", "grant usage on schema shop to "+red+", "+blue, "grant select on shop.orders to "+red+", "+blue,
		"insert into shop.orders values (1, '"+red+"', 'r1'), (2, '"+blue+"', 'b1'), (3, '"+red+"', 'x1')")
	cover(t, volvra.New(super), "shop.orders")
	first := now(t, super)
	run(t, super, "update shop.orders set note = 'r2' where id = 1", "update shop.orders set note = 'b2' where id = 2", "update shop.orders set tenant = '"+blue+"', note = 'x2' where id = 3", "update shop.orders set note = 'x3' where id = 3",
		"delete from shop.orders where id = 2", "insert into shop.orders values (4, '"+blue+"', 'b4')")
	second := now(t, super)
	run(t, super, "update shop.orders set note = 'r3' where id = 1")
	for role, want := range map[string][]string{red: {"1r1 3x1", "1r2"}, blue: {"2b1", "3x3 4b4"}} {
		as := connectAs(t, conn, role)
		for i, at := range []volvra.Moment{first, second} {
			got := strings.Join(column[string](t, as, "select id || note from volvra.as_of(null::shop.orders, $1::text) order by 1", string(at)), " ")
			if got != want[i] {
				t.Errorf("%s, moment %d: %s, want %s", role, i, got, want[i])
			}
			one := strings.Join(column[string](t, as, "select id || note from generate_series(1, 4) k, volvra.as_of_row(null::shop.orders, array[k::text], $1) order by 1", string(at)), " ")
			if one != want[i] {
				t.Errorf("%s, moment %d, row by row: %s, want %s", role, i, one, want[i])
			}
		}
	}
}

// The function of a history answers by itself what it can answer, and tells the same as the query that is written for the occasion.
func TestAsOfRowByFunction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", `create table shop."or""ders" (p int, "select" text, k1 int, big text, secret text, double int generated always as (k1 * 2) stored, primary key ("select", p))`, `alter table shop."or""ders" alter big set storage external`,
		`insert into shop."or""ders" select i, 'k', i, repeat('x', 5000), 's' from generate_series(1, 4) i`)
	const table = `shop."or""ders"`
	_, err := v.Enable(ctx, table, volvra.Options{Exclude: []string{"secret"}, Wide: []string{"big"}})
	ok(t, err)
	type row struct {
		at volvra.Moment
		is map[int]string
	}
	var past []row
	note := func(by func() volvra.Moment) {
		t.Helper()
		is := map[int]string{}
		for i := range 6 {
			is[i] = strings.Join(column[string](t, pool, "select concat_ws(' ', p, k1, left(big, 1), length(big), double) from "+table+` b where "select" = 'k' and p = $1`, i), "")
		}
		past = append(past, row{by(), is})
	}
	coordinate := func() volvra.Moment { return now(t, pool) }
	clock := func() volvra.Moment {
		time.Sleep(2 * time.Millisecond)
		defer time.Sleep(2 * time.Millisecond)
		return volvra.AtTime(time.Now())
	}
	check := func(what string, slow int) {
		t.Helper()
		tx := must[pgx.Tx](t)(pool.Begin(ctx))
		defer tx.Rollback(ctx)
		queries := func() int {
			return column[int](t, tx, "select coalesce(sum(calls), 0)::int from pg_stat_xact_user_functions where schemaname = 'volvra' and funcname = 'row_by_query'")[0]
		}
		run(t, tx, "set local track_functions = 'all'")
		before := queries() // of earlier transactions, not reported yet
		for n, r := range past {
			for i, want := range r.is {
				got := strings.Join(column[string](t, tx, "select concat_ws(' ', p, k1, left(big, 1), length(big), double) from volvra.as_of_row(null::"+table+", $1, $2)", []string{"k", fmt.Sprint(i)}, string(r.at)), "")
				if got != want {
					t.Errorf("%s, moment %d (%s), row %d: %q, want %q", what, n, r.at, i, got, want)
				}
			}
		}
		if n := queries() - before; n != slow*len(past[0].is) {
			t.Errorf("%s: %d reads by a query, want %d", what, n, slow*len(past[0].is))
		}
	}
	for _, sql := range []string{"update " + table + " set k1 = k1 + 10 where p = 1", "update " + table + " set big = 'yy' where p = 1", "update " + table + " set p = 5 where p = 2", "insert into " + table + " values (2, 'k', 22, 'z')", "delete from " + table + " where p = 3"} {
		note(coordinate)
		note(clock)
		run(t, pool, sql)
	}
	check("at first", 0)
	run(t, pool, "select annals.rotate(id, 0) from annals.tracked", "update "+table+" set k1 = 7")
	note(coordinate)
	check("rotated", 0)
	run(t, pool, "alter table "+table+" rename p to q", "alter table "+table+" rename k1 to p", "alter table "+table+" rename q to k1", "alter table "+table+" rename p to x", "alter table "+table+" rename k1 to p", "alter table "+table+" rename x to k1")
	check("renamed to and fro", 0)
	swap := []string{"alter table " + table + " rename k1 to x", "alter table " + table + " rename p to k1", "alter table " + table + " rename x to p"}
	run(t, pool, "alter event trigger annals_ddl_end disable")
	run(t, pool, swap...)
	if got := text(t, pool, "select p, k1 from volvra.as_of_row(null::"+table+", '{k,1}', $1)", string(past[2].at)); got != "(11,1)" {
		t.Errorf("renamed unnoticed: %s", got)
	}
	run(t, pool, swap...)
	run(t, pool, "alter event trigger annals_ddl_end enable")
	check("renamed back", 0)
	run(t, pool, "alter table "+table+" add extra int")
	check("before a column came", len(past))
	past = nil
	note(coordinate)
	note(clock)
	run(t, pool, "update "+table+" set extra = 1, k1 = 8", "select volvra.mark('m')")
	note(func() volvra.Moment { return volvra.AtMark("m") })
	run(t, pool, "update "+table+" set k1 = 9")
	check("after it came", 1)
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	defer tx.Rollback(ctx)
	for range 2 {
		one, found, err := volvra.AsOfRow[map[string]any](ctx, volvra.New(tx), table, volvra.KeyOf("k", 1), past[0].at)
		if err != nil || !found || one["k1"] != int32(7) {
			t.Errorf("%v, %v, %v", one["k1"], found, err)
		}
	}
}

// What Go remembers of a table does not outlive it.
func TestAsOfRowOfANewTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := covered(t)
	want := func(v *volvra.Volvra, at volvra.Moment, want string) {
		t.Helper()
		one, found, err := volvra.AsOfRow[map[string]any](ctx, v, "shop.orders", volvra.KeyOf(1), at)
		if err != nil || !found || one["customer"] != want {
			t.Errorf("%v, %v, %v, want %s", one, found, err, want)
		}
	}
	run(t, pool, "insert into shop.orders values (1, 'eva', 1)")
	want(v, now(t, pool), "eva")
	_, err := v.Disable(ctx, "shop.orders", volvra.DisableOptions{})
	ok(t, err)
	cover(t, v, "shop.orders")
	want(v, now(t, pool), "eva")
	run(t, pool, "alter table shop.orders rename to former", "create table shop.orders (customer text, id int primary key)", "insert into shop.orders values ('ida', 1)")
	cover(t, v, "shop.orders")
	want(v, now(t, pool), "ida")
	run(t, pool, "drop table shop.former", "alter table shop.orders rename to later")
	if _, _, err := volvra.AsOfRow[map[string]any](ctx, v, "shop.orders", volvra.KeyOf(1), now(t, pool)); !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("no table: %v", err)
	}
}
