package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// bookMany books n transfers from a to b in several batches, and returns when the middle one was booked.
func bookMany(t *testing.T, books *ledger.Ledger, a, b ledger.AccountID, n int) (middle time.Time) {
	t.Helper()
	const batches = 8
	for i := range batches {
		batch := slices.Repeat([]ledger.TransferParams{{From: a, To: b, Amount: dec("1")}}, n/batches)
		posted := must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
		if i == batches/2 {
			middle = posted[0].CreatedAt
		}
	}
	return middle
}

// reading is how many rows of the transfer table were read, by sequential scans and through indexes.
type reading struct{ sequential, byIndex int64 }

func rowsRead(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (r reading) {
	t.Helper()
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		// Counts of the connection's earlier transactions may still be among these.
		const counts = "select seq_tup_read, idx_tup_fetch from pg_stat_xact_all_tables where relid = 'ledger.transfer'::regclass"
		var before reading
		if err := tx.QueryRow(t.Context(), counts).Scan(&before.sequential, &before.byIndex); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			return err
		}
		err := tx.QueryRow(t.Context(), counts).Scan(&r.sequential, &r.byIndex)
		r.sequential, r.byIndex = r.sequential-before.sequential, r.byIndex-before.byIndex
		return err
	}))
	return r
}

func TestLastEntriesAreAMergeOfIndexScans(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	bookMany(t, books, a, b, 4000)
	_, err := pool.Exec(t.Context(), "analyze ledger.transfer")
	ok(t, err)
	rows, err := pool.Query(t.Context(), "explain (costs off) select * from ledger.entry where account_no = (select no from ledger.account where id = $1) order by version desc limit 20", b)
	ok(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	plan := strings.Join(lines, "\n")
	if !strings.Contains(plan, "Merge Append") || strings.Contains(plan, "Seq Scan on transfer") || strings.Contains(plan, "Seq Scan on posting") || strings.Contains(plan, "Bitmap") {
		t.Errorf("plan of the last entries:\n%s", plan)
	}
}

func TestPagesReadLittle(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	// A plan made while there is nothing to read must not be kept.
	for range 10 {
		rowsRead(t, pool, "select * from ledger.entries_of($1)", b)
	}
	middle := bookMany(t, books, a, b, 4096)
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			_, err := pool.Exec(t.Context(), "analyze ledger.transfer")
			ok(t, err)
		}
		for what, query := range map[string]struct {
			rows int64
			sql  string
			args []any
		}{
			"the last":           {20, "select * from ledger.entries_of($1, p_limit => 20, p_newest_first => true)", []any{b}},
			"the first":          {20, "select * from ledger.entries_of($1, p_limit => 20)", []any{b}},
			"after the middle":   {20, "select * from ledger.entries_of($1, 2048, 20)", []any{b}},
			"a large page":       {1000, "select * from ledger.entries_of($1, 100, 1000)", []any{b}},
			"since a time":       {20, "select * from ledger.entries_of($1, p_limit => 20, p_from => $2)", []any{b, middle}},
			"last before a time": {20, "select * from ledger.entries_of($1, p_limit => 20, p_to => $2, p_newest_first => true)", []any{b, middle}},
			"none in a time":     {0, "select * from ledger.entries_of($1, p_from => $2, p_to => $2)", []any{b, middle}},
		} {
			// Each bound in time takes log2(4096) probes.
			if read := rowsRead(t, pool, query.sql, query.args...); read.sequential > 0 || read.byIndex > query.rows+2*13 {
				t.Errorf("%s, with statistics %s: %+v of 4096 entries were read", what, statistics, read)
			}
		}
	}
}

// Statistics are always older than the books: an account that they hardly know must not be read to its end for a page.
func TestPagesOfAnAccountThatGrew(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	var others []ledger.AccountID
	for i := range 60 {
		others = append(others, open(t, books, fmt.Sprint("other:", i)))
	}
	var batch []ledger.TransferParams
	for i := range 1200 {
		batch = append(batch, ledger.TransferParams{From: others[i%60], To: others[(7*i+1)%60], Amount: dec("1")})
	}
	for i := range batch {
		if batch[i].From == batch[i].To {
			batch[i].To = a
		}
	}
	must[[]ledger.Posted](t)(books.Transfers(t.Context(), batch))
	_, err := pool.Exec(t.Context(), "analyze ledger.transfer, ledger.posting")
	ok(t, err)
	bookMany(t, books, a, b, 4096)
	if read := rowsRead(t, pool, "select * from ledger.entries_of($1, 1000, 100)", b); read.sequential > 0 || read.byIndex > 100 {
		t.Errorf("%+v entries were read for a page of 100", read)
	}
}

