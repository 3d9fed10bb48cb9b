//go:build cgo

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
	"github.com/annals-db/annals/volvra"
)

const readme = "../../README.md"

// README shows what the program really prints.
func TestREADMEShowsTheOutput(t *testing.T) {
	pgserver.Shared(t) // skips where there is no PostgreSQL
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- output of go run ./examples/quickstart -->\n```text\n", "```\n<!-- end of output -->"
	_, rest, found := strings.Cut(read(t, readme), begin)
	shown, _, closed := strings.Cut(rest, end)
	if !found || !closed || shown != out.String() {
		t.Errorf("README shows\n%s\nbut the program prints\n%s", shown, out.String())
	}
}

// README's Go is taken from the program, so it compiles and runs.
func TestREADMEShowsTheCode(t *testing.T) {
	program := read(t, "ledger.go") + read(t, "volvra.go") + read(t, "gnomon.go") + read(t, "automerge.go")
	blocks := strings.Split(read(t, readme), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("README shows no Go")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(program, code) {
			t.Errorf("README shows Go that the program does not have:\n%s", code)
		}
	}
}

// README's SQL runs.
func TestREADMEShowsSQLThatRuns(t *testing.T) {
	pool := pgserver.Pool(t)
	if err := errors.Join(ledger.Install(t.Context(), pool), volvra.Install(t.Context(), pool), gnomon.Install(t.Context(), pool), automerge.Install(t.Context(), pool)); err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(read(t, readme), "```sql\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("README shows no SQL")
	}
	for _, block := range blocks {
		script, _, _ := strings.Cut(block, "```")
		session, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range strings.Split(script, ";\n") {
			if _, err := session.Exec(t.Context(), sql); err != nil {
				t.Errorf("%v in\n%s", err, sql)
			}
		}
		session.Release()
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMain(m *testing.M) { pgserver.Main(m) }
