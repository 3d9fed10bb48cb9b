package volvra_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
	"github.com/annals-db/annals/volvra"
)

func TestEverythingIsCommented(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	for _, name := range []string{"annals", "volvra"} {
		missing, err := schema.Uncommented(t.Context(), pool, name)
		ok(t, err)
		for _, object := range missing {
			t.Errorf("%s: no comment on %s", name, object)
		}
	}
}

func TestEnableAndDisable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, note text)", "insert into shop.orders values (1, 'a')",
		"create table shop.keyless (a int)", "create unlogged table shop.brief (id int primary key)", "create view shop.seen as select 1 as id",
		`create table shop."select" (v int, xid text, primary key (xid, v))`)
	c, err := v.Enable(ctx, "shop.orders", volvra.Options{})
	if err != nil || c.Outcome != "enabled" || c.Table != "shop.orders" {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = v.Enable(ctx, "shop.orders", volvra.Options{Truncate: volvra.RefuseTruncate, WarnRows: 5}); err != nil || c.Outcome != "changed" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := pool.Exec(ctx, "truncate shop.orders"); err == nil {
		t.Error("TRUNCATE was not refused")
	}
	for table, kind := range map[string]error{"shop.keyless": volvra.ErrUnsupported, "shop.brief": volvra.ErrUnsupported, "shop.seen": volvra.ErrUnsupported,
		"shop.nothing": volvra.ErrNotCovered, "shop.no such; thing": volvra.ErrNotCovered, "pg_catalog.pg_class": volvra.ErrUnsupported} {
		if _, err := v.Enable(ctx, table, volvra.Options{}); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", table, err, kind)
		}
	}
	if _, err := v.Enable(ctx, "shop.orders", volvra.Options{Exclude: []string{"nothing"}}); !errors.Is(err, volvra.ErrInvalid) {
		t.Errorf("an unknown column: %v", err)
	}
	all, err := v.EnableSchema(ctx, "shop", volvra.Options{})
	ok(t, err)
	outcomes := []string{}
	for _, c := range all {
		outcomes = append(outcomes, c.Table+" "+c.Outcome)
	}
	if want := []string{"shop.orders changed", "shop.keyless refused", "shop.brief refused", `shop."select" enabled`}; !slices.Equal(outcomes, want) {
		t.Errorf("%q", outcomes)
	}
	if _, err := v.EnableSchema(ctx, "nothing", volvra.Options{}); !errors.Is(err, volvra.ErrInvalid) {
		t.Errorf("an unknown schema: %v", err)
	}
	uncovered, err := v.Uncovered(ctx)
	ok(t, err)
	if len(uncovered) != 2 || uncovered[0].Table != "shop.brief" || !strings.Contains(uncovered[0].Reason, "unlogged") || uncovered[1].Table != "shop.keyless" {
		t.Errorf("%+v", uncovered)
	}
	status, err := v.Status(ctx)
	ok(t, err)
	if len(status) != 2 || status[1].Table != "shop.orders" || status[1].Form != "statement" || !slices.Equal(status[0].Key, []string{"xid", "v"}) || len(status[1].Drift) != 0 || !status[1].LastEntry.IsZero() {
		t.Errorf("%+v", status)
	}
	run(t, pool, "update shop.orders set note = 'b'")
	if status, err = v.Status(ctx); err != nil || status[1].LastEntry.IsZero() || status[1].Bytes == 0 {
		t.Errorf("%+v, %v", status, err)
	}

	if c, err := v.Disable(ctx, "shop.orders", volvra.DisableOptions{}); err != nil || c.Outcome != "disabled" {
		t.Errorf("%+v, %v", c, err)
	}
	if left := column[string](t, pool, "select tgname::text from pg_trigger where tgrelid = 'shop.orders'::regclass"); len(left) != 0 {
		t.Errorf("left on the table: %q", left)
	}
	if _, err := v.Disable(ctx, "shop.orders", volvra.DisableOptions{}); !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("disabled twice: %v", err)
	}
	// All of that stands among the attempts, refused ones included.
	if got := text(t, pool, "select action, outcome, count(*) as n from volvra.attempts() group by 1, 2 order by 1, 2"); got != "(disable,done,1)\n(disable,refused,1)\n(enable,done,4)\n(enable,refused,7)" {
		t.Errorf("attempts:\n%s", got)
	}
}

