package gnomon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaintainStep is something that maintenance did.
type MaintainStep struct {
	// Step is "tick", "rotate" a new segment of a history, "seal" finished segments, "branches" whose time had come, "reports" of merges that were removed, "checkpoint", "prune", "ticks" that were removed, "busy" what a
	// lock kept from being done, "failed" what the state of a history did, or "skipped" when another process is at it.
	Step   string
	Table  string          // as in SQL, where it is about one
	Detail json.RawMessage // numbers of it, as a JSON object
}

// Steps that lock views come last.
var maintenance = []string{"tick", "rotate", "seal", "branches", "reports", "checkpoint", "prune", "ticks"}

// Maintain does what has to be done regularly, and tells what it did, step by step, where progress is not nil: it notes the time, begins new
// segments and finishes old ones, drops branches whose time has come (see [Branch.Expire]), forgets reports of dry runs and refused merges after 30 days (see [Gnomon.PruneReports]), makes checkpoints and prunes as policies say (see [Gnomon.SetPolicy]), and removes the ticks of times that no
// history reaches. Outside a transaction each step is one of its own. Where another process is at it, nothing is done.
func (g *Gnomon) Maintain(ctx context.Context, progress func(MaintainStep)) error {
	for _, name := range maintenance {
		steps, err := rowsOf(ctx, g.db, pgx.RowToStructByPos[MaintainStep], `select step, coalesce("table", ''), detail from gnomon.maintain_step($1)`, name)
		if err != nil {
			return fmt.Errorf("maintenance, step %s: %w", name, err)
		}
		for _, step := range steps {
			if progress != nil {
				progress(step)
			}
			if step.Step == "skipped" {
				return nil
			}
		}
	}
	return nil
}

// RunMaintenance calls [Gnomon.Maintain] now and every so often until ctx ends, and then returns nil. It carries on after errors, and tells them to failed,
// where that is given. Any number of processes may run it: one at a time does the work. [ErrInvalid]: every is not above zero, or the handle is in a transaction.
func (g *Gnomon) RunMaintenance(ctx context.Context, every time.Duration, progress func(MaintainStep), failed ...func(error)) error {
	return g.repeat(ctx, every, failed, func() error { return g.Maintain(ctx, progress) })
}
