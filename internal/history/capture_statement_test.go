package history_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

// A play is a table, made by setup with the name t unless tables says otherwise, and what is done to it. Before each step the table is
// copied; at the end, history has to tell each of the copies. A step is one transaction; it may hold several statements.
type play struct {
	name   string
	setup  string
	tables []string // all of them are tracked
	since  int      // major version of PostgreSQL
	steps  []string
}

// Options that change how a table is captured.
var everyForm = []string{`{}`, `{"form": "row"}`, `{"skip_noop": true}`, `{"full": true}`, `{"wide": ["w"]}`, `{"replica": true}`}

// Keys can be swapped in item; foreign keys can refer to referred.
const (
	item     = `create table t (id int primary key deferrable, x int, w text); ` + items
	referred = `create table t (id int primary key, x int, w text); ` + items
	items    = `insert into t select i, i, repeat('w', i) from generate_series(1, 9) i; `
)

var plays = []play{
	{name: "insert", setup: item, steps: []string{
		"insert into t values (10, 1, 'a')", "insert into t values (11), (12)", "insert into t select i from generate_series(20, 40) i", "begin; insert into t values (50); insert into t values (51); commit",
	}},
	{name: "update", setup: item, steps: []string{
		"update t set x = x + 1 where id = 1", "update t set x = x + 1", "update t set x = x", "update t set w = w || 'x' where id < 5", "update t set w = w, x = 0", "update t set w = null where id = 2", "update t set w = 'again' where id = 2",
		"begin; update t set x = 1; update t set x = 2 where id < 5; commit", "update t set x = 3 where false", "update t set x = u.x + 1 from t u where u.id = t.id + 1",
	}},
	{name: "delete", setup: item, steps: []string{
		"delete from t where id = 1", "delete from t using t u where u.id = t.id + 1 and u.id > 7", "insert into t values (1, 1)", "delete from t",
		"begin; insert into t values (1, 1, 'a'); delete from t; insert into t values (1, 2); commit", "begin; delete from t; insert into t values (1, 3); update t set x = 4; delete from t; commit",
	}},
	{name: "upsert", setup: referred, steps: []string{
		"insert into t select i, i * 100 from generate_series(5, 15) i on conflict (id) do nothing", "insert into t select i, i * 100, 'new' from generate_series(10, 20) i on conflict (id) do update set x = excluded.x, w = excluded.w",
		"insert into t values (1, 0) on conflict (id) do update set x = t.x + 1", "insert into t values (1, 0) on conflict (id) do update set x = t.x where false", "insert into t values (2, 0) on conflict (id) do update set id = 200",
		"insert into t values (200) on conflict do nothing", "begin; insert into t values (300, 1); insert into t values (300, 0) on conflict (id) do update set x = t.x + 5; commit",
	}},
	{name: "merge", setup: item, steps: []string{
		`merge into t using (select i as id from generate_series(5, 15) i) s on s.id = t.id
			when matched and s.id % 2 = 0 then delete when matched then update set x = t.x * 10, w = w || '!' when not matched then insert values (s.id, 0, 'm')`,
		"merge into t using (values (1), (99)) s (id) on s.id = t.id when matched then do nothing when not matched then insert values (s.id)",
		"merge into t using (values (1, 1), (-1, 1)) s (x, id) on s.x = t.x when matched then delete when not matched then insert values (s.id, s.x)", // the row that goes leaves its key to the one that comes
		"merge into t using (values (2, 102)) s (id, new) on s.id = t.id when matched then update set id = s.new",
	}},
	{name: "with", setup: item, steps: []string{
		"with gone as (delete from t where id < 4 returning *) insert into t select id + 100, x, w from gone",
		"with gone as (delete from t where id > 100 returning *) insert into t select id, x + 1, w || 'again' from gone", // the same keys
		"with a as (update t set x = 0 where id = 5), b as (delete from t where id = 6), c as (insert into t values (6000, 1)) update t set x = 1 where id = 7",
		"with a as (update t set x = 100 where id = 5 returning *) update t set x = 200 from a where t.id = a.id",
		"with gone as (delete from t where id = 7 returning *) update t set id = 7 from gone where t.id = 8",
		"with a as (update t set id = 500 where id = 5 returning *), b as (update t set w = 'b' where id = 9 returning *) select from a, b", // only the last one's statement triggers fire
		"with a as (update t set x = 1 where id = 9 returning *), b as (update t set id = 900, w = 'c' where id = 500 returning *) select from a, b",
	}},
	{name: "key", setup: item, steps: []string{
		"update t set id = 100 where id = 1", "update t set id = id + 1 where id < 50", "update t set id = 11 - id where id between 4 and 7", "begin; update t set id = -id; update t set id = -id; commit",
		"begin; update t set id = 1000 where id = 100; update t set id = 2000 where id = 1000; insert into t values (1000, 1); delete from t where id = 2000; commit",
		"begin; update t set id = 0 where id = 9; update t set id = 9 where id = 8; update t set id = 8 where id = 0; commit", "update t set id = id", "update t set id = id, x = 1 where id < 5", "update t set id = 3001, w = 'new' where id = 1000",
		"begin; delete from t where id = 3; update t set id = 3 where id = 4; commit", "update t set (id, x) = (select 7 - id, x + 1) where id in (3, 4)",
	}},
	{name: "key of many columns", setup: `create table t ("Key 2" text, id int, x int, w text, primary key (id, "Key 2") deferrable); insert into t select 'k' || i, i % 3, i, 'w' from generate_series(1, 9) i;`, steps: []string{
		`update t set id = id + 1`, `update t set "Key 2" = 'q' || "Key 2" where id = 1`, `update t set id = 5, "Key 2" = 'k' where id = 2 and x = 1`, `delete from t where x < 4`, `insert into t values ('a', 1, 1), ('b', 1, 2)`,
		`update t set "Key 2" = case "Key 2" when 'a' then 'b' else 'a' end where "Key 2" in ('a', 'b')`,
	}},
	{name: "savepoints", setup: item, steps: []string{
		"begin; update t set x = 1; savepoint s; update t set x = 2; delete from t where id = 3; rollback to s; update t set x = 3 where id < 3; release s; commit",
		"begin; savepoint a; insert into t values (10, 1); savepoint b; update t set id = 11 where id = 10; rollback to b; update t set id = 12 where id = 10; commit",
		"begin; update t set id = -id; savepoint a; update t set id = -id; savepoint b; update t set id = -id; rollback to b; update t set x = 8; commit",
		"do $$ begin begin update t set x = 5; raise 'no'; exception when raise_exception then delete from t where id = -4; end; update t set x = 6 where id < -5; end $$",
		"begin; update t set x = 0; rollback", "begin; savepoint a; update t set id = 8 - id; release a; savepoint b; update t set id = 8 - id; rollback to b; update t set x = 1; commit",
	}},
	{name: "truncate", setup: item, steps: []string{
		"update t set x = 5", "truncate t", "insert into t values (1, 1), (2, 2)", "begin; update t set x = 3; insert into t values (3, 3); truncate t; insert into t values (2, 5); truncate t; insert into t values (4, 4); commit",
		"begin; truncate t; rollback", "begin; insert into t values (5); savepoint s; truncate t; rollback to s; insert into t values (6); commit",
	}},
	{name: "truncate cascade", setup: referred + "create table child (id int primary key, t int references t, w text); insert into child select i, i, 'c' from generate_series(1, 5) i;", tables: []string{"t", "child"}, steps: []string{
		"truncate t cascade", "insert into t values (1)", "insert into child values (1, 1)", "begin; update child set id = 7; truncate t, child; commit",
	}},
	{name: "deferred constraints", setup: referred + "create table child (id int primary key, t int references t deferrable initially deferred, w text);", tables: []string{"t", "child"}, steps: []string{
		"begin; insert into child values (1, 77); insert into t values (77); commit", "begin; delete from t where id = 77; insert into t values (77, 2, 'back'); commit", "begin; update t set id = 78 where id = 77; update child set t = 78; commit",
	}},
	{name: "no key but a unique one", setup: "create table t (x int not null, id text unique not null, w text); insert into t select i, 'k' || i, 'w' from generate_series(1, 9) i;", steps: []string{
		"update t set x = 1", "update t set id = 'z' where id = 'k1'", "delete from t where id = 'k2'", "insert into t values (1, 'k1')",
	}},
	{name: "keys that are equal but not the same", setup: "create table t (id numeric primary key, x int, w text); insert into t values (1.0, 1, 'a'), (2.00, 2, 'b');", steps: []string{
		"update t set id = 1.000 where id = 1", "update t set x = 2", "update t set id = trim_scale(id)", "delete from t where id = 1", "insert into t values (1.0000, 1)", "begin; delete from t where id = 1; insert into t values (1, 7); commit",
	}},
	{name: "generated and identity", setup: "create table t (id int generated always as identity primary key, x int, w text, twice int generated always as (x * 2) stored); insert into t (x, w) select i, 'w' from generate_series(1, 5) i;", steps: []string{
		"insert into t (x) values (9)", "update t set x = x + 1", "update t set id = default where id = 1", "delete from t where twice > 10", "truncate t restart identity", "insert into t (x) values (1)",
	}},
	{name: "generated key", setup: "create table t (x int not null, id int generated always as (x * 2) stored primary key, w text); insert into t (x, w) select i, 'w' from generate_series(1, 5) i;", steps: []string{
		"insert into t (x) values (9)", "update t set x = x + 100 where x < 3", "update t set w = 'v'", "delete from t where id > 10", "begin; update t set x = -x; update t set x = -x; commit",
	}},
	{name: "virtual generated", since: 18, setup: "create table t (id int primary key, x int, w text, twice int generated always as (x * 2) virtual, y int); insert into t select i, i, 'w' from generate_series(1, 5) i;", steps: []string{
		"update t set x = x + 1, y = 3", "update t set id = 9 where id = 1", "delete from t where twice > 8", "truncate t", "insert into t values (1, 1)",
	}},
	{name: "dropped columns", setup: "create table t (a int, id int primary key, b text, x int, w text, c date); alter table t drop a, drop b; insert into t select i, i, 'w' from generate_series(1, 5) i; alter table t drop c, add d int default 5;", steps: []string{
		"insert into t values (10, 1, 'a', 2)", "update t set x = 9, d = 1", "update t set id = 8 where id = 1", "delete from t where id = 2", "truncate t",
	}},
	{name: "rules", setup: item + "create view v as select id, x from t; create rule r as on update to v do instead (update t set x = new.x where id = old.id; update t set w = 'rule' where id = old.id);", steps: []string{
		"update v set x = 50 where id < 4", "insert into v values (100, 1)", "delete from v where id = 1",
	}},
}

