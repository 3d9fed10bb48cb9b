package gnomon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// working is tracked with ten orders and a shop.item that cascades, and a branch.
func working(t *testing.T, name string) (*gnomon.Gnomon, *pgxpool.Pool, *gnomon.Branch) {
	t.Helper()
	g, pool := tracked(t)
	run(t, pool, "create table shop.item (id int primary key, ord int references shop.orders on delete cascade)", "insert into shop.orders select i, 'c' || i % 3, i, null from generate_series(1, 10) i",
		"insert into shop.item select i, 1 + i % 5 from generate_series(1, 10) i", "do 'begin execute format(''alter database %I set search_path = shop'', current_database()); end'")
	track(t, g, "shop.item")
	pool.Reset()
	return g, pool, must[*gnomon.Branch](t)(g.CreateBranch(t.Context(), name, gnomon.BranchOptions{RecordReads: true}))
}

// merge merges a branch, or a request, as SQL does.
func merge(ctx context.Context, db gnomon.DB, sql string, args ...any) (status string, err error) {
	err = db.QueryRow(ctx, "select status from "+sql, args...).Scan(&status)
	return status, err
}

func wantState(t *testing.T, err error, code string) {
	t.Helper()
	if sqlState(err) != code {
		t.Fatalf("got %v, not %s", err, code)
	}
}

// detailOf returns the detail of a database error.
func detailOf(err error) string {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return ""
	}
	return pgErr.Detail
}

