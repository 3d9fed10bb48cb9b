package amformat

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The version of the npm package that documents are compared with.
const jsVersion = "3.5.0"

// javascript is Automerge for JavaScript in a process of its own.
type javascript struct {
	in  io.Writer
	out *bufio.Reader
}

type jsState struct {
	Save    []byte
	Changes [][]byte
	Heads   []string
	JSON    string
	Error   string
}

// startJS starts node with the package, which it installs into the user's cache the first time. Tests are skipped where that can't be.
func startJS(t testing.TB) *javascript {
	t.Helper()
	if testing.Short() {
		t.Skip("short")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	module := installJS(t)
	cmd := exec.Command(node, filepath.Join("testdata", "automerge.mjs"), module)
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())(t)
	out := must(cmd.StdoutPipe())(t)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &javascript{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

func installJS(t testing.TB) (module string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "annals", "automerge-js-"+jsVersion)
	module = filepath.Join(dir, "node_modules", "@automerge", "automerge", "dist", "mjs", "entrypoints", "fullfat_node.js")
	if _, err := os.Stat(module); err == nil {
		return module
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm")
	}
	ok(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	// Beside others that do the same, the first to move its folder into place wins.
	temp := must(os.MkdirTemp(filepath.Dir(dir), "install"))(t)
	defer os.RemoveAll(temp)
	ok(t, os.WriteFile(filepath.Join(temp, "package.json"), []byte(`{"private": true}`), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "@automerge/automerge@"+jsVersion)
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

func (js *javascript) ask(t testing.TB, what any) (s jsState) {
	t.Helper()
	_, err := js.in.Write(append(must(json.Marshal(what))(t), '\n'))
	ok(t, err)
	line, err := js.out.ReadBytes('\n')
	ok(t, err)
	ok(t, json.Unmarshal(line, &s))
	if s.Error != "" {
		t.Fatal(s.Error)
	}
	return s
}

func (js *javascript) load(t testing.TB, chunks ...[]byte) jsState {
	t.Helper()
	return js.ask(t, map[string]any{"chunks": chunks})
}

func TestJSDocuments(t *testing.T) {
	js := startJS(t)
	e := goEngine(t)
	for seed := range max(1, *randomDocs/4) { // JavaScript is the slow part
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		made := js.ask(t, map[string]int{"seed": seed + 1, "actors": 1 + r.IntN(4), "steps": 5 + r.IntN(60)})
		var heads []Hash
		for _, h := range made.Heads {
			heads = append(heads, must(ParseHash(h))(t))
		}
		saved := holds(t, r, made.Changes, heads)
		// Rows of what JavaScript saves and of what is saved here are the same, and so is what JavaScript makes of either.
		theirs := must(ParseDocument(made.Save, Limits{}))(t)
		ours := must(ParseDocument(saved, Limits{}))(t)
		same(t, "saved", listed(t, ours.Rows(), nil), listed(t, theirs.Rows(), nil))
		must(theirs.Changes(t.Context()))(t)
		// What JavaScript shows after merging isn't always what it shows after loading what it then saved: the latter counts.
		want := js.load(t, made.Save)
		if got := js.load(t, saved); strings.Join(got.Heads, " ") != strings.Join(made.Heads, " ") || got.JSON != want.JSON {
			t.Fatalf("document %d:\n got %s %s\nwant %s %s", seed, got.Heads, got.JSON, made.Heads, want.JSON)
		}
		if got := e.load(saved); got.heads != headsText(heads) || got.err != "" {
			t.Fatalf("document %d: automerge-go has %+v, and not %s", seed, got, headsText(heads))
		}
	}
}

func TestSavesOfFixturesLoadInJS(t *testing.T) {
	js := startJS(t)
	for _, name := range documents {
		if name == "text3mb" && !*longTests {
			continue // it takes JavaScript seconds
		}
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name+".am")
			want := js.load(t, data)
			d := must(ParseDocument(data, Limits{}))(t)
			saved := must(WriteDocument(t.Context(), d, nil, tailOf(t, name), Limits{}))(t)
			if len(tailOf(t, name)) > 0 {
				want = js.load(t, append([][]byte{data}, tailBytes(t, name)...)...)
			}
			if got := js.load(t, saved); got.JSON != want.JSON || strings.Join(got.Heads, " ") != strings.Join(want.Heads, " ") {
				t.Errorf("got %.1000s\nwant %.1000s", got.JSON, want.JSON)
			}
		})
	}
}
