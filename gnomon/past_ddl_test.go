package gnomon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

// ddlProgram changes the table o at random, in its rows and in what it is.
type ddlProgram struct {
	*ledger
	r        *rapid.T
	number   int
	followed bool // by event triggers
}

func (p *ddlProgram) name() string {
	p.number++
	return fmt.Sprintf("n%d", p.number)
}

// try executes a step that may be refused.
func (p *ddlProgram) try(sql string) {
	p.trace = append(p.trace, sql)
	if _, err := p.conn.Exec(p.t.Context(), sql); err != nil {
		p.trace[len(p.trace)-1] += " -- " + err.Error()
		if p.conn.PgConn().TxStatus() != 'I' {
			run(p.t, p.conn, "rollback")
		}
		// Without event triggers, capture that does not fit refuses writes.
		if p.followed {
			p.failf("%v", err)
		}
	}
}

func (p *ddlProgram) steps() {
	table := p.table()
	_, names := p.columns()
	for i, name := range names {
		names[i] = pgx.Identifier{name}.Sanitize()
	}
	key := names[0]
	k := rapid.IntRange(1, 5).Draw(p.r, "k")
	other := ""
	if len(names) > 1 {
		other = rapid.SampledFrom(names[1:]).Draw(p.r, "column")
	}
	switch step := rapid.SampledFrom([]string{"update", "update", "update", "all", "insert", "delete", "rekey", "add", "add", "drop", "saved drop", "swap", "rename", "widen", "retype", "saved retype", "key name", "table", "rotate", "seal", "sync", "trigger", "policy", "truncate"}).Draw(p.r, "step"); {
	case step == "insert":
		p.try(fmt.Sprintf("insert into %s (%s) values (%d) on conflict do nothing", table, key, k))
	case step == "delete":
		p.try(fmt.Sprintf("delete from %s where %s = %d", table, key, k))
	case step == "rekey":
		p.try(fmt.Sprintf("update %s set %s = %d where %[2]s = %d and not exists (select from %[1]s where %[2]s = %[3]d)", table, key, k+5, k))
	case step == "truncate":
		p.try("truncate " + table)
	case step == "add":
		p.try(fmt.Sprintf("alter table %s add %s %s", table, p.name(), rapid.SampledFrom([]string{"int", "text default 'd'", "varchar(9)", "smallint default 7"}).Draw(p.r, "type")))
	case step == "key name":
		p.try(fmt.Sprintf("alter table %s rename %s to %s", table, key, p.name()))
	case step == "table":
		p.try(fmt.Sprintf("alter table %s rename to %s", table, p.name()))
	case step == "rotate":
		p.try(fmt.Sprintf("select annals.rotate(%d, 0)", p.id()))
	case step == "seal":
		p.try("select annals.seal_segments()")
	case step == "sync":
		p.try(fmt.Sprintf("select annals.sync(%d)", p.id()))
	case step == "trigger":
		p.try(fmt.Sprintf("create trigger %s after update on %s for each row execute function nothing()", p.name(), table))
	case step == "policy":
		p.try(fmt.Sprintf("create policy %s on %s using (true)", p.name(), table))
	case other == "":
	case step == "update":
		p.try(fmt.Sprintf("update %s set %s = '%d' where %s = %d", table, other, k, key, k))
	case step == "all":
		p.try(fmt.Sprintf("update %s set %s = %s", table, other, rapid.SampledFrom([]string{other, "null", "'3'"}).Draw(p.r, "value")))
	case step == "drop":
		p.try(fmt.Sprintf("alter table %s drop %s", table, other))
	case step == "swap":
		p.try(fmt.Sprintf("alter table %s drop %s, add %[2]s %s", table, other, rapid.SampledFrom([]string{"text", "int default 5"}).Draw(p.r, "type")))
	case step == "saved drop":
		p.try(fmt.Sprintf("begin; select annals.materialize(%d); alter table %s drop %s; commit", p.id(), table, other))
	case step == "rename":
		p.try(fmt.Sprintf("alter table %s rename %s to %s", table, other, p.name()))
	case step == "widen":
		p.try(fmt.Sprintf("alter table %s alter %s type text", table, other))
	case strings.HasSuffix(step, "retype"):
		sql := fmt.Sprintf("alter table %s alter %s drop default, alter %[2]s type %s using null", table, other, rapid.SampledFrom([]string{"int", "bigint", "text"}).Draw(p.r, "type"))
		if step == "saved retype" {
			sql = fmt.Sprintf("begin; select annals.materialize(%d); %s; commit", p.id(), sql)
		}
		p.try(sql)
	}
}

func (p *ddlProgram) play() {
	ok(p.t, func() error {
		_, err := p.conn.Exec(p.t.Context(), "create function nothing() returns trigger language plpgsql as 'begin return new; end'")
		return err
	}())
	p.remember()
	for range rapid.IntRange(3, 12).Draw(p.r, "steps") {
		p.steps()
		p.remember()
		if rapid.IntRange(0, 3).Draw(p.r, "look") == 0 {
			p.outcome(rapid.SampledFrom(p.moments).Draw(p.r, "moment"))
		}
	}
	p.outcomes()
}

var ddlOptions = []string{`{}`, `{"form": "row"}`, `{"skip_noop": true}`}

// TestThePastOfTablesChangedAtRandom: whatever is altered between writes, what the past shows is what was there.
func TestThePastOfTablesChangedAtRandom(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	few(t, 6, func(r *rapid.T) {
		p := &ddlProgram{ledger: newLedger(t, pool.Config().ConnString(), "", rapid.SampledFrom(ddlOptions).Draw(r, "options")), r: r, followed: true}
		p.play()
	})
}

// TestThePastWithoutEventTriggers: where nothing follows changes of tables by itself, what is read before and after annals.sync is right, or refused.
func TestThePastWithoutEventTriggers(t *testing.T) {
	t.Parallel()
	pool := pgserver.Pool(t)
	owner := pgserver.Role(t, pgserver.Shared(t), "owner")
	run(t, pool, "grant create on database "+pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()+" to "+pgx.Identifier{owner}.Sanitize(), "drop schema public")
	conn := connectAs(t, pool.Config().ConnString(), owner)
	ok(t, gnomon.Install(t.Context(), conn))
	few(t, 6, func(r *rapid.T) {
		l := newLedgerAs(t, pool.Config().ConnString(), owner, "", rapid.SampledFrom(ddlOptions).Draw(r, "options"))
		l.unfollowed = true
		p := &ddlProgram{ledger: l, r: r}
		p.play()
		for _, sql := range []string{fmt.Sprintf("select annals.sync(%d)", p.id()), "select gnomon.sync_guards()"} {
			p.step(sql)
		}
		p.remember()
		if said := p.outcomes(); strings.Contains(said, "stale") || !strings.HasSuffix(said, "ok") {
			p.failf("after annals.sync reading says %s", said)
		}
	})
}
