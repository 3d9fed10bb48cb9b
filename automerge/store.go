package automerge

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/internal/pgtx"
)

// Store keeps documents. It is safe for as many goroutines as its database handle is.
//
// Given a pgx.Tx, every call becomes part of that transaction. A call that fails is undone by a savepoint and leaves the
// transaction usable, unless its context ended, which closes the connection.
type Store struct {
	db     DB
	limits Limits
}

// Options of a [Store].
type Options struct {
	Limits Limits
}

// New returns a store on db with default options. It does nothing in the database: see [Install].
func New(db DB) *Store { return NewWith(db, Options{}) }

// NewWith is [New] with options.
func NewWith(db DB, o Options) *Store {
	return &Store{db: db, limits: o.Limits.orDefault()}
}

// errFolded says that a document was folded between two statements.
var errFolded = &pgconn.PgError{Code: "40001", Message: "the document was folded meanwhile: repeat the transaction"}

// In returns the same store on another handle, such as a transaction.
func (s *Store) In(db DB) *Store {
	in := *s
	in.db = db
	return &in
}

// write runs fn in a transaction, which is repeated while the database asks for that; in the caller's transaction it runs once, under a savepoint.
func (s *Store) write(ctx context.Context, fn func(tx pgx.Tx) error) error {
	once := func() error { return pgtx.Run(ctx, s.db, pgx.TxOptions{}, fn) }
	if pgtx.InTx(s.db) {
		return refused(once())
	}
	return refused(pgtx.Retry(ctx, once))
}
