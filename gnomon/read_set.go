package gnomon

import (
	"context"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

const setActor = "select set_config('annals.actor', $1, true)"

// Read is what somebody reads on a branch: the row of a key, also where there is none; the rows between bounds; or, with neither, a whole table.
type Read struct {
	Table  string           // as in SQL
	Key    Key              // of one row
	Ranges map[string]Range // of columns; a row is meant when it lies within all of them
}

// Range is what lies between two values, both included. Nil is no bound. Values are written as those of [KeyOf].
type Range struct{ From, To any }

// Between are the rows of a table whose column lies between two values, both included; nil is no bound.
func Between(table, column string, from, to any) Read {
	return Read{Table: table, Ranges: map[string]Range{column: {from, to}}}
}

// bounds returns the ranges as the database takes them.
func (r Read) bounds() map[string][2]*string {
	if r.Ranges == nil {
		return nil
	}
	text := func(v any) *string {
		if v == nil {
			return nil
		}
		return &KeyOf(v)[0]
	}
	bounds := make(map[string][2]*string, len(r.Ranges))
	for column, x := range r.Ranges {
		bounds[column] = [2]*string{text(x.From), text(x.To)}
	}
	return bounds
}

// Reading returns the branch for a caller who knows what his statements read. On a branch that records reads ([BranchOptions.RecordReads]) these
// are noted whenever something is read through it, instead of the tables that a statement reads, which is all that can be seen from it.
//
//	orders, err := gnomon.List[Order](ctx, b.Reading(gnomon.Between("shop.orders", "customer", 7, 7)), "shop.orders", "where customer = $1", 7)
//
// A change of main outside of what was noted will not be found: to name too little is to take a risk.
func (b *Branch) Reading(reads ...Read) *Branch {
	known := &Branch{db: b.db, id: b.id, actor: b.actor, reads: &reads}
	b.mu.Lock()
	defer b.mu.Unlock()
	known.name, known.opened, known.points = b.name, b.opened, b.points
	return known
}

// Note notes what is read on the branch by means of which nothing is known here, such as within a function. [ErrInvalid]: that is no key, or no
// column that has ranges; [ErrNotTracked]: what changes in that table can't be told.
func (b *Branch) Note(ctx context.Context, reads ...Read) error {
	t, err := b.begin(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	for _, r := range reads {
		if err == nil {
			err = t.noteRead(ctx, r)
		}
	}
	if err != nil {
		_ = t.Rollback(context.WithoutCancel(ctx))
		return b.refused("", err)
	}
	return t.Commit(ctx)
}

func (t *branchTx) noteRead(ctx context.Context, r Read) error {
	_, err := t.Tx.Exec(ctx, "select gnomon.note_read($1::text::regclass, $2, $3)", r.Table, []string(r.Key), r.bounds())
	return err
}

// What EXPLAIN takes.
var explainable = regexp.MustCompile(`(?is)^(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|with|insert|update|delete|merge|table|values|declare|execute)\b`)

// note notes what a statement is about to read, where the branch records that.
func (t *branchTx) note(ctx context.Context, sql string, args []any) error {
	if !t.opened.Reads {
		return nil
	}
	if t.b.reads != nil {
		if t.noted {
			return nil
		}
		for _, r := range *t.b.reads {
			if err := t.noteRead(ctx, r); err != nil {
				return err
			}
		}
		t.noted = true
		return nil
	}
	if !explainable.MatchString(sql) {
		return nil
	}
	// Its plan is asked for once, so there is no use in preparing that; and one statement at a time.
	explained := []any{pgx.QueryExecModeDescribeExec}
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		default:
			explained = append(explained, arg)
		}
	}
	var plan []byte
	if err := t.Tx.QueryRow(ctx, "explain (verbose, format json) "+sql, explained...).Scan(&plan); err != nil {
		return err
	}
	_, err := t.Tx.Exec(ctx, "select gnomon.note_plan($1::text::jsonb)", string(plan))
	return err
}

func (t *branchTx) noteBatch(ctx context.Context, batch *pgx.Batch) error {
	if !t.opened.Reads {
		return nil
	}
	for _, q := range batch.QueuedQueries {
		if err := t.note(ctx, q.SQL, q.Arguments); err != nil {
			return err
		}
	}
	return nil
}

// NotedRead is what was read on a branch.
type NotedRead struct {
	Table  string // as in SQL
	Kind   string // row, range or table
	Key    Key    // of a row
	Ranges map[string][2]*string
	At     time.Time // when it was noted
	Login  string    // the role that read
}

// Reads lists what was read on the branch, the oldest first. [ErrUnknownBranch].
func (b *Branch) Reads(ctx context.Context) ([]NotedRead, error) {
	return rowsOf(ctx, b.db, func(row pgx.CollectableRow) (r NotedRead, err error) {
		err = row.Scan(&r.Table, &r.Kind, (*[]string)(&r.Key), &r.Ranges, &r.At, &r.Login)
		return r, err
	}, `select "table", kind, key, ranges, at, login::text from gnomon.reads($1)`, b.Name())
}

// StaleRead is something that was read on a branch and is different on main by now.
type StaleRead struct {
	NotedRead
	Changes int64  // rows that changed, appeared or went
	Why     string // why that can't be told, such as that history was pruned; the rest is empty then

	// The last of these changes.
	ChangedKey  Key
	Operation   Operation
	V           int64
	Transaction string
	ChangedAt   time.Time // when its transaction began
	Who         Who       // Login and Actor
}

// StaleReads lists what was read on the branch and is different on main by now: a row of that key, or any row within those ranges or of that table,
// also one that has come since. A row that changed and changed back is not, and what merges of the branch wrote isn't either.
// What is read again after a refresh is held against the new base.
//
// A merge demands that there are none by [MergeOptions], or by a policy; it looks at what is committed when it has written its rows, so a
// change that is committed by another transaction between then and its own commit is found only where both are SERIALIZABLE. Merges that
// demand it come one after another.
//
// [ErrUnknownBranch]; [ErrNotOnBranch]: row-level security restricts the role. SELECT on the tables is needed.
func (b *Branch) StaleReads(ctx context.Context) ([]StaleRead, error) {
	return rowsOf(ctx, b.db, func(row pgx.CollectableRow) (r StaleRead, err error) {
		err = row.Scan(&r.Table, &r.Kind, (*[]string)(&r.Key), &r.Ranges, &r.At, &r.Login, (*zeronull.Int8)(&r.Changes), (*[]string)(&r.ChangedKey), (*zeronull.Text)(&r.Operation), (*zeronull.Int8)(&r.V), (*zeronull.Text)(&r.Transaction),
			(*zeronull.Timestamptz)(&r.ChangedAt), (*zeronull.Text)(&r.Who.Login), (*zeronull.Text)(&r.Who.Actor), (*zeronull.Text)(&r.Why))
		return r, err
	}, `select "table", kind, key, ranges, read_at, reader::text, changes, changed_key, operation, v, transaction, at, login, actor, why from gnomon.stale_reads($1)`, b.Name())
}

// ForgetReads forgets what was read on the branch, as when everything is to be decided anew after a refresh. [ErrUnknownBranch].
func (b *Branch) ForgetReads(ctx context.Context) error {
	_, err := pgtx.Exec(ctx, b.db, "select gnomon.forget_reads($1)", b.Name())
	return refused(err)
}