func TestEntriesOfManyPages(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	const n = 2400
	bookMany(t, books, a, b, n)
	for _, newest := range []bool{false, true} {
		want := int64(1)
		step := int64(1)
		if newest {
			want, step = n, -1
		}
		for e, err := range books.Entries(t.Context(), b, ledger.EntryFilter{NewestFirst: newest}) {
			ok(t, err)
			if e.Version != want || e.Balance.IntPart() != want || e.Previous.IntPart() != want-1 || e.Account != b || e.Counterparty != a {
				t.Fatalf("entry %d is %+v", want, e)
			}
			want += step
		}
		if want != 0 && want != n+1 {
			t.Errorf("the last entry was the one before %d", want)
		}
	}

	// The body of the loop may book and read in the same transaction, and break.
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		inside := ledger.New(tx)
		seen := 0
		for e, err := range inside.Entries(t.Context(), b, ledger.EntryFilter{After: n - 100}) {
			ok(t, err)
			if seen++; seen == 1 {
				pay(t, inside, a, b, "1") // comes up on a later page
			}
			if got := must[ledger.Transfer](t)(inside.GetTransfer(t.Context(), ledger.TransferID(e.Source))); got.ToVersion != e.Version {
				t.Fatalf("%+v belongs to %+v", e, got)
			}
		}
		if seen != 101 {
			t.Errorf("%d entries instead of 101", seen)
		}
		return nil
	}))
}

func TestEntriesWithACounterparty(t *testing.T) {
	books, _ := installed(t)
	a, b, c := open(t, books, "a"), open(t, books, "b"), open(t, books, "c")
	pay(t, books, a, b, "1")
	pay(t, books, c, a, "2")
	post := func(accounts ...ledger.AccountID) {
		p := ledger.JournalParams{Postings: []ledger.Posting{{Account: accounts[0], Amount: decimal.NewFromInt(int64(1 - len(accounts)))}}}
		for _, account := range accounts[1:] {
			p.Postings = append(p.Postings, ledger.Posting{Account: account, Amount: dec("1")})
		}
		must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), p))
	}
	post(a, b)
	post(a, b, c)
	post(a, c)
	post(a, a)
	for counterparty, want := range map[ledger.AccountID][]int64{b: {1, 3, 4}, c: {2, 4, 5}, a: {6, 7}} {
		var got []int64
		for e, err := range books.Entries(t.Context(), a, ledger.EntryFilter{Counterparty: counterparty}) {
			ok(t, err)
			got = append(got, e.Version)
		}
		if !slices.Equal(got, want) {
			t.Errorf("entries with %s: %v, not %v", counterparty, got, want)
		}
	}
}

func TestEntriesFail(t *testing.T) {
	books, pool := installed(t)
	a := open(t, books, "a")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	inside := ledger.New(tx)
	for what, c := range map[string]struct {
		account ledger.AccountID
		filter  ledger.EntryFilter
		want    error
	}{
		"unknown account":      {ledger.NewAccountID(), ledger.EntryFilter{}, ledger.ErrAccountNotFound},
		"zero account":         {ledger.AccountID{}, ledger.EntryFilter{}, ledger.ErrAccountNotFound},
		"unknown counterparty": {a, ledger.EntryFilter{Counterparty: ledger.NewAccountID()}, ledger.ErrAccountNotFound},
		"no JSON":              {a, ledger.EntryFilter{Metadata: []byte("{")}, ledger.ErrInvalid},
		"NUL in JSON":          {a, ledger.EntryFilter{Metadata: []byte(`"\u0000"`)}, ledger.ErrInvalid},
	} {
		count := 0
		for _, err := range inside.Entries(t.Context(), c.account, c.filter) {
			if count++; !errors.Is(err, c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if count != 1 {
			t.Errorf("%s: %d times", what, count)
		}
	}
	pay(t, inside, a, open(t, inside, "b"), "1") // the transaction goes on
}

func TestEntriesView(t *testing.T) {
	books, pool := installed(t)
	a, b := open(t, books, "a:1"), open(t, books, `it's "b"`)
	p := pay(t, books, a, b, "2.50")
	must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), ledger.JournalParams{Description: "why", Metadata: []byte(`{"k": 1}`),
		Postings: []ledger.Posting{{Account: b, Amount: dec("-1")}, {Account: a, Amount: dec("1")}}}))
	rows, err := pool.Query(t.Context(), `select concat_ws(' ', code, asset, version, kind, leg, (counterparty_id = $1)::text, amount, previous, balance, metadata, description)
		from ledger.entries where account_id = $2 order by version`, a, b)
	ok(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	if want := []string{`it's "b" EUR 1 transfer 2 true 2.50 0.00 2.50`, `it's "b" EUR 2 journal 1 -1.00 2.50 1.50 {"k": 1} why`}; !slices.Equal(got, want) {
		t.Errorf("entries of b are\n%q, not\n%q", got, want)
	}
	var of int
	ok(t, pool.QueryRow(t.Context(), "select count(*) from ledger.entries where source_id = $1", p.ID).Scan(&of))
	if of != 2 {
		t.Errorf("a transfer has %d entries", of)
	}
}
