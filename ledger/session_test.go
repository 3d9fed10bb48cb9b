package ledger_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/ledger"
)

// scene is what the calls below work on: cash and sales in EUR, dollars in USD.
type scene struct {
	cash, sales, spare, dollars, liquidEUR, liquidUSD ledger.AccountID
	transfer                                          ledger.TransferID
	journal                                           ledger.JournalID
	hold                                              ledger.HoldID // voided
}

func newScene(t testing.TB, books *ledger.Ledger) *scene {
	t.Helper()
	ok(t, books.CreateAsset(t.Context(), "USD", 2))
	usd := func(name string) ledger.AccountID {
		return openWith(t, books, ledger.AccountParams{Name: name, Code: name, Asset: "USD"})
	}
	s := &scene{cash: open(t, books, "cash"), sales: open(t, books, "sales"), spare: open(t, books, "spare"), dollars: usd("dollars"),
		liquidEUR: open(t, books, "liquid:EUR"), liquidUSD: usd("liquid:USD")}
	s.transfer = pay(t, books, s.sales, s.cash, "10").ID
	s.journal = must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), s.entry("1", "-1"))).ID
	s.hold = must[ledger.Held](t)(books.Hold(t.Context(), ledger.HoldParams{From: s.sales, To: s.cash, Amount: dec("1")})).ID
	must[ledger.Held](t)(books.VoidHold(t.Context(), s.hold))
	return s
}

func (s *scene) pay(amount string) ledger.TransferParams {
	return ledger.TransferParams{From: s.sales, To: s.cash, Amount: dec(amount), Metadata: []byte(`{"why": "test"}`)}
}

func (s *scene) entry(debit, credit string) ledger.JournalParams {
	return ledger.JournalParams{Postings: []ledger.Posting{{Account: s.cash, Amount: dec(debit)}, {Account: s.sales, Amount: dec(credit)}}}
}

