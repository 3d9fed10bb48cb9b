package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// testCache is an empty cache of the test's own.
func testCache(t *testing.T) cache {
	t.Helper()
	who, err := currentAccount()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cacheIn(who, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLeftoversOfTheDeadAreRemoved(t *testing.T) {
	c := testCache(t)
	living, err := c.newFolder()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := c.newFolder()
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // what the end of its last process does
	halfRemoved := filepath.Join(c.path, "run-without-lock")
	if err := os.MkdirAll(filepath.Join(halfRemoved, "data", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := c.newFolder()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{living.path: true, dead.path: false, halfRemoved: false, next.path: true} {
		if exists(path) != want {
			t.Errorf("%s exists: %t", filepath.Base(path), !want)
		}
	}
	living.discard()
	next.discard()
	if exists(living.path) {
		t.Error("a discarded folder is still there")
	}
}

func TestProvideFillsOnce(t *testing.T) {
	c := testCache(t)
	var fills atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := c.provide("thing", func(folder string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(folder, "content"), nil, 0o600)
			})
			if err != nil || !exists(filepath.Join(path, "content")) {
				t.Errorf("%s is incomplete: %v", path, err)
			}
		})
	}
	all.Wait()
	if fills.Load() != 1 {
		t.Errorf("filled %d times", fills.Load())
	}
}

func TestFailedFillLeavesNothing(t *testing.T) {
	c := testCache(t)
	broken := errors.New("broken")
	if _, err := c.provide("thing", func(string) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	// Of a process that was killed in the middle:
	if err := os.Mkdir(filepath.Join(c.path, "setup-killed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.provide("thing", func(string) error { return nil }); err != nil {
		t.Fatalf("after a failure: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(c.path, "setup-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

func TestCacheThatOthersMayWriteIsRefused(t *testing.T) {
	c := testCache(t)
	if err := os.Chmod(c.path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheIn(c.who, filepath.Dir(c.path)); err == nil {
		t.Error("accepted")
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.who.own(c.path); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheIn(c.who, filepath.Dir(c.path)); err == nil {
		t.Error("accepted a file")
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), c.path); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheIn(c.who, filepath.Dir(c.path)); err == nil {
		t.Error("accepted a link to elsewhere")
	}
}
