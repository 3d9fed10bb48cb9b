package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// A play is what sessions do, one step a line: the session, what it does, and after the arrow what comes of it. Sessions that have
// said begin are in a transaction of their own, the others let each call be one, which the library repeats. "waits" is a step that
// another session holds up; a later line of that session without a step says what came of it. Where the levels differ, "limit/40001"
// is the refusal at READ COMMITTED, then the SQLSTATE at REPEATABLE READ and SERIALIZABLE.
//
// The accounts a and b have 100 and may not go below zero; c and d may. Names after # are ids.
var plays = []struct{ name, steps string }{
	{"the last money goes out once", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit/40001
		two: rollback
		all: assert a 40 -> ok`},
	{"money that was given back goes out after all", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: transfer a b 60 -> waits
		one: rollback
		two: -> ok
		two: commit
		all: assert a 40 -> ok`},
	{"a call by itself sees what the other left", `
		one: begin
		one: transfer a b 60 -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		all: assert a 40 -> ok`},
	{"crossing transfers", `
		one: begin
		one: transfer a b 10 -> ok
		two: transfer b a 20 -> waits
		one: transfer b a 5 -> ok
		one: commit
		two: -> ok
		all: assert a 115 -> ok`},
	{"the same id twice", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 10 #x -> waits
		one: commit
		two: -> replayed
		all: assert a 90 -> ok`},
	{"the same id twice in transactions", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: begin
		two: transfer a b 10 #x -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 90 -> ok`},
	{"the same id after a rollback", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 10 #x -> waits
		one: rollback
		two: -> ok
		all: assert a 90 -> ok`},
	{"a single transfer, then its id in a batch", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"a batch, then an id of it alone", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"a batch, then an id of it alone in a transaction", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: begin
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 87 -> ok`},
	{"a single transfer, then its id in a batch in a transaction", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: begin
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed/40001
		two: rollback
		all: assert a 90 -> ok`},
	{"the same batch twice", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: batch a b 10 #x a b 1 #y a b 2 #z -> waits
		one: commit
		two: -> replayed
		all: assert a 87 -> ok`},
	{"batches that share one id, on other accounts", `
		one: begin
		one: batch a b 10 #x a b 1 #y a b 2 #z -> ok
		two: batch c d 10 #u c d 1 #v c d 1 #y -> waits
		one: commit
		two: -> reused
		all: assert a 87 -> ok
		all: assert c -200 -> ok`},
	{"the same pair twice", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: batch a b 10 #x a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 89 -> ok`},
	{"a pair, then a single transfer of it", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: transfer a b 1 #y -> waits
		one: commit
		two: -> replayed
		all: assert a 89 -> ok`},
	{"a pair, then a batch with one of it", `
		one: begin
		one: batch a b 10 #x a b 1 #y -> ok
		two: each a b 5 #u a b 1 #y a b 90 #v -> waits
		one: commit
		two: -> ok replayed limit
		all: assert a 84 -> ok`},
	{"the same id with another amount", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer a b 11 #x -> waits
		one: commit
		two: -> reused
		all: assert a 90 -> ok`},
	{"the same id on other accounts", `
		one: begin
		one: transfer a b 10 #x -> ok
		two: transfer c d 10 #x -> waits
		one: commit
		two: -> reused
		all: assert c -200 -> ok`},
	{"the same journal entry twice", `
		one: begin
		one: journal a b 10 #x -> ok
		two: journal a b 10 #x -> waits
		one: commit
		two: -> replayed
		all: assert a 90 -> ok`},
	{"a journal entry and a transfer for the last money", `
		one: begin
		one: journal a b 60 -> ok
		two: transfer a b 60 -> waits
		three: journal a c 60 -> waits
		one: commit
		two: -> limit
		three: -> limit
		all: assert a 40 -> ok`},
	{"a hold, then a transfer of the last money", `
		one: begin
		one: hold a b 60 #h -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		all: assert a 100 -> ok`},
	{"a transfer, then a hold of the last money", `
		one: begin
		one: transfer a b 60 -> ok
		two: begin
		two: hold a b 60 #h -> waits
		one: commit
		two: -> limit/40001
		two: rollback`},
	{"the same hold twice", `
		one: begin
		one: hold a b 60 #h -> ok
		two: hold a b 60 #h -> waits
		one: commit
		two: -> replayed
		all: transfer a b 40 -> ok`},
	{"a hold is posted, then voided", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 60 -> ok
		two: void #h -> waits
		one: commit
		two: -> settled
		all: assert a 40 -> ok`},
	{"a hold is voided, then posted", `
		all: hold a b 60 #h -> ok
		one: begin
		one: void #h -> ok
		two: begin
		two: post #h 60 -> waits
		one: commit
		two: -> settled/40001
		two: rollback
		all: assert a 100 -> ok`},
	{"a hold is posted, undone, then voided", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 60 -> ok
		two: void #h -> waits
		one: rollback
		two: -> ok
		all: transfer a b 100 -> ok`},
	{"a hold is posted twice", `
		all: hold a b 60 #h -> ok
		one: begin
		one: post #h 50 -> ok
		two: post #h 50 -> waits
		three: post #h 60 -> waits
		one: commit
		two: -> replayed
		three: -> settled
		all: assert a 50 -> ok`},
	{"an expired hold whose other account is busy stays for next time", `
		all: hold a b 60 #h soon -> ok
		all: hold a c 20 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: assert b 100 -> ok
		two: transfer a d 60 -> limit
		two: transfer a d 40 -> ok
		one: commit
		two: transfer a d 60 -> ok
		all: assert a 0 -> ok`},
	{"two that need expired holds of each other", `
		all: hold a b 60 #h soon -> ok
		all: hold b a 60 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: transfer a c 50 -> ok
		two: begin
		two: transfer b d 50 -> waits
		one: commit
		two: -> ok/40001
		two: commit
		all: transfer b a 1 -> ok`},
	{"housekeeping waits for nobody", `
		all: hold a b 60 #h soon -> ok
		all: hold c d 60 #i soon -> ok
		all: sleep -> ok
		one: begin
		one: assert b 100 -> ok
		two: expire -> ok
		three: void #i -> replayed
		one: void #h -> replayed
		one: commit`},
	{"a transfer, then its account is closed", `
		one: begin
		one: transfer a b 10 -> ok
		two: close b -> waits
		one: commit
		two: -> ok
		two: transfer a b 10 -> closed
		all: assert b 110 -> ok`},
	{"an account is closed under a transfer", `
		one: begin
		one: close b -> ok
		two: begin
		two: transfer a b 10 -> waits
		three: batch a c 1 #x a b 1 #y c b 1 #z -> waits
		one: commit
		two: -> closed/40001
		two: rollback
		three: -> closed
		all: assert a 100 -> ok`},
	{"a hold, then its account is closed", `
		one: begin
		one: hold a b 10 #h -> ok
		two: close b -> waits
		one: commit
		two: -> open holds`},
	{"a period is closed after a transfer in it", `
		one: begin
		one: transfer a b 10 past -> ok
		two: period -> waits
		three: transfer a b 10 past -> waits
		one: commit
		two: -> ok
		three: -> period
		all: assert a 90 -> ok
		all: reopen -> ok`},
	{"a period is closed before a transfer in it", `
		two: begin
		two: read a
		three: begin
		three: read a
		four: begin
		four: read a
		five: begin
		five: read a
		one: begin
		one: period -> ok
		two: transfer a b 10 past -> waits
		three: batch a b 1 #x past a b 1 #y a b 1 #z -> waits
		four: journal a b 10 past -> waits
		five: hold c d 10 #h past -> waits
		one: commit
		two: -> period/40001
		three: -> period/40001
		four: -> period/40001
		five: -> period/40001
		two: rollback
		three: rollback
		four: rollback
		five: rollback
		all: assert a 100 -> ok
		all: reopen -> ok`},
	{"an old snapshot does not see a closed period", `
		two: begin
		two: read a
		three: begin
		three: read a
		one: period -> ok
		two: transfer a b 10 past -> period/40001
		two: rollback
		three: batch c d 1 #x past c d 1 #y -> period/40001
		three: rollback
		all: assert a 100 -> ok
		all: reopen -> ok`},
	{"a limit is set under a transfer", `
		one: begin
		one: limits a 50 -> ok
		two: transfer a b 60 -> waits
		one: commit
		two: -> limit
		two: transfer a b 50 -> ok`},
	{"a transfer, then a limit above what is left", `
		one: begin
		one: transfer a b 60 -> ok
		two: limits a 50 -> waits
		one: commit
		two: -> ok
		two: transfer a b 1 -> limit
		two: transfer b a 1 -> ok`},
	{"a transfer is reversed twice", `
		all: transfer a b 10 #x -> ok
		one: begin
		one: reverse #x #r -> ok
		two: reverse #x #s -> waits
		three: reverse #x #r -> waits
		one: commit
		two: -> reversed
		three: -> replayed
		all: assert a 100 -> ok`},
	{"a journal entry is reversed twice", `
		all: journal a b 10 #x -> ok
		one: begin
		one: unbook #x #r -> ok
		two: unbook #x #s -> waits
		three: unbook #x #r -> waits
		one: commit
		two: -> reversed
		three: -> replayed
		all: assert a 100 -> ok`},
	{"a transfer on condition of a version", `
		one: begin
		one: transfer a b 10 -> ok
		two: begin
		two: if a b 10 2 -> waits
		one: commit
		two: -> ok/40001
		two: commit
		all: if a b 10 1 -> version`},
	{"a transfer on condition of a version that passed", `
		one: begin
		one: transfer a b 10 -> ok
		two: if a b 10 1 -> waits
		one: commit
		two: -> version
		all: assert a 90 -> ok`},
	{"an asserted balance stays", `
		one: begin
		one: assert a 100 -> ok
		two: transfer a b 10 -> waits
		three: transfer b a 10 -> waits
		one: assert a 100 -> ok
		one: assert a 99 -> assertion
		one: commit
		two: -> ok
		three: -> ok
		all: assert a 100 -> ok`},
	{"as much as is available, after another", `
		one: begin
		one: transfer a b 60 -> ok
		two: available a b 1000 #x -> waits
		one: commit
		two: -> ok
		two: available a b 1000 #x -> replayed
		all: assert a 0 -> ok`},
}

var levels = []string{"read committed", "repeatable read", "serializable"}

func TestIsolation(t *testing.T) {
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && level == "repeatable read" {
				t.Skip("much like serializable")
			}
			books, pool := installed(t)
			for _, p := range plays {
				t.Run(p.name, func(t *testing.T) { perform(t, books, pool, level, p.name, p.steps) })
			}
			sound(t, books)
		})
	}
}

