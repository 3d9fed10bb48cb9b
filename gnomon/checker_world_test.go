package gnomon_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// The tables that the checker works on. Their keys are of random types, and few, so that sessions meet.

const checkerKeys = 14

// A keyKind is a type of keys. Equal keys can be written in several ways.
type keyKind struct {
	types []string
	write func(r *rand.Rand, k int) []string
}

func keyKinds(fold string) []keyKind {
	one := func(format string) func(*rand.Rand, int) []string {
		return func(_ *rand.Rand, k int) []string { return []string{fmt.Sprintf(format, k)} }
	}
	return []keyKind{
		{[]string{"int"}, one("%d")},
		{[]string{"uuid"}, one("01234567-89ab-cdef-0123-%012d")},
		{[]string{"bytea"}, one(`\xff00%02x`)},
		{[]string{"timestamptz"}, func(_ *rand.Rand, k int) []string {
			return []string{fmt.Sprintf("2026-01-%02d 12:00:00.123456+00", k+1)}
		}},
		{[]string{"numeric"}, func(r *rand.Rand, k int) []string {
			return []string{fmt.Sprintf("%d.5%s", k, strings.Repeat("0", r.IntN(3)))}
		}},
		{[]string{"text collate " + fold}, func(r *rand.Rand, k int) []string {
			return []string{[]string{"key", "Key", "KEY"}[r.IntN(3)] + fmt.Sprintf(" %d", k)}
		}},
		{[]string{"int", `text collate "POSIX"`}, func(_ *rand.Rand, k int) []string { return []string{fmt.Sprint(k % 3), fmt.Sprintf("k'%d", k)} }},
	}
}

// A checkerTable is one of the tables.
type checkerTable struct {
	name     string // as in SQL, without its schema
	kind     keyKind
	key      []string // key columns
	n, val   string   // counter, which only goes up along a row, and a value
	x        string   // an indexed number
	parent   []string // columns that refer to the parent
	truncate bool
}

const checkerSchema = `"Sch ema"`

type checkerWorld struct {
	random *rand.Rand
	tables []*checkerTable
	moves  bool // keys of the table whose triggers write again change too
}

// plain reports whether the changes of a table can be carried out one after the other. Where keys move in a table whose triggers write again,
// history does not tell in which order rows of one transaction left a key and arrived at it; states at coordinates do not depend on that.
func (w *checkerWorld) plain(table *checkerTable) bool { return table.name != "nested" || !w.moves }

