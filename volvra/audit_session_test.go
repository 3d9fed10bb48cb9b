package volvra_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
	"github.com/annals-db/annals/volvra"
)

// TestAuditLeavesSessionAlone: in the caller's transaction and without prepared statements, succeeding and refused.
func TestAuditLeavesSessionAlone(t *testing.T) {
	t.Parallel()
	_, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'a', 1)", "update shop.orders set total = 2", "select annals.tick()", "select annals.rotate(1, 0)", "select annals.seal_segments()",
		"update annals.tick set at = at - interval '2 hours'")
	config, err := pgx.ParseConfig(pool.Config().ConnString())
	ok(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	v := volvra.New(tx)
	for name, call := range map[string]func() error{
		"Seal":        func() error { _, err := v.Seal(t.Context()); return err },
		"ChainHead":   func() error { _, err := v.ChainHead(t.Context()); return err },
		"Fingerprint": func() error { _, err := v.Fingerprint(t.Context()); return err },
		"ChangedCode": func() error { _, err := v.ChangedCode(t.Context(), 0); return err },
		"Forget": func() error {
			_, err := v.Forget(t.Context(), "shop.orders", volvra.Key{"1"}, volvra.Redact, "r")
			return err
		},
		"SetRetention": func() error {
			return v.SetRetention(t.Context(), "shop.orders", volvra.Retention{Keep: 36 * time.Hour, KeepEntries: 3})
		},
		"ResetRetention": func() error { return v.ResetRetention(t.Context(), "shop.orders") },
		"Purgeable":      func() error { _, err := v.Purgeable(t.Context(), volvra.PurgeOptions{}); return err },
		"Purge":          func() error { _, err := v.Purge(t.Context(), volvra.PurgeOptions{Partial: true}); return err },
		"Maintain":       func() error { _, err := v.Maintain(t.Context(), volvra.MaintainOptions{Sync: true}); return err },
		"Attempts": func() error {
			_, err := v.Attempts(t.Context(), volvra.AttemptFilter{From: time.Unix(0, 0), Action: "purge"})
			return err
		},
		"Erasures": func() error { _, err := v.Erasures(t.Context()); return err },
		"Verify": func() error {
			for _, err := range v.Verify(t.Context(), volvra.VerifyOptions{Head: volvra.Head{Number: 1, Hash: "x"}}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		pgtxtest.AssertSessionUnchanged(t, conn, func() {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	pgtxtest.AssertSessionUnchanged(t, conn, func() {
		if _, err := v.Forget(t.Context(), "shop.orders", nil, volvra.Redact, "r"); err == nil {
			t.Error("an empty key was not refused")
		}
	})
}
