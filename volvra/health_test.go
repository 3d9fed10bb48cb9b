package volvra_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/volvra"
)

func found(t testing.TB, v *volvra.Volvra, finding string) bool {
	t.Helper()
	list, err := v.Health(t.Context())
	ok(t, err)
	return slices.ContainsFunc(list, func(f volvra.Finding) bool {
		return strings.Contains(f.Finding, finding) && f.Hint != "" && f.Detail != ""
	})
}

// What is written under session_replication_role = replica fires no trigger: health finds rows that are newer than their history, and
// rows that went without.
func TestFaultReplicaRoleIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before []string
		write  string
	}{
		"update":                    {nil, "update shop.a set n = 7 where id = 5"},
		"insert":                    {nil, "insert into shop.a values (1000, 1)"},
		"update of a captured row":  {[]string{"update shop.a set n = 1 where id = 5", "select annals.tick()"}, "update shop.a set n = 7 where id = 5"},
		"delete of a captured row":  {[]string{"update shop.a set n = 1 where id = 5"}, "delete from shop.a where id = 5"},
		"with savepoints elsewhere": {[]string{"do $$ begin begin update shop.a set n = 2 where id < 20; exception when division_by_zero then null; end; end $$"}, "update shop.a set n = 7 where id = 90"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, pool := installed(t)
			run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int)", "insert into shop.a select i, 0 from generate_series(1, 500) i")
			cover(t, v, "shop.a")
			run(t, pool, c.before...)
			healthy(t, v)
			conn := connectAs(t, pool.Config().ConnString(), "")
			run(t, conn, "set session_replication_role = replica", c.write)
			if !found(t, v, "uncaptured write") {
				t.Error("not found")
			}
		})
	}
}

// Savepoints, rewritten tables and DDL raise no false alarm.
func TestHealthIsQuiet(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int)", "insert into shop.a select i, 0 from generate_series(1, 500) i")
	cover(t, v, "shop.a")
	for _, sql := range []string{"do $$ begin for i in 1..5 loop begin update shop.a set n = i; insert into shop.a values (1000 + i, 1); exception when division_by_zero then null; end; end loop; end $$",
		"vacuum full shop.a", "alter table shop.a add x timestamptz default clock_timestamp()", "alter table shop.a rename n to m", "update shop.a set id = id + 10000", "delete from shop.a where id % 2 = 0", "truncate shop.a", "insert into shop.a values (1, 1)",
		"select annals.rotate(id, 0) from annals.tracked", "select annals.seal_segments()", "begin; insert into shop.a values (2, 2); rollback"} {
		run(t, pool, sql)
		run(t, pool, "select annals.tick()")
		healthy(t, v)
	}
}

func TestHealthFinds(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.a (id int primary key, n int)")
	cover(t, v, "shop.a")
	run(t, pool, "alter table shop.a disable trigger annals_capture_update")
	if !found(t, v, "disabled") {
		t.Error("a disabled trigger")
	}
	run(t, pool, "alter table shop.a enable trigger annals_capture_update", "select annals.sync(1)")
	conn := connectAs(t, pool.Config().ConnString(), "")
	run(t, conn, "insert into shop.a values (1, 1)", "delete from annals.context")
	if !found(t, v, "unknown context") {
		t.Error("an unknown context")
	}
	run(t, pool, "drop event trigger annals_ddl_end")
	if !found(t, v, "no event trigger") {
		t.Error("no event trigger")
	}
}
