package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/catalog"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

func TestNames(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	exec(t, conn, `create table "t" (); create table "o" (); create table "select" (); create table "T" (); create table city.t ()`)
	for name, wanted := range map[string]string{
		"t": "public.t", "T": "public.t", `"T"`: "public.T", ` city . T `: "city.t", `"select"`: "public.select",
		`"Sch ema"."ta""ble"`: `Sch ema.ta"ble`, pgx.Identifier{"Sch ema", `ta"ble`}.Sanitize(): `Sch ema.ta"ble`,
	} {
		table := describe(t, conn, name)
		if got := table.Schema + "." + table.Name; got != wanted {
			t.Errorf("%s is %s, want %s", name, got, wanted)
		}
		again, err := catalog.DescribeOID(ctx, conn, table.OID)
		if must(t, err); again.OID != table.OID || again.Name != table.Name {
			t.Errorf("OID %d is %s, want %s", table.OID, again.Name, table.Name)
		}
	}
	exec(t, conn, "set search_path = city")
	if table := describe(t, conn, "t"); table.Schema != "city" {
		t.Errorf("with city in search_path t is in schema %s", table.Schema)
	}
}

func TestNotTable(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	tx, err := conn.Begin(ctx)
	must(t, err)
	for name, kind := range map[string]string{
		"city.street_pk": "index", "city.visit_pkey": "index", "city.counter": "sequence", `city."Pa ir"`: "composite type",
		"street": "", "nowhere.street": "", "": "", `"`: "", "a.b.c.d": "", "two words": "", "Sch ema.t": "",
	} {
		_, err := catalog.Describe(ctx, tx, name)
		var notTable *catalog.NotTableError
		if !errors.As(err, &notTable) || notTable.Name != name || notTable.Kind != kind {
			t.Errorf("%q: %v, want a NotTableError of kind %q", name, err, kind)
		}
		if errors.Is(err, catalog.ErrNoTable) != (kind == "") {
			t.Errorf("%q: %v matches ErrNoTable: %t", name, err, kind != "")
		}
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not named by %v", name, err)
		}
	}
	if _, err := catalog.DescribeOID(ctx, tx, 1); !errors.Is(err, catalog.ErrNoTable) {
		t.Errorf("OID 1: %v", err)
	}
	if table := describe(t, tx, "city.street"); table.Name != "street" {
		t.Error("the transaction can't be used any more")
	}
}

func TestDescribeSchema(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	exec(t, conn, "create schema empty")
	tables, err := catalog.DescribeSchema(ctx, conn, "city")
	must(t, err)
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
		if one := describe(t, conn, pgx.Identifier{"city", table.Name}.Sanitize()); !reflect.DeepEqual(one, table) {
			t.Errorf("%s is described as\n%s\nalone, and in its schema as\n%s", table.Name, text(t, one), text(t, table))
		}
	}
	wanted := []string{"animal", "bird", "far", "fish", "flying_fish", "street", "ticket", "ticket_0", "visit", "visit_new", "visit_old", "visit_rest", "visit_rome"}
	if pgserver.Shared(t).Version() >= 18 {
		wanted = append(wanted, "rent", "tenant")
		slices.Sort(wanted)
	}
	if !slices.Equal(names, wanted) {
		t.Errorf("tables are %q, want %q", names, wanted)
	}
	if tables, err = catalog.DescribeSchema(ctx, conn, "empty"); err != nil || len(tables) != 0 {
		t.Errorf("empty schema: %v, %v", tables, err)
	}
	if _, err = catalog.DescribeSchema(ctx, conn, "No such"); !errors.Is(err, catalog.ErrNoSchema) || !strings.Contains(err.Error(), `"No such"`) {
		t.Errorf("missing schema: %v", err)
	}
}

// TestEveryFieldIsRead: each field has a value in some description.
func TestEveryFieldIsRead(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	seen := map[string]bool{}
	for _, schema := range []string{"city", "Sch ema"} {
		tables, err := catalog.DescribeSchema(ctx, conn, schema)
		must(t, err)
		for _, table := range tables {
			note(reflect.ValueOf(table).Elem(), seen)
		}
	}
	seen["Relative.DetachPending"] = true // has a test of its own
	if pgserver.Shared(t).Version() < 18 {
		seen["UniqueKey.WithoutOverlaps"], seen["ForeignKey.Period"] = true, true
	}
	for _, v := range []any{catalog.Table{}, catalog.Relation{}, catalog.Column{}, catalog.UniqueKey{}, catalog.Exclusion{}, catalog.Check{},
		catalog.ForeignKey{}, catalog.Trigger{}, catalog.Policy{}, catalog.Relative{}} {
		for field := range reflect.TypeOf(v).Fields() {
			if name := reflect.TypeOf(v).Name() + "." + field.Name; !seen[name] {
				t.Errorf("%s is never set", name)
			}
		}
	}
}

func note(v reflect.Value, seen map[string]bool) {
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			if !value.IsZero() {
				seen[v.Type().Name()+"."+field.Name] = true
			}
			note(value, seen)
		}
	case reflect.Slice:
		for i := range v.Len() {
			note(v.Index(i), seen)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			note(v.Elem(), seen)
		}
	}
}

