package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// along returns a connection with a search_path, and where warnings to it are noted.
func along(t testing.TB, pool *pgxpool.Pool, path string) (c *pgx.Conn, warnings *[]string) {
	t.Helper()
	config := pool.Config().ConnConfig.Copy()
	warnings = new([]string)
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			*warnings = append(*warnings, n.Message)
		}
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	run(t, c, "set search_path = "+path)
	return c, warnings
}

// told returns what a query returns, as text does, or the SQLSTATE that it is refused with.
func told(t testing.TB, db gnomon.DB, sql string) string {
	t.Helper()
	rows, err := db.Query(t.Context(), "select q::text from ("+sql+") q")
	if err == nil {
		var list []string
		if list, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return strings.Join(list, "\n")
		}
	}
	if errors.Is(err, gnomon.ErrStale) {
		return "GN008"
	}
	return sqlState(err)
}

// toldAt returns what the past at a place tells.
func toldAt(t testing.TB, db gnomon.DB, ref gnomon.Ref, sql string) string {
	t.Helper()
	return told(t, must[*gnomon.Past](t)(gnomon.New(db).At(t.Context(), ref)), sql)
}

// What an older transaction doesn't see of a history is not taken for a table without rows.
func TestOldTransactionsAreNotToldThatTablesWereEmpty(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var refusal *gnomon.Error
	for _, histories := range []gnomon.Histories{gnomon.KeepHistory, gnomon.DropHistory} {
		g, pool := tracked(t)
		run(t, pool, "create table shop.late (id int primary key)", "insert into shop.late values (1), (2)", "insert into shop.orders values (1, 'ada', 1, null)")
		c, _ := along(t, pool, "shop")
		then := must[gnomon.Coordinate](t)(g.Now(ctx))
		tx := must[pgx.Tx](t)(c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
		before := must[*gnomon.Past](t)(gnomon.New(tx).At(ctx, then.Ref()))
		if got := told(t, before, "select id from orders"); got != "(1)" {
			t.Errorf("before: %s", got)
		}
		track(t, g, "shop.late")
		ok(t, g.Untrack(ctx, "shop.orders", histories))
		track(t, g, "shop.orders")
		after := must[*gnomon.Past](t)(gnomon.New(tx).At(ctx, then.Ref()))
		for _, past := range []*gnomon.Past{before, after} {
			for _, table := range []string{"late", "orders"} {
				if got := told(t, past, "select id from "+table); got != "GN008" {
					t.Errorf("%s, of %s: %q", histories, table, got)
				}
				if list, err := gnomon.List[map[string]any](ctx, past, "shop."+table, ""); !errors.As(err, &refusal) {
					t.Errorf("%s, the list of %s: %v, %v", histories, table, list, err)
				}
				if row, found, err := gnomon.Get[map[string]any](ctx, past, "shop."+table, 1); !errors.As(err, &refusal) {
					t.Errorf("%s, a row of %s: %v, %v, %v", histories, table, row, found, err)
				}
			}
		}
		if got := text(t, tx, "select id from late"); got != "(1)\n(2)" {
			t.Errorf("the transaction does not go on: %s", got)
		}
		ok(t, tx.Rollback(ctx))
		if got := toldAt(t, c, gnomon.Present, "select * from orders, late order by late"); got != "(1,ada,1.00,,1)\n(1,ada,1.00,,2)" {
			t.Errorf("a new transaction: %s", got)
		}
	}
}

func TestUntrackedTablesOfOtherSchemasAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "create table public.lookup (id int primary key, x text)", "create view public.looks as select x from public.lookup", "insert into public.lookup values (1, 'old')", "insert into shop.orders values (1, 'ada', 1, null)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "update public.lookup set x = 'new'", "update shop.orders set total = 2")
	c, _ := along(t, pool, "shop, public, early")
	past := must[*gnomon.Past](t)(gnomon.New(c).At(ctx, then))
	run(t, pool, "create schema early", "create table early.bird (e text)", "insert into early.bird values ('today')")
	for sql, want := range map[string]string{
		"select x from lookup":                             "GN009",
		"select o.id from orders o join lookup using (id)": "GN009",
		"select count(*) from lookup":                      "GN009",
		"select x from looks":                              "GN010",
		"select e from bird":                               "GN009",
		"select total from orders":                         "(1.00)",
	} {
		if got := toldAt(t, c, then, sql); got != want {
			t.Errorf("%s: %q", sql, got)
		}
		if got := told(t, past, sql); got != want {
			t.Errorf("opened before, %s: %q", sql, got)
		}
	}
	run(t, pool, "create table early.orders (id int primary key, e text)", "insert into early.orders values (7, 'today')")
	run(t, c, "set search_path = early, shop")
	for _, p := range []*gnomon.Past{past, must[*gnomon.Past](t)(gnomon.New(c).At(ctx, then))} {
		if got := told(t, p, "select * from orders"); got != "GN009" {
			t.Errorf("a new table in front of the tracked one: %q", got)
		}
	}
}

