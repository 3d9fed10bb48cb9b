package history_test

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

var (
	//go:embed testdata/types.sql
	typesSQL string
	//go:embed testdata/types18.sql
	types18SQL string
)

const typesTable = `"Sch ema"."ta""ble"`

// withTypes makes the table of every type, with extensions' types where the server has them.
func withTypes(t *testing.T, options string) *pgxpool.Pool {
	t.Helper()
	pool := installed(t)
	exec(t, pool, typesSQL)
	if pgserver.Shared(t).Version() >= 18 {
		exec(t, pool, types18SQL)
	}
	for _, x := range []string{"citext", "hstore", "ltree", "cube"} {
		if one[bool](t, pool, "select exists (select from pg_available_extensions where name = $1)", x) {
			exec(t, pool, "create extension "+x)
			exec(t, pool, "alter table "+typesTable+" add "+x+" "+x)
			exec(t, pool, "update "+typesTable+" set "+x+" = ("+map[string]string{"citext": `'MiXed'`, "hstore": `'a=>1, b=>NULL, "c d"=>"e"'`, "ltree": `'Top.a.b'`, "cube": `'(1,2),(3,4)'`}[x]+")::"+x+" where id < 4")
		}
	}
	if _, err := pool.Exec(t.Context(), "select '<a/>'::xml"); err == nil {
		exec(t, pool, "update "+typesTable+` set x = '<?xml version="1.0"?> <a b = "c"/>' where id < 3`)
	}
	track(t, pool, typesTable, options)
	return pool
}

func TestEveryType(t *testing.T) {
	t.Parallel()
	for _, options := range append(slices.DeleteFunc(slices.Clone(everyForm), func(o string) bool { return strings.Contains(o, "wide") }), `{"wide": ["txt", "j", "jb", "bytes", "n", "ia", "nest", "select", "da", "xid"]}`) {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := withTypes(t, options)
			conn := session(t, pool)
			for _, step := range []string{
				`update %t set i4 = 7`, `update %t set txt = txt || '!', jb = 'null' where id in (1, 3)`, `update %t set f8 = 0 where f8 = 0`, `update %t set n = n`, `update %t set n = 1.50 where id = 1`, `update %t set j = '{"a":1,"a":2.0}' where id = 1`,
				`update %t set (ia, ta, r4, pair, nest, txt, bytes) = (null, null, null, null, null, null, null)`, `update %t set id = id + 10`, `delete from %t where id = 11`, `set datestyle = 'German'; set intervalstyle = 'iso_8601'; set extra_float_digits = -10; set bytea_output = 'escape'; set timezone = 'Asia/Tokyo'; set xmloption = document; update %t set i8 = 5`,
				`truncate %t`,
			} {
				step = strings.ReplaceAll(step, "%t", typesTable)
				remember(t, pool, typesTable, step)
				ok(t, script(t, conn, step))
			}
			compare(t, pool, typesTable)
			want := 6
			if got := one[int](t, pool, "select count(distinct h.v) from annals.h1 h where op = 't'"); got != want-1 {
				t.Errorf("%d truncated rows", got)
			}
		})
	}
}

// TestCopiesAreExact sees to it that the comparison of these tests finds what only looks equal.
func TestCopiesAreExact(t *testing.T) {
	t.Parallel()
	pool := withTypes(t, `{}`)
	remember(t, pool, typesTable, "nothing")
	compare(t, pool, typesTable)
	for _, change := range []string{"n = 1.5", "f8 = 0", `j = '{"a":2.0}'`, "ia = '[0:2]={1,2,null}'", "jb = null", "n2 = null", "ch = null", "txt = txt || ' '"} {
		exec(t, pool, "alter table "+typesTable+" disable trigger all")
		exec(t, pool, "begin; update "+typesTable+" set "+change+" where id = 1; commit")
		if len(differences(t, pool, typesTable)) == 0 {
			t.Errorf("%s is not found", change)
		}
	}
}