func TestEveryHandleAndMode(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	wanted := text(t, describe(t, conn, "city.street"))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config := conn.Config()
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		must(t, err)
		defer conn.Close(context.Background())
		check := func(db pgtx.DB) {
			for range 2 {
				if got := text(t, describe(t, db, "city.street")); got != wanted {
					t.Errorf("%v, %T: %s", mode, db, got)
				}
				if _, err := catalog.DescribeSchema(ctx, db, "city"); err != nil {
					t.Errorf("%v, %T: %v", mode, db, err)
				}
			}
		}
		check(conn)
		tx, err := conn.Begin(ctx)
		must(t, err)
		check(tx)
		must(t, tx.Commit(ctx))
	}
}

func TestThroughPooler(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	config, err := pgx.ParseConfig(pgserver.Pooler(t, conn.Config().ConnString()))
	must(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	pooled, err := pgx.ConnectConfig(ctx, config)
	must(t, err)
	defer pooled.Close(ctx)
	if got, wanted := text(t, describe(t, pooled, "city.street")), text(t, describe(t, conn, "city.street")); got != wanted {
		t.Error(got)
	}
}

// TestOwnChanges: a transaction's description has its own uncommitted changes.
func TestOwnChanges(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	tx, err := conn.Begin(ctx)
	must(t, err)
	exec(t, tx, "alter table city.animal rename to beast; alter table city.beast add legs int")
	if describe(t, tx, "city.beast").Column("legs") == nil {
		t.Error("the new column is missing")
	}
	must(t, tx.Rollback(ctx))
	if describe(t, conn, "city.animal").Column("legs") != nil {
		t.Error("the new column is still there")
	}
}

func TestSessionUnchanged(t *testing.T) {
	t.Parallel()
	ctx, conn := t.Context(), city(t)
	exec(t, conn, "set search_path = city; set datestyle = german")
	look := func(db pgtx.DB) func() {
		return func() {
			_, _ = catalog.Describe(ctx, db, "street")
			_, _ = catalog.Describe(ctx, db, "street_pk")
			_, _ = catalog.Describe(ctx, db, "a.b.c.d")
			_, _ = catalog.DescribeSchema(ctx, db, "city")
			_, _ = catalog.DescribeSchema(ctx, db, "nowhere")
		}
	}
	pgtxtest.AssertSessionUnchanged(t, conn, look(conn))
	tx, err := conn.Begin(ctx)
	must(t, err)
	pgtxtest.AssertSessionUnchanged(t, conn, look(tx))
}

// TestAsOrdinaryRole: no right on a table is needed to describe it.
func TestAsOrdinaryRole(t *testing.T) {
	t.Parallel()
	conn := city(t)
	wanted := text(t, describe(t, conn, "city.street"))
	role := pgserver.Role(t, pgserver.Shared(t), "reader")
	exec(t, conn, fmt.Sprintf("grant usage on schema city to %s; set role %s", role, role))
	if got := text(t, describe(t, conn, "city.street")); got != wanted {
		t.Error(got)
	}
	exec(t, conn, "reset role")
}

// TestMusicStore compares a real schema with what the standard's views say.
func TestMusicStore(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(pgserver.TestData(t, "chinook.sql"))
	must(t, err)
	_, script2, ok := strings.Cut(string(script), "\\c chinook;")
	if !ok {
		t.Fatal("the script doesn't connect to its database")
	}
	ctx, conn := t.Context(), connect(t)
	exec(t, conn, script2)
	tables, err := catalog.DescribeSchema(ctx, conn, "public")
	must(t, err)
	var got []string
	outgoing, incoming := 0, 0
	for _, table := range tables {
		for _, c := range table.Columns {
			key := slices.Index(table.PrimaryKey.Columns, c.Name) + 1
			got = append(got, fmt.Sprintf("%s.%s %d %s null:%t key:%d", table.Name, c.Name, c.Number, c.Type, !c.NotNull, key))
		}
		outgoing, incoming = outgoing+len(table.ForeignKeys), incoming+len(table.ReferencedBy)
		for _, k := range table.ForeignKeys {
			got = append(got, fmt.Sprintf("%s%v -> %s%v", table.Name, k.Columns, k.References.Name, k.ReferencedColumns))
		}
	}
	rows, err := conn.Query(ctx, `
		select format('%s.%s %s %s null:%s key:%s', c.table_name, c.column_name, c.ordinal_position,
		       case data_type when 'character varying' then format('character varying(%s)', character_maximum_length)
		                      when 'numeric' then format('numeric(%s,%s)', numeric_precision, numeric_scale) else data_type end,
		       case is_nullable when 'YES' then 'true' else 'false' end,
		       coalesce((select k.ordinal_position from information_schema.key_column_usage k
		                   join information_schema.table_constraints t using (constraint_name)
		                  where t.constraint_type = 'PRIMARY KEY' and k.table_name = c.table_name and k.column_name = c.column_name), 0))
		  from information_schema.columns c where table_schema = 'public'
		 union all
		select format('%s[%s] -> %s[%s]', f.table_name, f.column_name, p.table_name, p.column_name)
		  from information_schema.referential_constraints r
		  join information_schema.key_column_usage f on f.constraint_name = r.constraint_name
		  join information_schema.key_column_usage p on p.constraint_name = r.unique_constraint_name and p.ordinal_position = f.position_in_unique_constraint`)
	must(t, err)
	wanted, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("described are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	if len(tables) != 11 || outgoing != 11 || incoming != 11 {
		t.Errorf("%d tables, %d foreign keys, %d references, want 11 of each", len(tables), outgoing, incoming)
	}
}
