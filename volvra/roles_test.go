package volvra_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

const denied = "42501"

// who is there: the role that installed and owns the tables, those that Grant names, one that may only look into the schemas, and
// anybody else. None is a superuser.
var who = []string{"owner", "admin", "operator", "viewer", "visitor", "stranger"}

// logins are connections to one database, each as another role.
type logins struct {
	super *pgx.Conn
	role  map[string]string
	as    map[string]*pgx.Conn
}

// newLogins installs as an ordinary role, covers shop.orders, and lets admin, operator and viewer read that table, the first two write it.
func newLogins(t testing.TB) *logins {
	t.Helper()
	ctx := t.Context()
	l := &logins{role: map[string]string{}, as: map[string]*pgx.Conn{}}
	conn := pgserver.Database(t)
	l.super = connectAs(t, conn, "")
	for _, name := range who {
		l.role[name] = pgserver.Role(t, pgserver.Shared(t), name+` "of" select`)
	}
	l.run(t, "do $$ begin execute format('grant create on database %I to OWNER', current_database()); end $$")
	for _, name := range who {
		l.as[name] = connectAs(t, conn, l.role[name])
	}
	ok(t, volvra.Install(ctx, l.as["owner"]))
	ok(t, volvra.Grant(ctx, l.as["owner"], l.role["viewer"], l.role["operator"], l.role["admin"]))
	l.run(t, "grant usage on schema volvra, annals to VISITOR")
	run(t, l.as["owner"], "create schema shop", "create table shop.orders (id int primary key, note text)", "create table shop.lines (id int primary key)")
	cover(t, volvra.New(l.as["owner"]), "shop.orders")
	l.run(t, "grant usage on schema shop to VIEWER, OPERATOR, ADMIN", "grant select on all tables in schema shop to VIEWER, OPERATOR, ADMIN", "grant insert, update, delete on shop.orders to OPERATOR, ADMIN")
	run(t, l.as["owner"], "insert into shop.orders values (1, 'a')", "update shop.orders set note = 'b'")
	return l
}

// run executes SQL as superuser. OWNER, VIEWER and so on stand for the roles.
func (l *logins) run(t testing.TB, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		for name, role := range l.role {
			sql = strings.ReplaceAll(sql, strings.ToUpper(name), pgx.Identifier{role}.Sanitize())
		}
		run(t, l.super, sql)
	}
}

// may says which roles may execute functions of a class.
var may = map[string][]string{"owner": {"owner"}, "admin": {"owner", "admin"}, "operator": {"owner", "admin", "operator"}, "viewer": {"owner", "admin", "operator", "viewer"}}

// Each role has the right to execute exactly what volvra.access says, of every function there is.
func TestWhoMayExecuteWhat(t *testing.T) {
	t.Parallel()
	l := newLogins(t)
	rows, err := l.super.Query(t.Context(), `select p.oid::bigint as oid, p.oid::regprocedure::text as name, a.who as class from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		join volvra.access a on a.schema = n.nspname and a.function = p.proname`)
	ok(t, err)
	type function struct {
		OID         int64
		Name, Class string
	}
	functions := must[[]function](t)(pgx.CollectRows(rows, pgx.RowToStructByName[function]))
	if len(functions) < 150 {
		t.Errorf("only %d functions", len(functions))
	}
	for _, name := range who {
		allowed := column[int64](t, l.super, "select p.oid::bigint from pg_proc p where p.pronamespace in ('volvra'::regnamespace, 'annals'::regnamespace) and has_function_privilege($1, p.oid, 'execute')", l.role[name])
		for _, f := range functions {
			if is, should := slices.Contains(allowed, f.OID), slices.Contains(may[f.Class], name); is != should {
				t.Errorf("%s may execute %s (a function of a %s): %v", name, f.Name, f.Class, is)
			}
		}
	}
}

