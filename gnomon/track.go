package gnomon

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgtx"
	"github.com/annals-db/annals/internal/schema"
)

// Options say how a table is tracked; the zero Options suit most. Exclude names columns that are never stored, and Wide those that are stored only when
// they change (by default those with long values). Truncate is what TRUNCATE does: "capture" its rows (the default), "refuse" or "allow", which interrupts the
// history. SkipNoop leaves no entries for updates that change nothing, Full stores all columns always, Replica captures what replication writes, too,
// WarnRows warns of statements that change more rows, and Form "row" captures row by row.
type Options = history.Options

// Track begins to track tables, all in one transaction. Nothing is copied: their past can be read from now on. It waits a second at most for those who
// write a table, and comes again until ctx ends. Tables need a primary key or a unique key of not-null columns; where one can't be tracked it
// is [ErrUnsupported], and none is.
func (g *Gnomon) Track(ctx context.Context, tables ...string) error {
	return g.trackAll(ctx, tables, Options{})
}

// TrackWith begins to track a table with options, or changes them; those that are zero stay as they are. [ErrInvalid]: an option
// makes no sense for the table.
func (g *Gnomon) TrackWith(ctx context.Context, table string, options Options) error {
	return g.trackAll(ctx, []string{table}, options)
}

func (g *Gnomon) trackAll(ctx context.Context, tables []string, options Options) error {
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return locking(ctx, g.db, func(tx pgx.Tx) error {
		for _, table := range tables {
			if _, err := tx.Exec(ctx, "select gnomon.track($1::text::regclass, $2::text::jsonb)", table, string(text)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tracking is what came of tracking a table of a schema.
type Tracking struct {
	Table   string // as in SQL
	History int    // number of its history; 0 when it can't be tracked
	Refusal string // why it can't be
}

// TrackSchema tracks all tables of a schema, named as in the catalog, in one transaction. Those that can't be tracked are told with the reason and are no error.
func (g *Gnomon) TrackSchema(ctx context.Context, schema string, options Options) (list []Tracking, err error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	err = locking(ctx, g.db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select "table", coalesce(tracked, 0), coalesce(refusal, '') from gnomon.track_schema($1, $2::text::jsonb)`, schema, string(text))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Tracking])
		return err
	})
	return list, err
}

// Histories says what becomes of histories.
type Histories string

// What becomes of histories.
const (
	// KeepHistory saves all rows at last, so that the past can be read on. It takes as much room as the table.
	KeepHistory Histories = "keep"
	// DropHistory drops the history.
	DropHistory Histories = "drop"
)

// Untrack ends tracking of a table. Where volvra covers it as well its history goes on, and can be read again once the table is tracked again.
// [ErrNotTracked]: it is not tracked; [ErrInvalid]: its history is to be dropped, and a consumer has not had all changes.
func (g *Gnomon) Untrack(ctx context.Context, table string, histories Histories) error {
	return locking(ctx, g.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select gnomon.untrack($1::text::regclass, $2)", table, string(histories))
		return err
	})
}

// Uninstall ends all tracking and drops the schema gnomon with the views of the past, in one transaction. With KeepHistory the schema annals stays, with all entries, for
// other packages to go on with and for its owner to read; with DropHistory it goes as well, with the histories that other packages keep.
//
// [ErrInvalid]: histories is neither.
func Uninstall(ctx context.Context, db DB, histories Histories) error {
	if histories != KeepHistory && histories != DropHistory {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf("histories cannot be %q", string(histories)), Hint: "Say KeepHistory or DropHistory."}
	}
	return pgtx.Run(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "select pg_catalog.to_regprocedure('gnomon.untrack_all()') is not null").Scan(&there); err != nil {
			return err
		}
		if there {
			if _, err := tx.Exec(ctx, "select gnomon.untrack_all()"); err != nil {
				return refused(err)
			}
		}
		if err := schema.Uninstall(ctx, tx, pkg); err != nil || histories == KeepHistory {
			return err
		}
		if _, err := tx.Exec(ctx, untrackOthersSQL); err != nil {
			return refused(err)
		}
		return schema.Uninstall(ctx, tx, history.Objects)
	})
}

// untrackOthersSQL ends what other packages track.
const untrackOthersSQL = `select annals.untrack(t.relation, u) from annals.tracked t cross join unnest(t.users) u
where t.ended_v is null and exists (select from pg_catalog.pg_class c where c.oid = t.relation)`
