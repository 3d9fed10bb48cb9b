package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestNoOpsAreSkipped(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key, n numeric, j json, w text); insert into t values (1, 1.0, '{}', repeat('w', 5000)), (2, null, null, null)")
	track(t, pool, "t", `{"skip_noop": true}`)
	entries := func() int { return one[int](t, pool, "select count(*) from annals.h1") }
	exec(t, pool, "update t set id = id, n = n, w = w; update t set n = 1.0, j = '{}' where id = 1; insert into t values (1) on conflict (id) do update set w = t.w")
	if got := entries(); got != 0 {
		t.Errorf("%d entries of updates that change nothing", got)
	}
	// Equal is not the same.
	exec(t, pool, "update t set n = 1.00 where id = 1; update t set j = '{ }' where id = 1; update t set n = 0 where id = 2")
	if got := entries(); got != 3 {
		t.Errorf("%d entries of three updates", got)
	}
}

func TestExcludedColumnsAreNowhere(t *testing.T) {
	t.Parallel()
	for _, options := range []string{`"form": "auto"`, `"form": "row"`, `"skip_noop": true`, `"wide": ["w", "secret"]`} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			exec(t, pool, "create table t (id int primary key, secret text, w text); insert into t values (1, 'hush1', 'w'), (2, 'hush2', 'w')")
			track(t, pool, "t", `{"exclude": ["secret"], `+options+`}`)
			for _, step := range []string{"insert into t values (3, 'hush3', 'w')", "update t set secret = secret || '!'", "update t set id = 10, secret = 'hush4', w = 'x' where id = 1", "delete from t where id = 2", "truncate t"} {
				remember(t, pool, "t", step)
				exec(t, pool, step)
			}
			compare(t, pool, "t")
			for _, table := range many[string](t, pool, "select oid::regclass::text from pg_class where relnamespace = 'annals'::regnamespace and relkind in ('r', 'v')") {
				if got := one[int](t, pool, "select count(*) from "+table+" x where x::text like '%hush%'"); got != 0 {
					t.Errorf("%s holds it", table)
				}
			}
		})
	}
}

// size returns the bytes of the one segment of a history, with index and TOAST, per entry.
func size(t testing.TB, pool *pgxpool.Pool, id int) float64 {
	t.Helper()
	return one[float64](t, pool, fmt.Sprintf("select pg_total_relation_size('annals.h%[1]d_1')::float8 / greatest(count(*), 1) from annals.h%[1]d_1", id))
}

func TestWideColumnsAreStoredWhenTheyChange(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	const make = `create table %[1]s (id int primary key, x int, w text, v bytea); alter table %[1]s alter w set storage external, alter v set storage external;
		insert into %[1]s select i, i, s, decode(s, 'hex') from generate_series(1, 150) i, lateral (select string_agg(md5(i::text || k::text), '') as s from generate_series(1, 140) k) r`
	ids := map[string]int{}
	for table, options := range map[string]string{"auto": "", "whole": `{"full": true}`, "named": `{"wide": ["w"]}`} {
		exec(t, pool, fmt.Sprintf(make, table))
		ids[table] = track(t, pool, table, options)
	}
	for table, columns := range map[string]int{"auto": 2, "whole": 0, "named": 1} {
		if got := one[int](t, pool, "select cardinality(wide) from annals.tracked where id = $1", ids[table]); got != columns {
			t.Errorf("%s: %d wide columns, want %d", table, got, columns)
		}
		for _, step := range []string{"x = x + 1", "x = x + 1", "x = x + 1"} {
			remember(t, pool, table, step)
			exec(t, pool, "update "+table+" set "+step)
		}
	}
	auto, whole, named := size(t, pool, ids["auto"]), size(t, pool, ids["whole"]), size(t, pool, ids["named"])
	t.Logf("bytes per entry: %.0f without wide columns, %.0f with one of them, %.0f with both", auto, named, whole)
	if auto > 400 || whole < 6000 || named < 2000 || named > 4000 {
		t.Errorf("bytes per entry: %.0f without wide columns, %.0f with one of them, %.0f with both", auto, named, whole)
	}
	for table := range ids {
		for _, step := range []string{"update %s set w = 'short' where id < 10", "update %s set x = 0, v = null", "update %s set id = -id where id < 5", "update %s set x = 1, w = w", "update %s set x = 2, w = repeat('long', 1000) where id % 2 = 0",
			"begin; update %s set x = 3; update %s set w = 'then'; update %s set x = 4; commit", "delete from %s where id < 20", "truncate %s"} {
			step = strings.ReplaceAll(step, "%s", table)
			remember(t, pool, table, step)
			exec(t, pool, step)
		}
		compare(t, pool, table)
	}
}

