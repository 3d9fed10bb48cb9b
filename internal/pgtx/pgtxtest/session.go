// Package pgtxtest checks in tests that an operation leaves a session as it was.
package pgtxtest

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

//go:embed session.sql
var sessionSQL string

//go:embed constraints.sql
var constraintsSQL string

// AssertSessionUnchanged runs fn and fails t, naming what differs, when the
// session of conn is not as it was before: its settings with custom ones,
// search_path and the transaction's modes among them, users and role, advisory
// locks of the session, channels it listens to, temporary relations, named
// cursors, the modes that SET CONSTRAINTS ALL gave the transaction, and whether
// it is in a transaction at all.
//
// PostgreSQL doesn't list custom settings. Those that functions in the database
// read or set by name are found; name others in custom. One that was used reads
// the empty string afterwards and no longer NULL; that counts as unset.
//
// Statements that the driver prepared don't count, nor do advisory locks that end
// with the transaction. Run it inside a transaction to see settings that fn left
// for its rest. fn may fail: the state is compared even so. But a session whose
// transaction has failed can't be looked at.
func AssertSessionUnchanged(t testing.TB, conn *pgx.Conn, fn func(), custom ...string) {
	t.Helper()
	before := snapshot(t, conn, custom)
	fn()
	after := snapshot(t, conn, custom)
	for _, difference := range differences(t, conn, before, after) {
		t.Errorf("session state changed: %s", difference)
	}
}

// snapshot reads the state as facts: what it is about, and its value.
func snapshot(t testing.TB, conn *pgx.Conn, custom []string) map[string]string {
	t.Helper()
	facts := map[string]string{"transaction status": string(conn.PgConn().TxStatus())}
	// Not t.Context(): that has ended when cleanups run.
	rows, err := conn.Query(context.Background(), sessionSQL, pgx.QueryExecModeExec, append([]string{}, custom...))
	if err != nil {
		t.Fatalf("reading the session's state: %v", err)
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		facts[name] = value
		return nil
	}); err != nil {
		t.Fatalf("reading the session's state: %v", err)
	}
	if conn.PgConn().TxStatus() == 'T' {
		facts["SET CONSTRAINTS ALL"] = constraintModes(t, conn)
	}
	return facts
}

// constraintModes finds out what no view shows: whether a constraint that would
// be immediate is deferred now, or the other way round.
func constraintModes(t testing.TB, conn *pgx.Conn) string {
	t.Helper()
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "savepoint constraint_modes"); err != nil {
		t.Fatalf("reading the constraint modes: %v", err)
	}
	// The script raises what it found, so that nothing of it remains.
	_, err := conn.Exec(ctx, constraintsSQL)
	if _, err := conn.Exec(ctx, "rollback to savepoint constraint_modes; release savepoint constraint_modes"); err != nil {
		t.Fatalf("reading the constraint modes: %v", err)
	}
	modes, ok := strings.CutPrefix(message(err), "constraint modes: ")
	if !ok {
		return "unknown" // no right to create temporary tables, or a read-only transaction
	}
	return modes
}

// differences says what changed, in a stable order.
func differences(t testing.TB, conn *pgx.Conn, before, after map[string]string) []string {
	t.Helper()
	names := maps.Clone(before)
	maps.Copy(names, after)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := before[name], after[name]
		if was == is {
			continue
		}
		if lock, ok := strings.CutPrefix(name, "advisory lock "); ok && was == "" && !heldBySession(t, conn, lock) {
			continue
		}
		found = append(found, fmt.Sprintf("%s was %q, is %q", name, was, is))
	}
	return found
}
