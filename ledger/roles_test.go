package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// logins are connections to one database with a ledger in it, each as another role. None is a superuser.
type logins struct {
	super *pgx.Conn
	role  map[string]string // names of the roles
	as    map[string]*pgx.Conn
}

// Who is there: the role that installed the ledger, those that Grant names, one that may only look into the schema, and anybody else.
var who = []string{"owner", "writer", "reader", "visitor", "stranger"}

func newLogins(t testing.TB) *logins {
	t.Helper()
	ctx := t.Context()
	l := &logins{role: map[string]string{}, as: map[string]*pgx.Conn{}}
	conn := pgserver.Database(t)
	l.super = connectAs(t, conn, "")
	for _, name := range who {
		l.role[name] = pgserver.Role(t, pgserver.Shared(t), name+` "of" select`)
	}
	l.mustExec(t, "do $$ begin execute format('grant create on database %I to OWNER', current_database()); end $$")
	for _, name := range who {
		l.as[name] = connectAs(t, conn, l.role[name])
	}
	ok(t, ledger.Install(ctx, l.as["owner"]))
	ok(t, ledger.Grant(ctx, l.as["owner"], l.role["reader"], l.role["writer"]))
	l.mustExec(t, "grant usage on schema ledger to VISITOR")
	return l
}

// mustExec executes SQL as superuser. OWNER, WRITER and so on stand for the roles.
func (l *logins) mustExec(t testing.TB, sql string) {
	t.Helper()
	for name, role := range l.role {
		sql = strings.ReplaceAll(sql, strings.ToUpper(name), pgx.Identifier{role}.Sanitize())
	}
	_, err := l.super.Exec(t.Context(), sql)
	ok(t, err)
}