// calls are all calls of the package, each as one that works and may be repeated, and as one that is refused (nil: it never is).
var calls = []struct {
	name    string
	writes  bool
	works   func(ctx context.Context, l *ledger.Ledger, s *scene) error
	refused func(ctx context.Context, l *ledger.Ledger, s *scene) error
	kind    error
}{
	{"CreateAsset", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.CreateAsset(ctx, uuid.NewString(), 2)
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return l.CreateAsset(ctx, "EUR", 3) }, ledger.ErrTaken},
	{"OpenAccount", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.OpenAccount(ctx, ledger.AccountParams{Name: "new", Asset: "EUR", Min: limit("0"), Metadata: []byte(`{}`)}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.OpenAccount(ctx, ledger.AccountParams{Name: "new", Asset: "ZZZ"}))
		}, ledger.ErrAssetNotFound},
	{"UpdateAccount", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.UpdateAccount(ctx, s.spare, uuid.NewString(), "spare", nil)
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.UpdateAccount(ctx, s.spare, "spare", "cash", nil)
		}, ledger.ErrTaken},
	{"SetLimits", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.SetLimits(ctx, s.spare, limit("-1000"), decimal.NewNullDecimal(decimal.NewFromInt(time.Now().UnixNano()%1e9)))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.SetLimits(ctx, s.spare, limit("1"), limit("0"))
		}, ledger.ErrInvalid},
	{"CloseAccount", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			id, err := l.OpenAccount(ctx, ledger.AccountParams{Name: "new", Asset: "EUR"})
			return errors.Join(err, l.CloseAccount(ctx, id))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.CloseAccount(ctx, ledger.NewAccountID())
		}, ledger.ErrAccountNotFound},
	{"ReopenAccount", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return l.ReopenAccount(ctx, s.spare) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.ReopenAccount(ctx, ledger.NewAccountID())
		}, ledger.ErrAccountNotFound},
	{"Transfer", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.Transfer(ctx, s.pay("1"))) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Transfer(ctx, s.pay("0.001")))
		}, ledger.ErrAmount},
	{"TransferIf", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.TransferIf(ctx, s.pay("1"), -1, -1))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.TransferIf(ctx, s.pay("1"), 0, -1))
		}, ledger.ErrVersion},
	{"TransferAvailable", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.TransferAvailable(ctx, s.pay("1")))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.TransferAvailable(ctx, s.pay("-1")))
		}, ledger.ErrAmount},
	{"AssertBalance", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.AssertBalance(ctx, s.dollars, dec("0"))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.AssertBalance(ctx, s.dollars, dec("1"))
		}, ledger.ErrAssertion},
	{"Transfers of two", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Transfers(ctx, []ledger.TransferParams{s.pay("1"), s.pay("2")}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Transfers(ctx, []ledger.TransferParams{s.pay("1"), s.pay("0")}))
		}, ledger.ErrAmount},
	{"Transfers of three", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Transfers(ctx, []ledger.TransferParams{s.pay("1"), s.pay("2"), s.pay("3")}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Transfers(ctx, []ledger.TransferParams{s.pay("1"), s.pay("2"), s.pay("0")}))
		}, ledger.ErrAmount},
	{"TransferEach", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			_, refused, err := l.TransferEach(ctx, []ledger.TransferParams{s.pay("1"), s.pay("0")})
			if err == nil && (refused[0] != nil || !errors.Is(refused[1], ledger.ErrAmount)) {
				err = errors.Join(append(refused, errors.New("wrong refusals"))...)
			}
			return err
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			twice := s.pay("1")
			twice.ID = ledger.NewTransferID()
			_, _, err := l.TransferEach(ctx, []ledger.TransferParams{twice, twice})
			return err
		}, ledger.ErrInvalid},
	{"PostJournal", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.PostJournal(ctx, s.entry("1", "-1")))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.PostJournal(ctx, s.entry("1", "-2")))
		}, ledger.ErrUnbalanced},
	{"Exchange", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			// There and back, so that dollars stand where they stood.
			there := ledger.ExchangeParams{From: s.cash, To: s.dollars, FromAmount: dec("1"), ToAmount: dec("1.1"), FromLiquidity: s.liquidEUR, ToLiquidity: s.liquidUSD}
			back := ledger.ExchangeParams{From: s.dollars, To: s.cash, FromAmount: dec("1.1"), ToAmount: dec("1"), FromLiquidity: s.liquidUSD, ToLiquidity: s.liquidEUR}
			return errors.Join(last(l.Exchange(ctx, there)), last(l.Exchange(ctx, back)))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Exchange(ctx, ledger.ExchangeParams{From: s.cash, To: s.dollars, FromLiquidity: s.liquidEUR, ToLiquidity: s.liquidUSD}))
		}, ledger.ErrAmount},
	{"Hold", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Hold(ctx, ledger.HoldParams{From: s.sales, To: s.cash, Amount: dec("1"), Metadata: []byte(`1`)}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Hold(ctx, ledger.HoldParams{From: s.sales, To: s.cash, Amount: dec("1"), ExpiresAt: past}))
		}, ledger.ErrHoldExpired},
	{"PostHold", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			h, err := l.Hold(ctx, ledger.HoldParams{From: s.sales, To: s.cash, Amount: dec("1")})
			return errors.Join(err, last(l.PostHold(ctx, h.ID, ledger.PostParams{Amount: limit("0.5")})))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.PostHold(ctx, s.hold, ledger.PostParams{}))
		}, ledger.ErrHoldSettled},
	{"VoidHold", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.VoidHold(ctx, s.hold)) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.VoidHold(ctx, ledger.NewHoldID()))
		}, ledger.ErrHoldNotFound},
	{"ExpireHolds", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.ExpireHolds(ctx)) }, nil, nil},
	{"ReverseTransfer", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			p, err := l.Transfer(ctx, s.pay("1"))
			return errors.Join(err, last(l.ReverseTransfer(ctx, p.ID, ledger.ReverseTransferParams{})))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.ReverseTransfer(ctx, ledger.NewTransferID(), ledger.ReverseTransferParams{}))
		}, ledger.ErrNotFound},
	{"ReverseJournal", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			j, err := l.PostJournal(ctx, s.entry("1", "-1"))
			return errors.Join(err, last(l.ReverseJournal(ctx, j.ID, ledger.ReverseJournalParams{})))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.ReverseJournal(ctx, ledger.NewJournalID(), ledger.ReverseJournalParams{}))
		}, ledger.ErrNotFound},
	{"ClosePeriod", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return l.ClosePeriod(ctx, past) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.ClosePeriod(ctx, time.Now().Add(time.Hour))
		}, ledger.ErrInvalid},
	{"ReopenPeriod", true,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return errors.Join(l.ClosePeriod(ctx, past), l.ReopenPeriod(ctx, past.Add(-time.Hour)), l.ReopenPeriod(ctx, time.Time{}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return l.ReopenPeriod(ctx, time.Now()) }, ledger.ErrInvalid},
	{"Position", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.Position(ctx)) }, nil, nil},
	{"Changes", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			for range l.Changes(ctx, "") {
				break
			}
			return drain(l.Changes(ctx, ""))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return drain(l.Changes(ctx, "x")) }, ledger.ErrPosition},
	{"SetNotify", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return l.SetNotify(ctx, false) }, nil, nil},
	{"Balance", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.Balance(ctx, s.cash)) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Balance(ctx, ledger.NewAccountID()))
		}, ledger.ErrAccountNotFound},
	{"Account", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.Account(ctx, s.cash)) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Account(ctx, ledger.NewAccountID()))
		}, ledger.ErrAccountNotFound},
	{"AccountByCode", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.AccountByCode(ctx, "cash")) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.AccountByCode(ctx, "nothing"))
		}, ledger.ErrAccountNotFound},
	{"Accounts", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return drain(l.Accounts(ctx, ledger.AccountFilter{}))
		}, nil, nil},
	{"GetTransfer", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.GetTransfer(ctx, s.transfer))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.GetTransfer(ctx, ledger.NewTransferID()))
		}, ledger.ErrNotFound},
	{"GetJournal", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.GetJournal(ctx, s.journal)) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.GetJournal(ctx, ledger.NewJournalID()))
		}, ledger.ErrNotFound},
	{"GetHold", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error { return last(l.GetHold(ctx, s.hold)) },
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.GetHold(ctx, ledger.NewHoldID()))
		}, ledger.ErrHoldNotFound},
	{"Entries", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return drain(l.Entries(ctx, s.cash, ledger.EntryFilter{Metadata: []byte(`{}`)}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return drain(l.Entries(ctx, ledger.NewAccountID(), ledger.EntryFilter{}))
		}, ledger.ErrAccountNotFound},
	{"Statement", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Statement(ctx, s.cash, past, time.Now(), ledger.ByEvent))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.Statement(ctx, ledger.NewAccountID(), past, time.Now(), ledger.ByEvent))
		}, ledger.ErrAccountNotFound},
	{"TrialBalance", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.TrialBalance(ctx, time.Now(), ledger.ByBooking))
		}, nil, nil},
	{"RollUp", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return last(l.RollUp(ctx, ledger.RollUpParams{}))
		}, nil, nil},
	{"Export", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return l.Export(ctx, io.Discard, ledger.ExportOptions{})
		}, nil, nil},
	{"Verify", false,
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return drain(l.Verify(ctx, ledger.VerifyOptions{}))
		},
		func(ctx context.Context, l *ledger.Ledger, s *scene) error {
			return drain(l.Verify(ctx, ledger.VerifyOptions{Accounts: []ledger.AccountID{ledger.NewAccountID()}}))
		}, ledger.ErrAccountNotFound},
}

