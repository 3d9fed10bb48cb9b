package ledger_test

import (
	_ "embed"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/ledger"
)

//go:embed testdata/hijack.sql
var hijackSQL string

// A caller who puts operators, functions and tables of his own in front of PostgreSQL's gets them into no function of the ledger,
// neither those that run with the owner's rights nor the others.
func TestHijackedNamesAreNotUsed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := newLogins(t)
	l.mustExec(t, hijackSQL)
	l.mustExec(t, "do $$ begin execute format('grant temp on database %I to WRITER', current_database()); end $$")
	hostile := l.as["writer"]
	_, err := hostile.Exec(ctx, `set search_path = trap, pg_temp, pg_catalog, ledger;
		create temp table transfer (like ledger.transfer); create temp table balance (like ledger.balance); create temp table period (like ledger.period);
		create temp table pg_class (oid oid); create temp table pg_proc (oid oid); create temp table pg_roles (rolname text)`)
	ok(t, err)
	for _, trapped := range []string{"select now() + interval '1 day' > now()", "select uuid_hash_extended(gen_random_uuid(), 1)", "select 1.5 - 0.5", "select round(1.5, 1)", "select clock_timestamp()"} {
		_, err := hostile.Exec(ctx, trapped)
		if refusal, isPg := errors.AsType[*pgconn.PgError](err); !isPg || refusal.Code != "TRAP1" {
			t.Fatalf("the trap does not work on %s: %v", trapped, err)
		}
	}

	books := ledger.New(hostile)
	ok(t, books.CreateAsset(ctx, "EUR", 2))
	ok(t, books.CreateAsset(ctx, "USD", 2))
	a, b, c := open(t, books, "a"), open(t, books, "b"), openWith(t, books, ledger.AccountParams{Name: "c", Code: "c", Asset: "EUR", Min: limit("0"), Max: limit("100")})
	u, v := openWith(t, books, ledger.AccountParams{Name: "u", Asset: "USD"}), openWith(t, books, ledger.AccountParams{Name: "v", Asset: "USD"})
	first := ledger.TransferParams{ID: ledger.NewTransferID(), From: a, To: b, Amount: dec("10"), EventAt: time.Now()}
	for range 2 { // the second time it is known
		_, err = books.Transfer(ctx, first)
		ok(t, err)
	}
	for _, n := range []int{2, 3} {
		_, err = books.Transfers(ctx, []ledger.TransferParams{{From: a, To: c, Amount: dec("1")}, {From: b, To: c, Amount: dec("1")}, {From: b, To: a, Amount: dec("1")}}[:n])
		ok(t, err)
	}
	_, _, err = books.TransferEach(ctx, []ledger.TransferParams{{From: c, To: a, Amount: dec("1000")}, {From: a, To: c, Amount: dec("1")}, first})
	ok(t, err)
	_, err = books.TransferIf(ctx, ledger.TransferParams{From: a, To: c, Amount: dec("1")}, -1, -1)
	ok(t, err)
	_, err = books.TransferAvailable(ctx, ledger.TransferParams{From: c, To: a, Amount: dec("2")})
	ok(t, err)
	h, err := books.Hold(ctx, ledger.HoldParams{From: a, To: c, Amount: dec("2")})
	ok(t, err)
	_, err = books.PostHold(ctx, h.ID, ledger.PostParams{})
	ok(t, err)
	h, err = books.Hold(ctx, ledger.HoldParams{From: a, To: c, Amount: dec("2"), ExpiresAt: time.Now().Add(time.Hour)})
	ok(t, err)
	_, err = books.VoidHold(ctx, h.ID)
	ok(t, err)
	_, err = books.Hold(ctx, ledger.HoldParams{From: a, To: c, Amount: dec("90"), ExpiresAt: time.Now().Add(50 * time.Millisecond)})
	ok(t, err)
	time.Sleep(60 * time.Millisecond)
	_, err = books.Transfer(ctx, ledger.TransferParams{From: a, To: c, Amount: dec("50")}) // needs what has expired
	ok(t, err)
	_, err = books.ExpireHolds(ctx)
	ok(t, err)
	j, err := books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: a, Amount: dec("-1")}, {Account: b, Amount: dec("1")}}})
	ok(t, err)
	_, err = books.ReverseJournal(ctx, j.ID, ledger.ReverseJournalParams{})
	ok(t, err)
	_, err = books.ReverseTransfer(ctx, first.ID, ledger.ReverseTransferParams{})
	ok(t, err)
	_, err = books.Exchange(ctx, ledger.ExchangeParams{From: a, To: v, FromAmount: dec("1"), ToAmount: dec("2"), FromLiquidity: b, ToLiquidity: u})
	ok(t, err)
	ok(t, books.SetLimits(ctx, c, limit("0"), limit("200")))
	ok(t, books.UpdateAccount(ctx, c, "c", "c", nil))
	ok(t, books.CloseAccount(ctx, c))
	ok(t, books.ReopenAccount(ctx, c))
	balance, err := ledger.New(l.as["owner"]).Balance(ctx, c) // asks with an operator of its own
	ok(t, err)
	ok(t, books.AssertBalance(ctx, c, balance.Posted))
	if _, err := books.Transfer(ctx, ledger.TransferParams{From: c, To: a, Amount: dec("1000")}); !errors.Is(err, ledger.ErrLimit) {
		t.Errorf("beyond the limit: %v", err)
	}
	for _, call := range []string{"ledger.transfers(array[$1::uuid], array[$2::uuid], array[1::numeric])", "ledger.lock_accounts(array[$1::uuid, $2::uuid])"} {
		_, err = hostile.Exec(ctx, "select * from "+call, [16]byte(a), [16]byte(b))
		ok(t, err)
	}

	for _, o := range []ledger.VerifyOptions{{}, {Since: time.Now().Add(-time.Hour), PartEntries: 5}, {Accounts: []ledger.AccountID{a, b}}} {
		for _, p := range problems(t, books.Verify(ctx, o)) {
			t.Errorf("%+v", p)
		}
	}
	_, err = books.BalanceAt(ctx, a, time.Now(), ledger.ByEvent)
	ok(t, err)
	for _, err := range books.Entries(ctx, a, ledger.EntryFilter{From: time.Now().Add(-time.Hour), Counterparty: b}) {
		ok(t, err)
	}
	ok(t, ledger.Grant(ctx, l.as["owner"], l.role["stranger"], ""))
}
