package gnomon_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"
)

// TestBranchesAreAsTheModel runs random programs on main and on branches, and compares all that they show with a model.
func TestBranchesAreAsTheModel(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	long := time.Now().Add(4 * time.Second)
	done, worlds := map[string]int{}, slices.Clone(branchWorlds)
	few(t, 1000, func(r *rapid.T) {
		if time.Now().After(long) && flag.Lookup("rapid.checks").Value.String() == usualChecks {
			return
		}
		p := &branchProgram{t: t, r: r, g: g, done: done, worlds: worlds}
		p.run(pool)
		done["programs"]++
	})
	t.Logf("%v", done)
}

func (p *branchProgram) run(pool *pgxpool.Pool) {
	ctx := p.t.Context()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	p.ok(err)
	defer conn.Close(context.WithoutCancel(ctx))
	p.conn = conn
	w := &p.worlds[rapid.IntRange(0, len(p.worlds)-1).Draw(p.r, "world")]
	p.schema = w.schema()
	p.trace = append(p.trace, w.setup())
	if !w.made {
		w.made = true
		_, err := conn.Exec(ctx, w.setup())
		p.ok(err)
	}
	_, err = conn.Exec(ctx, "set search_path = "+w.name())
	p.ok(err)
	if state := p.exec(nil, `select gnomon.drop_branch(name) from gnomon.branch; delete from "ta""ble"; delete from region; update item set p = null; delete from item`); state != "" {
		p.fatal("setup")
	}
	p.main = p.schema.empty()
	for range rapid.IntRange(0, 8).Draw(p.r, "rows") {
		p.write(nil)
	}
	for range rapid.IntRange(15, 40).Draw(p.r, "steps") {
		p.step()
	}
	p.compare(nil)
	for _, b := range p.branches {
		p.compare(b)
	}
}

// TestSQLOnABranchIsAsOnATable runs random statements on branches of tables of many kinds, and on a table alike that is not tracked. They do the same.
func TestSQLOnABranchIsAsOnATable(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	long := time.Now().Add(3 * time.Second)
	done := map[string]int{}
	few(t, 1000, func(r *rapid.T) {
		if time.Now().After(long) && flag.Lookup("rapid.checks").Value.String() == usualChecks {
			return
		}
		w := rapid.SampledFrom(worlds).Draw(r, "world")
		if strings.HasPrefix(w.name, "nesting") || w.name == "parent" { // triggers that run after a row don't on branches; those who inherit are other tables
			return
		}
		p := &branchProgram{t: t, r: r, g: g, done: done}
		p.runAlike(pool, w)
		done["programs"]++
	})
	t.Logf("%v", done)
}

func (p *branchProgram) runAlike(pool *pgxpool.Pool, w world) {
	ctx := p.t.Context()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	p.ok(err)
	defer conn.Close(context.WithoutCancel(ctx))
	p.conn = conn
	p.trace = append(p.trace, w.setup, w.options)
	for _, sql := range []string{"select gnomon.drop_branch(name) from gnomon.branch", "drop schema if exists plain, public cascade", "create schema plain", "set search_path = plain", w.setup, "create schema public", "set search_path = public", w.setup, fmt.Sprintf("select gnomon.track('t', '%s')", w.options)} {
		_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		p.ok(err)
	}
	logged := rapid.Bool().Draw(p.r, "logged")
	b := &modelBranch{name: "b"}
	if state := p.exec(nil, fmt.Sprintf("select gnomon.create_branch('b', 'now', %t)", logged)); state != "" {
		p.fatal("create")
	}
	rows := func(sql string) string {
		p.t.Helper()
		var text string
		_, err := conn.Exec(ctx, "begin; "+sql, pgx.QueryExecModeSimpleProtocol)
		p.ok(err)
		err = conn.QueryRow(ctx, "select coalesce(string_agg(q::text, E'\\n' order by q::text collate \"C\"), '') from (select * from t) q", pgx.QueryExecModeExec).Scan(&text)
		p.ok(err)
		_, err = conn.Exec(ctx, "rollback")
		p.ok(err)
		return text
	}
	before := rows("set local search_path = public")
	for range rapid.IntRange(3, 15).Draw(p.r, "steps") {
		sql := statement(p.r)
		if strings.HasPrefix(sql, "truncate") || strings.HasPrefix(sql, "merge") {
			continue
		}
		p.done["statements"]++
		want := p.exec(nil, "set local search_path = plain; "+sql)
		got := p.exec(b, sql)
		if want == "" && got == "23505" && strings.Contains(sql, "set id = case") {
			p.done["swaps"]++ // rows change places in one statement: on a branch each has to find its place free
			return
		}
		if got != want {
			p.fatal("%s: %q on the branch, %q on a table", sql, got, want)
		}
		if on, plain := rows("select gnomon.use('b', true)"), rows("set local search_path = plain"); on != plain {
			p.fatal("after %s the branch shows\n%s\nwant\n%s", sql, on, plain)
		}
	}
	if now := rows("set local search_path = public"); now != before {
		p.fatal("main was\n%s\nand is\n%s", before, now)
	}
}
