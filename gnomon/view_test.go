package gnomon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// A schema with tracked tables, untracked ones, and views over both.
const viewed = `
	create schema "Sch ema";
	set local search_path = "Sch ema";
	create type mood as enum ('b', 'a');
	create domain positive as numeric check (value > 0);
	create table "ta""ble" (id int primary key, "t" text, "select" mood, x positive);
	create table orders (id int primary key, tid int, "o" text);
	create table plain (id int, "select" mood, x positive, at timestamptz(3));
	create table nothing ();
	create view joined as select orders.id, b."t", b."select", b.x from orders join "ta""ble" b on b.id = orders.tid;
	create view "sum" as select j."t", count(*) as n, sum(j.x) as "select" from joined j group by j."t" having count(*) > 0;
	create view ordered as select id, "select" > 'b'::mood as more, "select" from "ta""ble" order by "select";
	create view alone as select 1 as a;
	create view plains as select o.id from orders o join plain using (id);
	create view over_plains as select * from plains;
	create view only_plain as select * from plain;
	create view relations as select c.relname, o.id from pg_class c, orders o;
	create view grouped as select o.id, o.o, count(*) from orders o join "ta""ble" t on true group by o.id;
	create function total() returns bigint language sql stable as 'select count(*) from orders';
	create view totals as select id, total() as total from orders;
	create table public.elsewhere (id int primary key);
	create view foreign_schema as select o.id from orders o join public.elsewhere using (id);
	insert into "ta""ble" values (1, 'one', 'a', 1), (2, 'two', 'b', 2);
	insert into orders values (10, 1, 'x'), (11, 2, 'y'), (12, 1, 'z');
	insert into plain values (10, 'a', 1, now());
	create materialized view made as select * from orders`

// seen returns a database with that, and a coordinate after which rows changed.
func seen(t testing.TB) (g *gnomon.Gnomon, pool *pgxpool.Pool, before string) {
	t.Helper()
	g, pool = installed(t)
	run(t, pool, viewed)
	track(t, g, `"Sch ema"."ta""ble"`, `"Sch ema".orders`)
	before = column[string](t, pool, "select gnomon.now()")[0]
	run(t, pool, `insert into "Sch ema".orders values (13, 2, 'w'); delete from "Sch ema"."ta""ble" where id = 1; update "Sch ema"."ta""ble" set t = 'zwei', "select" = 'a'`)
	return g, pool, before
}

// at returns a connection that reads the past at a place, under a search_path.
func at(t testing.TB, pool *pgxpool.Pool, role, path, ref, untracked string) *pgx.Conn {
	t.Helper()
	c := connectAs(t, pool.Config().ConnString(), role)
	run(t, c, "set search_path = "+path)
	column[string](t, c, "select gnomon.at($1, false, $2)", ref, untracked)
	return c
}

// state returns the SQLSTATE that a statement ends with.
func state(t testing.TB, db gnomon.DB, sql string) string {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	if err == nil {
		return ""
	}
	return sqlState(err)
}

// assertGuarded fails the test unless everything that names mean in the past is up to date.
func assertGuarded(t testing.TB, db gnomon.DB) {
	t.Helper()
	if behind := column[string](t, db, "select s.schema_name || '.' || u from gnomon.source s, gnomon.unguarded(s.id) u"); len(behind) > 0 {
		t.Errorf("not up to date: %q", behind)
	}
}

