package gnomon_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
)

// world is a kind of table t (id, x, w) for random programs. The function key gives the keys, some of which are equal without being the same.
type world struct{ name, setup, options string }

const (
	intKey     = "create function key(n int) returns int language sql immutable return n;"
	worldItems = "insert into t select key(i), i, 'w' from generate_series(1, 9) i;"
	plainItem  = intKey + "create table t (id int primary key, x int, w text);" + worldItems
	nestedItem = plainItem + `
		create function nudge() returns trigger language plpgsql as $$ begin
			if pg_trigger_depth() = 1 then update t set x = x + 1, w = w || 'n' where id = new.id % 9 + 1; end if; return new; end $$;
		create function drop_next() returns trigger language plpgsql as $$ begin
			if pg_trigger_depth() = 1 then delete from t where id = old.id + 1; end if; return null; end $$;
		create function again() returns trigger language plpgsql as $$ begin
			if pg_trigger_depth() = 1 then update t set x = x + 1000 where id = new.id; update t set w = w || 'a' where id in (new.id, new.id + 1); end if; return null; end $$;
		create function replace() returns trigger language plpgsql as $$ begin delete from t where id = new.id; return new; end $$;
		create function make_room() returns trigger language plpgsql as $$ begin
			if new.id <> old.id then delete from t where id = new.id; end if; return new; end $$;`
)

var worlds = []world{
	{"plain", plainItem, `{}`},
	{"by row", plainItem, `{"form": "row"}`},
	{"without no-ops", plainItem, `{"skip_noop": true}`},
	{"wide", plainItem, `{"wide": ["w", "x"]}`},
	{"swaps", intKey + "create table t (id int primary key deferrable, x int, w text);" + worldItems, `{"wide": ["w"]}`},
	{"nesting", nestedItem + "create trigger a after insert or update on t for each row execute function nudge(); create trigger b after update or delete on t for each row execute function drop_next();", `{"wide": ["w"]}`},
	{"nesting in the same row", nestedItem + "create trigger a after insert or update on t for each row execute function again();", `{"wide": ["w"]}`},
	{"nesting and swaps", nestedItem + "alter table t drop constraint t_pkey, add primary key (id) deferrable; create trigger a after update on t for each row execute function again(); create trigger z after update on t for each row execute function nudge();", `{}`},
	{"nesting before", nestedItem + "create trigger a before insert on t for each row execute function replace(); create trigger b before update of id on t for each row execute function make_room(); create trigger c after update of w on t for each row execute function nudge();", `{"wide": ["w"]}`},
	{"tree", intKey + "create table t (id int primary key, x int references t on delete cascade on update cascade, w text); insert into t select i, nullif(i / 2, 0), 'w' from generate_series(1, 9) i;", `{}`},
	{"partitions", intKey + "create table t (id int primary key, x int, w text) partition by range (id); create table t1 partition of t for values from (minvalue) to (4); create table t2 partition of t for values from (4) to (7); create table t3 partition of t default;" + worldItems, `{}`},
	{"partitions, wide", intKey + "create table t (id int primary key, x int, w text) partition by range (id); create table t1 partition of t for values from (minvalue) to (4); create table t2 (w text, gone int, id int not null, x int); alter table t2 drop gone; alter table t attach partition t2 for values from (4) to (7); create table t3 partition of t default;" + worldItems, `{"wide": ["w"]}`},
	{"parent", intKey + "create table t (id int primary key, x int, w text); create table child () inherits (t); insert into child values (3, 3, 'child'), (20, 20, 'child');" + worldItems, `{}`},
	{"composite", intKey + `create table t (id int, x int, w text, b text collate "C" not null default 'b', primary key (b, id));` + worldItems, `{"wide": ["w"]}`},
	{"text", `create function key(n int) returns text language sql immutable return chr(96 + n / 2) || case n % 2 when 0 then 'a' else 'B' end; create table t (id text collate "C" primary key, x int, w text);` + worldItems, `{}`},
	{"case-insensitive", `create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create function key(n int) returns text language sql immutable return case when n > 9 then upper(chr(88 + n)) else chr(96 + n) end;
		create table t (id text collate ci primary key deferrable, x int, w text collate ci);` + worldItems, `{"wide": ["w"]}`},
	{"ICU", `create collation de (provider = icu, locale = 'de'); create function key(n int) returns text language sql immutable return chr(228 + n); create table t (id varchar(5) collate de primary key, x int, w text);` + worldItems, `{}`},
	{"numeric", "create function key(n int) returns numeric language sql immutable return case when n > 9 then (n - 9) || '.00' else n::text end::numeric; create table t (id numeric primary key deferrable, x int, w text);" + worldItems, `{}`},
	{"float", "create function key(n int) returns float8 language sql immutable return case when n = 0 then '-0' when n = 12 then 'NaN' else n % 10 / 3.0 end; create table t (id float8 primary key deferrable, x int, w text);" + worldItems, `{"wide": ["w"]}`},
	{"domain", "create domain email as text check (value <> ''); create function key(n int) returns email language sql immutable return 'e' || n; create table t (id email primary key, x int, w email);" + worldItems, `{"wide": ["w"]}`},
	{"enum", "create type day as enum ('0','1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17','18','19','20'); create function key(n int) returns day language sql immutable return n::text::day; create table t (id day primary key, x int, w text);" + worldItems, `{"form": "row"}`},
	{"uuid", "create function key(n int) returns uuid language sql immutable return md5(n::text)::uuid; create table t (id uuid primary key, x int, w text);" + worldItems, `{}`},
	{"unique key", intKey + `create table t (id int not null, x int, w text, "select" int generated always as (x * 2) stored); create unique index on t (id) include (x);` + worldItems, `{}`},
}

