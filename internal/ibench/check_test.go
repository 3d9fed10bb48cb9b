package ibench

import (
	"strings"
	"testing"
)

// What a run must not overlook: rows that are gone, and changes that a history doesn't know.
func TestCheck(t *testing.T) {
	ctx := t.Context()
	servers := shared(t)
	facts, err := servers[0].facts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ variant, change, want string }{
		{"plain", "delete from purchases1 where transactionid = 5", "holds 199 rows"},
		{"plain", "update purchases1 set transactionid = 1000 where transactionid = 200", "keys 1 to 1000"},
		{"gnomon", "set session_replication_role = replica; update purchases1 set price = price + 1 where transactionid = 5; reset session_replication_role", "the history of purchases1"},
		{"volvra", "set session_replication_role = replica; update purchases1 set price = price + 1 where transactionid = 5; reset session_replication_role", "the history of purchases1"},
	} {
		l, err := openLane(ctx, &servers[0], facts, Side{Variant: c.variant, Mode: Lean, Name: c.variant}, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.clients[0].load(ctx, 100, 2); err != nil {
			t.Fatal(err)
		}
		if err := l.check(ctx); err != nil {
			t.Errorf("%s: %v", c.variant, err)
		}
		if _, err := l.control.Exec(ctx, c.change); err != nil {
			t.Fatal(err)
		}
		if err := l.check(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: after %s the check says %v", c.variant, c.change, err)
		}
		if err := l.end(); err != nil {
			t.Error(err)
		}
	}
}
