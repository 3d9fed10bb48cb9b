package gnomon_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

const typesTable = `"Sch ema"."ta""ble"`

// TestThePastOfEveryType: values of all types read as they were, to the last digit and blank, in whatever form they are captured.
func TestThePastOfEveryType(t *testing.T) {
	t.Parallel()
	for _, options := range []string{`{}`, `{"form": "row", "skip_noop": true}`, `{"wide": ["txt", "j", "jb", "bytes", "n", "ia", "nest", "select", "da", "xid"]}`} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			_, pool := installed(t)
			files := []string{"types.sql"}
			if pgserver.Shared(t).Version() >= 18 {
				files = append(files, "types18.sql")
			}
			for _, file := range files {
				run(t, pool, string(must[[]byte](t)(os.ReadFile("../internal/history/testdata/"+file))))
			}
			for extension, value := range map[string]string{"citext": `'MiXed'`, "hstore": `'a=>1, b=>NULL, "c d"=>"e"'`, "ltree": `'Top.a.b'`, "cube": `'(1,2),(3,4)'`} {
				if column[bool](t, pool, "select exists (select from pg_available_extensions where name = $1)", extension)[0] {
					run(t, pool, "create extension "+extension, "alter table "+typesTable+" add "+extension+" "+extension, "update "+typesTable+" set "+extension+" = "+value+" where id < 4")
				}
			}
			run(t, pool, "select gnomon.track('"+typesTable+"', '"+options+"')")
			conn := connectAs(t, pool.Config().ConnString(), "")
			run(t, conn, `set search_path = "Sch ema", public`)
			g := gnomon.New(conn)
			type moment struct {
				at   gnomon.Ref
				rows []string
			}
			written := func(db querier) []string {
				t.Helper()
				var rows []string
				for _, row := range textsOf(t, db, "select * from "+`"ta""ble"`) {
					var line strings.Builder
					for _, name := range slices.Sorted(maps.Keys(row)) {
						line.WriteString(name + "=" + row[name] + " ")
					}
					rows = append(rows, line.String())
				}
				slices.Sort(rows)
				return rows
			}
			var moments []moment
			for _, step := range []string{
				`update %t set i4 = 7`, `update %t set txt = txt || '!', jb = 'null' where id in (1, 3)`, `update %t set f8 = 0 where f8 = 0`, `update %t set n = n`, `update %t set n = 1.50 where id = 1`, `update %t set j = '{"a":1,"a":2.0}' where id = 1`,
				`update %t set (ia, ta, r4, pair, nest, txt, bytes) = (null, null, null, null, null, null, null)`, `select annals.rotate(1, 0)`, `update %t set id = id + 10`, `delete from %t where id = 11`,
				`begin; set local datestyle = 'German'; set local intervalstyle = 'iso_8601'; set local extra_float_digits = -10; set local bytea_output = 'escape'; set local timezone = 'Asia/Tokyo'; set local xmloption = document; update %t set i8 = 5; commit`, `truncate %t`,
			} {
				moments = append(moments, moment{must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref(), written(conn)})
				run(t, pool, strings.ReplaceAll(step, "%t", typesTable))
			}
			run(t, conn, "deallocate all")
			conn = connectAs(t, pool.Config().ConnString(), "")
			run(t, conn, `set search_path = "Sch ema", public`)
			for i, m := range moments {
				past := must[*gnomon.Past](t)(gnomon.New(conn).At(t.Context(), m.at))
				got := written(past)
				if len(got) != len(m.rows) {
					t.Errorf("moment %d: %d rows, want %d", i, len(got), len(m.rows))
					continue
				}
				for k, row := range got {
					if row != m.rows[k] {
						t.Errorf("moment %d:\n%.3000s\nwas\n%.3000s", i, row, m.rows[k])
					}
				}
				for id := 1; id <= 16; id++ {
					there := slices.ContainsFunc(m.rows, func(row string) bool { return strings.Contains(row, fmt.Sprintf(" id='%d' ", id)) })
					if _, found, err := gnomon.Get[map[string]any](t.Context(), past, typesTable, id); err != nil || found != there {
						t.Errorf("moment %d: row %d is there: %v, %v, want %v", i, id, found, err, there)
					}
				}
			}
		})
	}
}
