package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// fakeProc returns a directory with one process, 42, that consists of the given files.
func fakeProc(t *testing.T, files map[string]string) proc {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "42"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, "42", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc(dir)
}

func TestCPUTime(t *testing.T) {
	const stat = "42 (a) R (b) S 1 42 42 0 -1 4194304 101 0 0 0 150 25 7 7 20 0 1 0 53066 3133440\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
		ok    bool
	}{
		{"nanoseconds", map[string]string{"schedstat": "1204508117 660 2\n", "stat": stat}, 1.204508117, true},
		{"kernel without scheduler statistics", map[string]string{"schedstat": "0 0 0\n", "stat": stat}, 1.75, true},
		{"clock ticks", map[string]string{"stat": stat}, 1.75, true},
		{"truncated", map[string]string{"stat": "42 (postgres) S 1 42"}, 0, false},
		{"not a number", map[string]string{"stat": "42 (postgres) S 1 1 1 1 1 1 1 1 1 1 u s 1"}, 0, false},
		{"no process", nil, 0, false},
	} {
		got, ok := fakeProc(t, c.files).cpuTime(42)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
	if _, ok := proc(filepath.Join(t.TempDir(), "none")).cpuTime(42); ok {
		t.Error("found CPU time where there is no /proc")
	}
}

func TestIsBackend(t *testing.T) {
	for title, want := range map[string]bool{
		"postgres: postgres shop [local] idle":            true,
		"postgres: main: app shop 10.0.0.7(5432) SELECT":  true,
		"postgres: postgres shop2 [local] idle":           false,
		"vim\x00postgres: shop \x00":                      false,
		"postgres: checkpointer ":                         false,
		"/usr/lib/postgresql/15/bin/postgres\x00-D\x00/d": false,
	} {
		if got := fakeProc(t, map[string]string{"cmdline": title}).isBackend(42, "shop"); got != want {
			t.Errorf("%q is a backend of database shop: %v, want %v", title, got, want)
		}
	}
	if fakeProc(t, nil).isBackend(42, "shop") {
		t.Error("found a backend without a process title")
	}
}
