package volvra_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/annals-db/annals/volvra"
)

// TestForgetNeedsWholeKey: an empty or partial key, or anything else that names nobody, erases nothing (fault 16).
func TestForgetNeedsWholeKey(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "create table shop.lines (o int, n int, note text, primary key (o, n))")
	cover(t, v, "shop.lines")
	run(t, pool, "insert into shop.orders values (1, 'a', 1)", "update shop.orders set total = 2", "insert into shop.lines values (1, 1, 'x')", "update shop.lines set note = 'y'")
	for _, c := range []struct {
		table string
		key   volvra.Key
		mode  volvra.EraseMode
		why   string
		want  error
	}{
		{"shop.orders", nil, volvra.Redact, "r", volvra.ErrIncompleteKey},
		{"shop.orders", volvra.Key{}, volvra.Redact, "r", volvra.ErrIncompleteKey},
		{"shop.orders", volvra.Key{"1", "2"}, volvra.Redact, "r", volvra.ErrIncompleteKey},
		{"shop.lines", volvra.Key{"1"}, volvra.Redact, "r", volvra.ErrIncompleteKey},
		{"shop.orders", volvra.Key{""}, volvra.Redact, "r", volvra.ErrValue},
		{"shop.orders", volvra.Key{"1 or true"}, volvra.Redact, "r", volvra.ErrValue},
		{"shop.orders", volvra.Key{"1"}, "everything", "r", volvra.ErrInvalid},
		{"shop.orders", volvra.Key{"1"}, volvra.Redact, " ", volvra.ErrInvalid},
		{"shop.nothing", volvra.Key{"1"}, volvra.Redact, "r", volvra.ErrNotCovered},
		{"no\"name", volvra.Key{"1"}, volvra.Redact, "r", volvra.ErrNotCovered},
	} {
		if _, err := v.Forget(t.Context(), c.table, c.key, c.mode, c.why); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for sql, want := range map[string]string{
		`'shop.orders', '{}'`: "VO044", `'shop.orders', '{"id": null}'`: "VO044", `'shop.orders', null`: "VO044", `'shop.orders', '"1"'`: "VO044", `'shop.lines', '{"o": 1}'`: "VO044",
		`'shop.lines', '{"o": 1, "n": 1, "note": "y"}'`: "VO004", `'shop.orders', '{"total": 2}'`: "VO004", `null, '["1"]'`: "VO003",
	} {
		if got := column[string](t, pool, "select outcome || ' ' || code from volvra.forget("+sql+", 'redact', 'r')"); got[0] != "refused "+want {
			t.Errorf("%s: %s", sql, got[0])
		}
	}
	if n := column[int64](t, pool, "select (select count(*) from annals.h1 where op = 'U') + (select count(*) from annals.h2 where op = 'U') + (select count(*) from volvra.erasure)"); n[0] != 0 {
		t.Errorf("%d rows were erased or ledgered", n[0])
	}
	if n := column[int64](t, pool, "select count(*) from volvra.attempts() where action = 'forget' and outcome = 'refused'"); n[0] != 18 {
		t.Errorf("%d refused attempts stand on record", n[0])
	}
}

// TestForgetFollowsKeys: a row that changed its key is erased under all keys, and nobody else is.
func TestForgetFollowsKeys(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'ann', 1, 'n'), (2, 'bob', 2, 'n')",
		"update shop.orders set total = 10", "update shop.orders set id = 3 where id = 1", // ann: 1, then 3
		"insert into shop.orders values (1, 'carl', 5, 'n')", "update shop.orders set total = 6 where id = 1", // carl takes 1
		"update shop.orders set total = 11 where id = 3", "update shop.orders set id = 4 where id = 3", "update shop.orders set total = 12 where id = 4")
	seal(t, v)
	e := must[volvra.Erasure](t)(v.Forget(t.Context(), "shop.orders", volvra.Key{"4"}, volvra.Redact, "asked for"))
	if e.Entries != 5 || e.Keys != 3 {
		t.Errorf("erased: %+v", e)
	}
	if left := text(t, pool, "select distinct c2 from annals.h1 where c2 is not null order by 1"); left != "(bob)\n(carl)" {
		t.Errorf("names left: %s", left)
	}
	if n := column[int64](t, pool, "select count(*) from annals.h1 where op = 'U' and (c2 is not null or c3 is not null or c4 is not null)"); n[0] != 0 {
		t.Errorf("%d redacted entries hold values", n[0])
	}
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 9, volvra.VerdictErased: 5})

	// Deleting: the row goes first, then all that it left, records of its keys included.
	if _, err := v.Forget(t.Context(), "shop.orders", volvra.Key{"4"}, volvra.Delete, "asked for"); !errors.Is(err, volvra.ErrRowExists) {
		t.Errorf("row still there: %v", err)
	}
	run(t, pool, "delete from shop.orders where id = 4")
	e = must[volvra.Erasure](t)(v.Forget(t.Context(), "shop.orders", volvra.Key{"4"}, volvra.Delete, "asked for"))
	if e.Entries != 11 || e.Moves != 2 {
		t.Errorf("erased: %+v", e)
	}
	if left := text(t, pool, "select c1, c2, op from annals.h1 order by v"); strings.Contains(left, "ann") || strings.Contains(left, "(3") || strings.Contains(left, "(4") {
		t.Errorf("left: %s", left)
	}
	if n := column[int64](t, pool, "select count(*) from annals.move"); n[0] != 0 {
		t.Errorf("%d moves left", n[0])
	}
	seal(t, v)
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictIntact: 4, volvra.VerdictErased: 10})
	if ledger := must[[]volvra.ErasureRecord](t)(v.Erasures(t.Context())); len(ledger) != 2 || ledger[0].Mode != volvra.Delete || ledger[0].Reason != "asked for" || ledger[0].Table != "shop.orders" || ledger[0].Login == "" {
		t.Errorf("ledger: %+v", ledger)
	}
	// Nothing that is kept about it names the subject.
	for _, table := range []string{"attempt", "outcome", "erasure", "redacted", "removed"} {
		if rows := text(t, pool, "select * from volvra."+table); strings.Contains(rows, "ann") {
			t.Errorf("volvra.%s: %s", table, rows)
		}
	}
}

