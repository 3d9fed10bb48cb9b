package volvra

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Diff is what a column was and what it became, as text. Nil is null, or that the row was not there, or that it is not known.
type Diff struct {
	From *string `json:"from"`
	To   *string `json:"to"`
}

// Change is one change in the life of a row.
type Change struct {
	V           int64 // position: along one row, a later change has a higher one
	Transaction TransactionID
	At          time.Time       // when its transaction began
	Operation   string          // insert, update, delete or truncate
	Key         Key             // of the row before the change, of an inserted row its key
	Columns     map[string]Diff // columns that changed, under their present names
	Note        string          // what is not known of it, and why ("erased", "what it became is unknown: ..."); empty: all is known
	Who         Who
}

// History tells the life of the rows that ever had a key, newest change first: at most limit changes, all when it is 0. Rows are followed
// through changes of their key in both directions, so what a row was under an earlier key is told as well. Coverage that ended counts.
// Who may not read the table is refused, and row-level security holds for each old row. [ErrNotCovered]: the table never was covered;
// [ErrValue]: that is no key of it. A key that no row ever had has no changes.
func (v *Volvra) History(ctx context.Context, table string, key Key, limit int) ([]Change, error) {
	name, err := v.tableName(ctx, table)
	if err != nil {
		return nil, err
	}
	if limit < 0 {
		return nil, &Error{Kind: ErrInvalid, Message: "a negative limit", Hint: "0 means no limit"}
	}
	var most *int
	if limit != 0 {
		most = &limit
	}
	return rowsOf(ctx, v.db, scanChange, `select v, transaction, at, operation, key, columns, coalesce(note, ''), coalesce(login, ''), coalesce(role, ''), coalesce(actor, ''),
		coalesce(application, ''), coalesce(host(client), '') from volvra.history($1::text::regclass, $2, $3)`, name, []string(key), most)
}

func scanChange(row pgx.CollectableRow) (Change, error) {
	var c Change
	var columns []byte
	err := row.Scan(&c.V, &c.Transaction, &c.At, &c.Operation, (*[]string)(&c.Key), &columns, &c.Note, &c.Who.Login, &c.Who.Role, &c.Who.Actor, &c.Who.Application, &c.Who.Client)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(columns, &c.Columns)
}