// stage is where one play is performed.
type stage struct {
	pool     *pgxpool.Pool
	level    string
	accounts map[string]ledger.AccountID
	ids      map[string]ledger.TransferID
	sessions map[string]*actor
	expiry   time.Time // of the last hold that was made to expire soon
}

func perform(t *testing.T, books *ledger.Ledger, pool *pgxpool.Pool, level, name, steps string) {
	s := &stage{pool: pool, level: level, accounts: map[string]ledger.AccountID{}, ids: map[string]ledger.TransferID{}, sessions: map[string]*actor{}}
	for _, account := range []string{"a", "b", "c", "d"} {
		s.accounts[account] = open(t, books, name+":"+account)
	}
	pay(t, books, s.accounts["c"], s.accounts["a"], "100")
	pay(t, books, s.accounts["c"], s.accounts["b"], "100")
	ok(t, books.SetLimits(t.Context(), s.accounts["a"], limit("0"), decimal.NullDecimal{}))
	ok(t, books.SetLimits(t.Context(), s.accounts["b"], limit("0"), decimal.NullDecimal{}))
	for line := range strings.Lines(steps) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		who, what, _ := strings.Cut(line, ": ")
		what, want, _ := strings.Cut(what, "->")
		want = strings.TrimSpace(want)
		if atCommitted, above, differ := strings.Cut(want, "/"); differ {
			want = atCommitted
			if level != "read committed" {
				want = above
			}
		}
		if s.sessions[who] == nil {
			s.sessions[who] = s.enter(t)
		}
		if got := s.sessions[who].step(t, strings.TrimSpace(what)); want != "" && got != want {
			t.Fatalf("%s\ncame to: %s", line, got)
		}
	}
}

