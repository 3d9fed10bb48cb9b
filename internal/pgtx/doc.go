// Package pgtx runs operations on whatever database handle the caller has.
//
// Every public package of this module is made with New(db), where db is a
// *pgxpool.Pool, a *pgx.Conn or a pgx.Tx: a [DB]. With a pool, an operation is
// a transaction of its own. With the caller's transaction it must become part
// of that one, and when it fails the caller must be able to go on, so it runs
// under a savepoint. This package makes both look the same:
//
//   - [QueryRow], [Query] and [Exec] run an operation that is one statement.
//   - [Run] runs several statements as one transaction.
//   - [Guard] runs several statements that need no transaction when the
//     caller brings none (reads, or a statement with its own preparation).
//   - [Retry] repeats a transaction of one's own that lost against another.
//
// # What a failure leaves behind
//
// In the caller's transaction a failed operation is rolled back to the state
// before it, and the transaction goes on. There are two exceptions. When a
// context ends while the server is working, pgx closes the connection, and the
// transaction is gone with it; the error then matches the context's. When the
// transaction had failed before the operation began, nothing can run in it:
// [ErrTxAborted].
//
// # Round trips
//
// Outside a transaction a single statement takes one round trip. In the
// caller's transaction SAVEPOINT, statement and RELEASE are pipelined:
//
//   - pgx.QueryExecModeCacheStatement (pgx's default): one round trip, four
//     the first time that a connection sees the statement.
//   - pgx.QueryExecModeExec: one round trip, always. This is the mode to
//     choose behind a transaction pooler.
//   - pgx.QueryExecModeCacheDescribe, DescribeExec and SimpleProtocol: three
//     to four. There the server can reject the statement before it has
//     executed a SAVEPOINT that was sent along with it.
//
// A failure costs one more, for the way back.
package pgtx