// What happens in a transaction of the caller's shares its fate, and a refusal leaves it usable.
func TestEnableInATransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key)", "create table shop.keyless (a int)")
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	v := volvra.New(tx)
	if _, err := v.Enable(ctx, "shop.keyless", volvra.Options{}); !errors.Is(err, volvra.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	cover(t, v, "shop.orders")
	ok(t, tx.Rollback(ctx))
	if n := column[int64](t, pool, "select (select count(*) from annals.tracked) + (select count(*) from volvra.attempt) + (select count(*) from pg_trigger where tgrelid = 'shop.orders'::regclass)"); n[0] != 0 {
		t.Errorf("%d things are left of what was rolled back", n[0])
	}
}

// A table that somebody writes is not waited for without end, and others are not kept waiting behind.
func TestEnableWhileBusy(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key)")
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	run(t, tx, "insert into shop.orders values (1)")
	_, err := v.Enable(ctx, "shop.orders", volvra.Options{})
	if !errors.Is(err, volvra.ErrBusy) {
		t.Errorf("%v", err)
	}
	ok(t, tx.Commit(ctx))
	cover(t, v, "shop.orders")
}

// Children by inheritance are told by name and partitions made later are captured.
func TestFaultChildrenAndPartitions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.parent (id int primary key, n int)", "create table shop.child (more text, primary key (id)) inherits (shop.parent)",
		"create table shop.parts (id int primary key, n int) partition by range (id)", "create table shop.part1 partition of shop.parts for values from (0) to (10)")
	c, err := v.Enable(ctx, "shop.parent", volvra.Options{})
	ok(t, err)
	if !strings.Contains(c.Hint, "shop.child") {
		t.Errorf("the child is not named: %+v", c)
	}
	findings, err := v.Health(ctx)
	ok(t, err)
	if !slices.ContainsFunc(findings, func(f volvra.Finding) bool { return strings.Contains(f.Detail, "shop.child") }) {
		t.Errorf("health does not name the child: %+v", findings)
	}
	cover(t, v, "shop.child", "shop.parts")
	run(t, pool, "insert into shop.child values (1, 1, 'one')", "update shop.parent set n = 2", "create table shop.part2 partition of shop.parts for values from (10) to (20)",
		"create table shop.part3 (id int primary key, n int)", "insert into shop.part3 values (25, 1)", "alter table shop.parts attach partition shop.part3 for values from (20) to (30)",
		"insert into shop.parts values (1, 1), (11, 1), (21, 1)", "update shop.part2 set n = 2", "update shop.part3 set n = 3")
	for table, want := range map[string]string{"shop.child": "1 update,1 insert", "shop.parts": "25 update,21 update,11 update,21 insert,11 insert,1 insert,25 insert"} {
		got := strings.Join(column[string](t, pool, `select c1 || ' ' || annals.operation(op) from annals.h`+column[string](t, pool, "select volvra.covering($1::text::regclass)::text", table)[0]+` order by v desc`), ",")
		if sorted(got) != sorted(want) {
			t.Errorf("%s: %s, want %s", table, got, want)
		}
	}
	healthy(t, v)
}

