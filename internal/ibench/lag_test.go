package ibench

import (
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

// A standby's lag is read where there is one, and unknown elsewhere.
func TestLag(t *testing.T) {
	ctx := t.Context()
	server := pgserver.New(t, pgserver.Options{Settings: Settings(false)})
	servers := []Server{{Conn: server.ConnString("postgres")}}
	facts, err := servers[0].facts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLane(ctx, &servers[0], facts, Side{Variant: "plain", Mode: Compatible, Name: "plain"}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.end()
	s, err := l.turn(ctx, steps(Short)[0], Short, 0)
	if err != nil || Figure(s.lagBytes).Known() {
		t.Fatalf("%g bytes behind without a standby, %v", s.lagBytes, err)
	}
	standby, err := server.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Stop()
	if s, err = l.turn(ctx, steps(Short)[0], Short, 1); err != nil || !Figure(s.lagBytes).Known() || s.lagBytes < 0 {
		t.Fatalf("%g bytes behind, %v", s.lagBytes, err)
	}
	if s.wal <= 0 || s.rows != float64(Short.Load/Short.Slices) || s.seconds <= 0 {
		t.Errorf("%+v", s)
	}
}
