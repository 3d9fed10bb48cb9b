package ledger_test

import (
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
	l.mustExec(t, `grant execute on all functions in schema ledger to public; grant select on all tables in schema ledger to public;
		grant usage on schema ledger to public; grant usage on all sequences in schema ledger to public`)
	ok(t, ledger.Grant(ctx, owner, "", ""))
	if left := column[bool](t, l.super, "select has_schema_privilege('public', 'ledger', 'usage') or has_sequence_privilege('public', 'ledger.account_no_seq', 'usage')"); left[0] {
		t.Error("the schema or its sequences are still open to everybody")
	}
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
