package gnomon_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// vault is a table of secrets with its past: every value of it begins with s, so that whatever shows one is found. ada may read the
// table, and eve may not; both may use gnomon, and make objects of their own.
type vault struct {
	t        *testing.T
	g        *gnomon.Gnomon
	pool     *pgxpool.Pool
	ada, eve *pgx.Conn
	then     gnomon.Ref
	notices  []string
}

func newVault(t *testing.T, setup ...string) *vault {
	t.Helper()
	g, pool := installed(t)
	v := &vault{t: t, g: g, pool: pool}
	ada, eve := pgserver.Role(t, pgserver.Shared(t), "ada"), pgserver.Role(t, pgserver.Shared(t), "eve")
	v.do("create table vault (id int primary key, owner text, value text)", "insert into vault values (1, '"+ada+"', 's1'), (2, 'nobody', 's2'), (3, '"+ada+"', 's3'), (4, 'nobody', 's4')",
		"select gnomon.grant_access('"+ada+"', null, null)", "select gnomon.grant_access('"+eve+"', null, null)", "grant create on schema public to "+ada+", "+eve, "grant select on vault to "+ada)
	v.do(setup...)
	track(t, g, "vault")
	v.then = must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
	v.do("update vault set value = value || 'n', owner = case id when 3 then 'nobody' when 4 then '" + ada + "' else owner end")
	connect := func(role string) *pgx.Conn {
		config := pool.Config().ConnConfig.Copy()
		config.User = role
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { v.notices = append(v.notices, n.Message) }
		c, err := pgx.ConnectConfig(t.Context(), config)
		ok(t, err)
		t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	v.ada, v.eve = connect(ada), connect(eve)
	return v
}

func (v *vault) do(statements ...string) {
	v.t.Helper()
	run(v.t, v.pool, statements...)
}

// named puts in the names of what views of the vault are made of, for %entries and %today.
func (v *vault) named(sql string) string {
	v.t.Helper()
	return strings.NewReplacer(
		"%entries", column[string](v.t, v.pool, "select format('gnomon.%I', relname) from pg_class where relname ~ '^h1_.*entries$' order by oid desc limit 1")[0],
		"%today", column[string](v.t, v.pool, "select format('gnomon.%I', proname) from pg_proc where proname ~ '^h1_.*today$' order by oid desc limit 1")[0]).Replace(sql)
}

// state executes a statement and returns the SQLSTATE of its error, or "".
func (v *vault) state(conn *pgx.Conn, sql string) string {
	v.t.Helper()
	_, err := conn.Exec(v.t.Context(), v.named(sql))
	if err == nil {
		return ""
	}
	return sqlState(err)
}

func (v *vault) past(conn *pgx.Conn) *gnomon.Past {
	v.t.Helper()
	return must[*gnomon.Past](v.t)(gnomon.New(conn).At(v.t.Context(), v.then))
}

// spying are objects with which eve and ada try to see more: a function and an operator that tell what they are given.
const spying = `create function pg_temp.spy(text) returns boolean language plpgsql cost 0.0001 as $$ begin raise notice 'spied %', $1; return true; end $$;
	create function pg_temp.spy2(text, text) returns boolean language plpgsql cost 0.0001 as $$ begin raise notice 'spied %', $1; return true; end $$;
	create operator pg_temp.<<<< (function = pg_temp.spy2, leftarg = text, rightarg = text)`

// spied are the secrets that notices showed.
func (v *vault) spied() (secrets []string) {
	for _, notice := range v.notices {
		if secret, is := strings.CutPrefix(notice, "spied s"); is {
			secrets = append(secrets, "s"+secret)
		}
	}
	v.notices = nil
	return secrets
}

// TestThePastIsClosedToWhoMayNotReadTheTable, by any of the ways to it.
func TestThePastIsClosedToWhoMayNotReadTheTable(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	run(t, v.eve, spying)
	// Whatever eve sets, the rights are looked up.
	checked := column[string](t, v.pool, "select string_agg(format(' %s:%s ', r.id, t.version), '') from gnomon.route r join annals.tracked t on t.id = r.tracked")[0]
	opened := column[string](t, v.ada, "select concat_ws('|', (o.place).snapshot, (o.place).bound) from gnomon.open_at($1, '{public}', 'public', 'refuse') o", string(v.then))[0]
	snapshot, bound, _ := strings.Cut(opened, "|")
	for name, settings := range map[string]string{
		"by gnomon.at": "select gnomon.at('" + string(v.then) + "')", "by nothing": "select gnomon.leave()",
		"by forging":  "set gnomon.place = '" + string(v.then) + "'; set gnomon.snapshot = '" + snapshot + "'; set gnomon.bound = '" + bound + "'; set gnomon.checked = '" + checked + "'",
		"by nonsense": "set gnomon.place = 'x'; set gnomon.snapshot = '1:1:'; set gnomon.bound = '-1'; set gnomon.checked = '" + checked + "'",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, v.eve, "reset search_path", settings)
			for _, sql := range []string{
				"select * from vault", "select * from gnomon_past_1.vault", "select count(*) from gnomon_past_1.vault", "select * from %entries", "select c3 from %today()", "select * from annals.h1",
				"select * from annals.h1_1", "select * from gnomon_past_1.vault where pg_temp.spy(value)", "select * from gnomon_past_1.vault where value operator(pg_temp.<<<<) 'x'", "select 1 from gnomon_past_1.vault where id = 1 and pg_temp.spy(value)",
				"select * from %entries where pg_temp.spy(c3)", "select * from (values (1)) v left join gnomon_past_1.vault p on pg_temp.spy(p.value)", "select 1 where exists (select from gnomon_past_1.vault where pg_temp.spy(value))",
				"select * from gnomon_past_1.vault v order by pg_temp.spy(value)", "select max(value) from gnomon_past_1.vault",
			} {
				if got := v.state(v.eve, sql); got != "42501" {
					t.Errorf("%s: %q", sql, got)
				}
			}
			if secrets := v.spied(); len(secrets) > 0 {
				t.Errorf("eve spied %q", secrets)
			}
		})
	}
	run(t, v.eve, "reset all")
	for _, err := range []error{
		func() error { _, err := texts(t.Context(), v.past(v.eve), "select * from vault"); return err }(),
		func() error {
			_, _, err := gnomon.Get[map[string]any](t.Context(), v.past(v.eve), "vault", 1)
			return err
		}(),
		func() error {
			_, err := gnomon.List[map[string]any](t.Context(), v.past(v.eve), "vault", "")
			return err
		}(),
	} {
		if sqlState(err) != "42501" {
			t.Errorf("got %v", err)
		}
	}
	// Ada reads all.
	if got := len(textsOf(t, v.past(v.ada), "select * from vault")); got != 4 {
		t.Errorf("ada sees %d rows", got)
	}
	if row, found, err := gnomon.Get[map[string]any](t.Context(), v.past(v.ada), "vault", 1); !found || err != nil || row["value"] != "s1" {
		t.Errorf("ada gets %v, %v", row, err)
	}
	// A right to some columns does not do.
	v.do("grant select (id) on vault to " + v.eve.Config().User)
	if _, err := texts(t.Context(), v.past(v.eve), "select id from vault"); sqlState(err) != "42501" {
		t.Errorf("by a column: %v", err)
	}
	// What is granted and revoked holds at once.
	v.do("grant select on vault to " + v.eve.Config().User)
	past := v.past(v.eve)
	if got := len(textsOf(t, past, "select * from vault")); got != 4 {
		t.Errorf("eve sees %d rows", got)
	}
	must[map[string]any](t)(func() (map[string]any, error) {
		row, _, err := gnomon.Get[map[string]any](t.Context(), past, "vault", 1)
		return row, err
	}())
	v.do("revoke select, select (id) on vault from " + v.eve.Config().User)
	if _, err := texts(t.Context(), past, "select * from vault"); sqlState(err) != "42501" {
		t.Errorf("after revoking: %v", err)
	}
	if _, _, err := gnomon.Get[map[string]any](t.Context(), past, "vault", 1); sqlState(err) != "42501" {
		t.Errorf("after revoking: %v", err)
	}
}

