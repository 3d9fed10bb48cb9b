package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// world is a kind of table for random programs.
type world struct{ name, setup, options string }

var worlds = []world{
	{"plain", item, `{}`},
	{"by row", item, `{"form": "row"}`},
	{"without no-ops", item, `{"skip_noop": true}`},
	{"wide", item, `{"wide": ["w"]}`},
	{"full", item, `{"full": true}`},
	{"nesting", nesting + "create trigger a after insert or update on t for each row execute function nudge(); create trigger b after update or delete on t for each row execute function drop_next();", `{"wide": ["w"]}`},
	{"nesting before", nesting + "create trigger a before insert on t for each row execute function replace(); create trigger b before update of id on t for each row execute function make_room(); create trigger c after update of w on t for each row execute function nudge();", `{"wide": ["w"]}`},
	{"tree", "create table t (id int primary key, x int references t on delete cascade on update cascade, w text); insert into t select i, nullif(i / 2, 0), 'w' from generate_series(1, 9) i;", `{}`},
	{"nesting without no-ops", nesting + "create trigger a after insert or update on t for each row execute function nudge();", `{"skip_noop": true}`},
	{"partitions", "create table t (id int primary key, x int, w text) partition by range (id); create table t1 partition of t for values from (minvalue) to (4); create table t2 partition of t for values from (4) to (7); create table t3 partition of t default; " + items, `{}`},
}

// statement draws one that writes table t, whose keys are few so that sessions meet.
func statement(t *rapid.T) string {
	key := rapid.IntRange(0, 12)
	k, n := key.Draw(t, "key"), rapid.IntRange(0, 99).Draw(t, "value")
	return rapid.SampledFrom([]string{
		fmt.Sprintf("update t set w = 'w%d' where id = %d", n, k),
		fmt.Sprintf("update t set x = null where id = %d", k),
		fmt.Sprintf("update t set w = w where id >= %d", k),
		fmt.Sprintf("update t set w = coalesce(w, '') || '%d' where id %% 3 = %d", n%10, k%3),
		fmt.Sprintf("update t set id = %d where id = %d", key.Draw(t, "new key"), k),
		fmt.Sprintf("update t set id = %d - id where id in (%d, %d)", k+n%5, k, n%5),
		fmt.Sprintf("update t set id = id + 20, w = 'far' where id = %d", k),
		fmt.Sprintf("insert into t values (%d, null, 'i%d')", k, n),
		fmt.Sprintf("insert into t select i, null, 'many' from generate_series(%d, %d) i where not exists (select from t where id = i)", k, k+n%4),
		fmt.Sprintf("delete from t where id = %d", k),
		fmt.Sprintf("delete from t where id between %d and %d", k, k+n%3),
		fmt.Sprintf("with gone as (delete from t where id = %d returning *) insert into t select id, x, w || '%d' from gone", k, n),
		fmt.Sprintf("merge into t using (values (%d), (%d)) s (id) on s.id = t.id when matched and t.id %% 2 = 0 then delete when matched then update set w = 'm%d' when not matched then insert values (s.id, null, 'm')", k, (k+1)%12, n),
		"truncate t",
	}).Draw(t, "statement")
}

// TestReplay runs random programs in sessions that overlap. Whatever a session saw at a coordinate, history tells of it.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			rapid.Check(t, func(r *rapid.T) { w.program(t, r, pool) })
		})
	}
}

const sessions = 3

func (w world) program(t *testing.T, r *rapid.T, pool *pgxpool.Pool) {
	must := func(err error) {
		if err != nil {
			r.Fatal(err)
		}
	}
	ctx := t.Context()
	_, err := pool.Exec(ctx, "drop schema public cascade; create schema public; delete from replay.moment")
	must(err)
	_, err = pool.Exec(ctx, w.setup)
	must(err)
	_, err = pool.Exec(ctx, "select annals.track('t', 'test', $1::text::jsonb)", w.options)
	must(err)

	var conns [sessions]*pgx.Conn
	var inTx, strict [sessions]bool
	for i := range conns {
		conns[i], err = pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		must(err)
		defer conns[i].Close(context.WithoutCancel(ctx))
		// Who waits for another session gives up: the sessions take turns here.
		_, err = conns[i].Exec(ctx, "set lock_timeout = '15ms'")
		must(err)
	}
	var trace []string
	// Refused statements are part of it; errors of capture's own are not.
	do := func(i int, sql string) bool {
		trace = append(trace, fmt.Sprintf("%d: %s", i, sql))
		_, err := conns[i].Exec(ctx, sql)
		if err != nil {
			trace[len(trace)-1] += " -- " + sqlState(err)
			if !slices.Contains([]string{"55P03", "40001", "40P01", "AN002", "25P02"}, sqlState(err)) && !strings.HasPrefix(sqlState(err), "23") && sqlState(err) != "27000" {
				r.Fatalf("%v\n%s", err, strings.Join(trace, "\n"))
			}
		}
		return err == nil
	}
	for range rapid.IntRange(5, 30).Draw(r, "steps") {
		i := rapid.IntRange(0, sessions-1).Draw(r, "session")
		switch rapid.SampledFrom([]string{"write", "write", "write", "write", "write", "begin", "end", "savepoint", "remember"}).Draw(r, "do") {
		case "write":
			if inTx[i] {
				do(i, "savepoint w")
			}
			if !do(i, statement(r)) && inTx[i] {
				do(i, "rollback to w")
			}
		case "begin":
			if !inTx[i] {
				strict[i] = rapid.Bool().Draw(r, "repeatable read")
				do(i, map[bool]string{true: "begin isolation level repeatable read", false: "begin"}[strict[i]])
				inTx[i] = true
			}
		case "end":
			if inTx[i] {
				do(i, rapid.SampledFrom([]string{"commit", "commit", "rollback"}).Draw(r, "end"))
				inTx[i] = false
			}
		case "savepoint":
			if inTx[i] {
				if !do(i, rapid.SampledFrom([]string{"savepoint s", "savepoint s; update t set w = 'lost'; rollback to s"}).Draw(r, "savepoint")) {
					do(i, "rollback to s")
				}
			}
		case "remember":
			tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			must(err)
			_, err = tx.Exec(ctx, "set local lock_timeout = '15ms'; select replay.remember('t', '')")
			if sqlState(err) == "55P03" { // somebody truncates
				must(tx.Rollback(ctx))
				continue
			}
			must(errors.Join(err, tx.Commit(ctx)))
			trace = append(trace, "remember")
		}
	}
	for i := range conns {
		if inTx[i] {
			do(i, "commit")
		}
	}
	rows, err := pool.Query(ctx, "select format('at %s it was %s, history tells %s', coordinate, coalesce(was, 'no row'), coalesce(told, 'no row')) from replay.differences('t')")
	must(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(err)
	if len(found) > 0 {
		entries, _ := pool.Query(ctx, fmt.Sprintf("select h::text from annals.h%d h order by v", one[int](t, pool, "select replay.tracked('t')")))
		texts, _ := pgx.CollectRows(entries, pgx.RowTo[string])
		r.Fatalf("%s\n%s\n%s", strings.Join(found, "\n"), strings.Join(trace, "\n"), strings.Join(texts, "\n"))
	}
}
