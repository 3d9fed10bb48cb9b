package volvra_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/annals-db/annals/volvra"
)

// TestAttemptsAreRecorded: also those that were refused, or rolled back with everything else (fault 19).
func TestAttemptsAreRecorded(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'ann', 1)", "update shop.orders set total = 2", "update shop.orders set total = 3")
	first := column[string](t, pool, "select epoch || ':' || xid from annals.h1 where op = 'u' order by v limit 1")
	_, err := v.Undo(t.Context(), volvra.Selection{Tables: []string{"shop.orders"}, Transactions: []volvra.TransactionID{volvra.TransactionID(first[0])},
		Where: []volvra.Condition{where("customer", volvra.Equal, "ann")}}, volvra.UndoOptions{})
	if !errors.Is(err, volvra.ErrConflict) {
		t.Fatalf("undo: %v", err)
	}
	list := must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{Action: "undo"}))
	if len(list) != 1 || list[0].Outcome != volvra.OutcomeRefused || list[0].Code == "" || list[0].Login == "" || list[0].Ended.Before(list[0].Began) {
		t.Fatalf("attempts: %+v", list)
	}
	if s := string(list[0].Selection); strings.Contains(s, "ann") || !strings.Contains(s, "customer") {
		t.Errorf("the record of an attempt holds a value, or not the column: %s", s)
	}

	// In the caller's transaction the record goes with it.
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	_, err = volvra.New(tx).Forget(t.Context(), "shop.orders", volvra.Key{}, volvra.Redact, "test")
	if !errors.Is(err, volvra.ErrIncompleteKey) {
		t.Errorf("forget: %v", err)
	}
	if n := len(must[[]volvra.Attempt](t)(volvra.New(tx).Attempts(t.Context(), volvra.AttemptFilter{Action: "forget"}))); n != 1 {
		t.Errorf("%d attempts inside the transaction", n)
	}
	ok(t, tx.Rollback(t.Context()))
	if n := len(must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{Action: "forget"}))); n != 0 {
		t.Errorf("%d attempts after the rollback", n)
	}
}

// TestAttemptWithoutOutcome: one whose transaction is gone has failed, one whose transaction is open is running.
func TestAttemptWithoutOutcome(t *testing.T) {
	t.Parallel()
	v, pool := installed(t)
	run(t, pool, "insert into volvra.attempt (action, began_at, login, role, actor, application) select 'undo', now() - interval '1 minute', session_user, 'none', '', '' from generate_series(1, 2)")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select volvra.resume_attempt(2)")
	ok(t, err)
	run(t, pool, "select volvra.begin_attempt('undo')")
	want := []string{volvra.OutcomeRunning, volvra.OutcomeRunning, volvra.OutcomeFailed}
	for i, a := range must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{})) {
		if a.Outcome != want[i] {
			t.Errorf("attempt %d is %s, want %s", a.ID, a.Outcome, want[i])
		}
	}
	ok(t, tx.Rollback(t.Context()))
	failed := must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{Outcome: volvra.OutcomeFailed, To: time.Now().Add(-30 * time.Second)}))
	if len(failed) != 2 || failed[0].Reason != "no outcome" {
		t.Errorf("failed: %+v", failed)
	}
}

// TestAttemptsCannotBeWritten by anybody but the functions (fault 18).
func TestAttemptsCannotBeWritten(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	viewer, other := grantedRoles(t, pool)
	run(t, pool, "select volvra.finish_attempt(volvra.begin_attempt('undo'), 'done')", "select volvra.begin_attempt('undo')")
	asViewer := connectAs(t, pool.Config().ConnString(), viewer)
	for _, sql := range []string{
		"insert into volvra.attempt (action, login, role, actor, application) values ('undo', 'x', '', '', '')", "insert into volvra.outcome (attempt, epoch, outcome) values (2, 1, 'done')",
		"update volvra.attempt set login = 'x'", "delete from volvra.outcome", "truncate volvra.attempt cascade", "select volvra.begin_attempt('undo')", "select volvra.finish_attempt(2, 'done')",
	} {
		if _, err := asViewer.Exec(t.Context(), sql); sqlState(err) != "42501" {
			t.Errorf("as a viewer, %s: %v", sql, err)
		}
	}
	if _, err := volvra.New(asViewer).Attempts(t.Context(), volvra.AttemptFilter{}); err != nil {
		t.Errorf("a viewer lists attempts: %v", err)
	}
	// An operator finishes his own only, and nobody changes what stands there.
	if _, err := connectAs(t, pool.Config().ConnString(), other).Exec(t.Context(), "select volvra.finish_attempt(2, 'done')"); sqlState(err) != "VO041" {
		t.Errorf("somebody else's attempt: %v", err)
	}
	for sql, want := range map[string]string{"update volvra.attempt set login = 'x'": "VO040", "delete from volvra.outcome": "VO040", "truncate volvra.attempt, volvra.outcome": "VO040",
		"select volvra.finish_attempt(1, 'failed')": "VO042", "select volvra.finish_attempt(9, 'failed')": "VO041"} {
		if _, err := pool.Exec(t.Context(), sql); sqlState(err) != want {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if list := must[[]volvra.Attempt](t)(v.Attempts(t.Context(), volvra.AttemptFilter{Action: "undo"})); len(list) != 2 {
		t.Errorf("attempts: %+v", list)
	}
}
