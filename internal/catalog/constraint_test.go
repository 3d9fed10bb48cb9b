package catalog_test

import (
	"testing"

	"github.com/annals-db/annals/internal/catalog"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestUniqueKeys(t *testing.T) {
	t.Parallel()
	conn := city(t)
	street := describe(t, conn, "city.street")
	if street.PrimaryKey.IndexOID == 0 || street.UniqueKeys[0].IndexOID == 0 {
		t.Error("a key has no index")
	}
	want(t, "primary key", street.PrimaryKey, &catalog.UniqueKey{Name: "street_pk", Constraint: true, Columns: []string{"id"}, Valid: true,
		Definition: "CREATE UNIQUE INDEX street_pk ON city.street USING btree (id)"})
	want(t, "unique keys", street.UniqueKeys, []catalog.UniqueKey{
		{Name: "street_expr", Columns: []string{"", "serial"}, Expressions: true, Valid: true,
			Definition: "CREATE UNIQUE INDEX street_expr ON city.street USING btree (lower(note), serial)"},
		{Name: "street_name", Constraint: true, Columns: []string{"name", "price"}, NullsNotDistinct: true, Valid: true, Deferrable: true, InitiallyDeferred: true,
			Definition: "CREATE UNIQUE INDEX street_name ON city.street USING btree (name, price) INCLUDE (size) NULLS NOT DISTINCT"},
		{Name: "street_part", Columns: []string{"note"}, Predicate: "(price > (0)::numeric)", Valid: true,
			Definition: "CREATE UNIQUE INDEX street_part ON city.street USING btree (note) WHERE (price > (0)::numeric)"},
	})
	for _, k := range street.UniqueKeys {
		if k.Identifies() {
			t.Errorf("key %s does not identify rows", k.Name)
		}
	}
	if !street.PrimaryKey.Identifies() {
		t.Error("the primary key identifies rows")
	}
	awkward := describe(t, conn, `"Sch ema"."ta""ble"`)
	want(t, "keys of the other table", awkward.UniqueKeys, []catalog.UniqueKey{{Name: "Key", Constraint: true, Columns: []string{"select", "o"}, Valid: true,
		Definition: `CREATE UNIQUE INDEX "Key" ON "Sch ema"."ta""ble" USING btree ("select", o)`}})
	if awkward.PrimaryKey != nil || !awkward.UniqueKeys[0].Identifies() {
		t.Error("the other table has no primary key, and a unique key that identifies rows")
	}
}

func TestInvalidKey(t *testing.T) {
	t.Parallel()
	conn := city(t)
	exec(t, conn, "insert into city.animal values (1, 'cat'), (2, 'cat')")
	if _, err := conn.Exec(t.Context(), "create unique index concurrently twins on city.animal (name)"); err == nil {
		t.Fatal("two cats are one")
	}
	for _, k := range describe(t, conn, "city.animal").UniqueKeys {
		if k.Name == "twins" && (k.Valid || k.Identifies()) {
			t.Errorf("key %+v is not valid", k)
		}
	}
}

func TestForeignKeys(t *testing.T) {
	t.Parallel()
	conn := city(t)
	street := relation(catalog.OrdinaryTable, "city", "street")
	awkward := relation(catalog.OrdinaryTable, "Sch ema", `ta"ble`)
	toStreet := catalog.ForeignKey{Name: "F K", Table: awkward, Columns: []string{"o"}, References: street, ReferencedColumns: []string{"id"},
		OnDelete: catalog.Restrict, OnUpdate: catalog.NoAction, Match: catalog.MatchSimple, Deferrable: true, InitiallyDeferred: true, Enforced: true}
	pair := catalog.ForeignKey{Name: "pair", Table: awkward, Columns: []string{"o", "select"}, References: awkward, ReferencedColumns: []string{"o", "select"},
		OnDelete: catalog.SetNull, OnDeleteColumns: []string{"select"}, OnUpdate: catalog.NoAction, Match: catalog.MatchFull, Validated: true, Enforced: true}
	parent := catalog.ForeignKey{Name: "street_parent", Table: street, Columns: []string{"parent"}, References: street, ReferencedColumns: []string{"id"},
		OnDelete: catalog.Cascade, OnUpdate: catalog.SetDefault, Match: catalog.MatchSimple, Validated: true, Enforced: true}
	keys := []catalog.ForeignKey{toStreet, pair}
	references := []catalog.ForeignKey{toStreet, parent}
	if pgserver.Shared(t).Version() >= 18 {
		soft := catalog.ForeignKey{Name: "soft", Table: awkward, Columns: []string{"select"}, References: street, ReferencedColumns: []string{"id"},
			OnDelete: catalog.NoAction, OnUpdate: catalog.NoAction, Match: catalog.MatchSimple}
		keys = []catalog.ForeignKey{toStreet, pair, soft}
		references = []catalog.ForeignKey{toStreet, soft, parent}
	}
	got := describe(t, conn, `"Sch ema"."ta""ble"`)
	for _, k := range got.ForeignKeys {
		if k.SelfReferencing() != (k.Name == "pair") {
			t.Errorf("key %s is self-referencing: %t", k.Name, k.SelfReferencing())
		}
	}
	want(t, "foreign keys", got.ForeignKeys, keys)
	want(t, "references to the other table", got.ReferencedBy, []catalog.ForeignKey{pair})
	want(t, "foreign keys of street", describe(t, conn, "city.street").ForeignKeys, []catalog.ForeignKey{parent})
	want(t, "references to street", describe(t, conn, "city.street").ReferencedBy, references)
}

func TestForeignKeysOfPartitions(t *testing.T) {
	t.Parallel()
	conn := city(t)
	own := 0
	for _, k := range describe(t, conn, "city.ticket").ForeignKeys {
		if !k.Derived {
			own++
			if k.Name != "ticket_visit" || k.References.Name != "visit" {
				t.Errorf("key %+v is not ticket's own", k)
			}
		}
	}
	if own != 1 {
		t.Errorf("ticket has %d foreign keys of its own, want 1", own)
	}
	for _, name := range []string{"city.ticket_0", "city.visit_rome"} {
		table := describe(t, conn, name)
		keys := append(table.ForeignKeys, table.ReferencedBy...)
		if len(keys) == 0 {
			t.Errorf("%s has no part of a key", name)
		}
		for _, k := range keys {
			if !k.Derived {
				t.Errorf("%s: key %s is derived from the partitioned table's", name, k.Name)
			}
		}
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	conn := city(t)
	checks := []catalog.Check{
		{Name: "street_late", Columns: []string{"id"}, Expression: "(id > 0)", Enforced: true},
		{Name: "street_price", Columns: []string{"price", "size"}, Expression: "(price > (city.twice((size)::integer))::numeric)", Validated: true, Enforced: true, NoInherit: true},
	}
	if pgserver.Shared(t).Version() >= 18 {
		checks = append(checks, catalog.Check{Name: "street_soft", Columns: []string{"id"}, Expression: "(id < 10)"})
	}
	want(t, "checks", describe(t, conn, "city.street").Checks, checks)
	want(t, "inherited checks", describe(t, conn, "city.flying_fish").Checks,
		[]catalog.Check{{Name: "animal_name_check", Columns: []string{"name"}, Expression: "(name <> ''::text)", Validated: true, Enforced: true, Inherited: true}})
}

func TestExclusions(t *testing.T) {
	t.Parallel()
	want(t, "exclusions", describe(t, city(t), `"Sch ema"."ta""ble"`).Exclusions, []catalog.Exclusion{{
		Name: "apart", Columns: []string{"", ""}, Deferrable: true, InitiallyDeferred: true,
		Definition: `EXCLUDE USING gist (int4range(o, "select") WITH &&, box(point((o)::double precision, (0)::double precision), ` +
			`point(("select")::double precision, (0)::double precision)) WITH &&) DEFERRABLE INITIALLY DEFERRED`}})
}

func TestConstraintsOverTime(t *testing.T) {
	t.Parallel()
	if pgserver.Shared(t).Version() < 18 {
		t.Skip("needs PostgreSQL 18, which has WITHOUT OVERLAPS and PERIOD")
	}
	conn := city(t)
	rent := describe(t, conn, "city.rent")
	if !rent.PrimaryKey.WithoutOverlaps || rent.PrimaryKey.Identifies() || len(rent.Exclusions) != 0 {
		t.Errorf("primary key is %+v, and there are exclusions %v", rent.PrimaryKey, rent.Exclusions)
	}
	if keys := describe(t, conn, "city.tenant").ForeignKeys; len(keys) != 1 || !keys[0].Period {
		t.Errorf("foreign keys are %+v", keys)
	}
}
