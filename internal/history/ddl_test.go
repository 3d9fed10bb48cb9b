package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

// lastImage is what the last entry of a history holds, as JSON of the present columns' names.
func lastImage(t testing.TB, db pgtx.DB, id int) string {
	t.Helper()
	list := one[string](t, db, `select string_agg(format('%L, c%s', c.name, c.n), ', ' order by c.n) from annals.tracked_column c where c.tracked = $1 and c.gone_v is null
		and exists (select from pg_attribute a where a.attrelid = format('annals.h%s', $1::int)::regclass and a.attname = 'c' || c.n)`, id)
	return one[string](t, db, fmt.Sprintf("select jsonb_build_object(%s)::text from annals.h%d order by v desc limit 1", list, id))
}

// TestDDLIsFollowed: each command is executed by an ordinary role that owns the table, between two writes in one transaction. Capture
// fits afterwards, and the second write's old image is the row that the command left.
func TestDDLIsFollowed(t *testing.T) {
	t.Parallel()
	const setup = "create table t (id int primary key, a text, b int not null default 5); insert into t values (1, 'x', 7), (2, 'y', 8); create table w (id int primary key); create function f() returns trigger language plpgsql as 'begin return new; end'"
	for _, c := range []struct{ ddl, table, set, image, gap string }{
		{"alter table t add c text", "t", "c = 'new'", `{"a": "x", "b": 8, "c": null, "id": 1}`, ""},
		{"alter table t add c text default 'd'", "t", "c = 'new'", `{"a": "x", "b": 8, "c": "d", "id": 1}`, ""},
		{"alter table t add c int generated always as (b + 1) stored", "t", "a = 'z'", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t drop a", "t", "b = 1", `{"b": 8, "id": 1}`, ""},
		{"alter table t drop a; alter table t add a text default 'other'", "t", "a = 'z'", `{"a": "other", "b": 8, "id": 1}`, ""},
		{"alter table t drop a, add a int default 3", "t", "a = 4", `{"a": 3, "b": 8, "id": 1}`, ""},
		{`alter table t rename a to "ta""ble"`, "t", "b = 1", `{"b": 8, "id": 1, "ta\"ble": "x"}`, ""},
		{"alter table t rename a to v", "t", "v = 'z'", `{"b": 8, "v": "x", "id": 1}`, ""},
		{"alter table t rename a to c; alter table t rename b to a; alter table t rename c to b", "t", "a = 1", `{"a": 8, "b": "x", "id": 1}`, ""},
		{"alter table t alter a type varchar(5)", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, "values were rewritten by ALTER TABLE"},
		{"alter table t alter a type int using length(a)", "t", "b = 1", `{"a": 1, "b": 8, "id": 1}`, "values were rewritten by ALTER TABLE"},
		{"alter table t alter b type int using -b", "t", "b = 1", `{"a": "x", "b": -8, "id": 1}`, "values were rewritten by ALTER TABLE"},
		{"alter table t alter b type bigint", "t", "b = 5000000000", `{"a": "x", "b": 8, "id": 1}`, "values were rewritten by ALTER TABLE"},
		{"alter table t alter id type bigint", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, "values were rewritten by ALTER TABLE"},
		{"alter table t drop id, add key serial, add primary key (key)", "t", "b = 1 where key = 1 --", ``, "the key changed"},
		{"alter table t rename to o", "o", "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{`create schema "Sch ema" authorization current_user; alter table t set schema "Sch ema"`, `"Sch ema".t`, "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{`create schema s authorization current_user; alter table t set schema s; alter schema s rename to s2`, `s2.t`, "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t drop constraint t_pkey, add primary key (id, b)", "t", "a = 'z'", `{"a": "x", "b": 8, "id": 1}`, "the key changed"},
		{"alter table t drop constraint t_pkey; update t set a = 'q' where id = 2; alter table t add primary key (id)", "t", "a = 'z'", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t drop constraint t_pkey; insert into t values (2, '', 1); delete from t where b = 1; alter table t add primary key (id)", "t", "a = 'z'", `{"a": "x", "b": 8, "id": 1}`, "it had no key for a while"},
		{"create unique index u on t (id); alter table t drop constraint t_pkey, add primary key using index u", "t", "a = 'z'", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t alter b drop not null, alter b drop default, set (fillfactor = 50)", "t", "b = null", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"create trigger user_trigger before update on t for each row execute function f()", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"create table child (extra int) inherits (t); drop table child", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t enable row level security; create policy p on t using (b > 0); alter policy p on t using (b > 1 and a is not null); drop policy p on t; alter table t disable row level security", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"drop trigger annals_capture_update on t", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, ""},
		{"alter table t disable trigger all; alter table t enable trigger all", "t", "b = 1", `{"a": "x", "b": 8, "id": 1}`, "a trigger was disabled, triggers had been disabled"},
	} {
		t.Run(c.ddl, func(t *testing.T) {
			t.Parallel()
			ctx, super := t.Context(), installed(t)
			role := pgserver.Role(t, pgserver.Shared(t), "owner")
			exec(t, super, "grant all on schema public to "+role+"; grant create on database "+super.Config().ConnConfig.Database+" to "+role)
			conn := session(t, super, "user="+role)
			exec(t, conn, setup)
			id := track(t, super, "t", "")
			exec(t, conn, "update t set a = 'x', b = 7 where id = 1")
			tx, err := conn.Begin(ctx)
			ok(t, err)
			exec(t, tx, "update t set b = 8 where id = 1")
			if strings.Contains(c.ddl, " trigger") { // which a transaction that has written may do as well
				ok(t, tx.Commit(ctx))
				tx, err = conn.Begin(ctx)
				ok(t, err)
			}
			if strings.HasPrefix(c.ddl, "alter table t alter id") || strings.HasPrefix(c.ddl, "alter table t drop id") {
				ok(t, tx.Rollback(ctx))
				if _, err := conn.Exec(ctx, c.ddl); err == nil || err.(*pgconn.PgError).Code != "2BP01" && err.(*pgconn.PgError).Code != "0A000" {
					t.Errorf("a key column: %v", err)
				}
				exec(t, super, "select annals.free_key($1)", id)
				tx, err = conn.Begin(ctx)
				ok(t, err)
				exec(t, tx, "update t set b = 8 where id = 1")
			}
			exec(t, tx, c.ddl)
			exec(t, tx, fmt.Sprintf("update %s set %s where id = 1", c.table, c.set))
			ok(t, tx.Commit(ctx))
			assertWell(t, super)
			if got := lastImage(t, super, id); c.image != "" && got != c.image {
				t.Errorf("the old image is %s, want %s", got, c.image)
			}
			if got := strings.Join(gaps(t, super, history.ID(id)), ", "); got != c.gap {
				t.Errorf("interruptions are %q, want %q", got, c.gap)
			}
			if c.image == "" {
				return
			}
			exec(t, super, fmt.Sprintf("insert into %[1]s (id) values (3); delete from %[1]s where id = 3; truncate %[1]s", c.table))
		})
	}
}

func TestTypeChangeBetweenSegments(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a varchar(20), b int); insert into t values (1, 'a long value', 1)")
	id := track(t, pool, "t", "")
	exec(t, pool, "update t set b = 2")
	exec(t, pool, "alter table t alter a type varchar(3) using left(a, 3), alter b type bigint")
	exec(t, pool, "update t set b = 5000000000")
	if got := many[string](t, pool, "select format('%s %s', c2, c3) from annals.h1 order by v"); !slices.Equal(got, []string{"a long value 1", "a l 2"}) {
		t.Errorf("old images are %q", got)
	}
	// Text can hold what no integer is: it stays what it was, and the integer is another column.
	exec(t, pool, "alter table t alter a type int using length(a)")
	exec(t, pool, "update t set a = 7")
	if got := many[string](t, pool, "select format('%s|%s|%s', c2, c3, c4) from annals.h1 order by v"); !slices.Equal(got, []string{"a long value|1|", "a l|2|", "|5000000000|3"}) {
		t.Errorf("old images are %q", got)
	}
	if from, last := one[int64](t, pool, "select annals.readable_from($1)", id), one[int64](t, pool, "select max(v) from annals.gap"); from != last {
		t.Errorf("readable from %d, interrupted at %d", from, last)
	}

	// With an image of every row nothing is lost.
	exec(t, pool, "update t set a = 8")
	before, err := history.Now(ctx, pool)
	ok(t, err)
	from := one[int64](t, pool, "select annals.readable_from($1)", id)
	ok(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		ok(t, history.Materialize(ctx, tx, history.ID(id)))
		_, err := tx.Exec(ctx, "alter table t alter a type int using -a")
		return err
	}))
	if got := one[int64](t, pool, "select annals.readable_from($1)", id); got != from {
		t.Errorf("readable from %d, was %d", got, from)
	}
	if got := one[int](t, pool, "select c4 from annals.h1 where not pg_visible_in_snapshot(xid, annals.coordinate_snapshot($1)) order by v limit 1", string(before)); got != 8 {
		t.Errorf("the value before was %d, want 8", got)
	}
}

