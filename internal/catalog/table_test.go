package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/catalog"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestColumns(t *testing.T) {
	t.Parallel()
	conn := city(t)
	columns := describe(t, conn, "city.street").Columns
	for _, c := range columns {
		if c.TypeOID == 0 {
			t.Errorf("column %s has no type OID", c.Name)
		}
	}
	wanted := []catalog.Column{
		{Number: 1, Name: "id", Type: "integer", TypeMod: -1, NotNull: true, Identity: catalog.IdentityAlways, Storage: catalog.StoragePlain},
		{Number: 3, Name: "name", Type: "character varying(40)", TypeMod: 44, Collation: "city.plain", NotNull: true, Storage: catalog.StorageExtended, Toastable: true},
		{Number: 4, Name: "price", Type: "numeric(10,2)", TypeMod: 655366, Default: "9.50", Storage: catalog.StorageMain, Toastable: true},
		{Number: 5, Name: "moods", Type: "city.mood[]", TypeMod: -1, Storage: catalog.StorageExtended, Toastable: true},
		{Number: 6, Name: "size", Type: "city.positive", TypeMod: -1, Default: "city.twice(1)", Storage: catalog.StoragePlain},
		{Number: 7, Name: "pair", Type: `city."Pa ir"`, TypeMod: -1, Storage: catalog.StorageExtended, Toastable: true},
		{Number: 8, Name: "note", Type: "text", TypeMod: -1, Storage: catalog.StorageExternal, Toastable: true},
		{Number: 9, Name: "area", Type: "integer", TypeMod: -1, Generated: catalog.GeneratedStored, Formula: "city.twice(4)", Storage: catalog.StoragePlain},
		{Number: 10, Name: "serial", Type: "integer", TypeMod: -1, NotNull: true, Identity: catalog.IdentityByDefault, Storage: catalog.StoragePlain},
		{Number: 11, Name: "blob", Type: "bytea", TypeMod: -1, Storage: catalog.StorageMain, Toastable: true},
		{Number: 12, Name: "code", Type: `"char"`, TypeMod: -1, Storage: catalog.StoragePlain},
		{Number: 13, Name: "parent", Type: "integer", TypeMod: -1, Storage: catalog.StoragePlain},
	}
	if pgserver.Shared(t).Version() >= 18 {
		wanted = append(wanted, catalog.Column{Number: 14, Name: "double", Type: "integer", TypeMod: -1,
			Generated: catalog.GeneratedVirtual, Formula: "(id * 2)", Storage: catalog.StoragePlain})
	}
	want(t, "columns", columns, wanted)

	street := describe(t, conn, "city.street")
	if c := street.Column("note"); c == nil || c.Number != 8 {
		t.Errorf("column note is %v", c)
	}
	if c := street.Column("gone"); c != nil {
		t.Errorf("dropped column is %v", c)
	}
}

// TestColumnsMakeTheSameTable: types, collations and expressions are SQL that
// means the same under any search_path.
func TestColumnsMakeTheSameTable(t *testing.T) {
	t.Parallel()
	conn := city(t)
	exec(t, conn, "create schema copy; set search_path = copy; create domain text as int; create type mood as (wrong int)")
	exec(t, conn, "set datestyle = german; alter table city.street add opened date default date '2024-02-01'")
	original := describe(t, conn, "city.street")
	var definitions []string
	for _, c := range original.Columns {
		d := pgx.Identifier{c.Name}.Sanitize() + " " + c.Type + " storage " + string(c.Storage)
		if pgserver.Shared(t).Version() < 16 {
			d = pgx.Identifier{c.Name}.Sanitize() + " " + c.Type
		}
		if c.Collation != "" {
			d += " collate " + c.Collation
		}
		if c.NotNull {
			d += " not null"
		}
		if c.Default != "" {
			d += " default " + c.Default
		}
		if c.Generated != "" {
			d += fmt.Sprintf(" generated always as (%s) %s", c.Formula, c.Generated)
		}
		if c.Identity != "" {
			d += fmt.Sprintf(" generated %s as identity", c.Identity)
		}
		definitions = append(definitions, d)
	}
	exec(t, conn, "set search_path = pg_catalog, copy; set datestyle = default")
	exec(t, conn, "create table copy.street ("+strings.Join(definitions, ", ")+")")
	copied := describe(t, conn, "copy.street").Columns
	if len(copied) != len(original.Columns) {
		t.Fatalf("%d columns became %d", len(original.Columns), len(copied))
	}
	for i := range copied {
		copied[i].Number = original.Columns[i].Number // a dropped column's number is not used again
		if pgserver.Shared(t).Version() < 16 {
			copied[i].Storage = original.Columns[i].Storage
		}
		if copied[i] != original.Columns[i] {
			t.Errorf("column %+v became %+v", original.Columns[i], copied[i])
		}
	}
}

