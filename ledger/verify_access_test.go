package ledger_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// Every table but the record of the installation has a guard, and Verify notices when it is gone.
func TestVerifyFindsEachGuardThatIsOff(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	tables := column[string](t, b.pool, "select relname from pg_class where relnamespace = 'ledger'::regnamespace and relkind in ('r', 'p') and relname <> 'annals_step'")
	if len(tables) < 10 {
		t.Fatalf("tables: %q", tables)
	}
	for _, table := range tables {
		guards := column[string](t, b.pool, "select tgname from pg_trigger where tgrelid = $1::regclass and tgname like 'guard%' order by tgname", "ledger."+table)
		for _, off := range []string{"disable trigger %s", "enable replica trigger %s"} {
			for _, guard := range guards {
				tx := b.spoil(t, "alter table ledger."+table+" "+strings.ReplaceAll(off, "%s", guard))
				found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
				if len(found) != 1 || found[0].Kind != ledger.ProblemGuard || !strings.Contains(found[0].Message, guard+" on ledger."+table+" is disabled") {
					t.Errorf("%s with %s: %+v", table, off, found)
				}
				ok(t, tx.Rollback(t.Context()))
			}
		}
		tx := b.spoil(t, "alter table ledger."+table+" disable trigger all")
		found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
		if len(guards) == 0 || len(found) != len(guards) {
			t.Errorf("%s without triggers: %+v", table, found)
		}
		ok(t, tx.Rollback(t.Context()))
	}
}

