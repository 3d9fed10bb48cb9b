package history_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/annals-db/annals/internal/pgtx"
)

// shadow is what a test itself notes of the changes of one tracked table: operation, key and old values, which captured entries must equal.
type shadow struct {
	t     testing.TB
	db    pgtx.DB
	id    int
	table string
	key   string
	next  int // number for the next new name
	log   []shadowEntry
}

type shadowEntry struct {
	op  string
	old map[string]string // column number to value as text
}

// columns are the present columns, number to quoted name.
func (s *shadow) columns() (numbers []int, names []string) {
	s.t.Helper()
	numbers = many[int](s.t, s.db, "select n from annals.tracked_column where tracked = $1 and gone_v is null and not generated order by n", s.id)
	names = many[string](s.t, s.db, "select quote_ident(name) from annals.tracked_column where tracked = $1 and gone_v is null and not generated order by n", s.id)
	return numbers, names
}

// images reads rows as the shadow keeps them.
func (s *shadow) images(condition string) []map[string]string {
	s.t.Helper()
	numbers, names := s.columns()
	var pairs []string
	for i, n := range numbers {
		pairs = append(pairs, fmt.Sprintf("'%d', %s::text", n, names[i]))
	}
	return many[map[string]string](s.t, s.db, fmt.Sprintf("select jsonb_strip_nulls(jsonb_build_object(%s)) from %s where %s", strings.Join(pairs, ", "), s.table, condition))
}

// write executes a statement that changes the rows of a condition, in the way of op, and notes what history must have of it.
func (s *shadow) write(op, sql, condition string) {
	s.t.Helper()
	if op != "i" {
		for _, old := range s.images(condition) {
			s.log = append(s.log, shadowEntry{op, old})
		}
	}
	exec(s.t, s.db, sql)
	if op == "i" {
		key := one[string](s.t, s.db, "select key[1]::text from annals.tracked where id = $1", s.id)
		for _, row := range s.images(condition) {
			s.log = append(s.log, shadowEntry{op, map[string]string{key: row[key]}})
		}
	}
}

// check compares all of the history with the shadow: columns that have gone meanwhile included.
func (s *shadow) check() {
	s.t.Helper()
	numbers := many[string](s.t, s.db, "select substr(attname, 2) from pg_attribute where attrelid = format('annals.h%s', $1::int)::regclass and attname ~ '^c[0-9]+$'", s.id)
	var pairs []string
	for _, n := range numbers {
		pairs = append(pairs, fmt.Sprintf("'%[1]s', c%[1]s::text", n))
	}
	got := map[string]int{}
	for _, e := range many[map[string]string](s.t, s.db, fmt.Sprintf("select jsonb_strip_nulls(jsonb_build_object('op', op::text, %s)) from annals.h%d order by v", strings.Join(pairs, ", "), s.id)) {
		op := e["op"]
		delete(e, "op")
		got[fmt.Sprint(op, " ", e)]++
	}
	want := map[string]int{}
	for _, e := range s.log {
		want[fmt.Sprint(e.op, " ", e.old)]++
	}
	if !maps.Equal(got, want) {
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if got[k] != want[k] {
				s.t.Errorf("%d entries are %s, want %d", got[k], k, want[k])
			}
		}
		for _, k := range slices.Sorted(maps.Keys(got)) {
			if want[k] == 0 {
				s.t.Errorf("%d entries are %s, want none", got[k], k)
			}
		}
		s.t.FailNow()
	}
}

