package gnomon_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// loadChinook loads a music store. Its foreign keys cascade.
func loadChinook(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	content := string(must[[]byte](t)(os.ReadFile(pgserver.TestData(t, "chinook.sql"))))
	_, script, found := strings.Cut(content, "Create Tables")
	if !found {
		t.Fatal("the script is not as expected")
	}
	_, script, _ = strings.Cut(script, "*/")
	run(t, pool, strings.ReplaceAll(script, "ON DELETE NO ACTION", "ON DELETE CASCADE"))
}

// chinookWork is something that the staff does.
func chinookWork(r *rand.Rand) string {
	customer, track := 1+r.IntN(59), 1+r.IntN(3500)
	switch r.IntN(9) {
	case 0:
		return fmt.Sprintf("update customer set phone = '+1 %d', country = 'Country %d' where customer_id = %d", r.IntN(1e6), r.IntN(5), customer)
	case 1:
		return fmt.Sprintf("update customer set support_rep_id = %d where customer_id between %d and %d", 3+r.IntN(3), customer, customer+3)
	case 2:
		return fmt.Sprintf("update track set unit_price = unit_price + 0.10 where album_id = %d", 1+r.IntN(340))
	case 3:
		return fmt.Sprintf(`with i as (insert into invoice select max(invoice_id) + 1, %[1]d, '2026-11-30 12:00', 'Main Street', null, null, null, null, 1.98 from invoice where exists (select from customer where customer_id = %[1]d) having max(invoice_id) is not null and exists (select from customer where customer_id = %[1]d) returning invoice_id)
			insert into invoice_line select (select max(invoice_line_id) from invoice_line) + n, i.invoice_id, t.track_id, t.unit_price, 1 from i, generate_series(1, 2) n join lateral (select * from track where track_id >= %[2]d order by track_id offset n limit 1) t on true`, customer, track%3000)
	case 4:
		return fmt.Sprintf("update invoice_line set quantity = quantity + 1 where invoice_id = (select max(invoice_id) from invoice where customer_id = %d)", customer)
	case 5:
		return fmt.Sprintf("insert into playlist_track select %d, track_id from track where track_id between %d and %d on conflict do nothing", 1+r.IntN(18), track, track+r.IntN(5))
	case 6:
		return fmt.Sprintf("delete from playlist_track where track_id between %d and %d", track, track+30)
	case 7:
		return fmt.Sprintf("update employee set reports_to = %d, title = 'Title %d' where employee_id = %d", 1+r.IntN(2), r.IntN(100), 3+r.IntN(6))
	default: // with all that belongs to it
		return []string{fmt.Sprintf("delete from customer where customer_id = %d", customer), fmt.Sprintf("delete from album where album_id = %d", 1+r.IntN(340)),
			fmt.Sprintf("delete from artist where artist_id = %d", 1+r.IntN(270)), fmt.Sprintf("update artist set artist_id = artist_id + 1000 where artist_id = %d", 1+r.IntN(270))}[r.IntN(4)]
	}
}

var chinookReports = []string{
	"select c.country, count(*), sum(i.total) from customer c join invoice i using (customer_id) group by c.country",
	"select r.name, count(*) as sold, sum(l.quantity * l.unit_price) from invoice_line l join track k using (track_id) join album a using (album_id) join artist r using (artist_id) group by r.name order by sold desc, r.name limit 10",
	"select p.name, count(*), min(k.name collate \"C\"), sum(k.milliseconds) from playlist p left join playlist_track using (playlist_id) left join track k using (track_id) group by p.playlist_id, p.name",
	"with recursive staff as (select employee_id, 0 as depth, title::text from employee where reports_to is null union all select e.employee_id, depth + 1, s.title || ' > ' || e.title from employee e join staff s on e.reports_to = s.employee_id) select s.*, (select count(*) from customer c where c.support_rep_id = s.employee_id) from staff s",
	"select g.name, avg(k.unit_price), rank() over (order by count(*) desc, g.name) from genre g join track k using (genre_id) group by g.name",
	"select c.customer_id, last.* from customer c, lateral (select i.invoice_id, i.total, (select count(*) from invoice_line l where l.invoice_id = i.invoice_id) from invoice i where i.customer_id = c.customer_id order by i.invoice_date desc, i.invoice_id desc limit 2) last",
	"select r.artist_id, r.name from artist r where not exists (select from album a where a.artist_id = r.artist_id) except select artist_id, name from artist where artist_id < 50",
	"select * from invoice where customer_id = 12 union all select * from invoice where invoice_date >= '2025-12-01' and total > 5",
	"select * from track where track_id between 100 and 120 order by track_id",
}

