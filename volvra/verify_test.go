package volvra_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/volvra"
)

// sealedOrders are three rows, updated twice, all of it sealed. Positions in entries are those of the updates of row 1, 2, 3, 1, 2, 3.
func sealedOrders(t testing.TB) (v *volvra.Volvra, pool *pgxpool.Pool, entries []int64) {
	t.Helper()
	v, pool = covered(t)
	run(t, pool, "insert into shop.orders select g, 'customer ' || g, g, 'note' from generate_series(1, 3) g", "update shop.orders set total = total + 1")
	seal(t, v)
	run(t, pool, "update shop.orders set total = total + 1")
	seal(t, v)
	return v, pool, column[int64](t, pool, "select v from annals.h1_1 where op = 'u' order by v")
}

// TestTampering: whatever the owner does to the tables is found and named.
func TestTampering(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  string
		want []string // kind and verdict, then :i for the position of entry i
	}{
		"an image":             {"update annals.h1_1 set c3 = 99 where v = $1", []string{"entry altered:0"}},
		"null for empty":       {"update annals.h1_1 set c4 = null where v = $1", []string{"entry altered:0"}},
		"who":                  {"update annals.h1_1 set login = 10 + login::int where v = $1", []string{"entry altered:0"}},
		"when":                 {"update annals.h1_1 set at = at - interval '1 microsecond' where v = $1", []string{"entry altered:0"}},
		"operation":            {"update annals.h1_1 set op = 'd' where v = $1", []string{"entry altered:0"}},
		"as if erased":         {"update annals.h1_1 set op = 'U', c2 = null, c3 = null, c4 = null where v = $1", []string{"entry altered:0"}},
		"deleted":              {"delete from annals.h1_1 where v = $1", []string{"entry missing:0"}},
		"added":                {"insert into annals.h1_1 (v, xid, at, ctx, login, op, c1) select min(v) - 1, min(xid::text)::xid8, min(at), min(ctx), min(login), 'i', 9 from annals.h1_1 having min(v) < $1", []string{"entry added"}},
		"moved to another":     {"update annals.h1_1 set v = -v where v = $1", []string{"entry missing:0", "entry added"}},
		"columns swapped":      {"do 'begin alter table annals.h1_1 rename c2 to x; alter table annals.h1_1 rename c4 to c2; alter table annals.h1_1 rename x to c4; end'", []string{"entry altered", "entry altered"}},
		"a context":            {"update annals.context set actor = 'somebody else'", []string{"context altered"}},
		"no table":             {"do 'begin drop view annals.h1; drop table annals.h1_1; delete from annals.segment; end'", []string{"entry missing", "entry missing"}},
		"positions":            {"update volvra.sealed_position set positions = positions[2:], marks = substring(marks from 5) where what = 'entry' and seal = 2", []string{"entry added:3", "entry altered"}},
		"no positions":         {"delete from volvra.sealed_position where what = 'entry' and seal = 1", []string{"entry added", "entry added", "entry added", "entry added:0", "entry added:1", "entry added:2", "entry altered"}},
		"excused by no ledger": {"insert into volvra.removed (what, tracked, segment, v, erasure, digest) values ('entry', 1, 1, $1, 7, '')", []string{"entry added:0", "erasure forged"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, pool, entries := sealedOrders(t)
			sql := c.sql
			if strings.Contains(sql, "$1") {
				sql = strings.ReplaceAll(sql, "$1", column[string](t, pool, "select $1::bigint::text", entries[0])[0])
			}
			run(t, pool, sql)
			var found []string
			for e, err := range v.Verify(t.Context(), volvra.VerifyOptions{}) {
				ok(t, err)
				if !e.Problem {
					continue
				}
				s := e.What + " " + string(e.Verdict)
				if i := slices.Index(entries, e.V); i >= 0 {
					s += ":" + string(rune('0'+i))
				}
				if e.What == "entry" && e.Table != "shop.orders" {
					t.Errorf("table is %q", e.Table)
				}
				found = append(found, s)
			}
			slices.Sort(found)
			slices.Sort(c.want)
			if !slices.Equal(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// TestForgedSeal: seals and guards that were changed are found.
func TestForgedSeal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql, want string }{
		"the time of a seal":   {"update volvra.seal set at = at + interval '1 second' where number = 1", "seal forged"},
		"a seal made anew":     {"do 'begin update volvra.seal set login = ''x'' where number = 1; update volvra.seal s set hash = volvra.seal_hash(s, null) where number = 1; end'", "seal forged"},
		"a hash":               {"update volvra.seal set hash = content where number = 2", "seal forged"},
		"the end of the chain": {"delete from volvra.seal where number = 2", "seal forged"},
		"the beginning":        {"delete from volvra.seal where number = 1", "seal forged"},
		"a part":               {"update volvra.sealed_part set digest = sha256('') where what = 'entry' and seal = 2", "entry altered, seal forged"},
		"no part":              {"delete from volvra.sealed_part where what = 'entry' and seal = 2", "seal forged"},
		"a guard":              {"select", "seal guard"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, pool, _ := sealedOrders(t)
			run(t, pool, "alter table volvra.seal disable trigger guard_record", "alter table volvra.sealed_part disable trigger guard_record", c.sql, "alter table volvra.sealed_part enable trigger guard_record")
			if name != "a guard" {
				run(t, pool, "alter table volvra.seal enable trigger guard_record")
			}
			_, problems := verdicts(t, v, volvra.VerifyOptions{})
			for _, want := range strings.Split(c.want, ", ") {
				if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
					t.Errorf("problems %q, want one that is %q", problems, want)
				}
			}
		})
	}
}

// TestVerifyProgress: it goes up to the number of sealed rows.
func TestVerifyProgress(t *testing.T) {
	t.Parallel()
	v, _, _ := sealedOrders(t)
	var calls int
	var last, all int64
	_, _ = verdicts(t, v, volvra.VerifyOptions{Progress: func(done, total int64) { calls++; last, all = done, total }})
	if calls < 2 || last != all || all < 9 {
		t.Errorf("%d calls, the last with %d of %d", calls, last, all)
	}
}
