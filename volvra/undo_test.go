package volvra_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/volvra"
)

// mistake runs statements as the actor "mistake", in one transaction.
func mistake(t testing.TB, db volvra.DB, statements ...string) {
	t.Helper()
	as(t, db, "mistake", statements...)
}

// as runs statements as an actor, in one transaction.
func as(t testing.TB, db volvra.DB, actor string, statements ...string) {
	t.Helper()
	ok(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		run(t, tx, "select set_config('annals.actor', '"+actor+"', true)")
		run(t, tx, statements...)
		return nil
	}))
}

var mistakes = volvra.Selection{Actor: "mistake"}

// statuses returns the statuses that a preview shows, in the order of the keys.
func statuses(t testing.TB, v *volvra.Volvra, s volvra.Selection) []volvra.Status {
	t.Helper()
	p := must[*volvra.Plan](t)(v.Preview(t.Context(), s))
	slices.SortFunc(p.Rows, func(a, b volvra.PlannedRow) int {
		return strings.Compare(a.Table+strings.Join(a.Key, " "), b.Table+strings.Join(b.Key, " "))
	})
	list := []volvra.Status{}
	for _, r := range p.Rows {
		list = append(list, r.Status)
	}
	return list
}

// undone undoes all mistakes and checks what tables hold then, a line per row; and that the preview was the same plan, and that the undo
// can be undone and redone.
func undone(t testing.TB, v *volvra.Volvra, pool *pgxpool.Pool, query, want string) {
	t.Helper()
	before := rowsText(t, pool, query)
	p := must[*volvra.Plan](t)(v.Preview(t.Context(), mistakes))
	for _, r := range p.Rows {
		if r.Status != volvra.Clean {
			t.Errorf("%s %v is %s: %+v", r.Table, r.Key, r.Status, r.Block)
		}
	}
	first := must[*volvra.Result](t)(v.Undo(t.Context(), volvra.Token(p.Token), volvra.UndoOptions{}))
	if got := rowsText(t, pool, query); got != want {
		t.Errorf("undone:\n%s\nwant:\n%s", got, want)
	}
	second := must[*volvra.Result](t)(v.Redo(t.Context(), first.Attempt, volvra.UndoOptions{}))
	if got := rowsText(t, pool, query); got != before {
		t.Errorf("undo of the undo:\n%s\nwant:\n%s", got, before)
	}
	must[*volvra.Result](t)(v.Redo(t.Context(), second.Attempt, volvra.UndoOptions{}))
	if got := rowsText(t, pool, query); got != want {
		t.Errorf("undone again:\n%s\nwant:\n%s", got, want)
	}
}

// rowsText returns the rows of a query, sorted, one a line.
func rowsText(t testing.TB, db volvra.DB, query string) string {
	t.Helper()
	return strings.Join(column[string](t, db, "select q::text from ("+query+") q order by 1"), "\n")
}

func refusedWith(t testing.TB, err, kind error) *volvra.Error {
	t.Helper()
	var e *volvra.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	return e
}

// Three changes of one row by the mistake, and one of another column by somebody else, who loses nothing.
func TestUndoKeepsWorkOnOtherColumns(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int, b text)`, `insert into t values (1, 1, 'x'), (2, 2, 'y')`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 10", "update t set a = a + 1 where id = 1", "insert into t values (3, 3, 'z')")
	as(t, pool, "work", "update t set b = 'kept' where id = 1")
	undone(t, v, pool, "select * from t", "(1,1,kept)\n(2,2,y)")
}

// What somebody did between two mistakes, and the second one overwrote, comes back.
func TestUndoBringsBackWorkBetween(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1), (2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 10")
	as(t, pool, "work", "update t set a = 5 where id = 1")
	mistake(t, pool, "update t set a = 20 where id = 1")
	undone(t, v, pool, "select * from t", "(1,5)\n(2,2)")
}

func TestUndoRefusesConflicts(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int, b int)`, `insert into t values (1, 1, 1), (2, 2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 0, b = 0")
	as(t, pool, "work", "update t set a = 5 where id = 1")

	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	e := refusedWith(t, err, volvra.ErrConflict)
	if b := e.Blocked(); len(b) != 1 || b[0].Key[0] != "1" || b[0].Block.Columns["a"].Actor != "work" || len(b[0].Block.Columns) != 1 {
		t.Errorf("blocked by %+v", e.Blocked())
	}
	if got := rowsText(t, pool, "select * from t"); got != "(1,5,0)\n(2,0,0)" {
		t.Errorf("a refused undo wrote: %s", got)
	}
	r := must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,5,0)\n(2,2,2)" || r.Rows != 1 || r.Skipped != 1 || len(r.SkippedRows) != 1 {
		t.Errorf("skipping conflicts: %s %+v", got, r)
	}
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.NonConflictingColumns}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,5,1)\n(2,2,2)" {
		t.Errorf("non-conflicting columns: %s", got)
	}
	if got := statuses(t, v, mistakes); !slices.Equal(got, []volvra.Status{volvra.Conflict, volvra.Undone}) {
		t.Errorf("afterwards: %v", got)
	}
	if got := text(t, pool, "select outcome from volvra.attempts(p_action => 'undo') order by id"); strings.Count(got, "refused") != 1 || strings.Count(got, "done") != 2 {
		t.Errorf("attempts: %s", got)
	}
}

func TestUndoLimitsRows(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t select g, g from generate_series(1, 5) g`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 0")
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{MaxRows: 4})
	refusedWith(t, err, volvra.ErrTooManyRows)
	var told []volvra.Progress
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{MaxRows: volvra.Unlimited, Progress: func(p volvra.Progress) { told = append(told, p) }}))
	if len(told) != 1 || told[0] != (volvra.Progress{Table: "public.t", Rows: 5}) {
		t.Errorf("progress %v", told)
	}
}