// rules are the rules that an error names, with tables and counts.
func rules(t *testing.T, err error) string {
	t.Helper()
	if sqlState(err) != "GN025" {
		t.Fatalf("got %v", err)
	}
	var detail struct {
		Refusals []struct {
			Policy, Rule string
			Table        *string
			Count        *int
		}
	}
	ok(t, json.Unmarshal([]byte(detailOf(err)), &detail))
	var list []string
	for _, r := range detail.Refusals {
		line := r.Policy + " " + r.Rule
		if r.Table != nil {
			line += " " + *r.Table
		}
		if r.Count != nil {
			line += fmt.Sprint(" ", *r.Count)
		}
		list = append(list, line)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestPoliciesJudgeMerges(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "run/1")
	ctx := t.Context()
	all := []string{"update orders set total = 1000 where id in (6, 7)", "update orders set note = 'x' where id = 8", "insert into orders values (11, 'z', 1, null)", "delete from orders where id = 1", "insert into item values (11, 9)"}
	for _, sql := range all {
		if _, err := b.Exec(ctx, sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	for _, c := range []struct {
		policy gnomon.MergePolicy
		want   string
	}{
		{gnomon.MergePolicy{}, ""},
		{gnomon.MergePolicy{Prefix: "other/", MaxRows: 1}, ""},
		{gnomon.MergePolicy{Named: true, MaxRows: 1}, ""},
		{gnomon.MergePolicy{MaxRows: 8}, ""}, // 3 updated, 2 inserted, 1 order and its 2 items deleted
		{gnomon.MergePolicy{Prefix: "run/", MaxRows: 7}, "p max_rows 8"},
		{gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{}}, "p tables shop.item 3, p tables shop.orders 5"},
		{gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{"shop.orders": {MaxRows: 5}, "shop.item": {MaxRows: 2}}}, "p max_rows shop.item 3"},
		{gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{"shop.orders": {Operations: []gnomon.Operation{gnomon.Update}}, "shop.item": {Operations: []gnomon.Operation{gnomon.Insert}}}}, "p operations shop.item 2, p operations shop.orders 1, p operations shop.orders 1"},
		{gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{"shop.item": {}, "shop.orders": {Conditions: []gnomon.Condition{{Column: "total", Operator: "<=", Value: 999.5}, {Column: "id", Operator: ">", Value: 1}, {Column: "note", Operator: "is null"}}}}}, "p conditions shop.orders 1, p conditions shop.orders 2"},
		{gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{"shop.item": {}, "shop.orders": {Conditions: []gnomon.Condition{{Column: "note", Operator: "<>", Value: "y"}}}}}, "p conditions shop.orders 3"}, // null is not true
		{gnomon.MergePolicy{Roles: []string{"pg_monitor", "pg_signal_backend"}}, ""}, // a superuser is a member of all
		{gnomon.MergePolicy{Reviews: 2}, "p reviews 0"},
	} {
		c.policy.Name, c.policy.Note = "p", "why"
		ok(t, g.SetMergePolicy(ctx, c.policy))
		got := must[[]gnomon.MergePolicy](t)(g.MergePolicies(ctx))[0]
		if got.Prefix != c.policy.Prefix || got.Named != c.policy.Named || got.MaxRows != c.policy.MaxRows || len(got.Tables) != len(c.policy.Tables) || (got.Tables == nil) != (c.policy.Tables == nil) || got.Reviews != c.policy.Reviews || got.Note != "why" || got.Login == "" || !slices.Equal(got.Roles, c.policy.Roles) {
			t.Errorf("set %+v, got %+v", c.policy, got)
		}
		status, err := merge(ctx, pool, `gnomon.merge('run/1', null, '{"dry_run": true}')`)
		if c.want == "" && (err != nil || status != "dry run") {
			t.Errorf("%+v: %s, %v", c.policy, status, err)
		}
		if c.want != "" {
			if got := rules(t, err); got != c.want {
				t.Errorf("%+v: broken are %s, not %s", c.policy, got, c.want)
			}
		}
	}
	// A policy that is named holds as well; one that is not there is an error. What refuses leaves everything as it was.
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Named: true, MaxRows: 1}))
	_, err := merge(ctx, pool, `gnomon.merge('run/1', null, '{"policy": "p"}')`)
	if got := rules(t, err); got != "p max_rows 8" {
		t.Errorf("broken are %s", got)
	}
	if _, err = merge(ctx, pool, `gnomon.merge('run/1', null, '{"policy": "q"}')`); sqlState(err) != "GN006" {
		t.Errorf("got %v", err)
	}
	if got := text(t, pool, "select count(*), sum(total) from shop.orders"); got != "(10,55.00)" {
		t.Errorf("a merge that was refused left %s", got)
	}
	// A column that is renamed is not passed over in silence.
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Tables: map[string]gnomon.TableRule{"shop.item": {}, "shop.orders": {Conditions: []gnomon.Condition{{Column: "note", Operator: "is null"}}}}}))
	run(t, pool, "alter table shop.orders rename note to remark")
	_, err = merge(ctx, pool, `gnomon.merge('run/1')`)
	if got := rules(t, err); got != "p conditions shop.orders" {
		t.Errorf("broken are %s", got)
	}
	ok(t, g.DropMergePolicy(ctx, "p"))
	refuses(t, g.DropMergePolicy(ctx, "p"), gnomon.ErrInvalid)
	if status, err := merge(ctx, pool, `gnomon.merge('run/1')`); status != "merged" {
		t.Errorf("%s, %v", status, err)
	}
}

