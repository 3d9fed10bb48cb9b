package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// TestBank: customers move money in every way while their connections are broken and the server dies, and repeat each request with its
// id until they have an answer. In the end the books have exactly what was acknowledged.
func TestBank(t *testing.T) {
	t.Parallel()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	server := pgserver.New(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	database, err := server.CreateDatabase(t.Context())
	ok(t, err)
	pool, err := pgxpool.New(t.Context(), server.ConnString(database))
	ok(t, err)
	defer pool.Close()
	ok(t, ledger.Install(t.Context(), pool))
	books := ledger.New(pool)
	ok(t, books.CreateAsset(t.Context(), "EUR", 2))
	b := &bank{pool: pool, booked: map[uuid.UUID]acknowledged{}}
	vault := open(t, books, "vault")
	for i := range 12 {
		id := openWith(t, books, ledger.AccountParams{Name: fmt.Sprint("customer ", i), Asset: "EUR"})
		p := ledger.TransferParams{ID: ledger.NewTransferID(), From: vault, To: id, Amount: dec("500")}
		posted, err := books.Transfer(t.Context(), p)
		ok(t, err)
		b.acknowledge(p, posted)
		ok(t, books.SetLimits(t.Context(), id, limit("0"), decimal.NullDecimal{}))
		b.accounts = append(b.accounts, id)
	}

	const crashes = 2
	calm := 1500 * time.Millisecond
	if testing.Short() {
		calm = 300 * time.Millisecond
	}
	closing := make(chan struct{})
	var customers sync.WaitGroup
	for i := range 8 {
		customers.Go(func() {
			if err := b.serve(t.Context(), closing, rand.New(rand.NewPCG(uint64(seed), uint64(i)))); err != nil {
				t.Errorf("customer %d: %v", i, err)
			}
		})
	}
	monitor := rand.New(rand.NewPCG(uint64(seed), 99))
	for range crashes {
		for end := time.Now().Add(calm); time.Now().Before(end); time.Sleep(time.Duration(monitor.IntN(60)) * time.Millisecond) {
			b.breakOne(t, server.ConnString(database))
		}
		ok(t, server.Kill(t.Context()))
		ok(t, server.Restart(t.Context()))
	}
	time.Sleep(calm / 2)
	close(closing)
	customers.Wait()
	b.audit(t)
	sound(t, books)
	t.Logf("%d transfers and postings were acknowledged after %d attempts that came to nothing", len(b.booked), b.broken)
}

// bank remembers what it was told.
type bank struct {
	pool     *pgxpool.Pool
	accounts []ledger.AccountID

	mu     sync.Mutex
	booked map[uuid.UUID]acknowledged // by the id of a transfer or journal entry
	broken int                        // attempts without an answer
}

// acknowledged is what the books must have, as the caller asked for it and was answered.
type acknowledged struct {
	from, to               ledger.AccountID
	amount                 decimal.Decimal
	fromVersion, toVersion int64
	toBalance              decimal.Decimal
	journal                bool
}

func (b *bank) acknowledge(t ledger.TransferParams, p ledger.Posted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.booked[uuid.UUID(p.ID)] = acknowledged{from: t.From, to: t.To, amount: t.Amount, fromVersion: p.FromVersion, toVersion: p.ToVersion, toBalance: p.ToBalance}
}

// insist repeats a call until there is an answer: a result, or one of the refusals that may come.
func (b *bank) insist(ctx context.Context, call func() error) (booked bool, err error) {
	for {
		err := call()
		var refusal *ledger.Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &refusal):
			if errors.Is(err, ledger.ErrLimit) || errors.Is(err, ledger.ErrReversed) || errors.Is(err, ledger.ErrHoldExpired) || errors.Is(err, ledger.ErrHoldSettled) {
				return false, nil
			}
			return false, err
		}
		b.mu.Lock()
		b.broken++
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// serve makes requests of every kind until the bank closes.
func (b *bank) serve(ctx context.Context, closing <-chan struct{}, random *rand.Rand) error {
	books := ledger.New(b.pool)
	var mine []ledger.TransferID // single transfers, to be reversed
	for {
		select {
		case <-closing:
			return nil
		default:
		}
		request := func() ledger.TransferParams {
			at := random.Perm(len(b.accounts))
			return ledger.TransferParams{ID: ledger.NewTransferID(), From: b.accounts[at[0]], To: b.accounts[at[1]], Amount: decimal.New(1+random.Int64N(9000), -2)}
		}
		t := request()
		var err error
		switch random.IntN(8) {
		case 0:
			var p ledger.Posted
			if booked, fatal := b.insist(ctx, func() error { p, err = books.Transfer(ctx, t); return err }); fatal != nil {
				return fatal
			} else if booked {
				b.acknowledge(t, p)
				mine = append(mine, t.ID)
			}
		case 1:
			batch := []ledger.TransferParams{t, request()}
			if random.IntN(2) == 0 {
				batch = append(batch, request(), request(), request())
			}
			var posted []ledger.Posted
			if booked, fatal := b.insist(ctx, func() error { posted, err = books.Transfers(ctx, batch); return err }); fatal != nil {
				return fatal
			} else if booked {
				for i, p := range posted {
					b.acknowledge(batch[i], p)
				}
			}
		case 2:
			batch := []ledger.TransferParams{t, request(), request()}
			var posted []ledger.Posted
			var refused []error
			if _, fatal := b.insist(ctx, func() error { posted, refused, err = books.TransferEach(ctx, batch); return err }); fatal != nil {
				return fatal
			}
			for i, p := range posted {
				if refused[i] == nil {
					b.acknowledge(batch[i], p)
				} else if !errors.Is(refused[i], ledger.ErrLimit) {
					return refused[i]
				}
			}
		case 3, 4:
			if err := b.hold(ctx, books, t, random); err != nil {
				return err
			}
		case 5:
			j := ledger.JournalParams{ID: ledger.NewJournalID(), Postings: []ledger.Posting{{Account: t.From, Amount: t.Amount.Neg()}, {Account: t.To, Amount: t.Amount}}}
			var p ledger.JournalPosted
			if booked, fatal := b.insist(ctx, func() error { p, err = books.PostJournal(ctx, j); return err }); fatal != nil {
				return fatal
			} else if booked {
				b.mu.Lock()
				b.booked[uuid.UUID(j.ID)] = acknowledged{from: t.From, to: t.To, amount: t.Amount, fromVersion: p.Versions[0], toVersion: p.Versions[1], toBalance: p.Balances[1], journal: true}
				b.mu.Unlock()
			}
		case 6:
			if len(mine) == 0 {
				continue
			}
			original := mine[len(mine)-1]
			mine = mine[:len(mine)-1]
			b.mu.Lock()
			was := b.booked[uuid.UUID(original)]
			b.mu.Unlock()
			back := ledger.TransferParams{ID: ledger.NewTransferID(), From: was.to, To: was.from, Amount: was.amount}
			var p ledger.Posted
			if booked, fatal := b.insist(ctx, func() error {
				p, err = books.ReverseTransfer(ctx, original, ledger.ReverseTransferParams{ID: back.ID})
				return err
			}); fatal != nil {
				return fatal
			} else if booked {
				b.acknowledge(back, p)
			}
		case 7:
			// A transaction of the caller's own with two bookings, repeated as a whole.
			second := request()
			var p, q ledger.Posted
			if booked, fatal := b.insist(ctx, func() error {
				return ledger.Retry(ctx, func() error {
					return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) (err error) {
						if p, err = ledger.New(tx).Transfer(ctx, t); err != nil {
							return err
						}
						q, err = ledger.New(tx).Transfer(ctx, second)
						return err
					})
				})
			}); fatal != nil {
				return fatal
			} else if booked {
				b.acknowledge(t, p)
				b.acknowledge(second, q)
			}
		}
	}
}

