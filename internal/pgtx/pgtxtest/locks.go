package pgtxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// heldBySession reports whether the session holds an advisory lock, and not
// only the transaction, described as session.sql does. Only giving it back
// tells, so the lock is gone afterwards.
func heldBySession(t testing.TB, conn *pgx.Conn, lock string) bool {
	t.Helper()
	var mode string
	var classID, objID, kind int64
	if _, err := fmt.Sscan(lock, &mode, &classID, &objID, &kind); err != nil {
		t.Fatalf("advisory lock %q: %v", lock, err)
	}
	unlock := "pg_advisory_unlock"
	if mode == "ShareLock" {
		unlock = "pg_advisory_unlock_shared"
	}
	// Locks on one bigint have kind 1 and their halves in the two ids, locks on
	// two ints have kind 2.
	sql, args := fmt.Sprintf("select pg_catalog.%s($1::bigint)", unlock), []any{pgx.QueryExecModeExec, classID<<32 | objID}
	if kind == 2 {
		sql, args = fmt.Sprintf("select pg_catalog.%s($1::int, $2::int)", unlock), []any{pgx.QueryExecModeExec, int32(classID), int32(objID)}
	}
	var held bool
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&held); err != nil {
		t.Fatalf("advisory lock %q: %v", lock, err)
	}
	return held
}

// message is the text of a server's error.
func message(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Message
	}
	return ""
}