// actor is one session: a connection, perhaps in a transaction, and the step that it is at.
type actor struct {
	*stage
	conn *pgx.Conn
	tx   pgx.Tx
	now  chan string
}

func (s *stage) enter(t *testing.T) *actor {
	config := s.pool.Config().ConnConfig
	config.RuntimeParams["default_transaction_isolation"] = s.level
	config.RuntimeParams["statement_timeout"] = "60s"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return &actor{stage: s, conn: conn}
}

// step starts a step, or goes back to the one that waits, and says what came of it.
func (a *actor) step(t *testing.T, what string) string {
	if what != "" {
		now := make(chan string, 1)
		a.now = now
		go func() { now <- a.act(t.Context(), what) }()
	}
	for {
		select {
		case outcome := <-a.now:
			return outcome
		case <-time.After(10 * time.Millisecond):
		}
		var blocked bool
		ok(t, a.pool.QueryRow(t.Context(), "select cardinality(pg_blocking_pids($1)) > 0", int32(a.conn.PgConn().PID())).Scan(&blocked))
		if blocked && what != "" {
			return "waits"
		}
	}
}

func (a *actor) books() *ledger.Ledger {
	if a.tx != nil {
		return ledger.New(a.tx)
	}
	return ledger.New(a.conn)
}

func (a *actor) id(name string) ledger.TransferID {
	if _, known := a.ids[name]; !known || name == "" {
		a.ids[name] = ledger.NewTransferID()
	}
	return a.ids[name]
}

