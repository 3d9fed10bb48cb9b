package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Transfers books a batch in input order, all of it or nothing, and returns the results in the same order. The same
// account may stand in it many times. A refusal is about the transfer at Error.Index. A repeated batch returns its first results;
// transfers that were booked before and new ones may stand in one batch.
func (l *Ledger) Transfers(ctx context.Context, batch []TransferParams) ([]Posted, error) {
	posted, _, err := l.transfers(ctx, batch, false)
	return posted, err
}

// TransferEach books what can be booked of a batch, in input order: a refused transfer does not stop the others.
// refused has nil or the *Error of each transfer; err is about the call as a whole, and then nothing was booked.
func (l *Ledger) TransferEach(ctx context.Context, batch []TransferParams) (posted []Posted, refused []error, err error) {
	return l.transfers(ctx, batch, true)
}

func (l *Ledger) transfers(ctx context.Context, batch []TransferParams, partial bool) ([]Posted, []error, error) {
	if len(batch) == 0 {
		return nil, nil, nil
	}
	args, err := newBatchArgs(batch)
	if err != nil {
		return nil, nil, err
	}
	var r batchResult
	if len(batch) == 2 && !partial {
		if err := l.batch(ctx, &r, "ledger.pair($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)", args.pair()...); err != nil {
			return nil, nil, err
		}
	}
	if r.replayed == nil {
		err := l.batch(ctx, &r, "ledger.transfers_at($1, $2, $3, $4, $5, $6, $7::text[]::jsonb[], $8)",
			args.accounts, args.from, args.to, args.amount, args.id, args.eventAt, args.metadata, partial)
		if err != nil {
			return nil, nil, err
		}
	}
	posted, refused := make([]Posted, len(batch)), make([]error, len(batch))
	for i := range batch {
		if r.refused[i] != nil {
			var why refusal
			if err := json.Unmarshal([]byte(*r.refused[i]), &why); err != nil {
				return nil, nil, fmt.Errorf("reading the refusal %q: %w", *r.refused[i], err)
			}
			refused[i] = why.err(nil)
			continue
		}
		posted[i] = Posted{
			ID: TransferID(args.id[i].Bytes), Replayed: r.replayed[i], FromVersion: r.fromVersion[i], ToVersion: r.toVersion[i],
			FromBalance: fromNumeric(r.fromBalance[i]), ToBalance: fromNumeric(r.toBalance[i]), CreatedAt: *r.createdAt[i],
		}
	}
	return posted, refused, nil
}

// batchResult is ledger.batch_result; all nil where it is null.
type batchResult struct {
	replayed               []bool
	fromVersion, toVersion []int64
	fromBalance, toBalance []pgtype.Numeric
	createdAt              []*time.Time
	refused                []*string
}

func (l *Ledger) batch(ctx context.Context, r *batchResult, function string, args ...any) error {
	return l.call(ctx, []any{&r.replayed, &r.fromVersion, &r.toVersion, &r.fromBalance, &r.toBalance, &r.createdAt, &r.refused},
		"select (r).replayed, (r).from_version, (r).to_version, (r).from_balance, (r).to_balance, (r).created_at, (r).refused::text[] from (select "+
			function+" as r offset 0) q", args...)
}

// batchArgs are the arrays of a batch. Accounts travel once each, sorted as the database locks them; from and to are positions among
// them. Event times and metadata travel only when some transfer has them.
type batchArgs struct {
	accounts []pgtype.UUID
	from, to []int32
	amount   []pgtype.Numeric
	id       []pgtype.UUID
	eventAt  []pgtype.Timestamptz
	metadata []*string
}

func newBatchArgs(batch []TransferParams) (*batchArgs, error) {
	n := len(batch)
	a := &batchArgs{from: make([]int32, n), to: make([]int32, n), amount: make([]pgtype.Numeric, n), id: make([]pgtype.UUID, n)}
	position := make(map[AccountID]int32, n)
	for _, t := range batch {
		position[t.From], position[t.To] = 0, 0
	}
	accounts := make([]AccountID, 0, len(position))
	for id := range position {
		accounts = append(accounts, id)
	}
	slices.SortFunc(accounts, func(x, y AccountID) int { return bytes.Compare(x[:], y[:]) })
	a.accounts = make([]pgtype.UUID, len(accounts))
	for i, id := range accounts {
		position[id] = int32(i + 1)
		a.accounts[i] = pgtype.UUID{Bytes: id, Valid: true} // the zero id is refused as unknown, by name
	}
	for i, t := range batch {
		if t.ID.IsZero() {
			t.ID = NewTransferID()
		}
		a.from[i], a.to[i], a.id[i] = position[t.From], position[t.To], pgUUID(t.ID)
		var err error
		if a.amount[i], err = toNumeric(t.Amount); err != nil {
			return nil, at(i, err)
		}
		if !t.EventAt.IsZero() {
			if a.eventAt == nil {
				a.eventAt = make([]pgtype.Timestamptz, n)
			}
			a.eventAt[i] = toTime(t.EventAt)
		}
		metadata, err := toJSON(t.Metadata)
		if err != nil {
			return nil, at(i, err)
		}
		if metadata != nil {
			if a.metadata == nil {
				a.metadata = make([]*string, n)
			}
			a.metadata[i] = metadata
		}
	}
	return a, nil
}

// at says which transfer of a batch an error of one is about.
func at(i int, err error) error {
	if e, ok := err.(*Error); ok {
		e.Index = i
	}
	return err
}

// pair are the arguments of ledger.pair: the four entries (1 and 2 of the first transfer, 3 and 4 of the second) in the order of their
// accounts, then the two transfers.
func (a *batchArgs) pair() []any {
	position := []int32{a.from[0], a.to[0], a.from[1], a.to[1]}
	order := []int32{1, 2, 3, 4}
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(position[x-1], position[y-1]) })
	args := []any{order}
	for i := range 2 {
		var eventAt pgtype.Timestamptz
		if a.eventAt != nil {
			eventAt = a.eventAt[i]
		}
		var metadata *string
		if a.metadata != nil {
			metadata = a.metadata[i]
		}
		args = append(args, a.accounts[a.from[i]-1], a.accounts[a.to[i]-1], a.amount[i], a.id[i], eventAt, metadata)
	}
	return args
}
