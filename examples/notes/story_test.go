//go:build cgo

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

const want = `Two people open a note:
  ada, after 3 messages: Take the train.
  bob, after 3 messages: Take the train.
Both go offline and write on:
  ada: Take the night train.
  bob: Take the train. Book early.
They come back, one after the other, and somebody watches the note:
  ada, after 2 messages: Take the night train.
  live: ada travels by night
    {"action":"put","path":["place"],"old":"Rome","new":"Florence"}
    {"action":"splice","path":["text"],"index":9,"old":"","new":"night "}
  bob, after 3 messages: Take the night train. Book early.
  live: bob books early
    {"action":"put","path":["place"],"old":"Florence","new":"Naples"}
    {"action":"splice","path":["text"],"index":21,"old":"","new":" Book early."}
  ada, after 2 messages: Take the night train. Book early.
Nothing was lost. Where both changed one thing, both values are there, and everybody shows the same one:
  place: "Naples"
  place: "Florence"
To SQL the note is a row:
  Naples: Take the night train. Book early.
Its history, and what it said after each step:
  created: "Take the train."
  ada travels by night: "Take the night train."
  bob books early: "Take the train. Book early."
`

func TestNotes(t *testing.T) {
	pool := pgserver.Copy(t, "notes", func(context.Context, *pgxpool.Pool) error { return nil })
	var out strings.Builder
	if err := run(t.Context(), &out, pool); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("it prints\n%s\nnot\n%s", &out, want)
	}
}
