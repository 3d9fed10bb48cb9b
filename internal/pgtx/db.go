package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn and pgx.Tx have in common.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Statuses of a connection as the server reports them with each answer.
const (
	idle   = 'I'
	failed = 'E'
)

// InTx reports whether db is inside a transaction of the caller's: a pgx.Tx of
// any kind, or a connection on which the caller has executed BEGIN. A type of
// the caller's own that hides a transaction behind [DB]'s four methods can't be
// recognised; it must have a method Conn() *pgx.Conn, as pgx.Tx has.
func InTx(db DB) bool {
	if _, ok := db.(pgx.Tx); ok {
		return true
	}
	conn := connOf(db)
	return conn != nil && conn.PgConn().TxStatus() != idle
}

// connOf returns the connection that db stands on, nil when db takes one from a
// pool for each call.
func connOf(db DB) *pgx.Conn {
	switch db := db.(type) {
	case *pgx.Conn:
		return db
	case interface{ Conn() *pgx.Conn }:
		return db.Conn()
	}
	return nil
}
