package history_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

func TestCopyIsCaptured(t *testing.T) {
	t.Parallel()
	for _, options := range everyForm {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			exec(t, pool, item)
			track(t, pool, "t", options)
			remember(t, pool, "t", "COPY")
			conn := session(t, pool)
			_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"id", "w"}, pgx.CopyFromRows([][]any{{100, "a"}, {101, nil}, {102, "c"}}))
			ok(t, err)
			remember(t, pool, "t", "COPY of text")
			_, err = conn.PgConn().CopyFrom(t.Context(), strings.NewReader("200\t1\ta\\tb\n201\t\\N\t\\N\n"), "copy t from stdin")
			ok(t, err)
			exec(t, conn, "update t set x = 1")
			compare(t, pool, "t")
			if got := one[int](t, pool, "select count(*) from annals.h1 where op = 'i'"); got != 5 {
				t.Errorf("%d entries of inserts, want 5", got)
			}
		})
	}
}

func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	for _, options := range everyForm {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			// Names of prepared transactions are of the whole server.
			name := one[string](t, pool, "select current_database()")
			exec(t, pool, item)
			track(t, pool, "t", options)
			conn := session(t, pool)
			remember(t, pool, "t", "anything")
			exec(t, conn, "begin; update t set x = 100 where id < 4; insert into t values (10); update t set id = 20 where id = 5; prepare transaction '"+name+"a'")
			remember(t, pool, "t", "the first was committed")
			exec(t, conn, "update t set x = 7 where id = 8")
			exec(t, conn, "begin; delete from t where id = 9; prepare transaction '"+name+"b'")
			remember(t, pool, "t", "the first was committed, the second was prepared")
			exec(t, conn, "commit prepared '"+name+"a'")
			remember(t, pool, "t", "the second was rolled back")
			exec(t, session(t, pool), "rollback prepared '"+name+"b'")
			remember(t, pool, "t", "the end")
			exec(t, conn, "update t set x = x + 1, id = -id")
			compare(t, pool, "t")
		})
	}
}

// A context that only a prepared transaction registered is registered again when that is rolled back.
func TestContextOfRolledBackPreparedTransaction(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	name := one[string](t, pool, "select current_database()")
	exec(t, pool, item)
	track(t, pool, "t", "")
	conn := session(t, pool, "application_name=two_phases")
	exec(t, conn, "begin; delete from t where id = 9; prepare transaction '"+name+"'")
	exec(t, conn, "rollback prepared '"+name+"'")
	exec(t, conn, "delete from t where id = 9")
	if got := one[string](t, pool, "select application from annals.h1 h join annals.context c on c.hash = h.ctx"); got != "two_phases" {
		t.Errorf("application %q", got)
	}
}

func TestTruncatePolicy(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	conn := session(t, pool)

	exec(t, pool, "create table refuses (id int primary key, x int); insert into refuses values (1)")
	track(t, pool, "refuses", `{"truncate": "refuse"}`)
	if err := script(t, conn, "truncate refuses"); sqlState(err) != "AN001" {
		t.Errorf("refused with %v", err)
	}
	if got := one[int](t, pool, "select count(*) from refuses"); got != 1 {
		t.Errorf("%d rows left", got)
	}

	exec(t, pool, "create table allows (id int primary key, x int); insert into allows values (1)")
	id := track(t, pool, "allows", `{"truncate": "allow"}`)
	exec(t, conn, "update allows set x = 1")
	before := one[int64](t, pool, "select last_value from annals.v")
	exec(t, conn, "truncate allows")
	if got := one[string](t, pool, "select string_agg(why || (v > $2)::text, ',') from annals.gap where tracked = $1", id, before); got != "TRUNCATEtrue" {
		t.Errorf("gaps: %s", got)
	}
	if got := one[int](t, pool, fmt.Sprintf("select count(*) from annals.h%d where op = 't'", id)); got != 0 {
		t.Errorf("%d rows were saved", got)
	}

	exec(t, pool, "create table captures (id int primary key, x int); insert into captures values (1)")
	track(t, pool, "captures", "")
	for _, level := range []string{"repeatable read", "serializable"} {
		if err := script(t, conn, "begin isolation level "+level+"; truncate captures; commit"); sqlState(err) != "AN002" {
			t.Errorf("%s: %v", level, err)
		}
		ok(t, script(t, conn, "rollback"))
	}
	exec(t, conn, "truncate captures")
	if got := one[int](t, pool, "select count(*) from annals.h3 where op = 't' and c1 = 1"); got != 1 {
		t.Errorf("%d rows were saved", got)
	}
}

