package gnomon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

// line writes a change shortly: what was done, the key, and what the row was and became.
func line(c gnomon.Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", c.Operation, c.Table, strings.Join(c.Key, ","))
	if c.NewKey != nil {
		fmt.Fprintf(&b, " => %s", strings.Join(c.NewKey, ","))
	}
	for _, i := range []gnomon.Image{c.Old, c.New} {
		if i.Known() {
			b.WriteString(" " + imageText(i))
		} else {
			b.WriteString(" -")
		}
	}
	if c.Last {
		b.WriteString(" .")
	}
	return b.String()
}

func imageText(i gnomon.Image) string {
	var list []string
	for _, name := range i.Columns() {
		text, null, _ := i.Value(name)
		if null {
			text = "null"
		}
		list = append(list, name+":"+text)
	}
	return "(" + strings.Join(list, " ") + ")"
}

func changes(t testing.TB, g *gnomon.Gnomon, from, to gnomon.Ref, o gnomon.ChangesOptions) []gnomon.Change {
	t.Helper()
	var list []gnomon.Change
	for c, err := range g.Changes(t.Context(), from, to, o) {
		ok(t, err)
		list = append(list, c)
	}
	return list
}

func lines(list []gnomon.Change) string {
	var b []string
	for _, c := range list {
		b = append(b, line(c))
	}
	return strings.Join(b, "\n")
}

func wants(t testing.TB, got, want string) {
	t.Helper()
	if want = strings.ReplaceAll(strings.TrimSpace(want), "\n\t", "\n"); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func here(t testing.TB, g *gnomon.Gnomon) gnomon.Ref {
	t.Helper()
	return must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
}

// shop is installed with a small tracked table, whose names are hostile.
func shop(t testing.TB, columns string) (*gnomon.Gnomon, *pgxpool.Pool) {
	t.Helper()
	g, pool := installed(t)
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" (`+columns+`)`)
	track(t, g, `"Sch ema"."ta""ble"`)
	return g, pool
}

const shopTable = `"Sch ema"."ta""ble"`

func TestChangesTellWhatRowsWereAndBecame(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, `"t" int primary key, "o" text, "select" boolean`)
	from := here(t, g)
	run(t, pool, "insert into "+shopTable+" values (1, 'a', true), (2, null, false)", "update "+shopTable+` set "o" = 'b' where "t" = 1`, "update "+shopTable+` set "o" = "o"`)
	middle := here(t, g)
	run(t, pool, "delete from "+shopTable+` where "t" = 2`, "update "+shopTable+` set "t" = 3`, "truncate "+shopTable)
	first := changes(t, g, from, middle, gnomon.ChangesOptions{})
	wants(t, lines(first), `
	insert "Sch ema"."ta""ble" 1 - (t:1 o:a select:t)
	insert "Sch ema"."ta""ble" 2 - (t:2 o:null select:f) .
	update "Sch ema"."ta""ble" 1 (t:1 o:a select:t) (t:1 o:b select:t) .`)
	if got := first[2].Changed(); !slices.Equal(got, []string{"o"}) {
		t.Fatalf("changed columns %v", got)
	}
	wants(t, lines(changes(t, g, middle, gnomon.Present, gnomon.ChangesOptions{})), `
	delete "Sch ema"."ta""ble" 2 (t:2 o:null select:f) - .
	update "Sch ema"."ta""ble" 1 => 3 (t:1 o:b select:t) (t:3 o:b select:t) .
	truncate "Sch ema"."ta""ble" 3 (t:3 o:b select:t) - .`)
	wants(t, lines(changes(t, g, middle, gnomon.Present, gnomon.ChangesOptions{NoImages: true, Operations: []gnomon.Operation{gnomon.Update, gnomon.Truncate}, Keys: []gnomon.Key{{"1"}}})), `
	update "Sch ema"."ta""ble" 1 => 3 - - .`)
	if n := len(changes(t, g, from, middle, gnomon.ChangesOptions{Noop: true})); n != 5 {
		t.Fatalf("%d changes with those that change nothing", n)
	}
	type row struct {
		T      int     `db:"t"`
		O      *string `db:"o"`
		Select bool
	}
	scanned := must[row](t)(gnomon.Scan(first[0].New, pgx.RowToStructByNameLax[row]))
	if scanned.T != 1 || *scanned.O != "a" || !scanned.Select {
		t.Fatalf("scanned %v", scanned)
	}
	if _, err := gnomon.Scan(first[0].Old, pgx.RowToStructByNameLax[row]); err == nil {
		t.Fatal("the old image of an insert was scanned")
	}
	wants(t, text(t, pool, "select last, relation, operation, key, new_key, old->>'o', new->>'t', columns from gnomon.changes($1, p_tables => null) c", string(middle)), `
	(t,"""Sch ema"".""ta""""ble""",delete,{2},,,,)
	(t,"""Sch ema"".""ta""""ble""",update,{1},{3},b,3,{t})
	(t,"""Sch ema"".""ta""""ble""",truncate,{3},,b,,)`)
}

