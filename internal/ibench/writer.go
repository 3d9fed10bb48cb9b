package ibench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Mode is how statements reach the server.
type Mode string

const (
	// Compatible sends text: an INSERT with many rows, queries with their values in them, and asks for the oldest key before each deletion.
	Compatible Mode = "compatible"

	// Lean prepares statements once, sends values in binary and rows as arrays that the server unnests, remembers the oldest key, and while it loads
	// sends each transaction before the one before is answered.
	Lean Mode = "lean"
)

const timeFormat = "2006-01-02 15:04:05"

// inserter inserts rows into a table over a connection of its own.
type inserter struct {
	conn   *pgconn.PgConn
	mode   Mode
	values stream
	row    row

	head string // of the statement as text
	text []byte

	ints [4]array // of the prepared statement
	data array
}

var binaryFormat = []int16{1}

func newInserter(ctx context.Context, conn *pgconn.PgConn, mode Mode, table string, values stream) (*inserter, error) {
	w := &inserter{conn: conn, mode: mode, values: values}
	columns := "insert into " + table + " (dateandtime, cashregisterid, customerid, productid, price, data) "
	if mode == Compatible {
		w.head = columns + "values "
		return w, nil
	}
	for i := range w.ints {
		w.ints[i] = newArray(pgtype.Int4OID)
	}
	w.data = newArray(pgtype.TextOID)
	// In the select list arrays are unnested row by row; in FROM each would be written to a store first.
	_, err := conn.Prepare(ctx, "insert", columns+"select $6::timestamp, unnest($1::int[]), unnest($2::int[]), unnest($3::int[]), unnest($4::int[]), unnest($5::text[])", nil)
	return w, err
}

// insert inserts n rows in one transaction.
func (w *inserter) insert(ctx context.Context, n int) error {
	now := time.Now().UTC()
	var tag pgconn.CommandTag
	var err error
	if w.mode == Compatible {
		when := now.Format(timeFormat)
		w.text = append(w.text[:0], w.head...)
		for i := range n {
			if i > 0 {
				w.text = append(w.text, ',')
			}
			w.values.next(&w.row)
			w.text = w.row.appendValues(w.text, when)
		}
		tag, err = execute(ctx, w.conn, string(w.text))
	} else {
		tag, err = w.conn.ExecPrepared(ctx, "insert", w.args(n, now), binaryFormat, binaryFormat).Close()
	}
	return inserted(tag, err, n)
}

func inserted(tag pgconn.CommandTag, err error, n int) error {
	if err == nil && tag.RowsAffected() != int64(n) {
		err = fmt.Errorf("%d rows of %d were inserted", tag.RowsAffected(), n)
	}
	return err
}

// args are the arguments of the prepared statement for n rows.
func (w *inserter) args(n int, now time.Time) [][]byte {
	for i := range w.ints {
		w.ints[i].reset(n)
	}
	w.data.reset(n)
	for range n {
		w.values.next(&w.row)
		for i, value := range [...]int32{w.row.register, w.row.customer, w.row.product, w.row.price} {
			w.ints[i].addInt(value)
		}
		w.data.addText(w.row.data[:w.row.length])
	}
	return [][]byte{w.ints[0], w.ints[1], w.ints[2], w.ints[3], w.data, microsecondsSince2000(now.Truncate(time.Second))}
}

// pipeline inserts n rows in each of so many transactions, and sends each one while the server is at the one before, so that it has no time to
// wait. done is told when each was sent, as soon as it is answered.
func (w *inserter) pipeline(ctx context.Context, n, transactions int, done func(sent time.Time)) (err error) {
	p := w.conn.StartPipeline(ctx)
	defer func() {
		if closed := p.Close(); err == nil {
			err = closed
		}
	}()
	var before time.Time
	for i := range transactions + 1 {
		var sent time.Time
		if i < transactions {
			sent = time.Now()
			p.SendQueryPrepared("insert", w.args(n, sent.UTC()), binaryFormat, binaryFormat)
			if err := p.Sync(); err != nil {
				return err
			}
		}
		if i > 0 {
			results, err := p.GetResults()
			if err != nil {
				return err
			}
			reader, ok := results.(*pgconn.ResultReader)
			if !ok {
				return fmt.Errorf("a pipeline's result is a %T", results)
			}
			tag, err := reader.Close()
			if err := inserted(tag, err, n); err != nil {
				return err
			}
			if _, err := p.GetResults(); err != nil { // that of Sync
				return err
			}
			done(before)
		}
		before = sent
	}
	return nil
}

// deleter deletes the oldest rows of a table over a connection of its own.
type deleter struct {
	conn   *pgconn.PgConn
	mode   Mode
	table  string
	oldest int64 // key of the oldest row, as far as Lean remembers
	args   [2][]byte
}

func newDeleter(ctx context.Context, conn *pgconn.PgConn, mode Mode, table string) (*deleter, error) {
	w := &deleter{conn: conn, mode: mode, table: table, oldest: 1}
	if mode == Compatible {
		return w, nil
	}
	_, err := conn.Prepare(ctx, "delete", "delete from "+table+" where transactionid >= $1 and transactionid < $2", nil)
	return w, err
}

// delete deletes the n oldest rows in one transaction.
func (w *deleter) delete(ctx context.Context, n int) error {
	var tag pgconn.CommandTag
	if w.mode == Compatible {
		results, err := w.conn.Exec(ctx, "select min(transactionid) from "+w.table).ReadAll()
		if err != nil {
			return err
		}
		if w.oldest, err = strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64); err != nil {
			return fmt.Errorf("the oldest key is %q", results[0].Rows[0][0])
		}
		tag, err = execute(ctx, w.conn, fmt.Sprintf("delete from %s where transactionid >= %d and transactionid < %d", w.table, w.oldest, w.oldest+int64(n)))
		if err != nil {
			return err
		}
	} else {
		w.args[0] = appendInt64(w.args[0][:0], w.oldest)
		w.args[1] = appendInt64(w.args[1][:0], w.oldest+int64(n))
		var err error
		if tag, err = w.conn.ExecPrepared(ctx, "delete", w.args[:], binaryFormat, binaryFormat).Close(); err != nil {
			return err
		}
	}
	if tag.RowsAffected() != int64(n) {
		return fmt.Errorf("%d rows of %d were deleted from key %d on", tag.RowsAffected(), n, w.oldest)
	}
	w.oldest += int64(n)
	return nil
}

// execute executes one statement, as text, that returns no rows.
func execute(ctx context.Context, conn *pgconn.PgConn, sql string) (tag pgconn.CommandTag, err error) {
	reader := conn.Exec(ctx, sql)
	for reader.NextResult() {
		tag, err = reader.ResultReader().Close()
	}
	if closed := reader.Close(); closed != nil {
		err = closed
	}
	return tag, err
}