// A function that nobody put into volvra.access, or that everybody may execute, fails here.
func TestEveryFunctionHasItsPlace(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	const functions = "pg_proc p join pg_namespace n on n.oid = p.pronamespace and n.nspname in ('volvra', 'annals') and p.proname !~ '^h[0-9]+_'"
	for what, query := range map[string]string{
		"not in volvra.access":         "select p.oid::regprocedure::text from " + functions + " where (n.nspname, p.proname) not in (select schema, function from volvra.access)",
		"in volvra.access and no more": "select schema || '.' || function from volvra.access where (schema, function) not in (select n.nspname, p.proname from " + functions + ")",
		"in volvra.access twice":       "select schema || '.' || function from volvra.access group by 1 having count(*) > 1",
		"of no class":                  "select function from volvra.access where who not in ('viewer', 'operator', 'admin', 'owner')",
		"open to everybody":            "select p.oid::regprocedure::text from " + functions + " where has_function_privilege('public', p.oid, 'execute')",
		"without a search_path":        "select p.oid::regprocedure::text from " + functions + " where p.prosecdef and not coalesce(p.proconfig::text like '%search_path%', false)",
		"relations open to everybody":  "select c.oid::regclass::text from pg_class c cross join aclexplode(c.relacl) a where c.relnamespace in ('volvra'::regnamespace, 'annals'::regnamespace) and a.grantee = 0",
	} {
		for _, name := range column[string](t, pool, query) {
			t.Errorf("%s: %s", what, name)
		}
	}
}

// What the roles are for works with the rights that Grant gives, inside functions too, and nothing beyond.
func TestRolesDoTheirWork(t *testing.T) {
	t.Parallel()
	l := newLogins(t)
	for _, c := range []struct{ class, sql string }{
		{"viewer", "select * from volvra.status()"}, {"viewer", "select * from volvra.health()"}, {"viewer", "select * from volvra.preflight()"}, {"viewer", "select * from volvra.uncovered()"}, {"viewer", "select * from volvra.storage()"},
		{"viewer", "select * from volvra.transactions()"}, {"viewer", `select * from volvra.transactions('{"tables": ["shop.orders"], "keys": [["1"]], "where": [{"column": "note", "op": "=", "value": "b"}]}')`},
		{"viewer", "select * from volvra.history('shop.orders', '{1}')"}, {"viewer", "select * from volvra.as_of(null::shop.orders, now())"}, {"viewer", "select * from volvra.as_of_row(null::shop.orders, '{1}', now()::text)"},
		{"viewer", "select * from volvra.activity()"}, {"viewer", "select annals.coordinate()"}, {"viewer", "select * from volvra.access"}, {"viewer", "select * from volvra.marks"}, {"viewer", "select count(*) from annals.h1"},
		{"viewer", "select * from volvra.attempts()"}, {"viewer", "select * from annals.check_capture()"}, {"viewer", `select * from volvra.preview('{"everything": true}')`}, {"viewer", `select volvra.preview_token('{"everything": true}')`},
		{"viewer", "select * from volvra.verify()"}, {"viewer", "select * from volvra.chain_head()"}, {"viewer", "select * from volvra.fingerprint()"},
		{"operator", "select volvra.mark('m')"}, {"operator", `select * from volvra.undo('{"everything": true}'::jsonb)`}, {"operator", "select volvra.mark('m'); select * from volvra.undo_to('m')"}, {"operator", "select volvra.begin_attempt('undo', '{}')"},
		{"admin", "select * from volvra.enable('shop.lines')"}, {"admin", "select * from volvra.enable_schema('shop')"}, {"admin", "select * from volvra.disable('shop.orders')"}, {"admin", "select annals.sync(1)"}, {"admin", "select annals.tick()"},
		{"admin", "select * from volvra.seal()"}, {"admin", "select * from volvra.maintain()"}, {"admin", "select volvra.forget('shop.orders', '{\"id\": 1}', 'asked for')"}, {"admin", "select annals.rotate(1, 0)"}, {"admin", "select annals.seal_segments()"},
		{"owner", "select volvra.grant_access(null, null, null)"}, {"owner", "select annals.track('shop.lines', 'volvra')"}, {"owner", "select annals.untrack('shop.orders', 'volvra')"}, {"owner", "select * from annals.h1_1"}, {"owner", "select * from volvra.attempt"},
		{"owner", "select * from volvra.cover('shop.lines', '{}')"}, {"owner", "select annals.prune(1, 1)"},
		{"nobody", "insert into volvra.attempt (action) values ('undo')"}, {"nobody", "update annals.h1_1 set op = 'd'"}, {"nobody", "delete from annals.context"}, {"nobody", "insert into volvra.mark_point values (1)"}, {"nobody", "truncate annals.tracked"},
	} {
		for _, name := range who {
			tx := must[pgx.Tx](t)(l.as[name].Begin(t.Context()))
			_, err := tx.Exec(t.Context(), c.sql)
			ok(t, tx.Rollback(t.Context()))
			allowed := slices.Contains(may[c.class], name)
			if c.class == "nobody" && name == "owner" {
				continue // whose tables they are
			}
			if refused := err != nil && sqlState(err) == denied; refused == allowed {
				t.Errorf("%s: %s: %v", name, c.sql, err)
			} else if allowed && err != nil && !strings.Contains(c.sql, "forget") && !strings.Contains(c.sql, "prune") {
				t.Errorf("%s: %s: %v", name, c.sql, err)
			}
		}
	}
}

