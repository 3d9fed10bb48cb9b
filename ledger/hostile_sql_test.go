package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/ledger"
)

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// sqlBooks are books with something to name in statements: $a to $c are accounts, in the order of their ids, $h an open hold, $t a
// transfer and $j a journal entry.
func sqlBooks(t *testing.T) (*ledger.Ledger, *pgxpool.Pool, func(sql string) error) {
	books, pool := installed(t)
	ids := []ledger.AccountID{open(t, books, "a"), open(t, books, "b"), open(t, books, "c")}
	held := must[ledger.Held](t)(books.Hold(t.Context(), ledger.HoldParams{From: ids[0], To: ids[1], Amount: dec("2")}))
	posted := pay(t, books, ids[0], ids[1], "3")
	j := must[ledger.JournalPosted](t)(books.PostJournal(t.Context(), ledger.JournalParams{Postings: []ledger.Posting{
		{Account: ids[0], Amount: dec("-1")}, {Account: ids[1], Amount: dec("1")}}}))
	name := func(id uuid.UUID) string { return fmt.Sprintf("'%s'::uuid", id) }
	names := strings.NewReplacer("$a", name(uuid.UUID(ids[0])), "$b", name(uuid.UUID(ids[1])), "$c", name(uuid.UUID(ids[2])),
		"$h", name(uuid.UUID(held.ID)), "$t", name(uuid.UUID(posted.ID)), "$j", name(uuid.UUID(j.ID)))
	return books, pool, func(sql string) error {
		_, err := pool.Exec(t.Context(), names.Replace(sql))
		return err
	}
}

