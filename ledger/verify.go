package ledger

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ProblemKind says what is wrong.
type ProblemKind string

// What can be wrong with an account's entries.
const (
	// ProblemGap: a version is missing before this one.
	ProblemGap ProblemKind = "gap"
	// ProblemDuplicate: two entries of the account have this version.
	ProblemDuplicate ProblemKind = "duplicate"
	// ProblemRunningBalance: the balance before this entry and its amount don't make the balance after it.
	ProblemRunningBalance ProblemKind = "running_balance"
	// ProblemTimeOrder: the entry was booked earlier than the one that precedes it, so that balances at a time can't be relied on.
	ProblemTimeOrder ProblemKind = "time_order"
	// ProblemUnknownAccount: there are entries or a balance of an account that does not exist.
	ProblemUnknownAccount ProblemKind = "unknown_account"
	// ProblemAfterClosing: the entry was booked after the account was closed.
	ProblemAfterClosing ProblemKind = "after_closing"
)

// What can be wrong with what is kept about an account.
const (
	// ProblemStoredBalance: the account's balance is not that after its last entry.
	ProblemStoredBalance ProblemKind = "stored_balance"
	// ProblemStoredVersion: the account's version is not that of its last entry.
	ProblemStoredVersion ProblemKind = "stored_version"
	// ProblemMissingBalance: the account has no balance row.
	ProblemMissingBalance ProblemKind = "missing_balance"
	// ProblemAccountCopy: the account's balance row has another identity, asset or number of decimals.
	ProblemAccountCopy ProblemKind = "account_copy"
	// ProblemHeld: what is kept as held is not the sum of the open holds.
	ProblemHeld ProblemKind = "held"
	// ProblemBounds: the bounds that postings are checked against don't follow from limits, holds and closing.
	ProblemBounds ProblemKind = "bounds"
)

// What can be wrong with a transfer, a journal entry, or what is linked to them.
const (
	// ProblemAmount: an amount is not finite, has the wrong sign or too many decimals.
	ProblemAmount ProblemKind = "amount"
	// ProblemSameAccount: an account pays itself.
	ProblemSameAccount ProblemKind = "same_account"
	// ProblemAsset: a transfer is between accounts of different assets.
	ProblemAsset ProblemKind = "asset"
	// ProblemPeriod: the event time lay in a closed period when it was booked.
	ProblemPeriod ProblemKind = "period"
	// ProblemJournalSum: the postings of a journal entry don't sum to zero in an asset.
	ProblemJournalSum ProblemKind = "journal_sum"
	// ProblemJournalLegs: a journal entry has fewer than two postings.
	ProblemJournalLegs ProblemKind = "journal_legs"
	// ProblemJournalMissing: a posting belongs to no journal entry.
	ProblemJournalMissing ProblemKind = "journal_missing"
	// ProblemJournalCopy: a posting has other times than its journal entry.
	ProblemJournalCopy ProblemKind = "journal_copy"
	// ProblemHold: a hold contradicts itself, or the transfer that posted it.
	ProblemHold ProblemKind = "hold"
	// ProblemReversal: a reversal is not the opposite of what it took back, or one of the two is missing.
	ProblemReversal ProblemKind = "reversal"
	// ProblemBalancing: a balancing transfer moved more than it was asked for, or is missing.
	ProblemBalancing ProblemKind = "balancing"
	// ProblemAssetSum: the balances of an asset don't sum to zero.
	ProblemAssetSum ProblemKind = "asset_sum"
)

// What can be wrong with the guards of the books, or with the report.
const (
	// ProblemGuard: a trigger that refuses changes is missing, disabled or another one.
	ProblemGuard ProblemKind = "guard"
	// ProblemPrivilege: somebody who does not own the books may write a table without the functions of this package, or everybody may
	// execute those that book.
	ProblemPrivilege ProblemKind = "privilege"
	// ProblemFunction: a function runs with the rights of its owner and without a pinned search_path, belongs to somebody else, or is not
	// the one that this version of the package installs.
	ProblemFunction ProblemKind = "function"
	// ProblemRowSecurity: row-level security is on, which hides rows, perhaps from Verify.
	ProblemRowSecurity ProblemKind = "row_security"
	// ProblemReplicaRole: session_replication_role is set to replica, so that triggers don't fire.
	ProblemReplicaRole ProblemKind = "replica_role"
	// ProblemMore: there is more of what was just reported.
	ProblemMore ProblemKind = "more"
)

// Problem is something that is wrong. Fields that say nothing about it are zero.
type Problem struct {
	Kind     ProblemKind
	Account  AccountID
	Version  int64     // of the account's entry
	Source   uuid.UUID // the transfer, journal entry or hold
	Message  string    // in words
	Expected string    // what should be there
	Found    string    // what is there
}

