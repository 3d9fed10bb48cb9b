package ledger_test

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
)

// The Berka data set (PKDD'99) has the books of a Czech bank from 1993 on: accounts, standing orders, and transactions that each say what
// the account's balance was after them. That makes it a test of running balances that nobody here wrote.

// heller is a hundredth of a crown: amounts of the data set are whole numbers of it.
type heller int64

func (h heller) decimal() decimal.Decimal { return decimal.New(int64(h), -2) }
func (h heller) abs() heller              { return max(h, -h) }

// berkaTransaction is a line of the transactions: a payment into or out of a customer's account.
type berkaTransaction struct {
	id, account       int
	day               time.Time
	operation, symbol string
	bank, partner     string // of the other side, if that is an account at another bank
	amount            heller // above zero into the account, below zero out of it
	balance           heller // of the account after it, as printed
}

// difference is what amount and balance leave unexplained if the account stood at before.
func (t berkaTransaction) difference(before heller) heller { return t.balance - t.amount - before }

// with is the bank's own account on the other side. Cash that is paid out for a purpose is cash all the same.
func (t berkaTransaction) with() string {
	switch {
	case t.symbol == "UROK":
		return "interest"
	case t.symbol == "SLUZBY":
		return "fees"
	case t.symbol == "SANKC. UROK":
		return "penalty"
	case t.operation == "VKLAD", t.operation == "VYBER":
		return "cash"
	case t.operation == "VYBER KARTOU":
		return "card"
	case t.operation == "PREVOD Z UCTU", t.operation == "PREVOD NA UCET":
		return "other:" + t.bank
	}
	panic(fmt.Sprintf("transaction %d: unknown operation %q with symbol %q", t.id, t.operation, t.symbol))
}

// berkaTransactions reads the transactions in the order of the file, which is that of their days.
func berkaTransactions(t testing.TB) []berkaTransaction {
	t.Helper()
	var all []berkaTransaction
	for _, f := range berkaTable(t, "trans-35000", "trans_id", "account_id", "date", "type", "operation", "amount", "balance", "k_symbol", "bank", "account") {
		sign := heller(-1)
		if f[3] == "PRIJEM" {
			sign = 1
		}
		all = append(all, berkaTransaction{
			id: berkaInt(t, f[0]), account: berkaInt(t, f[1]), day: berkaDay(t, f[2]), operation: f[4], amount: sign * berkaAmount(t, f[5]),
			balance: berkaAmount(t, f[6]), symbol: f[7], bank: f[8], partner: f[9],
		})
	}
	return all
}

// berkaCustomers reads when accounts were opened and what their standing orders are, in the order of opening.
func berkaCustomers(t testing.TB) []syntheticCustomer {
	t.Helper()
	orders := map[int][]syntheticOrder{}
	for _, f := range berkaTable(t, "order", "order_id", "account_id", "bank_to", "account_to", "amount", "k_symbol") {
		account := berkaInt(t, f[1])
		orders[account] = append(orders[account], syntheticOrder{with: "other:" + f[2], amount: berkaAmount(t, f[4])})
	}
	var customers []syntheticCustomer
	for _, f := range berkaTable(t, "account", "account_id", "district_id", "frequency", "date") {
		customers = append(customers, syntheticCustomer{opened: berkaDay(t, f[3]), orders: orders[berkaInt(t, f[0])]})
	}
	slices.SortStableFunc(customers, func(a, b syntheticCustomer) int { return a.opened.Compare(b.opened) })
	return customers
}

// berkaTable reads a file of the data set, whose columns must be these.
func berkaTable(t testing.TB, name string, columns ...string) [][]string {
	t.Helper()
	file := must[*os.File](t)(os.Open(pgserver.TestData(t, "berka/"+name+".asc.gz")))
	defer file.Close()
	r := csv.NewReader(must[*gzip.Reader](t)(gzip.NewReader(file)))
	r.Comma = ';'
	lines := must[[][]string](t)(r.ReadAll())
	if len(lines) == 0 || !slices.Equal(lines[0], columns) {
		t.Fatalf("columns of %s: %q", name, lines[:min(1, len(lines))])
	}
	return lines[1:]
}

func berkaInt(t testing.TB, s string) int {
	t.Helper()
	return must[int](t)(strconv.Atoi(s))
}

func berkaDay(t testing.TB, s string) time.Time {
	t.Helper()
	return must[time.Time](t)(time.Parse("060102", s))
}

func berkaAmount(t testing.TB, s string) heller {
	t.Helper()
	d := must[decimal.Decimal](t)(decimal.NewFromString(s)).Shift(2)
	if !d.IsInteger() {
		t.Fatalf("amount %s has more than two decimals", s)
	}
	return heller(d.IntPart())
}