func TestTokenIsOfOnePlan(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int, b int, at timestamptz default now())`, `insert into t values (1, 1, 1), (2, 2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 0")
	p := must[*volvra.Plan](t)(v.Preview(t.Context(), mistakes))
	if sql := text(t, pool, `select volvra.preview_token('{"actor": "mistake"}') as token`); !strings.Contains(sql, string(p.Token[len(p.Token)-64:])) {
		t.Errorf("SQL's token is %s, Go's %s", sql, p.Token)
	}
	as(t, pool, "work", "update t set b = 7")
	mistake(t, pool, "insert into t values (3, 3, 3)") // not selected: it came later
	run(t, pool, "update t set a = 5 where id = 1")
	_, err := v.Undo(t.Context(), volvra.Token(p.Token), volvra.UndoOptions{Policy: volvra.SkipConflicts})
	refusedWith(t, err, volvra.ErrPlanChanged)
	run(t, pool, "update t set a = 0 where id = 1")
	must[*volvra.Result](t)(v.Undo(t.Context(), volvra.Token(p.Token), volvra.UndoOptions{}))
	if got := rowsText(t, pool, "select id, a, b from t"); got != "(1,1,7)\n(2,2,7)\n(3,3,3)" {
		t.Errorf("undone: %s", got)
	}
	_, err = v.Undo(t.Context(), volvra.Token("vp1.e30.00"), volvra.UndoOptions{})
	refusedWith(t, err, volvra.ErrToken)
}

// What others do while an undo waits for their rows counts.
func TestUndoSeesConcurrentWrites(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1), (2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, "update t set a = 0")
	tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
	run(t, tx, "update t set a = 9 where id = 1")
	answer := make(chan error)
	go func() {
		_, err := v.Undo(context.Background(), mistakes, volvra.UndoOptions{})
		answer <- err
	}()
	for !slices.Equal(column[bool](t, pool, "select exists (select from pg_locks where not granted)"), []bool{true}) {
	}
	ok(t, tx.Commit(t.Context()))
	refusedWith(t, <-answer, volvra.ErrConflict)
	if got := rowsText(t, pool, "select * from t"); got != "(1,9)\n(2,0)" {
		t.Errorf("undone: %s", got)
	}
}

func TestUndoInCallersTransaction(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	run(t, pool, `create table p (id int primary key)`, `create table c (id int primary key, p int references p deferrable initially immediate)`, `insert into p values (1)`, `insert into c values (1, 1)`)
	cover(t, volvra.New(pool), "p", "c")
	mistake(t, pool, "delete from c", "delete from p")
	conn := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
	defer conn.Release()
	pgtxtest.AssertSessionUnchanged(t, conn.Conn(), func() {
		ok(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			v := volvra.New(tx)
			if _, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{MaxRows: 1}); !errors.Is(err, volvra.ErrTooManyRows) {
				t.Errorf("got %v", err)
			}
			_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
			return err
		}))
	}, "annals.known")
	if got := rowsText(t, pool, "select id from p union all select id from c"); got != "(1)\n(1)" {
		t.Errorf("undone: %s", got)
	}
}

