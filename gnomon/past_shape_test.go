package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// ledger remembers what a table held at coordinates, by the numbers of its columns, and compares what the past shows.
type ledger struct {
	t       *testing.T
	conn    *pgx.Conn
	g       *gnomon.Gnomon
	oid     uint32
	trace   []string
	names   map[string]string // last names of columns, by number
	moments []shapeMoment

	unfollowed bool // no event triggers
}

type shapeMoment struct {
	after   string // which step
	at      gnomon.Ref
	columns []string            // numbers
	names   map[string]string   // names of columns then, by number
	rows    []map[string]string // values by number of the column
}

func (l *ledger) failf(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf(format+"\nafter:\n%s", append(args, strings.Join(l.trace, "\n"))...)
}

// step executes a step, which can be a program of several statements.
func (l *ledger) step(sql string) {
	l.t.Helper()
	l.trace = append(l.trace, sql)
	if _, err := l.conn.Exec(l.t.Context(), sql); err != nil {
		l.failf("%s: %v", sql, err)
	}
}

// table is the present name of the table; empty when it is gone.
func (l *ledger) table() string {
	var name *string
	ok(l.t, l.conn.QueryRow(l.t.Context(), "select (select c.oid::regclass::text from pg_class c where c.oid = $1)", l.oid).Scan(&name))
	if name == nil {
		return ""
	}
	return *name
}

// columns reads the columns of the table that history holds or computes: their numbers and names.
func (l *ledger) columns() (numbers, names []string) {
	numbers = column[string](l.t, l.conn, "select attnum::text from pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped and attname <> 'secret' order by attnum", l.oid)
	names = column[string](l.t, l.conn, "select attname::text from pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped and attname <> 'secret' order by attnum", l.oid)
	for i, n := range numbers {
		l.names[n] = names[i]
	}
	return numbers, names
}