// berkaChain puts one account's day into the order in which balances follow best from each other, which the file does not keep. It tries
// orders, and gives one up when it is no better than the best: days are short.
func berkaChain(before heller, day []berkaTransaction) []berkaTransaction {
	var best []berkaTransaction
	least := heller(math.MaxInt64)
	day = slices.Clone(day)
	var place func(n int, balance, unexplained heller)
	place = func(n int, balance, unexplained heller) {
		if unexplained >= least {
			return
		}
		if n == len(day) {
			best, least = slices.Clone(day), unexplained
			return
		}
		for i := n; i < len(day); i++ {
			day[n], day[i] = day[i], day[n]
			place(n+1, day[n].balance, unexplained+day[n].difference(balance).abs())
			day[n], day[i] = day[i], day[n]
		}
	}
	place(0, before, 0)
	return best
}

// berkaDays returns the transactions day by day, and in each day account by account, each of which is chained: the days of the accounts in
// the order in which they are booked.
func berkaDays(all []berkaTransaction) [][]berkaTransaction {
	type key struct {
		day     time.Time
		account int
	}
	index := map[key]int{}
	var days [][]berkaTransaction
	for _, t := range all {
		k := key{t.day, t.account}
		i, found := index[k]
		if !found {
			i = len(days)
			index[k], days = i, append(days, nil)
		}
		days[i] = append(days[i], t)
	}
	slices.SortStableFunc(days, func(a, b []berkaTransaction) int { return a[0].day.Compare(b[0].day) })
	balance := map[int]heller{}
	for i, day := range days {
		days[i] = berkaChain(balance[day[0].account], day)
		balance[day[0].account] = days[i][len(day)-1].balance
	}
	return days
}

func TestBerkaChain(t *testing.T) {
	for _, c := range []struct {
		name   string
		before heller
		day    []berkaTransaction
		want   []int
	}{
		{"one", 0, []berkaTransaction{{id: 1, amount: 70, balance: 70}}, []int{1}},
		{"backwards", 100, []berkaTransaction{{id: 3, amount: -50, balance: 80}, {id: 2, amount: 10, balance: 130}, {id: 1, amount: 20, balance: 120}}, []int{1, 2, 3}},
		{"the amounts alone don't tell", 100, []berkaTransaction{{id: 2, amount: -10, balance: 80}, {id: 1, amount: -10, balance: 90}}, []int{1, 2}},
		{"rounded on the way", 1000, []berkaTransaction{{id: 2, amount: -1460, balance: 550}, {id: 1, amount: 1000, balance: 2010}}, []int{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			for _, tr := range berkaChain(c.before, c.day) {
				got = append(got, tr.id)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("order %v, want %v", got, c.want)
			}
		})
	}
}

// TestBerkaCounts asserts how well the data set agrees with itself. Its bank keeps fractions that it does not print, mostly of interest, so
// 1,434 balances differ from the amounts by 0.10: 1,332 at an interest payment, the others at whatever transaction came when the fraction
// had grown enough. With these as entries of their own, and days in chain order, no balance is left that does not match.
func TestBerkaCounts(t *testing.T) {
	transactions := berkaTransactions(t)
	days := berkaDays(transactions)
	got := map[string]int{}
	accounts, overdrawn := map[int]bool{}, map[int]bool{}
	for _, tr := range transactions {
		accounts[tr.account] = true
		if tr.balance < 0 {
			overdrawn[tr.account] = true
		}
	}
	balance := map[int]heller{}
	for _, day := range days {
		var net, gross heller
		for _, tr := range day {
			d := tr.difference(balance[tr.account])
			switch {
			case d == 0:
				got["balances that follow"]++
			case d.abs() == 10 && tr.symbol == "UROK":
				got["balances off by 0.10 at interest"]++
			case d.abs() == 10:
				got["balances off by 0.10 elsewhere"]++
			default:
				got["balances that don't match"]++
			}
			net, gross, balance[tr.account] = net+d, gross+d.abs(), tr.balance
		}
		switch {
		case gross == 0:
			got["balances of exact days"] += len(day)
		case net == 0:
			got["days whose differences cancel"]++
		default:
			got[fmt.Sprintf("days off by %s", net.abs().decimal().StringFixed(2))]++
		}
	}
	got["transactions"], got["accounts"], got["overdrawn accounts"], got["entries"] = len(transactions), len(accounts), len(overdrawn), len(berkaEntries(days))
	want := map[string]int{
		"transactions": 35_000, "accounts": 1_162, "overdrawn accounts": 18, "entries": 36_434,
		"balances that follow": 33_566, "balances off by 0.10 at interest": 1_332, "balances off by 0.10 elsewhere": 102,
		"balances of exact days": 32_643, "days off by 0.10": 1_378, "days off by 0.20": 1, "days whose differences cancel": 27,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the data set has\n%v, expected\n%v", got, want)
	}
}
