package volvra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/annals-db/annals/volvra"
)

// TestSealUnderLoad: whatever is written, rolled back, erased and purged while seals are made, verification has nothing to say about it.
func TestSealUnderLoad(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	ok(t, v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: 50 * time.Millisecond}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for ctx.Err() == nil {
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				key := r.IntN(30)
				for range 1 + r.IntN(3) {
					sql := []string{
						"insert into shop.orders values (%d, 'c', 1) on conflict (id) do update set total = shop.orders.total + 1",
						"update shop.orders set total = total + 1 where id = %d", "delete from shop.orders where id = %d",
						"update shop.orders set id = id + 30 where id = %d and not exists (select from shop.orders where id = %[1]d + 30)",
						"savepoint s; update shop.orders set note = 'x' where id = %d; rollback to savepoint s",
					}[r.IntN(5)]
					if _, err := tx.Exec(t.Context(), fmt.Sprintf(sql, key)); err != nil {
						break // a key that another one took, or a deadlock: rolled back
					}
				}
				time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
				if r.IntN(4) == 0 {
					err = tx.Rollback(t.Context())
				} else if err = tx.Commit(t.Context()); err != nil {
					err = nil // it had failed
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			steps, err := v.Maintain(t.Context(), volvra.MaintainOptions{SealEvery: time.Microsecond, SegmentBytes: 32 << 10, Partial: i%2 == 0})
			if err != nil {
				t.Errorf("after %v: %v", steps, err)
				return
			}
		}
	})
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := v.Forget(t.Context(), "shop.orders", volvra.KeyOf(i%60), volvra.Redact, "test"); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for ctx.Err() == nil {
		if _, problems := verdicts(t, v, volvra.VerifyOptions{}); problems != nil {
			t.Errorf("while it went on: %v", problems)
			break
		}
	}
	wg.Wait()
	seal(t, v)
	counts, problems := verdicts(t, v, volvra.VerifyOptions{})
	if problems != nil || counts[volvra.VerdictUnsealed] != 0 || counts[volvra.VerdictIntact] == 0 || counts[volvra.VerdictErased] == 0 || counts[volvra.VerdictPurged] == 0 {
		t.Errorf("at the end %v, problems %v", counts, problems)
	}
}
