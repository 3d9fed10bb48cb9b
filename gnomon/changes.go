package gnomon

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Operation is what a change did to a row.
type Operation string

// Operations. A truncate comes as one change for each row that it removed.
const (
	Insert   Operation = "insert"
	Update   Operation = "update"
	Delete   Operation = "delete"
	Truncate Operation = "truncate"
	// SnapshotRow is a row that was there where a consumer begins, see ConsumerParams.Snapshot: no change.
	SnapshotRow Operation = "snapshot"
)

// Change is what a transaction did to one row. Its fields stay valid.
type Change struct {
	Table     string // as in SQL, with its schema and its present name
	Operation Operation
	Key       Key   // values of the key columns as text, in the order of the key's index
	NewKey    Key   // of an update that gave the row another key; else nil
	Old, New  Image // what the row was, and what it became

	V           int64     // position of its entry: along one row, later changes have higher ones
	Transaction string    // epoch and transaction id, "1:7001"
	At          time.Time // when that began
	Last        bool      // nothing of the transaction follows
	Context     int64     // who made it: annals.context.hash
	Login       uint32    // OID of the role that had logged in

	top, place int64 // where it stands in its change set
}

// Changed returns the columns of an update whose values differ; nil where the old or the new image is not known.
func (c *Change) Changed() []string {
	if c.Operation != Update || !c.Old.Known() || !c.New.Known() {
		return nil
	}
	var names []string
	next, stop := iter.Pull2(c.New.values())
	defer stop()
	for i, before := range c.Old.values() {
		if _, after, _ := next(); after != before {
			names = append(names, c.Old.shape.columns[i])
		}
	}
	return names
}

// ChangesOptions say which changes are wanted. The zero value wants all, with images.
type ChangesOptions struct {
	Tables     []string    // none: of all tracked tables
	Operations []Operation // none: all
	// Rows with these keys; none: all. A key is compared, as the type of its columns writes it, with those of each table whose key it can be.
	Keys     []Key
	NoImages bool // without old and new rows, which is cheaper
	Noop     bool // also updates that changed nothing; without images they always come
}

// json returns the options as gnomon.changes_query reads them.
func (o ChangesOptions) json() map[string]any {
	options := map[string]any{"images": !o.NoImages, "noop": o.Noop}
	if len(o.Tables) > 0 {
		options["tables"] = o.Tables
	}
	if len(o.Operations) > 0 {
		options["operations"] = o.Operations
	}
	if len(o.Keys) > 0 {
		options["keys"] = o.Keys
	}
	return options
}

// jsonText returns options as text, which any mode of the driver can send.
func jsonText(options map[string]any) string {
	text, _ := json.Marshal(options) // of strings and booleans
	return string(text)
}

// Changes returns what the transactions did that to sees and from does not. Each transaction's changes come together, and those
// of transactions in an order that agrees with the order of commits along each row. They stream from one snapshot: nothing is held in
// memory, and the connection is busy until the loop ends.
//
// Of a table that was tracked after from, the changes come since tracking began; of one that was untracked, those until it ended. An error comes
// last, with a zero Change. [ErrNoHistory]: in between, the history of a table that was tracked by then was interrupted, or ended and began again, or
// changes of it go by uncaptured. [ErrPruned]: it was pruned. [ErrNotTracked]: a table that is named is not tracked and never was, or it is not any
// more, and its history goes on for another package alone. [ErrInvalid]: from is not earlier than to, or a key is none of any of the tables.
//
// An update that moves a row to another key is one change with NewKey. Where a transaction leaves a key and arrives at it as well, as
// a swap of keys does, such updates come as deletes and inserts. Values that cannot be told any more are unknown: those that were
// erased, and new values that row-level security hides. Columns that were added later have the values in old images that adding them gave.
func (g *Gnomon) Changes(ctx context.Context, from, to Ref, o ChangesOptions) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		err := inSettings(ctx, g.db, func(tx pgx.Tx) error {
			var query string
			if err := tx.QueryRow(ctx, "select gnomon.changes_query(gnomon.place_of($1), gnomon.place_of($2), $3::text::jsonb)", string(from), string(to), jsonText(o.json())).Scan(&query); err != nil {
				return err
			}
			return readChanges(ctx, tx, query, func(c Change) error {
				if !yield(c, nil) {
					return errStopped
				}
				return nil
			})
		})
		if err != nil && err != errStopped {
			yield(Change{}, refused(err))
		}
	}
}

// errStopped ends reading because nobody wants more.
var errStopped = errors.New("stopped")

// errRead takes the transaction back, and with it its settings.
var errRead = errors.New("read")

