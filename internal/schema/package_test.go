package schema_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
)

func TestSQL(t *testing.T) {
	t.Parallel()
	ctx, connString := t.Context(), pgserver.Database(t)
	psql, err := osexec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed; it is what this test applies the script with")
	}
	conn := connect(t, connString)
	apply := func(p schema.Package) (string, error) {
		script, err := schema.SQL(p)
		must(t, err)
		file := filepath.Join(t.TempDir(), "install.sql")
		must(t, os.WriteFile(file, []byte(script), 0o600))
		out, err := osexec.CommandContext(ctx, psql, "-X", "-v", "ON_ERROR_STOP=1", "-f", file, "-d", connString).CombinedOutput()
		return string(out), err
	}
	for range 2 {
		out, err := apply(library(1))
		if err != nil || out != "DO\n" {
			t.Fatalf("psql: %v, %s", err, out)
		}
		wantVersion(t, conn, library(1), 1)
	}
	must(t, schema.Install(ctx, conn, library(3)))
	out, err := apply(library(2))
	if err == nil || !strings.Contains(out, "library is installed as version 3, and this program knows only version 2") {
		t.Errorf("older script: %v, %s", err, out)
	}
	must(t, schema.Uninstall(ctx, conn, library(3)))
	if out, err := apply(withSteps(map[string]string{"001_a": "create table a ()", "002_b": "select 1/0"}, 2)); err == nil {
		t.Errorf("failing script: %s", out)
	}
	wantVersion(t, conn, library(1), 0)
}

func TestStepsMustBeInOrder(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"has no steps":     {"sql/query.sql"},
		"002_b":            {"sql/002_b.sql"},
		"003_c":            {"sql/001_a.sql", "sql/003_c.sql"},
		"001_b":            {"sql/001_a.sql", "sql/001_b.sql"},
		"1_a.sql":          {"sql/1_a.sql"},
		"contains $step_0": {"sql/001_quotes.sql"},
	} {
		files := fstest.MapFS{}
		for _, name := range names {
			files[name] = &fstest.MapFile{Data: []byte("select 1")}
		}
		if f := files["sql/001_quotes.sql"]; f != nil {
			f.Data = []byte("select $step_001$x$step_001$")
		}
		_, err := schema.SQL(schema.Package{Name: "p", Schema: "p", Steps: files})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error about %q", names, err, want)
		}
	}
}
