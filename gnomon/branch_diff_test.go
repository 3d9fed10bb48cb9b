package gnomon_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/gnomon"
)

// side writes the row of one side: -, or its values in the order of the columns' names.
func side(row map[string]*string) string {
	if row == nil {
		return "-"
	}
	var s []string
	for _, name := range slices.Sorted(maps.Keys(row)) {
		if row[name] == nil {
			s = append(s, "null")
		} else {
			s = append(s, *row[name])
		}
	}
	return strings.Join(s, ",")
}

func diffLines(t *testing.T, diff iter.Seq2[gnomon.BranchRowDiff, error]) string {
	t.Helper()
	var lines []string
	for d, err := range diff {
		ok(t, err)
		lines = append(lines, fmt.Sprintf("%s %v %s %v: %s | %s | %s", d.Table, d.Key, d.Operation, d.Columns, side(d.Base), side(d.Branch), side(d.Other)))
	}
	return strings.Join(lines, "\n")
}

func sameLines(t *testing.T, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("got\n%s\nwant\n%s", got, w)
	}
}

// TestBranchDiff: rows and fields in which a branch differs from its base, main, another branch and its own past.
func TestBranchDiff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, `create table d ("t" int, "o" text, "select" int, x date, primary key ("o", "t"))`, `insert into d select i, 'k', i, null from generate_series(1, 9) i`, "create table e (id int primary key)", "create table left_alone (id int primary key)")
	track(t, g, "public.d", "public.e", "public.left_alone")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{Logged: true}))
	if got := diffLines(t, b.Diff(ctx, gnomon.TheBase)) + diffLines(t, b.Diff(ctx, gnomon.Main)); got != "" {
		t.Errorf("a new branch differs: %s", got)
	}
	run(t, b, `update d set "select" = 20 where "t" = 2`, `update d set "select" = 30 where "t" = 3`, `delete from d where "t" = 4`, `insert into d values (10, 'k', 10, '2026-12-01')`, `update d set "t" = 50 where "t" = 5`,
		`insert into d values (60, 'k', 1)`, `delete from d where "t" = 60`, `update d set "select" = 0 where "t" = 1`, `update d set "select" = 1 where "t" = 1`, "insert into e values (1)")
	run(t, pool, `update d set "select" = 31 where "t" = 3`, `update d set "select" = 60 where "t" = 6`, `delete from d where "t" = 7`, `insert into d values (11, 'k', 11)`, `insert into d values (10, 'k', 10, '2026-12-01')`, `update d set "select" = 40 where "t" = 4`,
		`update d set "select" = 80 where "t" = 8`, `update d set "select" = 8 where "t" = 8`)
	sameLines(t, diffLines(t, b.Diff(ctx, gnomon.TheBase)),
		"public.d [k 2] update [select]: k,2,2,null | k,20,2,null | k,2,2,null",
		"public.d [k 3] update [select]: k,3,3,null | k,30,3,null | k,3,3,null",
		"public.d [k 4] delete [t o select x]: k,4,4,null | - | k,4,4,null",
		"public.d [k 5] delete [t o select x]: k,5,5,null | - | k,5,5,null",
		"public.d [k 10] insert [t o select x]: - | k,10,10,2026-12-01 | -",
		"public.d [k 50] insert [t o select x]: - | k,5,50,null | -",
		"public.e [1] insert [id]: - | 1 | -")
	sameLines(t, diffLines(t, b.Diff(ctx, gnomon.Main, "public.d")),
		"public.d [k 2] update [select]: k,2,2,null | k,20,2,null | k,2,2,null",
		"public.d [k 3] update [select]: k,3,3,null | k,30,3,null | k,31,3,null",
		"public.d [k 4] delete [t o select x]: k,4,4,null | - | k,40,4,null",
		"public.d [k 5] delete [t o select x]: k,5,5,null | - | k,5,5,null",
		"public.d [k 6] update [select]: k,6,6,null | k,6,6,null | k,60,6,null",
		"public.d [k 7] insert [t o select x]: k,7,7,null | k,7,7,null | -",
		"public.d [k 11] delete [t o select x]: - | - | k,11,11,null",
		"public.d [k 50] insert [t o select x]: - | k,5,50,null | -")
	if counts := must[[]gnomon.DiffCount](t)(b.DiffCounts(ctx, gnomon.Main)); fmt.Sprint(counts) != "[{public.d 2 3 3} {public.e 1 0 0}]" {
		t.Errorf("counts are %v", counts)
	}

	// Another branch, with another base.
	c := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "c", gnomon.BranchOptions{}))
	run(t, c, `update d set "select" = 20 where "t" = 2`, `update d set "select" = 90 where "t" = 9`)
	sameLines(t, diffLines(t, b.Diff(ctx, gnomon.OtherBranch("c"), "public.d")),
		"public.d [k 3] update [select]: k,3,3,null | k,30,3,null | k,31,3,null",
		"public.d [k 4] delete [t o select x]: k,4,4,null | - | k,40,4,null",
		"public.d [k 5] delete [t o select x]: k,5,5,null | - | k,5,5,null",
		"public.d [k 6] update [select]: k,6,6,null | k,6,6,null | k,60,6,null",
		"public.d [k 7] insert [t o select x]: k,7,7,null | k,7,7,null | -",
		"public.d [k 9] update [select]: k,9,9,null | k,9,9,null | k,90,9,null",
		"public.d [k 11] delete [t o select x]: - | - | k,11,11,null",
		"public.d [k 50] insert [t o select x]: - | k,5,50,null | -")

	// Its own past.
	then := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, b, `update d set "select" = 21 where "t" = 2`, `update d set "select" = 22 where "t" = 2`, `insert into d values (4, 'k', 44)`, "delete from e")
	sameLines(t, diffLines(t, b.Diff(ctx, gnomon.OwnPast(then))),
		"public.d [k 2] update [select]: k,2,2,null | k,22,2,null | k,20,2,null",
		"public.d [k 4] insert [t o select x]: k,4,4,null | k,44,4,null | -",
		"public.e [1] delete [id]: - | - | 1")
	old := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "old", gnomon.BranchOptions{Of: "b", From: then}))
	sameLines(t, diffLines(t, b.Diff(ctx, gnomon.OtherBranch("old"))), strings.Split(diffLines(t, b.Diff(ctx, gnomon.OwnPast(then))), "\n")...)
	if got := text(t, old, `select "t", "select" from d where "t" in (1, 2, 4, 50) order by 1`); got != "(1,1)\n(2,20)\n(50,5)" {
		t.Errorf("the past of the branch is %s", got)
	}

	var steps []string
	for d, err := range b.Steps(ctx, gnomon.StepsOptions{Table: "public.d", Key: gnomon.KeyOf("k", 2)}) {
		ok(t, err)
		steps = append(steps, fmt.Sprintf("%s %v: %s | %s", d.Operation, d.Columns, side(d.Old), side(d.New)))
	}
	sameLines(t, strings.Join(steps, "\n"), "update [select]: k,2,2,null | k,20,2,null", "update [select]: k,20,2,null | k,21,2,null", "update [select]: k,21,2,null | k,22,2,null")
	n := 0
	for d, err := range b.Steps(ctx, gnomon.StepsOptions{Since: then}) {
		ok(t, err)
		if n++; d.Who.Login == "" || d.At.IsZero() || d.V == 0 || d.Transaction == "" {
			t.Errorf("a step is %+v", d)
		}
	}
	if n != 4 {
		t.Errorf("%d steps since", n)
	}

	for _, err := range c.Diff(ctx, gnomon.OwnPast(then)) {
		refuses(t, err, gnomon.ErrNotOnBranch)
	}
	for _, err := range c.Steps(ctx, gnomon.StepsOptions{}) {
		refuses(t, err, gnomon.ErrNotOnBranch)
	}
	for _, err := range b.Diff(ctx, gnomon.OtherBranch("nothing")) {
		refuses(t, err, gnomon.ErrUnknownBranch)
	}
	for _, err := range b.Diff(ctx, gnomon.Main, "pg_catalog.pg_class") {
		refuses(t, err, gnomon.ErrNotTracked)
	}
	for range b.Diff(ctx, gnomon.TheBase) {
		break
	}

	// The base is told without history, main is not.
	run(t, pool, "alter table d add y int default 5")
	sameLines(t, diffLines(t, c.Diff(ctx, gnomon.TheBase)), "public.d [k 2] update [select]: k,2,2,null,null | k,20,2,null,null | k,2,2,null,null", "public.d [k 9] update [select]: k,9,9,null,null | k,90,9,null,null | k,9,9,null,null")
	for _, err := range c.Diff(ctx, gnomon.Main) {
		if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Reason != "columns" {
			t.Errorf("it says %+v", e)
		}
	}
}