func TestPoliciesThatCannotBe(t *testing.T) {
	t.Parallel()
	g, pool := tracked(t)
	ctx := t.Context()
	run(t, pool, "create table shop.plain (id int primary key)", "create domain shop.positive as int check (value > 0)", "create table shop.odd (id int primary key, list shop.positive[], amount shop.positive)")
	track(t, g, "shop.odd")
	rule := func(table string, r gnomon.TableRule) gnomon.MergePolicy {
		return gnomon.MergePolicy{Tables: map[string]gnomon.TableRule{table: r}}
	}
	condition := func(column, operator string, value any) gnomon.TableRule {
		return gnomon.TableRule{Conditions: []gnomon.Condition{{Column: column, Operator: operator, Value: value}}}
	}
	for _, p := range []gnomon.MergePolicy{
		{MaxRows: -1}, {Reviews: -1}, {Roles: []string{"no such role"}},
		rule("shop.nothing", gnomon.TableRule{}), rule("shop.plain", gnomon.TableRule{}), rule("shop.orders", gnomon.TableRule{Operations: []gnomon.Operation{gnomon.Truncate}}), rule("shop.orders", gnomon.TableRule{MaxRows: -1}),
		rule("shop.orders", condition("nothing", "=", 1)), rule("shop.orders", condition("total", "~", 1)), rule("shop.orders", condition("total", "= 1 or 1 =", 1)), rule("shop.orders", condition("total", "=", nil)),
		rule("shop.orders", condition("total", "is null", 1)), rule("shop.orders", condition("total", "=", "abc")), rule("shop.odd", condition("list", "=", "{1}")),
	} {
		p.Name = "p"
		if err := g.SetMergePolicy(ctx, p); !errors.Is(err, gnomon.ErrInvalid) && !errors.Is(err, gnomon.ErrNotTracked) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	refuses(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{}), gnomon.ErrInvalid)
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Tables: map[string]gnomon.TableRule{"shop.odd": condition("amount", "<", 5)}}))
	for _, options := range []string{`{"prefx": ""}`, `[]`, `{"tables": []}`, `{"tables": {"shop.orders": {"rows": 1}}}`, `{"max_rows": "many"}`, `{"tables": {"shop.orders": {"conditions": [{"column": "id"}]}}}`, `{"roles": "all"}`} {
		if _, err := pool.Exec(ctx, "select gnomon.set_merge_policy('q', $1)", options); sqlState(err) != "GN006" {
			t.Errorf("%s: %v", options, err)
		}
	}
	if n := len(must[[]gnomon.MergePolicy](t)(g.MergePolicies(ctx))); n != 1 {
		t.Errorf("%d policies are left", n)
	}
}

func TestMergesThatDemandFreshReads(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "run/1")
	ctx := t.Context()
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Prefix: "run/", NoStaleReads: true}))
	var total string
	ok(t, b.Reading(gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(1)}).QueryRow(ctx, "select total::text from orders where id = 1").Scan(&total))
	if _, err := b.Reading(gnomon.Read{Table: "shop.orders", Key: gnomon.KeyOf(2)}).Exec(ctx, "update orders set total = total + $1::numeric where id = 2", total); err != nil {
		t.Fatal(err)
	}
	run(t, pool, "update shop.orders set total = 100 where id = 1")
	_, err := merge(ctx, pool, "gnomon.merge('run/1')")
	if sqlState(err) != "GN023" {
		t.Fatalf("got %v", err)
	}
	run(t, pool, "update shop.orders set total = 1 where id = 1", "update shop.orders set note = 'x' where id = 3")
	if status, err := merge(ctx, pool, "gnomon.merge('run/1')"); status != "merged" {
		t.Fatal(status, err)
	}
	// What the merge wrote is not stale to its own branch, and what came later is.
	if _, err := b.Reading().Exec(ctx, "update orders set note = 'later' where id = 2"); err != nil {
		t.Fatal(err)
	}
	if list := must[[]gnomon.StaleRead](t)(b.StaleReads(ctx)); len(list) != 0 {
		t.Errorf("stale after its own merge: %+v", list)
	}
	// Nor is what undoing it wrote.
	must[gnomon.MergeReport](t)(g.UndoMerge(ctx, column[int64](t, pool, "select max(id) from gnomon.merged where status = 'merged'")[0], gnomon.UndoMergeOptions{}))
	if list := must[[]gnomon.StaleRead](t)(b.StaleReads(ctx)); len(list) != 0 {
		t.Errorf("stale after its merge was undone: %+v", list)
	}
	run(t, pool, "update shop.orders set customer = 'x' where id = 2")
	if _, err := merge(ctx, pool, "gnomon.merge('run/1')"); sqlState(err) != "GN023" {
		t.Fatalf("got %v", err)
	}
}