func TestUndoOfStoredAndSpecialColumns(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create domain d as int check (value > 0)`,
		`create table "ta""ble" (id int generated always as identity primary key, "select" int, v int, xid text[], op json, twice int generated always as (v * 2) stored, x d, p point, big text)`,
		`alter table "ta""ble" alter big set storage external`,
		`insert into "ta""ble" ("select", v, xid, op, x, p, big) values (1, 1, '[2:3]={a,b}', '{"a" : 1}', 1, '(1,2)', repeat('wide', 2000)), (2, 2, null, 'null', 2, null, null)`)
	cover(t, v, `"ta""ble"`)
	if got := text(t, pool, `select wide from annals.tracked`); got == "({})" {
		t.Errorf("no column is wide")
	}
	mistake(t, pool, `update "ta""ble" set v = v + 1, xid = '{a,b}', op = '{"a":1}', x = 9, p = '(1,2.5)'`, `delete from "ta""ble"`, `insert into "ta""ble" ("select") values (5)`)
	run(t, pool, `alter table "ta""ble" add column later int default 7`)
	undone(t, v, pool, `select id, "select", v, xid, op::text, twice, x, p::text, md5(big) m, later from "ta""ble"`,
		`(1,1,1,"[2:3]={a,b}","{""a"" : 1}",2,1,"(1,2)",`+column[string](t, pool, "select md5(repeat('wide', 2000))")[0]+`,7)`+"\n"+`(2,2,2,,null,4,2,,,7)`)
}

func TestUndoAcrossForeignKeys(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table a (id int primary key, b int)`, `create table b (id int primary key, a int not null references a)`, `alter table a add foreign key (b) references b`,
		`create table tree (id int primary key, up int references tree on delete cascade)`,
		`insert into a values (1, null)`, `insert into b values (1, 1)`, `update a set b = 1`, `insert into tree values (1, null), (2, 1), (3, 2)`)
	cover(t, v, "a", "b", "tree")
	mistake(t, pool, "update a set b = null", "delete from b", "delete from a", "delete from tree where id = 1", "insert into tree values (9, null), (10, 9)")
	undone(t, v, pool, "select 'a', id, b from a union all select 'b', id, a from b union all select 't', id, up from tree", "(a,1,1)\n(b,1,1)\n(t,1,)\n(t,2,1)\n(t,3,2)")
}

func TestUndoBlockedByForeignKeys(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table p (id int primary key)`, `create table c (id int primary key, p int references p on delete cascade)`, `insert into p values (1)`, `insert into c values (1, 1)`)
	cover(t, v, "p", "c")
	mistake(t, pool, "insert into p values (2)", "update c set p = 2 where id = 1")
	run(t, pool, "insert into c values (7, 2)", "delete from c where id = 1", "delete from p where id = 1")
	if got := statuses(t, v, volvra.Selection{Actor: "mistake", Tables: []string{"public.p"}}); !slices.Equal(got, []volvra.Status{volvra.ForeignKey}) {
		t.Errorf("a row with children: %v", got)
	}
	_, err := v.Undo(t.Context(), volvra.Selection{Actor: "mistake", Tables: []string{"public.p"}}, volvra.UndoOptions{})
	if b := refusedWith(t, err, volvra.ErrForeignKey).Blocked(); len(b) != 1 || b[0].Block.Table != "public.c" || b[0].Block.Rows[0][0] != "7" {
		t.Errorf("blocked by %+v", b)
	}
	as(t, pool, "gone", "delete from c where id = 7", "delete from p")
	if got := statuses(t, v, volvra.Selection{Actor: "gone", Tables: []string{"public.c"}}); !slices.Equal(got, []volvra.Status{volvra.ForeignKey}) {
		t.Errorf("a row without parent: %v", got)
	}
}

func TestUndoByRoleWithRowSecurity(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, tenant text, a int)`, `insert into t values (1, 'x', 1), (2, 'y', 2)`, `alter table t enable row level security`)
	role := column[string](t, pool, "select 'tenant_' || replace(gen_random_uuid()::text, '-', '')")[0]
	run(t, pool, "create role "+role, "grant select, update on t to "+role, "create policy p on t to "+role+" using (tenant = 'x')")
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = pool.Exec(ctx, "drop owned by "+role)
		_, _ = pool.Exec(ctx, "drop role "+role)
	})
	cover(t, v, "t")
	ok(t, volvra.Grant(t.Context(), pool, "", role, ""))
	mistake(t, pool, "update t set a = 0")
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		run(t, tx, "set local role "+role)
		r, err := volvra.New(tx).Undo(t.Context(), mistakes, volvra.UndoOptions{})
		if err == nil && r.Rows != 1 {
			t.Errorf("%d rows", r.Rows)
		}
		return err
	}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,x,1)\n(2,y,0)" {
		t.Errorf("undone: %s", got)
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	must[string](t)(v.Mark(t.Context(), "before"))
	_, err := v.Mark(t.Context(), "before")
	refusedWith(t, err, volvra.ErrMark)
	run(t, pool, "update t set a = 2", "insert into t values (2, 2)")
	must[*volvra.Result](t)(v.UndoTo(t.Context(), "before", volvra.UndoOptions{}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,1)" {
		t.Errorf("undone: %s", got)
	}
	if marks := must[[]volvra.Mark](t)(v.Marks(t.Context())); len(marks) != 1 || marks[0].Name != "before" {
		t.Errorf("marks: %v", marks)
	}
	if got := column[int](t, pool, "select count(*)::int from annals.pin"); got[0] != 1 {
		t.Errorf("%d pins", got[0])
	}
	ok(t, v.DropMark(t.Context(), "before"))
	refusedWith(t, v.DropMark(t.Context(), "before"), volvra.ErrMark)
	if got := column[int](t, pool, "select count(*)::int from annals.pin"); got[0] != 0 {
		t.Errorf("%d pins", got[0])
	}
}

