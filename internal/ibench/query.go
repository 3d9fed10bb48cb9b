package ibench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rowsPerQuery is how many rows a range query asks for at most, and how many keys a point query.
const rowsPerQuery = 10

// A rangeQuery reads the first rows of an index from a value on, and nothing else than what the index holds.
type rangeQuery struct {
	name, from string // up to the value
	order      string
	below      int32 // values are below it
}

var rangeQueries = [...]rangeQuery{
	{"market", "select productid, customerid, price from %s where productid >= ", "productid, customerid, price", products},
	{"register", "select cashregisterid, customerid, price from %s where cashregisterid > ", "cashregisterid, customerid, price", registers},
	{"price", "select price, dateandtime, customerid from %s where price >= ", "price, dateandtime, customerid", prices},
}

const pointQuery = "select transactionid, productid, data from %s where transactionid "

// asker queries a table over a connection of its own.
type asker struct {
	conn   *pgconn.PgConn
	mode   Mode
	choice *rand.Rand
	head   [len(rangeQueries)]string
	tail   [len(rangeQueries)]string
	point  string
	text   []byte
	arg    []byte
	keys   array
}

func newAsker(ctx context.Context, conn *pgconn.PgConn, mode Mode, table string, choice *rand.Rand) (*asker, error) {
	q := &asker{conn: conn, mode: mode, choice: choice, point: fmt.Sprintf(pointQuery, table), keys: newArray(pgtype.Int8OID)}
	for i, r := range rangeQueries {
		q.head[i] = fmt.Sprintf(r.from, table)
		q.tail[i] = fmt.Sprintf(" order by %s limit %d", r.order, rowsPerQuery)
		if mode == Lean {
			if _, err := conn.Prepare(ctx, r.name, q.head[i]+"$1"+q.tail[i], []uint32{pgtype.Int4OID}); err != nil {
				return nil, err
			}
		}
	}
	if mode == Lean {
		_, err := conn.Prepare(ctx, "point", q.point+"= any($1)", []uint32{pgtype.Int8ArrayOID})
		return q, err
	}
	return q, nil
}

// rangeRows runs one of the range queries, chosen at random, and reads its rows.
func (q *asker) rangeRows(ctx context.Context) error {
	i := q.choice.IntN(len(rangeQueries))
	value := q.choice.Int32N(rangeQueries[i].below)
	if q.mode == Lean {
		q.arg = binary.BigEndian.AppendUint32(q.arg[:0], uint32(value))
		return read(q.conn.ExecPrepared(ctx, rangeQueries[i].name, [][]byte{q.arg}, binaryFormat, binaryFormat))
	}
	q.text = strconv.AppendInt(append(q.text[:0], q.head[i]...), int64(value), 10)
	return readText(q.conn.Exec(ctx, string(append(q.text, q.tail[i]...))))
}

// pointRows asks for ten keys from oldest to newest, chosen at random, and reads their rows. Those that were deleted meanwhile are not there.
func (q *asker) pointRows(ctx context.Context, oldest, newest int64) error {
	if q.mode == Lean {
		q.keys.reset(rowsPerQuery)
		for range rowsPerQuery {
			q.keys = appendInt64(binary.BigEndian.AppendUint32(q.keys, 8), oldest+q.choice.Int64N(newest-oldest+1))
		}
		return read(q.conn.ExecPrepared(ctx, "point", [][]byte{q.keys}, binaryFormat, binaryFormat))
	}
	q.text = append(append(q.text[:0], q.point...), "in ("...)
	for i := range rowsPerQuery {
		if i > 0 {
			q.text = append(q.text, ',')
		}
		q.text = strconv.AppendInt(q.text, oldest+q.choice.Int64N(newest-oldest+1), 10)
	}
	return readText(q.conn.Exec(ctx, string(append(q.text, ')'))))
}

func readText(reader *pgconn.MultiResultReader) error {
	for reader.NextResult() {
		if err := read(reader.ResultReader()); err != nil {
			reader.Close()
			return err
		}
	}
	return reader.Close()
}

// read reads the rows, all of which have to be counted, and nothing else done with.
func read(result *pgconn.ResultReader) error {
	rows := 0
	for result.NextRow() {
		rows++
	}
	if _, err := result.Close(); err != nil {
		return err
	}
	if rows > rowsPerQuery {
		return fmt.Errorf("a query returned %d rows", rows)
	}
	return nil
}

func appendInt64(b []byte, value int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(value))
}

// microsecondsSince2000 is PostgreSQL's binary format of a timestamp.
func microsecondsSince2000(t time.Time) []byte {
	return appendInt64(nil, t.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())
}
