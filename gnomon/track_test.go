package gnomon_test

import (
	"strings"
	"testing"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/volvra"
)

func TestTrackingIsAllOrNothing(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table a (id int primary key)", "create table keyless (x int)", `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" ("select" int primary key, "t" text, "o" text, "u" text, "h" text)`)
	refuses(t, g.Track(t.Context(), "a", "keyless"), gnomon.ErrUnsupported)
	if n := column[int](t, pool, "select count(*)::int from annals.tracked"); n[0] != 0 {
		t.Errorf("%d tables are tracked", n[0])
	}
	refuses(t, g.TrackWith(t.Context(), "a", gnomon.Options{Exclude: []string{"nothing"}}), gnomon.ErrInvalid)
	track(t, g, "a", `"Sch ema"."ta""ble"`, "a")
	list := must[[]gnomon.Tracking](t)(g.TrackSchema(t.Context(), "public", gnomon.Options{}))
	if len(list) != 2 || list[0].History == 0 || list[1].Refusal == "" {
		t.Errorf("tracking the schema: %+v", list)
	}
	_, err := g.TrackSchema(t.Context(), "nowhere", gnomon.Options{})
	refuses(t, err, gnomon.ErrInvalid)
	run(t, pool, `insert into "Sch ema"."ta""ble" values (1, 'a', 'b', 'c', 'd')`)
	then := must[gnomon.Coordinate](t)(g.Now(t.Context()))
	run(t, pool, `update "Sch ema"."ta""ble" set t = 'x', o = 'y', "select" = 2`)
	past := must[*gnomon.Past](t)(g.At(t.Context(), then.Ref()))
	if row, found, err := gnomon.Get[map[string]any](t.Context(), past, `"Sch ema"."ta""ble"`, 1); !found || row["t"] != "a" || row["h"] != "d" {
		t.Errorf("the row is %v, %v", row, err)
	}
	if list, err := gnomon.List[map[string]any](t.Context(), past, `"Sch ema"."ta""ble"`, ""); len(list) != 1 || list[0]["o"] != "b" {
		t.Errorf("the rows are %v, %v", list, err)
	}
	_, _, err = gnomon.Get[map[string]any](t.Context(), past, "a", 1, 2)
	refuses(t, err, gnomon.ErrInvalid)
}

func TestUntrackKeepsOrDropsHistory(t *testing.T) {
	t.Parallel()
	for _, histories := range []gnomon.Histories{gnomon.KeepHistory, gnomon.DropHistory} {
		g, pool := tracked(t)
		run(t, pool, "insert into shop.orders values (1, 'ada', 1, null), (2, 'tom', 2, null)")
		then := must[gnomon.Coordinate](t)(g.Now(t.Context()))
		run(t, pool, "update shop.orders set total = 10 where id = 1")
		ok(t, g.Untrack(t.Context(), "shop.orders", histories))
		run(t, pool, "update shop.orders set total = 100", "delete from shop.orders where id = 2")
		refuses(t, g.Untrack(t.Context(), "shop.orders", histories), gnomon.ErrNotTracked)
		past := must[*gnomon.Past](t)(g.At(t.Context(), then.Ref()))
		list, err := gnomon.List[order](t.Context(), past, "shop.orders", "order by id")
		if histories == gnomon.DropHistory {
			refuses(t, err, gnomon.ErrNotTracked)
			if n := column[int](t, pool, "select count(*)::int from pg_class where relnamespace = 'annals'::regnamespace and relname like 'h1%'"); n[0] != 0 {
				t.Errorf("%d objects of the history are left", n[0])
			}
		} else if err != nil || len(list) != 2 || *list[0].Total != 1 {
			t.Errorf("the past is %+v, %v", list, err)
		}
		after := must[*gnomon.Past](t)(g.At(t.Context(), gnomon.Present))
		if _, err := gnomon.List[order](t.Context(), after, "shop.orders", ""); err == nil {
			t.Error("a place after tracking ended is read")
		}
		track(t, g, "shop.orders")
		again := must[gnomon.Coordinate](t)(g.Now(t.Context()))
		run(t, pool, "update shop.orders set total = 1000")
		past = must[*gnomon.Past](t)(g.At(t.Context(), again.Ref()))
		if list := must[[]order](t)(gnomon.List[order](t.Context(), past, "shop.orders", "")); len(list) != 1 || *list[0].Total != 100 {
			t.Errorf("after it was tracked again: %+v", list)
		}
		if histories == gnomon.KeepHistory {
			past = must[*gnomon.Past](t)(g.At(t.Context(), then.Ref()))
			if list := must[[]order](t)(gnomon.List[order](t.Context(), past, "shop.orders", "")); len(list) != 2 {
				t.Errorf("of the first tracking: %+v", list)
			}
		}
		if histories == gnomon.DropHistory {
			past = must[*gnomon.Past](t)(g.At(t.Context(), then.Ref()))
			_, err := gnomon.List[order](t.Context(), past, "shop.orders", "")
			if e := refuses(t, err, gnomon.ErrNoHistory); e.Begins.IsZero() || e.Table != "shop.orders" {
				t.Errorf("the refusal is %+v", e)
			}
		}
	}
}

func TestOneCaptureServesBothPackages(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	ok(t, volvra.Install(ctx, pool))
	v := volvra.New(pool)
	must[volvra.Covering](t)(v.Enable(ctx, "shop.orders", volvra.Options{}))
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx))
	run(t, pool, "update shop.orders set total = 2")
	if n := column[int](t, pool, "select count(*)::int from annals.h1"); n[0] != 2 {
		t.Errorf("%d entries of two changes", n[0])
	}
	ok(t, g.Untrack(ctx, "shop.orders", gnomon.KeepHistory))
	run(t, pool, "update shop.orders set total = 3", "select annals.rotate(1, 0)", "update shop.orders set total = 4")
	track(t, g, "shop.orders")
	past := must[*gnomon.Past](t)(g.At(ctx, then.Ref()))
	if o, found, err := gnomon.Get[order](ctx, past, "shop.orders", 1); !found || *o.Total != 1 {
		t.Errorf("what another package kept on capturing is not read: %+v, %v", o, err)
	}
	must[volvra.Covering](t)(v.Disable(ctx, "shop.orders", volvra.DisableOptions{}))
	run(t, pool, "update shop.orders set total = 5")
	if o, found, err := gnomon.Get[order](ctx, past, "shop.orders", 1); !found || *o.Total != 1 {
		t.Errorf("after the other package left: %+v, %v", o, err)
	}
}

func TestPlansOnMainAreAsBefore(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, "create table a (id int primary key, b int not null, tags jsonb)", "create index on a (b)", "create index on a using gin (tags)",
		"insert into a select i, i % 500, jsonb_build_object('t', i) from generate_series(1, 5000) i", "vacuum analyze a")
	explain := func() string {
		var plans strings.Builder
		for _, sql := range []string{"select * from a where id = 7", "select * from a where b between 3 and 5", "select * from a x join a y on y.id = x.b where x.id < 10", `select * from a where tags @> '{"t": 7}'`, "select count(*) from a", "update a set b = 1 where id = 3"} {
			plans.WriteString(text(t, pool, "select * from plan_of($$"+sql+"$$)") + "\n")
		}
		return plans.String()
	}
	run(t, pool, "create function plan_of(q text) returns setof text language plpgsql as $$ begin return query execute 'explain ' || q; end $$")
	before := explain()
	track(t, g, "a")
	if after := explain(); after != before {
		t.Errorf("plans were\n%sand are\n%s", before, after)
	}
}

func TestUninstallLeavesNothing(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)", "create table shop.other (id int)")
	must[int](t)(g.MakeCheckpoint(t.Context(), "shop.orders", gnomon.Present, "kept"))
	refuses(t, gnomon.Uninstall(t.Context(), pool, "all"), gnomon.ErrInvalid)
	ok(t, gnomon.Uninstall(t.Context(), pool, gnomon.DropHistory))
	if left := text(t, pool, "select nspname from pg_namespace where nspname ~ 'gnomon|annals' union all select tgname from pg_trigger where not tgisinternal"); left != "" {
		t.Errorf("left: %s", left)
	}
	ok(t, gnomon.Install(t.Context(), pool))
	track(t, g, "shop.orders")
}

func TestHistoryThatAConsumerAwaitsIsNotDropped(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	ok(t, g.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "slow"}))
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)")
	must[int](t)(g.MakeCheckpoint(ctx, "shop.orders", gnomon.Present, ""))
	refuses(t, g.Untrack(ctx, "shop.orders", gnomon.DropHistory), gnomon.ErrInvalid)
	ok(t, g.DropConsumer(ctx, "slow"))
	ok(t, g.Untrack(ctx, "shop.orders", gnomon.DropHistory))
	if left := text(t, pool, "select relname from pg_class where relname ~ '^(h1|k)[_0-9]*$'"); left != "" {
		t.Errorf("left: %s", left)
	}
}