// act reads the words of a step.
func (a *actor) act(ctx context.Context, what string) string {
	words := strings.Fields(what)
	verb, words := words[0], words[1:]
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		word := words[0]
		words = words[1:]
		return word
	}
	optional := func(prefix string) string {
		if len(words) > 0 && strings.HasPrefix(words[0], prefix) {
			return next()
		}
		return ""
	}
	transfer := func() (p ledger.TransferParams) {
		p.From, p.To, p.Amount = a.accounts[next()], a.accounts[next()], dec(next())
		p.ID = a.id(optional("#"))
		if optional("past") != "" {
			p.EventAt = past
		}
		return p
	}
	books := a.books()
	switch verb {
	case "begin":
		tx, err := a.conn.Begin(ctx)
		a.tx = tx
		return outcome(false, err)
	case "commit", "rollback":
		tx := a.tx
		a.tx = nil
		if verb == "commit" {
			return outcome(false, tx.Commit(ctx))
		}
		return outcome(false, tx.Rollback(ctx))
	case "sleep":
		time.Sleep(time.Until(a.expiry) + time.Millisecond)
		return "ok"
	case "transfer":
		p, err := books.Transfer(ctx, transfer())
		return outcome(p.Replayed, err)
	case "available":
		p, err := books.TransferAvailable(ctx, transfer())
		return outcome(p.Replayed, err)
	case "if":
		t := transfer()
		p, err := books.TransferIf(ctx, t, dec(next()).IntPart(), -1)
		return outcome(p.Replayed, err)
	case "batch", "each":
		var batch []ledger.TransferParams
		for len(words) > 0 {
			batch = append(batch, transfer())
		}
		if verb == "batch" {
			p, err := books.Transfers(ctx, batch)
			return outcome(err == nil && anyReplayed(p), err)
		}
		p, refused, err := books.TransferEach(ctx, batch)
		if err != nil {
			return outcome(false, err)
		}
		var all []string
		for i := range p {
			all = append(all, outcome(p[i].Replayed, refused[i]))
		}
		return strings.Join(all, " ")
	case "journal":
		t := transfer()
		j, err := books.PostJournal(ctx, ledger.JournalParams{ID: ledger.JournalID(t.ID), EventAt: t.EventAt,
			Postings: []ledger.Posting{{Account: t.From, Amount: t.Amount.Neg()}, {Account: t.To, Amount: t.Amount}}})
		return outcome(j.Replayed, err)
	case "hold":
		t := transfer()
		h := ledger.HoldParams{ID: ledger.HoldID(t.ID), From: t.From, To: t.To, Amount: t.Amount, EventAt: t.EventAt}
		if optional("soon") != "" {
			a.expiry = time.Now().Add(500 * time.Millisecond)
			h.ExpiresAt = a.expiry
		}
		p, err := books.Hold(ctx, h)
		return outcome(p.Replayed, err)
	case "post":
		h := ledger.HoldID(a.id(next()))
		p, err := books.PostHold(ctx, h, ledger.PostParams{Amount: limit(next())})
		return outcome(p.Replayed, err)
	case "void":
		h, err := books.VoidHold(ctx, ledger.HoldID(a.id(next())))
		return outcome(h.Replayed, err)
	case "expire":
		_, err := books.ExpireHolds(ctx)
		return outcome(false, err)
	case "close":
		return outcome(false, books.CloseAccount(ctx, a.accounts[next()]))
	case "limits":
		return outcome(false, books.SetLimits(ctx, a.accounts[next()], limit(next()), decimal.NullDecimal{}))
	case "period":
		return outcome(false, books.ClosePeriod(ctx, past.Add(time.Hour)))
	case "reopen":
		return outcome(false, books.ReopenPeriod(ctx, time.Time{}))
	case "reverse":
		p, err := books.ReverseTransfer(ctx, a.id(next()), ledger.ReverseTransferParams{ID: a.id(next())})
		return outcome(p.Replayed, err)
	case "unbook":
		p, err := books.ReverseJournal(ctx, ledger.JournalID(a.id(next())), ledger.ReverseJournalParams{ID: ledger.JournalID(a.id(next()))})
		return outcome(p.Replayed, err)
	case "assert":
		return outcome(false, books.AssertBalance(ctx, a.accounts[next()], dec(next())))
	case "read":
		_, err := books.Balance(ctx, a.accounts[next()])
		return outcome(false, err)
	}
	return "unknown step " + verb
}

