package volvra_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/volvra"
)

// grantedRoles are a viewer and an operator, both of which may read and write shop.orders.
func grantedRoles(t testing.TB, pool *pgxpool.Pool) (viewer, operator string) {
	t.Helper()
	server := pgserver.Shared(t)
	viewer, operator = pgserver.Role(t, server, "viewer"), pgserver.Role(t, server, "operator")
	ok(t, volvra.Grant(t.Context(), pool, viewer, operator, ""))
	for _, role := range []string{viewer, operator} {
		run(t, pool, "grant usage on schema shop to "+pgx.Identifier{role}.Sanitize(), "grant all on shop.orders to "+pgx.Identifier{role}.Sanitize())
	}
	return viewer, operator
}

// verdicts counts rows by verdict, and lists problems as what:verdict:position.
func verdicts(t testing.TB, v *volvra.Volvra, o volvra.VerifyOptions) (counts map[volvra.Verdict]int64, problems []string) {
	t.Helper()
	counts = map[volvra.Verdict]int64{}
	for e, err := range v.Verify(t.Context(), o) {
		ok(t, err)
		counts[e.Verdict] += e.Entries
		if e.Problem {
			problems = append(problems, e.What+" "+string(e.Verdict)+": "+e.Message)
		}
	}
	slices.Sort(problems)
	return counts, problems
}

// wantVerdicts wants no problem, and these numbers of entries.
func wantVerdicts(t testing.TB, v *volvra.Volvra, want map[volvra.Verdict]int64) {
	t.Helper()
	counts := map[volvra.Verdict]int64{}
	for e, err := range v.Verify(t.Context(), volvra.VerifyOptions{}) {
		ok(t, err)
		if e.Problem {
			t.Errorf("problem: %+v", e)
		}
		if e.What == "entry" {
			counts[e.Verdict] += e.Entries
		}
	}
	if !maps.Equal(counts, want) {
		t.Errorf("entries are %v, want %v", counts, want)
	}
}

func seal(t testing.TB, v *volvra.Volvra) volvra.Seal {
	t.Helper()
	return must[volvra.Seal](t)(v.Seal(t.Context()))
}

func TestSeal(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	if head := must[volvra.Head](t)(v.ChainHead(t.Context())); head != (volvra.Head{}) {
		t.Errorf("head without seals: %+v", head)
	}
	run(t, pool, "insert into shop.orders select g, 'c', g from generate_series(1, 3000) g", "update shop.orders set total = total + 1 where id <= 10")
	first := seal(t, v)
	if first.Number != 1 || len(first.Hash) != 64 || first.Entries < 3010 {
		t.Errorf("first seal: %+v", first)
	}
	if again := seal(t, v); again.Entries != 0 || again.Number == 1 && (again.Hash != first.Hash || again.Reason == "") {
		t.Errorf("nothing new: %+v", again)
	}
	run(t, pool, "delete from shop.orders where id = 1")
	second := seal(t, v)
	if second.Number < 2 || second.Entries != 1 {
		t.Errorf("second seal: %+v", second)
	}
	if head := must[volvra.Head](t)(v.ChainHead(t.Context())); head.Number != second.Number || head.Hash != second.Hash || head.Coordinate == "" {
		t.Errorf("head: %+v", head)
	}
	run(t, pool, "delete from shop.orders where id = 2")
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 3011, volvra.VerdictUnsealed: 1})
}

// TestTransactionOpenDuringSeal: it is covered by a later seal, and never looks tampered with (fault 14).
func TestTransactionOpenDuringSeal(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1), (2, 'b', 2)")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	run(t, tx, "update shop.orders set total = 10 where id = 1")
	run(t, pool, "update shop.orders set total = 20 where id = 2") // a higher position, committed first
	seal(t, v)
	seal(t, v)
	run(t, tx, "update shop.orders set total = 11 where id = 1")
	ok(t, tx.Commit(t.Context()))
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 3, volvra.VerdictUnsealed: 2})
	if s := seal(t, v); s.Entries != 2 {
		t.Errorf("seal after the commit: %+v", s)
	}
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 5})
}