// newCheckerWorld makes the tables, fills and tracks them. The database's search_path has their schema first.
func newCheckerWorld(t *testing.T, g *gnomon.Gnomon, pool *pgxpool.Pool, r *rand.Rand) *checkerWorld {
	t.Helper()
	run(t, pool, "create schema "+checkerSchema, "do $$ begin execute format('alter database %I set search_path = "+checkerSchema+", public', current_database()); end $$")
	fold := checkerSchema + ".fold"
	if _, err := pool.Exec(t.Context(), "create collation "+fold+" (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"); err != nil {
		run(t, pool, "create collation "+fold+` from "POSIX"`) // built without ICU
	}
	pool.Reset()
	kinds := keyKinds(fold)
	kind := func() keyKind { return kinds[r.IntN(len(kinds))] }
	w := &checkerWorld{random: r, moves: r.IntN(2) == 0, tables: []*checkerTable{
		{name: `"ta""ble"`, kind: kind(), n: `"t"`, val: `"select"`, x: `"o"`},
		{name: "child", kind: kind(), truncate: true},
		{name: "nested", kind: kind(), truncate: true},
		{name: "parts", kind: kind()},
		{name: "wide", kind: kind(), truncate: true},
		{name: "pairs", kind: kinds[len(kinds)-1]},
	}}
	parent := w.tables[0]
	for _, table := range w.tables {
		if table.n == "" {
			table.n, table.val, table.x = "n", "val", "x"
		}
		var columns, key []string
		for i, typ := range table.kind.types {
			table.key = append(table.key, fmt.Sprintf(`"k%d"`, i))
			columns = append(columns, table.key[i]+" "+typ)
		}
		key = table.key
		columns = append(columns, table.n+" bigint not null default 0", table.val+" text", table.x+" int")
		after := ""
		switch table.name {
		case parent.name:
			columns = append(columns, `"g" int generated always as ("o" * 2) stored`)
		case "child":
			for i, typ := range parent.kind.types {
				table.parent = append(table.parent, fmt.Sprintf(`"p%d"`, i))
				columns = append(columns, table.parent[i]+" "+typ)
			}
			columns = append(columns, fmt.Sprintf("foreign key (%s) references %s on update cascade on delete %s", strings.Join(table.parent, ", "), parent.name, []string{"cascade", "set null"}[r.IntN(2)]))
		case "parts":
			after = " partition by hash (" + key[0] + ")"
		case "wide":
			columns = append(columns, "w text")
		}
		run(t, pool, fmt.Sprintf("create table %s (%s, primary key (%s))%s", table.name, strings.Join(columns, ", "), strings.Join(key, ", "), after))
		switch table.name {
		case "parts":
			run(t, pool, "create table parts0 partition of parts for values with (modulus 3, remainder 0)", "create table parts1 partition of parts for values with (modulus 3, remainder 1)",
				"create table parts2 partition of parts for values with (modulus 3, remainder 2)")
		case "nested":
			run(t, pool, "create function upper_val() returns trigger language plpgsql as $$ begin new.val := upper(new.val); return new; end $$",
				`create function again() returns trigger language plpgsql as $$ begin
					if pg_trigger_depth() < 3 then update `+checkerSchema+`.nested set n = n + 1, val = 'again' where x = (new.x + 1) % 7; update `+checkerSchema+`.nested set n = n + 1 where x = new.x and n % 2 = 0; end if; return null; end $$`,
				"create trigger a before insert or update on nested for each row execute function upper_val()", "create trigger b after insert or update of val on nested for each row execute function again()")
		}
		run(t, pool, fmt.Sprintf("create index on %s (%s)", table.name, table.x))
		options := "{}"
		if table.name == "wide" {
			options = `{"wide": ["w"]}`
		}
		run(t, pool, fmt.Sprintf("select gnomon.track('%s', '%s')", table.name, options))
	}
	for _, table := range w.tables {
		for k := 0; k < checkerKeys; k += 2 {
			run(t, pool, w.insert(r, table, k, ""))
		}
	}
	return w
}

// where is the condition of a key.
func (table *checkerTable) where(r *rand.Rand, k int) string {
	return table.equal(table.kind.write(r, k))
}

func (table *checkerTable) equal(key []string) string {
	var list []string
	for i, value := range key {
		list = append(list, fmt.Sprintf("%s = %s", table.key[i], table.literal(i, value)))
	}
	return strings.Join(list, " and ")
}

// literal is a value of a key column in SQL.
func (table *checkerTable) literal(i int, value string) string {
	typ, _, _ := strings.Cut(table.kind.types[i], " collate ")
	return fmt.Sprintf("'%s'::%s", strings.ReplaceAll(value, "'", "''"), typ)
}

func (table *checkerTable) literals(key []string) string {
	var list []string
	for i, value := range key {
		list = append(list, table.literal(i, value))
	}
	return strings.Join(list, ", ")
}

// insert inserts a row.
func (w *checkerWorld) insert(r *rand.Rand, table *checkerTable, k int, rest string) string {
	columns := append(append([]string{}, table.key...), table.val, table.x)
	values := append([]string{table.literals(table.kind.write(r, k))}, fmt.Sprintf("'new %d'", r.IntN(100)), fmt.Sprint(r.IntN(7)))
	if table.parent != nil && r.IntN(3) > 0 {
		columns = append(columns, table.parent...)
		values = append(values, w.tables[0].literals(w.tables[0].kind.write(r, r.IntN(checkerKeys)/2*2)))
	}
	if table.name == "wide" {
		columns = append(columns, "w")
		values = append(values, fmt.Sprintf("repeat('wide %d ', 40)", r.IntN(100)))
	}
	return fmt.Sprintf("insert into %s as t (%s) values (%s)%s", table.name, strings.Join(columns, ", "), strings.Join(values, ", "), rest)
}

