package volvra

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Who made a change. Login is the role of the session, which nobody can choose; the rest is what the session said of itself.
type Who struct {
	Login       string // role that logged in
	Role        string // what SET ROLE chose; empty: nothing
	Actor       string // setting annals.actor
	Application string // setting application_name
	Client      string // address; empty: a local socket
}

// Counts are numbers of changes. A change of key is an update.
type Counts struct {
	Insert, Update, Delete, Truncate int64
}

// Transaction is one that changed covered tables.
type Transaction struct {
	ID            TransactionID
	At            time.Time // when it began
	Who           Who
	Rows          int64             // selected changes in all
	Tables        map[string]Counts // by table, as in SQL
	FirstV, LastV int64             // positions of the first and the last of the selected changes
}

// Page says which part of a list is wanted; its zero value is the first page.
type Page struct {
	Limit  int   // transactions at most; 0: 100
	Before int64 // those before this position, the LastV of the last one read; 0: from the newest on
}

// Transactions lists the transactions that made the selected changes, newest first, with only those changes counted. The zero Selection is
// refused: Selection{Everything: true} lists all. Tables that the caller may not read are left out, as are rows that row-level
// security keeps from him. Ended coverage counts as well.
func (v *Volvra) Transactions(ctx context.Context, s Selection, p Page) ([]Transaction, error) {
	selection, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	limit := p.Limit
	if limit == 0 {
		limit = 100
	}
	var before *int64
	if p.Before != 0 {
		before = &p.Before
	}
	return rowsOf(ctx, v.db, scanTransaction, `select transaction, at, coalesce(login, ''), coalesce(role, ''), coalesce(actor, ''), coalesce(application, ''),
		coalesce(host(client), ''), rows, tables, first_v, last_v from volvra.transactions($1, $2, $3)`, string(selection), limit, before)
}

func scanTransaction(row pgx.CollectableRow) (Transaction, error) {
	var t Transaction
	var tables []byte
	err := row.Scan(&t.ID, &t.At, &t.Who.Login, &t.Who.Role, &t.Who.Actor, &t.Who.Application, &t.Who.Client, &t.Rows, &tables, &t.FirstV, &t.LastV)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(tables, &t.Tables)
}

// By is what [Volvra.Activity] counts by.
type By string

// What can be counted by.
const (
	ByTable       By = "table"
	ByHour        By = "hour" // in UTC
	ByRole        By = "role"
	ByActor       By = "actor"
	ByApplication By = "application"
)

// Activity is a number of changes.
type Activity struct {
	What            string // the table, hour, role, actor or application; empty: none was given
	Counts          Counts
	Transactions    int64     // that made them
	FirstAt, LastAt time.Time // starts of the first and the last transaction
}

// Activity counts the selected changes. As everywhere, From and To of the selection are about the start of transactions.
func (v *Volvra) Activity(ctx context.Context, by By, s Selection) ([]Activity, error) {
	selection, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return rowsOf(ctx, v.db, func(row pgx.CollectableRow) (a Activity, err error) {
		err = row.Scan(&a.What, &a.Counts.Insert, &a.Counts.Update, &a.Counts.Delete, &a.Counts.Truncate, &a.Transactions, &a.FirstAt, &a.LastAt)
		return a, err
	}, `select coalesce(what, ''), inserts, updates, deletes, truncates, transactions, first_at, last_at from volvra.activity(null, null, $1, $2)`, string(by), string(selection))
}

// String writes the counts that are not zero.
func (c Counts) String() string {
	text := ""
	for _, x := range []struct {
		n    int64
		what string
	}{{c.Insert, "inserted"}, {c.Update, "updated"}, {c.Delete, "deleted"}, {c.Truncate, "truncated"}} {
		if x.n != 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", x.n, x.what)
		}
	}
	return text
}