// hold sets money aside, then posts it, posts a part of it, voids it, or leaves it to expire.
func (b *bank) hold(ctx context.Context, books *ledger.Ledger, t ledger.TransferParams, random *rand.Rand) (err error) {
	h := ledger.HoldParams{ID: ledger.NewHoldID(), From: t.From, To: t.To, Amount: t.Amount}
	if random.IntN(3) == 0 {
		h.ExpiresAt = time.Now().Add(time.Duration(50+random.IntN(500)) * time.Millisecond)
	}
	if held, fatal := b.insist(ctx, func() error { return last(books.Hold(ctx, h)) }); fatal != nil || !held {
		return fatal
	}
	post := ledger.PostParams{TransferID: t.ID}
	switch random.IntN(4) {
	case 0:
		_, err := b.insist(ctx, func() error { return last(books.VoidHold(ctx, h.ID)) })
		return err
	case 1:
		if !h.ExpiresAt.IsZero() {
			return nil
		}
	case 2:
		t.Amount = dec("0.01")
		post.Amount = decimal.NewNullDecimal(t.Amount)
	}
	var p ledger.Posted
	if booked, fatal := b.insist(ctx, func() error { p, err = books.PostHold(ctx, h.ID, post); return err }); fatal != nil {
		return fatal
	} else if booked {
		b.acknowledge(t, p)
	}
	return nil
}

