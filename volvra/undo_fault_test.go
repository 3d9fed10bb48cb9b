package volvra_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/volvra"
)

// 1: a later append to an array or object is a change like any other.
func TestUndoFaultAppendIsAChange(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, tags text[], doc jsonb)`, `insert into t values (1, '{a}', '{"a": 1}'), (2, '{a}', '{"a": 1}')`)
	cover(t, v, "t")
	mistake(t, pool, `update t set tags = '{b}', doc = '{"b": 1}'`)
	run(t, pool, `update t set tags = tags || array['c'] where id = 1`, `update t set doc = doc || '{"c": 1}' where id = 2`)
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	if b := refusedWith(t, err, volvra.ErrConflict).Blocked(); len(b) != 2 {
		t.Errorf("blocked: %+v", b)
	}
}

// 2: without the image there is no guard, and without a guard no undo.
func TestUndoFaultErasedImage(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`)
	cover(t, v, "t")
	mistake(t, pool, `insert into t values (1, 1), (2, 2)`)
	run(t, pool, `update t set a = 5 where id = 1`, `update annals.h1_1 set op = upper(op::text)::"char", c2 = null where op = 'u'`)
	if got := statuses(t, v, mistakes); !slices.Equal(got, []volvra.Status{volvra.Erased, volvra.Clean}) {
		t.Errorf("%v", got)
	}
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	refusedWith(t, err, volvra.ErrErased)
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,5)" {
		t.Errorf("undone: %s", got)
	}
}

// 3: an updated_at trigger fires on the undo as well, and two changes per row are one.
func TestUndoFaultUpdatedAtTrigger(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int, updated_at timestamptz not null default clock_timestamp())`,
		`create function touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$`,
		`create trigger touch before insert or update on t for each row execute function touch()`, `insert into t values (1, 1), (2, 2)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 10`, `update t set a = 11 where id = 1`, `update t set a = 12 where id = 1`)
	undone(t, v, pool, "select id, a from t", "(1,1)\n(2,2)")
	as(t, pool, "second", `update t set a = 5 where id = 2`, `delete from t where id = 2`)
	p := must[*volvra.Plan](t)(v.Preview(t.Context(), volvra.Selection{Actor: "second"}))
	must[*volvra.Result](t)(v.Undo(t.Context(), volvra.Token(p.Token), volvra.UndoOptions{}))
	if got := rowsText(t, pool, "select id, a from t"); got != "(1,1)\n(2,2)" {
		t.Errorf("undone: %s", got)
	}
}

// 4: a predicate is a value, whatever it holds.
func TestUndoFaultHostilePredicate(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a text)`, `insert into t values (1, 'x'), (2, 'a; b'), (3, '1) or (true')`)
	cover(t, v, "t")
	as(t, pool, "other", `insert into t values (9, 'x')`)
	mistake(t, pool, `update t set a = 'y'`)
	for value, want := range map[string]string{"1) or (true": "3", "a; b": "2"} {
		p := must[*volvra.Plan](t)(v.Preview(t.Context(), volvra.Selection{Actor: "mistake", Tables: []string{"public.t"}, Where: []volvra.Condition{{Column: "a", Op: volvra.Equal, Value: value}}}))
		if len(p.Rows) != 1 || p.Rows[0].Key[0] != want {
			t.Errorf("%s selects %+v", value, p.Rows)
		}
	}
}

// 6: older history of a renamed table, with a renamed column, is its history.
func TestUndoFaultRenamedTable(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 2`)
	run(t, pool, `alter table t rename to "new Name"`, `alter table "new Name" rename column a to b`)
	undone(t, v, pool, `select * from "new Name"`, "(1,1)")
	mistake(t, pool, `truncate "new Name"`)
	undone(t, v, pool, `select * from "new Name"`, "(1,1)")
}

// 7: the key went from 1 to 2 to 3.
func TestUndoFaultKeyChangedTwice(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set id = 2`)
	as(t, pool, "work", `update t set a = 5`)
	mistake(t, pool, `update t set id = 3`)
	undone(t, v, pool, "select * from t", "(1,5)")
}

// 8: two keys swapped in one statement.
func TestUndoFaultSwappedKeys(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key deferrable, a text)`, `insert into t values (1, 'one'), (2, 'two')`)
	cover(t, v, "t")
	mistake(t, pool, `update t set id = 3 - id`)
	undone(t, v, pool, "select * from t", "(1,one)\n(2,two)")
}

// 9: cascaded deletes come back with their children, in one undo, with foreign keys that cannot be deferred.
func TestUndoFaultCascade(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table p (id int primary key)`, `create table c (id int primary key, p int not null references p on delete cascade)`, `create table g (id int primary key, c int references c on delete set null)`,
		`insert into p values (1)`, `insert into c values (1, 1), (2, 1)`, `insert into g values (1, 1)`)
	cover(t, v, "g", "c", "p")
	mistake(t, pool, `delete from p`)
	undone(t, v, pool, "select 'p', id, null::int x from p union all select 'c', id, p from c union all select 'g', id, c from g", "(c,1,1)\n(c,2,1)\n(g,1,1)\n(p,1,)")
}