func TestPartitionsAreFollowed(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"{}", `{"form": "row"}`} {
		pool := installed(t)
		exec(t, pool, `create table p (id int, k int, a text, primary key (id, k)) partition by list (k); create table p1 partition of p for values in (1); insert into p values (1, 1, 'a')`)
		id := track(t, pool, "p", options)
		last := func() string {
			t.Helper()
			return one[string](t, pool, "select string_agg(format('%s %s', op, c1), ', ' order by v, c1) from annals.h1 where xid = (select xid from annals.h1 order by v desc limit 1)")
		}
		for _, c := range []struct{ sql, last string }{
			{"create table p2 partition of p for values in (2)", ""},
			{"insert into p2 values (2, 2, 'b')", "i 2"},
			{"create table p3 (id int not null, a text, k int not null)", ""},
			{"insert into p3 values (3, 'c', 3), (4, 'd', 3)", ""},
			{"alter table p attach partition p3 for values in (3)", "i 3, i 4"},
			{"update p3 set a = 'cc' where id = 3", "u 3"},
			{"alter table p detach partition p2", "d 2"},
			{"update p2 set a = 'uncovered'", "d 2"},
			{"alter table p attach partition p2 for values in (2)", "i 2"},
			{"alter table p detach partition p2 concurrently", "d 2"},
			{"create table p4 partition of p for values in (4, 5) partition by list (k)", ""},
			{"create table p5 partition of p4 for values in (5)", ""},
			{"insert into p5 values (5, 5, 'e')", "i 5"},
			{"alter table p add b int", ""},
			{"update p set b = 1 where id = 5", "u 5"},
			{"truncate p4", "t 5"},
		} {
			exec(t, pool, c.sql)
			assertWell(t, pool)
			if c.last != "" && last() != c.last {
				t.Errorf("%s %s: entries %s, want %s", options, c.sql, last(), c.last)
			}
		}
		if got := gaps(t, pool, history.ID(id)); len(got) > 0 {
			t.Errorf("interruptions: %q", got)
		}
		exec(t, pool, "drop table p3")
		if got := gaps(t, pool, history.ID(id)); !slices.Equal(got, []string{"partition public.p3 went"}) {
			t.Errorf("interruptions: %q", got)
		}
		assertWell(t, pool)
		// Rows that a transaction's snapshot does not see cannot be saved.
		exec(t, pool, "create table p6 (id int not null, a text, k int not null, b int); insert into p6 values (6, 'f', 6)")
		ok(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "alter table p attach partition p6 for values in (6)")
			return err
		}))
		if got := gaps(t, pool, history.ID(id)); len(got) != 2 {
			t.Errorf("interruptions: %q", got)
		}
		assertWell(t, pool)
	}
}