func TestEveryWayToWrite(t *testing.T) {
	t.Parallel()
	perform(t, plays, everyForm)
}

// perform gives each play once with each of the options.
func perform(t *testing.T, plays []play, options []string) {
	for _, p := range plays {
		for _, o := range options {
			t.Run(fmt.Sprint(p.name, " ", o), func(t *testing.T) {
				t.Parallel()
				p.perform(t, o)
			})
		}
	}
}

func (p play) perform(t *testing.T, options string) {
	if pgserver.Shared(t).Version() < p.since {
		t.Skipf("needs PostgreSQL %d", p.since)
	}
	pool := installed(t)
	exec(t, pool, p.setup)
	tables := p.tables
	if tables == nil {
		tables = []string{"t"}
	}
	for _, table := range tables {
		track(t, pool, table, options)
	}
	conn := session(t, pool)
	refused := 0
	for _, step := range p.steps {
		for _, table := range tables {
			remember(t, pool, table, step)
		}
		if err := script(t, conn, step); err != nil {
			// The table's own constraints may refuse what its triggers and cascades make of a step. Then nothing has happened.
			if code := sqlState(err); !strings.HasPrefix(code, "23") {
				t.Fatalf("%s: %v", step, err)
			}
			refused++
			ok(t, script(t, conn, "rollback"))
		}
	}
	if refused > len(p.steps)/2 {
		t.Errorf("%d of %d steps were refused by the table's own constraints", refused, len(p.steps))
	}
	assertTold(t, pool, tables)
}

