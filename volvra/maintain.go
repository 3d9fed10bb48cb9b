package volvra

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// MaintainOptions say how much maintenance does. The zero value is a good start.
type MaintainOptions struct {
	// SealEvery is how old the last seal has to be for another one; if it is set, the first seal is made as well. 0: an hour, once a first
	// seal was made with [Volvra.Seal].
	SealEvery time.Duration
	// SegmentBytes is the size at which another segment of a history, one of the tables it stands in, is begun. 0: 64 MiB.
	SegmentBytes int64
	// Sync brings capture up to date with tables that have changed, where no event trigger does. Otherwise that is only reported.
	Sync bool
	// Partial lets retention delete from segments that have not expired as a whole.
	Partial bool
}

// Step is something that maintenance did.
type Step struct {
	// Step is "tick", "seal", "sync", "drift", "rotate", "index", "purge", "busy" what a lock kept from being done, or "skipped" when another
	// process is at it.
	Step   string
	Table  string          // as in SQL, where it is about one
	Detail json.RawMessage // numbers of it, as a JSON object
}

// Maintenance steps, those that lock views last.
var maintenance = []string{"tick", "seal", "sync", "rotate", "index", "purge"}

// Maintain does what has to be done regularly, and returns what it did: it notes the time, which retention goes by and which makes questions
// about a time quick, seals when that is due, reports or follows changed tables, begins new segments and finishes old ones, and removes what
// has expired. Outside a transaction each step is one of its own. Where another process is at it, nothing is done: the only Step is "skipped".
func (v *Volvra) Maintain(ctx context.Context, o MaintainOptions) (done []Step, err error) {
	options := map[string]any{}
	if o.SealEvery != 0 {
		options["seal_every"] = fmt.Sprintf("%d microseconds", o.SealEvery.Microseconds())
	}
	if o.SegmentBytes != 0 {
		options["segment_bytes"] = o.SegmentBytes
	}
	options["sync"], options["partial"] = o.Sync, o.Partial
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	for _, step := range maintenance {
		steps, err := rowsOf(ctx, v.db, pgx.RowToStructByPos[Step], `select step, coalesce("table", ''), detail from volvra.maintain_step($1, $2::jsonb)`, step, string(text))
		if err != nil {
			return done, fmt.Errorf("maintenance, step %s: %w", step, err)
		}
		done = append(done, steps...)
		if len(steps) > 0 && steps[0].Step == "skipped" {
			break
		}
	}
	return done, nil
}

// RunOptions say how Run works.
type RunOptions struct {
	MaintainOptions
	Every time.Duration // how often; 0: a minute
	Log   *slog.Logger  // what was done at level debug, what went wrong at level error; nil: nowhere
}

// Run calls [Volvra.Maintain] now and every so often until ctx ends, and then returns nil. What goes wrong is logged, and tried again the next
// time. Any number of processes may run it: one at a time does the work. It can't run inside a transaction.
func (v *Volvra) Run(ctx context.Context, o RunOptions) error {
	if pgtx.InTx(v.db) {
		return &Error{Kind: ErrInvalid, Message: "maintenance can't run on inside a transaction", Hint: "Give it a pool or a connection."}
	}
	if o.Every == 0 {
		o.Every = time.Minute
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		done, err := v.Maintain(ctx, o.MaintainOptions)
		for _, s := range done {
			log.DebugContext(ctx, "volvra maintenance", "step", s.Step, "table", s.Table, "detail", string(s.Detail))
		}
		if err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "volvra maintenance", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}
