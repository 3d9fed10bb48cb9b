package ibench

import (
	"math/rand/v2"
	"strconv"
)

// What values are drawn from, all with equal chances.
const (
	registers = 1_000
	products  = 10_000
	customers = 100_000
	prices    = 500
	dataMin   = 10 // characters, of which the first half is always the same
	dataMax   = 20
)

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// stream is an endless sequence of rows. Two streams of the same seed and number are the same; those of other numbers have nothing to do with it.
type stream struct{ *rand.Rand }

func newStream(seed, number uint64) stream {
	return stream{rand.New(rand.NewPCG(seed, number))}
}

// row is what the client gives; the key is the server's.
type row struct {
	register, customer, product, price int32
	data                               [dataMax]byte
	length                             int
}

func (s stream) next(r *row) {
	r.register, r.customer = s.Int32N(registers), s.Int32N(customers)
	r.product, r.price = s.Int32N(products), s.Int32N(prices)
	r.length = dataMin + s.IntN(dataMax-dataMin+1)
	constant := r.length - r.length/2
	for i := range constant {
		r.data[i] = 'a'
	}
	bits := s.Uint64() // six for each of at most ten letters
	for i := constant; i < r.length; i++ {
		r.data[i] = letters[bits&63]
		bits >>= 6
	}
}

// appendValues appends the row as a tuple of VALUES, with the price as the original writes it: with cents, which the server rounds. Nothing has to be escaped.
func (r *row) appendValues(sql []byte, when string) []byte {
	sql = append(sql, "('"...)
	sql = append(sql, when...)
	sql = append(sql, '\'')
	for _, value := range [...]int32{r.register, r.customer, r.product, r.price} {
		sql = append(sql, ',')
		sql = strconv.AppendInt(sql, int64(value), 10)
	}
	sql = append(sql, ".00,'"...)
	sql = append(sql, r.data[:r.length]...)
	return append(sql, "')"...)
}
