package volvra

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Operation is what an undo does to a row.
type Operation string

// What an undo does to a row.
const (
	OpUpdate Operation = "update"
	OpInsert Operation = "insert"
	OpDelete Operation = "delete"
	OpNone   Operation = "none" // the row is gone, or back, already
)

// Status is whether a planned row can be undone.
type Status string

// Whether a row can be undone. Rows that are neither Clean nor Undone are refused, unless a [Policy] leaves them out.
const (
	Clean       Status = "clean"       // it can
	Undone      Status = "undone"      // nothing is left to do: the row is as it would be
	Conflict    Status = "conflict"    // others have since changed what would change
	Unique      Status = "unique"      // a unique key is taken
	ForeignKey  Status = "foreign key" // a row would refer to one that is not there, or others still refer to one that would go
	Erased      Status = "erased"      // what the row held was erased
	Interrupted Status = "interrupted" // history has a gap, so what was done since is not known
)

// Value is what a column changes from and to, as texts; nil is null, or that there is no row.
type Value struct {
	From *string `json:"from"`
	To   *string `json:"to"`
}

// Blame is whose change something is.
type Blame struct {
	Transaction TransactionID `json:"transaction"`
	Position    int64         `json:"v"`
	At          time.Time     `json:"at"`   // when the transaction began
	Role        string        `json:"role"` // that logged in
	Actor       string        `json:"actor"`
	Application string        `json:"application"`
}

// Block is what stands in the way of a planned row.
type Block struct {
	Columns    map[string]Blame `json:"columns"`    // of a conflict: the last changes of these columns by others
	Existence  *Blame           `json:"existence"`  // of a conflict: who removed the row, or brought it back
	Constraint string           `json:"constraint"` // of a unique or foreign key
	Table      string           `json:"table"`      // where the rows are that collide or refer, or where one is missing
	Rows       []Key            `json:"rows"`       // their keys
	Missing    []*string        `json:"missing"`    // of a foreign key: what a row would refer to
}

// PlannedRow is a row that selected changes touched, and what an undo of them does about it.
type PlannedRow struct {
	Table     string           `json:"table"`
	Key       Key              `json:"key"` // today's; of a row to be inserted, the one it gets
	Operation Operation        `json:"operation"`
	Columns   map[string]Value `json:"columns"` // those that would change, conflicting ones included
	SQL       string           `json:"sql"`     // a statement that does the same, as long as the row is as it is
	Status    Status           `json:"status"`
	Block     Block            `json:"detail"` // what stands in its way; zero when it is clean
}

// Plan is what an undo would do.
type Plan struct {
	Selection Selection      // without the changes that come after the preview
	Rows      []PlannedRow   // in no particular order
	Token     Token          // for [Volvra.Undo]: refused when the plan would be another one by then
	Counts    map[Status]int // rows by status; what is not there is 0
}

// Preview returns what an undo of the selected changes would do, row by row, and writes nothing. A row whose selected changes came to
// nothing is left out. The rows stand in memory: for millions, select them from volvra.preview.
//
// Unlike [Volvra.Transactions] it does not pass over tables that the caller may not read: PostgreSQL's error says which. [ErrSelection],
// [ErrEmptySelection], [ErrNotCovered], [ErrNoColumn] and [ErrValue] are about the selection.
func (v *Volvra) Preview(ctx context.Context, s Selection) (*Plan, error) {
	p := &Plan{Counts: map[Status]int{}}
	var frozen []byte
	if err := pgtx.QueryRow(ctx, v.db, []any{&frozen}, "select volvra.freeze($1::jsonb)::text", selectionText(s)); err != nil {
		return nil, refused(err)
	}
	if err := json.Unmarshal(frozen, &p.Selection); err != nil {
		return nil, err
	}
	var digests [][]byte
	err := pgtx.Query(ctx, v.db, func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				r                    PlannedRow
				key, columns, detail []byte
				sql                  *string
				digest               []byte
			)
			if err := rows.Scan(&r.Table, &key, &r.Operation, &columns, &sql, &r.Status, &detail, &digest); err != nil {
				return err
			}
			if sql != nil {
				r.SQL = *sql
			}
			for _, part := range []struct {
				text []byte
				into any
			}{{key, &r.Key}, {columns, &r.Columns}, {detail, &r.Block}} {
				if err := json.Unmarshal(part.text, part.into); err != nil {
					return err
				}
			}
			p.Rows = append(p.Rows, r)
			p.Counts[r.Status]++
			digests = append(digests, digest)
		}
		return rows.Err()
	}, `select p."table", p.key::text, p.operation, p.columns::text, p.sql, p.status, p.detail::text, p.digest from volvra.preview_rows($1::jsonb) p`, string(frozen))
	if err != nil {
		return nil, refused(err)
	}
	p.Token = Token(token(frozen, digests))
	return p, nil
}

// token is what volvra.token returns.
func token(selection []byte, digests [][]byte) string {
	slices.SortFunc(digests, bytes.Compare)
	all := sha256.New()
	for _, d := range digests {
		all.Write(d)
	}
	return "vp1." + base64.RawURLEncoding.EncodeToString(selection) + "." + hex.EncodeToString(all.Sum(nil))
}

func selectionText(s Selection) string {
	text, err := json.Marshal(s)
	if err != nil {
		return "null" // refused as no selection
	}
	return string(text)
}