// VerifyOptions says what is verified. The zero value verifies everything.
type VerifyOptions struct {
	// Since leaves out entries that were booked before, which makes it as quick as there is little new. What concerns balances, holds,
	// reversals and guards is verified all the same.
	Since time.Time
	// Accounts verifies these accounts alone, without sums, journal entries, holds, reversals and guards.
	Accounts []AccountID
	// PartEntries is how many entries one statement reads, or somewhat more: an account is not divided. Smaller parts hold back vacuum for
	// a shorter time and read more in all. 0: an eighth of the books, at least four million.
	PartEntries int64
	// Progress is called after each part with the number of entries that have been verified, and of all. nil: not.
	Progress func(done, total int64)
}

// largestReport bounds how many problems of one part are kept in memory.
const largestReport = 1000

// Verify checks every promise of the books from the books alone and yields what is wrong; nothing at all is good news. It goes through
// them part by part, each of which it sees at one moment, so it may run while others book. All that they see of it is its reading.
// The guards are verified, too: triggers, privileges, functions.
//
// Limits may be set tighter than what an account holds, so a balance beyond its limits is no problem. An owner who rewrites the books
// consistently, and enables every guard again, can't be found out from the books: keep a copy, such as the changes ([Ledger.Changes]), elsewhere.
//
// Of one part at most a thousand problems are yielded, and then one of the kind [ProblemMore]. An error ends it;
// [ErrAccountNotFound]: one of the accounts does not exist.
func (l *Ledger) Verify(ctx context.Context, o VerifyOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		// report yields what was found, and returns false when the loop shall end.
		report := func(found []Problem, err error) bool {
			if err != nil {
				yield(Problem{}, err)
				return false
			}
			for _, p := range found {
				if !yield(p, nil) {
					return false
				}
			}
			return true
		}
		since := toTime(o.Since)
		if len(o.Accounts) == 0 && !(report(l.problems(ctx, "verify_access()")) && report(l.changedFunctions(ctx)) &&
			report(l.problems(ctx, "verify_books($1)", since))) {
			return
		}
		parts, err := l.verifyParts(ctx, o)
		if !report(nil, err) {
			return
		}
		var done, total int64
		for _, p := range parts {
			total += p.entries
		}
		for _, p := range parts {
			if !report(l.problems(ctx, "verify_range($1, $2, $3)", p.first, p.last, since)) {
				return
			}
			done += p.entries
			if o.Progress != nil {
				o.Progress(done, total)
			}
		}
	}
}

// problems returns what a function finds, as far as it is reported.
func (l *Ledger) problems(ctx context.Context, function string, args ...any) ([]Problem, error) {
	sql := fmt.Sprintf("select kind, account_id, coalesce(version, 0), source_id, message, coalesce(expected, ''), coalesce(found, '') from ledger.%s limit %d",
		function, largestReport+1)
	found, err := list(ctx, l, scanProblem, sql, args...)
	if len(found) > largestReport {
		found[largestReport] = Problem{Kind: ProblemMore, Message: fmt.Sprintf("there are more problems than these %d: ledger.verify lists all in SQL", largestReport)}
	}
	return found, err
}

func scanProblem(row pgx.CollectableRow) (p Problem, err error) {
	err = row.Scan((*string)(&p.Kind), &p.Account, &p.Version, &p.Source, &p.Message, &p.Expected, &p.Found)
	return p, err
}

// verifyPart is a range of account numbers and how many entries they have.
type verifyPart struct {
	first, last int32
	entries     int64
}

func (l *Ledger) verifyParts(ctx context.Context, o VerifyOptions) ([]verifyPart, error) {
	if len(o.Accounts) == 0 {
		return list(ctx, l, scanVerifyPart, "select * from ledger.verify_parts($1)", pgtype.Int8{Int64: o.PartEntries, Valid: o.PartEntries > 0})
	}
	ids := make([]pgtype.UUID, len(o.Accounts))
	for i, id := range o.Accounts {
		ids[i] = pgUUID(id)
	}
	return list(ctx, l, scanVerifyPart, `select a.no, a.no, coalesce(b.version, 0)
		from unnest($1::uuid[]) id cross join ledger.account_no(id) a (no) left join ledger.balance b on b.no operator(pg_catalog.=) a.no`, ids)
}

func scanVerifyPart(row pgx.CollectableRow) (p verifyPart, err error) {
	err = row.Scan(&p.first, &p.last, &p.entries)
	return p, err
}
