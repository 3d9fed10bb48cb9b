package gnomon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestEveryFunctionHasItsPlace(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	const functions = "pg_proc p where p.pronamespace = 'gnomon'::regnamespace and p.proname !~ '^[hv][0-9]+_'"
	for what, query := range map[string]string{
		"not in gnomon.access":         "select p.oid::regprocedure::text from " + functions + " and p.proname not in (select function from gnomon.access where schema = 'gnomon')",
		"in gnomon.access and no more": "select function from gnomon.access where schema = 'gnomon' and function not in (select p.proname from " + functions + ")",
		"in gnomon.access twice":       "select function from gnomon.access group by schema, function having count(*) > 1",
		"open to everybody":            "select p.oid::regprocedure::text from " + functions + " and has_function_privilege('public', p.oid, 'execute')",
		"without a search_path":        "select p.oid::regprocedure::text from " + functions + " and p.prosecdef and not coalesce(p.proconfig::text like '%search_path%', false)",
		"without a comment":            "select p.oid::regprocedure::text from " + functions + " and obj_description(p.oid, 'pg_proc') is null",
		"relations open to everybody":  "select c.oid::regclass::text from pg_class c cross join aclexplode(c.relacl) a where c.relnamespace = 'gnomon'::regnamespace and a.grantee = 0",
	} {
		for _, name := range column[string](t, pool, query) {
			t.Errorf("%s: %s", what, name)
		}
	}
}

// What the roles are for works with the rights that Grant gives, inside functions too, and nothing beyond.
func TestRolesDoTheirWork(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	run(t, pool, "insert into shop.orders values (1, 'ada', 1, null)", "select annals.tick()", "create table shop.other (id int primary key)", "create view shop.cheap as select * from shop.orders where total < 5")
	then := must[gnomon.Coordinate](t)(g.Tag(ctx, "then", gnomon.Present)).String()
	run(t, pool, "update shop.orders set total = 2")
	must[int](t)(g.MakeCheckpoint(ctx, "shop.orders", gnomon.AtTag("then"), "kept"))
	run(t, pool, "alter table shop.orders add column extra int")
	classes := []string{"viewer", "operator", "admin"}
	roles, as := map[string]string{}, map[string]*pgx.Conn{}
	for _, class := range append(classes, "nobody") {
		roles[class] = pgserver.Role(t, pgserver.Shared(t), "gnomon_"+class)
		run(t, pool, "grant usage on schema shop to "+roles[class], "grant select, update on shop.orders, shop.cheap to "+roles[class])
		as[class] = connectAs(t, pool.Config().ConnString(), roles[class])
	}
	ok(t, gnomon.Grant(ctx, pool, roles["viewer"], roles["operator"], roles["admin"]))
	refuses(t, gnomon.Grant(ctx, pool, "no such role", "", ""), gnomon.ErrInvalid)
	const inThePast = "set local search_path = shop; select gnomon.at('tag:then', true); "
	for _, c := range []struct{ class, sql string }{
		{"viewer", "select gnomon.now()"}, {"viewer", "select * from gnomon.tags()"}, {"viewer", inThePast + "select * from orders where id = 1"}, {"viewer", inThePast + "select * from cheap"}, {"viewer", "select * from gnomon.place_of('tag:then')"},
		{"viewer", "select * from gnomon.history('shop.orders', '{1}')"}, {"viewer", "select * from gnomon.blame('shop.orders', '{1}')"}, {"viewer", "select * from gnomon.diff('tag:then')"}, {"viewer", "select * from gnomon.diff_counts('tag:then')"},
		{"viewer", "select * from gnomon.changes('tag:then')"}, {"viewer", "select * from gnomon.status()"}, {"viewer", "select * from gnomon.check()"}, {"viewer", "select * from gnomon.consumers()"}, {"viewer", "select * from gnomon.checkpoint"},
		{"viewer", "select * from gnomon.change_requests()"}, {"viewer", "select * from gnomon.merge_policies()"},
		{"operator", "do 'begin perform gnomon.create_branch(''b''), gnomon.stale_reads(''b''), gnomon.forget_reads(''b''); perform gnomon.review_request(gnomon.open_request(''b'', ''x''), ''comment''); end'"},
		{"admin", "select gnomon.set_merge_policy('p'), gnomon.drop_merge_policy('p')"}, {"owner", "select gnomon.branch_counts(1)"}, {"owner", "insert into gnomon.review (request) values (1)"}, {"owner", "select * from gnomon.read_mark"},
		{"operator", "select gnomon.tag('t')"}, {"operator", "select gnomon.create_consumer('c', '{}')"},
		{"admin", "select gnomon.track('shop.other')"}, {"admin", "select gnomon.untrack('shop.orders')"}, {"admin", "select gnomon.make_checkpoint('shop.orders')"}, {"admin", "select * from gnomon.prune('now')"}, {"operator", "select gnomon.heartbeat('0')"},
		{"admin", "select * from gnomon.maintain()"}, {"admin", "select gnomon.sync('shop.orders')"}, {"admin", "select gnomon.set_policy('shop.orders', '1 day', 5)"},
		{"owner", "select gnomon.write_routes(1)"}, {"owner", "select * from gnomon.k1"}, {"owner", "select gnomon.grant_access(null, null, null)"}, {"owner", "insert into gnomon.tag values ('x')"}, {"owner", "select * from annals.h1_1"},
	} {
		for _, class := range append(classes, "nobody") {
			tx := must[pgx.Tx](t)(as[class].Begin(ctx))
			_, err := tx.Exec(ctx, c.sql, pgx.QueryExecModeSimpleProtocol)
			ok(t, tx.Rollback(ctx))
			may := class == c.class || class == "admin" && c.class != "owner" || class == "operator" && c.class == "viewer"
			if may && err != nil {
				t.Errorf("%s: %s: %v", class, c.sql, err)
			}
			if !may && sqlState(err) != "42501" {
				t.Errorf("%s: %s: %v", class, c.sql, err)
			}
		}
	}
	// The Go side of it.
	viewer := gnomon.New(as["viewer"])
	past := must[*gnomon.Past](t)(viewer.At(ctx, gnomon.Ref(then)))
	if o, found, err := gnomon.Get[map[string]any](ctx, past, "shop.orders", 1); !found || o["extra"] != nil {
		t.Errorf("got %v, %v", o, err)
	}
	run(t, pool, "revoke select on shop.orders from "+roles["viewer"])
	if _, _, err := gnomon.Get[map[string]any](ctx, past, "shop.orders", 1); sqlState(err) != "42501" {
		t.Errorf("after SELECT was revoked: %v", err)
	}
}

func TestCreateRolesIsIdempotent(t *testing.T) {
	t.Parallel()
	server := pgserver.New(t, pgserver.Options{}) // a cluster whose roles are nobody else's
	conn := connectAs(t, server.ConnString(must[string](t)(server.CreateDatabase(t.Context()))), "")
	for range 2 {
		ok(t, gnomon.CreateRoles(t.Context(), conn))
	}
	ok(t, gnomon.Install(t.Context(), conn))
	ok(t, gnomon.Grant(t.Context(), conn, gnomon.ViewerRole, gnomon.OperatorRole, gnomon.AdminRole))
}