// statement draws one that writes table t, whose keys are few so that sessions meet.
func statement(t *rapid.T) string {
	key := rapid.IntRange(0, 12)
	k, n, other := key.Draw(t, "key"), rapid.IntRange(0, 99).Draw(t, "value"), key.Draw(t, "other")
	return rapid.SampledFrom([]string{
		fmt.Sprintf("update t set w = 'w%d' where id = key(%d)", n, k),
		fmt.Sprintf("update t set x = null where id = key(%d)", k),
		fmt.Sprintf("update t set w = w where id >= key(%d)", k),
		fmt.Sprintf("update t set x = coalesce(x, 0) + 1 where id >= key(%d)", k),
		fmt.Sprintf("update t set w = coalesce(w, '') || '%d' where x %% 3 = %d", n%10, k%3),
		fmt.Sprintf("update t set id = key(%d) where id = key(%d)", other, k),
		fmt.Sprintf("update t set id = case id when key(%[1]d) then key(%[2]d) else key(%[1]d) end where id in (key(%[1]d), key(%[2]d))", k, other),
		fmt.Sprintf("update t set id = key(%[2]d), w = 'away' where id = key(%[1]d); update t set id = key(%[1]d), w = w || 'back' where id = key(%[2]d)", k, 13+n%7),
		fmt.Sprintf("insert into t values (key(%d), null, 'i%d')", k, n),
		fmt.Sprintf("insert into t select key(i), null, 'many' from generate_series(%d, %d) i where not exists (select from t where id = key(i))", k, k+n%4),
		fmt.Sprintf("delete from t where id = key(%d)", k),
		fmt.Sprintf("delete from t where x between %d and %d", k, k+n%3),
		fmt.Sprintf("with gone as (delete from t where id = key(%d) returning *) insert into t select id, x, w || '%d' from gone", k, n),
		fmt.Sprintf("delete from t where id = key(%[1]d); insert into t values (key(%[1]d), %[2]d, 'again')", k, n),
		fmt.Sprintf("merge into t using (values (key(%d)), (key(%d))) s (id) on s.id = t.id when matched and t.x %% 2 = 0 then delete when matched then update set w = 'm%d' when not matched then insert values (s.id, null, 'm')", k, other, n),
		"truncate only t",
		"truncate t",
	}).Draw(t, "statement")
}

// moment is what a transaction saw of t at a coordinate.
type moment struct {
	at   gnomon.Ref
	rows []string
}

const rowsOfT = "select q::text from (select * from t) q"

// TestThePastIsWhatWasSeen runs random programs in sessions that overlap, while segments are rotated and sealed. Whatever was seen at
// a coordinate, the past shows, as a whole and by every key.
func TestThePastIsWhatWasSeen(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	few(t, 8, func(r *rapid.T) {
		w := rapid.SampledFrom(worlds).Draw(r, "world")
		p := &program{t: t, r: r, g: g, pool: pool, keys: map[string][]any{}}
		p.run(w)
	})
}

