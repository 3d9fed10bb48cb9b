package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

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
