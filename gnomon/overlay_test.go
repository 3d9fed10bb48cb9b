package gnomon_test

import (
	"strings"
	"testing"

	"github.com/annals-db/annals/gnomon"
)

// TestPlansOfAnEmptyBranchOutlastItsGrowth: who begins to write when nothing is there, and statistics say so, does not read all that he wrote for each further row.
func TestPlansOfAnEmptyBranchOutlastItsGrowth(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table item (id int primary key, code text unique, amount bigint)", "insert into item select i, i, i from generate_series(1, 1000) i")
	track(t, g, "public.item")
	b := must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), "b", gnomon.BranchOptions{Logged: true}))
	run(t, pool, "vacuum analyze")
	for _, sql := range []string{"select * from item where id = 1", "update item set amount = 0 where id = 1", "delete from item where id = 1"} {
		plan := strings.Join(column[string](t, b, "explain "+sql), "\n")
		if !strings.Contains(plan, "using o1_pkey") || strings.Contains(plan, "Seq Scan on o1") || strings.Contains(plan, "Seq Scan on o ") {
			t.Errorf("%s:\n%s", sql, plan)
		}
	}
	if n := column[int](t, pool, "select count(*)::int from gnomon.o1")[0]; n != 0 {
		t.Errorf("%d rows", n)
	}
}
