package gnomon_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

var (
	checkerTime = flag.Duration("checker.time", 4*time.Second, "how long the sessions of the checker work")
	checkerSeed = flag.Uint64("checker.seed", 0, "seed of the checker; 0: any")
)

// checkerRandom returns the source of all that is random in a test.
func checkerRandom(t *testing.T) *rand.Rand {
	seed := *checkerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-checker.seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A sighting is what a session read at one coordinate.
type sighting struct {
	at     gnomon.Ref
	tag    string // set there, if it was
	texts  map[string]string
	tables map[*checkerTable][]map[string]any // all rows, in the order of the key
	points []pointSeen
}

type pointSeen struct {
	table *checkerTable
	key   []string
	row   map[string]any // nil: there was none
}

// A journal is what sessions saw.
type journal struct {
	*checkerWorld
	pool   *pgxpool.Pool
	killed atomic.Bool // the server was: errors mean nothing any more

	mu   sync.Mutex
	seen []sighting
	done map[string]int // how transactions ended
}

const asText = `select coalesce(string_agg(q::text, E'\n' order by q::text collate "C"), '') from (%s) q`

// work lets sessions write and read for a time, at every isolation level, and returns at most so many sightings.
func (w *checkerWorld) work(t *testing.T, pool *pgxpool.Pool, duration time.Duration, most int, background ...func(*journal)) *journal {
	t.Helper()
	j := &journal{checkerWorld: w, pool: pool, done: map[string]int{}}
	running, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	began := time.Now()
	wanted := func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return float64(len(j.seen)) < float64(most)*float64(time.Since(began))/float64(duration)
	}
	var all sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(w.random.Uint64(), uint64(i)))
		all.Go(func() {
			config := pool.Config().ConnConfig.Copy()
			config.DefaultQueryExecMode = pgx.QueryExecModeExec // tables get other columns
			config.RuntimeParams["lock_timeout"] = "300ms"
			config.RuntimeParams["deadlock_timeout"] = "20ms"
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			for n := 0; running.Err() == nil && !j.killed.Load(); n++ {
				how, err := j.transaction(t.Context(), conn, r, fmt.Sprintf("checker %d %d %d", i, n, r.Uint64()), wanted())
				if err != nil && !j.killed.Load() && !slices.Contains([]string{"40001", "40P01", "23505", "23503", "55P03", "AN002", "21000", "53400", "55000"}, sqlState(err)) {
					t.Errorf("session %d: %v", i, err)
					return
				}
				if err != nil {
					how = sqlState(err)
				}
				j.mu.Lock()
				j.done[how]++
				j.mu.Unlock()
			}
		})
	}
	for _, work := range background {
		all.Go(func() {
			for running.Err() == nil && !j.killed.Load() {
				work(j)
			}
		})
	}
	all.Wait()
	return j
}