// TestNullArguments puts NULL in each place of each function: it is a default, or refused in words, never a broken constraint.
func TestNullArguments(t *testing.T) {
	books, _, run := sqlBooks(t)
	for _, call := range [][]string{
		{"create_asset", "'NEW'", "2"}, {"open_account", "'name'", "'EUR'", "'code'", "'debit'", "-5", "5", "'{}'", "ledger.new_id()"},
		{"update_account", "$c", "'name'", "'other'", "'{}'"}, {"set_limits", "$c", "-9", "9"}, {"close_account", "$c"}, {"reopen_account", "$c"},
		{"transfer", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'"}, {"transfer_if", "$a", "$b", "1", "1", "1", "ledger.new_id()", "now()", "'{}'"},
		{"transfer_available", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'"}, {"assert_balance", "$a", "1"}, {"lock_account", "$a"}, {"lock_accounts", "array[$a, $b]"},
		{"hold", "$a", "$b", "1", "ledger.new_id()", "now() + '1 hour'", "now()", "'{}'"}, {"post_hold", "$h", "1", "ledger.new_id()", "now()", "'{}'"}, {"void_hold", "$h"}, {"expire_holds", "10"},
		{"transfers", "array[$a, $a]", "array[$b, $b]", "array[1, 1]", "array[ledger.new_id(), ledger.new_id()]", "array[now(), now()]", "array['{}', '{}']::jsonb[]", "false"},
		{"transfers", "array[$a, X]", "array[$b, $b]", "array[1, 1]"}, {"transfers", "array[$a, $a]", "array[$b, X]", "array[1, 1]"}, {"transfers", "array[$a, $a]", "array[$b, $b]", "array[1, X]"},
		{"transfers", "array[$a, $a]", "array[$b, $b]", "array[1, 1]", "array[ledger.new_id(), X]"}, {"transfers", "array[$a, $a]", "array[$b, $b]", "array[1, 1]", "array[X, ledger.new_id()]", "null", "null", "true"},
		{"transfers_at", "array[$a, $b]", "array[1]", "array[2]", "array[1]", "array[ledger.new_id()]", "array[now()]", "array['{}']::jsonb[]", "false"},
		{"transfers_at", "array[$a, X]", "array[1]", "array[2]", "array[1]", "array[ledger.new_id()]", "null", "null", "false"}, {"transfers_at", "array[$a, $b]", "array[1]", "array[X::int]", "array[1]", "array[ledger.new_id()]", "null", "null", "true"},
		{"pair", "array[1,2,3,4]", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'"},
		{"pair", "array[1,2,3,X]", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'", "$a", "$b", "1", "ledger.new_id()", "now()", "'{}'"},
		{"post_journal", "array[$a, $b]", "array[1, -1]", "ledger.new_id()", "'text'", "now()", "'{}'", "array[null, null]::numeric[]"},
		{"post_journal", "array[$a, X]", "array[1, -1]"}, {"post_journal", "array[$a, $b]", "array[1, X]"},
		{"exchange", "$a", "$c", "1", "1", "$b", "$b", "ledger.new_id()", "now()", "'{}'"},
		{"reverse_transfer", "$t", "ledger.new_id()", "now()", "'{}'"}, {"reverse_journal", "$j", "ledger.new_id()", "'text'", "now()", "'{}'"},
		{"close_period", "'2020-01-01'"}, {"reopen_period", "'2019-01-01'"}, {"id", "'acct'", "'x'"}, {"id_text", "'acct'", "$a"},
	} {
		var statements []string
		if all := strings.Join(call[1:], ", "); strings.Contains(all, "X") { // NULL within an array
			statements = []string{strings.ReplaceAll(all, "X", "null")}
		} else {
			for place := range call[1:] {
				args := slices.Clone(call[1:])
				args[place] = "null"
				statements = append(statements, strings.Join(args, ", "))
			}
		}
		for _, args := range statements {
			sql := fmt.Sprintf("select ledger.%s(%s)", call[0], args)
			if err := run(sql); err != nil && !strings.HasPrefix(sqlState(err), "LG") {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	whole(t, books)
}

// TestNumbersThatAreNone: what numeric knows besides numbers never enters the books.
func TestNumbersThatAreNone(t *testing.T) {
	books, pool, run := sqlBooks(t)
	state := func() (s string) {
		ok(t, pool.QueryRow(t.Context(), "select string_agg(b::text, ' ' order by no) from ledger.balance b").Scan(&s))
		return s
	}
	before := state()
	for _, odd := range []string{"'NaN'", "'Infinity'", "'-Infinity'", "1e60", "-1e60", "1e1000", "0.001", "0"} {
		for _, call := range []string{
			"transfer($a, $b, X)", "transfer($b, $a, X)", "transfer_if($a, $b, X, null, null)", "transfer_available($a, $b, X)", "hold($a, $b, X)", "post_hold($h, X)",
			"transfers(array[$a], array[$b], array[X]::numeric[])", "transfers(array[$a, $a], array[$b, $b], array[1, X]::numeric[])",
			"transfers_at(array[$a, $b], array[1, 1], array[2, 2], array[X, 1]::numeric[], array[ledger.new_id(), ledger.new_id()], null, null, false)",
			"post_journal(array[$a, $b], array[X, 1]::numeric[])", "post_journal(array[$a, $b], array[X, -(X::numeric)]::numeric[])",
			"exchange($a, $c, X, 1, $b, $b)", "exchange($a, $c, 1, X, $b, $b)",
		} {
			if err := run("select ledger." + strings.ReplaceAll(call, "X", odd)); sqlState(err) != "LG006" {
				t.Errorf("%s with %s: %v", call, odd, err)
			}
		}
		// What can't be paired changes nothing; transfers_at then says why.
		ok(t, run(fmt.Sprintf("select ledger.pair(array[1,2,3,4], $a, $b, 1, ledger.new_id(), null, null, $a, $b, %s, ledger.new_id(), null, null)", odd)))
	}
	for _, odd := range []string{"'NaN'", "'Infinity'", "'-Infinity'", "1e60", "-1e60", "0.001"} {
		for _, call := range []string{"set_limits($a, X, null)", "set_limits($a, null, X)", "open_account('x', 'EUR', null, 'debit', X)", "open_account('x', 'EUR', null, 'debit', null, X)"} {
			if err := run("select ledger." + strings.ReplaceAll(call, "X", odd)); sqlState(err) != "LG016" {
				t.Errorf("%s with %s: %v", call, odd, err)
			}
		}
		if err := run("select ledger.assert_balance($a, " + odd + ")"); sqlState(err) != "LG018" {
			t.Errorf("assert_balance with %s: %v", odd, err)
		}
	}
	if err := run("select ledger.set_limits($a, 2, 1)"); sqlState(err) != "LG016" {
		t.Error(err)
	}
	if after := state(); after != before {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
	whole(t, books)
}

// TestArraysThatDontFit gives the functions that only this package calls what it would never give them. They book it right or refuse it.
func TestArraysThatDontFit(t *testing.T) {
	books, pool, run := sqlBooks(t)
	const two, ids = "array[1, 1]", "array[ledger.new_id(), ledger.new_id()]"
	for _, call := range []struct{ args, state string }{
		{"array[$b, $a], array[1, 1], array[2, 2], " + two + ", " + ids + ", null, null", ""}, // not sorted
		{"array[$c, $a, $b], array[1, 2], array[3, 1], " + two + ", " + ids + ", null, null", ""},
		{"array[$a, $b, $c], array[1, 1], array[2, 2], " + two + ", " + ids + ", null, null", ""}, // one that nothing happens to
		{"array[$a, $a], array[1, 1], array[2, 2], " + two + ", " + ids + ", null, null", "LG016"},
		{"array[$b, $a, $a], array[1, 1], array[2, 3], " + two + ", " + ids + ", null, null", "LG016"},
		{"array[$a, $b], array[1, 1, 1], array[2, 2], " + two + ", " + ids + ", null, null", "LG016"},
		{"array[$a, $b], array[1, 1], array[2], " + two + ", " + ids + ", null, null", "LG016"},
		{"array[$a, $b], array[1, 1], array[2, 2], array[1], " + ids + ", null, null", "LG016"},
		{"array[$a, $b], array[1, 1], array[2, 2], " + two + ", array[ledger.new_id()], null, null", "LG016"},
		{"array[$a, $b], array[1, 1], array[2, 2], " + two + ", " + ids + ", array[now()], null", "LG016"},
		{"array[$a, $b], array[1, 1], array[2, 2], " + two + ", " + ids + ", null, array['1', '2', '3']::jsonb[]", "LG016"},
		{"array[$a, $b], array[1, 1], array[2, 3], " + two + ", " + ids + ", null, null", "LG001"},
		{"array[$a, $b], array[0, 1], array[2, 2], " + two + ", " + ids + ", null, null", "LG001"},
		{"array[$a, $b], array[1, 1], array[2, -1], " + two + ", " + ids + ", null, null", "LG001"},
		{"array[$a, $b], array[1, 2147483647], array[2, 2], " + two + ", " + ids + ", null, null", "LG001"},
		{"array[$a, $b], '[0:1]={1,1}', array[2, 2], " + two + ", " + ids + ", null, null", "any"},
		{"array[$a, $b], array[1, 1], array[2, 2], '[0:1]={1,1}', " + ids + ", null, null", "any"},
		{"array[$a, $b], '{{1,1}}', array[2, 2], " + two + ", " + ids + ", null, null", "any"},
		{"array[$a, $b], array[1, 1], array[2, 2], " + two + ", array[" + ids + "], null, null", "any"},
		{"array[$a, $b], '{}', '{}', '{}', '{}', null, null", ""},
		{"'{}', '{}', '{}', '{}', '{}', '{}', '{}'", ""},
		{"'{}', array[1, 1], array[2, 2], " + two + ", " + ids + ", null, null", "LG001"},
	} {
		for _, partial := range []string{"false", "true"} {
			sql := "select ledger.transfers_at(" + call.args + ", " + partial + ")"
			got := sqlState(run(sql))
			if call.state == "any" || partial == "true" && call.state == "LG001" {
				continue // an error or a refusal in the result, if only the books stay whole
			}
			if !strings.HasPrefix(got, call.state) || call.state == "" && got != "" {
				t.Errorf("%s: %q instead of %q", sql, got, call.state)
			}
		}
	}
	whole(t, books)

	for _, order := range []string{"array[1,2,3,4]", "array[4,3,2,1]", "array[3,4,1,2]", "array[2,4,1,3]", "array[1,1,1,1]", "array[1,2,3]", "array[1,2,3,4,4]", "array[0,1,2,3]", "array[[1,2],[3,4]]", "'{}'"} {
		for _, accounts := range [][4]string{{"$a", "$b", "$a", "$b"}, {"$a", "$b", "$b", "$a"}, {"$a", "$b", "$b", "$c"}, {"$c", "$a", "$b", "$a"}, {"$a", "$a", "$b", "$c"}, {"$a", "$b", "$c", "ledger.new_id()"}} {
			sql := fmt.Sprintf("select ledger.pair(%s, %s, %s, 1, ledger.new_id(), null, null, %s, %s, 2, ledger.new_id(), null, null)", order, accounts[0], accounts[1], accounts[2], accounts[3])
			if err := run(sql); err != nil && !strings.HasPrefix(sqlState(err), "LG") {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	ok(t, run("select ledger.pair(array[1,2,3,4], $a, $b, 1, $t, null, null, $a, $b, 1, ledger.new_id(), null, null)")) // an id that was used
	var booked int
	ok(t, pool.QueryRow(t.Context(), "select count(*) from ledger.transfer where from_no = to_no").Scan(&booked))
	if booked > 0 {
		t.Errorf("%d accounts paid themselves", booked)
	}
	whole(t, books)

	for _, args := range []string{"array[$a], array[$b, $b], array[1, 1]", "array[$a, $a], array[$b], array[1, 1]", "array[$a, $a], array[$b, $b], array[1]", "array[$a], array[$b], array[1], '{}'"} {
		if got := sqlState(run("select ledger.transfers(" + args + ")")); got != "LG016" {
			t.Errorf("transfers(%s): %q", args, got)
		}
	}
	whole(t, books)
}
