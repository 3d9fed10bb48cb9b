package volvra

import (
	"context"
	"time"

	"github.com/annals-db/annals/internal/pgtx"
)

// Seal is a link of the chain: a hash over everything that was recorded until then and not sealed before, and over the seal before it.
type Seal struct {
	Number  int64  // ascending from 1
	Hash    string // SHA-256, in hexadecimal
	At      time.Time
	Entries int64  // rows that this seal covers; 0 when nothing was new, and it is made all the same
	Reason  string // empty, or why there is no new seal: the last one is returned then, or none at all
}

// Seal seals what was committed since the last seal: entries of all histories, changed keys, interruptions, contexts, attempts, and the ledgers of
// erasures and purges. Transactions that are open meanwhile are covered by a later seal. It reads only what is new; nobody who writes
// waits for it, erasures and purges do.
//
// After a restore or a crash the first call may make no seal: call again when the transactions open then have ended. It takes READ
// COMMITTED, else [ErrIsolation].
func (v *Volvra) Seal(ctx context.Context) (s Seal, err error) {
	var at *time.Time
	err = pgtx.QueryRow(ctx, v.db, []any{&s.Number, &s.Hash, &at, &s.Entries, &s.Reason},
		"select coalesce(number, 0), coalesce(hash, ''), at, coalesce(entries, 0), coalesce(reason, '') from volvra.seal()")
	if at != nil {
		s.At = *at
	}
	return s, refused(err)
}

// Head is the end of the chain of seals. Kept elsewhere, where whoever owns the database can't reach it, it proves that the chain was not
// rewritten as a whole: see [VerifyOptions].
type Head struct {
	Number     int64     `json:"number"`
	Hash       string    `json:"hash"` // SHA-256, in hexadecimal
	At         time.Time `json:"at"`
	Coordinate string    `json:"coordinate"` // position of the database then
}

// ChainHead returns the last seal. The zero Head: there is none.
func (v *Volvra) ChainHead(ctx context.Context) (h Head, err error) {
	var number *int64
	var hash, coordinate *string
	var at *time.Time
	err = pgtx.QueryRow(ctx, v.db, []any{&number, &hash, &at, &coordinate}, "select number, hash, at, coordinate from volvra.chain_head()")
	if err != nil || number == nil {
		return Head{}, refused(err)
	}
	return Head{Number: *number, Hash: *hash, At: *at, Coordinate: *coordinate}, nil
}