func TestGrant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLogins(t)
	owner := l.as["owner"]
	ok(t, volvra.Grant(ctx, owner, "", "", ""))
	ok(t, volvra.Grant(ctx, owner, l.role["stranger"], "", ""))
	run(t, l.as["stranger"], "select * from volvra.status()")
	for _, role := range []string{`no "body"`, "public", "'; drop schema volvra cascade; --"} {
		if err := volvra.Grant(ctx, owner, role, "", ""); !errors.Is(err, volvra.ErrInvalid) || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("granted to %s: %v", role, err)
		}
	}
	for _, name := range who[1:] {
		if err := volvra.Grant(ctx, l.as[name], l.role["visitor"], "", ""); sqlState(err) != denied {
			t.Errorf("granted by %s: %v", name, err)
		}
	}
	// A table covered later is seen by those who were granted before.
	cover(t, volvra.New(owner), "shop.lines")
	run(t, l.as["viewer"], "select count(*) from annals.h2")
	// What everybody may do again after restoring a dump without privileges.
	l.run(t, "grant execute on all functions in schema volvra, annals to public", "grant select on all tables in schema volvra, annals to public", "grant usage on schema volvra, annals to public")
	ok(t, volvra.Grant(ctx, owner, "", "", ""))
	for _, sql := range []string{"select * from volvra.status()", "select * from annals.context", "select annals.coordinate()"} {
		if _, err := l.as["visitor"].Exec(ctx, sql); sqlState(err) != denied {
			t.Errorf("%s is still open to everybody: %v", sql, err)
		}
	}
}

// Installing creates no role; several databases may create the roles at once.
func TestCreateRoles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{}) // a cluster whose roles are nobody else's
	conns := make([]*pgx.Conn, 4)
	for i := range conns {
		database, err := server.CreateDatabase(ctx)
		ok(t, err)
		conns[i] = connectAs(t, server.ConnString(database), "")
	}
	before := column[string](t, conns[0], "select rolname from pg_roles order by 1")
	ok(t, volvra.Install(ctx, conns[0]))
	if after := column[string](t, conns[0], "select rolname from pg_roles order by 1"); !slices.Equal(after, before) {
		t.Errorf("installing created roles: %q", after)
	}
	var all sync.WaitGroup
	errs := make([]error, len(conns))
	for i := range conns {
		all.Go(func() { errs[i] = volvra.CreateRoles(ctx, conns[i]) })
	}
	all.Wait()
	ok(t, errors.Join(errs...))
	if got, want := fmt.Sprint(column[string](t, conns[0], "select rolname || ' ' || rolcanlogin from pg_roles where rolname like 'volvra%' order by 1")), "[volvra_admin false volvra_operator false volvra_viewer false]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	ok(t, volvra.Grant(ctx, conns[0], volvra.ViewerRole, volvra.OperatorRole, volvra.AdminRole))
}
