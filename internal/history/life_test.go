package history_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// What a snapshot sees has no position above its upper bound, whatever ran at the time.
func TestUpperBoundIsAboveAllThatASnapshotSees(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key, x int)")
	id := track(t, pool, "t", "{}")
	until := time.Now().Add(time.Second)
	var writers sync.WaitGroup
	for i := range 3 {
		conn := session(t, pool)
		writers.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				// Positions are taken long after transaction ids, and long before the commit.
				if _, err := conn.Exec(t.Context(), fmt.Sprintf("begin; select pg_current_xact_id(); select pg_sleep(0.00%d); insert into t values (%d); select pg_sleep(0.00%d); commit", n%4, i*100_000+n, (n+i)%5)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ticker := session(t, pool)
	writers.Go(func() {
		for time.Now().Before(until) {
			if _, err := ticker.Exec(t.Context(), "select annals.tick()"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var coordinates []string
	for time.Now().Before(until) {
		coordinates = append(coordinates, one[string](t, pool, "select annals.coordinate()"))
	}
	writers.Wait()
	for range 1000 { // transactions of other tests may run
		exec(t, pool, "select annals.tick()")
		if one[*int64](t, pool, "select annals.upper_bound(annals.coordinate_snapshot($1))", coordinates[len(coordinates)-1]) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	wrong := many[string](t, pool, fmt.Sprintf(`select format('%%s sees %%s, its bound is %%s', c, max(h.v), annals.upper_bound(s::text::pg_snapshot)) from unnest($1::text[]) c, annals.coordinate_snapshot(c) s, annals.h%d h
		where pg_visible_in_snapshot(h.xid, s) group by c, s::text having max(h.v) > coalesce(annals.upper_bound(s::text::pg_snapshot), 0)`, id), coordinates)
	if len(wrong) > 0 {
		t.Errorf("%d of %d: %s", len(wrong), len(coordinates), wrong[0])
	}
}

// Ticks that may have taken their position before an entry that a snapshot sees are no bound for it.
func TestUpperBoundPassesOverTicksThatMayBeOlder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second string }{
		"the first does not see it":                        {"'%[1]s:%[2]s:%[1]s'", "'%[3]s:%[3]s:'"},
		"the second may have begun before the first ended": {"'%[3]s:%[3]s:'", "'%[2]s:%[3]s:%[2]s'"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := installed(t)
			exec(t, pool, "create table t (id int primary key, x int)")
			track(t, pool, "t", "{}")
			low := one[int64](t, pool, "select annals.tick()")
			xid := one[int64](t, pool, "insert into t values (1) returning pg_current_xact_id()::text::bigint")
			coordinate := one[string](t, pool, "select annals.coordinate()")
			for i, snapshot := range []string{c.first, c.second} {
				exec(t, pool, "insert into annals.tick (v, at, snapshot, upper_xid, lsn, epoch) select $1, now(), "+fmt.Sprintf(snapshot, fmt.Sprint(xid), fmt.Sprint(xid+1000), fmt.Sprint(xid+2000))+
					", $2::text::xid8, '0/0', max(number) from annals.epoch", low, fmt.Sprint(xid+1000+int64(i)*500))
			}
			if bound := one[*int64](t, pool, "select annals.upper_bound(annals.coordinate_snapshot($1))", coordinate); bound != nil {
				t.Errorf("the bound is %d", *bound)
			}
		})
	}
}