// Two branches each read what the other one changes: both could be merged by themselves, but not both.
func TestMergesThatCrossDoNotSkew(t *testing.T) {
	t.Parallel()
	g, pool, _ := working(t, "none")
	ctx := t.Context()
	for round := range 5 {
		done := make(chan error, 2)
		for i, sql := range []string{"update orders set total = total + (select total from orders where id = 2) where id = 1", "update orders set total = total + (select total from orders where id = 1) where id = 2"} {
			name := fmt.Sprint("skew/", round, "/", i)
			b := must[*gnomon.Branch](t)(g.CreateBranch(ctx, name, gnomon.BranchOptions{RecordReads: true}))
			if _, err := b.Reading(gnomon.Read{Table: "orders", Key: gnomon.KeyOf(1)}, gnomon.Read{Table: "orders", Key: gnomon.KeyOf(2)}).Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			go func() {
				_, err := merge(ctx, pool, "gnomon.merge($1, null, '{\"no_stale_reads\": true}')", fmt.Sprint("skew/", round, "/", i))
				done <- err
			}()
		}
		first, second := <-done, <-done
		if (first == nil) == (second == nil) || sqlState(errors.Join(first, second)) != "GN023" {
			t.Fatalf("round %d: %v and %v", round, first, second)
		}
	}
}

