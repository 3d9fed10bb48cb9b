package ledger_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/ledger"
)

// What is older than Since is taken as it is, what is newer is verified from the entry before on.
func TestVerifySince(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	idle, other := open(t, books, "idle"), open(t, books, "other")
	pay(t, books, idle, other, "1")
	var times []time.Time
	for range 20 {
		times = append(times, pay(t, books, from, to, "1").CreatedAt)
	}
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), `set local session_replication_role = replica; set local search_path = ledger;
		update transfer set from_balance = 0 where from_version = 7 and amount = 1 and from_no = (select no from account where code = 'from');
		update transfer set amount = 1.000 where from_version = 13;
		set local session_replication_role = origin; set local search_path = public`)
	ok(t, err)
	for i, at := range times { // the entry of version i+1
		var want []string
		if i <= 12 {
			want = append(want, "amount 13")
		}
		if i <= 7 { // version 8 is compared with 7 when it is new itself
			want = append(want, "running_balance 8")
		}
		if i <= 6 {
			want = append(want, "running_balance 7")
		}
		b := fullBooks{}
		got := b.sketch(problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{Since: at})))
		slices.Sort(want)
		missing := slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) })
		if missing {
			t.Errorf("since version %d: %q, want %q", i+1, got, want)
		}
		if late := i > 14; late && len(got) != 0 {
			t.Errorf("since version %d: %q, want nothing", i+1, got)
		}
	}
}

func TestVerifyJournalsSince(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	var booked time.Time
	ok(t, b.pool.QueryRow(t.Context(), "select created_at from ledger.journal where id = $1", b.source["j2"]).Scan(&booked))
	for _, c := range []struct{ sql, want string }{
		{"update ledger.posting set amount = -1.000 where journal_id = {j2} and account_no = {e}", "amount e 1 j2"},
		{"update ledger.posting set amount = 2.00 where journal_id = {j2} and account_no = {f}", "journal_sum j2"},
		{"delete from ledger.posting where journal_id = {j2}", "journal_legs j2"},
		{"update ledger.posting set event_at = '2019-12-31' where journal_id = {j2}; update ledger.journal set event_at = '2019-12-31' where id = {j2}", "period j2"},
	} {
		tx := b.spoil(t, c.sql)
		for since, want := range map[time.Time]bool{booked: true, booked.Add(time.Microsecond): false} {
			if got := b.sketch(problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{Since: since}))); slices.Contains(got, c.want) != want {
				t.Errorf("%s, since %s, booked %s: %q", c.want, since, booked, got)
			}
		}
		ok(t, tx.Rollback(t.Context()))
	}
}

// The way back from the last entry ends before the time asked for, and not much earlier.
func TestVersionBefore(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	const n = 40
	var times []time.Time
	for range n {
		times = append(times, pay(t, books, from, to, "1").CreatedAt)
	}
	for i, at := range times {
		first := int64(i + 1) // the version booked at that time
		var start int64
		ok(t, pool.QueryRow(t.Context(), "select ledger.version_before(no, version, $2) from ledger.balance where id = $1", from, at).Scan(&start))
		if start >= first || n-start > 2*(n-first+1) {
			t.Errorf("from version %d of %d on: starts at %d", first, n, start)
		}
	}
}

func TestVerifySomeAccounts(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	tx := b.spoil(t, "update ledger.transfer set to_balance = 11 where id = {t1}; update ledger.balance set version = 5 where no = {g}; drop trigger guard_books on ledger.transfer")
	spoilt := ledger.New(tx)
	for code, want := range map[string][]string{"a": nil, "b": {"running_balance b 1 t1", "running_balance b 2 t2"}, "g": {"stored_version g"}} {
		if got := b.sketch(problems(t, spoilt.Verify(t.Context(), ledger.VerifyOptions{Accounts: []ledger.AccountID{b.account[code]}}))); !slices.Equal(got, want) {
			t.Errorf("account %s: %q, want %q", code, got, want)
		}
	}
	both := []ledger.AccountID{b.account["g"], b.account["b"]}
	if got := problems(t, spoilt.Verify(t.Context(), ledger.VerifyOptions{Accounts: both})); len(got) != 3 {
		t.Errorf("two accounts: %+v", got)
	}
	for _, id := range []ledger.AccountID{ledger.NewAccountID(), {}} {
		for _, err := range spoilt.Verify(t.Context(), ledger.VerifyOptions{Accounts: []ledger.AccountID{id}}) {
			if !errors.Is(err, ledger.ErrAccountNotFound) {
				t.Errorf("unknown account: %v", err)
			}
		}
	}
}