func TestVerifyFindsWhatOpensTheBooks(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	role := pgserver.Role(t, pgserver.Shared(t), `some "one`)
	for _, c := range []struct {
		name, sql string
		kind      ledger.ProblemKind
		want      []string // a part of each message
	}{
		{"a guard dropped", "drop trigger guard_books on ledger.transfer", ledger.ProblemGuard, []string{"trigger guard_books on ledger.transfer is missing"}},
		{"a guard for less", "create or replace trigger guard_books before update on ledger.transfer for each statement execute function ledger.guard_books()",
			ledger.ProblemGuard, []string{"trigger guard_books on ledger.transfer is not as it was installed"}},
		{"a guard that never fires", "create or replace trigger guard_books before update or delete or truncate on ledger.transfer for each statement when (false) execute function ledger.guard_books()",
			ledger.ProblemGuard, []string{"is not as it was installed"}},
		{"a guard that does nothing", `create function public.guard_books() returns trigger language plpgsql as 'begin return null; end';
			create or replace trigger guard_books before update or delete or truncate on ledger.transfer for each statement execute function public.guard_books()`,
			ledger.ProblemGuard, []string{"is not as it was installed"}},
		{"a privilege", "grant update on ledger.transfer to ROLE", ledger.ProblemPrivilege, []string{"role ROLE may UPDATE on ledger.transfer"}},
		{"privileges", "grant insert, delete, truncate, references, trigger on ledger.posting to ROLE", ledger.ProblemPrivilege, []string{"role ROLE may INSERT, DELETE, TRUNCATE, REFERENCES, TRIGGER on ledger.posting"}},
		{"a privilege on a column", "grant update (balance) on ledger.balance to ROLE", ledger.ProblemPrivilege, []string{"role ROLE may UPDATE on ledger.balance"}},
		{"a privilege of everybody", "grant insert on ledger.hold to public", ledger.ProblemPrivilege, []string{"everybody may INSERT on ledger.hold"}},
		{"a privilege of everybody and more", "grant insert on ledger.hold to public; grant delete on ledger.hold to ROLE", ledger.ProblemPrivilege, []string{"everybody may INSERT on ledger.hold", "role ROLE may INSERT, DELETE on ledger.hold"}},
		{"a privilege on the record of steps", "grant update on ledger.annals_step to ROLE", ledger.ProblemPrivilege, []string{"ledger.annals_step"}},
		{"a table that belongs to another", "alter table ledger.hold owner to ROLE", ledger.ProblemPrivilege,
			[]string{"role ROLE may INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER on ledger.hold", "table ledger.hold belongs to ROLE"}},
		{"a function without a pinned search_path", "alter function ledger.void_hold(uuid) reset search_path", ledger.ProblemFunction, []string{"ledger.void_hold(uuid) runs with the rights of its owner"}},
		{"a function with another search_path", "alter function ledger.void_hold(uuid) set search_path = public, pg_catalog, pg_temp", ledger.ProblemFunction, []string{"ledger.void_hold(uuid) runs with"}},
		{"a function that belongs to another", "alter function ledger.void_hold(uuid) owner to ROLE", ledger.ProblemFunction, []string{"ledger.void_hold(uuid) belongs to ROLE"}},
		{"a function with another text", "create or replace function ledger.guard_update() returns trigger language plpgsql as 'begin return null; end'", ledger.ProblemFunction, []string{"function ledger.guard_update is not as it was installed"}},
		{"a function under a name that is there", "create function ledger.transfer(text) returns int language plpgsql as 'begin return 1; end'", ledger.ProblemFunction, []string{"function ledger.transfer is not as it was installed"}},
		{"a function for everybody", "grant execute on function ledger.void_hold, ledger.new_id, ledger.transfer to public", ledger.ProblemPrivilege, []string{"everybody may execute functions that book with the rights of the owner: transfer, void_hold;"}},
		{"row-level security", "alter table ledger.posting enable row level security", ledger.ProblemRowSecurity, []string{"row-level security is on for ledger.posting"}},
		{"a role without triggers", "alter role ROLE set session_replication_role = replica", ledger.ProblemReplicaRole, []string{"session_replication_role is replica for role ROLE:"}},
		{"a database without triggers", "do $$ begin execute format('alter database %I set session_replication_role = replica', current_database()); end $$", ledger.ProblemReplicaRole,
			[]string{"session_replication_role is replica in database annals_"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			quoted := `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
			tx := b.spoil(t, strings.ReplaceAll(c.sql, "ROLE", quoted))
			found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
			if len(found) != len(c.want) {
				t.Fatalf("found %+v", found)
			}
			for _, want := range c.want {
				want = strings.ReplaceAll(want, "ROLE", quoted)
				if !slices.ContainsFunc(found, func(p ledger.Problem) bool { return p.Kind == c.kind && strings.Contains(p.Message, want) }) {
					t.Errorf("not %s %q in %+v", c.kind, want, found)
				}
			}
		})
	}
}

func TestVerifyFindsASessionWithoutTriggers(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "set local session_replication_role = replica")
	ok(t, err)
	found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
	if len(found) != 1 || found[0].Kind != ledger.ProblemReplicaRole || found[0].Found != "replica" {
		t.Errorf("%+v", found)
	}
}

// Roles belong to the cluster, and others may drop one whom this transaction still sees.
func TestVerifyAfterARoleWasDropped(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	role := pgx.Identifier{"passing_" + rand.Text()}.Sanitize()
	_, err := pool.Exec(t.Context(), "create role "+role)
	ok(t, err)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	ok(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select from pg_roles")
	ok(t, err)
	_, err = pool.Exec(t.Context(), "drop role "+role)
	ok(t, err)
	for _, p := range problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{})) {
		t.Errorf("%+v", p)
	}
}

// A program does not judge the functions of another version.
func TestVerifyLeavesFunctionsOfAnotherVersionAlone(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	_, err := pool.Exec(t.Context(), `insert into ledger.annals_step (version, name, package) values (999, 'x', 'ledger');
		create or replace function ledger.guard_update() returns trigger language plpgsql as 'begin return null; end'`)
	ok(t, err)
	for _, p := range problems(t, books.Verify(t.Context(), ledger.VerifyOptions{})) {
		t.Errorf("%+v", p)
	}
}

// Members of pg_write_all_data may write every table; members of the owner are the owner.
func TestVerifyListsMembers(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	role := pgserver.Role(t, pgserver.Shared(t), "someone")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "grant pg_write_all_data to "+role)
	ok(t, err)
	found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
	if len(found) == 0 {
		t.Error("nothing found")
	}
	for _, p := range found {
		if p.Kind != ledger.ProblemPrivilege || !strings.Contains(p.Message, "role "+role+" may INSERT, UPDATE, DELETE on ") {
			t.Errorf("%+v", p)
		}
	}
	ok(t, tx.Rollback(t.Context()))
	if found := problems(t, books.Verify(t.Context(), ledger.VerifyOptions{})); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// column reads a query's one column.
func column[T any](t testing.TB, db ledger.DB, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	ok(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	ok(t, err)
	return values
}
