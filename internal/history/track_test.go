package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/internal/schema"
)

// oddTable has names that must be quoted, and that are those of variables in the engine.
const oddTable = `create schema "Sch ema"; create table "Sch ema"."ta""ble" (v int, xid text, "select" int, op int, h text, l text, n int, m int, old text, new text, e int, primary key (v, "select"))`

// ours lists what capture put on users' tables.
func ours(t testing.TB, db pgtx.DB) []string {
	t.Helper()
	return many[string](t, db, `select format('%s on %s: %s', g.tgname, g.tgrelid::regclass, obj_description(g.oid, 'pg_trigger'))
		from pg_trigger g join pg_proc p on p.oid = g.tgfoid join pg_class c on c.oid = g.tgrelid
		where p.pronamespace = 'annals'::regnamespace and c.relnamespace <> p.pronamespace and not g.tgisinternal and g.tgparentid = 0 order by 1`)
}

// findings are what Check reports, as "what: detail".
func findings(t testing.TB, db pgtx.DB) (list []string) {
	t.Helper()
	all, err := history.Check(t.Context(), db)
	ok(t, err)
	for _, f := range all {
		list = append(list, f.What+": "+f.Detail)
	}
	return list
}

func assertWell(t testing.TB, db pgtx.DB) {
	t.Helper()
	if f := findings(t, db); f != nil {
		t.Errorf("Check reports %q", f)
	}
}

func gaps(t testing.TB, db pgtx.DB, id history.ID) []string {
	t.Helper()
	return many[string](t, db, "select why || case when lossless then ' (lossless)' else '' end from annals.gap where tracked = $1 order by v", int(id))
}

func yes() *bool { b := true; return &b }

func TestUntrackRemovesAllAndKeepsHistory(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, oddTable)
	exec(t, pool, `create table p (id int, k int, primary key (id, k)) partition by list (k); create table p1 partition of p for values in (1)`)
	for _, table := range []string{`"Sch ema"."ta""ble"`, "p"} {
		for _, options := range []history.Options{{}, {Form: "row"}, {SkipNoop: yes()}, {Replica: yes()}, {Wide: []string{}, WarnRows: 5}} {
			id, err := history.Track(ctx, pool, table, "one", options)
			ok(t, err)
			again, err := history.Track(ctx, pool, table, "two", options)
			ok(t, err)
			if again != id {
				t.Fatalf("tracked again as %d, was %d", again, id)
			}
			list := ours(t, pool)
			if len(list) < 4 {
				t.Errorf("only %q", list)
			}
			for _, trigger := range list {
				if !strings.HasPrefix(trigger, "annals_") || !strings.Contains(trigger, "annals.untrack removes it.") {
					t.Errorf("%s %+v: %s", table, options, trigger)
				}
			}
			missing, err := schema.Uncommented(ctx, pool, "annals")
			ok(t, err)
			if len(missing) > 0 {
				t.Errorf("without comments: %q", missing)
			}
			assertWell(t, pool)
			if table == "p" {
				exec(t, pool, "insert into p values (1, 1)")
				exec(t, pool, "delete from p1")
			} else {
				exec(t, pool, `insert into "Sch ema"."ta""ble" (v, "select", old) values (1, 2, 'o')`)
				exec(t, pool, `delete from "Sch ema"."ta""ble"`)
			}
			for _, user := range []string{"three", "one"} {
				if was, err := history.Untrack(ctx, pool, table, user); err != nil || was != (user == "one") {
					t.Fatalf("untracked by %s: %t, %v", user, was, err)
				}
			}
			if len(ours(t, pool)) != len(list) {
				t.Error("the history ended while another package wants it")
			}
			if _, err := history.Untrack(ctx, pool, table, "two"); err != nil {
				t.Fatal(err)
			}
			if left := ours(t, pool); len(left) > 0 {
				t.Errorf("left on the table: %q", left)
			}
			if n := one[int](t, pool, "select count(*) from pg_proc where proname like format('h%s\\_%%', $1::int)", int(id)); n != 0 {
				t.Errorf("%d capture functions are left", n)
			}
			if ops := many[string](t, pool, fmt.Sprintf("select op::text from annals.h%d order by v", id)); !slices.Equal(ops, []string{"i", "d"}) {
				t.Errorf("entries are %q", ops)
			}
			if got := gaps(t, pool, id); !slices.Equal(got, []string{"untracked"}) {
				t.Errorf("interruptions are %q", got)
			}
		}
	}
}

