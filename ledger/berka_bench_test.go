package ledger_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/bench"
	"github.com/annals-db/annals/ledger"
)

var berkaTransfers = flag.Int("berka.transfers", 50_000, "how many synthetic transfers BenchmarkBerka books; at most 5,000 with -short")

// syntheticBranch is a part of a synthetic bank: some of its customers, and accounts of the bank that are this branch's own, so that
// branches have no account in common.
type syntheticBranch struct {
	rows      []int // of the bank, in order
	customers map[int]ledger.AccountID
	accounts  map[string]ledger.AccountID // the bank's
	balance   map[ledger.AccountID]heller // the model: where each account stands
}

// openSynthetic opens the accounts of a bank and divides it into branches.
func openSynthetic(t testing.TB, books *ledger.Ledger, bank *syntheticBank, branches int) []*syntheticBranch {
	t.Helper()
	ok(t, books.CreateAsset(t.Context(), "CZK", 2))
	all := make([]*syntheticBranch, branches)
	for i := range all {
		all[i] = &syntheticBranch{customers: map[int]ledger.AccountID{}, accounts: map[string]ledger.AccountID{}, balance: map[ledger.AccountID]heller{}}
	}
	for i, row := range bank.rows {
		number := row.customer % branches
		branch := all[number]
		branch.rows = append(branch.rows, i)
		if _, opened := branch.customers[row.customer]; !opened {
			branch.customers[row.customer] = openWith(t, books, ledger.AccountParams{Name: "customer", Code: fmt.Sprint("customer:", row.customer),
				Asset: "CZK", Min: decimal.NewNullDecimal(bank.customers[row.customer].least.decimal())})
		}
		if _, opened := branch.accounts[row.with]; !opened {
			branch.accounts[row.with] = openWith(t, books, ledger.AccountParams{Name: row.with, Code: fmt.Sprintf("bank:%d:%s", number, row.with), Asset: "CZK"})
		}
	}
	return all
}

// book books the branch's rows in batches and compares each running balance, the bank's and the customer's.
func (s *syntheticBranch) book(ctx context.Context, books *ledger.Ledger, rows []syntheticRow) error {
	for chunk := range slices.Chunk(s.rows, 100) {
		batch := make([]ledger.TransferParams, len(chunk))
		for i, n := range chunk {
			row := rows[n]
			p := ledger.TransferParams{ID: syntheticID(row.day, n), From: s.accounts[row.with], To: s.customers[row.customer],
				Amount: row.amount.abs().decimal(), EventAt: row.day}
			if row.amount < 0 {
				p.From, p.To = p.To, p.From
			}
			batch[i] = p
		}
		posted, err := books.Transfers(ctx, batch)
		if err != nil {
			return err
		}
		for i, n := range chunk {
			from, to, amount := batch[i].From, batch[i].To, rows[n].amount.abs()
			s.balance[from] -= amount
			s.balance[to] += amount
			if customer := s.customers[rows[n].customer]; s.balance[customer] != rows[n].balance || posted[i].Replayed ||
				!posted[i].FromBalance.Equal(s.balance[from].decimal()) || !posted[i].ToBalance.Equal(s.balance[to].decimal()) {
				return fmt.Errorf("row %d is %+v, booked as %+v", n, rows[n], posted[i])
			}
		}
	}
	return nil
}

// syntheticID has the form of a UUID of version 7: the day in milliseconds, then the number of the row.
func syntheticID(day time.Time, row int) (id ledger.TransferID) {
	binary.BigEndian.PutUint64(id[:8], uint64(day.UnixMilli())<<16|7<<12)
	binary.BigEndian.PutUint64(id[8:], 1<<63|uint64(row))
	return id
}

// bookSynthetic has all branches book at once.
func bookSynthetic(ctx context.Context, pool *pgxpool.Pool, bank *syntheticBank, branches []*syntheticBranch) error {
	failed := make([]error, len(branches))
	var writers sync.WaitGroup
	for i, branch := range branches {
		writers.Go(func() { failed[i] = branch.book(ctx, ledger.New(pool), bank.rows) })
	}
	writers.Wait()
	return errors.Join(failed...)
}

// checkSynthetic compares what the books say in the end with the model, and verifies them.
func checkSynthetic(t testing.TB, books *ledger.Ledger, branches []*syntheticBranch) {
	t.Helper()
	balance := map[ledger.AccountID]heller{}
	for _, branch := range branches {
		for id, h := range branch.balance {
			balance[id] = h
		}
	}
	for account, err := range books.Accounts(t.Context(), ledger.AccountFilter{}) {
		ok(t, err)
		want, known := balance[account.ID]
		if !known || !account.Balance.Posted.Equal(want.decimal()) {
			t.Fatalf("%s stands at %s, expected %s", account.Code, account.Balance.Posted, want.decimal())
		}
		delete(balance, account.ID)
	}
	if len(balance) > 0 {
		t.Fatalf("%d accounts are missing", len(balance))
	}
	verifyBerka(t, books)
}

func TestSyntheticBankReplay(t *testing.T) {
	books, pool := installed(t)
	bank := newSyntheticBank(t, 1, 3_000)
	branches := openSynthetic(t, books, bank, 3)
	ok(t, bookSynthetic(t.Context(), pool, bank, branches))
	checkSynthetic(t, books, branches)
}

// BenchmarkBerka books a synthetic bank from its first day on, into books that grow from nothing. B/transfer includes the two indexes of
// event times, which all of these transfers carry.
func BenchmarkBerka(b *testing.B) {
	const writers = 4
	transfers := *berkaTransfers
	if testing.Short() {
		transfers = min(transfers, 5_000)
	}
	server := bench.Server(b, bench.Volatile)
	bank := newSyntheticBank(b, 1, transfers)
	b.Run(fmt.Sprintf("transfers=%d/writers=%d", transfers, writers), func(b *testing.B) {
		var grown, wal int64
		for b.Loop() {
			b.StopTimer()
			pool := must[*pgxpool.Pool](b)(pgxpool.New(b.Context(), bench.Database(b, server)))
			ok(b, ledger.Install(b.Context(), pool))
			books := ledger.New(pool)
			branches := openSynthetic(b, books, bank, writers)
			grown, wal = grown-storage(b, pool), wal-walPosition(b, pool)
			b.StartTimer()
			ok(b, bookSynthetic(b.Context(), pool, bank, branches))
			b.StopTimer()
			grown, wal = grown+storage(b, pool), wal+walPosition(b, pool)
			checkSynthetic(b, books, branches)
			pool.Close()
			b.StartTimer()
		}
		booked := float64(b.N) * float64(transfers)
		b.ReportMetric(booked/b.Elapsed().Seconds(), "transfers/s")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/booked, "ns/op")
		b.ReportMetric(float64(grown)/booked, "B/transfer")
		b.ReportMetric(float64(wal)/booked, "wal-B/op")
	})
}

func walPosition(b *testing.B, db ledger.DB) (bytes int64) {
	b.Helper()
	ok(b, db.QueryRow(b.Context(), "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes))
	return bytes
}
