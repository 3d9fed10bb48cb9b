package schema_test

import (
	"slices"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
)

// everything has one object of each kind, and what needs no comment.
const everything = `
	create schema museum;
	set search_path = museum;
	create table t (id serial primary key, i int generated always as identity, n int check (n > 0) unique, gone int);
	alter table t drop gone;
	create table part (a int, b int) partition by list (a);
	create index part_b on part (b);
	create table part_1 partition of part for values in (1);
	create table child (extra int) inherits (t);
	create view v as select id from t;
	create materialized view m as select id from t;
	create sequence s;
	create function f(a int) returns int language sql as 'select $1';
	create procedure p() language sql as '';
	create aggregate g (int) (sfunc = int4pl, stype = int);
	create function tf() returns trigger language plpgsql as 'begin return null; end';
	create trigger tr after insert on part for each row execute function tf();
	create policy y on t;
	create type c as (x int);
	create type e as enum ('a');
	create type r as range (subtype = int);
	create domain d as int;
	create function eq(c, c) returns boolean language sql as 'select true';
	create operator === (function = eq, leftarg = c, rightarg = c);`

var commentOnEverything = map[string]string{
	"schema museum":                "schema museum",
	"table t":                      "table t",
	"column id of table t":         "column t.id",
	"column i of table t":          "column t.i",
	"column n of table t":          "column t.n",
	"table part":                   "table part",
	"column a of table part":       "column part.a",
	"column b of table part":       "column part.b",
	"index part_b":                 "index part_b",
	"table child":                  "table child",
	"column extra of table child":  "column child.extra",
	"view v":                       "view v",
	"materialized view m":          "materialized view m",
	"sequence s":                   "sequence s",
	"function f(integer)":          "function f(int)",
	"function p()":                 "procedure p()",
	"function g(integer)":          "aggregate g(int)",
	"function tf()":                "function tf()",
	"trigger tr on table part":     "trigger tr on part",
	"policy y on table t":          "policy y on t",
	"type c":                       "type c",
	"column x of composite type c": "column c.x",
	"type e":                       "type e",
	"type r":                       "type r",
	"type d":                       "domain d",
	"function eq(c,c)":             "function eq(c, c)",
	"operator ===(c,c)":            "operator === (c, c)",
}

func TestUncommented(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, pgserver.Database(t))
	exec(t, conn, everything)
	// Museum is in the search path, so the server leaves it out of the names.
	missing, err := schema.Uncommented(ctx, conn, "museum")
	must(t, err)
	for _, name := range missing {
		target, ok := commentOnEverything[name]
		if !ok {
			t.Errorf("unexpected: %s", name)
			continue
		}
		exec(t, conn, "comment on "+target+" is 'here'")
		left, err := schema.Uncommented(ctx, conn, "museum")
		must(t, err)
		if slices.Contains(left, name) {
			t.Errorf("%s has a comment and is still listed", name)
		}
	}
	for name := range commentOnEverything {
		if !slices.Contains(missing, name) {
			t.Errorf("not listed: %s", name)
		}
	}
	missing, err = schema.Uncommented(ctx, conn, "museum")
	must(t, err)
	if len(missing) > 0 {
		t.Errorf("with all comments there: %q", missing)
	}
}