func TestTrackKeepsWhatFits(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a text, b text)")
	id, err := history.Track(ctx, pool, "t", "one", history.Options{})
	ok(t, err)
	triggers := func() []uint32 {
		return many[uint32](t, pool, "select oid from pg_trigger where tgrelid = 't'::regclass order by 1")
	}
	before := triggers()
	_, err = history.Track(ctx, pool, "t", "two", history.Options{})
	ok(t, err)
	if changed, err := history.Sync(ctx, pool, id); err != nil || changed {
		t.Errorf("sync: %t, %v", changed, err)
	}
	exec(t, pool, "alter table t add c int; alter table t rename id to key; create index on t (a); alter table t set (fillfactor = 90)")
	if after := triggers(); !slices.Equal(after, before) {
		t.Errorf("triggers were replaced without need: %v, then %v", before, after)
	}
	if n := one[int](t, pool, "select count(*) from annals.segment"); n != 2 {
		t.Errorf("%d segments, want one more for one column more", n)
	}
	_, err = history.Track(ctx, pool, "t", "two", history.Options{Exclude: []string{"b"}})
	ok(t, err)
	exec(t, pool, "insert into t values (1, 'a', 'secret'); update t set b = 'hush'")
	if n := one[int](t, pool, "select count(*) from annals.h1 h where h::text like '%secret%'"); n != 0 {
		t.Error("an excluded column was stored")
	}
	assertWell(t, pool)
}

func TestTrackRefuses(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, `create table nokey (id int); create table deferred (id int primary key deferrable initially deferred); create unlogged table u (id int primary key);
		create table p (id int primary key) partition by range (id); create table p1 partition of p default; create view w as select 1; create table t (id int primary key, a text)`)
	for table, reason := range map[string]string{"nokey": "no primary key", "deferred": "INITIALLY DEFERRED", "u": "unlogged", "p1": "partition", "w": "no table", "pg_class": "system", "annals.gap": "system"} {
		_, err := history.Track(ctx, pool, table, "test", history.Options{})
		var refusal *history.Error
		if !errors.As(err, &refusal) || !errors.Is(err, history.ErrUntrackable) || !strings.Contains(refusal.Reason, reason) || refusal.Table == "" {
			t.Errorf("%s: %v", table, err)
		}
	}
	for _, options := range []string{`[]`, `null`, `{"exclude": "a"}`, `{"exclude": [1]}`, `{"exclude": ["id"]}`, `{"exclude": ["b"]}`, `{"skip_noop": "banana"}`, `{"full": 1}`, `{"warn_rows": 0}`, `{"warn_rows": "1"}`,
		`{"warn_rows": 1.5}`, `{"truncate": "x"}`, `{"form": "statement"}`, `{"other": 1}`, `{"wide": {}}`} {
		_, err := pool.Exec(ctx, "select annals.track('t', 'test', $1::text::jsonb)", options)
		if !errors.Is(history.Refused(err), history.ErrOption) {
			t.Errorf("%s: %v", options, err)
		}
	}
	if _, err := history.Sync(ctx, pool, 77); !errors.Is(err, history.ErrNotTracked) {
		t.Error(err)
	}
	if left := ours(t, pool); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestTrackMakesWayForWriters(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a int); insert into t values (1, 0)")
	writer, err := pool.Begin(ctx)
	ok(t, err)
	exec(t, writer, "update t set a = 1")
	tx, err := pool.Begin(ctx)
	ok(t, err)
	var pgErr *pgconn.PgError
	if _, err := history.Track(ctx, tx, "t", "test", history.Options{}); !errors.As(err, &pgErr) || pgErr.Code != "55P03" {
		t.Errorf("in a transaction: %v", err)
	}
	exec(t, tx, "select 1")
	ok(t, tx.Rollback(ctx))
	tracked := make(chan error)
	go func() {
		_, err := history.Track(ctx, pool, "t", "test", history.Options{})
		tracked <- err
	}()
	// A write that queues behind it is let through.
	exec(t, pool, "insert into t values (2, 0)")
	ok(t, writer.Commit(ctx))
	ok(t, <-tracked)
	exec(t, pool, "update t set a = 2 where id = 1")
	if n := one[int](t, pool, "select c2 from annals.h1"); n != 1 {
		t.Errorf("the old value is %d", n)
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, oddTable)
	exec(t, pool, `create table p (id int primary key) partition by range (id); create table p1 partition of p default; alter table p enable row level security; create policy x on p using (id > 0)`)
	track(t, pool, `"Sch ema"."ta""ble"`, "")
	track(t, pool, "p", "")
	ok(t, schema.Uninstall(ctx, pool, history.Objects))
	if n := one[int](t, pool, "select count(*) from pg_trigger"); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
	if n := one[int](t, pool, "select count(*) from pg_event_trigger"); n != 0 {
		t.Errorf("%d event triggers are left", n)
	}
	exec(t, pool, "insert into p values (1); alter table p add x int; drop table p")
	ok(t, history.Install(ctx, pool))
}