// last returns the error of a call with a result.
func last[T any](_ T, err error) error { return err }

// drain reads an iterator to its end and returns its error.
func drain[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

var queryModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// TestSession: each call leaves its session as it was, outside and inside the caller's transaction, when it works and when it is refused;
// and in every query mode a refusal leaves that transaction usable.
func TestSession(t *testing.T) {
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && mode != pgx.QueryExecModeExec {
				t.Skip("one mode is enough")
			}
			books, pool := installed(t)
			s := newScene(t, books)
			config := pool.Config().ConnConfig
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			ok(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			watched := func(fn func()) { fn() }
			if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeCacheStatement {
				watched = func(fn func()) { pgtxtest.AssertSessionUnchanged(t, conn, fn) }
			}
			for _, c := range calls {
				watched(func() { callBoth(t, ledger.New(conn), s, c) })
				tx, err := conn.Begin(t.Context())
				ok(t, err)
				watched(func() { callBoth(t, ledger.New(tx), s, c) })
				callBoth(t, ledger.New(tx), s, c) // again, because the first time some modes go another way
				ok(t, tx.Commit(t.Context()))
				if t.Failed() {
					t.Fatalf("%s in mode %s", c.name, mode)
				}
			}
			sound(t, books)
		})
	}
}

// callBoth makes the call that is refused, then the one that works.
func callBoth(t testing.TB, l *ledger.Ledger, s *scene, c struct {
	name    string
	writes  bool
	works   func(ctx context.Context, l *ledger.Ledger, s *scene) error
	refused func(ctx context.Context, l *ledger.Ledger, s *scene) error
	kind    error
}) {
	t.Helper()
	if c.refused != nil {
		var refusal *ledger.Error
		if err := c.refused(t.Context(), l, s); !errors.Is(err, c.kind) || !errors.As(err, &refusal) {
			t.Errorf("%s that should be refused with %q: %v", c.name, c.kind, err)
		}
	}
	if err := c.works(t.Context(), l, s); err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
}

