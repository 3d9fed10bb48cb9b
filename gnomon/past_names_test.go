package gnomon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// TestFormerNames: who asks for them reads columns under the names that they had at the place, also where names were swapped and the key has
// another one; and views of users, which are written in present names, are refused.
func TestFormerNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, `create table o (id int primary key, a text, b text, "o" int, twice int generated always as ("o" * 2) stored)`, "insert into o values (1, 'a', 'b', 3)", "create table other (id int primary key)",
		"create view shown as select a from o")
	track(t, g, "o", "other")
	first := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, `alter table o rename id to "select"`, "update o set a = 'aa'")
	second := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "alter table o rename a to c", "alter table o rename b to a", "alter table o rename c to b", `alter table o rename "o" to "t"`, "alter table o rename twice to double")
	third := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "update o set b = 'bb'", `alter table o rename "t" to "Sch ema"`)
	for _, c := range []struct {
		at   gnomon.Ref
		want string
		key  string
	}{
		{first, `{"a": "a", "b": "b", "o": 3, "id": 1, "twice": 6}`, "id"},
		{second, `{"a": "aa", "b": "b", "o": 3, "twice": 6, "select": 1}`, "select"},
		{third, `{"a": "b", "b": "aa", "t": 3, "double": 6, "select": 1}`, "select"},
		{gnomon.Present, `{"a": "b", "b": "bb", "double": 6, "select": 1, "Sch ema": 3}`, "select"},
	} {
		past := must[*gnomon.Past](t)(g.At(ctx, c.at, gnomon.FormerNames()))
		if got := must[[]string](t)(pgx.CollectRows(must[pgx.Rows](t)(past.Query(ctx, "select to_jsonb(x)::text from o x")), pgx.RowTo[string])); len(got) != 1 || got[0] != c.want {
			t.Errorf("at %s there is %s, want %s", c.at, got, c.want)
		}
		row, found, err := gnomon.Get[map[string]any](ctx, past, "o", 1)
		if err != nil || !found || row[c.key] != int32(1) {
			t.Errorf("Get at %s: %v %v %v", c.at, row, found, err)
		}
		if rows := must[[]map[string]any](t)(gnomon.List[map[string]any](ctx, past, "o", "where "+pgx.Identifier{c.key}.Sanitize()+" = $1", 1)); len(rows) != 1 || rows[0]["a"] != row["a"] {
			t.Errorf("List at %s: %v", c.at, rows)
		}
		if got := must[[]map[string]any](t)(gnomon.List[map[string]any](ctx, past, "other", "")); len(got) != 0 {
			t.Error(got)
		}
		rows, err := past.Query(ctx, "select * from shown")
		if err == nil {
			_, err = pgx.CollectRows(rows, pgx.RowToMap)
		}
		if c.at == gnomon.Present {
			ok(t, err)
		} else {
			refuses(t, err, gnomon.ErrView)
		}
	}
	// In SQL, and what is no choice.
	conn := connectAs(t, pool.Config().ConnString(), "")
	run(t, conn, "select gnomon.at('"+string(first)+"', p_names => 'former')")
	if got := text(t, conn, "select id, a from o"); got != "(1,a)" {
		t.Error(got)
	}
	if _, err := conn.Exec(ctx, "select gnomon.at('now', p_names => 'old')"); sqlState(err) != "GN006" {
		t.Error(err)
	}
	run(t, conn, "select gnomon.leave()")
}

// TestFormerNamesOfRestrictedRows: row-level security holds under former names, and rights that are taken away later do.
func TestFormerNamesOfRestrictedRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	reader := pgserver.Role(t, pgserver.Shared(t), "reader")
	run(t, pool, "create table o (id int primary key, owner text, a text)", "insert into o select i, case when i % 2 = 0 then '"+reader+"' else 'x' end, 'a' from generate_series(1, 4) i",
		"alter table o enable row level security", "create policy own on o using (owner = current_user)", "grant select on o to "+pgx.Identifier{reader}.Sanitize())
	track(t, g, "o")
	letRead(t, pool, reader)
	at := must[gnomon.Coordinate](t)(g.Now(ctx)).Ref()
	run(t, pool, "alter table o rename a to z", "update o set z = 'zz'")
	conn := connectAs(t, pool.Config().ConnString(), reader)
	past := must[*gnomon.Past](t)(gnomon.New(conn).At(ctx, at, gnomon.FormerNames()))
	if got := must[[]map[string]any](t)(gnomon.List[map[string]any](ctx, past, "o", "where a = 'a'")); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if _, found, err := gnomon.Get[map[string]any](ctx, past, "o", 1); err != nil || found {
		t.Error(found, err)
	}
	run(t, pool, "revoke select on o from "+pgx.Identifier{reader}.Sanitize())
	if rows, err := gnomon.List[map[string]any](ctx, past, "o", ""); sqlState(err) != "42501" {
		t.Errorf("without rights: %v %v", rows, err)
	}
}
