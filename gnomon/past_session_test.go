package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

// pastOfO makes the tracked table o with rows 1 to 3, whose values sum to 6 at the coordinate that it returns, and to something else today.
func pastOfO(t *testing.T) (pool *pgxpool.Pool, then gnomon.Ref) {
	t.Helper()
	g, pool := installed(t)
	run(t, pool, "create table o (id int primary key, n int, note text)", "insert into o select i, i, 'note' from generate_series(1, 3) i")
	track(t, g, "o")
	then = must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
	run(t, pool, "update o set n = n * 100", "delete from o where id = 2", "insert into o values (9, 9)")
	return pool, then
}

var placeSettings = []string{"gnomon.place", "gnomon.snapshot", "gnomon.bound", "gnomon.checked", "gnomon.outside"}

// readings are all ways to read the past, among them those that fail: askings, and these.
var readings = askedOf(map[string]func(ctx context.Context, p *gnomon.Past) error{
	"write": func(ctx context.Context, p *gnomon.Past) error {
		_, err := p.Exec(ctx, "delete from o")
		if !errors.Is(err, gnomon.ErrReadOnly) {
			return fmt.Errorf("a write says %w", err)
		}
		return nil
	},
	"settings": func(ctx context.Context, p *gnomon.Past) error {
		_, err := p.Exec(ctx, "select set_config('gnomon.place', 'x', false), set_config('work_mem', '1MB', false), set_config('search_path', 'nowhere', false)")
		return err
	},
	"transaction": func(ctx context.Context, p *gnomon.Past) error {
		for _, end := range []func(pgx.Tx) error{func(tx pgx.Tx) error { return tx.Commit(ctx) }, func(tx pgx.Tx) error { return tx.Rollback(ctx) }} {
			tx, err := p.Begin(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(scanOne(tx.QueryRow(ctx, "select sum(n) from o"), nil), scanOne(tx.QueryRow(ctx, "select sum(n) from o"), nil), end(tx)); err != nil {
				return err
			}
			if err := tx.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				return fmt.Errorf("once more: %w", err)
			}
		}
		return nil
	},
	"transaction that fails": func(ctx context.Context, p *gnomon.Past) error {
		tx, err := p.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "select 1 / 0")
		if err == nil {
			return errors.New("it does not fail")
		}
		return tx.Rollback(ctx)
	},
})

// TestReadingLeavesNothingBehind, on any handle, whether it succeeds or not; the caller's transaction goes on.
func TestReadingLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	for _, mode := range []string{"", " default_query_exec_mode=exec", " default_query_exec_mode=simple_protocol"} {
		config := must[*pgxpool.Config](t)(pgxpool.ParseConfig(pool.Config().ConnString() + mode))
		config.MaxConns = 1
		one := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(t.Context(), config))
		t.Cleanup(one.Close)
		acquired := must[*pgxpool.Conn](t)(one.Acquire(t.Context()))
		conn := acquired.Conn()
		acquired.Release()
		for name, reading := range readings {
			for _, handle := range []string{"pool", "conn", "tx", "savepoint"} {
				t.Run(fmt.Sprint(handle, mode, ": ", name), func(t *testing.T) {
					ctx := t.Context()
					var db gnomon.DB = one
					switch handle {
					case "conn":
						db = conn
					case "tx", "savepoint":
						tx := must[pgx.Tx](t)(conn.Begin(ctx))
						defer tx.Rollback(context.WithoutCancel(ctx))
						run(t, tx, "insert into o values (50, 5)", "set local work_mem = '7MB'")
						if handle == "savepoint" {
							tx = must[pgx.Tx](t)(tx.Begin(ctx))
							run(t, tx, "savepoint gnomon_past") // of the caller's
						}
						db = tx
					}
					past := must[*gnomon.Past](t)(gnomon.New(db).At(ctx, then))
					pgtxtest.AssertSessionUnchanged(t, conn, func() {
						for range 2 {
							if err := reading(ctx, past); err != nil {
								t.Error(err)
							}
						}
					}, placeSettings...)
					if handle == "tx" || handle == "savepoint" {
						run(t, db, "insert into o values (51, 5)")
						if n := column[int](t, db, "select count(*)::int from o where id >= 50"); n[0] != 2 {
							t.Errorf("%d rows of the transaction are there", n[0])
						}
					}
				})
			}
		}
	}
}

