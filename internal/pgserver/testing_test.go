package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A recorder is a test whose end can be looked at.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) {
	r.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any)  { r.Skip(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func record(t *testing.T, test func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r
}

func TestWithoutPostgreSQL(t *testing.T) {
	t.Setenv("ANNALS_REQUIRE_PG", "")
	absent := fmt.Errorf("%w; npm is not there", ErrUnavailable)
	if r := record(t, func(t testing.TB) { need(t, absent) }); r.skipped != absent.Error() || r.failed != "" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
	if strings.Contains(absent.Error(), "\n") {
		t.Error("more than one sentence")
	}
	// An error of another kind is never a reason to skip.
	if r := record(t, func(t testing.TB) { need(t, errors.New("broken")) }); r.failed != "broken" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
	if r := record(t, func(t testing.TB) { need(t, nil) }); r.failed+r.skipped != "" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
	t.Setenv("ANNALS_REQUIRE_PG", "1")
	if r := record(t, func(t testing.TB) { need(t, absent) }); r.failed != absent.Error() {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
}

func TestTestData(t *testing.T) {
	t.Setenv("ANNALS_TESTDATA", "")
	r := record(t, func(t testing.TB) { TestData(t, "a/b.json") })
	if !strings.Contains(r.skipped, "ANNALS_TESTDATA") || !strings.Contains(r.skipped, "a/b.json") {
		t.Errorf("skipped with %q", r.skipped)
	}
	folder := t.TempDir()
	t.Setenv("ANNALS_TESTDATA", folder)
	if r := record(t, func(t testing.TB) { TestData(t, "a/b.json") }); !strings.Contains(r.failed, "b.json") {
		t.Errorf("failed with %q", r.failed)
	}
	want := filepath.Join(folder, "a", "b.json")
	if err := os.MkdirAll(filepath.Dir(want), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := TestData(t, "a/b.json"); got != want {
		t.Errorf("got %s", got)
	}
}

func TestSharedIsOneServer(t *testing.T) {
	first, second := Shared(t), Shared(t)
	if first != second {
		t.Error("two servers")
	}
}