func (l *ledger) remember() {
	l.t.Helper()
	table := l.table()
	if table == "" {
		return
	}
	ctx := l.t.Context()
	numbers, names := l.columns()
	tx := must[pgx.Tx](l.t)(l.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
	defer tx.Rollback(ctx)
	m := shapeMoment{after: l.trace[len(l.trace)-1], at: must[gnomon.Coordinate](l.t)(gnomon.New(tx).Now(ctx)).Ref(), columns: numbers, names: maps.Clone(l.names)}
	for _, row := range textsOf(l.t, tx, "select * from "+table) {
		byNumber := map[string]string{}
		for i, n := range numbers {
			byNumber[n] = row[names[i]]
		}
		m.rows = append(m.rows, byNumber)
	}
	l.moments = append(l.moments, m)
}

// textsOf reads rows as texts by the names of their columns.
func textsOf(t testing.TB, db querier, sql string) (list []map[string]string) {
	t.Helper()
	list, err := texts(t.Context(), db, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

type querier interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}

func texts(ctx context.Context, db querier, sql string) (list []map[string]string, err error) {
	args := []any{pgx.QueryResultFormats{pgx.TextFormatCode}}
	if _, past := db.(*gnomon.Past); !past {
		args = append(args, pgx.QueryExecModeDescribeExec) // the columns change from one to the next
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		row := map[string]string{}
		for i, value := range rows.RawValues() {
			row[rows.FieldDescriptions()[i].Name] = "null"
			if value != nil {
				row[rows.FieldDescriptions()[i].Name] = "'" + string(value) + "'"
			}
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// outcome reads a moment: ok, gone where only the values of dropped columns are refused, or why it is refused. A wrong value fails the test.
func (l *ledger) outcome(m shapeMoment) string {
	l.t.Helper()
	ctx := l.t.Context()
	past, err := l.g.At(ctx, m.at)
	if errors.Is(err, gnomon.ErrStale) {
		return "stale" // nothing followed what became of it
	}
	ok(l.t, err)
	table := l.table()
	if table == "" {
		return "no table"
	}
	parts := strings.Split(table, ".")
	table = parts[len(parts)-1]
	got, err := texts(ctx, past, "select * from "+table)
	switch {
	case errors.Is(err, gnomon.ErrColumnGone):
		l.withoutGone(past, table, m)
		return "gone"
	case errors.Is(err, gnomon.ErrNoHistory):
		return "none"
	case errors.Is(err, gnomon.ErrUntracked), errors.Is(err, gnomon.ErrNotTracked):
		return "untracked"
	case l.unfollowed && slices.Contains([]string{"42703", "42P13"}, sqlState(err)):
		return "stale" // PostgreSQL finds out first, as it plans
	case err != nil:
		var e *gnomon.Error
		if !errors.As(err, &e) {
			l.failf("reading %s after %q: %v", table, m.after, err)
		}
		return fmt.Sprint(e.Kind)
	}
	columns := m.columns
	if l.unfollowed && len(got) > 0 {
		// What came is captured from annals.sync on.
		columns = slices.DeleteFunc(slices.Clone(columns), func(n string) bool { _, shown := got[0][l.names[n]]; return !shown })
	}
	l.equal(m, got, columns, l.names)
	if !l.unfollowed {
		past := must[*gnomon.Past](l.t)(l.g.At(ctx, m.at, gnomon.FormerNames()))
		l.equal(m, textsOf(l.t, past, "select * from "+table), columns, m.names)
	}
	return "ok"
}

// equal fails the test unless rows of the past are those of a moment, in some of its columns, under these names.
func (l *ledger) equal(m shapeMoment, got []map[string]string, numbers []string, names map[string]string) {
	l.t.Helper()
	want := map[string]int{}
	for _, row := range m.rows {
		renamed := map[string]string{}
		for _, n := range numbers {
			renamed[names[n]] = row[n]
		}
		want[fmt.Sprint(renamed)]++
	}
	shown := map[string]int{}
	for _, row := range got {
		shown[fmt.Sprint(row)]++
	}
	if !maps.Equal(want, shown) {
		l.failf("after %q at %s it was\n%v\nthe past shows\n%v", m.after, m.at, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(shown)))
	}
}

// withoutGone compares what is left: the other columns of all rows, and each value by itself.
func (l *ledger) withoutGone(past *gnomon.Past, table string, m shapeMoment) {
	l.t.Helper()
	ctx := l.t.Context()
	var left []string
	for _, n := range m.columns {
		name := pgx.Identifier{l.names[n]}.Sanitize()
		if _, err := texts(ctx, past, "select "+name+" from "+table); err == nil {
			left = append(left, n)
		} else if l.unfollowed && sqlState(err) == "42703" {
			continue
		} else if !errors.Is(err, gnomon.ErrColumnGone) {
			l.failf("%s: %v", name, err)
		} else {
			for _, row := range m.rows {
				// The first column is the key.
				got, err := texts(ctx, past, fmt.Sprintf("select %s from %s where %s = %s", name, table, pgx.Identifier{l.names[m.columns[0]]}.Sanitize(), row[m.columns[0]]))
				if err != nil && !errors.Is(err, gnomon.ErrColumnGone) {
					l.failf("%s: %v", name, err)
				}
				if err == nil && (len(got) != 1 || got[0][l.names[n]] != row[n]) {
					l.failf("after %q column %s of row %s is %v, was %s", m.after, name, row[m.columns[0]], got, row[n])
				}
			}
		}
	}
	list := make([]string, len(left))
	for i, n := range left {
		list[i] = pgx.Identifier{l.names[n]}.Sanitize()
	}
	l.equal(m, textsOf(l.t, past, "select "+strings.Join(list, ", ")+" from "+table), left, l.names)
}

// outcomes reads all moments.
func (l *ledger) outcomes() string {
	l.t.Helper()
	var list []string
	for _, m := range l.moments {
		list = append(list, l.outcome(m))
	}
	return strings.Join(list, " ")
}

const shapeSetup = `create table o (id int primary key, a text, b varchar(9), c int); insert into o values (1, 'a1', 'b1', 11), (2, 'a2', null, 12), (3, null, 'b3', 13)`

// shapePlays are changes of a table o, with what reading says in the end of each moment: one before the first step and one after each.
var shapePlays = []struct{ name, setup, options, steps, want string }{
	{name: "a column comes", steps: "update o set c = 0 where id = 1; alter table o add d int default 7; update o set d = 8, c = 5 where id = 2; delete from o where id = 3", want: "ok ok ok ok ok"},
	{name: "a column goes", steps: "update o set a = 'x' where id = 1; alter table o drop a; update o set c = 0; delete from o where id = 1", want: "gone gone ok ok ok"},
	{name: "a column goes whose rows all changed", steps: "update o set a = a || '!'; alter table o drop a; update o set c = 0", want: "ok gone ok ok"},
	{name: "a column goes, saved", steps: "update o set a = 'x' where id = 1; save; alter table o drop a; end; update o set c = 0; delete from o where id = 1", want: "ok ok ok ok ok"},
	{name: "a column goes and another comes of its name", steps: "update o set a = 'x' where id = 1; alter table o drop a; alter table o add a text default 'new'; update o set a = 'y' where id = 2", want: "gone gone ok ok ok"},
	{name: "the same, saved", steps: "update o set a = 'x' where id = 1; save; alter table o drop a; end; alter table o add a int default 9; update o set a = 1 where id = 2; update o set a = 2", want: "ok ok ok ok ok ok"},
	{name: "a column is renamed", steps: `update o set a = 'x' where id = 1; alter table o rename a to "A ""b"; update o set c = 1; alter table o rename c to a; update o set a = 5 where id = 3; delete from o`, want: "ok ok ok ok ok ok ok"},
	{name: "names are swapped", steps: `alter table o rename a to x; alter table o rename b to a; alter table o rename x to b; update o set a = 'A', b = 'B'; update o set c = c + 1`, want: "ok ok ok ok ok ok"},
	{name: "the key is renamed", steps: `update o set c = 1; alter table o rename id to "select"; update o set c = 2; update o set "select" = 9 where "select" = 3`, want: "ok ok ok ok ok"},
	{name: "types become wider", steps: "update o set c = 1 where id = 1; alter table o alter c type bigint; update o set c = 5000000000 where id = 2; alter table o alter b type text; alter table o alter b type varchar; update o set b = 'longer than nine'; delete from o where id = 1", want: "none none ok ok ok ok ok ok"},
	{name: "a type becomes another", steps: "update o set a = id where id > 0; alter table o alter a type int using a::int * 10; update o set a = a + 1 where id = 1; update o set c = 4", want: "none none ok ok ok"},
	{name: "a type becomes another, saved", steps: "update o set a = id where id > 0; save; alter table o alter a type int using a::int * 10; end; update o set a = a + 1 where id = 1; update o set c = 4", want: "ok ok ok ok ok"},
	{name: "the key becomes wider", steps: "update o set c = 1; free; alter table o alter id type bigint; update o set c = 2 where id = 1; insert into o values (5000000000); delete from o where id = 3", want: "none none none ok ok ok ok"},
	{name: "another name", steps: `update o set c = 1; alter table o rename to "ta""ble"; update "ta""ble" set c = 2; create schema "Sch ema"; alter table "ta""ble" set schema "Sch ema"; update "Sch ema"."ta""ble" set c = 3; alter table "Sch ema"."ta""ble" set schema public; alter table "ta""ble" rename to o`, want: "ok ok ok ok ok ok ok ok ok"},
	{name: "another key", setup: "alter table o add d int not null default 0; update o set d = id * 2;", steps: "update o set c = 1; alter table o drop constraint o_pkey, add primary key (d); update o set c = 2; update o set id = 3 - id where id < 3", want: "none none ok ok ok"},
	{name: "the key comes back", steps: "update o set c = 1; alter table o drop constraint o_pkey; update o set c = 2; alter table o add primary key (id); update o set c = 3", want: "ok ok ok ok ok ok"},
	{name: "columns that are excluded", setup: "alter table o add secret text default 's';", options: `{"exclude": ["secret"]}`, steps: "update o set c = 1; update o set secret = 'x'; update o set c = 3; delete from o where id = 2", want: "ok ok ok ok ok"},
	{name: "columns that are generated", setup: "alter table o add twice int generated always as (c * 2) stored;", steps: "update o set c = 1 where id = 1; delete from o where id = 2; update o set c = 7", want: "ok ok ok ok"},
	{name: "wide columns", options: `{"wide": ["a", "b"]}`, steps: "update o set c = 1; update o set a = 'x' where id = 1; update o set b = 'y'; alter table o drop c; update o set a = 'z'; alter table o rename a to z; update o set b = 'b'; delete from o", want: "ok ok ok gone ok ok ok ok ok"},
	{name: "a wide column goes, saved", options: `{"wide": ["a", "b"]}`, steps: "update o set c = 1; free; save; alter table o drop a; end; update o set c = 3; update o set b = 'y'; delete from o", want: "ok ok ok ok ok ok ok"},
	{name: "a wide column goes", options: `{"wide": ["a", "b"]}`, steps: "update o set c = 1; update o set a = 'x' where id = 1; free; alter table o drop a; update o set c = 3; update o set b = 'y'; delete from o", want: "gone gone gone gone ok ok ok ok"},
	{name: "tracking ends", steps: "update o set c = 1; select gnomon.untrack('o'); update o set c = 2; update o set a = 'lost'", want: "ok ok none none none"},
	{name: "tracking begins again", steps: "update o set c = 1; select gnomon.untrack('o'); update o set c = 2; select gnomon.track('o'); update o set c = 3", want: "ok ok none none ok ok"},
	{name: "history is dropped", steps: "update o set c = 1; select gnomon.untrack('o', 'drop'); update o set c = 2; select gnomon.track('o'); update o set c = 3", want: "none none none none ok ok"},
	{name: "the table is dropped", steps: "update o set c = 1; drop table o; create table o (id int primary key, z int); select gnomon.track('o')", want: "no table no table"},
	{name: "triggers are disabled", steps: "update o set c = 1; alter table o disable trigger all; update o set c = 2; alter table o enable trigger all; update o set c = 3", want: "none none none none ok ok"},
	{name: "columns come and go between rotations", steps: "update o set c = 1 where id = 1; rotate; update o set c = 2 where id = 2; alter table o add d text default 'd'; rotate; update o set d = 'D' where id = 1; rotate; update o set a = 'q' where id = 1; seal; delete from o where id = 3", want: "ok ok ok ok ok ok ok ok ok ok ok"},
	{name: "partitions", setup: "drop table o; create table o (id int primary key, a text, b varchar(9), c int) partition by range (id); create table o1 partition of o for values from (1) to (10); create table o2 (c int, id int not null, a text, b varchar(9)); insert into o2 values (1, 11, 'in', 'b'); insert into o values (1, 'a', 'b', 1), (2, 'x', 'y', 2);",
		steps: "update o set c = 5; alter table o attach partition o2 for values from (10) to (20); update o set id = 12 where id = 1; alter table o detach partition o2; update o2 set c = 99; update o set c = 6", want: "ok ok ok ok ok ok ok"},
}

// TestThePastOfChangedTables: however a table is changed, what is read is what was there, or it is refused as it has to be.
func TestThePastOfChangedTables(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	for _, p := range shapePlays {
		t.Run(p.name, func(t *testing.T) {
			l := newLedger(t, pool.Config().ConnString(), p.setup, p.options)
			l.play(p.steps)
			if got := l.outcomes(); got != p.want {
				t.Errorf("reading says\n%s, want\n%s", got, p.want)
			}
		})
	}
}

func newLedger(t *testing.T, connString, setup, options string) *ledger {
	t.Helper()
	return newLedgerAs(t, connString, "", setup, options)
}

func newLedgerAs(t *testing.T, connString, role, setup, options string) *ledger {
	t.Helper()
	if options == "" {
		options = "{}"
	}
	l := &ledger{t: t, conn: connectAs(t, connString, role), names: map[string]string{}}
	l.g = gnomon.New(l.conn)
	run(t, l.conn, "set client_min_messages = error", `drop schema if exists public cascade`, `drop schema if exists "Sch ema" cascade`, "create schema public")
	l.step(shapeSetup)
	if setup != "" {
		l.step(setup)
	}
	ok(t, l.conn.QueryRow(t.Context(), "select 'o'::regclass::oid").Scan(&l.oid))
	run(t, l.conn, "select gnomon.track('o', '"+options+"')")
	return l
}

// play plays steps. From save to end they are one transaction, in which all rows are saved first.
func (l *ledger) play(steps string) {
	l.t.Helper()
	l.remember()
	var together []string
	for step := range strings.SplitSeq(steps, "; ") {
		switch {
		case step == "save":
			together = []string{"begin", fmt.Sprintf("select annals.materialize(%d)", l.id())}
			continue
		case step == "end":
			step = strings.Join(append(together, "commit"), "; ")
			together = nil
		case together != nil:
			together = append(together, step)
			continue
		case step == "rotate":
			step = fmt.Sprintf("select annals.rotate(%d, 0)", l.id())
		case step == "free":
			step = fmt.Sprintf("select annals.free_key(%d)", l.id())
		case step == "seal":
			step = "select annals.seal_segments()"
		}
		l.step(step)
		l.remember()
	}
}

// id is the number of the history.
func (l *ledger) id() int {
	return column[int](l.t, l.conn, "select id from annals.tracked where relation_oid = $1 and ended_v is null", l.oid)[0]
}

// TestPlacesBeforeTracking: what was there before a table was tracked is not known, also while the transaction that tracks it is open.
func TestPlacesBeforeTracking(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	ctx := t.Context()
	run(t, pool, shapeSetup, "create table first (id int primary key)")
	untouched := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	track(t, g, "first")
	before := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	defer tx.Rollback(context.WithoutCancel(ctx))
	track(t, gnomon.New(tx), "o")
	during := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, tx, "update o set c = 0")
	ok(t, tx.Commit(ctx))
	after := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "delete from o")
	for _, at := range []gnomon.Ref{untouched, before, during} {
		past := must[*gnomon.Past](t)(g.At(ctx, at))
		_, err := past.Exec(ctx, "select * from o")
		refuses(t, err, gnomon.ErrNoHistory)
		_, _, err = gnomon.Get[map[string]any](ctx, past, "o", 1)
		refuses(t, err, gnomon.ErrNoHistory)
		_, err = gnomon.List[map[string]any](ctx, past, "o", "")
		if e := refuses(t, err, gnomon.ErrNoHistory); e.Table != "o" && e.Table != "public.o" {
			t.Errorf("the table is %q", e.Table)
		}
	}
	if got := text(t, must[*gnomon.Past](t)(g.At(ctx, after)), "select count(*), sum(c) from o"); got != "(3,0)" {
		t.Errorf("then it was %s", got)
	}
	// Of several tables one decides.
	past := must[*gnomon.Past](t)(g.At(ctx, before))
	if got := text(t, past, "select count(*) from first"); got != "(0)" {
		t.Errorf("the first table had %s", got)
	}
	_, err := past.Exec(ctx, "select * from first join o using (id)")
	refuses(t, err, gnomon.ErrNoHistory)
}
