package gnomon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// The checker of branches: sessions count up on main and on branches, at every isolation level. Each transaction counts the same in two
// tables, so that whoever sees a part of one notices; what was counted is counted here, too, so that a lost update is noticed.

const (
	countKeys = 6 // keys of each table that are counted up; those from 10 to 15 are written on main only, those from 20 on come and go
	// branchTotals reads both tables in one statement.
	branchTotals = `select (select coalesce(sum(n), 0) from left_count where k < 10)::bigint, (select coalesce(sum(n), 0) from "Right" where k < 10)::bigint`
	branchRows   = `select coalesce(string_agg(q::text, E'\n' order by q::text collate "C"), '') from (select 'l' as of, k, n, w from left_count union all select 'r', k, n, w from "Right") q`
	mainOnly     = `select coalesce(string_agg(q::text, E'\n' order by q::text collate "C"), '') from (select * from left_count where k between 10 and 15 union all select * from "Right" where k between 10 and 15) q`
)

// A countedBranch is one of them, or main, which has no name.
type countedBranch struct {
	name    string
	logged  bool
	merges  bool                    // it is merged into main, or its parent, meanwhile, and brought up to date
	start   [countKeys]int64        // the counters where it began
	counted [countKeys]atomic.Int64 // what was committed since
	unknown [countKeys]atomic.Int64 // or perhaps was
	fixed   string                  // what it shows of rows that only main writes
	mu      sync.Mutex
	seen    []branchSeen
}

// branchSeen is what a logged branch showed at a coordinate.
type branchSeen struct{ at, rows string }

type countedWorld struct {
	branches []*countedBranch
	still    string // a branch that nobody writes any more
	rows     string // and what it shows
}

func newCountedWorld(t *testing.T, g *gnomon.Gnomon, pool *pgxpool.Pool) *countedWorld {
	t.Helper()
	ctx := t.Context()
	run(t, pool, "create table left_count (k int primary key, n bigint not null default 0, w text)", `create table "Right" (k int primary key, n bigint not null default 0, w text)`,
		"insert into left_count select k, 0, 'left' from generate_series(0, 25) k", `insert into "Right" select k, 0, 'right' from generate_series(0, 25) k`)
	track(t, g, "left_count", `"Right"`)
	w := &countedWorld{branches: []*countedBranch{{}}}
	for _, b := range []*countedBranch{{name: "net"}, {name: "logged", logged: true}, {name: "o'ther"}} {
		run(t, pool, fmt.Sprintf("select gnomon.create_branch(%s, 'now', %t)", literal(b.name), b.logged))
		w.branches = append(w.branches, b)
		// Main goes on, so that their bases differ.
		run(t, pool, `update left_count set n = n + 1, w = w || '.'; update "Right" set n = n + 1, w = w || '.'`)
	}
	run(t, pool, "begin; select gnomon.use('net', true); update left_count set n = n + 5 where k < 3; update \"Right\" set n = n + 5 where k < 3; commit",
		"select gnomon.create_branch('child', 'branch:net', true)", "select gnomon.create_branch('still', 'branch:net')")
	w.branches = append(w.branches, &countedBranch{name: "child", logged: true})
	w.still = "still"
	run(t, pool, "select gnomon.create_branch('feed')", "select gnomon.create_branch('feeder', 'branch:feed')")
	w.branches = append(w.branches, &countedBranch{name: "feed", merges: true}, &countedBranch{name: "feeder", merges: true})
	run(t, pool, "begin; select gnomon.use('still', true); update left_count set w = 'still' where k = 4; delete from \"Right\" where k = 22; insert into left_count values (90, 90, 'still'); commit")
	for _, b := range w.branches {
		for k, n := range countersOf(t, pool, b.name) {
			b.start[k] = n
		}
		if b.name != "" {
			b.fixed = shownOn(t, pool, b.name, mainOnly)
		}
	}
	w.rows = shownOn(t, pool, w.still, branchRows)
	_ = ctx
	return w
}

