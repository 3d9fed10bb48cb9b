package volvra

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// TruncatePolicy says what becomes of a TRUNCATE on a covered table.
type TruncatePolicy string

// Policies for TRUNCATE. It is the application's own statement that is refused, with SQLSTATE AN001 or AN002.
const (
	CaptureTruncate TruncatePolicy = "capture" // its rows are saved; in a transaction above READ COMMITTED it is refused (AN002)
	RefuseTruncate  TruncatePolicy = "refuse"  // it is refused (AN001)
	AllowTruncate   TruncatePolicy = "allow"   // it goes by, and interrupts the history: earlier states can't be told any more
)

// Options are how a table is covered. The zero Options suit most tables.
type Options struct {
	Exclude  []string       // columns whose values are never stored: they can't be told, and a row that an undo brings back gets their defaults
	Truncate TruncatePolicy // default: CaptureTruncate
	SkipNoop bool           // updates that change nothing leave no entry; every update is a little slower
	Full     bool           // every entry holds the whole row, also wide columns that did not change
	Wide     []string       // columns stored only when they change; nil: chosen by the size of their values
	WarnRows int64          // a statement that changes more rows of the table raises a warning; 0: as it was
	Replica  bool           // capture what replication and session_replication_role = replica write, too
	ByRow    bool           // capture row by row, not by statement
}

func (o Options) json() ([]byte, error) {
	m := map[string]any{"exclude": append([]string{}, o.Exclude...), "truncate": CaptureTruncate, "skip_noop": o.SkipNoop, "full": o.Full, "replica": o.Replica, "form": "auto"}
	if o.Truncate != "" {
		m["truncate"] = o.Truncate
	}
	if o.Wide != nil {
		m["wide"] = o.Wide
	}
	if o.WarnRows != 0 {
		m["warn_rows"] = o.WarnRows
	}
	if o.ByRow {
		m["form"] = "row"
	}
	return json.Marshal(m)
}

// Covering is what came of covering a table, or of ending that.
type Covering struct {
	Attempt int64  // number of the recorded attempt
	Table   string // as in SQL
	Outcome string // enabled, changed, unchanged, disabled or refused
	Code    string // SQLSTATE of a refusal
	Reason  string // why it was refused
	Hint    string // the way out, or what else is worth knowing
}

// Err returns the refusal, nil when it was none.
func (c Covering) Err() error {
	if c.Outcome != "refused" {
		return nil
	}
	kind := kindOf[c.Code]
	if kind == nil {
		kind = ErrRights
		if c.Code == lockNotAvailable {
			kind = ErrBusy
		}
	}
	return &Error{Kind: kind, Message: c.Reason, Hint: c.Hint, Table: c.Table}
}

const lockNotAvailable = "55P03"

const coveringColumns = `attempt, "table", outcome, coalesce(code, '') as code, coalesce(reason, '') as reason, coalesce(hint, '') as hint`

// Enable covers a table (a name as in SQL), or changes how it is covered. Nothing is copied: its history begins now, with the next
// changes. It waits for transactions that wrote the table, briefly and several times, and refuses with [ErrBusy] when they don't
// end. A table is covered by its primary key, or else by a unique key of not-null columns; other refusals are [ErrUnsupported],
// [ErrRights] and [ErrInvalid]. Tables that inherit from it have rows of their own and must be covered themselves.
//
// To change how a table is covered, give all of its options again: what is left zero gets its default, but for Wide and WarnRows, which
// stay. What was stored stays, too: excluding a column does not erase it from history, and [Volvra.Forget] does so row by row.
func (v *Volvra) Enable(ctx context.Context, table string, o Options) (Covering, error) {
	options, err := o.json()
	if err != nil {
		return Covering{}, err
	}
	return v.covering(ctx, "enable", "select "+coveringColumns+" from volvra.enable($1, $3, $2)", table, string(options))
}

// EnableSchema covers all tables of a schema, named as in the catalog, and tells for each what came of it; refusals are among them and
// no error: see [Covering.Err]. A table without a column that the options name is refused. All of the tables are locked against writing until it is done.
func (v *Volvra) EnableSchema(ctx context.Context, schema string, o Options) ([]Covering, error) {
	options, err := o.json()
	if err != nil {
		return nil, err
	}
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[Covering], "select "+coveringColumns+" from volvra.enable_schema($1, $2)", schema, string(options))
}

// DisableOptions are what is done before coverage ends.
type DisableOptions struct {
	SaveRows bool // save all rows first, so that earlier states can still be told; that takes as much room as the table
}

// Disable ends the coverage of a table. Nothing is left on it; its history stays, and whoever may read the table still sees it.
// [ErrNotCovered]: it was not covered. Unless SaveRows, states before the end can no longer be told from then on, only what was changed.
func (v *Volvra) Disable(ctx context.Context, table string, o DisableOptions) (Covering, error) {
	return v.covering(ctx, "disable", "select "+coveringColumns+" from volvra.disable($1, $3, $2)", table, o.SaveRows)
}

// covering begins an attempt in a transaction of its own, unless the caller has one, and executes it.
func (v *Volvra) covering(ctx context.Context, action, sql, table string, argument any) (Covering, error) {
	name, err := v.tableName(ctx, table)
	if err != nil {
		return Covering{}, err
	}
	var attempt *int64
	if !pgtx.InTx(v.db) {
		err := pgtx.QueryRow(ctx, v.db, []any{&attempt}, "select volvra.begin_attempt($1, jsonb_build_object('tables', jsonb_build_array($2::text)))", action, name)
		if err != nil {
			return Covering{}, refused(err)
		}
	}
	list, err := rowsOf(ctx, v.db, pgx.RowToStructByPos[Covering], sql, name, attempt, argument)
	if err != nil {
		return Covering{}, err
	}
	return list[0], list[0].Err()
}

// tableName resolves a table's name as the session does and returns it quoted, with its schema.
func (v *Volvra) tableName(ctx context.Context, table string) (name string, err error) {
	err = pgtx.QueryRow(ctx, v.db, []any{&name}, `select pg_catalog.format('%I.%I', n.nspname, c.relname) from pg_catalog.pg_class c
		join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = pg_catalog.to_regclass($1)`, table)
	if errors.Is(err, pgx.ErrNoRows) || pgtx.HasCode(err, "42601", "42602") {
		return "", &Error{Kind: ErrNotCovered, Message: "there is no table " + table, Hint: "Name the table as in SQL, with its schema.", Table: table, cause: err}
	}
	return name, refused(err)
}

// Uncovered is a table that is not covered.
type Uncovered struct {
	Table  string // as in SQL
	Reason string // "not enabled", or what keeps it from being covered
}

// Uncovered lists the tables that are not covered, and why.
func (v *Volvra) Uncovered(ctx context.Context) ([]Uncovered, error) {
	return rowsOf(ctx, v.db, pgx.RowToStructByPos[Uncovered], `select "table", reason from volvra.uncovered()`)
}