// transaction runs one. Only before its first write it reads what a coordinate can tell.
func (j *journal) transaction(ctx context.Context, conn *pgx.Conn, r *rand.Rand, name string, wanted bool) (how string, err error) {
	level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[r.IntN(3)]
	write := func(sql string) error {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := write("begin isolation level " + string(level)); err != nil {
		return "", err
	}
	defer func() {
		if conn.PgConn().TxStatus() != 'I' {
			_ = write("rollback")
		}
	}()
	if wanted {
		s, err := j.look(ctx, conn, r, level)
		if err != nil {
			return "", err
		}
		if level != pgx.ReadCommitted && r.IntN(3) == 0 {
			if _, err := conn.Exec(ctx, "select gnomon.tag($1)", name); err != nil {
				return "", err
			}
			if err := write("commit"); err != nil {
				return "", err
			}
			s.tag = name
		}
		j.mu.Lock()
		j.seen = append(j.seen, s)
		j.mu.Unlock()
		if s.tag != "" {
			return "tag", nil
		}
	}
	for range 1 + r.IntN(4) {
		saved := r.IntN(3) == 0
		if saved {
			if err := write("savepoint s"); err != nil {
				return "", err
			}
		}
		err := write(j.statement(r))
		switch {
		case saved && (err != nil || r.IntN(3) == 0):
			if err := write("rollback to s"); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		}
		if r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
	switch n := r.IntN(20); {
	case n < 3:
		return "rollback", write("rollback")
	case n == 3:
		if err := write("prepare transaction '" + name + "'"); err != nil {
			return "", err
		}
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		how := []string{"commit", "rollback"}[r.IntN(4)/3]
		return how + " prepared", write(how + " prepared '" + name + "'")
	default:
		return "commit", write("commit")
	}
}

// look reads at one coordinate: in a REPEATABLE READ transaction several times, else in one statement.
func (j *journal) look(ctx context.Context, conn *pgx.Conn, r *rand.Rand, level pgx.TxIsoLevel) (sighting, error) {
	s := sighting{texts: map[string]string{}, tables: map[*checkerTable][]map[string]any{}}
	if level == pgx.ReadCommitted {
		sql := j.query(r)
		var text string
		err := conn.QueryRow(ctx, "select gnomon.now(), ("+fmt.Sprintf(asText, sql)+")").Scan(&s.at, &text)
		s.texts[sql] = text
		return s, err
	}
	// A table that is truncated is empty for older snapshots as well: so all are locked before the snapshot is taken.
	var names []string
	for _, table := range j.checkerWorld.tables {
		names = append(names, table.name)
	}
	if _, err := conn.Exec(ctx, "lock table "+strings.Join(names, ", ")+" in access share mode", pgx.QueryExecModeSimpleProtocol); err != nil {
		return s, err
	}
	if err := conn.QueryRow(ctx, "select gnomon.now()").Scan(&s.at); err != nil {
		return s, err
	}
	for range 1 + r.IntN(3) {
		sql := j.query(r)
		var text string
		if err := conn.QueryRow(ctx, fmt.Sprintf(asText, sql)).Scan(&text); err != nil {
			return s, err
		}
		s.texts[sql] = text
	}
	table := j.checkerWorld.tables[r.IntN(len(j.checkerWorld.tables))]
	p := pointSeen{table: table, key: table.kind.write(r, r.IntN(checkerKeys))}
	list, err := mapsOf(ctx, conn, "select * from "+table.name+" where "+table.equal(p.key))
	if err != nil {
		return s, err
	}
	if len(list) > 0 {
		p.row = list[0]
	}
	s.points = append(s.points, p)
	if r.IntN(2) == 0 {
		table := j.checkerWorld.tables[r.IntN(len(j.checkerWorld.tables))]
		s.tables[table], err = mapsOf(ctx, conn, "select * from "+table.name+" order by "+strings.Join(table.key, ", "))
	}
	return s, err
}

func mapsOf(ctx context.Context, db gnomon.DB, sql string) ([]map[string]any, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToMap)
}

// replay reads at ref what was seen, and tells what differs.
func (s *sighting) replay(ctx context.Context, g *gnomon.Gnomon, ref gnomon.Ref) error {
	past, err := g.At(ctx, ref)
	if err != nil {
		return err
	}
	differs := func(what string, got, want any) error {
		return fmt.Errorf("at %s %s:\n%v\nwas:\n%v", ref, what, got, want)
	}
	for sql, want := range s.texts {
		var got string
		if err := past.QueryRow(ctx, fmt.Sprintf(asText, sql)).Scan(&got); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		if got != want {
			return differs(sql, got, want)
		}
	}
	for _, p := range s.points {
		key := make([]any, len(p.key))
		for i, value := range p.key {
			key[i] = value
		}
		got, found, err := gnomon.Get[map[string]any](ctx, past, p.table.name, key...)
		if err != nil {
			return fmt.Errorf("Get %s %q: %w", p.table.name, p.key, err)
		}
		if found != (p.row != nil) || !reflect.DeepEqual(got, p.row) {
			return differs(fmt.Sprintf("Get %s %q", p.table.name, p.key), got, p.row)
		}
	}
	for table, want := range s.tables {
		got, err := gnomon.List[map[string]any](ctx, past, table.name, "order by "+strings.Join(table.key, ", "))
		if err != nil {
			return fmt.Errorf("List %s: %w", table.name, err)
		}
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			return differs("List "+table.name, got, want)
		}
	}
	return nil
}