func TestWarning(t *testing.T) {
	t.Parallel()
	for _, options := range []string{`"form": "auto"`, `"form": "row"`, `"skip_noop": true`} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			exec(t, pool, "create table t (id int primary key, x int)")
			track(t, pool, "t", `{"warn_rows": 3, `+options+`}`)
			config := pool.Config().ConnConfig.Copy()
			var notices []string
			config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
				notices = append(notices, n.Severity+" "+n.Code+" "+n.Message)
			}
			conn, err := pgx.ConnectConfig(t.Context(), config)
			ok(t, err)
			defer conn.Close(t.Context())
			for _, sql := range []string{"insert into t select i from generate_series(1, 4) i", "insert into t select i from generate_series(11, 13) i", "update t set x = 1 where id < 5", "update t set x = 1 where id < 4", "delete from t where id < 4", "delete from t"} {
				exec(t, conn, sql)
			}
			const want = "WARNING 01000 4 rows of public.t changed by one "
			if got := strings.Join(notices, ", "); got != want+"INSERT, "+want+"UPDATE, "+want+"DELETE" {
				t.Errorf("warned %s", got)
			}
		})
	}
}

// Names that capture itself uses, or that need quotes.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 62) + "%"
	for _, options := range append(everyForm[:4:4], `{"wide": ["select", "m"], "warn_rows": 1}`, `{"warn_rows": 2}`) {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			columns := []string{"v", "xid", "at", "ctx", "login", "op", "start", "missing", "h", "l", "b", "m", "y", "z", "old", "new", "o", "n", "t", "x", "who", "annals_capture", "select", "tg_op", "changed", "c1", "c2", "r", "k", "a\"b", "%I", "x old.y", "new.z, q", "$1", "Ünï", long}
			var list, values, sets []string
			for i, c := range columns {
				q := pgx.Identifier{c}.Sanitize()
				list, values, sets = append(list, q+" text"), append(values, fmt.Sprintf("'%d'", i)), append(sets, q+" = "+q+" || '!'")
			}
			const table = `"Sch ema; --"."ta""ble %I $1"`
			exec(t, pool, `create schema "Sch ema; --"; create table `+table+" ("+strings.Join(list, ", ")+`, w text, primary key ("select", old, "x old.y", "new.z, q", annals_capture, "`+long+`"))`)
			exec(t, pool, "insert into "+table+" values ("+strings.Join(values, ", ")+"), ("+strings.ReplaceAll(strings.Join(values, ", "), "'", "'''")+")")
			track(t, pool, table, strings.ReplaceAll(options, `"select"`, `"who"`))
			for _, step := range []string{"update " + table + " set m = 'x', h = 'y', w = 'w'", "update " + table + " set " + strings.Join(sets, ", "), "update " + table + ` set "new.z, q" = 'z' where h = 'y!' and old = '14!'`, "delete from " + table + " where old = '15'", "insert into " + table + " values (" + strings.Join(values, ", ") + ")", "truncate " + table} {
				remember(t, pool, table, step)
				exec(t, pool, step)
			}
			compare(t, pool, table)
		})
	}
}