// connectAs connects as a role; the empty name is whom the connection string names.
func connectAs(t testing.TB, connString, role string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(connString)
	ok(t, err)
	if role != "" {
		config.User = role
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// try executes a statement, undoes it and returns its SQLSTATE.
func try(t testing.TB, c *pgx.Conn, sql string) (code string, err error) {
	t.Helper()
	tx, err := c.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if strings.HasPrefix(sql, "copy") {
		_, err = c.PgConn().CopyFrom(t.Context(), strings.NewReader(""), sql)
	} else {
		_, err = tx.Exec(t.Context(), sql)
	}
	if refusal, isPg := errors.AsType[*pgconn.PgError](err); isPg {
		return refusal.Code, err
	}
	ok(t, err)
	return "", nil
}

const denied = "42501"

// Each function, called by each role: executed or refused as ledger.access says.
func TestWhoMayExecuteWhat(t *testing.T) {
	t.Parallel()
	l := newLogins(t)
	// The nulls stand behind OFFSET 0, else the planner would leave out strict functions.
	rows, err := l.super.Query(t.Context(), `select a.who, format('select ledger.%I(%s) from (select %s offset 0) q', p.proname, x.names, coalesce(x.nulls, 'null'))
		from pg_proc p join ledger.access a on a.function = p.proname cross join lateral (
			select string_agg('q.a' || i, ', ' order by i) as names, string_agg(format('null::%s as a%s', format_type(x, null), i), ', ' order by i) as nulls
				from unnest(p.proargtypes) with ordinality x (x, i)) x
		where p.pronamespace = 'ledger'::regnamespace order by 2`)
	ok(t, err)
	type function struct{ Class, Call string }
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	ok(t, err)
	may := map[string][]string{"owner": {"owner", "writer", "reader"}, "writer": {"writer", "reader"}, "reader": {"reader"}}
	for _, f := range functions {
		for _, name := range who {
			// An argument may be missing, but what the function calls inside must be allowed, too.
			code, err := try(t, l.as[name], f.Call)
			if allowed := slices.Contains(may[name], f.Class); allowed == (code == denied) {
				t.Errorf("%s, %s (a function of a %s): %v", name, f.Call, f.Class, err)
			}
		}
	}
	for call, class := range map[string]string{"transfer": "writer", "post_hold": "writer", "reserve": "owner", "close_period": "owner", "release_expired": "owner", "entries_of": "reader", "verify": "reader"} {
		if !slices.ContainsFunc(functions, func(f function) bool { return f.Class == class && strings.HasPrefix(f.Call, "select ledger."+call+"(") }) {
			t.Errorf("%s is no function of a %s", call, class)
		}
	}
}

// A function that nobody put into ledger.access, or that everybody may execute, fails here.
func TestEveryFunctionHasItsPlace(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	for what, query := range map[string]string{
		"not in ledger.access":           "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'ledger'::regnamespace and p.proname not in (select function from ledger.access)",
		"in ledger.access and no more":   "select function from ledger.access where function not in (select proname from pg_proc where pronamespace = 'ledger'::regnamespace)",
		"in ledger.access twice":         "select function from ledger.access group by 1 having count(*) > 1",
		"of no class":                    "select function from ledger.access where who not in ('reader', 'writer', 'owner')",
		"open to everybody":              "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'ledger'::regnamespace and has_function_privilege('public', p.oid, 'execute')",
		"reading as somebody else":       "select p.oid::regprocedure::text from pg_proc p join ledger.access a on a.function = p.proname where p.pronamespace = 'ledger'::regnamespace and a.who = 'reader' and p.prosecdef",
		"booking as the caller":          "select p.oid::regprocedure::text from pg_proc p join ledger.access a on a.function = p.proname where p.pronamespace = 'ledger'::regnamespace and a.who = 'writer' and not p.prosecdef and p.proname <> 'new_id'",
		"a view that reads as its owner": "select relname from pg_class where relnamespace = 'ledger'::regnamespace and relkind = 'v' and not coalesce('security_invoker=true' = any (reloptions), false)",
		"a table open to everybody":      "select relname from pg_class where relnamespace = 'ledger'::regnamespace and relkind in ('r', 'v', 'S') and relacl::text ~ '[{,]='",
		"a schema open to everybody":     "select nspname from pg_namespace where nspname = 'ledger' and has_schema_privilege('public', oid, 'usage, create')",
	} {
		if found := column[string](t, pool, query); len(found) != 0 {
			t.Errorf("%s: %q", what, found)
		}
	}
}

// Each table, written in each way by each role.
func TestWhoMayTouchWhichTable(t *testing.T) {
	t.Parallel()
	l := newLogins(t)
	columns := map[string]string{"annals_step": "name"}
	for _, tables := range []map[string]string{appendOnly, kept} {
		for table, col := range tables {
			columns[table] = col
		}
	}
	names := column[string](t, l.super, "select relname from pg_class where relnamespace = 'ledger'::regnamespace and relkind in ('r', 'p')")
	views := column[string](t, l.super, "select relname from pg_class where relnamespace = 'ledger'::regnamespace and relkind = 'v'")
	if len(names) != len(columns) {
		t.Errorf("tables %q, known here %q", names, columns)
	}
	statements := map[string]string{ // by what refuses them to the owner, if anything
		"select * from ledger.T":                    "",
		"select * from ledger.T for update":         "",
		"insert into ledger.T default values":       "any",
		"copy ledger.T from stdin":                  "",
		"update ledger.T set C = C":                 "LG015",
		"update ledger.T set C = C where C is null": "LG015",
		"delete from ledger.T":                      "LG015",
		"truncate ledger.T cascade":                 "LG015",
		"merge into ledger.T using (select 1) q on true when matched then update set C = T.C":                              "LG015",
		"merge into ledger.T using (select 1) q on true when matched then delete":                                          "LG015",
		"alter table ledger.T disable trigger user":                                                                        "",
		"alter table ledger.T add column more int":                                                                         "",
		"lock table ledger.T in access exclusive mode":                                                                     "",
		"create trigger mine before insert on ledger.T for each row execute function suppress_redundant_updates_trigger()": "",
		"create rule mine as on insert to ledger.T do instead nothing":                                                     "",
		"create index on ledger.T (C)":                                                                                     "",
		"drop table ledger.T cascade":                                                                                      "",
		"do $$ begin grant update on ledger.T to public; if not has_table_privilege('public', 'ledger.T', 'update') then raise insufficient_privilege; end if; end $$": "",
	}
	for _, table := range names {
		for statement, refusal := range statements {
			sql := strings.NewReplacer("T", table, "C", columns[table]).Replace(statement)
			for _, name := range who {
				want := denied
				switch {
				case name == "owner" && table == "annals_step" && refusal == "LG015":
					want = ""
				case name == "owner":
					want = refusal
				case statement == "select * from ledger.T" && (name == "reader" || name == "writer"):
					want = ""
				}
				if code, err := try(t, l.as[name], sql); code != want && (want != "any" || code == denied) {
					t.Errorf("%s, %s: %v, want %q", name, sql, err, want)
				}
			}
		}
	}
	for _, view := range views {
		for _, name := range who {
			want := map[bool]string{true: "", false: denied}[name == "owner" || name == "reader" || name == "writer"]
			if code, err := try(t, l.as[name], "select * from ledger."+view); code != want {
				t.Errorf("%s, view %s: %v", name, view, err)
			}
		}
	}
	for _, name := range who[1:] {
		for _, sql := range []string{"create table ledger.mine ()", "create function ledger.mine() returns int language sql as 'select 1'", "drop schema ledger cascade",
			"alter function ledger.void_hold(uuid) security invoker", "create or replace function ledger.new_id() returns uuid language sql as 'select null::uuid'",
			"select nextval('ledger.account_no_seq')"} {
			if code, err := try(t, l.as[name], sql); code != denied {
				t.Errorf("%s, %s: %v", name, sql, err)
			}
		}
	}
}

// What the roles are for works with the rights that Grant gives, and Verify agrees that these are the right ones.
func TestRolesDoTheirWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLogins(t)
	writer := ledger.New(l.as["writer"])
	ok(t, writer.CreateAsset(ctx, "EUR", 2))
	a, b := open(t, writer, "a"), open(t, writer, "b")
	posted := pay(t, writer, a, b, "10")
	held, err := writer.Hold(ctx, ledger.HoldParams{From: a, To: b, Amount: dec("5")})
	ok(t, err)
	_, err = writer.PostHold(ctx, held.ID, ledger.PostParams{})
	ok(t, err)
	_, err = writer.ReverseTransfer(ctx, posted.ID, ledger.ReverseTransferParams{})
	ok(t, err)
	for _, name := range []string{"owner", "writer", "reader"} {
		books := ledger.New(l.as[name])
		balance, err := books.Balance(ctx, b)
		if err != nil || !balance.Posted.Equal(dec("5")) {
			t.Errorf("%s reads %v, %v", name, balance, err)
		}
		n := 0
		for _, err := range books.Entries(ctx, b, ledger.EntryFilter{}) {
			ok(t, err)
			n++
		}
		if n != 3 {
			t.Errorf("%s reads %d entries", name, n)
		}
		for _, p := range problems(t, books.Verify(ctx, ledger.VerifyOptions{})) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := ledger.New(l.as["reader"]).Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("1")}); !isDenied(err) {
		t.Errorf("a reader booked: %v", err)
	}
	if err := writer.ClosePeriod(ctx, posted.CreatedAt); !isDenied(err) {
		t.Errorf("a writer closed a period: %v", err)
	}
	ok(t, ledger.New(l.as["owner"]).ClosePeriod(ctx, posted.CreatedAt))
	// A function of the owner's can be lent.
	_, err = l.as["owner"].Exec(ctx, "grant execute on function ledger.close_period to "+pgx.Identifier{l.role["writer"]}.Sanitize())
	ok(t, err)
	ok(t, writer.ClosePeriod(ctx, posted.CreatedAt))
}

