// Package amjs is for tests only: Automerge for JavaScript in a process of its own, with which documents are compared.
package amjs

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Version is that of the npm package.
const Version = "3.5.0"

//go:embed automerge.mjs
var script string

// Process is a running node. It answers one question after another.
type Process struct {
	peers int
	in    io.Writer
	out   *bufio.Reader
}

// State is what JavaScript has of a document.
type State struct {
	Save    []byte
	Changes [][]byte
	Heads   []string
	JSON    string // the document and the spans of its text "rich"
	Views   []View // as of the heads that were asked for
	Message []byte // of the sync protocol, nil if there is nothing to send
}

// View is what JavaScript shows of a document as of some heads.
type View struct {
	JSON      json.RawMessage
	Spans     json.RawMessage
	Conflicts []Conflict
}

// Conflict is a place with several values, by the operations that set them.
type Conflict struct {
	Path   []any
	Values map[string]json.RawMessage
}

// Start starts node with the package, which it installs into the user's cache the first time. Tests are skipped where that can't be.
func Start(t testing.TB) *Process {
	t.Helper()
	module := Module(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	file := filepath.Join(t.TempDir(), "automerge.mjs")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, file, module)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &Process{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// Module is the file to import the package from in node, which it installs as Start does.
func Module(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("short")
	}
	return install(t)
}

func install(t testing.TB) (module string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "annals", "automerge-js-"+Version)
	module = filepath.Join(dir, "node_modules", "@automerge", "automerge", "dist", "mjs", "entrypoints", "fullfat_node.js")
	if _, err := os.Stat(module); err == nil {
		return module
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	// Beside others that do the same, the first to move its folder into place wins.
	temp, err := os.MkdirTemp(filepath.Dir(dir), "install")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := os.WriteFile(filepath.Join(temp, "package.json"), []byte(`{"private": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "@automerge/automerge@"+Version)
	cmd.Dir = temp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm can't install Automerge: %v\n%s", err, out)
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, again := os.Stat(module); again != nil {
			t.Fatal(err)
		}
	}
	return module
}

func (p *Process) ask(t testing.TB, what any) State {
	t.Helper()
	s, complaint := p.try(t, what)
	if complaint != "" {
		t.Fatal(complaint)
	}
	return s
}

// try also gives what the library complained of, if it did.
func (p *Process) try(t testing.TB, what any) (s State, complaint string) {
	t.Helper()
	question, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.in.Write(append(question, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		State
		Error string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.State, answer.Error
}

// TryLoad is Load for chunks that may be refused: complaint is what the library says then.
func (p *Process) TryLoad(t testing.TB, chunks ...[]byte) (s State, complaint string) {
	t.Helper()
	return p.try(t, map[string]any{"chunks": chunks})
}

// Make makes a random document, the same for the same seed: so many actors edit it, apart and together.
func (p *Process) Make(t testing.TB, seed, actors, steps int) State {
	t.Helper()
	return p.ask(t, map[string]int{"seed": seed, "actors": actors, "steps": steps})
}

// Load loads a save, then more chunks.
func (p *Process) Load(t testing.TB, chunks ...[]byte) State {
	t.Helper()
	return p.ask(t, map[string]any{"chunks": chunks})
}

// View loads a save and shows it as of each of the heads; no heads are all.
func (p *Process) View(t testing.TB, save []byte, heads ...[]string) []View {
	t.Helper()
	return p.ask(t, map[string]any{"chunks": [][]byte{save}, "views": heads}).Views
}
