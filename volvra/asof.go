package volvra

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Moment names a point in the history of the database: a coordinate, a mark, or a time. [Volvra.Coordinate], [AtMark] and [AtTime] return
// one; a coordinate that was kept as a text is Moment(text).
type Moment string

// AtTime is the moment at which the transactions are seen that had begun by a time. Transactions overlap, so unlike a coordinate it is
// exact for each row but need not be what any session saw. A time to come is now. Times are cut to microseconds, as PostgreSQL has them.
func AtTime(t time.Time) Moment {
	return Moment(t.UTC().Format("2006-01-02T15:04:05.999999Z07:00"))
}

// AtMark is the moment of a mark.
func AtMark(name string) Moment { return Moment("mark:" + name) }

// Coordinate returns the coordinate of what the caller's transaction sees now, without its own changes. It is exact, and good until
// the database is restored, crashes, or is promoted. [ErrStandby]: it can't be taken on a standby.
func (v *Volvra) Coordinate(ctx context.Context) (m Moment, err error) {
	err = pgtx.QueryRow(ctx, v.db, []any{&m}, "select annals.coordinate()")
	return m, refused(err)
}

// AsOf returns the rows of a table as they were at a moment. T is a struct with a field for each column, as pgx.RowToStructByName
// takes it, or map[string]any.
//
// Rows have the table's present columns: those that did not exist then and those that are excluded from coverage are null, renamed ones
// stand under their present names. [ErrNoHistory] when its history does not reach back to the moment; [Error.Reason] says why: not covered
// then, interrupted, ended, pruned, not captured. [ErrInvalid]: that is no moment; [ErrMark]: there is no such
// mark; [ErrCoordinate]: the coordinate is not good any more; [ErrNotYet]: it is later than what the transaction sees. Row-level security
// holds, on the rows as they were. Rows come in no particular order.
func AsOf[T any](ctx context.Context, v *Volvra, table string, at Moment) ([]T, error) {
	name, err := v.tableName(ctx, table)
	if err != nil {
		return nil, err
	}
	return rowsOf(ctx, v.db, rowTo[T], "select * from volvra.as_of(null::"+name+", $1::text)", string(at))
}

// AsOfRow returns the row that had a key at a moment, and false when there was none. It is as [AsOf], but finds the row by an index.
func AsOfRow[T any](ctx context.Context, v *Volvra, table string, key Key, at Moment) (row T, found bool, err error) {
	var list []T
	for again := range 2 {
		read, known := v.rowReaders.Load(table)
		if !known {
			if read, err = v.rowReader(ctx, table); err != nil {
				return row, false, err
			}
		}
		list, err = rowsOf(ctx, v.db, rowTo[T], read.(string), []string(key), string(at))
		// What is known of the table, or what the connection prepared, may be out of date.
		if again > 0 || !pgtx.HasCode(err, "42883", "42704", "42P01", "3F000", "0A000") {
			break
		}
		v.rowReaders.Delete(table)
	}
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// rowReader returns the statement that reads a row of a table as it was: by the function of its history, if there is one, whose plans a
// session keeps. For another table that got the name meanwhile it works as well, as volvra.as_of_row does.
func (v *Volvra) rowReader(ctx context.Context, table string) (any, error) {
	name, err := v.tableName(ctx, table)
	if err != nil {
		return nil, err
	}
	function := "volvra.as_of_row"
	err = pgtx.QueryRow(ctx, v.db, []any{&function}, `select pg_catalog.format('volvra.%I', p.proname) from annals.tracked t
		join pg_catalog.pg_proc p on p.pronamespace = 'volvra'::pg_catalog.regnamespace and p.proname = pg_catalog.format('h%s_row', t.id)
		where t.relation = $1::text::pg_catalog.regclass and t.ended_v is null`, name)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, refused(err)
	}
	read := "select * from " + function + "(null::" + name + ", $1, $2)"
	if err == nil && table == name { // with its schema, so it means the same to all sessions
		v.rowReaders.Store(table, read)
	}
	return read, nil
}

// rowTo reads a row into a struct or a map.
func rowTo[T any](row pgx.CollectableRow) (T, error) {
	var value T
	if m, ok := any(&value).(*map[string]any); ok {
		var err error
		*m, err = pgx.RowToMap(row)
		return value, err
	}
	return pgx.RowToStructByName[T](row)
}