// settings make text independent of the session's settings, and sorting quick.
const settings = `select set_config(n, v, true) from unnest(array['DateStyle', 'IntervalStyle', 'TimeZone', 'extra_float_digits', 'bytea_output', 'work_mem', 'jit'],
	array['ISO, MDY', 'postgres', 'UTC', '1', 'hex', '64MB', 'off']) u (n, v)`

// inSettings runs read in a transaction that sees one snapshot and leaves nothing behind.
func inSettings(ctx context.Context, db DB, read func(tx pgx.Tx) error) error {
	err := pgtx.Run(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		if err := read(tx); err != nil {
			return err
		}
		return errRead
	})
	if errors.Is(err, errRead) {
		return nil
	}
	return err
}

// shape is what images of one history have in common.
type shape struct {
	table   string
	columns []string
	types   []uint32
}

// shapesOf returns the shapes of all histories.
func shapesOf(ctx context.Context, tx pgx.Tx) (map[int32]*shape, error) {
	rows, err := tx.Query(ctx, "select history, relation, columns, types from gnomon.change_tables()")
	if err != nil {
		return nil, err
	}
	shapes := map[int32]*shape{}
	var id int32
	var s shape
	_, err = pgx.ForEachRow(rows, []any{&id, &s.table, &s.columns, &s.types}, func() error {
		shapes[id] = &shape{table: s.table, columns: slices.Clone(s.columns), types: slices.Clone(s.types)}
		return nil
	})
	return shapes, err
}

// inBinary asks for results in binary, without leaving a prepared statement.
func inBinary(columns int) []any {
	return []any{pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats(slices.Repeat([]int16{pgx.BinaryFormatCode}, columns))}
}

// readChanges reads what a query of gnomon.changes_query returns.
func readChanges(ctx context.Context, tx pgx.Tx, query string, each func(Change) error) error {
	shapes, err := shapesOf(ctx, tx)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, query, inBinary(13)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var held Change
	holds := false
	for rows.Next() {
		c, err := changeOf(rows.RawValues(), shapes)
		if err != nil {
			return err
		}
		if holds {
			held.Last = held.top != c.top
			if err := each(held); err != nil {
				return err
			}
		}
		held, holds = c, true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if holds {
		held.Last = true
		return each(held)
	}
	return nil
}

// changeOf makes a change of the columns history, operation, key, new_key, old, new, v, place, top, transaction, at, ctx, login.
func changeOf(raw [][]byte, shapes map[int32]*shape) (Change, error) {
	s := shapes[int32(binary.BigEndian.Uint32(raw[0]))]
	if s == nil {
		return Change{}, &Error{Kind: ErrStale, Message: "a table was tracked while changes were read", Hint: "Read them again"}
	}
	// One copy of all that is kept: the driver's buffer is used again.
	kept := make([]byte, 0, len(raw[2])+len(raw[3])+len(raw[4])+len(raw[5])+len(raw[9]))
	for _, i := range []int{2, 3, 4, 5, 9} {
		kept = append(kept, raw[i]...)
	}
	text := string(kept)
	take := func(i int) string {
		part := text[:len(raw[i])]
		text = text[len(raw[i]):]
		return part
	}
	c := Change{Table: s.table, Operation: operationOf(raw[1])}
	c.Key, c.NewKey = textsOf(take(2)), textsOf(take(3))
	c.Old, c.New = Image{s, take(4)}, Image{s, take(5)}
	c.Transaction = take(9)
	c.V, c.place, c.top = int64(binary.BigEndian.Uint64(raw[6])), int64(binary.BigEndian.Uint64(raw[7])), int64(binary.BigEndian.Uint64(raw[8]))
	c.At = instantOf(int64(binary.BigEndian.Uint64(raw[10])))
	c.Context, c.Login = int64(binary.BigEndian.Uint64(raw[11])), binary.BigEndian.Uint32(raw[12])
	return c, nil
}

// xid returns the transaction id.
func (c *Change) xid() string {
	_, id, _ := strings.Cut(c.Transaction, ":")
	return id
}

// instantOf turns microseconds since 2000 into a time.
func instantOf(micros int64) time.Time {
	const since1970 = 946684800_000000
	if micros == math.MaxInt64 || micros == math.MinInt64 {
		return time.Time{}
	}
	return time.UnixMicro(micros + since1970).UTC()
}

// operationOf returns the constant, so that changes don't hold copies.
func operationOf(name []byte) Operation {
	for _, o := range []Operation{Insert, Update, Delete, Truncate} {
		if string(o) == string(name) {
			return o
		}
	}
	return Operation(fmt.Sprintf("unknown operation %s", name))
}
