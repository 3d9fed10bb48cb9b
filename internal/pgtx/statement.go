package pgtx

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Query runs an operation that is one statement and hands its rows to read.
// Outside a transaction it is one by itself; in the caller's it is guarded as
// [Guard] does, in the round trips that the package documentation lists.
//
// A failure of the statement is undone, and read is not called if the server
// rejects it at once. A failure of read undoes nothing, in either case: by then
// the server has executed the statement. read need neither reach the last row
// nor close the rows.
func Query(ctx context.Context, db DB, read func(rows pgx.Rows) error, sql string, args ...any) error {
	if !InTx(db) {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		return readRows(rows, read)
	}
	conn := connOf(db)
	sender, ok := db.(batchSender)
	if conn == nil || !ok {
		return queryInSteps(ctx, db, nil, read, sql, args)
	}
	// The connection of a transaction that has ended belongs to somebody else. An
	// empty batch sends nothing, but tells.
	if err := sender.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return err
	}
	statements := statementsOf(conn)
	if statements.canPipeline(conn, sql, args) {
		err := queryPipelined(ctx, db, sender, conn, read, sql, args)
		if !HasCode(err, cachedPlanChanged) || !statements.forget(ctx, conn, sql) {
			return err
		}
	}
	return queryInSteps(ctx, db, conn, read, sql, args)
}

// batchSender is what pgx's handles have beyond [DB].
type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// QueryRow is [Query] for one row, which is scanned into dest. It returns
// pgx.ErrNoRows when the statement returns none.
func QueryRow(ctx context.Context, db DB, dest []any, sql string, args ...any) error {
	return Query(ctx, db, func(rows pgx.Rows) error {
		if !rows.Next() {
			return cmp.Or(rows.Err(), pgx.ErrNoRows)
		}
		return rows.Scan(dest...)
	}, sql, args...)
}

// Exec is [Query] for a statement whose rows, if it has any, don't matter.
func Exec(ctx context.Context, db DB, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = Query(ctx, db, func(rows pgx.Rows) error {
		rows.Close()
		tag = rows.CommandTag()
		return nil
	}, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return tag, nil
}

// queryPipelined sends SAVEPOINT, the statement and RELEASE together.
func queryPipelined(ctx context.Context, db DB, sender batchSender, conn *pgx.Conn, read func(pgx.Rows) error, sql string, args []any) error {
	var batch pgx.Batch
	batch.Queue(setSavepoint)
	batch.Queue(sql, args...)
	batch.Queue(releaseSavepoint)
	results := sender.SendBatch(ctx, &batch)
	defer results.Close() // for a panic in read
	if _, err := results.Exec(); err != nil {
		results.Close()
		return notSet(err)
	}
	rows, _ := results.Query() // the error is in rows, too
	err := readRows(rows, read)
	err = cmp.Or(err, results.Close())
	if conn.PgConn().TxStatus() == failed {
		return undo(ctx, db, err)
	}
	return err
}

// queryInSteps sends SAVEPOINT, the statement and RELEASE one after the other,
// and prepares the statement for being pipelined the next time.
func queryInSteps(ctx context.Context, db DB, conn *pgx.Conn, read func(pgx.Rows) error, sql string, args []any) error {
	var readErr error
	err := Guard(ctx, db, func(db DB) error {
		if conn != nil {
			if err := statementsOf(conn).prepare(ctx, conn, sql, args); err != nil {
				return err
			}
		}
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		readErr = readRows(rows, read)
		if conn == nil || conn.IsClosed() || conn.PgConn().TxStatus() == failed {
			return readErr
		}
		return nil
	})
	return cmp.Or(err, readErr)
}

// readRows hands rows to read and closes them. An error of the server's goes
// before one of read's.
func readRows(rows pgx.Rows, read func(pgx.Rows) error) error {
	defer rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	err := read(rows)
	rows.Close()
	return cmp.Or(rows.Err(), err)
}
