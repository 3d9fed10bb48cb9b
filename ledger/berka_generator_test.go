package ledger_test

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// A synthetic bank is a stand-in for the Berka data set where that is too small or missing: drawn from a seed, of the same shape, but nobody's
// books. A customer pays some cash in on the first day, and each month has an income, standing orders, cash withdrawals, and on the last
// day interest (or penalty interest on a debt) and a fee. Who lacks the money for a payment pays cash in first.

// syntheticOrder is a standing order.
type syntheticOrder struct {
	with   string // the bank's account on the other side
	amount heller
	day    int // of the month
}

// syntheticCustomer is a customer with one account.
type syntheticCustomer struct {
	opened  time.Time
	orders  []syntheticOrder
	payday  int
	income  heller
	from    string  // where the income comes from
	spender float64 // how much is withdrawn at a time, in standard deviations
	least   heller  // limit of the account
	balance heller
}

// syntheticRow is a synthetic transaction.
type syntheticRow struct {
	customer        int
	with            string // the bank's account on the other side
	day             time.Time
	amount, balance heller // as in a berkaTransaction
}

const (
	withdrawalsPerMonth = 3
	spenderShare        = 0.6 // correlation of the withdrawals of one customer
	lowerSpread         = 1.26
	upperSpread         = 1.31
)

var berkaPartners = []string{"AB", "CD", "EF", "GH", "IJ", "KL", "MN", "OP", "QR", "ST", "UV", "WX", "YZ"}

// syntheticBank draws customers' lives.
type syntheticBank struct {
	*rand.Rand
	customers []syntheticCustomer
	rows      []syntheticRow
}

// newSyntheticBank draws n transactions in the order of their days. Opening dates and standing orders are those of the data set where that
// is there, else drawn as well.
func newSyntheticBank(t testing.TB, seed uint64, n int) *syntheticBank {
	t.Helper()
	b := &syntheticBank{Rand: rand.New(rand.NewPCG(seed, 0))}
	if os.Getenv("ANNALS_TESTDATA") != "" {
		b.customers = berkaCustomers(t)
	} else {
		b.customers = b.drawCustomers(4_500)
	}
	for i := range b.customers {
		b.settle(&b.customers[i])
	}
	for day := b.customers[0].opened; len(b.rows) < n; day = day.AddDate(0, 0, 1) {
		for i := range b.customers {
			if b.customers[i].opened.After(day) {
				break
			}
			b.live(i, day)
		}
	}
	b.rows = b.rows[:n]
	return b
}

// drawCustomers draws opening dates over five years, and standing orders: most customers have one, some none, few up to five.
func (b *syntheticBank) drawCustomers(n int) []syntheticCustomer {
	customers := make([]syntheticCustomer, n)
	for i := range customers {
		customers[i].opened = time.Date(1993, 1, 1+i*5*365/n, 0, 0, 0, 0, time.UTC)
		for range []int{0, 1, 1, 1, 1, 2, 2, 3, 3, 5}[b.IntN(10)] {
			customers[i].orders = append(customers[i].orders, syntheticOrder{with: b.partner(), amount: b.amount(2_596, 0.8)})
		}
	}
	return customers
}

// settle draws the habits of a customer. Incomes are what is spent on average, so balances go neither up nor down for long.
func (b *syntheticBank) settle(c *syntheticCustomer) {
	c.spender = b.NormFloat64()
	rest := upperSpread * math.Sqrt(1-spenderShare*spenderShare)
	c.income = heller(withdrawalsPerMonth * 3_920_00 * math.Exp(upperSpread*spenderShare*c.spender+rest*rest/2)).round(100_00)
	for i := range c.orders {
		c.orders[i].day = 5 + b.IntN(10)
		c.income += c.orders[i].amount
	}
	c.payday = 5 + b.IntN(10)
	c.from = "cash"
	if b.IntN(2) == 0 {
		c.from = b.partner()
	}
	if b.IntN(64) == 0 {
		c.least = -6_000_00
	}
}

func (b *syntheticBank) partner() string { return "other:" + berkaPartners[b.IntN(len(berkaPartners))] }

// amount draws from a log-normal distribution with this median in crowns.
func (b *syntheticBank) amount(median, spread float64) heller {
	return max(10, heller(100*median*math.Exp(spread*b.NormFloat64())).round(10))
}

// withdrawal draws an amount of cash. Over all customers its 10th, 50th and 90th percentiles are about 780, 3,920 and 21,100: two halves of
// log-normal distributions that meet at the median.
func (b *syntheticBank) withdrawal(c *syntheticCustomer) heller {
	z := spenderShare*c.spender + math.Sqrt(1-spenderShare*spenderShare)*b.NormFloat64()
	spread := lowerSpread
	if z > 0 {
		spread = upperSpread
	}
	return max(10_00, heller(3_920_00*math.Exp(spread*z)).round(10_00))
}

