package volvra_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/volvra"
)

// ids returns the keys of the entries of shop.orders that a selection selects, in their order.
func ids(t testing.TB, db volvra.DB, s volvra.Selection) string {
	t.Helper()
	selection, err := json.Marshal(s)
	ok(t, err)
	checked := column[string](t, db, "select volvra.check_selection($1)::text", string(selection))[0]
	condition := column[string](t, db, "select volvra.entry_condition(volvra.covering('shop.orders'), $1, 'e')", checked)[0]
	bound := column[int64](t, db, "select volvra.selection_bound(volvra.covering('shop.orders'), $1)", checked)[0]
	return strings.Join(column[string](t, db, "select e.c1::text from annals.h1 e where e.v > $1 and "+condition+" order by e.v", bound), " ")
}

func TestSelectionNarrows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := covered(t)
	conn := must[*pgxpool.Conn](t)(pool.Acquire(ctx))
	defer conn.Release()
	run(t, conn, "insert into shop.orders values (1, 'eva', 1), (2, 'eva', 2)")
	run(t, pool, "select annals.tick()")
	time.Sleep(2 * time.Millisecond)
	from := time.Now()
	first := must[volvra.Moment](t)(v.Coordinate(ctx))
	tx := must[pgx.Tx](t)(conn.Begin(ctx))
	run(t, tx, "set local annals.actor = 'bob'", "set local application_name = 'import'", "insert into shop.orders values (3, 'bob', 3)", "select volvra.mark('middle')", "insert into shop.orders values (4, 'bob', 4)")
	xid := column[string](t, tx, "select volvra.this_transaction()")[0]
	ok(t, tx.Commit(ctx))
	time.Sleep(2 * time.Millisecond)
	to := time.Now()
	run(t, conn, "insert into shop.orders values (5, 'eva', 5)")
	me := column[string](t, conn, "select session_user::text")[0]
	last := column[int64](t, conn, "select max(v) from annals.h1")[0]
	for name, c := range map[string]struct {
		s    volvra.Selection
		want string
	}{
		"everything":            {volvra.Selection{Everything: true}, "1 2 3 4 5"},
		"table":                 {volvra.Selection{Tables: []string{"shop.orders"}}, "1 2 3 4 5"},
		"from":                  {volvra.Selection{From: from}, "3 4 5"},
		"to":                    {volvra.Selection{To: to}, "1 2 3 4"},
		"from and to":           {volvra.Selection{From: from, To: to}, "3 4"},
		"since a coordinate":    {volvra.Selection{Since: first}, "3 4 5"},
		"since a mark":          {volvra.Selection{Since: volvra.AtMark("middle")}, "4 5"},
		"until":                 {volvra.Selection{Everything: true, UntilV: last - 1}, "1 2 3 4"},
		"transaction":           {volvra.Selection{Transactions: []volvra.TransactionID{volvra.TransactionID(xid)}}, "3 4"},
		"another epoch":         {volvra.Selection{Transactions: []volvra.TransactionID{volvra.TransactionID("9" + xid[1:])}}, ""},
		"actor":                 {volvra.Selection{Actor: "bob"}, "3 4"},
		"application":           {volvra.Selection{Application: "import"}, "3 4"},
		"actor, other program":  {volvra.Selection{Actor: "bob", Application: "other"}, ""},
		"role":                  {volvra.Selection{Role: me}, "1 2 3 4 5"},
		"role and actor":        {volvra.Selection{Role: me, Actor: "bob"}, "3 4"},
		"keys":                  {volvra.Selection{Tables: []string{"shop.orders"}, Keys: []volvra.Key{{"2"}, {"4"}, {"77"}}}, "2 4"},
		"keys and actor":        {volvra.Selection{Tables: []string{"shop.orders"}, Keys: []volvra.Key{{"2"}, {"4"}}, Actor: "bob"}, "4"},
		"keys, since, and time": {volvra.Selection{Tables: []string{"shop.orders"}, Keys: []volvra.Key{{"3"}, {"4"}, {"5"}}, Since: volvra.AtMark("middle"), To: to}, "4"},
	} {
		if got := ids(t, pool, c.s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSelectionRefusals(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "create table shop.other (id int primary key, note text, hidden text, js json)")
	_, err := v.Enable(t.Context(), "shop.other", volvra.Options{Exclude: []string{"hidden"}})
	ok(t, err)
	for selection, code := range map[string]string{
		`null`: "VO001", `[]`: "VO001", `"x"`: "VO001", `{}`: "VO002", `{"until_v": 5}`: "VO002", `{"everything": false}`: "VO002",
		`{"tabels": ["shop.orders"]}`: "VO001", `{"tables": "shop.orders"}`: "VO001", `{"tables": []}`: "VO001", `{"tables": [5]}`: "VO001", `{"tables": ["shop.nothing"]}`: "VO003",
		`{"tables": ["shop.orders; drop table shop.orders"]}`: "VO003", `{"tables": ["pg_catalog.pg_class"]}`: "VO003", `{"tables": [""]}`: "VO003",
		`{"actor": null}`: "VO001", `{"actor": 5}`: "VO001", `{"role": "nobody of that name"}`: "VO001", `{"transactions": ["5"]}`: "VO001", `{"transactions": []}`: "VO001",
		`{"from": "whenever"}`: "VO001", `{"from": "2024-01-02", "to": "2024-01-01"}`: "VO001", `{"from": "2024-01-02", "to": "2024-01-02"}`: "VO001",
		`{"since": "2024-01-01"}`: "AN008", `{"until_v": 1.5, "actor": "a"}`: "VO001", `{"until_v": -1, "actor": "a"}`: "VO001",
		`{"keys": [["1"]]}`: "VO001", `{"tables": ["shop.orders", "shop.other"], "keys": [["1"]]}`: "VO001", `{"tables": ["shop.orders"], "keys": []}`: "VO001",
		`{"tables": ["shop.orders"], "keys": [[]]}`: "VO005", `{"tables": ["shop.orders"], "keys": [["1", "2"]]}`: "VO005", `{"tables": ["shop.orders"], "keys": [[1]]}`: "VO005",
		`{"tables": ["shop.orders"], "keys": [[null]]}`: "VO005", `{"tables": ["shop.orders"], "keys": ["1"]}`: "VO005", `{"tables": ["shop.orders"], "keys": [["one"]]}`: "VO005",
		`{"where": [{"column": "nothing", "op": "=", "value": "1"}]}`: "VO004", `{"where": [{"column": "hidden", "op": "=", "value": "1"}]}`: "VO004",
		`{"where": [{"column": "total", "op": "=", "value": "1"}]}`: "VO004", // not in shop.other
		`{"where": [{"column": "id", "op": "~", "value": "1"}]}`:    "VO001", `{"where": [{"column": "id", "op": "= 1 or true or id =", "value": "1"}]}`: "VO001",
		`{"where": [{"column": "id", "op": "=", "value": null}]}`: "VO001", `{"where": [{"column": "id", "op": "="}]}`: "VO001", `{"where": [{"column": "id", "op": "=", "value": ["1"]}]}`: "VO001",
		`{"where": [{"column": "id", "op": "in", "value": []}]}`: "VO001", `{"where": [{"column": "id", "op": "in", "value": ["1", null]}]}`: "VO001", `{"where": [{"column": "id", "op": "in", "value": "1"}]}`: "VO001",
		`{"where": [{"column": "id", "op": "is null", "value": "1"}]}`: "VO001", `{"where": [{"column": "id", "op": "=", "value": "one"}]}`: "VO005", `{"where": [{"column": "id", "sql": "true"}]}`: "VO001",
		`{"where": [{"column": "id", "op": "=", "value": "1", "or": "true"}]}`: "VO001", `{"where": ["id = 1"]}`: "VO001", `{"where": []}`: "VO001",
		`{"tables": ["shop.other"], "where": [{"column": "js", "op": "=", "value": "{}"}]}`: "VO001",
	} {
		_, err := pool.Exec(t.Context(), "select volvra.check_selection($1)", selection)
		if got := sqlState(err); got != code {
			t.Errorf("%s: %s (%v), want %s", selection, got, err, code)
		}
	}
}

// Whatever a value holds, it is a value: it closes no parenthesis, ends no statement, and never widens what the rest selects.
func TestFaultHostileConditions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'eva', 1, 'a'), (2, 'bob', 2, 'x; drop table shop.orders; --'), (3, 'bob', 3, ''') or (true')")
	for _, value := range []string{"1) or (1=1", "') or ('a'='a", "'; drop table shop.orders; --", "$$ or true $$", `\' or true --`, "x; drop table shop.orders; --", "') or (true", "%s", "%1$s", "$1"} {
		for _, op := range []volvra.Op{volvra.Equal, volvra.Like, volvra.In} {
			c := volvra.Condition{Column: "note", Op: op, Value: value}
			if op == volvra.In {
				c.Value = []string{value}
			}
			s := volvra.Selection{Tables: []string{"shop.orders"}, Keys: []volvra.Key{{"2"}, {"3"}}, Where: []volvra.Condition{c}}
			list, err := v.Transactions(ctx, s, volvra.Page{})
			if err != nil {
				t.Errorf("%q %s: %v", value, op, err)
			}
			want := int64(0)
			if n := column[int64](t, pool, "select count(*) from shop.orders where id in (2, 3) and note = $1", value)[0]; n == 1 {
				want = 1
			}
			if op == volvra.Like && strings.ContainsAny(value, `%_\`) {
				continue // a pattern of its own
			}
			if got := int64(len(list)); got != want || got == 1 && list[0].Rows != 1 {
				t.Errorf("%q %s selects %+v, want %d rows", value, op, list, want)
			}
		}
	}
	if n := column[int64](t, pool, "select count(*) from shop.orders"); n[0] != 3 {
		t.Fatal("the table was changed")
	}
}

// A value is never cut to the length of its column, since that would select more.
func TestConditionsKeepLongValues(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.codes (id int primary key, code varchar(3), fixed char(4), amount numeric(4, 1), day date, kind text collate \"C\", list int[], doc jsonb, span int4range, tag uuid)")
	cover(t, v, "shop.codes")
	tag := uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	run(t, pool, "insert into shop.codes values (1, 'abc', 'xy', 1.5, '2024-02-29', 'k', '{1,2}', '{\"a\": null}', '[1,5)', '"+tag.String()+"')")
	for _, c := range []struct {
		volvra.Condition
		want int
	}{
		{where("code", volvra.Equal, "abc"), 1}, {where("code", volvra.Equal, "abcd"), 0}, {where("fixed", volvra.Equal, "xy"), 1}, {where("fixed", volvra.Equal, "xyabcd"), 0},
		{where("amount", volvra.Equal, 1.5), 1}, {where("amount", volvra.Equal, "1.52"), 0}, {where("day", volvra.GreaterOrEqual, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)), 1},
		{where("day", volvra.Less, "2024-02-29"), 0}, {where("kind", volvra.NotEqual, "k"), 0}, {where("kind", volvra.Like, "_"), 1}, {where("list", volvra.Equal, "{1,2}"), 1},
		{where("doc", volvra.Equal, `{"a": null}`), 1}, {where("span", volvra.Greater, "[0,9)"), 1}, {where("tag", volvra.In, []uuid.UUID{tag}), 1}, {where("id", volvra.In, []int{1, 2}), 1},
		{where("doc", volvra.IsNull, nil), 0}, {where("doc", volvra.IsNotNull, nil), 1}, {where("id", volvra.LessOrEqual, int64(1)), 1}, {where("id", volvra.Greater, 1), 0},
	} {
		list, err := v.Transactions(t.Context(), volvra.Selection{Where: []volvra.Condition{c.Condition}}, volvra.Page{})
		if err != nil || len(list) != c.want {
			t.Errorf("%+v: %d, %v, want %d", c.Condition, len(list), err, c.want)
		}
	}
}

func TestSelectionAsJSON(t *testing.T) {
	t.Parallel()
	s := volvra.Selection{Tables: []string{"a.b"}, Keys: []volvra.Key{volvra.KeyOf(5, "x", []byte{1, 255}, true)}, From: time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC), Since: volvra.AtMark("m"), Transactions: []volvra.TransactionID{"1:2"},
		Actor: "eva", Where: []volvra.Condition{{"a", volvra.In, []string{"1", "2"}}, {"b", volvra.Equal, "x"}, {"c", volvra.IsNull, nil}}, UntilV: 7}
	data, err := json.Marshal(s)
	ok(t, err)
	var back volvra.Selection
	ok(t, json.Unmarshal(data, &back))
	if !reflect.DeepEqual(s, back) {
		t.Errorf("%+v, want %+v", back, s)
	}
	if want := []string{"5", "x", `\x01ff`, "true"}; !reflect.DeepEqual([]string(s.Keys[0]), want) {
		t.Errorf("%q", s.Keys[0])
	}
	if data, _ := json.Marshal(volvra.Selection{}); string(data) != "{}" {
		t.Errorf("the zero selection is %s", data)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	v, _ := covered(t)
	_, err := v.Transactions(t.Context(), volvra.Selection{Tables: []string{"shop.orders"}, Where: []volvra.Condition{{"nothing", volvra.Equal, 1}}}, volvra.Page{})
	e, isRefusal := errors.AsType[*volvra.Error](err)
	if !isRefusal || !errors.Is(err, volvra.ErrNoColumn) || e.Table != "shop.orders" || e.Column != "nothing" || e.Hint == "" || len(e.Detail) == 0 || !strings.HasPrefix(e.Error(), "volvra: ") {
		t.Errorf("%#v", err)
	}
	if _, err := v.Transactions(t.Context(), volvra.Selection{}, volvra.Page{}); !errors.Is(err, volvra.ErrEmptySelection) {
		t.Errorf("%v", err)
	}
	if _, err := v.Undo(t.Context(), nil, volvra.UndoOptions{}); !errors.Is(err, volvra.ErrEmptySelection) {
		t.Errorf("Undo of nil: %v, want ErrEmptySelection", err)
	}
}

// A change of key belongs to the old key. Selected by the new one, it must not look like a row that came to be.
func TestKeysDoNotTakeAnArrivalForAnInsert(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create table t (id int primary key, x int)", "insert into t values (1, 10), (3, 30)")
	cover(t, v, "t")
	run(t, pool, "update t set id = 100 where id = 1", "update t set x = 11 where id = 100", "update t set id = 200 where id = 3")
	undo := func(key string) {
		t.Helper()
		must[*volvra.Result](t)(v.Undo(t.Context(), volvra.Selection{Tables: []string{"public.t"}, Keys: []volvra.Key{{key}}}, volvra.UndoOptions{}))
	}
	undo("100")
	undo("200")
	if got := text(t, pool, "select * from t order by id"); got != "(100,10)\n(200,30)" {
		t.Errorf("undone by the new keys: %s", got)
	}
	undo("3")
	if got := text(t, pool, "select * from t order by id"); got != "(3,30)\n(100,10)" {
		t.Errorf("undone by the old key: %s", got)
	}
}