func TestUntrackedTablesAreRefusedWhereverTheyAreRead(t *testing.T) {
	t.Parallel()
	_, pool, before := seen(t)
	c := at(t, pool, "", `"Sch ema"`, before, "refuse")
	for _, sql := range []string{
		"select * from plain",
		"select count(*) from plain",
		"select * from plain where id = 5",
		"select * from plain where id is not null",
		`select "select", x + 1, at + '1 day' from plain where x > 2 and at < now() and "select" = 'a'`,
		"select * from nothing",
		"select o.id from orders o left join plain u on u.id = o.id",
		"select o.id from orders o left join plain u on true",
		"select 1 from orders o where exists (select from plain u where u.id = o.id)",
		"select 1 from orders o where o.id not in (select u.id from plain u)",
		"with u as (select * from plain) select * from orders join u using (id)",
		"select (select max(id) from plain)",
		"select id from orders union all select id from plain",
		"select 1 from orders full join plain using (id) limit 1",
	} {
		if got := state(t, c, sql); got != "GN009" {
			t.Errorf("%s: %s", sql, got)
		}
		if got := state(t, c, "explain "+sql); got != "" {
			t.Errorf("explain %s: %s", sql, got)
		}
	}
	_, err := c.Exec(t.Context(), "select * from plain")
	refusal := err.(*pgconn.PgError)
	if !strings.Contains(refusal.Message, `"Sch ema".plain is not tracked`) || !strings.Contains(refusal.Hint, "Track it") || refusal.Detail != `{"table": "\"Sch ema\".plain"}` {
		t.Errorf("it says %s. %s %s", refusal.Message, refusal.Hint, refusal.Detail)
	}
	if got := column[int64](t, c, `select count(*) from "Sch ema".plain`); got[0] != 1 {
		t.Errorf("with its schema it has %d rows", got)
	}

	c = at(t, pool, "", `"Sch ema"`, before, "present")
	if got := text(t, c, "select p.id, count(*) from plain p join only_plain using (id) join made using (id) join orders using (id) group by p.id"); got != "(10,1)" {
		t.Errorf("as it is today: %s", got)
	}
	// But never what is half of today.
	for _, view := range []string{"plains", "over_plains", "totals"} {
		if got := state(t, c, "select * from "+view); got != "GN010" {
			t.Errorf("%s: %s", view, got)
		}
	}
	if got := text(t, c, `select * from "sum" order by 1`); got != "(one,2,2)\n(two,1,2)" {
		t.Errorf("a view over tracked tables: %s", got)
	}
}

func TestViewsShowTrackedTablesAsTheyWere(t *testing.T) {
	t.Parallel()
	_, pool, before := seen(t)
	then, today := at(t, pool, "", `"Sch ema"`, before, "refuse"), at(t, pool, "", `"Sch ema"`, "now", "refuse")
	for _, q := range []struct{ sql, then, today string }{
		{"select * from joined order by id", "(10,one,a,1)\n(11,two,b,2)\n(12,one,a,1)", "(11,zwei,a,2)\n(13,zwei,a,2)"},
		{`select * from "sum" order by 1`, "(one,2,2)\n(two,1,2)", "(zwei,2,4)"},
		{`select s."select", j.id from "sum" s join joined j using (t) where j.id = 11`, "(2,11)", "(4,11)"},
		{"select * from ordered", "(2,f,b)\n(1,t,a)", "(2,t,a)"},
		{`select count(*) from joined where "select" > 'b'`, "(2)", "(2)"},
		{"select a from alone where a = 1", "(1)", "(1)"},
	} {
		if got := text(t, then, q.sql); got != q.then {
			t.Errorf("%s then: %s", q.sql, got)
		}
		if got := text(t, today, q.sql); got != q.today {
			t.Errorf("%s today: %s", q.sql, got)
		}
		run(t, then, "explain "+q.sql)
	}
	column[string](t, then, "select gnomon.at('now')")
	if got := text(t, then, `select * from "sum"`); got != "(zwei,2,4)" {
		t.Errorf("at another place: %s", got)
	}
	run(t, then, "select gnomon.leave()")
	if got := text(t, then, "select count(*) from plains"); got != "(1)" {
		t.Errorf("back in the present: %s", got)
	}
}

func TestViewsThatCannotBeShownAreRefusedByName(t *testing.T) {
	t.Parallel()
	_, pool, before := seen(t)
	c := at(t, pool, "", `"Sch ema"`, before, "refuse")
	for view, reason := range map[string]string{
		"plains":         "it reads plain, which is not tracked",
		"over_plains":    "it reads plains, which cannot be read there",
		"only_plain":     "it reads plain, which is not tracked",
		"relations":      "it reads pg_catalog.pg_class, which is in another schema",
		"foreign_schema": "it reads public.elsewhere, which is in another schema",
		"totals":         `it calls "Sch ema".total(), which may read tables of today`,
		"grouped":        `column "o.o" must appear in the GROUP BY clause or be used in an aggregate function`,
		"made":           "it is a materialized view",
	} {
		_, err := c.Exec(t.Context(), "select * from orders left join "+view+" x on true")
		refusal, is := err.(*pgconn.PgError)
		if !is || refusal.Code != "GN010" || refusal.Message != fmt.Sprintf(`"Sch ema".%s cannot be read in the past: %s`, view, reason) {
			t.Errorf("%s: %v", view, err)
		}
		run(t, c, "explain select * from "+view)
	}
}