// round rounds to a multiple of unit.
func (h heller) round(unit heller) heller { return (h + unit/2) / unit * unit }

// live lets a customer live through a day.
func (b *syntheticBank) live(customer int, day time.Time) {
	c := &b.customers[customer]
	if c.opened.Equal(day) {
		b.book(customer, day, "cash", heller(200+100*b.IntN(10))*100)
	}
	if day.Day() == c.payday {
		b.book(customer, day, c.from, c.income)
	}
	for _, o := range c.orders {
		if day.Day() == o.day {
			b.spend(customer, day, o.with, o.amount)
		}
	}
	if b.IntN(30) < withdrawalsPerMonth {
		b.spend(customer, day, "cash", b.withdrawal(c))
	}
	if day.AddDate(0, 0, 1).Day() > 1 {
		return
	}
	if c.balance < 0 {
		b.spend(customer, day, "penalty", max(10, (-c.balance/100).round(10)))
	} else {
		b.book(customer, day, "interest", b.amount(122, 0.6))
	}
	b.spend(customer, day, "fees", 14_60)
}

// spend pays an amount, after a payment in cash if the account does not hold it.
func (b *syntheticBank) spend(customer int, day time.Time, with string, amount heller) {
	c := &b.customers[customer]
	if missing := c.least + amount - c.balance; missing > 0 {
		b.book(customer, day, "cash", (missing + 50_00).round(100_00))
	}
	b.book(customer, day, with, -amount)
}

func (b *syntheticBank) book(customer int, day time.Time, with string, amount heller) {
	c := &b.customers[customer]
	c.balance += amount
	b.rows = append(b.rows, syntheticRow{customer: customer, with: with, day: day, amount: amount, balance: c.balance})
}

func TestSyntheticBank(t *testing.T) {
	const rows = 50_000
	bank := newSyntheticBank(t, 1, rows)
	if !slices.Equal(bank.rows, newSyntheticBank(t, 1, rows).rows) {
		t.Fatal("one seed gave two banks")
	}
	if slices.Equal(bank.rows, newSyntheticBank(t, 2, rows).rows) {
		t.Fatal("two seeds gave one bank")
	}
	checkSyntheticRows(t, bank)
	t.Run("drawn customers", func(t *testing.T) {
		t.Setenv("ANNALS_TESTDATA", "")
		checkSyntheticRows(t, newSyntheticBank(t, 1, rows))
	})
}

// checkSyntheticRows checks what a replay relies on, and that the rows have the shape of the data set.
func checkSyntheticRows(t *testing.T, bank *syntheticBank) {
	t.Helper()
	balance := map[int]heller{}
	amounts := map[string][]heller{}
	for i, row := range bank.rows {
		least := bank.customers[row.customer].least
		before, opened := balance[row.customer]
		switch {
		case i > 0 && row.day.Before(bank.rows[i-1].day):
			t.Fatalf("row %d is of an earlier day than the one before it", i)
		case row.amount == 0 || row.balance != before+row.amount:
			t.Fatalf("row %d does not follow from %d: %+v", i, before, row)
		case row.balance < least:
			t.Fatalf("row %d goes below the limit %d: %+v", i, least, row)
		case !opened && (row.with != "cash" || !row.day.Equal(bank.customers[row.customer].opened)):
			t.Fatalf("row %d is a customer's first: %+v", i, row)
		case row.with == "penalty" && before >= 0, row.with == "interest" && before < 0:
			t.Fatalf("row %d is paid on %d: %+v", i, before, row)
		case row.with == "fees" && row.amount != -14_60:
			t.Fatalf("row %d: %+v", i, row)
		}
		balance[row.customer] = row.balance
		kind := row.with
		if row.with == "cash" && row.amount > 0 {
			kind = "cash in"
		}
		amounts[kind] = append(amounts[kind], row.amount.abs())
	}
	for _, q := range []struct {
		kind    string
		percent int
		crowns  float64
	}{{"cash", 10, 780}, {"cash", 50, 3_920}, {"cash", 90, 21_100}, {"interest", 50, 122}} {
		slices.Sort(amounts[q.kind])
		got := float64(amounts[q.kind][len(amounts[q.kind])*q.percent/100]) / 100
		if math.Abs(got/q.crowns-1) > 0.1 {
			t.Errorf("percentile %d of %s is %.2f, expected about %.2f", q.percent, q.kind, got, q.crowns)
		}
	}
	for _, kind := range []string{"cash in", "penalty", "other:" + berkaPartners[0]} {
		if len(amounts[kind]) == 0 {
			t.Errorf("no row is of the kind %s", kind)
		}
	}
}