// A name means the history of the table that has it, and a history that has ended is that of its table under the name of today.
func TestEndedHistoriesFollowRenames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create table o (id int primary key, n int)")
	track(t, g, "o")
	run(t, pool, "insert into o values (1, 1)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "update o set n = 2")
	ok(t, g.Untrack(ctx, "o", gnomon.KeepHistory))
	for _, step := range []struct{ ddl, o, oo string }{
		{"alter table o rename to oo", "42P01", "(1,1)"},
		{"create table o (id int primary key, n int); insert into o values (9, 9)", "GN009", "(1,1)"},
		{"select gnomon.track('o')", "GN001", "(1,1)"},
		{"select gnomon.track('oo')", "GN001", "(1,1)"},
		{"alter table oo rename to third; alter table o rename to oo; alter table third rename to o", "(1,1)", "GN001"},
		{"select gnomon.untrack('o'); create schema away; alter table o set schema away", "42P01", "GN001"},
		{"create table o as select 9 as id, 9 as n", "GN009", "GN001"},
		{"drop table o; alter table away.o set schema public", "(1,1)", "GN001"},
	} {
		run(t, pool, step.ddl)
		past := must[*gnomon.Past](t)(g.At(ctx, then))
		for name, want := range map[string]string{"o": step.o, "oo": step.oo} {
			if got := told(t, past, "select id, n from "+name); got != want {
				t.Errorf("after %s: %s is %q, not %q", step.ddl, name, got, want)
			}
			list, err := gnomon.List[struct{ ID, N int }](ctx, past, name, "")
			if got := fmt.Sprint(list, err); want == "(1,1)" && got != "[{1 1}] <nil>" || want != "(1,1)" && err == nil {
				t.Errorf("after %s: the list of %s is %s", step.ddl, name, got)
			}
		}
	}
}

func TestBeginLeavesTheCallersTransactionAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "update shop.orders set total = 2")
	for i, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Rollback(ctx) }, func(tx pgx.Tx) error { return tx.Commit(ctx) }} {
		c, warnings := along(t, pool, "shop")
		run(t, c, "begin", fmt.Sprintf("insert into orders values (%d, 'mine', 5, null)", 10+i))
		past := must[*gnomon.Past](t)(gnomon.New(c).At(ctx, then))
		tx := must[pgx.Tx](t)(past.Begin(ctx))
		if got := text(t, tx, "select id, total from orders"); got != "(1,1.00)" {
			t.Errorf("the past is %s", got)
		}
		inner := must[pgx.Tx](t)(tx.Begin(ctx))
		if got := told(t, inner, "select 1 / 0"); got != "22012" {
			t.Errorf("an error is %q", got)
		}
		ok(t, inner.Rollback(ctx))
		if got := text(t, tx, "select id, total from orders"); got != "(1,1.00)" {
			t.Errorf("after an error the past is %s", got)
		}
		ok(t, end(tx))
		if got := text(t, c, "select count(*) from orders"); got != fmt.Sprintf("(%d)", 2+i) {
			t.Errorf("in the caller's transaction there are %s", got)
		}
		run(t, c, "insert into orders values (-1, 'too', 5, null); delete from orders where id = -1", "commit")
		if got := text(t, pool, fmt.Sprintf("select customer from shop.orders where id = %d", 10+i)); got != "(mine)" || len(*warnings) > 0 {
			t.Errorf("it left %q, and warned %q", got, *warnings)
		}
	}
}