// TestCancelledReading: a context that ends while the past is read leaves no settings in any session of the pool.
func TestCancelledReading(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	past := must[*gnomon.Past](t)(gnomon.New(pool).At(t.Context(), then))
	for i := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := past.Query(ctx, "select id, repeat('x', 10000) from o, generate_series(1, 3000)")
		ok(t, err)
		for range i {
			rows.Next()
		}
		cancel()
		for rows.Next() {
		}
		rows.Close()
		if _, err := past.Query(ctx, "select 1"); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	}
	for range 8 {
		if got := column[string](t, pool, "select current_setting('search_path') || coalesce(current_setting('gnomon.place', true), '')")[0]; strings.Contains(got, "gnomon") {
			t.Fatalf("a session is left in the past: %s", got)
		}
		if n := column[int](t, pool, "select sum(n)::int from o")[0]; n != 409 {
			t.Errorf("today's sum is %d", n)
		}
	}
	for range 100 { // broken ones are closed in the background
		if pool.Stat().AcquiredConns() != 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if pool.Stat().AcquiredConns() != 0 {
		t.Errorf("%d connections are not given back", pool.Stat().AcquiredConns())
	}
}

// TestThePastIsReadOnly: whatever would write is refused, alike on a pool and in a transaction.
func TestThePastIsReadOnly(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	run(t, pool, "create sequence counter", "create function writes() returns int language plpgsql as 'begin delete from public.o; return 1; end'")
	tx := must[pgx.Tx](t)(pool.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for name, db := range map[string]gnomon.DB{"pool": pool, "tx": tx} {
		past := must[*gnomon.Past](t)(gnomon.New(db).At(t.Context(), then))
		for _, sql := range []string{
			"insert into o values (1, 2)", "update o set n = 0", "delete from o", "merge into public.o using (values (1)) s (id) on o.id = s.id when matched then delete", "truncate o", "truncate public.o", "delete from public.o", "select writes()",
			"create table public.made (id int)", "drop table public.o", "alter table public.o add x int", "select nextval('counter')", "with gone as (delete from public.o returning *) select * from gone", "refresh materialized view nothing",
			"select * from public.o for update", "comment on table public.o is 'x'", "grant select on public.o to public", "vacuum public.o",
		} {
			_, err := past.Exec(t.Context(), sql)
			if !errors.Is(err, gnomon.ErrReadOnly) && !(strings.HasPrefix(sql, "vacuum") && sqlState(err) == "25001") {
				t.Errorf("%s: %s says %v", name, sql, err)
			}
		}
		for _, sql := range []string{"set transaction read write", "set transaction_read_only = off"} {
			if _, err := past.Exec(t.Context(), sql); err == nil {
				t.Errorf("%s: %s is allowed", name, sql)
			}
		}
		if _, err := past.Exec(t.Context(), "select * from o for update"); err == nil {
			t.Errorf("%s: rows of the past are locked", name)
		}
	}
	if n := column[int](t, pool, "select sum(n)::int from o")[0]; n != 409 {
		t.Errorf("today's sum is %d", n)
	}
}

// TestThePastThroughAPooler: each transaction may meet another session.
func TestThePastThroughAPooler(t *testing.T) {
	t.Parallel()
	direct, then := pastOfO(t)
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), pgserver.Pooler(t, direct.Config().ConnString())))
	t.Cleanup(pool.Close)
	past := must[*gnomon.Past](t)(gnomon.New(pool).At(t.Context(), then))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				for name, reading := range readings {
					if name == "settings" { // sets what outlasts the transaction, were it not rolled back
						continue
					}
					if err := reading(t.Context(), past); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				var sum int
				if err := pool.QueryRow(t.Context(), "select sum(n) from o").Scan(&sum); err != nil || sum != 409 {
					t.Errorf("today's sum is %d, %v", sum, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestAHandleOutlastsChanges: while segments are rotated, sealed and pruned and the table is altered, those who read see the place, or that it is out of date.
func TestAHandleOutlastsChanges(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	config := pool.Config().Copy()
	config.MaxConns = 18
	wide := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(t.Context(), config))
	t.Cleanup(wide.Close)
	past := must[*gnomon.Past](t)(gnomon.New(wide).At(t.Context(), then))
	run(t, pool, "select annals.rotate(1, 0)", "select annals.seal_segments()", "select annals.rotate(1, 0)")
	recent := must[*gnomon.Past](t)(gnomon.New(wide).At(t.Context(), gnomon.Present))
	var done atomic.Bool
	var wg sync.WaitGroup
	var read, stale atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			for !done.Load() {
				var err error
				sum := 0
				switch i % 4 {
				case 0:
					if err = recent.QueryRow(t.Context(), "select sum(n)::int - 403 from o").Scan(&sum); err == nil {
						_, err = gnomon.List[map[string]any](t.Context(), recent, "public.o", "")
					}
				case 1:
					err = past.QueryRow(t.Context(), "select sum(n)::int from o").Scan(&sum)
				case 2:
					var row map[string]any
					if row, _, err = gnomon.Get[map[string]any](t.Context(), past, "public.o", 2); err == nil {
						sum = 4 + int(row["n"].(int32))
					}
				case 3:
					var list []map[string]any
					if list, err = gnomon.List[map[string]any](t.Context(), past, "public.o", "where id > 1"); err == nil {
						sum = 1
						for _, row := range list {
							sum += int(row["n"].(int32))
						}
					}
				}
				switch {
				case errors.Is(err, gnomon.ErrStale):
					stale.Add(1)
				case err != nil:
					t.Errorf("reader %d: %v", i, err)
					return
				case sum != 6:
					t.Errorf("reader %d: the sum is %d", i, sum)
					return
				default:
					read.Add(1)
				}
			}
		})
	}
	for i := range 3 {
		for _, sql := range []string{"update o set n = n + 1", "select annals.rotate(1, 0)", "select annals.seal_segments()", fmt.Sprintf("alter table o add c%d int", i), "update o set id = id + 100 where id < 100", "update o set id = id - 100 where id > 100", fmt.Sprintf("alter table o rename c%d to d%[1]d", i), "select annals.sync(1)"} {
			_, err := pool.Exec(t.Context(), sql)
			for sqlState(err) == "40P01" { // it had to give way to a reader
				_, err = pool.Exec(t.Context(), sql)
			}
			if err != nil && sqlState(err) != "55P03" {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	for read.Load() == 0 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d readings, %d out of date", read.Load(), stale.Load())
	run(t, pool, "select annals.sync(1)")
	if err := scanOne(past.QueryRow(t.Context(), "select sum(n) from o"), nil); err != nil {
		t.Errorf("in the end: %v", err)
	}
}

// TestReadersGiveWay: a reading that loses a deadlock to those who change its tables, one after the other, is done again until it is answered.
func TestReadersGiveWay(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table a (id int primary key, n int)", "create table b (id int primary key, n int)", "insert into a values (1, 1)", "insert into b values (1, 2)")
	track(t, g, "a")
	track(t, g, "b")
	then := must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
	run(t, pool, "update a set n = 10", "update b set n = 20")
	reader := connectAs(t, pool.Config().ConnString(), "")
	run(t, reader, "set deadlock_timeout = '500ms'")
	past := must[*gnomon.Past](t)(gnomon.New(reader).At(t.Context(), then))
	// Each holds b, and asks for a when the reader, which has that, waits for b.
	var all sync.WaitGroup
	for i := range 3 {
		writer := connectAs(t, pool.Config().ConnString(), "")
		run(t, writer, "set deadlock_timeout = '5s'", "begin")
		pid := reader.PgConn().PID()
		all.Go(func() {
			sql := fmt.Sprintf("do $$ begin lock table b; while not exists (select from pg_locks where pid = %d and relation = 'b'::regclass and not granted) loop perform pg_sleep(0.002); end loop; lock table a; end $$", pid)
			if _, err := writer.Exec(t.Context(), sql+"; commit", pgx.QueryExecModeSimpleProtocol); err != nil && sqlState(err) != "40P01" { // the reader looked for the deadlock too early
				t.Errorf("writer %d: %v", i, err)
			}
		})
		for text(t, pool, "select count(*) from pg_locks where relation = 'b'::regclass and mode = 'AccessExclusiveLock'") != fmt.Sprintf("(%d)", i+1) {
			time.Sleep(time.Millisecond)
		}
	}
	if got := text(t, past, "select (select sum(n) from a) + (select sum(n) from b)"); got != "(3)" {
		t.Errorf("the past is %s", got)
	}
	all.Wait()
}

// TestThePastInAnOldTransaction: a transaction that sees less than what history has become reads right, or learns that it cannot.
func TestThePastInAnOldTransaction(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"rotated": "select annals.rotate(1, 0)", "sealed": "select annals.rotate(1, 0); select annals.seal_segments()", "column added": "alter table o add c int default 1", "column dropped": "alter table o drop note",
		"renamed": "alter table o rename n to m", "updated": "update o set n = 0", "deleted": "delete from o", "untracked": "select gnomon.untrack('o')", "dropped history": "select gnomon.untrack('o', 'drop')",
		"pruned": "select annals.rotate(1, 0); select annals.seal_segments(); select annals.prune(1, 9223372036854775807)", "policies": "alter table o enable row level security; create policy p on o using (id > 1)", "type": "alter table o alter n type bigint",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, then := pastOfO(t)
			old := must[pgx.Tx](t)(pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
			defer old.Rollback(context.WithoutCancel(t.Context()))
			run(t, old, "select 1")
			for _, sql := range strings.Split(change, "; ") {
				run(t, pool, sql)
			}
			later := must[gnomon.Coordinate](t)(gnomon.New(pool).Now(t.Context())).Ref()
			for _, at := range []gnomon.Ref{then, later, gnomon.Present} {
				past, err := gnomon.New(old).At(t.Context(), at)
				if at == later && !errors.Is(err, gnomon.ErrNotYet) {
					// Where nothing was given an id, it is no later than what the transaction sees.
					if _, is := map[string]bool{"rotated": true, "sealed": true, "pruned": true}[name]; !is && err != nil {
						t.Errorf("a later place: %v", err)
					}
				}
				if err != nil {
					var e *gnomon.Error
					if !errors.As(err, &e) {
						t.Errorf("%s: %v", at, err)
					}
					continue
				}
				want := map[bool]int{true: 6, false: 409}[at == then]
				var sum int
				err = past.QueryRow(t.Context(), "select sum(n)::int from o").Scan(&sum)
				var e *gnomon.Error
				if err == nil && sum != want {
					t.Errorf("%s: the sum is %d, want %d", at, sum, want)
				} else if err != nil && !errors.As(err, &e) && sqlState(err) != "42703" && sqlState(err) != "42P01" {
					t.Errorf("%s: %v", at, err)
				}
				row, found, err := gnomon.Get[map[string]any](t.Context(), past, "public.o", 2)
				if err == nil && found != (at == then) {
					t.Errorf("%s: row 2 is %v", at, row)
				} else if err != nil && !errors.As(err, &e) {
					t.Errorf("%s: %v", at, err)
				}
			}
			run(t, old, "select 1")
		})
	}
}