func TestChangeRequests(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "run/1")
	ctx := t.Context()
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Prefix: "run/", Reviews: 2}))
	as, conns := map[string]*gnomon.Gnomon{}, map[string]*pgx.Conn{}
	for _, name := range []string{"ann", "bob", "cyd"} {
		role := pgserver.Role(t, pgserver.Shared(t), "gnomon_"+name)
		run(t, pool, "grant usage on schema shop to "+role, "grant select, insert, update, delete on shop.orders, shop.item to "+role)
		ok(t, gnomon.Grant(ctx, pool, "", role, ""))
		conns[name] = connectAs(t, pool.Config().ConnString(), role)
		as[name] = gnomon.New(conns[name])
	}
	exec := func(sql string) {
		t.Helper()
		mine := must[*gnomon.Branch](t)(as["ann"].Branch(ctx, b.Name()))
		if _, err := mine.Exec(ctx, sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	exec("update orders set total = 20 where id = 2")
	exec("delete from item where id = 1")
	id := must[int](t)(as["ann"].OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: "A price", Purpose: "It was wrong"}))
	want := func(state gnomon.RequestState, approvals int64) gnomon.ChangeRequest {
		t.Helper()
		r := must[gnomon.ChangeRequest](t)(as["cyd"].ChangeRequest(ctx, id))
		if r.State != state || r.Approvals != approvals {
			t.Errorf("the request is %s with %d approvals, not %s with %d", r.State, r.Approvals, state, approvals)
		}
		return r
	}
	r := want(gnomon.RequestOpen, 0)
	if r.Branch != "run/1" || r.Into != "" || r.Title != "A price" || r.Purpose != "It was wrong" || !strings.HasPrefix(r.Login, "gnomon_ann") || r.Counts["shop.orders"] != (gnomon.Counts{Updates: 1}) || r.Counts["shop.item"] != (gnomon.Counts{Deletes: 1}) {
		t.Errorf("got %+v", r)
	}
	attempt := func(name string) error {
		t.Helper()
		_, err := merge(ctx, conns[name], "gnomon.merge_request($1)", id)
		return err
	}
	wantState(t, attempt("bob"), "GN025")
	// The author's own approval doesn't count, nor does a second one of the same reviewer.
	ok(t, as["ann"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}))
	ok(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve, BranchState: r.BranchState, Comment: "fine"}))
	ok(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}))
	want(gnomon.RequestOpen, 1)
	wantState(t, attempt("bob"), "GN025")
	ok(t, as["cyd"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}))
	want(gnomon.RequestApproved, 2)
	// A change of the branch voids all of them, and a review of what was there before is refused.
	exec("update orders set note = 'x' where id = 2")
	want(gnomon.RequestOpen, 0)
	wantState(t, attempt("bob"), "GN025")
	refuses(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve, BranchState: r.BranchState}), gnomon.ErrStale)
	ok(t, as["cyd"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Reject, Comment: "No."}))
	ok(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}))
	want(gnomon.RequestRejected, 1)
	wantState(t, attempt("bob"), "GN025")
	ok(t, as["cyd"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Comment, Comment: "Hm."}))
	want(gnomon.RequestRejected, 1)
	ok(t, as["cyd"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}))
	want(gnomon.RequestApproved, 2)
	var standing int
	for _, review := range must[[]gnomon.Review](t)(as["ann"].Reviews(ctx, id)) {
		if review.Stands {
			standing++
		}
	}
	if standing != 2 {
		t.Errorf("%d reviews stand", standing)
	}
	refuses(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: "maybe"}), gnomon.ErrInvalid)
	if err := as["bob"].WithdrawRequest(ctx, id); sqlState(err) != "42501" {
		t.Errorf("withdrawn by another: %v", err)
	}
	ok(t, attempt("bob"))
	r = want(gnomon.RequestMerged, 2)
	if r.Merge == 0 || !strings.HasPrefix(r.ClosedBy, "gnomon_bob") || r.Counts["shop.orders"] != (gnomon.Counts{Updates: 1}) {
		t.Errorf("got %+v", r)
	}
	wantState(t, attempt("bob"), "GN026")
	refuses(t, as["bob"].Review(ctx, id, gnomon.Review{Verdict: gnomon.Approve}), gnomon.ErrUnknownRequest)

	// Withdrawn, or gone with its branch.
	second := must[int](t)(as["ann"].OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: "Again"}))
	ok(t, as["ann"].WithdrawRequest(ctx, second))
	refuses(t, as["ann"].WithdrawRequest(ctx, second), gnomon.ErrUnknownRequest)
	must[int](t)(as["ann"].OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: "Once more"}))
	ok(t, b.Drop(ctx))
	if n := len(must[[]gnomon.ChangeRequest](t)(g.ChangeRequests(ctx, gnomon.RequestWithdrawn))); n != 2 {
		t.Errorf("%d requests are withdrawn", n)
	}
	if n := len(must[[]gnomon.ChangeRequest](t)(g.ChangeRequests(ctx, ""))); n != 3 {
		t.Errorf("there are %d requests", n)
	}
	_, err := g.ChangeRequest(ctx, 99)
	refuses(t, err, gnomon.ErrUnknownRequest)
	for _, p := range []gnomon.RequestParams{{Branch: "none", Title: "x"}, {Branch: "b"}, {Branch: "b", Title: "x", Options: gnomon.MergeOptions{Policy: "none"}}, {Branch: "b", Title: "x", Options: gnomon.MergeOptions{Into: "none"}}} {
		must[*gnomon.Branch](t)(g.CreateBranch(ctx, fmt.Sprint("b", p), gnomon.BranchOptions{}))
		if p.Branch == "b" {
			p.Branch = fmt.Sprint("b", p)
		}
		if _, err := g.OpenRequest(ctx, p); !errors.Is(err, gnomon.ErrInvalid) && !errors.Is(err, gnomon.ErrUnknownBranch) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestRightsOfMergers(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "run/1")
	ctx := t.Context()
	if _, err := b.Exec(ctx, "update orders set total = 20 where id = 2"); err != nil {
		t.Fatal(err)
	}
	role := pgserver.Role(t, pgserver.Shared(t), "gnomon_reader")
	run(t, pool, "grant usage on schema shop to "+role, "grant select on shop.orders, shop.item to "+role)
	ok(t, gnomon.Grant(ctx, pool, "", role, ""))
	conn := connectAs(t, pool.Config().ConnString(), role)
	reader := gnomon.New(conn)
	id := must[int](t)(reader.OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: "Please"}))
	_, err := merge(ctx, conn, "gnomon.merge_request($1)", id)
	wantState(t, err, "42501")
	// Nor may one merge whom the policy does not name.
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Roles: []string{"pg_monitor"}}))
	run(t, pool, "grant insert, update, delete on shop.orders, shop.item to "+role)
	_, err = merge(ctx, conn, "gnomon.merge_request($1)", id)
	if got := rules(t, err); got != "p roles" {
		t.Errorf("broken are %s", got)
	}
	run(t, pool, "grant pg_monitor to "+role)
	if status, err := merge(ctx, conn, "gnomon.merge_request($1)", id); status != "merged" {
		t.Error(status, err)
	}
}