func TestNamesOfDroppedColumnsAreTakenAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create table a (id int primary key, a int, b int)")
	track(t, g, "a")
	c, warnings := along(t, pool, "public")
	run(t, c, "insert into a values (1, 10, 20), (2, 3, 4)")
	first := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, c, "update a set b = b + 1", "begin; select annals.materialize(1); alter table a drop b; commit", "alter table a rename a to b", "update a set b = 11 where id = 1")
	second := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, c, "alter table a add a text default 'n'", "begin; select annals.materialize(1); alter table a drop b; commit", "alter table a rename a to b", "update a set b = 'q'", "update a set id = id + 10", "insert into a values (7, 'new')")
	for _, q := range []struct {
		ref  gnomon.Ref
		want string
	}{{first, "[map[b:10 b (3):20 id:1] map[b:3 b (3):4 id:2]]"}, {second, "[map[b:11 id:1] map[b:3 id:2]]"}, {gnomon.Present, "[map[b:new id:7] map[b:q id:11] map[b:q id:12]]"}} {
		past := must[*gnomon.Past](t)(g.At(ctx, q.ref))
		list := must[[]map[string]any](t)(gnomon.List[map[string]any](ctx, past, "a", "order by id"))
		if got := fmt.Sprint(list); got != q.want {
			t.Errorf("%s: %s", q.ref, got)
		}
		for _, row := range list {
			one, found, err := gnomon.Get[map[string]any](ctx, past, "a", row["id"])
			if err != nil || !found || fmt.Sprint(one) != fmt.Sprint(row) {
				t.Errorf("%s: Get gives %v %v %v, and List %v", q.ref, one, found, err, row)
			}
		}
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings: %q", *warnings)
	}
	if got := text(t, pool, "select * from gnomon.check()"); got != "" {
		t.Errorf("the check says %s", got)
	}
}

// A table's key may become that of a later column, and what was before that is refused or told as it was.
func TestAKeyMovesToALaterColumn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create table k (a int primary key, n int)")
	track(t, g, "k")
	c, warnings := along(t, pool, "public")
	run(t, c, "insert into k values (5, 1), (6, 2)")
	before := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, c, "alter table k add id int generated by default as identity", "alter table k drop constraint k_pkey", "alter table k add primary key (id)", "update k set n = n * 10")
	after := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, c, "update k set n = n + 1", "update k set a = 0 where id = 1", "delete from k where id = 2", "insert into k values (9, 9)")
	if got := toldAt(t, c, before, "select * from k order by a"); got != "GN001" && got != "(5,1)\n(6,2)" {
		t.Errorf("before: %q", got)
	}
	if got := toldAt(t, c, after, "select a, n, id from k order by id"); got != "(5,10,1)\n(6,20,2)" {
		t.Errorf("after: %q", got)
	}
	if got := toldAt(t, c, gnomon.Present, "select a, n, id from k order by id"); got != "(0,11,1)\n(9,9,3)" {
		t.Errorf("at present: %q", got)
	}
	past := must[*gnomon.Past](t)(g.At(ctx, after))
	if row, found, err := gnomon.Get[map[string]any](ctx, past, "k", 2); err != nil || !found || fmt.Sprint(row["a"], row["n"]) != "6 20" {
		t.Errorf("Get gives %v, %v, %v", row, found, err)
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings: %q", *warnings)
	}
	if got := text(t, pool, "select * from gnomon.check()"); got != "" {
		t.Errorf("the check says %s", got)
	}
}