// TestRowLevelSecurityHoldsInThePast: each row is judged as it was, whenever policies came, and nothing shows a value of a row that is hidden.
func TestRowLevelSecurityHoldsInThePast(t *testing.T) {
	t.Parallel()
	const policy = "create policy own on vault using (owner = current_user)"
	for name, when := range map[string]struct{ before, after []string }{
		"before": {before: []string{"alter table vault enable row level security", policy}},
		"after":  {after: []string{"alter table vault enable row level security", policy}},
		"forced": {before: []string{policy, "alter table vault force row level security"}, after: []string{"alter table vault enable row level security"}},
		"changed": {before: []string{"alter table vault enable row level security", "create policy own on vault using (true)"}, after: []string{"drop policy own on vault", policy, "alter table vault add more int",
			"create policy narrow on vault as restrictive using (id < 100)"}},
		"renamed": {before: []string{"alter table vault enable row level security", policy}, after: []string{`alter table vault rename owner to "o ""w"`, "alter table vault rename to store", "alter table store rename to vault"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t, when.before...)
			opened := v.past(v.ada)
			v.do(when.after...)
			run(t, v.ada, spying)
			for _, past := range []*gnomon.Past{v.past(v.ada), opened} {
				// Row 3 was hers then and row 4 is now.
				if got := text(t, past, "select id, value from vault order by id"); got != "(1,s1)\n(3,s3)" {
					t.Errorf("ada sees %s", got)
				}
				for id, want := range map[int]bool{1: true, 2: false, 3: true, 4: false} {
					if _, found, err := gnomon.Get[map[string]any](t.Context(), past, "vault", id); found != want || err != nil {
						t.Errorf("row %d: %v, %v", id, found, err)
					}
				}
			}
			run(t, v.ada, "select gnomon.at('"+string(v.then)+"')")
			for _, sql := range []string{"select * from vault where pg_temp.spy(value)", "select * from vault where value operator(pg_temp.<<<<) 'x'", "select count(*) from vault where id > 0 and pg_temp.spy(value)",
				"select * from gnomon_past_1.vault where pg_temp.spy(value)", "select * from %entries where pg_temp.spy(c3)", "select * from %today() where pg_temp.spy(c3)",
				"select * from (values (2)) x left join vault v on v.id = column1 and pg_temp.spy(value)"} {
				v.state(v.ada, sql)
				for _, secret := range v.spied() {
					if secret != "s1" && secret != "s3" && secret != "s1n" && secret != "s4n" {
						t.Errorf("%s: ada spied %s", sql, secret)
					}
				}
			}
			run(t, v.ada, "select gnomon.leave()")
			// The view for those who may read all is not for her.
			if got := v.state(v.ada, "select * from gnomon_past_1.vault"); got != "GN011" && got != "GN008" {
				t.Errorf("the other view: %q", got)
			}
		})
	}
}

