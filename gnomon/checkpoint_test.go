package gnomon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

// The past before, at and after checkpoints is what it was, whichever of them serves.
func TestCheckpointsChangeNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// Which checkpoint serves depends on how far ticks reach, and transactions of other databases hold them back.
	server := pgserver.New(t, pgserver.Options{})
	pool := must[*pgxpool.Pool](t)(pgxpool.New(ctx, server.ConnString(must[string](t)(server.CreateDatabase(ctx)))))
	t.Cleanup(pool.Close)
	ok(t, gnomon.Install(ctx, pool))
	g := gnomon.New(pool)
	run(t, pool, "create schema shop", "create table shop.orders (id int primary key, customer text not null, total numeric(10, 2), note text)")
	run(t, pool, "alter table shop.orders alter note set storage external", "insert into shop.orders select i, 'c' || i % 7, i, case when i % 3 = 0 then repeat('long', 1000) end from generate_series(1, 300) i")
	ok(t, g.TrackWith(ctx, "shop.orders", gnomon.Options{Wide: []string{"note"}}))
	const all = "select md5(string_agg(o::text, ';' order by id)) from %s o"
	type moment struct {
		at  gnomon.Coordinate
		sum string
	}
	var moments []moment
	remember := func() {
		t.Helper()
		moments = append(moments, moment{must[gnomon.Coordinate](t)(g.Now(ctx)), text(t, pool, fmt.Sprintf(all, "shop.orders"))})
	}
	for i, step := range []string{"update shop.orders set total = total + 1", "delete from shop.orders where id % 10 = 0", "insert into shop.orders select i, 'new', 0, 'n' from generate_series(1000, 1100) i",
		"update shop.orders set note = 'x' where id % 2 = 0", "update shop.orders set id = -id where id < 50", "update shop.orders set customer = 'z', note = null where id > 200", "truncate shop.orders", "insert into shop.orders values (1, 'a', 1, null)"} {
		remember()
		run(t, pool, step, "select annals.tick()")
		if i == 3 {
			run(t, pool, "select annals.rotate(1, 0)", "select annals.seal_segments()")
		}
	}
	remember()
	compare := func() {
		t.Helper()
		for i, m := range moments {
			past := must[*gnomon.Past](t)(g.At(ctx, m.at.Ref()))
			view := column[string](t, pool, "select (tables->>'shop.orders'::regclass::oid::text) from gnomon.open_at($1, '{shop}', 'shop', 'refuse')", m.at.String())
			if got := text(t, past, fmt.Sprintf(all, view[0])); got != m.sum {
				t.Errorf("moment %d is not what it was", i)
			}
		}
	}
	compare()
	var ids []int
	for _, i := range []int{4, 1, 7} {
		name := ""
		if i == 4 {
			name = "four"
		}
		ids = append(ids, must[int](t)(g.MakeCheckpoint(ctx, "shop.orders", moments[i].at.Ref(), name)))
		compare()
	}
	// They serve.
	for i, from := range map[int]int{1: ids[1], 3: ids[0], 4: ids[0]} {
		var plan strings.Builder
		past := must[*gnomon.Past](t)(g.At(ctx, moments[i].at.Ref()))
		view := column[string](t, pool, "select (tables->>'shop.orders'::regclass::oid::text) from gnomon.open_at($1, '{shop}', 'shop', 'refuse')", moments[i].at.String())
		for _, line := range column[string](t, past, "explain select * from "+view[0]) {
			plan.WriteString(line + "\n")
		}
		if !strings.Contains(plan.String(), fmt.Sprintf(" k%d ", from)) {
			t.Errorf("moment %d is not read from checkpoint %d:\n%s", i, from, plan.String())
		}
	}
	_, err := g.MakeCheckpoint(ctx, "shop.orders", gnomon.Present, "four")
	refuses(t, err, gnomon.ErrInvalid)
	list := must[[]gnomon.Checkpoint](t)(g.Checkpoints(ctx))
	if len(list) != 3 || list[0].Name != "four" || list[0].Rows == 0 || list[0].Bytes == 0 {
		t.Errorf("checkpoints are %+v", list)
	}
	for _, id := range ids {
		ok(t, g.DropCheckpoint(ctx, id))
		compare()
	}
	refuses(t, g.DropCheckpoint(ctx, ids[0]), gnomon.ErrUnknownCheckpoint)
	if n := column[int](t, pool, "select count(*)::int from annals.pin"); n[0] != 0 {
		t.Errorf("%d pins are left", n[0])
	}
}

