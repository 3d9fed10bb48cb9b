package volvra

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
)

// Verdict is what verification says about sealed rows.
type Verdict string

// Verdicts about what is well.
const (
	VerdictIntact   Verdict = "intact"   // as sealed
	VerdictErased   Verdict = "erased"   // an erasure redacted or removed exactly these rows, or a purge removed them one by one
	VerdictPurged   Verdict = "purged"   // retention removed them
	VerdictUnsealed Verdict = "unsealed" // no seal covers them yet
)

// Verdicts about what is not.
const (
	VerdictAltered   Verdict = "altered"   // other than it was sealed
	VerdictMissing   Verdict = "missing"   // sealed, and gone without an erasure or purge
	VerdictAdded     Verdict = "added"     // later than the seal that would have covered it
	VerdictForged    Verdict = "forged"    // a seal or ledger contradicts itself or what surrounds it
	VerdictRewritten Verdict = "rewritten" // the chain no longer contains the head that was kept
	VerdictGuard     Verdict = "guard"     // a trigger that keeps records from being changed is off
	VerdictMore      Verdict = "more"      // there is more of what was just reported
)

// Evidence is one finding of a verification: how many rows of a table are well, or what is wrong with one.
type Evidence struct {
	Verdict Verdict
	Problem bool   // something is wrong
	Seal    int64  // 0: none covers it
	What    string // "entry", "move" (a changed key), "gap" (an interruption), "context" (who), "attempt", "outcome" (of one), "erasure", "purge", "seal"
	Table   string // whose history, as in SQL
	Segment int    // of the history
	V       int64  // position of the row that is wrong; 0 when it is more than one
	Entries int64  // number of rows
	Message string // in words
}

// VerifyOptions say what is verified against what.
type VerifyOptions struct {
	// Head is the end of the chain as it was kept elsewhere. Without it, somebody who owns the database and made all seals anew is not
	// found out.
	Head Head
	// Progress is called after each table with the number of sealed rows verified, and of all. nil: not.
	Progress func(done, total int64)
}

// largestEvidence bounds how much of one table is kept in memory.
const largestEvidence = 10000

// Verify compares everything that was sealed with what is there now and yields what it finds, table by table: counts of rows that are
// intact, lawfully erased, lawfully purged or not sealed yet, and problems. A row that was tampered with is named, also when an erasure
// came over it. It may run while others write.
//
// Before the first seal there is nothing to verify, and nothing is counted. Of one table at most ten thousand
// findings are yielded, and then one [VerdictMore]. An error ends it.
func (v *Volvra) Verify(ctx context.Context, o VerifyOptions) iter.Seq2[Evidence, error] {
	return func(yield func(Evidence, error) bool) {
		report := func(found []Evidence, err error) bool {
			if err != nil {
				yield(Evidence{}, err)
				return false
			}
			for _, e := range found {
				if !yield(e, nil) {
					return false
				}
			}
			return true
		}
		var number *int64
		if o.Head.Number != 0 {
			number = &o.Head.Number
		}
		if !report(v.evidence(ctx, "verify_chain($1, $2)", number, o.Head.Hash)) || !report(v.evidence(ctx, "verify_ledgers()")) {
			return
		}
		type part struct {
			What             string
			Tracked, Segment int
			Entries          int64
		}
		parts, err := rowsOf(ctx, v.db, pgx.RowToStructByPos[part], "select what, tracked, segment, entries from volvra.verify_parts()")
		if !report(nil, err) {
			return
		}
		var done, total int64
		for _, p := range parts {
			total += p.Entries
		}
		for _, p := range parts {
			if !report(v.evidence(ctx, "verify_part($1, $2, $3)", p.What, p.Tracked, p.Segment)) {
				return
			}
			done += p.Entries
			if o.Progress != nil {
				o.Progress(done, total)
			}
		}
	}
}

// evidence returns what a function finds, as far as it is reported.
func (v *Volvra) evidence(ctx context.Context, function string, args ...any) ([]Evidence, error) {
	sql := fmt.Sprintf(`select finding, problem, coalesce(seal, 0), what, coalesce("table", ''), coalesce(segment, 0), coalesce(v, 0), coalesce(entries, 0), message from volvra.%s limit %d`,
		function, largestEvidence+1)
	found, err := rowsOf(ctx, v.db, pgx.RowToStructByPos[Evidence], sql, args...)
	if len(found) > largestEvidence {
		found[largestEvidence] = Evidence{Verdict: VerdictMore, Problem: true, Message: fmt.Sprintf("there is more than these %d: volvra.verify lists all in SQL", largestEvidence)}
	}
	return found, err
}