// 10: a column's type has changed since. Where every value means the same in the new type, nothing stands in the way; otherwise it is not
// known what the change did to the values, which is no conflict with anybody.
func TestUndoFaultTypeChanged(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int, b varchar(5))`, `insert into t values (1, 1, 'x')`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 2, b = 'y'`)
	run(t, pool, `alter table t alter a type bigint, alter b type text`)
	if got := statuses(t, v, mistakes); !slices.Equal(got, []volvra.Status{volvra.Interrupted}) && !slices.Equal(got, []volvra.Status{volvra.Clean}) {
		t.Errorf("widened: %v", got)
	}
	as(t, pool, "work", `select annals.materialize(1)`, `alter table t alter a type text using (a * 100)::text`)
	if got := statuses(t, v, mistakes); !slices.Equal(got, []volvra.Status{volvra.Interrupted}) {
		t.Errorf("rewritten: %v", got)
	}
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	refusedWith(t, err, volvra.ErrInterrupted)
}

// 11: another row has taken a unique value.
func TestUndoFaultUniqueKeyTaken(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, email text unique)`, `insert into t values (1, 'a'), (2, 'b')`)
	cover(t, v, "t")
	mistake(t, pool, `delete from t where id = 1`, `update t set email = 'c' where id = 2`)
	as(t, pool, "work", `insert into t values (3, 'a')`)
	_, err := v.Undo(t.Context(), mistakes, volvra.UndoOptions{})
	b := refusedWith(t, err, volvra.ErrUnique).Blocked()
	if len(b) != 1 || b[0].Status != volvra.Unique || b[0].Key[0] != "1" || b[0].Block.Constraint != "t_email_key" || b[0].Block.Rows[0][0] != "3" {
		t.Errorf("blocked: %+v", b)
	}
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{Policy: volvra.SkipConflicts}))
	if got := rowsText(t, pool, "select * from t"); got != "(2,b)\n(3,a)" {
		t.Errorf("undone: %s", got)
	}
}

// 12: values come back exactly, those that only look alike included.
func TestUndoFaultExactValues(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, j jsonb, k json, a int[], n numeric, f float8)`, `insert into t values (1, 'null', '{ "a":1}', '[0:1]={1,2}', 1.10, '-0')`)
	cover(t, v, "t")
	mistake(t, pool, `update t set j = null, k = '{"a":1}', a = '{1,2}', n = 1.1, f = 0`)
	undone(t, v, pool, "select j is null, k::text, a::text, n::text, f::text from t", `(f,"{ ""a"":1}","[0:1]={1,2}",1.10,-0)`)
}

// 20: a table dropped and made again under its name has no part in the other's history.
func TestUndoFaultRecreatedTable(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, v, "t")
	mistake(t, pool, `update t set a = 2`)
	run(t, pool, `drop table t`, `create table t (id int primary key, a int)`, `insert into t values (1, 2)`)
	cover(t, v, "t")
	if got := statuses(t, v, mistakes); len(got) != 0 {
		t.Errorf("planned: %v", got)
	}
	must[*volvra.Result](t)(v.Undo(t.Context(), mistakes, volvra.UndoOptions{}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,2)" {
		t.Errorf("undone: %s", got)
	}
}

// 21: constraints are as deferred afterwards as they were.
func TestUndoFaultConstraintModes(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, `create table p (id int primary key)`, `create table c (id int primary key, p int references p deferrable)`, `insert into p values (1)`, `insert into c values (1, 1)`)
	cover(t, v, "c", "p")
	mistake(t, pool, `delete from c`, `delete from p`)
	tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
	defer func() { _ = tx.Rollback(t.Context()) }()
	must[*volvra.Result](t)(volvra.New(tx).Undo(t.Context(), mistakes, volvra.UndoOptions{}))
	if _, err := tx.Exec(t.Context(), "insert into c values (2, 2)"); err == nil {
		t.Error("a constraint stayed deferred")
	}
}

// 22: back to a mark within its own transaction.
func TestUndoFaultMarkInOwnTransaction(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	run(t, pool, `create table t (id int primary key, a int)`, `insert into t values (1, 1)`)
	cover(t, volvra.New(pool), "t")
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		v := volvra.New(tx)
		run(t, tx, "update t set a = 2")
		must[string](t)(v.Mark(t.Context(), "half"))
		run(t, tx, "update t set a = 3", "insert into t values (2, 2)")
		r := must[*volvra.Result](t)(v.UndoTo(t.Context(), "half", volvra.UndoOptions{}))
		if r.Rows != 2 {
			t.Errorf("%d rows", r.Rows)
		}
		return nil
	}))
	if got := rowsText(t, pool, "select * from t"); got != "(1,2)" {
		t.Errorf("undone: %s", got)
	}
}