func TestNoSessionStateIsLeft(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key); create table nokey (id int)")
	tx, err := session(t, pool).Begin(ctx)
	ok(t, err)
	for name, fn := range map[string]func() error{
		"track":  func() error { _, err := history.Track(ctx, tx, "t", "test", history.Options{}); return err },
		"refuse": func() error { _, err := history.Track(ctx, tx, "nokey", "test", history.Options{}); return err },
		"ddl":    func() error { _, err := tx.Exec(ctx, "alter table t add if not exists a int"); return err },
		"sync":   func() error { _, err := history.Sync(ctx, tx, 1); return err },
		"rotate": func() error { _, err := history.Rotate(ctx, tx, 1, 1); return err },
		"seal":   func() error { _, err := history.SealSegments(ctx, tx); return err },
		"prune":  func() error { _, err := history.Prune(ctx, tx, 1, 0); return err },
		"now":    func() error { _, err := history.Now(ctx, tx); return err },
	} {
		pgtxtest.AssertSessionUnchanged(t, tx.Conn(), func() {
			if err := fn(); (err != nil) != (name == "refuse") && !errors.Is(err, history.ErrNotTracked) {
				t.Errorf("%s: %v", name, err)
			}
		}, "annals.working")
	}
}

// ordinary returns pools of an ordinary role that installed the engine, and of the superuser.
func ordinary(t *testing.T) (own, super *pgxpool.Pool) {
	t.Helper()
	super = pgserver.Pool(t)
	role := pgserver.Role(t, pgserver.Shared(t), "installer")
	exec(t, super, "grant create on database "+super.Config().ConnConfig.Database+" to "+role+"; grant all on schema public to "+role)
	own, err := pgxpool.New(t.Context(), super.Config().ConnString()+" user="+role)
	ok(t, err)
	t.Cleanup(own.Close)
	ok(t, history.Install(t.Context(), own))
	return own, super
}

func TestOrdinaryRoleInstalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, super := ordinary(t)
	if one[bool](t, pool, "select annals.follows_ddl()") {
		t.Fatal("it has event triggers")
	}
	exec(t, super, "create table public.foreigner (id int primary key)")
	if _, err := history.Track(ctx, pool, "foreigner", "test", history.Options{}); !errors.Is(err, history.ErrUntrackable) || !strings.Contains(err.Error(), "not a member") {
		t.Errorf("a table of somebody else's: %v", err)
	}
	exec(t, pool, "create table t (id int primary key, a text, b int); insert into t values (1, 'a', 1), (2, 'b', 2)")
	id, err := history.Track(ctx, pool, "t", "test", history.Options{})
	ok(t, err)
	_, err = history.Now(ctx, pool)
	ok(t, err)
	_, err = history.Tick(ctx, pool)
	ok(t, err)

	exec(t, pool, "alter table t add c int")
	exec(t, pool, "update t set c = 1 where id = 1")
	if got := findings(t, pool); !slices.Equal(got, []string{"column: column c is new and not captured"}) {
		t.Errorf("after ADD COLUMN: %q", got)
	}
	sync := func(want bool) {
		t.Helper()
		if changed, err := history.Sync(ctx, pool, id); err != nil || changed != want {
			t.Errorf("sync: %t, %v", changed, err)
		}
		assertWell(t, pool)
	}
	sync(true)
	sync(false)
	exec(t, pool, "update t set c = 2 where id = 1")
	if old := one[int](t, pool, "select c4 from annals.h1 order by v desc limit 1"); old != 1 {
		t.Errorf("the old value is %d", old)
	}
	if got := gaps(t, pool, id); len(got) > 0 {
		t.Errorf("interrupted: %q", got)
	}

	for _, ddl := range []string{"alter table t rename a to aa", "alter table t drop b"} {
		exec(t, pool, ddl)
		_, err := pool.Exec(ctx, "update t set c = 3 where id = 1")
		if err == nil || !strings.Contains(err.Error(), "annals.sync(1)") {
			t.Errorf("%s: a write says %v", ddl, err)
		}
		sync(true)
		exec(t, pool, "update t set c = 3 where id = 1")
	}
	if got := gaps(t, pool, id); len(got) > 0 {
		t.Errorf("interrupted: %q", got)
	}

	exec(t, pool, "alter table t alter c type bigint using -c")
	if got := findings(t, pool); len(got) != 2 {
		t.Errorf("after a new type: %q", got)
	}
	sync(true)
	exec(t, pool, "alter table t alter c type bigint using -c")
	if got := findings(t, pool); !slices.Equal(got, []string{"rewritten: ALTER TABLE rewrote values of public.t"}) {
		t.Errorf("after the same type again: %q", got)
	}
	sync(true)
	exec(t, pool, "alter table t disable trigger annals_move")
	sync(true)
	if got := gaps(t, pool, id); len(got) != 3 {
		t.Errorf("interruptions: %q", got)
	}
	exec(t, pool, "vacuum full t")
	assertWell(t, pool)

	exec(t, pool, `alter table t enable row level security; alter table t rename to t2`)
	if got := findings(t, pool); len(got) != 2 {
		t.Errorf("after a name and a policy: %q", got)
	}
	sync(true)
	exec(t, pool, "drop table t2; create table t2 (id int primary key)")
	if got := findings(t, pool); !slices.Equal(got, []string{"dropped: table public.t2 does not exist any more"}) {
		t.Errorf("after DROP: %q", got)
	}
	sync(true)
	if second, err := history.Track(ctx, pool, "t2", "test", history.Options{}); err != nil || second == id {
		t.Errorf("another table of the name: %d, %v", second, err)
	}
}

func TestOrdinaryRolePartitions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, _ := ordinary(t)
	exec(t, pool, "create table p (id int, k int, a int, primary key (id, k)) partition by list (k); create table p1 partition of p for values in (1)")
	id, err := history.Track(ctx, pool, "p", "test", history.Options{})
	ok(t, err)
	if form := one[string](t, pool, "select form from annals.tracked"); form != "row" {
		t.Errorf("captured by %s", form)
	}
	exec(t, pool, "create table p2 partition of p for values in (2)")
	exec(t, pool, "insert into p values (1, 2, 0)")
	exec(t, pool, "update p2 set a = 1")
	if ops := many[string](t, pool, "select op::text from annals.h1 order by v"); !slices.Equal(ops, []string{"i", "u"}) {
		t.Errorf("entries are %q", ops)
	}
	if len(findings(t, pool)) == 0 {
		t.Error("the new partition is not reported")
	}
	_, err = history.Sync(ctx, pool, id)
	ok(t, err)
	assertWell(t, pool)
	if got := gaps(t, pool, id); !slices.Equal(got, []string{"partition public.p2 came"}) {
		t.Errorf("interruptions: %q", got)
	}
	// In one transaction nothing can have gone by.
	ok(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		exec(t, tx, "create table p3 partition of p for values in (3)")
		_, err := history.Sync(ctx, tx, id)
		return err
	}))
	if got := gaps(t, pool, id); len(got) != 1 {
		t.Errorf("interruptions: %q", got)
	}
	exec(t, pool, "alter table p detach partition p2")
	exec(t, pool, "update p2 set a = 2")
	_, err = history.Sync(ctx, pool, id)
	ok(t, err)
	if got := gaps(t, pool, id); len(got) != 2 {
		t.Errorf("interruptions: %q", got)
	}
	for _, trigger := range ours(t, pool) {
		if strings.Contains(trigger, "p2") {
			t.Errorf("left on a detached partition: %s", trigger)
		}
	}
}