// TestBranchDiffRights: who may not read all of a table learns nothing of it.
func TestBranchDiffRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool, b := branchOfO(t)
	run(t, b, "update o set n = 5 where id = 1")
	run(t, pool, "create table seen (id int primary key)", "create role differ login", "grant select on seen to differ")
	track(t, g, "public.seen")
	letRead(t, pool, "differ")
	conn := connectAs(t, pool.Config().ConnString(), "differ")
	reader := b.In(conn)
	if got := diffLines(t, reader.Diff(ctx, gnomon.TheBase)); got != "" {
		t.Errorf("it reads %s", got)
	}
	for _, sql := range []string{"select * from gnomon.branch_diff('o''clock', 'base', '{public.o}')", "select * from gnomon.branch_diff_rows('o''clock', 'base', '{1}')", "select * from gnomon.branch_step_rows('o''clock', null, '{1}', null)", "select * from gnomon.branch_diff_query(1, null, 'base', null, null)"} {
		if _, err := conn.Exec(ctx, sql); sqlState(err) != "42501" && sqlState(err) != "GN020" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	run(t, pool, "grant select on o to differ", "alter table o enable row level security")
	if got := diffLines(t, reader.Diff(ctx, gnomon.TheBase)); got != "" {
		t.Errorf("under row-level security it reads %s", got)
	}
	for _, err := range reader.Diff(ctx, gnomon.TheBase, "public.o") {
		refuses(t, err, gnomon.ErrNotOnBranch)
	}
	run(t, pool, "alter table o disable row level security")
	sameLines(t, diffLines(t, reader.Diff(ctx, gnomon.TheBase)), "public.o [1] update [n]: 1,1,note | 1,5,note | 1,1,note")
}