// A request whose merge met conflicts is closed when they are resolved, unless it has come to another end by then.
func TestRequestsWithConflicts(t *testing.T) {
	t.Parallel()
	g, pool, b := working(t, "run/1")
	ctx := t.Context()
	ok(t, g.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "p", Prefix: "run/", Reviews: 1, SelfReview: true}))
	attempt := func(title string) (request int, report gnomon.MergeReport) {
		t.Helper()
		if _, err := b.Exec(ctx, "update orders set total = total + 100 where id in (1, 2)"); err != nil {
			t.Fatal(err)
		}
		run(t, pool, "update shop.orders set total = total + 1 where id = 1")
		request = must[int](t)(g.OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: title}))
		ok(t, g.Review(ctx, request, gnomon.Review{Verdict: gnomon.Approve}))
		report, err := g.MergeRequest(ctx, request, gnomon.MergeOptions{})
		refuses(t, err, gnomon.ErrConflict)
		if r := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, request)); r.State != gnomon.RequestApproved {
			t.Errorf("after a conflict the request is %s", r.State)
		}
		ok(t, g.ResolveConflict(ctx, report.ID, "shop.orders", gnomon.KeyOf(1), gnomon.TakeOurs, nil))
		return request, report
	}
	request, report := attempt("first")
	finished := must[gnomon.MergeReport](t)(g.FinishMerge(ctx, report.ID))
	if r := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, request)); r.State != gnomon.RequestMerged || r.Merge != finished.ID || r.Counts["shop.orders"] != (gnomon.Counts{Updates: 2}) {
		t.Errorf("got %+v", r)
	}
	request, report = attempt("second")
	ok(t, g.Review(ctx, request, gnomon.Review{Verdict: gnomon.Reject}))
	_, err := g.FinishMerge(ctx, report.ID)
	refuses(t, err, gnomon.ErrPolicy)
	request, report = attempt("third")
	ok(t, g.WithdrawRequest(ctx, request))
	_, err = g.FinishMerge(ctx, report.ID)
	refuses(t, err, gnomon.ErrPolicy)
	// A part of what it asks for does not close it.
	if _, err := b.Exec(ctx, "update item set ord = 3 where id = 1"); err != nil {
		t.Fatal(err)
	}
	request = must[int](t)(g.OpenRequest(ctx, gnomon.RequestParams{Branch: "run/1", Title: "fourth", Options: gnomon.MergeOptions{Strategies: gnomon.Strategies{"shop.orders": {"total": gnomon.Sum}}}}))
	ok(t, g.Review(ctx, request, gnomon.Review{Verdict: gnomon.Approve}))
	must[gnomon.MergeReport](t)(g.MergeRequest(ctx, request, gnomon.MergeOptions{Tables: []string{"shop.item"}}))
	if r := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, request)); r.State != gnomon.RequestApproved {
		t.Errorf("in part it is %s", r.State)
	}
	must[gnomon.MergeReport](t)(g.MergeRequest(ctx, request, gnomon.MergeOptions{}))
	if r := must[gnomon.ChangeRequest](t)(g.ChangeRequest(ctx, request)); r.State != gnomon.RequestMerged {
		t.Errorf("as a whole it is %s", r.State)
	}
}
