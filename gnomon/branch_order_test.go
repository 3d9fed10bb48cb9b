package gnomon_test

import (
	"fmt"
	"testing"

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