// replayAll replays what was seen, at coordinates, and at tags.
func (j *journal) replayAll(t *testing.T, g *gnomon.Gnomon) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(j.seen) || t.Failed() {
					return
				}
				s := &j.seen[i]
				if err := s.replay(t.Context(), g, s.at); err != nil {
					t.Errorf("%v", err)
				}
				if s.tag != "" {
					if err := s.replay(t.Context(), g, gnomon.AtTag(s.tag)); err != nil {
						t.Errorf("tag %s: %v", s.tag, err)
					}
				}
			}
		})
	}
	all.Wait()
}

// TestConcurrentSessionsReplay: sessions work at every isolation level, with triggers, cascades, partitions, keys of many types,
// prepared transactions and truncation, while segments rotate, ticks are noted, a column is added and the past is read. Whatever
// a session read at a coordinate is read there later, exactly; the changes between coordinates have neither gaps nor
// duplicates; and positions never go backwards along a row.
func TestConcurrentSessionsReplay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	r := checkerRandom(t)
	w := newCheckerWorld(t, g, pool, r)
	duration, least := *checkerTime, 50
	if testing.Short() {
		duration, least = min(duration, time.Second), 10
	}
	begin := must[gnomon.Coordinate](t)(g.Now(ctx))
	feed := newFollower(t, w, pool)
	most := int(25 * duration / time.Second)
	var replayed, stale atomic.Int64
	altered := false
	altering := time.Now().Add(duration / 2)
	j := w.work(t, pool, duration, most, beating(t), rotation(t),
		func(j *journal) { // the past is read meanwhile
			time.Sleep(10 * time.Millisecond)
			j.mu.Lock()
			var s *sighting
			if len(j.seen) > 0 {
				s = &j.seen[rand.IntN(len(j.seen))]
			}
			j.mu.Unlock()
			if s == nil {
				return
			}
			switch err := s.replay(ctx, g, s.at); {
			case errors.Is(err, gnomon.ErrStale) || slices.Contains([]string{"42P01", "55P03", "40P01"}, sqlState(err)):
				stale.Add(1)
			case err != nil:
				t.Errorf("meanwhile: %v", err)
			default:
				replayed.Add(1)
			}
		},
		func(j *journal) { // a table gets another column
			time.Sleep(20 * time.Millisecond)
			if !altered && time.Now().After(altering) {
				altered = j.alter(t)
			}
		})
	t.Logf("%d sightings, %d replayed meanwhile (%d in vain), transactions: %v; %d segments, %d entries, altered: %t", len(j.seen), replayed.Load(), stale.Load(), j.done,
		column[int](t, pool, "select count(*) from annals.segment")[0], column[int64](t, pool, "select last_value from annals.v")[0], altered)
	if t.Failed() {
		return
	}
	if len(j.seen) < most/3 || j.done["commit"] < least {
		t.Error("the sessions got too little done")
	}
	j.replayAll(t, g)
	feed.follow(t, g, begin, j.chain(t, begin))
	j.positionsRise(t)
}

// alter adds a column. Where it meets those who read the past its views may stay behind, which is said, and mended.
func (j *journal) alter(t *testing.T) (altered bool) {
	ctx := t.Context()
	var behind, unfollowed bool
	config := j.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["lock_timeout"] = "200ms"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		behind = behind || strings.Contains(n.Message, "view was not replaced")
		unfollowed = unfollowed || strings.Contains(n.Message, "could not follow")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	ok(t, err)
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	ok(t, err)
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "alter table wide add column added int default 7"); err != nil || unfollowed {
		return false
	}
	ok(t, tx.Commit(ctx))
	for behind {
		if _, err := conn.Exec(ctx, "select annals.sync(5)"); err == nil {
			break
		} else if !slices.Contains([]string{"55P03", "40P01"}, sqlState(err)) {
			t.Errorf("sync: %v", err)
		}
	}
	t.Logf("a column was added, the views stayed behind: %t", behind)
	return true
}