var past = time.Now().Add(-48 * time.Hour).Truncate(time.Microsecond)

func anyReplayed(posted []ledger.Posted) bool {
	for _, p := range posted {
		if p.Replayed {
			return true
		}
	}
	return false
}

var outcomes = map[error]string{
	ledger.ErrLimit: "limit", ledger.ErrIDReused: "reused", ledger.ErrAccountClosed: "closed", ledger.ErrPeriodClosed: "period",
	ledger.ErrHoldSettled: "settled", ledger.ErrHoldExpired: "expired", ledger.ErrReversed: "reversed", ledger.ErrVersion: "version",
	ledger.ErrAssertion: "assertion", ledger.ErrOpenHolds: "open holds",
}

// outcome names what came of a step: ok, replayed, a refusal, or the SQLSTATE of what has to be repeated.
func outcome(replayed bool, err error) string {
	var pgErr *pgconn.PgError
	var refusal *ledger.Error
	switch {
	case replayed:
		return "replayed"
	case err == nil:
		return "ok"
	case errors.As(err, &refusal) && outcomes[refusal.Kind] != "":
		return outcomes[refusal.Kind]
	case errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01"):
		return pgErr.Code
	}
	return err.Error()
}

// sound fails the test for each problem that Verify finds.
func sound(t testing.TB, books *ledger.Ledger) {
	t.Helper()
	for p, err := range books.Verify(t.Context(), ledger.VerifyOptions{}) {
		ok(t, err)
		t.Errorf("%s: %s (account %s, version %d, source %s): expected %s, found %s", p.Kind, p.Message, p.Account, p.Version, p.Source, p.Expected, p.Found)
	}
}