// TestWhoReadsIsWhoAsks: roles that are set after the past was opened see what they may see, also by statements that others prepared.
func TestWhoReadsIsWhoAsks(t *testing.T) {
	t.Parallel()
	v := newVault(t, "alter table vault enable row level security", "create policy own on vault using (owner = current_user)")
	ada := v.ada.Config().User
	v.do("grant " + ada + " to current_user")
	conn := connectAs(t, v.pool.Config().ConnString(), "")
	past := must[*gnomon.Past](t)(gnomon.New(conn).At(t.Context(), v.then))
	for range 3 {
		for role, want := range map[string]string{"": "4", ada: "2", v.eve.Config().User: "42501"} {
			run(t, conn, "reset role")
			if role != "" {
				run(t, conn, "set role "+role)
			}
			got := "?"
			if rows, err := texts(t.Context(), past, "select count(*) as n from vault"); err != nil {
				got = sqlState(err)
			} else {
				got = strings.Trim(rows[0]["n"], "'")
			}
			if got != want {
				t.Errorf("as %q: %s, want %s", role, got, want)
			}
			_, found, err := gnomon.Get[map[string]any](t.Context(), past, "vault", 4)
			if want == "42501" && sqlState(err) != "42501" || want != "42501" && (err != nil || found != (want == "4")) {
				t.Errorf("as %q: %v, %v", role, found, err)
			}
		}
	}
	run(t, conn, "reset role", "select gnomon.at('"+string(v.then)+"')", "prepare everything as select * from vault", "execute everything", "set role "+ada)
	if got := v.state(conn, "execute everything"); got != "GN008" {
		t.Errorf("a statement prepared by another role says %q", got)
	}
	run(t, conn, "set role "+v.eve.Config().User)
	if got := v.state(conn, "execute everything"); got != "42501" {
		t.Errorf("a statement prepared by another role says %q", got)
	}
}