// TestThePastInParallel: workers see the place, too.
func TestThePastInParallel(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table o (id int primary key, n int)", "insert into o select i, i from generate_series(1, 20000) i")
	track(t, g, "o")
	then := must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
	run(t, pool, "update o set n = 0 where id % 3 = 0", "delete from o where id % 5 = 0", "insert into o select i, i from generate_series(30000, 31000) i", "select annals.rotate(1, 0)", "update o set n = n + 1", "analyze")
	conn := connectAs(t, pool.Config().ConnString(), "")
	run(t, conn, "set max_parallel_workers_per_gather = 2", "set min_parallel_table_scan_size = 0", "set min_parallel_index_scan_size = 0", "set parallel_setup_cost = 0", "set parallel_tuple_cost = 0", "set parallel_leader_participation = off")
	past := must[*gnomon.Past](t)(gnomon.New(conn).At(t.Context(), then))
	plan := strings.Join(column[string](t, past, "explain select count(*), sum(n) from o"), "\n")
	if !strings.Contains(plan, "Gather") {
		t.Logf("no parallel plan:\n%s", plan)
	}
	if got := text(t, past, "select count(*), sum(n) from o"); got != "(20000,200010000)" {
		t.Errorf("the past is %s", got)
	}
	if got := text(t, past, "select count(*), sum(a.n) from o a join o b on b.id = a.n where b.n > 100"); got != "(19900,200004950)" {
		t.Errorf("the past is %s", got)
	}
}