// beating notes times.
func beating(t *testing.T) func(*journal) {
	return func(j *journal) {
		time.Sleep(20 * time.Millisecond)
		if _, err := j.pool.Exec(t.Context(), "select gnomon.heartbeat('20 ms')"); err != nil && !j.killed.Load() {
			t.Errorf("heartbeat: %v", err)
		}
	}
}

// rotation begins new segments and seals those that are closed.
func rotation(t *testing.T) func(*journal) {
	return func(j *journal) {
		time.Sleep(300 * time.Millisecond)
		for _, sql := range []string{fmt.Sprintf("select annals.rotate(%d, 0)", 1+rand.IntN(len(j.checkerWorld.tables))), "select annals.seal_segments()"} {
			if _, err := j.pool.Exec(t.Context(), sql); err != nil && !j.killed.Load() && !slices.Contains([]string{"55P03", "40P01"}, sqlState(err)) {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
}

// chain returns some coordinates that were seen, each later than the one before.
func (j *journal) chain(t *testing.T, begin gnomon.Coordinate) (list []gnomon.Ref) {
	t.Helper()
	last := begin.Ref()
	for i := 0; i < len(j.seen); i += 1 + len(j.seen)/10 {
		if at := j.seen[i].at; column[bool](t, j.pool, "select annals.snapshot_covers(annals.coordinate_snapshot($1), annals.coordinate_snapshot($2))", at, last)[0] {
			list, last = append(list, at), at
		}
	}
	return append(list, gnomon.Present)
}

// positionsRise fails the test where the order of entries along a row is not that of its commits.
func (j *journal) positionsRise(t *testing.T) {
	t.Helper()
	for i, table := range j.checkerWorld.tables {
		id := i + 1
		var keys []string
		for k := range table.key {
			keys = append(keys, fmt.Sprintf("c%d", k+1))
		}
		n := fmt.Sprintf("c%d", len(keys)+1)
		bad := text(t, j.pool, fmt.Sprintf(`
			with e as (select *, min(v) over (partition by %[1]s, epoch, xid) as first, max(v) over (partition by %[1]s, epoch, xid) as last from annals.h%[3]d),
			o as (select *, row_number() over w as nr, count(*) filter (where op in ('i', 'n')) over w as life, lag(row(epoch, xid)) over w as xid_before, lag(last) over w as last_before from e
				window w as (partition by %[1]s order by first, start, case op when 'm' then 1 when 'i' then 2 when 'n' then 2 else 0 end, v)),
			b as (select *, max(%[2]s) over (partition by %[1]s, life order by nr rows between unbounded preceding and 1 preceding) as before from o)
			select %[1]s, v, xid, op, %[2]s, before, last_before from b where %[2]s < before or row(epoch, xid) <> xid_before and v < last_before limit 5`, strings.Join(keys, ", "), n, id))
		if bad != "" {
			t.Errorf("positions of %s go backwards:\n%s", table.name, bad)
		}
	}
}

// A follower is the state that one gets who has a copy of the tables and follows their changes.
type follower struct {
	*checkerWorld
	pool  *pgxpool.Pool
	state map[string]map[string]rowImage // by table and key
}

type rowImage map[string]*string

func (f *follower) relation(table *checkerTable) string { return checkerSchema + "." + table.name }

func newFollower(t *testing.T, w *checkerWorld, pool *pgxpool.Pool) *follower {
	t.Helper()
	f := &follower{checkerWorld: w, pool: pool}
	f.state = f.copies(t, pool)
	return f
}

// copies reads all tables.
func (f *follower) copies(t *testing.T, db gnomon.DB) map[string]map[string]rowImage {
	t.Helper()
	state := map[string]map[string]rowImage{}
	for _, table := range f.tables {
		name := f.relation(table)
		state[name] = map[string]rowImage{}
		rows, err := db.Query(t.Context(), "select * from "+table.name, pgx.QueryResultFormats{pgx.TextFormatCode}, pgx.QueryExecModeExec)
		ok(t, err)
		for rows.Next() {
			row := rowImage{}
			for i, value := range rows.RawValues() {
				if value == nil {
					row[rows.FieldDescriptions()[i].Name] = nil
				} else {
					text := string(value)
					row[rows.FieldDescriptions()[i].Name] = &text
				}
			}
			row = row.plain()
			state[name][row.key(table)] = row
		}
		ok(t, rows.Err())
	}
	return state
}

// plain is the image without generated columns, which changes do not tell, and those that are added and dropped.
func (row rowImage) plain() rowImage {
	row = maps.Clone(row)
	delete(row, "g")
	delete(row, "added")
	delete(row, "dropped")
	return row
}

func (row rowImage) key(table *checkerTable) string {
	var list []string
	for _, name := range table.key {
		list = append(list, *row[strings.Trim(name, `"`)])
	}
	return strings.Join(list, "\x00")
}

// follow carries out the changes between places, one after the other. Each must meet the row as it was.
func (f *follower) follow(t *testing.T, g *gnomon.Gnomon, from gnomon.Coordinate, to []gnomon.Ref) {
	t.Helper()
	last, count := from.Ref(), 0
	var names []string
	for _, table := range f.tables {
		if f.plain(table) {
			names = append(names, f.relation(table))
		}
	}
	for _, ref := range to {
		past := must[*gnomon.Past](t)(g.At(t.Context(), ref))
		ref = past.Coordinate().Ref()
		rows, err := f.pool.Query(t.Context(), "select v, relation, operation, key, new_key, old, new from gnomon.changes($1, $2, $3::text[]::regclass[])", last, ref, names)
		ok(t, err)
		var v int64
		var relation, operation string
		var key, newKey []string
		var before, after rowImage
		_, err = pgx.ForEachRow(rows, []any{&v, &relation, &operation, &key, &newKey, &before, &after}, func() error {
			count++
			i := slices.IndexFunc(f.tables, func(table *checkerTable) bool { return f.relation(table) == relation })
			if i < 0 {
				return fmt.Errorf("unknown table %s", relation)
			}
			table, state, at := f.tables[i], f.state[relation], strings.Join(key, "\x00")
			met, exists := state[at]
			if (operation == "insert") == exists || operation != "insert" && !reflect.DeepEqual(met, before.plain()) {
				return fmt.Errorf("%s of %s %q, at %d, meets %v, not %v", operation, relation, key, v, met.text(), before.text())
			}
			delete(state, at)
			if operation == "insert" || operation == "update" {
				row := after.plain()
				if row == nil {
					return fmt.Errorf("%s of %s %q, at %d, does not tell the new row", operation, relation, key, v)
				}
				if _, taken := state[row.key(table)]; taken {
					return fmt.Errorf("%s of %s %q, at %d, arrives where a row is", operation, relation, key, v)
				}
				state[row.key(table)] = row
			}
			return nil
		})
		if err != nil {
			t.Errorf("changes from %s to %s: %v", last, ref, err)
			f.explain(t, relation, key)
			return
		}
		want := f.copies(t, past)
		for _, name := range names {
			if !reflect.DeepEqual(f.state[name], want[name]) {
				t.Errorf("who follows the changes to %s has %s as %v, not %v", ref, name, imagesText(f.state[name]), imagesText(want[name]))
				return
			}
		}
		last = ref
	}
	t.Logf("followed %d changes over %d places", count, len(to))
}

// explain logs what history holds of a key.
func (f *follower) explain(t *testing.T, relation string, key []string) {
	i := slices.IndexFunc(f.tables, func(table *checkerTable) bool { return f.relation(table) == relation })
	if i < 0 || len(key) != len(f.tables[i].key) {
		return
	}
	t.Logf("history of %s %q:\n%s", relation, key, text(t, f.pool, fmt.Sprintf("select h.* from annals.h%d h where %s order by v", i+1, strings.NewReplacer(`"k0"`, "c1", `"k1"`, "c2").Replace(f.tables[i].equal(key)))))
}

func (row rowImage) text() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(row)) {
		value := "null"
		if row[name] != nil {
			value = *row[name]
		}
		list = append(list, name+"="+value)
	}
	return strings.Join(list, " ")
}

func imagesText(state map[string]rowImage) string {
	var list []string
	for _, row := range state {
		list = append(list, row.text())
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}