func sorted(list string) string {
	parts := strings.Split(list, ",")
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// healthy checks that health has nothing to say.
func healthy(t testing.TB, v *volvra.Volvra) {
	t.Helper()
	findings, err := v.Health(t.Context())
	ok(t, err)
	for _, f := range findings {
		t.Errorf("unexpected finding: %+v", f)
	}
}

// Names that generated SQL uses for itself.
func TestFaultColumnsNamedLikeAliases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := installed(t)
	run(t, pool, `create schema "Sch ema"`)
	columns := []string{"t", "o", "n", "e", "b", "u", "v", "xid", "op", "old", "select", "start", "missing", "annals_capture", `ta""b'le`, "c1", "%s", "image"}
	for i, name := range columns {
		quoted := `"` + name + `"`
		table := `"Sch ema"."` + name + `"`
		run(t, pool, "create table "+table+" (key int, "+quoted+" text, primary key (key, "+quoted+"), value text)")
		cover(t, v, table)
		run(t, pool, "insert into "+table+" values (1, 'a', 'one')", "update "+table+" set value = 'two'")
		now := must[volvra.Moment](t)(v.Coordinate(ctx))
		run(t, pool, "update "+table+" set "+quoted+" = 'b'", "update "+table+" set value = 'three'", "delete from "+table)
		changes, err := v.History(ctx, table, volvra.Key{"1", "b"}, 0)
		if err != nil || len(changes) != 5 {
			t.Errorf("%s: %d changes, %v", name, len(changes), err)
		}
		rows, err := volvra.AsOf[map[string]any](ctx, v, table, now)
		if err != nil || len(rows) != 1 || rows[0]["value"] != "two" {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
		list, err := v.Transactions(ctx, volvra.Selection{Tables: []string{table}, Keys: []volvra.Key{{"1", "b"}}, Where: []volvra.Condition{{strings.ReplaceAll(name, `""`, `"`), volvra.Equal, "b"}, {"value", volvra.Equal, "three"}}}, volvra.Page{})
		if err != nil || len(list) != 2 {
			t.Errorf("%s: %d transactions, %v", name, len(list), err)
		}
		if i == 0 {
			healthy(t, v)
		}
	}
	healthy(t, v)
}

// A table dropped and made again under the same name is another table: it has neither the coverage nor the history of the old one.
func TestFaultRecreatedTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'eva', 1, 'old')", "drop table shop.orders", "create table shop.orders (id int primary key, customer text)")
	_, err := v.History(ctx, "shop.orders", volvra.Key{"1"}, 0)
	if !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("history: %v", err)
	}
	if _, err := v.Transactions(ctx, volvra.Selection{Tables: []string{"shop.orders"}}, volvra.Page{}); !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("transactions: %v", err)
	}
	if _, err := volvra.AsOf[map[string]any](ctx, v, "shop.orders", volvra.Moment("2001-01-01")); !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("as of: %v", err)
	}
	cover(t, v, "shop.orders")
	run(t, pool, "insert into shop.orders values (1, 'eva')")
	changes, err := v.History(ctx, "shop.orders", volvra.Key{"1"}, 0)
	if err != nil || len(changes) != 1 {
		t.Errorf("%+v, %v", changes, err)
	}
	if list := must[[]volvra.Transaction](t)(v.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{})); len(list) != 2 {
		t.Errorf("the owner of the histories sees both: %+v", list)
	}
	if n := column[int64](t, pool, `select count(*) from volvra.selected_histories('{"everything": true}')`); n[0] != 1 {
		t.Errorf("%d histories are selected for changing", n[0])
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := pgserver.Database(t)
	super := connectAs(t, conn, "")
	owner, other := pgserver.Role(t, pgserver.Shared(t), "owner"), pgserver.Role(t, pgserver.Shared(t), "other")
	run(t, super, "do $$ begin execute format('grant create on database %I to "+owner+"', current_database()); end $$", "create schema shop",
		"create table shop.good (id int primary key)", "create table shop.foreign_owner (id int primary key)", "create table shop.keyless (a int)",
		"create table shop.secured (id int primary key)", "alter table shop.secured enable row level security", "alter table shop.secured force row level security",
		"grant usage, create on schema shop to "+owner, "alter table shop.good owner to "+owner, "alter table shop.secured owner to "+owner, "alter table shop.keyless owner to "+owner,
		"alter table shop.foreign_owner owner to "+other)
	as := connectAs(t, conn, owner)
	ok(t, volvra.Install(ctx, as))
	v := volvra.New(as)
	checks, err := v.Preflight(ctx, "")
	ok(t, err)
	got := []string{}
	for _, c := range checks {
		got = append(got, c.Table+" "+c.Severity)
	}
	if want := []string{" warning", "shop.foreign_owner error", "shop.keyless error", "shop.secured warning"}; !slices.Equal(got, want) {
		t.Errorf("%+v", checks)
	}
	if _, err := v.Enable(ctx, "shop.foreign_owner", volvra.Options{}); !errors.Is(err, volvra.ErrRights) {
		t.Errorf("a table of somebody else: %v", err)
	}
	cover(t, v, "shop.good")
	// Without event triggers that is all that health has to say.
	findings, err := v.Health(ctx)
	if err != nil || len(findings) != 1 || findings[0].Finding != "no event trigger" {
		t.Errorf("%+v, %v", findings, err)
	}
}