// onLevel opens a pool on the database of another, at an isolation level.
func onLevel(t testing.TB, pool *pgxpool.Pool, level string) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
	config.MaxConns = 20
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(other.Close)
	return other
}

// together runs fn in n goroutines and fails the test for each error.
func together(t testing.TB, n int, fn func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := fn(i); err != nil {
				t.Errorf("goroutine %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// awaitBlocked returns when a session of the database waits for a lock.
func awaitBlocked(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for blocked := false; !blocked; {
		ok(t, pool.QueryRow(t.Context(), "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&blocked))
	}
}

// TestRetryMakesTransactionsPass: at the higher levels 40001 reaches the caller, whose own transaction Retry repeats.
func TestRetryMakesTransactionsPass(t *testing.T) {
	t.Parallel()
	for _, level := range levels[1:] {
		books, pool := installed(t)
		a, b := open(t, books, "a"), open(t, books, "b")
		sessions := onLevel(t, pool, level)
		const goroutines, each = 6, 4
		together(t, goroutines, func(int) error {
			for range each {
				id := ledger.NewTransferID()
				err := retryLong(t.Context(), func() error {
					return pgx.BeginFunc(t.Context(), sessions, func(tx pgx.Tx) error {
						balance, err := ledger.New(tx).Balance(t.Context(), a)
						if err != nil {
							return err
						}
						_, err = ledger.New(tx).TransferIf(t.Context(), ledger.TransferParams{ID: id, From: a, To: b, Amount: dec("1")}, balance.Version, -1)
						return err
					})
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		ok(t, books.AssertBalance(t.Context(), b, dec(fmt.Sprint(goroutines*each))))
		sound(t, books)
	}
}

// retryLong goes on where Retry gives up after ten attempts, which a crowd on one account can use up on a busy machine.
func retryLong(ctx context.Context, fn func() error) error {
	for {
		err := ledger.Retry(ctx, fn)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
			return err
		}
	}
}

// TestSerializablePool: the library repeats its own calls on a pool that makes every transaction serializable.
func TestSerializablePool(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b, c := open(t, books, "a"), open(t, books, "b"), open(t, books, "c")
	serializable := ledger.New(onLevel(t, pool, "serializable"))
	ctx := t.Context()
	together(t, 4, func(i int) error {
		for range 5 {
			id := ledger.NewTransferID()
			if err := retryLong(ctx, func() error {
				_, err := serializable.Transfer(ctx, ledger.TransferParams{ID: id, From: a, To: b, Amount: dec("1")})
				return err
			}); err != nil {
				return err
			}
			batch := []ledger.TransferParams{{ID: ledger.NewTransferID(), From: b, To: c, Amount: dec("1")}, {ID: ledger.NewTransferID(), From: c, To: a, Amount: dec("1")}}
			if err := retryLong(ctx, func() error { _, err := serializable.Transfers(ctx, batch); return err }); err != nil {
				return err
			}
		}
		return nil
	})
	ok(t, books.AssertBalance(ctx, a, dec("0")))
	sound(t, books)
}

// TestNoDeadlocks: calls of all kinds on overlapping accounts in every order never meet 40P01, which nothing here would repeat: the
// calls run in transactions of their caller.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	ctx := t.Context()
	var accounts []ledger.AccountID
	for i := range 6 {
		accounts = append(accounts, open(t, books, fmt.Sprint("account ", i)))
	}
	config := pool.Config()
	config.MaxConns = 12
	config.ConnConfig.RuntimeParams["deadlock_timeout"] = "20ms"
	crowd, err := pgxpool.NewWithConfig(ctx, config)
	ok(t, err)
	defer crowd.Close()
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	together(t, 12, func(i int) error {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		two := func() (from, to ledger.AccountID) {
			at := random.Perm(len(accounts))
			return accounts[at[0]], accounts[at[1]]
		}
		transfer := func() ledger.TransferParams {
			from, to := two()
			return ledger.TransferParams{From: from, To: to, Amount: dec("1")}
		}
		for range rounds {
			kind := random.IntN(7)
			if err := pgx.BeginFunc(ctx, crowd, func(tx pgx.Tx) error {
				books := ledger.New(tx)
				switch kind {
				case 0:
					_, err := books.Transfer(ctx, transfer())
					return err
				case 1:
					_, err := books.Transfers(ctx, []ledger.TransferParams{transfer(), transfer()})
					return err
				case 2:
					_, err := books.Transfers(ctx, []ledger.TransferParams{transfer(), transfer(), transfer(), transfer()})
					return err
				case 6:
					nothing := transfer()
					nothing.Amount = dec("0") // makes the batch go the long way
					_, _, err := books.TransferEach(ctx, []ledger.TransferParams{transfer(), nothing, transfer(), transfer()})
					return err
				case 3:
					from, to := two()
					_, err := books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: from, Amount: dec("-1")}, {Account: to, Amount: dec("1")}}})
					return err
				case 4:
					from, to := two()
					_, err := books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1"), ExpiresAt: time.Now().Add(2 * time.Second)})
					return err
				default:
					_, err := books.ExpireHolds(ctx)
					return err
				}
			}); err != nil {
				return err
			}
		}
		return nil
	})
	sound(t, books)
}

// TestHoldsSettledByMany: posting, voiding and expiry of the same holds at once, beside transfers that need the money.
func TestHoldsSettledByMany(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	ctx := t.Context()
	bank := open(t, books, "bank")
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, bank, a, "100")
	pay(t, books, bank, b, "100")
	ok(t, books.SetLimits(ctx, a, limit("0"), limit("200")))
	ok(t, books.SetLimits(ctx, b, limit("0"), limit("200")))
	var holds []ledger.HoldID
	for i := range 20 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		h := ledger.HoldParams{From: from, To: to, Amount: dec("10")}
		if i >= 4 {
			h.ExpiresAt = time.Now().Add(time.Second)
		}
		held, err := books.Hold(ctx, h)
		ok(t, err)
		holds = append(holds, held.ID)
	}
	crowd := ledger.New(onLevel(t, pool, "read committed"))
	time.Sleep(900 * time.Millisecond)
	together(t, 8, func(i int) error {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		for _, at := range random.Perm(len(holds)) {
			var err error
			switch random.IntN(5) {
			case 0:
				_, err = crowd.PostHold(ctx, holds[at], ledger.PostParams{Amount: limit("7")})
			case 1:
				_, err = crowd.VoidHold(ctx, holds[at])
			case 2:
				_, err = crowd.ExpireHolds(ctx)
			case 3:
				_, err = crowd.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("30")})
			case 4:
				_, err = crowd.Transfer(ctx, ledger.TransferParams{From: b, To: a, Amount: dec("30")})
			}
			switch outcome(false, err) {
			case "ok", "limit", "settled", "expired":
			default:
				return err
			}
		}
		return nil
	})
	sound(t, books)
	time.Sleep(100 * time.Millisecond)
	_, err := books.ExpireHolds(ctx)
	ok(t, err)
	sound(t, books)
}

