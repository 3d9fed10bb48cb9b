package volvra_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/volvra"
)

func TestUninstall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, histories := range []volvra.Histories{volvra.KeepHistory, volvra.DropHistory} {
		_, pool := covered(t)
		run(t, pool, "insert into shop.orders values (1, 'eva', 1)", "select volvra.mark('m')")
		const triggers = "select count(*) from pg_trigger where tgrelid = 'shop.orders'::regclass"
		if n := column[int64](t, pool, triggers); n[0] == 0 {
			t.Fatal("nothing is there to be removed")
		}
		// In a transaction that is rolled back it leaves everything as it was.
		tx := must[pgx.Tx](t)(pool.Begin(ctx))
		ok(t, volvra.Uninstall(ctx, tx, histories))
		ok(t, tx.Rollback(ctx))
		run(t, pool, "update shop.orders set total = 2", "select * from volvra.status()")
		ok(t, volvra.Uninstall(ctx, pool, histories))
		if n := column[int64](t, pool, triggers); n[0] != 0 {
			t.Errorf("%d triggers are left", n[0])
		}
		run(t, pool, "update shop.orders set total = 3")
		kept := column[bool](t, pool, "select to_regclass('annals.h1') is not null")[0]
		if kept == bool(histories) {
			t.Errorf("history kept: %v", kept)
		}
		if kept {
			if n := column[int64](t, pool, "select count(*) from annals.h1"); n[0] != 2 {
				t.Errorf("%d entries are left", n[0])
			}
		}
		if n := column[int64](t, pool, "select count(*) from pg_namespace where nspname = 'volvra'")[0] + column[int64](t, pool, "select count(*) from pg_event_trigger")[0]; n != 0 && histories == volvra.DropHistory {
			t.Errorf("%d things are left", n)
		}
		ok(t, volvra.Install(ctx, pool))
		cover(t, volvra.New(pool), "shop.orders")
		ok(t, volvra.Uninstall(ctx, pool, volvra.DropHistory))
		ok(t, volvra.Uninstall(ctx, pool, volvra.DropHistory))
	}
}

// No call leaves anything in the session.
func TestSessionIsUnchanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool := covered(t)
	run(t, pool, "create table shop.lines (id int primary key)", "insert into shop.orders values (1, 'eva', 1)")
	conn := connectAs(t, pool.Config().ConnString(), "")
	run(t, conn, "set search_path = shop, public", "set datestyle = 'German'")
	v := volvra.New(conn)
	at := now(t, pool)
	for name, call := range map[string]func() error{
		"enable":        func() error { _, err := v.Enable(ctx, "lines", volvra.Options{}); return err },
		"enable schema": func() error { _, err := v.EnableSchema(ctx, "shop", volvra.Options{}); return err },
		"disable": func() error {
			v.Enable(ctx, "shop.lines", volvra.Options{})
			_, err := v.Disable(ctx, "shop.lines", volvra.DisableOptions{SaveRows: true})
			return err
		},
		"refused":   func() error { v.Enable(ctx, "pg_class", volvra.Options{}); return nil },
		"uncovered": func() error { _, err := v.Uncovered(ctx); return err },
		"status":    func() error { _, err := v.Status(ctx); return err },
		"health":    func() error { _, err := v.Health(ctx); return err },
		"preflight": func() error { _, err := v.Preflight(ctx, "orders"); return err },
		"storage":   func() error { _, err := v.Storage(ctx); return err },
		"transactions": func() error {
			_, err := v.Transactions(ctx, volvra.Selection{Everything: true}, volvra.Page{})
			return err
		},
		"empty selection": func() error { v.Transactions(ctx, volvra.Selection{}, volvra.Page{}); return nil },
		"activity":        func() error { _, err := v.Activity(ctx, volvra.ByHour, volvra.Selection{Everything: true}); return err },
		"history":         func() error { _, err := v.History(ctx, "orders", volvra.Key{"1"}, 0); return err },
		"as of":           func() error { _, err := volvra.AsOf[map[string]any](ctx, v, "orders", at); return err },
		"row as of": func() error {
			_, _, err := volvra.AsOfRow[map[string]any](ctx, v, "orders", volvra.Key{"1"}, at)
			return err
		},
		"as of nothing": func() error { volvra.AsOf[map[string]any](ctx, v, "orders", "2001-01-01"); return nil },
		"grant":         func() error { return volvra.Grant(ctx, conn, "", "", "") },
	} {
		pgtxtest.AssertSessionUnchanged(t, conn, func() {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Calls in a transaction of the caller's leave it usable when they fail, in every mode of executing statements.
func TestInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'eva', 1)")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config := pool.Config().ConnConfig.Copy()
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		ok(t, err)
		tx := must[pgx.Tx](t)(conn.Begin(ctx))
		v := volvra.New(tx)
		at := must[volvra.Moment](t)(v.Coordinate(ctx))
		for range 2 {
			if _, err := v.Enable(ctx, "shop.nothing", volvra.Options{}); err == nil {
				t.Error("covered a table that is not there")
			}
			if _, err := volvra.AsOf[map[string]any](ctx, v, "shop.orders", "2001-01-01"); err == nil {
				t.Error("read the past before coverage")
			}
			if _, err := v.Transactions(ctx, volvra.Selection{}, volvra.Page{}); err == nil {
				t.Error("an empty selection")
			}
			rows, err := volvra.AsOf[map[string]any](ctx, v, "shop.orders", at)
			if err != nil || len(rows) != 1 {
				t.Errorf("mode %v: %v, %v", mode, rows, err)
			}
			if list, err := v.History(ctx, "shop.orders", volvra.Key{"1"}, 5); err != nil || len(list) != 1 {
				t.Errorf("mode %v: %v, %v", mode, list, err)
			}
			if list, err := v.Transactions(ctx, volvra.Selection{Tables: []string{"shop.orders"}}, volvra.Page{}); err != nil || len(list) != 1 {
				t.Errorf("mode %v: %v, %v", mode, list, err)
			}
			if _, err := v.Enable(ctx, "shop.orders", volvra.Options{WarnRows: 100}); err != nil {
				t.Errorf("mode %v: %v", mode, err)
			}
		}
		ok(t, tx.Rollback(ctx))
		ok(t, conn.Close(ctx))
	}
}