// shownOn reads one text on a branch, or on main.
func shownOn(t testing.TB, pool *pgxpool.Pool, name, sql string) (text string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	if name != "" {
		run(t, tx, fmt.Sprintf("select gnomon.use(%s, true)", literal(name)))
	}
	ok(t, tx.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

func countersOf(t testing.TB, pool *pgxpool.Pool, name string) (list [countKeys]int64) {
	t.Helper()
	var text string
	for i, table := range []string{"left_count", `"Right"`} {
		got := shownOn(t, pool, name, fmt.Sprintf("select string_agg(n::text, ' ' order by k) from %s where k < %d", table, countKeys))
		if i == 1 && got != text {
			t.Errorf("on branch %q the tables count differently: %s; %s", name, text, got)
		}
		text = got
	}
	var values []any
	for i := range list {
		values = append(values, &list[i])
	}
	if _, err := fmt.Sscan(text, values...); err != nil {
		t.Errorf("branch %q: %s: %v", name, text, err)
	}
	return list
}

// countedSession is one that writes and reads.
type countedSession struct {
	*countedWorld
	conn *pgx.Conn
	r    *rand.Rand
	id   int
	n    int
}

// expected are refusals that are a part of concurrent work. 42P01: a view was written anew just when a cascade was about to use it.
var expected = []string{"40001", "40P01", "55P03", "23505", "GN008", "AN002", "42P01"}

// transaction runs one; how tells how it ended.
func (s *countedSession) transaction(ctx context.Context) (how string, err error) {
	level := []string{"read committed", "repeatable read", "serializable"}[s.r.IntN(3)]
	b := s.branches[s.r.IntN(len(s.branches))]
	exec := func(sql string) error {
		_, err := s.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := exec("begin isolation level " + level); err != nil {
		return "", err
	}
	defer func() {
		if s.conn.PgConn().TxStatus() != 'I' {
			_ = exec("rollback")
		}
	}()
	if b.name != "" {
		if err := exec(fmt.Sprintf("select gnomon.use(%s, true)", literal(b.name))); err != nil {
			return "", err
		}
	}
	var left, right int64
	if err := s.conn.QueryRow(ctx, branchTotals).Scan(&left, &right); err != nil {
		return "", fmt.Errorf("totals: %w", err)
	}
	if left != right {
		return "", fmt.Errorf("%s on %q: a part of a transaction is seen: %d and %d", level, b.name, left, right)
	}
	if b.name != "" && !b.merges {
		var text string
		if err := s.conn.QueryRow(ctx, mainOnly).Scan(&text); err != nil {
			return "", fmt.Errorf("untouched rows: %w", err)
		}
		if text != b.fixed {
			return "", fmt.Errorf("%s on %q: rows that nobody wrote there changed:\n%s\nwere\n%s", level, b.name, text, b.fixed)
		}
	}
	if b.logged && level != "read committed" && s.r.IntN(3) == 0 {
		var seen branchSeen
		if err := s.conn.QueryRow(ctx, "select gnomon.now(), ("+branchRows+")").Scan(&seen.at, &seen.rows); err != nil {
			return "", fmt.Errorf("rows: %w", err)
		}
		b.mu.Lock()
		b.seen = append(b.seen, seen)
		b.mu.Unlock()
	}
	var added [countKeys]int64
	for range 1 + s.r.IntN(3) {
		k := s.r.IntN(countKeys)
		var sql string
		counts := int64(0)
		switch n := s.r.IntN(10); {
		case n < 5:
			sql, counts = fmt.Sprintf(`update left_count set n = n + 1 where k = %[1]d; update "Right" set n = n + 1 where k = %[1]d`, k), 1
		case n < 6: // the row goes and comes back
			sql, counts = fmt.Sprintf(`with gone as (delete from left_count where k = %[1]d returning n) insert into "Right" (k, n) select 1000 + %[2]d, n from gone; insert into left_count select %[1]d, n + 2, 'back' from "Right" where k = 1000 + %[2]d; delete from "Right" where k = 1000 + %[2]d; update "Right" set n = n + 2 where k = %[1]d`, k, s.id*1000000+s.n), 2
		case n < 7:
			sql = fmt.Sprintf(`insert into left_count values (%d, 0, 'new')`, 20+s.r.IntN(10))
		case n < 8:
			sql = fmt.Sprintf(`delete from "Right" where k = %d`, 20+s.r.IntN(10))
		case n < 9:
			sql = fmt.Sprintf(`update left_count set k = %d, w = 'moved' where k = %d`, 20+s.r.IntN(10), 20+s.r.IntN(10))
		default:
			sql = fmt.Sprintf(`update left_count set w = 'set %d' where k >= 20`, s.n)
		}
		if b.name == "" && s.r.IntN(3) == 0 {
			sql += fmt.Sprintf(`; update left_count set n = n + 100, w = 'main %[1]d' where k = %[2]d; update "Right" set n = n + 100 where k = %[2]d`, s.n, 10+s.r.IntN(6))
		}
		lost := s.r.IntN(5) == 0
		if lost {
			sql = "savepoint s; " + sql + "; rollback to s"
		}
		if s.r.IntN(6) == 0 {
			time.Sleep(time.Duration(s.r.IntN(15)) * time.Millisecond)
		}
		if err := exec(sql); err != nil {
			return "", fmt.Errorf("%s: %w", sql, err)
		}
		if !lost {
			added[k] += counts
		}
	}
	if s.r.IntN(8) == 0 {
		return "rollback", exec("rollback")
	}
	for k, n := range added {
		b.unknown[k].Add(n)
	}
	err = exec("commit")
	if err == nil {
		for k, n := range added {
			b.counted[k].Add(n)
		}
	}
	if err == nil || sqlState(err) == "40001" { // else it may have been committed, and nobody was told
		for k, n := range added {
			b.unknown[k].Add(-n)
		}
	}
	return "commit", err
}

const countedRules = `{"strategies": {"public.left_count": {"*": "ours", "n": "sum"}, "public.\"Right\"": {"*": "ours", "n": "sum"}}, "conflicts": "keep"}`

// flow merges what is counted on a branch into main, by way of another one, or brings that up to date.
func (s *countedSession) flow(ctx context.Context) (how string, err error) {
	sql := []string{"select m.status from gnomon.merge('feed', null, $1) m", "select m.status from gnomon.merge('feeder', 'feed', $1) m", "select m.status from gnomon.refresh_branch('feed', 'now', $1) m"}[s.r.IntN(3)]
	var status string
	err = pgx.BeginTxFunc(ctx, s.conn, pgx.TxOptions{IsoLevel: []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[s.r.IntN(3)]}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql, countedRules).Scan(&status)
	})
	if err == nil && status != "merged" {
		err = fmt.Errorf("%s: %s", sql, status)
	}
	return "flow", err
}

// fork makes a branch of a branch, which shows one moment of it.
func (s *countedSession) fork(ctx context.Context) error {
	parent := s.branches[1+s.r.IntN(len(s.branches)-1)]
	name := fmt.Sprintf("fork %d %d %d", s.id, s.n, s.r.Uint32())
	if _, err := s.conn.Exec(ctx, "select gnomon.create_branch($1, $2)", name, "branch:"+parent.name); err != nil {
		return err
	}
	var left, right int64
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select gnomon.use($1, true)", name); err != nil {
			return err
		}
		return tx.QueryRow(ctx, branchTotals).Scan(&left, &right)
	})
	if err == nil && left != right {
		err = fmt.Errorf("a branch of %q was made of parts of transactions: %d and %d", parent.name, left, right)
	}
	if err != nil {
		return err
	}
	_, err = s.conn.Exec(ctx, "select gnomon.drop_branch($1)", name)
	return err
}

