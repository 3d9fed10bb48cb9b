package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// TestWhatABranchCannotDo: PostgreSQL's errors that come of the tables of a branch being views say so, and name the way that works; no others do.
func TestWhatABranchCannotDo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, `create table "Or""der" (id int primary key, n int)`, "create table o (id int primary key, n int)", "create table main_only (id int, n int)", "create view main_view as select * from main_only")
	track(t, g, `public."Or""der"`, "public.o")
	b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, "b", gnomon.BranchOptions{}))
	before17 := column[int](t, pool, "select current_setting('server_version_num')::int")[0] < 170000
	for _, table := range []string{"o", `"Or""der"`} {
		for _, c := range []struct{ reason, sql string }{
			{"on conflict", "insert into " + table + " values (1, 2) on conflict (id) do update set n = 3"},
			{"on conflict", "insert into " + table + " values (1, 2) on conflict on constraint o_pkey do nothing"},
			{"system column", "select ctid from " + table},
			{"system column", "select x.xmin from " + table + " x"},
			{"system column", "delete from " + table + " where tableoid = 5"},
			{"truncate", "truncate " + table},
			{"copy", "copy " + table + " to '/dev/null'"},
			{"merge", "merge into " + table + " x using (values (1)) s (id) on s.id = x.id when matched then delete"},
			{"tablesample", "select * from " + table + " tablesample system (1)"},
			{"definition", "alter table " + table + " add x int"},
			{"definition", "create index on " + table + " (id)"},
			{"definition", "create table refers (id int references " + table + ")"},
		} {
			if c.reason == "merge" && !before17 {
				if _, err := b.Exec(ctx, c.sql); err != nil {
					t.Errorf("%s: %v", c.sql, err)
				}
				continue
			}
			_, err := b.Exec(ctx, c.sql)
			if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Reason != c.reason || e.Hint == "" || sqlState(err) == "" {
				t.Errorf("%s: %+v", c.sql, e)
			}
			ok(t, pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error {
				part := must[pgx.Tx](t)(tx.Begin(ctx))
				if _, err := part.Exec(ctx, c.sql); !errors.Is(err, gnomon.ErrNotOnBranch) {
					t.Errorf("in a transaction: %s: %v", c.sql, err)
				}
				return part.Rollback(ctx)
			}))
		}
	}
	ok(t, pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error {
		run(t, tx, "declare c cursor for select * from o")
		part := must[pgx.Tx](t)(tx.Begin(ctx))
		_, err := part.Exec(ctx, "delete from o where current of c")
		if e := refuses(t, err, gnomon.ErrNotOnBranch); e.Reason != "where current of" {
			t.Errorf("where current of: %+v", e)
		}
		return part.Rollback(ctx)
	}))
	for state, sqls := range map[string][]string{
		"42P10": {"insert into public.main_only values (1, 2) on conflict (id) do nothing"},
		"42704": {"insert into public.main_only values (1, 2) on conflict on constraint nothing do nothing"},
		"42703": {"select nothing from o", "select x.ctid from (select 1) x"},
		"42809": {"truncate public.main_view", "copy public.main_view to '/dev/null'", "alter table public.main_view add x int"},
		"42601": {"selekt"}, "42P01": {"select * from nothing"}, "22012": {"select 1 / 0 from o"},
	} {
		for _, sql := range sqls {
			if _, err := b.Exec(ctx, sql); sqlState(err) != state && state != "22012" || errors.Is(err, gnomon.ErrNotOnBranch) {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
}

// TestOrders: whatever the order in which a branch is made and a table is tracked, untracked, tracked again, tagged, pruned and altered, the branch shows what it
// showed, or says why it can't.
func TestOrders(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	steps := map[byte]string{'u': "select gnomon.untrack('%[1]s')", 'a': "alter table %[1]s add more_%[2]d int", 'g': "select gnomon.tag('%[1]s %[2]d')", 'p': "select gnomon.prune('%[1]s'::regclass, now())", 'w': "update %[1]s set n = n + 1", 'r': "select annals.rotate(id, 0) from annals.tracked where relation = '%[1]s'::regclass and ended_v is null", 'd': "alter table %[1]s rename n to m; alter table %[1]s rename m to n"}
	for i, order := range []string{"btw", "tbwut", "tbuwtw", "tbga", "tgbwpw", "btbwpa", "tbwrwpw", "tbdw", "tubtw", "tbwgu", "tbarwp", "tapbw"} {
		table := "orders_" + string('a'+rune(i))
		run(t, pool, "create table "+table+" (id int primary key, n int)", "insert into "+table+" values (1, 1), (2, 2)")
		var b *gnomon.Branch
		var shows string
		tracked := false
		for j, step := range []byte(order) {
			switch step {
			case 'b':
				b = must[*gnomon.Branch](t)(g.CreateBranch(ctx, table+" "+string('0'+rune(j)), gnomon.BranchOptions{}))
				shows = text(t, pool, "select id, n from "+table+" order by id")
				if tracked {
					run(t, b, "update "+table+" set n = 70 where id = 1")
					shows = text(t, b, "select id, n from "+table+" order by id")
				}
			case 't':
				if !tracked {
					track(t, g, "public."+table)
				}
				tracked = true
			default:
				sql := fmt.Sprintf(steps[step], table, j)
				if _, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil && step != 'u' && step != 'p' {
					t.Fatalf("%s: %s: %v", order, sql, err)
				} else if step == 'u' && err == nil {
					tracked = false
				}
			}
			if b == nil {
				continue
			}
			rows, err := b.Query(ctx, "select id, n from "+table+" order by id")
			var got string
			if err == nil {
				got, err = linesOf(rows)
			}
			switch {
			case err == nil && got != shows:
				t.Errorf("%s, step %d: it shows %q, and showed %q", order, j, got, shows)
			case err != nil && !errors.Is(err, gnomon.ErrNoHistory) && !errors.Is(err, gnomon.ErrPruned) && !errors.Is(err, gnomon.ErrNotOnBranch):
				t.Errorf("%s, step %d: %v", order, j, err)
			}
		}
	}
}

func linesOf(rows pgx.Rows) (string, error) {
	lines := ""
	for rows.Next() {
		var id, n int
		if err := rows.Scan(&id, &n); err != nil {
			return "", err
		}
		if lines != "" {
			lines += "\n"
		}
		lines += fmt.Sprintf("(%d,%d)", id, n)
	}
	return lines, rows.Err()
}

// TestOnBranchEndsWithTheTransaction, or with the savepoint before it.
func TestOnBranchEndsWithTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool, _ := branchOfO(t)
	conn := connectAs(t, pool.Config().ConnString(), "")
	tx := must[pgx.Tx](t)(conn.Begin(ctx))
	defer tx.Rollback(context.WithoutCancel(ctx))
	refuses(t, gnomon.OnBranch(ctx, tx, "nothing"), gnomon.ErrUnknownBranch)
	part := must[pgx.Tx](t)(tx.Begin(ctx))
	ok(t, gnomon.OnBranch(ctx, part, "o'clock"))
	if n := column[int](t, tx, "select sum(n)::int from o")[0]; n != 6 {
		t.Errorf("on the branch: %d", n)
	}
	ok(t, part.Rollback(ctx))
	if n := column[int](t, tx, "select sum(n)::int /* main */ from o")[0]; n != 409 {
		t.Errorf("before it: %d", n)
	}
	ok(t, gnomon.OnBranch(ctx, tx, "o'clock"))
	run(t, tx, "update o set n = 0")
	ok(t, tx.Commit(ctx))
	if n := column[int](t, conn, "select sum(n)::int from o")[0]; n != 409 {
		t.Errorf("after it: %d", n)
	}
}
