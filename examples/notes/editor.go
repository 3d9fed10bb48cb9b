//go:build cgo

package main

import (
	"context"
	"encoding/hex"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
)

// editor is somebody with a copy of the note, as an application on a laptop has it: Automerge's own library, and no database.
type editor struct {
	name  string
	doc   *engine.Doc
	state *engine.SyncState
}

func newEditor(name string) (*editor, error) {
	e := &editor{name: name, doc: engine.New()}
	if err := e.doc.SetActorID(hex.EncodeToString([]byte(name))); err != nil {
		return nil, err
	}
	e.state = engine.NewSyncState(e.doc)
	return e, nil
}

// edit changes the copy.
func (e *editor) edit(what string, fn func(doc *engine.Doc) error) error {
	if err := fn(e.doc); err != nil {
		return err
	}
	_, err := e.doc.Commit(e.name + " " + what)
	return err
}

// sync exchanges messages with the note until both have the same, and returns how many there were.
func (e *editor) sync(ctx context.Context, store *automerge.Store, note uuid.UUID) (messages int, err error) {
	for {
		var sent []byte
		if m, ok := e.state.GenerateMessage(); ok {
			sent = m.Bytes()
			messages++
		}
		answer, err := store.Sync(ctx, note, e.name, sent)
		if err != nil {
			return messages, err
		}
		if answer == nil {
			if sent == nil {
				return messages, nil
			}
			continue
		}
		messages++
		if _, err := e.state.ReceiveMessage(answer); err != nil {
			return messages, err
		}
	}
}

// text is what a copy says at a key.
func (e *editor) text(key string) (string, error) {
	return e.doc.Path(key).Text().Get()
}