// few checks a property of programs, which take long: at most n times, unless -rapid.checks asks for another number than is usual.
func few(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	held := 0
	rapid.Check(t, func(r *rapid.T) {
		if held < n || flag.Lookup("rapid.checks").Value.String() != usualChecks {
			property(r)
			held++
		}
	})
}

// usualChecks is what TestMain sets.
const usualChecks = "30"

type program struct {
	t       *testing.T
	r       *rapid.T
	g       *gnomon.Gnomon
	pool    *pgxpool.Pool
	id      int
	trace   []string
	moments []moment
	keys    map[string][]any // every key that ever was, by its text
	rows    string
	keySQL  string
}

func (p *program) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.r.Fatalf("%v\n%s", err, strings.Join(p.trace, "\n"))
	}
}

// do executes a statement of the program. Refused statements are part of it; errors of capture's own are not.
func (p *program) do(i int, conn *pgx.Conn, sql string) bool {
	p.trace = append(p.trace, fmt.Sprintf("%d: %s", i, sql))
	_, err := conn.Exec(p.t.Context(), sql)
	if state := sqlState(err); err != nil {
		p.trace[len(p.trace)-1] += " -- " + state
		if !slices.Contains([]string{"55P03", "40001", "40P01", "AN002", "25P02", "27000", "42809", "21000"}, state) && !strings.HasPrefix(state, "23") {
			p.ok(err)
		}
	}
	return err == nil
}

func (p *program) run(w world) {
	ctx := p.t.Context()
	_, err := p.pool.Exec(ctx, "drop schema public cascade; create schema public")
	p.ok(err)
	p.pool.Reset()
	p.trace = append(p.trace, w.setup, w.options)
	_, err = p.pool.Exec(ctx, w.setup)
	p.ok(err)
	p.ok(p.pool.QueryRow(ctx, "select gnomon.track('t', $1::text::jsonb)", w.options).Scan(&p.id))
	p.rows = rowsOfT
	if w.name == "parent" {
		p.rows = "select q::text from (select * from only t) q"
	}
	p.ok(p.pool.QueryRow(ctx, "select format('select %s from only t', string_agg(quote_ident(c.name), ', ' order by u.i)) from annals.tracked t, unnest(t.key) with ordinality u (n, i) join annals.tracked_column c on c.n = u.n where t.id = $1 and c.tracked = t.id", p.id).Scan(&p.keySQL))
	if strings.HasPrefix(w.name, "partitions") {
		p.keySQL = strings.ReplaceAll(p.keySQL, "only ", "")
	}

	const sessions = 3
	var conns [sessions]*pgx.Conn
	var inTx [sessions]bool
	for i := range conns {
		conns[i], err = pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
		p.ok(err)
		defer conns[i].Close(context.WithoutCancel(ctx))
		// Who waits for another session gives up: the sessions take turns here.
		_, err = conns[i].Exec(ctx, "set lock_timeout = '15ms'")
		p.ok(err)
	}
	for range rapid.IntRange(5, 30).Draw(p.r, "steps") {
		i := rapid.IntRange(0, sessions-1).Draw(p.r, "session")
		switch rapid.SampledFrom([]string{"write", "write", "write", "write", "write", "begin", "end", "savepoint", "remember", "remember", "rotate", "seal", "read"}).Draw(p.r, "do") {
		case "write":
			if inTx[i] {
				p.do(i, conns[i], "savepoint w")
			}
			if !p.do(i, conns[i], statement(p.r)) && inTx[i] {
				p.do(i, conns[i], "rollback to w")
			}
		case "begin":
			if !inTx[i] {
				p.do(i, conns[i], map[bool]string{true: "begin isolation level repeatable read", false: "begin"}[rapid.Bool().Draw(p.r, "repeatable read")])
				inTx[i] = true
			}
		case "end":
			if inTx[i] {
				p.do(i, conns[i], rapid.SampledFrom([]string{"commit", "commit", "rollback"}).Draw(p.r, "end"))
				inTx[i] = false
			}
		case "savepoint":
			if inTx[i] && !p.do(i, conns[i], rapid.SampledFrom([]string{"savepoint s", "savepoint s; update t set w = 'lost'; rollback to s"}).Draw(p.r, "savepoint")) {
				p.do(i, conns[i], "rollback to s")
			}
		case "remember":
			p.remember()
		case "rotate":
			if _, err := p.pool.Exec(ctx, "select annals.rotate($1, 0)", p.id); sqlState(err) != "55P03" { // somebody truncates
				p.ok(err)
			}
			p.trace = append(p.trace, "rotate")
		case "seal":
			if _, err := p.pool.Exec(ctx, "select annals.seal_segments()"); sqlState(err) != "55P03" {
				p.ok(err)
			}
			p.trace = append(p.trace, "seal")
		case "read":
			if len(p.moments) > 0 {
				p.compare(rapid.SampledFrom(p.moments).Draw(p.r, "moment"))
			}
		}
	}
	for i := range conns {
		if inTx[i] {
			p.do(i, conns[i], "commit")
		}
	}
	for _, m := range p.moments {
		p.compare(m)
	}
}