// Row-level security never hides rows from capture.
func TestTruncateUnderRowSecurity(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key, x int, w text); alter table t enable row level security, force row level security; create policy p on t using (false)")
	owner := pgserver.Role(t, pgserver.Shared(t), "owner")
	exec(t, pool, "alter table t owner to "+owner+"; insert into t values (1, 1), (2, 2)")
	track(t, pool, "t", "")
	remember(t, pool, "t", "truncate")
	exec(t, session(t, pool, "user="+owner), "truncate t")
	if got := one[int](t, pool, "select count(*) from annals.h1_1 where op = 't'"); got != 2 {
		t.Errorf("%d rows were saved", got)
	}
	compare(t, pool, "t")
}

// With the option replica, what a replica writes is captured too: row triggers fire always, those of statements never there.
func TestReplicaRole(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, item+"create table unasked (id int primary key);")
	track(t, pool, "t", `{"replica": true}`)
	track(t, pool, "unasked", "")
	conn := session(t, pool, "options='-c session_replication_role=replica'")
	for _, step := range manySteps {
		remember(t, pool, "t", step)
		ok(t, script(t, conn, step))
	}
	remember(t, pool, "t", "truncate")
	exec(t, conn, "truncate t; insert into unasked values (1)")
	assertTold(t, pool, []string{"t"})
	if got := one[int](t, pool, "select count(*) from annals.h2"); got != 0 {
		t.Errorf("%d entries without the option", got)
	}
}

func TestLogicalApply(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{Settings: map[string]string{"wal_level": "logical"}})
	open := func() *pgxpool.Pool {
		name, err := server.CreateDatabase(t.Context())
		ok(t, err)
		pool, err := pgxpool.New(t.Context(), server.ConnString(name))
		ok(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	from, to := open(), open()
	exec(t, from, "create table t (id int primary key, x int, w text); create publication p for table t; alter table t replica identity full; insert into t values (0, 0, 'copied')")
	exec(t, from, "select pg_create_logical_replication_slot('s', 'pgoutput')")
	install(t, to)
	exec(t, to, "create table t (id int primary key, x int, w text)")
	track(t, to, "t", `{"replica": true}`)
	remember(t, to, "t", "the subscription")
	exec(t, to, fmt.Sprintf("create subscription s connection '%s' publication p with (create_slot = false, slot_name = 's')", strings.ReplaceAll(from.Config().ConnString(), "'", "''")))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, sql := range []string{"alter subscription s disable", "alter subscription s set (slot_name = none)", "drop subscription s"} {
			if _, err := to.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	wait := func(step string) {
		t.Helper()
		const state = "select coalesce(jsonb_agg(t order by id), '[]')::text from t"
		want := one[string](t, from, state)
		for deadline := time.Now().Add(time.Minute); one[string](t, to, state) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s was not applied", step)
			}
		}
	}
	wait("the copy")
	for _, step := range []string{
		"insert into t values (1, 1, 'a'), (2, 2, 'b'), (3, 3, repeat('c', 5000))", "update t set x = x + 1", "update t set id = id + 10", "begin; update t set x = 0 where id = 11; update t set id = 1 where id = 11; delete from t where id = 12; commit",
		"delete from t where id = 13", "insert into t values (5, 5)", "truncate t", "insert into t values (6, 6)",
	} {
		remember(t, to, "t", step)
		exec(t, from, step)
		wait(step)
	}
	assertTold(t, to, []string{"t"})
}