// script executes one statement or several, and in the latter case not in one transaction unless they say so.
func script(t testing.TB, conn *pgx.Conn, sql string) error {
	t.Helper()
	_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	return err
}

// sqlState is "" for what is no error of the server's.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func assertTold(t testing.TB, pool *pgxpool.Pool, tables []string) {
	t.Helper()
	for _, table := range tables {
		compare(t, pool, table)
	}
	if moving := one[int](t, pool, "select count(*) from annals.moving"); moving != 0 {
		t.Errorf("%d moves were never written", moving)
	}
	// Each move has its two entries, and they have it.
	for _, table := range tables {
		id := one[int](t, pool, "select replay.tracked($1::text::regclass)", table)
		for _, stray := range many[string](t, pool, fmt.Sprintf(`select format('%%s of history %[1]d', e.op) from annals.h%[1]d e where op = 'm' and not exists (select from annals.move m where m.tracked = %[1]d and m.left_v = e.v and m.xid = e.xid)
			union all select format('move of history %[1]d from %%s to %%s', m.from_key, m.to_key) from annals.move m where m.tracked = %[1]d
				and not exists (select from annals.h%[1]d e, annals.h%[1]d f where e.op = 'm' and e.v = m.left_v and f.op = 'n' and f.v = m.arrived_v)`, id)) {
			t.Errorf("stray %s", stray)
		}
	}
}