// TestPreparedStatementsInThePast: one that was planned for good shows the place that is set, or says that it is out of date.
func TestPreparedStatementsInThePast(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	later := must[gnomon.Coordinate](t)(gnomon.New(pool).Now(t.Context())).Ref()
	conn := connectAs(t, pool.Config().ConnString(), "")
	at := func(ref gnomon.Ref) { run(t, conn, "select gnomon.at('"+string(ref)+"')") }
	sum := func() string {
		t.Helper()
		rows, err := conn.Query(t.Context(), "execute total(0)", pgx.QueryExecModeSimpleProtocol)
		var list []string
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return sqlState(err)
		}
		return list[0]
	}
	run(t, conn, "set plan_cache_mode = force_generic_plan")
	at(then)
	run(t, conn, "prepare total(int) as select sum(n)::text from o where id > $1")
	for _, change := range []string{"update o set n = n", "select annals.rotate(1, 0)", "select annals.seal_segments()", "alter table o add c int", "alter table o enable row level security"} {
		at(then)
		if got := sum(); got != "6" {
			t.Errorf("before %s the sum is %s", change, got)
		}
		at(later)
		if got := sum(); got != "409" {
			t.Errorf("before %s the later sum is %s", change, got)
		}
		run(t, pool, change)
		if got := sum(); got != "409" && got != "GN008" {
			t.Errorf("after %s the sum is %s", change, got)
		}
	}
	run(t, conn, "select gnomon.leave()")
	if got := sum(); got != "409" {
		t.Errorf("today the sum is %s", got)
	}
}

