package volvra_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// agedOrders has three segments of ten updates each, of which the first two are older than an hour.
func agedOrders(t testing.TB) (*volvra.Volvra, *pgxpool.Pool) {
	t.Helper()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders select g, 'c', 0 from generate_series(1, 10) g")
	for range 2 {
		run(t, pool, "update shop.orders set total = total + 1", "select annals.tick()", "select annals.rotate(1, 0)", "select annals.seal_segments()")
	}
	run(t, pool, "update annals.tick set at = at - interval '2 hours'", "update shop.orders set total = total + 1")
	return v, pool
}

func actions(list []volvra.Purging) (s []string) {
	for _, p := range list {
		s = append(s, p.Action)
	}
	return s
}

func TestPurge(t *testing.T) {
	t.Parallel()
	v, pool := agedOrders(t)
	if list := must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{})); len(list) != 0 {
		t.Errorf("without a policy: %+v", list)
	}
	ok(t, v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: time.Hour}))
	ok(t, v.SetRetention(t.Context(), "shop.orders", volvra.Retention{Keep: time.Hour, KeepEntries: 15}))
	if list := must[[]volvra.Purging](t)(v.Purgeable(t.Context(), volvra.PurgeOptions{})); !slices.Equal(actions(list), []string{"drop"}) {
		t.Errorf("fifteen entries are kept: %+v", list)
	}
	ok(t, v.ResetRetention(t.Context(), "shop.orders"))
	list := must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{}))
	if !slices.Equal(actions(list), []string{"drop", "drop"}) || list[0].Entries != 20 || list[1].Entries != 10 || list[0].Table != "shop.orders" {
		t.Errorf("purged: %+v", list)
	}
	if n := column[int64](t, pool, "select count(*) from annals.h1"); n[0] != 10 {
		t.Errorf("%d entries left", n[0])
	}
	if n := column[int64](t, pool, "select count(*) from annals.segment s join pg_class c on c.oid = s.relation"); n[0] != 1 {
		t.Errorf("%d segments left", n[0])
	}
	if a := must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{Action: "purge"})); len(a) != 2 || a[0].Rows != 30 || a[0].Outcome != volvra.OutcomeDone {
		t.Errorf("attempts: %+v", a)
	}
	if err := v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: -time.Hour}); !errors.Is(err, volvra.ErrInvalid) {
		t.Errorf("negative: %v", err)
	}
	if err := v.SetRetention(t.Context(), "shop.nothing", volvra.Retention{Keep: 1}); !errors.Is(err, volvra.ErrNotCovered) {
		t.Errorf("unknown table: %v", err)
	}
}

// TestPurgeHonours pins, and says what pinned what.
func TestPurgeHonours(t *testing.T) {
	t.Parallel()
	v, pool := agedOrders(t)
	ok(t, v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: time.Hour}))
	run(t, pool, "insert into annals.pin (tracked, owner, name, v) select 1, 'test', 'a \"pin\"', last_v from annals.segment where number = 2")
	for _, want := range []struct {
		partial bool
		actions []string
	}{{false, []string{"drop", "keep"}}, {true, []string{"delete"}}, {true, []string{"keep"}}} {
		list := must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{Partial: want.partial}))
		if !slices.Equal(actions(list), want.actions) || !slices.Equal(list[len(list)-1].HeldBy, []string{`test a "pin"`}) {
			t.Errorf("pinned, %+v: %+v", want, list)
		}
	}
	// The pinned entry and what follows it are there.
	if n := column[int64](t, pool, "select count(*) from annals.h1"); n[0] != 11 {
		t.Errorf("%d entries left", n[0])
	}
}

// TestPurgeHonoursSeals: where seals are made nothing goes unsealed, and what went is told from what is missing.
func TestPurgeHonoursSeals(t *testing.T) {
	t.Parallel()
	// A seal leaves out what is later than the oldest transaction of the server, so there must be no others.
	server := pgserver.New(t, pgserver.Options{})
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), server.ConnString(must[string](t)(server.CreateDatabase(t.Context())))))
	t.Cleanup(pool.Close)
	ok(t, volvra.Install(t.Context(), pool))
	v := volvra.New(pool)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, customer text not null, total numeric(10, 2), note text)")
	cover(t, v, "shop.orders")
	ok(t, v.SetRetention(t.Context(), "shop.orders", volvra.Retention{Keep: time.Hour}))
	seal(t, v)
	run(t, pool, "insert into shop.orders select g, 'c', 0 from generate_series(1, 10) g", "update shop.orders set id = id + 100", "select annals.tick()",
		"select annals.rotate(1, 0)", "select annals.seal_segments()", "update annals.tick set at = at - interval '2 hours'")
	list := must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{Partial: true}))
	if !slices.Equal(actions(list), []string{"keep"}) || !slices.Equal(list[0].HeldBy, []string{"not sealed"}) {
		t.Errorf("unsealed: %+v", list)
	}
	seal(t, v)
	head := must[volvra.Head](t)(v.ChainHead(t.Context()))
	run(t, pool, "update shop.orders set total = 1")
	seal(t, v)
	list = must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{}))
	if !slices.Equal(actions(list), []string{"drop"}) {
		t.Errorf("sealed: %+v", list)
	}
	seal(t, v)
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictPurged: 40, volvra.VerdictIntact: 10})
	if _, problems := verdicts(t, v, volvra.VerifyOptions{Head: head}); problems != nil {
		t.Errorf("problems: %v", problems)
	}
	if n := column[int64](t, pool, "select count(*) from annals.move"); n[0] != 0 {
		t.Errorf("%d moves left", n[0])
	}

	// Part of a segment: whole sealed parts go.
	run(t, pool, "select annals.tick()", "update annals.tick set at = at - interval '2 hours'", "update shop.orders set total = 2")
	seal(t, v)
	list = must[[]volvra.Purging](t)(v.Purge(t.Context(), volvra.PurgeOptions{Partial: true, Table: "shop.orders"}))
	if !slices.Equal(actions(list), []string{"delete"}) || list[0].Entries != 10 {
		t.Errorf("partial: %+v", list)
	}
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictPurged: 50, volvra.VerdictIntact: 10})
	run(t, pool, "delete from annals.h1_2 where v = (select max(v) from annals.h1_2)")
	if _, problems := verdicts(t, v, volvra.VerifyOptions{}); len(problems) != 1 {
		t.Errorf("problems: %v", problems)
	}
}