func isDenied(err error) bool {
	refusal, isPg := errors.AsType[*pgconn.PgError](err)
	return isPg && refusal.Code == denied
}

func TestGrant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLogins(t)
	owner := l.as["owner"]
	ok(t, ledger.Grant(ctx, owner, l.role["reader"], l.role["writer"]))
	ok(t, ledger.Grant(ctx, owner, "", ""))
	ok(t, ledger.Grant(ctx, owner, l.role["stranger"], ""))
	if code, err := try(t, l.as["stranger"], "select * from ledger.verify()"); code != "" {
		t.Errorf("a reader named alone: %v", err)
	}
	if code, err := try(t, l.as["stranger"], "select ledger.new_id()"); code != denied {
		t.Errorf("a reader named alone may do more: %v", err)
	}
	ok(t, ledger.Grant(ctx, owner, "", l.role["stranger"]))
	if code, err := try(t, l.as["stranger"], "select ledger.create_asset('EUR', 2)"); code != "" {
		t.Errorf("a writer named alone: %v", err)
	}
	for _, role := range []string{`no "body"`, "public", "'; drop schema ledger cascade; --"} {
		err := ledger.Grant(ctx, owner, role, "")
		if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("granted to %s: %v", role, err)
		}
	}
	for _, name := range who[1:] {
		if err := ledger.Grant(ctx, l.as[name], l.role["stranger"], l.role["visitor"]); !isDenied(err) {
			t.Errorf("granted by %s: %v", name, err)
		}
	}
	// What everybody may do again after restoring a dump without privileges.
	l.mustExec(t, "grant execute on all functions in schema ledger to public; grant select on all tables in schema ledger to public")
	ok(t, ledger.Grant(ctx, owner, "", ""))
	for _, sql := range []string{"select ledger.new_id()", "select * from ledger.transfers"} {
		if code, err := try(t, l.as["visitor"], sql); code != denied {
			t.Errorf("%s is still open to everybody: %v", sql, err)
		}
	}
	// In a transaction of the caller's, of which it becomes part.
	tx, err := owner.Begin(ctx)
	ok(t, err)
	err = ledger.Grant(ctx, tx, "nobody", "")
	if !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("in a transaction: %v", err)
	}
	ok(t, ledger.Grant(ctx, tx, l.role["visitor"], ""))
	ok(t, tx.Rollback(ctx))
	if code, err := try(t, l.as["visitor"], "select * from ledger.transfers"); code != denied {
		t.Errorf("rolled back: %v", err)
	}
}

