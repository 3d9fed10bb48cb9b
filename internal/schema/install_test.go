package schema_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/internal/schema"
)

func TestInstallAndUpgrade(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	wantVersion(t, pool, library(3), 0)
	must(t, schema.Install(ctx, pool, library(1)))
	wantVersion(t, pool, library(3), 1)
	exec(t, pool, "insert into library.book values (1, 'emma')")

	for range 2 { // the second time nothing happens
		must(t, schema.Install(ctx, pool, library(3)))
		wantVersion(t, pool, library(3), 3)
	}
	if title := value[string](t, pool, "select title from library.book where reader is null"); title != "EMMA" {
		t.Errorf("title is %q", title)
	}
	rows, err := pool.Query(ctx, "select version || ' ' || name || ' ' || package from library.annals_step where applied_at > now() - interval '1 hour' order by version")
	must(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if want := []string{"1 001_books library", "2 002_readers library", "3 003_no_titles library"}; !slices.Equal(steps, want) {
		t.Errorf("steps are %q, want %q", steps, want)
	}
}

func TestInstallNewer(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	must(t, schema.Install(ctx, pool, library(3)))
	var newer *schema.NewerError
	err := schema.Install(ctx, pool, library(2))
	if !errors.As(err, &newer) || *newer != (schema.NewerError{Package: "library", Installed: 3, Known: 2}) {
		t.Errorf("older program: %v", err)
	}
	wantVersion(t, pool, library(2), 3)
}

func TestInstallIntoForeignSchema(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for what, script := range map[string]string{
		"empty schema":           "create schema library",
		"schema with objects":    "create schema library create table book (id int)",
		"other package's schema": "",
	} {
		pool := pgserver.Pool(t)
		if script != "" {
			exec(t, pool, script)
		} else {
			other := library(1)
			other.Name = "bookshop"
			must(t, schema.Install(ctx, pool, other))
		}
		_, installedErr := schema.Installed(ctx, pool, library(1))
		for name, err := range map[string]error{
			"Install":   schema.Install(ctx, pool, library(1)),
			"Uninstall": schema.Uninstall(ctx, pool, library(1)),
			"Installed": installedErr,
		} {
			var foreign *schema.ForeignSchemaError
			if !errors.As(err, &foreign) || *foreign != (schema.ForeignSchemaError{Package: "library", Schema: "library"}) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
		if !value[bool](t, pool, "select to_regnamespace('library') is not null") {
			t.Errorf("%s is gone", what)
		}
	}
}

func TestInstallIsAllOrNothing(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	for name, text := range map[string]string{
		"syntax":   "create table; select 1",
		"analysis": "select 1; alter table no_such_table add i int",
		"run":      "create table t as select 1 / (random() * 0)::int",
		"nested":   "do $$ begin do $i$ begin\n\n perform 1 / 0; end $i$; end $$",
		"comment":  "create table t () -- no newline at the end",
	} {
		p := withSteps(map[string]string{"001_good": "create table good ()", "002_bad": text, "003_never": "select 1/0"}, 3)
		err := schema.Install(ctx, pool, p)
		want := "002_bad"
		if name == "comment" {
			want = "003_never"
		}
		var step *schema.StepError
		if !errors.As(err, &step) || step.Package != "library" || step.Step != want {
			t.Errorf("%s: error is %v, want one of step %s", name, err, want)
		}
		wantVersion(t, pool, p, 0)
		if value[bool](t, pool, "select to_regnamespace('library') is not null") {
			t.Errorf("%s: something is left", name)
		}
	}
	must(t, schema.Install(ctx, pool, library(1)))
	must(t, schema.Install(ctx, pool, library(3)))
	bad := withSteps(map[string]string{"001_a": "", "002_b": "", "003_c": ""}, 3)
	bad.Steps.(fstest.MapFS)["sql/004_d.sql"] = &fstest.MapFile{Data: []byte("drop table book; select 1/0")}
	if err := schema.Install(ctx, pool, bad); !hasCode(err, "22012") {
		t.Errorf("failed upgrade: %v", err)
	}
	wantVersion(t, pool, library(3), 3)
}

func TestInstallInCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, pgserver.Database(t))
	tx, err := conn.Begin(ctx)
	must(t, err)
	exec(t, tx, "create table mine ()")
	must(t, schema.Install(ctx, tx, library(1)))
	bad := withSteps(map[string]string{"001_books": "", "002_bad": "create table half (); select 1/0"}, 2)
	if err := schema.Install(ctx, tx, bad); !hasCode(err, "22012") {
		t.Errorf("failed step: %v", err)
	}
	wantVersion(t, tx, library(1), 1)
	must(t, schema.Install(ctx, tx, library(3)))
	if !value[bool](t, tx, "select to_regclass('mine') is not null and to_regclass('library.half') is null") {
		t.Error("a failed step took more with it than its own work")
	}
	must(t, tx.Rollback(ctx))
	wantVersion(t, conn, library(3), 0)
}

func TestSessionUnchanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	bad := withSteps(map[string]string{"001_books": "select 1/0"}, 1)
	for _, inTx := range []bool{false, true} {
		conn := connect(t, pgserver.Database(t))
		exec(t, conn, "set search_path = elsewhere, public; set check_function_bodies = off; set lock_timeout = 12345; set client_min_messages = debug1")
		if inTx {
			exec(t, conn, "begin; set local search_path = nowhere")
		}
		for what, fn := range map[string]func(){
			"failed install":  func() { _ = schema.Install(ctx, conn, bad) },
			"installed":       func() { _, _ = schema.Installed(ctx, conn, bad) },
			"install":         func() { must(t, schema.Install(ctx, conn, library(1))) },
			"install again":   func() { must(t, schema.Install(ctx, conn, library(1))) },
			"upgrade":         func() { must(t, schema.Install(ctx, conn, library(3))) },
			"list of objects": func() { _, _ = schema.Uncommented(ctx, conn, "library") },
			"uninstall":       func() { must(t, schema.Uninstall(ctx, conn, library(3))) },
		} {
			t.Log(what)
			pgtxtest.AssertSessionUnchanged(t, conn, fn)
			must(t, schema.Uninstall(ctx, conn, library(3)))
		}
	}
}

func TestInstallAsOrdinaryRole(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), pgserver.Database(t)
	admin := connect(t, connString)
	role := pgserver.Role(t, pgserver.Shared(t), "installer")
	exec(t, admin, fmt.Sprintf("grant create on database %s to %s", admin.Config().Database, role))
	exec(t, admin, "set role "+role)
	must(t, schema.Install(ctx, admin, library(1)))
	must(t, schema.Install(ctx, admin, library(3)))
	if owner := value[string](t, admin, "select relowner::regrole::text from pg_class where oid = 'library.book'::regclass"); owner != role {
		t.Errorf("the tables belong to %s, want %s", owner, role)
	}
	must(t, schema.Uninstall(ctx, admin, library(3)))
	exec(t, admin, "reset role")
}

func TestInstallUnderAnyName(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgserver.Pool(t)
	for _, name := range []string{"t", "o", `Sch ema`, `a"b`, "select", "it's", `back\slash`} {
		p := schema.Package{Name: name, Schema: name, Steps: fstest.MapFS{"sql/001_t.sql": {Data: []byte("create table o (); comment on table o is 'here'")}}}
		must(t, schema.Install(ctx, pool, p))
		must(t, schema.Install(ctx, pool, p))
		wantVersion(t, pool, p, 1)
		if where := value[string](t, pool, "select nspname from pg_namespace n join pg_class c on relnamespace = n.oid where relname = 'o'"); where != name {
			t.Errorf("table is in schema %s, want %s", where, name)
		}
		missing, err := schema.Uncommented(ctx, pool, name)
		must(t, err)
		if len(missing) > 0 {
			t.Errorf("without a comment: %q", missing)
		}
		must(t, schema.Uninstall(ctx, pool, p))
		wantVersion(t, pool, p, 0)
	}
}

// TestInstallUnderHostileSearchPath: nothing of the caller's search_path is used.
func TestInstallUnderHostileSearchPath(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, pgserver.Database(t))
	exec(t, conn, `
		create schema evil;
		create function evil.boom(text, text) returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;
		create function evil.boom(int, int) returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;
		create operator evil.<> (function = evil.boom, leftarg = text, rightarg = text);
		create operator evil.> (function = evil.boom, leftarg = int, rightarg = int);
		create operator evil.< (function = evil.boom, leftarg = int, rightarg = int);
		create function evil.cardinality(text[]) returns int language plpgsql as $$ begin raise 'hijacked'; end $$;
		create function evil.to_regnamespace(text) returns regnamespace language plpgsql as $$ begin raise 'hijacked'; end $$;
		create domain evil.text as pg_catalog.text check (false);
		create temporary table annals_step ();
		create temporary table book (wrong int);
		set search_path = evil, pg_temp, pg_catalog`)
	must(t, schema.Install(ctx, conn, library(1)))
	must(t, schema.Install(ctx, conn, library(3)))
	wantVersion(t, conn, library(3), 3)
	must(t, schema.Uninstall(ctx, conn, library(3)))
}

func TestInstallInEveryMode(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), pgserver.Database(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config, err := pgx.ParseConfig(connString)
		must(t, err)
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		must(t, err)
		defer conn.Close(ctx)
		must(t, schema.Install(ctx, conn, library(3)))
		wantVersion(t, conn, library(3), 3)
		must(t, schema.Uninstall(ctx, conn, library(3)))
	}
}

func TestInstallThroughPooler(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), pgserver.Pooler(t, pgserver.Database(t))
	config, err := pgxpool.ParseConfig(connString)
	must(t, err)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(t, err)
	defer pool.Close()
	must(t, schema.Install(ctx, pool, library(3)))
	wantVersion(t, pool, library(3), 3)
	must(t, schema.Uninstall(ctx, pool, library(3)))
	wantVersion(t, pool, library(3), 0)
}