// TestPooler: every call works through a transaction pooler, and so do transactions of several.
func TestPooler(t *testing.T) {
	t.Parallel()
	books, direct := installed(t)
	s := newScene(t, books)
	pool, err := pgxpool.New(t.Context(), pgserver.Pooler(t, direct.Config().ConnString()))
	ok(t, err)
	defer pool.Close()
	together(t, 4, func(i int) error {
		for at := range calls {
			c := calls[(at+i*len(calls)/4)%len(calls)]
			switch c.name {
			case "ClosePeriod", "ReopenPeriod", "SetNotify", "AssertBalance":
				if i > 0 { // they tread on each other
					continue
				}
			}
			if c.name == "Exchange" && i > 0 {
				continue
			}
			callBoth(t, ledger.New(pool), s, c)
		}
		return nil
	})
	for _, c := range calls {
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			callBoth(t, ledger.New(tx), s, c)
			callBoth(t, ledger.New(tx), s, c)
			return nil
		}))
	}
	sound(t, books)
}

// TestCallersTransaction: what is booked in the caller's transaction is seen by others when that commits, and never if it doesn't.
func TestCallersTransaction(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	s := newScene(t, books)
	seen := func() (digest string) {
		ok(t, pool.QueryRow(t.Context(), `select concat_ws(' ',
			(select count(*) from ledger.asset), (select count(*) from ledger.transfer), (select count(*) from ledger.posting), (select count(*) from ledger.hold),
			(select count(*) from ledger.reversal), (select string_agg(a::text, ' ' order by no) from ledger.account a),
			(select string_agg(b::text, ' ' order by no) from ledger.balance b), (select p::text from ledger.period p))`).Scan(&digest))
		return digest
	}
	for _, c := range calls {
		before := seen()
		for _, commit := range []bool{false, true} {
			tx, err := pool.Begin(t.Context())
			ok(t, err)
			callBoth(t, ledger.New(tx), s, c)
			if seen() != before {
				t.Errorf("%s is seen before its transaction commits", c.name)
			}
			if !commit {
				ok(t, tx.Rollback(t.Context()))
				if seen() != before {
					t.Errorf("%s is seen although its transaction was rolled back", c.name)
				}
				continue
			}
			ok(t, tx.Commit(t.Context()))
			if c.writes && seen() == before {
				t.Errorf("%s left nothing although its transaction committed", c.name)
			}
		}
	}
	sound(t, books)
}
