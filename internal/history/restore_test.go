package history_test

import (
	"errors"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
)

// dumpAndRestore copies a database with pg_dump into a fresh one.
func dumpAndRestore(t *testing.T, from *pgxpool.Pool, to string) {
	t.Helper()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := command(program, "--version"); err != nil {
			t.Skip("there is no " + program)
		}
	}
	dump, err := command("pg_dump", "-d", from.Config().ConnString())
	if err != nil {
		if strings.Contains(dump, "server version mismatch") {
			t.Skip("pg_dump is older than the server")
		}
		t.Fatalf("%v: %s", err, dump)
	}
	restore := osexec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", to)
	restore.Stdin = strings.NewReader(dump)
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func command(program string, args ...string) (string, error) {
	out, err := osexec.Command(program, args...).CombinedOutput()
	return string(out), err
}

func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	run := func(db *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := db.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	// Columns are numbered anew by a restore where some were dropped.
	run(pool, oddTable+`; create table t (gone int, id int primary key, a text, b int); alter table t drop gone; insert into t values (1, 'x', 1), (2, 'y', 2);
		create table p (id int, k int, primary key (id, k)) partition by list (k); create table p1 partition of p for values in (1);
		create table dropped (id int primary key); create table s (id int primary key, who name); alter table s enable row level security; create policy x on s using (who = current_user)`)
	ids := map[string]int{}
	for _, table := range []string{`"Sch ema"."ta""ble"`, "t", "p", "dropped", "s"} {
		ids[table] = track(t, pool, table, "")
	}
	run(pool, `update t set b = 5 where id = 1; insert into p values (1, 1); alter table t add c int; update t set c = 1; insert into "Sch ema"."ta""ble" (v, "select") values (1, 1)`)
	run(pool, "insert into s values (1, 'a')")
	run(pool, "alter event trigger annals_drop disable; drop table dropped; alter event trigger annals_drop enable") // unnoticed
	if _, err := history.Untrack(ctx, pool, `"Sch ema"."ta""ble"`, "test"); err != nil {
		t.Fatal(err)
	}
	c, err := history.Now(ctx, pool)
	ok(t, err)
	// Many transactions later, so that the new cluster's ids are lower than those of the history.
	to := pgserver.New(t, pgserver.Options{})
	name, err := to.CreateDatabase(ctx)
	ok(t, err)
	dumpAndRestore(t, pool, to.ConnString(name))
	there, err := pgxpool.New(ctx, to.ConnString(name))
	ok(t, err)
	t.Cleanup(there.Close)

	if got := findings(t, there); len(got) < 4 || !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "restored: ") }) {
		t.Errorf("Check reports %q", got)
	}
	if _, err := history.Now(ctx, there); !errors.Is(err, history.ErrRestored) {
		t.Errorf("a coordinate before the histories are adopted: %v", err)
	}
	run(there, "update t set c = 2 where id = 2") // captured all the same
	adopted, err := history.Adopt(ctx, there)
	ok(t, err)
	if adopted != 4 {
		t.Errorf("adopted %d histories, want 4", adopted)
	}
	assertWell(t, there)
	if again, err := history.Adopt(ctx, there); err != nil || again != 0 {
		t.Errorf("adopted again: %d, %v", again, err)
	}
	if err := resolve(there, c); !errors.Is(err, history.ErrEpoch) {
		t.Errorf("a coordinate of before the restore: %v", err)
	}
	before, err := history.Now(ctx, there)
	ok(t, err)
	run(there, "update t set c = 3 where id = 2; insert into p values (2, 1); alter table t add d int default 9; update t set d = 8 where id = 1; insert into s values (2, 'b')")
	got := many[string](t, there, fmt.Sprintf("select format('%%s %%s %%s %%s %%s', epoch, c1, c3, c4, c5) from annals.h%d order by v", ids["t"]))
	if want := []string{"1 1 1  ", "1 2 2  ", "1 1 5  ", "1 2 2 1 ", "2 2 2 2 ", "2 1 5 1 9"}; !slices.Equal(got, want) {
		t.Errorf("the history has %q, want %q", got, want)
	}
	// Old ids are not confused with new ones: what a coordinate does not see is of its own epoch.
	if n := one[int](t, there, fmt.Sprintf("select count(*) from annals.h%d where epoch = (select max(number) from annals.epoch) and not pg_visible_in_snapshot(xid, annals.coordinate_snapshot($1))", ids["t"]), string(before)); n != 2 {
		t.Errorf("%d entries are later than the coordinate, want 2", n)
	}
	for table, id := range ids {
		why := one[*string](t, there, "select annals.unreadable($1, annals.coordinate_snapshot($2))", id, string(before))
		if (why == nil) != slices.Contains([]string{"t", "p", "s"}, table) {
			t.Errorf("%s: %v", table, why)
		}
	}
	if one[bool](t, there, "select relation is not null or ended_v is null from annals.tracked where id = $1", ids["dropped"]) {
		t.Error("a number in the dump was taken for a table")
	}
	run(there, fmt.Sprintf("select * from annals.h%d", ids[`"Sch ema"."ta""ble"`]))
	if _, err := history.SealSegments(ctx, there); err != nil {
		t.Fatal(err)
	}
	assertWell(t, there)
}

// TestAdoptMeetsAnotherRelation: what was the number of a dropped table is that of a sequence now.
func TestAdoptMeetsAnotherRelation(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key); create table gone (id int primary key); create table other (id int primary key); create sequence elsewhere")
	track(t, pool, "t", "")
	track(t, pool, "gone", "")
	track(t, pool, "other", "")
	// And the number that other had is that of table t.
	exec(t, pool, "update annals.tracked set relation = 'elsewhere'::regclass::oid where id = 2; update annals.tracked set relation_oid = 1 where id = 1; update annals.tracked set relation_oid = 't'::regclass where id = 3; update annals.epoch set home = 'elsewhere'")
	if adopted, err := history.Adopt(t.Context(), pool); err != nil || adopted != 3 {
		t.Errorf("adopted %d: %v", adopted, err)
	}
	if why := one[string](t, pool, "select ended_why from annals.tracked where id = 2"); why != "not found after a restore" {
		t.Errorf("ended: %s", why)
	}
	assertWell(t, pool)
}