// What a coordinate sees is told by its snapshot, not by positions: a transaction that commits later than another one with higher positions comes later.
func TestChangesOfOverlappingTransactions(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key, n int")
	from := here(t, g)
	tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
	must[any](t)(tx.Exec(t.Context(), "insert into "+shopTable+" values (1, 1)"))
	run(t, pool, "insert into "+shopTable+" values (2, 1)")
	middle := here(t, g)
	must[any](t)(tx.Exec(t.Context(), "insert into "+shopTable+" values (3, 1)"))
	ok(t, tx.Commit(t.Context()))
	run(t, pool, "update "+shopTable+" set n = 2 where id < 3")
	wants(t, lines(changes(t, g, from, middle, gnomon.ChangesOptions{})), `
	insert "Sch ema"."ta""ble" 2 - (id:2 n:1) .`)
	wants(t, lines(changes(t, g, middle, gnomon.Present, gnomon.ChangesOptions{})), `
	insert "Sch ema"."ta""ble" 1 - (id:1 n:1)
	insert "Sch ema"."ta""ble" 3 - (id:3 n:1) .
	update "Sch ema"."ta""ble" 1 (id:1 n:1) (id:1 n:2)
	update "Sch ema"."ta""ble" 2 (id:2 n:1) (id:2 n:2) .`)
	// Each comes whole, where it ended.
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{Operations: []gnomon.Operation{gnomon.Insert}})), `
	insert "Sch ema"."ta""ble" 2 - (id:2 n:1) .
	insert "Sch ema"."ta""ble" 1 - (id:1 n:1)
	insert "Sch ema"."ta""ble" 3 - (id:3 n:1) .`)
	for _, err := range g.Changes(t.Context(), middle, from, gnomon.ChangesOptions{}) {
		refuses(t, err, gnomon.ErrInvalid)
	}
}

func TestChangesOfSwappedKeysCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"auto", "row"} {
		g, pool := installed(t)
		run(t, pool, "create table s (id int primary key deferrable, n text)", "insert into s select i, 'n' || i from generate_series(1, 4) i", fmt.Sprintf(`select gnomon.track('s', '{"form": %q}')`, form))
		from := here(t, g)
		run(t, pool, "update s set id = case id when 1 then 2 when 2 then 1 when 3 then 5 else id end")
		state := map[string]string{"1": "(id:1 n:n1)", "2": "(id:2 n:n2)", "3": "(id:3 n:n3)", "4": "(id:4 n:n4)"}
		for _, c := range changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{}) {
			replay(t, state, c)
		}
		if got := fmt.Sprint(state); got != "map[1:(id:1 n:n2) 2:(id:2 n:n1) 4:(id:4 n:n4) 5:(id:5 n:n3)]" {
			t.Fatalf("%s: %s", form, got)
		}
	}
}

// replay carries out a change, and fails where it does not fit.
func replay(t testing.TB, state map[string]string, c gnomon.Change) {
	t.Helper()
	key := strings.Join(c.Key, ",")
	before, there := state[key]
	if there == (c.Operation == gnomon.Insert) || there && before != imageText(c.Old) {
		t.Fatalf("%s on %v", line(c), before)
	}
	delete(state, key)
	if c.Operation != gnomon.Insert && c.Operation != gnomon.Update {
		return
	}
	if c.NewKey != nil {
		key = strings.Join(c.NewKey, ",")
		if _, there := state[key]; there {
			t.Fatalf("%s, which is there", line(c))
		}
	}
	state[key] = imageText(c.New)
}

