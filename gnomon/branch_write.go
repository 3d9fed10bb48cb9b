package gnomon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// CopyFrom inserts rows on the branch, as pgx's own does. The name of the table is found on the branch: without its schema.
func (b *Branch) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	t, err := b.begin(ctx, pgx.TxOptions{})
	if err != nil {
		return 0, err
	}
	n, err := t.CopyFrom(ctx, table, columns, source)
	if err != nil {
		_ = t.Rollback(context.WithoutCancel(ctx))
		return 0, err
	}
	return n, t.Commit(ctx)
}

// Lock locks rows of a table on the branch until tx ends: nobody else changes them there before, which is what SELECT FOR UPDATE is for on main. On a
// branch that locks nothing. tx must be on the branch ([Branch.Begin], [OnBranch]). In a READ COMMITTED transaction the statements that follow see
// the rows as they were locked. Rows that are not there are not locked.
//
// [ErrNoBranch]: tx is not on this branch; [ErrNotTracked]; [ErrInvalid]: a key has another length or type; [ErrProtected]. In a transaction of another
// isolation level a row that was changed since it began is 40001.
func (b *Branch) Lock(ctx context.Context, tx pgx.Tx, table string, keys ...Key) error {
	var here string
	if err := pgtx.QueryRow(ctx, tx, []any{&here}, "select coalesce(current_setting('gnomon.branch', true), '')"); err != nil {
		return err
	}
	if here != fmt.Sprint(b.id) {
		return &Error{Kind: ErrNoBranch, Message: fmt.Sprintf("the transaction is not on branch %q", b.Name()), Hint: "Begin it with Branch.Begin, or put it there with OnBranch.", Table: table}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := pgtx.Exec(ctx, tx, "select gnomon.lock_rows($1::text::regclass, $2)", table, keys)
	return b.refused("", err)
}

// Upsert inserts a row on the branch, or where there is one with the same values in the columns of conflict, by default those of the key, gives that
// the values of the others. It returns whether it inserted. It stands for INSERT ON CONFLICT, which is not to be had on a branch.
//
// The row is a map[string]any of columns, or a struct as pgx.RowToStructByName takes it; columns that it lacks get their defaults when it is inserted.
// On a pool or an idle connection it is repeated when it meets another writer. Errors are those of [Branch], and [ErrInvalid]: the row is of neither kind,
// or lacks a column of conflict.
func (b *Branch) Upsert(ctx context.Context, table string, row any, conflict ...string) (inserted bool, err error) {
	if inserted, err = b.upsert(ctx, table, row, conflict); !pgtx.InTx(b.db) && (errors.Is(err, ErrStale) || pgtx.HasCode(err, "42P01")) {
		b.forget() // another view may show the table by now
		inserted, err = b.upsert(ctx, table, row, conflict)
	}
	return inserted, err
}

func (b *Branch) upsert(ctx context.Context, table string, row any, conflict []string) (inserted bool, err error) {
	view, err := b.viewOf(ctx, table)
	if err != nil {
		return false, err
	}
	if len(conflict) == 0 {
		q, err := b.pointOf(ctx, table)
		if err != nil {
			return false, err
		}
		conflict = q.keyNames
	}
	columns, values, err := b.valuesOf(ctx, view, row)
	if err != nil {
		return false, err
	}
	u, err := upsertOf(view, columns, conflict)
	if err != nil {
		return false, err
	}
	if pgtx.InTx(b.db) {
		err = u.run(ctx, b, values, &inserted)
	} else {
		err = pgtx.Retry(ctx, func() error { return u.run(ctx, b, values, &inserted) })
	}
	return inserted, err
}

// valuesOf returns the columns that a row gives, and their values.
func (b *Branch) valuesOf(ctx context.Context, view string, row any) (columns []string, values []any, err error) {
	if m, is := row.(map[string]any); is {
		for _, column := range slices.Sorted(maps.Keys(m)) {
			columns, values = append(columns, column), append(values, m[column])
		}
		return columns, values, nil
	}
	v := reflect.Indirect(reflect.ValueOf(row))
	if v.Kind() != reflect.Struct {
		return nil, nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("a row can't be a %T", row), Hint: "Give a map[string]any or a struct."}
	}
	names, err := rowsOf(ctx, b.db, pgx.RowTo[string], "select attname::text from pg_catalog.pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped", view)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		tag, tagged := f.Tag.Lookup("db")
		tag, _, _ = strings.Cut(tag, ",")
		if !f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct || tag == "-" {
			continue
		}
		// As pgx.RowToStructByName finds them.
		i := slices.Index(names, tag)
		for j := 0; j < len(names) && i < 0; j++ {
			if tagged && strings.EqualFold(names[j], tag) || !tagged && strings.EqualFold(strings.ReplaceAll(names[j], "_", ""), strings.ReplaceAll(f.Name, "_", "")) {
				i = j
			}
		}
		if i < 0 {
			return nil, nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("field %s of %T is no column of the table on the branch", f.Name, row), Hint: "Leave it out with the tag `db:\"-\"`."}
		}
		columns, values = append(columns, names[i]), append(values, v.FieldByIndex(f.Index).Interface())
	}
	return columns, values, nil
}

// upsert is how a row is updated, and inserted where it is not there.
type upsert struct{ update, insert string }

func upsertOf(view string, columns, conflict []string) (u upsert, err error) {
	var names, params, sets, conditions []string
	for i, column := range columns {
		name := pgx.Identifier{column}.Sanitize()
		names, params = append(names, name), append(params, fmt.Sprintf("$%d", i+1))
		if slices.Contains(conflict, column) {
			conditions = append(conditions, fmt.Sprintf("%s = $%d", name, i+1))
		} else {
			sets = append(sets, fmt.Sprintf("%s = $%d", name, i+1))
		}
	}
	if len(conditions) != len(conflict) {
		return u, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the row lacks a column of %s", strings.Join(conflict, ", ")), Hint: "Give values for all columns by which it is found."}
	}
	where := " where " + strings.Join(conditions, " and ")
	u.update = "update " + view + " set " + strings.Join(sets, ", ") + where
	if len(sets) == 0 { // nothing is left to set
		u.update = "select from " + view + where
	}
	u.insert = "insert into " + view + " (" + strings.Join(names, ", ") + ") values (" + strings.Join(params, ", ") + ")"
	return u, nil
}

// run runs it in a transaction on the branch.
func (u upsert) run(ctx context.Context, b *Branch, values []any, inserted *bool) error {
	return pgx.BeginFunc(ctx, b, func(tx pgx.Tx) error {
		var lost error
		for range 3 {
			tag, err := tx.Exec(ctx, u.update, values...)
			if err != nil || tag.RowsAffected() > 0 {
				*inserted = false
				return err
			}
			// Somebody may insert it meanwhile; or the row meets another one by another unique key.
			lost = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, u.insert, values...)
				return err
			})
			if !pgtx.HasCode(lost, "23505") {
				*inserted = lost == nil
				return lost
			}
		}
		return lost
	})
}
