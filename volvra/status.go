package volvra

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// TableStatus tells how a table is covered.
type TableStatus struct {
	Table     string          // as in SQL
	History   int             // number of its history; its view is annals.h<number>
	Since     time.Time       // when coverage began
	Key       []string        // columns of the key that tells its rows apart
	Options   json.RawMessage // options in force
	Form      string          // "statement" or "row": how it is captured
	Segments  int             // tables that its history stands in
	Entries   int64           // entries of its history, an estimate
	Bytes     int64           // what its history takes, with indexes
	LastEntry time.Time       // start of the transaction of the last one; zero: none yet
	Drift     []string        // how the table differs from what its capture was made for; empty when it doesn't
}

// Status lists the covered tables.
func (v *Volvra) Status(ctx context.Context) ([]TableStatus, error) {
	return rowsOf(ctx, v.db, func(row pgx.CollectableRow) (s TableStatus, err error) {
		var last *time.Time
		err = row.Scan(&s.Table, &s.History, &s.Since, &s.Key, &s.Options, &s.Form, &s.Segments, &s.Entries, &s.Bytes, &last, &s.Drift)
		if last != nil {
			s.LastEntry = *last
		}
		return s, err
	}, `select "table", tracked, since, key, options, form, segments, entries, bytes, last_entry, drift from volvra.status()`)
}

// Finding is something that is wrong with coverage.
type Finding struct {
	Table   string // as in SQL; empty: not about one table
	Finding string // what kind, in a word or two, such as "disabled", "uncaptured write", "no event trigger", "subscription", "unsealed segment"
	Detail  string // in words
	Hint    string // the way out; in SQL, where it names a function
}

// Health returns what is wrong with coverage, nothing when all is well: tables that changed and whose capture does not follow, disabled
// triggers, writes that went by uncaptured (as those under session_replication_role = replica do), and what is left to
// maintain. Uncaptured writes are looked for in a sample of the rows and among the newest: not finding any proves nothing.
func (v *Volvra) Health(ctx context.Context) ([]Finding, error) {
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[Finding], `select coalesce("table", ''), finding, detail, hint from volvra.health()`)
}

// Check is what enabling a table would meet.
type Check struct {
	Table    string // as in SQL; empty: not about one table
	Severity string // error (it can't be covered), warning or note
	Finding  string // in words
	Hint     string // the way out, or empty
}

// Preflight tells what enabling would meet, for one table or, when the name is empty, for all that are not covered.
func (v *Volvra) Preflight(ctx context.Context, table string) ([]Check, error) {
	var name *string
	if table != "" {
		resolved, err := v.tableName(ctx, table)
		if err != nil {
			return nil, err
		}
		name = &resolved
	}
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[Check], `select coalesce("table", ''), severity, finding, hint from volvra.preflight($1::text::regclass)`, name)
}

// TableStorage is what a history takes.
type TableStorage struct {
	History    int       // its number
	Table      string    // as in SQL
	EndedAt    time.Time // zero: it goes on
	Segments   int       // tables that it stands in
	Entries    int64     // of segments that are not sealed an estimate
	Bytes      int64     // with indexes
	TableBytes int64     // what the table itself takes; 0: it was dropped
}

// Storage tells what histories take, largest first, ended ones included.
func (v *Volvra) Storage(ctx context.Context) ([]TableStorage, error) {
	return rowsOf(ctx, v.db, func(row pgx.CollectableRow) (s TableStorage, err error) {
		var ended *time.Time
		err = row.Scan(&s.History, &s.Table, &ended, &s.Segments, &s.Entries, &s.Bytes, &s.TableBytes)
		if ended != nil {
			s.EndedAt = *ended
		}
		return s, err
	}, `select tracked, "table", ended_at, segments, coalesce(entries, 0), coalesce(bytes, 0), coalesce(table_bytes, 0) from volvra.storage()`)
}