func TestChangesOfWideColumnsSavepointsAndTriggers(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table s (id int primary key, n int, doc text)", `select gnomon.track('s', '{"wide": ["doc"], "form": "row"}')`,
		`create function again() returns trigger language plpgsql as 'begin if new.n < 3 then update s set n = new.n + 1 where id = new.id; end if; return null; end'`,
		"create trigger again after update on s for each row execute function again()", "select annals.sync(1)")
	from := here(t, g)
	run(t, pool, "insert into s values (1, 0, 'long'), (2, 9, 'other')", "begin; update s set n = 5 where id = 2; savepoint a; update s set doc = 'lost' where id = 2; rollback to a; update s set n = 6 where id = 2; commit",
		"update s set n = 1 where id = 1", "update s set doc = 'longer' where id = 1")
	middle := here(t, g)
	state := map[string]string{}
	for _, c := range changes(t, g, from, middle, gnomon.ChangesOptions{}) {
		replay(t, state, c)
	}
	run(t, pool, "update s set n = 100, doc = 'later'")
	again := map[string]string{}
	for _, c := range changes(t, g, from, middle, gnomon.ChangesOptions{}) {
		replay(t, again, c)
	}
	want := "map[1:(id:1 n:3 doc:longer) 2:(id:2 n:6 doc:other)]"
	if fmt.Sprint(state) != want || fmt.Sprint(again) != want {
		t.Fatalf("replayed %v and %v", state, again)
	}
}

func TestChangesAreReadAsTheCaller(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key, owner text, n int")
	from := here(t, g)
	run(t, pool, "insert into "+shopTable+" values (1, 'mine', 1), (2, 'other', 1), (3, 'mine', 1)", "update "+shopTable+" set n = 2", "update "+shopTable+" set owner = 'other', n = 3 where id = 3", "update "+shopTable+" set owner = 'mine', n = 4 where id = 3")
	role := pgserver.Role(t, pgserver.Shared(t), "reader")
	run(t, pool, `grant usage on schema gnomon, annals, "Sch ema" to `+role, "grant select on all tables in schema annals, gnomon to "+role, "grant execute on all functions in schema annals, gnomon to "+role)
	as := func(f func(g *gnomon.Gnomon)) {
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			run(t, tx, "set local role "+role)
			f(gnomon.New(tx))
			run(t, tx, "reset role")
			return nil
		}))
	}
	as(func(g *gnomon.Gnomon) {
		for _, err := range g.Changes(t.Context(), from, gnomon.Present, gnomon.ChangesOptions{}) {
			if sqlState(err) != "42501" {
				t.Fatalf("without SELECT: %v", err)
			}
		}
	})
	run(t, pool, "grant select on "+shopTable+" to "+role, "alter table "+shopTable+" enable row level security", "create policy mine on "+shopTable+" using (owner = 'mine')", "select annals.sync(1)")
	as(func(g *gnomon.Gnomon) {
		got := lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{}))
		if strings.Contains(got, "other") || strings.Contains(got, "n:3") {
			t.Fatalf("hidden rows are shown:\n%s", got)
		}
		wants(t, got, `
	insert "Sch ema"."ta""ble" 1 - (id:1 owner:mine n:1)
	insert "Sch ema"."ta""ble" 3 - (id:3 owner:mine n:1) .
	update "Sch ema"."ta""ble" 1 (id:1 owner:mine n:1) (id:1 owner:mine n:2)
	update "Sch ema"."ta""ble" 3 (id:3 owner:mine n:1) (id:3 owner:mine n:2) .
	update "Sch ema"."ta""ble" 3 (id:3 owner:mine n:2) - .`)
	})
}

func TestChangesAreRefusedWhereHistoryLacks(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table s (id int primary key)", `select gnomon.track('s', '{"truncate": "allow"}')`, "create table other (id int primary key)")
	from := here(t, g)
	run(t, pool, "insert into s values (1)", "truncate s")
	for _, err := range g.Changes(t.Context(), from, gnomon.Present, gnomon.ChangesOptions{}) {
		if e := refuses(t, err, gnomon.ErrNoHistory); e.Reason != "interrupted" {
			t.Fatal(e.Reason)
		}
	}
	for _, err := range g.Changes(t.Context(), from, gnomon.Present, gnomon.ChangesOptions{Tables: []string{"public.other"}}) {
		refuses(t, err, gnomon.ErrNotTracked)
	}
	// What is tracked later comes from then on, and what is dropped or no longer tracked up to then.
	from = here(t, g)
	track(t, g, "public.other")
	run(t, pool, "insert into other values (1)", "insert into s values (2)", "drop table s")
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{NoImages: true})), `
	insert public.other 1 - - .
	insert public.s 2 - - .`)
	run(t, pool, "insert into other values (2)", "select gnomon.untrack('other')", "delete from other")
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{Tables: []string{"public.other"}})), `
	insert public.other 1 - (id:1) .
	insert public.other 2 - (id:2) .`)
}

