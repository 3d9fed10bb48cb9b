package ledger_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// fullBooks is a ledger in which everything has been booked that can be.
type fullBooks struct {
	*ledger.Ledger
	pool    *pgxpool.Pool
	account map[string]ledger.AccountID // by code
	source  map[string]uuid.UUID        // transfers, journal entries and holds
}

func newFullBooks(t testing.TB) *fullBooks {
	t.Helper()
	books, pool := installed(t)
	ctx := t.Context()
	ok(t, books.CreateAsset(ctx, "USD", 2))
	b := &fullBooks{books, pool, map[string]ledger.AccountID{}, map[string]uuid.UUID{}}
	for _, code := range []string{"a", "c", "d", "e", "f", "g"} {
		b.account[code] = open(t, books, code)
	}
	b.account["b"] = openWith(t, books, ledger.AccountParams{Name: "b", Code: "b", Asset: "EUR", Min: limit("0"), Max: limit("1000")})
	for _, code := range []string{"u", "v", "w"} {
		b.account[code] = openWith(t, books, ledger.AccountParams{Name: code, Code: code, Asset: "USD"})
	}
	transfer := func(name, from, to, amount string) {
		t.Helper()
		b.source[name] = uuid.UUID(pay(t, books, b.account[from], b.account[to], amount).ID)
	}
	journal := func(name string, legs ...ledger.Posting) {
		t.Helper()
		j, err := books.PostJournal(ctx, ledger.JournalParams{Postings: legs})
		ok(t, err)
		b.source[name] = uuid.UUID(j.ID)
	}
	leg := func(code, amount string) ledger.Posting {
		return ledger.Posting{Account: b.account[code], Amount: dec(amount)}
	}
	hold := func(name, from, to, amount string) ledger.HoldID {
		t.Helper()
		h, err := books.Hold(ctx, ledger.HoldParams{From: b.account[from], To: b.account[to], Amount: dec(amount)})
		ok(t, err)
		b.source[name] = uuid.UUID(h.ID)
		return h.ID
	}

	// What lies in a closed period was booked while it was open.
	closed := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := books.Transfer(ctx, ledger.TransferParams{From: b.account["w"], To: b.account["u"], Amount: dec("1"), EventAt: closed.Add(-1)})
	ok(t, err)
	_, err = books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{leg("w", "-1"), leg("u", "1")}, EventAt: closed.Add(-1)})
	ok(t, err)
	ok(t, books.ClosePeriod(ctx, closed))
	transfer("t1", "a", "b", "10") // a and b, versions 1
	transfer("t2", "a", "b", "20") // a and b, versions 2
	transfer("t3", "b", "c", "5")  // b 3, c 1
	journal("j1", leg("a", "-3"), leg("b", "1"), leg("c", "2"))
	journal("j2", leg("e", "-1"), leg("f", "1")) // e and f, versions 1
	hold("open", "b", "c", "4")
	posted, err := books.PostHold(ctx, hold("posted", "a", "c", "3"), ledger.PostParams{Amount: limit("2")})
	ok(t, err)
	b.source["t4"] = uuid.UUID(posted.ID)
	_, err = books.VoidHold(ctx, hold("voided", "a", "c", "3"))
	ok(t, err)
	_, err = books.ReverseTransfer(ctx, ledger.TransferID(b.source["t3"]), ledger.ReverseTransferParams{})
	ok(t, err)
	_, err = books.ReverseJournal(ctx, ledger.JournalID(b.source["j1"]), ledger.ReverseJournalParams{})
	ok(t, err)
	available, err := books.TransferAvailable(ctx, ledger.TransferParams{From: b.account["b"], To: b.account["c"], Amount: dec("1000")})
	ok(t, err)
	b.source["t5"] = uuid.UUID(available.ID)
	_, err = books.Exchange(ctx, ledger.ExchangeParams{From: b.account["a"], To: b.account["v"], FromAmount: dec("2"), ToAmount: dec("3"),
		FromLiquidity: b.account["c"], ToLiquidity: b.account["u"]})
	ok(t, err)
	transfer("t6", "a", "d", "1") // d, version 1
	transfer("t7", "d", "a", "1") // d, version 2, a's last
	ok(t, books.CloseAccount(ctx, b.account["d"]))
	return b
}