// TestChinookReportsReplay: reports over a store's tables, read while the staff works, are the same in the past.
func TestChinookReportsReplay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	loadChinook(t, pool)
	for _, table := range column[string](t, pool, "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by relname") {
		track(t, g, "public."+table)
	}
	r := checkerRandom(t)
	var mu sync.Mutex
	var seen []sighting
	var all sync.WaitGroup
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for i := range 3 {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		all.Go(func() {
			for n := range rounds {
				// Several may take one number.
				if _, err := pool.Exec(ctx, chinookWork(r)); err != nil && !slices.Contains([]string{"23505", "23503", "40P01"}, sqlState(err)) {
					t.Error(err)
				}
				if n%10 != i {
					continue
				}
				s := sighting{texts: map[string]string{}}
				err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
					c, err := gnomon.New(tx).Now(ctx)
					if err != nil {
						return err
					}
					s.at = c.Ref()
					for range 4 {
						report := chinookReports[r.IntN(len(chinookReports))]
						var got string
						if err := tx.QueryRow(ctx, fmt.Sprintf(asText, report)).Scan(&got); err != nil {
							return err
						}
						s.texts[report] = got
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen = append(seen, s)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i := range seen {
		if err := seen[i].replay(ctx, g, seen[i].at); err != nil {
			t.Error(err)
		}
	}
	if len(seen) < 3 {
		t.Errorf("%d sightings", len(seen))
	}
}

// planOf returns the plan of a query without its costs.
func planOf(t *testing.T, db gnomon.DB, sql string) string {
	t.Helper()
	return strings.Join(column[string](t, db, "explain (costs off) "+sql), "\n")
}

// TestTrackingLeavesPlansAlone: queries of today have the plans that they had before the table was tracked and changed.
func TestTrackingLeavesPlansAlone(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table item (id int primary key, owner int not null, info jsonb not null)", "create table owner (id int primary key, name text)",
		"insert into owner select i, 'owner ' || i from generate_series(1, 500) i", "insert into item select i, i % 500 + 1, jsonb_build_object('n', i, 'tags', array['t' || i % 1000]) from generate_series(1, 20000) i",
		"create index on item (owner)", "create index on item using gin (info jsonb_path_ops)", "vacuum analyze item", "vacuum analyze owner")
	queries := []string{
		"select * from item where id = 77", "select * from item where id between 100 and 150 order by id", "select * from item where owner = 7", "select * from item order by id desc limit 5",
		"select o.name, i.* from owner o join item i on i.owner = o.id where o.id < 4", "select o.name, count(*) from owner o join item i on i.owner = o.id group by o.name",
		`select * from item where info @> '{"tags": ["t5"]}'`, "update item set owner = 3 where id = 5", "delete from item where owner = 9",
	}
	before := map[string]string{}
	for _, sql := range queries {
		before[sql] = planOf(t, pool, sql)
	}
	track(t, g, "item", "owner")
	run(t, pool, "update item set owner = owner where id <= 200", "vacuum analyze item", "vacuum analyze owner")
	for _, sql := range queries {
		if after := planOf(t, pool, sql); after != before[sql] {
			t.Errorf("%s:\n%s\nwas:\n%s", sql, after, before[sql])
		}
	}
	if !strings.Contains(before[queries[6]], "Bitmap Index Scan on item_info_idx") {
		t.Errorf("the index of a document is not used:\n%s", before[queries[6]])
	}
}

// TestThePastUsesIndexes: reads of single rows, of ranges, by other indexes, and joins with few outer rows look at indexes of the table and of every
// segment, never at all rows.
func TestThePastUsesIndexes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create table item (id int primary key, owner int not null, info text)", "create table owner (id int primary key, name text)",
		"insert into owner select i, 'owner ' || i from generate_series(1, 20000) i", "insert into item select i, i % 2000 + 1, repeat('x', 50) from generate_series(1, 20000) i", "create index item_owner on item (owner)")
	track(t, g, "public.item", "public.owner")
	old := must[gnomon.Coordinate](t)(g.Now(ctx))
	var recent gnomon.Coordinate
	for i := range 5 {
		run(t, pool, fmt.Sprintf("update item set owner = owner %% 2000 + 1 where id %% 5 = %d", i), "update owner set name = name || '.'")
		if i < 4 {
			run(t, pool, "select annals.rotate(1, 0), annals.rotate(2, 0)", "select annals.seal_segments()")
		}
		if i == 3 {
			recent = must[gnomon.Coordinate](t)(g.Now(ctx))
		}
	}
	run(t, pool, "vacuum analyze")
	if n := column[int](t, pool, "select count(*) from annals.segment where tracked = 1")[0]; n != 5 {
		t.Fatalf("there are %d segments", n)
	}
	scans := func(plan string) (list []string) {
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "Seq Scan on") && !strings.Contains(line, "Seq Scan on tracked") {
				list = append(list, strings.TrimSpace(line))
			}
		}
		return list
	}
	for place, c := range map[string]gnomon.Coordinate{"long ago": old, "recently": recent} {
		past := must[*gnomon.Past](t)(g.At(ctx, c.Ref()))
		for _, q := range []struct {
			name, sql string
			wants     []string
		}{
			{"point", "select * from item where id = 77", []string{"item_pkey"}},
			{"points", "select * from item where id in (5, 77, 5000)", []string{"item_pkey"}},
			{"range", "select * from item where id between 100 and 110", []string{"item_pkey"}},
			{"first rows", "select * from item order by id limit 3", []string{"item_pkey", "Merge Append"}},
			{"last rows", "select * from item order by id desc limit 3", []string{"item_pkey", "Merge Append"}},
			{"another index", "select * from item where owner = 5", []string{"item_owner"}},
			{"join", "select o.name, i.info from item i join owner o on o.id = i.owner where i.id = 7", []string{"Nested Loop", "item_pkey", "owner_pkey"}},
		} {
			plan := planOf(t, past, q.sql)
			if list := scans(plan); len(list) > 0 && q.name != "another index" {
				t.Errorf("%s %s: %s in\n%s", place, q.name, list, plan)
			}
			for _, want := range q.wants {
				if !strings.Contains(plan, want) {
					t.Errorf("%s %s: there is no %s in\n%s", place, q.name, want, plan)
				}
			}
		}
	}
}
