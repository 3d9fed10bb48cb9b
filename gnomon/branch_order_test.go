package gnomon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// on executes statements on a branch, in one transaction.
func on(t testing.TB, pool *pgxpool.Pool, branch string, statements ...string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	run(t, tx, fmt.Sprintf("select gnomon.use(%s, true)", literal(branch)))
	run(t, tx, statements...)
	ok(t, tx.Commit(t.Context()))
}

// TestMergingIntoMainAndIntoTheParent: what a branch of a branch changed is merged into both, in either order, and is then everywhere. That is so
// as well of a row that only the parent had, and that its branch deleted.
func TestMergingIntoMainAndIntoTheParent(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int, w text)", "insert into t values (1, 1, 'a'), (2, 2, 'b')")
	track(t, g, "t")
	for i, order := range [][]string{{"null", "'parent'"}, {"'parent'", "null"}} {
		run(t, pool, "select gnomon.create_branch('parent')")
		on(t, pool, "parent", fmt.Sprintf("insert into t values (%d, 0, 'of the parent')", 10+i))
		run(t, pool, "select gnomon.create_branch('child', 'branch:parent')")
		on(t, pool, "child", fmt.Sprintf("delete from t where id = %d", 10+i), fmt.Sprintf("update t set x = %d where id = 2", 20+i), fmt.Sprintf("insert into t values (%d, 0, 'of the child')", 30+i))
		want := text(t, pool, "select id, x, w from t where id < 2 or id = 30 and "+fmt.Sprint(i)+" = 1 union all values (2, "+fmt.Sprint(20+i)+", 'b'), ("+fmt.Sprint(30+i)+", 0, 'of the child') order by 1")
		for range 2 { // the second time there is nothing to merge
			for _, into := range order {
				run(t, pool, fmt.Sprintf("select gnomon.merge('child', %s)", into))
			}
			for _, branch := range []string{"parent", "child", ""} {
				if got := shownOn(t, pool, branch, "select string_agg(q::text, E'\\n' order by id) from (select * from t) q"); got != want {
					t.Errorf("merged into %s, %q:\n%s\nwant\n%s", order, branch, got, want)
				}
			}
		}
		run(t, pool, "select gnomon.drop_branch('child'), gnomon.drop_branch('parent')")
	}
}

// TestMergingMovedKeysIntoABranch: a row that gets another key keeps its unique value, and the merge frees it before it is taken.
func TestMergingMovedKeysIntoABranch(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, u text unique)", "insert into t values (1, 'one'), (2, 'two'), (3, 'three')")
	track(t, g, "t")
	for _, into := range []string{"'parent'", "null"} {
		run(t, pool, "select gnomon.create_branch('parent')", "select gnomon.create_branch('child', 'branch:parent')")
		// To a key that is new, and to that of a row that goes.
		on(t, pool, "child", "update t set id = 11 where id = 1", "delete from t where id = 3", "update t set id = 3 where id = 2")
		if got := column[string](t, pool, "select m.status from gnomon.merge('child', "+into+") m"); got[0] != "merged" {
			t.Errorf("into %s: %s", into, got)
		}
		branch := map[bool]string{true: "parent"}[into != "null"]
		if got := shownOn(t, pool, branch, "select string_agg(id || u, ' ' order by id) from t"); got != "3two 11one" {
			t.Errorf("into %s: %s", into, got)
		}
		run(t, pool, "select gnomon.drop_branch('child'), gnomon.drop_branch('parent')")
	}
}

