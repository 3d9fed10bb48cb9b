package gnomon

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// Past is the database as it was at a place. Ordinary SQL runs on it, with the names of tables unchanged: joins, aggregates and subqueries
// over any number of tracked tables, all at one coordinate. Make one with [Gnomon.At].
//
// It has the methods Exec, Query, QueryRow and Begin of pgx's handles, so whatever works on those works on it, such as pgx.CollectRows and
// generated code. On a pool or an idle connection each call is a read-only transaction of its own; in the caller's transaction it is
// a savepoint, to which the transaction goes back when the rows are closed. Neither leaves anything behind in the session.
//
// A name with its schema, such as shop.orders, means the table of today; a name alone is found by the search_path of the session. Writes
// are [ErrReadOnly], tables that are not tracked [ErrUntracked], and views of users that cannot be read in the past [ErrView]. A table whose history does not
// tell that place is [ErrNoHistory] or [ErrPruned], and a value that went with its column [ErrColumnGone]. Rights to tables and their
// row-level security hold, on the rows as they were. System columns such as ctid do not exist there.
//
// Columns are those that the table had then, under their present names unless asked otherwise ([FormerNames]); excluded ones are not there. Generated columns are computed
// again, by the expression that they have today, and are not there where other columns have changed since. A view that uses a column which did not exist then fails
// as PostgreSQL says it, with 42703.
//
// Statements that end a transaction, such as COMMIT, must not be given: they would end the caller's.
type Past struct {
	db        DB
	ref       Ref
	untracked string
	names     string

	mu     sync.Mutex
	opened opening          // what was last found to hold
	points map[string]point // by table, see Get
}

// opening is what has to be set to read the past.
type opening struct {
	Coordinate, Snapshot, Bound, Checked, Path, Outside, Role string
	Tables                                                    map[string]string // views, by the OIDs of their tables
}

// bound is the bound as a number.
func (o opening) bound() int64 {
	n, _ := strconv.ParseInt(o.Bound, 10, 64) // the database wrote it
	return n
}

// PastOption is an option of [Gnomon.At].
type PastOption func(*Past)

// UntrackedAsToday lets tables that are not tracked be read as they are today, where otherwise they are [ErrUntracked].
func UntrackedAsToday() PastOption { return func(p *Past) { p.untracked = "present" } }

// FormerNames gives columns that were renamed since the names that they had at the place, where otherwise they have their present ones.
// Users' views over tables with such columns are then refused, with [ErrView].
func FormerNames() PastOption { return func(p *Past) { p.names = "former" } }

// At returns the database as it was at a place. A time, a tag and [Present] are resolved now, once, to a coordinate.
//
// [ErrUnknownTag]: there is no such tag; [ErrNoTick]: no tick is as old as the time; [ErrEpoch]: the coordinate was taken before a restore,
// crash or promotion; [ErrNotYet]: it is later than what the transaction sees; [ErrInvalid]: it names no place.
func (g *Gnomon) At(ctx context.Context, ref Ref, options ...PastOption) (*Past, error) {
	p := &Past{db: g.db, ref: ref, untracked: "refuse", names: "present"}
	for _, option := range options {
		option(p)
	}
	if err := p.open(ctx, g.db); err != nil {
		return nil, err
	}
	p.ref = Ref(p.opened.Coordinate)
	return p, nil
}

// Coordinate is the coordinate at which the past is read.
func (p *Past) Coordinate() Coordinate { return Coordinate{text: p.opened.Coordinate} }

// open finds what has to be set.
func (p *Past) open(ctx context.Context, db DB) error {
	p.mu.Lock()
	ref := p.ref
	p.mu.Unlock()
	var o opening
	err := pgtx.QueryRow(ctx, db, []any{&o.Coordinate, &o.Snapshot, &o.Bound, &o.Checked, &o.Path, &o.Outside, &o.Role, &o.Tables}, `
		select (o.place).coordinate, (o.place).snapshot::text, (o.place).bound::text, o.checked, o.path, o.outside, current_user::text, o.tables
		from gnomon.open_at($1, pg_catalog.current_schemas(false), pg_catalog.current_setting('search_path'), $2, $3) o`, string(ref), p.untracked, p.names)
	if err != nil {
		return refused(err)
	}
	p.mu.Lock()
	p.opened, p.points = o, nil
	p.mu.Unlock()
	return nil
}

// enter sets in tx what was found, and finds it anew where that does not hold any more.
func (p *Past) enter(ctx context.Context, tx DB) error {
	for again := false; ; again = true {
		p.mu.Lock()
		o := p.opened
		p.mu.Unlock()
		var entered bool
		err := tx.QueryRow(ctx, "select gnomon.enter($1, $2, $3, $4, $5, $6, $7, $8)", o.Coordinate, o.Snapshot, o.Bound, o.Checked, o.Path, o.Outside, o.Role, p.needed(o)).Scan(&entered)
		if err != nil {
			return refused(err)
		}
		if entered {
			return nil
		}
		if again {
			return &Error{Kind: ErrStale, Message: "the role or search_path of the session changes while the past is opened", Hint: "Open it again with At."}
		}
		if err := p.openAgain(ctx, tx); err != nil {
			return err
		}
	}
}

// openAgain finds anew what has to be set.
func (p *Past) openAgain(ctx context.Context, db DB) error {
	p.mu.Lock()
	before := p.opened
	p.mu.Unlock()
	if err := p.open(ctx, db); err != nil {
		return err
	}
	return p.lost(before)
}

// lost is an error when a table that the past showed is not shown any more: where untracked tables are read as they are today, its name
// would mean today's rows.
func (p *Past) lost(before opening) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for oid, view := range before.Tables {
		if _, there := p.opened.Tables[oid]; !there && p.untracked == "present" {
			p.opened = before // so that it stays refused
			return &Error{Kind: ErrStale, Message: "the past of a table, which " + view + " showed, is not there any more", Hint: "Open the past again with At."}
		}
	}
	return nil
}

// needed returns the views that must be there: where untracked tables are read as they are today, a name whose view has gone would mean today's table.
func (p *Past) needed(o opening) []string {
	if p.untracked != "present" {
		return nil
	}
	return slices.Collect(maps.Values(o.Tables))
}

// span is a transaction, or a part of one, in which the past is read.
type span struct {
	db  DB     // reads
	end func() // puts everything back
}

const (
	setPast   = "savepoint gnomon_past"
	unsetPast = "rollback to savepoint gnomon_past; release savepoint gnomon_past"
	readOnly  = "set local transaction_read_only = on"
)

// begin begins a span.
func (p *Past) begin(ctx context.Context) (s span, err error) {
	undone := context.WithoutCancel(ctx)
	if pgtx.InTx(p.db) {
		if _, err := p.db.Exec(ctx, setPast); err != nil {
			return span{}, err
		}
		s = span{db: p.db, end: func() { _, _ = p.db.Exec(undone, unsetPast, pgx.QueryExecModeSimpleProtocol) }}
		_, err = p.db.Exec(ctx, readOnly)
	} else {
		var tx pgx.Tx
		if beginner, has := p.db.(interface {
			BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
		}); has {
			tx, err = beginner.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		} else {
			tx, err = p.db.Begin(ctx)
		}
		if err != nil {
			return span{}, err
		}
		s = span{db: tx, end: func() { _ = tx.Rollback(undone) }}
	}
	if err == nil {
		err = p.enter(ctx, s.db)
	}
	if err != nil {
		s.end()
		return span{}, err
	}
	return s, nil
}
