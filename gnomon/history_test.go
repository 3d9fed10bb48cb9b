package gnomon_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// versionsText writes versions, newest first: "update 1: note a>b".
func versionsText(list []gnomon.Version) string {
	lines := []string{}
	for _, v := range list {
		columns := []string{}
		for name, f := range v.Columns {
			columns = append(columns, name+" "+textOf(f.From)+">"+textOf(f.To))
		}
		slices.Sort(columns)
		line := fmt.Sprintf("%s %s: %s", v.Operation, strings.Join(v.Key, ","), strings.Join(columns, ", "))
		if v.Note != "" {
			line += " (" + v.Note + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// blameText writes blame: "note a>b by update, ann".
func blameText(list []gnomon.Blame) string {
	lines := []string{}
	for _, b := range list {
		line := fmt.Sprintf("%s %s>%s by %s %s", b.Column, textOf(b.Field.From), textOf(b.Field.To), b.Operation, b.Who.Actor)
		if b.Note != "" {
			line += " (" + b.Note + ")"
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

func TestHistoryFollowsARowThroughItsKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1, null)", "begin; set local annals.actor = 'ann'; update shop.orders set id = 2, note = 'moved'; commit", "update shop.orders set note = note", "insert into shop.orders values (1, 'other', 9, null)",
		"update shop.orders set total = 2 where id = 2", "delete from shop.orders where id = 2", "update shop.orders set note = 'o' where id = 1")
	life := "delete 2: customer a>-, id 2>-, note moved>-, total 2.00>-\nupdate 2: total 1.00>2.00\nupdate 1: id 1>2, note ->moved\ninsert 1: customer ->a, id ->1, note ->-, total ->1.00"
	list := must[[]gnomon.Version](t)(g.History(ctx, "shop.orders", gnomon.KeyOf(2)))
	if got := versionsText(list); got != life {
		t.Errorf("%s", got)
	}
	if v := list[2]; v.Who.Actor != "ann" || v.Who.Login == "" || v.At.IsZero() || v.V <= list[3].V || !strings.HasPrefix(v.Transaction, "1:") {
		t.Errorf("%+v", v)
	}
	if got := versionsText(must[[]gnomon.Version](t)(g.History(ctx, "shop.orders", gnomon.KeyOf(1)))); len(strings.Split(got, "\n")) != 6 || !strings.HasPrefix(got, "update 1: note ->o\n") {
		t.Errorf("both rows that had the key: %s", got)
	}
	if got := must[[]gnomon.Version](t)(g.History(ctx, "shop.orders", gnomon.KeyOf(99))); len(got) != 0 {
		t.Errorf("a key that no row had: %s", versionsText(got))
	}
	for _, c := range []struct {
		o    gnomon.VersionOptions
		want []int
	}{
		{gnomon.VersionOptions{Limit: 2}, []int{0, 1}}, {gnomon.VersionOptions{From: list[1].At}, []int{0, 1}}, {gnomon.VersionOptions{To: list[1].At}, []int{2, 3}}, {gnomon.VersionOptions{From: list[2].At, To: list[0].At, Limit: 1}, []int{1}},
	} {
		part, want := must[[]gnomon.Version](t)(g.Versions(ctx, "shop.orders", gnomon.KeyOf(2), c.o)), []gnomon.Version{}
		for _, i := range c.want {
			want = append(want, list[i])
		}
		if versionsText(part) != versionsText(want) {
			t.Errorf("%+v: %s", c.o, versionsText(part))
		}
	}
}

func TestBlameNamesTheLastChangeOfEachColumn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, customer text, total numeric, note text)", "insert into shop.orders values (1, 'a', 1, 'x'), (2, 'b', 2, 'y')")
	track(t, g, "shop.orders")
	by := func(actor, sql string) { run(t, pool, "begin; set local annals.actor = '"+actor+"'; "+sql+"; commit") }
	by("ann", "update shop.orders set note = 'n1', total = 3 where id = 1")
	by("bob", "update shop.orders set note = 'n2' where id = 1")
	by("cid", "update shop.orders set id = 3 where id = 1")
	by("dan", "insert into shop.orders values (1, 'new', 7, null)")
	by("eve", "update shop.orders set total = 8 where id = 3")
	for key, want := range map[int]string{
		3: "id 1>3 by update cid\ntotal 3>8 by update eve\nnote n1>n2 by update bob", // customer has not changed
		1: "id ->1 by insert dan\ncustomer ->new by insert dan\ntotal ->7 by insert dan\nnote ->- by insert dan",
		2: "",
	} {
		if got := blameText(must[[]gnomon.Blame](t)(g.Blame(ctx, "shop.orders", gnomon.KeyOf(key)))); got != want {
			t.Errorf("%d:\n%s", key, got)
		}
	}
	// What is not known of a change may have been any column.
	run(t, pool, "update annals.h1_1 set op = 'U', c2 = null, c3 = null, c4 = null where c4 = 'n1'")
	const unknown = " (erased)"
	if got := blameText(must[[]gnomon.Blame](t)(g.Blame(ctx, "shop.orders", gnomon.KeyOf(3)))); got != "id 1>3 by update cid\ncustomer ->- by update bob"+unknown+"\ntotal 3>8 by update eve\nnote ->- by update bob"+unknown {
		t.Errorf("erased:\n%s", got)
	}
}

func TestHistoryIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	role := pgserver.Role(t, pgserver.Shared(t), "stranger")
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" ("t" int, "o" date, "select" text, primary key ("o", "t"))`, "create table never (id int primary key)")
	const table = `"Sch ema"."ta""ble"`
	track(t, g, table)
	run(t, pool, "insert into "+table+" values (1, '2024-05-01', 'a')", "set datestyle = 'German'", "update "+table+` set "select" = 'b'`)
	if got := versionsText(must[[]gnomon.Version](t)(g.History(ctx, table, gnomon.KeyOf("2024-05-01", 1)))); got != "update 2024-05-01,1: select a>b\ninsert 2024-05-01,1: o ->2024-05-01, select ->a, t ->1" {
		t.Errorf("texts depend on settings: %s", got)
	}
	for _, key := range []gnomon.Key{nil, {}, {"2024-05-01"}, {"1", "2024-05-01"}, {"2024-05-01", "1", "2"}, {"2024-05-01", "1); drop table never; --"}} {
		if _, err := g.History(ctx, table, key); !errors.Is(err, gnomon.ErrInvalid) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	_, err := g.Versions(ctx, table, gnomon.KeyOf("2024-05-01", 1), gnomon.VersionOptions{Limit: -1})
	refuses(t, err, gnomon.ErrInvalid)
	_, err = g.Blame(ctx, table, gnomon.KeyOf(1))
	refuses(t, err, gnomon.ErrInvalid)
	_, err = g.History(ctx, "never", gnomon.KeyOf(1))
	refuses(t, err, gnomon.ErrNotTracked)
	letRead(t, pool, role)
	run(t, pool, `grant usage on schema "Sch ema" to `+role)
	stranger := gnomon.New(connectAs(t, pool.Config().ConnString(), role))
	if _, err := stranger.History(ctx, table, gnomon.KeyOf("2024-05-01", 1)); sqlState(err) != "42501" {
		t.Errorf("without SELECT: %v", err)
	}
	run(t, pool, "grant select on "+table+" to "+role)
	if list, err := stranger.Blame(ctx, table, gnomon.KeyOf("2024-05-01", 1)); err != nil || len(list) != 3 {
		t.Errorf("with SELECT: %+v, %v", list, err)
	}
}