// TestViewsReadWhatTheyMean: names in a view are looked up by search_path, which must not lead them elsewhere.
func TestViewsReadWhatTheyMean(t *testing.T) {
	t.Parallel()
	g, pool, before := seen(t)
	run(t, pool, "create schema other", "create table other.orders (id int primary key, tid int, o text)", "insert into other.orders values (99, 2, 'wrong')",
		`create function "Sch ema".twice(int) returns int language sql immutable as 'select 2 * $1'`, `create view "Sch ema".doubled as select "Sch ema".twice(id) as id from "Sch ema".orders`,
		`create function other.twice(int) returns int language sql immutable as 'select 0'`)
	path := `other, "Sch ema"`
	c := at(t, pool, "", path, before, "refuse")
	if got := state(t, c, "select * from joined"); got != "GN010" {
		t.Errorf("with an untracked table of the same name before: %q", got)
	}
	track(t, g, "other.orders")
	now := column[string](t, pool, "select gnomon.now()")[0]
	if got := state(t, at(t, pool, "", path, now, "refuse"), "select * from joined"); got != "GN010" {
		t.Errorf("with a tracked table of the same name before: %q", got)
	}
	run(t, pool, "drop table other.orders")
	c = at(t, pool, "", `"Sch ema", other`, now, "refuse")
	if got := text(t, c, "select min(id) from doubled"); got != "(20)" {
		t.Errorf("the function of the view: %s", got)
	}
	run(t, c, "create temporary table orders (id int, tid int, o text)")
	if got := state(t, c, "select * from joined"); got != "GN010" {
		t.Errorf("with a temporary table of the same name: %q", got)
	}
	if got := text(t, c, "select count(*) from orders"); got != "(0)" {
		t.Errorf("the temporary table does not come first: %s", got)
	}
	run(t, c, "drop table pg_temp.orders")
	if got := text(t, c, "select count(*) from joined"); got != "(2)" {
		t.Errorf("after it was dropped: %s", got)
	}
	c = at(t, pool, "", `other, "Sch ema"`, now, "refuse")
	if got := state(t, c, "select * from doubled"); got != "GN010" {
		t.Errorf("with a function of the same name before: %q", got)
	}
}

func TestRightsHoldInViewsOfThePast(t *testing.T) {
	t.Parallel()
	_, pool, before := seen(t)
	role := pgserver.Role(t, pgserver.Shared(t), "reader")
	letRead(t, pool, role)
	run(t, pool, `grant usage on schema "Sch ema" to `+role, `grant select on "Sch ema".orders, "Sch ema".joined, "Sch ema"."sum" to `+role)
	c := at(t, pool, role, `"Sch ema"`, before, "refuse")
	for sql, want := range map[string]string{
		"select * from orders":  "",
		"select * from joined":  "42501",
		`select * from "sum"`:   "42501",
		"select * from ordered": "42501",
		"select * from plain":   "42501",
		"select * from made":    "42501",
		"select * from totals":  "42501",
	} {
		if got := state(t, c, sql); got != want {
			t.Errorf("%s: %q", sql, got)
		}
	}
	run(t, pool, `grant select on "Sch ema"."ta""ble" to `+role, `grant select (id) on "Sch ema".plain to `+role)
	for sql, want := range map[string]string{"select * from joined": "", `select * from "sum"`: "", "select * from ordered": "42501", "select id from plain": "GN009"} {
		if got := state(t, c, sql); got != want {
			t.Errorf("%s with more rights: %q", sql, got)
		}
	}

	run(t, pool, `create policy p on "Sch ema".orders using (tid = 2)`, `alter table "Sch ema".orders enable row level security`)
	c = at(t, pool, role, `"Sch ema"`, before, "refuse")
	if got := text(t, c, "select * from joined"); got != "(11,two,b,2)" {
		t.Errorf("with row-level security: %s", got)
	}
}