// The driver prepares statements by their text, and the same text has other columns there.
func TestTheSameTextIsReadInThePastAndOutside(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)")
	first := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "alter table shop.orders add z int", "update shop.orders set total = 2, z = 7")
	second := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "alter table shop.orders alter total type numeric(12, 2)", "update shop.orders set total = 3")
	c, _ := along(t, pool, "shop")
	then, later := must[*gnomon.Past](t)(gnomon.New(c).At(ctx, first)), must[*gnomon.Past](t)(gnomon.New(c).At(ctx, second))
	for round := range 7 { // of which the later ones have generic plans
		for _, read := range []struct {
			name string
			db   gnomon.DB
			want string
		}{{"today", c, "map[customer:ada id:1 note:<nil> total:3 z:7]"}, {"then", then, "map[customer:ada id:1 note:<nil> total:1]"}, {"later", later, "map[customer:ada id:1 note:<nil> total:2 z:7]"}} {
			rows, err := read.db.Query(ctx, "select * from orders where id = $1", 1)
			ok(t, err)
			list, err := pgx.CollectRows(rows, pgx.RowToMap)
			if err != nil || len(list) != 1 {
				t.Fatalf("round %d, %s: %v %v", round, read.name, list, err)
			}
			for name, v := range list[0] {
				if n, is := v.(pgtype.Numeric); is {
					f, _ := n.Float64Value()
					list[0][name] = f.Float64
				}
			}
			if got := fmt.Sprint(list[0]); got != read.want {
				t.Errorf("round %d, %s: %s", round, read.name, got)
			}
		}
	}
}

// Tables that are untracked while they are read don't come to mean those of today, which UntrackedAsToday asks for of others.
func TestUntrackingShowsNoRowsOfToday(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, histories := range []gnomon.Histories{gnomon.KeepHistory, gnomon.DropHistory} {
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
			g, pool := tracked(t)
			run(t, pool, "insert into shop.orders values (1, 'then', 1, null)", "create table shop.plain as select 'today'::text as customer")
			then := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
			run(t, pool, "update shop.orders set customer = 'today'")
			c, _ := along(t, pool, "shop")
			loose := must[*gnomon.Past](t)(gnomon.New(c).At(ctx, then, gnomon.UntrackedAsToday()))
			if got := told(t, loose, "select customer from orders union all select customer from plain"); got != "(then)\n(today)" {
				t.Errorf("before: %q", got)
			}
			tx := must[pgx.Tx](t)(c.BeginTx(ctx, pgx.TxOptions{IsoLevel: level}))
			opened := must[*gnomon.Past](t)(gnomon.New(tx).At(ctx, then, gnomon.UntrackedAsToday()))
			ok(t, g.Untrack(ctx, "shop.orders", histories))
			for range 2 {
				if got := told(t, opened, "select customer from orders"); got != "(then)" && got != "GN008" {
					t.Errorf("%s, %s, opened before: %q", histories, level, got)
				}
			}
			// A transaction that began before doesn't see that it is untracked.
			if again, err := gnomon.New(tx).At(ctx, then, gnomon.UntrackedAsToday()); level == pgx.RepeatableRead {
				if err == nil {
					if got := told(t, again, "select customer from orders"); got != "(then)" && got != "GN008" {
						t.Errorf("%s, %s, opened after: %q", histories, level, got)
					}
				} else {
					refuses(t, err, gnomon.ErrStale)
				}
			}
			ok(t, tx.Rollback(ctx))
			if got := told(t, loose, "select customer from orders"); got != "(then)" && got != "GN008" {
				t.Errorf("%s, on the connection: %q", histories, got)
			}
		}
	}
}

// What is pruned up to a place leaves the place as it was, with its columns, or refused.
func TestPruningKeepsTheColumnsOfThePlace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, g, pool := ownServer(t, nil)
	for _, change := range []string{"select", "alter table T drop b", "alter table T add c int default 5", "alter table T drop b; alter table T add b text default 'new'", "alter table T rename b to bb"} {
		for _, rotated := range []bool{false, true} {
			id := len(column[int](t, pool, "select id from annals.tracked")) + 1
			table := fmt.Sprintf("o%d", id)
			run(t, pool, fmt.Sprintf("create table %s (id int primary key, a int, b int)", table))
			track(t, g, table)
			run(t, pool, fmt.Sprintf("insert into %s values (1, 10, 20), (2, 30, 40)", table), fmt.Sprintf("update %s set a = a + 1", table))
			beat(t, g, 0)
			beat(t, g, 0)
			place := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
			if rotated {
				run(t, pool, fmt.Sprintf("select annals.rotate(%d, 0)", id), "select annals.seal_segments()")
			}
			run(t, pool, fmt.Sprintf("begin; select annals.materialize(%d); %s; commit", id, strings.ReplaceAll(change, "T ", table+" ")))
			run(t, pool, fmt.Sprintf("update %s set a = 0", table), fmt.Sprintf("select annals.rotate(%d, 0)", id), "select annals.seal_segments()")
			beat(t, g, 0)
			beat(t, g, 0)
			whole := "select * from " + table + " order by id"
			before := toldAt(t, pool, place, whole)
			if !strings.HasPrefix(before, "(1,11,20)") {
				t.Fatalf("%s: before pruning: %q", change, before)
			}
			pruned := must[[]gnomon.Pruned](t)(g.Prune(ctx, place, table))
			if got := toldAt(t, pool, place, whole); got != before && (got != "GN002" || change == "select") {
				t.Errorf("%s, rotated %v: after pruning %d segments: %q, not %q", change, rotated, pruned[0].Segments, got, before)
			}
		}
	}
}

