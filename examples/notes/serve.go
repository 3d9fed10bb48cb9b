package main

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
)

//go:embed page
var files embed.FS

// server keeps browsers in step with a note.
type server struct {
	store *automerge.Store
	note  uuid.UUID
	http.ServeMux

	mu      sync.Mutex
	changed map[chan struct{}]bool // told when the note has changed, one for each browser
}

// maxMessage is the longest message that a browser may send.
const maxMessage = 16 << 20

func newServer(ctx context.Context, pool *pgxpool.Pool, library string) (*server, error) {
	s := &server{store: automerge.New(pool), changed: map[chan struct{}]bool{}}
	if err := automerge.Install(ctx, pool); err != nil {
		return nil, err
	}
	var err error
	if s.note, err = s.store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"title": "A note", "text": "Write here."}`), Whole: true}); err != nil {
		return nil, err
	}
	page, err := fs.Sub(files, "page")
	if err != nil {
		return nil, err
	}
	index, err := fs.ReadFile(page, "index.html")
	if err != nil {
		return nil, err
	}
	if library != "" {
		s.Handle("/automerge/", http.StripPrefix("/automerge/", http.FileServerFS(os.DirFS(library))))
		index = []byte(strings.NewReplacer("https://esm.sh/@automerge/automerge@3.5.0/slim", "/automerge/dist/mjs/entrypoints/slim.js",
			"https://esm.sh/@automerge/automerge@3.5.0/dist/automerge.wasm", "/automerge/dist/automerge.wasm").Replace(string(index)))
	}
	s.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(index)
	})
	s.Handle("GET /client.js", http.FileServerFS(page))
	s.HandleFunc("GET /note", s.sync)
	return s, nil
}

// follow tells the browsers' connections of every change, whoever made it, in whatever process.
func (s *server) follow(ctx context.Context) error {
	for _, err := range s.store.Subscribe(ctx, automerge.SubscribeOptions{}, s.note) {
		if err != nil {
			return err
		}
		s.mu.Lock()
		for c := range s.changed {
			select {
			case c <- struct{}{}:
			default: // it is told already
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// sync talks to a browser in Automerge's sync protocol: a message of the WebSocket is one of the protocol's.
func (s *server) sync(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil) // from pages of this server only
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxMessage)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()

	changed := make(chan struct{}, 1)
	s.mu.Lock()
	s.changed[changed] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.changed, changed)
		s.mu.Unlock()
	}()

	messages := make(chan []byte)
	go func() {
		defer cancel() // the browser has gone
		for {
			_, message, err := conn.Read(ctx)
			if err != nil {
				return
			}
			select {
			case messages <- message:
			case <-ctx.Done():
				return
			}
		}
	}()
	var state automerge.SyncState // of this connection
	for {
		var message []byte
		select {
		case <-ctx.Done():
			return
		case message = <-messages:
		case <-changed:
		}
		answer, err := s.store.SyncWith(ctx, s.note, &state, message)
		if err != nil {
			_ = conn.Close(websocket.StatusPolicyViolation, "that is no message that the note can take")
			return
		}
		if answer == nil {
			continue
		}
		sending, sent := context.WithTimeout(ctx, 30*time.Second)
		err = conn.Write(sending, websocket.MessageBinary, answer)
		sent()
		if err != nil {
			return
		}
	}
}