// However small the parts are, together they find the same, and the way is counted.
func TestVerifyInParts(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	tx := b.spoil(t, "update ledger.transfer set to_balance = 11 where id = {t1}; delete from ledger.account where no = {g}; update ledger.transfer set to_no = 2000000000 where id = {t7}; update ledger.transfer set from_no = -5 where id = {t6}")
	spoilt := ledger.New(tx)
	want := b.sketch(problems(t, spoilt.Verify(t.Context(), ledger.VerifyOptions{})))
	if !slices.Contains(want, "unknown_account t6") || !slices.Contains(want, "unknown_account t7") {
		t.Errorf("in one part: %q", want)
	}
	var entries int64
	ok(t, tx.QueryRow(t.Context(), "select sum(version)::bigint from ledger.balance").Scan(&entries))
	for size, least := range map[int64]int{1: 5, 7: 3, 1000: 1} {
		var steps []int64
		got := b.sketch(problems(t, spoilt.Verify(t.Context(), ledger.VerifyOptions{PartEntries: size, Progress: func(done, total int64) {
			if total != entries {
				t.Errorf("%d entries in all, want %d", total, entries)
			}
			steps = append(steps, done)
		}})))
		if !slices.Equal(got, want) {
			t.Errorf("in parts of %d: %q, want %q", size, got, want)
		}
		if len(steps) < least || !slices.IsSorted(steps) || steps[len(steps)-1] != entries {
			t.Errorf("in parts of %d: progress %v of %d", size, steps, entries)
		}
	}
}

func TestVerifyWithoutAnyBalance(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	tx := b.spoil(t, "delete from ledger.balance; delete from ledger.hold")
	found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
	missing := 0
	for _, p := range found {
		if p.Kind == ledger.ProblemMissingBalance {
			missing++
		}
	}
	if missing != len(b.account) {
		t.Errorf("%d of %d balances are missed: %q", missing, len(b.account), b.sketch(found))
	}
}

func TestVerifyReportsAThousandOfAPart(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	from, to := open(t, books, "from"), open(t, books, "to")
	batch := make([]ledger.TransferParams, 1200)
	for i := range batch {
		batch[i] = ledger.TransferParams{From: from, To: to, Amount: dec("1")}
	}
	_, err := books.Transfers(t.Context(), batch)
	ok(t, err)
	_, err = pool.Exec(t.Context(), "alter table ledger.transfer disable trigger guard_books; update ledger.transfer set amount = 1.000; alter table ledger.transfer enable trigger guard_books")
	ok(t, err)
	found := problems(t, books.Verify(t.Context(), ledger.VerifyOptions{}))
	if len(found) != 1001 || found[999].Kind != ledger.ProblemAmount || found[1000].Kind != ledger.ProblemMore {
		t.Errorf("%d problems, at last %+v", len(found), found[len(found)-1])
	}
}

// The loop's body may use the transaction that the books are verified in, and may end the loop.
func TestVerifyInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	tx := b.spoil(t, "update ledger.transfer set to_balance = 11 where id = {t1}")
	inTx := ledger.New(tx)
	n := 0
	for p, err := range inTx.Verify(t.Context(), ledger.VerifyOptions{}) {
		ok(t, err)
		_, err = inTx.BalanceAfter(t.Context(), p.Account, p.Version)
		ok(t, err)
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d rounds", n)
	}
	_, err := inTx.Balance(t.Context(), b.account["a"])
	ok(t, err)
}

// Without prepared statements, as behind some poolers, and one connection has to do.
func TestVerifyWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	config := b.pool.Config()
	config.MaxConns = 1
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	ok(t, err)
	defer pool.Close()
	for _, o := range []ledger.VerifyOptions{{}, {Since: time.Now().Add(-time.Minute), PartEntries: 3}, {Accounts: []ledger.AccountID{b.account["a"], b.account["b"]}}} {
		for _, p := range problems(t, ledger.New(pool).Verify(t.Context(), o)) {
			t.Errorf("%+v", p)
		}
	}
}

// Each part is seen at one moment, so nothing that is under way is taken for a fault.
func TestVerifyWhileOthersBook(t *testing.T) {
	t.Parallel()
	books, _ := installed(t)
	ctx := t.Context()
	ids := make([]ledger.AccountID, 6)
	for i := range ids {
		ids[i] = open(t, books, strings.Repeat("x", i+1))
	}
	const writers, rounds = 3, 40
	var busy sync.WaitGroup
	errs := make(chan error, writers)
	for range writers {
		busy.Go(func() {
			for range rounds {
				p := rand.Perm(len(ids))
				a, b, c := ids[p[0]], ids[p[1]], ids[p[2]]
				_, err := books.Transfers(ctx, []ledger.TransferParams{{From: a, To: b, Amount: dec("1")}, {From: b, To: c, Amount: dec("2")}, {From: a, To: c, Amount: dec("3")}})
				if err == nil {
					_, err = books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: a, Amount: dec("-2")}, {Account: b, Amount: dec("1")}, {Account: c, Amount: dec("1")}}})
				}
				if err == nil {
					var h ledger.Held
					if h, err = books.Hold(ctx, ledger.HoldParams{From: a, To: c, Amount: dec("2")}); err == nil {
						_, err = books.PostHold(ctx, h.ID, ledger.PostParams{Amount: limit("1")})
					}
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { busy.Wait(); close(done) }()
	runs := 0
	for working := true; working; runs++ {
		select {
		case <-done:
			working = false // and once more in the end
		default:
		}
		for p, err := range books.Verify(ctx, ledger.VerifyOptions{PartEntries: 1 + int64(runs%3)*1000}) {
			ok(t, err)
			t.Errorf("run %d: %+v", runs, p)
		}
	}
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if runs < 2 {
		t.Errorf("%d runs", runs)
	}
}