// statement draws one that writes.
func (w *checkerWorld) statement(r *rand.Rand) string {
	table := w.tables[r.IntN(len(w.tables))]
	k := r.IntN(checkerKeys)
	n := r.IntN(100)
	if w.plain(table) && table.name == "nested" && (n >= 31 && n < 43 || n >= 93) {
		n %= 20
	}
	set := fmt.Sprintf("update %s set %s = %[2]s + 1, ", table.name, table.n)
	key := strings.Join(table.key, ", ")
	switch {
	case n < 20:
		return set + fmt.Sprintf("%s = 'set %d' where %s", table.val, r.IntN(100), table.where(r, k))
	case n < 28:
		return set + fmt.Sprintf("%s = (%[1]s + 1) %% 7 where %[1]s = %d", table.x, r.IntN(7))
	case n < 31:
		return fmt.Sprintf("update %s set %s = %[2]s where %s >= %d", table.name, table.val, table.x, r.IntN(7))
	case n < 43: // another key, or the same written otherwise
		to := table.kind.write(r, []int{k, r.IntN(checkerKeys)}[r.IntN(2)])
		return set + fmt.Sprintf("(%s) = row (%s) where %s", key, table.literals(to), table.where(r, k))
	case n < 55:
		return w.insert(r, table, k, []string{"", " on conflict do nothing"}[r.IntN(2)])
	case n < 70:
		return w.insert(r, table, k, fmt.Sprintf(" on conflict (%s) do update set %s = t.%[2]s + 1, %s = excluded.%[3]s", key, table.n, table.val))
	case n < 80:
		return fmt.Sprintf("delete from %s where %s", table.name, table.where(r, k))
	case n < 83:
		return fmt.Sprintf("delete from %s where %s = %d", table.name, table.x, r.IntN(7))
	case n < 88:
		return fmt.Sprintf("merge into %s t using (values (%d)) s (x) on t.%s = s.x and %s when matched and t.%s %% 3 = 0 then delete when matched then update set %[5]s = t.%[5]s + 1, %[6]s = 'merged'",
			table.name, r.IntN(7), table.x, table.where(r, k), table.n, table.val)
	case n < 93:
		wide := w.tables[4]
		return fmt.Sprintf("update wide set n = n + 1, w = %s where %s", []string{"w", "w || 'x'", "null", "repeat('other ', 50)"}[r.IntN(4)], wide.where(r, k))
	case n < 95:
		if table.truncate {
			return "truncate " + table.name
		}
		fallthrough
	default: // two rows change places
		a, b := table.kind.write(r, k), table.kind.write(r, r.IntN(checkerKeys))
		if len(a) > 1 || table.name == "child" {
			return fmt.Sprintf("with gone as (delete from %s where %s returning 1) select * from gone", table.name, table.equal(a))
		}
		return fmt.Sprintf("delete from %s where %s; %s; %s", table.name, table.equal(a), w.insert(r, table, k, " on conflict do nothing"), set+fmt.Sprintf("%s = %s where %s", table.key[0], table.literal(0, a[0]), table.equal(b)))
	}
}

// query draws one that reads.
func (w *checkerWorld) query(r *rand.Rand) string {
	table := w.tables[r.IntN(len(w.tables))]
	parent, child := w.tables[0], w.tables[1]
	key := strings.Join(table.key, ", ")
	var on []string
	for i := range parent.key {
		on = append(on, fmt.Sprintf("c.%s = p.%s", child.parent[i], parent.key[i]))
	}
	switch r.IntN(9) {
	case 0, 1:
		return "select * from " + table.name
	case 2:
		return fmt.Sprintf("select * from %s where %s", table.name, table.where(r, r.IntN(checkerKeys)))
	case 3:
		return fmt.Sprintf("select %s, %s from %s where (%[1]s) >= (%[4]s) order by %[1]s limit %[5]d", key, table.n, table.name, table.literals(table.kind.write(r, r.IntN(checkerKeys))), 1+r.IntN(5))
	case 4:
		return fmt.Sprintf("select count(*), sum(%s), min(%s), max(%s), count(distinct %[3]s) from %s", table.n, table.val, table.x, table.name)
	case 5:
		return fmt.Sprintf("select * from %s where %s = %d order by %s desc", table.name, table.x, r.IntN(7), key)
	case 6:
		return fmt.Sprintf("select p.*, c.* from %s p left join child c on %s", parent.name, strings.Join(on, " and "))
	case 7:
		return fmt.Sprintf("select * from %s p where not exists (select from child c where %s) and p.%s in (select x from pairs union select x from wide)", parent.name, strings.Join(on, " and "), parent.x)
	default:
		return fmt.Sprintf("select x.x, count(*), sum(a.n), (select count(*) from nested) from wide a join parts b on b.x = a.x join (select distinct x from %s) x on x.x = a.x group by x.x", []string{"pairs", "nested", "parts"}[r.IntN(3)])
	}
}
