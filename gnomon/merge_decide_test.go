package gnomon_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

var mergeCases = flag.Int("gnomon.cases", 30_000, "how many random cases TestMergeDecisions decides")

// TestMergeDecisions decides random rows by the SQL that merges use, with each strategy, and finds each row that breaks an invariant. Values come from small domains, so that sides
// agree, differ in images only (1.0 and 1.00), are null, and are not there. Where ours and theirs change places, strategies that are symmetric decide the same.
func TestMergeDecisions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create schema f", "create table f.rows (id int primary key, i int, s text, n numeric, list int[], doc jsonb)")
	track(t, g, "f.rows")
	run(t, pool, "select gnomon.create_branch('b')") // with it comes the overlay
	types := map[string]string{"2": "int", "3": "text", "4": "numeric", "5": "int[]", "6": "jsonb"}
	domain := map[string]string{
		"2": "(array[null, 1, 2, 3, -5])[1 + floor(random() * 5)]", "3": "(array[null, '', 'a', 'b', 'c'])[1 + floor(random() * 5)]", "4": "(array[null, 1.0, 1.00, 2, 3.5])[1 + floor(random() * 5)]",
		"5": "('{null,\"{}\",\"{1}\",\"{1,2}\",\"{2,3}\",\"{3,1}\"}'::text[])[1 + floor(random() * 6)]::int[]",
		"6": "('{null,\"{}\",\"null\",\"1\",\"1.0\",\"{\\\"a\\\":1}\",\"{\\\"a\\\":2,\\\"b\\\":{\\\"x\\\":1}}\",\"{\\\"b\\\":{\\\"x\\\":2,\\\"y\\\":1}}\"}'::text[])[1 + floor(random() * 8)]::jsonb",
	}
	var columns, values []string
	for n := 2; n <= 6; n++ {
		k := fmt.Sprint(n)
		for _, side := range []string{"b", "c", "m"} {
			columns = append(columns, fmt.Sprintf("%s%s %s", side, k, types[k]))
			values = append(values, domain[k])
		}
	}
	batch := min(7_000, *mergeCases/16+1) // each is decided with 8 strategies, and the other way round
	c := must[*pgxpool.Conn](t)(pool.Acquire(ctx))
	defer c.Release()
	run(t, c, "create temp table cases (v bigint, at timestamptz, k1 int, was boolean, alive boolean, there boolean, "+strings.Join(columns, ", ")+")")
	strategies := []string{"fail", "ours", "theirs", "min", "max", "sum", "union", "json"}
	suits := map[string]string{"2": "min max sum", "3": "min max", "4": "min max sum", "5": "min max union", "6": "min max json"}
	decided, began, deciding := 0, time.Now(), time.Duration(0)
	for decided < *mergeCases {
		run(t, c, "truncate cases", fmt.Sprintf("insert into cases select g, now(), g, random() < 0.8, random() < 0.8, random() < 0.8, %s from generate_series(1, %d) g", strings.Join(values, ", "), batch))
		for _, s := range strategies {
			chosen := fmt.Sprintf(`{"*": "%s"}`, s)
			// Theirs and ours change places in the second one.
			for i, sides := range [][2]string{{"c", "m"}, {"m", "c"}} {
				var source, target []string
				for k := range types {
					source = append(source, fmt.Sprintf("b%s, %s%[1]s as c%[1]s", k, sides[0]))
					target = append(target, fmt.Sprintf("%s%s as m%[2]s", sides[1], k))
				}
				ours, theirs := "alive", "there"
				if i == 1 {
					ours, theirs = theirs, ours
				}
				query := column[string](t, c, "select gnomon.decide_query(1, $1, $2, $3)",
					fmt.Sprintf("(select v, at, k1, was, %s as alive, %s from cases)", ours, strings.Join(source, ", ")), fmt.Sprintf("(select true as there, k1, %s from cases where %s)", strings.Join(target, ", "), theirs), chosen)[0]
				run(t, c, fmt.Sprintf("drop table if exists decided%d", i))
				start := time.Now()
				run(t, c, fmt.Sprintf("create temp table decided%d as %s", i, query))
				deciding += time.Since(start)
				decided += batch
			}
			run(t, c, "create index on decided0 (v)", "create index on decided1 (v)", "analyze decided0", "analyze decided1")
			broken := map[string]string{
				"a row is decided once":                   fmt.Sprintf("select 1 where (select count(*) from decided0) <> %d", batch),
				"what only theirs changed stays":          "was and alive and there and record_image_eq(row(b2, b3, b4, b5, b6), row(c2, c3, c4, c5, c6)) and d.op <> 'n'",
				"what only ours changed is taken":         "was and alive and there and record_image_eq(row(b2, b3, b4, b5, b6), row(m2, m3, m4, m5, m6)) and d.op <> 'n' and (d.op not in ('u', 'a') or not record_image_eq(row(d2, d3, d4, d5, d6), row(c2, c3, c4, c5, c6)))",
				"an untouched row that ours deleted goes": "was and not alive and there and record_image_eq(row(b2, b3, b4, b5, b6), row(m2, m3, m4, m5, m6)) and d.op <> 'd'",
				"what came and went is nothing":           "not was and not alive and d.op <> 'n'",
				"a new row comes":                         "not was and alive and not there and d.op <> 'i'",
				"a row that is gone on both sides is so":  "was and not alive and not there and d.op <> 'a'",
				"inserts are as ours is":                  "d.op = 'i' and not record_image_eq(row(d2, d3, d4, d5, d6), row(c2, c3, c4, c5, c6))",
				"who deletes and who edits": fmt.Sprintf("was and (alive and not there and not record_image_eq(row(b2, b3, b4, b5, b6), row(c2, c3, c4, c5, c6)) and d.op <> '%s' or there and not alive and not record_image_eq(row(b2, b3, b4, b5, b6), row(m2, m3, m4, m5, m6)) and d.op <> '%s')",
					map[string]string{"ours": "i", "theirs": "a"}[s]+map[bool]string{true: "x"}[s != "ours" && s != "theirs"], map[string]string{"ours": "d", "theirs": "a"}[s]+map[bool]string{true: "x"}[s != "ours" && s != "theirs"]),
			}
			for k := range types {
				own := s
				if s != "fail" && s != "ours" && s != "theirs" && !strings.Contains(suits[k], s) {
					own = "fail"
				}
				both := fmt.Sprintf("alive and there and (not was or not record_image_eq(row(b%[1]s), row(c%[1]s)) and not record_image_eq(row(b%[1]s), row(m%[1]s))) and not record_image_eq(row(c%[1]s), row(m%[1]s))", k)
				conflict := fmt.Sprintf("%s = any (d.conflicts)", k)
				one := fmt.Sprintf("was and alive and there and record_image_eq(row(b%[1]s), row(m%[1]s)) and d.op = 'u'", k)
				broken["column "+k+" that theirs left alone is ours"] = fmt.Sprintf("%s and not record_image_eq(row(d%[2]s), row(c%[2]s))", one, k)
				broken["column "+k+" that ours left alone is theirs"] = fmt.Sprintf("was and alive and there and record_image_eq(row(b%[1]s), row(c%[1]s)) and d.op = 'u' and not record_image_eq(row(d%[1]s), row(m%[1]s))", k)
				if own != "sum" {
					broken["column "+k+" on which both agree is so"] = fmt.Sprintf("alive and there and record_image_eq(row(c%[1]s), row(m%[1]s)) and d.op = 'u' and not record_image_eq(row(d%[1]s), row(m%[1]s))", k)
				}
				switch own {
				case "fail":
					broken["column "+k+" is in conflict just where nothing decides"] = fmt.Sprintf("d.kind in ('edit/edit', 'add/add') and (%s) is distinct from (%s) or d.op = 'u' and (%[2]s)", conflict, both)
				case "ours", "theirs":
					broken["column "+k+" is decided by "+own] = fmt.Sprintf("%s and (%s or d.op = 'u' and not record_image_eq(row(d%s), row(%s%[3]s)))", both, conflict, k, map[string]string{"ours": "c", "theirs": "m"}[own])
				case "min", "max":
					broken["column "+k+" is one of the two"] = fmt.Sprintf("%s and d.op = 'u' and d%s is distinct from %s(c%[2]s, m%[2]s)", both, k, map[string]string{"min": "least", "max": "greatest"}[own])
				case "sum":
					broken["column "+k+" keeps what each added"] = fmt.Sprintf("was and alive and there and d.op = 'u' and d%[1]s - coalesce(b%[1]s, 0) <> (c%[1]s - coalesce(b%[1]s, 0)) + (m%[1]s - coalesce(b%[1]s, 0))", k)
				case "union":
					broken["column "+k+" invents no element and loses none"] = fmt.Sprintf(`was and alive and there and d.op = 'u' and (exists (select from unnest(d%[1]s) e where e <> all (coalesce(c%[1]s, '{}')) and e <> all (coalesce(m%[1]s, '{}')))
						or exists (select from unnest(c%[1]s) e where e = any (m%[1]s) and coalesce(e <> all (d%[1]s), true)) or exists (select from unnest(b%[1]s) e where (coalesce(e <> all (c%[1]s), true) or coalesce(e <> all (m%[1]s), true)) and e = any (d%[1]s)))`, k)
				case "json":
					broken["column "+k+" invents no key"] = fmt.Sprintf("was and alive and there and d.op = 'u' and jsonb_typeof(d%[1]s) = 'object' and jsonb_typeof(c%[1]s) = 'object' and jsonb_typeof(m%[1]s) = 'object' and exists (select from jsonb_object_keys(d%[1]s) k where not c%[1]s ? k and not m%[1]s ? k)", k)
				}
			}
			for what, where := range broken {
				sql := where
				if !strings.HasPrefix(where, "select") {
					sql = "select to_jsonb(x) || to_jsonb(d) from cases x join (select v as number, op, kind, conflicts, d2, d3, d4, d5, d6 from decided0) d on d.number = x.v where " + where + " limit 1"
				}
				if found := column[string](t, c, "select q::text from ("+sql+") q"); len(found) > 0 {
					t.Fatalf("strategy %s: %s, but not here: %s", s, what, found[0])
				}
			}
			// Symmetric ones: it makes no difference who is merged into whom.
			if s == "fail" || s == "min" || s == "max" || s == "sum" || s == "union" || s == "json" {
				for k := range types {
					value := "%s.d" + k
					if k == "5" {
						value = "array(select e from unnest(%s.d5) e order by e)"
					}
					sql := fmt.Sprintf("select x from cases x join decided0 d on d.v = x.v join decided1 e on e.v = x.v where x.was and x.alive and x.there and (d.op = 'x') <> (e.op = 'x') or d.op = 'u' and e.op = 'u' and %s is distinct from %s limit 1", fmt.Sprintf(value, "d"), fmt.Sprintf(value, "e"))
					if found := column[string](t, c, "select q::text from ("+sql+") q"); len(found) > 0 {
						t.Fatalf("strategy %s, column %s is not symmetric: %s", s, k, found[0])
					}
				}
			}
		}
	}
	t.Logf("%d cases in %v, decided at %.0f/s", decided, time.Since(began).Round(time.Second), float64(decided)/deciding.Seconds())
}
