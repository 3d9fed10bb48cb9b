package gnomon_test

import (
	"fmt"
	"testing"
)

// Keys of all types, changed, deleted and made on a branch.
func TestBranchKeysOfAllTypes(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema s`, `create type s.mood as enum ('sad', 'glad', 'mad')`, `create type s.pair as (a int, b text)`, `create domain s.code as text`, `create collation s.blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	for i, k := range []struct{ column, one, two, three string }{
		{"int2", "1", "2", "3"}, {"int8", "1", "2", "3"}, {"numeric", "1.0", "2", "3.50"}, {"numeric(8, 2)", "1", "2", "3.5"}, {"float8", "1e-300", "-0.1", "'infinity'"}, {"bool", "true", "false", ""},
		{"text", "'it''s'", "''", `'"q"\'`}, {`text collate "C"`, "'a'", "'B'", "'c'"}, {"text collate s.blind", "'a'", "'B'", "'c'"}, {"varchar(3)", "'abc'", "'d'", "'e'"}, {"char(4)", "'ab'", "'abcd'", "'c'"}, {`"char"`, "'a'", "'b'", "'c'"}, {"name", "'n'", "'m'", "'o'"},
		{"uuid", "gen_random_uuid()", "'00000000-0000-0000-0000-000000000000'", "'11111111-0000-0000-0000-000000000000'"}, {"bytea", `'\x00ff'`, `''`, `'\x01'`}, {"date", "'infinity'", "'2024-02-29'", "'0044-03-15 BC'"},
		{"timestamptz(0)", "'2024-01-01 00:00:00.7+00'", "'-infinity'", "'2024-01-02 00:00+00'"}, {"interval", "'1 day'", "'25 hours'", "'-1 mon'"}, {"time", "'10:00'", "'11:00'", "'12:00'"}, {"inet", "'10.0.0.1'", "'::1'", "'10.0.0.0/8'"}, {"jsonb", "'{\"a\": null}'", "'[]'", "'null'"},
		{"int[]", "'{1,null}'", "'{}'", "'[0:1]={1,2}'"}, {"int4range", "'[1,5)'", "'empty'", "'(,3)'"}, {"s.mood", "'sad'", "'glad'", "'mad'"}, {"s.pair", "'(1,)'", "'(,\"x,y\")'", "'(2,z)'"}, {"bit(3)", "'101'", "'000'", "'111'"}, {"oid", "1", "2", "3"},
	} {
		t.Run(k.column, func(t *testing.T) {
			table := fmt.Sprintf("k%d", i)
			run(t, pool, fmt.Sprintf(`create table s.%s (k %s primary key, u %[2]s unique, n int)`, table, k.column), fmt.Sprintf(`insert into s.%s values (%s, %[2]s, 1), (%[3]s, %[3]s, 2)`, table, k.one, k.two))
			track(t, g, "s."+table)
			main := text(t, pool, "select * from s."+table+" order by n")
			run(t, pool, `select gnomon.drop_branch(name) from gnomon.branches()`)
			c := onSchema(t, pool, "s")
			run(t, c, fmt.Sprintf(`update %s set n = 10 where k = %s::%s`, table, k.two, k.column), fmt.Sprintf(`update %s set n = n + 1 where n = 10`, table))
			fails(t, c, "23505", fmt.Sprintf(`insert into %s values (%s, null, 3)`, table, k.two))
			if k.three != "" {
				run(t, c, fmt.Sprintf(`insert into %s values (%s, null, 3)`, table, k.three))
				fails(t, c, "23505", fmt.Sprintf(`update %s set u = %s where n = 3`, table, k.two))
				run(t, c, fmt.Sprintf(`delete from %s where n = 3`, table), fmt.Sprintf(`update %s set k = %s, u = %[2]s where n = 11`, table, k.three))
				fails(t, c, "23505", fmt.Sprintf(`update %s set k = (select k from %[1]s where n = 11) where n = 1`, table))
			}
			run(t, c, fmt.Sprintf(`delete from %s where n = 1`, table))
			shows(t, c, "select n from "+table, "(11)")
			shows(t, pool, "select * from s."+table+" order by n", main)
		})
	}
}

// Nulls in unique keys, keys of two columns, and columns that are named like what is inside.
func TestBranchUniques(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema s`, `create table s.o (o int, x int, put int, here int, alive bool, branch int, c1 int, k1 int, "new.id" int, found int, p1 int, g1 int generated always as (put + x) stored, primary key (x, put), unique (c1, k1), unique (found), check (o + here > 0))`,
		`insert into s.o values (1, 1, 1, 1, true, 1, 1, 1, 1, 1, 1)`)
	if column[int](t, pool, `select current_setting('server_version_num')::int / 10000`)[0] >= 15 {
		run(t, pool, `create unique index one_null on s.o ("new.id", branch) nulls not distinct`)
	}
	track(t, g, "s.o")
	c := onSchema(t, pool, "s")
	gives(t, c, `insert into o values (2, 2, 2, 2, false, null, 1, null, null, null, 2) returning *`, "2,2,2,2,f,-,1,-,-,-,2,4")
	if e := fails(t, c, "23505", `insert into o values (3, 3, 3, 3, false, null, 1, null, null, null, 3)`); e.ConstraintName != "one_null" {
		t.Fatalf("%+v", e)
	}
	run(t, c, `insert into o values (3, 3, 3, 3, false, 5, 1, null, null, null, 3)`, `update o set c1 = 2, k1 = 2, found = 2, branch = 2 where x = 2`)
	fails(t, c, "23505", `update o set k1 = 1 where x = 3`)
	fails(t, c, "23505", `update o set branch = null, "new.id" = null where x in (1, 2)`)
	fails(t, c, "23514", `update o set here = -9`)
	gives(t, c, `update o set put = put + 10, alive = not alive where found > 0 returning x, put, g1, alive`, "1,11,12,f\n2,12,14,t")
	gives(t, c, `delete from o returning x`, "1\n2\n3")
	run(t, c, `insert into o values (1, 1, 1, 1, true, 1, 1, 1, 1, 1, 1)`)
	shows(t, pool, `select count(*) from s.o`, "(1)")
}