// TestGuardsFollowCommands: no command fails because of guards, none warns, and what names mean in the past follows.
func TestGuardsFollowCommands(t *testing.T) {
	t.Parallel()
	_, pool, _ := seen(t)
	config := pool.Config().ConnConfig.Copy()
	var warnings []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			warnings = append(warnings, n.Message)
		}
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	defer c.Close(t.Context())
	run(t, c, `set search_path = "Sch ema"`)
	now := func(sql string) string {
		t.Helper()
		run(t, c, "select gnomon.at('now')")
		defer run(t, c, "select gnomon.leave()")
		return state(t, c, sql)
	}
	for _, step := range []struct{ ddl, sql, state string }{
		{"create table fresh (id int)", "select id from fresh", "GN009"},
		{"create table copied as select * from plain", "select x from copied", "GN009"},
		{"select * into chosen from plain", "select x from chosen", "GN009"},
		{"alter table fresh add extra mood", `select extra from fresh`, "GN009"},
		{"alter table fresh rename extra to \"ex tra\"", `select "ex tra" from fresh`, "GN009"},
		{"alter table fresh alter id type text using id", `select id || 'x' from fresh`, "GN009"},
		{"alter table fresh drop column id", "select id from fresh", "42703"},
		{"alter table fresh rename to fresher", "select * from fresher", "GN009"},
		{"select", "select * from fresh", "42P01"},
		{"create view over_fresher as select * from fresher", "select * from over_fresher", "GN010"},
		{"drop view over_fresher", "select * from over_fresher", "42P01"},
		{"create view fresh as select id from orders", "select id from fresh", ""},
		{"create or replace view fresh as select id, o from orders", "select o from fresh", ""},
		{"create or replace view fresh as select o.id, o.o from orders o join plain using (id)", "select o from fresh", "GN010"},
		{"create or replace view fresh as select id, o, 'x'::varchar(3) as z from orders", "select z from fresh", ""},
		{"create or replace view fresh as select id, o, 'x'::varchar(3) as z from orders where 1 / 0 = 1", "select z from fresh", "22012"},
		{"create or replace view fresh as select id, o, 'x'::varchar(3) as z from orders", "select z from fresh", ""},
		{"alter view fresh rename column z to zz", "select zz from fresh", ""},
		{"alter view fresh rename to renewed", "select zz from renewed", ""},
		{"alter table orders rename column o to oo", "select o from renewed", ""},
		{"alter table orders rename to sales", "select count(*) from joined, renewed, sales", ""},
		{"alter view renewed rename to orders", "select zz from orders", ""},
		{"drop view orders; alter table sales rename to orders", "select oo from orders", ""},
		{"alter table plain set schema public", "select * from plain", "42P01"},
		{"select gnomon.track('public.elsewhere')", "select * from public.plain", ""},
		{"alter table public.plain set schema \"Sch ema\"", "select * from plain", "GN009"},
		{"alter table plain add primary key (id)", "select * from plain", "GN009"},
		{"select gnomon.track('plain')", "select * from plain, plains, over_plains, only_plain", ""},
		{"select gnomon.untrack('plain')", "select * from plain", "GN001"},
		{"select", "select * from over_plains", "GN010"},
		{"refresh materialized view made", "select * from made", "GN010"},
		{"alter materialized view made rename to remade", "select * from remade", "GN010"},
		{"create materialized view made as select 1 as one", "select one from made", "GN010"},
		{"alter type mood rename value 'a' to 'aa'", "select count(*) from joined where \"select\" = 'aa'", ""},
		{"create type short as enum ('s'); create table typed (s short, a short[], d positive)", "select d * 2 from typed where s = 's'", "GN009"},
		{"create view typed_view as select id, 's'::short as s from orders", "select s from typed_view", "GN010"},
		{"drop view typed_view; drop table typed; drop type short", "select * from typed", "42P01"},
		{"alter table plain drop column x cascade", "select * from only_plain", "42P01"},
		{"drop table plain cascade", "select * from over_plains", "42P01"},
		{`create schema authorization current_user create table in_it (id int)`, "select * from plain", "42P01"},
		{`alter schema "Sch ema" rename to renamed; set search_path = renamed`, "select * from copied", "GN009"},
		{"select", "select * from joined", ""},
		{"drop schema renamed cascade", "select * from copied", "42P01"},
	} {
		if got := state(t, c, step.ddl); got != "" {
			t.Fatalf("%s: %s", step.ddl, got)
		}
		assertGuarded(t, pool)
		if got := now(step.sql); got != step.state {
			t.Errorf("after %s: %s: %q", step.ddl, step.sql, got)
		}
	}
	if len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}
	// Tables of schemas without tracked tables have guards, too: in_it, and none of what is gone.
	if left := column[string](t, pool, "select name::text from gnomon.guard g join gnomon.source s on s.id = g.source where s.schema_name <> 'public'"); !slices.Equal(left, []string{"in_it"}) {
		t.Errorf("left: %q", left)
	}
	if left := column[string](t, pool, `select p.proname::text from pg_proc p where p.proname ~ '^v[0-9]+_rows$' and p.pronamespace = 'gnomon'::regnamespace
		and not exists (select from gnomon.guard g where format('v%s_rows', g.id) = p.proname)`); len(left) > 0 {
		t.Errorf("functions left: %q", left)
	}
}

