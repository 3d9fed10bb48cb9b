package gnomon_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// fails runs a statement that must fail with a SQLSTATE, and returns the error.
func fails(t testing.TB, db gnomon.DB, state, sql string) *pgconn.PgError {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	e, isPg := errors.AsType[*pgconn.PgError](err)
	if !isPg || e.Code != state {
		t.Fatalf("%s: got %v, want SQLSTATE %s", sql, err, state)
	}
	return e
}

// gives compares what a statement with RETURNING returns: a line for each row, null as -.
func gives(t testing.TB, db gnomon.DB, sql, want string) {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	var lines []string
	for rows.Next() {
		var values []string
		for _, v := range rows.RawValues() {
			if v == nil {
				v = []byte("-")
			}
			values = append(values, string(v))
		}
		lines = append(lines, strings.Join(values, ","))
	}
	if rows.Err() != nil {
		t.Fatalf("%s: %v", sql, rows.Err())
	}
	slices.Sort(lines)
	if got := strings.Join(lines, "\n"); got != want {
		t.Fatalf("%s:\ngot  %q\nwant %q", sql, got, want)
	}
}

// shows compares what a query returns.
func shows(t testing.TB, db gnomon.DB, sql, want string) {
	t.Helper()
	if got := text(t, db, sql); got != want {
		t.Fatalf("%s:\ngot  %q\nwant %q", sql, got, want)
	}
}

func TestBranchWrite(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema "Sch ema"`,
		`create table "Sch ema"."ta""ble" ("select" int, "old" text, "t" varchar(5), "o" numeric(6, 2) not null, "new" int unique, primary key ("select", "old"))`,
		`insert into "Sch ema"."ta""ble" values (1, 'a', 'x', 1, 11), (2, 'b', 'y', 2, 12)`)
	track(t, g, `"Sch ema"."ta""ble"`)
	run(t, pool, `update "Sch ema"."ta""ble" set "o" = 3 where "select" = 2`, `insert into "Sch ema"."ta""ble" values (3, 'c', null, 3, null)`)
	run(t, pool, `set search_path = "Sch ema"`)
	c := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
	defer c.Release()
	run(t, c, `set search_path = "Sch ema"`, `select gnomon.create_branch('b', 'now', true)`, `select gnomon.use('b')`)
	run(t, pool, `update "Sch ema"."ta""ble" set "t" = 'main'`, `insert into "Sch ema"."ta""ble" values (9, 'main', null, 1, 99)`)

	const all = `select * from "ta""ble" order by 1, 2`
	gives(t, c, `insert into "ta""ble" values (9, 'main', 'mine', 1.239, 99) returning *`, `9,main,mine,1.24,99`)
	gives(t, c, `update "ta""ble" set "o" = "o" + 1 where "select" < 3 returning *`, "1,a,x,2.00,11\n2,b,y,4.00,12")
	gives(t, c, `update "ta""ble" set "select" = 8 where "select" = 2 returning *`, "8,b,y,4.00,12")
	gives(t, c, `delete from "ta""ble" where "old" = 'c' returning *`, "3,c,-,3.00,-")
	shows(t, c, all, "(1,a,x,2.00,11)\n(8,b,y,4.00,12)\n(9,main,mine,1.24,99)")
	// What was deleted can come back, and what came can go.
	run(t, c, `insert into "ta""ble" values (3, 'c', null, 5, null)`, `delete from "ta""ble" where "select" = 9`, `update "ta""ble" set "t" = null where "select" = 1`)
	shows(t, c, all, "(1,a,,2.00,11)\n(3,c,,5.00,)\n(8,b,y,4.00,12)")
	shows(t, pool, `select * from "Sch ema"."ta""ble" order by 1`, "(1,a,main,1.00,11)\n(2,b,main,3.00,12)\n(3,c,main,3.00,)\n(9,main,,1.00,99)")
	// What merging compares with is kept.
	shows(t, pool, `select k1, k2, alive, was, c3, c4, c5, b3, b4, b5 from gnomon.o1 order by 1`, "(1,a,t,t,,2.00,11,x,1.00,11)\n(2,b,f,t,,,,y,3.00,12)\n(3,c,t,t,,5.00,,,3.00,)\n(8,b,t,f,y,4.00,12,,,)\n(9,main,f,f,,,,,,)")
	// And of a logged branch what each step replaced.
	shows(t, pool, `select op, alive, own, k1, c3, c4, c5 from gnomon.l1 order by v`, "(i,f,f,9,,,)\n(u,t,f,1,x,1.00,11)\n(u,t,f,2,y,3.00,12)\n(d,t,t,2,y,4.00,12)\n(i,f,f,8,,,)\n(d,t,f,3,,3.00,)\n(i,f,t,3,,,)\n(d,t,t,9,mine,1.24,99)\n(u,t,t,1,x,2.00,11)")

	e := fails(t, c, "23505", `insert into "ta""ble" values (1, 'a', null, 1, 5)`)
	if e.ConstraintName != "ta\"ble_pkey" || e.TableName != `ta"ble` || e.SchemaName != "Sch ema" || e.Detail != `Key ("select", old)=(1, a) already exists.` {
		t.Fatalf("%+v", e)
	}
	fails(t, c, "23505", `update "ta""ble" set "select" = 3, "old" = 'c' where "select" = 1`)
	if e := fails(t, c, "23505", `insert into "ta""ble" values (5, 'a', null, 1, 11)`); e.ConstraintName != "ta\"ble_new_key" {
		t.Fatalf("%+v", e)
	}
	fails(t, c, "23505", `update "ta""ble" set "new" = 12 where "select" = 1`)
	if e := fails(t, c, "23502", `update "ta""ble" set "o" = null`); e.ColumnName != "o" || e.TableName != `ta"ble` {
		t.Fatalf("%+v", e)
	}
	fails(t, c, "22001", `update "ta""ble" set "t" = 'abcdef'`)
	fails(t, c, "22003", `update "ta""ble" set "o" = 123456`)
	fails(t, c, "21000", `update "ta""ble" set "o" = x from generate_series(1, 2) x`)
	shows(t, c, all, "(1,a,,2.00,11)\n(3,c,,5.00,)\n(8,b,y,4.00,12)")
}