// TestCallersObjectsDoNotRunWithOthersRights: operators and functions that stand first in the caller's search_path are not called by what runs with the owner's rights.
func TestCallersObjectsDoNotRunWithOthersRights(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	eve := pgx.Identifier{v.eve.Config().User}.Sanitize()
	v.do("create schema evil authorization "+eve, "grant select on vault to "+eve, "create table public.ran (by text)", "grant insert on public.ran to public")
	run(t, v.eve, `set search_path = evil, pg_catalog`)
	evil := func(args string) string {
		return "(" + args + ") returns %s language plpgsql as $$ begin if current_user <> '" + v.eve.Config().User + "' then raise exception 'runs as %%', current_user; end if; return %s; end $$"
	}
	for _, f := range []string{"evil.format|text, variadic text[]|text|'x'", "evil.split_part|text, text, int|text|'x'", "evil.pg_visible_in_snapshot|xid8, pg_snapshot|boolean|true", "evil.has_table_privilege|oid, text|boolean|true", "evil.row_security_active|oid|boolean|false",
		"evil.current_setting|text, boolean|text|''", "evil.strpos|text, text|int|1", "evil.concat|variadic text[]|text|''"} {
		p := strings.Split(f, "|")
		sql := "create function " + p[0] + strings.Replace(strings.Replace(evil(p[1]), "%s", p[2], 1), "%s", p[3], 1)
		run(t, v.eve, strings.ReplaceAll(sql, "%%", "%"))
	}
	for _, types := range []string{"bigint, bigint", "int, int", "text, text", "oid, oid", "name, name", "xid8, xid8", "boolean, boolean"} {
		p := strings.Split(types, ", ")
		run(t, v.eve, strings.ReplaceAll("create function evil.no"+strings.Replace(strings.Replace(evil(types), "%s", "boolean", 1), "%s", "true", 1), "%%", "%"))
		for _, operator := range []string{"=", ">", "<", "<>"} {
			run(t, v.eve, "create operator evil."+operator+" (function = evil.no, leftarg = "+p[0]+", rightarg = "+p[1]+")")
		}
	}
	run(t, v.eve, "set search_path = evil, public, pg_catalog")
	for _, sql := range []string{"select gnomon.at('" + string(v.then) + "')", "select * from vault", "select gnomon.at('now')", "select * from vault", "select gnomon.leave()"} {
		if _, err := v.eve.Exec(t.Context(), sql); err != nil && strings.Contains(err.Error(), "runs as") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	past := v.past(v.eve)
	if _, _, err := gnomon.Get[map[string]any](t.Context(), past, "public.vault", 1); err != nil && strings.Contains(err.Error(), "runs as") {
		t.Error(err)
	}
	if got := text(t, past, "select count(*) as n, min(value) as v from vault"); got != "(4,s1)" {
		t.Errorf("the past is %s", got)
	}
}

// TestPlanningTellsNothing: an operator of a user's own is called with values out of statistics while a query is planned, before any check in a view runs.
func TestPlanningTellsNothing(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	v.do("insert into vault select i, 'nobody', 's' || i % 3 from generate_series(10, 1000) i", "update vault set value = value || 'x' where id >= 10", "analyze", "select gnomon.sync('vault')")
	const leak = `create function public.leak(text, text) returns boolean language plpgsql cost 0.0001 as $$ begin raise notice 'spied %', $1; return true; end $$;
		create operator public.<<<< (function = public.leak, leftarg = text, rightarg = text, restrict = eqsel)`
	run(t, v.eve, leak)
	entries := column[string](t, v.pool, "select oid::regclass::text from pg_class where relnamespace = 'gnomon'::regnamespace and relname ~ '_entries$'")[0]
	queries := []string{"explain select * from gnomon_past_1.vault where value operator(public.<<<<) 'x'", "explain select * from " + entries + " where c3 operator(public.<<<<) 'x'"}
	for _, sql := range queries {
		if _, err := v.eve.Exec(t.Context(), sql); sqlState(err) != "42501" || len(v.spied()) > 0 {
			t.Errorf("%s: %v", sql, err)
		}
	}
	v.do("alter table vault enable row level security", "create policy own on vault using (owner = current_user)", "grant select on vault to "+v.eve.Config().User, "analyze")
	run(t, v.eve, "select gnomon.at('"+string(v.then)+"')", "select gnomon.leave()")
	entries = column[string](t, v.pool, "select oid::regclass::text from pg_class where relnamespace = 'gnomon'::regnamespace and relname ~ '_entries$'")[0]
	queries[1] = "explain select * from " + entries + " where c3 operator(public.<<<<) 'x'"
	for _, sql := range append(queries, column[string](t, v.pool, "select format('explain select * from %I.%I where value operator(public.<<<<) ''x''', schema_name, view_name) from gnomon.route")...) {
		if _, err := v.eve.Exec(t.Context(), sql); err != nil || len(v.spied()) > 0 {
			t.Errorf("with row-level security: %s: %v", sql, err)
		}
	}
}

// TestWhoMayReadTheTableMayReadItsPast from when that is granted until it is revoked.
func TestWhoMayReadTheTableMayReadItsPast(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	read := func() string {
		past, err := gnomon.New(v.ada).At(t.Context(), v.then)
		if err == nil {
			_, err = past.Exec(t.Context(), "select * from vault")
		}
		return sqlState(err)
	}
	eve := v.eve.Config().User
	ada := v.ada.Config().User
	for _, step := range []struct{ sql, want string }{
		{"revoke select on vault from " + ada, "42501"}, {"grant " + eve + " to " + ada + "; grant select on vault to " + eve, "<nil>"}, {"revoke " + eve + " from " + ada, "42501"}, {"grant select on all tables in schema public to public", "<nil>"},
		{"revoke all on vault from public", "42501"}, {"alter table vault owner to " + ada, "<nil>"},
	} {
		v.do(strings.Split(step.sql, "; ")...)
		if got := read(); got != step.want {
			t.Errorf("after %s: %s", step.sql, got)
		}
	}
}