// TestGuardsWaitForReadersBriefly: who reads in the past holds up no command.
func TestGuardsWaitForReadersBriefly(t *testing.T) {
	t.Parallel()
	_, pool, before := seen(t)
	reader := at(t, pool, "", `"Sch ema"`, before, "refuse")
	run(t, reader, "begin", `select * from "sum"`)
	run(t, pool, `create or replace view "Sch ema"."sum" as select 'x' as "t", 1::bigint as n, 2::numeric as "select", 4 as more from "Sch ema".joined`)
	if behind := column[string](t, pool, "select gnomon.unguarded(1)::text"); !slices.Equal(behind, []string{"sum"}) {
		t.Errorf("behind: %q", behind)
	}
	run(t, pool, "select gnomon.sync_guards()") // warns
	run(t, reader, `select * from "sum"`, "commit")
	run(t, pool, "select gnomon.sync_guards()")
	assertGuarded(t, pool)
	if got := text(t, reader, `select distinct more from "sum"`); got != "(4)" {
		t.Errorf("after all: %s", got)
	}
	written := "select string_agg(g.id::text, ',' order by g.id) from gnomon.guard g"
	once := column[string](t, pool, written)
	run(t, pool, "select gnomon.sync_guards()")
	if again := column[string](t, pool, written); !slices.Equal(once, again) {
		t.Error("what is up to date is written again")
	}
}

// TestGuardsWithoutEventTriggers: an ordinary role installs, and has to call gnomon.sync_guards.
func TestGuardsWithoutEventTriggers(t *testing.T) {
	t.Parallel()
	super := pgserver.Pool(t)
	role := pgserver.Role(t, pgserver.Shared(t), "installer")
	run(t, super, "grant create on database "+super.Config().ConnConfig.Database+" to "+role+"; grant all on schema public to "+role)
	c := connectAs(t, super.Config().ConnString(), role)
	ok(t, gnomon.Install(t.Context(), c))
	run(t, c, viewed)
	track(t, gnomon.New(c), `"Sch ema"."ta""ble"`, `"Sch ema".orders`)
	assertGuarded(t, c)
	run(t, c, `create table "Sch ema".late (id int); create view "Sch ema".later as select id from "Sch ema".orders; drop table "Sch ema".nothing; alter table "Sch ema".plain drop column at cascade`)
	if got := column[string](t, c, "select u::text from gnomon.source s, gnomon.unguarded(s.id) u order by 1"); !slices.Equal(got, []string{"late", "later", "nothing", "only_plain", "over_plains", "plain", "plains"}) {
		t.Errorf("behind: %q", got)
	}
	run(t, c, "select gnomon.sync_guards()")
	assertGuarded(t, c)
	past := at(t, super, role, `"Sch ema"`, column[string](t, c, "select gnomon.now()")[0], "refuse")
	for sql, want := range map[string]string{"select * from late": "GN009", "select * from later": "", "select * from nothing": "42P01", `select * from "sum"`: "", "select at from plain": "42703"} {
		if got := state(t, past, sql); got != want {
			t.Errorf("%s: %q", sql, got)
		}
	}
}

// TestGuardsGiveNobodyRights: functions that users put in the way of names never run with the rights of who installed.
func TestGuardsGiveNobodyRights(t *testing.T) {
	t.Parallel()
	_, pool, _ := seen(t)
	role := pgserver.Role(t, pgserver.Shared(t), "mallory")
	letRead(t, pool, role)
	run(t, pool, `grant all on schema "Sch ema" to `+role, `grant select on all tables in schema "Sch ema" to `+role, `create table public.ran (by text)`, `grant insert on public.ran to public`)
	mallory := connectAs(t, pool.Config().ConnString(), role)
	const body = "language plpgsql immutable as $$ begin insert into public.ran values (current_user); return null; end $$"
	run(t, mallory, `set search_path = "Sch ema"`,
		"create function format(text, text) returns text "+body, "create function format(text, text, text) returns text "+body,
		"create function set_config(text, text, text) returns text "+body, "create function evil() returns int "+body, "create function equal(name, text) returns bool "+body,
		"create operator = (function = equal, leftarg = name, rightarg = text)",
		"create view wicked as select id from orders where evil() = 1 and 'x'::name = 'y'::text", "create view wickeder as select evil() from wicked", `alter view wicked rename to "wic ked"`)
	if ran := column[string](t, pool, "select by from public.ran"); len(ran) > 0 {
		t.Errorf("ran as %q", ran)
	}
	assertGuarded(t, pool)
	if got := column[string](t, pool, "select coalesce(reason, 'shown') from gnomon.guard where name in ('wic ked', 'wickeder')"); !slices.Equal(got, []string{"shown", "shown"}) {
		t.Errorf("the views: %q", got)
	}
}
