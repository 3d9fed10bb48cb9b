package gnomon

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/history"
)

// Key identifies a row: the values of the columns of the key by which its table is tracked, in that order, as texts.
type Key = history.Key

// KeyOf returns the key with these values, one for each column of the key, in its order. Texts, numbers, times, bytes and whatever can
// marshal itself as text are written as PostgreSQL reads them.
func KeyOf(values ...any) Key { return history.KeyOf(values...) }

// Who made a change. Login is the role of the session, which nobody can choose; the rest is what the session said of itself.
type Who struct {
	Login       string // role that logged in
	Role        string // what SET ROLE chose; empty: nothing
	Actor       string // setting annals.actor
	Application string // setting application_name
	Client      string // address; empty: a local socket
}

// Field is what a column was and what it became, as text. Nil is null, or that the row was not there, or that it is not known.
type Field struct {
	From *string `json:"from"`
	To   *string `json:"to"`
}

// Version is one change in the life of a row.
type Version struct {
	V           int64     // position: along one row, a later change has a higher one
	Transaction string    // epoch and transaction id, "1:7001"
	At          time.Time // when its transaction began
	Operation   Operation
	Key         Key              // of the row before the change, of an inserted row its key
	Columns     map[string]Field // columns that changed, under their present names
	Note        string           // what is not known of it, and why ("erased", "what it became is unknown: ..."); empty: all is known
	Who         Who
}

// VersionOptions say which versions are wanted. The zero value means all.
type VersionOptions struct {
	From  time.Time // transactions that began at or after it
	To    time.Time // transactions that began before it
	Limit int       // how many at most, the newest
}

// History tells the life of the rows that ever had a key, newest change first. Rows are followed through changes of their key in both
// directions, so what a row was under an earlier key is told as well; tracking that ended counts. Who may not read the table is refused,
// and row-level security holds for each old row. Updates that changed nothing are left out. [ErrNotTracked]: the table
// never was tracked; [ErrInvalid]: that is no key of it. A key that no row ever had has no versions.
func (g *Gnomon) History(ctx context.Context, table string, key Key) ([]Version, error) {
	return g.Versions(ctx, table, key, VersionOptions{})
}

// Versions is [Gnomon.History] for a part of the life.
func (g *Gnomon) Versions(ctx context.Context, table string, key Key, o VersionOptions) ([]Version, error) {
	if o.Limit < 0 {
		return nil, &Error{Kind: ErrInvalid, Message: "a negative limit", Hint: "0 means no limit", Table: table}
	}
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (v Version, err error) {
		var columns []byte
		err = row.Scan(&v.V, &v.Transaction, &v.At, &v.Operation, (*[]string)(&v.Key), &columns, &v.Note, &v.Who.Login, &v.Who.Role, &v.Who.Actor, &v.Who.Application, &v.Who.Client)
		if err != nil {
			return v, err
		}
		return v, json.Unmarshal(columns, &v.Columns)
	}, `select v, transaction, at, operation, key, columns, coalesce(note, ''), coalesce(login, ''), coalesce(role, ''), coalesce(actor, ''), coalesce(application, ''), coalesce(host(client), '')
		from gnomon.history($1::text::regclass, $2, $3, $4, $5)`, table, []string(key), given(o.From), given(o.To), given(o.Limit))
}

// given is nil for a zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Blame is the last change of a column.
type Blame struct {
	Column      string
	Field       Field
	V           int64
	Transaction string
	At          time.Time
	Operation   Operation
	Note        string // what is not known of that change: an earlier one may have been the column's last; empty: all is known
	Who         Who
}

// Blame tells, for each column of the row that has a key, or had it last, which change made it what it is, in the order of the columns.
// Columns that have not changed since tracking began are left out. Errors are those of [Gnomon.History].
func (g *Gnomon) Blame(ctx context.Context, table string, key Key) ([]Blame, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (b Blame, err error) {
		return b, row.Scan(&b.Column, &b.Field.From, &b.Field.To, &b.V, &b.Transaction, &b.At, &b.Operation, &b.Note, &b.Who.Login, &b.Who.Role, &b.Who.Actor, &b.Who.Application, &b.Who.Client)
	}, `select "column", old, new, v, transaction, at, operation, coalesce(note, ''), coalesce(login, ''), coalesce(role, ''), coalesce(actor, ''), coalesce(application, ''), coalesce(host(client), '')
		from gnomon.blame($1::text::regclass, $2)`, table, []string(key))
}