// TestWritingABranchThatIsReset: who waits while a branch is reset writes nothing over what was there before.
func TestWritingABranchThatIsReset(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int)", "insert into t values (1, 1)")
	track(t, g, "t")
	run(t, pool, "select gnomon.create_branch('b')")
	on(t, pool, "b", "update t set x = 5")
	resets, err := pool.Begin(t.Context())
	ok(t, err)
	defer resets.Rollback(t.Context())
	run(t, resets, "select gnomon.reset_branch('b')")
	writer := connectAs(t, pool.Config().ConnString(), "")
	run(t, writer, "begin", "select gnomon.use('b', true)")
	written := make(chan error, 1)
	go func() {
		_, err := writer.Exec(t.Context(), "update t set x = x + 1")
		written <- err
	}()
	for column[int](t, pool, "select count(*)::int from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())")[0] == 0 {
		time.Sleep(time.Millisecond)
	}
	ok(t, resets.Commit(t.Context()))
	if state := sqlState(<-written); state != "GN008" {
		t.Errorf("writing what was reset: %s", state)
	}
	run(t, writer, "rollback")
	on(t, pool, "b", "update t set x = x + 1")
	run(t, pool, "update t set x = 7 where id = 1", "select gnomon.merge('b', null, '{\"strategies\": {\"*\": \"sum\"}}')")
	if got := text(t, pool, "select * from t"); got != "(1,8)" {
		t.Errorf("after merging: %s", got)
	}
}