// TestSettingsDontMatter: what is read is the same however the caller likes values
// and names to be written.
func TestSettingsDontMatter(t *testing.T) {
	t.Parallel()
	conn := city(t)
	exec(t, conn, `create table city.habit (m city.mood default 'sad', d date default date '2024-02-01',
		i interval default interval '-1 day 2 hours', f float8 default float8 '0.30000000000000004')`)
	before := text(t, describe(t, conn, "city.habit"))
	for _, setting := range []string{"search_path = city", "datestyle = german", "intervalstyle = iso_8601", "extra_float_digits = 0", "quote_all_identifiers = on"} {
		exec(t, conn, "set "+setting)
		if after := text(t, describe(t, conn, "city.habit")); after != before {
			t.Errorf("with %s: %s\nwithout: %s", setting, after, before)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	conn := city(t)
	for name, wanted := range map[string][3]string{
		"city.street":         {"ordinary table", "permanent", "index"},
		`"Sch ema"."ta""ble"`: {"ordinary table", "unlogged", "default"},
		"scratch":             {"ordinary table", "temporary", "default"},
		"city.visit":          {"partitioned table", "permanent", "default"},
		"city.fish":           {"ordinary table", "permanent", "full"},
		"city.bird":           {"ordinary table", "permanent", "nothing"},
		"city.far":            {"foreign table", "permanent", "nothing"},
		"city.shops":          {"view", "permanent", "nothing"},
		"city.shop_count":     {"materialized view", "permanent", "default"},
	} {
		table := describe(t, conn, name)
		got := [3]string{string(table.Kind), string(table.Persistence), string(table.ReplicaIdentity)}
		if wanted[2] == "nothing" && table.Kind != catalog.OrdinaryTable {
			got[2] = wanted[2] // has none; what the catalog says differs between versions
		}
		if got != wanted {
			t.Errorf("%s is %q, want %q", name, got, wanted)
		}
		var owner string
		must(t, conn.QueryRow(t.Context(), "select current_user").Scan(&owner))
		if table.Owner != owner {
			t.Errorf("%s belongs to %s, want %s", name, table.Owner, owner)
		}
	}
	if index := describe(t, conn, "city.street").ReplicaIdentityIndex; index != "street_pk" {
		t.Errorf("replica identity is index %q", index)
	}
}

func relation(kind catalog.Kind, schema, name string) catalog.Relation {
	return catalog.Relation{Schema: schema, Name: name, Kind: kind}
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	conn := city(t)
	table := func(name string) catalog.Relation { return relation(catalog.OrdinaryTable, "city", name) }
	partitioned := func(name string) catalog.Relation { return relation(catalog.PartitionedTable, "city", name) }

	visit := describe(t, conn, "city.visit")
	visitNew := describe(t, conn, "city.visit_new")
	parents := map[string]uint32{"visit_new": visit.OID, "visit_old": visit.OID, "visit_rest": visitNew.OID, "visit_rome": visitNew.OID}
	for _, d := range visit.Descendants {
		if d.Parent != parents[d.Name] {
			t.Errorf("parent of %s has OID %d, want %d", d.Name, d.Parent, parents[d.Name])
		}
	}
	rome, rest := "FOR VALUES IN ('rome')", "DEFAULT"
	newer, older := "FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)", "FOR VALUES FROM (MINVALUE) TO ('2020-01-01')"
	want(t, "partitions of visit", visit.Descendants, []catalog.Relative{
		{Relation: partitioned("visit_new"), Level: 1, PartitionBound: newer},
		{Relation: table("visit_old"), Level: 1, PartitionBound: older},
		{Relation: table("visit_rest"), Level: 2, PartitionBound: rest},
		{Relation: table("visit_rome"), Level: 2, PartitionBound: rome},
	})
	want(t, "visit", []any{visit.PartitionStrategy, visit.PartitionKey, visit.PartitionBound, visit.IsPartition(), visit.Ancestors},
		[]any{catalog.PartitionByRange, "RANGE (day)", "", false, []catalog.Relative(nil)})
	want(t, "visit_new", []any{visitNew.PartitionStrategy, visitNew.PartitionKey, visitNew.PartitionBound, visitNew.IsPartition(), visitNew.Ancestors},
		[]any{catalog.PartitionByList, "LIST (city)", newer, true, []catalog.Relative{{Relation: partitioned("visit"), Level: 1}}})
	visitRome := describe(t, conn, "city.visit_rome")
	want(t, "visit_rome", []any{visitRome.PartitionStrategy, visitRome.PartitionBound, visitRome.Ancestors, visitRome.Descendants},
		[]any{"", rome, []catalog.Relative{{Relation: partitioned("visit_new"), Level: 1, PartitionBound: newer}, {Relation: partitioned("visit"), Level: 2}}, []catalog.Relative(nil)})
	if !visitRome.Column("n").Inherited || visit.Column("n").Inherited {
		t.Error("columns of a partition are inherited, its parent's are not")
	}
	ticket := describe(t, conn, "city.ticket")
	want(t, "ticket", []any{ticket.PartitionStrategy, ticket.PartitionKey, ticket.Descendants}, []any{catalog.PartitionByHash, "HASH (id)",
		[]catalog.Relative{{Relation: table("ticket_0"), Level: 1, PartitionBound: "FOR VALUES WITH (modulus 1, remainder 0)"}}})
}

func TestInheritance(t *testing.T) {
	t.Parallel()
	conn := city(t)
	table := func(name string, level int) catalog.Relative {
		return catalog.Relative{Relation: relation(catalog.OrdinaryTable, "city", name), Level: level}
	}
	want(t, "descendants of animal", describe(t, conn, "city.animal").Descendants,
		[]catalog.Relative{table("bird", 1), table("fish", 1), table("flying_fish", 2)})
	fish := describe(t, conn, "city.flying_fish")
	want(t, "ancestors of flying_fish", fish.Ancestors, []catalog.Relative{table("bird", 1), table("fish", 1), table("animal", 2)})
	if fish.IsPartition() {
		t.Error("flying_fish is no partition")
	}
}

func TestDetachPending(t *testing.T) {
	t.Parallel()
	conn := city(t)
	reader, err := pgx.ConnectConfig(t.Context(), conn.Config())
	must(t, err)
	defer reader.Close(t.Context())
	exec(t, reader, "begin; select from city.ticket")
	exec(t, conn, "set lock_timeout = '100ms'") // waits for the reader, in vain
	if _, err = conn.Exec(t.Context(), "alter table city.ticket detach partition city.ticket_0 concurrently"); err == nil {
		t.Fatal("the partition could be detached")
	}
	if d := describe(t, conn, "city.ticket").Descendants; len(d) != 1 || !d[0].DetachPending {
		t.Errorf("a detachment that has begun is not seen: %+v", d)
	}
}