func TestTrackedTableBecomesPartition(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, `create table p (id int primary key) partition by range (id); create table other (id int primary key) partition by range (id);
		create table a (id int primary key); create table b (id int primary key); insert into a values (1); insert into b values (11)`)
	track(t, pool, "p", "")
	track(t, pool, "a", "")
	track(t, pool, "b", "")
	exec(t, pool, "alter table p attach partition a for values from (0) to (10)")
	exec(t, pool, "alter table other attach partition b for values from (10) to (20)")
	assertWell(t, pool)
	if why := one[string](t, pool, "select ended_why from annals.tracked where id = 2"); why != "became a partition of public.p" {
		t.Errorf("ended: %s", why)
	}
	exec(t, pool, "insert into p values (2); insert into other values (12); delete from b where id = 11")
	if got := many[string](t, pool, "select concat(op, c1) from annals.h1 order by v"); !slices.Equal(got, []string{"i1", "i2"}) {
		t.Errorf("the parent has %q", got)
	}
	if got := many[string](t, pool, "select concat(op, c1) from annals.h3 order by v"); !slices.Equal(got, []string{"i12", "d11"}) {
		t.Errorf("the partition of an untracked table has %q", got)
	}
}

func TestDroppedAndRecreated(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), installed(t)
	exec(t, pool, "create table t (id int primary key, a text); insert into t values (1, 'one')")
	id := track(t, pool, "t", "")
	exec(t, pool, "update t set a = 'two'")
	exec(t, pool, "drop table t; create table t (id int primary key, a text)")
	if why := one[string](t, pool, "select ended_why from annals.tracked where id = $1", id); why != "dropped" {
		t.Errorf("ended: %s", why)
	}
	if got := lastImage(t, pool, id); got != `{"a": "one", "id": 1}` {
		t.Errorf("the history has %s", got)
	}
	again := track(t, pool, "t", "")
	exec(t, pool, "insert into t values (1, 'new')")
	if again == id || one[int](t, pool, fmt.Sprintf("select count(*) from annals.h%d", again)) != 1 {
		t.Error("the table of the same name is not another one")
	}
	// Whoever may read the new table may not read the old one's history.
	role := pgserver.Role(t, pgserver.Shared(t), "reader")
	exec(t, pool, fmt.Sprintf("grant usage on schema annals to %[1]s; grant select on t, annals.h1, annals.h2 to %[1]s", role))
	reader := session(t, pool, "user="+role)
	if _, err := reader.Exec(ctx, "select * from annals.h1"); err == nil {
		t.Error("the history of a dropped table can be read")
	}
	exec(t, reader, "select * from annals.h2")

	exec(t, pool, "create schema s; create table s.x (id int primary key)")
	x := track(t, pool, "s.x", "")
	exec(t, pool, "drop schema s cascade")
	if one[bool](t, pool, "select relation is not null or ended_v is null from annals.tracked where id = $1", x) {
		t.Error("DROP SCHEMA was not noticed")
	}
	exec(t, pool, "create type mood as enum ('ok'); create table y (id int primary key, m mood); insert into y values (1, 'ok')")
	y := track(t, pool, "y", "")
	exec(t, pool, "drop type mood cascade")
	exec(t, pool, "update y set id = 2; insert into y values (3)")
	assertWell(t, pool)
	if n := one[int](t, pool, fmt.Sprintf("select count(*) from annals.h%d", y)); n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
}
