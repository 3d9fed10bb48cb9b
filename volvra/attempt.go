package volvra

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
)

// What became of an attempt: [Attempt].Outcome.
const (
	OutcomeDone    = "done"    // what it was to do is done
	OutcomeRefused = "refused" // nothing was changed, for a reason that was foreseen
	OutcomeFailed  = "failed"  // an error; also when its transaction is gone and left no outcome
	OutcomeRunning = "running" // its transaction has not ended
)

// Attempt is a record of somebody who tried to change something through this package: undo, redo, erase, purge, cover, uncover. It is
// written by the database and nobody can change it.
//
// It holds no values of rows, since those may have to be erased. What was changed stands in history, under Transaction.
type Attempt struct {
	ID        int64
	Action    string          // "undo", "redo", "undo_to", "forget", "purge", "enable", "disable"
	Selection json.RawMessage // what it was to apply to: of keys their number is left, of conditions column and operator
	Policy    string          // about conflicts, the mode of an erasure, or how much of a purge
	Token     string          // digest of the plan, where the token of one was presented

	Login       string // role of the session, which can't be forged
	Role        string // what SET ROLE chose, else "none"
	Actor       string // who the application said it was
	Application string
	Client      netip.Addr // zero for a local socket

	Began   time.Time
	Ended   time.Time // zero without an outcome
	Outcome string    // one of the Outcome constants

	Rows, Skipped int64            // rows written (of an erasure or purge: entries), and rows left as they are
	Code          string           // SQLSTATE of a refusal or failure
	Reason        string           // in words
	Counts        map[string]int64 // other numbers, such as "moves" of an erasure
	Transaction   TransactionID    // that did what was done
}

// AttemptFilter says which attempts are listed. The zero value lists the latest hundred.
type AttemptFilter struct {
	From, To time.Time // begun at or after, and before; zero: unbounded
	Action   string    // empty: any, as for the next two
	Login    string    // role of the session
	Outcome  string    // one of the Outcome constants
	Limit    int       // 0: 100
}

// Attempts lists attempts, newest first. Who may call it sees those of everybody.
func (v *Volvra) Attempts(ctx context.Context, f AttemptFilter) ([]Attempt, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	return rowsOf(ctx, v.db, scanAttempt, `select id, action, selection::text, coalesce(policy, ''), coalesce(token, ''), login, role, actor, application, client, began_at, ended_at, outcome,
		coalesce(rows, 0), coalesce(skipped, 0), coalesce(code, ''), coalesce(reason, ''), counts, coalesce(transaction, '') from volvra.attempts($1, $2, $3, $4, $5, $6)`,
		timeOrNull(f.From), timeOrNull(f.To), optional(f.Action), optional(f.Login), optional(f.Outcome), f.Limit)
}

func scanAttempt(row pgx.CollectableRow) (a Attempt, err error) {
	var client *netip.Prefix
	var ended *time.Time
	err = row.Scan(&a.ID, &a.Action, (*[]byte)(&a.Selection), &a.Policy, &a.Token, &a.Login, &a.Role, &a.Actor, &a.Application, &client, &a.Began, &ended, &a.Outcome,
		&a.Rows, &a.Skipped, &a.Code, &a.Reason, &a.Counts, &a.Transaction)
	if client != nil {
		a.Client = client.Addr()
	}
	if ended != nil {
		a.Ended = *ended
	}
	return a, err
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