// problems reads a verification to its end.
func problems(t testing.TB, verification iter.Seq2[ledger.Problem, error]) (found []ledger.Problem) {
	t.Helper()
	for p, err := range verification {
		ok(t, err)
		found = append(found, p)
	}
	return found
}

// sketch is what tests compare of problems: kind, account's code, version, source's name.
func (b *fullBooks) sketch(found []ledger.Problem) (lines []string) {
	for _, p := range found {
		line := string(p.Kind)
		for code, id := range b.account {
			if id == p.Account {
				line += " " + code
			}
		}
		if p.Version != 0 {
			line += fmt.Sprint(" ", p.Version)
		}
		for name, id := range b.source {
			if id == p.Source {
				line += " " + name
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// spoil executes SQL with the guards off in a transaction that is rolled back when the test ends, and returns the transaction. In the SQL
// {a} is the number of an account and {t1} the id of a transfer, journal entry or hold.
func (b *fullBooks) spoil(t testing.TB, sql string) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	ok(t, err)
	t.Cleanup(func() { tx.Rollback(context.WithoutCancel(t.Context())) })
	for name, id := range b.source {
		sql = strings.ReplaceAll(sql, "{"+name+"}", "'"+id.String()+"'")
	}
	for code := range b.account {
		sql = strings.ReplaceAll(sql, "{"+code+"}", "(select no from ledger.account where code = '"+code+"')")
	}
	_, err = tx.Exec(t.Context(), "set local session_replication_role = replica; "+sql+"; set local session_replication_role = origin")
	ok(t, err)
	return tx
}

func TestVerifyFindsNothingInWholeBooks(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	for _, since := range []time.Time{{}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)} {
		for _, p := range problems(t, b.Verify(t.Context(), ledger.VerifyOptions{Since: since})) {
			t.Errorf("since %s: %+v", since, p)
		}
	}
	var n int
	ok(t, b.pool.QueryRow(t.Context(), "select count(*) from ledger.verify()").Scan(&n))
	if n != 0 {
		t.Errorf("ledger.verify finds %d problems", n)
	}
	pool := pgserver.Pool(t)
	ok(t, ledger.Install(t.Context(), pool))
	for _, p := range problems(t, ledger.New(pool).Verify(t.Context(), ledger.VerifyOptions{})) {
		t.Errorf("in empty books: %+v", p)
	}
}

// Each corruption is reported as what it is, and as nothing else.
func TestVerifyFindsEachCorruption(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	// A transfer that is whole in itself, between accounts that have no other.
	const insert = `insert into ledger.transfer (id, created_at, xid, from_version, to_version, from_no, to_no, amount, from_balance, to_balance)
		values (gen_random_uuid(), clock_timestamp(), txid_current(), `
	for _, c := range []struct {
		name, sql string
		want      []string
	}{
		{"a version left out", "update ledger.transfer set from_version = 3 where id = {t7}; update ledger.balance set version = 3 where no = {d}", []string{"gap d 3 t7"}},
		{"a transfer deleted", "delete from ledger.transfer where id = {t2}", []string{"gap a 3 j1", "gap b 3 t3", "running_balance a 3 j1", "running_balance b 3 t3"}},
		{"the last transfer deleted", "delete from ledger.transfer where id = {t7}", []string{"stored_balance a 7 t6", "stored_balance d 1 t6", "stored_version a 7 t6", "stored_version d 1 t6"}},
		{"a version twice", "update ledger.transfer set from_version = 1 where id = {t7}; update ledger.balance set version = 1 where no = {d}", []string{"duplicate d 1 t7"}},
		{"an impossible version", "update ledger.transfer set from_version = 9223372036854775807 where id = {t7}", []string{"gap d 4294967294", "stored_version d 4294967294"}},
		{"a first entry with a balance before it", "update ledger.posting set balance = 5 where account_no = {e}; update ledger.balance set balance = 5 where no = {e}; update ledger.balance set balance = -5 where no = {f}; update ledger.posting set balance = -5 where account_no = {f}",
			[]string{"running_balance e 1 j2", "running_balance f 1 j2"}},
		{"another running balance", "update ledger.transfer set to_balance = 11 where id = {t1}", []string{"running_balance b 1 t1", "running_balance b 2 t2"}},
		{"another amount", "update ledger.transfer set amount = 11 where id = {t1}", []string{"running_balance a 1 t1", "running_balance b 1 t1"}},
		{"an earlier time", "update ledger.transfer set created_at = created_at - interval '1 day' where id = {t7}", []string{"time_order a 8 t7", "time_order d 2 t7"}},
		{"entries of nobody", "delete from ledger.account where no = {d}", []string{"unknown_account"}},
		{"a transfer to nobody", "update ledger.transfer set to_no = 999 where id = {t7}", []string{"gap 8 t7", "running_balance 8 t7", "stored_balance a 7 t6", "stored_version a 7 t6", "unknown_account t7"}},
		{"a leg on nobody", "update ledger.posting set account_no = 999 where journal_id = {j2} and account_no = {e}", []string{"journal_sum j2", "journal_sum j2", "stored_balance e", "stored_version e", "unknown_account 1 j2"}},
		{"an entry after closing", "update ledger.account set closed_at = closed_at - interval '1 day' where no = {d}", []string{"after_closing d 2"}},

		{"another stored balance", "update ledger.balance set balance = balance + 1 where no = {e}; update ledger.balance set balance = balance - 1 where no = {f}", []string{"stored_balance e 1 j2", "stored_balance f 1 j2"}},
		{"another stored version", "update ledger.balance set version = 2 where no = {e}", []string{"stored_version e 1 j2"}},
		{"a stored version without entries", "update ledger.balance set version = 1 where no = {g}", []string{"stored_version g"}},
		{"no stored balance", "delete from ledger.balance where no = {g}", []string{"missing_balance g"}},
		{"another stored id", "update ledger.balance set id = gen_random_uuid() where no = {g}", []string{"account_copy g"}},
		{"other stored decimals", "update ledger.balance set decimals = 3 where no = {g}", []string{"account_copy g"}},
		{"other decimals of an asset", "update ledger.asset set decimals = 3 where code = 'USD'", []string{"account_copy u", "account_copy v", "account_copy w"}},
		{"another asset of an account", "update ledger.account set asset_no = (select no from ledger.asset where code = 'USD') where no = {g}", []string{"account_copy g"}},
		{"another amount held", "update ledger.hold set amount = 5 where id = {open}", []string{"bounds b", "held b", "held c"}},
		{"another stored amount held", "update ledger.balance set held_in = 5 where no = {c}", []string{"held c"}},
		{"another bound", "update ledger.balance set lowest = -100 where no = {b}", []string{"bounds b"}},
		{"the other bound", "update ledger.balance set highest = 2000 where no = {b}", []string{"bounds b"}},
		{"a limit that does not bind", "update ledger.account set min_balance = 1 where no = {b}", []string{"bounds b"}},
		{"a closed account that may book", "update ledger.balance set lowest = '-Infinity', highest = 'Infinity' where no = {d}", []string{"bounds d", "bounds d"}},

		{"too many decimals", "update ledger.transfer set amount = 10.000 where id = {t1}", []string{"amount a 1 t1"}},
		{"a negative amount", insert + "1, 1, {g}, (select no from ledger.account where code = 'h'), -1, 1, -1); update ledger.balance set version = 1, balance = case no when {g} then 1 else -1 end where no in ({g}, (select no from ledger.account where code = 'h'))", []string{"amount g 1"}},
		{"not a number", "update ledger.transfer set amount = 'NaN' where id = {t1}", []string{"amount a 1 t1", "running_balance a 1 t1", "running_balance b 1 t1"}},
		{"an account that pays itself", insert + "1, 2, {g}, {g}, 1, -1, 0); update ledger.balance set version = 2 where no = {g}", []string{"same_account g 1"}},
		{"two assets in one transfer", insert + "1, 3, {g}, {v}, 1, -1, 4); update ledger.balance set version = 1, balance = -1 where no = {g}; update ledger.balance set version = 3, balance = 4 where no = {v}",
			[]string{"asset g 1", "asset_sum", "asset_sum", "gap v 3"}},
		{"an event time in a closed period", "update ledger.transfer set event_at = '2019-12-31' where id = {t1}", []string{"period a 1 t1"}},
		{"a journal entry's event time in a closed period", "update ledger.posting set event_at = '2019-12-31' where journal_id = {j2}; update ledger.journal set event_at = '2019-12-31' where id = {j2}", []string{"period j2"}},
		{"a journal entry that does not sum to zero", "update ledger.posting set amount = -2, balance = -2 where account_no = {e}; update ledger.balance set balance = -2 where no = {e}", []string{"asset_sum", "journal_sum j2"}},
		{"a journal entry of no legs", "insert into ledger.journal (id, created_at, xid) values ({t1}, now(), 1)", []string{"journal_legs t1"}},
		{"legs without a journal entry", "delete from ledger.journal where id = {j2}", []string{"journal_missing e 1 j2", "journal_missing f 1 j2"}},
		{"a journal entry of another time", "update ledger.journal set created_at = created_at + interval '1 day' where id = {j2}", []string{"journal_copy e 1 j2", "journal_copy f 1 j2"}},
		{"a leg of another event time", "update ledger.posting set event_at = '2021-01-01' where journal_id = {j2} and account_no = {e}", []string{"journal_copy e 1 j2"}},
		{"too many decimals in a leg", "update ledger.posting set amount = -1.000 where journal_id = {j2} and account_no = {e}", []string{"amount e 1 j2"}},

		{"more posted than held", "update ledger.hold set amount = 1 where id = {posted}", []string{"hold a posted"}},
		{"another amount posted", "update ledger.hold set posted_amount = 1 where id = {posted}", []string{"hold a posted"}},
		{"posted by another transfer", "update ledger.hold set transfer_id = {t1} where id = {posted}", []string{"hold a posted"}},
		{"posted by a transfer between others", "update ledger.hold set transfer_id = {t1}, amount = 10.00, posted_amount = 10.00 where id = {posted}", []string{"hold a posted"}},
		{"posted by no transfer", "update ledger.hold set transfer_id = gen_random_uuid() where id = {posted}", []string{"hold a posted"}},
		{"posted in words only", "update ledger.hold set transfer_id = null, posted_amount = null where id = {posted}", []string{"hold a posted"}},
		{"voided with a transfer", "update ledger.hold set transfer_id = {t1} where id = {voided}", []string{"hold a voided"}},
		{"open and settled", "update ledger.hold set settled_at = now() where id = {open}", []string{"hold b open"}},
		{"voided at no time", "update ledger.hold set settled_at = null where id = {voided}", []string{"hold a voided"}},
		{"held for nobody", "update ledger.hold set to_no = 999 where id = {voided}", []string{"hold a voided"}},
		{"held for oneself", "update ledger.hold set to_no = from_no where id = {voided}", []string{"hold a voided"}},
		{"held in another asset", "update ledger.hold set to_no = {u} where id = {voided}", []string{"hold a voided"}},
		{"too many decimals held", "update ledger.hold set amount = 3.000 where id = {voided}", []string{"hold a voided"}},
		{"a reversal of something else", "update ledger.reversal set original_id = {t1} where kind = 'transfer'", []string{"reversal"}},
		{"a reversal of nothing", "update ledger.reversal set original_id = gen_random_uuid() where kind = 'transfer'", []string{"reversal"}},
		{"a journal reversal of something else", "update ledger.reversal set original_id = {j2} where kind = 'journal'", []string{"reversal"}},
		{"a journal reversal of nothing", "update ledger.reversal set original_id = gen_random_uuid() where kind = 'journal'", []string{"reversal"}},
		{"more moved than asked for", "update ledger.balancing set up_to = 1", []string{"balancing b 7 t5"}},
		{"a balancing transfer that is missing", "update ledger.balancing set transfer_id = gen_random_uuid()", []string{"balancing"}},
		{"money from nowhere", "update ledger.balance set balance = balance + 1 where no = {e}; update ledger.posting set balance = balance + 1, amount = amount + 1 where account_no = {e}",
			[]string{"amount e 1 j2", "asset_sum", "journal_sum j2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// h is opened for this test alone: its row in the books goes with the transaction.
			tx := b.spoil(t, "select ledger.open_account('h', 'EUR', 'h'); "+c.sql)
			found := problems(t, ledger.New(tx).Verify(t.Context(), ledger.VerifyOptions{}))
			if got := b.sketch(found); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q\n%+v", got, c.want, found)
			}
			for _, p := range found {
				if p.Message == "" || strings.Contains(p.Message, "null") {
					t.Errorf("%s says %q", p.Kind, p.Message)
				}
			}
		})
	}
}