// TestSealWithinTransaction: what the sealing transaction itself wrote is left to the next seal, since it may be rolled back to a savepoint.
func TestSealWithinTransaction(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1)")
	conn, err := pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	ok(t, err)
	run(t, tx, "update shop.orders set total = 10")
	pgtxtest.AssertSessionUnchanged(t, conn.Conn(), func() { seal(t, volvra.New(tx)) })
	run(t, tx, "update shop.orders set total = 11")
	ok(t, tx.Commit(t.Context()))
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 1, volvra.VerdictUnsealed: 2})
	seal(t, v)
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 3})

	serializable, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	ok(t, err)
	defer serializable.Rollback(t.Context())
	if _, err := volvra.New(serializable).Seal(t.Context()); !errors.Is(err, volvra.ErrIsolation) {
		t.Errorf("serializable: %v", err)
	}
}

// TestSealIgnoresSettings: hashes are the same whatever a session sets.
func TestSealIgnoresSettings(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "create schema shop", `create table shop."t""x" (v int primary key, "select" timestamptz, n interval, e float8, m bytea, o money, h date, l numeric[], xid xml, op jsonb)`)
	cover(t, v, `shop."t""x"`)
	run(t, pool, `insert into shop."t""x" values (1, '2026-05-06 07:08:09.123456+02', '1 mon -2 days 03:04:05', 0.1, '\x00ff', '12.34', '2026-05-06', '{1.50,NULL}', '<a/>', '{"b": null}')`, `update shop."t""x" set v = 2`)
	settings := "set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; set extra_float_digits = -3; set bytea_output = 'escape'; set timezone = 'Asia/Tokyo'; set xmlbinary = 'hex'; set search_path = shop"
	odd := connectAs(t, pool.Config().ConnString(), "")
	run(t, odd, settings)
	seal(t, volvra.New(odd))
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 4})
	run(t, pool, `update shop."t""x" set e = 2`)
	seal(t, v)
	wantVerdicts(t, volvra.New(odd), map[volvra.Verdict]int64{volvra.VerdictIntact: 5})
}

// TestChainRewritten: a chain that was made anew is consistent, and found out by a head that was kept.
func TestChainRewritten(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1)", "update shop.orders set total = 2")
	seal(t, v)
	head := must[volvra.Head](t)(v.ChainHead(t.Context()))
	run(t, pool, "update shop.orders set total = 3")
	seal(t, v)
	if _, problems := verdicts(t, v, volvra.VerifyOptions{Head: head}); problems != nil {
		t.Errorf("problems: %v", problems)
	}
	run(t, pool, "alter table volvra.seal disable trigger guard_record", "alter table volvra.sealed_part disable trigger guard_record",
		"truncate volvra.seal, volvra.sealed_part, volvra.sealed_position", "update annals.h1_1 set c3 = 99 where c3 = 1",
		"alter table volvra.seal enable trigger guard_record", "alter table volvra.sealed_part enable trigger guard_record")
	seal(t, v)
	if _, problems := verdicts(t, v, volvra.VerifyOptions{}); problems != nil {
		t.Errorf("problems without a head: %v", problems)
	}
	if _, problems := verdicts(t, v, volvra.VerifyOptions{Head: head}); len(problems) != 1 || !strings.HasPrefix(problems[0], "seal rewritten") {
		t.Errorf("problems with the head: %v", problems)
	}
}

// TestSealAcrossEpochs: after a restore transaction ids mean something else, and what was sealed stays sealed.
func TestSealAcrossEpochs(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders select g, 'c', 0 from generate_series(1, 5) g")
	seal(t, v)
	run(t, pool, "update shop.orders set total = 1 where id = 1")
	// As after a restore from a cluster that had come further.
	run(t, pool, "update annals.h1_1 set xid = '1099511627776' where op = 'u'", "update annals.epoch set system_identifier = 1", "update shop.orders set total = 2 where id = 2")
	if _, err := v.Seal(t.Context()); !errors.Is(err, volvra.ErrStale) {
		t.Errorf("restored and not adopted: %v", err)
	}
	run(t, pool, "select annals.adopt()")
	// The first seals wait until those who write have ended.
	for range 100 {
		if seal(t, v).Number > 1 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 7})
}
