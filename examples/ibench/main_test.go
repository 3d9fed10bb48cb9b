package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/ibench"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

func TestRun(t *testing.T) {
	conn := pgserver.Shared(t).ConnString(databaseOf(t))
	folder := filepath.Join(t.TempDir(), "report")
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-short", "-compare", "plain", "-mode", "compatible,lean", "-seed", "3", "-dsn", conn, "-o", folder}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "l.i0 plain lean") || !strings.Contains(progress.String(), "left") {
		t.Errorf("progress: %q", progress.String())
	}
	for name, want := range map[string]string{"report.html": "</html>", "report.md": out.String()} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file, err := os.Open(filepath.Join(folder, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if r, err := ibench.ReadJSON(file); err != nil || r.Seed != 3 || len(r.Sides) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRefused(t *testing.T) {
	conn := pgserver.Shared(t).ConnString(databaseOf(t))
	for _, args := range [][]string{{"-compare", "nonsense"}, {"-mode", "nonsense"}, {"-pg", "fifteen"}} {
		if err := run(t.Context(), append(args, "-dsn", conn), &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), args[1]) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func databaseOf(t *testing.T) string {
	s := pgserver.Shared(t)
	name, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return name
}