// Whatever the installer's default privileges grant on new tables and functions, a role has what any other role has. The view of a history
// shows nothing to who may not read its table, and no view can be written.
func TestDefaultPrivilegesOpenNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgserver.Pool(t)
	granted, other := pgserver.Role(t, pgserver.Shared(t), "granted"), pgserver.Role(t, pgserver.Shared(t), "other")
	open := func(when string) {
		t.Helper()
		for _, what := range column[string](t, pool, fmt.Sprintf(`
			with mine as (select oid, nspname from pg_namespace where nspname ~ '^(annals|gnomon)')
			select p.oid::regprocedure::text from pg_proc p join mine on mine.oid = p.pronamespace where has_function_privilege('%[1]s', p.oid, 'execute') and not has_function_privilege('%[2]s', p.oid, 'execute')
			union all select c.oid::regclass || ' ' || p from pg_class c join mine on mine.oid = c.relnamespace cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'trigger']) p
			where (c.relkind in ('r', 'p') or c.relkind = 'v' and p = 'select' and c.oid <> coalesce(to_regclass('annals.h1'), 0)) and has_table_privilege('%[1]s', c.oid, p) and not has_table_privilege('%[2]s', c.oid, p)
			union all select c.oid::regclass || ' usage' from pg_class c join mine on mine.oid = c.relnamespace where case when c.relkind = 'S' then has_sequence_privilege('%[1]s', c.oid, 'usage, select, update') end
			union all select nspname || ' ' || p from mine cross join unnest(array['create', 'usage']) p where has_schema_privilege('%[1]s', oid, p) and not has_schema_privilege('%[2]s', oid, p)`, granted, other)) {
			t.Errorf("%s: %s is open", when, what)
		}
	}
	for _, privilege := range []string{"all on tables", "execute on functions", "all on sequences", "all on schemas"} {
		run(t, pool, "alter default privileges grant "+privilege+" to "+granted)
	}
	ok(t, gnomon.Install(ctx, pool))
	open("installed")
	g := gnomon.New(pool)
	run(t, pool, "create table o (id int primary key, secret text)", "create table plain (id int)", "create view seen as select o.id from o", "revoke all on o, plain, seen from "+granted, "alter table o enable row level security")
	track(t, g, "o")
	run(t, pool, "insert into o values (1, 'secret')", "update o set secret = 'none'", "alter table o add x int", "select annals.rotate(1, 0)", "update o set x = 1")
	must[int](t)(g.MakeCheckpoint(ctx, "o", gnomon.Present, ""))
	ok(t, g.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "all"}))
	open("tracked")
	letRead(t, pool, granted)
	letRead(t, pool, other)
	open("granted reading")
	c := connectAs(t, pool.Config().ConnString(), granted)
	run(t, pool, "create table theirs (id int primary key, secret text)", "alter table theirs owner to "+granted)
	for _, sql := range []string{"select secret from o", "select * from annals.h1_1", "select * from gnomon.k1", "delete from annals.h1_1", "select annals.prune(1, 5)",
		"create trigger forge before truncate on theirs execute function annals.h1_truncate()"} {
		if got := state(t, c, sql); got != "42501" {
			t.Errorf("%s: %q", sql, got)
		}
	}
	if got := told(t, c, "select * from annals.h1"); got != "" && got != "42501" {
		t.Errorf("the history shows %s", got)
	}
}
