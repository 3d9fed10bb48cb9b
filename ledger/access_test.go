package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
