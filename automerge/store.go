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
	db      DB
	limits  Limits
	mustFit bool
	engines *engineCache // shared by what [Store.In] returns
}

// Options of a [Store].
type Options struct {
	Limits Limits
	Edit   EditOptions
	// Fit makes every write prove that the changes fit the document: that the objects, elements and values that their operations name are there, and of the kind
	// that they take them for. Automerge never makes others. That takes a pass over the document, as to read it does; without, a change that was forged with
	// care is found when the document is read, which then fails until the change is removed. For documents that people write who do not trust each other.
	// What SQL clients append is always proven.
	Fit bool
}

// New returns a store on db with default options. It does nothing in the database: see [Install].
func New(db DB) *Store { return NewWith(db, Options{}) }

// NewWith is [New] with options.
func NewWith(db DB, o Options) *Store {
	return &Store{db: db, limits: o.Limits.orDefault(), mustFit: o.Fit, engines: newEngineCache(o.Edit)}
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
