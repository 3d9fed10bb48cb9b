package catalog_test

import (
	"slices"
	"testing"

	"github.com/annals-db/annals/internal/catalog"
)

func TestTriggers(t *testing.T) {
	t.Parallel()
	conn := city(t)
	triggers := slices.DeleteFunc(describe(t, conn, "city.street").Triggers, func(t catalog.Trigger) bool { return t.Internal })
	for _, trigger := range triggers {
		if trigger.FunctionOID == 0 {
			t.Errorf("trigger %s has no function", trigger.Name)
		}
	}
	want(t, "triggers", triggers, []catalog.Trigger{
		{Name: "Statement", Timing: catalog.After, Events: []catalog.Event{catalog.Delete}, OldTable: "O", Enabled: catalog.FiresOrigin, Function: `"Sch ema".o`,
			Definition: `CREATE TRIGGER "Statement" AFTER DELETE ON city.street REFERENCING OLD TABLE AS "O" FOR EACH STATEMENT EXECUTE FUNCTION "Sch ema".o()`},
		{Name: "checked", Timing: catalog.After, Events: []catalog.Event{catalog.Insert}, ForEachRow: true, Enabled: catalog.FiresOrigin, Function: "city.touch",
			Constraint: true, Deferrable: true, InitiallyDeferred: true,
			Definition: "CREATE CONSTRAINT TRIGGER checked AFTER INSERT ON city.street DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION city.touch()"},
		{Name: "new_table", Timing: catalog.After, Events: []catalog.Event{catalog.Update}, OldTable: "o", NewTable: "n", Enabled: catalog.FiresReplica, Function: `"Sch ema".o`,
			Definition: `CREATE TRIGGER new_table AFTER UPDATE ON city.street REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION "Sch ema".o()`},
		{Name: "row_before", Timing: catalog.Before, Events: []catalog.Event{catalog.Insert, catalog.Update}, Columns: []string{"note", "name"}, ForEachRow: true, When: true,
			Enabled: catalog.FiresAlways, Function: "city.touch",
			Definition: "CREATE TRIGGER row_before BEFORE INSERT OR UPDATE OF note, name ON city.street FOR EACH ROW WHEN ((new.price > (0)::numeric)) EXECUTE FUNCTION city.touch('x')"},
		{Name: "truncated", Timing: catalog.Before, Events: []catalog.Event{catalog.Truncate}, Enabled: catalog.FiresNever, Function: "city.touch",
			Definition: "CREATE TRIGGER truncated BEFORE TRUNCATE ON city.street FOR EACH STATEMENT EXECUTE FUNCTION city.touch()"},
	})
	if before := triggers[3]; !before.Fires(catalog.Update) || before.Fires(catalog.Delete) {
		t.Errorf("trigger %s fires for the wrong events", before.Name)
	}

	want(t, "triggers of a view", describe(t, conn, "city.shops").Triggers, []catalog.Trigger{
		{Name: "write", Timing: catalog.InsteadOf, Events: []catalog.Event{catalog.Insert}, ForEachRow: true, Enabled: catalog.FiresOrigin, Function: "city.touch",
			Definition: "CREATE TRIGGER write INSTEAD OF INSERT ON city.shops FOR EACH ROW EXECUTE FUNCTION city.touch()"}})

	find := func(table, name string) catalog.Trigger {
		all := describe(t, conn, table).Triggers
		i := slices.IndexFunc(all, func(t catalog.Trigger) bool { return t.Name == name || t.Function == name })
		if i < 0 {
			t.Fatalf("%s has no trigger %s among %v", table, name, all)
		}
		return all[i]
	}
	if find("city.visit", "each_visit").Cloned || !find("city.visit_rome", "each_visit").Cloned {
		t.Error("a partition's trigger comes from its parent, and the parent's is its own")
	}
	if cascade := find("city.street", `pg_catalog."RI_FKey_cascade_del"`); !cascade.Internal || !cascade.Constraint {
		t.Errorf("trigger of a foreign key is %+v", cascade)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	conn := city(t)
	street := describe(t, conn, "city.street")
	want(t, "policies", street.Policies, []catalog.Policy{
		{Name: "all", Command: "all", Permissive: true, Roles: []string{"public"}},
		{Name: "own", Command: "update", Roles: []string{street.Owner, "pg_monitor"}, Using: "(serial > city.twice(1))", WithCheck: "(serial > 2)"},
	})
	other := describe(t, conn, "city.animal")
	if !street.RowSecurity || !street.ForcedRowSecurity || other.RowSecurity || other.ForcedRowSecurity || other.Policies != nil {
		t.Error("street alone has row-level security, enabled and forced")
	}
	exec(t, conn, `
		create policy s on city.animal for select using (true);
		create policy i on city.animal for insert with check (true);
		create policy d on city.animal for delete using (true);
		alter table city.animal force row level security`)
	other = describe(t, conn, "city.animal")
	if other.RowSecurity || !other.ForcedRowSecurity {
		t.Error("animal's row-level security is forced, though not enabled")
	}
	var commands []string
	for _, p := range other.Policies {
		commands = append(commands, p.Name+" "+p.Command)
	}
	if want := []string{"d delete", "i insert", "s select"}; !slices.Equal(commands, want) {
		t.Errorf("policies are %q, want %q", commands, want)
	}
}