// What a place does not see has higher positions than its bound, and other tables' entries take positions, too.
func TestCheckpointsAmongOtherTables(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	run(t, pool, "create table other (id int primary key)")
	track(t, g, "public.other")
	run(t, pool, "insert into shop.orders select i, 'c', i, null from generate_series(1, 3) i", "insert into other values (1), (2), (3)")
	must[bool](t)(g.Heartbeat(ctx, 0))
	must[gnomon.Coordinate](t)(g.Tag(ctx, "then", gnomon.Present))
	run(t, pool, "insert into other select generate_series(10, 100)")
	must[int](t)(g.MakeCheckpoint(ctx, "shop.orders", gnomon.AtTag("then"), ""))
	run(t, pool, "update shop.orders set total = 0 where id = 1", "insert into other select generate_series(1000, 1100)")
	must[bool](t)(g.Heartbeat(ctx, 0))
	past := must[*gnomon.Past](t)(g.At(ctx, gnomon.AtTag("then")))
	if list := must[[]order](t)(gnomon.List[order](ctx, past, "shop.orders", "order by id")); len(list) != 3 || *list[0].Total != 1 {
		t.Errorf("the past is %+v", list)
	}
}

func TestErasedValuesAreNotInCheckpoints(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	ok(t, volvra.Install(ctx, pool))
	v := volvra.New(pool)
	must[volvra.Covering](t)(v.Enable(ctx, "shop.orders", volvra.Options{}))
	run(t, pool, "insert into shop.orders values (1, 'secret', 1, null)")
	then := must[gnomon.Coordinate](t)(g.Now(ctx))
	must[int](t)(g.MakeCheckpoint(ctx, "shop.orders", gnomon.Present, "kept"))
	run(t, pool, "update shop.orders set customer = 'nobody'", "delete from shop.orders", "select volvra.forget('shop.orders', '{\"id\": 1}', 'redact', 'asked for')")
	past := must[*gnomon.Past](t)(g.At(ctx, then.Ref()))
	if got := must[[]map[string]any](t)(gnomon.List[map[string]any](ctx, past, "shop.orders", "")); strings.Contains(fmt.Sprint(got), "secret") {
		t.Errorf("the past shows %v", got)
	}
	if list := must[[]gnomon.Checkpoint](t)(g.Checkpoints(ctx)); len(list) != 0 {
		t.Errorf("checkpoints are left: %+v", list)
	}
}

func TestNobodyElseReadsCheckpointsAndSegments(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	role := pgserver.Role(t, pgserver.Shared(t), "granted")
	run(t, pool, "alter default privileges grant select on tables to "+role, "create table orders (id int primary key)", "revoke all on orders from "+role)
	track(t, g, "public.orders")
	run(t, pool, "insert into orders values (1)")
	must[int](t)(g.MakeCheckpoint(t.Context(), "public.orders", gnomon.Present, "kept"))
	for _, table := range column[string](t, pool, "select oid::regclass::text from pg_class where has_table_privilege('"+role+"', oid, 'select') and (relname ~ '^(k|h)[0-9]' and relname <> 'h1' or relnamespace::regnamespace::text ~ '^gnomon_')") {
		t.Errorf("%s is open", table)
	}
	run(t, pool, "alter default privileges revoke select on tables from "+role)
}
