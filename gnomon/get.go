package gnomon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Reader is where [Get] and [List] read: a [Past] or a [Branch].
type Reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	handle() DB
	readingRow(table string, key []any) Reader                // notes that the row of a key is read, where that is asked for
	pointOf(ctx context.Context, table string) (point, error) // how single rows are read
	viewOf(ctx context.Context, table string) (string, error) // the view that shows the table
	reopen(ctx context.Context, err error) bool               // whether err is of what does not hold any more, and was found anew
	refusal(err error) error
	gone(table string, cause error) *Error
}

// Get returns the row of a table that had a key at the place, or has it on the branch, and false when there is none. The key is given by one value for each of
// its columns, in their order in the index that the key is (for most tables the primary key). T is a struct with a field for
// each column, as pgx.RowToStructByName takes it, or map[string]any. In most cases it is one round trip, and reads of indexes only. Errors are those of [Past] and [Branch], and
// [ErrInvalid] for a key of another length; a table that is not tracked is [ErrNotTracked].
func Get[T any](ctx context.Context, p Reader, table string, key ...any) (row T, found bool, err error) {
	for again := false; ; again = true {
		q, err := p.pointOf(ctx, table)
		if err != nil {
			return row, false, err
		}
		if len(key) != len(q.keyNames) {
			return row, false, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the key of %s has %d columns, not %d", table, len(q.keyNames), len(key)),
				Hint: "They are " + strings.Join(q.keyNames, ", ") + ".", Table: table}
		}
		var list []T
		if q.query == "" {
			var rows pgx.Rows
			if rows, err = p.readingRow(table, key).Query(ctx, q.view, key...); err == nil {
				list, err = pgx.CollectRows(rows, rowTo[T])
			}
			// The view may have another name by now, which Query has found out.
			if !again && (pgtx.HasCode(err, "42P01") || errors.Is(err, ErrStale)) {
				continue
			}
			if pgtx.HasCode(err, "42P01") {
				err = p.gone(table, err)
			}
		} else {
			err = pgtx.Query(ctx, p.handle(), func(rows pgx.Rows) (err error) {
				list, err = pgx.CollectRows(rows, rowTo[T])
				return err
			}, q.query, slices.Concat(key, q.args)...)
			if err != nil && !again && p.reopen(ctx, err) {
				continue
			}
			// What the statement names is not the caller's: it is gone for good for this transaction.
			if pgtx.HasCode(err, "42P01", "42703") {
				err = p.gone(table, err)
			}
			err = p.refusal(err)
		}
		if err != nil || len(list) == 0 {
			return row, false, err
		}
		return list[0], true, nil
	}
}

// List returns the rows of a table at the place, or on the branch. The rest of the query, which can be empty, comes after the name of the table, such as
// "where customer = $1 order by id". T is as for [Get], and so are errors.
func List[T any](ctx context.Context, p Reader, table, rest string, args ...any) ([]T, error) {
	for again := false; ; again = true {
		view, err := p.viewOf(ctx, table)
		if err != nil {
			return nil, err
		}
		var list []T
		rows, err := p.Query(ctx, "select * from "+view+" "+rest, args...)
		if err == nil {
			list, err = pgx.CollectRows(rows, rowTo[T])
		}
		// Another view may show the table by now.
		if again && pgtx.HasCode(err, "42P01") {
			err = p.gone(table, err)
		}
		if err == nil || again || !errors.Is(err, ErrStale) && !pgtx.HasCode(err, "42P01") {
			return list, err
		}
	}
}

// point is how single rows of a table are read.
type point struct {
	query    string // empty where view is read
	args     []any  // after the key
	view     string
	keyNames []string
}

// viewQuery reads the row from a view.
func (q point) viewQuery(view string) string {
	conditions := make([]string, len(q.keyNames))
	for i, name := range q.keyNames {
		conditions[i] = fmt.Sprintf("%s = $%d", pgx.Identifier{name}.Sanitize(), i+1)
	}
	return "select * from " + view + " where " + strings.Join(conditions, " and ")
}

func (p *Past) pointOf(ctx context.Context, table string) (point, error) {
	p.mu.Lock()
	q, known := p.points[table]
	o := p.opened
	p.mu.Unlock()
	if known {
		return q, nil
	}
	view, err := p.viewOf(ctx, table)
	if err != nil {
		return point{}, err
	}
	var version *int64
	var home, query *string
	err = pgtx.QueryRow(ctx, p.db, []any{&version, &home, &query, &q.keyNames}, "select version, home, query, key_names::text[] from gnomon.point_at($1::text::regclass, $2, $3)", table, o.Coordinate, p.names)
	if err != nil {
		return point{}, refused(err)
	}
	if query != nil {
		q.query, q.args = *query, []any{o.bound(), o.Snapshot, *version, o.Coordinate[:8], *home}
	}
	q.view = q.viewQuery(view)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.points == nil {
		p.points = map[string]point{}
	}
	if o.Checked == p.opened.Checked {
		p.points[table] = q
	}
	return q, nil
}

// viewOf returns the view that shows a table at the place.
func (p *Past) viewOf(ctx context.Context, table string) (view string, err error) {
	var oid string
	if err := pgtx.QueryRow(ctx, p.db, []any{&oid}, "select $1::text::regclass::oid::text", table); err != nil {
		return "", err
	}
	p.mu.Lock()
	view, known := p.opened.Tables[oid]
	p.mu.Unlock()
	if known {
		return view, nil
	}
	// No history tells it, which this says.
	if _, err := pgtx.Exec(ctx, p.db, "select gnomon.history_at($1::text::regclass, gnomon.place_of($2))", table, p.opened.Coordinate); err != nil {
		return "", refused(err)
	}
	return "", p.gone(table, nil)
}

func (p *Past) handle() DB { return p.db }

func (p *Past) readingRow(string, []any) Reader { return p }

func (p *Past) refusal(err error) error { return ofPast(err) }

func (p *Past) gone(table string, cause error) *Error {
	return &Error{Kind: ErrStale, Message: "the history of " + table + " has changed since the past was opened", Hint: "Open it again with At, in another transaction.", Table: table, cause: cause}
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