// Two rows exchange values of a key that PostgreSQL checks row by row: that is said beforehand.
func TestUndoBlockedByExchange(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, code text unique)`, `insert into t values (1, 'a'), (2, 'b')`)
	cover(t, v, "t")
	mistake(t, pool, `update t set code = 'x' where id = 1`, `update t set code = 'a' where id = 2`, `update t set code = 'b' where id = 1`)
	if got := statuses(t, v, mistakes); !slices.Equal(got, []volvra.Status{volvra.Unique, volvra.Unique}) {
		t.Errorf("%v", got)
	}
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	refusedWith(t, err, volvra.ErrUnique)
}

func TestUndoOfCascadedUpdates(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table p (id int primary key)`, `create table c (id int primary key, p int references p on update cascade on delete cascade)`, `create table part (id int, x int, primary key (id, x)) partition by list (x)`,
		`create table part_1 partition of part for values in (1)`, `create table part_2 partition of part for values in (2)`, `create table base (id int primary key)`, `create table child (extra int, primary key (id)) inherits (base)`,
		`insert into p values (1)`, `insert into c values (1, 1)`, `insert into part values (1, 1), (2, 2)`, `insert into base values (1)`, `insert into child values (2, 2)`)
	cover(t, v, "p", "c", "part", "base", "child")
	mistake(t, pool, `update p set id = 5`, `update part set x = 2 where id = 1`, `delete from part where id = 2`, `update base set id = id + 10`)
	undone(t, v, pool, "select 'p', id, null::int x from p union all select 'c', id, p from c union all select 'part', id, x from part union all select 'b', id, null from only base union all select 'child', id, extra from child",
		"(b,1,)\n(c,1,1)\n(child,2,2)\n(p,1,)\n(part,1,1)\n(part,2,2)")
}

// The condition holds for the row before or after a change.
func TestUndoWhere(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, state text, n int)`, `insert into t select g, 'open', g from generate_series(1, 4) g`)
	cover(t, v, "t")
	mistake(t, pool, `update t set state = 'closed' where id in (1, 2)`, `update t set n = 0 where id in (2, 3)`, `delete from t where id = 4`)
	s := volvra.Selection{Actor: "mistake", Tables: []string{"public.t"}, Where: []volvra.Condition{{Column: "state", Op: volvra.Equal, Value: "closed"}}}
	must[*volvra.Result](t)(v.Undo(t.Context(), s, volvra.UndoOptions{}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,open,1)\n(2,open,2)\n(3,open,0)" {
		t.Errorf("undone: %s", got)
	}
}

// A preview needs no right to write, and no transaction that may.
func TestPreviewWritesNothing(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 2`)
	ok(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		p, err := volvra.New(tx).Preview(t.Context(), mistakes)
		if err == nil && (len(p.Rows) != 1 || p.Rows[0].SQL != `update only public.t set a = '1'::integer where id = '1'::integer and a is not distinct from '2'::integer`) {
			t.Errorf("%+v", p.Rows)
		}
		return err
	}))
}

// A trigger that keeps rows from being written makes the undo nothing, not a part.
func TestUndoRefusesSuppressedWrites(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1), (2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 0`)
	run(t, pool, `create function not_one() returns trigger language plpgsql as $$ begin if new.id = 1 then return null; end if; return new; end $$`, `create trigger not_one before update on t for each row execute function not_one()`)
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	refusedWith(t, err, volvra.ErrNotWritten)
	if got := rowsText(t, pool, "select * from t"); got != "(1,0)\n(2,0)" {
		t.Errorf("undone: %s", got)
	}
}

// Where rows can't be read, PostgreSQL's own error is the answer, and the attempt stands as failed.
func TestUndoFailure(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 0`)
	run(t, pool, `alter table t add constraint positive check (a < 1)`)
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	e := refusedWith(t, err, volvra.ErrFailed)
	if !strings.Contains(e.Message, "positive") {
		t.Errorf("message: %s", e.Message)
	}
	if got := column[string](t, pool, "select concat(outcome, ' ', code, ' ', reason) from volvra.attempts(p_action => 'undo')"); len(got) != 1 || strings.Contains(got[0], "positive") || !strings.Contains(got[0], "23514") {
		t.Errorf("attempts: %v", got)
	}
}
