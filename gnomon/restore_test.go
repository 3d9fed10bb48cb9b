package gnomon_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// TestRestoredDatabaseIsAdopted: in a restored dump transaction ids mean something else, so old places are refused; once it is adopted, history goes on.
func TestRestoredDatabaseIsAdopted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	g, pool := installed(t)
	w := newCheckerWorld(t, g, pool, checkerRandom(t))
	run(t, pool, "select gnomon.heartbeat('0')", "select gnomon.tag('old')", "alter table wide add column dropped int", "alter table wide drop column dropped")
	j := w.work(t, pool, workTime()/2, 10, rotation(t))
	dump, err := exec.CommandContext(ctx, "pg_dump", "-d", pool.Config().ConnString()).CombinedOutput()
	if strings.Contains(string(dump), "server version mismatch") {
		t.Skip("pg_dump is older than the server")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, dump)
	}
	to := pgserver.New(t, pgserver.Options{Own: true, Settings: map[string]string{"max_prepared_transactions": "20"}})
	name, err := to.CreateDatabase(ctx)
	ok(t, err)
	restore := exec.CommandContext(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", to.ConnString(name))
	restore.Stdin = strings.NewReader(string(dump))
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	there := must[*pgxpool.Pool](t)(pgxpool.New(ctx, to.ConnString(name)))
	t.Cleanup(there.Close)
	run(t, there, "alter database "+pgx.Identifier{name}.Sanitize()+" set search_path = "+checkerSchema+", public")
	there.Reset()
	restored := gnomon.New(there)
	refused := func(when string) {
		t.Helper()
		for _, ref := range []gnomon.Ref{j.seen[0].at, j.seen[len(j.seen)-1].at, gnomon.AtTag("old"), gnomon.Ref("now")} {
			if when == "adopted" && ref == "now" {
				continue
			}
			if _, err := restored.At(ctx, ref); !errors.Is(err, gnomon.ErrEpoch) && !errors.Is(err, gnomon.ErrStale) {
				t.Errorf("%s: %s: %v", when, ref, err)
			}
		}
	}
	refused("restored")
	for _, table := range w.tables {
		if got, want := text(t, there, "select * from "+table.name+" order by 1"), text(t, pool, "select * from "+table.name+" order by 1"); got != want {
			t.Fatalf("the dump has another %s:\n%s\n%s", table.name, got, want)
		}
	}
	run(t, there, "select annals.adopt()")
	refused("adopted")
	j.goesOn(t, restored, there)
	refused("adopted")
}
