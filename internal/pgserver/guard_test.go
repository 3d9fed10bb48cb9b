package pgserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// guarded starts a shell command under a guard.
func guarded(t *testing.T, signal, command string) (g *guard, folder string, pid int) {
	t.Helper()
	f, err := testCache(t).newFolder()
	if err != nil {
		t.Fatal(err)
	}
	// This process's own account, for the folders above the test's are closed to others.
	g, err = newGuard(account{}, f, signal, "/bin/sh", "-c", command)
	if err != nil {
		f.discard()
		t.Fatal(err)
	}
	answer, err := g.ask(t.Context(), "start")
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(answer); err != nil {
		t.Fatal(err)
	}
	return g, f.path, pid
}

func TestGuardWaitsForOrphans(t *testing.T) {
	g, folder, _ := guarded(t, "TERM", "(sleep 0.3; touch late) & exit 0")
	eventually(t, "the program ends", func() bool {
		status, err := g.ask(t.Context(), "status")
		return err == nil && status == "ended"
	})
	if answer, err := g.ask(t.Context(), "wait"); err != nil || answer != "gone" {
		t.Fatalf("answered %q: %v", answer, err)
	}
	if !exists(filepath.Join(folder, "late")) {
		t.Error("did not wait for what the program had started")
	}
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	if exists(folder) {
		t.Error("the folder is still there")
	}
}

func TestGuardSendsTheSignal(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	g, folder, pid := guarded(t, "TERM", "trap 'touch "+mark+"; exit' TERM; touch ready; while :; do sleep 0.01; done")
	eventually(t, "the program is ready", func() bool { return exists(filepath.Join(folder, "ready")) })
	if status, err := g.ask(t.Context(), "status"); err != nil || status != "running" {
		t.Errorf("status %q: %v", status, err)
	}
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	if !exists(mark) || alive(pid) {
		t.Errorf("signalled: %t, alive: %t", exists(mark), alive(pid))
	}
}

// What has just been started may not listen to signals yet: PostgreSQL in its first milliseconds.
func TestGuardInsists(t *testing.T) {
	g, folder, pid := guarded(t, "TERM", "trap '' TERM; touch deaf; sleep 0.3; trap exit TERM; while :; do sleep 0.01; done")
	eventually(t, "the program is deaf", func() bool { return exists(filepath.Join(folder, "deaf")) })
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the program is still there")
	}
}

func TestAskGivesUpButKeepsTheOrder(t *testing.T) {
	g, folder, _ := guarded(t, "KILL", "until [ -e go ]; do sleep 0.01; done")
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.ask(soon, "wait"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The answer to the word that was given up must not be taken for the answer to this one.
	if answer, err := g.ask(t.Context(), "status"); err != nil || answer != "ended" {
		t.Errorf("answered %q: %v", answer, err)
	}
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
}