// TestADumpOfThePast: pg_dump and psql copy a database with its past. Places of the first are not places of the second.
func TestADumpOfThePast(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	run(t, pool, "create view totals as select sum(n) from o", "select annals.rotate(1, 0)", "update o set n = 1", "alter table o enable row level security", "create policy p on o using (id > 0)")
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "-d", pool.Config().ConnString()).CombinedOutput()
	if err != nil {
		if strings.Contains(string(dump), "server version mismatch") {
			t.Skip("pg_dump is older than the server")
		}
		t.Fatalf("%v: %s", err, dump)
	}
	there := pgserver.Pool(t)
	restore := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", there.Config().ConnString())
	restore.Stdin = strings.NewReader(string(dump))
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := gnomon.New(there).At(t.Context(), then); !errors.Is(err, gnomon.ErrEpoch) && !errors.Is(err, gnomon.ErrNotYet) {
		t.Errorf("a place of the first says %v", err)
	}
	run(t, there, "select annals.adopt()")
	g := gnomon.New(there)
	now := must[gnomon.Coordinate](t)(g.Now(t.Context())).Ref()
	run(t, there, "update o set n = 1000")
	past := must[*gnomon.Past](t)(g.At(t.Context(), now))
	if got := text(t, past, "select sum(n) from o"); got != "(3)" {
		t.Errorf("the past of the copy is %s", got)
	}
	if row, found, err := gnomon.Get[map[string]any](t.Context(), past, "public.o", 9); !found || err != nil || fmt.Sprint(row["n"]) != "1" {
		t.Errorf("row 9 is %v, %v, %v", row, found, err)
	}
}

// TestPlacesWithinPlaces: a place that is opened while the session is at another one is itself, and afterwards the session is where it was.
func TestPlacesWithinPlaces(t *testing.T) {
	t.Parallel()
	pool, then := pastOfO(t)
	run(t, pool, "select annals.rotate(1, 0)", "update o set n = n + 1", "select annals.seal_segments()", "select annals.rotate(1, 0)", "select annals.seal_segments()", "update o set n = n + 1 where id = 1")
	recent := must[gnomon.Coordinate](t)(gnomon.New(pool).Now(t.Context())).Ref()
	run(t, pool, "alter table o add c int default 5", "update o set n = 0")
	shaped := must[gnomon.Coordinate](t)(gnomon.New(pool).Now(t.Context())).Ref()
	run(t, pool, "update o set n = 1000")
	want := map[gnomon.Ref]string{then: "(6)", recent: "(413)", shaped: "(0)"}
	const sum = "select sum(n) from o"
	conn := connectAs(t, pool.Config().ConnString(), "")
	for outer := range want {
		for inner := range want {
			run(t, conn, "select gnomon.at('"+string(outer)+"')")
			past := must[*gnomon.Past](t)(gnomon.New(conn).At(t.Context(), inner))
			if got := text(t, past, sum); got != want[inner] {
				t.Errorf("%s within %s: %s, want %s", inner, outer, got, want[inner])
			}
			if got := text(t, conn, sum); got != want[outer] {
				t.Errorf("%s after %s: %s, want %s", outer, inner, got, want[outer])
			}
			if row, _, err := gnomon.Get[map[string]any](t.Context(), past, "public.o", 1); err != nil || row["n"].(int32) > 300 {
				t.Errorf("%v %v", row, err)
			}
			run(t, conn, "select gnomon.leave()")
			if got := text(t, past, sum); got != want[inner] {
				t.Errorf("%s afterwards: %s, want %s", inner, got, want[inner])
			}
			outside := must[*gnomon.Past](t)(gnomon.New(conn).At(t.Context(), outer))
			tx, err := outside.Begin(t.Context())
			ok(t, err)
			within := must[*gnomon.Past](t)(gnomon.New(tx).At(t.Context(), inner))
			if got := text(t, within, sum); got != want[inner] {
				t.Errorf("%s within a transaction at %s: %s, want %s", inner, outer, got, want[inner])
			}
			if got := text(t, tx, sum); got != want[outer] {
				t.Errorf("a transaction at %s after %s: %s, want %s", outer, inner, got, want[outer])
			}
			ok(t, tx.Rollback(t.Context()))
		}
	}
	if got := text(t, conn, sum); got != "(3000)" {
		t.Errorf("today: %s", got)
	}
}
