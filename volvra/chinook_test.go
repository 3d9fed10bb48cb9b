package volvra_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// A music store keeps all its tables covered. On one day its staff work as usual, and make three mistakes: a WHERE is forgotten, the
// wrong customer is deleted with all that belongs to him, and an import overwrites and adds tracks. Each is undone by itself, after the
// others went on working, and in the end the store is exactly what it is in a copy where only the good work was done.
func TestChinookMistakesAreUndone(t *testing.T) {
	t.Parallel()
	store, untouched := newChinook(t), newChinook(t)
	v := volvra.New(store.conn)
	if err := volvra.Install(t.Context(), store.conn); err != nil {
		t.Fatal(err)
	}
	if _, err := v.EnableSchema(t.Context(), "public", volvra.Options{}); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	work := func() { // the same in both stores, by one of the staff
		for range 60 {
			actor, statement := goodWork(random)
			store.as(t, actor, "shop", statement)
			untouched.as(t, actor, "shop", statement)
		}
	}

	work()
	store.as(t, "tom", "price tool", `update track set unit_price = 0`)
	work()
	store.as(t, "eve", "customer desk", `delete from customer where customer_id = 17`)
	work()
	store.as(t, "importer", "import", `
		insert into artist select 10000 + i, 'Imported ' || i from generate_series(1, 50) i;
		insert into album select 10000 + i, 'Imported album ' || i, 10000 + i from generate_series(1, 50) i;
		insert into track select 10000 + i, 'Imported track ' || i, 10000 + (i - 1) % 50 + 1, 1, 1, null, 1000 * i, i, 0.99 from generate_series(1, 500) i;
		insert into playlist_track select 1, 10000 + i from generate_series(1, 500) i;
		update track set composer = 'unknown', name = upper(name) where track_id between 100 and 900`)
	work()

	for _, mistake := range []struct {
		name      string
		selection volvra.Selection
	}{
		{"the import, by application", volvra.Selection{Application: "import"}},
		{"the wrong cascade, by its one transaction", volvra.Selection{Transactions: store.transactionOf(t, v, "eve")}},
		{"the missing WHERE, by actor and table", volvra.Selection{Actor: "tom", Tables: []string{"public.track"}}},
	} {
		before := store.contents(t)
		plan, err := v.Preview(t.Context(), mistake.selection)
		if err != nil {
			t.Fatalf("%s: %v", mistake.name, err)
		}
		if _, err := v.Undo(t.Context(), plan.Token, volvra.UndoOptions{}); err != nil {
			t.Fatalf("%s: %v", mistake.name, err)
		}
		if same(before, store.contents(t)) {
			t.Errorf("%s: nothing was undone", mistake.name)
		}
	}

	got, want := store.contents(t), untouched.contents(t)
	for table := range want {
		if got[table] != want[table] {
			t.Errorf("%s is not what good work alone makes of it", table)
		}
	}
	if len(want) != 11 {
		t.Errorf("%d tables were compared", len(want))
	}
}

// goodWork is something that one of the staff does. It leaves alone what the mistakes wrote: prices of tracks, customer 17 and his
// invoices, and names and composers of the tracks that the import touched.
func goodWork(random *rand.Rand) (actor, statement string) {
	customer := 18 + random.IntN(40)
	track := 1 + random.IntN(3500)
	switch random.IntN(8) {
	case 0:
		return "ada", fmt.Sprintf(`update customer set phone = '+1 %d', city = city || '' where customer_id = %d`, random.IntN(1e6), customer)
	case 1:
		return "ada", fmt.Sprintf(`update customer set email = 'c%d@example.org' where customer_id between %d and %d`, random.IntN(1e6), customer, customer+2)
	case 2:
		return "bob", fmt.Sprintf(`update track set bytes = bytes + 1, milliseconds = %d where track_id between %d and %d`, random.IntN(1e6), track, track+20)
	case 3:
		return "bob", fmt.Sprintf(`
			with i as (insert into invoice select max(invoice_id) + 1, %d, '2026-11-30 12:00', 'Main Street', null, null, null, null, 1.98 from invoice returning invoice_id)
			insert into invoice_line select (select max(invoice_line_id) from invoice_line) + n, i.invoice_id, %d + n, 0.99, 1 from i, generate_series(1, 2) n`, customer, track%3000+1)
	case 4:
		return "bob", fmt.Sprintf(`update invoice_line set quantity = quantity + 1 where invoice_id = (select max(invoice_id) from invoice where customer_id = %d)`, customer)
	case 5:
		return "cyd", fmt.Sprintf(`insert into playlist_track values (%d, %d) on conflict do nothing`, 2+random.IntN(3), track)
	case 6:
		return "cyd", fmt.Sprintf(`delete from playlist_track where playlist_id = 8 and track_id between %d and %d`, track, track+10)
	default:
		return "dan", fmt.Sprintf(`update employee set title = 'Title %d' where employee_id = %d`, random.IntN(100), 2+random.IntN(7))
	}
}

type chinook struct{ conn *pgx.Conn }

// newChinook loads the store into a fresh database. Its foreign keys cascade, so that a wrong DELETE does real harm.
func newChinook(t *testing.T) chinook {
	t.Helper()
	text, err := os.ReadFile(pgserver.TestData(t, "chinook.sql"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(text), "Create Tables")
	if !found {
		t.Fatal("the script is not as expected")
	}
	_, script, _ = strings.Cut(script, "*/")
	c := chinook{connectAs(t, pgserver.Database(t), "")}
	c.exec(t, strings.ReplaceAll(script, "ON DELETE NO ACTION", "ON DELETE CASCADE"))
	return c
}

func (c chinook) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := c.conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%v in %.200s", err, sql)
	}
}

// as runs statements in one transaction of an actor and an application.
func (c chinook) as(t *testing.T, actor, application, sql string) {
	t.Helper()
	c.exec(t, fmt.Sprintf(`begin; set local annals.actor = '%s'; set local application_name = '%s'; %s; commit`, actor, application, sql))
}

func (c chinook) transactionOf(t *testing.T, v *volvra.Volvra, actor string) []volvra.TransactionID {
	t.Helper()
	list, err := v.Transactions(t.Context(), volvra.Selection{Actor: actor}, volvra.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("%s made %d transactions", actor, len(list))
	}
	return []volvra.TransactionID{list[0].ID}
}

// contents returns the digest of each table's rows.
func (c chinook) contents(t *testing.T) map[string]string {
	t.Helper()
	rows, err := c.conn.Query(t.Context(), `
		select c.relname, (xpath('//d/text()', query_to_xml(format('select md5(string_agg(x::text, chr(10) order by x::text)) as d from %I x', c.relname), false, true, '')))[1]::text
		from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'`)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{}
	var table, digest string
	if _, err := pgx.ForEachRow(rows, []any{&table, &digest}, func() error { tables[table] = digest; return nil }); err != nil {
		t.Fatal(err)
	}
	return tables
}

func same(a, b map[string]string) bool {
	for table := range a {
		if a[table] != b[table] {
			return false
		}
	}
	return true
}
