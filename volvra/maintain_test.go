package volvra_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annals-db/annals/volvra"
)

func stepNames(list []volvra.Step) string {
	var names []string
	for _, s := range list {
		names = append(names, s.Step)
	}
	return strings.Join(names, " ")
}

func TestMaintain(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders select g, 'c', 0 from generate_series(1, 10) g", "update shop.orders set total = 1")
	ok(t, v.SetRetention(t.Context(), volvra.AllTables, volvra.Retention{Keep: time.Hour}))
	if got := stepNames(must[[]volvra.Step](t)(v.Maintain(t.Context(), volvra.MaintainOptions{}))); got != "tick" {
		t.Errorf("steps: %s", got)
	}
	o := volvra.MaintainOptions{SealEvery: time.Hour, SegmentBytes: 1}
	if got := stepNames(must[[]volvra.Step](t)(v.Maintain(t.Context(), o))); got != "tick seal rotate index" {
		t.Errorf("steps: %s", got)
	}
	run(t, pool, "update annals.tick set at = at - interval '2 hours'")
	// Nothing is purged that was not finished when it was sealed, and any transaction of the cluster counts.
	for range 200 {
		if got := stepNames(must[[]volvra.Step](t)(v.Maintain(t.Context(), volvra.MaintainOptions{SealEvery: time.Microsecond}))); strings.HasSuffix(got, "purge") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	wantVerdicts(t, v, map[volvra.Verdict]int64{volvra.VerdictPurged: 20})
	if got := text(t, pool, `select step from volvra.maintain('{"seal_every": "0 seconds"}')`); !strings.HasPrefix(got, "(tick)") {
		t.Errorf("in SQL: %s", got)
	}
	if _, err := pool.Exec(t.Context(), `select volvra.maintain('{"often": true}')`); sqlState(err) != "VO007" {
		t.Errorf("unknown option: %v", err)
	}
}

// TestMaintainOneAtATime: a second process skips.
func TestMaintainOneAtATime(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	must[[]volvra.Step](t)(volvra.New(tx).Maintain(t.Context(), volvra.MaintainOptions{}))
	if got := stepNames(must[[]volvra.Step](t)(v.Maintain(t.Context(), volvra.MaintainOptions{}))); got != "skipped" {
		t.Errorf("steps: %s", got)
	}
	if err := volvra.New(tx).Run(t.Context(), volvra.RunOptions{}); !errors.Is(err, volvra.ErrInvalid) {
		t.Errorf("run in a transaction: %v", err)
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func TestRun(t *testing.T) {
	t.Parallel()
	v, pool := covered(t)
	run(t, pool, "insert into shop.orders values (1, 'secret', 0)")
	ctx, cancel := context.WithCancel(t.Context())
	var log lines
	done := make(chan error)
	go func() {
		done <- v.Run(ctx, volvra.RunOptions{Every: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			MaintainOptions: volvra.MaintainOptions{SealEvery: time.Millisecond}})
	}()
	for len(column[int64](t, pool, "select number from volvra.seal")) == 0 || column[int64](t, pool, "select count(*) from annals.tick")[0] < 5 {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	ok(t, <-done)
	if s := log.String(); !strings.Contains(s, "step=seal") || strings.Contains(s, "secret") || strings.Contains(s, "level=ERROR") {
		t.Errorf("log: %s", s)
	}
}