// TestRandomDDL: whatever is altered between writes, no write fails, and each has its exact old images.
func TestRandomDDL(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	number := 0
	rapid.Check(t, func(r *rapid.T) {
		number++
		conn, err := pool.Acquire(t.Context())
		ok(t, err)
		defer conn.Release()
		s := &shadow{t: t, db: conn, table: fmt.Sprintf("random%d", number), key: "id", next: 1}
		exec(t, conn, fmt.Sprintf("create table %s (id int primary key, a text, b int, \"select\" numeric(8, 2))", s.table))
		form := rapid.SampledFrom([]string{"{}", `{"form": "row"}`, `{"skip_noop": false, "full": true}`}).Draw(r, "options")
		s.id = track(t, conn, s.table, form)
		rows := 0
		name := func() string { s.next++; return fmt.Sprintf("n%d", s.next) }
		var script []string
		run := func(sql string) {
			script = append(script, sql)
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s\nfails: %v", strings.Join(script, ";\n"), err)
			}
		}
		inTx := false
		for range rapid.IntRange(4, 14).Draw(r, "steps") {
			_, names := s.columns()
			others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == s.key })
			column := ""
			if len(others) > 0 {
				column = rapid.SampledFrom(others).Draw(r, "column")
			}
			k := rapid.IntRange(1, max(rows, 1)).Draw(r, "k")
			at := fmt.Sprintf("%s = %d", s.key, k)
			step := rapid.SampledFrom([]string{"insert", "insert", "update", "update", "update", "all", "delete", "add", "drop", "swap", "rename", "type", "key", "table", "schema", "rekey", "default", "index", "policy", "trigger", "begin", "rollback"}).Draw(r, "step")
			script = append(script, "-- "+step)
			switch step {
			case "insert":
				rows++
				s.write("i", fmt.Sprintf("insert into %s (%s) values (%d)", s.table, s.key, rows), fmt.Sprintf("%s = %d", s.key, rows))
			case "update":
				if column != "" {
					s.write("u", fmt.Sprintf("update %s set %s = '%d' where %s", s.table, column, k, at), at)
				}
			case "all":
				if column != "" {
					s.write("u", fmt.Sprintf("update %s set %[2]s = %[2]s", s.table, column), "true")
				}
			case "delete":
				s.write("d", fmt.Sprintf("delete from %s where %s", s.table, at), at)
			case "add":
				run(fmt.Sprintf("alter table %s add %s %s", s.table, name(), rapid.SampledFrom([]string{"int", "text default 'd'", "numeric", "bigint default 7", "varchar(9)"}).Draw(r, "type")))
			case "drop":
				if len(others) > 1 {
					run(fmt.Sprintf("alter table %s drop %s", s.table, column))
				}
			case "swap":
				if column != "" {
					run(fmt.Sprintf("alter table %[1]s drop %[2]s, add %[2]s text default 'other'", s.table, column))
				}
			case "rename":
				to := name()
				from := rapid.SampledFrom(names).Draw(r, "from")
				run(fmt.Sprintf("alter table %s rename %s to %s", s.table, from, to))
				if from == s.key {
					s.key = to
				}
			case "type":
				if column != "" {
					run(fmt.Sprintf("alter table %[1]s alter %[2]s drop default, alter %[2]s type %[3]s using 3", s.table, column, rapid.SampledFrom([]string{"int", "text", "bigint", "numeric(9, 1)", "varchar(7)"}).Draw(r, "type")))
				}
			case "key":
				run(fmt.Sprintf("select annals.free_key(%d)", s.id))
				run(fmt.Sprintf("alter table %s alter %s type bigint", s.table, s.key))
			case "table":
				schema, _, found := strings.Cut(s.table, ".")
				to := fmt.Sprintf("random%d_%s", number, name())
				run(fmt.Sprintf("alter table %s rename to %s", s.table, to))
				if s.table = to; found {
					s.table = schema + "." + to
				}
			case "schema":
				to := fmt.Sprintf("s%d_%s", number, name())
				run("create schema " + to)
				run(fmt.Sprintf("alter table %s set schema %s", s.table, to))
				_, table, found := strings.Cut(s.table, ".")
				if !found {
					table = s.table
				}
				s.table = to + "." + table
			case "rekey":
				constraint := one[string](t, conn, "select conname from pg_constraint where conrelid = $1::text::regclass and contype = 'p'", s.table)
				run(fmt.Sprintf("alter table %s drop constraint %s", s.table, constraint))
				if column != "" {
					s.write("u", fmt.Sprintf("update %s set %s = '8' where %s", s.table, column, at), at)
				}
				run(fmt.Sprintf("alter table %s add primary key (%s)", s.table, s.key))
			case "default":
				run(fmt.Sprintf("alter table %s set (fillfactor = 80)", s.table))
			case "index":
				run(fmt.Sprintf("create index on %s (%s)", s.table, s.key))
			case "policy":
				run(fmt.Sprintf("alter table %s enable row level security", s.table))
				run(fmt.Sprintf("create policy %s on %s using (true)", name(), s.table))
			case "trigger":
				run("create or replace function public.touch() returns trigger language plpgsql as 'begin return new; end'")
				run(fmt.Sprintf("create trigger %s before insert or update on %s for each row execute function public.touch()", name(), s.table))
			case "begin", "rollback":
				if inTx {
					run("commit")
				} else {
					run("begin")
				}
				inTx = !inTx
			}
		}
		if inTx {
			run("commit")
		}
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(script, ";\n"))
			}
		}()
		s.check()
		if drift := many[string](t, conn, "select what || ': ' || detail from annals.drift($1)", s.id); len(drift) > 0 {
			t.Fatalf("%s\nleaves %q", strings.Join(script, ";\n"), drift)
		}
		exec(t, conn, fmt.Sprintf("drop table %s", s.table))
	})
}