// breakOne ends a connection of the pool, if there is one.
func (b *bank) breakOne(t *testing.T, connString string) {
	conn, err := pgx.Connect(t.Context(), connString+" application_name=monitor")
	ok(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name <> 'monitor' order by random() limit 1`)
	ok(t, err)
}

// audit compares the books with what was acknowledged, both ways.
func (b *bank) audit(t *testing.T) {
	t.Helper()
	if len(b.booked) < 50 || b.broken == 0 {
		t.Errorf("only %d bookings were acknowledged, %d attempts were broken: the test tests little", len(b.booked), b.broken)
	}
	rows, err := b.pool.Query(t.Context(), `
		select t.id, false, f.id, r.id, t.amount::text, t.from_version, t.to_version, t.to_balance::text
			from ledger.transfer t join ledger.account f on f.no = t.from_no join ledger.account r on r.no = t.to_no
		union all
		select p.journal_id, true, f.id, r.id, q.amount::text, p.version, q.version, q.balance::text
			from ledger.posting p join ledger.posting q on q.journal_id = p.journal_id and q.leg = 2
				join ledger.account f on f.no = p.account_no join ledger.account r on r.no = q.account_no
			where p.leg = 1`)
	ok(t, err)
	found := map[uuid.UUID]bool{}
	var id uuid.UUID
	var got acknowledged
	var amount, balance string
	_, err = pgx.ForEachRow(rows, []any{&id, &got.journal, &got.from, &got.to, &amount, &got.fromVersion, &got.toVersion, &balance}, func() error {
		found[id] = true
		got.amount, got.toBalance = dec(amount), dec(balance)
		want, known := b.booked[id]
		switch {
		case !known:
			t.Errorf("the books have %s, which nobody was told: %+v", id, got)
		case want.from != got.from || want.to != got.to || want.journal != got.journal || !want.amount.Equal(got.amount) ||
			want.fromVersion != got.fromVersion || want.toVersion != got.toVersion || !want.toBalance.Equal(got.toBalance):
			t.Errorf("%s was acknowledged as %+v and is in the books as %+v", id, want, got)
		}
		return nil
	})
	ok(t, err)
	for id, want := range b.booked {
		if !found[id] {
			t.Errorf("%s was acknowledged and is lost: %+v", id, want)
		}
	}
	var sum string
	ok(t, b.pool.QueryRow(t.Context(), "select sum(balance)::text from ledger.balance").Scan(&sum))
	if !dec(sum).IsZero() {
		t.Errorf("all balances sum to %s", sum)
	}
}