// sawLogged reports whether something was seen on a logged branch, so that it can be replayed.
func (w *countedWorld) sawLogged() bool {
	return slices.ContainsFunc(w.branches, func(b *countedBranch) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.seen) > 0
	})
}

// enoughCommits is what sessions get done at least, however long that takes.
const enoughCommits = 10

// work lets sessions work for a time, and until enough of it is done. Then kill, which may be nil, kills the server.
func (w *countedWorld) work(t *testing.T, pool *pgxpool.Pool, r *rand.Rand, duration time.Duration, kill func() error) {
	t.Helper()
	running, stop := context.WithCancel(t.Context())
	defer stop()
	var killed atomic.Bool
	var mu sync.Mutex
	done := map[string]int{}
	began := time.Now()
	var all sync.WaitGroup
	for i := range 8 {
		s := &countedSession{countedWorld: w, r: rand.New(rand.NewPCG(r.Uint64(), uint64(i))), id: i}
		all.Go(func() {
			defer stop() // one that fails ends the others
			config := pool.Config().ConnConfig.Copy()
			config.DefaultQueryExecMode = pgx.QueryExecModeExec
			config.RuntimeParams["lock_timeout"] = "2s" // less, and slow machines get nothing done but wait
			config.RuntimeParams["deadlock_timeout"] = "20ms"
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			s.conn = conn
			for running.Err() == nil && !killed.Load() {
				s.n++
				var how string
				var err error
				if i == 0 && s.r.IntN(3) == 0 {
					how, err = "fork", s.fork(t.Context())
				} else if i < 3 && s.r.IntN(2) == 0 {
					how, err = s.flow(t.Context())
				} else {
					how, err = s.transaction(t.Context())
				}
				if err != nil {
					how = sqlState(err)
					if !killed.Load() && !slices.Contains(expected, how) {
						t.Errorf("session %d: %v", i, err)
						return
					}
				}
				mu.Lock()
				done[how]++
				if done["commit"] >= enoughCommits && w.sawLogged() && time.Since(began) >= duration {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	all.Go(func() { // meanwhile segments are closed, and the branch that nobody writes is read
		for running.Err() == nil && !killed.Load() {
			time.Sleep(400 * time.Millisecond)
			for _, sql := range []string{fmt.Sprintf("select annals.rotate(%d, 0)", 1+rand.IntN(2)), "select annals.seal_segments()", "select gnomon.heartbeat('20 ms')"} {
				if _, err := pool.Exec(t.Context(), sql); err != nil && !killed.Load() && !slices.Contains([]string{"55P03", "40P01"}, sqlState(err)) {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if !killed.Load() && kill == nil {
				if rows := shownOn(t, pool, w.still, branchRows); rows != w.rows {
					t.Errorf("a branch that nobody writes changed:\n%s\nwas\n%s", rows, w.rows)
				}
			}
		}
	})
	if kill != nil {
		<-running.Done()
		killed.Store(true)
		ok(t, kill())
	}
	all.Wait()
	t.Logf("transactions: %v", done)
}

// verify compares what there is with what was counted and seen.
func (w *countedWorld) verify(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	// What flows into main has all arrived.
	run(t, pool, "select gnomon.merge('feeder', 'feed', '"+countedRules+"')", "select gnomon.merge('feed', null, '"+countedRules+"')")
	for _, b := range w.branches {
		for k, n := range countersOf(t, pool, b.name) {
			if b.merges {
				continue
			}
			least := b.start[k] + b.counted[k].Load()
			most := least + b.unknown[k].Load()
			for _, feed := range w.branches {
				if b.name == "" && feed.merges {
					least += feed.counted[k].Load()
					most += feed.counted[k].Load() + feed.unknown[k].Load()
				}
			}
			if n < least || n > most {
				t.Errorf("branch %q, key %d: %d, want %d to %d", b.name, k, n, least, most)
			}
		}
		if b.name != "" && !b.merges {
			if got := shownOn(t, pool, b.name, mainOnly); got != b.fixed {
				t.Errorf("branch %q: rows that nobody wrote there changed:\n%s\nwere\n%s", b.name, got, b.fixed)
			}
		}
	}
	if rows := shownOn(t, pool, w.still, branchRows); rows != w.rows {
		t.Errorf("a branch that nobody writes changed:\n%s\nwas\n%s", rows, w.rows)
	}
}

// replay makes branches of what logged branches were, which show what was seen.
func (w *countedWorld) replay(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	n := 0
	for _, b := range w.branches {
		for i, seen := range b.seen {
			if i%(1+len(b.seen)/15) != 0 {
				continue
			}
			name := fmt.Sprintf("%s as of %d", b.name, i)
			run(t, pool, fmt.Sprintf("select gnomon.create_branch(%s, %s, p_at => %s)", literal(name), literal("branch:"+b.name), literal(seen.at)))
			if rows := shownOn(t, pool, name, branchRows); rows != seen.rows {
				t.Errorf("branch %q at %s:\n%s\nwas\n%s", b.name, seen.at, rows, seen.rows)
			}
			run(t, pool, fmt.Sprintf("select gnomon.drop_branch(%s)", literal(name)))
			n++
		}
	}
	if n == 0 {
		t.Error("nothing was seen on logged branches")
	}
	t.Logf("%d states of logged branches", n)
}

// TestSessionsOnBranches: sessions write main and branches at every isolation level. No update is lost, no transaction is seen in part, also by
// branches that are made meanwhile; what nobody wrote on a branch is what it was where the branch began; and a logged branch can be had as it was.
func TestSessionsOnBranches(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	r := checkerRandom(t)
	w := newCountedWorld(t, g, pool)
	duration := *checkerTime
	if testing.Short() {
		duration = min(duration, time.Second)
	}
	w.work(t, pool, r, duration, nil)
	w.verify(t, pool)
	w.replay(t, pool)
}