// Installing creates no role and grants nothing; several databases may create the roles at once.
func TestCreateRoles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{}) // a cluster whose roles are nobody else's
	const n = 6
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		database, err := server.CreateDatabase(ctx)
		ok(t, err)
		conns[i] = connectAs(t, server.ConnString(database), "")
	}
	before := column[string](t, conns[0], "select rolname from pg_roles order by 1")
	ok(t, ledger.Install(ctx, conns[0]))
	if after := column[string](t, conns[0], "select rolname from pg_roles order by 1"); !slices.Equal(after, before) {
		t.Errorf("installing created roles: %q", after)
	}
	if grants := column[string](t, conns[0], `select distinct a.grantee::text from pg_class c cross join aclexplode(c.relacl) a where relnamespace = 'ledger'::regnamespace and a.grantee <> c.relowner
		union all select distinct a.grantee::text from pg_proc p cross join aclexplode(p.proacl) a where pronamespace = 'ledger'::regnamespace and a.grantee <> p.proowner`); len(grants) != 0 {
		t.Errorf("installing granted something to %q", grants)
	}

	weak := connectAs(t, conns[0].Config().ConnString(), pgserver.Role(t, server, "weak"))
	if err := ledger.CreateRoles(ctx, weak); !isDenied(err) {
		t.Errorf("without CREATEROLE: %v", err)
	}
	for round := range 3 {
		var all sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			all.Go(func() { errs[i] = ledger.CreateRoles(ctx, conns[i]) })
		}
		all.Wait()
		ok(t, errors.Join(errs...))
		created := column[string](t, conns[0], "select format('%s %s %s', rolname, rolcanlogin, shobj_description(oid, 'pg_authid') like 'May read%') from pg_roles where rolname like 'ledger%' order by 1")
		if want := []string{ledger.ReaderRole + " f t", ledger.WriterRole + " f t"}; !slices.Equal(created, want) {
			t.Errorf("round %d: %q, want %q", round, created, want)
		}
		if round == 0 {
			ok(t, ledger.CreateRoles(ctx, weak)) // nothing is left to do
			ok(t, ledger.Grant(ctx, conns[0], ledger.ReaderRole, ledger.WriterRole))
			_, err := conns[0].Exec(ctx, fmt.Sprintf("drop owned by %s, %[2]s; drop role %[1]s; drop role %[2]s", ledger.ReaderRole, ledger.WriterRole))
			ok(t, err)
		}
	}
}

// With CREATEROLE and nothing else.
func TestCreateRolesAsAnOrdinaryRole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{})
	super := connectAs(t, server.ConnString("postgres"), "")
	_, err := super.Exec(ctx, "create role maker login createrole")
	ok(t, err)
	maker := connectAs(t, server.ConnString("postgres"), "maker")
	tx, err := maker.Begin(ctx)
	ok(t, err)
	ok(t, ledger.CreateRoles(ctx, tx))
	ok(t, tx.Commit(ctx))
	ok(t, ledger.CreateRoles(ctx, maker))
	if roles := column[string](t, super, "select rolname from pg_roles where rolname like 'ledger%'"); len(roles) != 2 {
		t.Errorf("roles: %q", roles)
	}
}