// remember notes what a transaction sees.
func (p *program) remember() {
	ctx := p.t.Context()
	tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	p.ok(err)
	defer tx.Rollback(ctx)
	c, err := gnomon.New(tx).Now(ctx)
	p.ok(err)
	_, err = tx.Exec(ctx, "set local lock_timeout = '15ms'; lock table t in access share mode")
	if sqlState(err) == "55P03" { // somebody truncates
		return
	}
	p.ok(err)
	m := moment{at: c.Ref(), rows: column[string](p.t, tx, p.rows)}
	slices.Sort(m.rows)
	p.moments = append(p.moments, m)
	rows, err := tx.Query(ctx, p.keySQL)
	p.ok(err)
	for rows.Next() {
		key, err := rows.Values()
		p.ok(err)
		p.keys[fmt.Sprint(key)] = key
	}
	p.ok(rows.Err())
	p.trace = append(p.trace, fmt.Sprintf("remember %s: %v", c, m.rows))
}

// compare fails the program unless the past shows what was seen.
func (p *program) compare(m moment) {
	ctx := p.t.Context()
	tx, err := p.pool.Begin(ctx)
	p.ok(err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, "set local lock_timeout = '15ms'; lock table t in access share mode")
	if sqlState(err) == "55P03" {
		return
	}
	p.ok(err)
	past, err := gnomon.New(tx).At(ctx, m.at)
	p.ok(err)
	rows, err := past.Query(ctx, rowsOfT)
	p.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.ok(err)
	slices.Sort(got)
	if !slices.Equal(got, m.rows) {
		p.r.Fatalf("at %s it was\n%s\nthe past shows\n%s\n%s\n%s", m.at, strings.Join(m.rows, "\n"), strings.Join(got, "\n"), strings.Join(p.trace, "\n"), p.entries())
	}
	for _, key := range p.keys {
		row, found, err := gnomon.Get[map[string]any](ctx, past, "public.t", key...)
		p.ok(err)
		conditions := []string{}
		for i, name := range strings.Split(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(p.keySQL, "select "), " from t"), " from only t"), ", ") {
			conditions = append(conditions, fmt.Sprintf("%s = $%d", name, i+1))
		}
		rows, err := past.Query(ctx, "select * from t where "+strings.Join(conditions, " and "), key...)
		p.ok(err)
		want, err := pgx.CollectOneRow(rows, pgx.RowToMap)
		if errors.Is(err, pgx.ErrNoRows) {
			if found {
				p.r.Fatalf("at %s key %v is %v by Get, but is not there\n%s", m.at, key, row, strings.Join(p.trace, "\n"))
			}
			continue
		}
		p.ok(err)
		if !found || fmt.Sprint(row) != fmt.Sprint(want) {
			p.r.Fatalf("at %s key %v is %v by Get (%v), want %v\n%s", m.at, key, row, found, want, strings.Join(p.trace, "\n"))
		}
	}
}

// entries are all that history holds of t.
func (p *program) entries() string {
	list := column[string](p.t, p.pool, fmt.Sprintf("select h::text from annals.h%d h order by v", p.id))
	return strings.Join(list, "\n")
}
