package volvra_test

import (
	"slices"
	"testing"

	"github.com/annals-db/annals/volvra"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	before := must[string](t)(v.Fingerprint(t.Context()))
	seal(t, v)
	// What happens by itself changes nothing.
	run(t, pool, "insert into shop.orders select g, 'c', g from generate_series(1, 100) g", "select annals.rotate(1, 0)", "select annals.seal_segments()", "select annals.rotate(1, 0)")
	if after := must[string](t)(v.Fingerprint(t.Context())); after != before {
		t.Errorf("rotation changed the fingerprint: %+v", must[[]volvra.CodeChange](t)(v.ChangedCode(t.Context(), 0)))
	}
	for sql, want := range map[string]volvra.CodeChange{
		"create or replace function annals.h1_update() returns trigger language plpgsql security definer as 'begin return null; end'": {Object: "function annals.h1_update()", Change: "changed"},
		"alter table shop.orders disable trigger annals_capture_delete":                                                               {Object: "trigger annals_capture_delete on shop.orders", Change: "changed"},
		"create function volvra.mine() returns int language sql return 1":                                                             {Object: "function volvra.mine()", Change: "added"},
		"drop trigger guard_record on volvra.seal":                                                                                    {Object: "trigger guard_record on volvra.seal", Change: "removed"},
		"alter function volvra.h1_row security definer":                                                                               {Object: "function volvra.h1_row(p_row anyelement, p_key text[], p_moment text)", Change: "changed"},
		"create rule r as on insert to volvra.attempt do instead nothing":                                                             {Object: "rule r on volvra.attempt", Change: "added"},
	} {
		tx, err := pool.Begin(t.Context())
		ok(t, err)
		run(t, tx, sql)
		inTx := volvra.New(tx)
		if changes := must[[]volvra.CodeChange](t)(inTx.ChangedCode(t.Context(), 0)); !slices.Contains(changes, want) || len(changes) != 1 {
			t.Errorf("%s: %+v", sql, changes)
		}
		if must[string](t)(inTx.Fingerprint(t.Context())) == before {
			t.Errorf("%s: same fingerprint", sql)
		}
		ok(t, tx.Rollback(t.Context()))
	}
}
