package pgtx_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// handles are the ways in which a caller's transaction can come.
var handles = []string{"tx", "nested tx", "pool's tx", "conn after BEGIN", "pool's conn after BEGIN"}

// inTransaction opens a transaction with a table of items of its own, which has
// one, 0, and returns its handle.
func inTransaction(t *testing.T, connString, handle string, mode pgx.QueryExecMode) pgtx.DB {
	t.Helper()
	ctx := t.Context()
	var db pgtx.DB
	var err error
	switch handle {
	case "tx", "nested tx":
		var tx pgx.Tx
		tx, err = connect(t, connString, mode).Begin(ctx)
		must(t, err)
		if handle == "nested tx" {
			tx, err = tx.Begin(ctx)
		}
		db = tx
	case "pool's tx":
		db, err = pool(t, connString, mode).Begin(ctx)
		t.Cleanup(func() { db.(pgx.Tx).Rollback(ctx) })
	case "conn after BEGIN":
		conn := connect(t, connString, mode)
		_, err = conn.Exec(ctx, "begin")
		db = conn
	case "pool's conn after BEGIN":
		conn, acquireErr := pool(t, connString, mode).Acquire(ctx)
		must(t, acquireErr)
		t.Cleanup(conn.Release)
		_, err = conn.Exec(ctx, "begin")
		db = conn
	}
	must(t, err)
	_, err = db.Exec(ctx, "create temporary table item (id int primary key)")
	must(t, err)
	must(t, insert(ctx, db, 0))
	return db
}

func TestInTx(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), database(t)
	for _, handle := range handles {
		if db := inTransaction(t, connString, handle, pgx.QueryExecModeCacheStatement); !pgtx.InTx(db) {
			t.Errorf("%s: InTx(%T) is false", handle, db)
		}
	}
	p := pool(t, connString, pgx.QueryExecModeCacheStatement)
	pooled, err := p.Acquire(ctx)
	must(t, err)
	defer pooled.Release()
	conn := connect(t, connString, pgx.QueryExecModeCacheStatement)
	for _, db := range []pgtx.DB{p, pooled, conn} {
		if pgtx.InTx(db) {
			t.Errorf("InTx(idle %T) is true", db)
		}
	}
	_, _ = conn.Exec(ctx, "begin; select 1/0")
	if !pgtx.InTx(conn) {
		t.Error("InTx is false for a connection whose transaction has failed")
	}
}
