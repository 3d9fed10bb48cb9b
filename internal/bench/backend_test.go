package bench

import "testing"

func TestSwitches(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         int64
		ok           bool
	}{
		{"both", "Name:\tpostgres\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n", 157, true},
		{"one is missing", "voluntary_ctxt_switches:\t150\n", 0, false},
		{"not a number", "voluntary_ctxt_switches:\tx\nnonvoluntary_ctxt_switches:\t7\n", 0, false},
	} {
		got, ok := fakeProc(t, map[string]string{"status": c.status}).switches(42)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %d, %t", c.name, got, ok)
		}
	}
	if _, ok := fakeProc(t, nil).switches(43); ok {
		t.Error("a process that isn't there has switches")
	}
}