// TestForgetEverywhere: in histories that have ended, and in all segments.
func TestForgetEverywhere(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'ann', 1, 'n')", "update shop.orders set total = 2", "alter table shop.orders add x text", "select annals.sync(1)", "update shop.orders set x = 'ann'", "update shop.orders set x = 'b'")
	_, err := v.Disable(t.Context(), "shop.orders", volvra.DisableOptions{})
	ok(t, err)
	cover(t, v, "shop.orders")
	run(t, pool, "update shop.orders set total = 3", "drop table shop.orders", "create table shop.orders (id int primary key, customer text)")
	cover(t, v, "shop.orders")
	run(t, pool, "insert into shop.orders values (1, 'ann')", "update shop.orders set customer = 'x'")
	if e := must[volvra.Erasure](t)(v.Forget(t.Context(), "shop.orders", volvra.Key{"1"}, volvra.Redact, "r")); e.Entries != 5 {
		t.Errorf("erased: %+v", e)
	}
	for _, segment := range column[string](t, pool, "select relation::text from annals.segment") {
		if rows := text(t, pool, "select * from "+segment); strings.Contains(rows, "ann") {
			t.Errorf("%s: %s", segment, rows)
		}
	}
}

// TestErasureHidesNoTampering: an erasure excuses what it erased, and only that (fault 15).
func TestErasureHidesNoTampering(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, want string }{
		"altered, then erased":       {before: "update annals.h1_1 set c3 = 99 where v = $1", want: "entry altered"},
		"deleted, then erased":       {before: "delete from annals.h1_1 where v = $1", want: "entry missing"},
		"erased, then altered":       {after: "update annals.h1_1 set login = 10 + login::int where v = $1", want: "entry altered"},
		"erased, then filled":        {after: "update annals.h1_1 set c3 = 99 where v = $1", want: "entry altered"},
		"erased, then as if it were": {after: "update annals.h1_1 set op = 'u' where v = $1", want: "entry altered"},
		"erased, then deleted":       {after: "delete from annals.h1_1 where v = $1", want: "entry missing"},
		"another row with it":        {after: "update annals.h1_1 set c3 = 99 where c1 = 2", want: "entry altered"},
		"more excused":               {after: "insert into volvra.redacted select tracked, segment, (select min(v) from annals.h1_1 where c1 = 2 and op = 'u'), erasure, body from volvra.redacted limit 1", want: "erasure forged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, pool, entries := sealedOrders(t)
			tamper := func(sql string) {
				if sql != "" {
					run(t, pool, strings.ReplaceAll(sql, "$1", column[string](t, pool, "select $1::bigint::text", entries[0])[0]))
				}
			}
			tamper(c.before)
			must[volvra.Erasure](t)(v.Forget(t.Context(), "shop.orders", volvra.Key{"1"}, volvra.Redact, "r"))
			tamper(c.after)
			seal(t, v)
			_, problems := verdicts(t, v, volvra.VerifyOptions{})
			found := false
			for _, p := range problems {
				found = found || strings.HasPrefix(p, c.want)
			}
			if !found {
				t.Errorf("problems %q, want %q", problems, c.want)
			}
		})
	}
}

// TestNoUndoWithoutImage: a change whose image was erased is not undone, so nothing that came later is lost (fault 2).
func TestNoUndoWithoutImage(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'ann', 1, 'n')", "update shop.orders set total = 2", "update shop.orders set total = 3")
	inserted := column[string](t, pool, "select epoch || ':' || xid from annals.h1 where op = 'i'")
	must[volvra.Erasure](t)(v.Forget(t.Context(), "shop.orders", volvra.Key{"1"}, volvra.Redact, "r"))
	_, err := v.Undo(t.Context(), volvra.Selection{Tables: []string{"shop.orders"}, Transactions: []volvra.TransactionID{volvra.TransactionID(inserted[0])}}, volvra.UndoOptions{})
	if !errors.Is(err, volvra.ErrErased) {
		t.Errorf("undo: %v", err)
	}
	if row := text(t, pool, "select * from shop.orders"); row != "(1,ann,3.00,n)" {
		t.Errorf("row: %s", row)
	}
}