func TestChangesOfPartitionedTablesAndOtherTypes(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create type mood as enum ('good', 'bad')", "create type pair as (a int, b text)", "create table p (id int, m mood, c char(3), i inet, pairs pair[], j jsonb, x pair, primary key (id, m)) partition by list (m)",
		"create table p1 partition of p for values in ('good')", "create table p2 partition of p for values in ('bad')")
	track(t, g, "public.p")
	from := here(t, g)
	run(t, pool, `insert into p values (1, 'good', 'a', '10.0.0.1', '{"(1,x)"}', '{"a": 1}', '(,)'), (2, 'good', 'b', null, null, null, null)`, "update p set m = 'bad' where id = 1", "update p set c = 'z'")
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{})), `
	insert public.p 1,good - (id:1 m:good c:a   i:10.0.0.1 pairs:{"(1,x)"} j:{"a": 1} x:(,))
	insert public.p 2,good - (id:2 m:good c:b   i:null pairs:null j:null x:null) .
	update public.p 1,good => 1,bad (id:1 m:good c:a   i:10.0.0.1 pairs:{"(1,x)"} j:{"a": 1} x:(,)) (id:1 m:bad c:a   i:10.0.0.1 pairs:{"(1,x)"} j:{"a": 1} x:(,)) .
	update public.p 2,good (id:2 m:good c:b   i:null pairs:null j:null x:null) (id:2 m:good c:z   i:null pairs:null j:null x:null)
	update public.p 1,bad (id:1 m:bad c:a   i:10.0.0.1 pairs:{"(1,x)"} j:{"a": 1} x:(,)) (id:1 m:bad c:z   i:10.0.0.1 pairs:{"(1,x)"} j:{"a": 1} x:(,)) .`)
}

func TestChangesFollowColumns(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table s (id int primary key, a text, twice int generated always as (id * 2) stored, gone int)")
	track(t, g, "public.s")
	from := here(t, g)
	run(t, pool, "insert into s values (1, 'a', default, 7)", "update s set a = 'b'", "alter table s add n int default 5", "alter table s rename a to b", "alter table s drop gone", "update s set b = 'c'")
	wants(t, lines(changes(t, g, from, gnomon.Present, gnomon.ChangesOptions{})), `
	insert public.s 1 - (id:1 b:a gone:7 n:5) .
	update public.s 1 (id:1 b:a gone:7 n:5) (id:1 b:b gone:null n:5) .
	update public.s 1 (id:1 b:b gone:null n:5) (id:1 b:c gone:null n:5) .`)
}

func TestChangesLeaveTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	g, pool := shop(t, "id int primary key, at timestamptz, b bytea, i interval")
	from := here(t, g)
	run(t, pool, "insert into "+shopTable+` values (1, '2024-05-06 07:08:09Z', '\x00ff', '1 day 2 hours')`)
	conn := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
	defer conn.Release()
	run(t, conn, "set timezone = 'Asia/Tokyo'", "set datestyle = 'german'", "set intervalstyle = 'iso_8601'", "set bytea_output = 'escape'", "set search_path = 'Sch ema'")
	read := func(db gnomon.DB) string {
		return lines(changes(t, gnomon.New(db), from, gnomon.Present, gnomon.ChangesOptions{}))
	}
	want := `insert "Sch ema"."ta""ble" 1 - (id:1 at:2024-05-06 07:08:09+00 b:\x00ff i:1 day 02:00:00) .`
	pgtxtest.AssertSessionUnchanged(t, conn.Conn(), func() { wants(t, read(conn), want) })
	tx := must[pgx.Tx](t)(conn.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	pgtxtest.AssertSessionUnchanged(t, conn.Conn(), func() { wants(t, read(tx), want) })
	pgtxtest.AssertSessionUnchanged(t, conn.Conn(), func() {
		for range gnomon.New(tx).Changes(t.Context(), from, gnomon.Present, gnomon.ChangesOptions{}) {
			break
		}
	})

}

// What an update left as it was is stored with what came after. Beyond an interruption that may be another row.
func TestChangesTakeNoValuesFromBeyondAnInterruption(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int, w text)")
	ok(t, g.TrackWith(t.Context(), "t", gnomon.Options{Wide: []string{"w"}, Truncate: "allow"}))
	run(t, pool, "insert into t values (1, 0, 'one'), (2, 0, 'two'), (3, 0, 'three'), (4, 0, 'four')")
	from := ref(t, g)
	run(t, pool, "update t set x = 1")
	to := ref(t, g)
	run(t, pool, "update t set w = 'changed' where id = 3", "truncate t", "insert into t values (1, 5, 'other'), (2, 5, 'other')", "update t set w = 'new' where id = 1")
	if got := text(t, pool, "select c.key[1] as key, c.old->>'x' as x, c.old->>'w' as w from gnomon.changes($1, $2) c order by 1", string(from), string(to)); got != "(1,0,)\n(2,0,)\n(3,0,three)\n(4,0,)" {
		t.Errorf("the changes are\n%s", got)
	}
}