// TestTablesWithFormatsForNames: names are never taken for formats, nor columns for what triggers and statements call their own.
func TestTablesWithFormatsForNames(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	const table = `"Sch ema%s"."ta""ble%s%1$s"`
	run(t, pool, `create schema "Sch ema%s"`, `create table `+table+` ("old" int, "new" text collate "C", "o" int, "x" text, "put" int unique, "here" jsonb, "a%sb" int[], "alive" bool, "branch" int default 7, "p" int, "t" int, "%1$s" text check ("%1$s" <> 'bad'), primary key ("new", "old"))`,
		`insert into `+table+` select i, 'k' || i, i, 'x', i, '{}', array[i], true, i, i, i, 'p' from generate_series(1, 3) i`)
	track(t, g, table)
	run(t, pool, "select gnomon.create_branch('b%s', p_logged => true)", "select gnomon.create_branch('c%s', 'branch:b%s')")
	name := `set local search_path = "Sch ema%s"; select gnomon.use('b%s', true)`
	write := func(sql string) string {
		_, err := pool.Exec(t.Context(), "begin; "+name+"; "+sql+"; commit", pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return sqlState(err)
		}
		return ""
	}
	for sql, want := range map[string]string{
		`update "ta""ble%s%1$s" set "o" = "o" + 1, "a%sb" = "a%sb" || 9, "put" = 30, "t" = 5 where "old" = 3`: "",
		`update "ta""ble%s%1$s" set "old" = 40 where "old" = 1`:                                               "",
		`insert into "ta""ble%s%1$s" ("old", "new", "%1$s") values (5, 'five', 'x')`:                          "",
		`insert into "ta""ble%s%1$s" ("old", "new", "%1$s") values (6, 'six', 'bad')`:                         "23514",
		`insert into "ta""ble%s%1$s" ("old", "new", "put") values (6, 'six', 2)`:                              "23505",
		`delete from "ta""ble%s%1$s" where "old" = 2 and false`:                                               "",
	} {
		if got := write(sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	run(t, pool, `update `+table+` set "x" = 'main' where "old" = 3`)
	for _, sql := range []string{"select (gnomon.refresh_branch('b%s')).status", "select (gnomon.merge('b%s', 'c%s')).status", "select (gnomon.merge('b%s')).status", "select (gnomon.undo_merge(max(merge))).status from gnomon.merges() where kind = 'merge' and \"into\" is null", "select (gnomon.undo_merge(max(merge))).status from gnomon.merges()"} {
		if got := column[string](t, pool, sql); got[0] != "merged" {
			t.Errorf("%s: %s", sql, got)
		}
	}
	if got := text(t, pool, `select "old", "new", "o", "x", "put", "a%sb", "t", "branch", "%1$s" from `+table+" order by 1"); got != "(2,k2,2,x,2,{2},2,2,p)\n(3,k3,4,main,30,\"{3,9}\",5,3,p)\n(5,five,,,,,,7,x)\n(40,k1,1,x,1,{1},1,1,p)" {
		t.Errorf("main is\n%s", got)
	}
}

// TestRefreshingAfterColumnsWent: a branch follows a table that lost a column that the branch has values of, and keeps what else it changed.
func TestRefreshingAfterColumnsWent(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int, gone text, w text)", "insert into t values (1, 1, 'g', 'w'), (2, 2, 'g', 'w')")
	track(t, g, "t")
	run(t, pool, "select gnomon.create_branch('b', p_logged => true)")
	on(t, pool, "b", "update t set x = 10 where id = 1", "insert into t (id, x, w) values (3, 3, 'new')")
	run(t, pool, "alter table t drop column gone", "alter table t add column more int default 7", "update t set w = 'main' where id = 1")
	run(t, pool, "select gnomon.sync('t')")
	if got := column[string](t, pool, "select (gnomon.refresh_branch('b')).status"); got[0] != "merged" {
		t.Error(got)
	}
	on(t, pool, "b", "update t set more = 8 where id = 2")
	if got := shownOn(t, pool, "b", "select string_agg(q::text, ' ' order by id) from (select * from t) q"); got != "(1,10,main,7) (2,2,w,8) (3,3,new,)" {
		t.Errorf("on the branch: %s", got)
	}
	run(t, pool, "select gnomon.merge('b')")
	if got := text(t, pool, "select * from t where id < 3 order by id"); got != "(1,10,main,7)\n(2,2,w,8)" {
		t.Errorf("main: %s", got)
	}
}

// TestMergingWhatChangesMeanwhile: a merge that waited for others looks at its branches anew; merges that cross wait for each other, in turn.
func TestMergingWhatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int)", "insert into t select i, 0 from generate_series(1, 4) i")
	track(t, g, "t")
	for _, c := range []struct{ first, then, state string }{
		{"select gnomon.protect_branch('into')", "select gnomon.merge('from', 'into')", "GN018"},
		{"select gnomon.protect_branch('from')", "select gnomon.refresh_branch('from')", "GN018"},
		{"select gnomon.drop_branch('from')", "select gnomon.merge('from')", "GN016"},
		{"select gnomon.drop_branch('into')", "select gnomon.merge('from', 'into')", "GN016"},
		{"select gnomon.merge('into', 'from', '{\"strategies\": {\"*\": \"sum\"}}')", "select gnomon.merge('from', 'into', '{\"strategies\": {\"*\": \"theirs\"}}')", ""},
		{"select gnomon.reset_branch('from')", "select gnomon.merge('from')", ""},
		{"select gnomon.merge('from')", "select gnomon.merge('from')", ""},
	} {
		run(t, pool, "select gnomon.create_branch('from')", "select gnomon.create_branch('into')")
		on(t, pool, "from", "update t set x = x + 1")
		on(t, pool, "into", "update t set x = x + 10")
		first, err := pool.Begin(t.Context())
		ok(t, err)
		run(t, first, c.first)
		conn := connectAs(t, pool.Config().ConnString(), "")
		result := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), c.then)
			result <- err
		}()
		for column[int](t, pool, "select count(*)::int from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())")[0] == 0 {
			time.Sleep(time.Millisecond)
		}
		ok(t, first.Commit(t.Context()))
		if err := <-result; (err != nil || c.state != "") && sqlState(err) != c.state {
			t.Errorf("%s after %s: %v, want %q", c.then, c.first, err, c.state)
		}
		conn.Close(t.Context())
		run(t, pool, "select gnomon.protect_branch(name, false), gnomon.drop_branch(name) from gnomon.branch")
	}
	// Of all only the last was merged into main, and once.
	if got := text(t, pool, "select distinct x from t"); got != "(1)" {
		t.Errorf("main: %s", got)
	}
}
