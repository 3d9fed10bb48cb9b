package gnomon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestStatusTellsOfHistories(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	if s := must[[]gnomon.TableStatus](t)(g.Status(ctx)); len(s) != 0 {
		t.Errorf("before anything is tracked: %+v", s)
	}
	run(t, pool, `create schema "Sch ema"`, `create table "Sch ema"."ta""ble" ("t" int primary key, "o" text)`)
	track(t, g, `"Sch ema"."ta""ble"`)
	s := must[[]gnomon.TableStatus](t)(g.Status(ctx))[0]
	if s.Table != `"Sch ema"."ta""ble"` || s.History != 1 || !s.LastEntry.IsZero() || !s.Ended.IsZero() || s.Segments != 1 || s.Form != "statement" || time.Since(s.Since) > time.Minute || len(s.Pins) != 0 || len(s.Drift) != 0 ||
		s.ReadableSince.IsZero() {
		t.Errorf("an empty history: %+v", s)
	}
	run(t, pool, `insert into "Sch ema"."ta""ble" values (1, 'x'), (2, 'y')`, "select annals.rotate(1, 1)", "select annals.seal_segments()")
	s = must[[]gnomon.TableStatus](t)(g.Status(ctx))[0]
	if s.Entries != 2 || s.Segments != 2 || s.Bytes == 0 || time.Since(s.LastEntry) > time.Minute {
		t.Errorf("two entries: %+v", s)
	}
	// An interruption, and a disabled trigger.
	run(t, pool, fmt.Sprintf(`alter table "Sch ema"."ta""ble" disable trigger %s`, column[string](t, pool, `select quote_ident(tgname) from pg_trigger where tgrelid = '"Sch ema"."ta""ble"'::regclass and not tgisinternal limit 1`)[0]))
	if s = must[[]gnomon.TableStatus](t)(g.Status(ctx))[0]; !s.ReadableSince.IsZero() || len(s.Drift) == 0 {
		t.Errorf("with a disabled trigger: %+v", s)
	}
	run(t, pool, `drop table "Sch ema"."ta""ble"`)
	if s = must[[]gnomon.TableStatus](t)(g.Status(ctx))[0]; s.Ended.IsZero() || s.Table != `"Sch ema"."ta""ble"` || len(s.Drift) != 0 {
		t.Errorf("of a table that is gone: %+v", s)
	}
}

// found returns what Check finds, the words only.
func found(t testing.TB, g *gnomon.Gnomon) (words []string) {
	t.Helper()
	for _, f := range must[[]gnomon.Finding](t)(g.Check(t.Context())) {
		if f.Detail == "" || f.Hint == "" {
			t.Errorf("%+v lacks words", f)
		}
		words = append(words, strings.TrimSpace(f.What+" "+f.Table))
	}
	return words
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	beat(t, g, 0)
	finds := func(want ...string) {
		t.Helper()
		if got := found(t, g); !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	finds()
	run(t, pool, "update annals.tick set at = at - interval '2 minutes'")
	finds() // nothing was written since
	run(t, pool, "update shop.counter set n = 1")
	finds("heartbeat")
	run(t, pool, "delete from annals.tick")
	finds() // tracking has just begun
	run(t, pool, "update gnomon.history set since = since - interval '2 minutes'")
	finds("heartbeat")
	beat(t, g, 0)
	finds()
	run(t, pool, "insert into annals.pin (owner, name, v) values ('gnomon consumer', 'slow', 1)")
	finds()
	run(t, pool, "update annals.pin set at = at - interval '11 minutes'", "insert into annals.tick select v, at - interval '11 minutes', snapshot, upper_xid, lsn, epoch from annals.tick")
	finds("consumer")
	run(t, pool, "delete from annals.pin")
	// Without event triggers, what changes is found and followed by Sync.
	for _, name := range column[string](t, pool, `select quote_ident(evtname) from pg_event_trigger where evtname like 'annals\_%'`) {
		run(t, pool, "drop event trigger "+name)
	}
	finds("event trigger")
	run(t, pool, "alter table shop.counter add column more int")
	finds("event trigger", "column shop.counter")
	if changed := must[bool](t)(g.Sync(ctx, "shop.counter")); !changed {
		t.Error("there was nothing to synchronise")
	}
	if changed := must[bool](t)(g.Sync(ctx, "shop.counter")); changed {
		t.Error("there was something to synchronise again")
	}
	finds("event trigger")
	run(t, pool, "create table shop.untracked (id int primary key)")
	_, err := g.Sync(ctx, "shop.untracked")
	refuses(t, err, gnomon.ErrNotTracked)
	run(t, pool, "update annals.epoch set home = 'elsewhere'")
	if got := found(t, g); !slices.Contains(got, "restored") {
		t.Errorf("after a restore, found %q", got)
	}
}

func TestStatusIsReadByOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g, pool := installed(t)
	counters(t, g, pool)
	reader := pgserver.Role(t, pgserver.Shared(t), "reader")
	conn := connectAs(t, pool.Config().ConnString(), reader)
	_, err := gnomon.New(conn).Status(ctx)
	if sqlState(err) != "42501" {
		t.Errorf("without rights: %v", err)
	}
	run(t, pool, "grant usage on schema gnomon, annals to "+pgx.Identifier{reader}.Sanitize(), "grant execute on function gnomon.status, gnomon.check to "+pgx.Identifier{reader}.Sanitize())
	if s := must[[]gnomon.TableStatus](t)(gnomon.New(conn).Status(ctx)); len(s) != 1 || s[0].Table != "shop.counter" {
		t.Errorf("others see %+v", s)
	}
	must[[]gnomon.Finding](t)(gnomon.New(conn).Check(ctx))
}
