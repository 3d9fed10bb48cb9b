package gnomon

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/annals-db/annals/internal/pgtx"
)

func (b *Branch) handle() DB { return b.db }

func (b *Branch) readingRow(table string, key []any) Reader {
	b.mu.Lock()
	recorded := b.opened.Reads && b.reads == nil
	b.mu.Unlock()
	if !recorded {
		return b
	}
	return b.Reading(Read{Table: table, Key: KeyOf(key...)})
}

func (b *Branch) refusal(err error) error { return b.refused("", err) }

func (b *Branch) gone(table string, cause error) *Error {
	return &Error{Kind: ErrStale, Message: fmt.Sprintf("the history of %s has changed since branch %q was put to use", table, b.Name()), Hint: "Read it again, in another transaction.", Table: table, cause: cause}
}

// reopen reports whether err tells that what was found does not hold any more, and asking again finds something else: a branch that is gone, too.
func (b *Branch) reopen(ctx context.Context, err error) bool {
	b.mu.Lock()
	o := b.opened
	b.mu.Unlock()
	if b.changed(ctx, o, err) {
		return true
	}
	if !pgtx.HasCode(err, "GN008") {
		return false
	}
	b.forget()
	_, err = b.use(ctx, b.db)
	return errors.Is(err, ErrUnknownBranch)
}

func (b *Branch) pointOf(ctx context.Context, table string) (point, error) {
	b.mu.Lock()
	q, known := b.points[table]
	b.mu.Unlock()
	if known {
		return q, nil
	}
	view, err := b.viewOf(ctx, table)
	if err != nil {
		return point{}, err
	}
	o, err := b.use(ctx, b.db)
	if err != nil {
		return point{}, err
	}
	var version *int64
	var home, query *string
	err = pgtx.QueryRow(ctx, b.db, []any{&version, &home, &query, &q.keyNames}, "select version, home, query, key_names::text[] from gnomon.point_at($1::text::regclass, $2, 'present', $3)", table, o.Place, b.id)
	if err != nil {
		return point{}, refused(err)
	}
	if query != nil && !o.Reads { // what is read is noted by a statement of its own
		bound, _ := strconv.ParseInt(o.Bound, 10, 64) // the database wrote it
		q.query, q.args = *query, []any{bound, o.Snapshot, *version, o.Place[:8], *home, b.id, o.Base}
	}
	q.view = q.viewQuery(view)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.points == nil {
		b.points = map[string]point{}
	}
	if o.Checked == b.opened.Checked {
		b.points[table] = q
	}
	return q, nil
}

// viewOf returns the view that shows a table on the branch.
func (b *Branch) viewOf(ctx context.Context, table string) (string, error) {
	var oid string
	if err := pgtx.QueryRow(ctx, b.db, []any{&oid}, "select $1::text::regclass::oid::text", table); err != nil {
		return "", err
	}
	for again := false; ; again = true {
		o, err := b.use(ctx, b.db)
		if err != nil {
			return "", err
		}
		if view, known := o.Tables[oid]; known {
			return view, nil
		}
		// Why, this says. What was found before may not hold any more: after a reset the branch shows the table again, say.
		_, err = b.Exec(ctx, "select gnomon.refuse_branch(gnomon.history_at($1::oid::regclass, gnomon.place_of($2)))", oid, o.Place)
		if err == nil {
			err = b.gone(table, nil)
		}
		if again || !errors.Is(err, ErrStale) {
			return "", err
		}
		b.forget()
	}
}