// TestHotAccount: sixteen goroutines on one account lose nothing.
func TestHotAccount(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	hot := openWith(t, books, ledger.AccountParams{Name: "hot", Asset: "EUR", Min: limit("0")})
	bank := open(t, books, "bank")
	crowd := ledger.New(onLevel(t, pool, "read committed"))
	var others []ledger.AccountID
	for i := range 16 {
		others = append(others, open(t, books, fmt.Sprint("other ", i)))
	}
	pay(t, books, bank, hot, "100")
	var mu sync.Mutex
	paid := 0
	together(t, 16, func(i int) error {
		for range 10 {
			_, err := crowd.Transfer(t.Context(), ledger.TransferParams{From: hot, To: others[i], Amount: dec("1")})
			switch {
			case err == nil:
				mu.Lock()
				paid++
				mu.Unlock()
			case !errors.Is(err, ledger.ErrLimit):
				return err
			}
		}
		return nil
	})
	if paid != 100 {
		t.Errorf("%d transfers of 1 were booked out of 100", paid)
	}
	ok(t, books.AssertBalance(t.Context(), hot, dec("0")))
	sound(t, books)
}

// TestGrowthInOneSession: plans that a session made while the tables were tiny go on to use their indexes.
func TestGrowthInOneSession(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgserver.Database(t))
	ok(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	ctx := t.Context()
	ok(t, ledger.Install(ctx, conn))
	books := ledger.New(conn)
	ok(t, books.CreateAsset(ctx, "EUR", 2))
	a, b := open(t, books, "a"), open(t, books, "b")
	_, err = conn.Exec(ctx, "analyze")
	ok(t, err)

	// everything books in every way between two accounts.
	everything := func(from, to ledger.AccountID) {
		t.Helper()
		transfer := func() ledger.TransferParams {
			return ledger.TransferParams{ID: ledger.NewTransferID(), From: from, To: to, Amount: dec("1")}
		}
		one := transfer()
		for range 2 { // the second time it is replayed
			_, err := books.Transfer(ctx, one)
			ok(t, err)
		}
		pair, three := []ledger.TransferParams{transfer(), transfer()}, []ledger.TransferParams{transfer(), transfer(), transfer()}
		for range 2 {
			_, err = books.Transfers(ctx, pair)
			ok(t, err)
			_, err = books.Transfers(ctx, three)
			ok(t, err)
		}
		_, err = books.TransferIf(ctx, transfer(), -1, -1)
		ok(t, err)
		_, err = books.TransferAvailable(ctx, transfer())
		ok(t, err)
		held, err := books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1")})
		ok(t, err)
		_, err = books.PostHold(ctx, held.ID, ledger.PostParams{})
		ok(t, err)
		held, err = books.Hold(ctx, ledger.HoldParams{From: from, To: to, Amount: dec("1")})
		ok(t, err)
		_, err = books.VoidHold(ctx, held.ID)
		ok(t, err)
		_, err = books.ReverseTransfer(ctx, one.ID, ledger.ReverseTransferParams{})
		ok(t, err)
		j, err := books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: from, Amount: dec("-1")}, {Account: to, Amount: dec("1")}}})
		ok(t, err)
		_, err = books.ReverseJournal(ctx, j.ID, ledger.ReverseJournalParams{})
		ok(t, err)
		ok(t, books.SetLimits(ctx, from, decimal.NullDecimal{}, decimal.NullDecimal{}))
		_, err = books.Transfer(ctx, ledger.TransferParams{From: from, To: to, Amount: dec("0.001")}) // a refusal looks around, too
		if !errors.Is(err, ledger.ErrAmount) {
			t.Fatal(err)
		}
	}
	for range 6 { // past the five custom plans that PL/pgSQL tries first
		everything(a, b)
	}
	const accounts = 5000
	_, err = conn.Exec(ctx, "select ledger.open_account('account ' || i, 'EUR') from generate_series(1, $1::int) i", accounts)
	ok(t, err)
	rows, err := conn.Query(ctx, "select id from ledger.account order by no")
	ok(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[ledger.AccountID])
	ok(t, err)
	before := sequentialScans(t, conn)
	for i := range 12 {
		everything(ids[i], ids[len(ids)-1-i])
	}
	after := sequentialScans(t, conn)
	for table, n := range after {
		if n > before[table] {
			t.Errorf("%d sequential scans of ledger.%s crept in", n-before[table], table)
		}
	}
}

// sequentialScans counts those of each table that grows with the books.
func sequentialScans(t testing.TB, conn *pgx.Conn) map[string]int64 {
	t.Helper()
	_, err := conn.Exec(t.Context(), "select pg_stat_force_next_flush()")
	ok(t, err)
	rows, err := conn.Query(t.Context(), "select relname::text, seq_scan from pg_stat_user_tables where schemaname = 'ledger' and relname not in ('asset', 'period')")
	ok(t, err)
	scans := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error { scans[table] = n; return nil })
	ok(t, err)
	if len(scans) == 0 {
		t.Fatal("no statistics of the tables of ledger")
	}
	return scans
}
