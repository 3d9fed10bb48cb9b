package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/ledger"
)

// What an owner could do to the tables so that rows change, or come in, past the guards is reported.
func TestVerifyFindsTablesThatAreNotAsInstalled(t *testing.T) {
	ctx := t.Context()
	books, pool := installed(t)
	_, err := pool.Exec(ctx, "create schema other; create function other.meddle() returns trigger language plpgsql as 'begin return new; end'")
	ok(t, err)
	for _, c := range []struct{ spoil, want string }{
		{"create or replace trigger guard_books before update of metadata or delete or truncate on ledger.transfer for each statement execute function ledger.guard_books()", "guard_books on ledger.transfer is not as it was installed"},
		{"create trigger meddle before insert on ledger.transfer for each row execute function other.meddle()", "ledger.transfer has a trigger meddle"},
		{"create rule nothing as on insert to ledger.reversal do instead nothing", "ledger.reversal has a rule nothing"},
		{"create table other.ghost () inherits (ledger.transfer)", "ledger.transfer has rows of other.ghost"},
		{"alter table ledger.transfer set unlogged", "ledger.transfer is not logged"},
		{"alter table ledger.transfer drop constraint transfer_pkey", "ledger.transfer has no primary key"},
	} {
		tx, err := pool.Begin(ctx)
		ok(t, err)
		_, err = tx.Exec(ctx, c.spoil)
		ok(t, err)
		found := problems(t, ledger.New(tx).Verify(ctx, ledger.VerifyOptions{}))
		if len(found) != 1 || found[0].Kind != ledger.ProblemGuard || !strings.Contains(found[0].Message, c.want) {
			t.Errorf("%s: %+v", c.spoil, found)
		}
		ok(t, tx.Rollback(ctx))
	}
	whole(t, books)
}

// Not even a session that looks like a function of the ledger's changes what never changes.
func TestWhatIsFixedStays(t *testing.T) {
	ctx := t.Context()
	books, pool := installed(t)
	open(t, books, "a")
	for _, change := range []string{
		"update ledger.asset set code = 'USD'", "update ledger.asset set decimals = 4", "update ledger.account set normal_side = 'credit'",
		"update ledger.account set id = gen_random_uuid()", "update ledger.balance set decimals = 4", "update ledger.hold set expires_at = null",
	} {
		_, err := pool.Exec(ctx, "begin; set local search_path = pg_catalog, pg_temp; "+change+"; commit")
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "LG015" {
			t.Errorf("%s: %v", change, err)
		}
	}
	whole(t, books)
}
