package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/amjs"
	"github.com/annals-db/annals/internal/pgserver"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

//go:embed browsers_test.mjs
var browsers string

// served is a server with a note.
func served(t *testing.T, library string) (*server, string) {
	t.Helper()
	pool := pgserver.Copy(t, "notes", func(context.Context, *pgxpool.Pool) error { return nil })
	s, err := newServer(t.Context(), pool, library)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- s.follow(ctx) }()
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		stop()
		<-followed
	})
	return s, web.URL
}

// Two browsers that write at the same time, one of them offline for a while, end with what is stored.
func TestBrowsers(t *testing.T) {
	module := amjs.Module(t)
	s, url := served(t, "")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node, which stands for the browsers, is not installed")
	}
	dir := t.TempDir()
	script, client := filepath.Join(dir, "browsers.mjs"), filepath.Join(dir, "client.mjs")
	code, err := files.ReadFile("page/client.js")
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{script: []byte(browsers), client: code} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--experimental-websocket", script, module, client, strings.Replace(url, "http", "ws", 1)+"/note")
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if strings.Contains(complaints.String(), "bad option") {
		t.Skip("this version of node has no WebSocket")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaints)
	}
	var docs []struct {
		Heads []string
		Doc   struct{ Title, Text string }
	}
	if err := json.Unmarshal(out, &docs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	heads, err := s.store.Heads(ctx, s.note)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, h := range heads {
		want = append(want, h.String())
	}
	stored, err := automerge.Get[struct{ Title, Text string }](ctx, s.store, s.note)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range docs {
		if strings.Join(d.Heads, " ") != strings.Join(want, " ") || d.Doc != stored {
			t.Errorf("browser %d has %+v, and stored is %v %+v", i, d, want, stored)
		}
	}
	if len(docs) != 2 || strings.Count(stored.Text, "a") < 20 || strings.Count(stored.Text, "b") < 20 || stored.Title != "Offline" {
		t.Errorf("something was lost: %+v", stored)
	}
}

func TestPage(t *testing.T) {
	library := t.TempDir()
	if err := os.WriteFile(filepath.Join(library, "file.js"), []byte("library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, url := served(t, library)
	for path, want := range map[string]string{"/": "/automerge/dist/mjs/entrypoints/slim.js", "/client.js": "generateSyncMessage", "/automerge/file.js": "library"} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !strings.Contains(string(body), want) || strings.Contains(string(body), "esm.sh") {
			t.Errorf("%s: %v\n%s", path, err, body)
		}
	}
}

// Who sends anything else is told so, and others are not disturbed.
func TestHostileBrowser(t *testing.T) {
	s, url := served(t, "")
	before, err := s.store.Heads(t.Context(), s.note)
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"", "hello", "B\x00\x00\x00\x01\x0b0123456789a"} {
		conn, answer, err := websocket.Dial(t.Context(), url+"/note", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body != nil {
			_ = answer.Body.Close()
		}
		if err := conn.Write(t.Context(), websocket.MessageBinary, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, _, err = conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%q: %v", message, err)
		}
		_ = conn.CloseNow()
	}
	after, err := s.store.Heads(t.Context(), s.note)
	if err != nil || len(after) != len(before) || after[0] != before[0] {
		t.Errorf("heads %v, and not %v: %v", after, before, err)
	}
}
